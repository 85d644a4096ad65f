(** Services that share workers over time: newcomers and leavers, the end of safe mode, and loads with fewer streams, by both
    rules. *)
Require Import List Arith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened Relief Earliest.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

(** * Newcomers and leavers *)

Definition with_load q := Sharing (how q) (crew q) (longest q) (lateness q) (excess q) (services q) (clients q) (home q).

(** A run in which loads follow one another, each of which has passed the test. *)
Inductive run q (admitted : list nat -> Prop) : list nat -> state -> Prop :=
| Run_init S : admitted S -> run q admitted S initial
| Run_step S st st' : run q admitted S st -> step (with_load q S) st st' -> run q admitted S st'
| Run_comes S S' st :
    (* who leaves is counted on, so that streams come at any instant, *)
    run q admitted S st -> incl S S' -> admitted S' -> run q admitted S' st
| Run_anew S S' st :
    (* until nothing mandatory waits of any service *)
    run q admitted S st -> idle st -> admitted S' -> run q admitted S' st.

Lemma sensible_load q S : sensible q -> sensible (with_load q S).
Proof. intros H. exact H. Qed.

Lemma run_admitted q admitted S st : run q admitted S st -> admitted S.
Proof. induction 1; auto. Qed.

Lemma conform_before q G S st st' : step (with_load q S) st st' -> conform q G (arrived st') -> conform q G (arrived st).
Proof.
  intros H Hc. destruct H; auto. cbv zeta in Hc. apply (conform_prefix q G _ [r]). destruct (mandatory _ r); auto.
Qed.

Lemma next_load q S S' st i l u : next (with_load q S) st i l u -> next (with_load q S') st i l u.
Proof.
  intros [rest H1 H2|r l' H1 H2 H3]; [exact (In_turn (with_load q S') st i rest H1 H2)|exact (By_deadline (with_load q S') st i r l' H1 H2 H3)].
Qed.

Lemma step_load q S S' st st' : incl S S' -> step (with_load q S) st st' -> step (with_load q S') st st'.
Proof.
  intros Hi H. destruct H.
  - apply (Arrive (with_load q S') st r); auto.
  - apply (Start (with_load q S') st w i line' used' others extra); auto. now apply (next_load q S).
  - now apply (Background (with_load q S') st w l others extra).
  - now apply (Finish (with_load q S') st w due b).
  - apply (Refuse (with_load q S') st i a r b); auto. destruct H0 as [?|(w & l & u & ? & ? & Hn & ?)]; [now left|right].
    exists w, l, u. split; [auto|]. split; [auto|]. split; [|auto]. now apply (next_load q S).
  - now apply (Renew (with_load q S') st over').
  - now apply (Tick (with_load q S') st late').
Qed.

Lemma turns_anew q G S S' past st : Sharing.Inv (with_load q S) past G (fun _ => False) st -> idle st ->
  Sharing.Inv (with_load q S') (length (arrived st)) G (fun _ => False) st.
Proof.
  intros I Hidle. constructor; try exact (Sharing.inv_wf _ _ _ _ _ I); try exact (Sharing.inv_late _ _ _ _ _ I); try exact (Sharing.inv_over _ _ _ _ _ I);
    try exact (Sharing.inv_past _ _ _ _ _ I); try exact (Sharing.inv_where _ _ _ _ _ I); try exact (Sharing.inv_run _ _ _ _ _ I); try exact (Sharing.inv_wait _ _ _ _ _ I);
    try exact (Sharing.inv_nodup _ _ _ _ _ I); try exact (Sharing.inv_line _ _ _ _ _ I); try exact (Sharing.inv_used _ _ _ _ _ I).
  - split; [auto|]. rewrite skipn_all. intros ? [].
  - intros i f. rewrite (Hidle i), count_nil. lia.
  - intros s _ _ Hne. now destruct (Hne (Hidle s)).
Qed.

(** In turns. *)
Definition admitted_T q G S := forall s, s < length (services q) -> G s = true -> test_T (with_load q S) G s.

Lemma conform_skip q G k l : conform q G l -> conform q G (skipn k l).
Proof. intros H i s a d E HG. specialize (H i s a d E HG). rewrite <- (firstn_skipn k l), count_app in H. lia. Qed.

Lemma turns_run q G S st : sensible q -> how q = Turns -> run q (admitted_T q G) S st -> conform q G (arrived st) ->
  forall S', incl S S' -> admitted_T q G S' -> exists past, Sharing.Inv (with_load q S') past G (fun _ => False) st.
Proof.
  intros Hs Hr. induction 1 as [S HS|S st st' Hrun IH Hstep|S S' st Hrun IH Hi HS'|S S' st Hrun IH Hidle HS']; intros Hc Z HZ HaZ.
  - exists 0. now apply Sharing.Inv_initial.
  - destruct (IH ltac:(eapply conform_before; eauto) Z HZ HaZ) as (past & I). exists past.
    apply (Sharing.Inv_step (with_load q Z) past G _ Hs Hr HaZ st st' I); [now apply (step_load q S)|now apply conform_skip].
  - apply IH; auto. now apply incl_tran with S'.
  - destruct (IH Hc S (incl_refl _) (run_admitted _ _ _ _ Hrun)) as (past & I). exists (length (arrived st)). now apply (turns_anew q G S Z past).
Qed.

Theorem turns_loads q G S st : sensible q -> how q = Turns -> run q (admitted_T q G) S st -> conform q G (arrived st) ->
  forall s r, G s = true -> In r (arrived st) -> at_home q s r = true -> mandatory (as_problem q 0) r = true ->
  arr r + (limit (sv q s) + lateness q) < now st -> in_time (as_problem q s) (view st) r.
Proof.
  intros Hs Hr Hrun Hc s r HG Hin Hh Hm Hd.
  destruct (turns_run q G S st Hs Hr Hrun Hc S (incl_refl _) (run_admitted _ _ _ _ Hrun)) as (past & I).
  destruct (Sharing.Inv_keeps (with_load q S) past G _ st s r I HG Hin Hh Hm Hd); tauto.
Qed.

Theorem turns_loads_keep q G S st k s m K : sensible q -> how q = Turns -> run q (admitted_T q G) S st -> conform q G (arrived st) ->
  G (home q k) = true -> nth_error (clients q) k = Some s -> (K - m) * den s <= K * num s ->
  forall i, count (missed (as_problem q (home q k)) (view st) k) (seq (i + 1) K) <= m.
Proof.
  intros Hs Hr Hrun Hc HG Hk Hd. pose proof Hs as (Hsound & _). apply (in_time_keeps _ _ _ s); auto.
  intros r Hin <- Hm Ht. apply (turns_loads q G S st Hs Hr Hrun Hc _ r); auto. unfold at_home. apply Nat.eqb_refl.
Qed.

(** Newcomers and leavers: each load has passed the test, with an [X] of its own. *)
Definition admitted_E q S := exists X, test_E (with_load q S) X.

Lemma earliest_anew q S S' X X' past st log : Happened.Inv (with_load q S) X past (fun _ => False) st log -> idle st ->
  exists log', Happened.Inv (with_load q S') X' (length (arrived st)) (fun _ => False) st log'.
Proof.
  intros I Hidle. exists []. constructor; try exact (Happened.inv_wf _ _ I); try exact (Happened.inv_late _ _ I); try exact (Happened.inv_over _ _ I);
    try exact (Happened.inv_past _ _ I); try exact (Happened.inv_where _ _ I); try exact (Happened.inv_run _ _ I); try exact (Happened.inv_sorted _ _ I).
  - split; [auto|]. rewrite skipn_all. intros ? [].
  - intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr.
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros d (j & x & Hx & _). rewrite (Hidle j) in Hx. destruct Hx.
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros j f. rewrite (Hidle j). cbn [taken flat_map app]. rewrite count_nil. lia.
Qed.

Lemma earliest_run q S st : sensible q -> how q = Earliest -> run q (admitted_E q) S st -> conform q (fun _ => true) (arrived st) ->
  forall S' X, incl S S' -> test_E (with_load q S') X -> exists past log, Happened.Inv (with_load q S') X past (fun _ => False) st log.
Proof.
  intros Hs Hr. induction 1 as [S HS|S st st' Hrun IH Hstep|S S' st Hrun IH Hi HS'|S S' st Hrun IH Hidle HS']; intros Hc Z X HZ HaZ.
  - exists 0, []. now apply Earliest.Inv_initial.
  - destruct (IH ltac:(eapply conform_before; eauto) Z X HZ HaZ) as (past & log & I). exists past.
    apply (Earliest.Inv_step (with_load q Z) X past _ Hs Hr HaZ st st' log I); [now apply (step_load q S)|now apply conform_skip].
  - apply IH; auto. now apply incl_tran with S'.
  - destruct (run_admitted _ _ _ _ Hrun) as (X0 & H0). destruct (IH Hc S X0 (incl_refl _) H0) as (past & log & I).
    exists (length (arrived st)). now apply (earliest_anew q S Z X0 X past st log).
Qed.

Theorem earliest_loads q S st : sensible q -> how q = Earliest -> run q (admitted_E q) S st -> conform q (fun _ => true) (arrived st) ->
  forall s r, In r (arrived st) -> at_home q s r = true -> mandatory (as_problem q 0) r = true ->
  arr r + (limit (sv q s) + lateness q) < now st -> in_time (as_problem q s) (view st) r.
Proof.
  intros Hs Hr Hrun Hc s r Hin Hh Hm Hd. destruct (run_admitted _ _ _ _ Hrun) as (X & HX).
  destruct (earliest_run q S st Hs Hr Hrun Hc S X (incl_refl _) HX) as (past & log & I).
  destruct (Earliest.Inv_keeps (with_load q S) X past (fun _ => False) Hs HX st log s r I Hin Hh Hm Hd); tauto.
Qed.

Theorem earliest_loads_keep q S st k s m K : sensible q -> how q = Earliest -> run q (admitted_E q) S st ->
  conform q (fun _ => true) (arrived st) -> nth_error (clients q) k = Some s -> (K - m) * den s <= K * num s ->
  forall i, count (missed (as_problem q (home q k)) (view st) k) (seq (i + 1) K) <= m.
Proof.
  intros Hs Hr Hrun Hc Hk Hd. pose proof Hs as (Hsound & _). apply (in_time_keeps _ _ _ s); auto.
  intros r Hin <- Hm Ht. apply (earliest_loads q S st Hs Hr Hrun Hc _ r); auto. unfold at_home. apply Nat.eqb_refl.
Qed.

(** * Safe mode's end *)

(** Whatever has gone wrong before, nothing mandatory waits now, every worker is free within the longest batch and what is left
    of the margin, and what runs has come before. *)
Definition calm q st := wf (fun _ => 0) (arrived st) /\ (forall r, In r (arrived st) -> arr r <= now st) /\ late st <= lateness q /\
  over st <= excess q /\ idle st /\ line st = [] /\ used st = 0 /\
  forall w due b, w < crew q -> running st w = Some (due, b) -> now st <= due <= now st + longest q + over st /\
    forall r, In r b -> mandatory (as_problem q 0) r = true -> In r (arrived st).

Inductive since q st0 : state -> Prop :=
| Since_now : since q st0 st0
| Since_step st st' : since q st0 st -> step q st st' -> since q st0 st'.

Lemma since_arrived q st0 st : since q st0 st -> exists l, arrived st = arrived st0 ++ l.
Proof.
  induction 1 as [|st st' _ (l & E) Hs]; [exists []; now rewrite app_nil_r|].
  destruct Hs; cbv zeta; try destruct (mandatory _ r); cbn [arrived]; rewrite E; try (exists l; reflexivity).
  all: exists (l ++ [r]); now rewrite app_assoc.
Qed.

Lemma turns_calm q G st : calm q st -> Sharing.Inv q (length (arrived st)) G (fun r => In r (arrived st)) st.
Proof.
  intros (Hwf & Hpast & Hlate & Hover & Hidle & Hline & Hused & Hrun). constructor; try assumption.
  - split; [auto|]. rewrite skipn_all. intros ? [].
  - intros r Hr _. right. right. intros _. now left.
  - intros w due b Hw E. destruct (Hrun w due b Hw E) as (Hd & Hb). split; [exact Hd|]. intros r Hr Hm _. left. now apply Hb.
  - intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr.
  - intros i f. rewrite (Hidle i), count_nil. lia.
  - rewrite Hline. constructor.
  - intros i. rewrite Hline, (Hidle i). split; [intros []|congruence].
  - now rewrite Hline.
  - intros s _ _ Hne. now destruct (Hne (Hidle s)).
Qed.

Lemma conform_since q G st st' k : step q st st' -> k <= length (arrived st) -> conform q G (skipn k (arrived st')) -> conform q G (skipn k (arrived st)).
Proof.
  intros H Hk Hc. destruct H; auto. apply (conform_prefix q G _ [r]). rewrite <- (skip_snoc k _ r Hk).
  cbv zeta in Hc. destruct (mandatory _ r); auto.
Qed.

(** From there on all that comes is served in time, in turns. *)
Theorem turns_again q G st0 st : sensible q -> how q = Turns ->
  (forall s, s < length (services q) -> G s = true -> test_T q G s) -> calm q st0 -> since q st0 st ->
  let new := skipn (length (arrived st0)) (arrived st) in conform q G new ->
  forall s r, G s = true -> In r new -> at_home q s r = true -> mandatory (as_problem q 0) r = true ->
  arr r + (limit (sv q s) + lateness q) < now st -> in_time (as_problem q s) (view st) r.
Proof.
  intros Hs Hr Ht Hcalm Hsince new Hc s r HG Hin Hh Hm Hd.
  assert (I : Sharing.Inv q (length (arrived st0)) G (fun r => In r (arrived st0)) st).
  { subst new. clear Hin Hd. induction Hsince as [|st st' Hsince IH Hstep]; [now apply turns_calm|].
    destruct (since_arrived q st0 st Hsince) as (l & E).
    apply (Sharing.Inv_step q _ G _ Hs Hr Ht st st'); auto. apply IH. apply (conform_since q G st st'); auto. rewrite E, app_length. lia. }
  destruct (since_arrived q st0 st Hsince) as (l & E). unfold new in Hin. rewrite E, skipn_app, skipn_all, Nat.sub_diag in Hin. cbn [skipn app] in Hin.
  destruct (Sharing.Inv_keeps q _ G _ st s r I HG ltac:(rewrite E; apply in_or_app; auto) Hh Hm Hd) as [Ho|Ho]; [|auto].
  pose proof (Sharing.inv_wf _ _ _ _ _ I) as Hwf. rewrite E in Hwf. destruct (wf_once _ _ _ r Hwf Ho Hin).
Qed.

(** The same by deadline. *)
Lemma earliest_calm q X st : calm q st -> Happened.Inv q X (length (arrived st)) (fun r => In r (arrived st)) st [].
Proof.
  intros (Hwf & Hpast & Hlate & Hover & Hidle & _ & _ & Hrun). constructor; try assumption.
  - split; [auto|]. rewrite skipn_all. intros ? [].
  - intros r Hr _. right. right. now left.
  - intros w due b Hw E. destruct (Hrun w due b Hw E) as (Hd & Hb). split; [exact Hd|]. intros r Hr Hm. left. now apply Hb.
  - intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr.
  - intros i. rewrite (Hidle i). constructor.
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros d (j & x & Hx & _). rewrite (Hidle j) in Hx. destruct Hx.
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros j f. rewrite (Hidle j). cbn [taken flat_map app]. rewrite count_nil. lia.
Qed.

Theorem earliest_again q X st0 st : sensible q -> how q = Earliest -> test_E q X -> calm q st0 -> since q st0 st ->
  let new := skipn (length (arrived st0)) (arrived st) in conform q (fun _ => true) new ->
  forall s r, In r new -> at_home q s r = true -> mandatory (as_problem q 0) r = true ->
  arr r + (limit (sv q s) + lateness q) < now st -> in_time (as_problem q s) (view st) r.
Proof.
  intros Hs Hr Ht Hcalm Hsince new Hc s r Hin Hh Hm Hd.
  assert (I : exists log, Happened.Inv q X (length (arrived st0)) (fun r => In r (arrived st0)) st log).
  { subst new. clear Hin Hd. induction Hsince as [|st st' Hsince IH Hstep]; [exists []; now apply earliest_calm|].
    destruct (since_arrived q st0 st Hsince) as (l & E).
    destruct IH as (log & I); [apply (conform_since q (fun _ => true) st st'); auto; rewrite E, app_length; lia|].
    exact (Earliest.Inv_step q X _ _ Hs Hr Ht st st' log I Hstep Hc). }
  destruct I as (log & I).
  destruct (since_arrived q st0 st Hsince) as (l & E). unfold new in Hin. rewrite E, skipn_app, skipn_all, Nat.sub_diag in Hin. cbn [skipn app] in Hin.
  destruct (Earliest.Inv_keeps q X _ _ Hs Ht st log s r I ltac:(rewrite E; apply in_or_app; auto) Hh Hm Hd) as [Ho|Ho]; [|auto].
  pose proof (Happened.inv_wf _ _ I) as Hwf. rewrite E in Hwf. destruct (wf_once _ _ _ r Hwf Ho Hin).
Qed.

(** * Fewer streams: what is admitted together is admitted without some of them *)

Lemma sum_fewer (f : nat -> nat) l : NoDup l -> forall l', incl l l' -> list_sum (map f l) <= list_sum (map f l').
Proof.
  induction 1 as [|x l Hx Hl IH]; intros l' Hi; [cbn; lia|].
  destruct (in_split x l' (Hi x (or_introl eq_refl))) as (a & b & ->).
  specialize (IH (a ++ b)). rewrite map_app, list_sum_app in *. cbn [map list_sum fold_right].
  assert (H : incl l (a ++ b)).
  { intros y Hy. specialize (Hi y (or_intror Hy)). apply in_app_or in Hi as [H|[->|H]]; [|contradiction|]; apply in_or_app; auto. }
  specialize (IH H). change (fold_right Nat.add 0) with list_sum. lia.
Qed.

Section Fewer.
Variable q : sharing.
Variables few many : list nat.
Hypothesis Hsense : sensible q.
Hypothesis Honce : NoDup few.
Hypothesis Hincl : incl few many.
Notation m := (length (services q)).
Notation qf := (with_load q few).
Notation qm := (with_load q many).

Lemma crew_some : crew q <> 0.
Proof. destruct Hsense as (_ & Hn & _). lia. Qed.

Lemma alpha_fewer i d : Sharing.alpha qf i d <= Sharing.alpha qm i d.
Proof.
  unfold Sharing.alpha, curve_of. apply (sum_fewer (fun k => match nth_error (streams (as_problem q 0)) k with
    | Some s => cdiv (num s * curve s d) (den s) | None => 0 end)); [now apply NoDup_filter|].
  intros k Hk. apply filter_In in Hk as (Hk & Hh). apply filter_In. split; [now apply Hincl|exact Hh].
Qed.

Lemma share_fewer c c' x : (forall j, j < m -> c j <= c' j) -> share_within qm c' x -> share_within qf c x.
Proof.
  intros Hc [H|H]; [left|right].
  - etransitivity; [|exact H]. apply Nat.div_le_mono; [exact crew_some|].
    now apply (work_mono q).
  - intros d Hd Hsum. apply H; [intros j Hj; specialize (Hd j Hj); specialize (Hc j Hj); lia|].
    etransitivity; [exact Hsum|]. apply Nat.div_le_mono; [exact crew_some|].
    apply sum_mono. exact Hc.
Qed.

Lemma come_fewer y j : come qf y j <= come qm y j.
Proof.
  unfold come. change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). destruct (_ <=? y); [apply alpha_fewer|lia].
Qed.

Lemma batch_fewer a b j : a <= b -> cdiv a (size (sv qf j)) <= cdiv b (size (sv qm j)).
Proof.
  change (sv qm) with (sv qf). intros H. destruct (Nat.eq_dec (size (sv qf j)) 0) as [->|]; [reflexivity|]. apply cdiv_mono; lia.
Qed.

Lemma clear_fewer y j : Earliest.clear qf y j <= Earliest.clear qm y j.
Proof. apply batch_fewer, come_fewer. Qed.

Lemma short_requests_fewer X i y j : short_requests qf X i y j <= short_requests qm X i y j.
Proof.
  unfold short_requests. change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). change (delay qm) with (delay qf).
  destruct (j =? i); [|destruct (_ <=? _); [apply alpha_fewer|lia]].
  pose proof (alpha_fewer i (y - (limit (sv qf i) + lateness qf) + 1)). pose proof (alpha_fewer i (y - (limit (sv qf i) + lateness qf) + X i + 1)). lia.
Qed.

Lemma short_fewer X i y j : Earliest.short qf X i y j <= Earliest.short qm X i y j.
Proof. apply batch_fewer, short_requests_fewer. Qed.

Lemma there_fewer X z j : there qf X z j <= there qm X z j.
Proof.
  unfold there. change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). destruct (_ <=? _); [apply alpha_fewer|lia].
Qed.

Lemma mixed_fewer X z j : j < m -> mixed qf X z j <= mixed qm X z j.
Proof.
  intros Hj. destruct Hsense as (_ & _ & _ & Hpar). destruct (Hpar j Hj) as (HB & _).
  apply mixed_mono; [exact HB|apply come_fewer|apply there_fewer].
Qed.

Lemma less_fewer c c' k : (forall j, j < m -> c j <= c' j) -> forall j, j < m -> less c k j <= less c' k j.
Proof. intros H j Hj. specialize (H j Hj). unfold less. lia. Qed.

Lemma part_fewer a c c' : (forall j, j < m -> c j <= c' j) -> (a + work qf c) / crew q <= (a + work qm c') / crew q.
Proof. intros H. apply Nat.div_le_mono; [exact crew_some|]. apply Nat.add_le_mono_l. now apply (work_mono q). Qed.

Lemma enough_fewer X c c' k z : (forall z j, j < m -> c z j <= c' z j) -> enough qm X c' k z -> enough qf X c k z.
Proof.
  intros Hc [(x & Hx & Hfit)|(Hz & H)]; [left|right].
  - exists x. split; [|exact Hfit]. apply (share_fewer _ (less (c' z) k)); [apply less_fewer, Hc|exact Hx].
  - split; [exact Hz|]. intros w Hw. etransitivity; [|exact (H w Hw)]. apply Nat.add_le_mono_r, Nat.add_le_mono_l, part_fewer, less_fewer, Hc.
Qed.

Lemma relieved_fewer X k y : relieved qm X k y -> relieved qf X k y.
Proof.
  intros [H|[(z & Hz & H)|(z & Hz & H)]]; [left|right; left|right; right].
  - intros v Hv. destruct (H v ltac:(pose proof (come_fewer v k); lia)) as (x & Hx & Hfit). exists x. split; [|exact Hfit].
    apply (share_fewer _ (less (come qm v) k)); [apply less_fewer; intros j _; apply come_fewer|exact Hx].
  - exists z. split; [exact Hz|]. apply (enough_fewer X _ (mixed qm X)); [intros; now apply mixed_fewer|exact H].
  - exists z. split; [exact Hz|]. apply (enough_fewer X _ (full qm X)); [intros; apply batch_fewer, there_fewer|exact H].
Qed.

Theorem fewer_E : admitted_E q many -> admitted_E q few.
Proof.
  intros (X & HX & H). exists X. split; [exact HX|]. intros k y Hk. destruct (H k y Hk) as [Hr|(Hclear & Hshort)]; [left; now apply relieved_fewer|right]. split.
  - intros Hpos. destruct (Hclear ltac:(pose proof (clear_fewer y k); lia)) as (x & Hx & Hfit).
    exists x. split; [|exact Hfit]. apply (share_fewer _ (less (Earliest.clear qm y) k)); [|exact Hx].
    apply less_fewer. intros j _. apply clear_fewer.
  - intros i Hi HB Hy H0 Hpos. pose proof (short_requests_fewer X i y i). pose proof (short_fewer X i y k).
    assert (Hless := less_fewer _ _ k (fun j (_ : j < m) => short_fewer X i y j)).
    destruct (Hshort i Hi HB Hy ltac:(lia) ltac:(lia)) as [(x & Hx & Hfit)|Hfit].
    + left. exists x. split; [|exact Hfit]. now apply (share_fewer _ (less (Earliest.short qm X i y) k)).
    + right. etransitivity; [|exact Hfit]. now apply Nat.add_le_mono_r, Nat.add_le_mono_l, part_fewer.
Qed.

Theorem fewer_T G : admitted_T q G many -> admitted_T q G few.
Proof.
  intros H s Hs HG d Hpos. destruct (H s Hs HG d ltac:(pose proof (alpha_fewer s (d + 1)); lia)) as (x & Hx & Hfit).
  exists x. split; [|exact Hfit]. apply (share_fewer _ (batches_T qm G s d)); [|exact Hx]. intros i Hi. unfold batches_T.
  change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). change (excess qm) with (excess qf).
  destruct Hsense as (_ & _ & _ & Hpar). destruct (Hpar s Hs) as (HB & HK & _). change (sv q) with (sv qf) in *.
  pose proof (cdiv_mono _ _ (size (sv qf s)) HB (alpha_fewer s (d + 1))) as HJ. cbv zeta. destruct (i =? s); [lia|].
  pose proof (cdiv_mono _ _ (turn (sv qf s)) HK HJ) as Hv.
  destruct (G i); [|now apply Nat.mul_le_mono_r]. apply Nat.min_le_compat; [now apply Nat.mul_le_mono_r|apply alpha_fewer].
Qed.
End Fewer.
