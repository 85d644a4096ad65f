(** Theorem E: several services on the same workers, by deadline; over the model of Sharing.v.

    The test without other keys and patience: the lines that Theorem E states, or what stands for them (Relief.v), for any [X],
    within which of its arrival each request of a service is to begin, dispatch as late as it may be. *)
Require Import List Arith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened Relief.
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
Notation come := (come q).
Notation early := (early q).
Notation followed := (followed q).
Variable X : nat -> nat.

(** * The test *)

(** Counted from an instant at which nothing with a deadline up to that of the request looked at waits, [y] before that. *)
Definition clear y j := cdiv (come y j) (B j).

(** Counted from a batch of [i] that was not full. *)
Definition delay i j := Nat.min (X j) (X i + D j - D i).
Definition short_requests i y j :=
  if j =? i then Nat.min (alpha i (y - D i + 1)) (alpha i (y - D i + X i + 1) - 1)
  else if D j <=? y + delay i j then alpha j (y + delay i j - D j + 1) else 0.
Definition short i y j := cdiv (short_requests i y j) (B j).

Definition line_clear k y := 0 < clear y k ->
  exists x, share_within q (less (clear y) k) x /\ g + longest q + excess q + x + D k <= y + X k.

Definition line_short i k y := 1 < B i -> D i <= y -> 0 < short_requests i y i -> 0 < short i y k ->
  (exists x, share_within q (less (short i y) k) x /\ g + longest q + excess q + x + D k <= y + X k) \/
  g + excess q + (P i + (n - 1) * longest q + work q (less (short i y) k)) / n + D k <= y + X k.

(** Whether the lines of [k] at [y] hold. *)
Definition lines k y := line_clear k y /\ forall i, i < m -> line_short i k y.

Definition test_E := (forall i, i < m -> X i + P i <= D i) /\ forall k y, k < m -> relieved q X k y \/ lines k y.

(** All lines hold, and nothing has to stand for any. *)
Definition test_lines := (forall i, i < m -> X i + P i <= D i) /\ forall k y, k < m -> lines k y.

Lemma test_lines_E : test_lines -> test_E.
Proof. intros (HX & H). split; [exact HX|auto]. Qed.

Variable past : nat.
Variable old : request -> Prop.
Notation Inv := (Happened.Inv q X past old).
Notation counts := (Happened.counts X).

Hypothesis Hsense : sensible q.
Hypothesis Hrule : how q = Earliest.
Hypothesis Htest : test_E.

(** What waits has begun before it is too late: while all are busy until [t], or dispatch may still be late, there is time. *)
Lemma still_time st log s k t : Inv st log -> conform q (fun _ => true) (skipn past (arrived st)) -> s < m -> In k (waiting st s) ->
  (forall w, w < n -> t + late st <= free_at st w + g) ->
  t + excess q <= arr k + X s + over st.
Proof.
  intros I Hc Hs Hk Hlate. pose proof Hsense as (_ & Hn & _ & Hpar). destruct Htest as (_ & Hholds).
  set (d := arr k + D s).
  assert (Hkd : early d s k = true) by (unfold Happened.early, d; apply Nat.leb_le; lia).
  destruct (inv_clear _ _ I d) as (l1 & r0 & l2 & El & Hidle & Hsince & Hheads); [exists s, k; auto|].
  assert (Hr0 : arr r0 <= arr k) by (apply (Hsince s k); [apply in_or_app|]; auto).
  destruct (last_such (followed s) l2) as [Hno|(b1 & e & b2 & E2 & Hf & Hno)].
  - (* counted from the instant at which nothing waited *)
    set (y := d - arr r0).
    destruct (batches_most Hsense st log s k (l1 ++ [Came r0]) l2 (come y) I) as (Hpos & Hmost); auto.
    { rewrite El, <- app_assoc. reflexivity. }
    { intros j Hj. etransitivity; [apply (window Hsense st log j (l1 ++ [Came r0]) l2 (arr r0) d I Hc)|].
      - rewrite El, <- app_assoc. reflexivity.
      - intros x Hx He. now apply (Hsince j x).
      - unfold Happened.come, y. destruct (Nat.leb_spec (arr r0 + D j) d), (Nat.leb_spec (D j) (d - arr r0)); try lia.
        replace (d - D j - arr r0) with (d - arr r0 - D j) by lia. lia. }
    destruct (Hholds s y Hs) as [[Hr|[Hr|Hr]]|(Hclear & _)].
    { now apply (by_singly q X past old Hsense st log s k t). }
    { now apply (by_arrival q X past old Hsense st log s k t). }
    { apply (by_after q X past old Hsense st log s k t l1 (Came r0) l2); auto; [intros [H|H]; [discriminate|auto]|cbn [at_]; lia]. }
    destruct (Hclear Hpos) as (x & Hshare & Hx).
    destruct (share_least q (fun v => begun v l2) _ (fun j => sum (fun v => begun v l2 j) n) x Hn ltac:(reflexivity) Hmost Hshare) as (v & Hv & Hw).
    pose proof (inv_load _ _ I l1 (Came r0) l2 El) as Hload. specialize (Hload ltac:(intros [H|H]; [discriminate|auto]) v Hv).
    cbn [offset] in Hload. specialize (Hlate v Hv). unfold y, d in Hx. lia.
  - (* counted from the last batch that was not full though others followed *)
    destruct e as [|w i u b| |]; try discriminate. cbn [followed] in Hf. apply andb_true_iff in Hf as (Hlen & Hf). apply Nat.ltb_lt in Hlen.
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
      - etransitivity; [apply (window Hsense st log i _ b2 u d I Hc Elog')|].
        + intros x Hx _. now apply (Hown x Hx).
        + rewrite (proj2 (Nat.leb_le _ _)) by auto. replace (d - D i - u) with (y - D i) by (unfold y; lia). lia.
      - pose proof (window Hsense st log i (l1 ++ Came r0 :: b1) (Began w i u (h :: tl) :: b2) (u - X i) d I Hc Elog) as Hw.
        cbn [taken flat_map] in Hw. fold (taken i b2) in Hw. rewrite Nat.eqb_refl in Hw.
        specialize (Hw ltac:(intros x Hx _; rewrite <- app_assoc in Hx; apply in_app_or in Hx as [Hx|Hx];
          [specialize (Hbarr x Hx); lia|pose proof (proj1 (Hown x Hx) Hlen); lia])).
        rewrite <- app_assoc, count_app, count_cons in Hw. unfold early at 1 in Hw. rewrite (proj2 (Nat.leb_le _ _) Hhd) in Hw. cbn [Nat.b2n] in Hw.
        rewrite (proj2 (Nat.leb_le (u - X i + D i) d)) in Hw by lia.
        pose proof (alpha_mono q i (d - D i - (u - X i) + 1) (y - D i + X i + 1) Hsense ltac:(unfold y; lia)). lia. }
    destruct (batches_most Hsense st log s k _ b2 (short_requests i y) I Elog') as (Hpos & Hmost); auto.
    { intros j Hj. destruct (Nat.eq_dec j i) as [->|Hne]; [exact Hcount|].
      etransitivity; [apply (window Hsense st log j _ b2 (u - delay i j) d I Hc Elog')|].
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
    destruct (Hholds s y Hs) as [[Hr|[Hr|Hr]]|(_ & Hshort)].
    { now apply (by_singly q X past old Hsense st log s k t). }
    { now apply (by_arrival q X past old Hsense st log s k t). }
    { apply (by_after q X past old Hsense st log s k t _ _ b2 I Hc Hs Hk Elog); auto; [|cbn [at_]; unfold d in *; lia].
      intros [H|H]; [discriminate|apply Hidle; rewrite E2; apply in_or_app; simpl; auto]. }
    destruct (Hshort i Hi HB1 ltac:(unfold y; lia) Hni Hpos) as [(x & Hshare & Hx)|Hx].
    + destruct (share_least q (fun v => begun v b2) _ (fun j => sum (fun v => begun v b2 j) n) x Hn ltac:(reflexivity) Hmost Hshare) as (v & Hv & Hw).
      specialize (Hload v Hv). cbn [offset] in Hload. specialize (Hlate v Hv). unfold y, d in Hx. destruct (v =? w); lia.
    + pose proof (average q w (P i) (u + g + over st) t b2 (less (short i y) s) Hn Hwn HPi) as Hdiv.
      specialize (Hdiv ltac:(intros v Hv; specialize (Hload v Hv); specialize (Hlate v Hv); cbn [offset] in Hload; destruct (v =? w); lia) Hmost).
      clear - Hx Hdiv Hud. unfold y, d in *. revert Hx Hdiv. generalize ((P i + (n - 1) * longest q + work q (less (short i (arr k + D s - u)) s)) / n). intros Q Hx Hdiv. lia.
Qed.

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
  - intros [|? ?]; discriminate.
  - intros [|? ?]; discriminate.
  - intros j f. cbn. unfold count. cbn. lia.
Qed.

Lemma counts_later u st l st' l' : counts u st l -> now st <= now st' ->
  (forall j x, In x (taken j l' ++ waiting st' j) -> In x (taken j l ++ waiting st j) \/ now st <= arr x + X j) ->
  (forall w i t b, In (Began w i t b) l' -> In (Began w i t b) l \/ now st <= t) -> counts u st' l'.
Proof.
  clear. intros (Hu & Hx & Hb) Hn Hx' Hb'. split; [lia|]. split.
  - intros j x H. destruct (Hx' j x H) as [H'|H']; [now apply Hx|lia].
  - intros w i t b H. destruct (Hb' w i t b H) as [H'|H']; [now apply (Hb w i t b)|lia].
Qed.

Lemma point_later e st l st' l' : point q X e st l -> now st <= now st' ->
  (forall j x, In x (taken j l' ++ waiting st' j) -> In x (taken j l ++ waiting st j) \/ now st <= arr x + X j) ->
  (forall w i t b, In (Began w i t b) l' -> In (Began w i t b) l) ->
  (forall w, work q (begun w l) <= work q (begun w l')) ->
  (forall w, w < n -> free_at st' w + late st + over st <= free_at st w + late st' + over st') -> point q X e st' l'.
Proof.
  clear. intros (Hc & Hnext) Hn Hx Hb Hw Hf.
  assert (H : forall u, counts u st l -> counts u st' l') by (intros u H; apply (counts_later u st l); auto).
  split; [auto|]. destruct Hnext as [Hnone|(w & u & Hwn & Hu & Hcu & Hfree)].
  - left. intros w i t b Hin. now apply (Hnone w i t b), Hb.
  - right. exists w, u. split; [auto|]. split; [auto|]. split; [auto|]. specialize (Hf w Hwn). specialize (Hw w). lia.
Qed.

Lemma nothing_taken j l : (forall w i t b, ~ In (Began w i t b) l) -> taken j l = [].
Proof.
  clear. intros H. induction l as [|e l IH]; [auto|]. cbn [taken flat_map]. fold (taken j l).
  rewrite IH by (intros w i t b Hin; apply (H w i t b); right; auto). destruct e; auto. destruct (H w i t b). left. auto.
Qed.

(** An entry of now. *)
Lemma point_now e st : at_ e = now st -> (forall j x, In x (waiting st j) -> now st <= arr x + X j) -> point q X e st [].
Proof.
  clear. intros E Hx. split; [|left; intros w i t b []]. rewrite E. split; [auto|]. split; [exact Hx|intros w i t b []].
Qed.

Lemma wait_within st log j x : Inv st log -> In x (waiting st j) -> now st <= arr x + X j.
Proof. intros I H. pose proof (inv_over _ _ I). destruct (inv_wait _ _ I j x H) as (_ & _ & _ & ?). lia. Qed.

(** It is written down that an instant is over. *)
Lemma Inv_passed st log : Inv st log -> Inv st (log ++ [Passed (now st)]).
Proof.
  intros I. constructor; try apply I.
  - intros l1 e l2 E Hno v Hv. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)].
    + pose proof (free_now' st log v I Hv). cbn [offset]. lia.
    + etransitivity; [apply (inv_load _ _ I l1 e b' E)|]; auto.
      * intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
      * apply Nat.add_le_mono_l, work_later.
  - intros l1 w i t b l2 E. apply snoc_split in E as [(_ & E & _)|(b' & -> & E)]; [discriminate|].
    destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
    split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|].
    split; intros; rewrite taken_quiet in * by discriminate; eauto.
  - intros d Hd. destruct (inv_clear _ _ I d Hd) as (l1 & r & l2 & E & Hi & Hs & Hh). exists l1, r, (l2 ++ [Passed (now st)]).
    split; [rewrite E, <- app_assoc; reflexivity|]. split; [intros H; apply in_app_or in H as [H|[H|[]]]; [auto|discriminate]|]. split.
    + intros j x Hx. rewrite taken_quiet in Hx by discriminate. now apply Hs.
    + intros w i t h tl H. apply in_app_or in H as [H|[H|[]]]; [now apply (Hh w i t h tl)|discriminate].
  - intros l1 e l2 E Hno. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)]; [apply point_now; [auto|intros j x; now apply (wait_within st log)]|].
    apply (point_later e st b'); auto.
    + apply (inv_point _ _ I l1 e b' E). intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
    + intros j x Hx. rewrite taken_quiet in Hx by discriminate. auto.
    + intros w i t b H. apply in_app_or in H as [H|[H|[]]]; [auto|discriminate].
    + intros w. apply work_later.
  - intros l1 e l2 E Hno t Ht. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)]; [cbn [at_] in Ht; lia|].
    assert (H : In (Passed t) (e :: b')); [|destruct H; [left; auto|right; apply in_or_app; auto]].
    apply (inv_marks _ _ I l1 e b' E); [|auto]. intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
  - intros j f. rewrite taken_quiet by discriminate. apply I.
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
  - intros l1 e l2 E Hno. exfalso. apply Hno.
    apply snoc_split in E as [(_ & -> & _)|(b' & -> & _)]; [left; reflexivity|right; apply in_or_app; simpl; auto].
  - intros l1 e l2 E Hno. exfalso. apply Hno.
    apply snoc_split in E as [(_ & -> & _)|(b' & -> & _)]; [left; reflexivity|right; apply in_or_app; simpl; auto].
  - intros j f. rewrite taken_quiet by discriminate. apply I.
Qed.

(** Whether anything with a deadline up to [d] waits. *)
Lemma waits_early st log d : Inv st log -> (exists j x, In x (waiting st j) /\ early d j x = true) \/
  forall j x, In x (waiting st j) -> early d j x = false.
Proof.
  intros I. destruct (existsb (fun j => existsb (early d j) (waiting st j)) (seq 0 m)) eqn:E.
  - left. apply existsb_exists in E as (j & _ & E). apply existsb_exists in E as (x & Hx & E). eauto.
  - right. intros j x Hx. destruct (early d j x) eqn:Ex; [|auto]. rewrite <- E. symmetry. apply existsb_exists. exists j.
    split; [|apply existsb_exists; eauto]. apply in_seq. destruct (inv_wait _ _ I j x Hx) as (Hm & <- & _). pose proof (home_in' q Hsense x Hm). lia.
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
    assert (Hr : come (D i) i = alpha i (0 + 1)) by (unfold Happened.come; now rewrite Nat.leb_refl, Nat.sub_diag).
    destruct Htest as (_ & Ht). destruct (Ht i (D i) Hi) as [[Hone|[(z & Hz & He)|(z & Hz & He)]]|(Hline & _)].
    { destruct (Hone (D i)) as (x & _ & Hx); lia. }
    { pose proof (enough_room _ _ _ _ _ He). lia. }
    { pose proof (enough_room _ _ _ _ _ He). lia. }
    destruct Hline as (x & _ & Hx); [|lia].
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
  - intros l1 e l2 E Hno. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)].
    + apply point_now; [auto|]. intros j x Hx. apply Hw in Hx as [Hx|(-> & ->)]; [now apply (wait_within st log)|cbn [now]; lia].
    + apply (point_later e st b'); auto.
      * apply (inv_point _ _ I l1 e b' E). intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
      * intros j x Hx. rewrite taken_quiet in Hx by discriminate. apply in_app_or in Hx as [Hx|Hx]; [left; apply in_or_app; auto|].
        apply Hw in Hx as [Hx|(-> & ->)]; [left; apply in_or_app; auto|right; lia].
      * intros w i' t b H. apply in_app_or in H as [H|[H|[]]]; [auto|discriminate].
      * intros w. apply work_later.
  - intros l1 e l2 E Hno t Ht. cbn [now] in Ht. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)]; [cbn [at_] in Ht; lia|].
    assert (H : In (Passed t) (e :: b')); [|destruct H; [left; auto|right; apply in_or_app; auto]].
    apply (inv_marks _ _ I l1 e b' E); [|auto]. intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
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
  assert (Hone : forall l, work q (begun w (l ++ [Began w i (now st) b])) = work q (begun w l) + P i).
  { intros l. unfold work. rewrite (sum_ext _ (fun j => P j * begun w l j + P j * Nat.b2n (j =? i))).
    - rewrite sum_add, sum_one by auto. reflexivity.
    - intros j _. unfold begun. rewrite count_app, (count_cons _ (Began w i (now st) b)), count_nil, Nat.eqb_refl, andb_true_r.
      rewrite (Nat.eqb_sym i j). lia. }
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
    + assert (Hold : free_at st v <= offset q e v + late st + over st + work q (begun v b')).
      { apply (inv_load _ _ I l1 e b' E); auto. intros H'. apply Hno. destruct H'; [left; auto|right; apply in_or_app; auto]. }
      pose proof (work_later q v b' [Began w i (now st) b]) as Hlater. destruct (Nat.eqb_spec v w) as [->|Hvw]; [|lia].
      rewrite Hone. lia.
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
      unfold Happened.early in *. apply Nat.leb_le in He. apply Nat.leb_le. lia.
  - intros l1 e l2 E Hno. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)].
    { apply point_now; [auto|]. intros j x Hx. apply Hleft in Hx. now apply (wait_within st log). }
    assert (Hno' : ~ In Idled (e :: b')) by (intros H; apply Hno; destruct H; [left; auto|right; apply in_or_app; auto]).
    destruct (inv_point _ _ I l1 e b' E Hno') as (Hc & Hnext).
    assert (Hcounts : forall u, counts u st b' -> counts u st' (b' ++ [Began w i (now st) b])).
    { intros u H. apply (counts_later u st b'); [auto|cbn [st' now]; auto|intros j x Hx; left; now apply Hsub|].
      intros w' i' t c Hin. apply in_app_or in Hin as [Hin|[Hin|[]]]; [auto|right; injection Hin as <- <- <- <-; auto]. }
    split; [now apply Hcounts|]. right.
    destruct Hnext as [Hnone|(v & u & Hv & Hu & Hcu & Hf)].
    + (* the next start *)
      pose proof (inv_load _ _ I l1 e b' E Hno' w Hw) as Hload. rewrite (nothing_begun q) in Hload by auto.
      pose proof (offset_within q X past old Hsense st log l1 e b' w I E ltac:(intros ->; apply Hno; simpl; auto)) as Hoff.
      exists w, (Nat.max (at_ e) (now st - late st - over st)). rewrite Hfree, Nat.eqb_refl, Hone. destruct Hc as (Hn & _ & _).
      split; [auto|]. split; [lia|]. split; [|cbn [st' late over]; lia].
      split; [cbn [st' now]; lia|]. split.
      * intros j x Hx. rewrite Htaken in Hx. rewrite (nothing_taken j b' Hnone) in Hx. cbn [app] in Hx.
        assert (Hin : In x (waiting st j)).
        { apply in_app_or in Hx as [Hx|Hx]; [|now apply Hleft]. destruct (Nat.eqb_spec i j) as [->|]; [|destruct Hx]. rewrite Esplit. apply in_or_app. auto. }
        pose proof (wait_within st log j x I Hin). lia.
      * intros w' i' t c Hin. apply in_app_or in Hin as [Hin|[Hin|[]]]; [now destruct (Hnone _ _ _ _ Hin)|injection Hin as <- <- <- <-; lia].
    + exists v, u. split; [auto|]. split; [auto|]. split; [now apply Hcounts|]. rewrite Hfree. cbn [st' late over].
      pose proof (work_later q v b' [Began w i (now st) b]). destruct (Nat.eqb_spec v w) as [->|]; [rewrite Hone|]; lia.
  - intros l1 e l2 E Hno t Ht. cbn [st' now] in Ht. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & E)]; [cbn [at_] in Ht; lia|].
    assert (H : In (Passed t) (e :: b')); [|destruct H; [left; auto|right; apply in_or_app; auto]].
    apply (inv_marks _ _ I l1 e b' E); [|auto]. intros H. apply Hno. destruct H; [left; auto|right; apply in_or_app; auto].
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
    + intros l1 e l2 E Hno. apply (point_later e st l2); auto; [now apply (inv_point _ _ I l1 e l2 E)|].
      intros v Hv. pose proof (free_now' st log v I Hv). unfold free_at at 1, set. cbn [running now late over]. destruct (v =? w); [lia|]. reflexivity.
  - (* Refuse *)
    exfalso. apply (never_hopeless st log i r I Hc); [|auto]. rewrite H. apply in_or_app. simpl. auto.
  - (* Renew *)
    rename H into Hidle, H0 into Hov', H1 into Hfree. exists (log ++ [Idled]). apply Inv_idle; auto; [lia| |].
    { intros w due b Hw Hrun. destruct (inv_run _ _ I w due b Hw Hrun) as (? & ?). split; [|auto].
      specialize (Hfree w Hw). unfold free_at in Hfree. rewrite Hrun in Hfree. lia. }
    intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[H|H]]; auto. rewrite (Hidle _) in H. destruct H.
  - (* Tick *)
    rename H into Hdue, H0 into Hcase. cbn [arrived] in Hc. apply Inv_passed in I. set (log' := log ++ [Passed (now st)]) in I. pose proof (inv_late _ _ I) as Hlate.
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
    { exists (log' ++ [Idled]). apply Inv_idle; auto; [lia|apply I|].
      intros r Hr Hm. destruct (inv_where _ _ I r Hr Hm) as [H|[H|H]]; auto. rewrite (Hidle _) in H. destruct H. }
    exists log'. constructor; cbn [st' now late over arrived waiting line used running answered]; try apply I; auto.
    + lia.
    + intros r Hr. pose proof (inv_past _ _ I r Hr). lia.
    + intros i r Hr. destruct (inv_wait _ _ I i r Hr) as (Hm & Hh & Hp). split; [auto|]. split; [auto|].
      assert (Hi : i < m) by (rewrite <- Hh; now apply home_in').
      pose proof (still_time st log' i r (now st + 1) I Hc Hi Hr ltac:(intros w Hw; now apply Hbusy)). lia.
    + intros l1 e l2 E Hno v Hv. pose proof (inv_load _ _ I l1 e l2 E Hno v Hv). destruct (Hbusy v Hv). lia.
    + intros l1 w i t b l2 E. destruct (inv_order _ _ I _ _ _ _ _ _ E) as (H1 & H2 & H3 & H4 & H5).
      split; [auto|]. split; [auto|]. split; [auto|]. split; [lia|auto].
    + intros l1 e l2 E Hno. apply (point_later e st l2); auto; [now apply (inv_point _ _ I l1 e l2 E)|cbn [st' now]; lia|].
      intros w Hw. destruct (Hbusy w Hw). cbn [st' late over]. lia.
    + intros l1 e l2 E Hno t Ht. destruct (Nat.eq_dec t (now st)) as [->|]; [|apply (inv_marks _ _ I l1 e l2 E); auto; lia].
      unfold log' in E. apply snoc_split in E as [(-> & -> & ->)|(b' & -> & _)]; [left; auto|right; apply in_or_app; simpl; auto].
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
  intros Hs Hr Hn (H1 & H2 & H3). apply (theorem_E q (fun i => limit (sv q i) + lateness q - span (sv q i))); auto.
  apply test_lines_E. split; [intros i Hi; specialize (H1 i Hi); lia|]. intros k y Hk. specialize (H1 k Hk). split.
  - intros Hc. specialize (H2 y k Hk Hc). pose proof (work_less q (clear q y) k Hk Hc).
    exists (work q (less (clear q y) k)). split; [left; rewrite Hn, Nat.div_1_r; auto|lia].
  - intros i Hi HB Hy Hni Hc. right. rewrite Hn, Nat.div_1_r.
    specialize (H3 i y k Hi Hk HB Hy Hni Hc). pose proof (work_less q _ k Hk Hc). lia.
Qed.
