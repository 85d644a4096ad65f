(** Theorem P2 as a test that ends: so many requests more take so much longer at most, and no more than those come in it. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Pipeline.

Section Test.
Variable q : pipeline.
Notation m := (length (stages q)).
Notation N i := (crew (sg q i)).
Notation B i := (size (sg q i)).
Notation P i := (span (sg q i)).
Notation up i := (parent (sg q i)).
Notation F i := (fan (sg q i)).
Notation curve := (curve_m (as_problem q)).

(** Of each stage [a i] full batches by each worker are what comes of [w] sources at the most, and take no longer than [h]. *)
Variables M a : nat -> nat.
Variables w h : nat.
Definition even := M 0 = 1 /\ (forall i, 0 < i < m -> M i = F i * M (up i)) /\
  forall i, i < m -> M i * w = B i * (N i * a i) /\ P i * a i <= h.

Hypothesis Hsense : sensible q.
Hypothesis Heven : even.

Lemma ends_even i x : i < m -> ends q i (S (x + N i * a i)) = ends q i (S x) + P i * a i.
Proof.
  intros Hi. destruct Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & _). unfold ends, cdiv.
  replace (S (x + N i * a i) + N i - 1) with (S x + N i - 1 + a i * N i) by lia. rewrite Nat.div_add by lia. lia.
Qed.

Lemma worst_even fuel : forall i Y, i < m -> fuel * (M i * w) <= Y -> worst q fuel i (Y + M i * w) <= worst q fuel i Y + h.
Proof.
  induction fuel as [|fuel IH]; intros i Y Hi HY; [cbn; lia|]. destruct Heven as (_ & HM & Ha). destruct (Ha i Hi) as (Ew & Hh).
  destruct Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (_ & HB). set (W := M i * w) in *. cbn [worst]. apply max_le.
  intros e He. apply in_map_iff in He as (x & <- & Hx). apply in_seq in Hx. assert (Hlt : B i * x < Y + W) by (apply cdiv_above; lia).
  destruct (Nat.le_gt_cases W (B i * x)) as [Hge|Hsmall].
  - (* as many full batches fewer *)
    assert (Hxa : N i * a i <= x) by (apply (Nat.mul_le_mono_pos_l _ _ (B i) HB); lia).
    set (y := x - N i * a i). assert (Ex : x = y + N i * a i) by (unfold y; lia). rewrite Ex in *. rewrite ends_even by auto.
    replace (Y + W - B i * (y + N i * a i)) with (Y - B i * y) by (rewrite Nat.mul_add_distr_l; lia).
    assert (H : ends q i (S y) + list_max (map (fun c => worst q fuel c (F c * (Y - B i * y))) (children q i)) <= worst q (S fuel) i Y).
    { cbn [worst]. apply in_max, (in_map (fun x => ends q i (S x) + list_max (map (fun c => worst q fuel c (F c * (Y - B i * x))) (children q i))) _ y).
      apply in_seq. split; [lia|]. apply cdiv_above; lia. }
    cbn [worst] in H. lia.
  - (* as many, and more is left to the stages behind *)
    assert (HWY : W <= Y) by lia.
    assert (H : ends q i (S x) + list_max (map (fun c => worst q fuel c (F c * (Y - B i * x))) (children q i)) <= worst q (S fuel) i Y).
    { cbn [worst]. apply in_max, (in_map (fun x => ends q i (S x) + list_max (map (fun c => worst q fuel c (F c * (Y - B i * x))) (children q i))) _ x).
      apply in_seq. split; [lia|]. apply cdiv_above; lia. }
    cbn [worst] in H. etransitivity; [|apply Nat.add_le_mono_r, H]. rewrite <- Nat.add_assoc. apply Nat.add_le_mono_l, max_le.
    intros e He. apply in_map_iff in He as (c & <- & Hc). pose proof Hc as Hc'. unfold children in Hc'. apply filter_In in Hc' as (Hcm & Hup).
    apply in_seq in Hcm. apply Nat.eqb_eq in Hup. pose proof (HM c ltac:(lia)) as Ec. rewrite Hup in Ec.
    assert (Ew' : M c * w = F c * W) by (rewrite Ec; unfold W; lia).
    replace (F c * (Y + W - B i * x)) with (F c * (Y - B i * x) + M c * w) by (rewrite Ew', <- Nat.mul_add_distr_l; f_equal; lia).
    etransitivity; [apply IH; [lia|]|].
    + rewrite Ew'. replace (fuel * (F c * W)) with (F c * (fuel * W)) by lia. apply Nat.mul_le_mono_l. lia.
    + apply Nat.add_le_mono_r, in_max, (in_map (fun c => worst q fuel c (F c * (Y - B i * x))) _ c Hc).
Qed.

(** It is enough to look at the offsets up to [h] beyond one by which [w] sources for each stage can have come. *)
Definition looked_at from := m * w <= curve (from + 1) /\ (forall d, curve (d + h) <= curve d + w) /\
  forall d, d < from + h -> 0 < curve (d + 1) -> burst q 0 (curve (d + 1)) <= d + allowed q.

Lemma looked_at_all from : 0 < h -> looked_at from -> test_once q (burst q).
Proof.
  intros Hh (Hfrom & Hcome & Hlook) d. induction d as [d IH] using lt_wf_ind. intros Hc.
  destruct (Nat.lt_ge_cases d (from + h)) as [Hlt|Hge]; [now apply Hlook|].
  pose proof Hsense as (_ & Hm & _ & _). destruct Heven as (HM0 & _).
  assert (Hmore : m * w <= curve (d - h + 1)).
  { etransitivity; [exact Hfrom|]. apply (curve_m_mono q Hsense). lia. }
  assert (Hnext : curve (d + 1) <= curve (d - h + 1) + w).
  { specialize (Hcome (d - h + 1)). replace (d - h + 1 + h) with (d + 1) in Hcome by lia. exact Hcome. }
  assert (Hpos : 0 < curve (d - h + 1)).
  { destruct (Nat.eq_dec (curve (d - h + 1)) 0) as [E|E]; [|lia]. destruct w; [lia|]. destruct m; lia. }
  specialize (IH (d - h) ltac:(lia) Hpos).
  transitivity (burst q 0 (curve (d - h + 1) + M 0 * w)).
  - rewrite HM0, Nat.mul_1_l. unfold burst. now apply worst_mono.
  - unfold burst in *. rewrite Nat.sub_0_r in *. etransitivity; [apply worst_even; [lia|rewrite HM0; lia]|]. lia.
Qed.

Theorem theorem_P2_ends from : 0 < h -> looked_at from -> all_hit q.
Proof. intros Hh H. apply theorem_P2_burst; [auto|now apply (looked_at_all from)]. Qed.
End Test.

(** * A program that looks at all of it, for streams of at most so many in any so long *)

Record windowed := Windowed { share : nat * nat; most : nat; every : nat }.
Definition to_stream s := Stream (fst (share s)) (snd (share s)) (fun d => most s * cdiv d (every s)).
Definition piped l ss allowed := Pipeline l (map to_stream ss) allowed.

(** What may come in [h], a whole number of all windows. *)
Definition gain h s := fst (share s) * most s * (h / every s).
Definition gains h ss := list_sum (map (fun s => gain h s / snd (share s)) ss).
Definition stream_ok h s := (0 <? every s) && (fst (share s) <=? snd (share s)) && (0 <? snd (share s)) &&
  (h mod every s =? 0) && (gain h s mod snd (share s) =? 0).

Fixpoint fans q fuel i := match fuel, i with S fuel, S _ => fan (sg q i) * fans q fuel (parent (sg q i)) | _, _ => 1 end.
Definition stage_ok q w h i := let c := crew (sg q i) in let b := size (sg q i) in let all := fans q (length (stages q)) i * w in
  (0 <? c) && (0 <? b) && ((i =? 0) || (parent (sg q i) <? i)) && (all mod (b * c) =? 0) && (span (sg q i) * (all / (b * c)) <=? h).

Definition check_P2 l ss allowed h from := let q := piped l ss allowed in let w := gains h ss in let m := length l in
  (0 <? h) && (0 <? m) && forallb (stream_ok h) ss && forallb (stage_ok q w h) (seq 0 m) &&
  (m * w <=? curve_m (as_problem q) (from + 1)) &&
  forallb (fun d => burst q 0 (curve_m (as_problem q) (d + 1)) <=? d + allowed) (seq 0 (from + h)).

Lemma fans_fuel q fuel : (forall i, 0 < i < length (stages q) -> parent (sg q i) < i) ->
  forall fuel' i, i < length (stages q) -> i <= fuel -> i <= fuel' -> fans q fuel i = fans q fuel' i.
Proof.
  intros Hup. induction fuel as [|fuel IH]; intros fuel' i Hi H H'.
  - replace i with 0 by lia. destruct fuel'; reflexivity.
  - destruct i as [|i]; [destruct fuel'; reflexivity|]. destruct fuel' as [|fuel']; [lia|]. cbn [fans].
    specialize (Hup (S i) ltac:(lia)). f_equal. apply IH; lia.
Qed.

Lemma window_even s h d : stream_ok h s = true ->
  cdiv (fst (share s) * (most s * cdiv (d + h) (every s))) (snd (share s)) =
  cdiv (fst (share s) * (most s * cdiv d (every s))) (snd (share s)) + gain h s / snd (share s).
Proof.
  unfold stream_ok. rewrite !andb_true_iff, !Nat.ltb_lt, Nat.leb_le, !Nat.eqb_eq. intros ((((He & _) & Hd) & Hh) & Hg).
  pose proof (Nat.div_mod h (every s) ltac:(lia)) as Eh. rewrite Hh in Eh. pose proof (Nat.div_mod (gain h s) (snd (share s)) ltac:(lia)) as Eg.
  rewrite Hg in Eg. unfold gain at 1 in Eg. set (y := h / every s) in *. set (z := gain h s / snd (share s)) in *.
  assert (E : cdiv (d + h) (every s) = cdiv d (every s) + y).
  { unfold cdiv. replace (d + h + every s - 1) with (d + every s - 1 + y * every s) by lia. now rewrite Nat.div_add by lia. }
  rewrite E. set (c := cdiv d (every s)). unfold cdiv.
  replace (fst (share s) * (most s * (c + y)) + snd (share s) - 1) with (fst (share s) * (most s * c) + snd (share s) - 1 + z * snd (share s)) by lia.
  now rewrite Nat.div_add by lia.
Qed.

Theorem check_P2_sound l ss allowed h from : check_P2 l ss allowed h from = true -> all_hit (piped l ss allowed).
Proof.
  set (q := piped l ss allowed). unfold check_P2. fold q. cbv zeta. set (w := gains h ss).
  rewrite !andb_true_iff, !forallb_forall, !Nat.ltb_lt, Nat.leb_le. intros (((((Hh & Hm) & Hss) & Hl) & Hfrom) & Hlook).
  assert (Hstage : forall i, i < length (stages q) -> 0 < crew (sg q i) /\ 0 < size (sg q i) /\ (0 < i -> parent (sg q i) < i) /\
    fans q (length l) i * w = size (sg q i) * (crew (sg q i) * (fans q (length l) i * w / (size (sg q i) * crew (sg q i)))) /\
    span (sg q i) * (fans q (length l) i * w / (size (sg q i) * crew (sg q i))) <= h).
  { intros i Hi. specialize (Hl i ltac:(apply in_seq; cbn in Hi; lia)). unfold stage_ok in Hl. cbv zeta in Hl. change (length (stages q)) with (length l) in *.
    rewrite !andb_true_iff, orb_true_iff, !Nat.ltb_lt, Nat.leb_le, !Nat.eqb_eq in Hl. destruct Hl as ((((H1 & H2) & H3) & H4) & H5).
    split; [auto|]. split; [auto|]. split; [lia|]. split; [|auto].
    pose proof (Nat.div_mod (fans q (length l) i * w) (size (sg q i) * crew (sg q i)) ltac:(nia)) as E. rewrite H4 in E. lia. }
  assert (Hsense : sensible q).
  { split; [|split; [exact Hm|split; intros i Hi; [destruct (Hstage i Hi) as (H1 & H2 & _); auto|apply (Hstage i); lia]]].
    intros s Hs. apply in_map_iff in Hs as (x & <- & Hx). specialize (Hss x Hx). unfold stream_ok in Hss.
    rewrite !andb_true_iff, !Nat.ltb_lt, Nat.leb_le in Hss. destruct Hss as ((((He & H1) & H2) & _) & _).
    split; [exact H1|]. split; [exact H2|]. intros a b Hab. cbn [curve to_stream]. apply Nat.mul_le_mono_l, cdiv_mono; auto. }
  apply (theorem_P2_ends q (fans q (length l)) (fun i => fans q (length l) i * w / (size (sg q i) * crew (sg q i))) w h Hsense) with (from := from); [|exact Hh|].
  - split; [destruct (length l); reflexivity|]. split; [|intros i Hi; apply (Hstage i Hi)].
    assert (Hn : length (stages q) = length l) by reflexivity. intros i Hi. destruct i as [|i]; [lia|].
    destruct (Hstage (S i) ltac:(lia)) as (_ & _ & Hup & _). specialize (Hup ltac:(lia)). rewrite Hn in Hi.
    assert (Hall : forall j, 0 < j < length (stages q) -> parent (sg q j) < j) by (intros j Hj; apply (Hstage j); lia).
    destruct (length l) as [|n]; [lia|].
    change (fans q (S n) (S i)) with (fan (sg q (S i)) * fans q n (parent (sg q (S i)))). f_equal. apply (fans_fuel q n Hall (S n)); lia.
  - split; [exact Hfrom|]. split.
    + intros d. rewrite !curve_m_all. unfold w, gains. cbn [q piped as_problem streams sources]. clear - Hss. induction ss as [|s ss IH]; [cbn; lia|].
      cbn [map list_sum fold_right]. specialize (IH ltac:(intros x Hx; apply Hss; now right)). cbn [num den curve to_stream].
      rewrite (window_even s h d) by (apply Hss; now left). unfold list_sum in IH. lia.
    + intros d Hd _. specialize (Hlook d ltac:(apply in_seq; lia)). now apply Nat.leb_le in Hlook.
Qed.

(** Two cameras, of one request in 8 ns each, a detector that finds up to two things in each, and two classifiers for these:
    15 ns from the camera to the last answer are promised, and of 14 the program says no. *)
Definition cameras := [Windowed (1, 1) 1 8; Windowed (1, 1) 1 8].
Definition detector := [Stage 1 2 3 0 1; Stage 2 1 3 0 2].

Example cameras_hit : all_hit (piped detector cameras 15).
Proof. apply (check_P2_sound _ _ _ 8 16). vm_compute. reflexivity. Qed.
Example cameras_late : check_P2 detector cameras 14 8 16 = false.
Proof. vm_compute. reflexivity. Qed.
