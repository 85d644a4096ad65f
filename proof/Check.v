(** A checker of certificates: if [check] says yes, the promise holds.  It computes with binary numbers. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA.
Open Scope N_scope.

(** * Problems as `weir certify` reads them *)

(** In [every] so long, requests at these [offsets], so many at each; an interval may see [shift] of it before it begins.
    At most c in any w: every w, c at 0.  One a period t, each up to j late: every t, one at 0, shift j; a token bucket of
    b is j = (b - 1) t.  Least distances d(1), ..., d(n): every d(n), one at 0, d(1), ..., d(n - 1). *)
Record bound := Bound { every : N; shift : N; offsets : list (N * N) }.
Record nstream := NStream { rho : N * N; constraints : list (N * N); bounds : list bound }.
Record nproblem := NProblem { ndeadline : N; nguard : N; neager : bool; nworkers : list (N * N); nstreams : list nstream }.

Definition cdivN a b := (a + b - 1) / b.
Definition sumN {A} (f : A -> N) (l : list A) := fold_right (fun x => N.add (f x)) 0 l.

Definition total b := sumN snd (offsets b).
Definition reached b rest := sumN (fun o => if fst o <=? rest then snd o else 0) (offsets b).

(** The most requests in any interval of a length. *)
Definition bound_at b d :=
  if d =? 0 then 0 else
  let last := d - 1 + shift b in total b * (last / every b) + reached b (last mod every b).

(** The least of the bounds; a stream without any is malformed, see [well_formed]. *)
Fixpoint alpha bs d := match bs with [] => 0 | [b] => bound_at b d | b :: bs => N.min (bound_at b d) (alpha bs d) end.

Definition to_stream s := Stream (N.to_nat (fst (rho s))) (N.to_nat (snd (rho s)))
  (fun d => N.to_nat (alpha (bounds s) (N.of_nat d))).
Definition to_worker (w : N * N) := Worker (N.to_nat (fst w)) (N.to_nat (snd w)).
Definition to_problem pr := Problem (N.to_nat (ndeadline pr)) (N.to_nat (nguard pr)) (neager pr)
  (map to_worker (nworkers pr)) (map to_stream (nstreams pr)).

(** What is promised. *)
Definition promise pr := serves_mandatory (to_problem pr) /\
  forall k s m K, nth_error (nstreams pr) k = Some s -> In (m, K) (constraints s) ->
  keeps (to_problem pr) k (N.to_nat m) (N.to_nat K).

(** * The checker *)

Definition alpha_m ss d := sumN (fun s => cdivN (fst (rho s) * alpha (bounds s) d) (snd (rho s))) ss.
Definition sigmaN ws u := sumN (fun w => fst w * (u / snd w)) ws.
Definition maxN ws := fold_right (fun w : N * N => N.max (snd w)) 0 ws.

Definition well_formed pr :=
  forallb (fun s => (fst (rho s) <=? snd (rho s)) && (0 <? snd (rho s)) &&
    negb (match bounds s with [] => true | _ => false end) &&
    forallb (fun c => (snd c - fst c) * snd (rho s) <=? snd c * fst (rho s)) (constraints s)) (nstreams pr) &&
  (nguard pr + maxN (nworkers pr) <=? ndeadline pr).

(** Between two points nothing need be looked at: what can have come by the later one, with [r] that waited before, is
    [begun] in time even from the earlier one. *)
Fixpoint points_ok ss begun r room a l :=
  match l with
  | [] => true
  | b :: l => (a <=? b) && (r + alpha_m ss b <=? begun (a + room)) && points_ok ss begun r room b l
  end.

(** How the points end: with the busy period, or (at capacity) by repeating after [h], the slowest bound of each
    stream alone. *)
Inductive ending := Over | Repeats (h : N) (l : list N).

Definition rate b := (total b, every b).
Definition slower a b :=
  let x := fst (rate a) * snd (rate b) in let y := fst (rate b) * snd (rate a) in
  (x <? y) || (x =? y) && (bound_at a 1 <=? bound_at b 1).
Fixpoint slowest bs := match bs with
  | [] => Bound 1 0 []
  | [b] => b
  | b :: bs => let c := slowest bs in if slower b c then b else c
  end.
Definition alone s := NStream (rho s) [] [slowest (bounds s)].

Definition divides a b := (0 <? a) && (b mod a =? 0).
Definition per h s := let b := slowest (bounds s) in fst (rate b) * (h / snd (rate b)).
Definition repeats ss ws h :=
  (0 <? h) && forallb (fun w => divides (snd w) h) ws &&
  forallb (fun s => divides (snd (rate (slowest (bounds s)))) h && divides (snd (rho s)) (fst (rho s) * per h s)) ss &&
  (sumN (fun s => fst (rho s) * per h s / snd (rho s)) ss <=? sumN (fun w => fst w * (h / snd w)) ws).

Definition room pr := ndeadline pr - (nguard pr + maxN (nworkers pr)).

(** What can come from any instant on, with [r] that waited before, is [begun] in time. *)
Definition covered pr begun r (l : list N) (e : ending) :=
  let ss := nstreams pr in let ws := nworkers pr in
  let x := last l 0 in
  points_ok ss begun r (room pr) 0 l &&
  match e with
  | Over => (0 <? x) && (alpha_m ss x <=? sigmaN ws x)
  | Repeats h l' =>
      points_ok (map alone ss) begun r (room pr) x l' && (x + h <=? last l' x) && repeats ss ws h
  end.

Definition check pr l e := well_formed pr && covered pr (sigmaN (nworkers pr)) 0 l e.

(** * It is sound *)

Lemma sumN_to_nat {A} (f : A -> N) l : N.to_nat (sumN f l) = list_sum (map (fun x => N.to_nat (f x)) l).
Proof.
  induction l as [|a l IH]; [reflexivity|]. unfold sumN in *. cbn [fold_right map list_sum].
  rewrite N2Nat.inj_add, IH. reflexivity.
Qed.

Lemma cdiv_to_nat a b : N.to_nat (cdivN a b) = cdiv (N.to_nat a) (N.to_nat b).
Proof. unfold cdivN, cdiv. rewrite N2Nat.inj_div, N2Nat.inj_sub, N2Nat.inj_add. reflexivity. Qed.

Lemma curve_m_N pr d : curve_m (to_problem pr) d = N.to_nat (alpha_m (nstreams pr) (N.of_nat d)).
Proof.
  rewrite curve_m_all. unfold alpha_m. rewrite sumN_to_nat. cbn [streams to_problem]. rewrite map_map. f_equal. apply map_ext.
  intros s. rewrite cdiv_to_nat, N2Nat.inj_mul. reflexivity.
Qed.

Lemma sigma_N pr u : sigma (to_problem pr) u = N.to_nat (sigmaN (nworkers pr) (N.of_nat u)).
Proof.
  unfold sigma, sigmaN. rewrite sumN_to_nat. unfold B, T.
  rewrite <- (list_sum_nth (fun w => (batch w * (u / time w))%nat) (Worker 0 0) (workers (to_problem pr))).
  cbn [workers to_problem]. rewrite map_map. f_equal. apply map_ext. intros w.
  rewrite N2Nat.inj_mul, N2Nat.inj_div, Nat2N.id. reflexivity.
Qed.

Lemma Tmax_N pr : Tmax (to_problem pr) = N.to_nat (maxN (nworkers pr)).
Proof.
  unfold Tmax. cbn [workers to_problem]. induction (nworkers pr); [reflexivity|].
  cbn [map list_max fold_right maxN to_worker time]. rewrite N2Nat.inj_max.
  cbn in IHl. unfold list_max in IHl. rewrite IHl. reflexivity.
Qed.

Lemma div_0_r a : a / 0 = 0.
Proof. now destruct a. Qed.

Lemma cdivN_mono a b c : a <= b -> cdivN a c <= cdivN b c.
Proof.
  intros. unfold cdivN. destruct (N.eq_dec c 0) as [->|]; [now rewrite !div_0_r|]. apply N.div_le_mono; lia.
Qed.

Lemma sumN_mono {A} (f g : A -> N) l : (forall x, In x l -> f x <= g x) -> sumN f l <= sumN g l.
Proof.
  induction l; intros H; cbn; [lia|]. specialize (IHl ltac:(intros; apply H; simpl; auto)).
  specialize (H a (or_introl eq_refl)). unfold sumN in *. lia.
Qed.

Lemma reached_mono b r r' : r <= r' -> reached b r <= reached b r'.
Proof.
  intros. apply sumN_mono. intros o _. destruct (N.leb_spec (fst o) r), (N.leb_spec (fst o) r'); lia.
Qed.

Lemma reached_total b r : reached b r <= total b.
Proof. apply sumN_mono. intros o _. destruct (fst o <=? r); lia. Qed.

Lemma bound_mono b d d' : d <= d' -> bound_at b d <= bound_at b d'.
Proof.
  intros. unfold bound_at. destruct (N.eqb_spec d 0); [lia|]. destruct (N.eqb_spec d' 0); [lia|].
  set (x := d - 1 + shift b). set (y := d' - 1 + shift b). assert (Hxy : x <= y) by (unfold x, y; lia).
  clearbody x y. cbv zeta. destruct (N.eq_dec (every b) 0) as [E|E].
  { rewrite E, !div_0_r. pose proof (reached_mono b x y Hxy). destruct x, y; cbn [N.modulo N.div_eucl snd]; lia. }
  destruct (N.eq_dec (x / every b) (y / every b)) as [Eq|Ne].
  - rewrite Eq. pose proof (N.div_mod x _ E). pose proof (N.div_mod y _ E).
    pose proof (reached_mono b (x mod every b) (y mod every b) ltac:(lia)). lia.
  - assert (x / every b <= y / every b) by (apply N.div_le_mono; auto).
    pose proof (reached_total b (x mod every b)).
    assert (total b * (x / every b + 1) <= total b * (y / every b)) by (apply N.mul_le_mono_l; lia). lia.
Qed.

Lemma alpha_mono bs d d' : d <= d' -> alpha bs d <= alpha bs d'.
Proof.
  intros H. induction bs as [|b bs IH]; [cbn; lia|]. pose proof (bound_mono b d d' H).
  destruct bs; [auto|]. cbn [alpha] in *. lia.
Qed.

Lemma alpha_m_mono ss d d' : d <= d' -> alpha_m ss d <= alpha_m ss d'.
Proof. intros. apply sumN_mono. intros s _. apply cdivN_mono, N.mul_le_mono_l, alpha_mono. auto. Qed.

Lemma sigmaN_mono ws u u' : u <= u' -> sigmaN ws u <= sigmaN ws u'.
Proof.
  intros. apply sumN_mono. intros w _. apply N.mul_le_mono_l.
  destruct (N.eq_dec (snd w) 0) as [->|]; [now rewrite !div_0_r|]. apply N.div_le_mono; lia.
Qed.

Lemma points_sound ss begun r room (Hb : forall u u', u <= u' -> begun u <= begun u') :
  forall l a, points_ok ss begun r room a l = true ->
  forall d, a <= d -> d < last l a -> r + alpha_m ss (d + 1) <= begun (d + room).
Proof.
  induction l as [|b l IH]; intros a H d Ha Hd; [cbn in Hd; lia|].
  cbn [points_ok] in H. rewrite !andb_true_iff, !N.leb_le in H. destruct H as ((Hab & Hp) & Hl).
  destruct (N.lt_ge_cases d b) as [Hlt|Hge].
  - pose proof (alpha_m_mono ss (d + 1) b ltac:(lia)). pose proof (Hb (a + room) (d + room) ltac:(lia)). lia.
  - apply (IH b); auto. destruct l; [cbn in Hd; lia|]. replace (last (n :: l) b) with (last (n :: l) a); auto.
    clear. revert n. induction l as [|c l IH]; intros n; [reflexivity|]. cbn [last] in *. apply IH.
Qed.

Lemma alpha_le bs b d : In b bs -> alpha bs d <= bound_at b d.
Proof.
  induction bs as [|c bs IH]; [contradiction|]. intros [->|H].
  - destruct bs; cbn [alpha]; lia.
  - specialize (IH H). destruct bs; [contradiction|]. cbn [alpha] in *. lia.
Qed.

Lemma slowest_in bs : bs <> [] -> In (slowest bs) bs.
Proof.
  induction bs as [|b bs IH]; [congruence|]. intros _. destruct bs as [|c bs]; [left; reflexivity|].
  cbn [slowest] in *. destruct (slower b _); [left; reflexivity|]. right. apply IH. discriminate.
Qed.

Lemma alone_le ss d : (forall s, In s ss -> bounds s <> []) -> alpha_m ss d <= alpha_m (map alone ss) d.
Proof.
  intros H. unfold alpha_m. induction ss as [|s ss IH]; [cbn; lia|].
  cbn [map]. unfold sumN in *. cbn [fold_right].
  specialize (IH ltac:(intros; apply H; simpl; auto)). cbn [alone rho bounds alpha].
  pose proof (alpha_le (bounds s) _ d (slowest_in _ (H s (or_introl eq_refl)))).
  pose proof (cdivN_mono (fst (rho s) * alpha (bounds s) d) (fst (rho s) * bound_at (slowest (bounds s)) d) (snd (rho s))
    ltac:(nia)). lia.
Qed.

Lemma divides_mul a b : divides a b = true -> 0 < a /\ b = a * (b / a).
Proof.
  unfold divides. rewrite andb_true_iff, N.ltb_lt, N.eqb_eq. intros (H1 & H2). split; auto.
  apply N.div_exact; lia.
Qed.

Lemma cdivN_add a k c : 0 < c -> 0 < a + c -> cdivN (a + c * k) c = cdivN a c + k.
Proof.
  intros. unfold cdivN. destruct (N.eq_dec a 0) as [->|].
  - replace (0 + c * k + c - 1) with ((c - 1) + k * c) by nia. rewrite N.div_add by lia.
    now replace (0 + c - 1) with (c - 1) by lia.
  - replace (a + c * k + c - 1) with ((a + c - 1) + k * c) by nia. now rewrite N.div_add by lia.
Qed.

Lemma bound_repeats b h d : divides (snd (rate b)) h = true -> 0 < d ->
  bound_at b (d + h) = bound_at b d + fst (rate b) * (h / snd (rate b)).
Proof.
  intros Hd H. apply divides_mul in Hd as (H0 & E). cbn [rate fst snd] in *.
  set (k := h / every b) in *. clearbody k. subst h. unfold bound_at.
  destruct (N.eqb_spec d 0), (N.eqb_spec (d + every b * k) 0); try lia. cbv zeta.
  replace (d + every b * k - 1 + shift b) with (d - 1 + shift b + k * every b) by lia.
  rewrite N.div_add, N.mod_add by lia. lia.
Qed.

Lemma alpha_m_repeats ss ws h d : repeats ss ws h = true -> 0 < d ->
  alpha_m (map alone ss) (d + h) =
  alpha_m (map alone ss) d + sumN (fun s => fst (rho s) * per h s / snd (rho s)) ss.
Proof.
  unfold repeats. rewrite !andb_true_iff. intros (((_ & _) & H) & _) Hd. rewrite forallb_forall in H.
  unfold alpha_m. induction ss as [|s ss IH]; [reflexivity|]. cbn [map]. unfold sumN in *. cbn [fold_right].
  rewrite IH by (intros; apply H; simpl; auto). cbn [alone rho bounds alpha].
  specialize (H s (or_introl eq_refl)). apply andb_true_iff in H as (H1 & H2).
  rewrite (bound_repeats _ h d H1 Hd). fold (per h s).
  apply divides_mul in H2 as (Hq & E).
  rewrite N.mul_add_distr_l. rewrite E at 1. rewrite cdivN_add by lia. unfold per. cbv zeta. lia.
Qed.

Lemma sigma_repeats ss ws h u : repeats ss ws h = true ->
  sigmaN ws (u + h) = sigmaN ws u + sigmaN ws h.
Proof.
  unfold repeats. rewrite !andb_true_iff. intros (((_ & H) & _) & _). rewrite forallb_forall in H.
  unfold sigmaN. induction ws as [|w ws IH]; [reflexivity|]. unfold sumN in *. cbn [fold_right].
  rewrite IH by (intros; apply H; simpl; auto). specialize (H w (or_introl eq_refl)).
  apply divides_mul in H as (Ht & E).
  replace ((u + h) / snd w) with (u / snd w + h / snd w); [lia|].
  rewrite <- N.div_add by lia. f_equal. lia.
Qed.

Lemma covered_sound pr begun r l e : (forall s, In s (nstreams pr) -> bounds s <> []) ->
  (forall u u', u <= u' -> begun u <= begun u') ->
  (forall ss u h, repeats ss (nworkers pr) h = true -> room pr <= u ->
     begun u + sigmaN (nworkers pr) h <= begun (u + h)) ->
  covered pr begun r l e = true -> forall d,
  (last l 0 <= d /\ 0 < last l 0 /\ alpha_m (nstreams pr) (last l 0) <= sigmaN (nworkers pr) (last l 0)) \/
  r + alpha_m (nstreams pr) (d + 1) <= begun (d + room pr).
Proof.
  intros Hbounds Hmono Hgrows H d. unfold covered in H. rewrite andb_true_iff in H. destruct H as (Hpts & Hend).
  destruct (N.lt_ge_cases d (last l 0)) as [Hlt|Hge].
  { right. apply (points_sound _ _ _ _ Hmono _ _ Hpts); lia. }
  destruct e as [|h l'].
  - left. rewrite andb_true_iff, N.ltb_lt, N.leb_le in Hend. tauto.
  - right. rewrite !andb_true_iff, N.leb_le in Hend. destruct Hend as ((Hp' & Hlast) & Hrep).
    set (x := last l 0) in *. etransitivity; [apply N.add_le_mono_l, alone_le, Hbounds|].
    pose proof Hrep as Hcap. unfold repeats in Hcap. rewrite !andb_true_iff, N.ltb_lt, (N.leb_le (sumN _ _)) in Hcap.
    destruct Hcap as (((Hh & _) & _) & Hcap).
    revert Hge. induction d as [d IH] using (well_founded_induction N.lt_wf_0). intros Hge.
    destruct (N.lt_ge_cases d (x + h)) as [Hlt|Hge'].
    + apply (points_sound _ _ _ _ Hmono _ _ Hp'); lia.
    + specialize (IH (d - h) ltac:(lia) ltac:(lia)).
      replace (d + 1) with (d - h + 1 + h) by lia. rewrite (alpha_m_repeats _ _ _ _ Hrep) by lia.
      replace (d + room pr) with (d - h + room pr + h) by lia.
      specialize (Hgrows _ (d - h + room pr) h Hrep ltac:(lia)).
      change (sumN (fun w => fst w * (h / snd w)) (nworkers pr)) with (sigmaN (nworkers pr) h) in Hcap. lia.
Qed.

Lemma over_N pr x : 0 < x -> alpha_m (nstreams pr) x <= sigmaN (nworkers pr) x ->
  over (to_problem pr) (everyone (to_problem pr)) (N.to_nat x).
Proof.
  intros Hx Hover. split; [lia|]. fold (curve_m (to_problem pr)). rewrite curve_m_N, sigma_N, N2Nat.id. lia.
Qed.

(** What [well_formed] says. *)
Lemma well_formed_spec pr : well_formed pr = true -> sound_streams (to_problem pr) /\
  nguard pr + maxN (nworkers pr) <= ndeadline pr /\ (forall s, In s (nstreams pr) -> bounds s <> []) /\
  forall s m K, In s (nstreams pr) -> In (m, K) (constraints s) -> (K - m) * snd (rho s) <= K * fst (rho s).
Proof.
  intros Hwf. unfold well_formed in Hwf. rewrite andb_true_iff, forallb_forall, N.leb_le in Hwf.
  destruct Hwf as (Hss & Hroom).
  assert (Hstream : forall s, In s (nstreams pr) -> fst (rho s) <= snd (rho s) /\ 0 < snd (rho s) /\ bounds s <> [] /\
    forall m K, In (m, K) (constraints s) -> (K - m) * snd (rho s) <= K * fst (rho s)).
  { intros s Hs. specialize (Hss s Hs). rewrite !andb_true_iff, forallb_forall, N.leb_le, N.ltb_lt in Hss.
    destruct Hss as (((H1 & H2) & H3) & H4). split; [auto|]. split; [auto|]. split; [now destruct (bounds s)|].
    intros m K Hc. specialize (H4 _ Hc). now apply N.leb_le in H4. }
  split; [|split; [auto|split]].
  - intros s Hs. cbn [streams to_problem] in Hs. apply in_map_iff in Hs as (s' & <- & Hs').
    destruct (Hstream s' Hs') as (H1 & H2 & _). cbn. split; [lia|]. split; [lia|].
    intros a b Hab. pose proof (alpha_mono (bounds s') (N.of_nat a) (N.of_nat b)). lia.
  - intros s Hs. now apply (Hstream s).
  - intros s m K Hs. now apply (Hstream s).
Qed.

Theorem check_sound pr l e : check pr l e = true -> promise pr.
Proof.
  unfold check. rewrite andb_true_iff. intros (Hwf & Hcov).
  destruct (well_formed_spec pr Hwf) as (Hsound & Hroom & Hbounds & Hdens).
  pose (L := N.to_nat (ndeadline pr - nguard pr)). assert (HT := Tmax_N pr).
  assert (Hserve : serves_mandatory (to_problem pr)).
  { apply (theorem_A_mixed (to_problem pr) L Hsound); [cbn; unfold L; lia|]. intros d. rewrite <- (Nat2N.id d).
    destruct (covered_sound pr _ _ _ _ Hbounds (sigmaN_mono (nworkers pr))
      (fun ss u h H _ => N.eq_le_incl _ _ (eq_sym (sigma_repeats ss (nworkers pr) h u H))) Hcov (N.of_nat d))
      as [(Hx & H0 & Hover)|Hd].
    - left. exists (N.to_nat (last l 0)). split; [lia|]. now apply over_N.
    - right. exists (N.to_nat (N.of_nat d + room pr)). split.
      + rewrite curve_m_N, sigma_N, N2Nat.id. replace (N.of_nat (N.to_nat (N.of_nat d) + 1)) with (N.of_nat d + 1) by lia. lia.
      + unfold L, room. lia. }
  split; [auto|]. intros k s m K Hk Hc. specialize (Hdens s m K (nth_error_In _ _ Hk) Hc).
  apply (serves_keeps _ _ k (to_stream s)); auto.
  - cbn [streams to_problem]. now rewrite nth_error_map, Hk.
  - cbn. lia.
Qed.

(** * What the bounds say *)

Lemma window_at c w d : 0 < w -> bound_at (Bound w 0 [(0, c)]) d = c * cdivN d w.
Proof.
  intros Hw. unfold bound_at, total, reached, sumN, cdivN. cbn [every shift offsets fold_right snd fst].
  destruct (N.eqb_spec d 0) as [->|Hd]; [rewrite N.div_small; lia|].
  rewrite (proj2 (N.leb_le 0 _)) by apply N.le_0_l.
  replace (d + w - 1) with (d - 1 + 0 + 1 * w) by lia. rewrite N.div_add by lia. lia.
Qed.

Lemma periodic_at t j d : 0 < t -> 0 < d -> bound_at (Bound t j [(0, 1)]) d = cdivN (d + j) t.
Proof.
  intros Ht Hd. unfold bound_at, total, reached, sumN, cdivN. cbn [every shift offsets fold_right snd fst].
  destruct (N.eqb_spec d 0); [lia|]. rewrite (proj2 (N.leb_le 0 _)) by apply N.le_0_l.
  replace (d + j + t - 1) with (d - 1 + j + 1 * t) by lia. rewrite N.div_add by lia. lia.
Qed.
