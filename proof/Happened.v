(** Services that share workers by deadline: what happened, and what follows from it of how many batches have begun.

    All that begins is written down, and so is what comes, when a worker is left idle, and each instant that is over: from any
    of these on Theorem E may count, as long as none is left idle. *)
Require Import List Arith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

Section Happened.
Variable q : sharing.
Notation n := (crew q).
Notation m := (length (services q)).
Notation B i := (size (sv q i)).
Notation P i := (span (sv q i)).
Notation g := (lateness q).
Notation D i := (limit (sv q i) + g).
Notation p := (as_problem q 0).
Notation alpha := (alpha q).
Variable X : nat -> nat.

(** One batch of [k] less. *)
Definition less (c : nat -> nat) k j := c j - if j =? k then 1 else 0.

(** What comes from [y] before the deadline of the request looked at, and may go first. *)
Definition come y j := if D j <=? y then alpha j (y - D j + 1) else 0.

(** * What happened *)

Inductive entry := Came (r : request) | Began (w i t : nat) (b : list request) | Passed (t : nat) | Idled.

Definition taken j l := flat_map (fun e => match e with Began _ i _ b => if i =? j then b else [] | _ => [] end) l.
Definition batches j l := count (fun e => match e with Began _ i _ _ => i =? j | _ => false end) l.
Definition begun v l j := count (fun e => match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) l.
Definition offset e v := match e with
  | Came r => arr r + longest q
  | Began w i t _ => t + if v =? w then P i else longest q
  | Passed t => t + longest q
  | Idled => 0
  end.
Definition at_ e := match e with Came r => arr r | Began _ _ t _ => t | Passed t => t | Idled => 0 end.
Definition early d j r := arr r + D j <=? d.

Lemma taken_app j a b : taken j (a ++ b) = taken j a ++ taken j b.
Proof. apply flat_map_app. Qed.

(** Counted from [u], at which some of [l] may be waiting. *)
Definition counts u st l := u <= now st /\ (forall j x, In x (taken j l ++ waiting st j) -> u <= arr x + X j) /\
  forall w i t b, In (Began w i t b) l -> u <= t.

(** Counted from an entry, or from when the next batch begins, of whose worker nothing is left then. *)
Definition point e st l := counts (at_ e) st l /\
  ((forall w i t b, ~ In (Began w i t b) l) \/
   exists w u, w < n /\ at_ e <= u <= at_ e + longest q /\ counts u st l /\ free_at st w <= u + late st + over st + work q (begun w l)).

(** Nothing is said of [old] requests. *)
Variable past : nat.
Variable old : request -> Prop.

Record Inv st log : Prop := {
  inv_wf : wf (fun _ => 0) (arrived st);
  inv_fresh : fresh q past (arrived st);
  inv_late : late st <= g;
  inv_over : over st <= excess q;
  inv_past : forall r, In r (arrived st) -> arr r <= now st;
  inv_where : forall r, In r (arrived st) -> mandatory p r = true ->
    In r (waiting st (home q (src r))) \/ (exists w due b, w < n /\ running st w = Some (due, b) /\ In r b) \/
    old r \/ in_time (as_problem q (home q (src r))) (view st) r;
  inv_run : forall w due b, w < n -> running st w = Some (due, b) -> now st <= due <= now st + longest q + over st /\
    forall r, In r b -> mandatory p r = true -> old r \/ due <= arr r + D (home q (src r));
  inv_wait : forall i r, In r (waiting st i) -> mandatory p r = true /\ home q (src r) = i /\ arr r <= now st /\ now st + excess q <= arr r + X i + over st;
  inv_sorted : forall i, StronglySorted (fun r r' => arr r <= arr r') (waiting st i);
  (* nothing is left idle *)
  inv_load : forall l1 e l2, log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) ->
    forall v, v < n -> free_at st v <= offset e v + late st + over st + work q (begun v l2);
  (* what was taken or waits after a start *)
  inv_order : forall l1 w i t b l2, log = l1 ++ Began w i t b :: l2 ->
    b <> [] /\ i < m /\ w < n /\ t <= now st /\ (forall r, In r b -> arr r <= t <= arr r + X i) /\
    (forall h tl j x, b = h :: tl -> In x (taken j l2 ++ waiting st j) ->
       t <= arr x \/ t <= arr x + X j /\ arr h + D i <= arr x + D j) /\
    (forall x, In x (taken i l2 ++ waiting st i) -> (length b < B i -> t <= arr x) /\ forall r, In r b -> arr r <= arr x);
  (* since nothing with a deadline up to [d] waited *)
  inv_clear : forall d, (exists j x, In x (waiting st j) /\ early d j x = true) ->
    exists l1 r l2, log = l1 ++ Came r :: l2 /\ ~ In Idled l2 /\
      (forall j x, In x (taken j l2 ++ waiting st j) -> early d j x = true -> arr r <= arr x) /\
      (forall w i t h tl, In (Began w i t (h :: tl)) l2 -> early d i h = true);
  inv_point : forall l1 e l2, log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) -> point e st l2;
  (* each instant that is over since an entry is written down *)
  inv_marks : forall l1 e l2, log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) -> forall t, at_ e <= t < now st -> In (Passed t) (e :: l2);
  inv_count : forall j f, count f (taken j log ++ waiting st j) <=
    count (fun r => at_home q j r && (mandatory p r && f r)) (skipn past (arrived st)) }.

Hypothesis Hsense : sensible q.

(** The last one that [f] says of. *)
Lemma last_such (f : entry -> list entry -> bool) l :
  (forall b1 e b2, l = b1 ++ e :: b2 -> f e b2 = false) \/
  exists b1 e b2, l = b1 ++ e :: b2 /\ f e b2 = true /\ forall c1 e' c2, b2 = c1 ++ e' :: c2 -> f e' c2 = false.
Proof.
  clear. induction l as [|e l IH]; [left; intros [|? ?]; discriminate|].
  destruct IH as [IH|(b1 & e' & b2 & -> & H)].
  - destruct (f e l) eqn:E; [right; exists [], e, l; auto|left]. intros [|e0 b1] e' b2 E'; cbn in E'; injection E' as -> E'; [now subst|].
    now apply (IH b1).
  - right. exists (e :: b1), e', b2. auto.
Qed.

Lemma batches_split j l : 0 < batches j l -> exists b1 w t b b2, l = b1 ++ Began w j t b :: b2.
Proof.
  clear. induction l as [|e l IH]; [intros H; unfold batches in H; rewrite count_nil in H; lia|]. unfold batches in *. rewrite count_cons.
  destruct e as [r|w i t b|t|]; cbn [Nat.b2n Nat.add]; intros H.
  - destruct (IH H) as (b1 & w & t & b & b2 & ->). exists (Came r :: b1), w, t, b, b2. reflexivity.
  - destruct (Nat.eqb_spec i j) as [->|].
    + exists [], w, t, b, l. reflexivity.
    + destruct (IH H) as (b1 & w' & t' & b' & b2 & ->). exists (Began w i t b :: b1), w', t', b', b2. reflexivity.
  - destruct (IH H) as (b1 & w & t' & b & b2 & ->). exists (Passed t :: b1), w, t', b, b2. reflexivity.
  - destruct (IH H) as (b1 & w & t & b & b2 & ->). exists (Idled :: b1), w, t, b, b2. reflexivity.
Qed.

Lemma count_all {A} (f : A -> bool) l : (forall x, In x l -> f x = true) -> count f l = length l.
Proof.
  clear. induction l as [|x l IH]; intros H; [reflexivity|]. rewrite count_cons, IH by (intros; apply H; simpl; auto).
  rewrite (H x) by (simpl; auto). reflexivity.
Qed.

(** All batches of a service but the last are full of requests that came before the head of the last. *)
Lemma full_batches j d l :
  (forall b1 w t b b2, l = b1 ++ Began w j t b :: b2 ->
     (exists h tl, b = h :: tl /\ early d j h = true) /\
     (forall x, In x (taken j b2) -> forall r, In r b -> arr r <= arr x) /\ (0 < batches j b2 -> B j <= length b)) ->
  0 < batches j l -> (batches j l - 1) * B j + 1 <= count (early d j) (taken j l).
Proof.
  clear. induction l as [|e l IH]; intros H Hp; [unfold batches in Hp; rewrite count_nil in Hp; lia|].
  assert (IHl := IH ltac:(intros b1 w t b b2 E; apply (H (e :: b1) w t b b2); rewrite E; reflexivity)). clear IH.
  unfold batches in Hp |- *. rewrite count_cons in Hp |- *. fold (batches j l) in *.
  destruct e as [r|w i t b|t|]; cbn [Nat.b2n taken flat_map]; try (apply IHl; cbn [Nat.b2n] in Hp; lia).
  fold (taken j l). destruct (Nat.eqb_spec i j) as [->|]; cbn [Nat.b2n]; [|apply IHl; cbn [Nat.b2n] in Hp; lia].
  destruct (H [] w t b l eq_refl) as ((h & tl & Eb & Hh) & Hle & Hfull). rewrite count_app.
  destruct (Nat.eq_dec (batches j l) 0) as [E0|E0].
  - rewrite E0. rewrite Eb, count_cons, Hh. cbn. lia.
  - specialize (IHl ltac:(lia)). specialize (Hfull ltac:(lia)).
    rewrite (count_all (early d j) b); [nia|]. intros r Hr.
    destruct (batches_split j l ltac:(lia)) as (b1 & w' & t' & b' & b2 & El).
    destruct (H (Began w j t b :: b1) w' t' b' b2) as ((h' & tl' & Eb' & Hh') & _); [rewrite El; reflexivity|].
    assert (Hin : In h' (taken j l)).
    { rewrite El, taken_app. apply in_or_app. right. cbn. rewrite Nat.eqb_refl, Eb'. cbn. auto. }
    specialize (Hle h' Hin r Hr). unfold early in *. apply Nat.leb_le in Hh'. apply Nat.leb_le. lia.
Qed.

(** All batches of a service are full if one waits that came later. *)
Lemma all_full j d l :
  (forall b1 w t b b2, l = b1 ++ Began w j t b :: b2 -> B j <= length b /\ forall r, In r b -> early d j r = true) ->
  batches j l * B j <= count (early d j) (taken j l).
Proof.
  clear. induction l as [|e l IH]; intros H; [unfold batches; rewrite count_nil; lia|].
  assert (IHl := IH ltac:(intros b1 w t b b2 E; apply (H (e :: b1) w t b b2); rewrite E; reflexivity)). clear IH.
  unfold batches. rewrite count_cons. fold (batches j l).
  destruct e as [r|w i t b|t|]; cbn [Nat.b2n taken flat_map]; try exact IHl.
  fold (taken j l). destruct (Nat.eqb_spec i j) as [->|]; cbn [Nat.b2n]; [|exact IHl].
  destruct (H [] w t b l eq_refl) as (Hb & Hr). rewrite count_app, (count_all (early d j) b) by auto. nia.
Qed.

(** What came since [lo] with a deadline up to [d]. *)
Lemma came_since st log j l1 l2 lo d : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> log = l1 ++ l2 ->
  count (fun x => early d j x && (lo <=? arr x)) (taken j l2 ++ waiting st j) <= if lo + D j <=? d then alpha j (d - D j - lo + 1) else 0.
Proof.
  intros I Hc E. destruct (Nat.leb_spec (lo + D j) d) as [Hd|Hd].
  - set (f := within lo (d - D j - lo + 1)). transitivity (count f (taken j l2 ++ waiting st j)).
    + apply count_mono. intros x _. unfold early, f, within. rewrite !andb_true_iff, !Nat.leb_le, Nat.ltb_lt. lia.
    + transitivity (count f (taken j log ++ waiting st j)); [rewrite E, taken_app, !count_app; lia|].
      etransitivity; [apply (inv_count _ _ I)|].
      etransitivity; [|apply (came_of_curve q past (fun _ => true) j (arrived st) lo (d - D j - lo + 1) Hsense (inv_wf _ _ I) (inv_fresh _ _ I) Hc eq_refl)].
      unfold came_of, came, f. generalize (within lo (d - D j - lo + 1)). clear. intros f. unfold count.
      induction (skipn past (arrived st)) as [|r l IH]; [auto|]. cbn [filter]. destruct (at_home q j r); cbn [andb filter]; [|auto].
      destruct (mandatory p r && f r); cbn [length]; lia.
  - rewrite (count_ext _ (fun _ => false)), count_false; [lia|]. intros x _. unfold early. apply andb_false_iff.
    destruct (Nat.leb_spec lo (arr x)); [left; apply Nat.leb_gt; lia|auto].
Qed.

Lemma window st log j l1 l2 lo d : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> log = l1 ++ l2 ->
  (forall x, In x (taken j l2 ++ waiting st j) -> early d j x = true -> lo <= arr x) ->
  count (early d j) (taken j l2 ++ waiting st j) <= if lo + D j <=? d then alpha j (d - D j - lo + 1) else 0.
Proof.
  intros I Hc E Hlo. etransitivity; [|now apply (came_since st log j l1 l2)]. apply count_mono. intros x Hx He.
  rewrite He. apply Nat.leb_le. now apply Hlo.
Qed.

Lemma begun_batches l j : sum (fun v => begun v l j) n <= batches j l.
Proof.
  clear. unfold begun, batches. induction l as [|e l IH].
  { rewrite (sum_ext _ (fun _ => 0)), sum_zero by (intros; apply count_nil). lia. }
  rewrite count_cons.
  rewrite (sum_ext (fun v => count _ (e :: l)) (fun v => Nat.b2n (match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) +
    count (fun e => match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) l)) by (intros; apply count_cons).
  rewrite sum_add. apply Nat.add_le_mono; [|exact IH]. destruct e as [r|w i t b|t|]; try (rewrite sum_zero; cbn; lia).
  destruct (i =? j); cbn [andb]; [|rewrite sum_zero; lia].
  rewrite (sum_ext _ (fun v => Nat.b2n ((w =? v) && true))) by (intros; now rewrite andb_true_r).
  rewrite sum_pick. cbn. destruct (w <? n); cbn; lia.
Qed.

Lemma work_mono c c' : (forall j, j < m -> c j <= c' j) -> work q c <= work q c'.
Proof. clear. intros H. apply sum_mono. intros j Hj. apply Nat.mul_le_mono_l. auto. Qed.

Lemma cdiv_more a b c : 0 < b -> c * b + 1 <= a -> c < cdiv a b.
Proof. clear. intros Hb H. pose proof (cdiv_ge a b Hb). nia. Qed.

(** After an instant from which no batch is followed that was not full: at most so many batches, and that of [k] comes
    after them. *)
Definition followed s e rest := match e with
  | Began _ i _ b => (length b <? B i) && ((0 <? batches i rest) || (i =? s))
  | _ => false
  end.

Lemma batches_most st log s k l1 l N : Inv st log -> log = l1 ++ l -> s < m -> In k (waiting st s) ->
  let d := arr k + D s in
  (forall b1 e b2, l = b1 ++ e :: b2 -> followed s e b2 = false) ->
  (forall w i t h tl, In (Began w i t (h :: tl)) l -> early d i h = true) ->
  (forall j, j < m -> count (early d j) (taken j l ++ waiting st j) <= N j) ->
  0 < cdiv (N s) (B s) /\ forall j, j < m -> sum (fun v => begun v l j) n <= less (fun j => cdiv (N j) (B j)) s j.
Proof.
  intros I El Hs Hk d Hno Hheads HN. pose proof Hsense as (_ & _ & _ & Hpar).
  assert (Hsplit : forall j b1 w t b b2, l = b1 ++ Began w j t b :: b2 ->
    (exists h tl, b = h :: tl /\ early d j h = true) /\
    (forall x, In x (taken j b2 ++ waiting st j) -> forall r, In r b -> arr r <= arr x) /\
    (0 < batches j b2 \/ j = s -> B j <= length b)).
  { intros j b1 w t b b2 E. destruct (inv_order _ _ I (l1 ++ b1) w j t b b2) as (Hb & _ & _ & _ & _ & _ & Hx).
    { rewrite El, E, app_assoc. reflexivity. }
    split; [|split].
    - destruct b as [|h tl]; [congruence|]. exists h, tl. split; [auto|]. apply (Hheads w j t h tl). rewrite E. apply in_or_app. simpl. auto.
    - intros x Hin. now apply Hx.
    - intros Hor. specialize (Hno _ _ _ E). cbn [followed] in Hno. apply andb_false_iff in Hno as [Hno|Hno]; [apply Nat.ltb_ge in Hno; auto|].
      apply orb_false_iff in Hno as (H1 & H2). apply Nat.ltb_ge in H1. apply Nat.eqb_neq in H2. lia. }
  assert (Hks : count (early d s) (waiting st s) > 0).
  { apply in_split in Hk as (u & z & ->). rewrite count_app, count_cons. unfold early at 2. rewrite (proj2 (Nat.leb_le _ _)) by (unfold d; lia). cbn. lia. }
  assert (Hfull : batches s l * B s <= count (early d s) (taken s l)).
  { apply all_full. intros b1 w t b b2 E. destruct (Hsplit s b1 w t b b2 E) as (_ & Hle & Hf). split; [auto|].
    intros r Hr. unfold early. apply Nat.leb_le. specialize (Hle k ltac:(apply in_or_app; auto) r Hr). unfold d. lia. }
  pose proof (HN s Hs) as HNs. rewrite count_app in HNs. destruct (Hpar s Hs) as (HBs & _).
  pose proof (cdiv_more (N s) (B s) (batches s l) HBs ltac:(lia)) as Hlt. split; [lia|].
  intros j Hj. etransitivity; [apply begun_batches|]. unfold less. destruct (Nat.eqb_spec j s) as [->|Hne]; [lia|].
  rewrite Nat.sub_0_r. destruct (Nat.eq_dec (batches j l) 0) as [->|E0]; [lia|]. destruct (Hpar j Hj) as (HBj & _).
  pose proof (full_batches j d l) as Hfb. specialize (HN j Hj). rewrite count_app in HN.
  assert (H : (batches j l - 1) * B j + 1 <= N j).
  { etransitivity; [apply Hfb|]; [|lia|lia]. intros b1 w t b b2 E. destruct (Hsplit j b1 w t b b2 E) as (H1 & H2 & H3).
    split; [auto|]. split; [|auto]. intros x Hx. apply H2. apply in_or_app. auto. }
  pose proof (cdiv_more (N j) (B j) (batches j l - 1) HBj H). lia.
Qed.

Lemma home_in' r : mandatory p r = true -> home q (src r) < m.
Proof. now apply home_in. Qed.

Lemma free_now' st log v : Inv st log -> v < n -> now st <= free_at st v <= now st + longest q + over st.
Proof.
  intros I Hv. unfold free_at. destruct (running st v) as [(due, b)|] eqn:E; [|lia]. apply (inv_run _ _ I v due b Hv E).
Qed.

Lemma taken_quiet j l e : (forall w i t b, e <> Began w i t b) -> taken j (l ++ [e]) = taken j l.
Proof.
  clear. intros H. rewrite taken_app. destruct e as [r|w i t b|t|]; [|now destruct (H w i t b)| |]; cbn; apply app_nil_r.
Qed.

Lemma work_later v l l' : work q (begun v l) <= work q (begun v (l ++ l')).
Proof. apply work_mono. intros j _. unfold begun. rewrite count_app. lia. Qed.

(** All are busy until [t], but one has only [a] left at [u] and the others at most the longest batch. *)
Lemma average w a u t l c : 0 < n -> w < n -> a <= longest q ->
  (forall v, v < n -> t <= u + (if v =? w then a else longest q) + work q (begun v l)) ->
  (forall j, j < m -> sum (fun v => begun v l j) n <= c j) -> t - u <= (a + (n - 1) * longest q + work q c) / n.
Proof.
  clear. intros Hn Hw Ha Ht Hc.
  assert (E1 : sum (fun v => if v =? w then longest q - a else 0) n = longest q - a).
  { clear - Hw. induction n as [|k IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec k w) as [->|].
    - rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
    - rewrite IH; lia. }
  assert (H : sum (fun _ => t) n + (longest q - a) <= sum (fun v => u + longest q + work q (begun v l)) n).
  { rewrite <- E1, <- sum_add. apply sum_mono. intros v Hv. specialize (Ht v Hv). destruct (v =? w); lia. }
  assert (Hwork : sum (fun v => work q (begun v l)) n <= work q c).
  { unfold work. rewrite (sum_swap (fun v j => P j * begun v l j)). apply sum_mono. intros j Hj. rewrite sum_scale.
    apply Nat.mul_le_mono_l. now apply Hc. }
  rewrite sum_add, !sum_const in H. apply Nat.div_le_lower_bound; [lia|].
  destruct n as [|k]; [lia|]. replace (S k - 1) with k by lia. nia.
Qed.
End Happened.

Arguments inv_wf {q X past old}.
Arguments inv_fresh {q X past old}.
Arguments inv_late {q X past old}.
Arguments inv_over {q X past old}.
Arguments inv_past {q X past old}.
Arguments inv_where {q X past old}.
Arguments inv_run {q X past old}.
Arguments inv_wait {q X past old}.
Arguments inv_sorted {q X past old}.
Arguments inv_load {q X past old}.
Arguments inv_order {q X past old}.
Arguments inv_clear {q X past old}.
Arguments inv_point {q X past old}.
Arguments inv_marks {q X past old}.
Arguments inv_count {q X past old}.
Arguments came_since {q X past old}.
Arguments window {q X past old}.
Arguments batches_most {q X past old}.
Arguments free_now' {q X past old}.
