(** Logs of a device: what several services on the same workers did.  A log that is accepted is a run of the model of Sharing.v
    and Loads.v, so what follows from the tests follows of it.  It computes with binary numbers, and takes the time from one event
    to the next in one step. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Decide Model Words Core TheoremA Sharing Earliest Loads Check Run Shared.
Open Scope N_scope.

(** What happens, and from when on which streams are counted. *)
Inductive shared_event := Happens (e : event) | Counts (streams : list nat).

(** The state of the model as far as a log shows it. *)
Record sstate := SState {
  snow : N;
  slate : N;
  sover : N;
  sarrived : list nrequest;                         (* the latest first *)
  swaiting : list (list nrequest);                  (* of each service *)
  sline : list nat;
  sused : N;
  srunning : list (option (N * list nrequest));
  sanswered : list (nrequest * N);                  (* the latest first *)
  sloads : list (list nat) }.                       (* the streams that are counted, and those that were before *)

Definition incl_of l l' := forallb (fun k => existsb (Nat.eqb k) l') l.
Lemma incl_of_incl l l' : incl_of l l' = true -> incl l l'.
Proof.
  intros H k Hk. unfold incl_of in H. rewrite forallb_forall in H. specialize (H k Hk).
  apply existsb_exists in H as (k' & Hk' & E). apply Nat.eqb_eq in E. now subst.
Qed.

Section SharedRun.
Variable pr : nsharing.
Notation q := (to_sharing pr).
Notation n := (N.to_nat (ncrew pr)).
Notation m := (length (nservices pr)).
Notation B i := (nsize (svN pr i)).
Notation P i := (nspan (svN pr i)).
Notation D i := (nlimit (svN pr i) + nlateness pr).

Definition begin_shared S := SState 0 0 0 [] (repeat [] m) [] 0 (repeat None n) [] [S].
Definition counted st := hd [] (sloads st).

Definition home_of r := nth (N.to_nat (nsrc r)) (map fst (nclients pr)) 0%nat.
Definition promisedN r := match nth_error (nclients pr) (N.to_nat (nsrc r)) with
  | Some c => markedN (fst (rho (snd c))) (snd (rho (snd c))) (nidx r)
  | None => false
  end.
Definition within_of i r := narr r + D i.

Definition waits_of st i := nth i (swaiting st) [].
Definition runs_of st w := nth w (srunning st) None.
Definition rests st w := match runs_of st w with None => true | _ => false end.
Definition free_of st w := match runs_of st w with Some (due, _) => due | None => snow st end.
Definition none {A} (l : list A) := match l with [] => true | _ => false end.
Definition nothing st := forallb none (swaiting st).

(** ** The passing of time *)

Definition pass_shared st d :=
  if forallb (fun w => match runs_of st w with Some (due, _) => snow st + d <=? due | None => true end) (seq 0 n) then
    let after l := Some (SState (snow st + d) l (sover st) (sarrived st) (swaiting st) (sline st) (sused st) (srunning st)
      (sanswered st) (sloads st)) in
    if nothing st || forallb (fun w => negb (rests st w)) (seq 0 n) then after (slate st)
    else if slate st + d <=? nlateness pr then after (slate st + d) else None
  else None.

(** Where nothing mandatory waits, all is counted afresh but what batches still take beyond the longest. *)
Definition beyond st := fold_right (fun w x => N.max (free_of st w - (snow st + nlongest pr)) x) 0 (seq 0 n).
Definition renew st := if nothing st && (beyond st <=? nexcess pr)
  then SState (snow st) 0 (beyond st) (sarrived st) (swaiting st) (sline st) (sused st) (srunning st) (sanswered st) (sloads st)
  else st.

(** ** Starts, ends, refusals *)

(** How the line stands once [i] has gone next, if it may. *)
Definition next_of st i (rest : list nrequest) := match nrule pr with
  | Turns => match sline st with
      | h :: tl => if Nat.eqb h i then Some (match rest with
          | [] => (tl, 0)
          | _ => if sused st + 1 =? nturn (svN pr i) then (tl ++ [i], 0) else (i :: tl, sused st + 1)
          end) else None
      | [] => None
      end
  | Sharing.Earliest => match waits_of st i with
      | r :: _ =>
          if forallb (fun j => match waits_of st j with r' :: _ => within_of i r <=? within_of j r' | [] => true end) (seq 0 m)
          then Some (sline st, sused st) else None
      | [] => None
      end
  end.

Definition doomed_of st w i r := forallb (fun v =>
  within_of i r <? (if Nat.eqb v w then snow st + P i else free_of st v) + P i) (seq 0 n).
Definition hopeless_of st i r := (within_of i r <? snow st + P i) ||
  existsb (fun w => rests st w && (B i <? N.of_nat (length (filter (doomed_of st w i) (waits_of st i)))) &&
    match next_of st i (skipn (N.to_nat (B i)) (waits_of st i)) with Some _ => true | None => false end) (seq 0 n).


Definition exec_shared st e := match e with
  | Happens (Arrives s) =>
      let r := NRequest s (N.of_nat (length (filter (fun x => nsrc x =? s) (sarrived st))) + 1) (snow st) in
      let i := home_of r in let waits := waits_of st i in
      if promisedN r then
        if Nat.ltb i m && existsb (Nat.eqb (N.to_nat s)) (counted st) then
          Some (SState (snow st) (slate st) (sover st) (r :: sarrived st) (put (swaiting st) i (waits ++ [r]))
            (match waits with [] => sline st ++ [i] | _ => sline st end) (sused st) (srunning st) (sanswered st) (sloads st))
        else None
      else Some (SState (snow st) (slate st) (sover st) (r :: sarrived st) (swaiting st) (sline st) (sused st) (srunning st)
        (sanswered st) (sloads st))
  | Happens (Starts w l b) =>
      let others := filter (fun r => negb (promisedN r)) b in
      if Nat.ltb w n && rests st w then
        match find promisedN b with
        | None =>
            let extra := l - nlongest pr in
            if nothing st && (sover st + extra <=? nexcess pr) then
              Some (SState (snow st) (slate st) (sover st + extra) (sarrived st) (swaiting st) (sline st) (sused st)
                (put (srunning st) w (Some (snow st + l, others))) (sanswered st) (sloads st))
            else None
        | Some r =>
            let i := home_of r in let extra := l - P i in
            let taken := firstn (N.to_nat (B i)) (waits_of st i) in let rest := skipn (N.to_nat (B i)) (waits_of st i) in
            if all_same (filter promisedN b) taken && (sover st + extra <=? nexcess pr) then
              match next_of st i rest with
              | Some (line', used') =>
                  Some (SState (snow st) (slate st) (sover st + extra) (sarrived st) (put (swaiting st) i rest) line' used'
                    (put (srunning st) w (Some (snow st + P i + extra, taken ++ others))) (sanswered st) (sloads st))
              | None => None
              end
            else None
        end
      else None
  | Happens (Ends w) =>
      if Nat.ltb w n then
        match runs_of st w with
        | Some (_, b) => Some (SState (snow st) (slate st) (sover st) (sarrived st) (swaiting st) (sline st) (sused st)
            (put (srunning st) w None) (rev (map (fun r => (r, snow st)) b) ++ sanswered st) (sloads st))
        | None => None
        end
      else None
  | Happens (Refuses r) =>
      let i := home_of r in
      match without r (waits_of st i) with
      | Some l => if hopeless_of st i r
          then Some (SState (snow st) (slate st) (sover st) (sarrived st) (put (swaiting st) i l)
            (match l with [] => filter (fun j => negb (Nat.eqb j i)) (sline st) | _ => sline st end)
            (match l, sline st with [], h :: _ => if Nat.eqb h i then 0 else sused st | _, _ => sused st end)
            (srunning st) (sanswered st) (sloads st)) else None
      | None => None
      end
  | Counts ks =>
      (* who leaves is counted until nothing mandatory waits *)
      if nothing st || incl_of (counted st) ks
      then Some (SState (snow st) (slate st) (sover st) (sarrived st) (swaiting st) (sline st) (sused st) (srunning st)
        (sanswered st) (ks :: sloads st)) else None
  end.

Definition advance_shared st (x : N * shared_event) :=
  if fst x <? snow st then None
  else match pass_shared st (fst x - snow st) with Some st => exec_shared (renew st) (snd x) | None => None end.

(** The state in the end, and what is left of the log: nothing if all of it is accepted. *)
Fixpoint accept_shared st log := match log with
  | [] => (st, [])
  | x :: rest => match advance_shared st x with Some st => accept_shared st rest | None => (st, log) end
  end.

(** * It is sound *)

Definition shows_shared st (s : Sharing.state) :=
  now s = N.to_nat (snow st) /\ late s = N.to_nat (slate st) /\ over s = N.to_nat (sover st) /\
  arrived s = map req (rev (sarrived st)) /\
  length (swaiting st) = m /\ (forall i, waiting s i = map req (waits_of st i)) /\
  line s = sline st /\ used s = N.to_nat (sused st) /\
  length (srunning st) = n /\ (forall w, (w < n)%nat -> running s w = Run.run (runs_of st w)) /\
  answered s = map (fun x => (req (fst x), N.to_nat (snd x))) (rev (sanswered st)).

Lemma sv_N i : sv q i = to_service (svN pr i).
Proof. unfold sv, svN. cbn [services to_sharing]. change (Service 0 0 0 0) with (to_service (NService 0 0 0 0)). apply map_nth. Qed.

Lemma home_N r : home q (src (req r)) = home_of r.
Proof. reflexivity. Qed.

Lemma promised_N r : mandatory (as_problem q 0) (req r) = promisedN r.
Proof.
  unfold mandatory, promisedN. cbn [src idx req streams as_problem clients to_sharing]. rewrite nth_error_map.
  destruct (nth_error _ _) as [c|]; [|reflexivity]. cbn [option_map to_stream num den]. unfold marked, markedN.
  replace (N.to_nat (nidx r) - 1)%nat with (N.to_nat (nidx r - 1)) by lia. rewrite <- !N2Nat.inj_mul, <- !N2Nat.inj_div.
  apply eq_true_iff_eq. rewrite Nat.ltb_lt, N.ltb_lt. lia.
Qed.

Lemma within_N i r : (arr (req r) + (limit (sv q i) + lateness q) = N.to_nat (within_of i r))%nat.
Proof. rewrite sv_N. unfold within_of. cbn [arr req limit to_service lateness to_sharing]. lia. Qed.

Lemma nothing_idle st s : shows_shared st s -> nothing st = true -> idle s.
Proof.
  intros (_ & _ & _ & _ & _ & Hw & _) H i. rewrite Hw. unfold nothing in H. rewrite forallb_forall in H. unfold waits_of.
  destruct (Nat.lt_ge_cases i (length (swaiting st))) as [Hi|Hi]; [|now rewrite nth_overflow].
  specialize (H _ (nth_In (swaiting st) [] Hi)). destruct (nth i (swaiting st) []); [reflexivity|discriminate].
Qed.

Lemma free_shared st s w : shows_shared st s -> (w < n)%nat -> free_at s w = N.to_nat (free_of st w).
Proof.
  intros (Hn & _ & _ & _ & _ & _ & _ & _ & _ & Hr & _) Hw. unfold free_at, free_of. rewrite (Hr w Hw).
  destruct (runs_of st w) as [(due, b)|]; cbn; auto.
Qed.

Lemma rests_shared st s w : shows_shared st s -> (w < n)%nat -> rests st w = true <-> running s w = None.
Proof.
  intros (_ & _ & _ & _ & _ & _ & _ & _ & _ & Hr & _) Hw. rewrite (Hr w Hw). unfold rests.
  destruct (runs_of st w) as [(due, b)|]; cbn; split; congruence.
Qed.

Lemma run_mono (a b : list nat -> Prop) S s : (forall L, a L -> b L) -> Loads.run q a S s -> Loads.run q b S s.
Proof. intros H. induction 1; [constructor; auto|eapply Run_step; eauto|eapply Run_comes; eauto|eapply Run_anew; eauto]. Qed.

(** ** The passing of time *)

Definition later_on (s : Sharing.state) k l :=
  Sharing.State (now s + k) l (over s) (arrived s) (waiting s) (line s) (used s) (running s) (answered s).

Lemma ticks_on (a : list nat -> Prop) S (f : nat -> nat) k : forall s, Loads.run q a S s -> f 0%nat = late s ->
  (forall w due b, (w < n)%nat -> running s w = Some (due, b) -> (now s + k <= due)%nat) ->
  (forall i, (i < k)%nat ->
     (f (Datatypes.S i) = f i /\ (idle s \/ forall w, (w < n)%nat -> running s w <> None)) \/
     (f (Datatypes.S i) = Datatypes.S (f i) /\ (f i < lateness q)%nat)) ->
  Loads.run q a S (later_on s k (f k)).
Proof.
  induction k; intros s Hr Hf Hd Hc.
  - rewrite Hf. unfold later_on. rewrite Nat.add_0_r. now destruct s.
  - assert (Hk : Loads.run q a S (later_on s k (f k))).
    { apply IHk; auto. intros w due b Hw E. specialize (Hd w due b Hw E). lia. }
    replace (later_on s (Datatypes.S k) (f (Datatypes.S k))) with (let s' := later_on s k (f k) in
      Sharing.State (Datatypes.S (now s')) (f (Datatypes.S k)) (over s') (arrived s') (waiting s') (line s') (used s') (running s') (answered s'))
      by (cbn; unfold later_on; now rewrite Nat.add_succ_r).
    eapply Run_step; [exact Hk|]. apply Sharing.Tick.
    + intros w due b Hw E. specialize (Hd w due b Hw E). cbn [later_on now]. lia.
    + exact (Hc k ltac:(lia)).
Qed.

Lemma pass_run (a : list nat -> Prop) S st s d st' : Loads.run q a S s -> shows_shared st s -> pass_shared st d = Some st' ->
  exists s', Loads.run q a S s' /\ shows_shared st' s' /\ sloads st' = sloads st.
Proof.
  intros Hr Hs. unfold pass_shared. destruct (forallb _ _) eqn:Ed; [|discriminate].
  rewrite forallb_forall in Ed. pose proof Hs as (Hn & Hl & Ho & Ha & Hlen & Hw & Hline & Hu & Hlr & Hrun & Hans).
  assert (Hdue : forall w due b, (w < n)%nat -> running s w = Some (due, b) -> (now s + N.to_nat d <= due)%nat).
  { intros w due b Hlt E. specialize (Ed w ltac:(apply in_seq; lia)). rewrite (Hrun w Hlt) in E.
    destruct (runs_of st w) as [(due', b')|]; [|discriminate]. cbn in E. injection E as <- <-. apply N.leb_le in Ed. lia. }
  assert (Hshow : forall l, shows_shared (SState (snow st + d) l (sover st) (sarrived st) (swaiting st) (sline st) (sused st)
    (srunning st) (sanswered st) (sloads st)) (later_on s (N.to_nat d) (N.to_nat l))).
  { intros l. unfold shows_shared. cbn. repeat split; auto. lia. }
  destruct (nothing st || _) eqn:Eb.
  - intros E. injection E as <-. exists (later_on s (N.to_nat d) (N.to_nat (slate st))). split; [|auto].
    apply (ticks_on a S (fun _ => N.to_nat (slate st))); auto. intros i Hi. left. split; [auto|].
    apply orb_true_iff in Eb as [Eb|Eb]; [left; now apply (nothing_idle st)|right].
    intros w Hlt Hf. rewrite forallb_forall in Eb. specialize (Eb w ltac:(apply in_seq; lia)).
    apply (rests_shared st s w Hs Hlt) in Hf. now rewrite Hf in Eb.
  - destruct (N.leb_spec (slate st + d) (nlateness pr)) as [Hg|]; [|discriminate].
    intros E. injection E as <-. exists (later_on s (N.to_nat d) (N.to_nat (slate st + d))). split; [|auto].
    rewrite N2Nat.inj_add. apply (ticks_on a S (fun i => (N.to_nat (slate st) + i)%nat)); auto; [lia|].
    intros i Hi. right. cbn [lateness to_sharing]. lia.
Qed.

Lemma beyond_le st w : (w < n)%nat -> free_of st w <= snow st + nlongest pr + beyond st.
Proof.
  intros Hw. unfold beyond. assert (H : In w (seq 0 n)) by (apply in_seq; lia). revert H. generalize (seq 0 n). intros l.
  induction l as [|v l IH]; cbn [In fold_right]; [intros []|]. intros [->|H]; [lia|]. specialize (IH H). lia.
Qed.

Lemma renew_run (a : list nat -> Prop) S st s : Loads.run q a S s -> shows_shared st s ->
  exists s', Loads.run q a S s' /\ shows_shared (renew st) s' /\ sloads (renew st) = sloads st.
Proof.
  intros Hr Hs. unfold renew. destruct (nothing st && _) eqn:E; [|eauto]. apply andb_true_iff in E as (Hi & Hb). apply N.leb_le in Hb.
  pose proof Hs as (Hn & Hl & Ho & Ha & Hlen & Hw & Hline & Hu & Hlr & Hrun & Hans).
  eexists. split; [|split; [|reflexivity]].
  - eapply Run_step; [exact Hr|]. apply (Sharing.Renew _ s (N.to_nat (beyond st))).
    + now apply (nothing_idle st).
    + cbn [excess with_load to_sharing]. lia.
    + intros v Hv. cbn [crew with_load to_sharing] in Hv. rewrite (free_shared st s v Hs Hv). pose proof (beyond_le st v Hv).
      cbn [Sharing.longest with_load to_sharing]. rewrite Hn. lia.
  - unfold shows_shared. cbn. repeat split; auto.
Qed.

(** ** Steps *)

(** What the services have waiting, once that of one is another. *)
Lemma waiting_put st s i l : shows_shared st s -> (i < m)%nat -> forall j,
  set (waiting s) i (map req l) j = map req (nth j (put (swaiting st) i l) []).
Proof.
  intros (_ & _ & _ & _ & Hlen & Hw & _) Hi j. rewrite put_nth by lia. unfold set. destruct (Nat.eqb j i); [auto|apply Hw].
Qed.

Lemma some_waits st i r l : shows_shared st r -> waits_of st i = l -> l <> [] -> (i < m)%nat.
Proof.
  intros (_ & _ & _ & _ & Hlen & _) E Hne. destruct (Nat.lt_ge_cases i m) as [|Hge]; [auto|].
  destruct Hne. rewrite <- E. unfold waits_of. apply nth_overflow. lia.
Qed.

Lemma next_run S st s i rest' l u : shows_shared st s -> rest' = skipn (N.to_nat (B i)) (waits_of st i) ->
  next_of st i rest' = Some (l, u) -> next (with_load q S) s i l (N.to_nat u).
Proof.
  intros Hs -> H. pose proof Hs as (Hn & Hl & Ho & Ha & Hlen & Hw & Hline & Hu & Hlr & Hrun & Hans).
  assert (Hsv : forall j, sv (with_load q S) j = to_service (svN pr j)) by exact sv_N.
  unfold next_of in H. destruct (nrule pr) eqn:Er.
  - destruct (sline st) as [|h tl] eqn:El; [discriminate|]. destruct (Nat.eqb_spec h i) as [->|]; [|discriminate]. injection H as H.
    assert (Hrest : skipn (size (sv (with_load q S) i)) (waiting s i) = map req (skipn (N.to_nat (B i)) (waits_of st i))).
    { rewrite Hsv, Hw. cbn [size to_service]. apply skipn_map. }
    pose proof (In_turn (with_load q S) s i tl Er Hline) as HN. rewrite Hrest, Hsv in HN. cbn [turn to_service] in HN.
    rewrite Hu in HN.
    destruct (skipn _ _) as [|y z]; cbn [map] in *; [injection H as <- <-; exact HN|].
    replace (N.to_nat (sused st) + 1 =? N.to_nat (nturn (svN pr i)))%nat with (sused st + 1 =? nturn (svN pr i)) in HN.
    2:{ apply eq_true_iff_eq. rewrite Nat.eqb_eq, N.eqb_eq. lia. }
    destruct (sused st + 1 =? nturn (svN pr i)); injection H as <- <-; [exact HN|].
    replace (N.to_nat (sused st + 1)) with (N.to_nat (sused st) + 1)%nat by lia. exact HN.
  - destruct (waits_of st i) as [|r w] eqn:Ei; [discriminate|]. destruct (forallb _ _) eqn:Ef; [|discriminate]. injection H as <- <-.
    rewrite <- Hline, <- Hu. apply (By_deadline (with_load q S) s i (req r) (map req w) Er).
    + rewrite Hw, Ei. reflexivity.
    + intros j r' l' Ej. rewrite Hw in Ej. destruct (waits_of st j) as [|r0 w0] eqn:Ej0; [discriminate|]. cbn in Ej. injection Ej as <- _.
      assert (Hj : (j < m)%nat) by (apply (some_waits st j s (r0 :: w0)); auto; discriminate).
      rewrite forallb_forall in Ef. specialize (Ef j ltac:(apply in_seq; lia)). rewrite Ej0 in Ef. apply N.leb_le in Ef.
      pose proof (within_N i r) as W1. pose proof (within_N j r0) as W2.
      change (sv (with_load q S)) with (sv q). change (lateness (with_load q S)) with (lateness q). lia.
Qed.

Lemma hopeless_run S st s i r : shows_shared st s -> hopeless_of st i r = true -> hopeless (with_load q S) s i (req r).
Proof.
  intros Hs H. pose proof Hs as (Hn & _ & _ & _ & _ & Hw & _). unfold hopeless. unfold hopeless_of in H.
  change (sv (with_load q S)) with (sv q). change (lateness (with_load q S)) with (lateness q).
  apply orb_true_iff in H as [H|H].
  - left. apply N.ltb_lt in H. rewrite within_N, sv_N, Hn. cbn [span to_service]. lia.
  - right. apply existsb_exists in H as (w & Hwn & H). apply in_seq in Hwn. rewrite !andb_true_iff in H. destruct H as ((Hf & Hlt) & Hnext).
    destruct (next_of _ _ _) as [(l, u)|] eqn:E; [|discriminate]. exists w, l, (N.to_nat u). split; [cbn; lia|].
    split; [apply (rests_shared st s w Hs ltac:(lia)); exact Hf|]. split; [now apply (next_run S st s i _ l u Hs eq_refl)|].
    rewrite Hw, (count_req _ (doomed_of st w i)); [apply N.ltb_lt in Hlt; rewrite sv_N; cbn [size to_service]; lia|].
    intros x. unfold doomed, doomed_of. cbn [crew with_load to_sharing]. apply forallb_same. intros v Hv. apply in_seq in Hv.
    change (sv (with_load q S)) with (sv q). change (lateness (with_load q S)) with (lateness q).
    apply eq_true_iff_eq. rewrite Nat.ltb_lt, N.ltb_lt, within_N, sv_N, (free_shared st s v Hs ltac:(lia)), Hn. cbn [span to_service].
    destruct (Nat.eqb v w); lia.
Qed.

Lemma find_none f l : find f l = None -> forall r : nrequest, In r l -> f r = false.
Proof. intros H r Hr. destruct (f r) eqn:E; [|auto]. pose proof (find_none f l H r Hr). congruence. Qed.

Lemma exec_step st s e st' : shows_shared st s -> exec_shared st (Happens e) = Some st' ->
  sloads st' = sloads st /\ exists s', step (with_load q (counted st)) s s' /\ shows_shared st' s'.
Proof.
  intros Hs. pose proof Hs as (Hn & Hl & Ho & Ha & Hlen & Hw & Hline & Hu & Hlr & Hrun & Hans).
  destruct e as [k|w l b|w|r]; cbn [exec_shared].
  - (* Arrives *)
    set (r := NRequest k _ _). assert (Hidx : idx (req r) = Datatypes.S (count (of (src (req r))) (arrived s))).
    { unfold r. cbn [req idx src nidx nsrc]. rewrite Ha, map_rev, count_rev, (count_req _ (fun x => nsrc x =? k)); [lia|].
      intros x. unfold of. cbn. apply eq_true_iff_eq. rewrite Nat.eqb_eq, N.eqb_eq. lia. }
    assert (Harr : arr (req r) = now s) by (unfold r; cbn; lia).
    pose proof (promised_N r) as Hm. destruct (promisedN r).
    + destruct (_ && _) eqn:E; [|discriminate]. apply andb_true_iff in E as (Hi & Hin). apply Nat.ltb_lt in Hi.
      apply existsb_exists in Hin as (k' & Hin & Hk'). apply Nat.eqb_eq in Hk'. subst k'.
      intros E. injection E as <-. split; [reflexivity|]. eexists. split.
      * now apply (Sharing.Arrive _ s (req r)).
      * cbv zeta. change (mandatory (as_problem (with_load q (counted st)) 0) (req r)) with (mandatory (as_problem q 0) (req r)).
        rewrite Hm. change (home (with_load q (counted st)) (src (req r))) with (home_of r).
        unfold shows_shared, waits_of. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
          now late over arrived waiting line used running answered].
        split; [auto|]. split; [auto|]. split; [auto|]. split; [cbn [rev]; now rewrite map_app, Ha|]. split; [now rewrite put_length|].
        split. { intros j. rewrite <- (waiting_put st s _ _ Hs Hi), Hw, map_app. reflexivity. }
        split; [|auto]. rewrite Hw, Hline. unfold waits_of. destruct (nth _ _ _); reflexivity.
    + intros E. injection E as <-. split; [reflexivity|]. eexists. split.
      * apply (Sharing.Arrive _ s (req r)); auto. intros H.
        change (mandatory (as_problem q 0) (req r) = true) in H. congruence.
      * cbv zeta. change (mandatory (as_problem (with_load q (counted st)) 0) (req r)) with (mandatory (as_problem q 0) (req r)).
        rewrite Hm. unfold shows_shared. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
          now late over arrived waiting line used running answered].
        split; [auto|]. split; [auto|]. split; [auto|]. split; [cbn [rev]; now rewrite map_app, Ha|]. repeat (split; [auto; fail|]). auto.
  - (* Starts *)
    destruct (_ && _) eqn:E; [|discriminate]. apply andb_true_iff in E as (Hwn & Hf). apply Nat.ltb_lt in Hwn.
    apply (rests_shared st s w Hs Hwn) in Hf. cbv zeta. set (others := filter (fun r => negb (promisedN r)) b).
    assert (Hoth : forall x, In x (map req others) -> mandatory (as_problem q 0) x = false).
    { intros x Hx. apply in_map_iff in Hx as (y & <- & Hy). apply filter_In in Hy as (_ & Hy). rewrite promised_N. now apply negb_true_iff in Hy. }
    destruct (find promisedN b) as [r|] eqn:Efind.
    + set (i := home_of r). set (taken := firstn _ _). set (rest := skipn _ _). set (extra := l - P i).
      destruct (_ && _) eqn:E; [|discriminate]. apply andb_true_iff in E as (Hsame & Hx). apply N.leb_le in Hx. apply all_same_eq in Hsame.
      destruct (next_of st i rest) as [(line', used')|] eqn:En; [|discriminate]. intros E. injection E as <-.
      assert (Hi : (i < m)%nat).
      { apply (some_waits st i s (waits_of st i) Hs eq_refl). intros E0. unfold taken in Hsame. rewrite E0, firstn_nil in Hsame.
        apply find_some in Efind as (Hin & Hp). assert (In r (filter promisedN b)) by (apply filter_In; auto). rewrite Hsame in H. destruct H. }
      assert (Htaken : firstn (size (sv q i)) (waiting s i) = map req taken) by (rewrite sv_N, Hw; apply firstn_map).
      assert (Hrest : skipn (size (sv q i)) (waiting s i) = map req rest) by (rewrite sv_N, Hw; apply skipn_map).
      split; [reflexivity|]. eexists. split.
      * apply (Sharing.Start (with_load q (counted st)) s w i line' (N.to_nat used') (map req others) (N.to_nat extra)); auto.
        -- now apply (next_run (counted st) st s i rest).
        -- cbn [excess with_load to_sharing]. lia.
      * unfold shows_shared, waits_of. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
          now late over arrived waiting line used running answered]. change (sv (with_load q (counted st)) i) with (sv q i).
        split; [auto|]. split; [auto|]. split; [lia|]. split; [auto|]. split; [now rewrite put_length|].
        split. { intros j. rewrite Hrest. now apply waiting_put. }
        split; [auto|]. split; [auto|]. split; [now rewrite put_length|]. split; [|auto].
        intros v Hv. unfold runs_of. cbn [srunning]. rewrite put_nth by lia. unfold set. destruct (Nat.eqb v w); [|apply (Hrun v Hv)].
        cbn [Run.run]. rewrite Htaken, sv_N, map_app. cbn [span to_service]. do 2 f_equal. lia.
    + destruct (_ && _) eqn:E; [|discriminate]. apply andb_true_iff in E as (Hidle & Hx). apply N.leb_le in Hx. intros E. injection E as <-.
      split; [reflexivity|]. eexists. split.
      * apply (Sharing.Background (with_load q (counted st)) s w (N.to_nat l) (map req others) (N.to_nat (l - nlongest pr))); auto.
        -- now apply (nothing_idle st).
        -- cbn [Sharing.longest with_load to_sharing]. lia.
        -- cbn [excess with_load to_sharing]. lia.
      * unfold shows_shared. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
          now late over arrived waiting line used running answered].
        split; [auto|]. split; [auto|]. split; [lia|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|].
        split; [now rewrite put_length|]. split; [|auto].
        intros v Hv. unfold runs_of. cbn [srunning]. rewrite put_nth by lia. unfold set. destruct (Nat.eqb v w); [|apply (Hrun v Hv)].
        cbn [Run.run]. do 2 f_equal. lia.
  - (* Ends *)
    destruct (Nat.ltb_spec w n) as [Hwn|]; [|discriminate]. pose proof (Hrun w Hwn) as Hb. destruct (runs_of st w) as [(due, b)|]; [|discriminate].
    intros E. injection E as <-. split; [reflexivity|]. eexists. split.
    + apply (Sharing.Finish _ s w (N.to_nat due) (map req b)); [exact Hwn|exact Hb].
    + unfold shows_shared. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
        now late over arrived waiting line used running answered].
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|].
      split; [now rewrite put_length|]. split.
      * intros v Hv. unfold runs_of. cbn [srunning]. rewrite put_nth by lia. unfold set. destruct (Nat.eqb v w); [reflexivity|apply (Hrun v Hv)].
      * rewrite rev_app_distr, rev_involutive, map_app, Hans, !map_map. f_equal. apply map_ext. intros x. cbn. now rewrite Hn.
  - (* Refuses *)
    set (i := home_of r). destruct (without r (waits_of st i)) as [l|] eqn:E; [|discriminate]. destruct (hopeless_of st i r) eqn:Eh; [|discriminate].
    intros E'. injection E' as <-. apply without_split in E as (a & b & E & ->).
    assert (Hi : (i < m)%nat) by (apply (some_waits st i s _ Hs E); destruct a; discriminate).
    split; [reflexivity|]. eexists. split.
    + apply (Sharing.Refuse _ s i (map req a) (req r) (map req b)).
      * rewrite Hw, E. apply map_app.
      * now apply (hopeless_run (counted st) st).
    + unfold shows_shared, waits_of. cbn [snow slate sover sarrived swaiting sline sused srunning sanswered sloads
        now late over arrived waiting line used running answered]. rewrite <- map_app, Hline.
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [now rewrite put_length|].
      split; [intros j; now apply waiting_put|]. split; [destruct (a ++ b); reflexivity|].
      split; [|auto]. destruct (a ++ b); cbn [map]; [|auto]. destruct (sline st); [auto|]. destruct (Nat.eqb _ _); auto.
Qed.

Lemma exec_run st s e st' : Loads.run q (fun L => In L (sloads st)) (counted st) s -> shows_shared st s -> sloads st <> [] ->
  exec_shared st e = Some st' ->
  exists s', Loads.run q (fun L => In L (sloads st')) (counted st') s' /\ shows_shared st' s' /\ sloads st' <> [].
Proof.
  intros Hr Hs Hne H. destruct e as [e|ks].
  - destruct (exec_step st s e st' Hs H) as (E & s' & Hstep & Hs'). exists s'. unfold counted. rewrite E. split; [|auto].
    eapply Run_step; eauto.
  - cbn [exec_shared] in H. destruct (_ || _) eqn:E; [|discriminate]. injection H as <-. exists s. split; [|split; [exact Hs|discriminate]].
    assert (Hr' : Loads.run q (fun L => In L (ks :: sloads st)) (counted st) s).
    { apply (run_mono (fun L => In L (sloads st))); [|exact Hr]. intros L HL. now right. }
    cbn [sloads counted hd]. apply orb_true_iff in E as [E|E].
    + apply (Run_anew _ _ (counted st)); [exact Hr'|now apply (nothing_idle st)|now left].
    + apply (Run_comes _ _ (counted st)); [exact Hr'|now apply incl_of_incl|now left].
Qed.

Lemma begin_shows S : shows_shared (begin_shared S) Sharing.initial.
Proof.
  unfold shows_shared, begin_shared. cbn. repeat split; auto; [apply repeat_length| |apply repeat_length|].
  - intros i. unfold waits_of. cbn [swaiting]. destruct (Nat.lt_ge_cases i m); [now rewrite nth_repeat|].
    now rewrite nth_overflow by (rewrite repeat_length; lia).
  - intros w _. unfold runs_of. cbn [srunning]. now rewrite nth_repeat.
Qed.

(** What is accepted is a run of the model, under the loads that the log names. *)
Theorem accepted_shared S log st left : accept_shared (begin_shared S) log = (st, left) ->
  exists s, Loads.run q (fun L => In L (sloads st)) (counted st) s /\ shows_shared st s.
Proof.
  assert (H : forall log st0 s0, Loads.run q (fun L => In L (sloads st0)) (counted st0) s0 -> shows_shared st0 s0 -> sloads st0 <> [] ->
    accept_shared st0 log = (st, left) -> exists s, Loads.run q (fun L => In L (sloads st)) (counted st) s /\ shows_shared st s).
  { clear log. induction log as [|x log IH]; intros st0 s0 Hr Hs Hne E; cbn [accept_shared] in E.
    - injection E as <- <-. eauto.
    - destruct (advance_shared st0 x) as [st1|] eqn:Ea; [|injection E as <- <-; eauto].
      unfold advance_shared in Ea. destruct (fst x <? snow st0); [discriminate|].
      destruct (pass_shared st0 _) as [st2|] eqn:Ep; [|discriminate].
      destruct (pass_run _ _ _ _ _ _ Hr Hs Ep) as (s2 & Hr2 & Hs2 & E2).
      destruct (renew_run _ _ _ _ Hr2 Hs2) as (s3 & Hr3 & Hs3 & E3).
      destruct (exec_run (renew st2) s3 (snd x) st1) as (s1 & Hr1 & Hs1 & Hne1); auto.
      + unfold counted. now rewrite E3, E2.
      + now rewrite E3, E2.
      + now apply (IH st1 s1). }
  apply (H log (begin_shared S) Sharing.initial); [constructor; now left|apply begin_shows|discriminate].
Qed.

(** * What follows of a log *)

Lemma req_inj a b : req a = req b -> a = b.
Proof.
  destruct a, b. intros E. injection E as E1 E2 E3. apply N2Nat.inj in E1, E2, E3. cbn in *. now subst.
Qed.

Definition answered_in_time st r := exists t, In (r, t) (sanswered st) /\ t <= within_of (home_of r) r.

Lemma in_time_shared st s r i : shows_shared st s -> home_of r = i -> in_time (as_problem q i) (view s) (req r) -> answered_in_time st r.
Proof.
  intros (_ & _ & _ & _ & _ & _ & _ & _ & _ & _ & Hans) <- (t & Ht & Hd). cbn [view Model.answered] in Ht. rewrite Hans in Ht.
  apply in_map_iff in Ht as ((r', t') & E & Hin). apply in_rev in Hin.
  assert (r' = r) as -> by (apply req_inj; exact (f_equal fst E)). apply (f_equal snd) in E. cbn [fst snd] in E. subst t. exists t'. split; [auto|]. cbn [deadline as_problem] in Hd. pose proof (within_N (home_of r) r). lia.
Qed.

(** Requests that come within their declarations, each load having passed the test of the rule, are answered in time. *)
Definition arrivals st := map req (rev (sarrived st)).
Definition load_admitted S := match nrule pr with
  | Sharing.Earliest => admitted_E q S
  | Turns => admitted_T q (fun _ => true) S
  end.

Theorem accepted_in_time S log st left : accept_shared (begin_shared S) log = (st, left) ->
  sensible q -> (forall L, In L (sloads st) -> load_admitted L) -> conform q (fun _ => true) (arrivals st) ->
  forall r, In r (sarrived st) -> promisedN r = true -> within_of (home_of r) r < snow st -> answered_in_time st r.
Proof.
  intros Ha Hsense HL Hc r Hin Hp Hd. destruct (accepted_shared _ _ _ _ Ha) as (s & Hr & Hs).
  apply (run_mono _ _ _ _ HL) in Hr. pose proof Hs as (Hn & _ & _ & Harr & _).
  assert (Hin' : In (req r) (arrived s)) by (rewrite Harr; apply in_map; now apply -> in_rev).
  pose proof (within_N (home_of r) r) as Hw.
  apply (in_time_shared st s r (home_of r) Hs eq_refl). unfold arrivals in Hc. rewrite <- Harr in Hc.
  unfold load_admitted in Hr. destruct (nrule pr) eqn:Er.
  - apply (turns_loads q (fun _ => true) (counted st) s Hsense Er Hr Hc (home_of r) (req r) eq_refl Hin').
    + unfold at_home. rewrite home_N. apply Nat.eqb_refl.
    + now rewrite promised_N.
    + lia.
  - apply (earliest_loads q (counted st) s Hsense Er Hr Hc (home_of r) (req r) Hin').
    + unfold at_home. rewrite home_N. apply Nat.eqb_refl.
    + now rewrite promised_N.
    + lia.
Qed.

(** So every (m, K) of density at most rho is kept. *)
Theorem accepted_keeps S log st left : accept_shared (begin_shared S) log = (st, left) ->
  sensible q -> (forall L, In L (sloads st) -> load_admitted L) -> conform q (fun _ => true) (arrivals st) ->
  exists s, shows_shared st s /\ forall k c l K, nth_error (clients q) k = Some c -> ((K - l) * den c <= K * num c)%nat ->
  forall i, (count (missed (as_problem q (home q k)) (view s) k) (seq (i + 1) K) <= l)%nat.
Proof.
  intros Ha Hsense HL Hc. destruct (accepted_shared _ _ _ _ Ha) as (s & Hr & Hs). exists s. split; [exact Hs|].
  apply (run_mono _ _ _ _ HL) in Hr. pose proof Hs as (_ & _ & _ & Harr & _). unfold arrivals in Hc. rewrite <- Harr in Hc.
  intros k c l K Hk Hd. unfold load_admitted in Hr. destruct (nrule pr) eqn:Er.
  - now apply (turns_loads_keep q (fun _ => true) (counted st) s k c l K).
  - now apply (earliest_loads_keep q (counted st) s k c l K).
Qed.

(** ** Declarations

    The requests of a stream keep to a curve if from each of them to each later one there are no more than it allows. *)
Fixpoint from_first (f : N -> N) a i l := match l with
  | [] => true
  | b :: l => (i <=? f (b + 1 - a)) && from_first f a (i + 1) l
  end.
Fixpoint keeps_curve f l := match l with
  | [] => true
  | a :: l' => from_first f a 1 l && keeps_curve f l'
  end.
Definition times_of k l := map narr (rev (filter (fun x => nsrc x =? N.of_nat k) l)).
Definition conforms_by ss l := forallb (fun k => match nth_error ss k with
  | Some s => keeps_curve (alpha (bounds s)) (times_of k l)
  | None => true
  end) (seq 0 (length ss)).

Lemma from_first_spec (f : N -> N) a e l : (forall x y, x <= y -> f x <= f y) -> forall i, from_first f a i l = true ->
  (0 < count (fun b => (b <? e)%N) l)%nat -> i + N.of_nat (count (fun b => (b <? e)%N) l) <= f (e - a) + 1.
Proof.
  intros Hf. induction l as [|b l IH]; intros i H Hpos; [rewrite count_nil in Hpos; lia|]. cbn [from_first] in H.
  apply andb_true_iff in H as (Hi & H). apply N.leb_le in Hi. rewrite count_cons in *.
  destruct (Nat.eq_dec (count (fun b => (b <? e)%N) l) 0) as [E|E].
  - rewrite E in *. destruct (N.ltb_spec b e) as [Hb|]; cbn [Nat.b2n] in *; [|lia]. specialize (Hf (b + 1 - a) (e - a) ltac:(lia)). lia.
  - specialize (IH (i + 1) H ltac:(lia)). destruct (b <? e); cbn [Nat.b2n]; lia.
Qed.

Lemma keeps_curve_spec (f : N -> N) l : (forall x y, x <= y -> f x <= f y) -> keeps_curve f l = true ->
  forall a d, N.of_nat (count (fun b => ((a <=? b) && (b <? a + d))%N) l) <= f d.
Proof.
  intros Hf. induction l as [|b l IH]; intros H a d; [cbn; lia|]. cbn [keeps_curve] in H. apply andb_true_iff in H as (H1 & H2).
  rewrite count_cons. destruct ((a <=? b) && (b <? a + d)) eqn:E; cbn [Nat.b2n]; [|apply (IH H2)].
  apply andb_true_iff in E as (Ha & Hb). apply N.leb_le in Ha. pose proof Hb as Hb'. apply N.ltb_lt in Hb'.
  pose proof (from_first_spec f b (a + d) (b :: l) Hf 1 H1) as H. rewrite count_cons, Hb in H. cbn [Nat.b2n] in H. specialize (H ltac:(lia)).
  assert (Hle : (count (fun b => ((a <=? b) && (b <? a + d))%N) l <= count (fun b => (b <? a + d)%N) l)%nat).
  { apply count_mono. intros x _ Hx. now apply andb_true_iff in Hx. }
  specialize (Hf (a + d - b) d ltac:(lia)). lia.
Qed.

Lemma conforms_by_sound ss p l : sound_streams p -> streams p = map to_stream ss -> conforms_by ss l = true ->
  conforms p (map req (rev l)).
Proof.
  intros Hsound Ess H k s a d E. rewrite Ess, nth_error_map in E. destruct (nth_error ss k) as [s0|] eqn:Es; [|discriminate].
  cbn [option_map] in E. injection E as <-. unfold conforms_by in H. rewrite forallb_forall in H.
  assert (Hk : (k < length ss)%nat) by (apply nth_error_Some; congruence). specialize (H k ltac:(apply in_seq; lia)). rewrite Es in H.
  assert (Hmono : forall x y, x <= y -> alpha (bounds s0) x <= alpha (bounds s0) y).
  { intros x y Hxy. destruct (Hsound (to_stream s0)) as (_ & _ & Hm); [rewrite Ess; apply in_map; now apply (nth_error_In _ k)|].
    specialize (Hm (N.to_nat x) (N.to_nat y) ltac:(lia)). cbn [curve to_stream] in Hm. rewrite !N2Nat.id in Hm. lia. }
  pose proof (keeps_curve_spec _ _ Hmono H (N.of_nat a) (N.of_nat d)) as Hc. cbn [curve to_stream].
  enough (E : count (fun r => of k r && within a d r) (map req (rev l)) =
    count (fun b => (N.of_nat a <=? b) && (b <? N.of_nat a + N.of_nat d)) (times_of k l)) by (rewrite E; lia).
  clear. unfold times_of. rewrite !map_rev, !count_rev. induction l as [|r l IH]; [reflexivity|]. cbn [map filter]. rewrite count_cons, IH.
  unfold of at 1, within at 1. cbn [req src arr].
  replace (N.to_nat (nsrc r) =? k)%nat with (nsrc r =? N.of_nat k) by (apply eq_true_iff_eq; rewrite Nat.eqb_eq, N.eqb_eq; lia).
  destruct (nsrc r =? N.of_nat k); cbn [andb Nat.b2n map]; [|reflexivity]. rewrite count_cons. f_equal. f_equal.
  apply eq_true_iff_eq. rewrite !andb_true_iff, Nat.leb_le, Nat.ltb_lt, N.leb_le, N.ltb_lt. lia.
Qed.

Definition conforms_shared st := conforms_by (map snd (nclients pr)) (sarrived st).
Lemma conforms_conform st : sensible q -> conforms_shared st = true -> conform q (fun _ => true) (arrivals st).
Proof.
  intros (Hsound & _) H k s a d E _. assert (Hc : conforms (as_problem q 0) (arrivals st)).
  { apply (conforms_by_sound (map snd (nclients pr))); [exact Hsound| |exact H].
    cbn [streams as_problem clients to_sharing]. now rewrite !map_map. }
  now apply (Hc k s a d).
Qed.
End SharedRun.

(** A log of the streams of a problem that the checker confirms; some of them may not be there. *)
Lemma decide_admits pr fuel starts : decide_shared pr fuel starts = true ->
  sensible (to_sharing pr) /\ load_admitted pr (seq 0 (length (nclients pr))).
Proof.
  unfold decide_shared, decide_T, load_admitted. destruct (nrule pr) eqn:Er; intros H.
  - destruct (all_of _) as [ls|]; [|discriminate]. split.
    + apply (formed_sensible pr). now apply (check_T_formed pr ls).
    + intros s Hs _. now apply (check_T_test pr ls).
  - destruct (decide_E_checks pr fuel starts H) as (X & R & l & ls & Hc). split.
    + apply (formed_sensible pr). now apply (check_E_formed pr X R l ls) in Hc.
    + eexists. apply (check_E_test pr X R l ls Hc).
Qed.

Theorem decided_in_time pr fuel starts log st left : let all := seq 0 (length (nclients pr)) in
  decide_shared pr fuel starts = true -> accept_shared pr (begin_shared pr all) log = (st, left) ->
  (forall L, In L (sloads st) -> NoDup L /\ incl L all) -> conform (to_sharing pr) (fun _ => true) (arrivals st) ->
  forall r, In r (sarrived st) -> promisedN pr r = true -> within_of pr (home_of pr r) r < snow st -> answered_in_time pr st r.
Proof.
  intros all Hd Ha HL Hc. destruct (decide_admits pr fuel starts Hd) as (Hs & Had).
  apply (accepted_in_time pr all log st left Ha Hs); [|exact Hc]. intros L H. destruct (HL L H) as (Honce & Hincl).
  unfold load_admitted in *. destruct (nrule pr); [now apply (fewer_T _ L all)|now apply (fewer_E _ L all)].
Qed.

(** A whole log: the checker confirms what its streams are promised together, they keep to their declarations, whichever of them
    are there, and the device did what the model does.  Then all that had to be answered before its end was, in time. *)
Fixpoint once (l : list nat) := match l with [] => true | k :: l => negb (existsb (Nat.eqb k) l) && once l end.
Definition log_in_time pr fuel starts log := let all := seq 0 (length (nclients pr)) in
  decide_shared pr fuel starts && match accept_shared pr (begin_shared pr all) log with
  | (st, []) => conforms_shared pr st && forallb (fun L => once L && incl_of L all) (sloads st)
  | _ => false
  end.

Lemma once_NoDup l : once l = true -> NoDup l.
Proof.
  induction l as [|k l IH]; cbn [once]; intros H; constructor; apply andb_true_iff in H as (Hk & H); [|auto].
  intros Hin. apply negb_true_iff in Hk. enough (existsb (Nat.eqb k) l = true) by congruence.
  apply existsb_exists. exists k. split; [auto|apply Nat.eqb_refl].
Qed.

Theorem log_in_time_sound pr fuel starts log : log_in_time pr fuel starts log = true ->
  let st := fst (accept_shared pr (begin_shared pr (seq 0 (length (nclients pr)))) log) in
  forall r, In r (sarrived st) -> promisedN pr r = true -> within_of pr (home_of pr r) r < snow st -> answered_in_time pr st r.
Proof.
  unfold log_in_time. intros H. apply andb_true_iff in H as (Hd & H). destruct (accept_shared _ _ _) as (st, left) eqn:Ea. cbn [fst].
  destruct left; [|discriminate]. apply andb_true_iff in H as (Hc & HL). rewrite forallb_forall in HL.
  apply (decided_in_time pr fuel starts log st [] Hd Ea).
  - intros L HinL. specialize (HL L HinL). apply andb_true_iff in HL as (H1 & H2). split; [now apply once_NoDup|now apply incl_of_incl].
  - apply conforms_conform; [|exact Hc]. now apply (decide_admits pr fuel starts).
Qed.

(** * Examples, in nanoseconds

    Batches of two in 2 for service 0, of one in 3 for service 1; the request of 1 must begin sooner.  Dispatch may be late by 1,
    and batches may exceed their time by 1, in all. *)
Definition twice := NStream (1, 1) [(0, 1)] [Bound 20 0 [(0, 2)]].
Definition two by_rule := NSharing by_rule 1 3 1 1 [NService 2 2 10 1; NService 1 3 6 1] [(0%nat, twice); (1%nat, twice)].
Definition took_0 := [NRequest 0 1 0; NRequest 0 2 0].
Definition took_1 := [NRequest 1 1 0].
Definition both l first last := [(0, Happens (Arrives 0)); (0, Happens (Arrives 0)); (0, Happens (Arrives 1)); (0, Happens (Starts 0 l first));
  (l, Happens (Ends 0)); (l, Happens (Starts 0 (5 - l) last))].
(** How many entries of a log are not accepted. *)
Definition left_of pr log := length (snd (accept_shared pr (begin_shared pr [0; 1]%nat) log)).

Example by_deadline : left_of (two Sharing.Earliest) (both 3 took_1 took_0) = 0%nat.
Proof. reflexivity. Qed.
Example wrong_order : left_of (two Sharing.Earliest) (both 2 took_0 took_1) = 3%nat.
Proof. reflexivity. Qed.
(** In turns who came first goes first. *)
Example in_turns : left_of (two Turns) (both 2 took_0 took_1) = 0%nat /\ left_of (two Turns) (both 3 took_1 took_0) = 3%nat.
Proof. split; reflexivity. Qed.
(** A worker idles while something mandatory waits: by 1 it may, and not by 1 again before nothing waits. *)
Definition late_by a b := [(0, Happens (Arrives 0)); (0, Happens (Arrives 1)); (a, Happens (Starts 0 3 took_1)); (a + 3, Happens (Ends 0));
  (a + b + 3, Happens (Starts 0 2 [NRequest 0 1 0])); (a + b + 5, Happens (Ends 0))].
Example idles : map (fun x => left_of (two Sharing.Earliest) (late_by (fst x) (snd x))) [(0, 0); (1, 0); (0, 1); (1, 1); (2, 0)] =
  [0; 0; 0; 2; 4]%nat.
Proof. reflexivity. Qed.
(** A batch takes longer: by 1 it may, by 2 not, nor may one by 1 and another by 1 before all is calm. *)
Definition longer a b := [(0, Happens (Arrives 0)); (0, Happens (Arrives 1)); (0, Happens (Starts 0 (3 + a) took_1)); (3 + a, Happens (Ends 0));
  (3 + a, Happens (Starts 0 (2 + b) [NRequest 0 1 0]))].
Example overruns : map (fun x => left_of (two Sharing.Earliest) (longer (fst x) (snd x))) [(0, 1); (1, 0); (1, 1); (2, 0)] = [0; 0; 1; 3]%nat.
Proof. reflexivity. Qed.
(** A batch that takes less than the mandatory requests that wait, or a stranger's beside them; one that takes the second first. *)
Example leaves_some : left_of (two Turns) (both 2 (firstn 1 took_0) took_1) = 3%nat.
Proof. reflexivity. Qed.
Example stranger_first : left_of (two Turns) (both 2 [NRequest 9 1 0] took_1) = 3%nat.
Proof. reflexivity. Qed.
Example second_first : left_of (two Turns) (both 2 (rev took_0) took_1) = 3%nat.
Proof. reflexivity. Qed.
(** Who is not counted sends nothing mandatory; who leaves is counted until nothing mandatory waits. *)
Example not_counted : left_of (two Turns) [(0, Counts [0%nat]); (0, Happens (Arrives 1))] = 1%nat.
Proof. reflexivity. Qed.
Example leaves_too_soon : left_of (two Turns) [(0, Happens (Arrives 0)); (0, Counts [0%nat])] = 1%nat.
Proof. reflexivity. Qed.
