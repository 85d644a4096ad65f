(** Theorem E: the least [X] by its lines.  The plan raises X from 0, each time to what a line that fails needs, until none fails or some
    request would begin too late.  What it ends with is below every X that passes, so it is the least of all, or there is none. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened Earliest.

Section Least.
Variable q : sharing.
Notation n := (crew q).
Notation m := (length (services q)).
Notation B i := (size (sv q i)).
Notation P i := (span (sv q i)).
Notation g := (lateness q).
Notation D i := (limit (sv q i) + g).

(** The line of service [k] at distance [y], counted from an instant at which nothing waits, or from a batch of [i] that was
    not full: whether [v] is enough, if requests of each service wait for [X] at most. *)
Inductive reference := Clear | Short (i : nat).
Definition holds X ref k y v := match ref with
  | Clear => 0 < clear q y k ->
      exists x, share_within q (less (clear q y) k) x /\ g + longest q + excess q + x + D k <= y + v
  | Short i => i < m -> 1 < B i -> D i <= y -> 0 < short_requests q X i y i -> 0 < short q X i y k ->
      (exists x, share_within q (less (short q X i y) k) x /\ g + longest q + excess q + x + D k <= y + v) \/
      g + excess q + (P i + (n - 1) * longest q + work q (less (short q X i y) k)) / n + D k <= y + v
  end.

Lemma test_lines_hold X : test_lines q X <-> (forall i, i < m -> X i + P i <= D i) /\ forall ref k y, k < m -> holds X ref k y (X k).
Proof.
  unfold test_lines, lines, line_clear, line_short, holds. split; intros (HX & H); (split; [auto|]).
  - intros [|i] k y Hk; intros; [now apply (H k y Hk)|now apply (H k y Hk)].
  - intros k y Hk. split; [exact (H Clear k y Hk)|intros i Hi; intros; now apply (H (Short i) k y Hk)].
Qed.

(** ** Who waits less asks less of every line *)

Hypothesis Hsense : sensible q.

Lemma share_within_mono c c' x : (forall j, j < m -> c j <= c' j) -> share_within q c' x -> share_within q c x.
Proof.
  destruct Hsense as (_ & Hn & _). intros Hc [H|H].
  - left. pose proof (Nat.div_le_mono (work q c) (work q c') n ltac:(lia) (work_mono q c c' Hc)). lia.
  - right. intros d Hd Hsum. apply H; [intros j Hj; specialize (Hd j Hj); specialize (Hc j Hj); lia|].
    etransitivity; [exact Hsum|]. apply Nat.div_le_mono; [lia|]. now apply sum_mono.
Qed.

Lemma less_mono c c' k : (forall j, j < m -> c j <= c' j) -> forall j, j < m -> less c k j <= less c' k j.
Proof. intros H j Hj. specialize (H j Hj). unfold less. lia. Qed.

Lemma short_requests_mono X Z i y j : i < m -> (forall j, j < m -> X j <= Z j) -> j < m ->
  short_requests q X i y j <= short_requests q Z i y j.
Proof.
  intros Hi H Hj. pose proof (H i Hi) as HXi. pose proof (H j Hj) as HXj. unfold short_requests. destruct (Nat.eqb_spec j i) as [->|].
  - pose proof (alpha_mono q i (y - D i + X i + 1) (y - D i + Z i + 1) Hsense ltac:(lia)). lia.
  - assert (Hd : delay q X i j <= delay q Z i j) by (unfold delay; lia).
    destruct (Nat.leb_spec (D j) (y + delay q X i j)), (Nat.leb_spec (D j) (y + delay q Z i j)); try lia.
    apply (alpha_mono q j _ _ Hsense). lia.
Qed.

Lemma short_mono X Z i y : i < m -> (forall j, j < m -> X j <= Z j) -> forall j, j < m -> short q X i y j <= short q Z i y j.
Proof.
  intros Hi H j Hj. unfold short. destruct Hsense as (_ & _ & _ & Hpar). destruct (Hpar j Hj) as (HB & _).
  apply cdiv_mono; [auto|]. now apply short_requests_mono.
Qed.

Lemma holds_mono X Z ref k y v : k < m -> (forall j, j < m -> X j <= Z j) -> holds Z ref k y v -> holds X ref k y v.
Proof.
  intros Hk H. destruct ref as [|i]; [auto|]. intros Hz Hi HB Hy Hni Hck.
  pose proof (short_mono X Z i y Hi H) as Hs.
  destruct Hz as [(x & Hx & Hle)|Hle]; auto.
  - pose proof (short_requests_mono X Z i y i Hi H Hi). lia.
  - specialize (Hs k Hk). lia.
  - left. exists x. split; [|auto]. apply (share_within_mono _ (less (short q Z i y) k)); [now apply less_mono|auto].
  - right. destruct Hsense as (_ & Hn & _).
    pose proof (work_mono q _ _ (less_mono _ _ k Hs)) as Hw.
    pose proof (Nat.div_le_mono (P i + (n - 1) * longest q + work q (less (short q X i y) k))
      (P i + (n - 1) * longest q + work q (less (short q Z i y) k)) n ltac:(lia) ltac:(lia)). lia.
Qed.

(** ** Raised from below *)

(** From 0, one service at a time, to no more than a line needs that is counted with what is reached, or with less: the plan
    counts all lines of a pass with what it began the pass with. *)
Inductive raised : (nat -> nat) -> Prop :=
| From_0 : raised (fun _ => 0)
| To X X0 ref k y v : raised X -> (forall j, j < m -> X0 j <= X j) -> k < m ->
    (forall v', holds X0 ref k y v' -> v <= v') -> raised (set X k v).

Lemma raised_below X Z : raised X -> test_lines q Z -> forall i, i < m -> X i <= Z i.
Proof.
  intros Hr HZ. apply test_lines_hold in HZ as (_ & HZ). induction Hr as [|X X0 ref k y v Hr IH H0 Hk Hv]; [intros; lia|].
  intros i Hi. unfold set. destruct (Nat.eqb_spec i k) as [->|]; [|auto]. apply Hv.
  apply (holds_mono _ Z); [auto| |now apply HZ]. intros j Hj. specialize (H0 j Hj). specialize (IH j Hj). lia.
Qed.
End Least.

(** What passes is the least of all that pass. *)
Theorem least_X q X Z : sensible q -> raised q X -> test_lines q X -> test_lines q Z -> forall i, i < length (services q) -> X i <= Z i.
Proof. intros Hs Hr _ HZ. now apply raised_below. Qed.

(** Once a request would begin too late there is no X at all: then the test of Theorem E says no with every one. *)
Theorem no_X q X i : sensible q -> raised q X -> i < length (services q) ->
  limit (sv q i) + lateness q < X i + span (sv q i) -> forall Z, ~ test_lines q Z.
Proof. intros Hs Hr Hi Hlate Z HZ. pose proof (raised_below q Hs X Z Hr HZ i Hi). destruct HZ as (HZ & _). specialize (HZ i Hi). lia. Qed.
