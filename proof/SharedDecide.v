(** Finds the points for the checkers of Shared.v themselves.  Nothing here needs a proof: what it finds is checked. *)
Require Import List NArith Bool.
Import ListNotations.
Require Import Model Sharing Check Decide Shared.
Open Scope N_scope.

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

Definition decide_E fuel (starts : list N) :=
  let X j := nth j starts 0 in
  match walk (clear_ok pr X) (straight_E pr) clear_next fuel 0 [],
        all_of (map (fun i => if B i <=? 1 then Some [] else walk (short_ok pr X i) (straight_E pr) (short_next X i) fuel (D i) []) (seq 0 m)) with
  | Some l, Some ls => check_E pr X l ls
  | _, _ => false
  end.

Definition decide_T fuel :=
  match all_of (map (fun s => walk (turn_ok pr s) (straight_T pr s) (turn_next s) fuel 0 []) (seq 0 m)) with
  | Some ls => check_T pr ls
  | None => false
  end.

(** By the rule of the problem; [starts] are the times within which requests are said to begin. *)
Definition decide_shared fuel starts := match nrule pr with Earliest => decide_E fuel starts | Turns => decide_T fuel end.
End Decide.

Theorem decide_shared_sound pr fuel starts : decide_shared pr fuel starts = true -> shared_promise pr.
Proof.
  unfold decide_shared, decide_E, decide_T. destruct (nrule pr) eqn:E; intros H.
  - destruct (all_of _) as [ls|]; [now apply (check_T_sound pr ls)|discriminate].
  - destruct (walk _ _ _ _ _ _) as [l|]; [|discriminate]. destruct (all_of _) as [ls|]; [|discriminate].
    now apply (check_E_sound pr (fun j => nth j starts 0) l ls).
Qed.
