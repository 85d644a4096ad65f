(** A checker of certificates of pipelines: if it says yes, the promise holds.  It computes with binary numbers, and looks at
    finitely many sources: as many as can come until all stages have done even a straight line above what comes, or (at
    capacity) until all repeats. *)
Require Import List Arith NArith Lia Bool.
Import ListNotations.
Require Import Model Words Core TheoremA Pipeline PipelineTest Check Shared.
Open Scope N_scope.

(** * Problems *)

Record nstage := NStage { pcrew : N; psize : N; pspan : N; pparent : nat; pfan : N }.
Record npipeline := NPipeline { pstages : list nstage; psources : list nstream; pallowed : N; plateness : N }.

Definition to_stage s := Stage (N.to_nat (pcrew s)) (N.to_nat (psize s)) (N.to_nat (pspan s)) (pparent s) (N.to_nat (pfan s)).
Definition to_pipeline pr := Pipeline (map to_stage (pstages pr)) (map to_stream (psources pr)) (N.to_nat (pallowed pr)) (N.to_nat (plateness pr)).

(** What is promised, dispatch as late at every stage as the problem says: every mandatory source request is a hit, so every
    (m, K) is kept, whatever else is held to be a miss. *)
Definition pipeline_promise pr := let q := to_pipeline pr in
  all_hit q /\ forall st, Pipeline.reachable q st -> conforms (as_problem q) (Pipeline.arrived st) ->
  forall k s m K, nth_error (psources pr) k = Some s -> In (m, K) (constraints s) ->
  forall missed : nat -> bool,
  (forall x, missed x = true -> exists j, (j < length (Pipeline.arrived st))%nat /\ src (source st j) = k /\ idx (source st j) = x /\
     (arr (source st j) + Pipeline.allowed q < Pipeline.now st)%nat /\
     (mandatory (as_problem q) (source st j) = true -> exists i, (i < length (stages q))%nat /\ pending q st i j)) ->
  forall i, (count missed (seq (i + 1) (N.to_nat K)) <= N.to_nat m)%nat.

(** * Tables *)

Inductive trie := Leaf | Node (l : trie) (v : N) (r : trie).
Fixpoint find p t := match t, p with
  | Leaf, _ => 0
  | Node _ v _, xH => v
  | Node l _ _, xO p => find p l
  | Node _ _ r, xI p => find p r
  end.
Fixpoint put p x t := match p, t with
  | xH, Leaf => Node Leaf x Leaf
  | xH, Node l _ r => Node l x r
  | xO p, Leaf => Node (put p x Leaf) 0 Leaf
  | xO p, Node l v r => Node (put p x l) v r
  | xI p, Leaf => Node Leaf 0 (put p x Leaf)
  | xI p, Node l v r => Node l v (put p x r)
  end.
Definition get t y := match y with N0 => 0 | Npos p => find p t end.
Definition set_at y x t := match y with N0 => t | Npos p => put p x t end.

Section Checker.
Variable pr : npipeline.
Notation m := (length (pstages pr)).
Notation q := (to_pipeline pr).
Definition sgN i := nth i (pstages pr) (NStage 0 0 0 0 0).
Notation NN i := (pcrew (sgN i)).
Notation B i := (psize (sgN i)).
Notation P i := (pspan (sgN i)).
Notation F i := (pfan (sgN i)).
Notation g := (plateness pr).
Notation ss := (psources pr).

Definition pipeline_formed :=
  Nat.ltb 0 m && forallb (fun s => (0 <? pcrew s) && (0 <? psize s)) (pstages pr) &&
  forallb (fun i => Nat.eqb i 0 || Nat.ltb (pparent (sgN i)) i) (seq 0 m) &&
  forallb (fun s => (fst (rho s) <=? snd (rho s)) && (0 <? snd (rho s)) &&
    negb (match bounds s with [] => true | _ => false end) && forallb (fun b => 0 <? every b) (bounds s) &&
    forallb (fun c => (snd c - fst c) * snd (rho s) <=? snd c * fst (rho s)) (constraints s)) ss.

(** The end of the last of so many requests by a stage alone. *)
Definition served i x := g + P i * (1 + cdivN (cdivN x (B i)) (NN i)).

(** ** How long a burst takes, paid once

    Of all that is served in as many rounds of all workers the first says most; and what takes one round more is what is
    [n B] fewer, a batch time later. *)
Definition childrenN i := filter (fun c => Nat.eqb (pparent (sgN c)) i) (seq 1 (m - 1)).
Definition most_of (ts : list (N * trie)) y := fold_right (fun t a => N.max (get (snd t) (fst t * y)) a) 0 ts.
Definition entry i ts t y := let r := NN i * B i in
  N.max (g + P i * 2 + most_of ts y) (if y <=? r then 0 else P i + get t (y - r)).
Fixpoint fill fuel i ts len y t := match fuel with
  | O => None
  | S fuel => if len <? y then Some t else fill fuel i ts len (y + 1) (set_at y (entry i ts t y) t)
  end.
Fixpoint gather (f : nat -> option trie) l := match l with
  | [] => Some []
  | c :: l => match f c, gather f l with Some t, Some ts => Some ((F c, t) :: ts) | _, _ => None end
  end.
(** Of [len] requests of stage [i], and all that these become. *)
Fixpoint tabled fuel depth i len := match depth with
  | O => None
  | S depth => match gather (fun c => tabled fuel depth c (F c * len)) (childrenN i) with
      | Some ts => fill fuel i ts len 1 Leaf
      | None => None
      end
  end.

(** ** The test, source by source

    In an interval of [e] fewer than [y] sources come, so the [y]-th comes that much later than the first at least; nobody
    asks when it comes before [from]. *)
Fixpoint in_time_by sl from (f : N -> N) room es y := match es with
  | [] => true
  | e :: es => ((e <=? from) || (alpha_m sl e <? y)) && (f y <=? e + room) && in_time_by sl from f room es (y + 1)
  end.

(** From [x] on all stages have done a straight line above what can come, in parts of [fine]: no source costs a stage more
    than [cost], and a path takes no more than [fixed] beside. *)
Fixpoint descendants fuel i := match fuel, i with S fuel, S _ => F i * descendants fuel (pparent (sgN i)) | _, _ => 1 end.
Definition M i := descendants m i.
Definition cost := fold_right (fun i c => N.max (cdivN (fine * P i * M i) (NN i * B i)) c) 0 (seq 0 m).
Fixpoint fixed depth i := match depth with
  | O => 0
  | S depth => g + 2 * P i + fold_right (fun c a => N.max (fixed depth c) a) 0 (childrenN i)
  end.
Definition behind k room x := let a := sumN (slope cost 1) ss in
  let z := sumN (fun s => slope cost 1 s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) ss + fine * cost * N.of_nat (length ss) in
  (a <=? fine * fine) && (fine * fine * k + a * x + z <=? fine * fine * (x + room)).

Definition looked (f : N -> N) k room es := in_time_by ss 0 f room es 1 && behind k room (last es 0).

(** At capacity: behind [x] the slowest bound of each stream alone, until all repeats.  In [h] more so many sources come that
    every stage serves what they become in whole rounds, and in no longer. *)
Definition gained h := sumN (fun s => fst (rho s) * per h s / snd (rho s)) ss.
Definition whole h := let w := gained h in repeats ss [(w, h)] h &&
  forallb (fun i => let r := NN i * B i in (M i * w mod r =? 0) && (P i * (M i * w / r) <=? h)) (seq 0 m).
Definition again_from x := alpha_m (map alone ss) (x + 1).
Definition repeated f room x h es := let y := again_from x + N.of_nat (length es) in
  in_time_by (map alone ss) x f room es (again_from x) && whole h &&
  (alpha_m (map alone ss) (x + h) <? y) && (N.of_nat (S m) * gained h <=? y).

Definition check_P2 fuel es e := pipeline_formed &&
  match e with
  | Over => match tabled fuel m 0 (N.of_nat (length es)) with
      | Some t => looked (get t) (fixed m 0) (pallowed pr) es
      | None => false
      end
  | Repeats h es' => let x := last es 0 in
      match tabled fuel m 0 (N.max (N.of_nat (length es)) (again_from x + N.of_nat (length es'))) with
      | Some t => in_time_by ss 0 (get t) (pallowed pr) es 1 && repeated (get t) (pallowed pr) x h es'
      | None => false
      end
  end.

(** ** The same stage by stage *)

Fixpoint reached_by (rs : list N) fuel i := nth i rs 0 + match fuel, i with S fuel, S _ => reached_by rs fuel (pparent (sgN i)) | _, _ => 0 end.
Definition check_P1 (es rs : list N) := pipeline_formed &&
  forallb (fun i => looked (fun y => served i (M i * y)) (g + 3 * P i) (nth i rs 0) es) (seq 0 m) &&
  forallb (fun i => reached_by rs m i <=? pallowed pr) (seq 0 m).

(** * It is sound *)

Lemma find_put p p' x t : find p (put p' x t) = if Pos.eqb p p' then x else find p t.
Proof.
  revert p t. induction p'; intros p t; destruct t; cbn [put]; destruct p; cbn [find Pos.eqb]; auto; try rewrite IHp'; auto.
  all: try (destruct (Pos.eqb p p'); auto); now destruct p.
Qed.

Lemma get_set y z x t : 0 < y -> get (set_at y x t) z = if z =? y then x else get t z.
Proof. intros Hy. destruct y as [|y], z as [|z]; try lia; cbn [get set_at N.eqb]; [reflexivity|apply find_put]. Qed.

Lemma length_stages : length (stages q) = m.
Proof. apply map_length. Qed.

Lemma sg_nat i : (i < m)%nat -> sg q i = to_stage (sgN i).
Proof.
  intros Hi. unfold sg, sgN. cbn [stages to_pipeline]. rewrite (nth_indep _ _ (to_stage (NStage 0 0 0 0 0))) by (now rewrite map_length).
  apply map_nth.
Qed.

Hypothesis Hformed : pipeline_formed = true.

Lemma formed : Pipeline.sensible q /\ (0 < m)%nat /\ (forall i, (i < m)%nat -> 0 < NN i /\ 0 < B i) /\
  (forall i, (0 < i < m)%nat -> (pparent (sgN i) < i)%nat) /\
  (forall s, In s ss -> 0 < snd (rho s) /\ bounds s <> [] /\ forall b, In b (bounds s) -> 0 < every b) /\
  forall s mm K, In s ss -> In (mm, K) (constraints s) -> (K - mm) * snd (rho s) <= K * fst (rho s).
Proof.
  pose proof Hformed as H. unfold pipeline_formed in H. rewrite !andb_true_iff, !forallb_forall, Nat.ltb_lt in H. destruct H as (((Hm & Hst) & Hup) & Hss).
  assert (Hpos : forall i, (i < m)%nat -> 0 < NN i /\ 0 < B i).
  { intros i Hi. specialize (Hst (sgN i) (nth_In _ _ Hi)). now rewrite andb_true_iff, !N.ltb_lt in Hst. }
  assert (Hpar : forall i, (0 < i < m)%nat -> (pparent (sgN i) < i)%nat).
  { intros i Hi. specialize (Hup i ltac:(apply in_seq; lia)). rewrite orb_true_iff, Nat.eqb_eq, Nat.ltb_lt in Hup. lia. }
  assert (Hs : forall s, In s ss -> fst (rho s) <= snd (rho s) /\ 0 < snd (rho s) /\ bounds s <> [] /\ (forall b, In b (bounds s) -> 0 < every b) /\
    forall mm K, In (mm, K) (constraints s) -> (K - mm) * snd (rho s) <= K * fst (rho s)).
  { intros s Hin. specialize (Hss s Hin). rewrite !andb_true_iff, !forallb_forall, N.leb_le, N.ltb_lt in Hss. destruct Hss as ((((H1 & H2) & H3) & H4) & H5).
    split; [auto|]. split; [auto|]. split; [now destruct (bounds s)|]. split; [intros b Hb; apply N.ltb_lt; auto|].
    intros mm K Hk. specialize (H5 _ Hk). now apply N.leb_le in H5. }
  split; [|split; [auto|split; [auto|split; [auto|split]]]].
  - split; [|split; [now rewrite length_stages|split]].
    + intros s Hin. cbn in Hin. apply in_map_iff in Hin as (x & <- & Hin). destruct (Hs x Hin) as (H1 & H2 & _). cbn.
      split; [lia|]. split; [lia|]. intros a b Hab. pose proof (Check.alpha_mono (bounds x) (N.of_nat a) (N.of_nat b)). lia.
    + intros i Hi. rewrite length_stages in Hi. rewrite sg_nat by auto. destruct (Hpos i Hi). cbn. lia.
    + intros i Hi. rewrite length_stages in Hi. rewrite sg_nat by lia. now apply Hpar.
  - intros s Hin. destruct (Hs s Hin) as (_ & H1 & H2 & H3 & _). auto.
  - intros s mm K Hin. destruct (Hs s Hin) as (_ & _ & _ & _ & H). auto.
Qed.

Lemma curve_nat d : curve_m (as_problem q) d = N.to_nat (alpha_m ss (N.of_nat d)).
Proof.
  rewrite curve_m_all. unfold alpha_m. rewrite sumN_to_nat. cbn [streams as_problem sources to_pipeline]. rewrite map_map. f_equal. apply map_ext.
  intros s. rewrite cdiv_to_nat, N2Nat.inj_mul. reflexivity.
Qed.

Lemma ends_nat i x : (i < m)%nat -> ends q i (cdiv (N.to_nat x) (N.to_nat (B i))) = N.to_nat (served i x).
Proof.
  intros Hi. unfold ends, served. rewrite sg_nat by auto. cbn [to_stage span crew lateness to_pipeline].
  rewrite N2Nat.inj_add, N2Nat.inj_mul, N2Nat.inj_add, !cdiv_to_nat. reflexivity.
Qed.

Lemma children_nat i : children q i = childrenN i.
Proof.
  unfold children, childrenN. rewrite length_stages. apply filter_ext_in. intros c Hc. apply in_seq in Hc. rewrite sg_nat by lia. reflexivity.
Qed.

Lemma child_in i c : In c (childrenN i) -> (0 < c < m)%nat /\ pparent (sgN c) = i.
Proof. intros H. apply filter_In in H as (H & E). apply in_seq in H. apply Nat.eqb_eq in E. split; [lia|auto]. Qed.

(** ** Tables *)

Notation W depth i y := (worst q depth i (N.to_nat y)).

Lemma worst_term depth i x Y : (i < m)%nat -> (N.to_nat (B i) * x < Y)%nat ->
  (ends q i (S x) + list_max (map (fun c => worst q depth c (N.to_nat (F c) * (Y - N.to_nat (B i) * x))) (childrenN i)) <= worst q (S depth) i Y)%nat.
Proof.
  intros Hi Hx. destruct formed as (_ & _ & Hpos & _). cbn [worst]. rewrite children_nat, sg_nat by auto. cbn [to_stage size].
  etransitivity; [|apply in_max, (in_map (fun x => (ends q i (S x) + _)%nat) _ x); apply in_seq; split; [lia|apply cdiv_above; [specialize (Hpos i Hi)|]; lia]].
  apply Nat.add_le_mono_l, Nat.eq_le_incl. f_equal. apply map_ext_in. intros c Hc. apply child_in in Hc as (Hc & _). rewrite sg_nat by lia. reflexivity.
Qed.

Lemma worst_within depth i Y z : (i < m)%nat ->
  (forall x, (N.to_nat (B i) * x < Y)%nat ->
     (ends q i (S x) + list_max (map (fun c => worst q depth c (N.to_nat (F c) * (Y - N.to_nat (B i) * x))) (childrenN i)) <= z)%nat) ->
  (worst q (S depth) i Y <= z)%nat.
Proof.
  intros Hi H. destruct formed as (_ & _ & Hpos & _). cbn [worst]. rewrite children_nat, sg_nat by auto. cbn [to_stage size]. apply max_le.
  intros e He. apply in_map_iff in He as (x & <- & Hx). apply in_seq in Hx. etransitivity; [|apply (H x)].
  - apply Nat.add_le_mono_l, Nat.eq_le_incl. f_equal. apply map_ext_in. intros c Hc. apply child_in in Hc as (Hc & _). rewrite sg_nat by lia. reflexivity.
  - specialize (Hpos i Hi). apply cdiv_above; lia.
Qed.

Lemma worst_none depth i : (i < m)%nat -> worst q depth i 0 = 0%nat.
Proof.
  intros Hi. destruct formed as (_ & _ & Hpos & _). destruct depth; cbn [worst]; [reflexivity|]. unfold cdiv. rewrite sg_nat by auto. cbn [to_stage size].
  rewrite Nat.div_small by (specialize (Hpos i Hi); lia). reflexivity.
Qed.

Definition covered_by depth len ts c := exists t, In (F c, t) ts /\ forall z, 0 < z <= F c * len -> (W depth c z <= N.to_nat (get t z))%nat.

Lemma most_above ts a t y : In (a, t) ts -> get t (a * y) <= most_of ts y.
Proof. induction ts as [|u ts IH]; [intros []|]. cbn [most_of fold_right]. intros [->|H]; [cbn [fst snd]; lia|]. specialize (IH H). unfold most_of in IH. lia. Qed.

Lemma entry_above depth i ts t len y : (i < m)%nat -> (forall c, In c (childrenN i) -> covered_by depth len ts c) -> 0 < y <= len ->
  (forall z, 0 < z < y -> (W (S depth) i z <= N.to_nat (get t z))%nat) -> (W (S depth) i y <= N.to_nat (entry i ts t y))%nat.
Proof.
  intros Hi Hts Hy Ht. destruct formed as (Hsense & _ & Hpos & Hup & _). destruct (Hpos i Hi) as (HN & HB). apply worst_within; auto. intros x Hx.
  unfold entry. cbv zeta. set (r := NN i * B i). rewrite N2Nat.inj_max, N2Nat.inj_add, N2Nat.inj_add, N2Nat.inj_mul.
  destruct (Nat.lt_ge_cases x (N.to_nat (NN i))) as [Hsmall|Hlarge].
  - etransitivity; [|apply Nat.le_max_l]. apply Nat.add_le_mono.
    + unfold ends. rewrite sg_nat by auto. cbn [to_stage span crew lateness to_pipeline].
      pose proof (cdiv_le (S x) (N.to_nat (NN i)) 1 ltac:(lia) ltac:(lia)). change (N.to_nat 2) with 2%nat. apply Nat.add_le_mono_l, Nat.mul_le_mono_l. lia.
    + apply max_le. intros e He. apply in_map_iff in He as (c & <- & Hc). destruct (Hts c Hc) as (tc & Hin & Hz). apply child_in in Hc as (Hc & _).
      pose proof (most_above ts _ _ y Hin). transitivity (N.to_nat (get tc (F c * y))); [|lia].
      transitivity (W depth c (F c * y)).
      * rewrite N2Nat.inj_mul. apply (worst_mono q Hsense); [rewrite length_stages; lia|lia|apply Nat.mul_le_mono_l; lia].
      * destruct (N.eq_dec (F c * y) 0) as [E|E]; [|apply Hz; split; [lia|apply N.mul_le_mono_l; lia]].
        rewrite E. change (N.to_nat 0) with 0%nat. rewrite worst_none by lia. lia.
  - assert (Hr : (N.to_nat r <= N.to_nat (B i) * x)%nat) by (unfold r; rewrite N2Nat.inj_mul, Nat.mul_comm; now apply Nat.mul_le_mono_l).
    destruct (N.leb_spec y r) as [|Hyr]; [lia|]. etransitivity; [|apply Nat.le_max_r]. rewrite N2Nat.inj_add.
    set (x' := (x - N.to_nat (NN i))%nat).
    assert (Er : N.to_nat r = (N.to_nat (B i) * N.to_nat (NN i))%nat) by (unfold r; rewrite N2Nat.inj_mul; lia).
    assert (Ex : (N.to_nat (B i) * x = N.to_nat r + N.to_nat (B i) * x')%nat) by (rewrite Er, <- Nat.mul_add_distr_l; f_equal; unfold x'; lia).
    pose proof (worst_term depth i x' (N.to_nat (y - r)) Hi ltac:(lia)) as H1. specialize (Ht (y - r) ltac:(unfold r in *; nia)).
    assert (Ee : (ends q i (S x) = ends q i (S x') + N.to_nat (P i))%nat).
    { unfold ends. rewrite sg_nat by auto. cbn [to_stage span crew lateness to_pipeline]. unfold cdiv.
      replace (S x + N.to_nat (NN i) - 1)%nat with (S x' + N.to_nat (NN i) - 1 + 1 * N.to_nat (NN i))%nat by (unfold x'; lia). rewrite Nat.div_add by lia. lia. }
    rewrite Ee. replace (N.to_nat y - N.to_nat (B i) * x)%nat with (N.to_nat (y - r) - N.to_nat (B i) * x')%nat by lia. lia.
Qed.

Lemma fill_sound (w : N -> nat) i ts len : (forall y t, 0 < y <= len -> (forall z, 0 < z < y -> (w z <= N.to_nat (get t z))%nat) -> (w y <= N.to_nat (entry i ts t y))%nat) ->
  forall fuel y t t', fill fuel i ts len y t = Some t' -> 0 < y -> (forall z, 0 < z < y -> (w z <= N.to_nat (get t z))%nat) ->
  forall z, 0 < z <= len -> (w z <= N.to_nat (get t' z))%nat.
Proof.
  intros Hstep. induction fuel as [|fuel IH]; intros y t t' H Hy Ht z Hz; [discriminate|]. cbn [fill] in H.
  destruct (N.ltb_spec len y) as [Hend|Hmore]; [injection H as <-; apply Ht; lia|].
  apply (IH _ _ _ H); [lia| |auto]. intros z' Hz'. rewrite get_set by auto. destruct (N.eqb_spec z' y) as [->|]; [apply Hstep; auto|apply Ht; lia].
Qed.

Lemma gather_in f l ts : gather f l = Some ts -> forall c, In c l -> exists t, f c = Some t /\ In (F c, t) ts.
Proof.
  revert ts. induction l as [|a l IH]; intros ts H c Hc; [destruct Hc|]. cbn [gather] in H.
  destruct (f a) as [t|] eqn:E; [|discriminate]. destruct (gather f l) as [ts'|]; [|discriminate]. injection H as <-.
  destruct Hc as [->|Hc]; [exists t; simpl; auto|]. destruct (IH ts' eq_refl c Hc) as (u & H1 & H2). exists u. simpl. auto.
Qed.

Lemma tabled_sound fuel depth : forall i len t, tabled fuel depth i len = Some t -> (i < m)%nat ->
  forall y, 0 < y <= len -> (W depth i y <= N.to_nat (get t y))%nat.
Proof.
  induction depth as [|depth IH]; intros i len t H Hi y Hy; [discriminate|]. cbn [tabled] in H.
  destruct (gather _ _) as [ts|] eqn:E; [|discriminate].
  apply (fill_sound (fun y => W (S depth) i y) i ts len) with (fuel := fuel) (y := 1) (t := Leaf) (t' := t); auto; try lia.
  intros y' t0 Hy' Ht. apply (entry_above depth i ts t0 len y'); auto. intros c Hc. destruct (gather_in _ _ _ E c Hc) as (u & Hu & Hin).
  exists u. split; [auto|]. intros z Hz. apply child_in in Hc as (Hc & _). apply (IH c (F c * len)); auto; lia.
Qed.

(** ** A straight line *)

Notation Mn i := (N.to_nat (M i)).

Lemma descendants_fuel fuel : forall fuel' i, (i < m)%nat -> (i <= fuel)%nat -> (i <= fuel')%nat -> descendants fuel i = descendants fuel' i.
Proof.
  destruct formed as (_ & _ & _ & Hup & _). induction fuel as [|fuel IH]; intros fuel' i Hi H H'.
  - replace i with 0%nat by lia. destruct fuel'; reflexivity.
  - destruct i as [|i]; [destruct fuel'; reflexivity|]. destruct fuel' as [|fuel']; [lia|]. cbn [descendants].
    specialize (Hup (S i) ltac:(lia)). f_equal. apply IH; lia.
Qed.

Lemma M_root : M 0 = 1.
Proof. unfold M. destruct m; reflexivity. Qed.

Lemma M_child c : (0 < c < m)%nat -> M c = F c * M (pparent (sgN c)).
Proof.
  intros Hc. destruct formed as (_ & _ & _ & Hup & _). specialize (Hup c Hc). unfold M.
  rewrite (descendants_fuel m (S m) c) by lia. destruct c as [|c]; [lia|]. cbn [descendants]. reflexivity.
Qed.

Lemma cost_above i : (i < m)%nat -> fine * P i * M i <= cost * (NN i * B i).
Proof.
  intros Hi. destruct formed as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & HB).
  assert (H : cdivN (fine * P i * M i) (NN i * B i) <= cost).
  { unfold cost. assert (Hin : In i (seq 0 m)) by (apply in_seq; lia). revert Hin. generalize (seq 0 m). intros l. induction l as [|a l IH]; [intros []|].
    cbn [fold_right]. intros [->|Hin]; [lia|]. specialize (IH Hin). lia. }
  transitivity (cdivN (fine * P i * M i) (NN i * B i) * (NN i * B i)); [|now apply N.mul_le_mono_r].
  set (z := NN i * B i) in *. assert (0 < z) by (unfold z; nia). unfold cdivN. pose proof (N.mul_succ_div_gt (fine * P i * M i + z - 1) z ltac:(lia)). lia.
Qed.

Lemma worst_line a c : (forall i, (i < m)%nat -> (a * N.to_nat (P i) * Mn i <= c * (N.to_nat (NN i) * N.to_nat (B i)))%nat) ->
  forall depth i Y, (i < m)%nat -> (a * Mn i * worst q depth i Y <= a * Mn i * N.to_nat (fixed depth i) + c * Y)%nat.
Proof.
  intros Hc. destruct formed as (_ & _ & Hpos & _). induction depth as [|depth IH]; intros i Y Hi; [cbn [worst]; lia|]. destruct (Hpos i Hi) as (HN & HB).
  set (k := (N.to_nat (g + 2 * P i) + N.to_nat (fold_right (fun c a => N.max (fixed depth c) a) 0%N (childrenN i)))%nat).
  assert (Ek : N.to_nat (fixed (S depth) i) = k) by (unfold k; cbn [fixed]; lia). rewrite Ek. clear Ek.
  (* each way to divide *)
  assert (H : forall x, (N.to_nat (B i) * x < Y)%nat ->
    (a * Mn i * (ends q i (S x) + list_max (map (fun c => worst q depth c (N.to_nat (F c) * (Y - N.to_nat (B i) * x))) (childrenN i))) <= a * Mn i * k + c * Y)%nat).
  { intros x Hx. rewrite Nat.mul_add_distr_l.
    assert (H1 : (a * Mn i * ends q i (S x) <= a * Mn i * N.to_nat (g + 2 * P i) + c * (N.to_nat (B i) * x))%nat).
    { unfold ends. rewrite sg_nat by auto. cbn [to_stage span crew lateness to_pipeline]. set (n := N.to_nat (NN i)) in *.
      assert (Hcd : (cdiv (S x) n <= x / n + 1)%nat).
      { unfold cdiv. replace (S x + n - 1)%nat with (x + 1 * n)%nat by lia. rewrite Nat.div_add by lia. lia. }
      pose proof (Nat.mul_div_le x n ltac:(lia)) as Hd. set (d := (x / n)%nat) in *.
      assert (H2 : (N.to_nat g + N.to_nat (P i) * (1 + cdiv (S x) n) <= N.to_nat (g + 2 * P i) + N.to_nat (P i) * d)%nat).
      { rewrite N2Nat.inj_add, N2Nat.inj_mul. change (N.to_nat 2) with 2%nat.
        pose proof (Nat.mul_le_mono_l _ _ (N.to_nat (P i)) Hcd). lia. }
      apply (Nat.mul_le_mono_l _ _ (a * Mn i)) in H2. etransitivity; [exact H2|]. rewrite Nat.mul_add_distr_l. apply Nat.add_le_mono_l.
      transitivity (c * (n * N.to_nat (B i)) * d)%nat.
      - replace (a * Mn i * (N.to_nat (P i) * d))%nat with (a * N.to_nat (P i) * Mn i * d)%nat by lia. apply Nat.mul_le_mono_r. now apply Hc.
      - replace (c * (n * N.to_nat (B i)) * d)%nat with (c * (N.to_nat (B i) * (n * d)))%nat by lia. now apply Nat.mul_le_mono_l, Nat.mul_le_mono_l. }
    set (r := (Y - N.to_nat (B i) * x)%nat) in *. set (top := fold_right (fun c a => N.max (fixed depth c) a) 0 (childrenN i)) in *.
    assert (H2 : (a * Mn i * list_max (map (fun c => worst q depth c (N.to_nat (F c) * r)) (childrenN i)) <= a * Mn i * N.to_nat top + c * r)%nat).
    { assert (Hall : forall b, In b (map (fun c => worst q depth c (N.to_nat (F c) * r)) (childrenN i)) -> (a * Mn i * b <= a * Mn i * N.to_nat top + c * r)%nat).
      { intros b Hb. apply in_map_iff in Hb as (j & <- & Hj). pose proof Hj as Hj'. apply child_in in Hj as (Hj & Hpar).
        assert (Htop : (N.to_nat (fixed depth j) <= N.to_nat top)%nat).
        { assert (fixed depth j <= top); [|lia]. unfold top. revert Hj'. generalize (childrenN i). intros l. induction l as [|z l IHl]; [intros []|].
          cbn [fold_right]. intros [->|Hin]; [lia|]. specialize (IHl Hin). lia. }
        pose proof (M_child j Hj) as EM. rewrite Hpar in EM.
        specialize (IH j (N.to_nat (F j) * r)%nat ltac:(lia)). rewrite EM, N2Nat.inj_mul in IH. set (f := N.to_nat (F j)) in *.
        destruct (Nat.eq_dec f 0) as [Ef|Ef].
        - rewrite Ef, Nat.mul_0_l, worst_none by lia. lia.
        - apply (Nat.mul_le_mono_pos_l _ _ f ltac:(lia)). set (w := worst q depth j (f * r)) in *. set (kj := N.to_nat (fixed depth j)) in *.
          pose proof (Nat.mul_le_mono_l _ _ (f * (a * Mn i)) Htop). lia. }
      generalize dependent (map (fun c => worst q depth c (N.to_nat (F c) * r)) (childrenN i)). intros l Hall.
      induction l as [|b l IHl]; [cbn; lia|]. change (list_max (b :: l)) with (Nat.max b (list_max l)). specialize (IHl ltac:(intros; apply Hall; now right)).
      pose proof (Hall b (or_introl eq_refl)). destruct (Nat.max_spec b (list_max l)) as [(_ & ->)|(_ & ->)]; auto. }
    unfold k. rewrite Nat.mul_add_distr_l. replace Y with (N.to_nat (B i) * x + r)%nat at 1 by (unfold r; lia). lia. }
  destruct (Nat.eq_dec (a * Mn i) 0) as [->|Hne]; [lia|].
  (* the worst of all *)
  set (z := ((a * Mn i * k + c * Y) / (a * Mn i))%nat).
  assert (Hz : (worst q (S depth) i Y <= z)%nat).
  { apply worst_within; auto. intros x Hx. unfold z. apply Nat.div_le_lower_bound; auto. }
  etransitivity; [apply Nat.mul_le_mono_l, Hz|]. unfold z. apply Nat.mul_div_le; auto.
Qed.

(** ** Source by source *)

Lemma in_time_sound sl from f room : forall es y, in_time_by sl from f room es y = true -> forall Y, y <= Y < y + N.of_nat (length es) ->
  exists e, (e <= from \/ alpha_m sl e < Y) /\ f Y <= e + room.
Proof.
  induction es as [|e es IH]; intros y H Y HY; [cbn in HY; lia|]. cbn [in_time_by] in H. rewrite !andb_true_iff, orb_true_iff, N.ltb_lt, !N.leb_le in H.
  destruct H as ((H1 & H2) & H3). destruct (N.eq_dec Y y) as [->|]; [now exists e|]. apply (IH _ H3). cbn [length] in HY. lia.
Qed.

Lemma last_sound sl f room : forall es y, in_time_by sl 0 f room es y = true -> es <> [] ->
  last es 0 = 0 \/ alpha_m sl (last es 0) < y + N.of_nat (length es) - 1.
Proof.
  induction es as [|e es IH]; intros y H Hne; [congruence|]. cbn [in_time_by] in H. rewrite !andb_true_iff, orb_true_iff, N.ltb_lt, N.leb_le in H. destruct H as ((H1 & _) & H3).
  destruct es as [|e' es]; [cbn [last length]; lia|]. specialize (IH _ H3 ltac:(discriminate)). change (last (e :: e' :: es) 0) with (last (e' :: es) 0). cbn [length] in *. lia.
Qed.

Lemma back sl e d : alpha_m sl e < alpha_m sl (d + 1) -> e <= d.
Proof. intros He. destruct (N.le_gt_cases e d); [auto|]. pose proof (Check.alpha_m_mono sl (d + 1) e ltac:(lia)). lia. Qed.

(** As many as have been looked at are in time, and where more come it is no sooner than at the last length. *)
Lemma begun_sound (w : N -> N) f room es : in_time_by ss 0 f room es 1 = true -> (forall y, 0 < y <= N.of_nat (length es) -> w y <= f y) ->
  forall d, 0 < alpha_m ss (d + 1) -> w (alpha_m ss (d + 1)) <= d + room \/ last es 0 <= d.
Proof.
  intros Hin Hw d Hd. set (Y := alpha_m ss (d + 1)) in *. destruct (N.le_gt_cases Y (N.of_nat (length es))) as [Hle|Hgt]; [left|right].
  - destruct (in_time_sound ss 0 f room es 1 Hin Y ltac:(lia)) as (e & He & Hf).
    assert (e <= d) by (destruct He; [lia|now apply (back ss)]). specialize (Hw Y ltac:(lia)). lia.
  - destruct es as [|e es]; [cbn; lia|]. destruct (last_sound ss f room _ 1 Hin ltac:(discriminate)) as [->|Hl]; [lia|]. apply (back ss). unfold Y in *. lia.
Qed.

Lemma looked_sound (w : N -> N) f k room es : looked f k room es = true ->
  (forall y, 0 < y <= N.of_nat (length es) -> w y <= f y) -> (forall y, fine * w y <= fine * k + cost * y) ->
  forall d, 0 < alpha_m ss (d + 1) -> w (alpha_m ss (d + 1)) <= d + room.
Proof.
  unfold looked. rewrite andb_true_iff. intros (Hin & Hend) Hw Hline d Hd. destruct (begun_sound w f room es Hin Hw d Hd) as [|Hx]; [auto|].
  set (Y := alpha_m ss (d + 1)) in *.
  set (x := last es 0) in *. clearbody x. unfold behind in Hend. cbv zeta in Hend. rewrite andb_true_iff, !N.leb_le in Hend. destruct Hend as (Ha & Hz).
    destruct formed as (_ & _ & _ & _ & Hs & _). pose proof (streams_above cost 1 d ss ltac:(lia) Hs) as Habove. fold Y in Habove.
    set (a := sumN (slope cost 1) ss) in *. set (z := sumN (fun s => slope cost 1 s * (shift (slowest (bounds s)) + every (slowest (bounds s)))) ss) in *.
    specialize (Hline Y). assert (Hf : 0 < fine) by (unfold fine; lia).
    apply (N.mul_le_mono_pos_l _ _ (fine * fine) ltac:(nia)).
    pose proof (N.mul_le_mono_l _ _ fine Hline) as H1. pose proof (N.mul_le_mono_r _ _ (d - x) Ha) as H2. replace d with (x + (d - x)) in * by lia.
    set (e := d - x) in *. clearbody e a z Y. generalize dependent fine. intros fine' H. intros. lia.
Qed.

Lemma looked_P2 fuel es t : tabled fuel m 0 (N.of_nat (length es)) = Some t -> looked (get t) (fixed m 0) (pallowed pr) es = true -> all_hit q.
Proof.
  intros Ht Hl. destruct formed as (Hsense & Hm & _). apply theorem_P2_burst; [auto|]. intros d Hd. rewrite curve_nat in *.
  replace (N.of_nat (d + 1)) with (N.of_nat d + 1) in * by lia. set (Y := alpha_m ss (N.of_nat d + 1)) in *. unfold burst. rewrite length_stages, Nat.sub_0_r.
  pose proof (looked_sound (fun y => N.of_nat (W m 0 y)) _ _ _ _ Hl) as H. cbn beta in H.
  specialize (H ltac:(intros y Hy; pose proof (tabled_sound fuel m 0 _ t Ht Hm y Hy); lia)).
  assert (Hline : forall y, fine * N.of_nat (W m 0 y) <= fine * fixed m 0 + cost * y).
  { intros y. pose proof (worst_line (N.to_nat fine) (N.to_nat cost)) as H1.
    specialize (H1 ltac:(intros i Hi; pose proof (cost_above i Hi); lia) m 0%nat (N.to_nat y) Hm). rewrite M_root in H1.
    change (N.to_nat 1) with 1%nat in H1. rewrite !Nat.mul_1_r in H1. lia. }
  specialize (H Hline (N.of_nat d) ltac:(unfold Y in Hd; lia)). cbn [allowed to_pipeline]. fold Y in H. lia.
Qed.

(** ** At capacity *)

Lemma whole_even h : whole h = true -> 0 < h /\ repeats ss [(gained h, h)] h = true /\
  even q (fun i => N.to_nat (M i)) (fun i => N.to_nat (M i * gained h / (NN i * B i))) (N.to_nat (gained h)) (N.to_nat h).
Proof.
  unfold whole. cbv zeta. rewrite andb_true_iff, forallb_forall. intros (Hr & Hall). destruct formed as (_ & _ & Hpos & _).
  split; [unfold repeats in Hr; rewrite !andb_true_iff, N.ltb_lt in Hr; tauto|]. split; [auto|].
  split; [now rewrite M_root|]. split.
  - intros i Hi. rewrite length_stages in Hi. rewrite sg_nat by lia. cbn [to_stage fan parent]. rewrite (M_child i Hi). lia.
  - intros i Hi. rewrite length_stages in Hi. destruct (Hpos i Hi) as (HN & HB). specialize (Hall i ltac:(apply in_seq; lia)).
    rewrite andb_true_iff, N.eqb_eq, N.leb_le in Hall. destruct Hall as (Hmod & Hh). rewrite sg_nat by auto. cbn [to_stage size crew span].
    pose proof (N.div_mod (M i * gained h) (NN i * B i) ltac:(nia)) as E. rewrite Hmod in E. set (a := M i * gained h / (NN i * B i)) in *. split; lia.
Qed.

Lemma repeated_sound f x h es len : repeated f (pallowed pr) x h es = true -> again_from x + N.of_nat (length es) <= len ->
  (forall y, 0 < y <= len -> (W m 0 y <= N.to_nat (f y))%nat) ->
  forall d, x <= d -> (W m 0 (alpha_m (map alone ss) (d + 1)) <= N.to_nat (d + pallowed pr))%nat.
Proof.
  unfold repeated. cbv zeta. rewrite !andb_true_iff, N.ltb_lt, N.leb_le. intros (((Hin & Hwhole) & Hfar) & Henough) Hlen Hw.
  destruct formed as (Hsense & Hm & _). destruct (whole_even h Hwhole) as (Hh & Hrep & Heven).
  set (z := again_from x + N.of_nat (length es)) in *.
  induction d as [d IH] using (well_founded_induction N.lt_wf_0). intros Hx. set (Y := alpha_m (map alone ss) (d + 1)) in *.
  assert (HY : again_from x <= Y) by (apply Check.alpha_m_mono; lia).
  destruct (N.lt_ge_cases Y z) as [Hlt|Hge].
  - destruct (N.eq_dec Y 0) as [->|HY0].
    { change (N.to_nat 0) with 0%nat. rewrite worst_none by auto. lia. }
    destruct (in_time_sound _ x f _ es _ Hin Y ltac:(lia)) as (e & He & Hf).
    assert (e <= d) by (destruct He; [lia|now apply (back (map alone ss))]). specialize (Hw Y ltac:(lia)). lia.
  - assert (Hd : x + h <= d) by (apply (back (map alone ss)); unfold Y in *; lia).
    specialize (IH (d - h) ltac:(lia) ltac:(lia)). set (Y0 := alpha_m (map alone ss) (d - h + 1)) in *.
    assert (EY : Y = Y0 + gained h).
    { unfold Y, Y0. replace (d + 1) with (d - h + 1 + h) by lia. rewrite (alpha_m_repeats _ _ _ _ Hrep) by lia. reflexivity. }
    assert (Hmany : (m * (N.to_nat (M 0) * N.to_nat (gained h)) <= N.to_nat Y0)%nat) by (rewrite M_root; change (N.to_nat 1) with 1%nat; lia).
    pose proof (worst_even q _ _ _ _ Hsense Heven m 0%nat (N.to_nat Y0) ltac:(rewrite length_stages; lia) Hmany) as H.
    cbv beta in H. rewrite M_root in H. change (N.to_nat 1) with 1%nat in H. rewrite Nat.mul_1_l in H. rewrite EY, N2Nat.inj_add. lia.
Qed.

Lemma looked_again fuel es h es' t : tabled fuel m 0 (N.max (N.of_nat (length es)) (again_from (last es 0) + N.of_nat (length es'))) = Some t ->
  in_time_by ss 0 (get t) (pallowed pr) es 1 = true -> repeated (get t) (pallowed pr) (last es 0) h es' = true -> all_hit q.
Proof.
  intros Ht Hin Hrep. destruct formed as (Hsense & Hm & _ & _ & Hs & _). pose proof (tabled_sound fuel m 0 _ t Ht Hm) as Htab.
  apply theorem_P2_burst; [auto|]. intros d Hd. rewrite curve_nat in *.
  replace (N.of_nat (d + 1)) with (N.of_nat d + 1) in * by lia. unfold burst. rewrite length_stages, Nat.sub_0_r. cbn [allowed to_pipeline].
  destruct (begun_sound (fun y => N.of_nat (W m 0 y)) (get t) (pallowed pr) es Hin) with (d := N.of_nat d) as [H|H].
  - intros y Hy. specialize (Htab y ltac:(lia)). lia.
  - lia.
  - lia.
  - pose proof (repeated_sound _ _ _ _ _ Hrep (N.le_max_r _ _) Htab (N.of_nat d) H) as Hend.
    pose proof (alone_le ss (N.of_nat d + 1) (fun s Hin => proj1 (proj2 (Hs s Hin)))) as Hal.
    etransitivity; [|etransitivity; [exact Hend|lia]]. apply (worst_mono q Hsense); [rewrite length_stages; lia|lia|lia].
Qed.

(** ** Stage by stage *)

Lemma served_line i y : (i < m)%nat -> fine * served i (M i * y) <= fine * (g + 3 * P i) + cost * y.
Proof.
  intros Hi. destruct formed as (_ & _ & Hpos & _). destruct (Hpos i Hi) as (HN & HB). pose proof (cost_above i Hi) as Hc. unfold served.
  set (x := M i * y). set (t := cdivN (cdivN x (B i)) (NN i)). set (r := NN i * B i) in *.
  assert (Ht : r * t <= x + 2 * r).
  { pose proof (cdivN_less x (B i) HB) as H1. pose proof (cdivN_less (cdivN x (B i)) (NN i) HN) as H2. fold t in H2.
    assert (H3 : B i * (t * NN i) <= B i * (cdivN x (B i) + NN i)) by (apply N.mul_le_mono_l; lia).
    pose proof (N.mul_le_mono_r 1 (NN i) (B i) ltac:(lia)). unfold r. lia. }
  assert (H : fine * P i * t <= fine * P i * 2 + cost * y).
  { apply (N.mul_le_mono_pos_l _ _ r ltac:(unfold r; nia)). pose proof (N.mul_le_mono_l _ _ (fine * P i) Ht) as H1.
    pose proof (N.mul_le_mono_r _ _ y Hc) as H2. unfold x in H1. set (z := fine * P i) in *. clearbody z t r. lia. }
  set (z := fine * P i) in *. replace (fine * (g + P i * (1 + t))) with (fine * g + z + z * t) by (unfold z; lia).
  replace (fine * (g + 3 * P i)) with (fine * g + 3 * z) by (unfold z; lia). lia.
Qed.

Lemma looked_P1 es rs : (forall i, (i < m)%nat -> looked (fun y => served i (M i * y)) (g + 3 * P i) (nth i rs 0) es = true) ->
  (forall i, (i < m)%nat -> reached_by rs m i <= pallowed pr) -> all_hit q.
Proof.
  intros Hl Hr. destruct formed as (Hsense & Hm & _ & Hup & _).
  assert (Hfuel : forall fuel fuel' i, (i < m)%nat -> (i <= fuel)%nat -> (i <= fuel')%nat -> reached_by rs fuel i = reached_by rs fuel' i).
  { induction fuel as [|fuel IH]; intros fuel' i Hi H H'.
    - replace i with 0%nat by lia. destruct fuel'; reflexivity.
    - destruct i as [|i]; [destruct fuel'; reflexivity|]. destruct fuel' as [|fuel']; [lia|]. cbn [reached_by].
      specialize (Hup (S i) ltac:(lia)). f_equal. apply IH; lia. }
  apply (theorem_P1 q (fun i => N.to_nat (M i)) (fun i => N.to_nat (nth i rs 0)) (fun i => N.to_nat (reached_by rs m i))); auto.
  - split; [now rewrite M_root|]. split.
    + destruct m; [lia|]. cbn [reached_by]. lia.
    + intros i Hi. rewrite length_stages in Hi. rewrite sg_nat by lia. cbn [to_stage fan parent]. rewrite (M_child i Hi). split; [lia|].
      rewrite (Hfuel m (S m) i) by lia. destruct i as [|i]; [lia|]. cbn [reached_by]. lia.
  - intros i d Hi Hd. rewrite length_stages in Hi. rewrite sg_nat by auto. cbn [to_stage size]. rewrite curve_nat in *.
    replace (N.of_nat (d + 1)) with (N.of_nat d + 1) in * by lia. rewrite <- N2Nat.inj_mul, ends_nat by auto.
    pose proof (looked_sound (fun y => served i (M i * y)) _ _ _ _ (Hl i Hi)) as H. cbn beta in H.
    specialize (H ltac:(intros; apply N.le_refl) ltac:(intros; now apply served_line) (N.of_nat d) ltac:(lia)). lia.
  - intros i Hi. rewrite length_stages in Hi. specialize (Hr i Hi). cbn [allowed to_pipeline]. lia.
Qed.

Lemma hit_promise : all_hit q -> pipeline_promise pr.
Proof.
  intros Hh. destruct formed as (Hsense & _ & _ & _ & _ & Hd). split; [auto|]. intros st Hr Hc k s mm K Hk Hin missed Hm i.
  apply (hit_keeps q st k (to_stream s) _ _ missed Hsense Hh Hr Hc); auto.
  - cbn [sources to_pipeline]. now rewrite nth_error_map, Hk.
  - specialize (Hd s mm K (nth_error_In _ _ Hk) Hin). cbn. lia.
Qed.
End Checker.

(** Of Theorem P2. *)
Theorem check_P2_sound pr fuel es e : check_P2 pr fuel es e = true -> pipeline_promise pr.
Proof.
  unfold check_P2. rewrite andb_true_iff. intros (Hf & H). apply hit_promise; auto. destruct e as [|h es'].
  - destruct (tabled _ _ _ _ _) as [t|] eqn:E; [|discriminate]. now apply (looked_P2 pr Hf fuel es t).
  - cbv zeta in H. destruct (tabled _ _ _ _ _) as [t|] eqn:E; [|discriminate]. apply andb_true_iff in H as (H1 & H2).
    now apply (looked_again pr Hf fuel es h es' t).
Qed.

(** Of Theorem P1. *)
Theorem check_P1_sound pr es rs : check_P1 pr es rs = true -> pipeline_promise pr.
Proof.
  unfold check_P1. rewrite !andb_true_iff, !forallb_forall. intros ((Hf & Hl) & Hr). apply hit_promise; auto.
  apply (looked_P1 pr Hf es rs); intros i Hi; [apply Hl|apply N.leb_le, Hr]; apply in_seq; lia.
Qed.
