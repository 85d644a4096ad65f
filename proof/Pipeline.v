(** Pipelines with one promise, end to end: the model, and Theorems P1 and P2.

    It extends Model.v: streams, words, curves and requests are those.  A source request arrives at stage 0; each result of
    a stage yields up to [fan] requests for each stage behind it, at the instant at which its batch ends; all that descends
    from a mandatory request is mandatory, and waits at each stage in order of the source.  Each stage has workers of its
    own, which are not left idle while something mandatory waits, but that dispatch may be late at each stage by [lateness] in
    all from one instant at which nothing mandatory waits there to the next.  What fills batches, or occupies workers while
    nothing mandatory waits, is in no batch's list: it takes time, and no more is known. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

(** * The model *)

(** Workers, their batch, its time; the stage before, and how many requests a result of that yields at most. *)
Record stage := Stage { crew : nat; size : nat; span : nat; parent : nat; fan : nat }.
Record pipeline := Pipeline { stages : list stage; sources : list stream;
  allowed : nat;                                       (* the deadline, end to end *)
  lateness : nat }.                                    (* the guard g, of every stage *)

Section Pipeline.
Variable q : pipeline.
Notation m := (length (stages q)).
Definition sg i := nth i (stages q) (Stage 0 0 0 0 0).
Notation N i := (crew (sg i)).
Notation B i := (size (sg i)).
Notation P i := (span (sg i)).
Notation up i := (parent (sg i)).
Notation F i := (fan (sg i)).
Notation g := (lateness q).
Definition as_problem := Problem (allowed q) g true [] (sources q).
Notation p := as_problem.

(** Requests at a stage are told by the number of their source: its place among all that arrived. *)
Record state := State {
  now : nat;
  late : nat -> nat;                                   (* for how long dispatch has been overdue at each stage, see [Renew] *)
  arrived : list request;
  made : nat -> nat -> nat;                            (* at each stage, how many of each source have come so far *)
  waiting : nat -> list nat;                           (* at each stage, the mandatory ones that wait *)
  running : nat -> nat -> option (nat * list nat) }.   (* of each stage's workers: the end of the batch at the latest, the batch *)

Definition nobody := Request 0 0 0.
Definition source st j := nth j (arrived st) nobody.
Definition is (j x : nat) := x =? j.

Definition initial := State 0 (fun _ => 0) [] (fun _ _ => 0) (fun _ => []) (fun _ _ => None).

Inductive step : state -> state -> Prop :=
| Arrive st r :
    arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
    let new := if mandatory p r then [length (arrived st)] else [] in
    step st (State (now st) (late st) (arrived st ++ [r])
               (set (made st) 0 (fun j => made st 0 j + count (is j) new))
               (set (waiting st) 0 (waiting st 0 ++ new)) (running st))
| Start st i w taken left :
    (* of those that wait the first by source, whichever of one source, a full batch if so many wait *)
    i < m -> w < N i -> running st i w = None ->
    (forall f, count f (waiting st i) = count f taken + count f left) ->
    (forall x y, In x taken -> In y left -> x <= y) ->
    length taken <= B i -> (left <> [] -> length taken = B i) ->
    step st (State (now st) (late st) (arrived st) (made st) (set (waiting st) i left)
               (set (running st) i (set (running st i) w (Some (now st + P i, taken)))))
| Finish st i w due b (new : nat -> list nat) :
    i < m -> w < N i -> running st i w = Some (due, b) ->
    (forall c, new c <> [] -> 0 < c < m /\ up c = i) ->
    (forall c j, count (is j) (new c) <= F c * count (is j) b) ->
    step st (State (now st) (late st) (arrived st) (fun c j => made st c j + count (is j) (new c))
               (fun c => waiting st c ++ new c) (set (running st) i (set (running st i) w None)))
| Renew st i :
    (* where nothing mandatory waits, lateness is counted afresh *)
    waiting st i = [] ->
    step st (State (now st) (set (late st) i 0) (arrived st) (made st) (waiting st) (running st))
| Tick st late' :
    (forall i w due b, i < m -> w < N i -> running st i w = Some (due, b) -> now st < due) ->
    (forall i, i < m -> late' i = late st i /\ (waiting st i = [] \/ forall w, w < N i -> running st i w <> None) \/
       late' i = S (late st i) /\ late st i < g) ->                       (* a worker is free for what waits *)
    step st (State (S (now st)) late' (arrived st) (made st) (waiting st) (running st)).

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

(** * What happens between two states of a run *)

Inductive path s : state -> Prop :=
| Path_here : path s s
| Path_step st st' : path s st -> step st st' -> path s st'.

Lemma path_reachable s st : reachable s -> path s st -> reachable st.
Proof. induction 2; [auto|]. now apply (Reach_step st). Qed.

Lemma path_trans s t st : path s t -> path t st -> path s st.
Proof. induction 2; [auto|]. now apply (Path_step s st). Qed.

Definition free_at st i v := match running st i v with Some (due, _) => due | None => now st end.
Definition batch_of st i v := match running st i v with Some (_, b) => b | None => [] end.

(** Of source [j], at stage [i]: what waits, what runs, what has begun, what is done. *)
Definition waits st i j := count (is j) (waiting st i).
Definition runs st i j := sum (fun v => count (is j) (batch_of st i v)) (N i).
Definition begun st i j := made st i j - waits st i j.
Definition done st i j := begun st i j - runs st i j.

Lemma sum_change f f' w k : w < k -> (forall v, v <> w -> f' v = f v) -> sum f' k + f w = sum f k + f' w.
Proof.
  clear. intros Hw H. induction k as [|k IH]; [lia|]. cbn [sum]. destruct (Nat.eq_dec k w) as [->|Hne].
  - rewrite (sum_ext f' f); [lia|]. intros i Hi. apply H. lia.
  - specialize (IH ltac:(lia)). rewrite (H k Hne). lia.
Qed.

Lemma sum_const c k : sum (fun _ => c) k = k * c.
Proof. clear. induction k; cbn [sum]; lia. Qed.

Lemma sum_scale c f k : sum (fun i => c * f i) k = c * sum f k.
Proof. clear. induction k; cbn [sum]; lia. Qed.

Lemma sum_one f k v : v < k -> f v <= sum f k.
Proof. clear. induction k as [|k IH]; [lia|]. cbn [sum]. intros H. destruct (Nat.eq_dec v k) as [->|]; [lia|]. specialize (IH ltac:(lia)). lia. Qed.

Lemma in_count {A} (f : A -> bool) l : 0 < count f l -> exists x, In x l /\ f x = true.
Proof.
  clear. unfold count. intros H. destruct (filter f l) as [|x t] eqn:E; [cbn in H; lia|].
  exists x. apply filter_In. rewrite E. simpl. auto.
Qed.

Lemma is_in j l : In j l <-> 0 < count (is j) l.
Proof.
  clear. split; intros H.
  - apply in_split in H as (a & b & ->). rewrite count_app, count_cons. unfold is at 2. rewrite Nat.eqb_refl. cbn. lia.
  - apply in_count in H as (x & Hx & E). unfold is in E. apply Nat.eqb_eq in E. now subst.
Qed.

(** What comes, what is begun and what ends in a step. *)
Lemma step_flow st st' : step st st' -> exists came took ended, now st <= now st' /\
  (forall i j, made st' i j = made st i j + came i j /\ waits st' i j + took i j = waits st i j + came i j /\
    (i < m -> runs st' i j + ended i j = runs st i j + took i j /\ ended i j <= runs st i j) /\
    (0 < i < m -> came i j <= F i * ended (up i) j)) /\
  (arrived st' = arrived st /\ (forall i j, 0 < came i j -> 0 < i < m) \/
   exists r, arrived st' = arrived st ++ [r] /\ arr r = now st /\ idx r = S (count (of (src r)) (arrived st)) /\ now st' = now st /\
     forall i j, 0 < came i j -> i = 0 /\ j = length (arrived st) /\ mandatory p r = true /\ came i j = 1).
Proof.
  intros Hs. inv Hs.
  - exists (fun i j => match i with 0 => count (is j) new | _ => 0 end), (fun _ _ => 0), (fun _ _ => 0). cbn [now arrived].
    split; [lia|]. split.
    + intros i j. unfold waits, runs, batch_of. cbn [made waiting running].
      destruct i as [|i]; [rewrite !set_same, count_app|rewrite !set_other by lia]; repeat split; lia.
    + right. exists r. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. intros [|i] j Hc; [|lia]. unfold new in *. destruct (mandatory p r); [|rewrite count_nil in Hc; lia].
      rewrite count_cons, count_nil in *. unfold is in *. destruct (Nat.eqb_spec (length (arrived st)) j); cbn in *; [auto|lia].
  - exists (fun _ _ => 0), (fun i' j => if i' =? i then count (is j) taken else 0), (fun _ _ => 0). cbn [now arrived].
    split; [lia|]. split; [|left; split; [auto|lia]].
    intros i' j. unfold waits, runs, batch_of. cbn [made waiting running]. destruct (Nat.eqb_spec i' i) as [->|Hne].
    + rewrite !set_same, H2. pose proof (sum_change (fun v => count (is j) (match running st i v with Some (_, b) => b | None => [] end))
        (fun v => count (is j) (match set (running st i) w (Some (now st + P i, taken)) v with Some (_, b) => b | None => [] end)) w (N i) H0) as E.
      cbv beta in E. rewrite set_same, H1, count_nil in E. rewrite Nat.add_0_r in E. rewrite E; [repeat split; lia|].
      intros v Hv. now rewrite set_other.
    + rewrite !set_other by auto. repeat split; lia.
  - exists (fun c j => count (is j) (new c)), (fun _ _ => 0), (fun i' j => if i' =? i then count (is j) b else 0). cbn [now arrived].
    assert (Hnew : forall c j, 0 < count (is j) (new c) -> 0 < c < m /\ up c = i).
    { intros c j Hc. apply H2. intros E. rewrite E, count_nil in Hc. lia. }
    split; [lia|]. split; [|left; split; [auto|intros c j Hc; now apply (Hnew c j)]].
    intros i' j. unfold waits, runs, batch_of. cbn [made waiting running]. rewrite count_app. split; [auto|]. split; [lia|]. split.
    + intros _. destruct (Nat.eqb_spec i' i) as [->|Hne]; [|rewrite set_other by auto; lia].
      pose proof (sum_change (fun v => count (is j) (match running st i v with Some (_, b) => b | None => [] end))
        (fun v => count (is j) (match set (running st i) w None v with Some (_, b) => b | None => [] end)) w (N i) H0) as E.
      pose proof (sum_one (fun v => count (is j) (match running st i v with Some (_, b) => b | None => [] end)) (N i) w H0) as E1.
      cbv beta in E, E1. rewrite set_same, H1, count_nil in E. rewrite H1 in E1. rewrite set_same. specialize (E ltac:(intros v Hv; now rewrite set_other)). lia.
    + intros Hi. destruct (Nat.eq_dec (count (is j) (new i')) 0) as [->|Hne]; [lia|].
      destruct (Hnew i' j ltac:(lia)) as (_ & ->). rewrite Nat.eqb_refl. apply H3.
  - exists (fun _ _ => 0), (fun _ _ => 0), (fun _ _ => 0). cbn [now arrived]. split; [lia|]. split; [|left; split; [auto|lia]].
    intros i' j. unfold waits, runs, batch_of. cbn [made waiting running]. repeat split; lia.
  - exists (fun _ _ => 0), (fun _ _ => 0), (fun _ _ => 0). cbn [now arrived]. split; [lia|]. split; [|left; split; [auto|lia]].
    intros i j. unfold waits, runs, batch_of. cbn [made waiting running]. repeat split; lia.
Qed.

Record Sound st : Prop := {
  so_wf : wf (fun _ => 0) (arrived st);
  so_past : forall r, In r (arrived st) -> arr r <= now st;
  so_sorted : forall j k, j <= k < length (arrived st) -> arr (source st j) <= arr (source st k);
  so_made : forall i j, 0 < made st i j -> i < m /\ j < length (arrived st) /\ mandatory p (source st j) = true;
  so_once : forall j, made st 0 j <= 1;
  so_late : forall i, i < m -> late st i <= g;
  so_held : forall i j, i < m -> waits st i j + runs st i j <= made st i j;
  so_due : forall i w due b, i < m -> w < N i -> running st i w = Some (due, b) -> now st <= due <= now st + P i }.

Hypothesis Hsense : sensible.

Lemma source_snoc st st' r j : arrived st' = arrived st ++ [r] -> source st' j = if j <? length (arrived st) then source st j else if j =? length (arrived st) then r else nobody.
Proof.
  intros E. unfold source. rewrite E. destruct (Nat.ltb_spec j (length (arrived st))); [now apply app_nth1|].
  rewrite app_nth2 by lia. destruct (Nat.eqb_spec j (length (arrived st))) as [->|]; [now rewrite Nat.sub_diag|].
  destruct (j - length (arrived st)) as [|[|k]] eqn:Ek; [lia|reflexivity|reflexivity].
Qed.

Lemma reachable_sound st : reachable st -> Sound st.
Proof.
  induction 1 as [|st st' Hr I Hs].
  { constructor; cbn [initial now late arrived made waiting running length]; try (intros; contradiction); try (intros; discriminate); try (intros; lia).
    - constructor.
    - intros i j _. unfold waits, runs, batch_of. cbn [initial waiting running]. rewrite count_nil, sum_zero. lia. }
  destruct Hsense as (_ & Hm & _ & Hup).
  assert (Hdue : forall i w due b, i < m -> w < N i -> running st' i w = Some (due, b) -> now st' <= due <= now st' + P i).
  { intros i w due b Hi Hw E. inv Hs; cbn [now running] in *; try (now apply (so_due _ I i w due b)).
    - unfold set in E. destruct (Nat.eqb_spec i i0) as [->|]; [|now apply (so_due _ I i w due b)].
      destruct (w =? w0); [injection E as <- <-; lia|now apply (so_due _ I i0 w due b)].
    - unfold set in E. destruct (Nat.eqb_spec i i0) as [->|]; [|now apply (so_due _ I i w due b)].
      destruct (w =? w0); [discriminate|now apply (so_due _ I i0 w due b)].
    - specialize (H i w due b Hi Hw E). pose proof (so_due _ I i w due b Hi Hw E). lia. }
  assert (Hlate : forall i, i < m -> late st' i <= g).
  { intros i Hi. pose proof (so_late _ I i Hi) as Hg. inv Hs; cbn [late]; auto; [unfold set; destruct (i =? i0); lia|].
    destruct (H0 i Hi) as [(-> & _)|(-> & ?)]; lia. }
  destruct (step_flow st st' Hs) as (came & took & ended & Hn & Hflow & Harr).
  assert (Hheld : forall i j, i < m -> waits st' i j + runs st' i j <= made st' i j).
  { intros i j Hi. destruct (Hflow i j) as (-> & Hw & Hrun & _). pose proof (so_held _ I i j Hi). specialize (Hrun Hi). lia. }
  destruct Harr as [(Ea & Hcame)|(r & Ea & Er & Ei & En & Hcame)].
  - assert (Esrc : forall j, source st' j = source st j) by (intros; unfold source; now rewrite Ea).
    constructor; auto; try (rewrite Ea; apply I).
    + intros r Hr'. rewrite Ea in Hr'. pose proof (so_past _ I r Hr'). lia.
    + intros j k Hjk. rewrite !Esrc. rewrite Ea in Hjk. now apply (so_sorted _ I).
    + intros i j Hj. rewrite Esrc, Ea. destruct (Hflow i j) as (E & _ & _ & Hf). rewrite E in Hj.
      destruct (Nat.eq_dec (came i j) 0) as [E0|E0]; [apply (so_made _ I i j); lia|].
      pose proof (Hcame i j ltac:(lia)) as Hi. specialize (Hf Hi). split; [lia|]. specialize (Hup i Hi).
      destruct (Hflow (up i) j) as (_ & _ & Hrun & _). destruct (Hrun ltac:(lia)) as (_ & He). pose proof (so_held _ I (up i) j ltac:(lia)).
      assert (0 < ended (up i) j) by (destruct (ended (up i) j); lia). apply (so_made _ I (up i) j). lia.
    + intros j. destruct (Hflow 0 j) as (-> & _). pose proof (so_once _ I j). pose proof (Hcame 0 j). lia.
  - assert (Esrc : forall j, j < length (arrived st) -> source st' j = source st j).
    { intros j Hj. rewrite (source_snoc st st' r j Ea). now destruct (Nat.ltb_spec j (length (arrived st))); [|lia]. }
    assert (Elast : source st' (length (arrived st)) = r) by (rewrite (source_snoc st st' r _ Ea), Nat.ltb_irrefl, Nat.eqb_refl; auto).
    assert (Hpast : forall x, In x (arrived st') -> arr x <= now st').
    { intros x Hx. rewrite Ea in Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [pose proof (so_past _ I x Hx)|]; lia. }
    constructor; auto.
    + rewrite Ea. constructor; [apply I| |auto]. intros x Hx. rewrite Er. now apply (so_past _ I).
    + intros j k Hjk. rewrite Ea, app_length in Hjk. cbn [length] in Hjk. destruct (Nat.eq_dec k (length (arrived st))) as [->|Hk].
      * rewrite Elast, Er, <- En. apply Hpast. unfold source. apply nth_In. rewrite Ea, app_length. cbn. lia.
      * rewrite !Esrc by lia. apply (so_sorted _ I). lia.
    + intros i j Hj. destruct (Hflow i j) as (E & _). rewrite E in Hj. rewrite Ea, app_length. cbn [length].
      destruct (Nat.eq_dec (made st i j) 0) as [E0|E0].
      * destruct (Hcame i j ltac:(lia)) as (-> & -> & Hman & _). rewrite Elast. split; [auto|]. split; [lia|auto].
      * destruct (so_made _ I i j ltac:(lia)) as (H1 & H2 & H3). rewrite Esrc by auto. split; [auto|]. split; [lia|auto].
    + intros j. destruct (Hflow 0 j) as (-> & _). pose proof (so_once _ I j) as H1. destruct (Nat.eq_dec (came 0 j) 0) as [->|E0]; [lia|].
      destruct (Hcame 0 j ltac:(lia)) as (_ & -> & _ & ->). destruct (Nat.eq_dec (made st 0 (length (arrived st))) 0) as [->|E1]; [lia|].
      destruct (so_made _ I 0 (length (arrived st)) ltac:(lia)). lia.
Qed.

(** What holds between an earlier state and a later one. *)
Record Later s st : Prop := {
  la_now : now s <= now st;
  la_length : length (arrived s) <= length (arrived st);
  la_conforms : conforms p (arrived st) -> conforms p (arrived s);
  la_source : forall j, j < length (arrived s) -> source st j = source s j;
  la_made : forall i j, made s i j <= made st i j;
  la_begun : forall i j, i < m -> begun s i j <= begun st i j;
  la_done : forall i j, i < m -> done s i j <= done st i j;
  la_flow : forall c j, 0 < c < m -> made st c j + F c * done s (up c) j <= made s c j + F c * done st (up c) j;
  la_root : forall j, made s 0 j < made st 0 j -> length (arrived s) <= j;
  la_new : forall j, length (arrived s) <= j < length (arrived st) -> now s <= arr (source st j) }.

Lemma later_step st st' : Sound st -> Sound st' -> step st st' -> Later st st'.
Proof.
  intros I I' Hs. pose proof Hsense as (_ & _ & _ & Hup). destruct (step_flow st st' Hs) as (came & took & ended & Hn & Hflow & Harr).
  assert (Hb : forall i j, i < m -> begun st' i j = begun st i j + took i j).
  { intros i j Hi. destruct (Hflow i j) as (E & Hw & _). pose proof (so_held _ I i j Hi). pose proof (so_held _ I' i j Hi). unfold begun. lia. }
  assert (Hd : forall i j, i < m -> done st' i j = done st i j + ended i j).
  { intros i j Hi. unfold done. rewrite Hb by auto. destruct (Hflow i j) as (E & Hw & Hrun & _). specialize (Hrun Hi).
    pose proof (so_held _ I i j Hi). pose proof (so_held _ I' i j Hi). unfold begun. lia. }
  constructor; auto.
  - destruct Harr as [(-> & _)|(r & -> & _)]; [auto|rewrite app_length; lia].
  - destruct Harr as [(-> & _)|(r & -> & _)]; [auto|apply conforms_prefix].
  - intros j Hj. destruct Harr as [(E & _)|(r & E & _)]; unfold source; rewrite E; [auto|now apply app_nth1].
  - intros i j. destruct (Hflow i j) as (-> & _). lia.
  - intros i j Hi. rewrite Hb by auto. lia.
  - intros i j Hi. rewrite Hd by auto. lia.
  - intros c j Hc. specialize (Hup c Hc). rewrite Hd by lia. destruct (Hflow c j) as (-> & _ & _ & Hf). specialize (Hf Hc). lia.
  - intros j. destruct (Hflow 0 j) as (-> & _). intros Hj. destruct Harr as [(_ & H)|(r & _ & _ & _ & _ & H)].
    + specialize (H 0 j ltac:(lia)). lia.
    + destruct (H 0 j ltac:(lia)) as (_ & -> & _). lia.
  - intros j Hj. destruct Harr as [(E & _)|(r & E & Er & _)]; rewrite E in Hj; [lia|]. rewrite app_length in Hj. cbn [length] in Hj.
    rewrite (source_snoc st st' r j E). replace j with (length (arrived st)) by lia. rewrite Nat.ltb_irrefl, Nat.eqb_refl. lia.
Qed.

Lemma path_later s st : reachable s -> path s st -> Later s st.
Proof.
  intros Hr. induction 1 as [|st st' Hp IH Hs]; [constructor; auto; lia|].
  pose proof (path_reachable _ _ Hr Hp) as Hr1. pose proof (reachable_sound _ Hr1) as I.
  pose proof (later_step st st' I (reachable_sound _ (Reach_step _ _ Hr1 Hs)) Hs) as L. pose proof Hsense as (_ & _ & _ & Hup).
  constructor.
  - pose proof (la_now _ _ IH). pose proof (la_now _ _ L). lia.
  - pose proof (la_length _ _ IH). pose proof (la_length _ _ L). lia.
  - intros H. now apply (la_conforms _ _ IH), (la_conforms _ _ L).
  - intros j Hj. pose proof (la_length _ _ IH). rewrite (la_source _ _ L) by lia. now apply (la_source _ _ IH).
  - intros i j. etransitivity; [apply (la_made _ _ IH)|apply (la_made _ _ L)].
  - intros i j Hi. etransitivity; [apply (la_begun _ _ IH i j Hi)|apply (la_begun _ _ L i j Hi)].
  - intros i j Hi. etransitivity; [apply (la_done _ _ IH i j Hi)|apply (la_done _ _ L i j Hi)].
  - intros c j Hc. pose proof (la_flow _ _ IH c j Hc). pose proof (la_flow _ _ L c j Hc). lia.
  - intros j Hj. pose proof (la_root _ _ IH j). pose proof (la_root _ _ L j). pose proof (la_length _ _ IH). lia.
  - intros j Hj. destruct (Nat.lt_ge_cases j (length (arrived st))) as [Hlt|Hge].
    + rewrite (la_source _ _ L) by auto. apply (la_new _ _ IH). lia.
    + pose proof (la_new _ _ L j ltac:(lia)). pose proof (la_now _ _ IH). lia.
Qed.

Lemma reachable_path st : reachable st -> path initial st.
Proof. induction 1; [constructor|]. now apply (Path_step initial st). Qed.

(** What is done meanwhile at a stage runs at some instant between, with as much done as at first. *)
Lemma runs_between s st i j : reachable s -> path s st -> i < m -> done s i j < done st i j ->
  exists t, path s t /\ path t st /\ done t i j = done s i j /\ 0 < runs t i j.
Proof.
  intros Hr Hp Hi. induction Hp as [|st st' Hp IH Hs]; intros Hd; [lia|].
  destruct (Nat.lt_ge_cases (done s i j) (done st i j)) as [Hlt|Hge].
  - destruct (IH Hlt) as (t & H1 & H2 & H3). exists t. split; [auto|]. split; [now apply (Path_step t st)|auto].
  - exists st. split; [auto|]. split; [now apply (Path_step st st); [constructor|]|].
    pose proof (path_reachable _ _ Hr Hp) as Hr1. pose proof (la_done _ _ (path_later _ _ Hr Hp) i j Hi). split; [lia|].
    destruct (step_flow st st' Hs) as (came & took & ended & _ & Hflow & _). destruct (Hflow i j) as (E & Hw & Hrun & _).
    specialize (Hrun Hi). pose proof (so_held _ (reachable_sound _ Hr1) i j Hi). unfold done, begun in *. lia.
Qed.

(** * Since when a stage is busy *)

Definition upto k (x : nat) := x <=? k.
Definition quiet st i k := count (upto k) (waiting st i) = 0.

(** The latest end of the j-th full batch after a start that clears, dispatch being late by [g] in all. *)
Definition ends i j := g + P i * (1 + cdiv j (N i)).

Lemma quiet_begun st i k j : quiet st i k -> j <= k -> begun st i j = made st i j.
Proof.
  intros H Hj. unfold begun, waits. assert (count (is j) (waiting st i) <= count (upto k) (waiting st i)); [|unfold quiet in H; lia].
  apply count_mono. intros x _. unfold is, upto. rewrite Nat.eqb_eq, Nat.leb_le. lia.
Qed.

Lemma count_upto k l : count (upto k) l = sum (fun j => count (is j) l) (S k).
Proof.
  clear. induction l as [|x l IH]; [now rewrite sum_zero|]. rewrite count_cons, IH.
  rewrite (sum_ext (fun j => count (is j) (x :: l)) (fun j => Nat.b2n ((x =? j) && true) + count (is j) l)).
  - rewrite sum_add, sum_pick. unfold upto. destruct (Nat.leb_spec x k), (Nat.ltb_spec x (S k)); cbn [Nat.b2n]; lia.
  - intros j _. rewrite count_cons. unfold is at 1. destruct (x =? j); reflexivity.
Qed.

(** While anything up to source [k] waits: since a state in which nothing did, worker [v] has begun [x v] full batches of
    such requests. *)
Definition busy st i k := exists s x, reachable s /\ path s st /\ quiet s i k /\
  late s i <= late st i /\ (forall v, v < N i -> free_at st i v + late s i <= now s + P i + P i * x v + late st i) /\
  B i * sum x (N i) <= sum (fun j => begun st i j - begun s i j) (S k).

Lemma free_now st i v : Sound st -> i < m -> v < N i -> now st <= free_at st i v <= now st + P i.
Proof.
  intros I Hi Hv. unfold free_at. destruct (running st i v) as [(due, b)|] eqn:E; [|lia]. now apply (so_due _ I i v due b Hi Hv E).
Qed.

Lemma waits_busy st : reachable st -> forall i k, i < m -> 0 < count (upto k) (waiting st i) -> busy st i k.
Proof.
  induction 1 as [|st st' Hr IH Hs]; intros i k Hi Hk; [cbn in Hk; lia|].
  pose proof (Reach_step _ _ Hr Hs) as Hr'. pose proof (reachable_sound _ Hr) as I. pose proof (reachable_sound _ Hr') as I'.
  pose proof (later_step _ _ I I' Hs) as L. specialize (IH i k Hi).
  destruct (Nat.eq_dec (count (upto k) (waiting st i)) 0) as [E|E].
  - exists st, (fun _ => 0). split; [auto|]. split; [now apply (Path_step st st); [constructor|]|]. split; [exact E|].
    assert (En : now st' = now st).
    { inv Hs; cbn [now waiting] in *; auto. lia. }
    assert (El : late st' i = late st i) by (inv Hs; cbn [late waiting] in *; auto; lia).
    split; [lia|]. split; [|rewrite sum_const; lia]. intros v Hv. pose proof (free_now st' i v I' Hi Hv). lia.
  - destruct (IH ltac:(lia)) as (s & x & Hrs & Hp & Hq & Hl & Hf & Hsum).
    assert (Hp' : path s st') by now apply (Path_step s st).
    assert (Hmono : sum (fun j => begun st i j - begun s i j) (S k) <= sum (fun j => begun st' i j - begun s i j) (S k)).
    { apply sum_mono. intros j _. pose proof (la_begun _ _ L i j Hi). lia. }
    assert (Hsame : late st i <= late st' i -> (forall v, v < N i -> free_at st' i v + late st i <= free_at st i v + late st' i) -> busy st' i k).
    { intros H0 H. exists s, x. split; [auto|]. split; [auto|]. split; [auto|]. split; [lia|]. split; [|lia]. intros v Hv. specialize (H v Hv). specialize (Hf v Hv). lia. }
    inv Hs.
    + apply Hsame; [auto|]. intros v Hv. unfold free_at. cbn [running now late]. lia.
    + destruct (Nat.eq_dec i i0) as [<-|Hne].
      2:{ apply Hsame; [auto|]. intros v Hv. unfold free_at. cbn [running now late]. rewrite set_other by auto. lia. }
      cbn [waiting] in Hk. rewrite set_same in Hk. exists s, (fun v => x v + if v =? w then 1 else 0).
      split; [auto|]. split; [auto|]. split; [auto|]. split; [exact Hl|]. split.
      * intros v Hv. specialize (Hf v Hv). unfold free_at in *. cbn [running now late]. rewrite set_same. destruct (Nat.eqb_spec v w) as [->|Hvw].
        -- rewrite set_same. rewrite H1 in Hf. lia.
        -- rewrite set_other by auto. lia.
      * destruct (in_count _ _ Hk) as (y & Hy & Hyk). unfold upto in Hyk. apply Nat.leb_le in Hyk.
        assert (Hall : count (upto k) taken = B i).
        { rewrite <- H5 by (intros E'; rewrite E' in Hy; destruct Hy). clear - H3 Hy Hyk.
          assert (H : forall t, In t taken -> t <= k) by (intros t Ht; specialize (H3 t y Ht Hy); lia).
          clear H3. induction taken as [|t l IH]; [reflexivity|]. rewrite count_cons, IH by (intros; apply H; simpl; auto).
          specialize (H t (or_introl eq_refl)). unfold upto. destruct (Nat.leb_spec t k); cbn; lia. }
        rewrite sum_add. assert (E1 : sum (fun v => if v =? w then 1 else 0) (N i) = 1).
        { pose proof (sum_change (fun _ => 0) (fun v => if v =? w then 1 else 0) w (N i) H0) as E1. cbv beta in E1.
          rewrite Nat.eqb_refl, sum_zero in E1. specialize (E1 ltac:(intros v Hv; now destruct (Nat.eqb_spec v w))). lia. }
        rewrite count_upto in Hall. transitivity (sum (fun j => begun st i j - begun s i j) (S k) + sum (fun j => count (is j) taken) (S k)); [lia|].
        rewrite <- sum_add. apply sum_mono. intros j _.
        unfold begun, waits. cbn [made waiting]. rewrite set_same, H2.
        pose proof (la_begun _ _ (path_later _ _ Hrs Hp) i j Hi) as Hb. pose proof (so_held _ I i j Hi) as Hh. unfold begun, waits in *. rewrite H2 in *. lia.
    + apply Hsame; [auto|]. intros v Hv. unfold free_at. cbn [running now late]. destruct (Nat.eq_dec i i0) as [<-|Hne]; [|rewrite set_other by auto; lia].
      rewrite set_same. pose proof (free_now st i v I Hi Hv) as H'. unfold free_at in H'. unfold set. destruct (v =? w); lia.
    + destruct (Nat.eq_dec i i0) as [<-|Hne]; [rewrite H in E; now destruct E|].
      apply Hsame; [|intros v Hv]; unfold free_at; cbn [running now late]; rewrite set_other by auto; lia.
    + destruct (H0 i Hi) as [(El & [Hw|Hw])|(El & _)]; [rewrite Hw in E; now destruct E| |].
      * apply Hsame; [cbn [late]; lia|]. intros v Hv. unfold free_at. cbn [running now late]. specialize (Hw v Hv).
        destruct (running st i v) as [(due, b)|]; [lia|congruence].
      * apply Hsame; [cbn [late]; lia|]. intros v Hv. unfold free_at. cbn [running now late]. destruct (running st i v) as [(due, b)|]; lia.
Qed.

(** Of so many batches some worker begins one early enough. *)
Lemma least_begun st i s x : Sound st -> i < m -> (forall v, v < N i -> free_at st i v + late s i <= now s + P i + P i * x v + late st i) ->
  now st + P i <= now s + ends i (S (sum x (N i))).
Proof.
  intros I Hi Hf. destruct Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & _).
  unfold ends. set (V := cdiv (S (sum x (N i))) (N i)). pose proof (cdiv_ge (S (sum x (N i))) (N i) HN) as HV. fold V in HV.
  destruct (sum_lt x (fun _ => V) (N i)) as (v & Hv & Hxv); [rewrite sum_const; lia|].
  specialize (Hf v Hv). pose proof (free_now st i v I Hi Hv). pose proof (so_late _ I i Hi). assert (P i * S (x v) <= P i * V) by (apply Nat.mul_le_mono_l; lia). lia.
Qed.

(** What runs, ranked by when it has begun: between the quiet state [s] and its start at [t] full batches were begun, and
    those of source [k] begun by then are done or run in batches begun before. *)
Definition full_since st i k s t X := reachable s /\ path s t /\ path t st /\ quiet s i k /\
  B i * X <= sum (fun j => begun t i j - begun s i j) (S k).

Definition ahead st i k rank v := sum (fun w => if rank w <? rank v then count (is k) (batch_of st i w) else 0) (N i).

Definition ranked st i rank := forall v due b k, v < N i -> running st i v = Some (due, b) -> In k b ->
  exists s t X, full_since st i k s t X /\ due <= now s + ends i (S X) /\ begun t i k <= done st i k + ahead st i k rank v.

Lemma full_since_step st st' i k s t X : full_since st i k s t X -> step st st' -> full_since st' i k s t X.
Proof. intros (H1 & H2 & H3 & H) Hs. split; [auto|]. split; [auto|]. split; [now apply (Path_step t st)|auto]. Qed.

Lemma reachable_ranked st : reachable st -> forall i, i < m -> exists rank, ranked st i rank.
Proof.
  induction 1 as [|st st' Hr IH Hs]; intros i Hi; [exists (fun _ => 0); intros v due b k _ E; discriminate|].
  pose proof (Reach_step _ _ Hr Hs) as Hr'. pose proof (reachable_sound _ Hr) as I. pose proof (reachable_sound _ Hr') as I'.
  pose proof (later_step _ _ I I' Hs) as L. destruct (IH i Hi) as (rank & HR). clear IH.
  assert (Hsame : (forall v, v < N i -> running st' i v = running st i v) -> exists rank, ranked st' i rank).
  { intros H. exists rank. intros v due b k Hv E Hk. rewrite H in E by auto. destruct (HR v due b k Hv E Hk) as (s & t & X & H1 & H2 & H3).
    exists s, t, X. split; [now apply (full_since_step st)|]. split; [auto|]. pose proof (la_done _ _ L i k Hi).
    replace (ahead st' i k rank v) with (ahead st i k rank v); [lia|]. apply sum_ext. intros w Hw. unfold batch_of. now rewrite H. }
  inversion Hs; subst.
  - now apply Hsame.
  - destruct (Nat.eq_dec i i0) as [<-|Hne]; [|apply Hsame; intros; cbn [running]; now rewrite set_other].
    set (top := S (sum rank (N i))). exists (set rank w top).
    assert (Htop : forall v, v < N i -> rank v < top) by (intros v Hv; pose proof (sum_one rank (N i) v Hv); unfold top; lia).
    assert (Hdone : forall k, done st i k + runs st i k = begun st i k).
    { intros k. pose proof (so_held _ I i k Hi). unfold done, begun. lia. }
    assert (Erun : running (State (now st) (late st) (arrived st) (made st) (set (waiting st) i left) (set (running st) i (set (running st i) w (Some (now st + P i, taken))))) i
      = set (running st i) w (Some (now st + P i, taken))) by (cbn [running]; apply set_same).
    intros v due b k Hv E Hk. rewrite Erun in E. destruct (Nat.eq_dec v w) as [->|Hvw].
    + rewrite set_same in E. injection E as <- <-. assert (Hw : 0 < count (is k) (waiting st i)) by (rewrite H2; apply is_in in Hk; lia).
      destruct (waits_busy st Hr i k Hi) as (s & x & Hrs & Hp & Hq & _ & Hf & Hsum).
      { rewrite count_upto. pose proof (sum_one (fun j => count (is j) (waiting st i)) (S k) k ltac:(lia)) as H'. cbv beta in H'. lia. }
      exists s, st, (sum x (N i)). split; [split; [auto|split; [auto|split; [now apply (Path_step st st); [constructor|]|split; [auto|auto]]]]|].
      split; [now apply (least_begun st i s x I Hi)|]. pose proof (la_done _ _ L i k Hi) as Hd. specialize (Hdone k).
      assert (Ha : runs st i k <= ahead (State (now st) (late st) (arrived st) (made st) (set (waiting st) i left) (set (running st) i (set (running st i) w (Some (now st + P i, taken))))) i k (set rank w top) w).
      { apply sum_mono. intros u Hu. unfold batch_of. rewrite Erun, set_same. destruct (Nat.eq_dec u w) as [->|Huw].
        - rewrite H1. cbn. lia.
        - rewrite !set_other by auto. destruct (Nat.ltb_spec (rank u) top); [lia|]. specialize (Htop u Hu). lia. }
      lia.
    + rewrite set_other in E by auto. destruct (HR v due b k Hv E Hk) as (s & t & X & H1' & H2' & H3').
      exists s, t, X. split; [now apply (full_since_step st)|]. split; [auto|]. pose proof (la_done _ _ L i k Hi) as Hd.
      assert (Ha : ahead st i k rank v <= ahead (State (now st) (late st) (arrived st) (made st) (set (waiting st) i left) (set (running st) i (set (running st i) w (Some (now st + P i, taken))))) i k (set rank w top) v).
      { apply sum_mono. intros u Hu. unfold batch_of. rewrite Erun. rewrite (set_other rank w top v) by auto. destruct (Nat.eq_dec u w) as [->|Huw].
        - rewrite H1, count_nil. destruct (rank w <? rank v); lia.
        - rewrite !set_other by auto. lia. }
      lia.
  - destruct (Nat.eq_dec i i0) as [<-|Hne]; [|apply Hsame; intros; cbn [running]; now rewrite set_other].
    exists rank. set (st2 := State _ _ _ _ _ _) in *.
    assert (Erun : running st2 i = set (running st i) w None) by (cbn [running]; apply set_same).
    intros v due' b' k Hv E Hk. rewrite Erun in E. destruct (Nat.eq_dec v w) as [->|Hvw]; [rewrite set_same in E; discriminate|].
    rewrite set_other in E by auto. destruct (HR v due' b' k Hv E Hk) as (s & t & X & H1' & H2' & H3').
    exists s, t, X. split; [now apply (full_since_step st)|]. split; [auto|].
    destruct (step_flow st st2 Hs) as (came & took & ended & _ & Hflow & _). destruct (Hflow i k) as (Em & Ew & Er & _). destruct (Er Hi) as (Er' & _).
    pose proof (so_held _ I i k Hi) as Hh. pose proof (so_held _ I' i k Hi) as Hh'.
    assert (Hg : forall g : nat -> bool, sum (fun u => if g u then count (is k) (batch_of st2 i u) else 0) (N i) + (if g w then count (is k) b else 0) =
      sum (fun u => if g u then count (is k) (batch_of st i u) else 0) (N i)).
    { intros g. pose proof (sum_change (fun u => if g u then count (is k) (batch_of st i u) else 0) (fun u => if g u then count (is k) (batch_of st2 i u) else 0) w (N i) H0) as E1.
      cbv beta in E1. unfold batch_of in *. rewrite Erun in *. rewrite set_same, H1, count_nil in E1.
      specialize (E1 ltac:(intros u Hu; now rewrite set_other)). destruct (g w); lia. }
    pose proof (Hg (fun _ => true)) as G1. pose proof (Hg (fun u => rank u <? rank v)) as G2. cbv beta in G1, G2.
    unfold ahead in *. unfold done, begun, runs in *. clear - G1 G2 H3' Em Ew Er' Hh Hh'. destruct (rank w <? rank v); lia.
  - now apply Hsame.
  - now apply Hsame.
Qed.

(** Of the batches that run with something of source [k] look at the first begun. *)
Lemma runs_since st i k : reachable st -> i < m -> 0 < runs st i k ->
  exists s t X, full_since st i k s t X /\ now st <= now s + ends i (S X) /\ begun t i k <= done st i k.
Proof.
  intros Hr Hi Hrun. destruct (reachable_ranked st Hr i Hi) as (rank & HR).
  assert (H : forall z v, rank v <= z -> v < N i -> 0 < count (is k) (batch_of st i v) ->
    exists s t X, full_since st i k s t X /\ now st <= now s + ends i (S X) /\ begun t i k <= done st i k).
  { induction z as [z IH] using lt_wf_ind. intros v Hz Hv Hk. destruct (Nat.eq_dec (ahead st i k rank v) 0) as [E|E].
    - unfold batch_of in Hk. destruct (running st i v) as [(due, b)|] eqn:Ev; [|rewrite count_nil in Hk; lia].
      destruct (HR v due b k Hv Ev ltac:(now apply is_in)) as (s & t & X & H1 & H2 & H3). exists s, t, X. split; [auto|].
      pose proof (so_due _ (reachable_sound _ Hr) i v due b Hi Hv Ev). lia.
    - destruct (sum_lt (fun _ => 0) (fun w => if rank w <? rank v then count (is k) (batch_of st i w) else 0) (N i)) as (u & Hu & Hku).
      { rewrite sum_zero. unfold ahead in E. lia. }
      cbv beta in Hku. destruct (Nat.ltb_spec (rank u) (rank v)); [|lia]. apply (IH (rank u) ltac:(lia) u); auto. }
  destruct (sum_lt (fun _ => 0) (fun v => count (is k) (batch_of st i v)) (N i)) as (v & Hv & Hk); [rewrite sum_zero; exact Hrun|].
  now apply (H (rank v) v).
Qed.

(** Whatever is at a stage: since a quiet state that many full batches and a request more have come to it. *)
Lemma here_since st i k : reachable st -> i < m -> 0 < waits st i k + runs st i k ->
  exists s X, reachable s /\ path s st /\ quiet s i k /\ now st <= now s + ends i (S X) /\ made s i k < made st i k /\
    B i * X + 1 <= sum (fun j => made st i j - made s i j) (S k).
Proof.
  intros Hr Hi Hh. pose proof (so_held _ (reachable_sound _ Hr) i k Hi) as Hheld.
  assert (H : exists s t X, full_since st i k s t X /\ now st <= now s + ends i (S X) /\ begun t i k < made st i k).
  { destruct (Nat.eq_dec (runs st i k) 0) as [E|E].
    - destruct (waits_busy st Hr i k Hi) as (s & x & Hrs & Hp & Hq & _ & Hf & Hsum).
      { rewrite count_upto. pose proof (sum_one (fun j => count (is j) (waiting st i)) (S k) k ltac:(lia)) as H'. cbv beta in H'. unfold waits in *. lia. }
      exists s, st, (sum x (N i)). split; [split; [auto|]; split; [auto|]; split; [constructor|auto]|].
      pose proof (least_begun st i s x (reachable_sound _ Hr) Hi Hf). unfold begun. lia.
    - destruct (runs_since st i k Hr Hi ltac:(lia)) as (s & t & X & H1 & H2 & H3). exists s, t, X. split; [auto|]. split; [auto|].
      unfold done, begun in *. lia. }
  destruct H as (s & t & X & (Hrs & Hst & Ht & Hq & Hsum) & Hn & Hk). exists s, X.
  pose proof (path_later _ _ Hrs Hst) as L1. pose proof (path_later _ _ (path_reachable _ _ Hrs Hst) Ht) as L2.
  assert (Hb : forall j, j <= k -> begun t i j - begun s i j <= made st i j - made s i j).
  { intros j Hj. rewrite (quiet_begun s i k j Hq Hj). pose proof (la_begun _ _ L2 i j Hi). unfold begun in *. lia. }
  pose proof (la_begun _ _ L1 i k Hi) as Hbk. rewrite (quiet_begun s i k k Hq) in * by auto.
  split; [auto|]. split; [now apply (path_trans s t)|]. split; [auto|]. split; [auto|]. split; [lia|].
  cbn [sum] in *. rewrite (quiet_begun s i k k Hq) in Hsum by auto.
  pose proof (sum_mono (fun j => begun t i j - begun s i j) (fun j => made st i j - made s i j) k ltac:(intros j Hj; apply Hb; lia)). lia.
Qed.

(** * What comes from the sources *)

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

(** If each source up to [k] that counts came at [a] or later, they are at most what the curve allows. *)
Lemma sources_most st k a (g : nat -> nat) c : Sound st -> conforms p (arrived st) -> k < length (arrived st) ->
  (forall j, j <= k -> 0 < g j -> g j <= c /\ mandatory p (source st j) = true /\ a <= arr (source st j)) ->
  0 < sum g (S k) -> a <= arr (source st k) /\ sum g (S k) <= c * curve_m p (arr (source st k) - a + 1).
Proof.
  intros I Hc Hk Hg Hpos. set (e := arr (source st k)).
  assert (Hle : forall j, j <= k -> arr (source st j) <= e) by (intros j Hj; apply (so_sorted _ I); lia).
  assert (Ha : a <= e).
  { destruct (sum_lt (fun _ => 0) g (S k)) as (j & Hj & Hgj); [now rewrite sum_zero|].
    destruct (Hg j ltac:(lia) Hgj) as (_ & _ & H). specialize (Hle j ltac:(lia)). lia. }
  split; [auto|]. set (f := fun r => mandatory p r && within a (e - a + 1) r).
  transitivity (c * count f (arrived st)).
  - transitivity (sum (fun j => c * Nat.b2n (f (nth j (arrived st) nobody))) (S k)).
    + apply sum_mono. intros j Hj. destruct (Nat.eq_dec (g j) 0) as [->|Hne]; [lia|].
      destruct (Hg j ltac:(lia) ltac:(lia)) as (H1 & H2 & H3). specialize (Hle j ltac:(lia)). fold (source st j).
      assert (E : f (source st j) = true) by (unfold f, within; rewrite H2; cbn [andb]; rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt; lia).
      rewrite E. cbn [Nat.b2n]. lia.
    + rewrite sum_scale. apply Nat.mul_le_mono_l, count_nth. lia.
  - apply Nat.mul_le_mono_l. destruct Hsense as (Hs & _). apply (came_curve p Hs _ (fun _ => 0)); auto; [apply I|].
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

Lemma ends_mono i j j' : i < m -> j <= j' -> ends i j <= ends i j'.
Proof.
  intros Hi Hj. destruct Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & _).
  unfold ends. apply Nat.add_le_mono_l, Nat.mul_le_mono_l, Nat.add_le_mono_l, cdiv_mono; auto.
Qed.

(** * Theorem P1 *)

(** [M]: the most requests of one source at a stage; [R]: the longest from what is known of the stage before to the end
    here; [theta]: the longest from the arrival of the source. *)
Section P1.
Variables M R theta : nat -> nat.
Definition bounds := M 0 = 1 /\ theta 0 = R 0 /\
  forall i, 0 < i < m -> M i = F i * M (up i) /\ theta i = theta (up i) + R i.
Definition test := forall i d, i < m -> 0 < curve_m p (d + 1) -> ends i (cdiv (M i * curve_m p (d + 1)) (B i)) <= d + R i.

Hypothesis Hbounds : bounds.
Hypothesis Htest : test.

(** No source has more requests at a stage than what fans out. *)
Lemma made_most st : reachable st -> forall i, i < m -> forall j, made st i j <= M i.
Proof.
  intros Hr. destruct Hbounds as (HM & _ & H). pose proof Hsense as (_ & _ & _ & Hup). pose proof (reachable_sound _ Hr) as I.
  induction i as [i IH] using lt_wf_ind. intros Hi j. destruct (Nat.eq_dec i 0) as [->|Hi0]; [rewrite HM; apply I|].
  destruct (H i ltac:(lia)) as (-> & _). specialize (Hup i ltac:(lia)). specialize (IH (up i) Hup ltac:(lia) j).
  pose proof (la_flow _ _ (path_later _ _ Reach_init (reachable_path st Hr)) i j ltac:(lia)) as Hf. cbn [initial made] in Hf.
  etransitivity; [|apply Nat.mul_le_mono_l, IH]. transitivity (F i * done st (up i) j); [lia|]. apply Nat.mul_le_mono_l. unfold done, begun. lia.
Qed.

Lemma leaves_in_time i : i < m -> forall st k, reachable st -> conforms p (arrived st) -> 0 < waits st i k + runs st i k ->
  now st <= arr (source st k) + theta i.
Proof.
  induction i as [i IH] using lt_wf_ind. intros Hi st k Hr Hc Hk. pose proof (reachable_sound _ Hr) as I.
  destruct (here_since st i k Hr Hi Hk) as (s & X & Hrs & Hp & Hq & Hn & Hmade & Hsum). pose proof (path_later _ _ Hrs Hp) as L.
  pose proof Hsense as (_ & _ & Hpos & Hup). destruct (Hpos i Hi) as (_ & HB). destruct Hbounds as (_ & Hth0 & Hbs).
  set (base := match i with 0 => 0 | _ => theta (up i) end).
  assert (Hth : theta i = base + R i) by (unfold base; destruct i; [lia|]; now destruct (Hbs (S i) ltac:(lia)) as (_ & ->)).
  assert (Hnew : forall j, made s i j < made st i j -> now s <= arr (source st j) + base).
  { intros j Hj. destruct (so_made _ I i j ltac:(lia)) as (_ & Hlt & _). unfold base. destruct i as [|i'].
    - pose proof (la_new _ _ L j ltac:(pose proof (la_root _ _ L j Hj); lia)). lia.
    - specialize (Hup (S i') ltac:(lia)). pose proof (la_flow _ _ L (S i') j ltac:(lia)) as Hf.
      destruct (runs_between s st (up (S i')) j Hrs Hp ltac:(lia)) as (t & Hst & Ht & _ & Hrun).
      { destruct (Nat.lt_ge_cases (done s (up (S i')) j) (done st (up (S i')) j)) as [|Hge]; [auto|].
        apply (Nat.mul_le_mono_l _ _ (F (S i'))) in Hge. lia. }
      pose proof (path_reachable _ _ Hrs Hst) as Hrt. pose proof (path_later _ _ Hrt Ht) as Lt.
      pose proof (IH (up (S i')) ltac:(lia) ltac:(lia) t j Hrt (la_conforms _ _ Lt Hc) ltac:(lia)) as H.
      pose proof (la_now _ _ (path_later _ _ Hrs Hst)). rewrite (la_source _ _ Lt); [lia|].
      pose proof (so_held _ (reachable_sound _ Hrt) (up (S i')) j ltac:(lia)). apply (so_made _ (reachable_sound _ Hrt) (up (S i')) j). lia. }
  destruct (so_made _ I i k ltac:(lia)) as (_ & Hlt & _).
  destruct (sources_most st k (now s - base) (fun j => made st i j - made s i j) (M i) I Hc Hlt) as (Ha & Hmost).
  { intros j Hj Hg. destruct (so_made _ I i j ltac:(lia)) as (_ & _ & Hm). pose proof (made_most st Hr i Hi j).
    specialize (Hnew j ltac:(lia)). split; [lia|]. split; [auto|lia]. }
  { lia. }
  assert (Hd : arr (source st k) - (now s - base) <= arr (source st k) + base - now s).
  { specialize (Hnew k Hmade). lia. }
  set (d := arr (source st k) + base - now s) in *.
  assert (Hcur : curve_m p (arr (source st k) - (now s - base) + 1) <= curve_m p (d + 1)).
  { apply curve_m_mono. lia. }
  assert (HX : B i * X + 1 <= M i * curve_m p (d + 1)) by (pose proof (Nat.mul_le_mono_l _ _ (M i) Hcur); lia).
  specialize (Htest i d Hi ltac:(destruct (curve_m p (d + 1)); lia)).
  pose proof (cdiv_ge (M i * curve_m p (d + 1)) (B i) HB) as HJ. set (J := cdiv (M i * curve_m p (d + 1)) (B i)) in *.
  assert (HXJ : S X <= J) by (apply (Nat.mul_lt_mono_pos_l (B i)); lia).
  pose proof (ends_mono i (S X) J Hi HXJ). specialize (Hnew k Hmade). lia.
Qed.
End P1.

(** * Theorem P2 *)

(** A burst is paid once: [f i Y] bounds the time from a start that clears at stage [i] to the end of all that comes of [Y]
    requests, in order of the source; in its last busy stretch the stage begins [x] full batches of them and one more, and the
    stages behind it meet only what comes of that one and of what is left. *)
Section P2.
Variable f : nat -> nat -> nat.
Definition paid_once := (forall i Y Z, i < m -> Y <= Z -> f i Y <= f i Z) /\
  (forall i x Y, i < m -> B i * x < Y -> ends i (S x) <= f i Y) /\
  (forall c x Y, 0 < c < m -> B (up c) * x < Y -> ends (up c) (S x) + f c (F c * (Y - B (up c) * x)) <= f (up c) Y).
Definition test_once := forall d, 0 < curve_m p (d + 1) -> f 0 (curve_m p (d + 1)) <= d + allowed q.

Hypothesis Hf : paid_once.
Hypothesis Htest : test_once.

(** Of source [j] what has come to stage [i] since [s], of the sources after it, up to [k], all. *)
Definition from s st i j k := sum (fun x => if x <? j then 0 else made st i x - if x =? j then made s i x else 0) (S k).

Lemma least_below (g : nat -> bool) k : g k = true -> exists j, j <= k /\ g j = true /\ forall x, x < j -> g x = false.
Proof.
  clear. induction k as [k IH] using lt_wf_ind. intros Hk. destruct (existsb g (seq 0 k)) eqn:E.
  - apply existsb_exists in E as (x & Hx & Hg). apply in_seq in Hx. destruct (IH x ltac:(lia) Hg) as (j & H1 & H2). exists j. split; [lia|auto].
  - exists k. split; [auto|]. split; [auto|]. intros x Hx. destruct (g x) eqn:Eg; [|auto].
    rewrite <- not_true_iff_false in E. destruct E. apply existsb_exists. exists x. split; [apply in_seq; lia|auto].
Qed.

(** What was begun before is no part of what was done later: counted together they are at most what has come. *)
Lemma counted (bt bs ms mt ds dt : nat -> nat) j1 j k c : j1 <= j -> j <= k -> c <= sum (fun x => bt x - bs x) (S j) ->
  (forall x, x <= j -> bt x - bs x <= mt x - ms x) -> (forall x, x < j1 -> mt x <= ms x) -> ms j <= bt j <= ds j -> bs j = ms j ->
  (forall x, dt x <= mt x) -> ds j <= dt j ->
  c + sum (fun x => if x <? j then 0 else dt x - if x =? j then ds x else 0) (S k) <=
  sum (fun x => if x <? j1 then 0 else mt x - if x =? j1 then ms x else 0) (S k).
Proof.
  clear. intros Hj1 Hjk Hc Hb Hless Hbj Hbs Hd Hdj.
  transitivity (sum (fun x => (if x <? S j then bt x - bs x else 0) + (if x <? j then 0 else dt x - if x =? j then ds x else 0)) (S k)).
  - rewrite sum_add. apply Nat.add_le_mono_r. etransitivity; [exact Hc|].
    clear - Hjk. replace (S k) with (S j + (k - j)) by lia. generalize (k - j). intros d. induction d as [|d IH].
    + rewrite Nat.add_0_r. rewrite (sum_ext (fun x => if x <? S j then _ else 0) (fun x => bt x - bs x)); [auto|].
      intros x Hx. destruct (Nat.ltb_spec x (S j)); [auto|lia].
    + rewrite Nat.add_succ_r. cbn [sum] in *. lia.
  - apply sum_mono. intros x Hx. specialize (Hb x). specialize (Hless x). specialize (Hd x). clear Hc.
    destruct (Nat.ltb_spec x j1); [|destruct (Nat.eqb_spec x j1)]; destruct (Nat.ltb_spec x (S j)), (Nat.ltb_spec x j); try lia.
    all: destruct (Nat.eqb_spec x j) as [->|]; lia.
Qed.

Lemma paid i : i < m -> forall s st j k, reachable s -> path s st -> conforms p (arrived st) -> j <= k < length (arrived st) ->
  made s i j < made st i j -> now s + f i (from s st i j k) <= arr (source st k) + allowed q.
Proof.
  induction i as [i IH] using lt_wf_ind. intros Hi s st j k Hrs Hp Hc Hjk Hj.
  pose proof (path_reachable _ _ Hrs Hp) as Hr. pose proof (reachable_sound _ Hr) as I. pose proof (path_later _ _ Hrs Hp) as L.
  pose proof Hsense as (_ & _ & Hpos & Hup). destruct Hf as (Hmono & _ & Hstep).
  assert (Hfrom : 0 < from s st i j k).
  { unfold from. pose proof (sum_one (fun x => if x <? j then 0 else made st i x - if x =? j then made s i x else 0) (S k) j ltac:(lia)) as H.
    cbv beta in H. rewrite Nat.ltb_irrefl, Nat.eqb_refl in H. lia. }
  destruct i as [|i'].
  - (* at the root all have arrived since *)
    assert (Hnew : forall x, j <= x <= k -> now s <= arr (source st x)).
    { intros x Hx. apply (la_new _ _ L). pose proof (la_root _ _ L j Hj). lia. }
    destruct (sources_most st k (now s) (fun x => if x <? j then 0 else made st 0 x - if x =? j then made s 0 x else 0) 1 I Hc ltac:(lia)) as (Ha & Hmost); [|exact Hfrom|].
    { intros x Hx Hg. cbv beta in *. destruct (Nat.ltb_spec x j); [lia|]. destruct (so_made _ I 0 x ltac:(lia)) as (_ & _ & Hm).
      pose proof (so_once _ I x). split; [lia|]. split; [auto|]. apply Hnew. lia. }
    fold (from s st 0 j k) in Hmost. set (d := arr (source st k) - now s) in *. rewrite Nat.mul_1_l in Hmost.
    pose proof (Hmono 0 _ _ Hi Hmost). specialize (Htest d ltac:(lia)). lia.
  - set (i := S i') in *. set (u := up i) in *. specialize (Hup i ltac:(lia)). fold u in Hup.
    assert (Hu : u < m) by lia. destruct (Hpos u Hu) as (HN & HB).
    (* the first begun of the batches that source [j] left the stage before with *)
    pose proof (la_flow _ _ L i j ltac:(lia)) as Hflow. fold u in Hflow.
    assert (Hd : done s u j < done st u j).
    { destruct (Nat.lt_ge_cases (done s u j) (done st u j)) as [|Hge]; [auto|]. apply (Nat.mul_le_mono_l _ _ (F i)) in Hge. lia. }
    destruct (runs_between s st u j Hrs Hp Hu Hd) as (t & Hst & Ht & Ed & Hrun).
    pose proof (path_reachable _ _ Hrs Hst) as Hrt. pose proof (la_now _ _ (path_later _ _ Hrs Hst)) as Hnow.
    destruct (runs_since t u j Hrt Hu Hrun) as (s' & t' & X & (Hrs' & Hst' & Ht' & Hq & Hsum) & Hn & Hb).
    pose proof (path_trans _ _ _ Hst' (path_trans _ _ _ Ht' Ht)) as Hp'.
    pose proof (path_later _ _ Hrs' Hst') as L1. pose proof (path_later _ _ (path_reachable _ _ Hrs' Hst') (path_trans _ _ _ Ht' Ht)) as L2.
    pose proof (path_later _ _ Hrs' Hp') as L'.
    assert (Hbegun : forall x, x <= j -> begun t' u x - begun s' u x <= made st u x - made s' u x).
    { intros x Hx. rewrite (quiet_begun s' u j x Hq Hx). pose proof (la_begun _ _ L2 u x Hu). unfold begun in *. lia. }
    pose proof (la_begun _ _ L1 u j Hu) as Hbj. rewrite (quiet_begun s' u j j Hq) in Hbj by auto. pose proof (la_done _ _ L u j Hu) as Hdj.
    assert (Hmj : made s' u j < made st u j) by (clear - Hb Hbj Hd Ed; unfold done, begun in *; lia).
    destruct (least_below (fun x => made s' u x <? made st u x) j ltac:(now apply Nat.ltb_lt)) as (j1 & Hj1 & Hm1 & Hleast).
    apply Nat.ltb_lt in Hm1.
    specialize (IH u ltac:(lia) Hu s' st j1 k Hrs' Hp' Hc ltac:(lia) Hm1).
    (* what has come of them *)
    set (G := sum (fun x => if x <? j then 0 else done st u x - if x =? j then done s u x else 0) (S k)).
    assert (HG : from s st i j k <= F i * G).
    { unfold from, G. rewrite <- sum_scale. apply sum_mono. intros x Hx. destruct (Nat.ltb_spec x j); [lia|].
      pose proof (la_flow _ _ L i x ltac:(lia)) as Hfx. fold u in Hfx. destruct (Nat.eqb_spec x j) as [->|Hne]; [rewrite Nat.mul_sub_distr_l; lia|].
      rewrite !Nat.sub_0_r. pose proof (la_flow _ _ (path_later _ _ Reach_init (reachable_path st Hr)) i x ltac:(lia)) as Hf0.
      cbn [initial made] in Hf0. fold u in Hf0. lia. }
    rewrite Ed in Hb. assert (HY : B u * X + G <= from s' st u j1 k).
    { apply (counted (begun t' u) (begun s' u) (made s' u) (made st u) (done s u) (done st u)); auto; [lia| | |].
      - intros x Hx. specialize (Hleast x Hx). now apply Nat.ltb_ge in Hleast.
      - now apply (quiet_begun s' u j).
      - intros x. unfold done, begun. lia. }
    assert (HG0 : 0 < G) by (destruct G; lia).
    specialize (Hstep i X (from s' st u j1 k) ltac:(lia)). fold u in Hstep. specialize (Hstep ltac:(lia)).
    assert (Hle : from s st i j k <= F i * (from s' st u j1 k - B u * X)).
    { etransitivity; [exact HG|]. apply Nat.mul_le_mono_l. lia. }
    pose proof (Hmono i _ _ Hi Hle). lia.
Qed.

Lemma hit_once i st k : i < m -> reachable st -> conforms p (arrived st) -> 0 < waits st i k + runs st i k ->
  now st <= arr (source st k) + allowed q.
Proof.
  intros Hi Hr Hc Hk. pose proof (reachable_sound _ Hr) as I.
  destruct (here_since st i k Hr Hi Hk) as (s & X & Hrs & Hp & Hq & Hn & Hmade & Hsum).
  destruct (so_made _ I i k ltac:(lia)) as (_ & Hlt & _).
  destruct (least_below (fun x => made s i x <? made st i x) k ltac:(now apply Nat.ltb_lt)) as (j & Hj & Hm & Hleast).
  apply Nat.ltb_lt in Hm. pose proof (paid i Hi s st j k Hrs Hp Hc ltac:(lia) Hm) as H.
  assert (HY : B i * X + 1 <= from s st i j k).
  { etransitivity; [exact Hsum|]. apply sum_mono. intros x Hx. destruct (Nat.ltb_spec x j) as [H1|H1].
    - specialize (Hleast x H1). apply Nat.ltb_ge in Hleast. lia.
    - destruct (x =? j); lia. }
  destruct Hf as (_ & Hends & _). specialize (Hends i X (from s st i j k) Hi ltac:(lia)). lia.
Qed.
End P2.

(** The least such bound: the worst of all ways to divide the requests up among the stages of a path. *)
Definition children i := filter (fun c => up c =? i) (seq 1 (m - 1)).
Fixpoint worst fuel i Y := match fuel with
  | 0 => 0
  | S fuel => list_max (map (fun x =>
      ends i (S x) + list_max (map (fun c => worst fuel c (F c * (Y - B i * x))) (children i))) (seq 0 (cdiv Y (B i))))
  end.
Definition burst i := worst (m - i) i.

Lemma in_max x l : In x l -> x <= list_max l.
Proof. clear. intros H. pose proof (proj1 (list_max_le l (list_max l)) (le_n _)) as F. rewrite Forall_forall in F. auto. Qed.

Lemma max_le l b : (forall x, In x l -> x <= b) -> list_max l <= b.
Proof. clear. intros H. apply list_max_le, Forall_forall. auto. Qed.

Lemma cdiv_above b x Y : 0 < b -> x < cdiv Y b <-> b * x < Y.
Proof.
  clear. intros Hb. split; intros H.
  - destruct (Nat.lt_ge_cases (b * x) Y) as [|Hge]; [auto|]. pose proof (cdiv_le Y b x Hb Hge). lia.
  - pose proof (cdiv_ge Y b Hb). apply (Nat.mul_lt_mono_pos_l b); lia.
Qed.

Lemma worst_mono fuel : forall fuel' i Y Z, i < m -> fuel <= fuel' -> Y <= Z -> worst fuel i Y <= worst fuel' i Z.
Proof.
  induction fuel as [|fuel IH]; intros fuel' i Y Z Hi Hfu HYZ; [cbn; lia|]. destruct fuel' as [|fuel']; [lia|].
  pose proof Hsense as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (_ & HB). cbn [worst]. apply max_le.
  intros e He. apply in_map_iff in He as (x & <- & Hx). apply in_seq in Hx.
  assert (HxY : B i * x < Y) by (apply cdiv_above; lia).
  etransitivity; [|apply in_max, (in_map (fun x => ends i (S x) + list_max (map (fun c => worst fuel' c (F c * (Z - B i * x))) (children i))) _ x)].
  - apply Nat.add_le_mono_l, max_le. intros e He. apply in_map_iff in He as (c & <- & Hc).
    etransitivity; [|apply in_max, (in_map (fun c => worst fuel' c (F c * (Z - B i * x))) _ c Hc)].
    apply filter_In in Hc as (Hc & _). apply in_seq in Hc. apply IH; [lia|lia|]. apply Nat.mul_le_mono_l. lia.
  - apply in_seq. split; [lia|]. apply cdiv_above; lia.
Qed.

Lemma worst_pays : paid_once burst.
Proof.
  pose proof Hsense as (_ & _ & Hpos & Hup).
  assert (H : forall i x Y, i < m -> B i * x < Y ->
    ends i (S x) + list_max (map (fun c => worst (m - i - 1) c (F c * (Y - B i * x))) (children i)) <= burst i Y).
  { intros i x Y Hi Hx. unfold burst. replace (m - i) with (S (m - i - 1)) by lia. cbn [worst]. rewrite Nat.sub_succ, Nat.sub_0_r.
    apply in_max, (in_map (fun x => ends i (S x) + _) _ x). apply in_seq. split; [lia|]. apply cdiv_above; [now apply Hpos|auto]. }
  split; [|split].
  - intros i Y Z Hi HYZ. now apply worst_mono.
  - intros i x Y Hi Hx. specialize (H i x Y Hi Hx). lia.
  - intros c x Y Hc Hx. specialize (Hup c Hc). etransitivity; [|apply (H (up c) x Y); [lia|auto]]. apply Nat.add_le_mono_l.
    etransitivity; [|apply in_max, (in_map (fun c' => worst (m - up c - 1) c' (F c' * (Y - B (up c) * x))) _ c)].
    + unfold burst. apply worst_mono; lia.
    + unfold children. apply filter_In. split; [apply in_seq; lia|apply Nat.eqb_refl].
Qed.
End Pipeline.

Lemma pending_here q st i j : pending q st i j -> 0 < waits st i j + runs q st i j.
Proof.
  intros [H|(w & due & b & Hw & Hrun & Hb)].
  - apply is_in in H. unfold waits. lia.
  - apply is_in in Hb. pose proof (sum_one (fun v => count (is j) (batch_of st i v)) (crew (sg q i)) w Hw) as H.
    cbv beta in H. unfold batch_of in H at 1. rewrite Hrun in H. unfold runs. lia.
Qed.

(** Stage by stage: when each is done with a source. *)
Theorem theorem_P1_stage q M R theta : sensible q -> bounds q M R theta -> test q M R ->
  forall st i j, reachable q st -> conforms (as_problem q) (arrived st) -> i < length (stages q) ->
  arr (source st j) + theta i < now st -> ~ pending q st i j.
Proof.
  intros Hs Hb Ht st i j Hr Hc Hi Hd H. pose proof (leaves_in_time q Hs M R theta Hb Ht i Hi st j Hr Hc (pending_here q st i j H)). lia.
Qed.

(** Theorem P1: if the sum of the R_i on every path from the root is at most the deadline, every mandatory source request is
    a hit. *)
Theorem theorem_P1 q M R theta : sensible q -> bounds q M R theta -> test q M R ->
  (forall i, i < length (stages q) -> theta i <= allowed q) -> all_hit q.
Proof.
  intros Hs Hb Ht Hd st Hr Hc j _ _ Hlate i Hi. apply (theorem_P1_stage q M R theta Hs Hb Ht); auto. specialize (Hd i Hi). lia.
Qed.

(** Theorem P2: the same, if a burst that has passed one stage is not met anew by the next. *)
Theorem theorem_P2 q f : sensible q -> paid_once q f -> test_once q f -> all_hit q.
Proof.
  intros Hs Hf Ht st Hr Hc j _ _ Hlate i Hi H. pose proof (hit_once q Hs f Hf Ht i st j Hi Hr Hc (pending_here q st i j H)). lia.
Qed.

(** The same with the bound computed. *)
Theorem theorem_P2_burst q : sensible q -> test_once q (burst q) -> all_hit q.
Proof. intros Hs. apply theorem_P2; [auto|now apply worst_pays]. Qed.

(** So every (m, K) of density at most rho is kept, whatever is held to be a miss: a mandatory request only if something of it
    is left when its deadline has passed, any other one as you like. *)
Theorem hit_keeps q st k s m K (missed : nat -> bool) :
  sensible q -> all_hit q -> reachable q st -> conforms (as_problem q) (arrived st) ->
  nth_error (sources q) k = Some s -> (K - m) * den s <= K * num s ->
  (forall x, missed x = true -> exists j, j < length (arrived st) /\ src (source st j) = k /\ idx (source st j) = x /\
     arr (source st j) + allowed q < now st /\
     (mandatory (as_problem q) (source st j) = true -> exists i, i < length (stages q) /\ pending q st i j)) ->
  forall i, count missed (seq (i + 1) K) <= m.
Proof.
  intros (Hs & _) Hh Hr Hc Hk Hd Hm i. rewrite Nat.add_1_r. destruct (Hs s (nth_error_In _ _ Hk)) as (Hle & Hpos & _).
  pose proof (balanced_keeps (num s) (den s) Hle Hpos i m K Hd) as Hb.
  pose proof (count_add (marked (num s) (den s)) (seq (S i) K)) as Ha. rewrite seq_length in Ha.
  transitivity (count (fun x => negb (marked (num s) (den s) x)) (seq (S i) K)); [|lia].
  apply count_mono. intros x _ Hx. destruct (marked (num s) (den s) x) eqn:Em; [exfalso|reflexivity].
  destruct (Hm x Hx) as (j & Hj & Hsrc & Hidx & Hlate & Hpend).
  assert (Hman : mandatory (as_problem q) (source st j) = true) by (unfold mandatory; cbn [streams as_problem]; now rewrite Hsrc, Hk, Hidx).
  destruct (Hpend Hman) as (i' & Hi' & Hp). now apply (Hh st Hr Hc j Hj Hman Hlate i' Hi').
Qed.
