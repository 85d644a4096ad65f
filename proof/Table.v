(** The shield's table ([Table] and [Shield::longest] of `rt-core/src/shield/`): what it allows, [shield] of Model.v allows.

    The two programs are written down here as they are in Rust, over numbers without limits; that the Rust is this
    program is tested, and so is that the instants it was given are those at which the curve rises until the busy
    period is over ([looked_at]).  Workers are of one kind, and no other batch takes longer than [deadline - guard],
    which none that the program allows does. *)
Require Import List Arith ZArith Lia Bool Sorting.Sorted.
Import ListNotations.
Require Import Model Words Core.
Open Scope nat_scope.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.

(** * The programs *)

(** A request that must begin by [a P + rest], and how many batch starts are left to spare for it. *)
Record step := Step { rest : nat; slack : Z }.

Section Programs.
Variables n B P L : nat.                       (* workers, their batch, its time; the deadline less the guard *)

Fixpoint leading {A} (f : A -> bool) l := match l with [] => [] | x :: l => if f x then x :: leading f l else [] end.
Fixpoint trailing {A} (f : A -> bool) l := match l with [] => [] | x :: l' => if f x then trailing f l' else l end.
Definition final l s := slack (last l s).

(** Steps in rising order of [rest]; one that another beats, or that is [n] above the last, never binds. *)
Definition insert steps s :=
  let before := leading (fun x => rest x <=? rest s) steps in
  if (negb (length before =? 0) && (final before s <=? slack s)%Z) || (final steps s + Z.of_nat n <=? slack s)%Z
  then steps
  else
    let kept := leading (fun x => rest x <? rest s) steps ++
      s :: trailing (fun x => slack s <=? slack x)%Z (trailing (fun x => rest x <? rest s) steps) in
    filter (fun x => slack x <? final kept s + Z.of_nat n)%Z kept.

(** By what waits modulo [B]: of each rise, an offset and what can have come by then. *)
Definition step_of r (rise : nat * nat) :=
  let latest := fst rise + (L - P) in
  Step (latest mod P) (Z.of_nat (n * (latest / P + 1)) - Z.of_nat (cdiv (snd rise + r) B)).
Definition table rises r := fold_left insert (map (step_of r) rises) [].

(** Batch starts that a worker misses which is free after [g]. *)
Definition missed_by b g := Z.of_nat (g / P + if b <? g mod P then 1 else 0).
Definition taken others b := (Z.of_nat n - 1 + fold_right (fun g x => missed_by b g - 1 + x) 0 others)%Z.

(** The first step with the least room. *)
Fixpoint tightest others steps := match steps with
  | [] => None
  | s :: l =>
      let room := (slack s - taken others (rest s))%Z in
      match tightest others l with
      | Some (x, b) => if (x <? room)%Z then Some (x, b) else Some (room, rest s)
      | None => Some (room, rest s)
      end
  end.
Definition looked_up steps others waiting := match tightest others steps with
  | None => None
  | Some (room, b) =>
      let periods := Z.to_nat (room - Z.of_nat (waiting / B)) in
      Some (if periods =? 0 then 0 else P * periods + b)
  end.

(** For the first request of the [batch]-th batch that waits, due [within] from now. *)
Definition begins g latest := if g <=? latest then (latest - g) / P + 1 else 0.
Definition longest_for others (batch within : nat) :=
  if within <? P then 0 else
  let latest := within - P in
  let begun := latest / P * (n - 1) - fold_right (fun g x => latest / P - begins g latest + x) 0 others in
  if batch - begun =? 0 then L else latest - P * (batch - begun - 1).

(** [others]: what is left of the batches of the others; [dues]: how long from now each that waits has, the guard taken off. *)
Definition longest rises others (dues : list nat) lull :=
  let lull := match dues with [] => lull | _ => 0 end in
  let others := filter (fun f => P <? f) (map (fun f => f - lull) others) in
  if n <=? length others then P else
  match looked_up (table rises (length dues mod B)) others (length dues) with
  | None => L
  | Some x => if x <? P then P else
      Nat.max P (fold_right (fun k x => Nat.min (longest_for others (k + 1) (nth (k * B) dues 0)) x)
        (Nat.min (x + lull) L) (seq 0 (cdiv (length dues) B)))
  end.
End Programs.

(** * The table holds what was put in *)

Section Table.
Variables n B P L : nat.
Hypothesis Hn : 0 < n.
Hypothesis HP : 0 < P.
Hypothesis HB : 0 < B.

(** A step that is there says more, for whatever the workers do. *)
Definition held steps x := exists y, In y steps /\
  (rest y <= rest x /\ (slack y <= slack x)%Z \/ (slack y + Z.of_nat n <= slack x)%Z).

Definition rising steps := StronglySorted (fun x y => rest x <= rest y) steps.

Lemma leading_in {A} f (l : list A) x : In x (leading f l) -> In x l /\ f x = true.
Proof.
  induction l; cbn; [auto|]. destruct (f a) eqn:E; [|contradiction]. intros [->|H]; [auto|]. destruct (IHl H). auto.
Qed.

Lemma trailing_in {A} f (l : list A) x : In x (trailing f l) -> In x l.
Proof. induction l; cbn; [auto|]. destruct (f a); cbn; intuition. Qed.

Lemma leading_trailing {A} f (l : list A) x : In x l -> In x (leading f l) \/ In x (trailing f l).
Proof. induction l; cbn; [auto|]. destruct (f a); cbn; intuition. Qed.

Lemma last_in {A} (l : list A) d : l <> [] -> In (last l d) l.
Proof.
  induction l as [|a l IH]; [congruence|]. intros _. destruct l as [|b l]; [left; reflexivity|].
  right. apply IH. discriminate.
Qed.

Lemma trailing_rest s l : rising l -> forall x, In x (trailing (fun x => rest x <? rest s) l) -> rest s <= rest x.
Proof.
  induction 1 as [|a l Hl IH Ha]; cbn; [intros ? []|]. destruct (Nat.ltb_spec (rest a) (rest s)); [auto|].
  intros x. intros [->|Hx]; [auto|]. rewrite Forall_forall in Ha. specialize (Ha x Hx). lia.
Qed.

Lemma trailing_rising f l : rising l -> rising (trailing f l).
Proof. induction 1; cbn; [constructor|]. destruct (f a); [auto|]. now constructor. Qed.

Lemma leading_rising f l : rising l -> rising (leading f l).
Proof.
  induction 1; cbn; [constructor|]. destruct (f a); [|constructor]. constructor; [auto|].
  rewrite Forall_forall in *. intros x Hx. apply leading_in in Hx as (Hx & _). auto.
Qed.

Lemma filter_rising f l : rising l -> rising (filter f l).
Proof.
  induction 1; cbn; [constructor|]. destruct (f a); [|auto]. constructor; [auto|].
  rewrite Forall_forall in *. intros x Hx. apply filter_In in Hx as (Hx & _). auto.
Qed.

Lemma rising_app l l' : rising l -> rising l' -> (forall x y, In x l -> In y l' -> rest x <= rest y) -> rising (l ++ l').
Proof.
  induction 1; cbn; intros Hl' Hle; [auto|]. constructor; [apply IHStronglySorted; auto|].
  rewrite Forall_forall in *. intros x Hx. apply in_app_or in Hx as [Hx|Hx]; auto.
Qed.

Lemma insert_rising l s : rising l -> rising (insert n l s).
Proof.
  intros Hl. unfold insert. cbv zeta. destruct (_ || _); [auto|]. apply filter_rising, rising_app.
  - now apply leading_rising.
  - constructor; [now apply trailing_rising, trailing_rising|]. rewrite Forall_forall. intros x Hx.
    apply trailing_in in Hx. now apply (trailing_rest s l).
  - intros x y Hx. apply leading_in in Hx as (_ & Hx). apply Nat.ltb_lt in Hx. intros [<-|Hy]; [lia|].
    apply trailing_in, trailing_rest in Hy; auto. lia.
Qed.

Lemma held_less l x y : held l x -> rest x <= rest y -> (slack x <= slack y)%Z -> held l y.
Proof. intros (z & Hz & H) ? ?. exists z. split; [auto|]. lia. Qed.

(** What is dropped last is held by the last one, which stays. *)
Lemma held_filter l d x : held l x -> held (filter (fun y => slack y <? final l d + Z.of_nat n)%Z l) x.
Proof.
  intros (y & Hy & H). assert (Hl : l <> []) by (intros ->; destruct Hy).
  destruct (Z.ltb_spec (slack y) (final l d + Z.of_nat n)) as [Hlt|Hge].
  - exists y. split; [|auto]. apply filter_In. split; [auto|]. now apply Z.ltb_lt.
  - exists (last l d). split.
    + apply filter_In. split; [now apply last_in|]. apply Z.ltb_lt. unfold final. lia.
    + right. unfold final in *. lia.
Qed.

(** Insertion forgets nothing, and the new step is held. *)
Lemma insert_holds l s : rising l -> held (insert n l s) s /\ forall x, held l x -> held (insert n l s) x.
Proof.
  intros Hl. unfold insert. cbv zeta.
  destruct (negb (length (leading (fun x => rest x <=? rest s) l) =? 0) && _) eqn:E; cbn [orb].
  { split; [|auto]. apply andb_true_iff in E as (E1 & E2). apply Z.leb_le in E2.
    set (before := leading _ l) in *. unfold final in E2. exists (last before s).
    assert (Hb : In (last before s) before).
    { apply last_in. intros E. rewrite E in E1. discriminate. }
    apply leading_in in Hb as (Hin & Hle). apply Nat.leb_le in Hle. split; [auto|]. auto. }
  clear E. destruct (Z.leb_spec (final l s + Z.of_nat n) (slack s)) as [Hf|_].
  { split; [|auto]. unfold final in Hf. exists (last l s). split; [|auto]. apply last_in. intros ->. cbn in Hf. lia. }
  set (kept := _ ++ _ :: _).
  assert (Hs : held kept s).
  { exists s. split; [apply in_or_app; right; left; reflexivity|]. lia. }
  split; [now apply held_filter|]. intros x Hx. apply held_filter. destruct Hx as (y & Hy & H).
  destruct (leading_trailing (fun x => rest x <? rest s) l y Hy) as [Hy'|Hy'].
  { exists y. split; [|auto]. apply in_or_app. auto. }
  pose proof (trailing_rest s l Hl y Hy') as Hrest.
  assert (Hcase : In y (trailing (fun x => slack s <=? slack x)%Z (trailing (fun x => rest x <? rest s) l)) \/ (slack s <= slack y)%Z).
  { destruct (leading_trailing (fun x => slack s <=? slack x)%Z _ y Hy') as [H'|H']; [|auto].
    apply leading_in in H' as (_ & H'). apply Z.leb_le in H'. auto. }
  destruct Hcase as [Hc|Hc].
  - exists y. split; [|auto]. apply in_or_app. right. right. auto.
  - exists s. split; [apply in_or_app; right; left; reflexivity|]. lia.
Qed.

Lemma table_holds rises r : rising (table n B P L rises r) /\
  forall x, In x rises -> held (table n B P L rises r) (step_of n B P L r x).
Proof.
  unfold table. assert (G : forall l steps, rising steps -> rising (fold_left (insert n) l steps) /\
    forall x, In x l \/ held steps x -> held (fold_left (insert n) l steps) x).
  { induction l as [|s l IH]; intros steps Hs; cbn [fold_left]; [split; [auto|intros x [[]|?]; auto]|].
    destruct (IH (insert n steps s) (insert_rising _ _ Hs)) as (H1 & H2). destruct (insert_holds steps s Hs) as (H3 & H4).
    split; [auto|]. intros x [[->|Hx]|Hx]; apply H2; auto. }
  destruct (G (map (step_of n B P L r) rises) [] ltac:(constructor)) as (H1 & H2). split; [auto|].
  intros x Hx. apply H2. left. now apply in_map.
Qed.

(** * What is looked up has room at every step *)

Lemma missed_by_rest b b' g : b <= b' -> (missed_by P b' g <= missed_by P b g <= missed_by P b' g + 1)%Z.
Proof.
  intros. unfold missed_by. destruct (Nat.ltb_spec b (g mod P)), (Nat.ltb_spec b' (g mod P)); lia.
Qed.

Lemma missed_by_any b b' g : (missed_by P b g <= missed_by P b' g + 1)%Z.
Proof. unfold missed_by. destruct (b <? g mod P), (b' <? g mod P); lia. Qed.

Lemma tightest_spec others l x b : rising l -> tightest n P others l = Some (x, b) ->
  (exists s, In s l /\ rest s = b) /\
  forall s, In s l -> (x < slack s - taken n P others (rest s))%Z \/
    x = (slack s - taken n P others (rest s))%Z /\ b <= rest s.
Proof.
  intros Hl. revert x b. induction Hl as [|s l Hl IH Hs]; cbn [tightest]; intros x b E; [discriminate|].
  rewrite Forall_forall in Hs. destruct (tightest n P others l) as [(y, c)|] eqn:El.
  - destruct (IH _ _ eq_refl) as ((s' & Hs' & Hc) & H).
    destruct (Z.ltb_spec y (slack s - taken n P others (rest s))); inv E.
    + split; [exists s'; simpl; auto|]. intros z [<-|Hz]; [lia|auto].
    + split; [exists s; simpl; auto|]. intros z [<-|Hz]; [lia|]. specialize (Hs z Hz). specialize (H z Hz). lia.
  - inv E. split; [exists s; simpl; auto|]. intros z [<-|Hz]; [lia|]. exfalso. destruct l; [destruct Hz|].
    cbn in El. destruct (tightest n P others l) as [(?, ?)|]; [destruct (_ <? _)%Z|]; discriminate.
Qed.

(** If a worker is free after [g], at most what was looked up, and the others after [others] or [P], each step has room. *)
Lemma looked_up_room steps others waiting x g : rising steps -> (forall s, In s steps -> rest s < P) ->
  looked_up n B P steps others waiting = Some x -> P <= g <= x ->
  forall s, In s steps -> (missed_by P (rest s) g + taken n P others (rest s) <= slack s - Z.of_nat (waiting / B))%Z.
Proof.
  intros Hl Hrest E Hg s Hs. unfold looked_up in E. destruct (tightest n P others steps) as [(room, b)|] eqn:Et; [|discriminate].
  apply (f_equal (fun o => match o with Some a => a | None => 0 end)) in E. cbv beta iota zeta in E.
  destruct (tightest_spec _ _ _ _ Hl Et) as ((s' & Hs' & Hb) & H). specialize (H s Hs). pose proof (Hrest s' Hs').
  set (periods := Z.to_nat _) in E.
  destruct (Nat.eqb_spec periods 0); [lia|].
  assert (Hp : Z.of_nat periods = (room - Z.of_nat (waiting / B))%Z) by (unfold periods in *; lia).
  clearbody periods. pose proof (Nat.div_mod g P ltac:(lia)). pose proof (Nat.mod_upper_bound g P ltac:(lia)).
  unfold missed_by. set (a := g / P) in *. set (c := g mod P) in *. clearbody a c.
  assert (a <= periods) by nia.
  destruct (Nat.eq_dec a periods) as [->|]; destruct (Nat.ltb_spec (rest s) c); nia.
Qed.

(** * Starts, and the sum of them *)

Lemma begins_missed latest g : (Z.of_nat (latest / P) + 1 - missed_by P (latest mod P) g <= Z.of_nat (begins P g latest))%Z.
Proof.
  unfold begins, missed_by. pose proof (Nat.div_mod latest P ltac:(lia)). pose proof (Nat.div_mod g P ltac:(lia)).
  pose proof (Nat.mod_upper_bound latest P ltac:(lia)). pose proof (Nat.mod_upper_bound g P ltac:(lia)).
  set (a := latest / P) in *. set (b := latest mod P) in *. set (c := g / P) in *. set (q := g mod P) in *. clearbody a b c q.
  destruct (Nat.leb_spec g latest).
  - assert (G : forall k, P * k <= latest - g -> k <= (latest - g) / P) by (intros; apply Nat.div_le_lower_bound; lia).
    destruct (Nat.ltb_spec b q).
    + assert (c < a) by (apply (Nat.mul_lt_mono_pos_l P); lia). specialize (G (a - c - 1)).
      assert (P * (a - c - 1) <= latest - g) by (rewrite !Nat.mul_sub_distr_l; lia). lia.
    + assert (c <= a) by (apply Nat.lt_succ_r, (Nat.mul_lt_mono_pos_l P); lia). specialize (G (a - c)).
      assert (P * (a - c) <= latest - g) by (rewrite Nat.mul_sub_distr_l; lia). lia.
  - assert (a <= c) by (apply Nat.lt_succ_r, (Nat.mul_lt_mono_pos_l P); lia). destruct (Nat.ltb_spec b q); [lia|].
    assert (a < c) by (apply (Nat.mul_lt_mono_pos_l P); lia). lia.
Qed.

Lemma begins_mono g x y : x <= y -> begins P g x <= begins P g y.
Proof.
  intros. unfold begins. destruct (Nat.leb_spec g x), (Nat.leb_spec g y); try lia.
  apply Nat.add_le_mono_r, Nat.div_le_mono; lia.
Qed.

Lemma begins_prompt x : begins P P x = x / P.
Proof.
  unfold begins. destruct (Nat.leb_spec P x); [|symmetry; now apply Nat.div_small].
  rewrite <- Nat.div_add by lia. f_equal. lia.
Qed.

Lemma begins_long g x : P <= g -> begins P g x <= x / P.
Proof.
  intros. rewrite <- begins_prompt. unfold begins. destruct (Nat.leb_spec g x), (Nat.leb_spec P x); try lia.
  apply Nat.add_le_mono_r, Nat.div_le_mono; lia.
Qed.

(** Sums over some of the workers, [f v] being left of the batch of [v]. *)
Definition total (f : nat -> Z) l := fold_right (fun v x => (f v + x)%Z) 0%Z l.
Notation long f vs := (filter (fun g => P <? g) (map f vs)).

Lemma total_app f l l' : total f (l ++ l') = (total f l + total f l')%Z.
Proof. unfold total. induction l; cbn; lia. Qed.

Lemma total_mono f g l c : (forall v, In v l -> f v <= g v + c)%Z -> (total f l <= total g l + Z.of_nat (length l) * c)%Z.
Proof.
  induction l as [|a l IH]; intros H; [cbn; lia|]. specialize (IH ltac:(intros; apply H; simpl; auto)).
  specialize (H a (or_introl eq_refl)). cbn [total fold_right length] in *. unfold total in *. lia.
Qed.

Lemma total_sub f l c : (total (fun v => c - f v) l = Z.of_nat (length l) * c - total f l)%Z.
Proof. unfold total. induction l as [|a l IH]; cbn [fold_right length]; [lia|]. rewrite IH. lia. Qed.

Lemma total_sum f k : total (fun v => Z.of_nat (f v)) (seq 0 k) = Z.of_nat (sum f k).
Proof. induction k; [reflexivity|]. rewrite seq_S, total_app, IHk. cbn. lia. Qed.

Lemma taken_total (f : nat -> nat) b vs : length vs = n - 1 ->
  taken n P (long f vs) b = total (fun v => missed_by P b (Nat.max (f v) P)) vs.
Proof.
  intros Hlen. unfold taken. replace (Z.of_nat n - 1)%Z with (Z.of_nat (length vs)) by lia. clear Hlen.
  induction vs as [|v vs IH]; [reflexivity|]. cbn [map filter length total fold_right]. unfold total in IH.
  destruct (Nat.ltb_spec P (f v)); cbn [fold_right].
  - rewrite (Nat.max_l (f v)) by lia. lia.
  - rewrite (Nat.max_r (f v)) by lia. unfold missed_by at 2. rewrite Nat.div_same, Nat.mod_same by lia. cbn [Nat.ltb Nat.leb].
    destruct (b <? 0) eqn:E; [apply Nat.ltb_lt in E; lia|]. lia.
Qed.

Lemma fewer_total (f : nat -> nat) x vs :
  fold_right (fun g y => x / P - begins P g x + y) 0 (long f vs) + list_sum (map (fun v => begins P (Nat.max (f v) P) x) vs)
  = x / P * length vs.
Proof.
  induction vs as [|v vs IH]; [cbn; lia|]. cbn [map filter length list_sum fold_right]. unfold list_sum in IH.
  destruct (Nat.ltb_spec P (f v)); cbn [fold_right].
  - rewrite (Nat.max_l (f v)) by lia. pose proof (begins_long (f v) x ltac:(lia)). lia.
  - rewrite (Nat.max_r (f v)) by lia. rewrite begins_prompt. lia.
Qed.

Lemma insert_in l s x : In x (insert n l s) -> x = s \/ In x l.
Proof.
  unfold insert. cbv zeta. destruct (_ || _); [auto|]. intros H. apply filter_In in H as (H & _).
  apply in_app_or in H as [H|[<-|H]]; [right; now apply leading_in in H|auto|right].
  now apply trailing_in, trailing_in in H.
Qed.

Lemma table_in rises r x : In x (table n B P L rises r) -> rest x < P.
Proof.
  unfold table. assert (G : forall l steps, (forall y, In y l -> rest y < P) -> (forall y, In y steps -> rest y < P) ->
    forall y, In y (fold_left (insert n) l steps) -> rest y < P).
  { induction l as [|s l IH]; intros steps Hl Hs; cbn [fold_left]; [auto|].
    apply IH; [intros; apply Hl; simpl; auto|]. intros y Hy. apply insert_in in Hy as [->|Hy]; [apply Hl; left; auto|auto]. }
  apply G; [|intros y []]. intros y Hy. apply in_map_iff in Hy as (z & <- & _). apply Nat.mod_upper_bound. lia.
Qed.

(** If [g v] is when each worker is free, and of [w] that is at most what was looked up, a rise is begun in time. *)
Lemma looked_up_begun rises waiting x w g rise : w < n -> (forall v, v < n -> P <= g v) -> In rise rises ->
  looked_up n B P (table n B P L rises (waiting mod B))
    (long g (seq 0 w ++ seq (S w) (n - S w))) waiting = Some x -> g w <= x ->
  waiting + snd rise <= B * sum (fun v => begins P (g v) (fst rise + (L - P))) n.
Proof.
  intros Hw Hg Hin E Hx. set (vs := seq 0 w ++ seq (S w) (n - S w)) in *.
  assert (Hall : forall f, total f (seq 0 n) = (f w + total f vs)%Z).
  { intros f. replace n with (w + (1 + (n - S w))) at 1 by lia. rewrite seq_app, total_app. unfold vs. rewrite total_app.
    cbn [seq Nat.add total fold_right]. unfold total in *. lia. }
  assert (Hlen : length vs = n - 1) by (unfold vs; rewrite app_length, !seq_length; lia).
  destruct (table_holds rises (waiting mod B)) as (Hr & Hh). specialize (Hh _ Hin).
  destruct Hh as (y & Hy & Hheld).
  pose proof (looked_up_room _ _ _ _ (g w) Hr (table_in rises _) E ltac:(specialize (Hg w Hw); lia) y Hy) as Hroom.
  rewrite (taken_total g (rest y) vs Hlen) in Hroom.
  assert (Eg : forall b, total (fun v => missed_by P b (Nat.max (g v) P)) vs = total (fun v => missed_by P b (g v)) vs).
  { intros b. assert (Hv : forall v, In v vs -> v < n) by (intros v Hv; apply in_app_or in Hv; rewrite !in_seq in Hv; lia).
    clear - Hv Hg. induction vs as [|v vs IH]; [reflexivity|]. cbn [total fold_right].
    unfold total in IH. rewrite IH by (intros; apply Hv; simpl; auto).
    specialize (Hg v (Hv v (or_introl eq_refl))). now rewrite Nat.max_l by lia. }
  rewrite Eg, <- (Hall (fun v => missed_by P (rest y) (g v))) in Hroom.
  set (z := step_of n B P L (waiting mod B) rise) in *.
  assert (Hz : (total (fun v => missed_by P (rest z) (g v)) (seq 0 n) <= slack z - Z.of_nat (waiting / B))%Z).
  { destruct Hheld as [(H1 & H2)|H2].
    - pose proof (total_mono (fun v => missed_by P (rest z) (g v)) (fun v => missed_by P (rest y) (g v)) (seq 0 n) 0
        ltac:(intros v _; cbv beta; pose proof (missed_by_rest _ _ (g v) H1); lia)). lia.
    - pose proof (total_mono (fun v => missed_by P (rest z) (g v)) (fun v => missed_by P (rest y) (g v)) (seq 0 n) 1
        ltac:(intros v _; cbv beta; pose proof (missed_by_any (rest z) (rest y) (g v)); lia)) as H3.
      rewrite seq_length in H3. lia. }
  set (latest := fst rise + (L - P)) in *. rewrite <- (Nat2Z.id (sum _ n)), <- total_sum.
  pose proof (total_mono (fun v => Z.of_nat (latest / P) + 1 - missed_by P (rest z) (g v))%Z (fun v => Z.of_nat (begins P (g v) latest)) (seq 0 n) 0
    ltac:(intros v _; cbv beta; unfold z; cbn [step_of rest]; fold latest; pose proof (begins_missed latest (g v)); lia)) as H1.
  assert (H2 : total (fun v => Z.of_nat (latest / P) + 1 - missed_by P (rest z) (g v))%Z (seq 0 n) =
    (Z.of_nat (n * (latest / P + 1)) - total (fun v => missed_by P (rest z) (g v)) (seq 0 n))%Z).
  { rewrite total_sub, seq_length. lia. }
  unfold z in Hz at 2. cbn [step_of slack] in Hz. fold latest in Hz.
  rewrite total_sum in *. rewrite Nat2Z.id.
  pose proof (cdiv_ge (snd rise + waiting mod B) B HB) as H3. pose proof (Nat.div_mod waiting B ltac:(lia)) as H4.
  assert (H5 : waiting / B + cdiv (snd rise + waiting mod B) B <= sum (fun v => begins P (g v) latest) n) by lia.
  clear - H3 H4 H5. apply (Nat.mul_le_mono_l _ _ B) in H5. rewrite Nat.mul_add_distr_l in H5. lia.
Qed.
End Table.

Lemma longest_for_begun n P (HP : 0 < P) L others k within l : P < l -> l <= longest_for n P L others (k + 1) within ->
  P <= within /\ k + 1 <= begins P l (within - P) +
    ((within - P) / P * (n - 1) - fold_right (fun g y => (within - P) / P - begins P g (within - P) + y) 0 others).
Proof.
  intros Hl H. unfold longest_for in H. destruct (Nat.ltb_spec within P); [lia|]. split; [auto|].
  cbv zeta in H. set (latest := within - P) in *. set (begun := latest / P * (n - 1) - _) in *. clearbody latest begun.
  destruct (Nat.eqb_spec (k + 1 - begun) 0) as [Ez|Ez]; [lia|].
  unfold begins. destruct (Nat.leb_spec l latest); [|lia].
  pose proof (Nat.div_le_lower_bound (latest - l) P (k + 1 - begun - 1) ltac:(lia) ltac:(lia)). lia.
Qed.

(** * What is looked up is safe *)

(** The instants that the table was made from: each rise of the curve, until a busy period is over. *)
Definition looked_at p S rises := forall d, (exists x, x <= d /\ over p S x) \/
  exists rise, In rise rises /\ fst rise <= d /\ curve_of p S (d + 1) <= snd rise.

Definition others p st w := map (fun v => free_at st v - now st) (seq 0 w ++ seq (S w) (length (workers p) - S w)).
Definition dues p st l := map (fun r => arr r + deadline p - guard p - now st) l.

Theorem table_allows p m n B P rises st w l S lull_ now_taken left :
  workers p = repeat (Worker B P) n -> 0 < B -> 0 < P -> w < n -> guard p + P <= deadline p ->
  looked_at p S rises ->
  (forall v, v < n -> free_at st v <= now st + (deadline p - guard p)) ->
  StronglySorted (fun r r' => arr r <= arr r') left ->
  (S = load st /\ (lull_ = 0 \/ left <> []) \/ left = [] /\ incl S (load st) /\ lull p m st S (now st + lull_)) ->
  (forall r, In r now_taken -> now st + l <= arr r + deadline p) ->
  P < l <= longest n B P (deadline p - guard p) rises (others p st w) (dues p st left) lull_ ->
  shield p m st w l S now_taken left.
Proof.
  intros Hp HB HP Hw HL Hlook Hfree Hsort Hlull Htaken (Hl & Hlong).
  assert (Hn : length (workers p) = n) by (rewrite Hp; apply repeat_length).
  assert (HBT : forall v, v < n -> Model.B p v = B /\ Model.T p v = P).
  { intros v Hv. unfold Model.B, Model.T. rewrite Hp, (nth_indep _ _ (Worker B P)) by (now rewrite repeat_length).
    now rewrite nth_repeat. }
  assert (HT : Tmax p = P).
  { unfold Tmax. rewrite Hp. destruct n; [lia|]. clear. cbn [repeat map].
    replace (map time (repeat (Worker B P) n)) with (repeat P n) by (induction n; cbn; congruence).
    cbn. induction n; cbn; lia. }
  set (h := match left with [] => lull_ | _ => 0 end).
  set (e := now st + h).
  assert (He : (e = now st /\ S = load st \/ left = [] /\ incl S (load st) /\ lull p m st S e)).
  { unfold e, h. destruct Hlull as [(-> & [->|Hne])|(-> & ? & ?)]; [left|left|right; auto].
    - split; [destruct left; lia|auto].
    - split; [destruct left; [congruence|lia]|auto]. }
  set (g := after p st w l e).
  assert (Hgw : g w = Nat.max (l - h) P).
  { unfold g, after. rewrite Nat.eqb_refl. destruct (HBT w Hw) as (_ & ->). unfold e. f_equal. lia. }
  assert (Hgv : forall v, v < n -> v <> w -> g v = Nat.max (free_at st v - now st - h) P).
  { intros v Hv Hne. unfold g, after. rewrite (proj2 (Nat.eqb_neq v w)) by auto. destruct (HBT v Hv) as (_ & ->).
    unfold e. f_equal. lia. }
  assert (HgP : forall v, v < n -> P <= g v) by (intros v Hv; unfold g, after; destruct (HBT v Hv) as (_ & ->); lia).
  unfold longest in Hlong. cbv zeta in Hlong.
  replace (match dues p st left with [] => lull_ | _ => 0 end) with h in Hlong by (unfold h; destruct left; reflexivity).
  unfold others in Hlong. rewrite map_map, Hn in Hlong. set (vs := seq 0 w ++ seq (Datatypes.S w) (n - Datatypes.S w)) in *.
  assert (Hvs : forall v, In v vs -> v < n /\ v <> w) by (intros v Hv; apply in_app_or in Hv; rewrite !in_seq in Hv; lia).
  assert (Hlen : length vs = n - 1) by (unfold vs; rewrite app_length, !seq_length; lia).
  set (f := fun v => free_at st v - now st - h) in Hlong.
  assert (Ef : filter (fun x => P <? x) (map f vs) = filter (fun x => P <? x) (map g vs)).
  { clear - Hvs Hgv. induction vs as [|v vs IH]; [reflexivity|]. cbn [map filter].
    rewrite IH by (intros; apply Hvs; simpl; auto). destruct (Hvs v (or_introl eq_refl)) as (Hv & Hne). rewrite (Hgv v Hv Hne).
    fold (f v). destruct (Nat.ltb_spec P (f v)), (Nat.ltb_spec P (Nat.max (f v) P)); try lia; [|auto]. f_equal. lia. }
  rewrite Ef in Hlong. unfold dues in Hlong at 1 2. rewrite map_length in Hlong.
  destruct (n <=? _); [lia|].
  assert (Hsome : exists x, looked_up n B P (table n B P (deadline p - guard p) rises (length left mod B))
    (filter (fun x => P <? x) (map g vs)) (length left) = Some x).
  { destruct (Hlook 0) as [(x & Hx & Hx0 & _)|(rise & Hin & _)]; [lia|].
    destruct (table_holds n B P (deadline p - guard p) ltac:(lia) HP HB rises (length left mod B)) as (_ & Hh).
    destruct (Hh _ Hin) as (y & Hy & _). unfold looked_up. destruct (table _ _ _ _ _ _) as [|s t]; [destruct Hy|].
    cbn [tightest]. destruct (tightest n P _ t) as [(x, b)|]; [destruct (_ <? _)%Z|]; eauto. }
  destruct Hsome as (x & Ex). rewrite Ex in Hlong. destruct (Nat.ltb_spec x P); [lia|].
  set (ks := seq 0 _) in Hlong.
  set (due k := nth (k * B) (dues p st left) 0) in Hlong.
  assert (Hmin : l <= Nat.min (x + h) (deadline p - guard p) /\
    forall k, In k ks -> l <= longest_for n P (deadline p - guard p) (filter (fun x => P <? x) (map g vs)) (k + 1) (due k)).
  { assert (Hfold : l <= fold_right (fun k y => Nat.min (longest_for n P (deadline p - guard p)
      (filter (fun x => P <? x) (map g vs)) (k + 1) (due k)) y) (Nat.min (x + h) (deadline p - guard p)) ks)
      by (unfold due, dues in *; rewrite ?map_length in *; lia).
    clear Hlong. clearbody ks. induction ks as [|k ks IH]; cbn [fold_right] in Hfold; [split; [auto|intros ? []]|].
    destruct IH as (H1 & H2); [lia|]. split; [auto|]. intros k' [<-|Hk]; [lia|auto]. }
  destruct Hmin as (Hx & Hwait).
  assert (Hsupply : forall y, Model.supply p g y = B * sum (fun v => begins P (g v) y) n).
  { intros y. unfold Model.supply. rewrite Hn.
    rewrite (sum_ext _ (fun v => B * begins P (g v) y)).
    - clear. induction n; cbn [sum]; lia.
    - intros v Hv. destruct (HBT v Hv) as (E1 & E2). unfold starts, begins. now rewrite E1, E2. }
  split; [destruct (HBT w Hw) as (_ & ->); lia|]. split; [auto|]. exists e. split; [auto|]. fold g. split.
  - (* what waits *)
    intros a r b E. set (k := length a / B).
    assert (Hlt : length a < length left) by (rewrite E, app_length; cbn; lia).
    pose proof (Nat.div_mod (length a) B ltac:(lia)) as Hdm. pose proof (Nat.mod_upper_bound (length a) B ltac:(lia)) as Hmb.
    fold k in Hdm.
    assert (Hk : In k ks).
    { unfold ks, dues. rewrite map_length. apply in_seq. split; [apply Nat.le_0_l|]. cbn.
      pose proof (cdiv_ge (length left) B HB). clear - Hdm Hlt HB H0. apply (Nat.mul_lt_mono_pos_l B); [exact HB|]. lia. }
    specialize (Hwait k Hk).
    assert (Eh : h = 0) by (unfold h; destruct left; [destruct a; discriminate|auto]).
    (* the first of its batch *)
    assert (Hfirst : due k + guard p + now st <= arr r + deadline p \/ due k = 0).
    { unfold due, dues. set (F := fun r0 => arr r0 + deadline p - guard p - now st).
      assert (Hin : exists y, nth_error left (k * B) = Some y /\ arr y <= arr r).
      { rewrite E. destruct (Nat.eq_dec (k * B) (length a)) as [Eq|Ne].
        - exists r. rewrite nth_error_app2, Eq, Nat.sub_diag by lia. auto.
        - destruct (nth_error a (k * B)) as [y|] eqn:Ey; [|apply nth_error_None in Ey; lia].
          exists y. split; [rewrite nth_error_app1 by lia; auto|]. apply nth_error_In in Ey.
          rewrite E in Hsort. clear - Hsort Ey. induction a as [|z a IH]; [destruct Ey|].
          cbn in Hsort. inversion Hsort as [|? ? H1 H2]; subst. destruct Ey as [->|Ey]; [|auto].
          rewrite Forall_forall in H2. apply H2, in_or_app. simpl. auto. }
      destruct Hin as (y & Hy & Hle). apply (map_nth_error F) in Hy. apply (nth_error_nth _ _ 0) in Hy. rewrite Hy. unfold F. clear - Hle HL. lia. }
    apply (longest_for_begun n P HP) in Hwait as (Hwithin & Hown); [|auto].
    set (latest := due k - P) in *. exists latest. split; [|rewrite HT; unfold e, latest; clear - Hfirst Hwithin Eh HP; lia].
    rewrite Hsupply. pose proof (fewer_total n B P ltac:(clear - Hw; lia) HP HB g latest vs) as Hfew. rewrite Hlen in Hfew.
    assert (Hall : sum (fun v => begins P (g v) latest) n = begins P (g w) latest + list_sum (map (fun v => begins P (Nat.max (g v) P) latest) vs)).
    { transitivity (list_sum (map (fun v => begins P (g v) latest) (seq 0 n))).
      { clear. induction n; [reflexivity|]. rewrite seq_S, map_app, list_sum_app. cbn [sum map list_sum fold_right Nat.add]. lia. }
      replace n with (w + (1 + (n - Datatypes.S w))) at 1 by (clear - Hw; lia). rewrite seq_app, map_app, list_sum_app. cbn [seq Nat.add map list_sum fold_right].
      unfold vs. rewrite map_app, list_sum_app. unfold vs in Hvs.
      assert (Em : forall us, (forall v, In v us -> v < n) -> map (fun v => begins P (Nat.max (g v) P) latest) us = map (fun v => begins P (g v) latest) us).
      { intros us Hus. apply map_ext_in. intros v Hv. specialize (HgP v (Hus v Hv)). now rewrite Nat.max_l by lia. }
      rewrite !Em by (intros v Hv; apply Hvs, in_or_app; auto). unfold list_sum. lia. }
    rewrite Hall.
    rewrite Hgw, Eh, Nat.sub_0_r, (Nat.max_l l P) by lia.
    set (begun := latest / P * (n - 1) - _) in Hown. set (rest_begun := list_sum _) in *.
    assert (Eb : begun = rest_begun) by (unfold begun; clear - Hfew; lia). rewrite <- Eb.
    clearbody begun. clear - Hown Hdm Hmb. apply (Nat.mul_le_mono_l _ _ B) in Hown. rewrite Nat.mul_add_distr_l, Nat.mul_1_r in Hown. lia.
  - (* what can come *)
    split; [lia|]. split.
    { intros v Hv. rewrite Hn in Hv. destruct (HBT v Hv) as (_ & ->). rewrite HT.
      destruct (Nat.eq_dec v w) as [->|Hne]; [rewrite Hgw; lia|]. rewrite Hgv by auto. specialize (Hfree v Hv). clear - Hfree HL. lia. }
    intros d. destruct (Hlook d) as [Hov|(rise & Hin & Hd & Hc)]; [auto|right].
    exists (d + (deadline p - guard p - P)). split; [|lia]. rewrite Hsupply.
    assert (Hgx : g w <= x) by (rewrite Hgw; clear - Hx H; lia).
    pose proof (looked_up_begun n B P (deadline p - guard p) ltac:(clear - Hw; lia) HP HB rises (length left) x w g rise Hw HgP Hin Ex Hgx) as Hb.
    assert (Hm : sum (fun v => begins P (g v) (fst rise + (deadline p - guard p - P))) n <=
      sum (fun v => begins P (g v) (d + (deadline p - guard p - P))) n).
    { apply sum_mono. intros v _. apply (begins_mono n B P ltac:(clear - Hw; lia) HP HB). clear - Hd. lia. }
    clear - Hb Hm Hc. apply (Nat.mul_le_mono_l _ _ B) in Hm. lia.
Qed.

(** What waits is in order of arrival, as the theorem takes it. *)
Theorem waits_in_order p S st : reachable_from p S st -> StronglySorted (fun r r' => arr r <= arr r') (waiting st).
Proof.
  intros Hr. enough (StronglySorted (fun r r' => arr r <= arr r') (waiting st) /\ forall r, In r (waiting st) -> arr r <= now st) by tauto.
  assert (Hskip : forall {A} (f : A -> A -> Prop) k l, StronglySorted f l -> StronglySorted f (skipn k l)).
  { intros A f k l H. revert k. induction H; intros [|k]; cbn; try constructor; auto. }
  assert (Hdrop : forall {A} (f : A -> A -> Prop) a x b, StronglySorted f (a ++ x :: b) -> StronglySorted f (a ++ b)).
  { intros A f a x b. induction a; cbn; intros H; inversion H; subst; auto. constructor; [auto|].
    rewrite Forall_forall in *. intros y Hy. apply H3. apply in_app_or in Hy. apply in_or_app. simpl. tauto. }
  induction Hr as [|st st' Hr (IH & IHn) Hs]; [split; [constructor|intros r []]|].
  inversion Hs; subst; cbn [waiting now]; auto.
  - destruct (mandatory p r); [|auto]. split.
    + clear - IH IHn H. induction (waiting st) as [|a l IHl]; cbn; [repeat constructor|]. inversion IH; subst. constructor.
      * apply IHl; auto. intros x Hx. apply IHn. simpl. auto.
      * rewrite Forall_forall in *. intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [auto|]. rewrite H. apply IHn. simpl. auto.
    + intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [auto|lia].
  - split; [auto|]. intros r Hr'. apply IHn. rewrite <- (firstn_skipn most). apply in_or_app. auto.
  - rewrite H in *. split; [now apply (Hdrop _ _ a r b)|]. intros x Hx. apply IHn, in_app_iff. apply in_app_iff in Hx. simpl. tauto.
Qed.

(** The program is the one that Rust runs: the cases by hand of `rt-core/src/shield/mod.rs`. *)
Example one_worker_by_hand :
  (longest 1 1 2 6 [(0, 1)] [] [] 0, longest 1 1 2 6 [(0, 1)] [] [20] 0, longest 1 1 2 6 [(0, 1)] [] [3] 0,
   longest 1 1 2 6 [(0, 1)] [] [] 1, longest 1 1 2 6 [(0, 1)] [] [20] 1) = (4, 2, 2, 5, 2).
Proof. vm_compute. reflexivity. Qed.

Example two_workers_by_hand :
  map (fun x => longest 2 1 2 6 [(0, 2)] [fst x] (snd x) 0)
    [(0, []); (2, []); (3, []); (4, []); (5, []); (0, [6]); (0, [6; 6]); (0, [4])] = [6; 6; 4; 4; 2; 4; 2; 4].
Proof. vm_compute. reflexivity. Qed.
