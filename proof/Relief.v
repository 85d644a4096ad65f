(** Theorem E: what may stand for lines (rt-core/src/sharing/relief.rs), if requests of a service begin in time for another reason.

    Counted in batches that hold one request each that is due in time (singly), from an instant at which the request waits
    (arrival), or, behind the point that a line counts from, from an instant at which others may wait (after). *)
Require Import List Arith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

Section Relief.
Variable q : sharing.
Notation n := (crew q).
Notation m := (length (services q)).
Notation B i := (size (sv q i)).
Notation P i := (span (sv q i)).
Notation g := (lateness q).
Notation D i := (limit (sv q i) + g).
Notation p := (as_problem q 0).
Notation alpha := (alpha q).
Notation come := (come q).
Notation early := (early q).
Variable X : nat -> nat.

(** What comes from [z] before the deadline, or may wait there; in batches of which all but the last are full; and in such that
    as many as come may not be. *)
Definition there z j := if D j <=? z + X j then alpha j (z + X j - D j + 1) else 0.
Definition full z j := cdiv (there z j) (B j).
Definition mixed z j := let a := Nat.min (come z j) (there z j - 1) in a + cdiv (there z j - a) (B j).

(** Counted from [z], or from the next start, whenever that is. *)
Definition enough (c : nat -> nat -> nat) k z :=
  (exists x, share_within q (less (c z) k) x /\ g + longest q + excess q + x + D k <= z + X k) \/
  longest q <= z /\ forall w, w <= longest q ->
    g + excess q + ((n - 1) * longest q + work q (less (c (z - w)) k)) / n + D k <= z - w + X k.

Definition singly k := forall y, 0 < come y k ->
  exists x, share_within q (less (come y) k) x /\ g + longest q + excess q + x + D k <= y + X k.
Definition arrival k := exists z, z <= D k /\ enough mixed k z.
Definition after k y := exists z, z <= y /\ enough full k z.

(** Something stands for the lines of [k] at [y]. *)
Definition relieved k y := singly k \/ arrival k \/ after k y.

Notation counts := (Happened.counts X).
Variable past : nat.
Variable old : request -> Prop.
Notation Inv := (Inv q X past old).
Hypothesis Hsense : sensible q.

Lemma enough_room c k z : enough c k z -> g + longest q + excess q + D k <= z + X k.
Proof. intros [(x & _ & H)|(Hz & H)]; [lia|]. specialize (H (longest q) ltac:(lia)). lia. Qed.

Lemma nothing_begun v l : (forall w i t b, ~ In (Began w i t b) l) -> work q (begun v l) = 0.
Proof.
  clear. intros H. unfold work. rewrite (sum_ext _ (fun _ => 0)), sum_zero; [auto|]. intros j _.
  unfold begun. rewrite (count_ext _ (fun _ => false)), count_false; [lia|]. intros e He. destruct e; auto. now destruct (H _ _ _ _ He).
Qed.

Lemma offset_within st log l1 e l2 v : Inv st log -> log = l1 ++ e :: l2 -> e <> Idled -> offset q e v <= at_ e + longest q.
Proof.
  intros I E He. pose proof Hsense as (_ & _ & _ & Hpar). destruct e as [r|w i t b|t|]; cbn [offset at_]; [lia| |lia|congruence].
  destruct (inv_order _ _ I _ _ _ _ _ _ E) as (_ & Hi & _). destruct (Hpar i Hi) as (_ & _ & HP). destruct (v =? w); lia.
Qed.

(** What is enough from an entry on. *)
Lemma from_point c st log s k t l1 e l2 z : Inv st log -> log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) ->
  at_ e + z = arr k + D s -> enough c s z ->
  (forall u, u <= arr k + D s -> counts u st l2 ->
     forall j, j < m -> sum (fun v => begun v l2 j) n <= less (c (arr k + D s - u)) s j) ->
  (forall w, w < n -> t + late st <= free_at st w + g) ->
  t + excess q <= arr k + X s + over st.
Proof.
  intros I El Hno Hz Henough Hmost Hlate. pose proof Hsense as (_ & Hn & _).
  assert (Hload : forall v, v < n -> free_at st v <= at_ e + longest q + late st + over st + work q (begun v l2)).
  { intros v Hv. pose proof (inv_load _ _ I l1 e l2 El Hno v Hv).
    pose proof (offset_within st log l1 e l2 v I El ltac:(intros ->; apply Hno; simpl; auto)). lia. }
  destruct (inv_point _ _ I l1 e l2 El Hno) as (Hcounts & Hnext). pose proof (enough_room _ _ _ Henough) as Hroom.
  destruct Henough as [(x & Hshare & Hx)|(Hlong & Hstart)].
  - specialize (Hmost (at_ e) ltac:(lia) Hcounts). replace (arr k + D s - at_ e) with z in Hmost by lia.
    destruct (share_least q (fun v => begun v l2) _ (fun j => sum (fun v => begun v l2 j) n) x Hn ltac:(reflexivity) Hmost Hshare) as (v & Hv & Hw).
    specialize (Hload v Hv). specialize (Hlate v Hv). lia.
  - destruct Hnext as [Hnone|(w & u & Hw & Hu & Hcu & Hfree)].
    + specialize (Hload 0 Hn). specialize (Hlate 0 Hn). rewrite nothing_begun in Hload by auto. lia.
    + specialize (Hmost u ltac:(lia) Hcu). specialize (Hstart (u - at_ e) ltac:(lia)).
      replace (arr k + D s - u) with (z - (u - at_ e)) in Hmost by lia.
      pose proof (average q w 0 (u + g + over st) t l2 (less (c (z - (u - at_ e))) s) Hn Hw ltac:(lia)) as Havg. specialize (Havg ltac:(
        intros v Hv; specialize (Hload v Hv); specialize (Hlate v Hv); destruct (Nat.eqb_spec v w) as [->|]; lia) Hmost).
      cbn [Nat.add] in Havg. revert Hstart Havg. generalize (((n - 1) * longest q + work q (less (c (z - (u - at_ e))) s)) / n).
      intros Q Hstart Havg. lia.
Qed.

(** Where it is not yet over, there is time. *)
Lemma before_point c st log s k t z : Inv st log -> enough c s z -> now st + z <= arr k + D s ->
  (forall w, w < n -> t + late st <= free_at st w + g) -> t + excess q <= arr k + X s + over st.
Proof.
  intros I He Hz Hlate. pose proof Hsense as (_ & Hn & _). pose proof (enough_room _ _ _ He). specialize (Hlate 0 Hn).
  pose proof (free_now' st log 0 I Hn). lia.
Qed.

(** Each instant that is over since an entry is written down. *)
Lemma marked st log l1 e l2 t : Inv st log -> log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) -> at_ e <= t < now st ->
  exists l1' l2', log = l1' ++ Passed t :: l2' /\ ~ In Idled (Passed t :: l2') /\ exists la, l2 = la ++ l2'.
Proof.
  intros I E Hno Ht. pose proof (inv_marks _ _ I l1 e l2 E Hno t Ht) as Hin. destruct (in_split _ _ Hin) as (la & lb & Es).
  exists (l1 ++ la), lb. split; [rewrite E, Es, <- app_assoc; reflexivity|]. split.
  - intros H. apply Hno. rewrite Es. apply in_or_app. auto.
  - destruct la as [|e' la]; cbn in Es; injection Es as -> ->; [now exists []|]. exists (la ++ [Passed t]). now rewrite <- app_assoc.
Qed.

(** * Singly *)

Lemma heads_count j d l : (forall w t b, In (Began w j t b) l -> exists h tl, b = h :: tl /\ early d j h = true) ->
  batches j l <= count (early d j) (taken j l).
Proof.
  clear. induction l as [|e l IH]; intros H; [unfold batches; rewrite count_nil; lia|].
  specialize (IH ltac:(intros; eapply H; simpl; eauto)). unfold batches. rewrite count_cons. fold (batches j l).
  destruct e as [r|w i t b|t|]; cbn [Nat.b2n taken flat_map]; try exact IH. fold (taken j l). rewrite count_app.
  destruct (Nat.eqb_spec i j) as [->|]; cbn [Nat.b2n]; [|rewrite count_nil; exact IH].
  destruct (H w t b (or_introl eq_refl)) as (h & tl & -> & Hh). rewrite count_cons, Hh. cbn [Nat.b2n]. lia.
Qed.

(** No batch is empty. *)
Lemma heads st log d l1 l : Inv st log -> log = l1 ++ l ->
  (forall w i t h tl, In (Began w i t (h :: tl)) l -> early d i h = true) ->
  forall w j t b, In (Began w j t b) l -> exists h tl, b = h :: tl /\ early d j h = true.
Proof.
  intros I E Hh w j t b Hin. destruct (in_split _ _ Hin) as (a & z & Es).
  destruct (inv_order _ _ I (l1 ++ a) w j t b z) as (Hb & _); [rewrite E, Es, <- app_assoc; reflexivity|].
  destruct b as [|h tl]; [congruence|]. exists h, tl. split; [auto|]. now apply (Hh w j t h tl).
Qed.

Lemma waits_count s k d st : In k (waiting st s) -> d = arr k + D s -> 0 < count (early d s) (waiting st s).
Proof.
  intros Hk ->. apply in_split in Hk as (u & z & ->). rewrite count_app, count_cons. unfold Happened.early at 2.
  rewrite (proj2 (Nat.leb_le _ _)) by lia. cbn. lia.
Qed.

Lemma by_singly st log s k t : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> s < m -> In k (waiting st s) ->
  singly s -> (forall w, w < n -> t + late st <= free_at st w + g) -> t + excess q <= arr k + X s + over st.
Proof.
  intros I Hc Hs Hk Hsingly Hlate. pose proof Hsense as (_ & Hn & _). set (d := arr k + D s).
  destruct (inv_clear _ _ I d) as (l1 & r & l2 & El & Hidle & Hsince & Hheads).
  { exists s, k. split; [auto|]. unfold Happened.early, d. apply Nat.leb_le. lia. }
  assert (E' : log = (l1 ++ [Came r]) ++ l2) by (rewrite El, <- app_assoc; reflexivity).
  assert (Hr : arr r <= arr k).
  { apply (Hsince s k); [apply in_or_app; auto|]. unfold Happened.early, d. apply Nat.leb_le. lia. }
  set (y := d - arr r).
  assert (Hcome : forall j, count (early d j) (taken j l2 ++ waiting st j) <= come y j).
  { intros j. etransitivity; [apply (window Hsense st log j _ l2 (arr r) d I Hc E'); intros x Hx He; now apply (Hsince j x)|].
    unfold Happened.come, y. destruct (Nat.leb_spec (arr r + D j) d), (Nat.leb_spec (D j) (d - arr r)); try lia.
    replace (d - D j - arr r) with (d - arr r - D j) by lia. lia. }
  pose proof (waits_count s k d st Hk eq_refl) as Hw.
  assert (Hbatches : forall j, batches j l2 <= count (early d j) (taken j l2)).
  { intros j. apply heads_count. intros w' t' b. apply (heads st log d _ l2 I E' Hheads). }
  destruct (Hsingly y) as (x & Hshare & Hx).
  { specialize (Hcome s). rewrite count_app in Hcome. lia. }
  destruct (share_least q (fun v => begun v l2) (less (come y) s) (fun j => sum (fun v => begun v l2 j) n) x Hn ltac:(reflexivity)) as (v & Hv & Hwork); [|exact Hshare|].
  { intros j Hj. specialize (Hcome j). specialize (Hbatches j). rewrite count_app in Hcome. pose proof (begun_batches q l2 j).
    unfold less. destruct (Nat.eqb_spec j s) as [->|]; lia. }
  pose proof (inv_load _ _ I l1 (Came r) l2 El ltac:(intros [H|H]; [discriminate|auto]) v Hv) as Hload.
  cbn [offset] in Hload. specialize (Hlate v Hv). unfold y, d in Hx. lia.
Qed.

(** * After *)

Lemma there_most st log j l1 l u d : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> log = l1 ++ l ->
  counts u st l -> u <= d -> count (early d j) (taken j l ++ waiting st j) <= there (d - u) j.
Proof.
  intros I Hc E (_ & Hu & _) Hd. etransitivity; [apply (window Hsense st log j l1 l (u - X j) d I Hc E)|].
  - intros x Hx _. specialize (Hu j x Hx). lia.
  - unfold there. destruct (Nat.leb_spec (u - X j + D j) d), (Nat.leb_spec (D j) (d - u + X j)); try lia.
    apply (alpha_mono q j _ _ Hsense). lia.
Qed.

(** Behind an entry from which none is followed that was not full. *)
Lemma by_after st log s k t l1 e l2 : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> s < m -> In k (waiting st s) ->
  log = l1 ++ e :: l2 -> ~ In Idled (e :: l2) -> at_ e <= arr k + D s ->
  (forall b1 e b2, l2 = b1 ++ e :: b2 -> followed q s e b2 = false) ->
  (forall w i t h tl, In (Began w i t (h :: tl)) l2 -> early (arr k + D s) i h = true) ->
  after s (arr k + D s - at_ e) ->
  (forall w, w < n -> t + late st <= free_at st w + g) -> t + excess q <= arr k + X s + over st.
Proof.
  intros I Hc Hs Hk El Hno Hle Hfollowed Hheads (z & Hz & Henough) Hlate.
  destruct (Nat.leb_spec (now st + z) (arr k + D s)) as [|Hnow]; [now apply (before_point full st log s k t z)|].
  destruct (marked st log l1 e l2 (arr k + D s - z) I El Hno ltac:(lia)) as (l1' & l2' & El' & Hno' & la & Ela).
  apply (from_point full st log s k t l1' _ l2' z I El' Hno'); [cbn [at_]; lia|auto| |auto].
  intros u Hu Hcounts j Hj.
  destruct (batches_most Hsense st log s k (l1' ++ [Passed (arr k + D s - z)]) l2' (there (arr k + D s - u)) I) as (_ & Hmost); auto.
  - rewrite El', <- app_assoc. reflexivity.
  - intros b1 e' b2 E. apply (Hfollowed (la ++ b1)). rewrite Ela, E, app_assoc. reflexivity.
  - intros w i t' h tl Hin. apply (Hheads w i t' h tl). rewrite Ela. apply in_or_app. auto.
  - intros j' Hj'. apply (there_most st log j' (l1' ++ [Passed (arr k + D s - z)])); auto. rewrite El', <- app_assoc. reflexivity.
Qed.

(** * Arrival *)

(** Only as many batches that are not full are followed by another, or by what waits, as come behind them. *)
Lemma short_batches j d u W l : let late x := early d j x && (u <=? arr x) in
  (forall b1 w t b b2, l = b1 ++ Began w j t b :: b2 -> (exists h tl, b = h :: tl /\ early d j h = true) /\
     (forall x, In x (taken j b2 ++ W) -> forall r, In r b -> arr r <= arr x) /\
     (length b < B j -> forall x, In x (taken j b2 ++ W) -> u <= arr x)) ->
  0 < count (early d j) W ->
  exists a, a <= batches j l /\ a <= count late (taken j l ++ W) /\ (batches j l - a) * B j + a + 1 <= count (early d j) (taken j l ++ W).
Proof.
  intros late H HW. induction l as [|e l IH].
  { exists 0. cbn [taken flat_map app]. unfold batches. rewrite count_nil. lia. }
  assert (Hl := fun b1 w t b b2 (E : l = b1 ++ Began w j t b :: b2) => H (e :: b1) w t b b2 ltac:(rewrite E; reflexivity)).
  destruct (IH Hl) as (a & Ha & Hlate & Hcount). unfold batches. rewrite count_cons. fold (batches j l).
  destruct e as [r|w i t b|t|]; cbn [Nat.b2n taken flat_map]; try (exists a; auto; fail). fold (taken j l).
  destruct (Nat.eqb_spec i j) as [->|]; cbn [Nat.b2n]; [|exists a; auto]. rewrite <- app_assoc, !(count_app _ b).
  destruct (H [] w t b l eq_refl) as ((h & tl & Eb & Hh) & Hle & Hshort).
  destruct (Nat.ltb_spec (length b) (B j)) as [Hlen|Hlen].
  - exists (1 + batches j l). assert (Hall : count late (taken j l ++ W) = count (early d j) (taken j l ++ W)).
    { apply count_ext. intros x Hx. unfold late. specialize (Hshort Hlen x Hx). rewrite (proj2 (Nat.leb_le _ _)) by auto. apply andb_true_r. }
    pose proof (heads_count j d l) as Hheads. specialize (Hheads ltac:(intros w' t' b' Hin; destruct (in_split _ _ Hin) as (b1 & b2 & E); now destruct (Hl b1 w' t' b' b2 E))).
    rewrite Hall. assert (1 <= count (early d j) b) by (rewrite Eb, count_cons, Hh; cbn; lia).
    rewrite count_app. rewrite Nat.sub_diag. lia.
  - exists a. rewrite (count_all (early d j) b); [nia|]. intros r Hr.
    assert (Hx : exists x, In x (taken j l ++ W) /\ early d j x = true).
    { clear - HW. induction W as [|x W IH]; [rewrite count_nil in HW; lia|]. rewrite count_cons in HW. destruct (early d j x) eqn:E.
      - exists x. split; [apply in_or_app; simpl; auto|auto].
      - destruct (IH HW) as (y & Hy & Ey). exists y. split; [|auto]. apply in_app_or in Hy as [Hy|Hy]; apply in_or_app; simpl; auto. }
    destruct Hx as (x & Hx & He). specialize (Hle x Hx r Hr). unfold Happened.early in *. apply Nat.leb_le in He. apply Nat.leb_le. lia.
Qed.

(** So many batches, if [N] requests are counted, of which [C] come. *)
Lemma mixed_most c a C N b : 0 < b -> a + 1 <= c -> a <= C -> (c - 1 - a) * b + a + 1 <= N ->
  c <= Nat.min C (N - 1) + cdiv (N - Nat.min C (N - 1)) b.
Proof.
  clear. intros Hb Ha HC HN. set (s := Nat.min C (N - 1)). assert (Hs : a <= s <= N - 1) by (unfold s; lia).
  destruct (Nat.leb_spec c s) as [|Hcs]; [lia|].
  assert (H : (c - 1 - s) * b + 1 <= N - s) by nia.
  pose proof (cdiv_more (N - s) b (c - 1 - s) Hb H). lia.
Qed.

Lemma mixed_mono C C' N N' b : 0 < b -> C <= C' -> N <= N' ->
  Nat.min C (N - 1) + cdiv (N - Nat.min C (N - 1)) b <= Nat.min C' (N' - 1) + cdiv (N' - Nat.min C' (N' - 1)) b.
Proof.
  clear. intros Hb HC HN. destruct (Nat.eq_dec N 0) as [->|HN0].
  { rewrite Nat.min_0_r. unfold cdiv at 1. rewrite Nat.div_small; lia. }
  set (s := Nat.min C (N - 1)). assert (Hs : s <= C /\ s <= N - 1) by (unfold s; lia).
  pose proof (cdiv_ge (N - s) b Hb) as Hge. pose proof (Nat.mul_div_le (N - s + b - 1) b ltac:(lia)) as Hle.
  change ((N - s + b - 1) / b) with (cdiv (N - s) b) in Hle. revert Hge Hle. generalize (cdiv (N - s) b). intros c Hge Hle.
  apply (mixed_most (s + c) s); [auto|nia|lia|]. replace (s + c - 1 - s) with (c - 1) by lia. destruct c; nia.
Qed.

Lemma batches_mixed st log s k l1 l u : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> log = l1 ++ l -> In k (waiting st s) ->
  let d := arr k + D s in u <= d -> counts u st l ->
  (forall w i t h tl, In (Began w i t (h :: tl)) l -> early d i h = true) ->
  forall j, j < m -> sum (fun v => begun v l j) n <= less (mixed (d - u)) s j.
Proof.
  intros I Hc El Hk d Hd Hcounts Hheads j Hj. etransitivity; [apply begun_batches|]. pose proof Hsense as (_ & _ & _ & Hpar).
  destruct (Hpar j Hj) as (HB & _). pose proof (there_most st log j l1 l u d I Hc El Hcounts Hd) as Hthere.
  pose proof (waits_count s k d st Hk eq_refl) as Hw.
  set (late x := early d j x && (u <=? arr x)).
  assert (Hcome : count late (taken j l ++ waiting st j) <= come (d - u) j).
  { etransitivity; [exact (came_since Hsense st log j l1 l u d I Hc El)|]. unfold Happened.come.
    destruct (Nat.leb_spec (u + D j) d), (Nat.leb_spec (D j) (d - u)); try lia. replace (d - D j - u) with (d - u - D j) by lia. lia. }
  assert (Hsplit : forall b1 w t b b2, l = b1 ++ Began w j t b :: b2 -> (exists h tl, b = h :: tl /\ early d j h = true) /\
     (forall x, In x (taken j b2 ++ waiting st j) -> forall r, In r b -> arr r <= arr x) /\
     (length b < B j -> forall x, In x (taken j b2 ++ waiting st j) -> u <= arr x)).
  { intros b1 w t b b2 E. destruct (inv_order _ _ I (l1 ++ b1) w j t b b2) as (_ & _ & _ & _ & _ & _ & Hx).
    { rewrite El, E, app_assoc. reflexivity. }
    assert (Hin : In (Began w j t b) l) by (rewrite E; apply in_or_app; simpl; auto).
    split; [apply (heads st log d l1 l I El Hheads w j t b Hin)|]. split; [intros x Hin'; now apply Hx|].
    intros Hlen x Hin'. destruct Hcounts as (_ & _ & Hstarts). specialize (Hstarts _ _ _ _ Hin). pose proof (proj1 (Hx x Hin') Hlen). lia. }
  assert (Hmost : forall c, (exists a, a + 1 <= c /\ a <= count late (taken j l ++ waiting st j) /\
    (c - 1 - a) * B j + a + 1 <= count (early d j) (taken j l ++ waiting st j)) -> c <= mixed (d - u) j).
  { intros c (a & H1 & H2 & H3). apply (mixed_most c a); auto; lia. }
  unfold less. destruct (Nat.eqb_spec j s) as [->|Hne].
  - assert (H : batches s l + 1 <= mixed (d - u) s); [|lia]. apply Hmost.
    destruct (short_batches s d u (waiting st s) l Hsplit Hw) as (a & H1 & H2 & H3). exists a. split; [lia|]. split; [exact H2|].
    replace (batches s l + 1 - 1) with (batches s l) by lia. exact H3.
  - rewrite Nat.sub_0_r. destruct (Nat.eq_dec (batches j l) 0) as [->|E0]; [lia|].
    destruct (last_such (fun e _ => match e with Began _ i _ _ => i =? j | _ => false end) l) as [Hnone|(la & e & lb & E & He & Hnone)].
    { destruct (batches_split j l ltac:(lia)) as (b1 & w & t & b & b2 & E). specialize (Hnone _ _ _ E). cbn in Hnone. rewrite Nat.eqb_refl in Hnone. discriminate. }
    destruct e as [|w i t b| |]; try discriminate. apply Nat.eqb_eq in He. subst i.
    assert (Elb : batches j lb = 0).
    { destruct (Nat.eq_dec (batches j lb) 0) as [|Hb]; [auto|]. destruct (batches_split j lb ltac:(lia)) as (b1 & w' & t' & b' & b2 & E').
      specialize (Hnone _ _ _ E'). cbn in Hnone. rewrite Nat.eqb_refl in Hnone. discriminate. }
    assert (Eall : taken j l ++ waiting st j = taken j la ++ (b ++ taken j lb ++ waiting st j)).
    { rewrite E, taken_app. cbn [taken flat_map]. rewrite Nat.eqb_refl, <- !app_assoc. reflexivity. }
    assert (Ebatches : batches j l = batches j la + 1).
    { rewrite E. unfold batches in *. rewrite count_app, count_cons, Nat.eqb_refl, Elb. cbn. lia. }
    apply Hmost. rewrite Ebatches, Eall. destruct (short_batches j d u (b ++ taken j lb ++ waiting st j) la) as (a & H1 & H2 & H3).
    + intros b1 w' t' b' b2 E'. destruct (Hsplit b1 w' t' b' (b2 ++ Began w j t b :: lb)) as (G1 & G2 & G3).
      { rewrite E, E', <- app_assoc. reflexivity. }
      rewrite taken_app in G2, G3. cbn [taken flat_map] in G2, G3. rewrite Nat.eqb_refl in G2, G3. rewrite <- !app_assoc in G2, G3. auto.
    + destruct (Hsplit la w t b lb E) as ((h & tl & -> & Hh) & _). rewrite count_app, count_cons, Hh. cbn. lia.
    + exists a. split; [lia|]. split; [exact H2|]. replace (batches j la + 1 - 1) with (batches j la) by lia. exact H3.
Qed.

Lemma by_arrival st log s k t : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> s < m -> In k (waiting st s) ->
  arrival s -> (forall w, w < n -> t + late st <= free_at st w + g) -> t + excess q <= arr k + X s + over st.
Proof.
  intros I Hc Hs Hk (z & Hz & Henough) Hlate.
  destruct (Nat.leb_spec (now st + z) (arr k + D s)) as [|Hnow]; [now apply (before_point mixed st log s k t z)|].
  assert (Hkd : early (arr k + D s) s k = true) by (unfold Happened.early; apply Nat.leb_le; lia).
  destruct (inv_clear _ _ I (arr k + D s)) as (l1 & r & l2 & El & Hidle & Hsince & Hheads); [now exists s, k|].
  assert (Hr : arr r <= arr k) by (apply (Hsince s k); [apply in_or_app|]; auto).
  destruct (marked st log l1 _ l2 (arr k + D s - z) I El) as (l1' & l2' & El' & Hno' & la & Ela).
  { intros [H|H]; [discriminate|auto]. }
  { cbn [at_]. lia. }
  apply (from_point mixed st log s k t l1' _ l2' z I El' Hno'); [cbn [at_]; lia|auto| |auto].
  intros u Hu Hcounts. apply (batches_mixed st log s k (l1' ++ [Passed (arr k + D s - z)])); auto.
  - rewrite El', <- app_assoc. reflexivity.
  - intros w i t' h tl Hin. apply (Hheads w i t' h tl). rewrite Ela. apply in_or_app. auto.
Qed.
End Relief.
