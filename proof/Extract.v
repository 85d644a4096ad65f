(** The programs: [decide] and [decide_shared] for certificates, [advance] for logs, one event at a time. *)
Require Import Extraction ExtrOcamlBasic.
Require Import Check Decide Run SharedDecide.
Extraction Language OCaml.
Extraction "proved.ml" decide decide_shared start advance.
