(** Theorem P2 as a test that ends, at capacity too: so many requests more take so much longer at most, and no more than those
    come in it. *)
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
