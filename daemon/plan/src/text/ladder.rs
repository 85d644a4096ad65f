//! The weaker promises behind those of streams, up to which rates they hold, and what would be left of them with a worker less.

use planner::Number;
use planner::certificate::{Case, Contingency};
use rt_core::{ArrivalCurve, Fallback, Level, Span, StreamSpec};
use serde_json::{Value, json};
use weir_os::pipe::say;

use crate::config::ReservedStream;
use crate::plan::ServicePlan;

pub(super) fn print(plan: &ServicePlan) {
    for stream in plan.config.reserved.iter().filter(|stream| !stream.spec.levels().is_empty()) {
        say!("  {}: {} up to {:.1} requests/s;", stream.name, stream.spec.constraints(), rate(&stream.spec));
        for (number, level) in (1..).zip(stream.spec.levels()) {
            let (set, rate) = (&level.constraints, level.arrivals.rate_per_s());
            say!("    beyond that level {number}, {set} up to {rate:.1} requests/s");
        }
        say!(
            "    a level is announced at the first request too many, and in force {}",
            later(in_force(plan))
        );
    }
    let (streams, contingencies) = plan.contingencies();
    for Contingency { case, max_load_scales } in &contingencies {
        let (others, alike) = match streams.len() {
            1 => ("", ""),
            _ => (" with the others at the same level", ", all as much faster or slower"),
        };
        match case {
            Case::WorkerLost => say!("  with one worker lost as much could be promised{alike}:"),
            Case::LongerBatches => say!("  if batches took 1.5 times as long{alike}:"),
        }
        for (name, spec) in &streams {
            let levels = (0..).zip(max_load_scales).take(spec.levels().len() + 1);
            let level = |(level, scale): (usize, &Number)| {
                format!("{} up to {:.1} requests/s", spec.constraints_at(level), scale.as_f64() * rate(spec))
            };
            say!("    {name}{others}: {}", levels.map(level).collect::<Vec<_>>().join(", "));
        }
    }
    for (case, told) in fallbacks(plan) {
        let what = match case {
            Case::WorkerLost => "with one worker lost",
            Case::LongerBatches => "with batches that take up to 1.5 times as long",
        };
        match told {
            Some((0, after)) => say!("  {what} all promises hold on, {}", later(after)),
            Some((level, after)) => {
                say!("  {what} level {level} of all promises is in force, {}", later(after));
            }
            None => say!("  {what} nothing is promised until that is over"),
        }
    }
}

/// As JSON, of each stream that has levels.
pub(super) fn json(plan: &ServicePlan) -> Value {
    let level = |level: &Level| {
        json!({
            "constraints": level.constraints.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "arrivals": level.arrivals.bounds().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "requests_per_s": level.arrivals.rate_per_s(),
        })
    };
    let ladder = |stream: &ReservedStream| {
        json!({
            "stream": stream.name,
            "levels": stream.spec.levels().iter().map(level).collect::<Vec<_>>(),
            "in_force_ns": in_force(plan).map(Span::as_nanos),
        })
    };
    let with_levels = plan.config.reserved.iter().filter(|stream| !stream.spec.levels().is_empty());
    with_levels.map(ladder).collect()
}

/// As JSON, what would be left of the levels: case by case, of each stream the rate at every level, that of its first promise first.
pub(super) fn contingencies_json(plan: &ServicePlan) -> Value {
    let (streams, contingencies) = plan.contingencies();
    let one = |told: &Contingency| {
        let rates = |(name, spec): &(String, StreamSpec)| {
            let scales = told.max_load_scales.iter().take(spec.levels().len() + 1);
            let rates: Vec<_> = scales.map(|scale| scale.as_f64() * rate(spec)).collect();
            json!({ "stream": name, "requests_per_s": rates })
        };
        json!({
            "case": told.case,
            "max_load_scales": told.max_load_scales,
            "streams": streams.iter().map(rates).collect::<Vec<_>>(),
        })
    };
    contingencies.iter().map(one).collect()
}

/// As JSON, what all promises fall back on, case by case.
pub(super) fn fallback_json(plan: &ServicePlan) -> Value {
    let one = |(case, told): (Case, Option<InForce>)| {
        let told =
            told.map(|(level, after)| json!({ "level": level, "in_force_ns": after.map(Span::as_nanos) }));
        json!({ "case": case, "falls_back": told })
    };
    fallbacks(plan).into_iter().map(one).collect()
}

/// The level that is in force, and how much later at most, if that is known.
type InForce = (usize, Option<Span>);

/// Of each case that promises may fall back in the level that is in force then, and how much later at most, if that is known.
fn fallbacks(plan: &ServicePlan) -> Vec<(Case, Option<InForce>)> {
    let streams = plan.foreseen();
    if streams.is_empty() || !plan.may_fall_back() {
        return Vec::new();
    }
    let specs = || streams.iter().map(|(_, spec)| spec);
    let fallbacks = plan.fallbacks(specs());
    let [lost, longer] = plan.system.times_to_fall_back(specs(), fallbacks);
    let told = |fallback: Option<Fallback>, after| fallback.map(|fallback| (fallback.level, after));
    let lost = (plan.worker_count() > 1).then(|| (Case::WorkerLost, told(fallbacks.worker_lost, lost)));
    lost.into_iter().chain([(Case::LongerBatches, told(fallbacks.longer_batches, longer))]).collect()
}

/// How long it takes at most until a weaker promise is in force, if that is known.
fn in_force(plan: &ServicePlan) -> Option<Span> {
    let streams = plan.foreseen();
    let specs = || streams.iter().map(|(_, spec)| spec);
    plan.system.time_to_calm(specs(), plan.tolerance(specs()))
}

/// When it is.
fn later(after: Option<Span>) -> String {
    after.map_or("once all that waits has been worked off".into(), |after| format!("{after} later at most"))
}

/// Requests a second that are declared.
fn rate(spec: &StreamSpec) -> f64 {
    spec.arrivals().map_or(0.0, ArrivalCurve::rate_per_s)
}

#[cfg(test)]
mod tests {
    use rt_core::{LatencyProfile, Workers};

    use super::*;
    use crate::config::Config;
    use crate::models::resolve_models;

    /// Of `count` workers with batches of one in 5 ms; one miss in ten, or five of them, or eight in a row.
    fn plan(count: usize, streams: &str) -> ServicePlan {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        let text = format!(
            "[[service]]\nname = \"s\"\nengine = \"simulated\"\nguard = \"1ms\"\njitter = \"0ms\"\ndeadline = \"40ms\"\n\
             simulated = {{ times = [\"5ms\"], input = 1, output = 1 }}\nconstraints = [{{ any-miss = {{ m = 1, k = 10 }} }}]\n\
             degraded = [[{{ any-miss = {{ m = 5, k = 10 }} }}], [{{ row-miss = 8 }}]]\n{streams}"
        );
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap();
        let spec = resolve_models(&config).unwrap().remove(0).remove(0);
        let profile = LatencyProfile::new(&[Span::from_millis(5)]).unwrap();
        ServicePlan::of(&config.services[0], &spec, "", &[Workers { count, batch: 1, profile }]).unwrap()
    }

    #[test]
    fn what_would_be_left_of_each_level_is_told_for_every_reserved_stream() {
        let stream = "[[service.stream]]\nname = \"cam\"\narrivals = [{ window = { count = 2, length = \"10ms\" } }]\n";
        let told = contingencies_json(&plan(2, stream));
        let rates = |case: usize| {
            let rates = told[case]["streams"][0]["requests_per_s"].as_array().unwrap();
            rates.iter().map(|rate| rate.as_f64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!((&told[0]["case"], &told[1]["case"]), (&"worker-lost".into(), &"longer-batches".into()));
        assert_eq!(told[0]["streams"][0]["stream"], "cam");
        // All of one worker's 200 a second: of nine in ten, of half and of one in nine.
        for (rate, most) in rates(0).into_iter().zip([200.0 / 0.9, 400.0, 1800.0]) {
            assert!(rate > 0.9 * most && rate <= most, "{rate} of {most}");
        }
        assert!(rates(1)[0] > rates(0)[0] && rates(1).is_sorted(), "{told}");
    }

    #[test]
    fn without_reserved_streams_the_promised_one_is_told_of() {
        let told = contingencies_json(&plan(2, ""));
        assert_eq!(told[0]["streams"][0]["stream"], "promised");
        assert_eq!(told[0]["streams"][0]["requests_per_s"].as_array().map(Vec::len), Some(3));
        assert_eq!(contingencies_json(&plan(1, ""))[0]["max_load_scales"], json!([0, 0, 0]));
    }

    #[test]
    fn what_promises_fall_back_on_is_told_case_by_case() {
        let camera = |count: usize| {
            format!(
                "[[service.stream]]\nname = \"cam\"\narrivals = [{{ window = {{ count = {count}, length = \"10ms\" }} }}]\n"
            )
        };
        let levels = |workers: usize, count: usize| {
            let told = fallback_json(&plan(workers, &camera(count)));
            let told = told.as_array().unwrap().clone();
            told.iter().map(|told| told["falls_back"]["level"].as_u64()).collect::<Vec<_>>()
        };
        // Of 200 a second one worker can do nine in ten; of 300 half, and with batches of 7.5 ms two workers do nine in ten of 200.
        assert_eq!(levels(2, 2), [Some(0), Some(0)]);
        assert_eq!(levels(2, 3), [Some(1), Some(1)]);
        // An only worker cannot be done without, nor need it be said.
        assert_eq!(levels(1, 1), [Some(0)]);
        let told = fallback_json(&plan(2, &camera(2)));
        assert!(told[0]["falls_back"]["in_force_ns"].as_u64() > Some(40_000_000), "{told}");
    }
}
