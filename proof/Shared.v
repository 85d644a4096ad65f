(** A checker of certificates of services that share workers: if it says yes, the promises hold.  It computes with binary
    numbers, and looks at finitely many distances. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Sharing Happened Relief Earliest Least Check.
Open Scope N_scope.

(** * Problems *)

Record nservice := NService { nsize : N; nspan : N; nlimit : N; nturn : N }.
Record nsharing := NSharing { nrule : rule; ncrew : N; nlongest : N; nlateness : N; nexcess : N; nservices : list nservice;
                              nclients : list (nat * nstream) }.   (* each with the number of its service *)

Definition to_service s := Service (N.to_nat (nsize s)) (N.to_nat (nspan s)) (N.to_nat (nlimit s)) (N.to_nat (nturn s)).
Definition to_sharing pr := Sharing (nrule pr) (N.to_nat (ncrew pr)) (N.to_nat (nlongest pr)) (N.to_nat (nlateness pr))
  (N.to_nat (nexcess pr)) (map to_service (nservices pr)) (map (fun c => to_stream (snd c)) (nclients pr))
  (fun k => nth k (map fst (nclients pr)) 0%nat) (seq 0 (length (nclients pr))).

(** What is promised, dispatch as late and batches as long as the problem says. *)
Definition shared_promise pr := let q := to_sharing pr in
  forall st, reachable q st -> conform q (fun _ => true) (arrived st) ->
  forall k c m K, nth_error (nclients pr) k = Some c -> In (m, K) (constraints (snd c)) ->
  forall i, (count (missed (as_problem q (home q k)) (view st) k) (seq (i + 1) (N.to_nat K)) <= N.to_nat m)%nat.

Section Checker.
Variable pr : nsharing.
Notation m := (length (nservices pr)).
Notation n := (ncrew pr).
Notation q := (to_sharing pr).
Definition svN i := nth i (nservices pr) (NService 0 0 0 0).
Notation B i := (nsize (svN i)).
Notation P i := (nspan (svN i)).
Notation D i := (nlimit (svN i) + nlateness pr).

Definition clients_of i := map snd (filter (fun c => Nat.eqb (fst c) i) (nclients pr)).
Definition alphaN i d := alpha_m (clients_of i) d.

Definition shared_formed :=
  (0 <? n) && forallb (fun s => (0 <? nsize s) && (0 <? nturn s) && (nspan s <=? nlongest pr)) (nservices pr) &&
  forallb (fun c => Nat.ltb (fst c) m &&
    let s := snd c in (fst (rho s) <=? snd (rho s)) && (0 <? snd (rho s)) &&
    negb (match bounds s with [] => true | _ => false end) && forallb (fun b => 0 <? every b) (bounds s) &&
    forallb (fun c => (snd c - fst c) * snd (rho s) <=? snd c * fst (rho s)) (constraints s)) (nclients pr).

Fixpoint sumn (f : nat -> N) k := match k with O => 0 | S k => sumn f k + f k end.
Definition table (f : nat -> N) := let l := map f (seq 0 m) in fun j => nth j l 0.

(** ** A line *)

(** Batches of [c], one of [k] less, leave time before [room]: the average of all workers, or as many of the longest batches as
    the average number, at any price [l] of a batch at least [l * t] and what longer ones take beyond. *)
Definition lessN (c : nat -> N) k j := c j - if Nat.eqb j k then 1 else 0.
Definition workN c := sumn (fun j => P j * c j) m.
Definition shareN (c : nat -> N) (fits : N -> bool) :=
  fits (workN c / n) || let t := sumn c m / n in
  existsb (fun l => fits (l * t + sumn (fun j => (P j - l) * c j) m)) (0 :: map nspan (nservices pr)).

Definition line_ok (c : nat -> N) k y v :=
  let base := nlateness pr + nlongest pr + nexcess pr in
  shareN (lessN c k) (fun x => base + x + D k <=? y + v).
Definition start_ok left (c : nat -> N) k y v :=
  nlateness pr + nexcess pr + (left + (n - 1) * nlongest pr + workN (lessN c k)) / n + D k <=? y + v.
Definition line_short_ok i (c : nat -> N) k y v := line_ok c k y v || start_ok (P i) c k y v.

(** ** Points *)

(** Between two points nothing need be looked at: the counts just before the later one leave time even from the earlier. *)
Fixpoint between (ok : N -> N -> bool) a l := match l with
  | [] => true
  | b :: l => (a <? b) && ok (b - 1) a && between ok b l
  end.

(** Beyond [x] the workers have done even a straight line above all counts, in parts of [fine]. *)
Definition fine := 2 ^ 40.
Definition slope p b s := let w := slowest (bounds s) in
  cdivN (fine * p * fst (rho s) * total w) (snd (rho s) * every w * b).
Definition slopes p b i := sumN (slope p b) (clients_of i).
Definition constant p b i :=
  sumN (fun s => slope p b s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) (clients_of i) +
  cdivN (fine * p * (N.of_nat (length (clients_of i)) + b)) b.

(** Before [base] and the average of all workers there is [x + v], with [f] and [h] of such a line of each service. *)
Definition straight (f h : nat -> N) base x v :=
  let a := sumn f m in (a <=? n * fine) && (n * fine * base + a * x + sumn h m <=? n * fine * (x + v)).

Variable X : nat -> N.
Definition base_E := nlateness pr + nlongest pr + nexcess pr + fold_right (fun s d => N.max (nlimit s + nlateness pr) d) 0 (nservices pr).
Definition straight_E x := straight (fun j => slopes (P j) (B j) j) (fun j => constant (P j) (B j) j) base_E x 0.

(** ** Theorem E *)

Definition comeN y j := if D j <=? y then alphaN j (y - D j + 1) else 0.
Definition delayN i j := N.min (X j) (X i + D j - D i).
Definition short_requestsN i y j :=
  if Nat.eqb j i then N.min (alphaN i (y - D i + 1)) (alphaN i (y - D i + X i + 1) - 1)
  else if D j <=? y + delayN i j then alphaN j (y + delayN i j - D j + 1) else 0.

(** What stands for lines of a service (Relief.v), and the points to look at for it. *)
Inductive relief := Nothing | Singly (l : list N) | Arrival (z : N) (l : list N) | After (z : N) (l : list N).
Definition thereN z j := if D j <=? z + X j then alphaN j (z + X j - D j + 1) else 0.
Definition fullN z j := cdivN (thereN z j) (B j).
Definition mixedN z j := let a := N.min (comeN z j) (thereN z j - 1) in a + cdivN (thereN z j - a) (B j).
Definition from_start_ok (c : N -> nat -> N) k u y := start_ok 0 (table (c u)) k y (X k).
Definition enough_ok c k z l := line_ok (table (c z)) k z (X k) ||
  (nlongest pr <=? z) && between (from_start_ok c k) (z - nlongest pr) l && (z <? last l (z - nlongest pr)).
Definition singly_ok k u y := (comeN u k =? 0) || line_ok (table (comeN u)) k y (X k).
Definition straight_singly x := straight (fun j => slopes (P j) 1 j) (fun j => constant (P j) 1 j) base_E x 0.
Definition relief_ok k r := match r with
  | Nothing => true
  | Singly l => between (singly_ok k) 0 l && straight_singly (last l 0)
  | Arrival z l => (z <=? D k) && enough_ok mixedN k z l
  | After z l => enough_ok fullN k z l
  end.

(** The reliefs of the services; whether one stands for the lines at [y]. *)
Variable R : nat -> relief.
Definition relievedN k y := match R k with Nothing => false | Singly _ | Arrival _ _ => true | After z _ => z <=? y end.

Definition clear_ok u y := let c := table (fun j => cdivN (comeN u j) (B j)) in
  forallb (fun k => (c k =? 0) || relievedN k y || line_ok c k y (X k)) (seq 0 m).
Definition short_ok i u y := (short_requestsN i u i =? 0) ||
  let c := table (fun j => cdivN (short_requestsN i u j) (B j)) in
  forallb (fun k => (c k =? 0) || relievedN k y || line_short_ok i c k y (X k)) (seq 0 m).

Definition check_E (l : list N) (ls : list (list N)) :=
  shared_formed && forallb (fun i => X i + P i <=? D i) (seq 0 m) && forallb (fun k => relief_ok k (R k)) (seq 0 m) &&
  between clear_ok 0 l && straight_E (last l 0) &&
  forallb (fun i => (B i <=? 1) || let l := nth i ls [] in
    (between (short_ok i) (D i) l && straight_E (last l (D i)))) (seq 0 m).

(** ** Theorem T *)

Definition ahead s i := D i - P i + (D s - P s).
Definition batches_TN s d i :=
  let J := cdivN (alphaN s (d + 1)) (B s) in
  if Nat.eqb i s then J - 1 else N.min (cdivN J (nturn (svN s)) * nturn (svN i)) (alphaN i (ahead s i + d + 1)).
Definition turn_ok s u y := (alphaN s (u + 1) =? 0) ||
  shareN (table (batches_TN s u)) (fun x => nlateness pr + nlongest pr + nexcess pr + x + P s <=? y + D s).

(** Of each other service its turns, or what can have come: whichever grows less. *)
Definition by_turns s i := slopes (P i * nturn (svN i)) (B s * nturn (svN s)) s.
Definition by_arrivals i := slopes (P i) 1 i.
Definition slope_T s i := if Nat.eqb i s then slopes (P s) (B s) s else N.min (by_turns s i) (by_arrivals i).
Definition constant_T s i :=
  if Nat.eqb i s then constant (P s) (B s) s
  else if by_turns s i <=? by_arrivals i then constant (P i * nturn (svN i)) (B s * nturn (svN s)) s
  else by_arrivals i * ahead s i + constant (P i) 1 i.
Definition straight_T s x :=
  straight (slope_T s) (constant_T s) (nlateness pr + nlongest pr + nexcess pr + P s) x (D s).

Definition check_T (ls : list (list N)) :=
  shared_formed && forallb (fun s => let l := nth s ls [] in between (turn_ok s) 0 l && straight_T s (last l 0)) (seq 0 m).

(** * It is sound *)

Lemma sumn_nat f k : N.to_nat (sumn f k) = sum (fun j => N.to_nat (f j)) k.
Proof. induction k; cbn [sumn sum]; [reflexivity|]. now rewrite N2Nat.inj_add, IHk. Qed.

Lemma table_at f j : (j < m)%nat -> table f j = f j.
Proof.
  intros Hj. unfold table. rewrite (nth_indep _ 0 (f 0%nat)) by (now rewrite map_length, seq_length).
  rewrite map_nth, seq_nth by auto. reflexivity.
Qed.

Lemma sv_nat i : (i < m)%nat -> sv q i = to_service (svN i).
Proof.
  intros Hi. unfold sv, svN. cbn [services to_sharing]. rewrite (nth_indep _ _ (to_service (NService 0 0 0 0))) by (now rewrite map_length).
  apply map_nth.
Qed.

Lemma length_services : length (services q) = m.
Proof. apply map_length. Qed.

Lemma alpha_nat i d : Sharing.alpha q i d = N.to_nat (alphaN i (N.of_nat d)).
Proof.
  unfold Sharing.alpha, curve_of, alphaN, clients_of, alpha_m. rewrite sumN_to_nat. cbn [to_sharing clients load home as_problem streams].
  assert (H : forall a l, nclients pr = a ++ l ->
    list_sum (map (fun k => match nth_error (map (fun c => to_stream (snd c)) (nclients pr)) k with
       | Some s => cdiv (num s * curve s d) (den s) | None => 0 end)
      (filter (fun k => Nat.eqb (nth k (map fst (nclients pr)) 0%nat) i) (seq (length a) (length l))))%nat =
    list_sum (map (fun s => N.to_nat (cdivN (fst (rho s) * Check.alpha (bounds s) (N.of_nat d)) (snd (rho s))))
      (map snd (filter (fun c => Nat.eqb (fst c) i) l)))).
  { intros a l. revert a. induction l as [|c l IH]; intros a E; [reflexivity|]. cbn [length seq filter].
    specialize (IH (a ++ [c]) ltac:(rewrite E, <- app_assoc; reflexivity)). rewrite app_length in IH. cbn [length] in IH. rewrite Nat.add_1_r in IH.
    assert (Ec : nth_error (nclients pr) (length a) = Some c) by (rewrite E, nth_error_app2, Nat.sub_diag by auto; reflexivity).
    assert (Ef : nth (length a) (map fst (nclients pr)) 0%nat = fst c) by (apply nth_error_nth; now rewrite nth_error_map, Ec).
    rewrite Ef. destruct (Nat.eqb (fst c) i); [|exact IH]. cbn [map list_sum fold_right]. unfold list_sum in IH. rewrite IH. f_equal.
    rewrite nth_error_map, Ec. cbn [option_map]. rewrite cdiv_to_nat, N2Nat.inj_mul. reflexivity. }
  apply (H [] (nclients pr) eq_refl).
Qed.

Hypothesis Hformed : shared_formed = true.

Lemma formed_sensible : sensible q /\ 0 < n /\ (forall i, (i < m)%nat -> 0 < B i /\ 0 < nturn (svN i) /\ P i <= nlongest pr) /\
  (forall i s, In s (clients_of i) -> 0 < snd (rho s) /\ bounds s <> [] /\ forall b, In b (bounds s) -> 0 < every b) /\
  forall c, In c (nclients pr) -> forall mm K, In (mm, K) (constraints (snd c)) -> (K - mm) * snd (rho (snd c)) <= K * fst (rho (snd c)).
Proof.
  clear X R. pose proof Hformed as H. unfold shared_formed in H. rewrite !andb_true_iff, !forallb_forall, N.ltb_lt in H.
  destruct H as ((Hn & Hsv) & Hcl).
  assert (Hs : forall i, (i < m)%nat -> 0 < B i /\ 0 < nturn (svN i) /\ P i <= nlongest pr).
  { intros i Hi. specialize (Hsv (svN i) (nth_In _ _ Hi)). rewrite !andb_true_iff, !N.ltb_lt, N.leb_le in Hsv. tauto. }
  assert (Hc : forall c, In c (nclients pr) -> (fst c < m)%nat /\ fst (rho (snd c)) <= snd (rho (snd c)) /\ 0 < snd (rho (snd c)) /\
    bounds (snd c) <> [] /\ (forall b, In b (bounds (snd c)) -> 0 < every b) /\
    forall mm K, In (mm, K) (constraints (snd c)) -> (K - mm) * snd (rho (snd c)) <= K * fst (rho (snd c))).
  { intros c Hin. specialize (Hcl c Hin). cbv zeta in Hcl. rewrite !andb_true_iff, !forallb_forall, Nat.ltb_lt, N.leb_le, N.ltb_lt in Hcl.
    destruct Hcl as (H1 & (((H2 & H3) & H4) & H5) & H6). repeat split; auto.
    - now destruct (bounds (snd c)).
    - intros b Hb. apply N.ltb_lt. auto.
    - intros mm K Hk. specialize (H6 _ Hk). now apply N.leb_le in H6. }
  split; [|split; [auto|split; [auto|split]]].
  - split; [|split; [|split]].
    + intros s Hin. cbn in Hin. apply in_map_iff in Hin as (c & <- & Hin). destruct (Hc c Hin) as (_ & H1 & H2 & _). cbn.
      split; [lia|]. split; [lia|]. intros a b Hab. pose proof (alpha_mono (bounds (snd c)) (N.of_nat a) (N.of_nat b)). lia.
    + cbn. lia.
    + intros k Hk. cbn in Hk. rewrite map_length in Hk. rewrite length_services. cbn [home to_sharing].
      rewrite <- (map_length fst) in Hk. pose proof (nth_In (map fst (nclients pr)) 0%nat Hk) as Hin. apply in_map_iff in Hin as (c & <- & Hin).
      now apply (Hc c).
    + intros i Hi. rewrite length_services in Hi. rewrite sv_nat by auto. destruct (Hs i Hi) as (? & ? & ?). cbn. lia.
  - intros i s Hin. apply in_map_iff in Hin as (c & <- & Hin). apply filter_In in Hin as (Hin & _). destruct (Hc c Hin) as (_ & _ & ? & ? & ? & _). auto.
  - intros c Hin. destruct (Hc c Hin) as (_ & _ & _ & _ & _ & ?). auto.
Qed.

Lemma work_nat c c' : (forall j, (j < m)%nat -> c' j = N.to_nat (c j)) -> work q c' = N.to_nat (workN c).
Proof.
  intros H. unfold work, workN. rewrite sumn_nat, length_services. apply sum_ext. intros j Hj. rewrite sv_nat, H by auto. cbn. lia.
Qed.

Lemma shareN_sound c fits : shareN c fits = true -> exists x, fits x = true /\ share_within q (fun j => N.to_nat (c j)) (N.to_nat x).
Proof.
  destruct formed_sensible as (_ & Hn & _). unfold shareN. rewrite orb_true_iff. intros [H|H].
  - exists (workN c / n). split; [auto|]. left. rewrite (work_nat c) by reflexivity. cbn [to_sharing crew]. rewrite N2Nat.inj_div. lia.
  - apply existsb_exists in H as (l & _ & H). eexists. split; [exact H|]. right. intros d Hd Hsum. rewrite length_services in *.
    cbn [to_sharing crew] in Hsum. set (t := sumn c m / n) in *.
    assert (Ht : N.to_nat t = (sum (fun j => N.to_nat (c j)) m / N.to_nat n)%nat) by (unfold t; rewrite N2Nat.inj_div, sumn_nat; reflexivity).
    rewrite <- Ht in Hsum. rewrite N2Nat.inj_add, N2Nat.inj_mul, sumn_nat. unfold work. rewrite length_services.
    apply Nat.le_trans with (sum (fun j => N.to_nat l * d j + N.to_nat ((P j - l) * c j)) m)%nat.
    + apply sum_mono. intros j Hj. specialize (Hd j Hj). rewrite sv_nat by auto. cbn [to_service span].
      rewrite N2Nat.inj_mul, N2Nat.inj_sub. set (a := N.to_nat (P j)). set (b := N.to_nat l). clearbody a b.
      destruct (Nat.le_gt_cases a b); [nia|]. replace a with (b + (a - b))%nat at 1 by lia. nia.
    + rewrite sum_add, sum_scale. nia.
Qed.

Lemma line_ok_sound c c0 k y v y' : (k < m)%nat -> (forall j, (j < m)%nat -> (c0 j <= N.to_nat (c j))%nat) -> (N.to_nat y <= y')%nat ->
  line_ok c k y v = true -> exists x, share_within q (Happened.less c0 k) x /\
    (lateness q + longest q + excess q + x + (limit (sv q k) + lateness q) <= y' + N.to_nat v)%nat.
Proof.
  intros Hk Hc Hy H. destruct (shareN_sound _ _ H) as (x & Hx & Hs). apply N.leb_le in Hx. exists (N.to_nat x). split.
  - apply (share_within_mono q (proj1 formed_sensible) _ (fun j => N.to_nat (lessN c k j))); [|auto].
    intros j Hj. rewrite length_services in Hj. specialize (Hc j Hj). unfold Happened.less, lessN. destruct (Nat.eqb j k); lia.
  - rewrite sv_nat by auto. cbn [to_sharing lateness longest excess to_service limit]. lia.
Qed.

Lemma start_ok_sound a c c0 k y v y' : (k < m)%nat -> (forall j, (j < m)%nat -> (c0 j <= N.to_nat (c j))%nat) ->
  (N.to_nat y <= y')%nat -> start_ok a c k y v = true ->
  (lateness q + excess q + (N.to_nat a + (crew q - 1) * longest q + work q (Happened.less c0 k)) / crew q +
    (limit (sv q k) + lateness q) <= y' + N.to_nat v)%nat.
Proof.
  intros Hk Hc Hy H. apply N.leb_le in H. destruct formed_sensible as (_ & Hn & _).
  assert (Hw : (work q (Happened.less c0 k) <= N.to_nat (workN (lessN c k)))%nat).
  { rewrite <- (work_nat (lessN c k) (fun j => N.to_nat (lessN c k j))) by reflexivity. apply work_mono. intros j Hj.
    rewrite length_services in Hj. specialize (Hc j Hj). unfold Happened.less, lessN. destruct (Nat.eqb j k); lia. }
  rewrite !sv_nat by auto. cbn [to_sharing crew lateness longest excess to_service limit span].
  pose proof (Nat.div_le_mono (N.to_nat a + (N.to_nat n - 1) * N.to_nat (nlongest pr) + work q (Happened.less c0 k))
    (N.to_nat (a + (n - 1) * nlongest pr + workN (lessN c k))) (N.to_nat n) ltac:(lia)
    ltac:(rewrite !N2Nat.inj_add, N2Nat.inj_mul, N2Nat.inj_sub; lia)) as Hd.
  rewrite <- N2Nat.inj_div in Hd. cbn [to_sharing crew] in Hd. lia.
Qed.

Lemma line_short_ok_sound i c c0 k y v y' : (i < m)%nat -> (k < m)%nat -> (forall j, (j < m)%nat -> (c0 j <= N.to_nat (c j))%nat) ->
  (N.to_nat y <= y')%nat -> line_short_ok i c k y v = true ->
  (exists x, share_within q (Happened.less c0 k) x /\
    (lateness q + longest q + excess q + x + (limit (sv q k) + lateness q) <= y' + N.to_nat v)%nat) \/
  (lateness q + excess q + (span (sv q i) + (crew q - 1) * longest q + work q (Happened.less c0 k)) / crew q +
    (limit (sv q k) + lateness q) <= y' + N.to_nat v)%nat.
Proof.
  intros Hi Hk Hc Hy H. unfold line_short_ok in H. apply orb_true_iff in H as [H|H]; [left; now apply (line_ok_sound c c0 k y v)|right].
  rewrite (sv_nat i) by auto. now apply (start_ok_sound (P i) c c0 k y v).
Qed.

(** ** Points *)

Lemma between_sound ok : forall l a, between ok a l = true -> forall y, a <= y -> y < last l a ->
  exists u v, v <= y <= u /\ ok u v = true.
Proof.
  induction l as [|b l IH]; intros a H y Ha Hy; [cbn in Hy; lia|]. cbn [between] in H. rewrite !andb_true_iff, N.ltb_lt in H.
  destruct H as ((Hab & Hok) & Hl). destruct (N.lt_ge_cases y b) as [Hlt|Hge]; [exists (b - 1), a; split; [lia|auto]|].
  apply (IH b Hl y Hge). destruct l as [|c l]; [cbn in Hy; lia|]. replace (last (c :: l) b) with (last (c :: l) a); [auto|].
  clear. revert c. induction l as [|d l IH]; intros c; [reflexivity|]. cbn [last] in *. apply IH.
Qed.

(** A straight line above what can come. *)
Lemma slope_above p b s y : 0 < b -> 0 < snd (rho s) -> bounds s <> [] -> (forall w, In w (bounds s) -> 0 < every w) ->
  fine * p * cdivN (fst (rho s) * Check.alpha (bounds s) (y + 1)) (snd (rho s)) <=
  b * (slope p b s * (y + (shift (slowest (bounds s)) + every (slowest (bounds s))))) + fine * p.
Proof.
  intros Hb Hden Hne Hev. set (w := slowest (bounds s)). assert (Hw : In w (bounds s)) by (now apply slowest_in).
  pose proof (alpha_le (bounds s) w (y + 1) Hw) as Ha. specialize (Hev w Hw).
  assert (Hbound : every w * bound_at w (y + 1) <= total w * (y + (shift w + every w))).
  { unfold bound_at. destruct (N.eqb_spec (y + 1) 0); [lia|]. cbv zeta. replace (y + 1 - 1) with y by lia.
    pose proof (reached_total w ((y + shift w) mod every w)) as Hr. pose proof (N.mul_div_le (y + shift w) (every w) ltac:(lia)). nia. }
  set (a := Check.alpha (bounds s) (y + 1)) in *. set (t := y + (shift w + every w)) in *.
  set (num := fst (rho s)) in *. set (den := snd (rho s)) in *. set (F := fine * p).
  assert (Hcd : den * cdivN (num * a) den <= num * a + den).
  { unfold cdivN. pose proof (N.mul_div_le (num * a + den - 1) den ltac:(lia)). lia. }
  assert (Hsl : F * num * total w <= den * every w * b * slope p b s).
  { unfold slope. fold w num den. replace (fine * p * num * total w) with (F * num * total w) by (unfold F; lia).
    unfold cdivN. set (z := den * every w * b). assert (0 < z) by (unfold z; nia).
    pose proof (N.mul_succ_div_gt (F * num * total w + z - 1) z ltac:(lia)). nia. }
  assert (Hpos : 0 < den * every w) by nia.
  apply (N.mul_le_mono_pos_l _ _ (den * every w) Hpos).
  set (C := cdivN (num * a) den) in *. set (A := slope p b s) in *. clearbody C A F. clear Hw.
  assert (H1 : den * every w * (F * C) <= F * (num * (total w * t) + den * every w)).
  { transitivity (F * every w * (num * a + den)).
    - replace (den * every w * (F * C)) with (F * every w * (den * C)) by lia. now apply N.mul_le_mono_l.
    - assert (E1 : every w * a <= total w * t) by (transitivity (every w * bound_at w (y + 1)); [now apply N.mul_le_mono_l|auto]).
      pose proof (N.mul_le_mono_l _ _ (F * num) E1). lia. }
  assert (H2 : F * (num * (total w * t)) <= den * every w * (b * (A * t))).
  { pose proof (N.mul_le_mono_r _ _ t Hsl). lia. }
  lia.
Qed.

Lemma streams_above p b y l : 0 < b -> (forall s, In s l -> 0 < snd (rho s) /\ bounds s <> [] /\ forall w, In w (bounds s) -> 0 < every w) ->
  fine * p * alpha_m l (y + 1) <= b * (sumN (slope p b) l * y +
    sumN (fun s => slope p b s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) l) + fine * p * N.of_nat (length l).
Proof.
  intros Hb H. induction l as [|s l IH]; [unfold alpha_m; cbn; lia|].
  specialize (IH ltac:(intros; apply H; simpl; auto)). destruct (H s (or_introl eq_refl)) as (H1 & H2 & H3).
  pose proof (slope_above p b s y Hb H1 H2 H3) as Hs. unfold alpha_m, sumN in *. cbn [fold_right length].
  set (x1 := cdivN _ _) in *. set (x2 := fold_right _ 0 l) in *. set (x3 := fold_right _ 0 l) in *. set (x4 := fold_right _ 0 l) in *.
  set (a := slope p b s) in *. set (k := shift (slowest (bounds s)) + every (slowest (bounds s))) in *. set (f := fine * p) in *.
  clearbody x1 x2 x3 x4 a k f. lia.
Qed.

Lemma batches_above p b i y c : 0 < b -> c * b <= alphaN i (y + 1) + b -> fine * p * c <= slopes p b i * y + constant p b i.
Proof.
  intros Hb Hc. destruct formed_sensible as (_ & _ & _ & Hcl & _).
  pose proof (streams_above p b y (clients_of i) Hb (Hcl i)) as H. fold (alphaN i (y + 1)) in H. fold (slopes p b i) in H.
  unfold constant. set (z := sumN (fun s => slope p b s * _) (clients_of i)) in *. set (f := fine * p) in *.
  set (l := N.of_nat (length (clients_of i))) in *.
  assert (Hd : f * (l + b) <= b * cdivN (f * (l + b)) b).
  { unfold cdivN. pose proof (N.mul_succ_div_gt (f * (l + b) + b - 1) b ltac:(lia)). lia. }
  apply (N.mul_le_mono_pos_l _ _ b Hb). pose proof (N.mul_le_mono_l _ _ f Hc).
  set (u := cdivN (f * (l + b)) b) in *. set (w := alphaN i (y + 1)) in *. clearbody f l z u w. lia.
Qed.

Lemma sumn_mono f g k : (forall j, (j < k)%nat -> f j <= g j) -> sumn f k <= sumn g k.
Proof. induction k; cbn [sumn]; intros H; [lia|]. specialize (IHk ltac:(intros; apply H; lia)). specialize (H k ltac:(lia)). lia. Qed.

Lemma sumn_scale c f k : sumn (fun j => c * f j) k = c * sumn f k.
Proof. induction k; cbn [sumn]; lia. Qed.

Lemma sumn_line f g y k : sumn (fun j => f j * y + g j) k = sumn f k * y + sumn g k.
Proof. induction k; cbn [sumn]; lia. Qed.

Lemma largest_due l s : In s l -> nlimit s + nlateness pr <= fold_right (fun s d => N.max (nlimit s + nlateness pr) d) 0 l.
Proof. induction l as [|s' l IH]; [intros []|]. cbn [fold_right]. intros [->|H]; [lia|]. specialize (IH H). lia. Qed.

Lemma straight_sound f h base x y v c : straight f h base x v = true -> x <= y ->
  (forall j, (j < m)%nat -> fine * P j * c j <= f j * y + h j) -> base + workN c / n <= y + v.
Proof.
  destruct formed_sensible as (_ & Hn & _). unfold straight. cbv zeta. rewrite andb_true_iff, !N.leb_le. intros (Ha & Hx) Hxy Hc.
  set (a := sumn f m) in *. set (z := sumn h m) in *.
  assert (Hw : fine * workN c <= a * y + z).
  { unfold workN, a, z. rewrite <- sumn_scale, <- sumn_line. apply sumn_mono. intros j Hj. rewrite N.mul_assoc. auto. }
  assert (Hf : 0 < fine) by (unfold fine; lia).
  assert (H1 : fine * (n * base + workN c) <= fine * (n * (y + v))).
  { pose proof (N.mul_le_mono_r _ _ (y - x) Ha). replace y with (x + (y - x)) in * by lia. set (e := y - x) in *. clearbody e a z. lia. }
  apply (N.mul_le_mono_pos_l _ _ fine Hf) in H1.
  assert (H2 : workN c / n <= y + v - base).
  { apply N.div_le_upper_bound; [lia|]. rewrite N.mul_sub_distr_l. lia. }
  assert (H3 : base <= y + v) by (apply (N.mul_le_mono_pos_l _ _ n Hn); lia). lia.
Qed.

(** ** Counts *)

Notation Xn := (fun j => N.to_nat (X j)).

Lemma alphaN_mono i d d' : d <= d' -> alphaN i d <= alphaN i d'.
Proof. apply alpha_m_mono. Qed.

Lemma come_nat y j : (j < m)%nat -> Happened.come q y j = N.to_nat (comeN (N.of_nat y) j).
Proof.
  intros Hj. unfold come, comeN. rewrite sv_nat by auto. cbn [to_service limit to_sharing lateness].
  destruct (Nat.leb_spec (N.to_nat (nlimit (svN j)) + N.to_nat (nlateness pr)) y), (N.leb_spec (D j) (N.of_nat y)); try lia.
  rewrite alpha_nat. do 2 f_equal. lia.
Qed.

Lemma there_nat z j : (j < m)%nat -> there q Xn z j = N.to_nat (thereN (N.of_nat z) j).
Proof.
  intros Hj. unfold there, thereN. rewrite sv_nat by auto. cbn [to_service limit to_sharing lateness].
  destruct (Nat.leb_spec (N.to_nat (nlimit (svN j)) + N.to_nat (nlateness pr)) (z + N.to_nat (X j))), (N.leb_spec (D j) (N.of_nat z + X j)); try lia.
  rewrite alpha_nat. do 2 f_equal. lia.
Qed.

Lemma full_nat z j : (j < m)%nat -> full q Xn z j = N.to_nat (fullN (N.of_nat z) j).
Proof. intros Hj. unfold full, fullN. rewrite cdiv_to_nat, there_nat, sv_nat by auto. reflexivity. Qed.

Lemma mixed_nat z j : (j < m)%nat -> mixed q Xn z j = N.to_nat (mixedN (N.of_nat z) j).
Proof.
  intros Hj. unfold mixed, mixedN. cbv zeta. rewrite there_nat, come_nat by auto.
  rewrite N2Nat.inj_add, cdiv_to_nat, N2Nat.inj_sub, N2Nat.inj_min, N2Nat.inj_sub, sv_nat by auto. reflexivity.
Qed.

Lemma clear_nat y j : (j < m)%nat -> Earliest.clear q y j = N.to_nat (cdivN (comeN (N.of_nat y) j) (B j)).
Proof. intros Hj. unfold Earliest.clear. rewrite cdiv_to_nat, come_nat, sv_nat by auto. reflexivity. Qed.

Lemma short_requests_nat i y j : (i < m)%nat -> (j < m)%nat -> short_requests q Xn i y j = N.to_nat (short_requestsN i (N.of_nat y) j).
Proof.
  intros Hi Hj. unfold short_requests, short_requestsN, delay, delayN. rewrite !sv_nat by auto. cbn [to_service size limit to_sharing lateness].
  destruct (Nat.eqb_spec j i) as [->|].
  - rewrite !alpha_nat, N2Nat.inj_min, N2Nat.inj_sub. f_equal; [do 2 f_equal; lia|]. f_equal. do 2 f_equal. lia.
  - set (e := Nat.min _ _). set (e' := N.min _ _). assert (E : e = N.to_nat e') by (unfold e, e'; lia). clearbody e e'. subst e.
    destruct (Nat.leb_spec (N.to_nat (nlimit (svN j)) + N.to_nat (nlateness pr)) (y + N.to_nat e')), (N.leb_spec (D j) (N.of_nat y + e')); try lia.
    rewrite alpha_nat. do 2 f_equal. lia.
Qed.

Lemma short_nat i y j : (i < m)%nat -> (j < m)%nat -> Earliest.short q Xn i y j = N.to_nat (cdivN (short_requestsN i (N.of_nat y) j) (B j)).
Proof.
  intros Hi Hj. unfold Earliest.short. rewrite cdiv_to_nat, short_requests_nat, sv_nat by auto. reflexivity.
Qed.

Lemma comeN_mono y u j : y <= u -> comeN y j <= comeN u j.
Proof.
  intros H. unfold comeN. destruct (N.leb_spec (D j) y), (N.leb_spec (D j) u); try lia. apply alphaN_mono. lia.
Qed.

Lemma thereN_mono y u j : y <= u -> thereN y j <= thereN u j.
Proof.
  intros H. unfold thereN. destruct (N.leb_spec (D j) (y + X j)), (N.leb_spec (D j) (u + X j)); try lia. apply alphaN_mono. lia.
Qed.

Lemma fullN_mono y u j : y <= u -> fullN y j <= fullN u j.
Proof. intros H. apply cdivN_mono. now apply thereN_mono. Qed.

Lemma mixedN_mono y u j : (j < m)%nat -> y <= u -> mixedN y j <= mixedN u j.
Proof.
  intros Hj H. destruct formed_sensible as (_ & _ & Hpar & _). destruct (Hpar j Hj) as (HB & _).
  pose proof (mixed_mono (N.to_nat (comeN y j)) (N.to_nat (comeN u j)) (N.to_nat (thereN y j)) (N.to_nat (thereN u j)) (N.to_nat (B j)) ltac:(lia)) as Hm.
  pose proof (comeN_mono y u j H). pose proof (thereN_mono y u j H). specialize (Hm ltac:(lia) ltac:(lia)).
  unfold mixedN. cbv zeta. assert (E : forall z, N.to_nat (N.min (comeN z j) (thereN z j - 1) + cdivN (thereN z j - N.min (comeN z j) (thereN z j - 1)) (B j)) =
    (Nat.min (N.to_nat (comeN z j)) (N.to_nat (thereN z j) - 1) + cdiv (N.to_nat (thereN z j) - Nat.min (N.to_nat (comeN z j)) (N.to_nat (thereN z j) - 1)) (N.to_nat (B j)))%nat).
  { intros z. rewrite N2Nat.inj_add, cdiv_to_nat, N2Nat.inj_sub, N2Nat.inj_min, N2Nat.inj_sub. reflexivity. }
  rewrite <- !E in Hm. lia.
Qed.

Lemma short_requestsN_mono i y u j : y <= u -> short_requestsN i y j <= short_requestsN i u j.
Proof.
  intros H. unfold short_requestsN. destruct (Nat.eqb j i).
  - pose proof (alphaN_mono i (y - D i + 1) (u - D i + 1) ltac:(lia)). pose proof (alphaN_mono i (y - D i + X i + 1) (u - D i + X i + 1) ltac:(lia)). lia.
  - destruct (N.leb_spec (D j) (y + delayN i j)), (N.leb_spec (D j) (u + delayN i j)); try lia. apply alphaN_mono. lia.
Qed.

Lemma cdivN_times a b : 0 < b -> cdivN a b * b <= a + b.
Proof. intros Hb. unfold cdivN. pose proof (N.mul_div_le (a + b - 1) b ltac:(lia)). lia. Qed.

Lemma cdivN_less a b : 0 < b -> cdivN a b * b < a + b.
Proof. intros Hb. unfold cdivN. pose proof (N.mul_div_le (a + b - 1) b ltac:(lia)). lia. Qed.

Lemma clear_most y j : comeN y j <= alphaN j (y + 1).
Proof. unfold comeN. destruct (D j <=? y); [apply alphaN_mono; lia|lia]. Qed.

Lemma short_most i y j : X j <= D j -> short_requestsN i y j <= alphaN j (y + 1).
Proof.
  intros HX. unfold short_requestsN. destruct (Nat.eqb_spec j i) as [->|].
  - pose proof (alphaN_mono i (y - D i + 1) (y + 1) ltac:(lia)). lia.
  - destruct (D j <=? y + delayN i j); [apply alphaN_mono; unfold delayN; lia|lia].
Qed.

Lemma nonzero a b : 0 < b -> (0 < N.to_nat (cdivN a b))%nat -> forall a', a <= a' -> cdivN a' b <> 0.
Proof. intros Hb H a' Ha. pose proof (cdivN_mono a a' b Ha). lia. Qed.

(** Any line with counts at most those of [c]. *)
Lemma clear_ok_sound u v y k : clear_ok u v = true -> v <= y <= u -> (k < m)%nat -> relievedN k v = false -> (0 < Earliest.clear q (N.to_nat y) k)%nat ->
  exists x, share_within q (Happened.less (Earliest.clear q (N.to_nat y)) k) x /\
    (lateness q + longest q + excess q + x + (limit (sv q k) + lateness q) <= N.to_nat y + N.to_nat (X k))%nat.
Proof.
  intros H Hy Hk Hrel Hpos. destruct formed_sensible as (_ & _ & Hpar & _). unfold clear_ok in H. cbv zeta in H. rewrite forallb_forall in H.
  specialize (H k ltac:(apply in_seq; lia)). rewrite Hrel, orb_false_r, table_at in H by auto. rewrite clear_nat, N2Nat.id in Hpos by auto.
  apply orb_true_iff in H as [H|H].
  - apply N.eqb_eq in H. destruct (nonzero _ _ (proj1 (Hpar k Hk)) Hpos (comeN u k)); [apply comeN_mono; lia|auto].
  - revert H. apply line_ok_sound; auto; [|lia]. intros j Hj. rewrite table_at, clear_nat, N2Nat.id by auto.
    pose proof (cdivN_mono _ _ (B j) (comeN_mono y u j ltac:(lia))). lia.
Qed.

Lemma short_ok_sound i u v y k : short_ok i u v = true -> v <= y <= u -> (i < m)%nat -> (k < m)%nat -> relievedN k v = false ->
  (0 < short_requests q Xn i (N.to_nat y) i)%nat -> (0 < Earliest.short q Xn i (N.to_nat y) k)%nat ->
  (exists x, share_within q (Happened.less (Earliest.short q Xn i (N.to_nat y)) k) x /\
    (lateness q + longest q + excess q + x + (limit (sv q k) + lateness q) <= N.to_nat y + N.to_nat (X k))%nat) \/
  (lateness q + excess q + (span (sv q i) + (crew q - 1) * longest q + work q (Happened.less (Earliest.short q Xn i (N.to_nat y)) k)) / crew q +
    (limit (sv q k) + lateness q) <= N.to_nat y + N.to_nat (X k))%nat.
Proof.
  intros H Hy Hi Hk Hrel Hi0 Hpos. destruct formed_sensible as (_ & _ & Hpar & _). unfold short_ok in H.
  rewrite short_requests_nat, N2Nat.id in Hi0 by auto. pose proof (short_requestsN_mono i y u i ltac:(lia)) as Hm.
  destruct (N.eqb_spec (short_requestsN i u i) 0) as [E|_]; [lia|]. cbn [orb] in H. cbv zeta in H. rewrite forallb_forall in H.
  specialize (H k ltac:(apply in_seq; lia)). rewrite Hrel, orb_false_r, table_at in H by auto. rewrite short_nat, N2Nat.id in Hpos by auto.
  apply orb_true_iff in H as [H|H].
  - apply N.eqb_eq in H. destruct (nonzero _ _ (proj1 (Hpar k Hk)) Hpos (short_requestsN i u k)); [apply short_requestsN_mono; lia|auto].
  - revert H. apply line_short_ok_sound; auto; [|lia]. intros j Hj. rewrite table_at, short_nat, N2Nat.id by auto.
    pose proof (cdivN_mono _ _ (B j) (short_requestsN_mono i y u j ltac:(lia))). lia.
Qed.

(** Beyond the last point. *)
Lemma straight_line b x y k (c : nat -> nat) (r : nat -> N) : straight (fun j => slopes (P j) (b j) j) (fun j => constant (P j) (b j) j) base_E x 0 = true ->
  x <= y -> (k < m)%nat -> (forall j, (j < m)%nat -> 0 < b j) ->
  (forall j, (j < m)%nat -> c j = N.to_nat (cdivN (r j) (b j)) /\ r j <= alphaN j (y + 1)) ->
  exists z, share_within q (Happened.less c k) z /\
    (lateness q + longest q + excess q + z + (limit (sv q k) + lateness q) <= N.to_nat y + N.to_nat (X k))%nat.
Proof.
  intros H Hxy Hk Hb Hc. destruct formed_sensible as (Hs & Hn & _).
  pose proof (straight_sound _ _ _ x y 0 (fun j => cdivN (r j) (b j)) H Hxy) as Hl.
  specialize (Hl ltac:(intros j Hj; apply batches_above; [auto|];
    pose proof (cdivN_times (r j) (b j) (Hb j Hj)); destruct (Hc j Hj); lia)).
  pose proof (largest_due (nservices pr) (svN k) (nth_In _ _ Hk)) as Hdue. unfold base_E in Hl.
  set (due := fold_right _ 0 (nservices pr)) in *.
  exists (N.to_nat (workN (fun j => cdivN (r j) (b j)) / n)). split.
  - apply (share_within_mono q Hs _ c); [intros j _; unfold Happened.less; lia|]. left.
    rewrite (work_nat (fun j => cdivN (r j) (b j))) by (intros j Hj; now apply Hc). cbn [to_sharing crew]. rewrite N2Nat.inj_div. lia.
  - rewrite sv_nat by auto. cbn [to_sharing lateness longest excess to_service limit]. clearbody due. lia.
Qed.

(** ** Reliefs *)

Lemma enough_ok_sound c c0 k z l : (k < m)%nat -> (forall z j, (j < m)%nat -> c0 z j = N.to_nat (c (N.of_nat z) j)) ->
  (forall y u j, (j < m)%nat -> y <= u -> c y j <= c u j) -> enough_ok c k z l = true -> enough q Xn c0 k (N.to_nat z).
Proof.
  intros Hk Hnat Hmono H. unfold enough_ok in H. apply orb_true_iff in H as [H|H]; [left|right].
  - revert H. apply line_ok_sound; auto. intros j Hj. rewrite table_at, Hnat, N2Nat.id by auto. lia.
  - rewrite !andb_true_iff, N.leb_le, N.ltb_lt in H. destruct H as ((Hz & Hb) & Hlast). split; [cbn [to_sharing longest]; lia|].
    intros w Hw. cbn [to_sharing longest] in Hw.
    destruct (between_sound _ _ _ Hb (z - N.of_nat w) ltac:(lia) ltac:(lia)) as (u & v & Huv & Hok).
    pose proof (start_ok_sound 0 (table (c u)) (c0 (N.to_nat z - w)%nat) k v (X k) (N.to_nat z - w)%nat Hk) as Hs.
    apply Hs; [|lia|exact Hok]. intros j Hj. rewrite table_at, Hnat by auto.
    pose proof (Hmono (N.of_nat (N.to_nat z - w)) u j Hj ltac:(lia)). lia.
Qed.

Lemma singly_sound k l : (k < m)%nat -> between (singly_ok k) 0 l = true -> straight_singly (last l 0) = true -> singly q Xn k.
Proof.
  intros Hk Hb Hend y Hpos. rewrite come_nat in Hpos by auto. destruct (N.lt_ge_cases (N.of_nat y) (last l 0)) as [Hlt|Hge].
  - destruct (between_sound _ _ _ Hb (N.of_nat y) ltac:(lia) Hlt) as (u & v & Huv & Hok). unfold singly_ok in Hok.
    pose proof (comeN_mono (N.of_nat y) u k ltac:(lia)) as Hm. apply orb_true_iff in Hok as [Hok|Hok]; [apply N.eqb_eq in Hok; lia|].
    revert Hok. apply line_ok_sound; auto; [|lia]. intros j Hj. rewrite table_at, come_nat by auto.
    pose proof (comeN_mono (N.of_nat y) u j ltac:(lia)). lia.
  - destruct (straight_line (fun _ => 1) (last l 0) (N.of_nat y) k (Happened.come q y) (comeN (N.of_nat y)) Hend Hge Hk) as (x & Hx & Hfit).
    + intros; lia.
    + intros j Hj. split; [|apply clear_most]. rewrite come_nat by auto. unfold cdivN. rewrite N.div_1_r. f_equal. lia.
    + exists x. split; [exact Hx|]. lia.
Qed.

Lemma relieved_sound k y : (k < m)%nat -> relief_ok k (R k) = true -> relievedN k (N.of_nat y) = true -> relieved q Xn k y.
Proof.
  intros Hk Hok Hr. unfold relievedN in Hr. destruct (R k) as [|l|z l|z l]; cbn [relief_ok] in Hok; [discriminate|left|right; left|right; right].
  - apply andb_true_iff in Hok as (H1 & H2). now apply (singly_sound k l).
  - apply andb_true_iff in Hok as (H1 & H2). apply N.leb_le in H1. exists (N.to_nat z). split.
    + rewrite sv_nat by auto. cbn [to_service limit to_sharing lateness]. lia.
    + apply (enough_ok_sound mixedN _ k z l Hk); auto; [intros; now apply mixed_nat|intros; now apply mixedN_mono].
  - apply N.leb_le in Hr. exists (N.to_nat z). split; [lia|].
    apply (enough_ok_sound fullN _ k z l Hk); auto; [intros; now apply full_nat|intros; now apply fullN_mono].
Qed.

Lemma relievedN_later k v y : v <= y -> relievedN k y = false -> relievedN k v = false.
Proof. unfold relievedN. intros H. destruct (R k); auto. rewrite !N.leb_gt. lia. Qed.

(** ** Theorem T *)

Lemma batches_T_nat s d i : (s < m)%nat -> (i < m)%nat ->
  batches_T q (fun _ => true) s d i = N.to_nat (batches_TN s (N.of_nat d) i).
Proof.
  intros Hs Hi. unfold batches_T, batches_TN, ahead. rewrite !sv_nat by auto. cbn [to_service size limit span turn to_sharing lateness].
  rewrite !alpha_nat. replace (N.of_nat (d + 1)) with (N.of_nat d + 1) by lia.
  destruct (Nat.eqb i s).
  - rewrite N2Nat.inj_sub, cdiv_to_nat. reflexivity.
  - rewrite N2Nat.inj_min, N2Nat.inj_mul, !cdiv_to_nat. f_equal. do 2 f_equal. lia.
Qed.

Lemma batches_TN_mono s d u i : d <= u -> batches_TN s d i <= batches_TN s u i.
Proof.
  intros H. unfold batches_TN. pose proof (alphaN_mono s (d + 1) (u + 1) ltac:(lia)) as Ha.
  pose proof (cdivN_mono _ _ (B s) Ha) as HJ. pose proof (cdivN_mono _ _ (nturn (svN s)) HJ) as Hv.
  destruct (Nat.eqb i s); [lia|]. pose proof (alphaN_mono i (ahead s i + d + 1) (ahead s i + u + 1) ltac:(lia)).
  pose proof (N.mul_le_mono_r _ _ (nturn (svN i)) Hv). lia.
Qed.

Lemma turn_ok_sound s u v d : turn_ok s u v = true -> v <= N.of_nat d <= u -> (s < m)%nat -> (0 < Sharing.alpha q s (d + 1))%nat ->
  exists x, share_within q (batches_T q (fun _ => true) s d) x /\
    (lateness q + longest q + excess q + x + span (sv q s) <= d + (limit (sv q s) + lateness q))%nat.
Proof.
  intros H Hd Hs Hpos. rewrite alpha_nat in Hpos. unfold turn_ok in H. apply orb_true_iff in H as [H|H].
  - apply N.eqb_eq in H. pose proof (alphaN_mono s (N.of_nat (d + 1)) (u + 1) ltac:(lia)). lia.
  - destruct (shareN_sound _ _ H) as (x & Hx & Hshare). apply N.leb_le in Hx. exists (N.to_nat x). split.
    + apply (share_within_mono q (proj1 formed_sensible) _ (fun j => N.to_nat (table (batches_TN s u) j))); [|auto].
      intros j Hj. rewrite length_services in Hj. rewrite table_at, batches_T_nat by auto.
      pose proof (batches_TN_mono s (N.of_nat d) u j ltac:(lia)). lia.
    + rewrite sv_nat by auto. cbn [to_sharing lateness longest excess to_service limit span]. lia.
Qed.

Lemma straight_turn s x d : straight_T s x = true -> x <= N.of_nat d -> (s < m)%nat ->
  exists z, share_within q (batches_T q (fun _ => true) s d) z /\
    (lateness q + longest q + excess q + z + span (sv q s) <= d + (limit (sv q s) + lateness q))%nat.
Proof.
  intros H Hxd Hs. destruct formed_sensible as (Hsense & Hn & Hpar & _). destruct (Hpar s Hs) as (HB & HK & _).
  pose proof (straight_sound _ _ _ x (N.of_nat d) (D s) (batches_TN s (N.of_nat d)) H Hxd) as Hl.
  assert (Hline : forall j, (j < m)%nat -> fine * P j * batches_TN s (N.of_nat d) j <= slope_T s j * N.of_nat d + constant_T s j).
  { intros j Hj. unfold batches_TN, slope_T, constant_T. set (y := N.of_nat d).
    pose proof (cdivN_times (alphaN s (y + 1)) (B s) HB) as HJ. set (J := cdivN (alphaN s (y + 1)) (B s)) in *.
    destruct (Nat.eqb_spec j s) as [->|Hne].
    - pose proof (batches_above (P s) (B s) s y (J - 1) HB). nia.
    - destruct (N.leb_spec (by_turns s j) (by_arrivals j)) as [Hle|Hgt].
      + rewrite (N.min_l _ _ Hle). pose proof (cdivN_less J (nturn (svN s)) HK) as Hv. set (v := cdivN J (nturn (svN s))) in *.
        assert (HJ1 : J * B s < alphaN s (y + 1) + B s).
        { unfold J. pose proof (cdivN_less (alphaN s (y + 1)) (B s) HB). lia. }
        pose proof (batches_above (P j * nturn (svN j)) (B s * nturn (svN s)) s y v ltac:(nia)) as Hab. unfold by_turns.
        transitivity (fine * (P j * nturn (svN j)) * v); [|apply Hab].
        * replace (fine * (P j * nturn (svN j)) * v) with (fine * P j * (v * nturn (svN j))) by lia. apply N.mul_le_mono_l. lia.
        * assert (Hv2 : v * nturn (svN s) + 1 <= J + nturn (svN s)) by lia. pose proof (N.mul_le_mono_r _ _ (B s) Hv2). lia.
      + rewrite (N.min_r _ _ (N.lt_le_incl _ _ Hgt)). unfold by_arrivals.
        pose proof (batches_above (P j) 1 j (ahead s j + y) (alphaN j (ahead s j + y + 1)) ltac:(lia) ltac:(lia)) as Hab.
        transitivity (fine * P j * alphaN j (ahead s j + y + 1)); [apply N.mul_le_mono_l; lia|]. lia. }
  specialize (Hl Hline). exists (N.to_nat (workN (batches_TN s (N.of_nat d)) / n)). split.
  - left. rewrite (work_nat (batches_TN s (N.of_nat d))) by (intros j Hj; now apply batches_T_nat). cbn [to_sharing crew]. rewrite N2Nat.inj_div. lia.
  - rewrite sv_nat by auto. cbn [to_sharing lateness longest excess to_service limit span]. lia.
Qed.
End Checker.

Lemma check_E_test pr X R l ls : check_E pr X R l ls = true -> test_E (to_sharing pr) (fun j => N.to_nat (X j)).
Proof.
  unfold check_E. rewrite !andb_true_iff, !forallb_forall. intros (((((Hf & HX) & HR) & Hb) & Hend) & Hs).
  assert (HXD : forall i, (i < length (nservices pr))%nat -> X i + nspan (svN pr i) <= nlimit (svN pr i) + nlateness pr).
  { intros i Hi. specialize (HX i ltac:(apply in_seq; lia)). now apply N.leb_le in HX. }
  destruct (formed_sensible pr Hf) as (_ & _ & Hpar & _).
  assert (HB : forall j, (j < length (nservices pr))%nat -> 0 < nsize (svN pr j)) by (intros j Hj; apply (Hpar j Hj)).
  split; [intros i Hi; rewrite length_services in Hi; specialize (HXD i Hi); rewrite sv_nat by auto; cbn [to_service limit span to_sharing lateness]; lia|].
  intros k y Hk. rewrite length_services in Hk. destruct (relievedN R k (N.of_nat y)) eqn:Hrel.
  { left. apply (relieved_sound pr X R Hf); auto. apply HR. apply in_seq. lia. }
  right. split.
  - intros Hpos. rewrite <- (Nat2N.id y) in *. set (yN := N.of_nat y) in *. rewrite N2Nat.id in Hrel.
    destruct (N.lt_ge_cases yN (last l 0)) as [Hlt|Hge].
    + destruct (between_sound _ _ _ Hb yN ltac:(lia) Hlt) as (u & v & Huv & Hok).
      apply (clear_ok_sound pr X R Hf u v); auto. now apply (relievedN_later R k v yN).
    + apply (straight_line pr X Hf (fun j => nsize (svN pr j)) (last l 0) yN k _ (fun j => comeN pr yN j)); auto.
      intros j Hj. split; [rewrite clear_nat, N2Nat.id by auto; reflexivity|apply clear_most].
  - intros i Hi HB1 Hy Hi0 Hpos. rewrite length_services in Hi. specialize (Hs i ltac:(apply in_seq; lia)).
    rewrite sv_nat in HB1, Hy by auto. cbn [to_service size limit to_sharing lateness] in HB1, Hy.
    apply orb_true_iff in Hs as [Hs|Hs]; [apply N.leb_le in Hs; lia|]. cbv zeta in Hs. apply andb_true_iff in Hs as (Hb' & Hend').
    rewrite <- (Nat2N.id y) in *. set (yN := N.of_nat y) in *. rewrite N2Nat.id in Hrel.
    set (from := nlimit (svN pr i) + nlateness pr) in *. destruct (N.lt_ge_cases yN (last (nth i ls []) from)) as [Hlt|Hge].
    + destruct (between_sound _ _ _ Hb' yN ltac:(unfold from; lia) Hlt) as (u & v & Huv & Hok).
      apply (short_ok_sound pr X R Hf i u v); auto. now apply (relievedN_later R k v yN).
    + left. apply (straight_line pr X Hf (fun j => nsize (svN pr j)) _ yN k _ (fun j => short_requestsN pr X i yN j) Hend'); auto.
      intros j Hj. split; [rewrite short_nat, N2Nat.id by auto; reflexivity|apply short_most]. specialize (HXD j Hj). lia.
Qed.

Lemma test_promise pr : shared_formed pr = true -> (forall s, served (to_sharing pr) s (fun _ => true)) -> shared_promise pr.
Proof.
  intros Hf Hs st Hr Hc k c m K Hk Hin i. destruct (formed_sensible pr Hf) as (Hsense & _ & _ & _ & Hd).
  specialize (Hd c (nth_error_In _ _ Hk) m K Hin).
  apply (served_keeps (to_sharing pr) (fun _ => true) k (to_stream (snd c))); auto.
  - cbn [clients to_sharing]. now rewrite nth_error_map, Hk.
  - cbn. lia.
Qed.

Lemma check_T_test pr ls s : check_T pr ls = true -> (s < length (services (to_sharing pr)))%nat ->
  test_T (to_sharing pr) (fun _ => true) s.
Proof.
  intros H Hi d Hpos. unfold check_T in H. rewrite andb_true_iff, forallb_forall in H. destruct H as (Hf & H).
  rewrite length_services in Hi. specialize (H s ltac:(apply in_seq; lia)). cbv zeta in H. apply andb_true_iff in H as (Hb & Hend).
  set (l := nth s ls []) in *. destruct (N.lt_ge_cases (N.of_nat d) (last l 0)) as [Hlt|Hge].
  - destruct (between_sound _ _ _ Hb (N.of_nat d) ltac:(lia) Hlt) as (u & v & Huv & Hok). now apply (turn_ok_sound pr Hf s u v).
  - now apply (straight_turn pr Hf s (last l 0)).
Qed.

Lemma check_T_formed pr ls : check_T pr ls = true -> shared_formed pr = true.
Proof. unfold check_T. rewrite andb_true_iff. tauto. Qed.

Lemma check_E_formed pr X R l ls : check_E pr X R l ls = true -> shared_formed pr = true.
Proof. unfold check_E. rewrite !andb_true_iff. tauto. Qed.

(** Of Theorem E. *)
Theorem check_E_sound pr X R l ls : nrule pr = Sharing.Earliest -> check_E pr X R l ls = true -> shared_promise pr.
Proof.
  intros Hr H. pose proof (check_E_test pr X R l ls H) as Ht. pose proof (check_E_formed _ _ _ _ _ H) as Hf.
  apply test_promise; auto. apply (theorem_E _ (fun j => N.to_nat (X j))); auto. now apply (formed_sensible pr).
Qed.

(** Of Theorem T. *)
Theorem check_T_sound pr ls : nrule pr = Turns -> check_T pr ls = true -> shared_promise pr.
Proof.
  intros Hr H. pose proof (check_T_formed _ _ H) as Hf. apply test_promise; auto. intros s.
  apply theorem_T_all; auto; [now apply (formed_sensible pr)|]. intros i. now apply (check_T_test pr ls).
Qed.
