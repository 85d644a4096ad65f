//! The stages of a pipeline on a device, which one batch runs one behind the other, as text.

use serde_json::{Value, json};
use weir_os::pipe::say;

use super::print_profiled;
use crate::plan::{ServicePlan, StagePlan};

/// Prints what each stage has of a batch, if it is such a pipeline.
pub(super) fn print(plan: &ServicePlan) {
    let Some(fused) = &plan.fused else { return };
    let sources = plan.workers().batch;
    say!("  each batch runs all {} stages, one behind the other:", fused.stages.len());
    for (number, (stage, depth)) in fused.stages.iter().zip(plan.config.depths()).enumerate() {
        let (runs, indent) = (&stage.runs, "  ".repeat(depth));
        let simulated = if runs.is_simulated() { " SIMULATED" } else { "" };
        let answers = if stage.config.answers { "; in the answer" } else { "" };
        say!(
            "{indent}  {}: {} on {}{simulated}: up to {} request(s), in batches of up to {}, take {}{answers}",
            runs.config.name,
            runs.spec.name,
            runs.config.engine,
            stage.most * sources,
            runs.workers().batch,
            fused.bound(number, stage.most * sources)
        );
        print_profiled(runs, &format!("{indent}  "));
    }
}

/// The same as JSON, times in nanoseconds; null of anything else.
pub(super) fn json(plan: &ServicePlan) -> Value {
    let Some(fused) = &plan.fused else { return Value::Null };
    let sources = plan.workers().batch;
    let stage = |(number, stage): (usize, &StagePlan)| {
        let parents = stage.config.after.iter().map(|parent| &fused.stages[parent].runs.config.name);
        json!({
            "name": stage.runs.config.name,
            "parents": parents.collect::<Vec<_>>(),
            "join": stage.config.after.is_join(),
            "fan_out": stage.config.fan_out,
            "mean": stage.config.mean,
            "most": stage.most,
            "answers": stage.config.answers,
            "model": stage.runs.spec.name,
            "engine": stage.runs.config.engine.to_string(),
            "simulated": stage.runs.is_simulated(),
            "batch": stage.runs.workers().batch,
            "time_ns": fused.bound(number, stage.most * sources).as_nanos(),
        })
    };
    fused.stages.iter().enumerate().map(stage).collect()
}
