(** Fewer streams: what is admitted together is admitted without some of them. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Earliest Loads.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

Lemma sum_fewer (f : nat -> nat) l : NoDup l -> forall l', incl l l' -> list_sum (map f l) <= list_sum (map f l').
Proof.
  induction 1 as [|x l Hx Hl IH]; intros l' Hi; [cbn; lia|].
  destruct (in_split x l' (Hi x (or_introl eq_refl))) as (a & b & ->).
  specialize (IH (a ++ b)). rewrite map_app, list_sum_app in *. cbn [map list_sum fold_right].
  assert (H : incl l (a ++ b)).
  { intros y Hy. specialize (Hi y (or_intror Hy)). apply in_app_or in Hi as [H|[->|H]]; [|contradiction|]; apply in_or_app; auto. }
  specialize (IH H). change (fold_right Nat.add 0) with list_sum. lia.
Qed.

Section Fewer.
Variable q : sharing.
Variables few many : list nat.
Hypothesis Hsense : sensible q.
Hypothesis Honce : NoDup few.
Hypothesis Hincl : incl few many.
Notation m := (length (services q)).
Notation qf := (with_load q few).
Notation qm := (with_load q many).

Lemma crew_some : crew q <> 0.
Proof. destruct Hsense as (_ & Hn & _). lia. Qed.

Lemma alpha_fewer i d : Sharing.alpha qf i d <= Sharing.alpha qm i d.
Proof.
  unfold Sharing.alpha, curve_of. apply (sum_fewer (fun k => match nth_error (streams (as_problem q 0)) k with
    | Some s => cdiv (num s * curve s d) (den s) | None => 0 end)); [now apply NoDup_filter|].
  intros k Hk. apply filter_In in Hk as (Hk & Hh). apply filter_In. split; [now apply Hincl|exact Hh].
Qed.

Lemma share_fewer c c' x : (forall j, j < m -> c j <= c' j) -> share_within qm c' x -> share_within qf c x.
Proof.
  intros Hc [H|H]; [left|right].
  - etransitivity; [|exact H]. apply Nat.div_le_mono; [exact crew_some|].
    now apply (work_mono q).
  - intros d Hd Hsum. apply H; [intros j Hj; specialize (Hd j Hj); specialize (Hc j Hj); lia|].
    etransitivity; [exact Hsum|]. apply Nat.div_le_mono; [exact crew_some|].
    apply sum_mono. exact Hc.
Qed.

Lemma clear_fewer y j : Earliest.clear qf y j <= Earliest.clear qm y j.
Proof.
  unfold Earliest.clear, clear_requests. change (sv qm) with (sv qf). change (lateness qm) with (lateness qf).
  destruct (_ <=? y); [|lia]. pose proof (alpha_fewer j (y - (limit (sv qf j) + lateness qf) + 1)).
  destruct (Nat.eq_dec (size (sv qf j)) 0) as [->|]; [reflexivity|]. apply cdiv_mono; lia.
Qed.

Lemma short_requests_fewer X i y j : short_requests qf X i y j <= short_requests qm X i y j.
Proof.
  unfold short_requests. change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). change (delay qm) with (delay qf).
  destruct (j =? i); [|destruct (_ <=? _); [apply alpha_fewer|lia]].
  pose proof (alpha_fewer i (y - (limit (sv qf i) + lateness qf) + 1)). pose proof (alpha_fewer i (y - (limit (sv qf i) + lateness qf) + X i + 1)). lia.
Qed.

Lemma short_fewer X i y j : Earliest.short qf X i y j <= Earliest.short qm X i y j.
Proof.
  unfold Earliest.short. change (sv qm) with (sv qf). pose proof (short_requests_fewer X i y j).
  destruct (Nat.eq_dec (size (sv qf j)) 0) as [->|]; [reflexivity|]. apply cdiv_mono; lia.
Qed.

Theorem fewer_E : admitted_E q many -> admitted_E q few.
Proof.
  intros (X & HX & Hclear & Hshort). exists X. split; [exact HX|]. split.
  - intros k y Hk Hpos. destruct (Hclear k y Hk ltac:(pose proof (clear_fewer y k); lia)) as (x & Hx & Hfit).
    exists x. split; [|exact Hfit]. apply (share_fewer _ (less (Earliest.clear qm y) k)); [|exact Hx].
    intros j _. unfold less. pose proof (clear_fewer y j). lia.
  - intros i k y Hi Hk HB Hy H0 Hpos. pose proof (short_requests_fewer X i y i). pose proof (short_fewer X i y k).
    assert (Hless : forall j, j < m -> less (Earliest.short qf X i y) k j <= less (Earliest.short qm X i y) k j).
    { intros j _. unfold less. pose proof (short_fewer X i y j). lia. }
    destruct (Hshort i k y Hi Hk HB Hy ltac:(lia) ltac:(lia)) as [(x & Hx & Hfit)|Hfit].
    + left. exists x. split; [|exact Hfit]. now apply (share_fewer _ (less (Earliest.short qm X i y) k)).
    + right. etransitivity; [|exact Hfit]. apply Nat.add_le_mono_r, Nat.add_le_mono_l.
      apply Nat.div_le_mono; [exact crew_some|].
      apply Nat.add_le_mono_l. now apply (work_mono q).
Qed.

Theorem fewer_T G : admitted_T q G many -> admitted_T q G few.
Proof.
  intros H s Hs HG d Hpos. destruct (H s Hs HG d ltac:(pose proof (alpha_fewer s (d + 1)); lia)) as (x & Hx & Hfit).
  exists x. split; [|exact Hfit]. apply (share_fewer _ (batches_T qm G s d)); [|exact Hx]. intros i Hi. unfold batches_T.
  change (sv qm) with (sv qf). change (lateness qm) with (lateness qf). change (excess qm) with (excess qf).
  destruct Hsense as (_ & _ & _ & Hpar). destruct (Hpar s Hs) as (HB & HK & _). change (sv q) with (sv qf) in *.
  pose proof (cdiv_mono _ _ (size (sv qf s)) HB (alpha_fewer s (d + 1))) as HJ. cbv zeta. destruct (i =? s); [lia|].
  pose proof (cdiv_mono _ _ (turn (sv qf s)) HK HJ) as Hv.
  destruct (G i); [|now apply Nat.mul_le_mono_r]. apply Nat.min_le_compat; [now apply Nat.mul_le_mono_r|apply alpha_fewer].
Qed.
End Fewer.
