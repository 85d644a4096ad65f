(** The invariant: what can have come is covered by what the workers begin. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words.

Ltac inv H := inversion H; subst; clear H.

(** * Lists and sums *)

Lemma sum_ext f g k : (forall i, i < k -> f i = g i) -> sum f k = sum g k.
Proof. induction k; simpl; intros H; [auto|]. rewrite IHk, H; auto. Qed.

Lemma sum_mono f g k : (forall i, i < k -> f i <= g i) -> sum f k <= sum g k.
Proof. induction k; simpl; intros H; [auto|]. specialize (IHk ltac:(auto)). specialize (H k). lia. Qed.

Lemma sum_zero k : sum (fun _ => 0) k = 0.
Proof. induction k; simpl; lia. Qed.

Lemma sum_add f g k : sum (fun i => f i + g i) k = sum f k + sum g k.
Proof. induction k; simpl; lia. Qed.

Lemma sum_lt f g k : sum f k < sum g k -> exists i, i < k /\ f i < g i.
Proof.
  induction k; simpl; intros H; [lia|].
  destruct (Nat.lt_ge_cases (f k) (g k)); [exists k; lia|].
  destruct IHk as (i & ? & ?); [lia|exists i; lia].
Qed.

Lemma sum_set f j w x k : w < k ->
  sum (fun i => f i * set j w (j w + x) i) k = sum (fun i => f i * j i) k + f w * x.
Proof.
  induction k; simpl; intros H; [lia|]. unfold set at 2. destruct (Nat.eqb_spec k w).
  - subst w. rewrite (sum_ext _ (fun i => f i * j i)); [nia|].
    intros i Hi. unfold set. destruct (Nat.eqb_spec i k); [lia|auto].
  - rewrite IHk by lia. nia.
Qed.

Lemma set_same {A} (f : nat -> A) w x : set f w x w = x.
Proof. unfold set. now rewrite Nat.eqb_refl. Qed.

Lemma set_other {A} (f : nat -> A) w x v : v <> w -> set f w x v = f v.
Proof. unfold set. intros. destruct (Nat.eqb_spec v w); congruence. Qed.

Lemma count_false {A} (l : list A) : count (fun _ => false) l = 0.
Proof. induction l; [auto|]. now rewrite count_cons. Qed.

(** Splitting [l1 ++ l2] at an element of the second half. *)
Lemma snoc_split {A} (l : list A) x a r b : l ++ [x] = a ++ r :: b ->
  (a = l /\ r = x /\ b = []) \/ exists b', b = b' ++ [x] /\ l = a ++ r :: b'.
Proof.
  intros H. destruct (exists_last (l := r :: b)) as (b' & y & E); [discriminate|].
  rewrite E, app_assoc in H. apply app_inj_tail in H as [H ->].
  destruct b' as [|z b']; simpl in E; inv E.
  - left. rewrite app_nil_r. auto.
  - right. exists b'. auto.
Qed.

(** * Requests in an interval *)

Section Core.
Variable p : problem.
Notation n := (length (workers p)).
Notation B := (B p).
Notation T := (T p).
Notation Tmax := (Tmax p).
Notation D := (deadline p).
Notation supply := (supply p).
Notation mandatory := (mandatory p).

Lemma T_le_Tmax w : w < n -> T w <= Tmax.
Proof.
  intros H. unfold Model.Tmax, Model.T.
  assert (F : Forall (fun k => k <= list_max (map time (workers p))) (map time (workers p)))
    by (apply list_max_le; auto).
  rewrite Forall_forall in F. apply F, in_map, nth_In. auto.
Qed.

(** Mandatory requests of [l] that arrive in [s, s + d). *)
Definition came l s d := count (fun r => mandatory r && within s d r) l.

(** What arrives: in order, numbered from what has come before. *)
Inductive wf (c : nat -> nat) : list request -> Prop :=
| wf_nil : wf c []
| wf_snoc l r : wf c l -> (forall x, In x l -> arr x <= arr r) -> idx r = S (c (src r) + count (of (src r)) l) ->
    wf c (l ++ [r]).

Lemma wf_suffix c l l' : wf c (l ++ l') -> wf (fun k => c k + count (of k) l) l'.
Proof.
  induction l' as [|x l' IH] using rev_ind; [constructor|]. intros H. rewrite app_assoc in H.
  inversion H as [E|l0 r H1 H2 H3 E]; [destruct (l ++ l'); discriminate|]. apply app_inj_tail in E as [-> ->].
  constructor; [auto|intros y Hy; apply H2; apply in_or_app; auto|rewrite H3, count_app; lia].
Qed.

Lemma wf_fresh c l r : wf c l -> In r l -> idx r <= c (src r) + count (of (src r)) l.
Proof.
  induction 1 as [|l x Hl IH _ Hi]; [intros []|]. rewrite count_app. intros H. apply in_app_or in H as [H|[<-|[]]]; [specialize (IH H); lia|].
  rewrite count_cons. unfold of at 2. rewrite Nat.eqb_refl. cbn [Nat.b2n]. lia.
Qed.

Lemma wf_once c a b r : wf c (a ++ b) -> In r a -> ~ In r b.
Proof.
  intros Hwf Ha. induction b as [|x b IH] using rev_ind; [intros []|]. rewrite app_assoc in Hwf.
  inversion Hwf as [E|l0 r0 H1 H2 H3 E]; [destruct (a ++ b); discriminate|]. apply app_inj_tail in E as [-> ->].
  intros H. apply in_app_or in H as [H|[->|[]]]; [now apply IH|]. pose proof (wf_fresh c (a ++ b) r H1 ltac:(apply in_or_app; auto)). lia.
Qed.

Definition only S l := forall r, In r l -> mandatory r = true -> In (src r) S.

Lemma conforms_prefix l l' : conforms p (l ++ l') -> conforms p l.
Proof. intros H k s a d E. specialize (H k s a d E). rewrite count_app in H. lia. Qed.

Lemma conforms_suffix l l' : conforms p (l ++ l') -> conforms p l'.
Proof. intros H k s a d E. specialize (H k s a d E). rewrite count_app in H. lia. Qed.

Lemma came_snoc l r s d : came (l ++ [r]) s d = came l s d + Nat.b2n (mandatory r && within s d r).
Proof. unfold came. rewrite count_app, count_cons, count_nil. lia. Qed.

Lemma came_mono l s d d' : d <= d' -> came l s d <= came l s d'.
Proof.
  intros. apply count_mono. intros r _. unfold within. rewrite !andb_true_iff, !Nat.leb_le, !Nat.ltb_lt.
  intros (? & ? & ?). repeat split; auto; lia.
Qed.

Lemma came_split l s d d' : came l s (d + d') = came l s d + came l (s + d) d'.
Proof.
  unfold came. induction l; [auto|]. rewrite !count_cons, IHl. unfold within.
  destruct (mandatory a); cbn [andb Nat.b2n]; [|lia].
  rewrite (Nat.add_assoc s d d'), (Nat.leb_antisym (arr a) (s + d)).
  destruct (Nat.leb_spec s (arr a)), (Nat.ltb_spec (arr a) (s + d + d')), (Nat.ltb_spec (arr a) (s + d)); cbn [andb negb Nat.b2n]; lia.
Qed.

(** [room]: the time from an arrival within which a batch must begin, whichever worker takes it. *)
Notation room := (D - (guard p + Tmax)).

(** From any instant [s] on, with [r0] waiting and worker [w] free [g w] later, all that can come of a load is begun in
    time. *)
Definition covers S g r0 := forall c l, wf c l -> conforms p l -> only S l ->
  forall s d, r0 + came l s (d + 1) <= supply g (d + room).

Lemma supply_mono g x y : x <= y -> supply g x <= supply g y.
Proof.
  intros. apply sum_mono. intros w _. apply Nat.mul_le_mono_l. unfold starts.
  destruct (Nat.leb_spec (g w) x), (Nat.leb_spec (g w) y); try lia.
  apply Nat.add_le_mono_r. destruct (Nat.eq_dec (T w) 0) as [->|]; [simpl; lia|]. apply Nat.div_le_mono; lia.
Qed.

(** * The invariant *)

(** The monitors count these; nothing is said of requests that came before. *)
Variable m : counted.
Notation old := (counted_from m).
Definition over_before l (r : request) := In r (firstn old l).

Definition phase st := exists G s j g r0 late0 q0 q1 before since,
  (* No worker is ever longer busy than G, and G is good enough. *)
  (forall w, w < n -> T w <= G w) /\
  (forall w, w < n -> free_at st w <= now st + G w) /\
  covers (load st) G 0 /\
  (* Since the instant [s] worker [w] has begun [j w] full batches; [q0] waits from before. *)
  waiting st = q0 ++ q1 /\
  late0 <= late st /\ s + (late st - late0) <= now st /\
  covers (load st) g r0 /\
  sum (fun w => B w * j w) n + length q1 <= r0 + came since s (now st - s + 1) /\
  (forall a r b, q1 = a ++ r :: b -> exists x,
     sum (fun w => B w * j w) n + length a + 1 <= supply g x /\ s + x + Tmax + guard p <= arr r + D) /\
  (forall w, w < n -> free_at st w <= s + (late st - late0) + g w + T w * j w) /\
  (q0 <> [] -> s + (late st - late0) = now st /\ (forall w, w < n -> j w = 0) /\ (forall w, w < n -> T w <= g w) /\
     exists v, v < n /\ running st v = None /\ length q0 < B v /\
     forall r, In r q0 -> now st + (guard p - late st) + T v <= arr r + D) /\
  (* What came under this load; and where no long batch matters, it is no matter how large the load is. *)
  arrived st = before ++ since /\ old <= length before /\ only (load st) since /\
  (clean st = true -> (forall w, w < n -> G w = T w) /\ (forall w, w < n -> g w = T w) /\ r0 = 0).

(** Or a long batch left nothing waiting, and none of the load can send before [e]; then no worker is longer busy than
    G, and G is good enough. *)
Definition hushed e st := old <= length (arrived st) /\ exists G, waiting st = [] /\ clean st = false /\ lull p m st (load st) e /\
  (forall w, w < n -> T w <= G w) /\ (forall w, w < n -> free_at st w <= e + G w) /\ covers (load st) G 0.

Record Inv st : Prop := {
  inv_late : late st <= guard p;
  inv_old : old <= length (arrived st);
  inv_past : forall r, In r (arrived st) -> arr r <= now st;
  inv_wf : wf (fun _ => 0) (arrived st);
  inv_where : forall r, In r (arrived st) -> mandatory r = true ->
    In r (waiting st) \/
    (exists w due b, w < n /\ running st w = Some (due, b) /\ In r b) \/
    over_before (arrived st) r \/ in_time p st r;
  inv_mand : forall r, In r (waiting st) -> mandatory r = true;
  inv_run : forall w due b, w < n -> running st w = Some (due, b) ->
    now st <= due /\ forall r, In r b -> mandatory r = true -> over_before (arrived st) r \/ due <= arr r + D;
  inv_phase : phase st \/ exists e, hushed e st }.

Hypothesis Hroom : guard p + Tmax <= D.

Lemma starts_lt g x w k : k < starts p g x w -> g w + T w * k <= x.
Proof.
  unfold starts. destruct (Nat.leb_spec (g w) x); [|lia]. intros.
  assert (Hk : k <= (x - g w) / T w) by lia.
  destruct (Nat.eq_dec (T w) 0) as [E|E]; [rewrite E; lia|].
  pose proof (Nat.mul_div_le (x - g w) (T w) E). nia.
Qed.

(** What waits can be begun in time: by the worker that goes next, and some worker has time for a batch
    after the one that it runs. *)
Lemma reach_wait st : late st <= guard p -> phase st ->
  (forall w, w < n -> now st <= free_at st w) -> forall r, In r (waiting st) ->
  (exists u, u < n /\ free_at st u + T u <= arr r + D) /\
  (forall w, next_up p st w -> now st + T w <= arr r + D).
Proof.
  intros Hl (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & _ & Hq & Hl0 & Hs & _ & _ & Hpos & Hf & Hold & _) Hnow r Hr.
  rewrite Hq in Hr. apply in_app_or in Hr as [Hr|Hr].
  - destruct q0 as [|y q0]; [destruct Hr|].
    destruct Hold as (_ & _ & _ & v & Hv & Hi & _ & Hd); [discriminate|]. specialize (Hd r Hr).
    split.
    + exists v. split; auto. unfold free_at. rewrite Hi. lia.
    + intros w (_ & _ & Hw). specialize (Hw v Hv Hi). lia.
  - apply in_split in Hr as (a & b & E). destruct (Hpos a r b E) as (x & Hx & Hd).
    assert (exists u, u < n /\ j u < starts p g x u) as (u & Hu & Hj).
    { destruct (sum_lt (fun w => B w * j w) (fun w => B w * starts p g x w) n) as (u & Hu & Hlt).
      - unfold Model.supply in Hx. lia.
      - exists u. split; auto. nia. }
    apply starts_lt in Hj. specialize (Hf u Hu).
    assert (free_at st u + Tmax <= arr r + D) by lia.
    split.
    + exists u. split; auto. pose proof (T_le_Tmax u Hu). lia.
    + intros w (Hw & _). pose proof (T_le_Tmax w Hw). specialize (Hnow u Hu). lia.
Qed.

Lemma Inv_now st : Inv st -> forall w, w < n -> now st <= free_at st w.
Proof.
  intros I w Hw. unfold free_at. destruct (running st w) as [[due b]|] eqn:E; [|auto].
  apply (inv_run _ I w due b Hw E).
Qed.

Lemma free_set st w x v : v < n ->
  free_at (State (now st) (late st) (arrived st) x (set (running st) w None) [] (load st) (clean st)) v =
  if v =? w then now st else free_at st v.
Proof. intros. unfold free_at, set. simpl. destruct (v =? w); auto. Qed.

Lemma split_skip {A} k (l a : list A) r b : skipn k l = a ++ r :: b -> l = (firstn k l ++ a) ++ r :: b.
Proof. intros E. rewrite <- app_assoc, <- E. symmetry. apply firstn_skipn. Qed.

Lemma skip_long {A} k (l : list A) : skipn k l <> [] -> length (firstn k l) = k.
Proof.
  intros. destruct (Nat.le_gt_cases k (length l)); [now apply firstn_length_le|].
  rewrite skipn_all2 in H by lia. congruence.
Qed.

(** After a start that leaves nothing waiting. *)
Lemma phase_clear st G (HG : forall w, w < n -> T w <= G w)
  (HF : forall w, w < n -> free_at st w <= now st + G w) (HC : covers (load st) G 0)
  (HT : clean st = true -> forall w, w < n -> G w = T w) : old <= length (arrived st) -> waiting st = [] -> phase st.
Proof.
  intros Hpast E. exists G, (now st), (fun _ => 0), G, 0, (late st), [], [], (arrived st), [].
  split; [exact HG|]. split; [exact HF|]. split; [exact HC|]. split; [exact E|].
  split; [lia|]. split; [lia|]. split; [exact HC|]. split.
  { rewrite (sum_ext _ (fun _ => 0)), sum_zero by (intros; lia). simpl. lia. }
  split. { intros a r b F. destruct a; discriminate. }
  split. { intros w Hw. specialize (HF w Hw). lia. }
  split; [congruence|]. split; [now rewrite app_nil_r|]. split; [exact Hpast|]. split; [intros r []|auto].
Qed.

(** A batch that takes what a full one does, or more, and no longer. *)
Lemma phase_start st w most b : phase st -> next_up p st w -> B w <= most ->
  phase (State (now st) (late st) (arrived st) (skipn most (waiting st))
               (set (running st) w (Some (now st + T w, b))) (answered st) (load st) (clean st)).
Proof.
  intros (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean) Hup Hmost.
  destruct Hup as (Hw & Hidle & Hmin).
  set (st' := State _ _ _ _ _ _ _ _).
  assert (Hfree : forall v, v < n -> free_at st' v = if v =? w then now st + T w else free_at st v).
  { intros v _. unfold free_at, st', set. simpl. destruct (v =? w); auto. }
  assert (Hidle' : free_at st w = now st) by (unfold free_at; now rewrite Hidle).
  assert (HG' : forall v, v < n -> free_at st' v <= now st' + G v).
  { intros v Hv. rewrite Hfree by auto. simpl. destruct (Nat.eqb_spec v w).
    - subst. specialize (HTG w Hw). lia.
    - auto. }
  destruct (list_eq_dec (fun x y : request => ltac:(decide equality; apply Nat.eq_dec) : {x = y} + {x <> y})
              (skipn most (waiting st)) []) as [Hrest|Hrest].
  { apply (phase_clear st' G); auto; [intros Hc; now apply Hclean|]. cbn [st' arrived]. rewrite Hsplit, app_length. lia. }
  pose proof (skip_long _ _ Hrest) as Hfull.
  destruct q0 as [|y q0'].
  - (* all that waits came since s: the batch is full of it *)
    simpl in Hq. rewrite Hq in *.
    exists G, s, (set j w (j w + 1)), g, r0, late0, [], (skipn most q1), before, since.
    split; [auto|]. split; [auto|]. split; [auto|]. split; [simpl; now rewrite Hq|].
    split; [auto|]. split; [auto|]. split; [auto|].
    rewrite sum_set by auto.
    assert (EL : length q1 = most + length (skipn most q1)).
    { rewrite <- (firstn_skipn most q1) at 1. rewrite app_length. lia. }
    split. { simpl. lia. }
    split.
    { intros a r c E. apply split_skip in E. destruct (Hpos _ _ _ E) as (x & Hx & Hd).
      exists x. rewrite app_length in Hx. lia. }
    split; [|split; [congruence|auto]].
    intros v Hv. rewrite Hfree by auto. simpl. specialize (Hf v Hv). unfold set.
    destruct (Nat.eqb_spec v w); [subst; rewrite Hidle' in Hf; nia|auto].
  - (* some of it waits from before s *)
    set (q0 := y :: q0') in *. destruct Hold as (Es & Hj & HTg & v & Hv & Hvi & Hvl & Hvd); [discriminate|].
    assert (Ez : sum (fun w => B w * j w) n = 0).
    { rewrite (sum_ext _ (fun _ => 0)), sum_zero; auto. intros i Hi. rewrite Hj; lia. }
    rewrite Ez in *. clearbody q0. clear y q0'.
    rewrite Hq in *. rewrite skipn_app in *. rewrite firstn_app, app_length in Hfull.
    exists G, s, j, g, r0, late0, (skipn most q0), (skipn (most - length q0) q1), before, since.
    rewrite Ez. split; [auto|]. split; [auto|]. split; [auto|].
    split; [simpl; rewrite Hq; now rewrite skipn_app|].
    split; [auto|]. split; [auto|]. split; [auto|].
    split. { simpl. pose proof (skipn_length (most - length q0) q1). lia. }
    split.
    { intros a r c E. apply split_skip in E. destruct (Hpos _ _ _ E) as (x & Hx & Hd).
      exists x. rewrite app_length in Hx. lia. }
    split.
    { intros u Hu. rewrite Hfree by auto. simpl. specialize (Hf u Hu). specialize (HTg u Hu).
      destruct (Nat.eqb_spec u w); [subst; nia|auto]. }
    split; [|auto].
    intros Hne. simpl. split; [auto|]. split; [auto|]. split; [auto|].
    exists v. pose proof (skipn_length most q0) as L.
    assert (skipn most q0 = [] \/ most < length q0) as [?|Hlt].
    { destruct (Nat.le_gt_cases (length q0) most); [left; now apply skipn_all2|auto]. }
    { congruence. }
    assert (v <> w) by (intros ->; lia).
    split; [auto|]. split; [now rewrite set_other|]. split; [lia|].
    intros r Hr. apply Hvd. rewrite <- (firstn_skipn most q0). apply in_or_app. auto.
Qed.

Lemma phase_late st : phase st -> late st < guard p ->
  (forall w due b, w < n -> running st w = Some (due, b) -> now st < due) ->
  phase (State (S (now st)) (S (late st)) (arrived st) (waiting st) (running st) (answered st) (load st) (clean st)).
Proof.
  intros (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean) Hl Hrun.
  exists G, s, j, g, r0, late0, q0, q1, before, since.
  assert (F : forall w, w < n -> free_at (State (S (now st)) (S (late st)) (arrived st) (waiting st) (running st)
    (answered st) (load st) (clean st)) w <= S (free_at st w)).
  { intros w Hw. unfold free_at. simpl. destruct (running st w) as [[due b]|]; lia. }
  split; [auto|]. split. { intros w Hw. cbn [now]. specialize (F w Hw). specialize (HG w Hw). lia. }
  split; [auto|]. split; [auto|]. split; [cbn [now late]; lia|]. split; [cbn [now late]; lia|]. split; [auto|].
  split. { cbn [arrived]. cbn [now]. etransitivity; [apply Htot|]. apply Nat.add_le_mono_l, came_mono. lia. }
  split; [auto|].
  split. { intros w Hw. specialize (F w Hw). specialize (Hf w Hw). cbn [late]. lia. }
  split; [|auto].
  intros Hne. destruct (Hold Hne) as (Es & Hj & HTg & v & Hv & Hvi & Hvl & Hvd). cbn [now late running].
  split; [lia|]. split; [auto|]. split; [auto|]. exists v. split; [auto|]. split; [auto|]. split; [auto|].
  intros r Hr. specialize (Hvd r Hr). lia.
Qed.

Lemma phase_busy st : phase st -> (forall w, w < n -> running st w <> None) ->
  phase (State (S (now st)) (late st) (arrived st) (waiting st) (running st) (answered st) (load st) (clean st)).
Proof.
  intros (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean) Hall.
  exists G, s, j, g, r0, late0, q0, q1, before, since.
  assert (F : forall w, w < n -> free_at (State (S (now st)) (late st) (arrived st) (waiting st) (running st)
    (answered st) (load st) (clean st)) w = free_at st w).
  { intros w Hw. unfold free_at. simpl. specialize (Hall w Hw). destruct (running st w) as [[due b]|]; congruence. }
  split; [auto|]. split. { intros w Hw. cbn [now]. rewrite F by auto. specialize (HG w Hw). lia. }
  split; [auto|]. split; [auto|]. split; [auto|]. split; [simpl; lia|]. split; [auto|].
  split. { cbn [arrived]. cbn [now]. etransitivity; [apply Htot|]. apply Nat.add_le_mono_l, came_mono. lia. }
  split; [auto|].
  split. { intros w Hw. rewrite F; auto. }
  split; [|auto]. intros Hne. destruct (Hold Hne) as (Es & Hj & HTg & v & Hv & Hvi & Hvl & Hvd). destruct (Hall v Hv Hvi).
Qed.

Lemma phase_rest st : phase st -> waiting st = [] \/ can_rest p st ->
  phase (State (S (now st)) 0 (arrived st) (waiting st) (running st) (answered st) (load st) (clean st)).
Proof.
  intros (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean) Hrest.
  exists G, (S (now st)), (fun _ => 0), G, 0, 0, (waiting st), [], (arrived st), [].
  assert (F : forall w, w < n -> free_at (State (S (now st)) 0 (arrived st) (waiting st) (running st)
    (answered st) (load st) (clean st)) w <= S (now st) + G w).
  { intros w Hw. specialize (HG w Hw). unfold free_at in *. simpl. destruct (running st w) as [[due b]|]; lia. }
  split; [auto|]. split; [auto|]. split; [auto|]. split; [now rewrite app_nil_r|].
  split; [auto|]. split; [simpl; lia|]. split; [auto|].
  split. { rewrite (sum_ext _ (fun _ => 0)), sum_zero by (intros; lia). simpl. lia. }
  split. { intros a r b E. destruct a; discriminate. }
  split. { intros w Hw. specialize (F w Hw). cbn [late]. lia. }
  split. 2:{ cbn. rewrite app_nil_r. split; [auto|]. split; [rewrite Hsplit, app_length; lia|]. split; [intros r []|]. intros Hc. destruct (Hclean Hc) as (H1 & _). auto. }
  intros Hne. destruct Hrest as [E|(_ & v & (Hv & Hvi & _) & Hlen & Hd)]; [congruence|].
  simpl. split; [lia|]. split; [auto|]. split; [auto|].
  exists v. split; [auto|]. split; [auto|]. split; [auto|].
  intros r Hr. specialize (Hd r Hr). lia.
Qed.

Lemma phase_arrive st r : Inv st -> phase st -> arr r = now st -> wf (fun _ => 0) (arrived st ++ [r]) ->
  conforms p (seen m (arrived st ++ [r])) -> (mandatory r = true -> In (src r) (load st)) ->
  phase (State (now st) (late st) (arrived st ++ [r])
           (if mandatory r then waiting st ++ [r] else waiting st) (running st) (answered st) (load st) (clean st)).
Proof.
  intros I Hph Ea Hwf Hc Hin. pose proof (inv_late _ I) as Hlate.
  destruct Hph as (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean).
  exists G, s, j, g, r0, late0, q0, (if mandatory r then q1 ++ [r] else q1), before, (since ++ [r]).
  assert (Hnow : within s (now st - s + 1) r = true).
  { unfold within. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. lia. }
  assert (Htot' : sum (fun w => B w * j w) n + length (if mandatory r then q1 ++ [r] else q1) <=
    r0 + came (since ++ [r]) s (now st - s + 1)).
  { rewrite came_snoc, Hnow. destruct (mandatory r); simpl; [rewrite app_length; simpl|]; lia. }
  split; [auto|]. split; [auto|]. split; [auto|].
  split. { simpl. rewrite Hq. destruct (mandatory r); [now rewrite app_assoc|auto]. }
  assert (Honly' : only (load st) (since ++ [r])).
  { intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; auto. }
  rewrite Hsplit, <- app_assoc in Hwf, Hc. apply conforms_suffix in Hc. rewrite skipn_app in Hc. apply conforms_suffix in Hc.
  replace (old - length before) with 0 in Hc by lia.
  split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|].
  split; [|split; [auto|split; [auto|]]].
  2:{ cbn. rewrite Hsplit, app_assoc. auto. }
  intros a x b E. destruct (mandatory r) eqn:Em; [|eauto].
  apply snoc_split in E as [(-> & -> & ->)|(b' & -> & ->)]; [|eauto].
  exists (now st - s + room). split; [|lia].
  specialize (Hcg _ _ (wf_suffix _ _ _ Hwf) Hc Honly' s (now st - s)). rewrite app_length in Htot'. simpl in Htot'. lia.
Qed.

(** alpha_m bounds what comes ([came_curve] of TheoremA.v). *)
Hypothesis Hcurve : forall S c l, wf c l -> conforms p l -> only S l -> forall s d, came l s d <= curve_of p S d.

(** What is begun in [a] more: where no worker is free later than a batch after [b], [sigma a] at least. *)
Lemma sigma_supply g a b : (forall w, w < n -> g w <= b + T w) -> sigma p a + supply g b <= supply g (a + b).
Proof.
  clear Hroom Hcurve. intros Hg. unfold sigma, Model.supply. rewrite <- sum_add. apply sum_mono. intros w Hw.
  rewrite <- Nat.mul_add_distr_l. apply Nat.mul_le_mono_l. specialize (Hg w Hw). unfold starts.
  destruct (Nat.eq_dec (T w) 0) as [E|E].
  { rewrite E in *. cbn [Nat.div Nat.divmod]. destruct (Nat.leb_spec (g w) b), (Nat.leb_spec (g w) (a + b)); cbn; lia. }
  pose proof (Nat.mul_div_le a (T w) E).
  destruct (Nat.leb_spec (g w) b) as [Hb|Hb]; [|rewrite Nat.add_0_r].
  - destruct (Nat.leb_spec (g w) (a + b)); [|lia]. rewrite Nat.add_assoc. apply Nat.add_le_mono_r.
    pose proof (Nat.mul_div_le (b - g w) (T w) E). apply Nat.div_le_lower_bound; [auto|]. lia.
  - destruct (Nat.leb_spec (g w) (a + b)) as [Ha|Ha].
    + destruct (Nat.eq_dec (a / T w) 0) as [->|Ea]; [lia|].
      assert (a / T w - 1 <= (a + b - g w) / T w); [|lia].
      apply Nat.div_le_lower_bound; [auto|]. nia.
    + rewrite Nat.div_small; lia.
Qed.

(** The curve covers what comes, and need be looked at only until a busy period is over. *)
Lemma curve_covers S g r0 : (forall w, w < n -> g w <= room + T w) ->
  (forall d, (exists x, x <= d /\ over p S x) \/ r0 + curve_of p S (d + 1) <= supply g (d + room)) -> covers S g r0.
Proof.
  clear Hroom. intros Hg Hok c l Hwf Hc Ho s d. revert s. induction d as [d IH] using lt_wf_ind. intros s.
  destruct (Hok d) as [(x & Hx & Hx0 & Hover)|Hd].
  - replace (d + 1) with (x + (d - x + 1)) by lia. rewrite came_split.
    pose proof (Hcurve S c l Hwf Hc Ho s x). specialize (IH (d - x) ltac:(lia) (s + x)).
    pose proof (sigma_supply g x (d - x + room)) as H1.
    specialize (H1 ltac:(intros w Hw; specialize (Hg w Hw); lia)).
    replace (x + (d - x + room)) with (d + room) in H1 by lia. lia.
  - pose proof (Hcurve S c l Hwf Hc Ho s (d + 1)). lia.
Qed.

Lemma bearable_covers S g r0 : bearable p S g r0 -> covers S g r0.
Proof.
  clear Hroom. intros (Hroom & Hg & Hok). apply curve_covers.
  - intros w Hw. specialize (Hg w Hw). lia.
  - intros d. destruct (Hok d) as [?|(x & Hx & Hd)]; [auto|right].
    etransitivity; [exact Hx|]. apply supply_mono. lia.
Qed.

Lemma covers_less S g r0 : covers S g r0 -> covers S g 0.
Proof. intros H c l Hwf Hc Ho s d. specialize (H c l Hwf Hc Ho s d). lia. Qed.

Lemma supply_ext g g' x : (forall w, w < n -> g w = g' w) -> supply g x = supply g' x.
Proof. intros H. apply sum_ext. intros w Hw. unfold starts. now rewrite (H w Hw). Qed.

Lemma covers_ext S g g' r0 : (forall w, w < n -> g w = g' w) -> covers S g r0 -> covers S g' r0.
Proof.
  intros H Hc c l Hwf Hcf Ho s d. specialize (Hc c l Hwf Hcf Ho s d). now rewrite (supply_ext g g') in Hc.
Qed.

(** The state [st] as if what it runs had just begun, with [g w] for worker [w]. *)
Lemma phase_anew st g : old <= length (arrived st) -> (forall w, w < n -> T w <= g w) -> (forall w, w < n -> free_at st w <= now st + g w) ->
  in_order p (now st) g (waiting st) -> covers (load st) g (length (waiting st)) -> clean st = false -> phase st.
Proof.
  intros Hpast HTg Hfree Hrest Hc Hclean.
  exists g, (now st), (fun _ => 0), g, (length (waiting st)), (late st), [], (waiting st), (arrived st), [].
  assert (Ez : sum (fun w => B w * 0) n = 0) by (rewrite (sum_ext _ (fun _ => 0)), sum_zero; auto; intros; lia).
  rewrite Ez.
  split; [auto|]. split; [exact Hfree|]. split; [now apply (covers_less _ _ _ Hc)|]. split; [reflexivity|].
  split; [auto|]. split; [lia|]. split; [auto|]. split; [lia|].
  split. { intros a r b E. destruct (Hrest a r b E) as (x & Hx & Hd). exists x. split; [|auto]. lia. }
  split. { intros v Hv. specialize (Hfree v Hv). lia. }
  split; [congruence|]. split; [now rewrite app_nil_r|]. split; [exact Hpast|]. split; [intros r []|congruence].
Qed.

(** A batch that the shield allows, of however many requests. *)
Lemma phase_long st w most l S b : old <= length (arrived st) -> shield p m st w l S (firstn most (waiting st)) (skipn most (waiting st)) ->
  let st' := State (now st) (late st) (arrived st) (skipn most (waiting st))
               (set (running st) w (Some (now st + l, b))) (answered st) S false in
  phase st' \/ exists e, hushed e st'.
Proof.
  intros Hpast (HTl & _ & e & He & Hrest & Hcome). set (st' := State _ _ _ _ _ _ _ _). cbv zeta.
  assert (HT : forall v, v < n -> T v <= after p st w l e v) by (intros v _; unfold after; lia).
  assert (HF : forall v, v < n -> free_at st' v <= e + after p st w l e v).
  { intros v _. assert (E : free_at st' v = if v =? w then now st + l else free_at st v)
      by (unfold free_at, st', set; cbn [running now]; destruct (v =? w); auto).
    rewrite E. unfold after. destruct (v =? w); lia. }
  pose proof (bearable_covers _ _ _ Hcome) as Hcov.
  destruct He as [(-> & ->)|(Hq & _ & Hl)]; [left; now apply (phase_anew st' (after p st w l (now st)))|right].
  exists e. split; [exact Hpast|]. exists (after p st w l e). split; [exact Hq|]. split; [reflexivity|]. split; [exact Hl|].
  split; [exact HT|]. split; [exact HF|]. rewrite Hq in Hcov. exact Hcov.
Qed.

(** Where no stream is counted nothing mandatory can come, and nothing is too long. *)
Lemma phase_unpromised st : old <= length (arrived st) -> load st = [] -> waiting st = [] -> clean st = false -> phase st.
Proof.
  intros Hpast HS Hq Hc. apply (phase_clear st (fun v => Nat.max (T v) (free_at st v - now st))); auto.
  - intros w _. lia.
  - intros w _. lia.
  - rewrite HS. intros c l _ _ Ho s d. unfold came. rewrite (count_ext _ (fun _ => false)), count_false; [lia|].
    intros r Hr. destruct (mandatory r) eqn:E; [destruct (Ho r Hr E)|reflexivity].
  - congruence.
Qed.

Lemma seen_app l l' : old <= length l -> seen m (l ++ l') = seen m l ++ l'.
Proof. intros H. unfold seen. rewrite skipn_app, <- app_assoc. replace (old - length l) with 0 by lia. reflexivity. Qed.

Lemma over_more l l' r : old <= length l -> over_before l r -> over_before (l ++ l') r.
Proof. intros H. unfold over_before. rewrite firstn_app. replace (old - length l) with 0 by lia. cbn. now rewrite app_nil_r. Qed.

(** Whoever came in the lull would not have kept to the declaration. *)
Lemma lull_quiet st S e r : old <= length (arrived st) -> lull p m st S e -> In (src r) S -> mandatory r = true -> arr r = now st ->
  conforms p (seen m (arrived st ++ [r])) -> e = now st.
Proof.
  intros Hpast (He & Hl) HS Hm Ha Hc. rewrite seen_app in Hc by auto. destruct (Nat.eq_dec e (now st)); [auto|exfalso].
  unfold Model.mandatory in Hm. destruct (nth_error (streams p) (src r)) as [s|] eqn:E; [|discriminate].
  destruct (Hl (src r) s (now st) HS E ltac:(lia)) as (a & d & Had & Hd).
  specialize (Hc (src r) s a d E). rewrite count_app, count_cons, count_nil in Hc.
  unfold of at 2, within at 2 in Hc. rewrite Nat.eqb_refl, Ha in Hc.
  destruct (Nat.leb_spec a (now st)), (Nat.ltb_spec (now st) (a + d)); try lia. cbn [andb Nat.b2n] in Hc. lia.
Qed.

(** In the lull nothing waits, and what begins is over a batch after it. *)
Lemma hushed_goes e st st' l : hushed e st -> arrived st' = arrived st ++ l -> now st <= now st' <= e ->
  waiting st' = [] -> clean st' = clean st -> load st' = load st ->
  (forall w, w < n -> free_at st' w <= Nat.max (free_at st w) (e + T w)) -> hushed e st'.
Proof.
  intros (Hpast & G & _ & Hc & (_ & Hl) & HTG & HF & HG) Ha Hn Hq Hc' Hload Hfree.
  split; [rewrite Ha, app_length; lia|]. exists G. rewrite Hc', Hload.
  split; [auto|]. split; [auto|]. split; [|split; [auto|split; [|auto]]].
  - split; [lia|]. intros k s x HS E Hx. destruct (Hl k s x HS E ltac:(lia)) as (a & d & Had & Hd).
    exists a, d. split; [auto|]. rewrite Ha, seen_app, count_app by auto. lia.
  - intros w Hw. specialize (Hfree w Hw). specialize (HF w Hw). specialize (HTG w Hw). lia.
Qed.

(** At the end of the lull all curves begin afresh. *)
Lemma hushed_over st : hushed (now st) st -> phase st.
Proof.
  intros (Hpast & G & Hq & Hc & _ & HTG & HF & HG). apply (phase_clear st G); auto. congruence.
Qed.

Lemma hushed_tick e st late' : hushed e st -> now st < e ->
  hushed e (State (S (now st)) late' (arrived st) (waiting st) (running st) (answered st) (load st) (clean st)).
Proof.
  intros H Hn. apply (hushed_goes e st _ []); auto; cbn [now arrived waiting clean load].
  - now rewrite app_nil_r.
  - lia.
  - now destruct H as (_ & _ & Hq & _).
  - intros w _. unfold free_at. cbn [running now]. destruct (running st w) as [(due, b)|]; lia.
Qed.

(** Newcomers, and the end of counting who has left. *)
Lemma phase_change st S c : old <= length (arrived st) -> (phase st \/ exists e, hushed e st) -> ready p st S c ->
  phase (State (now st) (late st) (arrived st) (waiting st) (running st) (answered st) S c).
Proof.
  intros Hold' Hph (HS & Hr). pose proof (bearable_covers _ _ _ HS) as HcT. set (st' := State _ _ _ _ _ _ _ _).
  destruct Hr as [((Hq & Hf) & ->)|[(Hc & Hincl & ->)|(Hrest & Hcome & ->)]].
  - apply (phase_clear st' T); auto.
  - destruct Hph as [Hph|(e & _ & G & _ & Hc' & _)]; [|congruence].
    destruct Hph as (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean).
    destruct (Hclean Hc) as (EG & Eg & ->).
    exists G, s, j, g, 0, late0, q0, q1, before, since.
    split; [auto|]. split; [auto|].
    split; [apply (covers_ext _ T); auto; intros; symmetry; auto|].
    split; [auto|]. split; [auto|]. split; [auto|].
    split; [apply (covers_ext _ T); auto; intros; symmetry; auto|].
    split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [|auto].
    intros r Hr Hm. apply Hincl. now apply Honly.
  - apply (phase_anew st' (still p st)); auto; [| |now apply bearable_covers].
    + intros v _. unfold still. lia.
    + intros v _. change (free_at st' v) with (free_at st v). unfold still. cbn [st' now]. lia.
Qed.

Lemma arrived_wf st r : Inv st -> arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
  wf (fun _ => 0) (arrived st ++ [r]).
Proof.
  intros I Ea Ei. constructor; auto; [apply I|]. intros x Hx. rewrite Ea. now apply I.
Qed.

Lemma Inv_waits st r : Inv st -> In r (waiting st) -> phase st.
Proof.
  intros I Hr. destruct (inv_phase _ I) as [H|(e & _ & G & Hq & _)]; [auto|]. rewrite Hq in Hr. destruct Hr.
Qed.

Lemma Inv_reach st r : Inv st -> In r (waiting st) ->
  (exists u, u < n /\ free_at st u + T u <= arr r + D) /\ (forall w, next_up p st w -> now st + T w <= arr r + D).
Proof.
  intros I Hr. now apply (reach_wait st (inv_late _ I) (Inv_waits st r I Hr) (Inv_now _ I)).
Qed.

Lemma never_hopeless st r : Inv st -> In r (waiting st) -> ~ hopeless p st r.
Proof.
  intros I Hr Hh. destruct Hh as [Hh|(w & Hup & Hh)].
  - destruct (Inv_reach st r I Hr) as ((u & Hu & Hd) & _). specialize (Hh u Hu). pose proof (Inv_now _ I u Hu). lia.
  - pose proof (phase_start st w (B w) [] (Inv_waits st r I Hr) Hup (le_n _)) as Hph.
    set (st' := State _ _ _ _ _ _ _ _) in Hph.
    assert (Hfree : forall v, free_at st' v = if v =? w then now st + T w else free_at st v).
    { intros v. unfold free_at, st', set. cbn [running now]. destruct (v =? w); auto. }
    assert (Hnow' : forall v, v < n -> now st' <= free_at st' v).
    { intros v Hv. rewrite Hfree. pose proof (Inv_now _ I v Hv). destruct (v =? w); cbn [now st']; lia. }
    rewrite <- (firstn_skipn (B w) (waiting st)), count_app in Hh.
    pose proof (count_le_length (doomed p st w) (firstn (B w) (waiting st))) as H1.
    pose proof (firstn_le_length (B w) (waiting st)).
    rewrite firstn_length in H1.
    assert (Hz : count (doomed p st w) (skipn (B w) (waiting st)) = 0); [|lia].
    apply Nat.le_0_r. apply Nat.le_trans with (count (fun _ => false) (skipn (B w) (waiting st))); [apply count_mono|].
    + intros x Hx Hdoom. destruct (reach_wait st' (inv_late _ I) Hph Hnow' x Hx) as ((u & Hu & Hd) & _).
      unfold doomed in Hdoom. rewrite forallb_forall in Hdoom. specialize (Hdoom u).
      rewrite in_seq, Nat.ltb_lt, <- Hfree in Hdoom. specialize (Hdoom ltac:(lia)). lia.
    + now rewrite count_false.
Qed.

Lemma Inv_step st st' : Inv st -> step_by p m st st' -> conforms p (seen m (arrived st')) -> Inv st'.
Proof.
  intros I Hstep Hc.
  assert (Hreach : forall r, In r (waiting st) -> forall w, next_up p st w -> now st + T w <= arr r + D)
    by (intros r Hr; now apply (Inv_reach st r I)).
  inv Hstep.
  - (* Arrive *)
    rename H into Ea, H0 into Ei, H1 into Hin. cbn [arrived] in Hc. pose proof (arrived_wf _ _ I Ea Ei) as Hwf.
    constructor; cbn [now late arrived waiting running answered load clean]; auto; try apply I.
    + rewrite app_length. pose proof (inv_old _ I). lia.
    + intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply I|lia].
    + intros x Hx Hm. apply in_app_or in Hx as [Hx|[<-|[]]].
      * destruct (inv_where _ I x Hx Hm) as [?|[?|[?|?]]]; auto.
        2:{ right; right; left. apply over_more; auto; apply I. }
        left. destruct (mandatory r); auto. apply in_or_app. auto.
      * left. rewrite Hm. apply in_or_app. simpl. auto.
    + intros x Hx. destruct (mandatory r) eqn:Em; [|now apply I].
      apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply I|auto].
    + intros w due b Hw E. destruct (inv_run _ I w due b Hw E) as (H1 & H2). split; [auto|]. intros x Hx Hm.
      destruct (H2 x Hx Hm); [left; apply over_more; auto; apply I|auto].
    + destruct (inv_phase _ I) as [Hph|(e & He)]; [left; now apply phase_arrive|].
      destruct (mandatory r) eqn:Em.
      * pose proof He as (Hpast & _ & _ & _ & Hl & _). left.
        rewrite (lull_quiet _ _ _ _ Hpast Hl (Hin eq_refl) Em Ea Hc) in He. apply hushed_over in He.
        pose proof (phase_arrive st r I He Ea Hwf Hc (fun _ => Hin eq_refl)) as Hph. rewrite Em in Hph. auto.
      * right. exists e. pose proof He as (_ & _ & Hq & _ & (Hn & _) & _).
        apply (hushed_goes e st _ [r]); auto.
        intros w _. change (free_at st w <= Nat.max (free_at st w) (e + T w)). lia.
  - (* Start *)
    rename H into Hup, H0 into Hmost, H2 into Hoth, H3 into Hlen. pose proof Hup as (Hw & Hidle & _).
    assert (Hd : forall r, In r (firstn most (waiting st)) -> now st + l <= arr r + D).
    { intros r Hr. destruct Hlen as [(-> & _)|[((_ & Hb & _) & _)|(_ & Hq & _)]]; [|auto|].
      - apply (Hreach r); auto. rewrite <- (firstn_skipn most). apply in_or_app. auto.
      - rewrite Hq, firstn_nil in Hr. destruct Hr. }
    constructor; cbn [now late arrived waiting running answered load clean]; try apply I.
    + intros r Hr Hm. destruct (inv_where _ I r Hr Hm) as [Hq|[(v & due & b & Hv & Hrun & Hb)|?]]; auto.
      * rewrite <- (firstn_skipn most) in Hq. apply in_app_or in Hq as [Hq|Hq]; auto.
        right. left. exists w. rewrite set_same. eexists _, _. split; [auto|]. split; [reflexivity|].
        apply in_or_app. auto.
      * right. left. exists v, due, b. rewrite set_other; [auto|]. congruence.
    + intros r Hr. apply I. rewrite <- (firstn_skipn most). apply in_or_app. auto.
    + intros v due b Hv. destruct (Nat.eq_dec v w) as [->|Hne].
      * rewrite set_same. intros E. inv E. split; [lia|]. intros r Hr Hm. apply in_app_or in Hr as [Hr|Hr]; [auto|].
        destruct (Hoth r Hr). congruence.
      * rewrite set_other by auto. now apply I.
    + destruct Hlen as [(-> & -> & ->)|[(Hlong & ->)|(_ & Hq & -> & ->)]].
      2: apply phase_long; auto; apply I.
      2: left; apply phase_unpromised; auto; [apply I|cbn [waiting]; rewrite Hq; apply skipn_nil].
      destruct (inv_phase _ I) as [Hph|(e & He)]; [left; now apply phase_start|right]. exists e.
      pose proof He as (_ & _ & Hq & _ & (Hn & _) & _). apply (hushed_goes e st _ []); auto; cbn [now arrived waiting clean load].
      * now rewrite app_nil_r.
      * rewrite Hq. apply skipn_nil.
      * intros v _. unfold free_at at 1, set. cbn [running now]. destruct (Nat.eqb_spec v w) as [->|]; [cbn -[Nat.max]; lia|].
        apply Nat.le_max_l.
  - (* Finish *)
    rename H into Hw, H0 into Hrun.
    constructor; cbn [now late arrived waiting running answered load clean]; try apply I.
    + intros r Hr Hm. destruct (inv_where _ I r Hr Hm) as [?|[(v & due' & b' & Hv & Hrun' & Hb)|[?|(t & Ht & Hd)]]]; auto.
      * destruct (Nat.eq_dec v w) as [->|Hne].
        -- rewrite Hrun in Hrun'. inv Hrun'. right. right.
           destruct (inv_run _ I w due' b' Hw Hrun) as (? & Hb'). destruct (Hb' r Hb Hm); [now left|right]. exists (now st).
           split; [|lia]. apply in_or_app. right. apply in_map_iff. exists r. auto.
        -- right. left. exists v, due', b'. rewrite set_other; auto.
      * right. right. right. exists t. cbn [answered]. split; [|auto]. apply in_or_app. auto.
    + intros v due' b' Hv. unfold set. destruct (Nat.eqb_spec v w); [discriminate|]. now apply I.
    + assert (F : forall v, v < n -> free_at (State (now st) (late st) (arrived st) (waiting st)
        (set (running st) w None) (answered st ++ map (fun r => (r, now st)) b) (load st) (clean st)) v <= free_at st v).
      { intros v Hv. pose proof (Inv_now _ I v Hv). unfold free_at at 1, set. cbn [running now].
        destruct (v =? w); [auto|]. reflexivity. }
      destruct (inv_phase _ I) as [Hph|(e & He)].
      2:{ right. exists e. pose proof He as (_ & _ & Hq & _ & (Hn & _) & _).
          apply (hushed_goes e st _ []); auto; cbn [now arrived]; [now rewrite app_nil_r|].
          intros v Hv. specialize (F v Hv). lia. }
      left. destruct Hph as (G & s & j & g & r0 & late0 & q0 & q1 & before & since & HTG & HG & HcG & Hq & Hl0 & Hs & Hcg & Htot & Hpos & Hf & Hold & Hsplit & Hpast & Honly & Hclean).
      exists G, s, j, g, r0, late0, q0, q1, before, since. cbn [now late arrived waiting load clean].
      split; [auto|]. split. { intros v Hv. specialize (F v Hv). specialize (HG v Hv). lia. }
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|].
      split. { intros v Hv. specialize (F v Hv). specialize (Hf v Hv). lia. }
      split; [|auto]. intros Hne. destruct (Hold Hne) as (Es & Hj & HTg & v & Hv & Hvi & Hvl & Hvd).
      split; [auto|]. split; [auto|]. split; [auto|]. exists v. split; [auto|]. cbn [running].
      split; [unfold set; destruct (v =? w); auto|auto].
  - (* Change *)
    rename H into Hready. constructor; cbn [now late arrived waiting running answered load clean]; try apply I.
    left. apply (phase_change st); auto; apply I.
  - (* Refuse *)
    exfalso. apply (never_hopeless st r I); auto. rewrite H. apply in_or_app. simpl. auto.
  - (* Tick *)
    rename H into Hdue, H0 into Hcase.
    assert (Hwhere : forall r, In r (arrived st) -> mandatory r = true ->
      In r (waiting st) \/ (exists w due b, w < n /\ running st w = Some (due, b) /\ In r b) \/
      over_before (arrived st) r \/ in_time p st r) by apply I.
    constructor; cbn [now late arrived waiting running answered load clean]; try apply I; auto.
    + pose proof (inv_late _ I). destruct Hcase as [(-> & _)|[(-> & _)|(-> & ?)]]; lia.
    + intros r Hr. pose proof (inv_past _ I r Hr). lia.
    + intros w due b Hw Hrun. specialize (Hdue w due b Hw Hrun). split; [lia|]. now apply (inv_run _ I w due b).
    + assert (Hph : phase st \/ exists e, now st < e /\ hushed e st).
      { destruct (inv_phase _ I) as [?|(e & He)]; [auto|]. pose proof He as (_ & _ & _ & _ & (Hn & _) & _).
        destruct (Nat.eq_dec e (now st)) as [->|]; [left; now apply hushed_over|right; exists e; split; [lia|auto]]. }
      destruct Hph as [Hph|(e & He & Hhush)]; [left|right; exists e; now apply hushed_tick].
      destruct Hcase as [(-> & Hr)|[(-> & Hb)|(-> & Hl)]].
      * apply phase_rest; auto; apply I.
      * apply phase_busy; auto; apply I.
      * apply phase_late; auto; apply I.
Qed.

(** What is over is settled: it came before, or was answered in time. *)
Lemma Inv_settled st r : Inv st -> In r (arrived st) -> mandatory r = true -> arr r + D < now st ->
  over_before (arrived st) r \/ in_time p st r.
Proof.
  intros I Hin Hm Hd. destruct (inv_where _ I r Hin Hm) as [Hq|[(w & due & b & Hw & Hrun & Hb)|?]]; auto.
  - destruct (Inv_reach st r I Hq) as ((u & Hu & Hl) & _). pose proof (Inv_now _ I u Hu). lia.
  - destruct (inv_run _ I w due b Hw Hrun) as (Hn & Hl). destruct (Hl r Hb Hm); [auto|lia].
Qed.
End Core.

(** * From the beginning on *)

Section Reachable.
Variable p : problem.
Hypothesis Hroom : guard p + Tmax p <= deadline p.
Hypothesis Hcurve : forall S c l, wf c l -> conforms p l -> only p S l -> forall s d, came p l s d <= curve_of p S d.

Theorem Inv_reachable S : covers p S (T p) 0 -> forall st, reachable_from p S st -> conforms p (arrived st) -> Inv p everything st.
Proof.
  intros Hc st Hr. induction Hr as [|st st' Hr IH Hs]; intros Hcf.
  - constructor; cbn; try lia; try contradiction; try discriminate; [constructor|].
    left. apply (phase_clear p everything Hroom _ (T p)); auto. intros w Hw. cbn. lia.
  - apply (Inv_step p everything Hroom Hcurve st); auto. apply IH. inv Hs; auto. now apply (conforms_prefix p _ [r]).
Qed.

(** What covers serves, whatever loads follow. *)
Theorem covers_serve S : covers p S (T p) 0 -> serves_from p S.
Proof.
  intros Hc st Hr Hcf r Hin Hm Hd.
  destruct (Inv_settled p everything Hroom st r (Inv_reachable S Hc st Hr Hcf) Hin Hm Hd) as [[]|?]; auto.
Qed.

(** The scheduler never refuses a mandatory request. *)
Theorem never_refuses S : covers p S (T p) 0 -> forall st, reachable_from p S st -> conforms p (arrived st) ->
  forall r, In r (waiting st) -> ~ hopeless p st r.
Proof. intros. apply (never_hopeless p everything Hroom); auto. now apply (Inv_reachable S). Qed.
End Reachable.
