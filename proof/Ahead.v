(** The models of what the daemon does not do yet are no empty ones: time goes on in them, and with too much to do a promise breaks, so it is the
    tests of the theorems that keep it. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened Earliest Loads Pipeline.

(** At once two requests to a service that takes 2 ns for each, within 2 ns. *)
Definition two d := 2 * Nat.min d 1.
Definition hurried rule := Sharing rule 1 2 0 0 [Service 1 2 2 1] [Stream 1 1 two] (fun _ => 0) [0].
Definition first := Request 0 1 0.
Definition second := Request 0 2 0.

Lemma two_conform a d : count (fun r => of 0 r && within a d r) [first; second] <= two d.
Proof.
  unfold two. rewrite !count_cons, count_nil. unfold of, within, first, second. cbn [src arr Nat.eqb andb].
  destruct (Nat.leb_spec a 0), (Nat.ltb_spec 0 (a + d)); cbn [andb Nat.b2n]; lia.
Qed.

Ltac busy := intros w Hw E; change (w < 1) in Hw; replace w with 0 in E by lia; discriminate E.
Ltac not_over := intros w due b Hw E; change (w < 1) in Hw; replace w with 0 in E by lia; cbn in E; injection E as <- <-; cbn; lia.
Ltac its_turn := first
  [ eapply In_turn; reflexivity
  | eapply By_deadline; [reflexivity|reflexivity|];
    intros [|j] r' l' E; cbn in E; [injection E as <- <-; auto|discriminate E] ].

(** The second of them is not answered by 2: so both theorems have something to say. *)
Theorem sharing_breaks rule : ~ served (hurried rule) 0 (fun _ => true).
Proof.
  intros H. set (q := hurried rule) in *.
  assert (R : exists st, Sharing.reachable q st /\ Sharing.now st = 3 /\ Sharing.arrived st = [first; second] /\
    Sharing.answered st = [(first, 2)]).
  { pose proof (Sharing.Reach_init q) as R.
    eapply Sharing.Reach_step in R; [|apply (Sharing.Arrive q _ first); [reflexivity|reflexivity|now left]]; cbn in R.
    eapply Sharing.Reach_step in R; [|apply (Sharing.Arrive q _ second); [reflexivity|reflexivity|now left]]; cbn in R.
    destruct rule.
    all: eapply Sharing.Reach_step in R;
      [|eapply (Sharing.Start q _ 0 0) with (others := []) (extra := 0); [cbn; lia|reflexivity|its_turn|intros ? []|cbn; lia]]; cbn in R.
    all: eapply Sharing.Reach_step in R; [|apply (Sharing.Tick q _ 0); [not_over|left; split; [reflexivity|right; busy]]]; cbn in R.
    all: eapply Sharing.Reach_step in R; [|apply (Sharing.Tick q _ 0); [not_over|left; split; [reflexivity|right; busy]]]; cbn in R.
    all: eapply Sharing.Reach_step in R; [|eapply (Sharing.Finish q _ 0); [cbn; lia|reflexivity]]; cbn in R.
    all: eapply Sharing.Reach_step in R;
      [|eapply (Sharing.Start q _ 0 0) with (others := []) (extra := 0); [cbn; lia|reflexivity|its_turn|intros ? []|cbn; lia]]; cbn in R.
    all: eapply Sharing.Reach_step in R; [|apply (Sharing.Tick q _ 0); [not_over|left; split; [reflexivity|right; busy]]]; cbn in R.
    all: eexists; split; [exact R|]; auto. }
  destruct R as (st & R & En & Ea & Es).
  destruct (H st R) with (r := second) as (t & Ht & Hd).
  - rewrite Ea. intros k s a d E _. destruct k as [|k]; [cbn in E; injection E as <-; apply two_conform|].
    cbn in E. destruct k; discriminate.
  - rewrite Ea. simpl. auto.
  - reflexivity.
  - reflexivity.
  - rewrite En. cbn. lia.
  - cbn in Ht. rewrite Es in Ht. destruct Ht as [Ht|[]]. discriminate.
Qed.

(** It may be given up as soon as it would be late. *)
Theorem expiry_happens rule : exists st, Sharing.reachable (hurried rule) st /\ Sharing.waiting st 0 = [second] /\
  Sharing.hopeless (hurried rule) st 0 second.
Proof.
  set (q := hurried rule) in *. pose proof (Sharing.Reach_init q) as R.
  eapply Sharing.Reach_step in R; [|apply (Sharing.Arrive q _ first); [reflexivity|reflexivity|now left]]; cbn in R.
  eapply Sharing.Reach_step in R; [|apply (Sharing.Arrive q _ second); [reflexivity|reflexivity|now left]]; cbn in R.
  destruct rule.
  all: eapply Sharing.Reach_step in R;
    [|eapply (Sharing.Start q _ 0 0) with (others := []) (extra := 0); [cbn; lia|reflexivity|its_turn|intros ? []|cbn; lia]]; cbn in R.
  all: eapply Sharing.Reach_step in R; [|apply (Sharing.Tick q _ 0); [not_over|left; split; [reflexivity|right; busy]]]; cbn in R.
  all: eexists; split; [exact R|]; split; [reflexivity|]; left; cbn; lia.
Qed.

(** A batch of 1 ns beside others of 1 ns, within 2 ns: that is in time if dispatch is and batches keep their times, but not
    if one of them may fail by 1 ns. *)
Definition one d := Nat.min d 1.
Definition strained rule g e := Sharing rule 1 1 g e [Service 1 1 (2 - g) 1] [Stream 1 1 one] (fun _ => 0) [0].

Lemma strained_breaks rule g e st : g <= 2 -> Sharing.reachable (strained rule g e) st -> Sharing.now st = 3 ->
  Sharing.arrived st = [first] -> Sharing.answered st = [] -> ~ served (strained rule g e) 0 (fun _ => true).
Proof.
  intros Hg R En Ea Es H. destruct (H st R) with (r := first) as (t & Ht & _).
  - rewrite Ea. intros k s a d E _. destruct k as [|k]; [cbn in E; injection E as <-|cbn in E; destruct k; discriminate].
    rewrite count_cons, count_nil. unfold one, of, within, first. cbn [src arr Nat.eqb andb curve].
    destruct (Nat.leb_spec a 0), (Nat.ltb_spec 0 (a + d)); cbn [andb Nat.b2n]; lia.
  - rewrite Ea. simpl. auto.
  - reflexivity.
  - reflexivity.
  - rewrite En. cbn -[Nat.sub]. lia.
  - cbn in Ht. rewrite Es in Ht. destruct Ht.
Qed.

Ltac steps R c := eapply Sharing.Reach_step in R; [|c]; cbn in R.
Ltac ticks q := apply (Sharing.Tick q _ 0); [not_over|left; split; [reflexivity|right; busy]].
Ltac begins q := eapply (Sharing.Start q _ 0 0) with (others := []) (extra := 0); [cbn; lia|reflexivity|its_turn|intros ? []|cbn; lia].

Theorem lateness_breaks rule : ~ served (strained rule 1 0) 0 (fun _ => true).
Proof.
  set (q := strained rule 1 0). pose proof (Sharing.Reach_init q) as R.
  steps R ltac:(eapply (Sharing.Background q _ 0 1) with (others := []) (extra := 0);
    [cbn; lia|reflexivity|intros i; reflexivity|cbn; lia|intros ? []|cbn; lia]).
  steps R ltac:(apply (Sharing.Arrive q _ first); [reflexivity|reflexivity|now left]).
  steps R ltac:(ticks q).
  steps R ltac:(eapply (Sharing.Finish q _ 0); [cbn; lia|reflexivity]).
  steps R ltac:(apply (Sharing.Tick q _ 1); [intros w due b Hw E; change (w < 1) in Hw; replace w with 0 in E by lia; discriminate E|
    right; split; [reflexivity|cbn; lia]]).
  destruct rule.
  all: steps R ltac:(begins q).
  all: steps R ltac:(apply (Sharing.Tick q _ 1); [not_over|left; split; [reflexivity|right; busy]]).
  all: eapply strained_breaks; [|exact R| | |]; auto.
Qed.

Theorem excess_breaks rule : ~ served (strained rule 0 1) 0 (fun _ => true).
Proof.
  set (q := strained rule 0 1). pose proof (Sharing.Reach_init q) as R.
  steps R ltac:(eapply (Sharing.Background q _ 0 2) with (others := []) (extra := 1);
    [cbn; lia|reflexivity|intros i; reflexivity|cbn; lia|intros ? []|cbn; lia]).
  steps R ltac:(apply (Sharing.Arrive q _ first); [reflexivity|reflexivity|now left]).
  steps R ltac:(ticks q).
  steps R ltac:(ticks q).
  steps R ltac:(eapply (Sharing.Finish q _ 0); [cbn; lia|reflexivity]).
  destruct rule.
  all: steps R ltac:(begins q).
  all: steps R ltac:(ticks q).
  all: eapply strained_breaks; [|exact R| | |]; auto.
Qed.

(** A place must not be given away before nothing waits.  Each of two streams alone may be promised that a request is answered
    within 2 ns behind a batch of 1 ns; but what the first leaves waiting makes the other's too late. *)
Definition leaving rule := Sharing rule 1 1 0 0 [Service 1 1 2 1] [Stream 1 1 one; Stream 1 1 one] (fun _ => 0).
Definition other := Request 1 1 0.

Lemma leaving_alpha rule k d : k < 2 -> Sharing.alpha (leaving rule [k]) 0 d = one d.
Proof. intros Hk. destruct k as [|[|k]]; [| |lia]; unfold Sharing.alpha, curve_of; cbn -[one cdiv]; unfold cdiv; rewrite Nat.div_1_r; lia. Qed.

Lemma leaving_admitted rule k : k < 2 -> test_T (leaving rule [k]) (fun _ => true) 0 /\ test_E (leaving rule [k]) (fun _ => 1).
Proof.
  intros Hk. set (q := leaving rule [k]).
  assert (Hw : forall c, c 0 = 0 -> share_within q c 0).
  { intros c Hc. left. unfold work. change (length (services q)) with 1. cbn [sum]. rewrite Hc, Nat.mul_0_r. reflexivity. }
  assert (Ha : forall d, cdiv (Sharing.alpha q 0 d) 1 <= 1).
  { intros d. unfold q. rewrite leaving_alpha by auto. unfold cdiv, one. rewrite Nat.div_1_r. lia. }
  split; [|apply test_lines_E; split; [|intros i y Hi; split]].
  - intros d _. exists 0. split; [|cbn; lia]. apply Hw. unfold batches_T. cbn [Nat.eqb]. change (Sharing.size (sv q 0)) with 1. specialize (Ha (d + 1)). lia.
  - intros i Hi. change (i < 1) in Hi. replace i with 0 by lia. cbn. lia.
  - intros Hpos. change (i < 1) in Hi. replace i with 0 in * by lia. unfold clear, come in *. change (Sharing.size (sv q 0)) with 1 in *.
    change (Sharing.limit (sv q 0) + Sharing.lateness q) with 2 in *. destruct (Nat.leb_spec 2 y) as [Hy|Hy]; [|now cbn in Hpos].
    exists 0. split; [|cbn; lia]. apply Hw. unfold less, clear, come. change (Sharing.size (sv q 0)) with 1. change (Sharing.limit (sv q 0) + Sharing.lateness q) with 2.
    rewrite (proj2 (Nat.leb_le 2 y) Hy). cbn [Nat.eqb]. specialize (Ha (y - 2 + 1)). lia.
  - intros j Hj HB. change (j < 1) in Hj. replace j with 0 in HB by lia. change (1 < 1) in HB. lia.
Qed.

Theorem leaving_early_breaks rule : exists st0 st,
  Sharing.reachable (leaving rule [0]) st0 /\ since (leaving rule [1]) st0 st /\ Sharing.conform (leaving rule [1]) (fun _ => true) (Sharing.arrived st) /\
  In other (Sharing.arrived st) /\ mandatory (Sharing.as_problem (leaving rule [1]) 0) other = true /\ Sharing.now st = 3 /\ Sharing.answered st = [(first, 2)].
Proof.
  set (q := leaving rule [0]). set (q' := leaving rule [1]). pose proof (Sharing.Reach_init q) as R.
  steps R ltac:(eapply (Sharing.Background q _ 0 1) with (others := []) (extra := 0);
    [cbn; lia|reflexivity|intros i; reflexivity|cbn; lia|intros ? []|cbn; lia]).
  steps R ltac:(apply (Sharing.Arrive q _ first); [reflexivity|reflexivity|now left]).
  match type of R with Sharing.reachable _ ?s => exists s; pose proof (Since_now q' s) as N end.
  eapply Since_step in N; [|apply (Sharing.Arrive q' _ other); [reflexivity|reflexivity|now left]]; cbn in N.
  eapply Since_step in N; [|ticks q']; cbn in N.
  eapply Since_step in N; [|eapply (Sharing.Finish q' _ 0); [cbn; lia|reflexivity]]; cbn in N.
  destruct rule.
  all: eapply Since_step in N; [|begins q']; cbn in N.
  all: eapply Since_step in N; [|ticks q']; cbn in N.
  all: eapply Since_step in N; [|eapply (Sharing.Finish q' _ 0); [cbn; lia|reflexivity]]; cbn in N.
  all: eapply Since_step in N; [|begins q']; cbn in N.
  all: eapply Since_step in N; [|ticks q']; cbn in N.
  all: eexists; split; [exact R|]; split; [exact N|]; split; [|split; [right; now left|repeat split; reflexivity]].
  all: intros k s a d E _; destruct k as [|[|k]]; [cbn in E; injection E as <-|cbn in E; injection E as <-|cbn in E; destruct k; discriminate].
  all: cbn [Sharing.arrived]; rewrite ?count_cons, ?count_nil; unfold one, of, within, first, other; cbn [src arr Nat.eqb andb curve].
  all: destruct (Nat.leb_spec a 0), (Nat.ltb_spec 0 (a + d)); cbn [andb Nat.b2n]; lia.
Qed.

(** Two stages of 1 ns each, and two requests at once.  Something else has just begun at each stage when the first comes: so
    the second leaves the first stage at 3, the other at 5.  Theorem P2 promises 5 ns, and with 4 it is no hit; Theorem P1, by
    which both stages may meet both at once, asks for 6. *)
Definition line_of allowed := Pipeline [Stage 1 1 1 0 1; Stage 1 1 1 0 1] [Stream 1 1 two] allowed 0.

(** What waits at both stages, and what runs there. *)
Definition stands t arr (w : list nat * list nat) (r : option (nat * list nat) * option (nat * list nat)) := exists made waiting running,
  Pipeline.reachable (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) /\
  waiting 0 = fst w /\ waiting 1 = snd w /\ running 0 0 = fst r /\ running 1 0 = snd r.

Ltac opens := intros (made & waiting & running & R & W0 & W1 & R0 & R1); cbn [fst snd] in *; eexists _, _, _; split; [eapply Pipeline.Reach_step; [exact R|]|].
Ltac closes := cbn [fst snd Pipeline.waiting Pipeline.running Pipeline.now]; unfold set; cbn [Nat.eqb];
  repeat match goal with E : ?f 0 = _ |- context [?f 0] => rewrite E | E : ?f 1 = _ |- context [?f 1] => rewrite E end; auto.

Lemma begins_0 t arr a b w1 r1 : length a <= 1 -> (b <> [] -> length a = 1) -> (forall x y, In x a -> In y b -> x <= y) ->
  stands t arr (a ++ b, w1) (None, r1) -> stands t arr (b, w1) (Some (t + 1, a), r1).
Proof.
  intros H1 H2 H3. opens.
  { apply (Pipeline.Start (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) 0 0) with (taken := a) (left := b); try (cbn; lia); auto. intros f. cbn [Pipeline.waiting]. rewrite W0. apply count_app. }
  closes.
Qed.
Lemma begins_1 t arr a b w0 r0 : length a <= 1 -> (b <> [] -> length a = 1) -> (forall x y, In x a -> In y b -> x <= y) ->
  stands t arr (w0, a ++ b) (r0, None) -> stands t arr (w0, b) (r0, Some (t + 1, a)).
Proof.
  intros H1 H2 H3. opens.
  { apply (Pipeline.Start (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) 1 0) with (taken := a) (left := b); try (cbn; lia); auto. intros f. cbn [Pipeline.waiting]. rewrite W1. apply count_app. }
  closes.
Qed.
Lemma ends_0 t arr w0 w1 due b r1 : stands t arr (w0, w1) (Some (due, b), r1) -> stands t arr (w0, w1 ++ b) (None, r1).
Proof.
  opens.
  { eapply (Pipeline.Finish (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) 0 0) with (new := fun c => if c =? 1 then b else []);
      [cbn; lia|cbn; lia|exact R0|intros [|[|c]] Hc; try (now destruct Hc); cbn; lia|intros [|[|c]] j; cbn -[count]; rewrite ?count_nil; lia]. }
  closes. now rewrite app_nil_r.
Qed.
Lemma ends_1 t arr w0 w1 due b r0 : stands t arr (w0, w1) (r0, Some (due, b)) -> stands t arr (w0, w1) (r0, None).
Proof.
  opens.
  { eapply (Pipeline.Finish (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) 1 0) with (new := fun c => []);
      [cbn; lia|cbn; lia|exact R1|intros c Hc; now destruct Hc|intros c j; rewrite count_nil; lia]. }
  closes. rewrite !app_nil_r. auto.
Qed.
Lemma arrives t l w0 w1 r0 r1 r : arr r = t -> idx r = S (count (of (src r)) l) -> mandatory (as_problem (line_of 4)) r = true ->
  stands t l (w0, w1) (r0, r1) -> stands t (l ++ [r]) (w0 ++ [length l], w1) (r0, r1).
Proof.
  intros H1 H2 H3. opens; [apply (Pipeline.Arrive (line_of 4) (Pipeline.State t (fun _ => 0) l made waiting running) r); auto|]. closes. cbn [Pipeline.arrived]. now rewrite H3.
Qed.
(** Time goes on where each stage has something to run, or nothing to do. *)
Lemma ticks_on t arr w0 w1 r0 r1 : (w0 = [] \/ r0 <> None) -> (w1 = [] \/ r1 <> None) -> (forall due b, r0 = Some (due, b) \/ r1 = Some (due, b) -> t < due) ->
  stands t arr (w0, w1) (r0, r1) -> stands (S t) arr (w0, w1) (r0, r1).
Proof.
  intros H0 H1 Hd. opens; [apply (Pipeline.Tick (line_of 4) (Pipeline.State t (fun _ => 0) arr made waiting running) (fun _ => 0))|closes].
  - intros i w due b Hi Hw E. cbn in Hi. cbn [Pipeline.running Pipeline.now] in *. apply (Hd due b).
    destruct i as [|[|i]]; cbn in Hw; [replace w with 0 in E by lia; left; congruence|replace w with 0 in E by lia; right; congruence|lia].
  - intros i Hi. cbn in Hi. left. split; [reflexivity|]. cbn [Pipeline.waiting Pipeline.running].
    destruct i as [|[|i]]; [rewrite W0; destruct H0; [auto|right]|rewrite W1; destruct H1; [auto|right]|lia].
    all: intros w Hw; cbn in Hw; replace w with 0 by lia; congruence.
Qed.

Theorem pipeline_breaks : ~ all_hit (line_of 4).
Proof.
  intros H. assert (R : stands 5 [first; second] ([], []) (None, Some (5, [1]))).
  { pose proof (ex_intro _ _ (ex_intro _ _ (ex_intro _ _ (conj (Pipeline.Reach_init (line_of 4)) (conj eq_refl (conj eq_refl (conj eq_refl eq_refl)))))) : stands 0 [] ([], []) (None, None)) as R.
    apply (begins_0 0 [] [] [] [] None) in R; [|cbn; lia|congruence|intros ? ? []].
    apply (arrives 0 [] [] [] _ None first) in R; try reflexivity.
    apply (arrives 0 [first] [0] [] _ None second) in R; try reflexivity. cbn in R.
    Ltac on R := apply ticks_on in R; [|first [now left|right; discriminate]|first [now left|right; discriminate]|intros due b [E|E]; inversion E; lia]; cbn in R.
    on R. apply ends_0 in R. apply (begins_0 1 _ [0] [1]) in R; [|cbn; lia|reflexivity|intros x y [<-|[]] [<-|[]]; lia]. on R.
    apply (begins_1 2 _ [] []) in R; [|cbn; lia|congruence|intros ? ? []]. apply ends_0 in R.
    apply (begins_0 2 _ [1] []) in R; [|cbn; lia|congruence|intros ? ? _ []]. on R. apply ends_1 in R.
    apply (begins_1 3 _ [0] []) in R; [|cbn; lia|congruence|intros ? ? _ []]. apply ends_0 in R. on R. apply ends_1 in R.
    apply (begins_1 4 _ [1] []) in R; [|cbn; lia|congruence|intros ? ? _ []]. on R. exact R. }
  destruct R as (made & waiting & running & R & _ & _ & _ & Hrun).
  apply (H _ R) with (j := 1) (i := 1).
  - intros k s a d E. destruct k as [|k]; [cbn in E; injection E as <-; apply two_conform|]. cbn in E. destruct k; discriminate.
  - cbn. lia.
  - reflexivity.
  - cbn. lia.
  - cbn. lia.
  - right. exists 0, 5, [1]. split; [cbn; lia|]. split; [exact Hrun|now left].
Qed.

Lemma line_sensible allowed : sensible (line_of allowed).
Proof.
  split; [intros s [<-|[]]; split; [cbn; lia|]; split; [cbn; lia|]; intros a b H; cbn [curve]; unfold two; lia|]. split; [cbn; lia|]. split; intros [|[|i]] Hi; cbn in *; lia.
Qed.

Lemma line_curve allowed d : curve_m (as_problem (line_of allowed)) (d + 1) = 2.
Proof. rewrite curve_m_all. cbn [as_problem streams sources line_of map num den curve]. unfold two. now rewrite Nat.min_r by lia. Qed.

Theorem pipeline_holds : all_hit (line_of 5).
Proof. apply theorem_P2_burst; [apply line_sensible|]. intros d _. rewrite line_curve. change (burst (line_of 5) 0 2) with 5. cbn. lia. Qed.

Theorem stages_need_more M R theta : bounds (line_of 5) M R theta -> Pipeline.test (line_of 5) M R -> 6 <= theta 1.
Proof.
  intros (HM & H0 & H) Ht. destruct (H 1 ltac:(cbn; lia)) as (HM1 & H1). cbn in HM1, H1. rewrite HM in HM1.
  pose proof (Ht 0 0 ltac:(cbn; lia)) as T0. pose proof (Ht 1 0 ltac:(cbn; lia)) as T1. rewrite (line_curve 5 0) in T0, T1. rewrite HM in T0. rewrite HM1 in T1.
  change (ends (line_of 5) 0 _) with 3 in T0. change (ends (line_of 5) 1 _) with 3 in T1. lia.
Qed.
