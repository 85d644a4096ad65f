(** The programs: [decide] for certificates, [advance] for logs, one event at a time. *)
Require Import Extraction ExtrOcamlBasic.
Require Import Check Decide Run.
Extraction Language OCaml.
Extraction "proved.ml" decide start advance.
