(** Logs: what a scheduler did.  A log that is accepted is a run of the model, so this tests whether a real scheduler is
    the machine of Model.v.  It computes with binary numbers, and takes the time from one event to the next in one step. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Check Decide.
Open Scope N_scope.

Record nrequest := NRequest { nsrc : N; nidx : N; narr : N }.
Definition req r := Request (N.to_nat (nsrc r)) (N.to_nat (nidx r)) (N.to_nat (narr r)).

Inductive event :=
| Arrives (s : N)                                   (* the next request of stream s *)
| Starts (w : nat) (l : N) (batch : list nrequest)  (* worker w begins this batch, and has l for it *)
| Ends (w : nat)
| Refuses (r : nrequest).                           (* a mandatory request is given up *)

(** The state of the model as far as a log shows it. *)
Record nstate := NState {
  nnow : N;
  nlate : N;
  narrived : list nrequest;                         (* the latest first *)
  nwaiting : list nrequest;
  nrunning : list (option (N * list nrequest)) }.

Section Run.
Variable pr : nproblem.
Notation p := (to_problem pr).
Notation n := (length (nworkers pr)).

Definition start := NState 0 0 [] [] (repeat None n).

Definition BN w := fst (nth w (nworkers pr) (0, 0)).
Definition TN w := snd (nth w (nworkers pr) (0, 0)).
Definition markedN a b i := (i - 1) * a / b <? i * a / b.
Definition mandatoryN r := match nth_error (nstreams pr) (N.to_nat (nsrc r)) with
  | Some s => markedN (fst (rho s)) (snd (rho s)) (nidx r)
  | None => false
  end.
Definition same a b := (nsrc a =? nsrc b) && (nidx a =? nidx b) && (narr a =? narr b).
Definition due_by r := narr r + ndeadline pr.

Definition run_of st w := nth w (nrunning st) None.
Definition is_free st w := match run_of st w with None => true | _ => false end.
Definition freeN st w := match run_of st w with Some (due, _) => due | None => nnow st end.
Definition next_upb st w :=
  (w <? n)%nat && is_free st w && forallb (fun v => negb (is_free st v) || (TN w <=? TN v)) (seq 0 n).

(** ** The passing of time *)

(** How long nothing is due although something waits, as the worker [w] is not yet full: until the latest start. *)
Definition least (l : list N) x := fold_right N.min x l.
Definition rest_of st d w :=
  if negb (neager pr) && next_upb st w && (N.of_nat (length (nwaiting st)) <? BN w)
  then least (map (fun r => due_by r - (nnow st + nguard pr + TN w)) (nwaiting st)) d else 0.
Definition rest st d := match nwaiting st with
  | [] => d
  | _ => fold_right (fun w => N.max (rest_of st d w)) 0 (seq 0 n)
  end.

Definition pass st d :=
  if forallb (fun w => match run_of st w with Some (due, _) => nnow st + d <=? due | None => true end) (seq 0 n) then
    let r := N.min (rest st d) d in
    let late := if r =? 0 then nlate st else 0 in
    let after l := Some (NState (nnow st + d) l (narrived st) (nwaiting st) (nrunning st)) in
    if r =? d then after late
    else if forallb (fun w => negb (is_free st w)) (seq 0 n) then after late
    else if late + (d - r) <=? nguard pr then after (late + (d - r)) else None
  else None.

(** ** Starts, ends, refusals *)

Definition startsN g t u := if g <=? u then (u - g) / t + 1 else 0.
Definition supplyN (g : nat -> N) u := sumN (fun w => BN w * startsN (g w) (TN w) u) (seq 0 n).
Definition afterN st w l e v := N.max ((if (v =? w)%nat then nnow st + l else freeN st v) - e) (TN v).

Fixpoint in_order begun now i waits := match waits with
  | [] => true
  | r :: waits =>
      let late := now + maxN (nworkers pr) + nguard pr in
      (late <=? due_by r) && (i <=? begun (due_by r - late)) && in_order begun now (i + 1) waits
  end.

(** The shield as of [e]; [fuel] points are looked at. *)
Definition shieldb fuel st w l e taken waits :=
  let g := afterN st w l e in let begun := supplyN g in let r := N.of_nat (length waits) in
  well_formed pr && (TN w <=? l) && forallb (fun r => nnow st + l <=? due_by r) taken &&
  in_order begun e 1 waits &&
  forallb (fun v => g v + maxN (nworkers pr) + nguard pr <=? TN v + ndeadline pr) (seq 0 n) &&
  match certificate fuel pr begun r with Some (points, ending) => covered pr begun r points ending | None => false end.

(** The longest length up to [hi] that is [ok], if [lo] is and all shorter ones are. *)
Fixpoint longest fuel (ok : N -> bool) lo hi := match fuel with
  | O => lo
  | S fuel =>
      if hi <=? lo then lo
      else let mid := (lo + hi + 1) / 2 in if ok mid then longest fuel ok mid hi else longest fuel ok lo (mid - 1)
  end.

(** Before when, at most [hi], no further request of a stream conforms that has sent at [came], the latest first: from one
    of these instants until then its curve allows no more than have come.  That instant, and the end.  What is found is
    checked. *)
Fixpoint held_by bs hi i came found := match came with
  | [] => found
  | a :: came => held_by bs hi (i + 1) came
      (if (snd found <? hi) && (alpha bs (snd found + 1 - a) <=? i)
       then (a, a + longest (N.size_nat hi) (fun d => alpha bs d <=? i) (snd found + 1 - a) (hi - a)) else found)
  end.
Definition held st k s := held_by (bounds s) (nnow st + ndeadline pr) 1
  (map narr (filter (fun x => nsrc x =? N.of_nat k) (narrived st))) (nnow st, nnow st).
Definition seen st k a e := N.of_nat (length (filter
  (fun x => (nsrc x =? N.of_nat k) && ((a <=? narr x) && (narr x <? a + (e - a)))) (narrived st))).

(** Whether no stream can send before [e], and until when none can. *)
Definition of_stream {A} k (f : nstream -> A) other := match nth_error (nstreams pr) k with Some s => f s | None => other end.
Definition numbers := seq 0 (length (nstreams pr)).
Definition lullb st e := (nnow st <=? e) && forallb (fun k => of_stream k (fun s => let a := fst (held st k s) in
  (a <=? nnow st) && (alpha (bounds s) (e - a) <=? seen st k a e)) true) numbers.
Definition lull_end st :=
  fold_right (fun k => N.min (of_stream k (fun s => snd (held st k s)) (nnow st))) (nnow st + ndeadline pr) numbers.

(** A long batch may begin as things are now; or, if it leaves nothing waiting, as they will be at the end of a lull; or if
    nothing is promised. *)
Definition may_start fuel st w l taken waits :=
  match nstreams pr, nwaiting st with [], [] => true | _, _ => false end ||
  shieldb fuel st w l (nnow st) taken waits ||
  match waits with
  | [] => let e := lull_end st in lullb st e && shieldb fuel st w l e taken []
  | _ => false
  end.

Definition doomedN st w r := forallb (fun v =>
  due_by r <? (if (v =? w)%nat then nnow st + TN w else freeN st v) + TN v) (seq 0 n).
Definition hopelessb st r :=
  forallb (fun w => due_by r <? nnow st + TN w) (seq 0 n) ||
  existsb (fun w => next_upb st w && (BN w <? N.of_nat (length (filter (doomedN st w) (nwaiting st))))) (seq 0 n).

Fixpoint all_same l l' := match l, l' with
  | [], [] => true
  | a :: l, b :: l' => same a b && all_same l l'
  | _, _ => false
  end.
Fixpoint without r l := match l with
  | [] => None
  | x :: l => if same r x then Some l else option_map (cons x) (without r l)
  end.
Fixpoint put {A} (l : list A) w x := match l, w with
  | [], _ => []
  | _ :: l, O => x :: l
  | y :: l, S w => y :: put l w x
  end.

Definition exec fuel st e := match e with
  | Arrives s =>
      let r := NRequest s (N.of_nat (length (filter (fun x => nsrc x =? s) (narrived st))) + 1) (nnow st) in
      Some (NState (nnow st) (nlate st) (r :: narrived st)
              (if mandatoryN r then nwaiting st ++ [r] else nwaiting st) (nrunning st))
  | Starts w l b =>
      let most := N.to_nat (N.max (BN w) (N.of_nat (length b))) in
      let taken := firstn most (nwaiting st) in
      let waits := skipn most (nwaiting st) in
      let others := filter (fun r => negb (mandatoryN r)) b in
      if next_upb st w && all_same (filter mandatoryN b) taken &&
         forallb (fun r => existsb (same r) (narrived st)) others &&
         ((l <=? TN w) || may_start fuel st w l taken waits)
      then Some (NState (nnow st) (nlate st) (narrived st) waits
                   (put (nrunning st) w (Some (nnow st + N.max l (TN w), taken ++ others))))
      else None
  | Ends w =>
      if (w <? n)%nat && negb (is_free st w)
      then Some (NState (nnow st) (nlate st) (narrived st) (nwaiting st) (put (nrunning st) w None)) else None
  | Refuses r =>
      match without r (nwaiting st) with
      | Some l => if hopelessb st r
          then Some (NState (nnow st) (nlate st) (narrived st) l (nrunning st)) else None
      | None => None
      end
  end.

Definition advance fuel st (x : N * event) :=
  if fst x <? nnow st then None
  else match pass st (fst x - nnow st) with Some st => exec fuel st (snd x) | None => None end.

(** The state in the end, and what is left of the log: nothing if all of it is accepted. *)
Fixpoint accept fuel st log := match log with
  | [] => (st, [])
  | x :: rest => match advance fuel st x with Some st => accept fuel st rest | None => (st, log) end
  end.

(** * It is sound *)

Definition run (x : option (N * list nrequest)) := match x with
  | Some (due, b) => Some (N.to_nat due, map req b)
  | None => None
  end.

Definition shows st s := now s = N.to_nat (nnow st) /\ late s = N.to_nat (nlate st) /\
  arrived s = map req (rev (narrived st)) /\ waiting s = map req (nwaiting st) /\
  length (nrunning st) = n /\ (forall w, (w < n)%nat -> running s w = run (run_of st w)) /\ load s = everyone p.

Lemma workers_n : length (workers p) = n.
Proof. cbn. apply map_length. Qed.

Lemma worker_nth w : nth w (workers p) (Worker 0 0) = to_worker (nth w (nworkers pr) (0, 0)).
Proof. cbn [workers to_problem]. change (Worker 0 0) with (to_worker (0, 0)). apply map_nth. Qed.

Lemma B_N w : B p w = N.to_nat (BN w).
Proof. unfold B. now rewrite worker_nth. Qed.

Lemma T_N w : T p w = N.to_nat (TN w).
Proof. unfold T. now rewrite worker_nth. Qed.

Lemma mandatory_N r : mandatory p (req r) = mandatoryN r.
Proof.
  unfold mandatory, mandatoryN. cbn [src idx req streams to_problem]. rewrite nth_error_map.
  destruct (nth_error _ _) as [s|]; [|reflexivity]. cbn [option_map to_stream num den]. unfold marked, markedN.
  replace (N.to_nat (nidx r) - 1)%nat with (N.to_nat (nidx r - 1)) by lia. rewrite <- !N2Nat.inj_mul, <- !N2Nat.inj_div.
  apply eq_true_iff_eq. rewrite Nat.ltb_lt, N.ltb_lt. lia.
Qed.

Lemma same_req a b : same a b = true -> a = b.
Proof.
  unfold same. rewrite !andb_true_iff, !N.eqb_eq. destruct a, b. cbn. intros ((-> & ->) & ->). reflexivity.
Qed.

Lemma all_same_eq l l' : all_same l l' = true -> l = l'.
Proof.
  revert l'. induction l as [|a l IH]; intros [|b l']; cbn; try discriminate; [auto|].
  rewrite andb_true_iff. intros (H & H'). now rewrite (same_req _ _ H), (IH _ H').
Qed.

Lemma put_nth {A} (l : list A) w x v d : (w < length l)%nat -> nth v (put l w x) d = if (v =? w)%nat then x else nth v l d.
Proof.
  revert w v. induction l as [|y l IH]; intros [|w] [|v]; cbn; intros H; try lia; auto. apply IH. lia.
Qed.

Lemma put_length {A} (l : list A) w x : length (put l w x) = length l.
Proof. revert w. induction l; intros [|w]; cbn; auto. Qed.

Lemma free_shows st s w : shows st s -> (w < n)%nat -> is_free st w = true <-> running s w = None.
Proof.
  intros (_ & _ & _ & _ & _ & Hr & _) Hw. rewrite (Hr w Hw). unfold is_free.
  destruct (run_of st w) as [(due, b)|]; cbn; split; congruence.
Qed.

Lemma free_at_shows st s w : shows st s -> (w < n)%nat -> free_at s w = N.to_nat (freeN st w).
Proof.
  intros (Hn & _ & _ & _ & _ & Hr & _) Hw. unfold free_at, freeN. rewrite (Hr w Hw).
  destruct (run_of st w) as [(due, b)|]; cbn; auto.
Qed.

Lemma next_up_shows st s w : shows st s -> next_upb st w = true -> (w < n)%nat /\ next_up p s w.
Proof.
  intros Hs. unfold next_upb. rewrite !andb_true_iff, Nat.ltb_lt, forallb_forall. intros ((Hw & Hf) & Hq).
  split; [auto|]. split; [now rewrite workers_n|]. split; [now apply (free_shows st s w)|].
  intros v Hv Hvf. rewrite workers_n in Hv. specialize (Hq v ltac:(apply in_seq; lia)).
  apply (free_shows st s v) in Hvf; auto. rewrite Hvf in Hq. cbn [negb orb] in Hq. apply N.leb_le in Hq. rewrite !T_N. lia.
Qed.

(** ** The passing of time *)

Definition later s k l := State (now s + k) l (arrived s) (waiting s) (running s) (answered s) (load s) (clean s).

Lemma later_0 s : later s 0 (late s) = s.
Proof. unfold later. rewrite Nat.add_0_r. now destruct s. Qed.

Lemma later_later s k l k' l' : later (later s k l) k' l' = later s (k + k') l'.
Proof. unfold later. cbn. now rewrite Nat.add_assoc. Qed.

Lemma ticks (f : nat -> nat) k : forall s, reachable p s -> f 0%nat = late s ->
  (forall w due b, (w < length (workers p))%nat -> running s w = Some (due, b) -> (now s + k <= due)%nat) ->
  (forall i, (i < k)%nat -> let s' := later s i (f i) in
     (f (S i) = 0%nat /\ (waiting s = [] \/ can_rest p s')) \/
     (f (S i) = f i /\ (forall w, (w < length (workers p))%nat -> running s w <> None)) \/
     (f (S i) = S (f i) /\ (f i < guard p)%nat)) ->
  reachable p (later s k (f k)).
Proof.
  induction k; intros s Hr Hf Hd Hc; [rewrite Hf, later_0; exact Hr|].
  assert (Hk : reachable p (later s k (f k))).
  { apply IHk; auto.
    - intros w due b Hw E. specialize (Hd w due b Hw E). lia.
    - intros i Hi. apply Hc. lia. }
  replace (later s (S k) (f (S k))) with (let s' := later s k (f k) in
    State (S (now s')) (f (S k)) (arrived s') (waiting s') (running s') (answered s') (load s') (clean s'))
    by (cbn; unfold later; now rewrite Nat.add_succ_r).
  eapply Reach_step; [exact Hk|]. apply Tick.
  - intros w due b Hw E. specialize (Hd w due b Hw E). cbn [later now]. lia.
  - exact (Hc k ltac:(lia)).
Qed.

Lemma least_le l x i : i < least l x -> forall y, In y l -> i < y.
Proof.
  induction l as [|a l IH]; cbn [least fold_right In]; intros H y Hy; [contradiction|].
  fold (least l x) in *. destruct Hy as [->|Hy]; [lia|]. apply IH; auto. lia.
Qed.

Lemma max_some {A} (f : A -> N) l i : i < fold_right (fun w => N.max (f w)) 0 l -> exists w, In w l /\ i < f w.
Proof.
  induction l as [|a l IH]; cbn [fold_right In]; intros H; [lia|].
  destruct (N.lt_ge_cases i (f a)); [exists a; auto|]. destruct IH as (w & ? & ?); [lia|exists w; auto].
Qed.

Lemma can_rest_shows st s d i l : shows st s -> i < rest st d -> nwaiting st <> [] ->
  can_rest p (later s (N.to_nat i) l).
Proof.
  intros Hs Hi Hne. unfold rest in Hi. destruct (nwaiting st) as [|r0 q] eqn:Eq; [congruence|]. clear Hne.
  apply max_some in Hi as (w & Hw & Hi). unfold rest_of in Hi. rewrite Eq in Hi.
  destruct (negb (neager pr) && next_upb st w && _) eqn:E; [|lia].
  rewrite !andb_true_iff, negb_true_iff, N.ltb_lt in E. destruct E as ((He & Hup) & Hlen).
  destruct (next_up_shows st s w Hs Hup) as (Hwn & Hup').
  pose proof Hs as (Hn & _ & _ & Hwait & _).
  split; [exact He|]. exists w. cbn [later waiting now running].
  assert (Hl : length (waiting s) = length (r0 :: q)) by (rewrite Hwait, Eq; apply map_length).
  split; [exact Hup'|]. split; [rewrite B_N; lia|].
  intros r Hr. rewrite Hwait in Hr. apply in_map_iff in Hr as (x & <- & Hx). rewrite Eq in Hx.
  assert (Hxi : i < due_by x - (nnow st + nguard pr + TN w)).
  { eapply least_le; [exact Hi|]. now apply (in_map (fun r => due_by r - (nnow st + nguard pr + TN w))). }
  unfold due_by in Hxi. rewrite T_N. cbn [req arr deadline guard to_problem]. lia.
Qed.

Lemma pass_reachable st s d st' : reachable p s -> shows st s -> pass st d = Some st' ->
  exists s', reachable p s' /\ shows st' s'.
Proof.
  intros Hr Hs. unfold pass. destruct (forallb _ _) eqn:Ed; [|discriminate].
  rewrite forallb_forall in Ed. pose proof Hs as (Hn & Hl & Ha & Hw & Hlen & Hrun & Hload).
  assert (Hdue : forall w due b, (w < length (workers p))%nat -> running s w = Some (due, b) ->
    (now s + N.to_nat d <= due)%nat).
  { intros w due b Hlt E. rewrite workers_n in Hlt. specialize (Ed w ltac:(apply in_seq; lia)).
    rewrite (Hrun w Hlt) in E. destruct (run_of st w) as [(due', b')|]; [|discriminate].
    cbn in E. injection E as <- <-. apply N.leb_le in Ed. lia. }
  set (r := N.min (rest st d) d). assert (Hrd : r <= d) by (unfold r; lia).
  assert (Hrr : r <= rest st d) by (unfold r; lia). clearbody r.
  set (l0 := if r =? 0 then nlate st else 0). cbv zeta.
  assert (Hshow : forall l, shows (NState (nnow st + d) l (narrived st) (nwaiting st) (nrunning st))
    (later s (N.to_nat d) (N.to_nat l))).
  { intros l. unfold shows. cbn. repeat split; auto. lia. }
  (* first nothing is due *)
  assert (Hrest : reachable p (later s (N.to_nat r) (N.to_nat l0))).
  { replace (N.to_nat l0) with ((fun k => match k with O => late s | _ => 0%nat end) (N.to_nat r)).
    2:{ unfold l0. destruct (N.eqb_spec r 0) as [->|]; [exact Hl|]. destruct (N.to_nat r) eqn:E; [lia|reflexivity]. }
    apply (ticks (fun k => match k with O => late s | _ => 0%nat end)); auto.
    - intros w due b Hlt E. specialize (Hdue w due b Hlt E). lia.
    - intros i Hi. left. split; [reflexivity|].
      destruct (nwaiting st) eqn:Eq; [left; rewrite Hw; reflexivity|right].
      rewrite <- (Nat2N.id i) at 1. apply (can_rest_shows st s d); [auto|lia|congruence]. }
  destruct (N.eqb_spec r d) as [Erd|Hne].
  { intros E. injection E as <-. exists (later s (N.to_nat d) (N.to_nat l0)). rewrite Erd in Hrest. auto. }
  assert (Hmore : forall l', reachable p (later (later s (N.to_nat r) (N.to_nat l0)) (N.to_nat (d - r)) l') ->
    reachable p (later s (N.to_nat d) l')).
  { intros l'. rewrite later_later. replace (N.to_nat r + N.to_nat (d - r))%nat with (N.to_nat d) by lia. auto. }
  assert (Hdue' : forall w due b, (w < length (workers p))%nat -> running s w = Some (due, b) ->
    (now s + N.to_nat r + N.to_nat (d - r) <= due)%nat).
  { intros w due b Hlt E. specialize (Hdue w due b Hlt E). lia. }
  destruct (forallb _ (seq 0 n)) eqn:Eb.
  - (* then all are busy *)
    intros E. injection E as <-. exists (later s (N.to_nat d) (N.to_nat l0)). split; [|auto].
    apply Hmore. apply (ticks (fun _ => N.to_nat l0)); auto. intros i Hi. right. left. split; [auto|].
    intros w Hlt Hf. rewrite workers_n in Hlt. rewrite forallb_forall in Eb. specialize (Eb w ltac:(apply in_seq; lia)).
    cbn [later running] in Hf. apply (free_shows st s w Hs Hlt) in Hf. now rewrite Hf in Eb.
  - (* or dispatch is late *)
    destruct (N.leb_spec (l0 + (d - r)) (nguard pr)) as [Hg|]; [|discriminate].
    intros E. injection E as <-. exists (later s (N.to_nat d) (N.to_nat (l0 + (d - r)))). split; [|auto].
    apply Hmore. rewrite N2Nat.inj_add.
    apply (ticks (fun i => N.to_nat l0 + i)%nat); auto.
    intros i Hi. right. right.
    cbn [guard to_problem]. split; lia.
Qed.

(** ** The shield *)

Lemma sum_seq f k : sum f k = list_sum (map f (seq 0 k)).
Proof.
  induction k; [reflexivity|]. rewrite seq_S, map_app, list_sum_app. cbn [sum map list_sum fold_right Nat.add]. lia.
Qed.

Lemma supply_N g g' u : (forall w, (w < n)%nat -> g w = N.to_nat (g' w)) ->
  supply p g (N.to_nat u) = N.to_nat (supplyN g' u).
Proof.
  intros Hg. unfold supply, supplyN. rewrite workers_n, sumN_to_nat, sum_seq. f_equal. apply map_ext_in.
  intros w Hw. apply in_seq in Hw. rewrite N2Nat.inj_mul, <- B_N. f_equal.
  unfold starts, startsN. rewrite (Hg w ltac:(lia)), T_N.
  destruct (Nat.leb_spec (N.to_nat (g' w)) (N.to_nat u)), (N.leb_spec (g' w) u); try lia.
  rewrite N2Nat.inj_add, N2Nat.inj_div, N2Nat.inj_sub. reflexivity.
Qed.

Lemma in_order_spec begun t waits i : in_order begun t i waits = true ->
  forall a r b, waits = a ++ r :: b -> t + maxN (nworkers pr) + nguard pr <= due_by r /\
  i + N.of_nat (length a) <= begun (due_by r - (t + maxN (nworkers pr) + nguard pr)).
Proof.
  revert i. induction waits as [|x waits IH]; intros i H a r b E; [destruct a; discriminate|].
  cbn [in_order] in H. rewrite !andb_true_iff, !N.leb_le in H. destruct H as ((H1 & H2) & H3).
  destruct a as [|y a]; cbn in E; injection E as -> E.
  - cbn. rewrite N.add_0_r. auto.
  - destruct (IH (i + 1) H3 a r b E) as (H4 & H5). cbn [length]. split; [auto|]. lia.
Qed.

Lemma map_split {A C} (f : A -> C) l a x b : map f l = a ++ x :: b ->
  exists a' x' b', l = a' ++ x' :: b' /\ a = map f a' /\ x = f x' /\ b = map f b'.
Proof.
  revert a. induction l as [|y l IH]; intros a E; [destruct a; discriminate|]. destruct a as [|z a]; cbn in E.
  - injection E as <- <-. exists [], y, l. auto.
  - injection E as <- E. destruct (IH a E) as (a' & x' & b' & -> & -> & -> & ->). exists (y :: a'), x', b'. auto.
Qed.

Lemma count_req (f : request -> bool) g l : (forall r, f (req r) = g r) -> count f (map req l) = length (filter g l).
Proof.
  intros H. unfold count. induction l; [reflexivity|]. cbn. rewrite H. destruct (g a); cbn; auto.
Qed.

Lemma count_rev {A} (f : A -> bool) l : count f (rev l) = count f l.
Proof. induction l; [reflexivity|]. cbn [rev]. rewrite count_app, !count_cons, count_nil, IHl. lia. Qed.

Lemma lullb_shows st s e : shows st s -> lullb st e = true -> lull p everything s (everyone p) (N.to_nat e).
Proof.
  intros (Hn & _ & Ha & _) H. unfold lullb in H. apply andb_true_iff in H as (He & Hall). apply N.leb_le in He.
  split; [lia|]. intros k s' x _ Hk Hx. cbn [streams to_problem] in Hk. rewrite nth_error_map in Hk.
  rewrite forallb_forall in Hall. destruct (nth_error (nstreams pr) k) as [s0|] eqn:E; [|discriminate]. injection Hk as <-.
  assert (In k numbers) as Hin.
  { apply in_seq. split; [lia|]. apply nth_error_Some. congruence. }
  specialize (Hall k Hin). unfold of_stream in Hall. rewrite E in Hall. set (a := fst (held st k s0)) in *. clearbody a.
  cbv zeta in Hall. rewrite andb_true_iff, !N.leb_le in Hall. destruct Hall as (Han & Hseen).
  exists (N.to_nat a), (N.to_nat (e - a)). split; [lia|].
  change (Model.seen everything (arrived s)) with (arrived s). rewrite Ha, map_rev, count_rev, (count_req _ (fun x => (nsrc x =? N.of_nat k) && ((a <=? narr x) && (narr x <? a + (e - a))))).
  - cbn [curve to_stream]. rewrite N2Nat.id. unfold seen in Hseen. lia.
  - intros r. unfold of, within. cbn [req src arr]. apply eq_true_iff_eq.
    rewrite !andb_true_iff, Nat.eqb_eq, N.eqb_eq, Nat.leb_le, N.leb_le, Nat.ltb_lt, N.ltb_lt. lia.
Qed.

Lemma shieldb_shows fuel st s w l e taken waits : shows st s -> (w < n)%nat ->
  (e = nnow st \/ waits = [] /\ lull p everything s (everyone p) (N.to_nat e)) ->
  shieldb fuel st w l e taken waits = true ->
  shield p everything s w (N.to_nat l) (everyone p) (map req taken) (map req waits).
Proof.
  intros Hs Hw He. unfold shieldb. rewrite !andb_true_iff. intros (((((Hwf & HT) & Htaken) & Hord) & Hlong) & Hcov).
  destruct (well_formed_spec pr Hwf) as (Hsound & Hroom & Hbounds & _).
  rewrite N.leb_le in HT. rewrite !forallb_forall in *. pose proof Hs as (Hn & _ & _ & _ & _ & _ & Hload).
  assert (Hafter : forall v, (v < n)%nat -> after p s w (N.to_nat l) (N.to_nat e) v = N.to_nat (afterN st w l e v)).
  { intros v Hv. unfold after, afterN. rewrite (free_at_shows st s v Hs Hv), T_N, Hn. destruct (v =? w)%nat; lia. }
  assert (HTmax : Tmax p = N.to_nat (maxN (nworkers pr))) by apply Tmax_N.
  split; [rewrite T_N; lia|]. split.
  { intros r Hr. apply in_map_iff in Hr as (x & <- & Hx). specialize (Htaken x Hx). apply N.leb_le in Htaken.
    unfold due_by in Htaken. cbn [req arr deadline to_problem]. lia. }
  exists (N.to_nat e). split; [|split; [|split; [|split]]].
  - destruct He as [->|(-> & He)]; [left; rewrite Hn; auto|right]. split; [reflexivity|]. split; [|exact He].
    rewrite Hload. now intros k.
  - intros a r b E. apply map_split in E as (a' & r' & b' & -> & -> & -> & ->).
    destruct (in_order_spec _ _ _ _ Hord a' r' b' eq_refl) as (H1 & H2).
    exists (N.to_nat (due_by r' - (e + maxN (nworkers pr) + nguard pr))).
    rewrite (supply_N _ (afterN st w l e)), map_length by auto. split; [lia|].
    rewrite HTmax. unfold due_by in *. cbn [guard deadline to_problem req arr]. lia.
  - rewrite HTmax. cbn [guard deadline to_problem]. lia.
  - intros v Hv. rewrite workers_n in Hv. specialize (Hlong v ltac:(apply in_seq; lia)). apply N.leb_le in Hlong.
    rewrite Hafter, T_N, HTmax by auto. cbn [guard deadline to_problem]. lia.
  - destruct (certificate _ _ _ _) as [(points, ending)|]; [|discriminate].
    intros d. rewrite <- (Nat2N.id d). fold (curve_m p).
    assert (Hmono : forall u u', u <= u' -> supplyN (afterN st w l e) u <= supplyN (afterN st w l e) u').
    { intros u u' Hu. pose proof (supply_mono p (fun v => N.to_nat (afterN st w l e v)) (N.to_nat u) (N.to_nat u') ltac:(lia)) as H.
      rewrite !(supply_N _ (afterN st w l e)) in H by auto. lia. }
    assert (Hgrows : forall ss u h, repeats ss (nworkers pr) h = true -> room pr <= u ->
      supplyN (afterN st w l e) u + sigmaN (nworkers pr) h <= supplyN (afterN st w l e) (u + h)).
    { intros ss u h _ Hu.
      pose proof (sigma_supply p (fun v => N.to_nat (afterN st w l e v)) (N.to_nat h) (N.to_nat u)) as H.
      rewrite (supply_N _ (afterN st w l e)), sigma_N, <- (N2Nat.inj_add h u), (supply_N _ (afterN st w l e)), N2Nat.id in H by auto.
      rewrite (N.add_comm u h). refine ((fun G => _) (H _)); [lia|]. intros v Hv. rewrite workers_n in Hv.
      specialize (Hlong v ltac:(apply in_seq; lia)). apply N.leb_le in Hlong. rewrite T_N. unfold room in Hu. lia. }
    destruct (covered_sound pr _ _ _ _ Hbounds Hmono Hgrows Hcov (N.of_nat d)) as [(Hx & H0 & Hover)|Hd].
    + left. exists (N.to_nat (last points 0)). split; [lia|]. now apply over_N.
    + right. exists (N.to_nat (N.of_nat d + room pr)). rewrite (supply_N _ (afterN st w l e)), map_length, HTmax by auto.
      rewrite curve_m_N. replace (N.of_nat (N.to_nat (N.of_nat d) + 1)) with (N.of_nat d + 1) by lia.
      split; [lia|]. unfold room. cbn [guard deadline to_problem]. lia.
Qed.

(** ** Steps *)

Lemma filter_split {A} (f : A -> bool) l : (length (filter f l) + length (filter (fun x => negb (f x)) l) = length l)%nat.
Proof. induction l; [reflexivity|]. cbn. destruct (f a); cbn; lia. Qed.

Lemma without_split r l l' : without r l = Some l' -> exists a b, l = a ++ r :: b /\ l' = a ++ b.
Proof.
  revert l'. induction l as [|x l IH]; cbn; intros l' H; [discriminate|]. destruct (same r x) eqn:E.
  - apply same_req in E as ->. injection H as <-. exists [], l. auto.
  - destruct (without r l) as [l1|]; [|discriminate]. cbn in H. injection H as <-.
    destruct (IH l1 eq_refl) as (a & b & -> & ->). exists (x :: a), b. auto.
Qed.

Lemma forallb_same {A} (f g : A -> bool) l : (forall x, In x l -> f x = g x) -> forallb f l = forallb g l.
Proof.
  induction l; intros H; [reflexivity|]. cbn. rewrite (H a (or_introl eq_refl)), IHl; [reflexivity|].
  intros x Hx. apply H. now right.
Qed.

Lemma hopeless_shows st s r : shows st s -> hopelessb st r = true -> hopeless p s (req r).
Proof.
  intros Hs H. pose proof Hs as (Hn & _ & _ & Hwait & _). apply orb_true_iff in H as [H|H].
  - left. intros w Hw. rewrite workers_n in Hw. rewrite forallb_forall in H. specialize (H w ltac:(apply in_seq; lia)).
    apply N.ltb_lt in H. unfold due_by in H. rewrite T_N. cbn [req arr deadline to_problem]. lia.
  - right. apply existsb_exists in H as (w & Hw & H). apply andb_true_iff in H as (Hup & H).
    destruct (next_up_shows st s w Hs Hup) as (Hwn & Hup'). exists w. split; [auto|].
    rewrite Hwait, (count_req _ (doomedN st w)); [apply N.ltb_lt in H; rewrite B_N; lia|].
    intros x. unfold doomed, doomedN. rewrite workers_n.
    apply forallb_same. intros v Hv. apply in_seq in Hv. apply eq_true_iff_eq. rewrite Nat.ltb_lt, N.ltb_lt, !T_N.
    rewrite (free_at_shows st s v Hs ltac:(lia)), Hn. unfold due_by. cbn [req arr deadline to_problem].
    destruct (v =? w)%nat; lia.
Qed.

Lemma mandatory_counted r : mandatory p r = true -> In (src r) (everyone p).
Proof.
  unfold mandatory, everyone. destruct (nth_error (streams p) (src r)) eqn:E; [|discriminate]. intros _.
  apply in_seq. split; [lia|]. apply nth_error_Some. congruence.
Qed.

Lemma exec_step fuel st s e st' : shows st s -> exec fuel st e = Some st' -> exists s', step p s s' /\ shows st' s'.
Proof.
  intros Hs. pose proof Hs as (Hn & Hl & Ha & Hw & Hlen & Hrun & Hload).
  destruct e as [k|w l b|w|r]; cbn [exec].
  - (* Arrives *)
    set (r := NRequest k _ _). intros E. injection E as <-. eexists. split.
    + apply (Arrive p s (req r)); [cbn; lia| |rewrite Hload; apply mandatory_counted].
      unfold r. cbn [req idx src nidx nsrc].
      change (Model.seen everything (arrived s)) with (arrived s). rewrite Ha, map_rev, count_rev, (count_req _ (fun x => nsrc x =? k)); [lia|].
      intros x. unfold of. cbn. apply eq_true_iff_eq. rewrite Nat.eqb_eq, N.eqb_eq. lia.
    + unfold shows. cbn [nnow nlate narrived nwaiting nrunning now late arrived waiting running load].
      split; [auto|]. split; [auto|]. split; [cbn [rev]; now rewrite map_app, Ha|].
      split; [rewrite mandatory_N; destruct (mandatoryN r); [rewrite map_app|]; now rewrite Hw|auto].
  - (* Starts *)
    set (most := N.to_nat _). set (taken := firstn _ _). set (waits := skipn _ _).
    set (others := filter (fun r => negb (mandatoryN r)) b).
    destruct (next_upb st w && _ && _ && _) eqn:E; [|discriminate].
    rewrite !andb_true_iff, forallb_forall in E. destruct E as (((Hup & Hsame) & Hoth) & Hlong).
    destruct (next_up_shows st s w Hs Hup) as (Hwn & Hup').
    apply all_same_eq in Hsame. intros E. injection E as <-.
    assert (Htaken : firstn most (waiting s) = map req taken) by (rewrite Hw, firstn_map; reflexivity).
    assert (Hwaits : skipn most (waiting s) = map req waits) by (rewrite Hw, skipn_map; reflexivity).
    eexists. split.
    + apply (Start p s w most (N.to_nat (N.max l (TN w))) (map req others) (everyone p) (if l <=? TN w then clean s else false)); auto.
      * rewrite B_N. unfold most. lia.
      * rewrite Htaken, !map_length. pose proof (filter_split mandatoryN b) as Hsplit.
        rewrite Hsame in Hsplit. fold others in Hsplit. unfold most. lia.
      * intros x Hx. apply in_map_iff in Hx as (y & <- & Hy). specialize (Hoth y Hy).
        apply existsb_exists in Hoth as (z & Hz & E). apply same_req in E as <-.
        split; [rewrite Ha; apply in_map; now apply -> in_rev|].
        rewrite mandatory_N. apply filter_In in Hy as (_ & Hy). now apply negb_true_iff in Hy.
      * destruct (N.leb_spec l (TN w)) as [H|Hl'].
        { left. rewrite T_N. repeat split; [lia|auto]. }
        cbn [orb] in Hlong. right. rewrite Htaken, Hwaits. replace (N.max l (TN w)) with l by lia.
        unfold may_start in Hlong. rewrite !orb_true_iff in Hlong. destruct Hlong as [[H|H]|H].
        -- right. unfold everyone. cbn [streams to_problem]. rewrite Hload. unfold everyone. cbn [streams to_problem].
           destruct (nstreams pr); [|discriminate]. rewrite Hw. destruct (nwaiting st); [auto|discriminate].
        -- left. split; [|reflexivity]. apply (shieldb_shows fuel st s w l (nnow st)); auto.
        -- left. split; [|reflexivity]. destruct waits as [|r0 q0]; [|discriminate].
           cbv zeta in H. apply andb_true_iff in H as (Hlull & H).
           apply (shieldb_shows fuel st s w l (lull_end st)); auto. right. split; [reflexivity|]. now apply (lullb_shows st).
    + unfold shows. cbn [nnow nlate narrived nwaiting nrunning now late arrived waiting running load].
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [now rewrite put_length|]. split; [|auto].
      intros v Hv. unfold run_of. cbn [nrunning]. rewrite put_nth by lia. unfold set. destruct (v =? w)%nat eqn:Ev.
      * cbn [run]. rewrite Htaken, map_app, Hn. do 2 f_equal. lia.
      * apply (Hrun v Hv).
  - (* Ends *)
    destruct (_ && _) eqn:E; [|discriminate]. rewrite andb_true_iff, Nat.ltb_lt, negb_true_iff in E.
    destruct E as (Hwn & Hf). intros E. injection E as <-.
    unfold is_free in Hf. pose proof (Hrun w Hwn) as Hr. destruct (run_of st w) as [(due, b)|]; [|discriminate].
    eexists. split.
    + apply (Finish p s w (N.to_nat due) (map req b)); [now rewrite workers_n|exact Hr].
    + unfold shows. cbn [nnow nlate narrived nwaiting nrunning now late arrived waiting running load].
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [now rewrite put_length|]. split; [|auto].
      intros v Hv. unfold run_of. cbn [nrunning]. rewrite put_nth by lia. unfold set. destruct (v =? w)%nat; [reflexivity|].
      apply (Hrun v Hv).
  - (* Refuses *)
    destruct (without r (nwaiting st)) as [l|] eqn:E; [|discriminate]. destruct (hopelessb st r) eqn:Eh; [|discriminate].
    intros E'. injection E' as <-. apply without_split in E as (a & b & E & ->). eexists. split.
    + apply (Refuse p s (map req a) (req r) (map req b)); [rewrite Hw, E; apply map_app|now apply (hopeless_shows st)].
    + unfold shows. cbn [nnow nlate narrived nwaiting nrunning now late arrived waiting running load].
      split; [auto|]. split; [auto|]. split; [auto|]. split; [now rewrite map_app|auto].
Qed.

Lemma start_shows : shows start (initial (everyone p)).
Proof.
  unfold shows, start. cbn. repeat split; auto; [apply repeat_length|].
  intros w _. unfold run_of. cbn. now rewrite nth_repeat.
Qed.

(** What is accepted is a run of the model. *)
Theorem accepted fuel log st left : accept fuel start log = (st, left) -> exists s, reachable p s /\ shows st s.
Proof.
  assert (H : forall log st0 s0, reachable p s0 -> shows st0 s0 -> accept fuel st0 log = (st, left) ->
    exists s, reachable p s /\ shows st s).
  { clear log. induction log as [|x log IH]; intros st0 s0 Hr Hs E; cbn [accept] in E.
    - injection E as <- <-. eauto.
    - destruct (advance fuel st0 x) as [st1|] eqn:Ea; [|injection E as <- <-; eauto].
      unfold advance in Ea. destruct (fst x <? nnow st0); [discriminate|].
      destruct (pass st0 _) as [st2|] eqn:Ep; [|discriminate].
      destruct (pass_reachable _ _ _ _ Hr Hs Ep) as (s2 & Hr2 & Hs2).
      destruct (exec_step _ _ _ _ _ Hs2 Ea) as (s1 & Hstep & Hs1).
      apply (IH st1 s1); auto. eapply Reach_step; eauto. }
  apply (H log start (initial (everyone p))); [constructor|apply start_shows].
Qed.
End Run.

(** Example 4 of guarantee.md in the model, in milliseconds and with the two requests in the stranger's instant:
    they are answered at 6 and 9, and 9 is beyond 7. *)
Definition example_4 := NProblem 7 0 true [(1, 3)] [NStream (1, 1) [(0, 1)] [Bound 8 0 [(0, 2)]]].
Definition bad_log := [(0, Arrives 9); (0, Starts 0 3 [NRequest 9 1 0]); (0, Arrives 0); (0, Arrives 0);
  (3, Ends 0); (3, Starts 0 3 [NRequest 0 1 0]); (6, Ends 0); (6, Starts 0 3 [NRequest 0 2 0]); (9, Ends 0)].
Example example_4_runs : accept example_4 100 (start example_4) bad_log =
  (NState 9 0 [NRequest 0 2 0; NRequest 0 1 0; NRequest 9 1 0] [] [None], []).
Proof. reflexivity. Qed.

(** Example 1 of guarantee.md, in milliseconds: of two requests at 0 the second is mandatory, and from then on none can
    come before 4.  So a batch that begins at 2 may take the 4 that the shield allows at any time and 2 more. *)
Definition example_1 := NProblem 6 0 true [(1, 2)] [NStream (1, 2) [(1, 2)] [Bound 4 0 [(0, 2)]]].
Definition lull_log l := [(0, Arrives 0); (0, Arrives 0); (0, Starts 0 2 [NRequest 0 2 0]); (2, Ends 0);
  (2, Starts 0 l [NRequest 0 1 0]); (2 + l, Ends 0)].
Example lull_runs : snd (accept example_1 100 (start example_1) (lull_log 6)) = [].
Proof. reflexivity. Qed.
Example lull_ends : length (snd (accept example_1 100 (start example_1) (lull_log 7))) = 2%nat.
Proof. reflexivity. Qed.
