(** Pipelines with one promise, end to end: the model, and Theorem P1.  Proved ahead: the product has no pipelines yet.

    It extends Model.v: streams, words, curves and requests are those.  A source request arrives at stage 0; each result of
    a stage yields up to [fan] requests for each stage behind it, at the instant at which its batch ends; all that descends
    from a mandatory request is mandatory, and waits at each stage in order of the source.  Each stage has workers of its
    own, which are not left idle while something mandatory waits; the guard is taken off: dispatch is on time.  What fills
    batches, or occupies workers while nothing mandatory waits, is in no batch's list: it takes time, and no more is known. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

(** * The model *)

(** Workers, their batch, its time; the stage before, and how many requests a result of that yields at most. *)
Record stage := Stage { crew : nat; size : nat; span : nat; parent : nat; fan : nat }.
Record pipeline := Pipeline { stages : list stage; sources : list stream; allowed : nat }.   (* the deadline, end to end *)

Section Pipeline.
Variable q : pipeline.
Notation m := (length (stages q)).
Definition sg i := nth i (stages q) (Stage 0 0 0 0 0).
Notation N i := (crew (sg i)).
Notation B i := (size (sg i)).
Notation P i := (span (sg i)).
Notation up i := (parent (sg i)).
Notation F i := (fan (sg i)).
Definition as_problem := Problem (allowed q) 0 true [] (sources q).
Notation p := as_problem.

(** Requests at a stage are told by the number of their source: its place among all that arrived. *)
Record state := State {
  now : nat;
  arrived : list request;
  made : nat -> nat -> nat;                            (* at each stage, how many of each source have come so far *)
  waiting : nat -> list nat;                           (* at each stage, the mandatory ones that wait *)
  running : nat -> nat -> option (nat * list nat) }.   (* of each stage's workers: the end of the batch at the latest, the batch *)

Definition nobody := Request 0 0 0.
Definition source st j := nth j (arrived st) nobody.
Definition is (j x : nat) := x =? j.

Definition initial := State 0 [] (fun _ _ => 0) (fun _ => []) (fun _ _ => None).

Inductive step : state -> state -> Prop :=
| Arrive st r :
    arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
    let new := if mandatory p r then [length (arrived st)] else [] in
    step st (State (now st) (arrived st ++ [r])
               (set (made st) 0 (fun j => made st 0 j + count (is j) new))
               (set (waiting st) 0 (waiting st 0 ++ new)) (running st))
| Start st i w taken left :
    (* of those that wait the first by source, whichever of one source, a full batch if so many wait *)
    i < m -> w < N i -> running st i w = None ->
    (forall f, count f (waiting st i) = count f taken + count f left) ->
    (forall x y, In x taken -> In y left -> x <= y) ->
    length taken <= B i -> (left <> [] -> length taken = B i) ->
    step st (State (now st) (arrived st) (made st) (set (waiting st) i left)
               (set (running st) i (set (running st i) w (Some (now st + P i, taken)))))
| Finish st i w due b (new : nat -> list nat) :
    i < m -> w < N i -> running st i w = Some (due, b) ->
    (forall c, new c <> [] -> 0 < c < m /\ up c = i) ->
    (forall c j, count (is j) (new c) <= F c * count (is j) b) ->
    step st (State (now st) (arrived st) (fun c j => made st c j + count (is j) (new c))
               (fun c => waiting st c ++ new c) (set (running st) i (set (running st i) w None)))
| Tick st :
    (forall i w due b, i < m -> w < N i -> running st i w = Some (due, b) -> now st < due) ->
    (forall i, i < m -> waiting st i = [] \/ forall w, w < N i -> running st i w <> None) ->
    step st (State (S (now st)) (arrived st) (made st) (waiting st) (running st)).

Inductive reachable : state -> Prop :=
| Reach_init : reachable initial
| Reach_step st st' : reachable st -> step st st' -> reachable st'.

(** Something of source [j] waits or runs at stage [i]. *)
Definition pending st i j := In j (waiting st i) \/
  exists w due b, w < N i /\ running st i w = Some (due, b) /\ In j b.

(** Every mandatory source request is a hit: once its deadline has passed nothing of it is left at any stage. *)
Definition all_hit := forall st, reachable st -> conforms p (arrived st) ->
  forall j, j < length (arrived st) -> mandatory p (source st j) = true -> arr (source st j) + allowed q < now st ->
  forall i, i < m -> ~ pending st i j.

(** The problem makes sense: the stages are a tree, in order from the root. *)
Definition sensible := sound_streams p /\ 0 < m /\
  (forall i, i < m -> 0 < N i /\ 0 < B i) /\ forall i, 0 < i < m -> up i < i.

(** * Theorem P1 *)

(** [M]: the most requests of one source at a stage; [R]: the longest from what is known of the stage before to the end
    here; [theta]: the longest from the arrival of the source. *)
Variables M R theta : nat -> nat.
Definition bounds := M 0 = 1 /\ theta 0 = R 0 /\
  forall i, 0 < i < m -> M i = F i * M (up i) /\ theta i = theta (up i) + R i.

(** The latest end of the j-th full batch after a start that clears. *)
Definition ends i j := P i * (1 + cdiv j (N i)).
Definition test := forall i d, i < m -> 0 < curve_m p (d + 1) -> ends i (cdiv (M i * curve_m p (d + 1)) (B i)) <= d + R i.

Hypothesis Hsense : sensible.
Hypothesis Hbounds : bounds.
Hypothesis Htest : test.

Definition base i := match i with 0 => 0 | _ => theta (up i) end.
Definition free_at st i v := match running st i v with Some (due, _) => due | None => now st end.
Definition batch_of st i v := match running st i v with Some (_, b) => b | None => [] end.
Definition inflight st i j := count (is j) (waiting st i) + sum (fun v => count (is j) (batch_of st i v)) (N i).
Definition upto k (x : nat) := x <=? k.

(** Since the instant [s], when nothing up to source [k] waited at stage [i]: worker [v] has begun [x v] full batches of
    such requests, and of source [j] [made st i j - z j] have come. *)
Definition ref st i k := exists s x z, s <= now st /\
  (forall v, v < N i -> free_at st i v <= s + P i + P i * x v) /\
  (forall j, z j <= made st i j) /\
  B i * sum x (N i) + count (upto k) (waiting st i) <= sum (fun j => made st i j - z j) (k + 1) /\
  (forall j, z j < made st i j -> s <= arr (source st j) + base i).

Record Inv st : Prop := {
  inv_wf : wf (fun _ => 0) (arrived st);
  inv_past : forall r, In r (arrived st) -> arr r <= now st;
  inv_sorted : forall j k, j <= k < length (arrived st) -> arr (source st j) <= arr (source st k);
  inv_made : forall i j, 0 < made st i j -> j < length (arrived st) /\ mandatory p (source st j) = true;
  inv_once : forall j, made st 0 j <= 1;
  inv_flow : forall c j, 0 < c < m -> made st c j + F c * inflight st (up c) j <= F c * made st (up c) j;
  inv_known : forall i j, inflight st i j <= made st i j;
  inv_wait : forall i j, i < m -> In j (waiting st i) -> now st + P i <= arr (source st j) + theta i;
  inv_run : forall i w due b, i < m -> w < N i -> running st i w = Some (due, b) -> now st <= due <= now st + P i /\
    forall j, In j b -> due <= arr (source st j) + theta i;
  inv_ref : forall i k, i < m -> 0 < count (upto k) (waiting st i) -> ref st i k }.

Lemma count_in {A} (f : A -> bool) l x : In x l -> f x = true -> 0 < count f l.
Proof. clear. intros H E. apply in_split in H as (a & b & ->). rewrite count_app, count_cons, E. cbn. lia. Qed.

Lemma in_count {A} (f : A -> bool) l : 0 < count f l -> exists x, In x l /\ f x = true.
Proof.
  clear. unfold count. intros H. destruct (filter f l) as [|x t] eqn:E; [cbn in H; lia|].
  exists x. apply filter_In. rewrite E. simpl. auto.
Qed.

Lemma count_upto k l : count (upto k) l = sum (fun j => count (is j) l) (k + 1).
Proof.
  clear. induction l as [|x l IH]; [now rewrite sum_zero|]. rewrite count_cons, IH.
  rewrite (sum_ext (fun j => count (is j) (x :: l)) (fun j => Nat.b2n ((x =? j) && true) + count (is j) l)).
  - rewrite sum_add, sum_pick. unfold upto. destruct (Nat.leb_spec x k), (Nat.ltb_spec x (k + 1)); cbn [Nat.b2n]; lia.
  - intros j _. rewrite count_cons. unfold is at 1. destruct (x =? j); reflexivity.
Qed.

Lemma sum_const c k : sum (fun _ => c) k = k * c.
Proof. clear. induction k; cbn [sum]; lia. Qed.

Lemma sum_scale c f k : sum (fun i => c * f i) k = c * sum f k.
Proof. clear. induction k; cbn [sum]; lia. Qed.

Lemma count_nth {A} (f : A -> bool) d l k : k <= length l -> sum (fun j => Nat.b2n (f (nth j l d))) k <= count f l.
Proof.
  clear. revert k. induction l as [|a l IH] using rev_ind; intros k Hk.
  { replace k with 0 by (cbn in Hk; lia). cbn. lia. }
  rewrite app_length in Hk. cbn in Hk. rewrite count_app, count_cons, count_nil.
  destruct (Nat.eq_dec k (length l + 1)) as [->|].
  - rewrite Nat.add_1_r. cbn [sum]. rewrite app_nth2, Nat.sub_diag by lia. cbn [nth].
    rewrite (sum_ext _ (fun j => Nat.b2n (f (nth j l d)))) by (intros; now rewrite app_nth1 by lia).
    specialize (IH (length l) (le_n _)). lia.
  - rewrite (sum_ext _ (fun j => Nat.b2n (f (nth j l d)))) by (intros; now rewrite app_nth1 by lia).
    specialize (IH k ltac:(lia)). lia.
Qed.

Lemma came_m l s d : wf (fun _ => 0) l -> conforms p l -> came p l s d <= curve_m p d.
Proof.
  intros Hwf Hc. destruct Hsense as (Hs & _). apply (came_curve p Hs _ (fun _ => 0)); auto.
  intros r _ Hm. unfold everyone. apply in_seq. unfold mandatory in Hm. destruct (nth_error _ _) eqn:E; [|discriminate].
  split; [lia|]. apply nth_error_Some. congruence.
Qed.

Lemma curve_m_mono d d' : d <= d' -> curve_m p d <= curve_m p d'.
Proof.
  intros Hd. destruct Hsense as (Hs & _). unfold curve_m, curve_of. generalize (everyone p).
  intros l. induction l as [|k l IH]; cbn [map list_sum fold_right]; [auto|]. apply Nat.add_le_mono; [|exact IH].
  destruct (nth_error (streams p) k) as [s|] eqn:E; [|auto]. destruct (Hs s (nth_error_In _ _ E)) as (_ & Hp & Hm).
  apply cdiv_mono; [auto|]. apply Nat.mul_le_mono_l. auto.
Qed.

Lemma theta_up i : i < m -> theta i = base i + R i.
Proof.
  intros Hi. destruct Hbounds as (_ & H0 & H). destruct i; cbn [base]; [lia|]. now destruct (H (S i) ltac:(lia)) as (_ & ->).
Qed.

(** No source has more requests at a stage than what fans out. *)
Lemma made_most st : Inv st -> forall i, i < m -> forall j, made st i j <= M i.
Proof.
  intros I. destruct Hbounds as (HM & _ & H). pose proof Hsense as (_ & _ & _ & Hup).
  induction i as [i IH] using lt_wf_ind. intros Hi j. destruct i as [|i]; [rewrite HM; apply I|].
  destruct (H (S i) ltac:(lia)) as (-> & _). pose proof (inv_flow _ I (S i) j ltac:(lia)).
  specialize (Hup (S i) ltac:(lia)). specialize (IH (up (S i)) Hup ltac:(lia) j).
  etransitivity; [|apply Nat.mul_le_mono_l, IH]. lia.
Qed.

(** A stage takes no longer than its bound even for one batch, once anything has come. *)
Lemma span_R l r i : wf (fun _ => 0) l -> conforms p l -> In r l -> mandatory p r = true -> i < m -> P i <= R i.
Proof.
  intros Hwf Hc Hr Hm Hi. pose proof (came_m l (arr r) (0 + 1) Hwf Hc) as H.
  assert (0 < came p l (arr r) (0 + 1)).
  { apply (count_in _ _ r); [auto|]. rewrite Hm. unfold within. cbn [andb]. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. lia. }
  specialize (Htest i 0 Hi ltac:(lia)). unfold ends in Htest. nia.
Qed.

(** What waits has begun before it is too late: while all are busy there is still time. *)
Lemma still_time st i k : Inv st -> conforms p (arrived st) -> i < m -> In k (waiting st i) ->
  (forall w, w < N i -> exists due b, running st i w = Some (due, b) /\ now st < due) ->
  now st + 1 + P i <= arr (source st k) + theta i.
Proof.
  intros I Hc Hi Hk Hbusy.
  assert (Hmade : forall j, In j (waiting st i) -> 0 < made st i j).
  { intros j Hj. pose proof (inv_known _ I i j) as H. unfold inflight in H.
    assert (0 < count (is j) (waiting st i)); [|lia]. apply (count_in _ _ j Hj). unfold is. apply Nat.eqb_refl. }
  destruct (inv_made _ I i k (Hmade k Hk)) as (Hlt & _).
  assert (Hw : 0 < count (upto k) (waiting st i)) by (apply (count_in _ _ k Hk); unfold upto; now apply Nat.leb_le).
  destruct (inv_ref _ I i k Hi Hw) as (s & x & z & Hs & Hfree & Hz & Hsum & Hlate).
  pose proof Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & HB).
  set (a := arr (source st k)) in *.
  (* the sources of what has come since [s] *)
  set (f := fun r => mandatory p r && within (s - base i) (a - (s - base i) + 1) r).
  assert (Hcame : sum (fun j => made st i j - z j) (k + 1) <= M i * count f (arrived st)).
  { transitivity (sum (fun j => M i * Nat.b2n (f (nth j (arrived st) nobody))) (k + 1)).
    - apply sum_mono. intros j Hj. destruct (Nat.eq_dec (made st i j - z j) 0) as [->|Hne]; [lia|].
      specialize (Hlate j ltac:(lia)). destruct (inv_made _ I i j ltac:(lia)) as (Hj' & Hm).
      pose proof (inv_sorted _ I j k ltac:(lia)) as Hle. fold a in Hle.
      assert (E : f (nth j (arrived st) nobody) = true).
      { fold (source st j). unfold f, within. rewrite Hm. cbn [andb]. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. lia. }
      rewrite E. cbn [Nat.b2n]. pose proof (made_most st I i Hi j). lia.
    - rewrite sum_scale. apply Nat.mul_le_mono_l. apply count_nth. lia. }
  assert (Hsa : s <= a + base i).
  { destruct (Nat.le_gt_cases s (a + base i)) as [|Hgt]; [auto|exfalso].
    assert (Hz0 : sum (fun j => made st i j - z j) (k + 1) = 0); [|lia].
    rewrite (sum_ext _ (fun _ => 0)); [apply sum_zero|]. intros j Hj.
    destruct (Nat.eq_dec (made st i j - z j) 0) as [|Hne]; [auto|].
    specialize (Hlate j ltac:(lia)). pose proof (inv_sorted _ I j k ltac:(lia)) as Hle. fold a in Hle. lia. }
  set (d := a + base i - s).
  assert (Hcount : count f (arrived st) <= curve_m p (d + 1)).
  { etransitivity; [apply (came_m (arrived st) (s - base i) (a - (s - base i) + 1) (inv_wf _ I) Hc)|].
    apply curve_m_mono. unfold d. lia. }
  assert (Hcurve : B i * sum x (N i) + 1 <= M i * curve_m p (d + 1)).
  { pose proof (Nat.mul_le_mono_l _ _ (M i) Hcount). lia. }
  clear Hcount Hcame Hsum Hlate Hz.
  assert (Hpos' : 0 < curve_m p (d + 1)) by (destruct (curve_m p (d + 1)); lia).
  specialize (Htest i d Hi Hpos'). unfold ends in Htest. set (J := cdiv (M i * curve_m p (d + 1)) (B i)) in *.
  assert (HJ : sum x (N i) < J).
  { pose proof (cdiv_ge (M i * curve_m p (d + 1)) (B i) HB) as HJ. fold J in HJ. nia. }
  set (V := cdiv J (N i)) in *. pose proof (cdiv_ge J (N i) HN) as HV. fold V in HV.
  destruct (sum_lt x (fun _ => V) (N i)) as (v & Hv & Hxv); [rewrite sum_const; lia|].
  destruct (Hbusy v Hv) as (due & b & Erun & Hdue). specialize (Hfree v Hv). unfold free_at in Hfree. rewrite Erun in Hfree.
  rewrite (theta_up i Hi). assert (HPv : P i * S (x v) <= P i * V) by (apply Nat.mul_le_mono_l; lia).
  unfold d in Htest. lia.
Qed.

Lemma is_in j l : In j l <-> 0 < count (is j) l.
Proof.
  split; intros H; [apply (count_in _ _ j H); unfold is; apply Nat.eqb_refl|].
  apply in_count in H as (x & Hx & E). unfold is in E. apply Nat.eqb_eq in E. now subst.
Qed.

Lemma running_known st i w due b j : Inv st -> w < N i -> running st i w = Some (due, b) -> count (is j) b <= inflight st i j.
Proof.
  intros I Hw Hr. unfold inflight. pose proof (sum_mono (fun v => if v =? w then count (is j) b else 0) (fun v => count (is j) (batch_of st i v)) (N i)) as H.
  assert (sum (fun v => if v =? w then count (is j) b else 0) (N i) = count (is j) b).
  { clear - Hw. induction (N i) as [|k IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec k w) as [->|].
    - rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
    - rewrite IH; lia. }
  specialize (H ltac:(intros v Hv; cbv beta; destruct (Nat.eqb_spec v w) as [->|]; [unfold batch_of; rewrite Hr|]; lia)). lia.
Qed.

Lemma free_now st i v : Inv st -> i < m -> v < N i -> now st <= free_at st i v <= now st + P i.
Proof.
  intros I Hi Hv. unfold free_at. destruct (running st i v) as [(due, b)|] eqn:E; [|lia]. now apply (inv_run _ I i v due b Hi Hv E).
Qed.

(** What comes to a stage while nothing begins there. *)
Lemma ref_comes st st' i new : Inv st -> i < m -> now st' = now st ->
  (forall v, v < N i -> free_at st' i v <= free_at st i v) -> waiting st' i = waiting st i ++ new ->
  (forall j, made st' i j = made st i j + count (is j) new) ->
  (forall j, 0 < made st i j -> source st' j = source st j) ->
  (forall j, In j new -> now st <= arr (source st' j) + base i) ->
  forall k, 0 < count (upto k) (waiting st' i) -> ref st' i k.
Proof.
  intros I Hi Hn Hfree Hw Hmade Hsame Hnew k Hk.
  destruct (Nat.eq_dec (count (upto k) (waiting st i)) 0) as [E|E].
  - exists (now st), (fun _ => 0), (made st i). rewrite Hn. split; [lia|]. split.
    { intros v Hv. specialize (Hfree v Hv). pose proof (free_now st i v I Hi Hv). lia. }
    split; [intros j; rewrite Hmade; lia|]. split.
    + rewrite sum_const, Hw, count_app, E, count_upto. rewrite (sum_ext (fun j => made st' i j - made st i j) (fun j => count (is j) new)); [lia|].
      intros j _. rewrite Hmade. lia.
    + intros j Hj. rewrite Hmade in Hj. apply Hnew, is_in. lia.
  - destruct (inv_ref _ I i k Hi ltac:(lia)) as (s & x & z & Hs & Hf & Hz & Hsum & Hlate).
    exists s, x, z. rewrite Hn. split; [auto|]. split; [intros v Hv; specialize (Hfree v Hv); specialize (Hf v Hv); lia|].
    split; [intros j; specialize (Hz j); rewrite Hmade; lia|]. split.
    + rewrite Hw, count_app, (count_upto k new).
      rewrite (sum_ext (fun j => made st' i j - z j) (fun j => (made st i j - z j) + count (is j) new)), sum_add; [lia|].
      intros j _. rewrite Hmade. specialize (Hz j). lia.
    + intros j Hj. rewrite Hmade in Hj. destruct (Nat.lt_ge_cases (z j) (made st i j)) as [Hlt|Hge].
      * rewrite Hsame by lia. auto.
      * assert (Hin : In j new) by (apply is_in; lia). specialize (Hnew j Hin). lia.
Qed.

Lemma Inv_initial : Inv initial.
Proof.
  constructor; cbn [initial now arrived made waiting running]; try (intros; contradiction); try (intros; discriminate); try (intros; lia).
  - constructor.
  - cbn. lia.
  - intros i j. unfold inflight. cbn [initial waiting]. unfold batch_of. cbn [running]. rewrite count_nil, sum_zero. lia.
  - intros i j. unfold inflight. cbn [initial waiting]. unfold batch_of. cbn [running]. rewrite count_nil, sum_zero. lia.
  - intros i k _. rewrite count_nil. lia.
Qed.

Lemma Inv_arrive st r : Inv st -> arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
  conforms p (arrived st ++ [r]) ->
  let new := if mandatory p r then [length (arrived st)] else [] in
  Inv (State (now st) (arrived st ++ [r]) (set (made st) 0 (fun j => made st 0 j + count (is j) new))
         (set (waiting st) 0 (waiting st 0 ++ new)) (running st)).
Proof.
  intros I Ea Ei Hc new. set (st' := State _ _ _ _ _).
  pose (at_stage i := match i with 0 => new | _ => [] end).
  assert (Hw : forall i, waiting st' i = waiting st i ++ at_stage i).
  { intros [|i]; cbn [st' waiting at_stage]; [apply set_same|]. rewrite set_other by lia. now rewrite app_nil_r. }
  assert (Hmade : forall i j, made st' i j = made st i j + count (is j) (at_stage i)).
  { intros [|i] j; cbn [st' made at_stage]; [now rewrite set_same|]. rewrite set_other by lia. rewrite count_nil. lia. }
  assert (Hflight : forall i j, inflight st' i j = inflight st i j + count (is j) (at_stage i)).
  { intros i j. unfold inflight. rewrite Hw, count_app. unfold batch_of. cbn [st' running]. lia. }
  assert (Hsame : forall j, j < length (arrived st) -> source st' j = source st j).
  { intros j Hj. unfold source. cbn [st' arrived]. now apply app_nth1. }
  assert (Hlast : source st' (length (arrived st)) = r).
  { unfold source. cbn [st' arrived]. rewrite app_nth2, Nat.sub_diag by lia. reflexivity. }
  assert (Hin : forall i j, In j (at_stage i) -> i = 0 /\ j = length (arrived st) /\ mandatory p r = true).
  { intros [|i] j; cbn [at_stage]; [|intros []]. unfold new. destruct (mandatory p r); [intros [<-|[]]; auto|intros []]. }
  assert (Hwf : wf (fun _ => 0) (arrived st ++ [r])).
  { constructor; [apply I| |auto]. intros x Hx. rewrite Ea. now apply I. }
  constructor.
  - exact Hwf.
  - intros x Hx. cbn [st' arrived now] in *. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply I|lia].
  - intros j k Hjk. cbn [st' arrived] in Hjk. rewrite app_length in Hjk. cbn in Hjk.
    destruct (Nat.eq_dec k (length (arrived st))) as [->|].
    + rewrite Hlast. destruct (Nat.eq_dec j (length (arrived st))) as [->|]; [rewrite Hlast; lia|]. rewrite Hsame by lia.
      rewrite Ea. apply (inv_past _ I). apply nth_In. lia.
    + rewrite !Hsame by lia. apply (inv_sorted _ I). lia.
  - intros i j Hj. rewrite Hmade in Hj. cbn [st' arrived]. rewrite app_length. cbn [length].
    destruct (Nat.eq_dec (made st i j) 0) as [E|E].
    + assert (Hx : In j (at_stage i)) by (apply is_in; lia). apply Hin in Hx as (-> & -> & Hm). rewrite Hlast. split; [lia|auto].
    + destruct (inv_made _ I i j ltac:(lia)) as (H1 & H2). rewrite Hsame by auto. split; [lia|auto].
  - intros j. rewrite Hmade. cbn [at_stage]. pose proof (inv_once _ I j).
    destruct (Nat.eq_dec (count (is j) new) 0) as [->|E]; [lia|].
    assert (Hx : In j new) by (apply is_in; lia). destruct (Hin 0 j Hx) as (_ & Ej & _).
    destruct (Nat.eq_dec (made st 0 j) 0) as [->|E0]; [|destruct (inv_made _ I 0 j ltac:(lia)); lia].
    pose proof (count_le_length (is j) new). unfold new in *. destruct (mandatory p r); cbn [length] in *; lia.
  - intros c j Hcm. rewrite !Hmade, Hflight. pose proof (inv_flow _ I c j Hcm).
    destruct c; [lia|]. cbn [at_stage]. rewrite count_nil. lia.
  - intros i j. rewrite Hmade, Hflight. pose proof (inv_known _ I i j). lia.
  - intros i j Hi Hj. rewrite Hw in Hj. cbn [st' now]. apply in_app_or in Hj as [Hj|Hj].
    + rewrite Hsame; [now apply (inv_wait _ I)|]. apply (inv_made _ I i j).
      pose proof (inv_known _ I i j) as H. unfold inflight in H. apply is_in in Hj. lia.
    + apply Hin in Hj as (-> & -> & Hm). rewrite Hlast, (theta_up 0 Hi). cbn [base].
      pose proof (span_R _ r 0 Hwf Hc ltac:(apply in_or_app; simpl; auto) Hm Hi). lia.
  - intros i w due b Hi Hw' Hrun. cbn [st' running now] in *. destruct (inv_run _ I i w due b Hi Hw' Hrun) as (H1 & H2).
    split; [auto|]. intros j Hj. rewrite Hsame; [auto|]. apply (inv_made _ I i j).
    pose proof (inv_known _ I i j). pose proof (running_known st i w due b j I Hw' Hrun). apply is_in in Hj. lia.
  - intros i k Hi. apply (ref_comes st st' i (at_stage i)); auto.
    + intros j Hj. apply Hsame. now apply (inv_made _ I i j).
    + intros j Hj. apply Hin in Hj as (-> & -> & _). rewrite Hlast. cbn [base]. lia.
Qed.

Lemma Inv_start st i w taken left : Inv st -> i < m -> w < N i -> running st i w = None ->
  (forall f, count f (waiting st i) = count f taken + count f left) ->
  (forall x y, In x taken -> In y left -> x <= y) -> (left <> [] -> length taken = B i) ->
  Inv (State (now st) (arrived st) (made st) (set (waiting st) i left)
         (set (running st) i (set (running st i) w (Some (now st + P i, taken))))).
Proof.
  intros I Hi Hw Hrun Hcount Horder Hfull. set (st' := State _ _ _ _ _).
  assert (Hsub : forall j, In j taken \/ In j left -> In j (waiting st i)).
  { intros j Hj. apply is_in. rewrite Hcount. destruct Hj as [Hj|Hj]; apply is_in in Hj; lia. }
  assert (Hflight : forall i' j, inflight st' i' j = inflight st i' j).
  { intros i' j. unfold inflight. cbn [st' waiting]. destruct (Nat.eq_dec i' i) as [->|Hne].
    - rewrite set_same, Hcount.
      rewrite (sum_ext (fun v => count (is j) (batch_of st' i v)) (fun v => count (is j) (batch_of st i v) + if v =? w then count (is j) taken else 0)).
      + rewrite sum_add. assert (E : sum (fun v => if v =? w then count (is j) taken else 0) (N i) = count (is j) taken); [|lia].
        clear - Hw. induction (N i) as [|k IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec k w) as [->|].
        * rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
        * rewrite IH; lia.
      + intros v _. unfold batch_of, st'. cbn [running]. rewrite set_same. destruct (Nat.eqb_spec v w) as [->|Hv].
        * rewrite set_same, Hrun, count_nil. lia.
        * rewrite set_other by auto. lia.
    - rewrite set_other by auto. unfold batch_of, st'. cbn [running]. rewrite set_other by auto. reflexivity. }
  constructor; try apply I.
  - intros c j Hcm. rewrite Hflight. now apply (inv_flow _ I).
  - intros i' j. rewrite Hflight. apply I.
  - intros i' j Hi' Hj. cbn [st' waiting] in Hj. destruct (Nat.eq_dec i' i) as [->|Hne].
    + rewrite set_same in Hj. apply (inv_wait _ I i j); auto.
    + rewrite set_other in Hj by auto. now apply (inv_wait _ I).
  - intros i' v due b Hi' Hv. cbn [st' running]. destruct (Nat.eq_dec i' i) as [->|Hne].
    + rewrite set_same. destruct (Nat.eq_dec v w) as [->|Hvw].
      * rewrite set_same. intros E. inv E. split; [cbn; lia|]. intros j Hj. apply (inv_wait _ I i j); auto.
      * rewrite set_other by auto. now apply (inv_run _ I).
    + rewrite set_other by auto. now apply (inv_run _ I).
  - intros i' k Hi' Hk. cbn [st' waiting] in Hk. destruct (Nat.eq_dec i' i) as [->|Hne].
    + rewrite set_same in Hk. destruct (inv_ref _ I i k Hi) as (s & x & z & Hs & Hf & Hz & Hsum & Hlate); [rewrite Hcount; lia|].
      exists s, (fun v => x v + if v =? w then 1 else 0), z. split; [exact Hs|]. split; [|split; [exact Hz|split; [|exact Hlate]]].
      * intros v Hv. specialize (Hf v Hv). unfold free_at, st'. cbn [running now]. rewrite set_same. destruct (Nat.eqb_spec v w) as [->|Hvw].
        -- rewrite set_same. unfold free_at in Hf. rewrite Hrun in Hf. lia.
        -- rewrite set_other by auto. unfold free_at in Hf. lia.
      * destruct (in_count _ _ Hk) as (y & Hy & Hyk). unfold upto in Hyk. apply Nat.leb_le in Hyk.
        assert (Hall : count (upto k) taken = B i).
        { rewrite <- Hfull by (intros E; rewrite E in Hy; destruct Hy). clear - Horder Hy Hyk.
          assert (H : forall t, In t taken -> t <= k) by (intros t Ht; specialize (Horder t y Ht Hy); lia).
          clear Horder. induction taken as [|t l IH]; [reflexivity|]. rewrite count_cons, IH by (intros; apply H; simpl; auto).
          specialize (H t (or_introl eq_refl)). unfold upto. destruct (Nat.leb_spec t k); cbn; lia. }
        cbn [st' waiting made]. rewrite set_same. rewrite Hcount, Hall in Hsum. rewrite sum_add.
        assert (E : sum (fun v => if v =? w then 1 else 0) (N i) = 1).
        { clear - Hw. induction (N i) as [|c IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec c w) as [->|].
          - rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
          - rewrite IH; lia. }
        rewrite E. lia.
    + rewrite set_other in Hk by auto. destruct (inv_ref _ I i' k Hi' Hk) as (s & x & z & Hs & Hf & Hz & Hsum & Hlate).
      exists s, x, z. split; [exact Hs|]. split; [|split; [exact Hz|split; [|exact Hlate]]].
      * intros v Hv. specialize (Hf v Hv). unfold free_at, st' in *. cbn [running now]. rewrite set_other by auto. exact Hf.
      * cbn [st' waiting made]. rewrite set_other by auto. exact Hsum.
Qed.

Lemma Inv_finish st i w due b new : Inv st -> conforms p (arrived st) -> i < m -> w < N i -> running st i w = Some (due, b) ->
  (forall c, new c <> [] -> 0 < c < m /\ up c = i) ->
  (forall c j, count (is j) (new c) <= F c * count (is j) b) ->
  Inv (State (now st) (arrived st) (fun c j => made st c j + count (is j) (new c))
         (fun c => waiting st c ++ new c) (set (running st) i (set (running st i) w None))).
Proof.
  intros I Hc Hi Hw Hrun Hnew Hfan. set (st' := State _ _ _ _ _).
  destruct (inv_run _ I i w due b Hi Hw Hrun) as (Hdue & Hb).
  assert (Hempty : forall c, ~ (0 < c < m /\ up c = i) -> new c = []).
  { intros c H. destruct (new c) eqn:E; [auto|]. exfalso. apply H, Hnew. congruence. }
  assert (Hkid : forall c j, In j (new c) -> 0 < c < m /\ up c = i /\ In j b /\ 0 < made st i j).
  { intros c j Hj. assert (H : new c <> []) by (intros E; rewrite E in Hj; destruct Hj). apply Hnew in H as (H1 & H2).
    apply is_in in Hj. specialize (Hfan c j). assert (Hjb : 0 < count (is j) b) by nia.
    split; [auto|]. split; [auto|]. split; [now apply is_in|].
    pose proof (running_known st i w due b j I Hw Hrun). pose proof (inv_known _ I i j). lia. }
  assert (Hflight : forall i' j, inflight st' i' j + (if i' =? i then count (is j) b else 0) = inflight st i' j + count (is j) (new i')).
  { intros i' j. unfold inflight. cbn [st' waiting]. rewrite count_app. destruct (Nat.eqb_spec i' i) as [->|Hne].
    - rewrite (sum_ext (fun v => count (is j) (batch_of st i v)) (fun v => count (is j) (batch_of st' i v) + if v =? w then count (is j) b else 0)).
      + rewrite sum_add. assert (E : sum (fun v => if v =? w then count (is j) b else 0) (N i) = count (is j) b); [|lia].
        clear - Hw. induction (N i) as [|k IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec k w) as [->|].
        * rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
        * rewrite IH; lia.
      + intros v _. unfold batch_of, st'. cbn [running]. rewrite set_same. destruct (Nat.eqb_spec v w) as [->|Hv].
        * rewrite set_same, Hrun, count_nil. lia.
        * rewrite set_other by auto. lia.
    - unfold batch_of, st'. cbn [running]. rewrite set_other by auto. lia. }
  constructor; try apply I.
  - intros c j Hj. cbn [st' made] in Hj. destruct (Nat.eq_dec (made st c j) 0) as [E|E]; [|apply (inv_made _ I c j); lia].
    assert (Hx : In j (new c)) by (apply is_in; lia). apply Hkid in Hx as (_ & _ & _ & H). now apply (inv_made _ I i j).
  - intros j. cbn [st' made]. rewrite (Hempty 0), count_nil by lia. pose proof (inv_once _ I j). lia.
  - intros c j Hcm. cbn [st' made]. pose proof (inv_flow _ I c j Hcm) as H. specialize (Hflight (up c) j). specialize (Hfan c j).
    destruct (Nat.eqb_spec (up c) i) as [E|E].
    + nia.
    + rewrite (Hempty c), count_nil by tauto. nia.
  - intros i' j. cbn [st' made]. specialize (Hflight i' j). pose proof (inv_known _ I i' j). destruct (i' =? i); lia.
  - intros c j Hcm Hj. cbn [st' waiting now] in *. change (source st' j) with (source st j). apply in_app_or in Hj as [Hj|Hj]; [now apply (inv_wait _ I)|].
    apply Hkid in Hj as (H1 & H2 & Hjb & Hm). specialize (Hb j Hjb). rewrite (theta_up c Hcm).
    destruct (inv_made _ I i j Hm) as (Hlt & Hman).
    pose proof (span_R (arrived st) (source st j) c (inv_wf _ I) Hc ltac:(now apply nth_In) Hman Hcm).
    destruct c; [lia|]. cbn [base]. rewrite H2. lia.
  - intros i' v due' b' Hi' Hv. cbn [st' running]. destruct (Nat.eq_dec i' i) as [->|Hne].
    + rewrite set_same. unfold set. destruct (Nat.eqb_spec v w); [discriminate|]. now apply (inv_run _ I).
    + rewrite set_other by auto. now apply (inv_run _ I).
  - intros i' k Hi'. apply (ref_comes st st' i' (new i')); auto.
    + intros v Hv. unfold free_at, st'. cbn [running now]. destruct (Nat.eq_dec i' i) as [->|Hne].
      * rewrite set_same. pose proof (free_now st i v I Hi Hv) as H. unfold free_at in H. unfold set. destruct (v =? w); lia.
      * rewrite set_other by auto. lia.
    + intros j Hj. apply Hkid in Hj as (H1 & H2 & Hjb & _). specialize (Hb j Hjb). change (source st' j) with (source st j).
      destruct i'; [lia|]. cbn [base]. rewrite H2. lia.
Qed.

Lemma Inv_tick st : Inv st -> conforms p (arrived st) ->
  (forall i w due b, i < m -> w < N i -> running st i w = Some (due, b) -> now st < due) ->
  (forall i, i < m -> waiting st i = [] \/ forall w, w < N i -> running st i w <> None) ->
  Inv (State (S (now st)) (arrived st) (made st) (waiting st) (running st)).
Proof.
  intros I Hc Hdue Hcase. set (st' := State _ _ _ _ _).
  constructor; try apply I.
  - intros r Hr. pose proof (inv_past _ I r Hr). cbn [st' now]. lia.
  - intros i j Hi Hj. cbn [st' now waiting] in *. change (source st' j) with (source st j).
    destruct (Hcase i Hi) as [E|Hbusy]; [rewrite E in Hj; destruct Hj|].
    pose proof (still_time st i j I Hc Hi Hj) as H. rewrite Nat.add_1_r in H. apply H.
    intros w Hw. specialize (Hbusy w Hw). destruct (running st i w) as [(due, b)|] eqn:E; [|congruence].
    exists due, b. split; [auto|]. now apply (Hdue i w due b).
  - intros i w due b Hi Hw Hrun. cbn [st' now running] in *. specialize (Hdue i w due b Hi Hw Hrun).
    destruct (inv_run _ I i w due b Hi Hw Hrun) as (? & ?). split; [lia|auto].
  - intros i k Hi Hk. cbn [st' waiting] in Hk. destruct (Hcase i Hi) as [E|Hbusy]; [rewrite E, count_nil in Hk; lia|].
    destruct (inv_ref _ I i k Hi Hk) as (s & x & z & Hs & Hf & Hz & Hsum & Hlate).
    exists s, x, z. split; [cbn [st' now]; lia|]. split; [|split; [exact Hz|split; [exact Hsum|exact Hlate]]].
    intros v Hv. specialize (Hf v Hv). specialize (Hbusy v Hv). unfold free_at in *. cbn [st' running].
    destruct (running st i v) as [(due, b)|]; [auto|congruence].
Qed.

Lemma Inv_reachable st : reachable st -> conforms p (arrived st) -> Inv st.
Proof.
  induction 1 as [|st st' Hr IH Hs]; intros Hc; [apply Inv_initial|].
  assert (Hc' : conforms p (arrived st)) by (inv Hs; auto; now apply (conforms_prefix _ _ [r])).
  specialize (IH Hc'). inv Hs.
  - now apply Inv_arrive.
  - now apply Inv_start.
  - now apply (Inv_finish st i w due b).
  - now apply Inv_tick.
Qed.

(** All that descends from a source has left stage [i] by [theta i] after its arrival. *)
Lemma leaves_in_time st i j : reachable st -> conforms p (arrived st) -> i < m -> arr (source st j) + theta i < now st -> ~ pending st i j.
Proof.
  intros Hr Hc Hi Hd H. pose proof (Inv_reachable st Hr Hc) as I. destruct H as [H|(w & due & b & Hw & Hrun & Hb)].
  - pose proof (inv_wait _ I i j Hi H). lia.
  - destruct (inv_run _ I i w due b Hi Hw Hrun) as (? & Hx). specialize (Hx j Hb). lia.
Qed.
End Pipeline.

(** Stage by stage: when each is done with a source. *)
Theorem theorem_P1_stage q M R theta : sensible q -> bounds q M R theta -> test q M R ->
  forall st i j, reachable q st -> conforms (as_problem q) (arrived st) -> i < length (stages q) ->
  arr (source st j) + theta i < now st -> ~ pending q st i j.
Proof. intros Hs Hb Ht st i j. now apply (leaves_in_time q M R theta). Qed.

(** Theorem P1: if the sum of the R_i on every path from the root is at most the deadline, every mandatory source request is
    a hit. *)
Theorem theorem_P1 q M R theta : sensible q -> bounds q M R theta -> test q M R ->
  (forall i, i < length (stages q) -> theta i <= allowed q) -> all_hit q.
Proof.
  intros Hs Hb Ht Hd st Hr Hc j _ _ Hlate i Hi. apply (leaves_in_time q M R theta); auto. specialize (Hd i Hi). lia.
Qed.
