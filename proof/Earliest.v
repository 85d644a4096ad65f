(** Theorem E: several services on the same workers, by deadline; over the model of Sharing.v.

    The test without its reliefs, and without patience: the lines that Theorem E states, for any [X], within which of its
    arrival each request of a service is to begin, dispatch as late as it may be. *)
Require Import List Arith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

Section Earliest.
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

(** * The test *)

(** One batch of [k] less. *)
Definition less (c : nat -> nat) k j := c j - if j =? k then 1 else 0.

(** Counted from an instant at which nothing with a deadline up to that of the request looked at waits, [y] before that. *)
Definition clear_requests y j := if D j <=? y then alpha j (y - D j + 1) else 0.
Definition clear y j := cdiv (clear_requests y j) (B j).

(** Counted from a batch of [i] that was not full. *)
Definition delay i j := Nat.min (X j) (X i + D j - D i).
Definition short_requests i y j :=
  if j =? i then Nat.min (alpha i (y - D i + 1)) (alpha i (y - D i + X i + 1) - 1)
  else if D j <=? y + delay i j then alpha j (y + delay i j - D j + 1) else 0.
Definition short i y j := cdiv (short_requests i y j) (B j).

Definition test_clear := forall k y, k < m -> 0 < clear y k ->
  exists x, share_within q (less (clear y) k) x /\ g + longest q + excess q + x + D k <= y + X k.

Definition test_short := forall i k y, i < m -> k < m -> 1 < B i -> D i <= y -> 0 < short_requests i y i -> 0 < short i y k ->
  (exists x, share_within q (less (short i y) k) x /\ g + longest q + excess q + x + D k <= y + X k) \/
  g + excess q + (P i + (n - 1) * longest q + work q (less (short i y) k)) / n + D k <= y + X k.

Definition test_E := (forall i, i < m -> X i + P i <= D i) /\ test_clear /\ test_short.

(** * What happened *)

Inductive entry := Came (r : request) | Began (w i t : nat) (b : list request) | Idled.

Definition taken j l := flat_map (fun e => match e with Began _ i _ b => if i =? j then b else [] | _ => [] end) l.
Definition batches j l := count (fun e => match e with Began _ i _ _ => i =? j | _ => false end) l.
Definition begun v l j := count (fun e => match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) l.
Definition offset e v := match e with
  | Came r => arr r + longest q
  | Began w i t _ => t + if v =? w then P i else longest q
  | Idled => 0
  end.
Definition early d j r := arr r + D j <=? d.

Lemma taken_app j a b : taken j (a ++ b) = taken j a ++ taken j b.
Proof. apply flat_map_app. Qed.

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
  inv_count : forall j f, count f (taken j log ++ waiting st j) <=
    count (fun r => at_home q j r && (mandatory p r && f r)) (skipn past (arrived st)) }.

Hypothesis Hsense : sensible q.
Hypothesis Hrule : how q = Earliest.
Hypothesis Htest : test_E.

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
  destruct e as [r|w i t b|]; cbn [Nat.b2n Nat.add]; intros H.
  - destruct (IH H) as (b1 & w & t & b & b2 & ->). exists (Came r :: b1), w, t, b, b2. reflexivity.
  - destruct (Nat.eqb_spec i j) as [->|].
    + exists [], w, t, b, l. reflexivity.
    + destruct (IH H) as (b1 & w' & t' & b' & b2 & ->). exists (Began w i t b :: b1), w', t', b', b2. reflexivity.
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
  destruct e as [r|w i t b|]; cbn [Nat.b2n taken flat_map]; try (apply IHl; cbn [Nat.b2n] in Hp; lia).
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
  destruct e as [r|w i t b|]; cbn [Nat.b2n taken flat_map]; try exact IHl.
  fold (taken j l). destruct (Nat.eqb_spec i j) as [->|]; cbn [Nat.b2n]; [|exact IHl].
  destruct (H [] w t b l eq_refl) as (Hb & Hr). rewrite count_app, (count_all (early d j) b) by auto. nia.
Qed.

(** What came since [lo] with a deadline up to [d]. *)
Lemma window st log j l1 l2 lo d : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> log = l1 ++ l2 ->
  (forall x, In x (taken j l2 ++ waiting st j) -> early d j x = true -> lo <= arr x) ->
  count (early d j) (taken j l2 ++ waiting st j) <= if lo + D j <=? d then alpha j (d - D j - lo + 1) else 0.
Proof.
  intros I Hc E Hlo. destruct (Nat.leb_spec (lo + D j) d) as [Hd|Hd].
  - set (f := within lo (d - D j - lo + 1)). transitivity (count f (taken j l2 ++ waiting st j)).
    + apply count_mono. intros x Hx He. specialize (Hlo x Hx He). unfold early in He. apply Nat.leb_le in He.
      unfold f, within. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. lia.
    + transitivity (count f (taken j log ++ waiting st j)); [rewrite E, taken_app, !count_app; lia|].
      etransitivity; [apply (inv_count _ _ I)|].
      etransitivity; [|apply (came_of_curve q past (fun _ => true) j (arrived st) lo (d - D j - lo + 1) Hsense (inv_wf _ _ I) (inv_fresh _ _ I) Hc eq_refl)].
      unfold came_of, came, f. generalize (within lo (d - D j - lo + 1)). clear. intros f. unfold count.
      induction (skipn past (arrived st)) as [|r l IH]; [auto|]. cbn [filter]. destruct (at_home q j r); cbn [andb filter]; [|auto].
      destruct (mandatory p r && f r); cbn [length]; lia.
  - rewrite (count_ext _ (fun _ => false)), count_false; [lia|]. intros x Hx. destruct (early d j x) eqn:He; [|reflexivity].
    specialize (Hlo x Hx He). unfold early in He. apply Nat.leb_le in He. lia.
Qed.

Lemma begun_batches l j : sum (fun v => begun v l j) n <= batches j l.
Proof.
  clear. unfold begun, batches. induction l as [|e l IH].
  { rewrite (sum_ext _ (fun _ => 0)), sum_zero by (intros; apply count_nil). lia. }
  rewrite count_cons.
  rewrite (sum_ext (fun v => count _ (e :: l)) (fun v => Nat.b2n (match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) +
    count (fun e => match e with Began w i _ _ => (i =? j) && (w =? v) | _ => false end) l)) by (intros; apply count_cons).
  rewrite sum_add. apply Nat.add_le_mono; [|exact IH]. destruct e as [r|w i t b|]; try (rewrite sum_zero; cbn; lia).
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

(** What waits has begun before it is too late: while all are busy until [t], or dispatch may still be late, there is time. *)
Lemma still_time st log s k t : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> s < m -> In k (waiting st s) ->
  (forall w, w < n -> t + late st <= free_at st w + g) ->
  t + excess q <= arr k + X s + over st.
Proof.
  intros I Hc Hs Hk Hlate. pose proof Hsense as (_ & Hn & _ & Hpar). destruct Htest as (_ & Hclear & Hshort).
  set (d := arr k + D s).
  assert (Hkd : early d s k = true) by (unfold early, d; apply Nat.leb_le; lia).
  destruct (inv_clear _ _ I d) as (l1 & r0 & l2 & El & Hidle & Hsince & Hheads); [exists s, k; auto|].
  assert (Hr0 : arr r0 <= arr k) by (apply (Hsince s k); [apply in_or_app|]; auto).
  destruct (last_such (followed s) l2) as [Hno|(b1 & e & b2 & E2 & Hf & Hno)].
  - (* counted from the instant at which nothing waited *)
    set (y := d - arr r0).
    destruct (batches_most st log s k (l1 ++ [Came r0]) l2 (clear_requests y) I) as (Hpos & Hmost); auto.
    { rewrite El, <- app_assoc. reflexivity. }
    { intros j Hj. etransitivity; [apply (window st log j (l1 ++ [Came r0]) l2 (arr r0) d I Hc)|].
      - rewrite El, <- app_assoc. reflexivity.
      - intros x Hx He. now apply (Hsince j x).
      - unfold clear_requests, y. destruct (Nat.leb_spec (arr r0 + D j) d), (Nat.leb_spec (D j) (d - arr r0)); try lia.
        replace (d - D j - arr r0) with (d - arr r0 - D j) by lia. lia. }
    destruct (Hclear s y Hs Hpos) as (x & Hshare & Hx).
    destruct (share_least q (fun v => begun v l2) _ (fun j => sum (fun v => begun v l2 j) n) x Hn ltac:(reflexivity) Hmost Hshare) as (v & Hv & Hw).
    pose proof (inv_load _ _ I l1 (Came r0) l2 El) as Hload. specialize (Hload ltac:(intros [H|H]; [discriminate|auto]) v Hv).
    cbn [offset] in Hload. specialize (Hlate v Hv). unfold y, d in Hx. lia.
  - (* counted from the last batch that was not full though others followed *)
    destruct e as [|w i u b|]; try discriminate. cbn [followed] in Hf. apply andb_true_iff in Hf as (Hlen & Hf). apply Nat.ltb_lt in Hlen.
    assert (Elog : log = (l1 ++ Came r0 :: b1) ++ Began w i u b :: b2) by (rewrite El, E2, <- app_assoc; reflexivity).
    assert (Elog' : log = ((l1 ++ Came r0 :: b1) ++ [Began w i u b]) ++ b2) by (rewrite Elog, <- !app_assoc; reflexivity).
    destruct (inv_order _ _ I _ _ _ _ _ _ Elog) as (Hb & Hi & Hwn & Hu & Hbarr & Hafter & Hown).
    destruct b as [|h tl]; [congruence|]. clear Hb. pose proof (Hbarr h ltac:(simpl; auto)) as Hh.
    assert (Hhd : arr h + D i <= d).
    { pose proof (Hheads w i u h tl ltac:(rewrite E2; apply in_or_app; simpl; auto)) as H. unfold early in H. now apply Nat.leb_le in H. }
    assert (Hheads2 : forall w i t h tl, In (Began w i t (h :: tl)) b2 -> early d i h = true).
    { intros v1 i1 t1 h1 tl1 Hin1. apply (Hheads v1 i1 t1 h1 tl1). rewrite E2. apply in_or_app. simpl. auto. }
    assert (Hone : exists x, In x (taken i b2 ++ waiting st i) /\ early d i x = true).
    { apply orb_true_iff in Hf as [Hf|Hf].
      - apply Nat.ltb_lt in Hf. destruct (batches_split i b2 Hf) as (c1 & w' & t' & b' & c2 & Eb).
        destruct (inv_order _ _ I (((l1 ++ Came r0 :: b1) ++ [Began w i u (h :: tl)]) ++ c1) w' i t' b' c2) as (Hb' & _).
        { rewrite Elog', Eb, <- !app_assoc. reflexivity. }
        destruct b' as [|h' tl']; [congruence|]. exists h'. split.
        + apply in_or_app. left. rewrite Eb, taken_app. apply in_or_app. right. cbn. rewrite Nat.eqb_refl. simpl. auto.
        + apply (Hheads2 w' i t' h' tl'). rewrite Eb. apply in_or_app. simpl. auto.
      - apply Nat.eqb_eq in Hf. subst i. exists k. split; [apply in_or_app|]; auto. }
    destruct Hone as (x1 & Hx1 & Hx1d). pose proof (proj1 (Hown x1 Hx1) Hlen) as Hx1u.
    assert (Hud : u + D i <= d) by (unfold early in Hx1d; apply Nat.leb_le in Hx1d; lia).
    set (y := d - u).
    assert (Hcount : count (early d i) (taken i b2 ++ waiting st i) <= short_requests i y i).
    { unfold short_requests. rewrite Nat.eqb_refl. apply Nat.min_glb.
      - etransitivity; [apply (window st log i _ b2 u d I Hc Elog')|].
        + intros x Hx _. now apply (Hown x Hx).
        + rewrite (proj2 (Nat.leb_le _ _)) by auto. replace (d - D i - u) with (y - D i) by (unfold y; lia). lia.
      - pose proof (window st log i (l1 ++ Came r0 :: b1) (Began w i u (h :: tl) :: b2) (u - X i) d I Hc Elog) as Hw.
        cbn [taken flat_map] in Hw. fold (taken i b2) in Hw. rewrite Nat.eqb_refl in Hw.
        specialize (Hw ltac:(intros x Hx _; rewrite <- app_assoc in Hx; apply in_app_or in Hx as [Hx|Hx];
          [specialize (Hbarr x Hx); lia|pose proof (proj1 (Hown x Hx) Hlen); lia])).
        rewrite <- app_assoc, count_app, count_cons in Hw. unfold early at 1 in Hw. rewrite (proj2 (Nat.leb_le _ _) Hhd) in Hw. cbn [Nat.b2n] in Hw.
        rewrite (proj2 (Nat.leb_le (u - X i + D i) d)) in Hw by lia.
        pose proof (alpha_mono q i (d - D i - (u - X i) + 1) (y - D i + X i + 1) Hsense ltac:(unfold y; lia)). lia. }
    destruct (batches_most st log s k _ b2 (short_requests i y) I Elog') as (Hpos & Hmost); auto.
    { intros j Hj. destruct (Nat.eq_dec j i) as [->|Hne]; [exact Hcount|].
      etransitivity; [apply (window st log j _ b2 (u - delay i j) d I Hc Elog')|].
      - intros x Hx _. destruct (Hafter h tl j x eq_refl Hx) as [H|H]; [lia|]. unfold delay. lia.
      - unfold short_requests. rewrite (proj2 (Nat.eqb_neq j i) Hne). unfold y.
        destruct (Nat.leb_spec (u - delay i j + D j) d), (Nat.leb_spec (D j) (d - u + delay i j)); try lia.
        apply (alpha_mono q j _ _ Hsense). lia. }
    pose proof (inv_load _ _ I _ _ _ Elog) as Hload.
    specialize (Hload ltac:(intros [H|H]; [discriminate|apply Hidle; rewrite E2; apply in_or_app; simpl; auto])).
    destruct (Hpar i Hi) as (_ & _ & HPi).
    assert (HB1 : 1 < B i) by (cbn in Hlen; lia).
    assert (Hni : 0 < short_requests i y i).
    { apply Nat.lt_le_trans with (count (early d i) (taken i b2 ++ waiting st i)); [|auto].
      apply in_split in Hx1 as (c1 & c2 & ->). rewrite count_app, count_cons, Hx1d. cbn. lia. }
    destruct (Hshort i s y Hi Hs HB1 ltac:(unfold y; lia) Hni Hpos) as [(x & Hshare & Hx)|Hx].
    + destruct (share_least q (fun v => begun v b2) _ (fun j => sum (fun v => begun v b2 j) n) x Hn ltac:(reflexivity) Hmost Hshare) as (v & Hv & Hw).
      specialize (Hload v Hv). cbn [offset] in Hload. specialize (Hlate v Hv). unfold y, d in Hx. destruct (v =? w); lia.
    + assert (Hsum : n * (t) <= n * (u + g + over st) + P i + (n - 1) * longest q + work q (less (short i y) s)).
      { rewrite <- (sum_const (t) n).
        transitivity (sum (fun v => (u + g + over st + longest q) + work q (begun v b2)) n - (longest q - P i)).
        - assert (G : sum (fun _ => t) n + (longest q - P i) <= sum (fun v => u + g + over st + longest q + work q (begun v b2)) n); [|lia].
          assert (E1 : sum (fun v => if v =? w then longest q - P i else 0) n = longest q - P i).
          { clear - Hwn. induction n as [|c IH]; [lia|]. cbn [sum]. destruct (Nat.eqb_spec c w) as [->|].
            - rewrite (sum_ext _ (fun _ => 0)), sum_zero; [lia|]. intros v Hv. destruct (Nat.eqb_spec v w); lia.
            - rewrite IH; lia. }
          rewrite <- E1, <- sum_add. apply sum_mono. intros v Hv. specialize (Hload v Hv). specialize (Hlate v Hv).
          cbn [offset] in Hload. destruct (v =? w); lia.
        - rewrite sum_add, sum_const.
          assert (Hw : sum (fun v => work q (begun v b2)) n <= work q (less (short i y) s)).
          { unfold work. rewrite (sum_swap (fun v j => P j * begun v b2 j)). apply sum_mono. intros j Hj. rewrite sum_scale.
            apply Nat.mul_le_mono_l. now apply Hmost. }
          clear - Hw Hn HPi. destruct n as [|c]; [lia|]. replace (S c - 1) with c by lia. cbn [Nat.mul]. rewrite Nat.mul_add_distr_l. lia. }
      assert (Hdiv : t - (u + g + over st) <= (P i + (n - 1) * longest q + work q (less (short i y) s)) / n).
      { apply Nat.div_le_lower_bound; [lia|]. rewrite Nat.mul_sub_distr_l. apply Nat.le_sub_le_add_l. rewrite !Nat.add_assoc. exact Hsum. }
      clear - Hx Hdiv Hud. unfold y, d in *. revert Hx Hdiv. generalize ((P i + (n - 1) * longest q + work q (less (short i (arr k + D s - u)) s)) / n). intros Q Hx Hdiv. lia.
Qed.

Lemma home_in' r : mandatory p r = true -> home q (src r) < m.
Proof. now apply home_in. Qed.

Lemma free_now' st log v : Inv st log -> v < n -> now st <= free_at st v <= now st + longest q + over st.
Proof.
  intros I Hv. unfold free_at. destruct (running st v) as [(due, b)|] eqn:E; [|lia]. apply (inv_run _ _ I v due b Hv E).
Qed.

Lemma taken_quiet j l e : (forall w i t b, e <> Began w i t b) -> taken j (l ++ [e]) = taken j l.
Proof.
  clear. intros H. rewrite taken_app. destruct e as [r|w i t b|]; [|now destruct (H w i t b)|]; cbn; apply app_nil_r.
Qed.

Lemma work_later v l l' : work q (begun v l) <= work q (begun v (l ++ l')).
Proof. apply work_mono. intros j _. unfold begun. rewrite count_app. lia. Qed.

Lemma Inv_initial : past = 0 -> Inv initial [].
Proof.
  intros E.
  constructor; cbn [initial now late over arrived waiting line used running answered]; auto; try (intros; contradiction); try (intros; discriminate).
  - constructor.
  - unfold fresh. rewrite E. split; [cbn; lia|intros ? []].
  - lia.
  - lia.
  - constructor.
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros d (j & x & [] & _).
  - intros j f. cbn. unfold count. cbn. lia.
Qed.

(** Nothing waits, and what is left idle or runs is not counted from here on. *)
Lemma Inv_idle st log now' late' over' run : Inv st log -> idle st -> now st <= now' -> late' <= g -> over' <= excess q ->
  (forall w due b, w < n -> run w = Some (due, b) -> now' <= due <= now' + longest q + over' /\
     forall r, In r b -> mandatory p r = true -> old r \/ due <= arr r + D (home q (src r))) ->
  (forall r, In r (arrived st) -> mandatory p r = true ->
     (exists w due b, w < n /\ run w = Some (due, b) /\ In r b) \/ old r \/ in_time (as_problem q (home q (src r))) (view st) r) ->
  Inv (State now' late' over' (arrived st) (waiting st) (line st) (used st) run (answered st)) (log ++ [Idled]).
Proof.
  intros I Hidle Hn Hlate Hover Hrun Hwhere. constructor; cbn [now late over arrived waiting line used running answered]; try apply I; auto.
  - intros r Hr. pose proof (inv_past _ _ I r Hr). lia.
  - intros r Hr Hm. right. now apply Hwhere.
  - intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr.
  - intros l1 e l2 E Hno. exfalso. apply Hno.
    apply snoc_split in E as [(_ & -> & _)|(b' & -> & _)]; [left; reflexivity|right; apply in_or_app; simpl; auto].
  - intros l1 w i t b l2 E. apply snoc_split in E as [(_ & E & _)|(b' & -> & E)]; [discriminate|].
    destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
    split; [auto|]. split; [auto|]. split; [auto|]. split; [lia|]. split; [auto|].
    split; intros; rewrite taken_quiet in * by discriminate; eauto.
  - intros d (j & x & Hx & _). rewrite (Hidle j) in Hx. destruct Hx.
  - intros j f. rewrite taken_quiet by discriminate. apply I.
Qed.

(** Whether anything with a deadline up to [d] waits. *)
Lemma waits_early st log d : Inv st log -> (exists j x, In x (waiting st j) /\ early d j x = true) \/
  forall j x, In x (waiting st j) -> early d j x = false.
Proof.
  intros I. destruct (existsb (fun j => existsb (early d j) (waiting st j)) (seq 0 m)) eqn:E.
  - left. apply existsb_exists in E as (j & _ & E). apply existsb_exists in E as (x & Hx & E). eauto.
  - right. intros j x Hx. destruct (early d j x) eqn:Ex; [|auto]. rewrite <- E. symmetry. apply existsb_exists. exists j.
    split; [|apply existsb_exists; eauto]. apply in_seq. destruct (inv_wait _ _ I j x Hx) as (Hm & <- & _). pose proof (home_in' x Hm). lia.
Qed.

Lemma Inv_arrive st log r : Inv st log -> arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
  mandatory p r = true -> In (src r) (load q) -> conform q (fun _ => true) (skipn past (arrived st ++ [r])) ->
  forall line', let i := home q (src r) in
  Inv (State (now st) (late st) (over st) (arrived st ++ [r]) (set (waiting st) i (waiting st i ++ [r])) line' (used st) (running st) (answered st))
      (log ++ [Came r]).
Proof.
  intros I Ea Ei Em Hload Hc line' i. pose proof (inv_fresh _ _ I) as Hfr. pose proof (fresh_snoc q past _ r Hfr (fun _ => Hload)) as Hfr'. assert (Hi : i < m) by (now apply home_in').
  assert (Hat : at_home q i r = true) by (unfold at_home; apply Nat.eqb_refl).
  assert (Hwf : wf (fun _ => 0) (arrived st ++ [r])).
  { constructor; [apply I| |auto]. intros x Hx. rewrite Ea. now apply (inv_past _ _ I). }
  assert (Hroom : excess q <= X i).
  { pose proof (came_of_curve q past (fun _ => true) i _ (now st) (0 + 1) Hsense Hwf Hfr' Hc eq_refl) as H. rewrite came_of_snoc, Hat, Em in H by auto.
    unfold within in H. rewrite Ea, (proj2 (Nat.leb_le (now st) (now st))), (proj2 (Nat.ltb_lt (now st) (now st + (0 + 1)))) in H by lia. cbn [andb Nat.b2n] in H.
    pose proof Hsense as (_ & _ & _ & Hpar). destruct (Hpar i Hi) as (HB & _).
    assert (Hr : clear_requests (D i) i = alpha i (0 + 1)) by (unfold clear_requests; now rewrite Nat.leb_refl, Nat.sub_diag).
    destruct Htest as (_ & Ht & _). destruct (Ht i (D i) Hi) as (x & _ & Hx); [|lia].
    unfold clear. rewrite Hr. pose proof (cdiv_more (alpha i (0 + 1)) (B i) 0 HB ltac:(lia)). lia. }
  assert (Hw : forall j x, In x (set (waiting st) i (waiting st i ++ [r]) j) -> In x (waiting st j) \/ j = i /\ x = r).
  { intros j x. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto]. intros H. apply in_app_or in H as [H|[<-|[]]]; auto. }
  assert (Hfree : forall v, free_at (State (now st) (late st) (over st) (arrived st ++ [r]) (set (waiting st) i (waiting st i ++ [r])) line' (used st) (running st) (answered st)) v = free_at st v) by reflexivity.
  constructor; cbn [now late over arrived waiting line used running answered]; auto.
  - apply I.
  - apply I.
  - intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply (inv_past _ _ I)|lia].
  - intros x Hx Hm. apply in_app_or in Hx as [Hx|[<-|[]]].
    + destruct (inv_where _ _ I x Hx Hm) as [H|[H|H]]; [left|auto|auto]. unfold set. destruct (Nat.eqb_spec (home q (src x)) i) as [E|]; [|auto].
      rewrite E in H. apply in_or_app. auto.
    + left. fold i. rewrite set_same. apply in_or_app. simpl. auto.
  - apply I.
  - intros j x Hx. apply Hw in Hx as [Hx|(-> & ->)]; [now apply (inv_wait _ _ I)|]. split; [auto|]. split; [reflexivity|lia].
  - intros j. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|apply I]. pose proof (inv_sorted _ _ I i) as Hs.
    assert (Hle : forall x, In x (waiting st i) -> arr x <= arr r) by (intros x Hx; rewrite Ea; now apply (inv_wait _ _ I i x)).
    clear - Hs Hle. induction Hs; cbn; [repeat constructor|]. constructor; [apply IHHs; intros; apply Hle; simpl; auto|].
    rewrite Forall_forall in *. intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [auto|]. apply Hle. simpl. auto.
  - intros l1 e l2 E Hno v Hv. rewrite Hfree. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)].
    + pose proof (free_now' st log v I Hv). cbn [offset]. lia.
    + etransitivity; [apply (inv_load _ _ I l1 e b' E)|]; auto.
      * intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
      * apply Nat.add_le_mono_l, work_later.
  - intros l1 w i' t b l2 E. apply snoc_split in E as [(_ & E & _)|(b' & -> & E)]; [discriminate|].
    destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
    split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split.
    + intros h tl j x Eb Hx. rewrite taken_quiet in Hx by discriminate. apply in_app_or in Hx as [Hx|Hx]; [apply (H6 h tl); auto; apply in_or_app; auto|].
      apply Hw in Hx as [Hx|(-> & ->)]; [apply (H6 h tl); auto; apply in_or_app; auto|]. left. lia.
    + intros x Hx. rewrite taken_quiet in Hx by discriminate. apply in_app_or in Hx as [Hx|Hx]; [apply H7; apply in_or_app; auto|].
      apply Hw in Hx as [Hx|(-> & ->)]; [apply H7; apply in_or_app; auto|]. split; [lia|]. intros y Hy. specialize (H5 y Hy). lia.
  - intros d (j & x & Hx & He). destruct (waits_early st log d I) as [Hold|Hnone].
    + destruct (inv_clear _ _ I d Hold) as (l1 & r0 & l2 & E & Hi0 & Hs & Hh). exists l1, r0, (l2 ++ [Came r]).
      split; [rewrite E, <- app_assoc; reflexivity|]. split; [intros H; apply in_app_or in H as [H|[H|[]]]; [auto|discriminate]|]. split.
      * intros j' x' Hx' He'. rewrite taken_quiet in Hx' by discriminate. apply in_app_or in Hx' as [Hx'|Hx']; [apply (Hs j'); auto; apply in_or_app; auto|].
        apply Hw in Hx' as [Hx'|(-> & ->)]; [apply (Hs j'); auto; apply in_or_app; auto|].
        destruct Hold as (j0 & x0 & H0 & H0e). etransitivity; [apply (Hs j0 x0); auto; apply in_or_app; auto|].
        rewrite Ea. now apply (inv_wait _ _ I j0 x0).
      * intros w i' t h tl H. apply in_app_or in H as [H|[H|[]]]; [now apply (Hh w i' t h tl)|discriminate].
    + exists log, r, []. split; [auto|]. split; [intros []|]. split; [|intros w i' t h tl []].
      intros j' x' Hx' He'. cbn [taken flat_map app] in Hx'. apply Hw in Hx' as [Hx'|(-> & ->)]; [|auto].
      rewrite (Hnone j' x' Hx') in He'. discriminate.
  - intros j f. rewrite taken_quiet by discriminate. rewrite count_app. pose proof (inv_count _ _ I j f) as H. rewrite count_app in H.
    rewrite (skip_snoc past _ r (proj1 Hfr)), (count_app _ (skipn past (arrived st))), count_cons, count_nil. unfold set.
    destruct (Nat.eqb_spec j i) as [->|]; [|lia]. rewrite count_app, count_cons, count_nil, Hat, Em. cbn [andb]. lia.
Qed.

Lemma Inv_start st log w i others extra : Inv st log -> w < n -> running st w = None ->
  (exists r l, waiting st i = r :: l) ->
  (forall r l, waiting st i = r :: l -> forall j r' l', waiting st j = r' :: l' -> arr r + D i <= arr r' + D j) ->
  (forall r, In r others -> mandatory p r = false) -> over st + extra <= excess q ->
  Inv (State (now st) (late st) (over st + extra) (arrived st) (set (waiting st) i (skipn (B i) (waiting st i))) (line st) (used st)
         (set (running st) w (Some (now st + P i + extra, firstn (B i) (waiting st i) ++ others))) (answered st))
      (log ++ [Began w i (now st) (firstn (B i) (waiting st i))]).
Proof.
  intros I Hw Hidle (r0 & l0 & E0) Hfirst Hoth Hex. pose proof (inv_over _ _ I) as Hov. specialize (Hfirst r0 l0 E0).
  assert (Hi : i < m).
  { destruct (inv_wait _ _ I i r0) as (Hm & <- & _); [rewrite E0; simpl; auto|]. now apply home_in'. }
  pose proof Hsense as (_ & _ & _ & Hpar). destruct (Hpar i Hi) as (HB & _ & HP). destruct Htest as (HX & _).
  set (left := skipn (B i) (waiting st i)) in *. set (b := firstn (B i) (waiting st i)) in *.
  assert (Esplit : waiting st i = b ++ left) by (symmetry; apply firstn_skipn).
  assert (Eb : exists tl, b = r0 :: tl) by (unfold b; rewrite E0; destruct (B i); [lia|cbn; eauto]).
  destruct Eb as (tl0 & Eb).
  set (st' := State _ _ _ _ _ _ _ _ _).
  assert (Hfree : forall v, free_at st' v = if v =? w then now st + P i + extra else free_at st v).
  { intros v. unfold free_at, st', set. cbn [running now]. destruct (v =? w); auto. }
  assert (Hfw : free_at st w = now st) by (unfold free_at; now rewrite Hidle).
  assert (Hleft : forall j x, In x (set (waiting st) i left j) -> In x (waiting st j)).
  { intros j x. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto]. intros H. rewrite Esplit. apply in_or_app. auto. }
  assert (Htaken : forall j l, taken j (l ++ [Began w i (now st) b]) = taken j l ++ if i =? j then b else []).
  { intros j l. rewrite taken_app. cbn. now rewrite app_nil_r. }
  assert (Hsub : forall j l x, In x (taken j (l ++ [Began w i (now st) b]) ++ set (waiting st) i left j) -> In x (taken j l ++ waiting st j)).
  { intros j l x Hx. rewrite Htaken in Hx. apply in_app_or in Hx as [Hx|Hx]; [|apply in_or_app; right; now apply Hleft].
    apply in_app_or in Hx as [Hx|Hx]; apply in_or_app; [auto|]. right. destruct (Nat.eqb_spec i j) as [->|]; [|destruct Hx].
    rewrite Esplit. apply in_or_app. auto. }
  constructor; try apply I; cbn [st' now late over arrived waiting line used running answered].
  - lia.
  - intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[(v & due & c & Hv & Hrun & Hc)|H]].
    + unfold set at 1. destruct (Nat.eqb_spec (home q (src r)) i) as [E|]; [|auto]. rewrite E, Esplit in H.
      apply in_app_or in H as [H|H]; [|auto]. right. left. exists w. rewrite set_same. eexists _, _. split; [auto|]. split; [reflexivity|].
      apply in_or_app. auto.
    + right. left. exists v, due, c. rewrite set_other; [auto|congruence].
    + auto.
  - intros v due c Hv. destruct (Nat.eq_dec v w) as [->|Hvw]; [|rewrite set_other by auto; intros E; destruct (inv_run _ _ I v due c Hv E); split; [lia|auto]].
    rewrite set_same. intros E. inv E. split; [lia|]. intros r Hr Hm. apply in_app_or in Hr as [Hr|Hr]; [|apply Hoth in Hr; congruence].
    destruct (inv_wait _ _ I i r) as (_ & Eh & Hx); [rewrite Esplit; apply in_or_app; auto|]. rewrite Eh. specialize (HX i Hi). right. lia.
  - intros j r Hr. apply Hleft in Hr. destruct (inv_wait _ _ I j r Hr) as (Hm & Hh & Hp & Hx). repeat (split; [assumption|]). lia.
  - intros j. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|apply I]. pose proof (inv_sorted _ _ I i) as Hs.
    rewrite Esplit in Hs. clear - Hs. induction b as [|x l IH]; [auto|]. inversion Hs; auto.
  - intros l1 e l2 E Hno v Hv. rewrite Hfree. pose proof (free_now' st log v I Hv). apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)].
    + cbn [offset]. destruct (v =? w); lia.
    + assert (Hold : free_at st v <= offset e v + late st + over st + work q (begun v b')).
      { apply (inv_load _ _ I l1 e b' E); auto. intros H'. apply Hno. destruct H'; [left; auto|right; apply in_or_app; auto]. }
      pose proof (work_later v b' [Began w i (now st) b]) as Hlater. destruct (Nat.eqb_spec v w) as [->|Hvw]; [|lia].
      assert (Hone : work q (begun w (b' ++ [Began w i (now st) b])) = work q (begun w b') + P i); [|lia].
      unfold work. rewrite (sum_ext _ (fun j => P j * begun w b' j + P j * Nat.b2n (j =? i))).
      * rewrite sum_add, sum_one by auto. reflexivity.
      * intros j _. unfold begun. rewrite count_app, (count_cons _ (Began w i (now st) b)), count_nil, Nat.eqb_refl, andb_true_r.
        rewrite (Nat.eqb_sym i j). lia.
  - intros l1 w' i' t c l2 E. apply snoc_split in E as [(-> & E & ->)|(b' & -> & E)].
    + injection E as -> -> -> ->. split; [congruence|]. split; [auto|]. split; [auto|]. split; [auto|].
      assert (Hin : forall r, In r b -> In r (waiting st i)) by (intros r Hr; rewrite Esplit; apply in_or_app; auto).
      split; [intros r Hr; apply Hin in Hr; destruct (inv_wait _ _ I i r Hr) as (_ & _ & ? & ?); lia|]. cbn [taken flat_map app].
      assert (Hord : forall j x, In x (waiting st j) -> arr r0 + D i <= arr x + D j).
      { intros j x Hx. destruct (waiting st j) as [|y l] eqn:Ej; [destruct Hx|]. specialize (Hfirst j y l Ej).
        pose proof (inv_sorted _ _ I j) as Hs. rewrite Ej in Hs. inversion Hs as [|? ? _ Hall]; subst.
        rewrite Forall_forall in Hall. destruct Hx as [->|Hx]; [auto|]. specialize (Hall x Hx). lia. }
      split.
      * intros h tl j x Eh Hx. rewrite Eb in Eh. injection Eh as <- <-. apply Hleft in Hx. right. split; [destruct (inv_wait _ _ I j x Hx) as (_ & _ & ? & ?); lia|auto].
      * intros x Hx. rewrite set_same in Hx. split.
        { intros Hlen. exfalso. assert (Hne : left <> []) by (intros En; rewrite En in Hx; destruct Hx).
          pose proof (skipn_full (B i) (waiting st i) Hne). fold b in H. lia. }
        intros r Hr. pose proof (inv_sorted _ _ I i) as Hs. rewrite Esplit in Hs. clear - Hs Hr Hx. induction b as [|y l IH]; [destruct Hr|].
        inversion Hs as [|? ? H1 H2]; subst. destruct Hr as [->|Hr]; [|auto]. rewrite Forall_forall in H2. apply H2, in_or_app. auto.
    + destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
      split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split.
      * intros h tl j x Ec Hx. apply (H6 h tl j x Ec). now apply Hsub.
      * intros x Hx. apply H7. now apply Hsub.
  - intros d (j & x & Hx & He). apply Hleft in Hx.
    destruct (inv_clear _ _ I d) as (l1 & r1 & l2 & E & Hi0 & Hs & Hh); [eauto|].
    exists l1, r1, (l2 ++ [Began w i (now st) b]). split; [rewrite E, <- app_assoc; reflexivity|].
    split; [intros H; apply in_app_or in H as [H|[H|[]]]; [auto|discriminate]|]. split.
    + intros j' x' Hx' He'. apply (Hs j'); auto.
    + intros w' i' t h tl H. apply in_app_or in H as [H|[H|[]]]; [now apply (Hh w' i' t h tl)|].
      injection H as <- <- <- Eh. rewrite Eb in Eh. injection Eh as <- <-.
      assert (Hord : arr r0 + D i <= arr x + D j).
      { destruct (waiting st j) as [|y l] eqn:Ej; [destruct Hx|]. specialize (Hfirst j y l Ej).
        pose proof (inv_sorted _ _ I j) as Hs'. rewrite Ej in Hs'. inversion Hs' as [|? ? _ Hall]; subst.
        rewrite Forall_forall in Hall. destruct Hx as [->|Hx]; [auto|]. specialize (Hall x Hx). lia. }
      unfold early in *. apply Nat.leb_le in He. apply Nat.leb_le. lia.
  - intros j f. etransitivity; [|apply (inv_count _ _ I j f)]. rewrite Htaken, !count_app. unfold set.
    destruct (Nat.eqb_spec j i) as [->|Hji].
    + rewrite Nat.eqb_refl, Esplit, count_app. lia.
    + rewrite (proj2 (Nat.eqb_neq i j)) by auto. rewrite count_nil. lia.
Qed.

(** Nothing mandatory is given up. *)
Lemma never_hopeless st log i r : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> In r (waiting st i) -> ~ hopeless q st i r.
Proof.
  intros I Hc Hr Hh. pose proof (inv_over _ _ I) as Hov. destruct (inv_wait _ _ I i r Hr) as (Hm & Hhome & _ & Hk).
  assert (Hi : i < m) by (rewrite <- Hhome; now apply home_in'). destruct Htest as (HX & _). specialize (HX i Hi).
  destruct Hh as [Hh|(w & line' & used' & Hw & Hidle & Hnext & Hh)]; [lia|].
  destruct Hnext as [? ?|r0 l0 _ E0 Hfirst]; [congruence|].
  pose proof (Inv_start st log w i [] 0 I Hw Hidle ltac:(eauto)) as I'.
  specialize (I' ltac:(intros r' l' E' j y z Ej; rewrite E0 in E'; injection E' as <- <-; now apply (Hfirst j y z)) ltac:(intros ? []) ltac:(lia)).
  set (st' := State _ _ _ _ _ _ _ _ _) in I'.
  assert (Hfree : forall v, free_at st' v = if v =? w then now st + P i else free_at st v).
  { intros v. unfold free_at, st', set. cbn [running now]. destruct (v =? w); [lia|auto]. }
  rewrite <- (firstn_skipn (B i) (waiting st i)), count_app in Hh.
  pose proof (count_le_length (doomed q st w i) (firstn (B i) (waiting st i))) as H1. rewrite firstn_length in H1.
  assert (Hz : count (doomed q st w i) (skipn (B i) (waiting st i)) = 0); [|lia].
  apply Nat.le_0_r. apply Nat.le_trans with (count (fun _ => false) (skipn (B i) (waiting st i))); [apply count_mono|now rewrite count_false].
  intros x Hx Hdoom. destruct Hsense as (_ & Hn & _). destruct (least_of (free_at st') n Hn) as (v & Hv & Hle).
  pose proof (still_time st' _ i x (free_at st' v) I' Hc Hi) as Hst. pose proof (inv_late _ _ I) as Hl. pose proof (inv_over _ _ I') as Hov'.
  specialize (Hst ltac:(unfold st'; cbn [waiting]; now rewrite set_same)).
  specialize (Hst ltac:(intros u Hu; specialize (Hle u Hu); change (late st') with (late st); lia)).
  unfold doomed in Hdoom. rewrite forallb_forall in Hdoom. specialize (Hdoom v).
  rewrite in_seq, Nat.ltb_lt, <- Hfree in Hdoom. specialize (Hdoom ltac:(lia)). lia.
Qed.

Lemma Inv_step st st' log : Inv st log -> step q st st' -> conform q (fun _ => true) (skipn past (arrived st')) -> exists log', Inv st' log'.
Proof.
  intros I Hs Hc. inv Hs.
  - cbv zeta. destruct (mandatory p r) eqn:Em; [exists (log ++ [Came r]); exact (Inv_arrive st log r I H H0 Em (H1 eq_refl) Hc _)|]. exists log.
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
    + constructor; [apply I| |auto]. intros x Hx. rewrite H. now apply (inv_past _ _ I).
    + apply fresh_snoc; [apply (inv_fresh _ _ I)|congruence].
    + intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply (inv_past _ _ I)|lia].
    + intros x Hx Hm. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply (inv_where _ _ I)|congruence].
    + intros j f. rewrite (skip_snoc past _ r (proj1 (inv_fresh _ _ I))), (count_app _ (skipn past (arrived st))). pose proof (inv_count _ _ I j f). lia.
  - rename H1 into Hnext. destruct Hnext as [? Hr|r l _ E Hfirst]; [congruence|].
    eexists. apply Inv_start; [exact I|assumption|assumption|eauto| |assumption|assumption]. intros r' l' E' j y z Ej. rewrite E in E'. injection E' as <- <-. now apply (Hfirst j y z).
  - (* Background *)
    rename H into Hw, H0 into Hrun, H1 into Hidle, H2 into Hl, H3 into Hoth, H4 into Hex. exists (log ++ [Idled]). apply Inv_idle; auto; [apply I| |].
    + intros v due b Hv. destruct (Nat.eq_dec v w) as [->|Hne]; [|rewrite set_other by auto; intros E; destruct (inv_run _ _ I v due b Hv E); split; [lia|auto]].
      rewrite set_same. intros E. inv E. split; [lia|]. intros r Hr Hm. rewrite Hoth in Hm by auto. discriminate.
    + intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[(v & due & b & Hv & Hr' & Hb)|H]]; auto.
      * rewrite (Hidle _) in H. destruct H.
      * left. exists v, due, b. rewrite set_other; [auto|congruence].
  - (* Finish *)
    rename H into Hw, H0 into Hrun. exists log.
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
    + intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[(v & due' & b' & Hv & Hr' & Hb)|H]]; auto.
      * destruct (Nat.eq_dec v w) as [->|Hne].
        -- rewrite Hrun in Hr'. inv Hr'. right. right.
           destruct (inv_run _ _ I w due' b' Hw Hrun) as (? & Hd). destruct (Hd r Hb Hm) as [Ho|Ho]; [now left|right]. exists (now st). split.
           { cbn. apply in_or_app. right. apply in_map_iff. exists r. auto. }
           cbn. lia.
        -- right. left. exists v, due', b'. rewrite set_other; auto.
      * right. right. destruct H as [Ho|(t & Ht & Hd)]; [now left|right]. exists t. split; [|auto]. cbn. apply in_or_app. auto.
    + intros v due' b' Hv. unfold set. destruct (Nat.eqb_spec v w); [discriminate|]. now apply I.
    + intros l1 e l2 E Hno v Hv. etransitivity; [|apply (inv_load _ _ I l1 e l2 E Hno v Hv)].
      pose proof (free_now' st log v I Hv). unfold free_at at 1, set. cbn [running now]. destruct (v =? w); [lia|]. reflexivity.
  - (* Refuse *)
    exfalso. apply (never_hopeless st log i r I Hc); [|auto]. rewrite H. apply in_or_app. simpl. auto.
  - (* Renew *)
    rename H into Hidle, H0 into Hov', H1 into Hfree. exists (log ++ [Idled]). apply Inv_idle; auto; [lia| |].
    { intros w due b Hw Hrun. destruct (inv_run _ _ I w due b Hw Hrun) as (? & ?). split; [|auto].
      specialize (Hfree w Hw). unfold free_at in Hfree. rewrite Hrun in Hfree. lia. }
    intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[H|H]]; auto. rewrite (Hidle _) in H. destruct H.
  - (* Tick *)
    rename H into Hdue, H0 into Hcase. cbn [arrived] in Hc. pose proof (inv_late _ _ I) as Hlate.
    assert (Hrun : forall w due b, w < n -> running st w = Some (due, b) -> S (now st) <= due <= S (now st) + longest q + over st /\
      forall r, In r b -> mandatory p r = true -> old r \/ due <= arr r + D (home q (src r))).
    { intros w due b Hw E. specialize (Hdue w due b Hw E). destruct (inv_run _ _ I w due b Hw E) as (? & ?). split; [lia|auto]. }
    assert (Hlate' : late st <= late' <= g) by (destruct Hcase as [(-> & _)|(-> & ?)]; lia).
    set (st' := State _ _ _ _ _ _ _ _ _).
    assert (Hfree : idle st \/ forall w, w < n -> now st + 1 + late st <= free_at st w + g /\
      free_at st' w <= free_at st w + (late' - late st)).
    { destruct Hcase as [(-> & [Hidle|Hbusy])|(-> & Hl)]; [auto|right|right]; intros w Hw; unfold free_at, st'; cbn [running now];
        [specialize (Hbusy w Hw)|]; destruct (running st w) as [(due, b)|] eqn:E; try congruence; try specialize (Hdue w due b Hw E); lia. }
    clear Hcase. destruct Hfree as [Hidle|Hbusy].
    { exists (log ++ [Idled]). apply Inv_idle; auto; [lia|apply I|].
      intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[H|H]]; auto. rewrite (Hidle _) in H. destruct H. }
    exists log. constructor; cbn [st' now late over arrived waiting line used running answered]; try apply I; auto.
    + lia.
    + intros r Hr. pose proof (inv_past _ _ I r Hr). lia.
    + intros i r Hr. destruct (inv_wait _ _ I i r Hr) as (Hm & Hh & Hp). split; [auto|]. split; [auto|].
      assert (Hi : i < m) by (rewrite <- Hh; now apply home_in').
      pose proof (still_time st log i r (now st + 1) I Hc Hi Hr ltac:(intros w Hw; now apply Hbusy)). lia.
    + intros l1 e l2 E Hno v Hv. pose proof (inv_load _ _ I l1 e l2 E Hno v Hv). destruct (Hbusy v Hv). lia.
    + intros l1 w i t b l2 E. destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5).
      split; [auto|]. split; [auto|]. split; [auto|]. split; [lia|auto].
Qed.

Lemma Inv_reachable st : past = 0 -> reachable q st -> conform q (fun _ => true) (skipn past (arrived st)) -> exists log, Inv st log.
Proof.
  intros E. induction 1 as [|st st' Hr IH Hs]; intros Hc; [exists []; now apply Inv_initial|].
  destruct IH as (log & I); [|now apply (Inv_step st st' log)]. revert Hc. rewrite E. cbn [skipn].
  inv Hs; auto. intros Hc. apply (conform_prefix q (fun _ => true) _ [r]). cbv zeta in Hc. destruct (mandatory p r); auto.
Qed.
Lemma Inv_keeps st log s r : Inv st log -> In r (arrived st) -> at_home q s r = true -> mandatory p r = true ->
  arr r + D s < now st -> old r \/ in_time (as_problem q s) (view st) r.
Proof.
  intros I Hin Hh Hm Hd. pose proof (inv_over _ _ I) as Hov. unfold at_home in Hh. apply Nat.eqb_eq in Hh. destruct Htest as (HX & _).
  destruct (inv_where _ _ I r Hin Hm) as [H|[(w & due & b & Hw & Hrun & Hb)|H]].
  - rewrite Hh in H. destruct (inv_wait _ _ I s r H) as (_ & _ & _ & Hx).
    assert (Hlt : s < m) by (rewrite <- Hh; now apply home_in'). specialize (HX s Hlt). lia.
  - destruct (inv_run _ _ I w due b Hw Hrun) as (? & Hd'). specialize (Hd' r Hb Hm). rewrite Hh in Hd'. destruct Hd' as [?|?]; [now left|lia].
  - rewrite Hh in H. auto.
Qed.
End Earliest.

(** Theorem E: by deadline, if the lines hold for some [X], every service keeps its promise. *)
Theorem theorem_E q X : sensible q -> how q = Earliest -> test_E q X -> forall s, served q s (fun _ => true).
Proof.
  intros Hs Hr Ht s st Hreach Hc r Hin Hh Hm Hd.
  destruct (Inv_reachable q X 0 (fun _ => False) Hs Hr Ht st eq_refl Hreach Hc) as (log & I).
  destruct (Inv_keeps q X 0 (fun _ => False) Hs Ht st log s r I Hin Hh Hm Hd); tauto.
Qed.

(** And nothing mandatory is given up. *)
Theorem earliest_refuse_none q X : sensible q -> how q = Earliest -> test_E q X ->
  forall st, reachable q st -> conform q (fun _ => true) (arrived st) -> forall i r, In r (waiting st i) -> ~ hopeless q st i r.
Proof.
  intros Hs Hr Ht st Hreach Hc i r Hin. destruct (Inv_reachable q X 0 (fun _ => False) Hs Hr Ht st eq_refl Hreach Hc) as (log & I).
  now apply (never_hopeless q X 0 (fun _ => False) Hs Hr Ht st log i r I).
Qed.

(** One worker, and each request to begin by its deadline less the time of a batch: the test as the plan computes it. *)
Definition test_one q := let D i := limit (sv q i) + lateness q in let X i := D i - span (sv q i) in
  (forall i, i < length (services q) -> span (sv q i) <= D i) /\
  (forall y k, k < length (services q) -> 0 < clear q y k -> lateness q + longest q + excess q + work q (clear q y) <= y) /\
  (forall i y k, i < length (services q) -> k < length (services q) -> 1 < size (sv q i) -> D i <= y ->
     0 < short_requests q X i y i -> 0 < short q X i y k -> lateness q + excess q + span (sv q i) + work q (short q X i y) <= y).

Lemma work_less q c k : k < length (services q) -> 0 < c k -> work q (less c k) + span (sv q k) = work q c.
Proof.
  intros Hk Hc. rewrite <- (sum_one (fun j => span (sv q j)) k (length (services q)) Hk). unfold work. rewrite <- sum_add.
  apply sum_ext. intros j _. unfold less. destruct (Nat.eqb_spec j k) as [->|]; cbn [Nat.b2n]; [|lia].
  rewrite Nat.mul_sub_distr_l. assert (span (sv q k) * 1 <= span (sv q k) * c k) by (apply Nat.mul_le_mono_l; lia). lia.
Qed.

Theorem theorem_E_one q : sensible q -> how q = Earliest -> crew q = 1 -> test_one q -> forall s, served q s (fun _ => true).
Proof.
  intros Hs Hr Hn (H1 & H2 & H3). apply (theorem_E q (fun i => limit (sv q i) + lateness q - span (sv q i))); auto. split; [|split].
  - intros i Hi. specialize (H1 i Hi). lia.
  - intros k y Hk Hc. specialize (H1 k Hk). specialize (H2 y k Hk Hc). pose proof (work_less q (clear q y) k Hk Hc).
    exists (work q (less (clear q y) k)). split; [left; rewrite Hn, Nat.div_1_r; auto|lia].
  - intros i k y Hi Hk HB Hy Hni Hc. right. rewrite Hn, Nat.div_1_r. specialize (H1 k Hk).
    specialize (H3 i y k Hi Hk HB Hy Hni Hc). pose proof (work_less q _ k Hk Hc). lia.
Qed.
