(** Several services on the same workers (rt-core/src/sharing): the model, and Theorem T.

    It extends Model.v: streams, words, curves and requests are those, and so is what a miss is.  Each service has batches
    and a deadline of its own.  Workers are alike, no batch takes longer than [longest], whatever may end early, and no
    worker is left idle while something mandatory waits.  But from one instant at which nothing mandatory waits to the next
    dispatch may be late by [lateness] in all, and the batches begun may take longer by [excess] in all. *)
Require Import List Arith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

(** * The model *)

Record service := Service { size : nat; span : nat; limit : nat; turn : nat }.  (* B, P, L: the deadline less the guard; batches a turn *)

(** In turns: a service joins the end of the line when a request finds none of its own waiting, and again when it has had
    its turn and some still wait.  By deadline: the service whose oldest request that waits has the earliest. *)
Inductive rule := Turns | Earliest.

(** [home k] is the service of stream [k]; [longest] is the longest batch of any kind; [lateness] is the guard g, and [excess]
    at most the margin that every line of the test leaves.  [load] are the streams that are there: no other is promised
    anything. *)
Record sharing := Sharing { how : rule; crew : nat; longest : nat; lateness : nat; excess : nat; services : list service;
                            clients : list stream; home : nat -> nat; load : list nat }.

Section Sharing.
Variable q : sharing.
Notation n := (crew q).
Notation m := (length (services q)).
Definition sv i := nth i (services q) (Service 0 0 0 0).
Notation B i := (size (sv i)).
Notation P i := (span (sv i)).
Notation g := (lateness q).
Notation D i := (limit (sv i) + g).
Notation K i := (turn (sv i)).

(** The streams as Model.v has them, under the deadline of service [i]. *)
Definition as_problem i := Problem (D i) g true [] (clients q).
Notation p := (as_problem 0).
Definition at_home i r := home q (src r) =? i.

Record state := State {
  now : nat;
  late : nat;                                   (* for how long dispatch has been overdue, see [Renew] *)
  over : nat;                                   (* by how much batches have exceeded their times, see [Renew] *)
  arrived : list request;
  waiting : nat -> list request;                (* of each service the mandatory ones that wait, in order *)
  line : list nat;
  used : nat;                                   (* batches that the first of the line has had in this turn *)
  running : nat -> option (nat * list request); (* of each worker: the end of its batch at the latest, the batch *)
  answered : list (request * nat) }.

Definition initial := State 0 0 0 [] (fun _ => []) [] 0 (fun _ => None) [].
Definition idle st := forall i, waiting st i = [].
Definition free_at st v := match running st v with Some (due, _) => due | None => now st end.

(** Service [i] goes next, and how the line stands then. *)
Inductive next st i : list nat -> nat -> Prop :=
| In_turn rest : how q = Turns -> line st = i :: rest ->
    next st i
      (match skipn (B i) (waiting st i) with [] => rest | _ => if used st + 1 =? K i then rest ++ [i] else i :: rest end)
      (match skipn (B i) (waiting st i) with [] => 0 | _ => if used st + 1 =? K i then 0 else used st + 1 end)
| By_deadline r l : how q = Earliest -> waiting st i = r :: l ->
    (forall j r' l', waiting st j = r' :: l' -> arr r + D i <= arr r' + D j) -> next st i (line st) (used st).

(** A mandatory request is given up if the service's batch would be too late for it; and if that service goes next, and of more
    than fill its batch each would be late unless it is in that very batch (spread-drop). *)
Definition doomed st w i r := forallb (fun v =>
  arr r + D i <? (if v =? w then now st + P i else free_at st v) + P i) (seq 0 n).
Definition hopeless st i r := arr r + D i < now st + P i \/
  exists w line' used', w < n /\ running st w = None /\ next st i line' used' /\ B i < count (doomed st w i) (waiting st i).

Inductive step : state -> state -> Prop :=
| Arrive st r :
    arr r = now st -> idx r = S (count (of (src r)) (arrived st)) -> (mandatory p r = true -> In (src r) (load q)) ->
    step st (let i := home q (src r) in if mandatory p r
      then State (now st) (late st) (over st) (arrived st ++ [r]) (set (waiting st) i (waiting st i ++ [r]))
             (match waiting st i with [] => line st ++ [i] | _ => line st end) (used st) (running st) (answered st)
      else State (now st) (late st) (over st) (arrived st ++ [r]) (waiting st) (line st) (used st) (running st) (answered st))
| Start st w i line' used' others extra :
    (* the oldest mandatory requests of one service, then any others *)
    w < n -> running st w = None -> next st i line' used' ->
    (forall r, In r others -> mandatory p r = false) -> over st + extra <= excess q ->
    step st (State (now st) (late st) (over st + extra) (arrived st) (set (waiting st) i (skipn (B i) (waiting st i))) line' used'
               (set (running st) w (Some (now st + P i + extra, firstn (B i) (waiting st i) ++ others))) (answered st))
| Background st w l others extra :
    (* while nothing mandatory waits, anything *)
    w < n -> running st w = None -> idle st -> l <= longest q + extra -> (forall r, In r others -> mandatory p r = false) ->
    over st + extra <= excess q ->
    step st (State (now st) (late st) (over st + extra) (arrived st) (waiting st) (line st) (used st)
               (set (running st) w (Some (now st + l, others))) (answered st))
| Finish st w due b :
    w < n -> running st w = Some (due, b) ->
    step st (State (now st) (late st) (over st) (arrived st) (waiting st) (line st) (used st)
               (set (running st) w None) (answered st ++ map (fun r => (r, now st)) b))
| Refuse st i a r b :
    (* what would be late although it is mandatory; a service of which nothing is left waiting leaves the line *)
    waiting st i = a ++ r :: b -> hopeless st i r ->
    step st (State (now st) (late st) (over st) (arrived st) (set (waiting st) i (a ++ b))
               (match a ++ b with [] => filter (fun j => negb (j =? i)) (line st) | _ => line st end)
               (match a ++ b, line st with [], h :: _ => if h =? i then 0 else used st | _, _ => used st end)
               (running st) (answered st))
| Renew st over' :
    (* where nothing mandatory waits, lateness is counted afresh, and of excess what batches still take beyond the longest *)
    idle st -> over' <= excess q -> (forall v, v < n -> free_at st v <= now st + longest q + over') ->
    step st (State (now st) 0 over' (arrived st) (waiting st) (line st) (used st) (running st) (answered st))
| Tick st late' :
    (forall w due b, w < n -> running st w = Some (due, b) -> now st < due) ->
    ( late' = late st /\ (idle st \/ forall w, w < n -> running st w <> None)
    \/ late' = S (late st) /\ late st < g ) ->                          (* a worker is free for what waits *)
    step st (State (S (now st)) late' (over st) (arrived st) (waiting st) (line st) (used st) (running st) (answered st)).

Inductive reachable : state -> Prop :=
| Reach_init : reachable initial
| Reach_step st st' : reachable st -> step st st' -> reachable st'.

(** What Model.v sees of it. *)
Definition view st := Model.State (now st) 0 (arrived st) [] (fun _ => None) (answered st) [] true.

(** The streams of some services keep to their declarations; nothing is said of the others. *)
Definition conform (G : nat -> bool) l := forall k s a d, nth_error (clients q) k = Some s -> G (home q k) = true ->
  count (fun r => of k r && within a d r) l <= curve s d.

(** The promise to service [i]: all its mandatory requests are answered in time. *)
Definition served i (G : nat -> bool) := forall st, reachable st -> conform G (arrived st) -> forall r, In r (arrived st) ->
  at_home i r = true -> mandatory p r = true -> arr r + D i < now st -> in_time (as_problem i) (view st) r.

(** The problem makes sense. *)
Definition sensible := sound_streams p /\ 0 < n /\ (forall k, k < length (clients q) -> home q k < m) /\
  forall i, i < m -> 0 < B i /\ 0 < K i /\ P i <= longest q.

(** The most mandatory requests of a service in any interval of a length. *)
Definition alpha i := curve_of p (filter (fun k => home q k =? i) (load q)).

(** * What the tests have in common *)

Definition work (c : nat -> nat) := sum (fun j => P j * c j) m.

(** share(c) <= x, the work that the least loaded worker gets of [c j] batches of each service [j]: the average, or what
    as many batches as the average take at most. *)
Definition share_within (c : nat -> nat) x := work c / n <= x \/
  forall d, (forall j, j < m -> d j <= c j) -> sum d m <= sum c m / n -> work d <= x.

Lemma sum_swap f a b : sum (fun i => sum (fun j => f i j) b) a = sum (fun j => sum (fun i => f i j) a) b.
Proof. induction a; cbn [sum]; [now rewrite sum_zero|]. now rewrite IHa, <- sum_add. Qed.

Lemma sum_scale c f k : sum (fun i => c * f i) k = c * sum f k.
Proof. induction k; cbn [sum]; lia. Qed.

Lemma sum_const c k : sum (fun _ => c) k = k * c.
Proof. induction k; cbn [sum]; lia. Qed.

Lemma sum_part f k i : i < k -> f i <= sum f k.
Proof. induction k; cbn [sum]; intros; [lia|]. destruct (Nat.eq_dec i k) as [->|]; [lia|]. specialize (IHk ltac:(lia)). lia. Qed.

(** Some worker gets no more than its share. *)
Lemma share_least x c c' X : 0 < n -> (forall j, j < m -> c' j = sum (fun v => x v j) n) ->
  (forall j, j < m -> c' j <= c j) -> share_within c X -> exists v, v < n /\ work (x v) <= X.
Proof.
  intros Hn Hc' Hle Hs.
  assert (Hwork : sum (fun v => work (x v)) n <= work c).
  { unfold work. rewrite sum_swap. apply sum_mono. intros j Hj. rewrite sum_scale, <- Hc' by auto.
    apply Nat.mul_le_mono_l. auto. }
  assert (Hsum : sum (fun v => sum (x v) m) n <= sum c m).
  { rewrite (sum_swap x). apply sum_mono. intros j Hj. rewrite <- Hc' by auto. auto. }
  destruct Hs as [Hs|Hs].
  - destruct (sum_lt (fun v => work (x v)) (fun _ => S X) n) as (v & Hv & Hlt); [|exists v; lia].
    rewrite sum_const. pose proof (Nat.mul_succ_div_gt (work c) n ltac:(lia)). nia.
  - destruct (sum_lt (fun v => sum (x v) m) (fun _ => S (sum c m / n)) n) as (v & Hv & Hlt).
    { rewrite sum_const. pose proof (Nat.mul_succ_div_gt (sum c m) n ltac:(lia)). lia. }
    exists v. split; [auto|]. apply Hs; [|lia]. intros j Hj. specialize (Hle j Hj). rewrite Hc' in Hle by auto.
    pose proof (sum_part (fun v => x v j) n v Hv). cbv beta in *. lia.
Qed.

(** Mandatory requests of [i] that arrive in [s, s + d), but for the first [past] arrivals: those came before the load was
    this one. *)
Variable past : nat.
Definition came_of i l s d := came p (filter (at_home i) (skipn past l)) s d.
Definition fresh l := past <= length l /\ forall r, In r (skipn past l) -> mandatory p r = true -> In (src r) (load q).

Lemma skip_snoc l (r : request) : past <= length l -> skipn past (l ++ [r]) = skipn past l ++ [r].
Proof. clear. intros H. rewrite skipn_app. replace (past - length l) with 0 by lia. reflexivity. Qed.

Lemma fresh_snoc l r : fresh l -> (mandatory p r = true -> In (src r) (load q)) -> fresh (l ++ [r]).
Proof.
  intros (Hl & Hf) Hr. split; [rewrite app_length; lia|]. rewrite skip_snoc by auto. intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; auto.
Qed.

Lemma filter_snoc {A} (f : A -> bool) l x : filter f (l ++ [x]) = filter f l ++ (if f x then [x] else []).
Proof. rewrite filter_app. cbn. destruct (f x); reflexivity. Qed.

Lemma came_of_snoc i l r s d : fresh l -> came_of i (l ++ [r]) s d =
  came_of i l s d + Nat.b2n (at_home i r && (mandatory p r && within s d r)).
Proof.
  intros (Hl & _). unfold came_of. rewrite skip_snoc, filter_snoc by auto. destruct (at_home i r); cbn [andb]; [apply came_snoc|].
  rewrite app_nil_r. cbn. lia.
Qed.

Lemma came_of_later i l s s' d d' : s' <= s -> s + d <= s' + d' -> came_of i l s d <= came_of i l s' d'.
Proof.
  intros. apply count_mono. intros r _. rewrite !andb_true_iff. unfold within. rewrite !andb_true_iff, !Nat.leb_le, !Nat.ltb_lt.
  intros (? & ? & ?). repeat split; auto; lia.
Qed.

Lemma wf_home i c l : wf c l -> wf c (filter (at_home i) l).
Proof.
  induction 1 as [|l r Hl IH Hle Hi]; [constructor|]. rewrite filter_snoc. destruct (at_home i r) eqn:E; [|now rewrite app_nil_r].
  constructor; [auto|intros x Hx; apply filter_In in Hx; now apply Hle|]. rewrite Hi. do 2 f_equal.
  clear - E. induction l as [|x l IH]; [reflexivity|]. cbn [filter]. rewrite count_cons.
  destruct (at_home i x) eqn:Ex; [rewrite count_cons; lia|]. unfold of in *. unfold at_home in *.
  destruct (Nat.eqb_spec (src x) (src r)) as [Es|]; [rewrite Es in Ex; congruence|]. cbn [Nat.b2n]. lia.
Qed.

Lemma came_of_curve G i l s d : sensible -> wf (fun _ => 0) l -> fresh l -> conform G (skipn past l) -> G i = true ->
  came_of i l s d <= alpha i d.
Proof.
  intros (Hs & _) Hwf (_ & Hf) Hc HG. rewrite <- (firstn_skipn past l) in Hwf. apply wf_suffix in Hwf.
  apply (came_curve p Hs _ (fun k => 0 + count (of k) (firstn past l))); [now apply wf_home| |].
  - intros k st a e E. cbn in E. destruct (Nat.eq_dec (home q k) i) as [<-|Hne].
    + etransitivity; [|now apply (Hc k st a e)]. generalize (skipn past l).
      unfold count. clear. intros l. induction l as [|x l IH]; [auto|]. cbn [filter].
      destruct (at_home (home q k) x) eqn:Ex; cbn [filter]; destruct (of k x && within a e x); cbn [length]; lia.
    + rewrite (count_ext _ (fun _ => false)), count_false; [lia|]. intros r Hr. apply filter_In in Hr as (_ & Hr).
      unfold at_home in Hr. apply Nat.eqb_eq in Hr. unfold of. destruct (Nat.eqb_spec (src r) k) as [<-|]; [congruence|reflexivity].
  - intros r Hr Hm. apply filter_In in Hr as (Hr & Hh). apply filter_In. split; [now apply Hf|auto].
Qed.

Lemma alpha_mono i d d' : sensible -> d <= d' -> alpha i d <= alpha i d'.
Proof.
  intros (Hs & _) Hd. unfold alpha, curve_of. generalize (filter (fun k => home q k =? i) (load q)).
  intros l. induction l as [|k l IH]; cbn [map list_sum fold_right]; [auto|]. apply Nat.add_le_mono; [|exact IH].
  destruct (nth_error (streams p) k) as [s|] eqn:E; [|auto]. destruct (Hs s (nth_error_In _ _ E)) as (_ & Hp & Hm).
  apply cdiv_mono; [auto|]. apply Nat.mul_le_mono_l. auto.
Qed.

(** * Theorem T *)

(** For the promise to [s]: [G] are the services whose promises are kept too, and whose arrivals are counted upon. *)
Definition batches_T (G : nat -> bool) s d i :=
  let J := cdiv (alpha s (d + 1)) (B s) in
  if i =? s then J - 1 else
  let v := cdiv J (K s) in
  if G i then Nat.min (v * K i) (alpha i (D i - P i + d + (D s - P s) + 1)) else v * K i.

Definition test_T G s := forall d, 0 < alpha s (d + 1) ->
  exists x, share_within (batches_T G s d) x /\ g + longest q + excess q + x + P s <= d + D s.

(** ** The invariant *)

(** Nothing is said of [old] requests. *)
Variable G : nat -> bool.
Variable old : request -> Prop.
Hypothesis Hsense : sensible.
Hypothesis Hrule : how q = Turns.
Hypothesis Htest : forall s, s < m -> G s = true -> test_T G s.

Notation X i := (D i - P i).

(** Since the instant [a], when none of [s] waited: worker [v] has begun [x v i] batches of [i], [c i] in all, which took
    [tk i] requests; [s] has had [C] turns, and [pre] are in the line before it. *)
Definition ref s st := exists a x c C tk pre post,
  a <= now st /\
  (forall j, j < m -> c j = sum (fun v => x v j) n) /\
  (forall v, v < n -> free_at st v <= a + longest q + late st + over st + work (x v)) /\
  line st = pre ++ s :: post /\
  c s = C * K s + match pre with [] => used st | _ => 0 end /\
  (forall i, i < m -> i <> s -> c i <= (C + 1) * K i) /\
  (forall i, In i pre -> c i + K i <= (C + 1) * K i + match pre with h :: _ => if i =? h then used st else 0 | [] => 0 end) /\
  (forall i, i < m -> i <> s -> G i = true -> c i <= tk i /\
     tk i + length (waiting st i) <= came_of i (arrived st) (a - X i) (now st - (a - X i) + 1)) /\
  c s * B s + length (waiting st s) <= came_of s (arrived st) a (now st - a + 1) /\
  (forall u r z, waiting st s = u ++ r :: z -> a <= arr r /\ c s * B s + length u + 1 <= alpha s (arr r - a + 1)).

Record Inv st : Prop := {
  inv_wf : wf (fun _ => 0) (arrived st);
  inv_fresh : fresh (arrived st);
  inv_late : late st <= g;
  inv_over : over st <= excess q;
  inv_past : forall r, In r (arrived st) -> arr r <= now st;
  inv_where : forall r, In r (arrived st) -> mandatory p r = true ->
    In r (waiting st (home q (src r))) \/ (exists w due b, w < n /\ running st w = Some (due, b) /\ In r b) \/
    (G (home q (src r)) = true -> old r \/ in_time (as_problem (home q (src r))) (view st) r);
  inv_run : forall w due b, w < n -> running st w = Some (due, b) -> now st <= due <= now st + longest q + over st /\
    forall r, In r b -> mandatory p r = true -> G (home q (src r)) = true -> old r \/ due <= arr r + D (home q (src r));
  inv_wait : forall i r, In r (waiting st i) -> mandatory p r = true /\ home q (src r) = i /\ arr r <= now st /\
    (* so long before it is too late as batches may still exceed their times *)
    (G i = true -> now st + P i + excess q <= arr r + D i + over st);
  inv_sub : forall i f, count f (waiting st i) <= count (fun r => at_home i r && (mandatory p r && f r)) (skipn past (arrived st));
  inv_nodup : NoDup (line st);
  inv_line : forall i, In i (line st) <-> waiting st i <> [];
  inv_used : match line st with [] => used st = 0 | h :: _ => used st < K h end;
  inv_ref : forall s, s < m -> G s = true -> waiting st s <> [] -> ref s st }.

Lemma home_in r : mandatory p r = true -> home q (src r) < m.
Proof.
  intros Hm. destruct Hsense as (_ & _ & Hh & _). apply Hh. unfold mandatory in Hm.
  destruct (nth_error _ _) eqn:E; [|discriminate]. apply nth_error_Some. cbn in E. congruence.
Qed.

Lemma free_now st v : Inv st -> v < n -> now st <= free_at st v <= now st + longest q + over st.
Proof.
  intros I Hv. unfold free_at. destruct (running st v) as [(due, b)|] eqn:E; [|lia]. apply (inv_run _ I v due b Hv E).
Qed.

(** What waits of [s] has begun before it is too late: while all are busy until [t], or dispatch may still be late, there is time. *)
Lemma still_time st s r t : Inv st -> conform G (skipn past (arrived st)) -> s < m -> G s = true -> In r (waiting st s) ->
  (forall w, w < n -> t + late st <= free_at st w + g) ->
  t + P s + excess q <= arr r + D s + over st.
Proof.
  intros I Hc Hs HG Hr Hbusy. pose proof (inv_over _ I) as Hover.
  destruct (inv_wait _ I s r Hr) as (_ & _ & Hpast & Hkey). specialize (Hkey HG).
  apply in_split in Hr as (u & z & E).
  destruct (inv_ref _ I s Hs HG) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & _ & HC & Hothers & _ & Htk & _ & Hpos).
  { rewrite E. destruct u; discriminate. }
  destruct (Hpos u r z E) as (Har & Hcount). set (d := arr r - a) in *.
  destruct (Htest s Hs HG d ltac:(lia)) as (X0 & Hshare & Hfit).
  pose proof Hsense as (_ & Hn & _ & Hpar). destruct (Hpar s Hs) as (HB & HK & _).
  set (J := cdiv (alpha s (d + 1)) (B s)) in *.
  assert (HcJ : c s <= J - 1).
  { pose proof (cdiv_ge (alpha s (d + 1)) (B s) HB) as HJ. fold J in HJ. assert (c s < J) by (apply (Nat.mul_lt_mono_pos_l (B s)); lia). lia. }
  assert (HCv : C + 1 <= cdiv J (K s)).
  { pose proof (cdiv_ge J (K s) HK) as Hv. set (v := cdiv J (K s)) in *. assert (0 < J).
    { pose proof (cdiv_ge (alpha s (d + 1)) (B s) HB) as HJ. fold J in HJ. nia. }
    assert (C * K s <= c s) by lia. assert (C < v) by (apply (Nat.mul_lt_mono_pos_l (K s)); lia). lia. }
  destruct (share_least x (batches_T G s d) c X0 Hn Hcx) as (v & Hv & Hw); [|auto|].
  - intros i Hi. unfold batches_T. fold J. destruct (Nat.eqb_spec i s) as [->|Hne]; [auto|].
    specialize (Hothers i Hi Hne). assert (Hv : c i <= cdiv J (K s) * K i).
    { etransitivity; [exact Hothers|]. now apply Nat.mul_le_mono_r. }
    destruct (G i) eqn:HGi; [|auto]. apply Nat.min_glb; [auto|].
    destruct (Htk i Hi Hne HGi) as (H1 & H2).
    pose proof (came_of_curve G i (arrived st) (a - X i) (now st - (a - X i) + 1) Hsense (inv_wf _ I) (inv_fresh _ I) Hc HGi) as H3.
    pose proof (alpha_mono i (now st - (a - X i) + 1) (X i + d + X s + 1) Hsense ltac:(lia)). lia.
  - specialize (Hbusy v Hv). specialize (Hfree v Hv). lia.
Qed.

Lemma sum_one f i k : i < k -> sum (fun j => f j * Nat.b2n (j =? i)) k = f i.
Proof.
  induction k; cbn [sum]; intros H; [lia|]. destruct (Nat.eqb_spec k i) as [->|].
  - rewrite (sum_ext _ (fun _ => 0)), sum_zero by (intros j Hj; destruct (Nat.eqb_spec j i); cbn; lia). cbn. lia.
  - rewrite IHk by lia. cbn. lia.
Qed.

(** One more batch of [i] on [w]. *)
Definition more x w i : nat -> nat -> nat := fun v j => x v j + Nat.b2n (v =? w) * Nat.b2n (j =? i).

Lemma more_count x w i c : w < n -> (forall j, j < m -> c j = sum (fun v => x v j) n) ->
  forall j, j < m -> c j + Nat.b2n (j =? i) = sum (fun v => more x w i v j) n.
Proof.
  intros Hw Hc j Hj. unfold more. rewrite sum_add, <- Hc by auto. f_equal.
  rewrite (sum_ext _ (fun v => Nat.b2n (j =? i) * Nat.b2n (v =? w))) by (intros; lia).
  now rewrite sum_one.
Qed.

Lemma more_work x w i : i < m -> work (more x w i w) = work (x w) + P i.
Proof.
  intros Hi. unfold work, more. rewrite Nat.eqb_refl. cbn [Nat.b2n].
  rewrite (sum_ext _ (fun j => P j * x w j + P j * Nat.b2n (j =? i))) by (intros; lia).
  now rewrite sum_add, sum_one.
Qed.

Lemma more_other x w i v : v <> w -> work (more x w i v) = work (x v).
Proof. intros. apply sum_ext. intros j _. unfold more. rewrite (proj2 (Nat.eqb_neq v w)) by auto. cbn. lia. Qed.

Lemma conform_prefix l l' : conform G (l ++ l') -> conform G l.
Proof. intros H k s a d E HG. specialize (H k s a d E HG). rewrite count_app in H. lia. Qed.

(** What waits of [i] when [s] begins to wait came since it was too late for it. *)
Lemma waits_came st i : Inv st -> G i = true ->
  length (waiting st i) <= came_of i (arrived st) (now st - X i) (now st - (now st - X i) + 1).
Proof.
  intros I HG. pose proof (inv_over _ I) as Hover. set (f := within (now st - X i) (now st - (now st - X i) + 1)).
  transitivity (count f (waiting st i)).
  - unfold f. clear f. assert (Hw := inv_wait _ I i). induction (waiting st i) as [|r l IH]; [cbn; lia|]. rewrite count_cons. cbn [length].
    specialize (IH ltac:(intros; apply Hw; simpl; auto)). destruct (Hw r (or_introl eq_refl)) as (_ & _ & Hp & Hk). specialize (Hk HG).
    unfold within at 1. destruct (Nat.leb_spec (now st - X i) (arr r)), (Nat.ltb_spec (arr r) (now st - X i + (now st - (now st - X i) + 1))); cbn [andb Nat.b2n]; lia.
  - etransitivity; [apply (inv_sub _ I)|]. unfold came_of, came, f. clear. generalize (within (now st - X i) (now st - (now st - X i) + 1)). intros f. unfold count.
    induction (skipn past (arrived st)) as [|r l IH]; [auto|]. cbn [filter]. destruct (at_home i r); cbn [andb filter]; [|auto].
    destruct (mandatory p r && f r); cbn [length]; lia.
Qed.

Lemma Inv_initial : past = 0 -> Inv initial.
Proof.
  intros E.
  constructor; cbn [initial now late over arrived waiting line used running answered]; auto; try (intros; contradiction); try (intros; discriminate).
  - constructor.
  - unfold fresh. rewrite E. split; [cbn; lia|intros ? []].
  - lia.
  - lia.
  - intros i f. rewrite count_nil. lia.
  - constructor.
  - intros i. split; [intros []|congruence].
Qed.

Lemma skipn_full {A} k (l : list A) : skipn k l <> [] -> length (firstn k l) = k.
Proof. clear. intros H. apply firstn_length_le. destruct (Nat.le_gt_cases k (length l)); [auto|]. now rewrite skipn_all2 in H by lia. Qed.

Lemma app_cons_not_nil' {A} (l : list A) x : l ++ [x] <> [].
Proof. destruct l; discriminate. Qed.

Lemma Inv_arrive st r : Inv st -> arr r = now st -> idx r = S (count (of (src r)) (arrived st)) ->
  (mandatory p r = true -> In (src r) (load q)) -> conform G (skipn past (arrived st ++ [r])) ->
  Inv (let i := home q (src r) in if mandatory p r
    then State (now st) (late st) (over st) (arrived st ++ [r]) (set (waiting st) i (waiting st i ++ [r]))
           (match waiting st i with [] => line st ++ [i] | _ => line st end) (used st) (running st) (answered st)
    else State (now st) (late st) (over st) (arrived st ++ [r]) (waiting st) (line st) (used st) (running st) (answered st)).
Proof.
  intros I Ea Ei Hload Hc. cbv zeta. pose proof (inv_fresh _ I) as Hfr. pose proof (fresh_snoc _ r Hfr Hload) as Hfr'.
  assert (Hwf : wf (fun _ => 0) (arrived st ++ [r])).
  { constructor; [apply I| |auto]. intros x Hx. rewrite Ea. now apply I. }
  assert (Hpast : forall x, In x (arrived st ++ [r]) -> arr x <= now st).
  { intros x Hx. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply I|lia]. }
  destruct (mandatory p r) eqn:Em.
  2:{ constructor; cbn [now late over arrived waiting line used running answered]; auto; try apply I.
      - intros x Hx Hm. apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply (inv_where _ I)|congruence].
      - intros i f. rewrite skip_snoc, count_app by apply Hfr. pose proof (inv_sub _ I i f). lia.
      - intros s Hs HG Hne. destruct (inv_ref _ I s Hs HG Hne) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hline & HC & Hothers & Hpre & Htk & Htot & Hpos).
        exists a, x, c, C, tk, pre, post. cbn [now late over arrived waiting line used].
        repeat (split; [assumption|]). split; [|split; [|assumption]].
        + intros i Hi Hn HGi. rewrite came_of_snoc by auto. destruct (Htk i Hi Hn HGi). lia.
        + rewrite came_of_snoc by auto. lia. }
  set (i := home q (src r)) in *. assert (Hi : i < m) by (now apply home_in).
  assert (Hat : at_home i r = true) by (unfold at_home; apply Nat.eqb_refl).
  assert (Hnow : within (now st) (now st - now st + 1) r = true).
  { unfold within. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. lia. }
  assert (Hroom : G i = true -> now st + P i + excess q <= arr r + D i + over st).
  { intros HG. destruct (Htest i Hi HG 0) as (x & _ & Hx); [|destruct Hsense as (_ & _ & _ & Hp); destruct (Hp i Hi) as (_ & _ & ?); lia].
    pose proof (came_of_curve G i _ (now st) (0 + 1) Hsense Hwf Hfr' Hc HG) as H. rewrite came_of_snoc, Hat, Em in H by auto.
    rewrite Nat.sub_diag in Hnow. rewrite Hnow in H. cbn [andb Nat.b2n] in H. lia. }
  constructor; cbn [now late over arrived waiting line used running answered]; auto.
  - apply I.
  - apply I.
  - intros x Hx Hm. apply in_app_or in Hx as [Hx|[<-|[]]].
    + destruct (inv_where _ I x Hx Hm) as [H|[H|H]]; [left|auto|auto]. unfold set. destruct (Nat.eqb_spec (home q (src x)) i) as [E|]; [|auto].
      rewrite E in H. apply in_or_app. auto.
    + left. fold i. rewrite set_same. apply in_or_app. simpl. auto.
  - apply I.
  - intros j x. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|apply I]. intros Hx.
    apply in_app_or in Hx as [Hx|[<-|[]]]; [now apply I|]. split; [auto|]. split; [reflexivity|]. split; [lia|auto].
  - intros j f. rewrite skip_snoc, count_app, count_cons, count_nil by apply Hfr. pose proof (inv_sub _ I j f) as H. unfold set.
    destruct (Nat.eqb_spec j i) as [->|]; [|lia]. rewrite count_app, count_cons, count_nil, Hat, Em. cbn [andb]. lia.
  - destruct (waiting st i) eqn:E; [|apply I]. pose proof (inv_nodup _ I) as Hnd.
    assert (Hni : ~ In i (line st)) by (intros H; apply (inv_line _ I) in H; congruence).
    clear - Hnd Hni. induction (line st) as [|h l IH]; cbn; [repeat constructor; auto|].
    inversion Hnd; subst. constructor; [|apply IH; [auto|intros H; apply Hni; simpl; auto]].
    intros H. apply in_app_or in H as [H|[->|[]]]; [auto|]. apply Hni. simpl. auto.
  - intros j. unfold set. destruct (Nat.eqb_spec j i) as [->|Hne].
    + split; [intros _; apply app_cons_not_nil'|intros _]. destruct (waiting st i) eqn:E; [apply in_or_app; simpl; auto|].
      apply (inv_line _ I). congruence.
    + rewrite <- (inv_line _ I j). destruct (waiting st i); [|reflexivity]. rewrite in_app_iff. cbn. intuition congruence.
  - pose proof (inv_used _ I) as H. destruct (waiting st i); [|auto]. destruct (line st) as [|h l]; cbn; [|auto].
    rewrite H. destruct Hsense as (_ & _ & _ & Hp). destruct (Hp i Hi) as (_ & HK & _). fold i. exact HK.
  - intros s Hs HG Hne.
    assert (Hfresh : waiting st i = [] -> s = i -> ref s
      (State (now st) (late st) (over st) (arrived st ++ [r]) (set (waiting st) i (waiting st i ++ [r])) (line st ++ [i]) (used st) (running st) (answered st))).
    { intros E ->. exists (now st), (fun _ _ => 0), (fun _ => 0), 0, (fun _ => 0), (line st), [].
      cbn [now late over arrived waiting line used]. split; [lia|]. split; [intros; now rewrite sum_zero|].
      split. { intros v Hv. pose proof (free_now st v I Hv). change (free_at _ v) with (free_at st v). lia. }
      split; [reflexivity|]. split. { pose proof (inv_used _ I). destruct (line st); lia. }
      split; [lia|]. split; [lia|]. split.
      { intros j Hj Hji HGj. split; [lia|]. rewrite set_other by auto. rewrite came_of_snoc by auto. pose proof (waits_came st j I HGj). lia. }
      split. { rewrite set_same, E, came_of_snoc, Hat, Em, Hnow by auto. cbn. lia. }
      rewrite set_same, E. intros u y z Eu. destruct u as [|? u]; [|destruct u; discriminate]. cbn in Eu. inv Eu.
      split; [lia|]. cbn [length]. rewrite Ea. pose proof (came_of_curve G i _ (now st) (now st - now st + 1) Hsense Hwf Hfr' Hc HG) as H.
      rewrite came_of_snoc, Hat, Em, Hnow in H by auto. cbn [andb Nat.b2n] in H. lia. }
    destruct (Nat.eq_dec s i) as [->|Hsi].
    + destruct (waiting st i) as [|y l] eqn:E; [now apply Hfresh|]. clear Hfresh.
      assert (Hne' : waiting st i <> []) by congruence. rewrite <- E in *.
      destruct (inv_ref _ I i Hs HG Hne') as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hline & HC & Hothers & Hpre & Htk & Htot & Hpos).
      exists a, x, c, C, tk, pre, post. cbn [now late over arrived waiting line used].
      assert (Hin : within a (now st - a + 1) r = true) by (unfold within; rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt; lia).
      assert (Htot' : c i * B i + length (waiting st i ++ [r]) <= came_of i (arrived st ++ [r]) a (now st - a + 1)).
      { rewrite came_of_snoc, Hat, Em, Hin, app_length by auto. cbn [andb Nat.b2n length]. lia. }
      repeat (split; [assumption|]). rewrite set_same. split; [|split; [exact Htot'|]].
      * intros j Hj Hn HGj. rewrite set_other by auto. rewrite came_of_snoc by auto. destruct (Htk j Hj Hn HGj). lia.
      * intros u z b Eu. apply snoc_split in Eu as [(-> & -> & ->)|(b' & -> & Eu)]; [|eauto].
        split; [lia|]. rewrite Ea. pose proof (came_of_curve G i _ a (now st - a + 1) Hsense Hwf Hfr' Hc HG).
        rewrite app_length in Htot'. cbn [length] in Htot'. lia.
    + rewrite set_other in Hne by auto.
      destruct (inv_ref _ I s Hs HG Hne) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hline & HC & Hothers & Hpre & Htk & Htot & Hpos).
      exists a, x, c, C, tk, pre, (post ++ match waiting st i with [] => [i] | _ => [] end). cbn [now late over arrived waiting line used].
      split; [auto|]. split; [auto|]. split; [auto|].
      split. { rewrite Hline. destruct (waiting st i); [now rewrite <- app_assoc|now rewrite app_nil_r]. }
      split; [auto|]. split; [auto|]. split; [auto|]. split.
      { intros j Hj Hn HGj. rewrite came_of_snoc by auto. destruct (Htk j Hj Hn HGj). unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|lia].
        rewrite app_length, Hat, Em. cbn [andb length].
        assert (Hin : within (a - X i) (now st - (a - X i) + 1) r = true) by (unfold within; rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt; lia).
        rewrite Hin. cbn [Nat.b2n]. lia. }
      rewrite set_other by auto. split; [rewrite came_of_snoc by auto; lia|auto].
Qed.

Lemma Inv_start st w i line' used' others extra : Inv st -> w < n -> running st w = None -> next st i line' used' ->
  (forall r, In r others -> mandatory p r = false) -> over st + extra <= excess q ->
  Inv (State (now st) (late st) (over st + extra) (arrived st) (set (waiting st) i (skipn (B i) (waiting st i))) line' used'
         (set (running st) w (Some (now st + P i + extra, firstn (B i) (waiting st i) ++ others))) (answered st)).
Proof.
  intros I Hw Hidle Hnext Hoth Hz. pose proof (inv_over _ I) as Hov.
  assert (exists rest, line st = i :: rest /\
    line' = match skipn (B i) (waiting st i) with [] => rest | _ => if used st + 1 =? K i then rest ++ [i] else i :: rest end /\
    used' = match skipn (B i) (waiting st i) with [] => 0 | _ => if used st + 1 =? K i then 0 else used st + 1 end)
    as (rest & Hline & El' & Eu') by (destruct Hnext; [eauto|congruence]).
  pose proof (inv_line _ I i) as Hwaits. rewrite Hline in Hwaits. assert (Hne : waiting st i <> []) by (apply Hwaits; simpl; auto).
  assert (Hi : i < m).
  { destruct (waiting st i) as [|r l] eqn:E; [congruence|]. destruct (inv_wait _ I i r) as (Hm & <- & _); [rewrite E; simpl; auto|]. now apply home_in. }
  pose proof Hsense as (_ & _ & _ & Hpar). destruct (Hpar i Hi) as (HB & HK & HP).
  pose proof (inv_nodup _ I) as Hnd. rewrite Hline in Hnd. apply NoDup_cons_iff in Hnd as (Hni & Hnd').
  pose proof (inv_used _ I) as Hused. rewrite Hline in Hused.
  set (left := skipn (B i) (waiting st i)) in *. set (taken := firstn (B i) (waiting st i)) in *.
  assert (Esplit : waiting st i = taken ++ left) by (symmetry; apply firstn_skipn).
  set (st' := State _ _ _ _ _ _ _ _ _).
  assert (Hfree' : forall v, free_at st' v = if v =? w then now st + P i + extra else free_at st v).
  { intros v. unfold free_at, st', set. cbn [running now]. destruct (v =? w); auto. }
  assert (Hidle' : free_at st w = now st) by (unfold free_at; now rewrite Hidle).
  constructor; try apply I; cbn [st' now late over arrived waiting line used running answered].
  - lia.
  - intros r Hr Hm. destruct (inv_where _ I r Hr Hm) as [H|[(v & due & b & Hv & Hrun & Hb)|H]].
    + unfold set at 1. destruct (Nat.eqb_spec (home q (src r)) i) as [E|]; [|auto]. rewrite E, Esplit in H.
      apply in_app_or in H as [H|H]; [|auto]. right. left. exists w. rewrite set_same. eexists _, _. split; [auto|]. split; [reflexivity|].
      apply in_or_app. auto.
    + right. left. exists v, due, b. rewrite set_other; [auto|congruence].
    + auto.
  - intros v due b Hv. destruct (Nat.eq_dec v w) as [->|Hvw]; [|rewrite set_other by auto; intros E; destruct (inv_run _ I v due b Hv E); split; [lia|auto]].
    rewrite set_same. intros E. inv E. split; [lia|]. intros r Hr Hm HG. apply in_app_or in Hr as [Hr|Hr]; [|apply Hoth in Hr; congruence].
    destruct (inv_wait _ I i r) as (_ & Eh & _ & Hk); [rewrite Esplit; apply in_or_app; auto|]. rewrite Eh in *. specialize (Hk HG). right. lia.
  - intros j r Hr. destruct (inv_wait _ I j r) as (Hm & Hh & Hp & Hk).
    { revert Hr. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto]. intros Hr. rewrite Esplit. apply in_or_app. auto. }
    repeat (split; [assumption|]). intros HG. specialize (Hk HG). lia.
  - intros j f. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|apply I]. etransitivity; [|apply I]. rewrite Esplit, count_app. lia.
  - rewrite El'. destruct left; [auto|]. destruct (used st + 1 =? K i); [|now constructor].
    clear - Hni Hnd'. induction rest as [|h l IH]; cbn; [repeat constructor; auto|]. inversion Hnd'; subst.
    constructor; [|apply IH; [intros H; apply Hni; simpl; auto|auto]].
    intros H. apply in_app_or in H as [H|[->|[]]]; [auto|]. apply Hni. simpl. auto.
  - intros j. pose proof (inv_line _ I j) as Hj. rewrite Hline in Hj. rewrite El'. unfold set. destruct (Nat.eqb_spec j i) as [->|Hji].
    + destruct left; [split; [contradiction|congruence]|]. split; [congruence|intros _].
      destruct (used st + 1 =? K i); [apply in_or_app|]; simpl; auto.
    + rewrite <- Hj. assert (Hin : In j (i :: rest) <-> In j rest) by (clear - Hji; simpl; split; [intros [E|H]; [congruence|auto]|auto]).
      destruct left; [now rewrite Hin|]. destruct (used st + 1 =? K i); [|reflexivity]. rewrite in_app_iff, Hin.
      clear - Hji. split; [intros [H|[E|[]]]; [auto|congruence]|auto].
  - assert (Hrest : forall l, (forall h, In h l -> In h (line st)) -> match l with [] => 0 = 0 | h :: _ => 0 < K h end).
    { intros [|h l] Hl; [auto|]. specialize (Hl h (or_introl eq_refl)). apply (inv_line _ I) in Hl.
      destruct (waiting st h) as [|r z] eqn:E; [congruence|]. destruct (inv_wait _ I h r) as (Hm & <- & _); [rewrite E; simpl; auto|].
      apply (Hpar _ (home_in r Hm)). }
    rewrite El', Eu'. destruct left; [apply Hrest; rewrite Hline; simpl; auto|].
    destruct (Nat.eqb_spec (used st + 1) (K i)).
    + apply (Hrest (rest ++ [i])). rewrite Hline. intros h Hh. apply in_app_or in Hh. simpl in *. tauto.
    + lia.
  - intros s Hs HG Hwait'.
    assert (Hwait : waiting st s <> []).
    { intros E. apply Hwait'. unfold set. destruct (Nat.eqb_spec s i) as [->|]; [|auto]. unfold left. rewrite E. apply skipn_nil. }
    destruct (inv_ref _ I s Hs HG Hwait) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hl & HC & Hothers & Hpre & Htk & Htot & Hpos).
    pose proof (more_count x w i c Hw Hcx) as Hcx'.
    assert (Hfree'' : forall v, v < n -> free_at st' v <= a + longest q + late st + (over st + extra) + work (more x w i v)).
    { intros v Hv. rewrite Hfree'. specialize (Hfree v Hv). destruct (Nat.eqb_spec v w) as [->|Hvw].
      - rewrite more_work by auto. lia.
      - rewrite more_other by auto. lia. }
    rewrite Hline in Hl. destruct (Nat.eq_dec s i) as [->|Hsi].
    + (* [s] itself, with a full batch *)
      assert (pre = [] /\ post = rest) as (-> & ->).
      { destruct pre as [|h pre]; cbn in Hl; inv Hl; [auto|]. destruct Hni. apply in_or_app. simpl. auto. }
      rewrite set_same in Hwait'. assert (Hfull : length taken = B i) by (exact (skipn_full _ _ Hwait')).
      assert (Elen : length (waiting st i) = B i + length left) by (rewrite Esplit, app_length; lia).
      assert (El2 : line' = (if used st + 1 =? K i then rest ++ [i] else i :: rest) /\
        used' = (if used st + 1 =? K i then 0 else used st + 1)) by (rewrite El', Eu'; destruct left; [congruence|auto]).
      destruct El2 as (El2 & Eu2).
      exists a, (more x w i), (fun j => c j + Nat.b2n (j =? i)).
      assert (Ei : forall k, k + Nat.b2n (i =? i) = k + 1) by (intros; rewrite Nat.eqb_refl; reflexivity).
      assert (Ej : forall j k, j <> i -> k + Nat.b2n (j =? i) = k) by (intros j k Hj; rewrite (proj2 (Nat.eqb_neq j i)) by auto; cbn; lia).
      assert (Hrest' : (forall j, j < m -> j <> i -> G j = true -> c j + Nat.b2n (j =? i) <= tk j /\
          tk j + length (set (waiting st) i left j) <= came_of j (arrived st) (a - X j) (now st - (a - X j) + 1)) /\
        (c i + Nat.b2n (i =? i)) * B i + length (set (waiting st) i left i) <= came_of i (arrived st) a (now st - a + 1) /\
        (forall u r z, set (waiting st) i left i = u ++ r :: z ->
           a <= arr r /\ (c i + Nat.b2n (i =? i)) * B i + length u + 1 <= alpha i (arr r - a + 1))).
      { split; [|split].
        - intros j Hj Hji HGj. rewrite Ej, set_other by auto. auto.
        - rewrite Ei, set_same. lia.
        - rewrite Ei, set_same. intros u r z E. destruct (Hpos (taken ++ u) r z) as (H1 & H2).
          { rewrite Esplit, E, app_assoc. reflexivity. }
          rewrite app_length in H2. split; [auto|lia]. }
      destruct Hrest' as (HR1 & HR2 & HR3).
      destruct (Nat.eqb_spec (used st + 1) (K i)) as [Eu|Eu].
      * exists (C + 1), tk, rest, []. split; [exact Ha|]. split; [exact Hcx'|]. split; [exact Hfree''|]. split; [exact El2|].
        split. { rewrite Ei. cbv iota in HC. unfold st'. cbn [used]. rewrite Eu2. destruct rest; lia. }
        split. { intros j Hj Hji. rewrite Ej by auto. specialize (Hothers j Hj Hji). lia. }
        split; [|split; [exact HR1|split; [exact HR2|exact HR3]]].
        intros j Hj. assert (j <> i) by congruence. rewrite Ej by auto.
        assert (Hjm : j < m).
        { assert (Hjl : In j (line st)) by (rewrite Hline; simpl; auto). apply (inv_line _ I) in Hjl.
          destruct (waiting st j) as [|r z] eqn:E; [congruence|]. destruct (inv_wait _ I j r) as (Hm & <- & _); [rewrite E; simpl; auto|]. now apply home_in. }
        specialize (Hothers j Hjm ltac:(auto)). lia.
      * exists C, tk, [], rest. split; [exact Ha|]. split; [exact Hcx'|]. split; [exact Hfree''|]. split; [exact El2|].
        split. { rewrite Ei. cbv iota in HC. unfold st'. cbn [used]. lia. }
        split. { intros j Hj Hji. rewrite Ej by auto. auto. }
        split; [intros j []|split; [exact HR1|split; [exact HR2|exact HR3]]].
    + (* another, before [s] in the line *)
      destruct pre as [|h pre]; cbn in Hl; injection Hl as Eh Erest; [congruence|]. subst h.
      assert (Hspre : ~ In i pre) by (intros H; apply Hni; rewrite Erest; apply in_or_app; auto).
      rewrite set_other in Hwait' by auto.
      assert (Ej : forall j k, j <> i -> k + Nat.b2n (j =? i) = k) by (intros j k Hj; rewrite (proj2 (Nat.eqb_neq j i)) by auto; cbn; lia).
      assert (Ei : forall k, k + Nat.b2n (i =? i) = k + 1) by (intros; rewrite Nat.eqb_refl; reflexivity).
      pose proof (Hpre i ltac:(simpl; auto)) as Hci. cbv beta iota in Hci. rewrite Nat.eqb_refl in Hci.
      assert (Hlt : 0 < length taken).
      { unfold taken. rewrite firstn_length. destruct (waiting st i); [congruence|]. cbn. lia. }
      assert (HR1 : forall j, j < m -> j <> s -> G j = true -> c j + Nat.b2n (j =? i) <= tk j + (if j =? i then length taken else 0) /\
          tk j + (if j =? i then length taken else 0) + length (set (waiting st) i left j) <= came_of j (arrived st) (a - X j) (now st - (a - X j) + 1)).
      { intros j Hj Hjs HGj. destruct (Htk j Hj Hjs HGj) as (H1 & H2). unfold set. destruct (Nat.eqb_spec j i) as [->|].
        - rewrite Esplit, app_length in H2. cbn [Nat.b2n]. lia.
        - cbn [Nat.b2n]. lia. }
      assert (HR2 : (c s + Nat.b2n (s =? i)) * B s + length (set (waiting st) i left s) <= came_of s (arrived st) a (now st - a + 1))
        by (rewrite Ej, set_other by auto; auto).
      assert (HR3 : forall u r z, set (waiting st) i left s = u ++ r :: z ->
           a <= arr r /\ (c s + Nat.b2n (s =? i)) * B s + length u + 1 <= alpha s (arr r - a + 1))
        by (rewrite Ej, set_other by auto; auto).
      assert (HO : forall j, j < m -> j <> s -> c j + Nat.b2n (j =? i) <= (C + 1) * K j).
      { intros j Hj Hjs. destruct (Nat.eq_dec j i) as [->|Hji]; [rewrite Ei; lia|rewrite Ej by auto; auto]. }
      assert (HP' : forall j, In j pre -> c j + Nat.b2n (j =? i) + K j <= (C + 1) * K j).
      { intros j Hj. assert (Hji : j <> i) by congruence. rewrite Ej by auto. specialize (Hpre j ltac:(simpl; auto)). cbv beta iota in Hpre.
        rewrite (proj2 (Nat.eqb_neq j i)) in Hpre by auto. lia. }
      (* the turn of [i] is over, whether it leaves the line or not, *)
      assert (Hover : forall tail, line' = rest ++ tail -> used' = 0 -> ref s st').
      { intros tail El Eu. exists a, (more x w i), (fun j => c j + Nat.b2n (j =? i)), C, (fun j => tk j + (if j =? i then length taken else 0)), pre, (post ++ tail).
        split; [exact Ha|]. split; [exact Hcx'|]. split; [exact Hfree''|].
        split. { unfold st'. cbn [line]. rewrite El, Erest, <- app_assoc. reflexivity. }
        split. { rewrite Ej by auto. unfold st'. cbn [used]. rewrite Eu. destruct pre; lia. }
        split; [exact HO|]. split; [|split; [exact HR1|split; [exact HR2|exact HR3]]].
        intros j Hj. specialize (HP' j Hj). lia. }
      (* or it goes on *)
      assert (Hcase : left = [] \/ left <> []) by (destruct left; [auto|right; discriminate]). fold st'.
      destruct Hcase as [El|El].
      { apply (Hover []); [rewrite app_nil_r, El', El|rewrite Eu', El]; reflexivity. }
      assert (El2 : line' = (if used st + 1 =? K i then rest ++ [i] else i :: rest) /\
        used' = (if used st + 1 =? K i then 0 else used st + 1)) by (rewrite El', Eu'; destruct left; [congruence|auto]).
      destruct El2 as (El2 & Eu2).
      destruct (Nat.eqb_spec (used st + 1) (K i)) as [Eu|Eu].
      { now apply (Hover [i]). }
      exists a, (more x w i), (fun j => c j + Nat.b2n (j =? i)), C, (fun j => tk j + (if j =? i then length taken else 0)), (i :: pre), post.
      split; [exact Ha|]. split; [exact Hcx'|]. split; [exact Hfree''|].
      split. { unfold st'. cbn [line]. rewrite El2, Erest. reflexivity. }
      split. { rewrite Ej by auto. lia. }
      split; [exact HO|]. split; [|split; [exact HR1|split; [exact HR2|exact HR3]]].
      intros j [<-|Hj]; cbv beta iota.
      * rewrite Ei, Nat.eqb_refl. unfold st'. cbn [used]. rewrite Eu2. lia.
      * specialize (HP' j Hj). lia.
Qed.

(** Of several instants one is the first. *)
Lemma least_of (f : nat -> nat) k : 0 < k -> exists v, v < k /\ forall w, w < k -> f v <= f w.
Proof.
  clear. induction k as [|k IH]; [lia|]. intros _. destruct k as [|k]; [exists 0; split; [lia|]; intros w Hw; replace w with 0 by lia; lia|].
  destruct (IH ltac:(lia)) as (v & Hv & Hle). destruct (Nat.le_gt_cases (f v) (f (S k))).
  - exists v. split; [lia|]. intros w Hw. destruct (Nat.eq_dec w (S k)) as [->|]; [auto|]. apply Hle. lia.
  - exists (S k). split; [lia|]. intros w Hw. destruct (Nat.eq_dec w (S k)) as [->|]; [auto|]. specialize (Hle w ltac:(lia)). lia.
Qed.

(** Nothing mandatory is given up of a service whose promise is kept. *)
Lemma never_hopeless st i r : Inv st -> conform G (skipn past (arrived st)) -> G i = true -> In r (waiting st i) -> ~ hopeless st i r.
Proof.
  intros I Hc HG Hr Hh. pose proof (inv_over _ I) as Hov. destruct (inv_wait _ I i r Hr) as (Hm & Hhome & _ & Hk). specialize (Hk HG).
  assert (Hi : i < m) by (rewrite <- Hhome; now apply home_in).
  destruct Hh as [Hh|(w & line' & used' & Hw & Hidle & Hnext & Hh)]; [lia|].
  pose proof (Inv_start st w i line' used' [] 0 I Hw Hidle Hnext ltac:(intros ? []) ltac:(lia)) as I'.
  set (st' := State _ _ _ _ _ _ _ _ _) in I'.
  assert (Hfree : forall v, free_at st' v = if v =? w then now st + P i else free_at st v).
  { intros v. unfold free_at, st', set. cbn [running now]. destruct (v =? w); [lia|auto]. }
  rewrite <- (firstn_skipn (B i) (waiting st i)), count_app in Hh.
  pose proof (count_le_length (doomed st w i) (firstn (B i) (waiting st i))) as H1. rewrite firstn_length in H1.
  assert (Hz : count (doomed st w i) (skipn (B i) (waiting st i)) = 0); [|lia].
  apply Nat.le_0_r. apply Nat.le_trans with (count (fun _ => false) (skipn (B i) (waiting st i))); [apply count_mono|now rewrite count_false].
  intros x Hx Hdoom. destruct Hsense as (_ & Hn & _). destruct (least_of (free_at st') n Hn) as (v & Hv & Hle).
  pose proof (still_time st' i x (free_at st' v) I' Hc Hi HG) as Hst. pose proof (inv_late _ I) as Hl. pose proof (inv_over _ I') as Hov'.
  specialize (Hst ltac:(unfold st'; cbn [waiting]; now rewrite set_same)).
  specialize (Hst ltac:(intros u Hu; specialize (Hle u Hu); change (late st') with (late st); lia)).
  unfold doomed in Hdoom. rewrite forallb_forall in Hdoom. specialize (Hdoom v).
  rewrite in_seq, Nat.ltb_lt, <- Hfree in Hdoom. specialize (Hdoom ltac:(lia)). lia.
Qed.

(** So only others lose requests, and their place in the line if none is left. *)
Lemma Inv_refuse st i a r b : Inv st -> conform G (skipn past (arrived st)) -> waiting st i = a ++ r :: b -> hopeless st i r ->
  Inv (State (now st) (late st) (over st) (arrived st) (set (waiting st) i (a ++ b))
         (match a ++ b with [] => filter (fun j => negb (j =? i)) (line st) | _ => line st end)
         (match a ++ b, line st with [], h :: _ => if h =? i then 0 else used st | _, _ => used st end)
         (running st) (answered st)).
Proof.
  intros I Hc E Hh.
  assert (HG : G i = false).
  { destruct (G i) eqn:HG; [|auto]. destruct (never_hopeless st i r I Hc HG); [|auto]. rewrite E. apply in_or_app. simpl. auto. }
  assert (Hsub : forall j x, In x (set (waiting st) i (a ++ b) j) -> In x (waiting st j)).
  { intros j x. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto]. rewrite E, !in_app_iff. simpl. tauto. }
  assert (Hlen : forall j, length (set (waiting st) i (a ++ b) j) <= length (waiting st j)).
  { intros j. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto]. rewrite E, !app_length. cbn [length]. lia. }
  constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
  - intros x Hx Hm. destruct (inv_where _ I x Hx Hm) as [H|[H|H]]; [|auto|auto].
    unfold set at 1. destruct (Nat.eqb_spec (home q (src x)) i) as [Ei|]; [|auto]. right. right. rewrite Ei. congruence.
  - intros j x Hx. now apply (inv_wait _ I), Hsub.
  - intros j f. etransitivity; [|apply (inv_sub _ I j f)]. unfold set. destruct (Nat.eqb_spec j i) as [->|]; [|auto].
    rewrite E, !count_app, count_cons. lia.
  - destruct (a ++ b); [apply NoDup_filter|]; apply I.
  - intros j. unfold set. destruct (Nat.eqb_spec j i) as [->|Hne].
    + destruct (a ++ b) eqn:Eab; [|rewrite (inv_line _ I i), E; split; [congruence|intros _; destruct a; discriminate]].
      split; [|congruence]. intros H. apply filter_In in H as (_ & H). rewrite Nat.eqb_refl in H. discriminate.
    + destruct (a ++ b); [|apply (inv_line _ I j)]. rewrite <- (inv_line _ I j), filter_In, (proj2 (Nat.eqb_neq j i)) by auto. cbn. tauto.
  - pose proof (inv_used _ I) as Hu. destruct (a ++ b); [|auto].
    assert (Hpos : forall l, (forall h, In h l -> In h (line st)) -> match l with [] => 0 = 0 | h :: _ => 0 < K h end).
    { intros [|h l] Hl; [auto|]. specialize (Hl h (or_introl eq_refl)). apply (inv_line _ I) in Hl. destruct Hsense as (_ & _ & _ & Hpar).
      destruct (waiting st h) as [|y z] eqn:Ey; [congruence|]. destruct (inv_wait _ I h y) as (Hm & <- & _); [rewrite Ey; simpl; auto|].
      apply (Hpar _ (home_in y Hm)). }
    destruct (line st) as [|h l] eqn:El; [auto|]. cbn [filter]. destruct (Nat.eqb_spec h i); cbn [negb]; [|auto].
    apply Hpos. intros x Hx. apply filter_In in Hx as (Hx & _). simpl. auto.
  - intros s Hs HGs Hne. assert (Hsi : s <> i) by congruence. rewrite set_other in Hne by auto.
    destruct (inv_ref _ I s Hs HGs Hne) as (a0 & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hline & HC & Hothers & Hpre & Htk & Htot & Hpos).
    assert (Htk' : forall j, j < m -> j <> s -> G j = true -> c j <= tk j /\
      tk j + length (set (waiting st) i (a ++ b) j) <= came_of j (arrived st) (a0 - X j) (now st - (a0 - X j) + 1)).
    { intros j Hj Hjs HGj. destruct (Htk j Hj Hjs HGj). specialize (Hlen j). lia. }
    destruct (a ++ b) eqn:Eab.
    2:{ exists a0, x, c, C, tk, pre, post. cbn [now late over arrived waiting line used]. rewrite set_other by auto. auto 20. }
    exists a0, x, c, C, tk, (filter (fun j => negb (j =? i)) pre), (filter (fun j => negb (j =? i)) post).
    cbn [now late over arrived waiting line used]. rewrite set_other by auto.
    split; [auto|]. split; [auto|]. split; [auto|].
    split. { rewrite Hline, filter_app. cbn [filter]. rewrite (proj2 (Nat.eqb_neq s i)) by auto. reflexivity. }
    assert (Hhead : match line st with h :: _ => if h =? i then 0 else used st | [] => used st end =
      match pre with h :: _ => if h =? i then 0 else used st | [] => used st end).
    { rewrite Hline. destruct pre; cbn [app]; [now rewrite (proj2 (Nat.eqb_neq s i))|reflexivity]. }
    rewrite Hhead.
    pose proof (inv_nodup _ I) as Hnd. rewrite Hline in Hnd.
    split. { destruct pre as [|h pre]; [auto|]. cbn [filter]. destruct (h =? i); cbn [negb]; [|lia].
      destruct (filter _ pre); lia. }
    split; [auto|]. split; [|auto].
    intros j Hj. apply filter_In in Hj as (Hj & Hji). specialize (Hpre j Hj). destruct pre as [|h pre]; [destruct Hj|].
    cbn [filter]. destruct (Nat.eqb_spec h i) as [Hhi|Hhi]; cbn [negb]; [rewrite Hhi in Hpre|].
    + apply negb_true_iff in Hji. rewrite Hji in Hpre. destruct (filter _ pre) as [|h' l']; [lia|]. destruct (j =? h'); lia.
    + exact Hpre.
Qed.

Lemma Inv_step st st' : Inv st -> step st st' -> conform G (skipn past (arrived st')) -> Inv st'.
Proof.
  intros I Hs Hc. inv Hs.
  - apply Inv_arrive; auto. destruct (mandatory p r); auto.
  - now apply Inv_start.
  - (* Background *)
    rename H into Hw, H0 into Hrun, H1 into Hidle, H2 into Hl, H3 into Hoth, H4 into Hx.
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
    + lia.
    + intros r Hr Hm. destruct (inv_where _ I r Hr Hm) as [H|[(v & due & b & Hv & Hr' & Hb)|H]]; auto.
      right. left. exists v, due, b. rewrite set_other; [auto|congruence].
    + intros v due b Hv. destruct (Nat.eq_dec v w) as [->|Hne]; [|rewrite set_other by auto; intros E; destruct (inv_run _ I v due b Hv E); split; [lia|auto]].
      rewrite set_same. intros E. inv E. split; [lia|]. intros r Hr Hm. rewrite Hoth in Hm by auto. discriminate.
    + intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr.
    + intros s _ _ Hne. now specialize (Hidle s).
  - (* Finish *)
    rename H into Hw, H0 into Hrun.
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
    + intros r Hr Hm. destruct (inv_where _ I r Hr Hm) as [H|[(v & due' & b' & Hv & Hr' & Hb)|H]]; auto.
      * destruct (Nat.eq_dec v w) as [->|Hne].
        -- rewrite Hrun in Hr'. inv Hr'. right. right. intros HG.
           destruct (inv_run _ I w due' b' Hw Hrun) as (? & Hd). destruct (Hd r Hb Hm HG) as [Ho|Ho]; [now left|right]. exists (now st). split.
           { cbn. apply in_or_app. right. apply in_map_iff. exists r. auto. }
           cbn. lia.
        -- right. left. exists v, due', b'. rewrite set_other; auto.
      * right. right. intros HG. destruct (H HG) as [Ho|(t & Ht & Hd)]; [now left|right]. exists t. split; [|auto]. cbn. apply in_or_app. auto.
    + intros v due' b' Hv. unfold set. destruct (Nat.eqb_spec v w); [discriminate|]. now apply I.
    + intros s Hs HG Hne. destruct (inv_ref _ I s Hs HG Hne) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hrest).
      exists a, x, c, C, tk, pre, post. split; [auto|]. split; [auto|]. split; [|exact Hrest].
      intros v Hv. pose proof (free_now st v I Hv). specialize (Hfree v Hv). unfold free_at at 1, set. cbn [running now late over].
      destruct (v =? w); [lia|exact Hfree].
  - (* Refuse *)
    now apply Inv_refuse with r.
  - (* Renew *)
    rename H into Hidle, H0 into Hov', H1 into Hfree.
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I; [lia|lia| | |].
    { intros w due b Hw Hrun. destruct (inv_run _ I w due b Hw Hrun) as (? & ?). split; [|auto].
      specialize (Hfree w Hw). unfold free_at in Hfree. rewrite Hrun in Hfree. lia. }
    { intros i r Hr. rewrite (Hidle i) in Hr. destruct Hr. }
    intros s _ _ Hne. now specialize (Hidle s).
  - (* Tick *)
    rename H into Hdue, H0 into Hcase. cbn [arrived] in Hc. pose proof (inv_late _ I) as Hlate.
    assert (Hlate' : late st <= late' <= g) by (destruct Hcase as [(-> & _)|(-> & ?)]; lia).
    assert (Hfree' : idle st \/ forall w, w < n -> now st + 1 + late st <= free_at st w + g /\
      free_at (State (S (now st)) late' (over st) (arrived st) (waiting st) (line st) (used st) (running st) (answered st)) w <= free_at st w + (late' - late st)).
    { destruct Hcase as [(-> & [Hidle|Hbusy])|(-> & Hl)]; [auto|right|right]; intros w Hw; unfold free_at; cbn [running now];
        [specialize (Hbusy w Hw)|]; destruct (running st w) as [(due, b)|] eqn:E; try congruence; try specialize (Hdue w due b Hw E); lia. }
    clear Hcase.
    assert (Hstill : forall s r, s < m -> G s = true -> In r (waiting st s) -> now st + 1 + P s + excess q <= arr r + D s + over st).
    { intros s r Hs HG Hr. destruct Hfree' as [Hidle|Hbusy]; [rewrite Hidle in Hr; destruct Hr|].
      apply (still_time st s r (now st + 1)); auto. intros w Hw. now apply Hbusy. }
    constructor; cbn [now late over arrived waiting line used running answered]; try apply I.
    + lia.
    + intros r Hr. pose proof (inv_past _ I r Hr). lia.
    + intros w due b Hw Hrun. specialize (Hdue w due b Hw Hrun). destruct (inv_run _ I w due b Hw Hrun) as (? & ?). split; [lia|auto].
    + intros i r Hr. destruct (inv_wait _ I i r Hr) as (Hm & Hh & Hp & _). split; [auto|]. split; [auto|]. split; [lia|].
      intros HG. assert (i < m) by (rewrite <- Hh; now apply home_in). specialize (Hstill i r ltac:(auto) HG Hr). lia.
    + intros s Hs HG Hne. destruct Hfree' as [Hidle|Hbusy]; [now specialize (Hidle s)|].
      destruct (inv_ref _ I s Hs HG Hne) as (a & x & c & C & tk & pre & post & Ha & Hcx & Hfree & Hline & HC & Hothers & Hpre & Htk & Htot & Hpos).
      exists a, x, c, C, tk, pre, post. cbn [now late over arrived waiting line used].
      split; [lia|]. split; [auto|]. split.
      { intros v Hv. specialize (Hfree v Hv). destruct (Hbusy v Hv). lia. }
      repeat (split; [assumption|]). split; [|split; [|assumption]].
      * intros i Hi Hn HGi. destruct (Htk i Hi Hn HGi) as (H1 & H2). split; [auto|]. etransitivity; [exact H2|]. apply came_of_later; lia.
      * etransitivity; [exact Htot|]. apply came_of_later; lia.
Qed.

Lemma Inv_reachable st : past = 0 -> reachable st -> conform G (skipn past (arrived st)) -> Inv st.
Proof.
  intros E. induction 1 as [|st st' Hr IH Hs]; intros Hc; [now apply Inv_initial|]. apply (Inv_step st); auto. apply IH. revert Hc.
  rewrite E. cbn [skipn]. inv Hs; auto. intros Hc. apply (conform_prefix _ [r]). cbv zeta in Hc. destruct (mandatory p r); auto.
Qed.

Lemma Inv_keeps st s r : Inv st -> G s = true -> In r (arrived st) -> at_home s r = true -> mandatory p r = true ->
  arr r + D s < now st -> old r \/ in_time (as_problem s) (view st) r.
Proof.
  intros I HG Hin Hh Hm Hd. pose proof (inv_over _ I) as Hov. unfold at_home in Hh. apply Nat.eqb_eq in Hh.
  destruct (inv_where _ I r Hin Hm) as [H|[(w & due & b & Hw & Hrun & Hb)|H]].
  - rewrite Hh in H. destruct (inv_wait _ I s r H) as (_ & _ & _ & Hk). specialize (Hk HG). lia.
  - destruct (inv_run _ I w due b Hw Hrun) as (? & Hd'). specialize (Hd' r Hb Hm). rewrite Hh in Hd'. destruct (Hd' HG) as [?|?]; [now left|lia].
  - rewrite Hh in H. auto.
Qed.
End Sharing.

(** Theorem T: in turns, if the test says yes of a service, its promise is kept, whatever services of which it says no, or
    whose streams do not keep to their declarations, do. *)
Theorem theorem_T q G : sensible q -> how q = Turns ->
  (forall s, s < length (services q) -> G s = true -> test_T q G s) -> forall s, G s = true -> served q s G.
Proof.
  intros Hs Hr Ht s HG st Hreach Hc r. intros Hin Hh Hm Hd.
  destruct (Inv_keeps q 0 G (fun _ => False) st s r (Inv_reachable q 0 G _ Hs Hr Ht st eq_refl Hreach Hc) HG Hin Hh Hm Hd); tauto.
Qed.

(** And none of its mandatory requests is given up. *)
Theorem turns_refuse_none q G : sensible q -> how q = Turns ->
  (forall s, s < length (services q) -> G s = true -> test_T q G s) ->
  forall st, reachable q st -> conform q G (arrived st) -> forall i r, G i = true -> In r (waiting st i) -> ~ hopeless q st i r.
Proof.
  intros Hs Hr Ht st Hreach Hc i r HG Hin.
  now apply (never_hopeless q 0 G (fun _ => False) Hs Hr Ht st i r (Inv_reachable q 0 G _ Hs Hr Ht st eq_refl Hreach Hc)).
Qed.

(** All services together, as the plan admits them. *)
Theorem theorem_T_all q : sensible q -> how q = Turns -> (forall s, s < length (services q) -> test_T q (fun _ => true) s) ->
  forall s, served q s (fun _ => true).
Proof. intros Hs Hr Ht s. apply (theorem_T q (fun _ => true)); auto. Qed.

(** One alone: its promise asks nothing of the arrivals of others, only how long their batches are and how many a turn. *)
Theorem theorem_T_alone q s : sensible q -> how q = Turns -> test_T q (Nat.eqb s) s -> served q s (Nat.eqb s).
Proof.
  intros Hs Hr Ht. apply (theorem_T q (Nat.eqb s)); auto; [|apply Nat.eqb_refl].
  intros i _ E. apply Nat.eqb_eq in E as <-. auto.
Qed.

(** What it promises: every (m, K) of density at most rho, of every stream of a service that is served. *)
Theorem served_keeps q G k s m K : sensible q -> served q (home q k) G -> nth_error (clients q) k = Some s ->
  (K - m) * den s <= K * num s ->
  forall st, reachable q st -> conform q G (arrived st) ->
  forall i, count (missed (as_problem q (home q k)) (view st) k) (seq (i + 1) K) <= m.
Proof.
  intros (Hs & _) Hserved Hk Hd st Hr Hc. apply (in_time_keeps _ _ _ s); auto.
  intros r Hin <- Hm Ht. apply (Hserved st Hr Hc r Hin); auto. unfold at_home. apply Nat.eqb_refl.
Qed.
