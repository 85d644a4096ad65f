(** The programs: [decide], [decide_shared] and [decide_pipeline] for certificates, [advance], [advance_shared] and [advance_pipeline] for
    logs, one event at a time, [log_in_time] and [log_hits] for a whole log. *)
Require Import Extraction ExtrOcamlBasic.
Require Import Check Decide Run SharedRun PipelineRun.
Extraction Language OCaml.
Extraction "proved.ml" decide decide_shared decide_pipeline start advance begin_shared advance_shared log_in_time begin_pipeline advance_pipeline log_hits.
