//! Tests of what a plan says of its measurement: the longest runs, what would help, which declaration would promise more.

use super::*;
use crate::config::Config;
use crate::models::resolve_models;
use crate::plan::Plan;
use crate::profile::{Cause, Causes, Disturbance, Fingerprint, Profile, Rule, Runs, Work};
use weir_engine::RunMode;

/// 14 097 runs of 1.4 ms for a batch of 1 and of 1.5 ms for a batch of 2, each 2 ms once; in one of those of 1, 29 ms after 12 s.
fn runs(causes: &[Cause]) -> [Runs; 2] {
    [1_400_000, 1_500_000].map(|ns| {
        let mut runs = Runs { times: vec![ns; 14_097], disturbed: Vec::new() };
        runs.times[77] = 2_000_000;
        if ns == 1_400_000 {
            runs.times[7_000] = 29_000_000;
            let causes = Causes::from(causes.to_vec());
            let at_ns = 12_000_000_000;
            runs.disturbed.extend((!causes.is_empty()).then_some(Disturbance { run: 7_000, at_ns, causes }));
        }
        runs
    })
}

fn plan(service: &str, runs: &[Runs]) -> Result<ServicePlan, PlanError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let text = format!(
        "[daemon]\nrealtime = false\n[[service]]\nname = \"s\"\nengine = \"simulated\"\nguard = \"2ms\"\nsimulated = {{ times = \
         [\"1ms\", \"1ms\"], input = 1, output = 1 }}\n{service}"
    );
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&path).unwrap();
    let models = resolve_models(&config).unwrap();
    let work = Work::new(&config, &models, false);
    let rule = Rule::new(1e-4, 0.1, false).unwrap();
    let modes = [RunMode::Simulated; 2];
    let mut profile = Profile::new(Fingerprint::current());
    profile.put(Entry::of_runs(&work.subjects[0], &modes, (runs, &[true; 2]), &rule, 1));
    Plan::of(&config, models, &profile).map(|mut plan| plan.services.remove(0))
}

const TIGHT: &str = "deadline = \"40ms\"\nconstraints = [{ any-miss = { m = 5, k = 10 } }]\n";
const LOOSE: &str = "deadline = \"200ms\"\nconstraints = [{ any-miss = { m = 5, k = 10 } }]\n";
const DECLARED: &str = "stalls = { at-most = 1, in = \"20s\", of = \"30ms\" }\n";

#[test]
fn where_one_stall_leaves_no_promise_the_refusal_says_what_to_declare() {
    let error = plan(TIGHT, &runs(&[Cause::Stolen])).unwrap_err().to_string();
    assert!(error.contains("cannot be promised at any rate"), "{error}");
    let wanted = "stalls = { at-most = 1, in = \"40s\", of = \"30ms\" } would declare the 1 that the profile saw, with P(";
    assert!(error.contains(wanted), "{error}");
    // Once it is declared the promise is there; nobody declares it but the user.
    let declared = plan(&format!("{TIGHT}{DECLARED}"), &runs(&[Cause::Stolen])).unwrap();
    assert!(declared.rate.as_ref().and_then(RatePlan::per_second).unwrap() > 100.0);
    assert_eq!((declared.proposal(), declared.workers().batch_time()), (None, Span::from_nanos(2_400_000)));
    assert_eq!(declared.config.handover, Span::from_nanos(200_000));
    // What the kernel did not see is no stall that anybody could declare.
    let error = plan(TIGHT, &runs(&[])).unwrap_err().to_string();
    assert!(!error.contains("would declare"), "{error}");
}

#[test]
fn a_plan_tells_the_longest_run_its_cause_and_what_helps() {
    let stolen = plan(LOOSE, &runs(&[Cause::Stolen])).unwrap();
    let (times, entry) = stolen.measured().unwrap();
    assert_eq!((times.max_ns, entry.stalls.unwrap().count), (29_000_000, 1));
    let proposal = stolen.proposal().unwrap();
    let now = stolen.rate.as_ref().and_then(RatePlan::per_second).unwrap();
    assert!(proposal.promised_per_s.unwrap() > 5.0 * now, "{proposal:?} instead of {now}");
    let levers = stolen.levers();
    let [host, exceedance] = &levers[..] else { panic!("{levers:?}") };
    assert!(host.contains("leaves the processor"), "{host}");
    assert!(exceedance.contains("--exceedance 0.001") && exceedance.contains("near 1.4"), "{exceedance}");

    let waited = plan(LOOSE, &runs(&[Cause::Waited])).unwrap().levers();
    assert!(
        waited[0].contains("real-time priority") && waited[1].contains("a guard of 26.8 ms"),
        "{waited:?}"
    );

    // Nothing was disturbed, so nothing of the machine helps; nor does a declaration.
    let unseen = plan(LOOSE, &runs(&[])).unwrap();
    assert_eq!((unseen.proposal(), unseen.levers().len()), (None, 1));
    let quiet = [vec![1_400_000; 14_097], vec![1_500_000; 14_097]];
    let quiet = plan(LOOSE, &quiet.map(|times| Runs { times, ..Runs::default() })).unwrap();
    assert_eq!((quiet.proposal(), quiet.levers()), (None, vec![]));
}

/// What is wanted of batches of 1 does not depend on what one batch of 2 once took.
#[test]
fn an_outlier_of_a_larger_batch_costs_the_smaller_one_no_rate() {
    let quiet = vec![1_400_000; 1_000];
    let times = |two: Vec<u64>| [quiet.clone(), two].map(|times| Runs { times, ..Runs::default() });
    let mut outlier = vec![1_500_000; 1_000];
    outlier[5] = 29_000_000;
    let one = format!("{TIGHT}batch = 1\n");
    let (with, without) = (plan(&one, &times(outlier)).unwrap(), plan(&one, &times(quiet.clone())).unwrap());
    let promised = |plan: &ServicePlan| plan.rate.as_ref().and_then(RatePlan::per_second);
    assert_eq!(with.workers().batch_time(), without.workers().batch_time());
    assert_eq!(promised(&with), promised(&without));
    assert!(promised(&with).unwrap() > 100.0);
}

#[test]
fn where_nothing_is_promised_a_bound_beyond_the_deadline_is_no_refusal() {
    let short = "deadline = \"20ms\"\n";
    let served = plan(short, &runs(&[Cause::Stolen])).unwrap();
    assert_eq!((served.workers().profile.bound(1), served.rate.is_none()), (served.system.latency, true));
    let refused = plan(
        &format!("{short}constraints = [{{ any-miss = {{ m = 5, k = 10 }} }}]\n"),
        &runs(&[Cause::Stolen]),
    );
    let refused = refused.unwrap_err().to_string();
    // Stalls of 30 ms leave nothing of it either, but constraints absorb them.
    assert!(
        refused.contains("leaves nothing of the deadline") && refused.contains("would declare"),
        "{refused}"
    );
}
