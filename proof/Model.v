(** The model: what is promised, and of what.  Read this file; the others are proofs and are checked by the machine.

    Times are natural numbers (nanoseconds).  An interval is half-open: [within a d] is [a, a + d).
    The scheduler is a machine whose steps are arrivals, batch starts, batch ends, refusals, and the passing of 1 ns.
    Where the daemon is free or the model need not know, the machine may do anything (any batch may end early, any
    optional request may fill a batch), so a theorem about the machine is one about every such scheduler. *)
Require Import List Arith Lia Bool.
Import ListNotations.

(** * The problem: what `weir certify` reads *)

Record worker := Worker { batch : nat; time : nat }.          (* up to [batch] requests in at most [time]: a full batch *)
Record stream := Stream { num : nat; den : nat;               (* density rho = num/den: the share to be served *)
                          curve : nat -> nat }.               (* alpha: the most requests in any interval of a length *)
Record problem := Problem { deadline : nat; guard : nat; eager : bool;
                            workers : list worker; streams : list stream }.

(** * Requests *)

(** The [idx]-th request (from 1) of stream [src] arrives at [arr].  A stream that is not in the problem declares
    nothing: it is background. *)
Record request := Request { src : nat; idx : nat; arr : nat }.

Definition count {A} (f : A -> bool) (l : list A) := length (filter f l).
Definition cdiv a b := (a + b - 1) / b.                       (* a / b rounded up *)

(** The balanced word: request i is mandatory iff floor(i rho) > floor((i - 1) rho). *)
Definition marked p q i := (i - 1) * p / q <? i * p / q.

Section Problem.
Variable p : problem.

Definition mandatory r :=
  match nth_error (streams p) (src r) with
  | Some s => marked (num s) (den s) (idx r)
  | None => false
  end.

Definition within a d r := (a <=? arr r) && (arr r <? a + d).
Definition of k r := src r =? k.

(** Streams keep to their declarations. *)
Definition conforms (l : list request) := forall k s a d, nth_error (streams p) k = Some s ->
  count (fun r => of k r && within a d r) l <= curve s d.

(** alpha_m: the most mandatory requests in any interval of a length, of the streams of a load, all or some. *)
Definition curve_of S d := list_sum (map (fun k => match nth_error (streams p) k with
  | Some s => cdiv (num s * curve s d) (den s)
  | None => 0
  end) S).
Definition everyone := seq 0 (length (streams p)).
Definition curve_m := curve_of everyone.

(** * The scheduler *)

Notation n := (length (workers p)).
Definition B w := batch (nth w (workers p) (Worker 0 0)).
Definition T w := time (nth w (workers p) (Worker 0 0)).
Definition Tmax := list_max (map time (workers p)).

Record state := State {
  now : nat;
  late : nat;                                   (* for how long dispatch has been overdue, see the ticks *)
  arrived : list request;                       (* all requests so far, in order of arrival *)
  waiting : list request;                       (* the mandatory ones that wait, in order of arrival *)
  running : nat -> option (nat * list request); (* of each worker: the end of its batch at the latest, the batch *)
  answered : list (request * nat);              (* the requests answered, each with the instant *)
  load : list nat;                              (* the streams that are counted; no other one is promised anything *)
  clean : bool }.                               (* no long batch has begun since all was worked off, see [ready] *)

Definition initial S := State 0 0 [] [] (fun _ => None) [] S true.
Definition set {A} (f : nat -> A) w x v := if v =? w then x else f v.

Definition free_at st w := match running st w with Some (due, _) => due | None => now st end.

(** The worker to go next: a free one, and none that is free is quicker. *)
Definition next_up st w := w < n /\ running st w = None /\
  forall v, v < n -> running st v = None -> T w <= T v.

(** How many requests can be begun within [x] by full batches, if worker [w] begins its first one at [g w] at the
    latest and each next one [T w] later. *)
Fixpoint sum (f : nat -> nat) k := match k with 0 => 0 | S k' => sum f k' + f k' end.
Definition starts g x w := if g w <=? x then (x - g w) / T w + 1 else 0.
Definition supply g x := sum (fun w => B w * starts g x w) n.

(** sigma(u): how many requests can be begun by u, if each worker begins a full batch at [T w], [2 T w], ... *)
Definition sigma u := sum (fun w => B w * (u / T w)) n.

(** All that can have come before then is begun by then: the busy period is over. *)
Definition over S x := 0 < x /\ curve_of S x <= sigma x.

(** What can come of a load, after [r0] that wait, is in time if worker [w] is free for it [g w] from now at the latest. *)
Definition bearable S g r0 := guard p + Tmax <= deadline p /\
  (forall v, v < n -> g v + Tmax + guard p <= T v + deadline p) /\
  forall d, (exists x, x <= d /\ over S x) \/
            (exists x, r0 + curve_of S (d + 1) <= supply g x /\ x + Tmax + guard p <= d + deadline p).

(** What waits is in time, if worker [w] is free for it [g w] from now at the latest. *)
Definition in_order now g rest := forall a r b, rest = a ++ r :: b ->
  exists x, S (length a) <= supply g x /\ now + x + Tmax + guard p <= arr r + deadline p.

(** What the arrival monitors count: of what has come all from a number on, and [earlier] ones of what came before.  From
    the beginning on that is all; behind something that went wrong it may be less, see Again.v. *)
Record counted := Counted { earlier : list request; counted_from : nat }.
Definition everything := Counted [] 0.
Definition seen m l := earlier m ++ skipn (counted_from m) l.

(** A lull of the streams of [S] until [e]: at every instant before, some interval that holds it has had as many of a
    stream's requests as its curve allows, so one more would exceed it. *)
Definition lull m st S e := now st <= e /\ forall k s x, In k S -> nth_error (streams p) k = Some s -> now st <= x < e ->
  exists a d, a <= x < a + d /\ curve s d <= count (fun r => of k r && within a d r) (seen m (arrived st)).

(** The shield: worker [w] may take [l] for a batch, however large, that takes [taken] and leaves [rest] waiting, if the
    batch, what waits and what can come is in time.  That is looked at now; or, if nothing is left waiting, when a lull of
    the streams [S] ends, and from then on no others count. *)
Definition after st w l e v := Nat.max ((if v =? w then now st + l else free_at st v) - e) (T v).
Definition shield m st w l S taken rest := T w <= l /\
  (forall r, In r taken -> now st + l <= arr r + deadline p) /\
  exists e, (e = now st /\ S = load st \/ rest = [] /\ incl S (load st) /\ lull m st S e) /\
    in_order e (after st w l e) rest /\
    bearable S (after st w l e) (length rest).

(** Newcomers, and the end of counting who has left: another load may come if it is admitted, and all has been worked off,
    or the load only grows and it was so after the last long batch, or else if what still runs is as good as a long batch
    that the shield of the new load allows. *)
Definition still st v := Nat.max (free_at st v - now st) (T v).
Definition worked_off st := waiting st = [] /\ forall v, v < n -> free_at st v <= now st + T v.
Definition ready st S c := bearable S T 0 /\
  ( worked_off st /\ c = true
 \/ clean st = true /\ incl (load st) S /\ c = true
 \/ in_order (now st) (still st) (waiting st) /\ bearable S (still st) (length (waiting st)) /\ c = false ).

(** What the scheduler may refuse although it is mandatory: a request for which every worker comes too late, and any
    if more than a batch of them will be late unless they are in the very next batch (spread-drop). *)
Definition doomed st w r := forallb (fun v =>
  arr r + deadline p <? (if v =? w then now st + T w else free_at st v) + T v) (seq 0 n).
Definition hopeless st r :=
  (forall w, w < n -> arr r + deadline p < now st + T w) \/
  exists w, next_up st w /\ B w < count (doomed st w) (waiting st).

(** Nothing is due although a worker is free (full-or-latest only): the worker to go next would not be full, and the
    earliest deadline leaves it more than the guard and its time. *)
Definition can_rest st := eager p = false /\ exists w, next_up st w /\ length (waiting st) < B w /\
  forall r, In r (waiting st) -> now st + guard p + T w < arr r + deadline p.

Inductive step_by m : state -> state -> Prop :=
| Arrive st r :
    arr r = now st ->
    idx r = S (count (of (src r)) (arrived st)) ->
    (mandatory r = true -> In (src r) (load st)) ->
    step_by m st (State (now st) (late st) (arrived st ++ [r])
               (if mandatory r then waiting st ++ [r] else waiting st) (running st) (answered st) (load st) (clean st))
| Start st w most l others S c :
    (* up to [most] requests, at least a full batch: mandatory ones first, in order; then any others *)
    next_up st w -> B w <= most ->
    length (firstn most (waiting st)) + length others <= most ->
    (forall r, In r others -> In r (arrived st) /\ mandatory r = false) ->
    ( l = T w /\ S = load st /\ c = clean st                              (* in the time of a full batch, *)
    \/ shield m st w l S (firstn most (waiting st)) (skipn most (waiting st)) /\ c = false  (* or what the shield allows, *)
    \/ load st = [] /\ waiting st = [] /\ S = [] /\ c = false ) ->         (* or any time, where nothing is promised *)
    step_by m st (State (now st) (late st) (arrived st) (skipn most (waiting st))
               (set (running st) w (Some (now st + l, firstn most (waiting st) ++ others))) (answered st) S c)
| Finish st w due b :
    w < n -> running st w = Some (due, b) ->
    step_by m st (State (now st) (late st) (arrived st) (waiting st)
               (set (running st) w None) (answered st ++ map (fun r => (r, now st)) b) (load st) (clean st))
| Change st S c :
    ready st S c ->
    step_by m st (State (now st) (late st) (arrived st) (waiting st) (running st) (answered st) S c)
| Refuse st a r b :
    waiting st = a ++ r :: b -> hopeless st r ->
    step_by m st (State (now st) (late st) (arrived st) (a ++ b) (running st) (answered st) (load st) (clean st))
| Tick st late' :
    (* 1 ns passes.  No batch runs past its end, and a free worker is not left idle: *)
    (forall w due b, w < n -> running st w = Some (due, b) -> now st < due) ->
    ( late' = 0 /\ (waiting st = [] \/ can_rest st)                      (* nothing is due, *)
    \/ late' = late st /\ (forall w, w < n -> running st w <> None)      (* or all workers are busy, *)
    \/ late' = S (late st) /\ late st < guard p ) ->                     (* or dispatch is late, by the guard at most *)
    step_by m st (State (S (now st)) late' (arrived st) (waiting st) (running st) (answered st) (load st) (clean st)).

Definition step := step_by everything.

(** From the beginning on, under some load first. *)
Inductive reachable_from S : state -> Prop :=
| Reach_init : reachable_from S (initial S)
| Reach_step st st' : reachable_from S st -> step st st' -> reachable_from S st'.
Definition reachable := reachable_from everyone.

(** * The promises *)

Definition in_time st r := exists t, In (r, t) (answered st) /\ t <= arr r + deadline p.

(** All mandatory requests are answered in time, in every run in which the streams keep to their declarations. *)
Definition serves_from S := forall st, reachable_from S st -> conforms (arrived st) ->
  forall r, In r (arrived st) -> mandatory r = true -> arr r + deadline p < now st -> in_time st r.
Definition serves_mandatory := serves_from everyone.

(** A miss: the deadline has passed and there was no answer by then, whatever the reason. *)
Definition missed st k i := existsb (fun r => of k r && (idx r =? i) && (arr r + deadline p <? now st) &&
  negb (existsb (fun x => of k (fst x) && (idx (fst x) =? i) && (snd x <=? arr r + deadline p)) (answered st)))
  (arrived st).

(** (m, K): at most m misses among any K consecutive requests of stream k. *)
Definition keeps_from S k m K := forall st, reachable_from S st -> conforms (arrived st) ->
  forall i, count (missed st k) (seq (i + 1) K) <= m.
Definition keeps := keeps_from everyone.

(** The problem makes sense: 0 < den, rho <= 1, and a longer interval holds no fewer requests. *)
Definition sound_streams := forall s, In s (streams p) ->
  num s <= den s /\ 0 < den s /\ (forall a b, a <= b -> curve s a <= curve s b).
End Problem.

Arguments Arrive p {m}.
Arguments Start p {m}.
Arguments Finish p {m}.
Arguments Change p {m}.
Arguments Refuse p {m}.
Arguments Tick p {m}.
