(** The end of safe mode, of a service with workers of its own: from a calm instant on all that comes is in time, whatever went
    wrong before. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA.

Section Again.
Variable p : problem.
Notation n := (length (workers p)).
Notation T := (T p).
Notation D := (deadline p).

(** Nothing mandatory waits, every worker is free within a full batch of its own, and the streams that are counted pass the
    test.  Whether what runs has taken too long, how late what came is answered, and whether it kept to the declarations, is
    no matter. *)
Definition calm st := wf (fun _ => 0) (arrived st) /\ (forall r, In r (arrived st) -> arr r <= now st) /\ late st <= guard p /\
  bearable p (load st) T 0 /\ waiting st = [] /\
  forall w due b, w < n -> running st w = Some (due, b) -> now st <= due <= now st + T w /\
    forall r, In r b -> mandatory p r = true -> In r (arrived st).

(** What follows, long batches, lulls and all, if the arrival monitors count [kept] of what came before. *)
Inductive since kept st0 : state -> Prop :=
| Since_now : since kept st0 st0
| Since_step st st' : since kept st0 st -> step_by p (Counted kept (length (arrived st0))) st st' -> since kept st0 st'.

Definition new st0 st := skipn (length (arrived st0)) (arrived st).

Hypothesis Hsound : sound_streams p.

Lemma calm_inv kept st : calm st -> Inv p (Counted kept (length (arrived st))) st.
Proof.
  intros (Hwf & Hpast & Hlate & Hb & Hq & Hrun). pose proof Hb as (Hroom & _).
  assert (Hover : forall r, In r (arrived st) -> over_before (Counted kept (length (arrived st))) (arrived st) r).
  { intros r Hr. unfold over_before. cbn [counted_from]. now rewrite firstn_all. }
  constructor; auto.
  - intros r Hr. rewrite Hq in Hr. destruct Hr.
  - intros w due b Hw E. destruct (Hrun w due b Hw E) as (Hd & Hr). split; [lia|]. intros r H Hm. left. auto.
  - left. apply (phase_clear p _ Hroom st T); auto.
    + intros w Hw. unfold free_at. destruct (running st w) as [(due, b)|] eqn:E; [|lia]. apply (Hrun w due b Hw E).
    + apply bearable_covers; [now apply came_curve|auto].
Qed.

Lemma since_inv kept st0 st : calm st0 -> since kept st0 st -> conforms p (kept ++ new st0 st) ->
  Inv p (Counted kept (length (arrived st0))) st /\ exists l, arrived st = arrived st0 ++ l.
Proof.
  intros Hcalm Hs. pose proof Hcalm as (_ & _ & _ & (Hroom & _) & _).
  induction Hs as [|st st' Hs IH Hstep]; intros Hc; [split; [now apply calm_inv|exists []; now rewrite app_nil_r]|].
  assert (Hl : arrived st' = arrived st \/ exists r, arrived st' = arrived st ++ [r]) by (destruct Hstep; cbn [arrived]; eauto).
  assert (Hpast : (exists l, arrived st = arrived st0 ++ l) -> new st0 st' = new st0 st \/ exists r, new st0 st' = new st0 st ++ [r]).
  { intros (l & E). unfold new. destruct Hl as [->|(r & ->)]; [auto|right; exists r]. rewrite E, <- app_assoc, !skipn_app, !skipn_all, Nat.sub_diag. reflexivity. }
  assert (Hlen : exists l, arrived st = arrived st0 ++ l).
  { clear - Hs. induction Hs as [|st st' _ (l & E) H]; [exists []; now rewrite app_nil_r|].
    destruct H; cbn [arrived]; rewrite E; try (exists l; reflexivity). exists (l ++ [r]). now rewrite app_assoc. }
  destruct IH as (I & _).
  { destruct (Hpast Hlen) as [E|(r & E)]; rewrite E in Hc; [auto|]. rewrite app_assoc in Hc. now apply (conforms_prefix p _ [r]). }
  split; [now apply (Inv_step p _ Hroom (came_curve p Hsound) st)|].
  destruct Hlen as (l & E). destruct Hl as [->|(r & ->)]; rewrite E; [eauto|]. exists (l ++ [r]). now rewrite app_assoc.
Qed.

(** Whatever the monitors count of what came before, if that, and what comes from then on, is within the declarations. *)
Theorem again kept st0 st : calm st0 -> since kept st0 st -> conforms p (kept ++ new st0 st) ->
  forall r, In r (new st0 st) -> mandatory p r = true -> arr r + D < now st -> in_time p st r.
Proof.
  intros Hcalm Hs Hc r Hin Hm Hd. destruct (since_inv kept st0 st Hcalm Hs Hc) as (I & l & E).
  pose proof Hcalm as (_ & _ & _ & (Hroom & _) & _). unfold new in Hin. rewrite E, skipn_app, skipn_all, Nat.sub_diag in Hin. cbn in Hin.
  destruct (Inv_settled p _ Hroom st r I) as [Ho|?]; auto; [rewrite E; apply in_or_app; auto|exfalso].
  unfold over_before in Ho. cbn [counted_from] in Ho. rewrite E, firstn_app, firstn_all, Nat.sub_diag in Ho. cbn in Ho. rewrite app_nil_r in Ho.
  pose proof (inv_wf _ _ _ I) as Hwf. rewrite E in Hwf. now apply (wf_once _ _ _ r Hwf Ho).
Qed.

(** So every window of requests from there on keeps its (m, K). *)
Theorem again_keeps kept st0 st k s m K : calm st0 -> since kept st0 st -> conforms p (kept ++ new st0 st) ->
  nth_error (streams p) k = Some s -> (K - m) * den s <= K * num s ->
  forall i, count (of k) (arrived st0) <= i -> count (missed p st k) (seq (i + 1) K) <= m.
Proof.
  intros Hcalm Hs Hc Hk Hd i Hi. destruct (since_inv kept st0 st Hcalm Hs Hc) as (I & l & E).
  apply (in_time_keeps_from p st k s); auto. intros r Hin Hsrc Hx Hm Ht. apply (again kept st0); auto.
  unfold new. rewrite E, skipn_app, skipn_all, Nat.sub_diag. cbn. rewrite E in Hin. apply in_app_or in Hin as [Hin|Hin]; [exfalso|auto].
  pose proof Hcalm as (Hwf & _). pose proof (wf_fresh _ _ r Hwf Hin) as H. cbn in H. rewrite Hsrc in H. lia.
Qed.

(** Where all that ever came is within the declarations, as the daemon's monitors take for it: any run of the model. *)
Inductive goes_on st0 : state -> Prop :=
| On_now : goes_on st0 st0
| On_step st st' : goes_on st0 st -> step p st st' -> goes_on st0 st'.

Lemma seen_step m m' st st' : seen m (arrived st) = seen m' (arrived st) -> step_by p m st st' -> step_by p m' st st'.
Proof.
  intros E H. destruct H; try (econstructor; eauto; fail). apply (Start p st w most l others S c); auto.
  destruct H3 as [?|[((Hl & Hb & e & He & Hr) & Hc)|?]]; auto. right. left. split; [|auto]. split; [auto|]. split; [auto|]. exists e.
  split; [|auto]. unfold lull in *. now rewrite <- E.
Qed.

Theorem again_all st0 st : calm st0 -> goes_on st0 st -> conforms p (arrived st) ->
  forall r, In r (new st0 st) -> mandatory p r = true -> arr r + D < now st -> in_time p st r.
Proof.
  intros Hcalm Hs Hc.
  assert (H : since (arrived st0) st0 st /\ exists l, arrived st = arrived st0 ++ l).
  { clear Hc. induction Hs as [|st st' Hs (IH & l & E) Hstep]; [split; [constructor|exists []; now rewrite app_nil_r]|]. split.
    - apply (Since_step _ _ st st' IH). revert Hstep. apply seen_step. unfold seen. cbn. now rewrite E, skipn_app, skipn_all, Nat.sub_diag.
    - destruct Hstep; cbn [arrived]; rewrite E; try (exists l; reflexivity). exists (l ++ [r]). now rewrite app_assoc. }
  destruct H as (H & l & E). apply (again (arrived st0) st0 st Hcalm H).
  unfold new. now rewrite E, skipn_app, skipn_all, Nat.sub_diag in *.
Qed.
End Again.

(** * Where it resists

    A lull that is read off requests beyond the declaration is none, and what comes in it may be late.  A request of a stream
    of one in any 4 ns, to be answered within 2, has come at 0, and one too many at 3; all is worked off by 4.  Whoever counts
    the one at 3 holds that none may come before 7, lets a batch take 4 ns instead of 1, and the next, which may come at 4 and
    does, is answered at 9 at the earliest. *)
Definition sparse := Problem 2 0 true [Worker 1 1] [Stream 1 1 (fun d => cdiv d 4)].
Definition one_at i t := Request 0 i t.
Definition quiet_at_4 := State 4 0 [one_at 1 0; one_at 2 3] [] (fun _ => None) [(one_at 1 0, 1); (one_at 2 3, 4)] [0] true.

Lemma sparse_bearable g : g 0 <= 1 -> bearable sparse [0] g 0.
Proof.
  intros Hg. split; [cbn; lia|]. split; [intros v Hv; change (v < 1) in Hv; replace v with 0 by lia; cbn -[Nat.div]; unfold Tmax, Model.T; cbn; lia|].
  intros d. right. exists (d + 1). split; [|unfold Tmax; cbn; lia].
  unfold curve_of, supply, starts. cbn -[Nat.leb Nat.div]. unfold Model.T, B. cbn -[Nat.leb Nat.div cdiv]. rewrite (proj2 (Nat.leb_le (g 0) (d + 1))) by lia.
  rewrite !Nat.div_1_r. assert (cdiv (1 * cdiv (d + 1) 4) 1 <= d + 1); [|cbn in *; lia].
  apply cdiv_le; [lia|]. rewrite !Nat.mul_1_l. apply cdiv_le; lia.
Qed.

Lemma sparse_calm : calm sparse quiet_at_4.
Proof.
  split.
  { apply (wf_snoc _ [one_at 1 0] (one_at 2 3)); [apply (wf_snoc _ [] (one_at 1 0)); [constructor|intros ? []|reflexivity]| |reflexivity].
    intros x [<-|[]]. cbn. lia. }
  split; [intros r [<-|[<-|[]]]; cbn; lia|]. split; [cbn; lia|]. split; [now apply sparse_bearable|]. split; [reflexivity|].
  intros w due b _ E. discriminate.
Qed.

Theorem excess_is_no_lull : exists st, since sparse (arrived quiet_at_4) quiet_at_4 st /\ conforms sparse (new quiet_at_4 st) /\
  In (one_at 3 4) (new quiet_at_4 st) /\ mandatory sparse (one_at 3 4) = true /\ 4 + deadline sparse < now st /\ ~ in_time sparse st (one_at 3 4).
Proof.
  pose proof (Since_now sparse (arrived quiet_at_4) quiet_at_4) as R.
  eapply Since_step in R; [|eapply (Start sparse _ 0 1 4 [] [0] false)]; cbn in R.
  2:{ split; [cbn; lia|]. split; [reflexivity|]. intros v Hv _. change (v < 1) in Hv. now replace v with 0 by lia. }
  2:{ cbn; lia. } 2:{ cbn; lia. } 2:{ intros r []. }
  2:{ right. left. split; [|reflexivity]. split; [cbn; lia|]. split; [intros r []|]. exists 7. split; [right|].
      - split; [reflexivity|]. split; [intros x H; exact H|]. split; [cbn; lia|]. intros k s x [<-|[]] E Hx. cbn in E. injection E as <-. cbn in Hx.
        exists 3, 4. split; [lia|]. cbn. lia.
      - split; [intros [|a l] r b E; discriminate|]. apply sparse_bearable. unfold after. cbn. lia. }
  eapply Since_step in R; [|apply (Arrive sparse _ (one_at 3 4)); [reflexivity|reflexivity|now left]]; cbn in R.
  do 3 (eapply Since_step in R; [|apply (Tick sparse _ 0);
    [intros w due b Hw E; change (w < 1) in Hw; replace w with 0 in E by lia; cbn in E; injection E as <- <-; cbn; lia|
     right; left; split; [reflexivity|intros w Hw; change (w < 1) in Hw; replace w with 0 by lia; discriminate]]]; cbn in R).
  eexists. split; [exact R|]. split; [|split; [now left|split; [reflexivity|split; [cbn; lia|]]]].
  - intros k s a d E. destruct k as [|[|k]]; [|discriminate|discriminate]. assert (Es : s = Stream 1 1 (fun d => cdiv d 4)) by (change (Some (Stream 1 1 (fun d => cdiv d 4)) = Some s) in E; congruence). subst s. unfold new. cbn [arrived quiet_at_4 length skipn curve].
    rewrite count_cons, count_nil. unfold of, within. cbn [src arr one_at Nat.eqb andb].
    pose proof (cdiv_ge d 4 ltac:(lia)). destruct (Nat.leb_spec a 4), (Nat.ltb_spec 4 (a + d)); cbn [andb Nat.b2n]; lia.
  - intros (t & H & _). cbn in H. destruct H as [H|[H|[]]]; discriminate.
Qed.
