(** Logs of a pipeline: what its stages did.  A log that is accepted is a run of the model of Pipeline.v, so what follows from the
    tests follows of it.  It computes with binary numbers, and takes the time from one event to the next in one step.

    The model has no long batches, not even those that the shield of a pipeline allows; no worker is lost in it; and it gives up
    nothing mandatory.  A log with any of these is refused.  What nothing is promised for is in no list of the model; here it is
    known where it waits, so that no batch is filled with what never came.  Such a source may be given up as a whole: then
    the rest of it is not heard of again. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Pipeline Check PipelineCheck Decide Run SharedRun.
Open Scope N_scope.

(** What happens.  Sources are told by their place among all that came, from 0. *)
Inductive stage_event :=
| Comes (s : N)                                     (* the next source of stream s *)
| Begins (i w : nat) (l : N) (batch : list N)       (* worker w of stage i begins this batch, and has l for it *)
| Leaves (i w : nat) (new : list (nat * (N * N)))   (* it ends: at which stage of which source how many requests come of it *)
| GivesUp (r : nrequest).                           (* a mandatory source is given up *)

(** A batch: its end at the latest, what the model knows of it, what it does not. *)
Definition nbatch := (N * (list N * list N))%type.

(** The state of the model as far as a log shows it; all but the first and the third of each stage. *)
Record pstate := PState {
  pnow : N;
  plate : list N;
  parrived : list nrequest;                         (* the latest first *)
  pwaiting : list (list N);                         (* the mandatory ones *)
  pothers : list (list N);                          (* and those that nothing is promised for *)
  prunning : list (list (option nbatch)) }.

(** Takes a number out of a list, if it is there. *)
Fixpoint drop j l := match l with
  | [] => None
  | x :: l => if j =? x then Some l else option_map (cons x) (drop j l)
  end.
(** Takes a batch out of what waits: what is mandatory of it, what is not, and what is left of both. *)
Fixpoint pick b waits others := match b with
  | [] => Some (([], []), (waits, others))
  | j :: b =>
      match drop j waits with
      | Some waits => option_map (fun x => ((j :: fst (fst x), snd (fst x)), snd x)) (pick b waits others)
      | None => match drop j others with
          | Some others => option_map (fun x => ((fst (fst x), j :: snd (fst x)), snd x)) (pick b waits others)
          | None => None
          end
      end
  end.
Definition ordered l l' := forallb (fun x => forallb (fun y => x <=? y) l') l.
Definition is_in_of j l := existsb (N.eqb j) l.
Definition times j l := N.of_nat (count (N.eqb j) l).

Lemma decide_formed pr fuel : decide_pipeline pr fuel = true -> Pipeline.sensible (to_pipeline pr).
Proof.
  assert (H2 : forall es e, check_P2 pr fuel es e = true -> Pipeline.sensible (to_pipeline pr)).
  { intros es e H. unfold check_P2 in H. apply andb_true_iff in H as (H & _). now destruct (formed pr H). }
  unfold decide_pipeline, decide_P2, decide_P1. rewrite orb_true_iff. intros [H|H].
  - destruct (far_enough _ _ _) as [x|]; [destruct (up_to _ _ _) as [es|]; [now apply (H2 es Over)|discriminate]|].
    assert (Ha : forall x, decide_again pr fuel x = true -> Pipeline.sensible (to_pipeline pr)).
    { intros x Hx. unfold decide_again in Hx. cbv zeta in Hx. destruct (up_to _ _ _) as [es|]; [|discriminate].
      destruct (longest_of _ _ _ _ _ _) as [es'|]; [now apply H2 in Hx|discriminate]. }
    rewrite andb_true_iff, !orb_true_iff in H. destruct H as (_ & [[H|H]|H]); now apply Ha in H.
  - destruct (lengths _ _ _ _) as [es|]; [|discriminate]. unfold check_P1 in H. rewrite !andb_true_iff in H. destruct H as ((H & _) & _).
    now destruct (formed pr H).
Qed.

Section PipelineRun.
Variable pr : npipeline.
Notation q := (to_pipeline pr).
Notation m := (length (pstages pr)).
Notation n i := (N.to_nat (pcrew (sgN pr i))).
Notation B i := (psize (sgN pr i)).
Notation P i := (pspan (sgN pr i)).
Notation F i := (pfan (sgN pr i)).

(** Of each stage something. *)
Definition each {A} (f : nat -> A) := map f (seq 0 m).
Definition instead {A} (f : nat -> A) i x k := if Nat.eqb k i then x else f k.

Definition begin_pipeline := PState 0 (each (fun _ => 0)) [] (each (fun _ => [])) (each (fun _ => []))
  (each (fun i => repeat None (n i))).

Definition late_at st i := nth i (plate st) 0.
Definition waits_at st i := nth i (pwaiting st) [].
Definition others_at st i := nth i (pothers st) [].
Definition row st i := nth i (prunning st) [].
Definition runs_at st i w := nth w (row st i) None.
Definition idle_at st i w := match runs_at st i w with None => true | _ => false end.
Definition counts_on r := match nth_error (psources pr) (N.to_nat (nsrc r)) with
  | Some s => markedN (fst (rho s)) (snd (rho s)) (nidx r)
  | None => false
  end.

(** ** The passing of time *)

(** Nothing is due at a stage: nothing mandatory waits, or all workers are busy. *)
Definition calm_at st i := none (waits_at st i) || forallb (fun w => negb (idle_at st i w)) (seq 0 (n i)).
Definition pass_pipeline st d :=
  let late i := if calm_at st i then late_at st i else late_at st i + d in
  if forallb (fun i => forallb (fun w => match runs_at st i w with Some (due, _) => pnow st + d <=? due | None => true end)
       (seq 0 (n i)) && (calm_at st i || (late i <=? plateness pr))) (seq 0 m)
  then Some (PState (pnow st + d) (each late) (parrived st) (pwaiting st) (pothers st) (prunning st)) else None.

(** Where nothing mandatory waits, lateness is counted afresh. *)
Definition afresh st := PState (pnow st) (each (fun i => if none (waits_at st i) then 0 else late_at st i)) (parrived st)
  (pwaiting st) (pothers st) (prunning st).

(** ** Sources, starts, ends *)

Definition runs_now st i w x := each (instead (row st) i (map (instead (runs_at st i) w x) (seq 0 (n i)))).
(** How many of a source come at a stage, and those of them that are of a batch. *)
Definition total c j (new : list (nat * (N * N))) :=
  fold_right (fun e a => (if Nat.eqb (fst e) c && (fst (snd e) =? j) then snd (snd e) else 0) + a) 0 new.
Definition come (of : N -> bool) c (new : list (nat * (N * N))) :=
  flat_map (fun e => if Nat.eqb (fst e) c && of (fst (snd e)) then repeat (fst (snd e)) (N.to_nat (snd (snd e))) else []) new.

Definition exec_pipeline st e := match e with
  | Comes s =>
      let r := NRequest s (N.of_nat (length (filter (fun x => nsrc x =? s) (parrived st))) + 1) (pnow st) in
      let j := N.of_nat (length (parrived st)) in
      Some (PState (pnow st) (plate st) (r :: parrived st)
        (each (instead (waits_at st) 0 (waits_at st 0 ++ if counts_on r then [j] else [])))
        (each (instead (others_at st) 0 (others_at st 0 ++ if counts_on r then [] else [j]))) (prunning st))
  | Begins i w l b =>
      if Nat.ltb i m && Nat.ltb w (n i) && idle_at st i w && (l <=? P i) && (N.of_nat (length b) <=? B i) then
        match pick b (waits_at st i) (others_at st i) with
        | Some ((taken, fill), (rest, others)) =>
            if ordered taken rest && (none rest || (N.of_nat (length taken) =? B i)) then
              Some (PState (pnow st) (plate st) (parrived st) (each (instead (waits_at st) i rest))
                (each (instead (others_at st) i others)) (runs_now st i w (Some (pnow st + P i, (taken, fill)))))
            else None
        | None => None
        end
      else None
  | Leaves i w new =>
      if Nat.ltb i m && Nat.ltb w (n i) then
        match runs_at st i w with
        | Some (_, (b, fill)) =>
            if forallb (fun e => let c := fst e in let j := fst (snd e) in
                 Nat.ltb 0 c && Nat.ltb c m && Nat.eqb (pparent (sgN pr c)) i &&
                 (total c j new <=? F c * times j (if is_in_of j b then b else fill))) new
            then Some (PState (pnow st) (plate st) (parrived st)
                (each (fun c => waits_at st c ++ come (fun j => is_in_of j b) c new))
                (each (fun c => others_at st c ++ come (fun j => negb (is_in_of j b)) c new)) (runs_now st i w None))
            else None
        | None => None
        end
      else None
  | GivesUp _ => None
  end.

Definition advance_pipeline st (x : N * stage_event) :=
  if fst x <? pnow st then None
  else match pass_pipeline st (fst x - pnow st) with Some st => exec_pipeline (afresh st) (snd x) | None => None end.

(** The state in the end, and what is left of the log: nothing if all of it is accepted. *)
Fixpoint accept_pipeline st log := match log with
  | [] => (st, [])
  | x :: rest => match advance_pipeline st x with Some st => accept_pipeline st rest | None => (st, log) end
  end.

(** * It is sound *)

Definition numbers (l : list N) := map N.to_nat l.
Definition batch_at (x : option nbatch) := match x with Some (due, (b, _)) => Some (N.to_nat due, numbers b) | None => None end.

Definition shows_pipeline st (s : Pipeline.state) :=
  Pipeline.now s = N.to_nat (pnow st) /\ Pipeline.arrived s = map req (rev (parrived st)) /\
  forall i, (i < m)%nat -> Pipeline.late s i = N.to_nat (late_at st i) /\ Pipeline.waiting s i = numbers (waits_at st i) /\
    forall w, (w < n i)%nat -> Pipeline.running s i w = batch_at (runs_at st i w).

Lemma nth_each {A} (f : nat -> A) i d : (i < m)%nat -> nth i (each f) d = f i.
Proof.
  intros Hi. unfold each. rewrite (nth_indep _ d (f 0%nat)) by (rewrite map_length, seq_length; lia).
  rewrite map_nth, seq_nth by lia. reflexivity.
Qed.

Lemma set_instead {A} (f f' : nat -> A) i x k : (k <> i -> f k = f' k) -> set f i x k = instead f' i x k.
Proof. unfold set, instead. destruct (Nat.eqb_spec k i); auto. Qed.

Lemma counts_on_N r : mandatory (as_problem q) (req r) = counts_on r.
Proof.
  unfold mandatory, counts_on. cbn [src idx req streams as_problem sources to_pipeline]. rewrite nth_error_map.
  destruct (nth_error _ _) as [s|]; [|reflexivity]. cbn [option_map to_stream num den]. unfold marked, markedN.
  replace (N.to_nat (nidx r) - 1)%nat with (N.to_nat (nidx r - 1)) by lia. rewrite <- !N2Nat.inj_mul, <- !N2Nat.inj_div.
  apply eq_true_iff_eq. rewrite Nat.ltb_lt, N.ltb_lt. lia.
Qed.

Lemma none_nil {A} (l : list A) : none l = true <-> l = [].
Proof. destruct l; cbn; split; congruence. Qed.

Lemma idle_shows st s i w : shows_pipeline st s -> (i < m)%nat -> (w < n i)%nat ->
  idle_at st i w = true <-> Pipeline.running s i w = None.
Proof.
  intros (_ & _ & H) Hi Hw. destruct (H i Hi) as (_ & _ & Hr). rewrite (Hr w Hw). unfold idle_at.
  destruct (runs_at st i w) as [(due, (b, f))|]; cbn; split; congruence.
Qed.

(** ** The passing of time *)

Lemma ticks_pipeline s (calm : nat -> bool) k : Pipeline.reachable q s ->
  (forall i w due b, (i < m)%nat -> (w < n i)%nat -> Pipeline.running s i w = Some (due, b) -> (Pipeline.now s + k <= due)%nat) ->
  (forall i, (i < m)%nat -> if calm i then Pipeline.waiting s i = [] \/ forall w, (w < n i)%nat -> Pipeline.running s i w <> None
    else (Pipeline.late s i + k <= N.to_nat (plateness pr))%nat) ->
  exists l, (forall i, (i < m)%nat -> l i = if calm i then Pipeline.late s i else (Pipeline.late s i + k)%nat) /\
    Pipeline.reachable q (Pipeline.State (Pipeline.now s + k) l (Pipeline.arrived s) (Pipeline.made s) (Pipeline.waiting s) (Pipeline.running s)).
Proof.
  intros Hr Hdue Hcalm. induction k as [|k IH].
  - exists (Pipeline.late s). split; [intros i _; destruct (calm i); lia|]. rewrite Nat.add_0_r. now destruct s.
  - destruct IH as (l & Hl & Hk).
    + intros i w due b Hi Hw E. specialize (Hdue i w due b Hi Hw E). lia.
    + intros i Hi. specialize (Hcalm i Hi). destruct (calm i); [exact Hcalm|lia].
    + exists (fun i => if calm i then Pipeline.late s i else (Pipeline.late s i + Datatypes.S k)%nat). split; [auto|].
      rewrite Nat.add_succ_r. eapply Pipeline.Reach_step; [exact Hk|].
      apply (Pipeline.Tick q (Pipeline.State _ l (Pipeline.arrived s) (Pipeline.made s) (Pipeline.waiting s) (Pipeline.running s))).
      * intros i w due b Hi Hw E. rewrite length_stages in Hi. rewrite sg_nat in Hw by auto. cbn [Pipeline.now Pipeline.running] in *.
        specialize (Hdue i w due b Hi Hw E). lia.
      * intros i Hi. rewrite length_stages in Hi. rewrite sg_nat by auto. cbn [Pipeline.late Pipeline.waiting Pipeline.running lateness to_pipeline].
        rewrite (Hl i Hi). specialize (Hcalm i Hi). destruct (calm i); [left; split; [auto|exact Hcalm]|right; lia].
Qed.

Lemma pass_pipeline_reachable st s d st' : Pipeline.reachable q s -> shows_pipeline st s -> pass_pipeline st d = Some st' ->
  exists s', Pipeline.reachable q s' /\ shows_pipeline st' s'.
Proof.
  intros Hr Hs. pose proof Hs as (Hn & Ha & H). unfold pass_pipeline. destruct (forallb _ _) eqn:E; [|discriminate].
  intros E'. injection E' as <-. rewrite forallb_forall in E.
  assert (Hi : forall i, (i < m)%nat -> (forall w, (w < n i)%nat -> match runs_at st i w with Some (due, _) => pnow st + d <= due | None => True end) /\
    (calm_at st i = true \/ late_at st i + d <= plateness pr)).
  { intros i Hi. specialize (E i ltac:(apply in_seq; lia)). rewrite andb_true_iff, forallb_forall in E. destruct E as (Ed & El). split.
    - intros w Hw. specialize (Ed w ltac:(apply in_seq; lia)). destruct (runs_at st i w) as [(due, b)|]; [now apply N.leb_le|trivial].
    - destruct (calm_at st i); [now left|right]. now apply N.leb_le. }
  destruct (ticks_pipeline s (calm_at st) (N.to_nat d) Hr) as (l & Hl & Hk).
  - intros i w due b Him Hw Er. destruct (H i Him) as (_ & _ & Hrun). destruct (Hi i Him) as (Hd & _). specialize (Hd w Hw).
    rewrite (Hrun w Hw) in Er. destruct (runs_at st i w) as [(due', (b', f))|]; [|discriminate]. injection Er as <- <-. lia.
  - intros i Him. destruct (H i Him) as (Hlate & Hwait & _). destruct (Hi i Him) as (_ & Hc). destruct (calm_at st i) eqn:Ec.
    + unfold calm_at in Ec. apply orb_true_iff in Ec as [Ec|Ec]; [left; apply none_nil in Ec; now rewrite Hwait, Ec|right].
      intros w Hw Hf. rewrite forallb_forall in Ec. specialize (Ec w ltac:(apply in_seq; lia)).
      apply (idle_shows st s i w Hs Him Hw) in Hf. now rewrite Hf in Ec.
    + destruct Hc as [Hc|Hc]; [discriminate|]. lia.
  - eexists. split; [exact Hk|]. unfold shows_pipeline. cbn [Pipeline.now Pipeline.arrived Pipeline.late Pipeline.waiting Pipeline.running pnow parrived].
    split; [lia|]. split; [exact Ha|]. intros i Him. destruct (H i Him) as (Hlate & Hwait & Hrun). split; [|split; [exact Hwait|exact Hrun]].
    unfold late_at at 1. cbn [plate]. rewrite nth_each, Hl by auto. destruct (calm_at st i); lia.
Qed.

Lemma renew_all s l : Pipeline.reachable q s -> exists late',
  (forall i, late' i = if existsb (Nat.eqb i) l && none (Pipeline.waiting s i) then 0%nat else Pipeline.late s i) /\
  Pipeline.reachable q (Pipeline.State (Pipeline.now s) late' (Pipeline.arrived s) (Pipeline.made s) (Pipeline.waiting s) (Pipeline.running s)).
Proof.
  intros Hr. induction l as [|x l (late' & Hl & IH)].
  - exists (Pipeline.late s). split; [reflexivity|]. now destruct s.
  - destruct (none (Pipeline.waiting s x)) eqn:Ex.
    + exists (set late' x 0%nat). split.
      * intros i. cbn [existsb]. unfold set. destruct (Nat.eqb_spec i x) as [->|]; [now rewrite Ex|]. apply Hl.
      * eapply Pipeline.Reach_step; [exact IH|]. apply (Pipeline.Renew q (Pipeline.State _ late' _ _ _ _) x). now apply none_nil.
    + exists late'. split; [|exact IH]. intros i. rewrite Hl. cbn [existsb]. destruct (Nat.eqb_spec i x) as [->|]; [|reflexivity].
      rewrite Ex, !andb_false_r. reflexivity.
Qed.

Lemma afresh_reachable st s : Pipeline.reachable q s -> shows_pipeline st s ->
  exists s', Pipeline.reachable q s' /\ shows_pipeline (afresh st) s'.
Proof.
  intros Hr (Hn & Ha & H). destruct (renew_all s (seq 0 m) Hr) as (late' & Hl & Hr'). eexists. split; [exact Hr'|].
  split; [exact Hn|]. split; [exact Ha|]. intros i Hi. destruct (H i Hi) as (Hlate & Hwait & Hrun). split; [|split; [exact Hwait|exact Hrun]].
  cbn [Pipeline.late]. unfold late_at at 1. cbn [afresh plate]. rewrite nth_each, Hl, Hwait by auto.
  assert (E : existsb (Nat.eqb i) (seq 0 m) = true) by (apply existsb_exists; exists i; split; [apply in_seq; lia|apply Nat.eqb_refl]).
  rewrite E. cbn [andb]. destruct (waits_at st i); [reflexivity|exact Hlate].
Qed.

(** ** Steps *)

Lemma drop_count f j : forall l l', drop j l = Some l' -> count f (numbers l) = (Nat.b2n (f (N.to_nat j)) + count f (numbers l'))%nat.
Proof.
  induction l as [|x l IH]; intros l'; cbn [drop]; [discriminate|]. destruct (N.eqb_spec j x) as [->|].
  - intros E. injection E as <-. unfold numbers. cbn [map]. now rewrite count_cons.
  - destruct (drop j l) as [l1|]; [|discriminate]. intros E. injection E as <-. unfold numbers in *. cbn [map]. rewrite !count_cons, (IH l1 eq_refl). lia.
Qed.

Lemma pick_count f : forall b waits others taken fill left rest, pick b waits others = Some ((taken, fill), (left, rest)) ->
  count f (numbers waits) = (count f (numbers taken) + count f (numbers left))%nat.
Proof.
  induction b as [|j b IH]; intros waits others taken fill left rest; cbn [pick].
  - intros E. injection E as <- <- <- <-. reflexivity.
  - destruct (drop j waits) as [w|] eqn:Ew.
    + destruct (pick b w others) as [((t, o), (l, r))|] eqn:E; [|discriminate]. cbn. intros E'. injection E' as <- <- <- <-.
      rewrite (drop_count f j waits w Ew), (IH _ _ _ _ _ _ E). unfold numbers. cbn [map]. rewrite count_cons. lia.
    + destruct (drop j others) as [o'|]; [|discriminate]. destruct (pick b waits o') as [((t, o), (l, r))|] eqn:E; [|discriminate].
      cbn. intros E'. injection E' as <- <- <- <-. apply (IH _ _ _ _ _ _ E).
Qed.

Lemma count_repeat f j k : count f (numbers (repeat j k)) = (if f (N.to_nat j) then k else 0)%nat.
Proof. induction k as [|k IH]; cbn [repeat numbers map]; [now destruct (f _)|]. rewrite count_cons. unfold numbers in IH. rewrite IH. destruct (f _); cbn; lia. Qed.

Lemma come_count of c j new : (count (is (N.to_nat j)) (numbers (come of c new)) <= N.to_nat (total c j new))%nat.
Proof.
  induction new as [|e new IH]; [cbn; lia|]. cbn [come flat_map total fold_right]. fold (come of c new). fold (total c j new).
  unfold numbers in *. rewrite map_app, count_app. destruct (Nat.eqb (fst e) c); cbn [andb]; [|cbn [map]; rewrite count_nil; lia].
  destruct (of (fst (snd e))); [|cbn [map]; rewrite count_nil; lia]. rewrite (count_repeat _ (fst (snd e))). unfold is at 1.
  destruct (Nat.eqb_spec (N.to_nat (fst (snd e))) (N.to_nat j)), (N.eqb_spec (fst (snd e)) j); lia.
Qed.

Lemma come_in of c new x : In x (come of c new) -> exists e, In e new /\ fst e = c /\ fst (snd e) = x /\ of x = true.
Proof.
  intros H. apply in_flat_map in H as (e & He & Hx). destruct (Nat.eqb_spec (fst e) c); cbn [andb] in Hx; [|destruct Hx].
  destruct (of (fst (snd e))) eqn:Eo; [|destruct Hx]. apply repeat_spec in Hx. subst x. exists e. auto.
Qed.

Lemma times_numbers j l : N.to_nat (times j l) = count (is (N.to_nat j)) (numbers l).
Proof.
  unfold times. rewrite Nat2N.id. unfold numbers. induction l as [|x l IH]; [reflexivity|]. cbn [map]. rewrite !count_cons, IH. f_equal. f_equal.
  unfold is. apply eq_true_iff_eq. rewrite N.eqb_eq, Nat.eqb_eq. lia.
Qed.

Lemma count_none j l : (forall x, In x l -> x <> j) -> count (is j) l = 0%nat.
Proof.
  induction l as [|x l IH]; intros H; [reflexivity|]. rewrite count_cons, IH by (intros y Hy; apply H; now right).
  specialize (H x (or_introl eq_refl)). unfold is. destruct (Nat.eqb_spec x j); [contradiction|reflexivity].
Qed.

(** What runs, once that of one worker is another. *)
Lemma running_now st s i w x : shows_pipeline st s -> (i < m)%nat -> forall i' v, (i' < m)%nat -> (v < n i')%nat ->
  set (Pipeline.running s) i (set (Pipeline.running s i) w (batch_at x)) i' v = batch_at (nth v (nth i' (runs_now st i w x) []) None).
Proof.
  intros (_ & _ & H) Hi i' v Hi' Hv. unfold runs_now. rewrite nth_each by auto. unfold set at 1, instead at 1.
  destruct (Nat.eqb_spec i' i) as [->|]; [|now apply (H i' Hi')]. destruct (H i Hi) as (_ & _ & Hr).
  rewrite (nth_indep _ None (instead (runs_at st i) w x 0%nat)) by (rewrite map_length, seq_length; lia).
  rewrite map_nth, seq_nth by lia. cbn [Nat.add]. unfold set, instead. destruct (Nat.eqb v w); [reflexivity|now apply Hr].
Qed.

Lemma exec_pipeline_step st s e st' : shows_pipeline st s -> exec_pipeline st e = Some st' ->
  exists s', Pipeline.step q s s' /\ shows_pipeline st' s'.
Proof.
  intros Hs. pose proof Hs as (Hn & Ha & H). destruct e as [k|i w l b|i w new|r]; cbn [exec_pipeline].
  - (* Comes *)
    set (r := NRequest k _ _). set (j := N.of_nat (length (parrived st))). intros E. injection E as <-. eexists. split.
    + apply (Pipeline.Arrive q s (req r)); [unfold r; cbn; lia|]. unfold r. cbn [req idx src nidx nsrc].
      rewrite Ha, map_rev, count_rev, (count_req _ (fun x => nsrc x =? k)); [lia|].
      intros x. unfold of. cbn. apply eq_true_iff_eq. rewrite Nat.eqb_eq, N.eqb_eq. lia.
    + cbv zeta. rewrite counts_on_N. unfold shows_pipeline. cbn [Pipeline.now Pipeline.arrived Pipeline.late Pipeline.waiting Pipeline.running pnow parrived].
      split; [exact Hn|]. split; [cbn [rev]; now rewrite map_app, Ha|]. intros i Hi. destruct (H i Hi) as (Hl & Hw & Hr).
      split; [exact Hl|]. split; [|exact Hr]. unfold waits_at at 1. cbn [pwaiting]. rewrite nth_each by auto. unfold set, instead.
      destruct (Nat.eqb_spec i 0) as [->|]; [|exact Hw]. rewrite Hw. unfold numbers. rewrite map_app. f_equal.
      destruct (counts_on r); [|reflexivity]. unfold j. cbn [map]. now rewrite Nat2N.id, Ha, map_length, rev_length.
  - (* Begins *)
    destruct (_ && _) eqn:E; [|discriminate]. rewrite !andb_true_iff, !Nat.ltb_lt, !N.leb_le in E. destruct E as ((((Hi & Hw) & Hf) & _) & Hb).
    destruct (pick _ _ _) as [((taken, fill), (left, others))|] eqn:Ep; [|discriminate].
    destruct (_ && _) eqn:E; [|discriminate]. rewrite andb_true_iff, orb_true_iff, N.eqb_eq in E. destruct E as (Ho & Hfull).
    intros E. injection E as <-. destruct (H i Hi) as (Hl & Hwait & Hr). apply (idle_shows st s i w Hs Hi Hw) in Hf.
    assert (Hlen : (length taken <= length b)%nat).
    { clear - Ep. revert taken fill left others Ep. generalize (waits_at st i) (others_at st i). induction b as [|x b IH]; intros ws os taken fill left others.
      - cbn. intros E. injection E as <- <- <- <-. auto.
      - cbn [pick]. destruct (drop x ws) as [w'|]; [|destruct (drop x os) as [o'|]; [|discriminate]].
        all: destruct (pick b _ _) as [((t, o), (l, r))|] eqn:E; [|discriminate]; specialize (IH _ _ _ _ _ _ E); cbn; intros E'; injection E' as <- <- <- <-; cbn [length]; lia. }
    eexists. split.
    + apply (Pipeline.Start q s i w (numbers taken) (numbers left)).
      * now rewrite length_stages.
      * now rewrite sg_nat.
      * exact Hf.
      * intros f. rewrite Hwait. apply (pick_count f _ _ _ _ _ _ _ Ep).
      * intros x y Hx Hy. apply in_map_iff in Hx as (x' & <- & Hx). apply in_map_iff in Hy as (y' & <- & Hy).
        unfold ordered in Ho. rewrite forallb_forall in Ho. specialize (Ho x' Hx). rewrite forallb_forall in Ho. specialize (Ho y' Hy). apply N.leb_le in Ho. lia.
      * rewrite sg_nat by auto. unfold numbers. rewrite map_length. cbn [size to_stage]. lia.
      * rewrite sg_nat by auto. unfold numbers. rewrite map_length. cbn [size to_stage]. destruct Hfull as [Hfull|Hfull]; [|lia].
        apply none_nil in Hfull. subst left. intros []. reflexivity.
    + unfold shows_pipeline. cbn [Pipeline.now Pipeline.arrived Pipeline.late Pipeline.waiting Pipeline.running pnow parrived].
      split; [exact Hn|]. split; [exact Ha|]. intros i' Hi'. destruct (H i' Hi') as (Hl' & Hwait' & _). split; [exact Hl'|]. split.
      * unfold waits_at at 1. cbn [pwaiting]. rewrite nth_each by auto. unfold set, instead. destruct (Nat.eqb i' i); [reflexivity|exact Hwait'].
      * intros v Hv. unfold runs_at at 1, row at 1. cbn [prunning].
        rewrite <- (running_now st s i w (Some (pnow st + P i, (taken, fill))) Hs Hi i' v Hi' Hv). cbn [batch_at].
        rewrite sg_nat by auto. cbn [span to_stage]. now rewrite Hn, N2Nat.inj_add.
  - (* Leaves *)
    destruct (_ && _) eqn:E; [|discriminate]. rewrite andb_true_iff, !Nat.ltb_lt in E. destruct E as (Hi & Hw).
    destruct (H i Hi) as (_ & _ & Hr). specialize (Hr w Hw). destruct (runs_at st i w) as [(due, (b, fill))|]; [|discriminate].
    destruct (forallb _ _) eqn:E; [|discriminate]. intros E'. injection E' as <-. rewrite forallb_forall in E.
    assert (Hnew : forall e, In e new -> (0 < fst e < m)%nat /\ pparent (sgN pr (fst e)) = i /\
      total (fst e) (fst (snd e)) new <= F (fst e) * times (fst (snd e)) (if is_in_of (fst (snd e)) b then b else fill)).
    { intros e He. specialize (E e He). rewrite !andb_true_iff, !Nat.ltb_lt, Nat.eqb_eq, N.leb_le in E. tauto. }
    eexists. split.
    + apply (Pipeline.Finish q s i w (N.to_nat due) (numbers b) (fun c => numbers (come (fun j => is_in_of j b) c new))).
      * now rewrite length_stages.
      * now rewrite sg_nat.
      * exact Hr.
      * intros c Hc. rewrite length_stages. destruct (come _ c new) as [|x rest] eqn:Ec; [now destruct Hc|].
        destruct (come_in _ c new x ltac:(rewrite Ec; now left)) as (e & He & <- & _). destruct (Hnew e He) as (Hrange & Hpar & _).
        split; [exact Hrange|]. rewrite sg_nat by lia. exact Hpar.
      * intros c j. destruct (existsb (fun x => Nat.eqb (N.to_nat x) j) (come (fun j => is_in_of j b) c new)) eqn:Ex.
        -- apply existsb_exists in Ex as (x & Hx & Ej). apply Nat.eqb_eq in Ej. subst j.
           destruct (come_in _ c new x Hx) as (e & He & <- & <- & Eo). destruct (Hnew e He) as (Hrange & _ & Ht). rewrite Eo in Ht.
           rewrite sg_nat by lia. cbn [fan to_stage]. rewrite <- (times_numbers _ b), <- N2Nat.inj_mul.
           pose proof (come_count (fun j => is_in_of j b) (fst e) (fst (snd e)) new). lia.
        -- rewrite count_none; [lia|]. intros y Hy ->. apply in_map_iff in Hy as (x & Ej & Hx).
           apply Bool.not_true_iff_false in Ex. apply Ex, existsb_exists. exists x. split; [exact Hx|]. now apply Nat.eqb_eq.
    + unfold shows_pipeline. cbn [Pipeline.now Pipeline.arrived Pipeline.late Pipeline.waiting Pipeline.running pnow parrived].
      split; [exact Hn|]. split; [exact Ha|]. intros i' Hi'. destruct (H i' Hi') as (Hl' & Hwait' & _). split; [exact Hl'|]. split.
      * unfold waits_at at 1. cbn [pwaiting]. rewrite nth_each by auto. unfold numbers. rewrite map_app. f_equal. exact Hwait'.
      * intros v Hv. unfold runs_at at 1, row at 1. cbn [prunning].
        now rewrite <- (running_now st s i w None Hs Hi i' v Hi' Hv).
  - discriminate.
Qed.

Lemma begin_shows_pipeline : shows_pipeline begin_pipeline Pipeline.initial.
Proof.
  split; [reflexivity|]. split; [reflexivity|]. intros i Hi. unfold late_at, waits_at, runs_at, row, begin_pipeline. cbn [plate pwaiting prunning].
  rewrite !nth_each by auto. split; [reflexivity|]. split; [reflexivity|]. intros w _. now rewrite nth_repeat.
Qed.

(** What is accepted is a run of the model. *)
Theorem accepted_pipeline log st left : accept_pipeline begin_pipeline log = (st, left) ->
  exists s, Pipeline.reachable q s /\ shows_pipeline st s.
Proof.
  assert (H : forall log st0 s0, Pipeline.reachable q s0 -> shows_pipeline st0 s0 -> accept_pipeline st0 log = (st, left) ->
    exists s, Pipeline.reachable q s /\ shows_pipeline st s).
  { clear log. induction log as [|x log IH]; intros st0 s0 Hr Hs E; cbn [accept_pipeline] in E.
    - injection E as <- <-. eauto.
    - destruct (advance_pipeline st0 x) as [st1|] eqn:Ea; [|injection E as <- <-; eauto].
      unfold advance_pipeline in Ea. destruct (fst x <? pnow st0); [discriminate|].
      destruct (pass_pipeline st0 _) as [st2|] eqn:Ep; [|discriminate].
      destruct (pass_pipeline_reachable _ _ _ _ Hr Hs Ep) as (s2 & Hr2 & Hs2).
      destruct (afresh_reachable _ _ Hr2 Hs2) as (s3 & Hr3 & Hs3).
      destruct (exec_pipeline_step _ _ _ _ Hs3 Ea) as (s1 & Hstep & Hs1).
      apply (IH st1 s1); auto. eapply Pipeline.Reach_step; eauto. }
  apply (H log begin_pipeline Pipeline.initial); [constructor|apply begin_shows_pipeline].
Qed.

(** * What follows of a log *)

(** Something of source [j] waits or runs at a stage. *)
Definition left_at st j i := In (N.of_nat j) (waits_at st i) \/
  exists w due b fill, (w < n i)%nat /\ runs_at st i w = Some (due, (b, fill)) /\ In (N.of_nat j) b.

Lemma left_pending st s j i : shows_pipeline st s -> (i < m)%nat -> left_at st j i -> pending q s i j.
Proof.
  intros (_ & _ & H) Hi. destruct (H i Hi) as (_ & Hw & Hr).
  assert (Hin : forall l, In (N.of_nat j) l -> In j (numbers l)) by (intros l Hl; rewrite <- (Nat2N.id j); now apply in_map).
  intros [Hj|(w & due & b & fill & Hwn & Erun & Hb)]; [left; rewrite Hw; auto|right].
  exists w, (N.to_nat due), (numbers b). rewrite sg_nat by auto. split; [exact Hwn|]. split; [now rewrite (Hr w Hwn), Erun|auto].
Qed.

(** Sources that come within their declarations, of a pipeline that the program confirms: once the deadline of one that had to be
    answered has passed, it has been answered as a whole. *)
Theorem accepted_hits fuel log st left : decide_pipeline pr fuel = true -> accept_pipeline begin_pipeline log = (st, left) ->
  conforms (as_problem q) (map req (rev (parrived st))) ->
  forall j r, nth_error (rev (parrived st)) j = Some r -> counts_on r = true -> narr r + pallowed pr < pnow st ->
  forall i, (i < m)%nat -> ~ left_at st j i.
Proof.
  intros Hd Ha Hc j r Hj Hm Hlate i Hi Hleft. destruct (accepted_pipeline _ _ _ Ha) as (s & Hr & Hs).
  pose proof (left_pending st s j i Hs Hi Hleft) as Hp. destruct Hs as (Hn & Harr & _).
  destruct (decide_pipeline_sound pr fuel Hd) as (Hhit & _).
  assert (Hsrc : source s j = req r).
  { unfold source. rewrite Harr. apply nth_error_nth. now rewrite nth_error_map, Hj. }
  apply (Hhit s Hr) with (j := j) (i := i); auto.
  - now rewrite Harr.
  - rewrite Harr, map_length. apply nth_error_Some. congruence.
  - now rewrite Hsrc, counts_on_N.
  - rewrite Hsrc, Hn. cbn [arr req allowed to_pipeline]. lia.
  - now rewrite length_stages.
Qed.

(** A whole log: the program confirms the pipeline, its streams keep to their declarations, and its stages did what the model does. *)
Definition conforms_pipeline st := conforms_by (psources pr) (parrived st).
Definition log_hits fuel log := decide_pipeline pr fuel && match accept_pipeline begin_pipeline log with
  | (st, []) => conforms_pipeline st
  | _ => false
  end.

Theorem log_hits_sound fuel log : log_hits fuel log = true -> let st := fst (accept_pipeline begin_pipeline log) in
  forall j r, nth_error (rev (parrived st)) j = Some r -> counts_on r = true -> narr r + pallowed pr < pnow st ->
  forall i, (i < m)%nat -> ~ left_at st j i.
Proof.
  unfold log_hits. intros H. apply andb_true_iff in H as (Hd & H). destruct (accept_pipeline _ _) as (st, left) eqn:Ea. cbn [fst].
  destruct left; [|discriminate]. apply (accepted_hits fuel log st [] Hd Ea). apply (conforms_by_sound (psources pr)); [| |exact H].
  - now destruct (decide_formed pr fuel Hd).
  - reflexivity.
Qed.
End PipelineRun.

(** * Examples, in nanoseconds

    The two cameras of Decide.v, a detector that takes two pictures in 3, and two classifiers that take one of the up to two things of
    each in 3.  Of the first picture come two, of the second one. *)
Definition seen_0 := [(0, Comes 0); (0, Comes 1); (0, Begins 0 0 3 [0; 1]); (3, Leaves 0 0 [(1%nat, (0, 2)); (1%nat, (1, 1))])].
Definition read_all := [(3, Begins 1 0 3 [0]); (3, Begins 1 1 3 [0]); (6, Leaves 1 0 []); (6, Begins 1 0 3 [1]); (6, Leaves 1 1 []); (9, Leaves 1 0 [])].
(** How many entries of a log are not accepted, if dispatch may be so late. *)
Definition left_of_pipeline late log := length (snd (accept_pipeline (cameras 15 late) (begin_pipeline (cameras 15 late)) log)).

Example two_pictures : left_of_pipeline 0 (seen_0 ++ read_all) = 0%nat.
Proof. reflexivity. Qed.
(** So all of it is in time, if nothing comes that is not declared. *)
Example pictures_hit : map (fun t => log_hits (cameras 15 0) 100 (seen_0 ++ read_all ++ [(t, Comes 0)])) [16; 9; 8; 7] = [true; true; false; false].
Proof. vm_compute. reflexivity. Qed.
(** A batch that is not full while more wait; one that is more than full; one that takes longer, or ends later; a picture that
    never came, or came twice; a worker that there is not, or that runs nothing; a source given up. *)
Definition after_two e := left_of_pipeline 0 [(0, Comes 0); (0, Comes 1); (0, e)].
Example starts_right : map after_two [Begins 0 0 3 [0; 1]; Begins 0 0 3 [1; 0]; Begins 0 0 2 [0; 1]] = [0; 0; 0]%nat.
Proof. reflexivity. Qed.
Example starts_wrong : map after_two [Begins 0 0 3 [0]; Begins 0 0 3 []; Begins 0 0 4 [0; 1]; Begins 0 0 3 [0; 2]; Begins 0 0 3 [0; 0]; Begins 0 1 3 [0; 1];
  Begins 1 0 3 []; Begins 2 0 3 []; Leaves 0 0 []; GivesUp (NRequest 0 1 0)] = [1; 1; 1; 1; 1; 1; 0; 1; 1; 1]%nat.
Proof. reflexivity. Qed.
Example too_many : left_of_pipeline 0 [(0, Comes 0); (0, Comes 1); (0, Comes 9); (0, Begins 0 0 3 [0; 1; 2])] = 1%nat.
Proof. reflexivity. Qed.
Example too_soon : left_of_pipeline 0 [(0, Comes 9); (0, Comes 9); (0, Begins 0 0 3 [0]); (2, Begins 0 0 3 [1])] = 1%nat.
Proof. reflexivity. Qed.
Example ends_in_time : map (fun t => left_of_pipeline 0 (firstn 3 seen_0 ++ [(t, Leaves 0 0 [])])) [1; 3; 4] = [0; 0; 1]%nat.
Proof. reflexivity. Qed.
(** The second picture first; more things in a picture than there may be, said at once or twice; things at no stage behind, and of a
    picture that was not in the batch. *)
Example second_thing_first : left_of_pipeline 0 (seen_0 ++ [(3, Begins 1 0 3 [1])]) = 1%nat.
Proof. reflexivity. Qed.
Example results : map (fun new => left_of_pipeline 0 (firstn 3 seen_0 ++ [(3, Leaves 0 0 new)])) [[(1%nat, (0, 2)); (1%nat, (1, 2))]; [(1%nat, (0, 1)); (1%nat, (0, 1))];
  [(1%nat, (0, 3))]; [(1%nat, (0, 2)); (1%nat, (0, 1))]; [(0%nat, (0, 1))]; [(2%nat, (0, 1))]; [(1%nat, (2, 1))]] = [0; 0; 1; 1; 1; 1; 1]%nat.
Proof. reflexivity. Qed.
(** A worker idles while something mandatory waits: by 1 it may, at each stage, and not by 1 again there before nothing waits. *)
Definition late_by_stage a b c := left_of_pipeline 1 [(0, Comes 0); (a, Begins 0 0 3 [0]); (a + 3, Leaves 0 0 [(1%nat, (0, 2))]); (a + b + 3, Begins 1 0 3 [0]);
  (a + b + c + 3, Begins 1 1 3 [0])].
Example idles_at_stages : map (fun x => late_by_stage (fst (fst x)) (snd (fst x)) (snd x)) [(0, 0, 0); (1, 1, 0); (1, 0, 1); (0, 1, 1); (0, 2, 0); (2, 0, 0)] =
  [0; 0; 0; 1; 2; 4]%nat.
Proof. reflexivity. Qed.
(** Strangers fill a batch, and have one for themselves only where nothing mandatory waits; given up, nothing more is heard of them. *)
Definition strange e := left_of_pipeline 0 [(0, Comes 9); (0, Comes 0); (0, e)].
Example strangers : map strange [Begins 0 0 3 [1; 0]; Begins 0 0 3 [1]; Begins 0 0 3 [0]; Begins 0 0 3 [0; 2]] = [0; 0; 1; 1]%nat.
Proof. reflexivity. Qed.
Example stranger_alone : left_of_pipeline 0 [(0, Comes 9); (0, Begins 0 0 3 [0]); (0, Comes 0); (3, Leaves 0 0 [(1%nat, (0, 2))]); (3, Begins 0 0 3 [1]);
  (3, Begins 1 0 3 [0]); (6, Leaves 0 0 [(1%nat, (1, 1))]); (6, Leaves 1 0 []); (6, Begins 1 0 3 [1]); (9, Leaves 1 0 [])] = 0%nat.
Proof. reflexivity. Qed.
