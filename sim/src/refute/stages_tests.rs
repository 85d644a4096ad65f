//! Refutations of pipelines: allowed, they show what they claim, and most refusals have one.

use planner::Question;
use serde_json::{Value, json};

use super::*;
use crate::{ReplayError, replay_pipeline};

fn staged(problem: &Value) -> PipelineProblem {
    match Question::parse(&problem.to_string()).unwrap_or_else(|error| panic!("{problem}: {error}")) {
        Question::Pipeline(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// A pipeline with two or three stages, batches of up to two, up to two workers, each result up to two requests; its stream
/// keeps no stage busy all the time. Whatever the deadline.
fn drawn(dice: &mut Dice, background: bool) -> Value {
    let stages = dice.within(2, 3);
    let stage = |i: u64, dice: &mut Dice| {
        let mut stage = json!({"name": format!("s{i}"), "workers": dice.within(1, 2), "batch": dice.within(1, 2),
            "time": dice.within(1, 5)});
        if i > 0 {
            stage["parent"] = json!(format!("s{}", dice.within(0, i - 1)));
            stage["fan_out"] = json!(dice.within(1, 2));
        }
        stage
    };
    let stages: Vec<_> = (0..stages).map(|i| stage(i, dice)).collect();
    let constraint =
        ["row_miss(0)", "row_miss(1)", "any_miss(1,3)", "any_miss(2,3)"][dice.within(0, 3) as usize];
    let stream = json!({"name": "cam", "constraints": [constraint],
        "arrivals": {"windows": [[dice.within(1, 4), dice.within(4, 40)]]}});
    json!({"unit": "ms", "background": background, "deadline": 1000, "pipeline": stages, "streams": [stream]})
}

/// Refused problems whose deadlines are `below` what would be admitted: by a millisecond, or any that could be met at all.
fn refused(dice: &mut Dice, background: bool, barely: bool) -> PipelineProblem {
    loop {
        let mut problem = drawn(dice, background);
        let read = staged(&problem);
        let case = Case::staged(&read);
        let pipeline = case.pipeline().expect("stages");
        let Ok(admission) = pipeline.admit(read.specs()) else { continue };
        let mut ends: Vec<u64> = Vec::new();
        for stage in &pipeline.stages {
            ends.push(stage.parents.first().map_or(0, |parent| ends[parent]) + stage.time.as_nanos());
        }
        let least = ends.into_iter().max().unwrap_or(0) / 1_000_000;
        let most = admission.bound.as_nanos() / 1_000_000 - 1;
        if most < least {
            continue;
        }
        problem["deadline"] = json!(if barely { most } else { dice.within(least, most) });
        return staged(&problem);
    }
}

/// Of so many refusals, how many have a violation and how many at least a mandatory miss.
fn shares(count: usize, seed: u64, background: bool, barely: bool) -> (usize, usize) {
    let mut dice = Dice(seed);
    let (mut violated, mut missed) = (0, 0);
    for _ in 0..count {
        let problem = refused(&mut dice, background, barely);
        let Some(refutation) = refute_pipeline(&problem) else { continue };
        let shown = replay_pipeline(&problem, &refutation).expect("as claimed");
        assert_eq!(shown.broken.shows, refutation.shows);
        assert!(shown.broken.waited.is_some());
        let broken = shown.report.streams.iter().flat_map(|stream| &stream.constraints).any(|c| !c.held);
        assert_eq!(broken, refutation.shows == Shows::Violation);
        match refutation.shows {
            Shows::Violation => violated += 1,
            Shows::MandatoryMiss => missed += 1,
        }
    }
    (violated, missed)
}

/// `WEIR_REFUSALS=n` looks at `n` of each kind.
#[test]
fn most_refusals_of_pipelines_are_refuted() {
    let count = std::env::var("WEIR_REFUSALS").ok().and_then(|count| count.parse().ok()).unwrap_or(5);
    for (background, barely, least) in
        [(true, false, Some(0.6)), (true, true, Some(0.4)), (false, false, None), (false, true, None)]
    {
        let (violated, missed) = shares(count, 1, background, barely);
        let below = if barely { "a millisecond below the bound" } else { "anywhere below the bound" };
        println!(
            "background {background}, deadlines {below}: of {count} refusals {violated} are shown by a violation, \
             {missed} more by a mandatory miss"
        );
        // Without background the theorems reckon with what cannot be there.
        if let Some(least) = least {
            assert!((violated + missed) as f64 >= least * count as f64, "{barely}: {violated} + {missed}");
        }
    }
}

/// What finds so much against refusals finds nothing against what is admitted.
#[test]
fn nothing_breaks_a_pipeline_that_is_admitted() {
    let mut dice = Dice(7);
    for _ in 0..2 {
        let mut problem = drawn(&mut dice, true);
        let read = staged(&problem);
        let admitted = Case::staged(&read).pipeline().and_then(|pipeline| pipeline.admit(read.specs()).ok());
        let Some(admission) = admitted else { continue };
        problem["deadline"] = json!(admission.bound.as_nanos() / 1_000_000);
        let problem = staged(&problem);
        assert_eq!(refute_pipeline(&problem), None, "it is admitted");
        assert_eq!(refuted(&Case::staged(&problem), 0, 1_000), None, "{problem:?}");
    }
}

/// Two frames may come at once; each is read in two places. The last is answered by 8, behind a stranger
/// at the first stage by 11, and by 13 if strangers are in the way at both.
fn by_hand(deadline: u64) -> PipelineProblem {
    staged(&json!({"unit": "ms", "background": true, "deadline": deadline, "pipeline": [
        {"name": "detect", "workers": 1, "batch": 1, "time": 3},
        {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}],
      "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 14]]}}]}))
}

#[test]
fn a_stranger_at_the_first_stage_is_shown_with_the_two_frames_behind_it() {
    assert_eq!(refute_pipeline(&by_hand(13)), None);
    let problem = by_hand(10);
    let refutation = refute_pipeline(&problem).expect("refuted");
    assert_eq!((refutation.shows, refutation.stream.as_str()), (Shows::Violation, "cam"));
    let of = |name: &str| refutation.arrivals.iter().filter(|(_, stream)| stream == name).count();
    assert!(
        of("cam") == 2 && of("detect/background") == 1 && refutation.arrivals.len() == 3,
        "{refutation:?}"
    );
    let shown = replay_pipeline(&problem, &refutation).expect("as claimed");
    let broken = &shown.broken;
    assert_eq!((broken.constraint.as_deref(), broken.misses), (Some("row_miss(0)"), 1));
    // A stranger's batch and that of the frame before are waited for at the first stage.
    let waited = broken.waited.as_ref().expect("it waited");
    assert_eq!((waited.source, waited.stage.as_str()), (broken.window.0, "detect"));
}

#[test]
fn sources_that_are_not_allowed_are_refused() {
    let problem = by_hand(10);
    let refutation = refute_pipeline(&problem).expect("refuted");
    let refused = |change: &dyn Fn(&mut Refutation)| {
        let mut other = refutation.clone();
        change(&mut other);
        replay_pipeline(&problem, &other).expect_err("refused").to_string()
    };
    let nowhere = refused(&|r| r.arrivals[0].1 = "write/background".to_owned());
    assert_eq!(
        nowhere,
        "arrival 0: stream \"write/background\" is none of the problem's, and of none of its stages, as stage/background"
    );
    let more = refused(&|r| {
        let last = r.arrivals.len();
        let cam = (0..last).rfind(|&i| r.arrivals[i].1 == "cam").expect("a frame");
        r.arrivals.insert(cam, r.arrivals[cam].clone());
    });
    assert!(more.contains("cam"), "{more}");
    let nothing = refused(&|r| r.arrivals.truncate(1));
    assert_eq!(nothing, "no violation of stream \"cam\" in 1 requests");
    let text = serde_json::to_string(&problem.raw).expect("a problem").replace("true", "false");
    let closed = staged(&serde_json::from_str(&text).expect("a problem"));
    assert!(matches!(replay_pipeline(&closed, &refutation), Err(ReplayError::Unknown { .. })));
}
