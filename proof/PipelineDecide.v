(** Finds the lengths for the checkers of PipelineCheck.v itself.  Nothing here needs a proof: what it finds is checked. *)
Require Import List NArith Bool.
Import ListNotations.
Require Import Model Check Decide Shared PipelineCheck.
Open Scope N_scope.

Section Decide.
Variable pr : npipeline.
Notation m := (length (pstages pr)).
Notation ss := (psources pr).

(** From where on the stages have done the straight line. *)
Definition far_enough k room := let a := sumN (slope (cost pr) 1) ss in
  let z := sumN (fun s => slope (cost pr) 1 s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) ss + fine * cost pr * N.of_nat (length ss) in
  if a <? fine * fine then Some (cdivN (fine * fine * k + z - fine * fine * room) (fine * fine - a)) else None.

(** Of each number of sources the longest interval in which fewer come, up to one of [x] or more. *)
Fixpoint longest_of fuel x y e acc := match fuel with
  | O => None
  | S fuel =>
      if alpha_m ss (e + 1) <? y then longest_of fuel x y (next ss e) acc
      else if x <=? e then Some (rev (e :: acc)) else longest_of fuel x (y + 1) e (e :: acc)
  end.

Definition lengths fuel k room := match far_enough k room with Some x => longest_of fuel x 1 0 [] | None => None end.

(** What a stage adds at most by itself. *)
Fixpoint response i y es := match es with [] => 0 | e :: es => N.max (served pr i (M pr i * y) - e) (response i (y + 1) es) end.

Definition decide_P2 fuel := match lengths fuel (fixed pr m 0) (pallowed pr) with Some es => check_P2 pr fuel es | None => false end.
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
  - destruct (lengths _ _ _ _) as [es|]; [now apply (check_P2_sound pr fuel es)|discriminate].
  - destruct (lengths _ _ _ _) as [es|]; [now apply (check_P1_sound pr es _ H)|discriminate].
Qed.

(** Two cameras, of one request in 8 ns each, a detector that finds up to two things in each, and two classifiers for these:
    15 ns from the camera to the last answer are promised, and of 14 the program says no; nor of 17 where dispatch may be late by 2
    at each stage, but of 19 yes. *)
Definition camera := NStream (1, 1) [(0, 1)] [Bound 8 0 [(0, 1)]].
Definition cameras allowed late := NPipeline [NStage 1 2 3 0 1; NStage 2 1 3 0 2] [camera; camera] allowed late.

Example cameras_hit : map (fun c => decide_pipeline (cameras (fst c) (snd c)) 100) [(15, 0); (14, 0); (18, 2); (19, 2)] = [true; false; false; true].
Proof. vm_compute. reflexivity. Qed.
