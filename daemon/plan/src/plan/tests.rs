//! Tests of a plan as a whole: whoever cannot be planned is named, each of them, in one go.

use super::*;
use crate::models::running;
use crate::profile::{Rule, Runs};
use weir_engine::RunMode;

/// A service with batches of 10 ms and this deadline, and what else is said of it.
fn service(name: &str, deadline_ms: u64, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nguard = \"1ms\"\nhandover = \"0ms\"\ndeadline = \"{deadline_ms}ms\"\n\
         simulated = {{ times = [\"10ms\"], input = 1, output = 1 }}\nconstraints = [{{ row-miss = 0 }}]\n{more}"
    )
}

/// The plan of `config` where batches take just the times that are configured.
pub(super) fn plan_as_stated(config: &Config) -> Result<Plan, PlanError> {
    let (models, mut profile) = (resolve_models(config)?, Profile::new(Fingerprint::current()));
    for runs in running(config, &models) {
        let times = runs.config.model.simulated_times(0).unwrap_or_default();
        let bounds: Vec<u64> = times.iter().map(|time| time.bound).collect();
        let timed = runs.timed(&runs.specs[0]);
        let entry = Entry::of_simulated(&runs.specs[0], &bounds);
        profile.put(Entry { model: timed.name, sha256: timed.identity, ..entry });
    }
    Plan::of(config, models, &profile)
}

fn plan(services: &[String]) -> Result<Plan, PlanError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let services = services.concat();
    let device = if services.contains("device") { "[[device]]\nname = \"d\"\n" } else { "" };
    std::fs::write(&path, format!("[daemon]\nrealtime = false\n{device}{services}")).unwrap();
    let config = Config::load(&path).unwrap();
    let models = resolve_models(&config).unwrap();
    let work = Work::new(&config, &models, false);
    let rule = Rule::new(1e-3, 0.1, false).unwrap();
    let runs = Runs { times: vec![10_000_000; 5_000], ..Runs::default() };
    let mut profile = Profile::new(Fingerprint::current());
    for subject in &work.subjects {
        profile.put(Entry::of_runs(
            subject,
            &[RunMode::Simulated],
            (std::slice::from_ref(&runs), &[true]),
            &rule,
            1,
        ));
    }
    Plan::of(&config, models, &profile)
}

#[test]
fn all_that_cannot_be_planned_is_named_at_once() {
    let on_device = |name, deadline| service(name, deadline, "device = \"d\"\n");
    let reserved = "[[service.stream]]\nname = \"r\"\nconstraints = [{ row-miss = 0 }]\narrivals = [{ window = { count = 2, length = \"10ms\" } }]\n";
    let all = [
        on_device("shared", 40),
        on_device("other", 40) + reserved,
        service("fine", 40, ""),
        service("tight", 15, ""),
        service("tighter", 10, ""),
    ];
    let error = plan(&all).unwrap_err();
    let PlanError::Several(each) = &error else { panic!("{error}") };
    assert!(matches!(
        each[..],
        [PlanError::Device { .. }, PlanError::Never { .. }, PlanError::Deadline { .. }]
    ));
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("device d: not every promise can be kept: "), "{text}");
    assert!(lines[1].starts_with("service tight: row_miss(0) cannot be promised at any rate: "), "{text}");
    assert!(lines[2].starts_with("service tighter: P(1) = "), "{text}");
    // One alone is told as itself, and without them there is a plan.
    assert!(matches!(plan(&all[2..4]).unwrap_err(), PlanError::Never { .. }));
    assert_eq!(plan(&all[2..3]).unwrap().services.len(), 1);
}
