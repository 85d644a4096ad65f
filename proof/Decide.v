(** Finds the points for the checkers themselves.  Nothing here needs a proof: what it finds is checked. *)
Require Import List NArith Bool.
Import ListNotations.
Require Import Model Sharing Check Shared PipelineCheck.
Open Scope N_scope.

(** The last length at which a bound still allows no more than at d + 1. *)
Definition rise b d :=
  let rest := (d + shift b) mod every b in
  d + (fold_right (fun o x => if rest <? fst o then N.min (fst o) x else x) (every b) (offsets b) - rest).
Definition next ss d := fold_right (fun s x => fold_right (fun b x => N.min (rise b d) x) x (bounds s)) (2 * d + 2 ^ 60) ss.

Fixpoint until_over fuel ss ws begun r room a acc := match fuel with
  | O => None
  | S fuel =>
      if (0 <? a) && (alpha_m ss a <=? sigmaN ws a) then Some (rev acc)
      else let b := next ss a in
        if r + alpha_m ss b <=? begun (a + room) then until_over fuel ss ws begun r room b (b :: acc) else None
  end.

Fixpoint until fuel ss begun r room a x acc := match fuel with
  | O => None
  | S fuel =>
      if x <=? a then Some (rev acc)
      else let b := N.min x (next ss a) in
        if r + alpha_m ss b <=? begun (a + room) then until fuel ss begun r room b x (b :: acc) else None
  end.

Definition period ss (ws : list (N * N)) :=
  fold_right (fun w h => N.lcm (snd w) h)
    (fold_right (fun s h => let b := slowest (bounds s) in let q := snd (rho s) in
       N.lcm (snd (rate b) * (q / N.gcd q (fst (rho s) * fst (rate b)))) h) 1 ss) ws.

Definition at_capacity ss ws h :=
  sumN (fun s => fst (rho s) * per h s / snd (rho s)) ss =? sumN (fun w => fst w * (h / snd w)) ws.

Definition certificate fuel pr begun r : option (list N * ending) :=
  let ss := nstreams pr in let ws := nworkers pr in
  let h := period ss ws in
  if at_capacity ss ws h then
    let try x :=
      match until fuel ss begun r (room pr) 0 x [], until fuel (map alone ss) begun r (room pr) x (x + h) [] with
      | Some l, Some l' => Some (l, Repeats h l')
      | _, _ => None
      end in
    match try 0 with Some c => Some c | None => match try h with Some c => Some c | None => try (4 * h) end end
  else match until_over fuel ss ws begun r (room pr) 0 [] with Some l => Some (l, Over) | None => None end.

Definition decide fuel pr := match certificate fuel pr (sigmaN (nworkers pr)) 0 with
  | Some (l, e) => check pr l e
  | None => false
  end.

Theorem decide_sound fuel pr : decide fuel pr = true -> promise pr.
Proof. unfold decide. destruct (certificate _ _ _ _) as [(l, e)|]; [apply check_sound|discriminate]. Qed.

(** * Of services that share workers *)

Section Decide.
Variable pr : nsharing.
Notation m := (length (nservices pr)).
Notation B i := (nsize (svN pr i)).
Notation P i := (nspan (svN pr i)).
Notation D i := (nlimit (svN pr i) + nlateness pr).

(** The last distance at which no more of [i] can have come than at [y], if counted from [late] behind. *)
Definition next_of i y late := if y <? late then late else late + next (clients_of pr i) (y - late).
Definition earliest_of (f : nat -> N) y := fold_right (fun i b => N.min (f i) b) (2 * y + 2 ^ 60) (seq 0 m).

(** From [a], point by point, until the straight line speaks. *)
Fixpoint walk (ok : N -> N -> bool) (over : N -> bool) (next : N -> N) fuel a acc : option (list N) :=
  if over a then Some (rev acc) else
  match fuel with
  | O => None
  | S fuel => let b := next a in if (a <? b) && ok (b - 1) a then walk ok over next fuel b (b :: acc) else None
  end.

Fixpoint all_of {A} (l : list (option A)) : option (list A) := match l with
  | [] => Some []
  | Some a :: l => match all_of l with Some l => Some (a :: l) | None => None end
  | None :: _ => None
  end.

Definition clear_next y := earliest_of (fun j => next_of j y (D j)) y.
Definition short_next X i y := earliest_of (fun j =>
  if Nat.eqb j i then N.min (next_of i y (D i)) (next_of i y (D i - X i)) else next_of j y (D j - delayN pr X i j)) y.
Definition turn_next s y := earliest_of (fun j => if Nat.eqb j s then next_of s y 0 else
  let e := ahead pr s j in next (clients_of pr j) (e + y) - e) y.

(** With what stands for lines of each service. *)
Definition decide_lines fuel X R :=
  let cut y b := fold_right (fun k b => match R k with After z _ => if y <? z then N.min z b else b | _ => b end) b (seq 0 m) in
  match walk (clear_ok pr X R) (straight_E pr) (fun y => cut y (clear_next y)) fuel 0 [],
        all_of (map (fun i => if B i <=? 1 then Some [] else
          walk (short_ok pr X R i) (straight_E pr) (fun y => cut y (short_next X i y)) fuel (D i) []) (seq 0 m)) with
  | Some l, Some ls => check_E pr X R l ls
  | _, _ => false
  end.

(** The first distance up to the last one, just before more is there, from which on what is counted is enough. *)
Definition there_next X y := earliest_of (fun j => N.min (next_of j y (D j)) (next_of j y (D j - X j))) y.
Definition enough_at fuel X c k z :=
  if line_ok pr (table pr (c z)) k z (X k) then Some [] else
  if z <? nlongest pr then None else
  walk (from_start_ok pr X c k) (fun a => z <? a) (fun a => N.min (z + 1) (there_next X a)) fuel (z - nlongest pr) [].
Fixpoint first_enough (at_ : N -> option (list N)) (make : N -> list N -> relief) next fuel a stop := match fuel with
  | O => Nothing
  | S fuel => if stop <? a then Nothing else
      let b := next a in let z := N.min stop (b - 1) in
      match at_ z with Some l => make z l | None => first_enough at_ make next fuel b stop end
  end.
Definition stands fuel X k :=
  let due := fold_right (fun s d => N.max (nlimit s + nlateness pr) d) 0 (nservices pr) in
  let enough c make stop := first_enough (enough_at fuel X c k) make (there_next X) fuel 0 stop in
  let faster := sumn (fun j => slopes pr (P j) 1 j) m <? ncrew pr * fine in
  match (if faster then walk (singly_ok pr X k) (straight_singly pr) clear_next fuel 0 [] else None) with
  | Some l => Singly l
  | None => match enough (mixedN pr X) Arrival (D k) with Nothing => enough (fullN pr X) After due | r => r end
  end.

(** All lines hold; or if not, and the workers are faster than what comes, others do where something stands for these: that is looked
    at in not so many steps, as near capacity no line that fails ends it. *)
Definition few := N.to_nat 1024.
Definition decide_E fuel (starts : list N) :=
  let X j := nth j starts 0 in
  decide_lines fuel X (fun _ => Nothing) ||
  (sumn (fun j => slopes pr (P j) (B j) j) m <? ncrew pr * fine) &&
    let R := map (stands few X) (seq 0 m) in decide_lines few X (fun k => nth k R Nothing).

Definition decide_T fuel :=
  match all_of (map (fun s => walk (turn_ok pr s) (straight_T pr s) (turn_next s) fuel 0 []) (seq 0 m)) with
  | Some ls => check_T pr ls
  | None => false
  end.

(** By the rule of the problem; [starts] are the times within which requests are said to begin. *)
Definition decide_shared fuel starts := match nrule pr with Earliest => decide_E fuel starts | Turns => decide_T fuel end.
End Decide.

Lemma decide_E_checks pr fuel starts : decide_E pr fuel starts = true -> exists X R l ls, check_E pr X R l ls = true.
Proof.
  assert (H : forall fuel X R, decide_lines pr fuel X R = true -> exists X R l ls, check_E pr X R l ls = true).
  { clear. intros fuel X R H. unfold decide_lines in H. destruct (walk _ _ _ _ _ _) as [l|]; [|discriminate].
    destruct (all_of _) as [ls|]; [|discriminate]. eauto. }
  unfold decide_E. rewrite orb_true_iff, andb_true_iff. intros [Hd|(_ & Hd)]; eapply H, Hd.
Qed.

Theorem decide_shared_sound pr fuel starts : decide_shared pr fuel starts = true -> shared_promise pr.
Proof.
  unfold decide_shared, decide_T. destruct (nrule pr) eqn:E; intros H.
  - destruct (all_of _) as [ls|]; [now apply (check_T_sound pr ls)|discriminate].
  - destruct (decide_E_checks pr fuel starts H) as (X & R & l & ls & Hc). now apply (check_E_sound pr X R l ls).
Qed.

(** * Of pipelines *)

Section Decide.
Variable pr : npipeline.
Notation m := (length (pstages pr)).
Notation ss := (psources pr).

(** From where on the stages have done the straight line. *)
Definition far_enough k room := let a := sumN (slope (cost pr) 1) ss in
  let z := sumN (fun s => slope (cost pr) 1 s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) ss + fine * cost pr * N.of_nat (length ss) in
  if a <? fine * fine then Some (cdivN (fine * fine * k + z - fine * fine * room) (fine * fine - a)) else None.

(** Of each number of sources the longest interval in which fewer come, until that is enough. *)
Fixpoint longest_of sl (enough : N -> N -> bool) fuel y e acc := match fuel with
  | O => None
  | S fuel =>
      if alpha_m sl (e + 1) <? y then longest_of sl enough fuel y (next sl e) acc
      else if enough e y then Some (rev (e :: acc)) else longest_of sl enough fuel (y + 1) e (e :: acc)
  end.

Definition up_to fuel x := longest_of ss (fun e _ => x <=? e) fuel 1 0 [].
Definition lengths fuel k room := match far_enough k room with Some x => up_to fuel x | None => None end.

(** A period of all streams in which each stage has whole rounds to serve. *)
Definition rounds := let h := period ss [] in
  h * fold_right (fun i k => let r := pcrew (sgN pr i) * psize (sgN pr i) in N.lcm (r / N.gcd r (M pr i * gained pr h)) k) 1 (seq 0 m).
Definition decide_again fuel x := let h := rounds in
  match up_to fuel x with
  | Some es => let x := last es 0 in
      match longest_of (map alone ss) (fun e y => (x + h <=? e) && (N.of_nat (S m) * gained pr h <=? y)) fuel (again_from pr x) x [] with
      | Some es' => check_P2 pr fuel es (Repeats h es')
      | None => false
      end
  | None => false
  end.

(** What a stage adds at most by itself. *)
Fixpoint response i y es := match es with [] => 0 | e :: es => N.max (served pr i (M pr i * y) - e) (response i (y + 1) es) end.

Definition decide_P2 fuel := match far_enough (fixed pr m 0) (pallowed pr) with
  | Some x => match up_to fuel x with Some es => check_P2 pr fuel es Over | None => false end
  | None => whole pr rounds && (N.of_nat (S m) * gained pr rounds <=? 2 ^ 14) &&
      (decide_again fuel 0 || decide_again fuel rounds || decide_again fuel (4 * rounds))
  end.
Definition decide_P1 fuel :=
  match lengths fuel (plateness pr + 3 * fold_right (fun s a => N.max (pspan s) a) 0 (pstages pr)) 0 with
  | Some es => check_P1 pr es (map (fun i => response i 1 es) (seq 0 m))
  | None => false
  end.
Definition decide_pipeline fuel := decide_P2 fuel || decide_P1 fuel.
End Decide.

Theorem decide_pipeline_sound pr fuel : decide_pipeline pr fuel = true -> pipeline_promise pr.
Proof.
  unfold decide_pipeline, decide_P2, decide_P1. rewrite orb_true_iff. intros [H|H].
  - destruct (far_enough _ _ _) as [x|].
    + destruct (up_to _ _ _) as [es|]; [now apply (check_P2_sound pr fuel es Over)|discriminate].
    + assert (Ha : forall x, decide_again pr fuel x = true -> pipeline_promise pr).
      { intros x Hx. unfold decide_again in Hx. cbv zeta in Hx. destruct (up_to _ _ _) as [es|]; [|discriminate].
        destruct (longest_of _ _ _ _ _ _) as [es'|]; [now apply (check_P2_sound pr fuel es _ Hx)|discriminate]. }
      rewrite andb_true_iff, !orb_true_iff in H. destruct H as (_ & [[H|H]|H]); now apply Ha in H.
  - destruct (lengths _ _ _ _) as [es|]; [now apply (check_P1_sound pr es _ H)|discriminate].
Qed.

(** Two cameras, of one request in 8 ns each, a detector that finds up to two things in each, and two classifiers for these:
    15 ns from the camera to the last answer are promised, and of 14 the program says no; nor of 17 where dispatch may be late by 2
    at each stage, but of 19 yes. *)
Definition camera := NStream (1, 1) [(0, 1)] [Bound 8 0 [(0, 1)]].
Definition cameras allowed late := NPipeline [NStage 1 2 3 0 1; NStage 2 1 3 0 2] [camera; camera] allowed late.

Example cameras_hit : map (fun c => decide_pipeline (cameras (fst c) (snd c)) 100) [(15, 0); (14, 0); (18, 2); (19, 2)] = [true; false; false; true].
Proof. vm_compute. reflexivity. Qed.

(** At capacity: one request in 3 ns, up to 4 ns late, and a first stage that takes 3 for each. *)
Definition full allowed := NPipeline [NStage 1 1 3 0 1; NStage 1 2 4 0 1] [NStream (1, 1) [(0, 1)] [Bound 3 4 [(0, 1)]]] allowed 0.

Example full_hit : map (fun d => decide_pipeline (full d) 100) [18; 17] = [true; false].
Proof. vm_compute. reflexivity. Qed.
