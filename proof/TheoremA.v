(** Theorem A: the admission test, for workers of one kind and of several, and what it promises. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core.

(** * What comes is bounded by alpha_m *)

Lemma sum_pick x b k : sum (fun i => Nat.b2n ((x =? i) && b)) k = if x <? k then Nat.b2n b else 0.
Proof.
  induction k; [reflexivity|]. cbn [sum]. rewrite IHk.
  destruct (Nat.ltb_spec x k), (Nat.ltb_spec x (S k)), (Nat.eqb_spec x k); cbn [andb Nat.b2n]; lia.
Qed.

Lemma list_sum_nth {A} (f : A -> nat) d L : list_sum (map f L) = sum (fun i => f (nth i L d)) (length L).
Proof.
  induction L using rev_ind; [reflexivity|].
  rewrite map_app, list_sum_app, app_length, Nat.add_1_r. cbn [sum]. rewrite app_nth2 by lia.
  rewrite Nat.sub_diag. cbn. rewrite IHL. rewrite Nat.add_0_r. f_equal.
  apply sum_ext. intros. now rewrite app_nth1.
Qed.

Section TheoremA.
Variable p : problem.
Notation n := (length (workers p)).
Notation B := (B p).
Notation T := (T p).
Notation Tmax := (Tmax p).
Notation D := (deadline p).

Definition before l k t := count (fun r => of k r && (arr r <? t)) l.

Lemma before_all l k t : (forall x, In x l -> arr x < t) -> before l k t = count (of k) l.
Proof. intros. apply count_ext. intros x Hx. apply H, Nat.ltb_lt in Hx. now rewrite Hx, andb_true_r. Qed.

Lemma before_snoc l r k t : before (l ++ [r]) k t = before l k t + Nat.b2n (of k r && (arr r <? t)).
Proof. unfold before. rewrite count_app, count_cons, count_nil. lia. Qed.

Lemma before_within l k s d : before l k (s + d) = before l k s + count (fun r => of k r && within s d r) l.
Proof.
  unfold before. induction l; [auto|]. rewrite !count_cons, IHl. unfold within.
  destruct (of k a); cbn [andb Nat.b2n]; [|lia].
  destruct (Nat.ltb_spec (arr a) (s + d)), (Nat.ltb_spec (arr a) s), (Nat.leb_spec s (arr a)); cbn [andb Nat.b2n]; lia.
Qed.

Lemma came_stream c l k st s d : wf c l -> nth_error (streams p) k = Some st -> num st <= den st -> 0 < den st ->
  count (fun r => of k r && (mandatory p r && within s d r)) l + (c k + before l k s) * num st / den st =
  (c k + before l k (s + d)) * num st / den st.
Proof.
  intros Hwf Hk Hle Hpos. induction Hwf; [reflexivity|].
  rewrite count_app, count_cons, count_nil, !before_snoc.
  destruct (of k r) eqn:Ek; cbn [andb]; [|cbn [Nat.b2n]; rewrite !Nat.add_0_r; auto].
  assert (src r = k) by (now apply Nat.eqb_eq in Ek). subst k.
  set (cc := count (fun r => of _ r && (mandatory p r && within s d r)) l) in *. clearbody cc.
  unfold mandatory. rewrite Hk, H0. set (m := count (of (src r)) l) in *.
  assert (Hall : forall t, arr r < t -> before l (src r) t = m).
  { intros t Ht. apply before_all. intros x Hx. specialize (H x Hx). lia. }
  pose proof (marked_step (num st) (den st) Hle Hpos (c (src r) + m)) as Hm. unfold within.
  destruct (Nat.ltb_spec (arr r) s), (Nat.ltb_spec (arr r) (s + d)), (Nat.leb_spec s (arr r)); try lia;
    rewrite ?andb_true_r, ?andb_false_r; cbn [andb Nat.b2n]; rewrite ?Nat.add_0_r; try lia.
  - rewrite !Hall in * by lia. rewrite Nat.add_assoc, Nat.add_1_r. lia.
  - rewrite (Hall (s + d)) in * by lia. rewrite Nat.add_assoc, Nat.add_1_r. lia.
Qed.

Lemma came_curve : sound_streams p -> forall S c l, wf c l -> conforms p l -> only p S l ->
  forall s d, came p l s d <= curve_of p S d.
Proof.
  intros Hs S c l Hwf Hc Ho s d.
  transitivity (list_sum (map (fun k => count (fun r => of k r && (mandatory p r && within s d r)) l) S)).
  - clear Hwf Hc. induction l as [|r l IH]; [unfold came; rewrite count_nil; lia|]. unfold came in *. rewrite count_cons.
    assert (IHl := IH ltac:(intros x Hx; apply Ho; simpl; auto)). clear IH.
    assert (Hr : mandatory p r = true -> In (src r) S) by (intros; apply Ho; simpl; auto). clear Ho.
    transitivity (Nat.b2n (mandatory p r && within s d r) +
      list_sum (map (fun k => count (fun r => of k r && (mandatory p r && within s d r)) l) S)); [lia|]. clear IHl.
    assert (E : forall S', list_sum (map (fun k => count (fun x => of k x && (mandatory p x && within s d x)) (r :: l)) S') =
      list_sum (map (fun k => Nat.b2n (of k r && (mandatory p r && within s d r))) S') +
      list_sum (map (fun k => count (fun x => of k x && (mandatory p x && within s d x)) l) S')).
    { induction S'; [reflexivity|]. cbn [map list_sum fold_right] in *. rewrite count_cons. unfold list_sum in *. lia. }
    rewrite E. apply Nat.add_le_mono_r. destruct (mandatory p r); [|cbn; lia]. specialize (Hr eq_refl).
    clear E. induction S as [|k S IH]; [contradiction|]. cbn [map list_sum fold_right]. unfold list_sum in IH.
    destruct Hr as [->|Hr]; [unfold of; rewrite Nat.eqb_refl; cbn [andb]; lia|]. specialize (IH Hr). lia.
  - unfold curve_of. clear Ho. induction S as [|k S IH]; [cbn; lia|]. cbn [map list_sum fold_right].
    apply Nat.add_le_mono; [|exact IH]. destruct (nth_error (streams p) k) as [st|] eqn:E.
    + destruct (Hs st (nth_error_In _ _ E)) as (Hle & Hpos & _).
      pose proof (came_stream c l k st s d Hwf E Hle Hpos) as H. rewrite before_within in H.
      pose proof (floor_cdiv (num st) (den st) Hle Hpos (c k + before l k s) (count (fun r => of k r && within s d r) l)) as H2.
      rewrite Nat.add_assoc in H.
      specialize (Hc k st s d E).
      pose proof (cdiv_mono (num st * count (fun r => of k r && within s d r) l) (num st * curve st d) (den st) Hpos
        ltac:(nia)). lia.
    + rewrite (count_ext _ (fun _ => false)), count_false; [lia|]. intros r _. unfold of, mandatory.
      destruct (Nat.eqb_spec (src r) k) as [->|]; [now rewrite E|reflexivity].
Qed.

(** * The test *)

Lemma curve_m_all d : curve_m p d = list_sum (map (fun s => cdiv (num s * curve s d) (den s)) (streams p)).
Proof.
  unfold curve_m, curve_of, everyone. f_equal. generalize (streams p). intros l. induction l as [|s l IH]; [reflexivity|].
  cbn [length seq map nth_error]. f_equal. rewrite <- IH, <- seq_shift, map_map. reflexivity.
Qed.

(** The condition at an offset. *)
Definition ok L d := exists u, curve_m p (d + 1) <= sigma p u /\ u + Tmax <= d + L.

Lemma starts_T x w : starts p T x w = if T w =? 0 then 1 else x / T w.
Proof.
  unfold starts. destruct (Nat.eqb_spec (T w) 0) as [->|]; [reflexivity|].
  destruct (Nat.leb_spec (T w) x); [|symmetry; now apply Nat.div_small].
  rewrite <- Nat.div_add by lia. f_equal. lia.
Qed.

Lemma supply_sigma a : sigma p a <= supply p T a.
Proof.
  pose proof (sigma_supply p T a 0 ltac:(lia)). rewrite Nat.add_0_r in H. lia.
Qed.

Lemma ok_covers L : sound_streams p -> D = L + guard p ->
  (forall d, (exists x, x <= d /\ over p (everyone p) x) \/ ok L d) -> guard p + Tmax <= D /\ covers p (everyone p) T 0.
Proof.
  intros Hs HL Hok. split.
  { destruct (Hok 0) as [(x & ? & ? & _)|(u & _ & ?)]; lia. }
  apply curve_covers; [now apply came_curve|lia|]. intros d. destruct (Hok d) as [?|(u & Hu & Hd)]; [auto|right].
  unfold curve_m in Hu. pose proof (supply_sigma u).
  pose proof (supply_mono p T u (d + (D - (guard p + Tmax))) ltac:(lia)). lia.
Qed.

(** Workers of several kinds: the condition need be looked at only until the busy period is over. *)
Theorem theorem_A_mixed L : sound_streams p -> D = L + guard p ->
  (forall d, (exists x, x <= d /\ over p (everyone p) x) \/ ok L d) ->
  serves_mandatory p.
Proof.
  intros Hs HL Hok. destruct (ok_covers L Hs HL Hok) as (Hroom & Hc).
  apply covers_serve; auto. now apply came_curve.
Qed.

(** Newcomers and leavers: under whatever loads follow one that can be borne, each of which can be and comes when it may
    ([ready]), all mandatory requests are answered in time. *)
Theorem loads_serve S : sound_streams p -> bearable p S T 0 -> serves_from p S.
Proof.
  intros Hs HS. pose proof HS as (Hroom & _). apply covers_serve; auto; [now apply came_curve|].
  apply bearable_covers; auto. now apply came_curve.
Qed.

(** Within the guarantee no mandatory request is ever refused. *)
Theorem none_refused L : sound_streams p -> D = L + guard p ->
  (forall d, (exists x, x <= d /\ over p (everyone p) x) \/ ok L d) ->
  forall st, reachable p st -> conforms p (arrived st) -> forall r, In r (waiting st) -> ~ hopeless p st r.
Proof.
  intros Hs HL Hok. destruct (ok_covers L Hs HL Hok) as (Hroom & Hc).
  apply (never_refuses _ Hroom (came_curve Hs) _ Hc).
Qed.
End TheoremA.

(** Identical workers: Theorem A as guarantee.md states it. *)
Theorem theorem_A p n B P L :
  workers p = repeat (Worker B P) n -> 0 < n * B -> 0 < P -> deadline p = L + guard p -> sound_streams p ->
  (forall d, P * (1 + cdiv (curve_m p (d + 1)) (n * B)) <= d + L) ->
  serves_mandatory p.
Proof.
  intros Hw HnB HP HL Hs Hok. apply (theorem_A_mixed p L Hs HL). intros d. right. specialize (Hok d).
  assert (HT : Tmax p = P).
  { unfold Tmax. rewrite Hw. assert (0 < n) by lia. destruct n; [lia|]. clear.
    cbn. replace (list_max (map time (repeat (Worker B P) n))) with (list_max (repeat P n)).
    - induction n; cbn; lia.
    - f_equal. induction n; cbn; congruence. }
  assert (HBT : forall w, w < n -> Model.B p w = B /\ Model.T p w = P).
  { intros w Hlt. unfold Model.B, Model.T. rewrite Hw.
    rewrite (nth_indep _ _ (Worker B P)) by (now rewrite repeat_length). now rewrite nth_repeat. }
  set (c := cdiv (curve_m p (d + 1)) (n * B)) in *.
  pose proof (cdiv_ge (curve_m p (d + 1)) (n * B) HnB) as Hc. fold c in Hc.
  assert (Hsig : forall u, sigma p u = n * B * (u / P)).
  { intros u. unfold sigma. rewrite Hw, repeat_length.
    rewrite (sum_ext _ (fun _ => B * (u / P))) by (intros w Hlt; destruct (HBT w Hlt) as (-> & ->); auto).
    clear. induction n; cbn [sum]; lia. }
  exists (P * c). rewrite Hsig, HT. rewrite (Nat.mul_comm P c), Nat.div_mul by lia. split; lia.
Qed.

(** * What it promises *)

(** If the mandatory requests whose deadlines have passed were answered in time, every (m, K) of density (K - m)/K at most
    rho is kept. *)
Lemma in_time_keeps_from p st k s m K i :
  sound_streams p -> nth_error (streams p) k = Some s -> (K - m) * den s <= K * num s ->
  (forall r, In r (arrived st) -> src r = k -> i < idx r -> mandatory p r = true -> arr r + deadline p < now st -> in_time p st r) ->
  count (missed p st k) (seq (i + 1) K) <= m.
Proof.
  intros Hs Hk Hdens Hserve. rewrite Nat.add_1_r.
  destruct (Hs s (nth_error_In _ _ Hk)) as (Hle & Hpos & _).
  pose proof (balanced_keeps (num s) (den s) Hle Hpos i m K Hdens) as Hb.
  pose proof (count_add (marked (num s) (den s)) (seq (Datatypes.S i) K)) as Ha. rewrite seq_length in Ha.
  transitivity (count (fun x => negb (marked (num s) (den s) x)) (seq (Datatypes.S i) K)); [|lia].
  apply count_mono. intros x Hseq Hmiss. apply in_seq in Hseq. destruct (marked (num s) (den s) x) eqn:Em; [exfalso|reflexivity].
  unfold missed in Hmiss. apply existsb_exists in Hmiss as (r & Hin & H).
  rewrite !andb_true_iff, negb_true_iff in H. destruct H as (((Ek & Ex) & Hd) & Hno).
  pose proof Ek as Ek'. unfold of in Ek'. apply Nat.eqb_eq in Ek', Ex. apply Nat.ltb_lt in Hd.
  destruct (Hserve r Hin Ek' ltac:(lia)) as (t & Ht & Hle'); auto.
  { unfold mandatory. rewrite Ek', Hk. now rewrite Ex. }
  rewrite <- not_true_iff_false in Hno. apply Hno, existsb_exists. exists (r, t). split; auto.
  cbn. rewrite Ek, Ex, Nat.eqb_refl. now apply Nat.leb_le.
Qed.

Lemma in_time_keeps p st k s m K :
  sound_streams p -> nth_error (streams p) k = Some s -> (K - m) * den s <= K * num s ->
  (forall r, In r (arrived st) -> src r = k -> mandatory p r = true -> arr r + deadline p < now st -> in_time p st r) ->
  forall i, count (missed p st k) (seq (i + 1) K) <= m.
Proof. intros Hs Hk Hdens Hserve i. apply (in_time_keeps_from p st k s); auto. Qed.

(** Serving the mandatory requests keeps every such (m, K), at every instant. *)
Theorem serves_keeps p S k s m K :
  sound_streams p -> serves_from p S -> nth_error (streams p) k = Some s ->
  (K - m) * den s <= K * num s ->
  keeps_from p S k m K.
Proof. intros Hs Hserve Hk Hdens st Hr Hc. apply (in_time_keeps p st k s); auto. Qed.

(** Together: if the test says yes, no constraint of density at most rho is ever violated, whatever comes within the
    declarations, beside whatever background, in either mode of dispatch, with every long batch that the shield allows. *)
Theorem theorem_A_keeps p n B P L k s m K :
  workers p = repeat (Worker B P) n -> 0 < n * B -> 0 < P -> deadline p = L + guard p -> sound_streams p ->
  (forall d, P * (1 + cdiv (curve_m p (d + 1)) (n * B)) <= d + L) ->
  nth_error (streams p) k = Some s -> (K - m) * den s <= K * num s ->
  keeps p k m K.
Proof. intros Hw HnB HP HL Hs Hok. apply serves_keeps; auto. eapply theorem_A; eauto. Qed.

(** The same of streams that come and go. *)
Theorem loads_keep p S k s m K : sound_streams p -> bearable p S (T p) 0 ->
  nth_error (streams p) k = Some s -> (K - m) * den s <= K * num s -> keeps_from p S k m K.
Proof. intros Hs HS. apply serves_keeps; auto. now apply loads_serve. Qed.
