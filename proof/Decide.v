(** Finds the points for [check] itself.  Nothing here needs a proof: what it finds is checked. *)
Require Import List NArith Bool.
Import ListNotations.
Require Import Model Check.
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
