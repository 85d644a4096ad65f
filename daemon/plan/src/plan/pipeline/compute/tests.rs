//! Tests of a pipeline's plan: no other batches would promise more, and what cannot be promised is refused by name.

use super::*;
use crate::config::Config;
use crate::plan::tests::plan_as_stated;

/// A pipeline of these stages, each with its parent, fan-out, workers, 0 to state none, and times in milliseconds; `more` is of the
/// pipeline.
fn config(more: &str, stages: &[(Option<usize>, u32, usize, &[u64])]) -> Config {
    let mut text = format!("[daemon]\nrealtime = false\n[[pipeline]]\nname = \"plate\"\n{more}\n");
    for (i, (after, fan_out, workers, times)) in stages.iter().enumerate() {
        let times: Vec<_> = times.iter().map(|ms| format!("\"{ms}ms\"")).collect();
        text += &format!(
            "[[pipeline.stage]]\nname = \"s{i}\"\nengine = \"simulated\"\nhandover = \"0s\"\n\
             simulated = {{ times = [{}], input = 4, output = 4 }}\n",
            times.join(", ")
        );
        if *workers > 0 {
            text += &format!("workers = {workers}\n");
        }
        if let Some(after) = after {
            text += &format!("after = \"s{after}\"\nfan-out = {fan_out}\n");
        }
        if *fan_out > 1 {
            text += "adapter = { each = { scores = \"output\", threshold = 0.5 }, inputs.input = { pass = \"source.input\" } }\n";
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).expect("written");
    Config::load(&path).expect("good")
}

/// Its plan where batches take just the times that are configured.
fn plan(config: &Config) -> Result<ServicePlan, PlanError> {
    plan_as_stated(config).map(|mut plan| plan.services.remove(0))
}

const PLATE: &str = "deadline = \"100ms\"\nguard = \"2ms\"\njitter = \"3ms\"\nconstraints = [{ any-miss = { m = 1, k = 5 } }]";
const TWO: &[(Option<usize>, u32, usize, &[u64])] =
    &[(None, 1, 1, &[5, 7, 9, 11]), (Some(0), 3, 2, &[4, 5, 6, 7, 8, 9])];

#[test]
fn no_other_batches_would_promise_more() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut promised, mut refused) = (0, 0);
    for case in 0..60 {
        let count = 2 + case % 2;
        // Of every other one the workers are open too.
        let all = if case % 4 < 2 { 0 } else { count as u64 + next(3) };
        let times: Vec<Vec<u64>> = (0..count)
            .map(|_| {
                let first = 1 + next(6);
                (0..1 + next(4))
                    .scan(first, |time, _| Some(std::mem::replace(time, *time + next(4))))
                    .collect()
            })
            .collect();
        let stages: Vec<_> = (0..count)
            .map(|i| {
                let after = (i > 0).then(|| next(i as u64) as usize);
                let workers = if all > 0 { 0 } else { 1 + next(2) as usize };
                (after, if i == 0 { 1 } else { 1 + next(3) as u32 }, workers, &times[i][..])
            })
            .collect();
        let reserved = match next(2) {
            0 => String::new(),
            _ => format!(
                "[[pipeline.stream]]\nname = \"cam\"\narrivals = [{{ window = {{ count = 2, length = \"{}ms\" }} }}]",
                60 + next(80)
            ),
        };
        let more = format!(
            "deadline = \"{}ms\"\nguard = \"1ms\"\nqueue = {}\nconstraints = [{{ any-miss = {{ m = {}, k = 3 }} }}]\n{reserved}",
            20 + next(60),
            3 + next(60),
            next(3)
        );
        let more = if all > 0 { format!("workers = {all}\n{more}") } else { more };
        let config = config(&more, &stages);
        let plan = match plan(&config) {
            Ok(plan) => plan,
            Err(
                PlanError::Path { .. }
                | PlanError::Reserved { .. }
                | PlanError::Unkept { .. }
                | PlanError::Queue { .. },
            ) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let service = &config.services[0];
        let sizes = plan.pipeline.as_ref().expect("a pipeline").stages.iter();
        let sizes: Vec<_> = sizes.map(|stage| vec![stage.runs.workers().clone()]).collect();
        let question = Question::new(service, &sizes).expect("as before");
        let set = ConstraintSet::new(&service.constraints).expect("one");
        let period = plan.rate.as_ref().and_then(|rate| rate.spare).map(|(period, _)| period);
        let step =
            (0..=STEPS).rev().find(|&step| step == 0 || Some(question.period(step)) == period).expect("0");
        let holds = |pipeline: &Pipeline, step: u64| {
            let load = question.load(&set, step).expect("it can be declared");
            question.open(&load) <= service.queue as u64 && pipeline.admit(&load).is_ok()
        };
        if step > 0 {
            promised += 1;
            assert!(holds(&plan.pipeline.as_ref().expect("a pipeline").pipeline, step), "{config:?}");
        }
        // At most the room that is left at capacity is given up.
        let chosen = &plan.pipeline.as_ref().expect("a pipeline").pipeline;
        let exact = question.with_room(chosen, set.density().as_f64(), step + 1) == Some(step + 1);
        let beyond = if exact { step + 1 } else { step + step / 256 + 1 };
        // Every choice there is.
        let choices = question.choices();
        let mut options = vec![0; choices.stages.len()];
        loop {
            let fits = choices.workers.is_none_or(|most| {
                most >= choices.pipeline(&options).stages.iter().map(|stage| stage.workers).sum()
            });
            assert!(
                !fits || beyond > STEPS || !holds(&choices.pipeline(&options), beyond),
                "{options:?} at {step} of {config:?}"
            );
            let Some(at) = (0..options.len()).find(|&i| options[i] + 1 < choices.stages[i].options.len())
            else {
                break;
            };
            options[at] += 1;
            options[..at].fill(0);
        }
    }
    assert!(promised >= 20 && refused >= 3, "{promised} of 60 promised, {refused} refused: nothing is shown");
}

#[test]
fn batches_that_are_stated_stay_and_a_split_promises_no_more() {
    let open = plan(&config(PLATE, TWO)).expect("it can be promised");
    let rate = open.rate.as_ref().and_then(RatePlan::per_second).expect("room");
    assert!(
        open.split_per_s().is_none_or(|split| split <= rate * 1.001),
        "{:?} of {rate}",
        open.split_per_s()
    );
    let mut fixed = config(PLATE, TWO);
    for stage in &mut fixed.services[0].stages {
        stage.runs.batch = Some(2);
    }
    let plan = plan(&fixed).expect("it can be promised");
    let pipeline = plan.pipeline.as_ref().expect("a pipeline");
    assert!(pipeline.stages.iter().all(|stage| stage.runs.workers().batch == 2));
    assert!(pipeline.pipeline.stages.iter().all(|stage| stage.batch == 2));
    let less = plan.rate.as_ref().and_then(RatePlan::per_second).expect("room");
    assert!(less <= rate * 1.001, "{less} of {rate}");
}

#[test]
fn workers_go_where_they_promise_most() {
    let open: Vec<_> = TWO.iter().map(|&(after, fan_out, _, times)| (after, fan_out, 0, times)).collect();
    let of = |more: &str| plan(&config(&format!("workers = 6\n{more}"), &open)).expect("it can be promised");
    let workers = |plan: &ServicePlan| {
        let staged = plan.pipeline.as_ref().expect("a pipeline");
        let told: Vec<_> = staged.stages.iter().map(|stage| stage.runs.workers().count).collect();
        assert!(staged.stages.iter().zip(&told).all(|(s, &n)| s.config.runs.workers == n && !s.config.open));
        assert!(staged.pipeline.stages.iter().zip(&told).all(|(stage, &n)| stage.workers == n));
        told
    };
    let promised = of(PLATE);
    assert!(workers(&promised).iter().sum::<usize>() <= 6 && workers(&promised)[1] > workers(&promised)[0]);
    // Nothing is to be chosen for.
    assert_eq!(workers(&of("deadline = \"1s\"")), [3, 3]);
    let three: Vec<_> = TWO.iter().map(|&(after, fan_out, _, times)| (after, fan_out, 3, times)).collect();
    let even = plan(&config(PLATE, &three)).expect("it can be promised");
    let rate = |plan: &ServicePlan| plan.rate.as_ref().and_then(RatePlan::per_second).expect("room");
    assert!(rate(&promised) >= rate(&even) * 0.999, "{} of {}", rate(&promised), rate(&even));
}

#[test]
fn what_is_carried_is_told_with_what_each_stage_adds() {
    let plan = plan(&config(PLATE, TWO)).expect("it can be promised");
    let carried = plan.carried().expect("something is promised");
    assert!(carried.admission.bound <= plan.config.deadline);
    assert!(carried.busy.iter().all(|&busy| busy > 0.0 && busy <= 1.0 + 1e-6), "{:?}", carried.busy);
    assert_eq!(carried.admission.responses.len(), 2);
    let pipeline = plan.pipeline.as_ref().expect("a pipeline");
    assert_eq!((pipeline.workers(), pipeline.stages[1].most), (3, 3));
    assert!(pipeline.stages[0].ways.is_empty() && pipeline.stages[1].ways.len() == 1);
    assert_eq!(plan.spec.outputs, pipeline.reply.outputs());
    assert_eq!(plan.spec.inputs, pipeline.stages[0].runs.spec.inputs);
    // Neither stage by itself promises anything.
    assert!(pipeline.stages.iter().all(|stage| stage.runs.rate.is_none() && stage.runs.admission.is_none()));
    let least = pipeline.stages.iter().map(|stage| stage.runs.capacity() / stage.most as f64);
    assert_eq!(plan.capacity(), least.fold(f64::INFINITY, f64::min));
}

/// As much less of the deadline promises as much, without a window; with one that is too short nothing is promised, and it is said why.
#[test]
fn what_stalls_may_take_is_kept_back_of_the_deadline() {
    let of = |deadline: u64, window: &str| {
        let stalls = match window {
            "" => String::new(),
            window => format!("stalls = {{ at-most = 2, in = \"{window}\", of = \"10ms\" }}\n"),
        };
        let asked = PLATE.replace("100ms", &format!("{deadline}ms"));
        plan(&config(&format!("{stalls}{asked}"), TWO))
    };
    let rate = |plan: &ServicePlan| plan.rate.as_ref().and_then(RatePlan::per_second).expect("room");
    let (plain, stalling) = (of(80, "").expect("without"), of(100, "1h").expect("with"));
    // Near capacity it takes long to catch up.
    assert!(rate(&stalling) > 0.95 * rate(&plain) && rate(&stalling) <= rate(&plain));
    let staged = stalling.pipeline.as_ref().expect("a pipeline");
    assert_eq!(
        (staged.pipeline.stalls, staged.pipeline.latency()),
        (stalling.config.stalls, Span::from_millis(80))
    );
    let carried = stalling.carried().expect("something is promised");
    let margin = staged.overrun_margin(&carried.admission);
    assert_eq!(carried.admission.bound + margin, Span::from_millis(80));
    let refused = of(100, "150ms").expect_err("too often").to_string();
    assert!(refused.contains("stalls must be so rare that a window of them covers"), "{refused}");
    let short = of(30, "1h").expect_err("20 of 30 are for stalls").to_string();
    assert!(short.contains("+ stalls"), "{short}");
}

#[test]
fn what_cannot_be_is_refused_by_stage_stream_and_constraint() {
    let refused = |more: &str| plan(&config(more, TWO)).expect_err("refused").to_string();
    assert_eq!(
        refused("deadline = \"12ms\"\nguard = \"2ms\""),
        "pipeline plate: deadline 12.0 ms is too short for one source: P(1) is s0 5.00 ms, s1 4.00 ms, and at each stage \
         dispatch may be late by 2.00 ms"
    );
    let stream = |length: u64| {
        format!(
            "deadline = \"100ms\"\nguard = \"2ms\"\n[[pipeline.stream]]\nname = \"slow\"\nconstraints = [{{ row-miss = 1 }}]\n\
             arrivals = [{{ window = {{ count = 1, length = \"1s\" }} }}]\n[[pipeline.stream]]\nname = \"fast\"\n\
             constraints = [{{ any-miss = {{ m = 0, k = 1 }} }}]\narrivals = [{{ window = {{ count = 9, length = \"{length}ms\" }} }}]"
        )
    };
    let rate = refused(&stream(10));
    assert!(
        rate.starts_with(
            "pipeline plate: the promise to stream fast, any_miss(0,1), cannot be kept: s0 would be busy to "
        ),
        "{rate}"
    );
    let late = refused(&stream(900).replace("100ms", "40ms"));
    assert!(
        late.starts_with(
            "pipeline plate: the promise to stream fast, any_miss(0,1), cannot be kept: a source may take "
        ) && late.contains(", the deadline is 40.0 ms: ")
            && late.contains(" request(s) at s1 take "),
        "{late}"
    );
    let never = refused("deadline = \"22ms\"\nguard = \"2ms\"\nconstraints = [{ row-miss = 0 }]");
    assert!(
        never.starts_with("pipeline plate: row_miss(0) cannot be promised at any rate: a source may take "),
        "{never}"
    );
    let queue = refused(&format!("queue = 4\n{}", stream(900)));
    assert_eq!(queue, "service plate: queue = 4, but up to 10 requests that must be served can wait");
}
