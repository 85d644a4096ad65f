(** The programs: [decide], [decide_shared] and [decide_pipeline] for certificates, [advance] and [advance_shared] for logs, one event
    at a time, [log_in_time] for a whole log. *)
Require Import Extraction ExtrOcamlBasic.
Require Import Check Decide Run SharedRun.
Extraction Language OCaml.
Extraction "proved.ml" decide decide_shared decide_pipeline start advance begin_shared advance_shared log_in_time.
