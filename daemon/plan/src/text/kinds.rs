//! What is planned for each kind of workers, where there are several, for people and as JSON.

use serde_json::{Value, json};
use weir_os::pipe::say;

use super::json::times_json;
use super::{print_levers, print_profiled};
use crate::plan::{KindPlan, RatePlan, ServicePlan};

/// The workers of each kind, and what each means for the promise.
pub(super) fn print(plan: &ServicePlan) {
    let (count, kinds) = (plan.worker_count(), plan.kinds.len());
    say!("  {count} workers of {kinds} kinds: {:.1} requests/s", plan.capacity());
    for KindPlan { runs, .. } in &plan.kinds {
        let (config, workers) = (&runs.config, runs.workers());
        say!(
            "    {}: {} worker(s) on {}, batches of B = {} in P = {}: {:.1} requests/s",
            config.kind_name(),
            workers.count,
            config.engine,
            workers.batch,
            workers.batch_time(),
            runs.capacity()
        );
        print_profiled(runs, "    ");
        print_levers(runs, "    ");
    }
    if let Some(KindPlan { runs, .. }) = plan.slowest_kind() {
        let (name, time) = (runs.config.kind_name(), runs.workers().batch_time());
        say!(
            "    a request that must be served may be in the longest of these batches: that of {name}, {time}"
        );
    }
    let promised = plan.rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0);
    for KindPlan { runs, without_per_s } in &plan.kinds {
        let Some(without) = without_per_s else { continue };
        let (workers, name) = (runs.workers(), runs.config.kind_name());
        say!(
            "    {} worker(s) of {name}, whose batches take {}, hold the promise to {promised:.1} requests/s: without them \
             {without:.1} could be promised",
            workers.count,
            workers.batch_time()
        );
    }
}

/// The same, with times in nanoseconds.
pub(super) fn json(plan: &ServicePlan) -> Value {
    let kind = |KindPlan { runs, without_per_s }: &KindPlan| {
        let workers = runs.workers();
        let mut json = json!({
            "name": runs.config.kind_name(),
            "engine": runs.config.engine.to_string(),
            "workers": workers.count,
            "batch": workers.batch,
            "batch_time_ns": workers.batch_time().as_nanos(),
            "max_batch": runs.max_batch(),
            "capacity_per_s": runs.capacity(),
            "without_per_s": without_per_s,
        });
        times_json(&mut json, workers);
        json
    };
    plan.kinds.iter().map(kind).collect()
}
