//! A plan for people, line by line: what can be promised, and why; as JSON in `text/json.rs`.

mod classes;
mod fused;
mod json;
mod kinds;
mod ladder;
mod pipeline;

use rt_core::sharing::Rule;
use rt_core::{Binding, ConstraintSet, Span};
use weir_os::pipe::say;

use crate::config::tight_classes;
use crate::models::run_singly;
use crate::plan::{Counts, DevicePlan, Plan, RatePlan, ServicePlan, Stalls, VariantPlan};
pub use json::{device_json, service_json};
pub use pipeline::tree;
use tracing::warn;

/// Prints a plan for people.
pub fn print_plan(plan: &Plan) {
    warn_of(&plan.mismatches());
    for line in &plan.other_company {
        warn!("{line}; run `weir profile` again");
    }
    let services: Vec<_> = plan.services.iter().map(|service| &service.config).collect();
    let idle = services.iter().flat_map(|service| service.idle_levels());
    for line in idle.chain(tight_classes(&services)) {
        warn!("{line}");
    }
    for line in &plan.unreached {
        warn!("{line}: its worker is lost until it is there");
    }
    plan.services.iter().for_each(print_service);
    plan.devices().into_iter().for_each(print_device);
}

/// Warns of each way in which this machine is not the one that was profiled.
pub fn warn_of(differences: &[String]) {
    for difference in differences {
        warn!("the machine is not as profiled: {difference}; run `weir profile` again");
    }
}

/// What the services of a device promise together, and what keeps them from larger batches.
fn print_device(device: &DevicePlan) {
    let DevicePlan { config, services, sharing, admission, limits, untried, model_bytes } = device;
    let rule = match sharing.rule {
        Rule::Earliest => "by earliest deadline (Theorem E)",
        Rule::Turns => "in turns (Theorem T)",
    };
    say!("device {}: {} worker(s) for {}, {rule}", config.name, config.workers, services.join(", "));
    if let Some(stalls) = &config.stalls {
        say!("  of each deadline {} are kept for stalls: {}", stalls.reserve(), declared(stalls));
    }
    for (name, service) in services.iter().zip(&sharing.services) {
        let turn = match sharing.rule {
            Rule::Earliest => String::new(),
            Rule::Turns => format!(", {} in a turn", service.turn),
        };
        say!("  {name}: batches of up to {} in {}{turn}", service.batch, service.time);
    }
    match admission.binding {
        None => say!("  nothing is reserved"),
        Some(line) => say!(
            "  tightest for {}, which may wait {}: batches may run over by {} in all and harm nobody",
            services[line.service],
            line.lhs,
            admission.overrun_margin()
        ),
    }
    say!(
        "  what nothing is promised for {}",
        match device.config.ahead {
            true => format!("goes before that where nobody is late for it, for up to {}", sharing.longest),
            false => "waits while anything else does".to_owned(),
        }
    );
    limits.iter().for_each(|line| say!("  {line}"));
    if *untried > 0 {
        say!(
            "  {untried} more combination(s) of batches were not looked at, which might leave more to promise: `batch` or \
             `max-batch` in a [[service]] leaves fewer to try"
        );
    }
    if *model_bytes > 0 {
        let megabytes = *model_bytes as f64 / 1e6;
        say!("  each worker loads all models: {megabytes:.1} MB of model files in all");
    }
}

fn print_service(plan: &ServicePlan) {
    if let Some(staged) = &plan.pipeline {
        return pipeline::print(plan, staged);
    }
    let (config, workers) = (&plan.config, plan.workers());
    let simulated = if plan.is_simulated() { " SIMULATED" } else { "" };
    match &plan.fused {
        Some(fused) => say!("{}: a pipeline of {} stage(s)", config.name, fused.stages.len()),
        None => say!("{}: {} on {}{simulated}", config.name, plan.spec.name, config.engines()),
    }
    say!("  deadline {} less guard δ {} leaves L = {}", config.deadline, config.guard, plan.system.latency);
    if let Some(stalls) = config.stalls {
        let declared = declared(&stalls);
        match (stalls.recovery(), stalls.spans(config.deadline)) {
            (Some(recovery), Some(spans)) => {
                say!("  constraints absorb stalls: {declared}, each up to {recovery} after it began");
                say!(
                    "    they hold for requests that come within {spans}; more stalls cost others as much again each"
                );
                say!("    no batch is longer than P then: no larger ones, and no variant but the first");
            }
            _ => say!("  of it {} are kept for stalls: {declared}", stalls.reserve()),
        }
        if let Some(otherwise) = &plan.otherwise {
            say!("    {otherwise}");
        }
    }
    let whose = plan
        .shared
        .as_ref()
        .map_or_else(String::new, |share| format!(" of device {}, shared", share.device.config.name));
    if !plan.kinds.is_empty() {
        kinds::print(plan);
    } else {
        say!(
            "  {} worker(s){whose}, batches of B = {} in P = {}: {:.1} requests/s",
            workers.count,
            workers.batch,
            workers.batch_time(),
            plan.capacity()
        );
    }
    fused::print(plan);
    if !config.background {
        say!("  closed (background = false): nothing is served that no stream declared");
    }
    if config.spread {
        say!(
            "  misses of what nothing is promised for are spread, and told by the deadline at the latest (best-effort = \"spread\")"
        );
    }
    print_tolerance(plan);
    if plan.shared.is_none()
        && plan.kinds.is_empty()
        && config.reserved.iter().any(|s| s.spec.demand().is_some())
    {
        say!(
            "  in a lull of the reserved streams a slower model may take a batch for up to {}",
            plan.headroom()
        );
    }
    print_variants(plan);
    classes::print(plan);
    match &plan.rate {
        Some(rate) => print_rate(plan, rate),
        None => say!("  no constraints of its own: streams bring theirs, or get best effort"),
    }
    print_expected(plan);
    print_profiled(plan, "");
    plan.proposal().iter().for_each(|proposal| say!("    {proposal}"));
    print_levers(plan, "");
    let reserved: Vec<_> = config.reserved.iter().map(|s| s.name.as_str()).collect();
    ladder::print(plan);
    match (reserved.is_empty(), plan.admission.as_ref().and_then(|admission| admission.binding)) {
        (true, _) => {}
        (false, None) if plan.shared.is_some() => say!("  reserved: {}", reserved.join(", ")),
        (false, None) => say!("  reserved: {} (best effort)", reserved.join(", ")),
        (false, Some(b)) => say!("  reserved: {}; tightest where {}", reserved.join(", "), binding(&b)),
    }
}

/// How early requests may come.
fn print_tolerance(plan: &ServicePlan) {
    let (most, reserved) = (plan.config.tolerance.most, reserved_tolerance(plan));
    match reserved {
        _ if most == Span::ZERO => {}
        Some(tolerance) => say!(
            "  tolerance: requests of the reserved streams may come up to {tolerance} early and harm nobody"
        ),
        None => {
            say!("  tolerance: requests may come up to {most} early, as far as admission leaves room for it");
        }
    }
}

/// The same, of the reserved streams alone; none if nothing is promised to these.
fn reserved_tolerance(plan: &ServicePlan) -> Option<Span> {
    let reserved = || plan.config.reserved.iter().map(|stream| &stream.spec);
    reserved().any(|spec| spec.demand().is_some()).then(|| plan.tolerance(reserved()))
}

/// What is served beside the promise, and what rare long times keep from being promised.
fn print_expected(plan: &ServicePlan) {
    // Of several kinds no batch is larger than the promise is computed for, as long as there is one.
    if !plan.kinds.is_empty() {
        return;
    }
    let (largest, share) = (plan.largest_batch(), 100.0 * plan.config.probability);
    let times = plan.workers().profile.time(largest);
    say!(
        "  of what waits, batches of up to {largest} are served: {share} % of these take at most {}, {} on average",
        times.likely,
        times.mean
    );
    let Some(Stalls { batch, likely, bound, capacity_per_s, promised_per_s }) = plan.stalls() else { return };
    say!(
        "  rare long times keep the promise to batches of B = {}: {share} % of batches of {batch} take at most {likely}, but \
         P({batch}) = {bound};",
        plan.workers().batch
    );
    let capacity = format!("a capacity of {capacity_per_s:.1} requests/s instead of {:.1}", plan.capacity());
    let promised = promised_per_s.map(|without| {
        let now = plan.rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0);
        format!("{without:.1} requests/s could be promised instead of {now:.1}, of ")
    });
    say!("    if no batch took longer than {share} % do, {}{capacity}", promised.unwrap_or_default());
}

/// What the bound was measured from.
fn print_profiled(plan: &ServicePlan, indent: &str) {
    let Some((times, _)) = plan.measured() else { return };
    let span = Span::from_nanos;
    let due =
        times.machine.map_or_else(|| "not watched".to_owned(), |machine| machine.longest[0].to_string());
    say!(
        "{indent}  profiled: of {} batches of {} half took {}, 99.9 % at most {}, the longest {} ({due})",
        times.samples,
        times.batch,
        span(times.p50_ns),
        span(times.p999_ns),
        span(times.max_ns)
    );
    if let Some(machine) = times.machine.filter(|machine| machine.disturbed > 0) {
        let causes: Vec<_> = machine.counts().map(|(cause, count)| format!("{count} {cause}")).collect();
        let others = match machine.longest_calm_ns {
            0 => "which are all".to_owned(),
            longest => format!("the longest of the others took {}", span(longest)),
        };
        say!("{indent}    {} were disturbed ({}), {others}", machine.disturbed, causes.join(", "));
    }
}

/// What would lower the bound.
fn print_levers(plan: &ServicePlan, indent: &str) {
    plan.levers().iter().for_each(|lever| say!("{indent}    what would help: {lever}"));
}

/// What each variant takes, and how many requests at once it may answer in a lull.
fn print_variants(plan: &ServicePlan) {
    let singly = plan
        .running()
        .map(|runs| run_singly(&runs.config, runs.variants.iter().map(|variant| &variant.spec)));
    singly.flatten().flatten().for_each(|line| say!("  {line}"));
    let (select, batch) = (plan.config.select.name(), plan.max_batch());
    if plan.variants.len() == 1 {
        return;
    }
    match plan.lull() {
        Ok(lull) => say!("  variants, select = {select}: in a lull a batch may take up to {lull}"),
        Err(error) => say!("  variants, but the base only beside the promised rate: {error}"),
    }
    for VariantPlan { spec, times, .. } in &plan.variants {
        let fits = match plan.lull().map_or(0, |lull| times.largest_within(lull, batch)) {
            0 => "never".to_owned(),
            size => format!("batches of up to {size}"),
        };
        // Whoever has variants has told how accurate they are.
        let (one, full, accuracy) = (times.bound(1), times.bound(batch), 100.0 * spec.accuracy);
        say!("    {:<16} {accuracy:>5.1}% right, P(1) = {one}, P({batch}) = {full}: {fits}", spec.name);
    }
}

/// What is promised, and what becomes of the other constraints.
fn print_standings(plan: &ServicePlan, rate: &RatePlan) {
    say!(
        "  promise {}: {} of {} requests must be served",
        rate.binding,
        rate.density.numerator(),
        rate.density.denominator()
    );
    let set = ConstraintSet::new(&plan.config.constraints).unwrap_or_default();
    for (constraint, standing) in set.standings().filter(|(c, _)| *c != rate.binding) {
        say!("    {constraint} {standing}");
    }
}

fn print_rate(plan: &ServicePlan, rate: &RatePlan) {
    print_standings(plan, rate);
    let time = plan.workers().batch_time();
    if let Some(Counts { count, upper, seed }) = rate.alone {
        say!(
            "    N* = {count} requests in any {time} (no policy can promise {}; the spread-drop paper promises {seed})",
            upper + 1
        );
    }
    let beside = if plan.config.reserved.is_empty() { "" } else { " beside the reserved ones" };
    match (rate.per_second(), rate.spare) {
        (Some(per_second), Some((_, tightest))) => {
            say!("    one stream{beside}, up to {} late: {per_second:.1} requests/s", plan.config.jitter);
            if let Some(b) = tightest {
                say!("    tightest where {}", binding(&b));
            }
            if rate.queue_limits {
                say!("    queue = {} is what limits it: workers and deadline allow more", plan.config.queue);
            }
        }
        _ => say!("    one stream{beside}: no room"),
    }
}

fn binding(b: &Binding) -> String {
    let margin = b.rhs.saturating_sub(b.lhs);
    format!("{} mandatory requests in {} take {} of {}, margin {margin}", b.backlog, b.delta, b.lhs, b.rhs)
}

/// What a service says of stalls.
fn declared(stalls: &rt_core::Stalls) -> String {
    format!("at most {} of {} in any {}", stalls.count(), stalls.length(), stalls.window())
}
