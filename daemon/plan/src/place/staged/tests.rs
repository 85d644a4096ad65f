//! Tests of placing pipelines: small boxes against every way to serve them, what is written, what is measured and what is refused.

mod shared;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::tests::{LIMIT, load, mean, site};
use super::*;
use crate::config::Config;
use crate::place::{Placement, Reason, measured};

/// A detector whose results are read, beside a service, on two classes.
const BOX: &str = r#"
    [daemon]
    realtime = false
    [placement]
    [[placement.class]]
    name = "fast"
    engine = "simulated"
    count = 3
    [[placement.class]]
    name = "slow"
    engine = "simulated"
    count = 2
    [[service]]
    name = "other"
    simulated.models = [
        { accuracy = 0.6, times = { slow = ["10ms"] } },
        { accuracy = 0.8, times = { fast = ["8ms"] } },
    ]
    demand = 20.0
    deadline = "60ms"
    handover = "0ms"
    [[pipeline]]   # what sees
    name = "meter"
    deadline = "120ms"
    guard = "2ms"
    demand = 20.0
    value = 2.0
    [[pipeline.stream]]
    name = "cam"
    constraints = [{ any-miss = { m = 1, k = 5 } }]
    arrivals = [{ periodic = { period = "50ms" } }]
    [[pipeline.stage]]
    name = "detect"
    handover = "0ms"
    simulated.input = 4
    simulated.output = 4
    simulated.models = [
        { accuracy = 0.7, times = { fast = ["5ms", "8ms"], slow = ["15ms"] } },
        { accuracy = 0.9, times = { fast = ["20ms", "30ms"] } },
    ]
    [[pipeline.stage]]
    name = "read"   # what they say
    after = "detect"
    fan-out = 3
    mean = 1.5
    handover = "0ms"
    adapter = { each = { scores = "output", threshold = 0.5 }, inputs.input = { pass = "source.input" } }
    simulated.input = 4
    simulated.output = 4
    simulated.models = [
        { accuracy = 0.8, times = { fast = ["3ms", "4ms", "5ms"], slow = ["9ms", "14ms", "20ms"] } },
        { accuracy = 0.95, times = { fast = ["12ms", "17ms", "22ms"] } },
    ]
"#;

/// Every number of devices of every class for every stage, with each model alone, or all stages on the devices of a class that is shared; of
/// a service with every set of its models, but on devices that are shared.
fn ways(site: &Site, service: &ServiceConfig) -> Vec<Vec<Placed>> {
    let classes = || 0..site.placement.classes.len();
    if service.stages.is_empty() {
        return product(site, service, |_| true);
    }
    let shared = classes().filter(|&class| site.placement.classes[class].shared);
    let shared = shared.flat_map(|class| product(site, service, move |of| of == class));
    let own = product(site, service, |class| !site.placement.classes[class].shared);
    own.into_iter().chain(shared).collect()
}

fn product(site: &Site, service: &ServiceConfig, on: impl Fn(usize) -> bool) -> Vec<Vec<Placed>> {
    let mut all: Vec<Vec<Placed>> = vec![Vec::new()];
    for runs in service.running() {
        let of = runs.candidates.as_ref().expect("all are placed");
        let mut some = Vec::new();
        for class in of.classes.iter().copied().filter(|&class| on(class)) {
            for set in 1u32..1 << of.models.count() {
                let models: Vec<usize> =
                    (0..of.models.count()).filter(|model| set >> model & 1 == 1).collect();
                let shared = site.placement.classes[class].shared;
                let is_one = (service.stages.is_empty() && !shared) || models.len() == 1;
                if !is_one || of.models.choice(class, &models).is_none() {
                    continue;
                }
                let devices = if shared { 0..=0 } else { 1..=site.placement.classes[class].devices };
                some.extend(devices.map(|devices| Placed { class, devices, models: models.clone() }));
            }
        }
        all = all
            .iter()
            .flat_map(|before| some.iter().map(|one| [&before[..], std::slice::from_ref(one)].concat()))
            .collect();
    }
    all
}

/// The most accurate mean answer of all ways to serve a box: each is written down, read and planned.
fn tried(site: &Site) -> Option<f64> {
    let ways: Vec<_> = site.config.services.iter().map(|service| ways(site, service)).collect();
    let mut picks = vec![0; ways.len()];
    let mut best: Option<f64> = None;
    loop {
        let chosen: Vec<&Vec<Placed>> = ways.iter().zip(&picks).map(|(ways, &pick)| &ways[pick]).collect();
        if let Some(accuracy) = accuracy(site, &chosen) {
            best = Some(best.map_or(accuracy, |best| best.max(accuracy)));
        }
        let Some(next) = (0..picks.len()).find(|&s| picks[s] + 1 < ways[s].len()) else { return best };
        picks[..next].fill(0);
        picks[next] += 1;
    }
}

fn accuracy(site: &Site, chosen: &[&Vec<Placed>]) -> Option<f64> {
    for (class, of) in site.placement.classes.iter().enumerate() {
        let on = chosen.iter().copied().flatten().filter(|placed| placed.class == class);
        if on.map(|placed| placed.devices).sum::<usize>() > of.devices {
            return None;
        }
    }
    let part = |placed: &Placed| Part {
        placed: placed.clone(),
        units: Vec::new(),
        shares: Vec::new(),
        busy: Vec::new(),
    };
    let spot = |all: &&Vec<Placed>| Some(Spot { accuracy: 0.0, parts: all.iter().map(part).collect() });
    let complete = site.complete(&chosen.iter().map(spot).collect::<Vec<_>>()).ok()?;
    let (mut sum, mut whole, mut load) = (0.0, 0.0, 0.0);
    for ((plan, placed), &demand) in complete.plan.services.iter().zip(chosen).zip(&site.demand) {
        let planned = demand * site.placement.headroom;
        let of = match &plan.pipeline {
            None if placed[0].devices == 0 => {
                let latency = plan.config.deadline.saturating_sub(plan.config.guard);
                let sizes = plan.workers().batch..=plan.largest_batch().max(plan.workers().batch);
                let sizes = sizes.filter(|&b| plan.workers().profile.bound(b) <= latency);
                let each = sizes.map(|b| takes(plan, b) / b as f64);
                load += planned * each.fold(f64::INFINITY, f64::min);
                match plan.stages() {
                    [] => 100.0 * plan.spec.accuracy,
                    _ => 100.0 * of_a_path(plan),
                }
            }
            None => mean(plan, planned, placed[0].devices)?,
            Some(pipeline) => {
                // By hand, for trees: what a source becomes.
                let mut becomes: Vec<f64> = Vec::new();
                for stage in &pipeline.stages {
                    let parent = stage.config.after.iter().next();
                    becomes.push(parent.map_or(1.0, |parent| becomes[parent] * stage.config.mean));
                    let workers = stage.runs.workers();
                    let each = workers.batch_time().as_secs_f64() / workers.batch as f64;
                    if planned * becomes[becomes.len() - 1] * each > workers.count as f64 * (1.0 + 1e-9) {
                        return None;
                    }
                }
                100.0 * of_a_path(plan)
            }
        };
        let value = site.config.services[plan_place(site, plan)].worth().expect("all are placed").1;
        sum += demand * value * of;
        whole += demand * value;
    }
    let room = site.placement.classes.iter().find(|class| class.shared).map_or(0, |class| class.devices);
    (load <= room as f64 + 1e-9).then_some(sum / whole)
}

/// What a batch of so many takes on shared devices, in seconds: of a pipeline all that they become on average, at each stage in the batches
/// that together take least.
fn takes(plan: &ServicePlan, batch: usize) -> f64 {
    if plan.stages().is_empty() {
        return plan.workers().profile.bound(batch).as_secs_f64();
    }
    let mut becomes: Vec<f64> = Vec::new();
    let mut all = 0.0;
    for stage in plan.stages() {
        let parent = stage.config.after.iter().next();
        becomes.push(parent.map_or(1.0, |parent| becomes[parent] * stage.config.mean));
        let times = &stage.runs.workers().profile;
        let requests = (batch as f64 * becomes[becomes.len() - 1]).ceil() as usize;
        let mut least = vec![0.0];
        for requests in 1..=requests {
            // Sources are one batch.
            let firsts =
                if parent.is_none() { requests..=requests } else { 1..=requests.min(times.max_batch()) };
            let of = |first: usize| times.bound(first).as_secs_f64() + least[requests - first];
            least.push(firsts.map(of).fold(f64::INFINITY, f64::min));
        }
        all += least[requests];
    }
    all
}

/// The mean accuracy of what is on the way to each last stage, of a tree.
fn of_a_path(plan: &ServicePlan) -> f64 {
    let mut right: Vec<f64> = Vec::new();
    for stage in plan.stages() {
        let parent = stage.config.after.iter().next();
        right.push(parent.map_or(1.0, |parent| right[parent]) * stage.runs.spec.accuracy);
    }
    let is_last = |&i: &usize| !plan.stages().iter().any(|stage| stage.config.after.has(i));
    let ends: Vec<f64> = (0..right.len()).filter(is_last).map(|i| right[i]).collect();
    ends.iter().sum::<f64>() / ends.len() as f64
}

fn plan_place(site: &Site, plan: &ServicePlan) -> usize {
    site.config.services.iter().position(|service| service.name == plan.config.name).expect("it is there")
}

/// A pipeline of two or three stages, every other time beside services, which share the slow devices every fourth time.
fn thrown(seed: u64) -> String {
    let mut dice = StdRng::seed_from_u64(seed);
    let stages = if seed % 3 == 2 { 3 } else { 2 };
    let mut text = format!(
        "[daemon]\nrealtime = false\n[placement]\nheadroom = 1.2\n\
         [[placement.class]]\nname = \"fast\"\nengine = \"simulated\"\ncount = {}\n\
         [[placement.class]]\nname = \"slow\"\nengine = \"simulated\"\ncount = {}\nshared = {}\n",
        dice.random_range(2..=3),
        dice.random_range(1..=2),
        seed.is_multiple_of(4),
    );
    let models = |dice: &mut StdRng, count: usize| {
        let (mut time, mut accuracy) = (dice.random_range(10..60u64), dice.random_range(0.3..0.5));
        let list = (0..count).map(|_| {
            let slow = time * dice.random_range(12..30) / 10;
            let more = dice.random_range(3..10);
            let both = |time: u64| format!("\"{time}00us\", \"{}00us\"", time + time * more / 10);
            let model = format!(
                "{{ accuracy = {accuracy:.4}, times = {{ fast = [{}], slow = [{}] }} }}",
                both(time),
                both(slow)
            );
            time = time * dice.random_range(12..40) / 10;
            accuracy += dice.random_range(0.05..0.2);
            model
        });
        list.collect::<Vec<_>>().join(", ")
    };
    let services: &[&str] = match seed % 4 {
        0 => &["one", "other"],
        2 => &["other"],
        _ => &[],
    };
    for name in services {
        let (deadline, demand) = (dice.random_range(20..90), dice.random_range(5..60));
        text += &format!(
            "[[service]]\nname = \"{name}\"\nguard = \"1ms\"\nhandover = \"0ms\"\ndeadline = \"{deadline}ms\"\ndemand = {demand}\n\
             simulated.models = [{}]\n",
            models(&mut dice, 2)
        );
    }
    let period = dice.random_range(20..90);
    let demand = 1000.0 / f64::from(period) * dice.random_range(0.3..1.5);
    text += &format!(
        "[[pipeline]]\nname = \"p\"\nguard = \"1ms\"\ndeadline = \"{}ms\"\ndemand = {demand:.2}\nvalue = {}\n",
        dice.random_range(40..160),
        dice.random_range(1..4)
    );
    if dice.random_bool(0.8) {
        text += &format!(
            "[[pipeline.stream]]\nname = \"s\"\nconstraints = [{{ any-miss = {{ m = {}, k = 4 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"{period}ms\", jitter = \"{}ms\" }} }}]\n",
            dice.random_range(0..3),
            dice.random_range(0..60)
        );
    }
    for stage in 0..stages {
        text += &format!(
            "[[pipeline.stage]]\nname = \"s{stage}\"\nhandover = \"0ms\"\nsimulated = {{ input = 4, output = 4, models = [{}] }}\n",
            models(&mut dice, 2)
        );
        if stage > 0 {
            let fan_out = dice.random_range(1..=3u32);
            text += &format!(
                "after = \"s{}\"\nfan-out = {fan_out}\nmean = {:.2}\n\
                 adapter = {{ each = {{ scores = \"output\", threshold = 0.5 }}, inputs.input = {{ pass = \"source.input\" }} }}\n",
                dice.random_range(0..stage),
                f64::from(fan_out) * dice.random_range(0.3..1.0)
            );
        }
    }
    text
}

/// The placement of a box, which is as good as the best of all; `None` if there is none.
fn placed_as_by_trying(text: &str) -> Option<Placement> {
    let site = site(text);
    let placement = site.solve(LIMIT).expect("it is profiled");
    let found = placement.accuracy.filter(|_| placement.feasible);
    let best = tried(&site);
    assert_eq!(found.is_some(), best.is_some(), "{found:?} for {best:?}\n{text}");
    let Some((found, best)) = found.zip(best) else {
        assert_ne!(placement.reason, Some(Reason::Time), "{text}");
        return None;
    };
    assert!((found - best).abs() <= 0.001, "{found} for {best}\n{text}");
    assert!(placement.bound.is_some_and(|bound| (bound - best).abs() <= 0.001), "{text}");
    Some(placement)
}

#[test]
fn boxes_with_pipelines_are_placed_as_well_as_by_trying_every_way() {
    let (mut fit, mut shared, mut refused) = (0, 0, 0);
    for seed in 0..28 {
        let Some(placement) = placed_as_by_trying(&thrown(seed)) else {
            refused += 1;
            continue;
        };
        fit += 1;
        let mut parts = placement.spots.iter().flatten().flat_map(|spot| &spot.parts);
        shared += usize::from(parts.any(|part| part.placed.devices == 0));
    }
    assert!(
        fit >= 8 && shared >= 1 && refused >= 3,
        "{fit} fit, {shared} share, {refused} do not: the dice say too little"
    );
}

#[test]
fn what_is_written_is_a_box_again_that_is_served_as_it_is() {
    let placement = site(BOX).solve(LIMIT).expect("it is profiled");
    assert_eq!(placement.changes, ["other", "meter"]);
    let text = placement.complete.as_ref().expect("it fits").text.clone();
    for kept in ["# what sees", "# what they say", "simulated.models = [\n", "mean = 1.5", "value = 2.0"] {
        assert!(text.contains(kept), "{kept} is not in\n{text}");
    }
    let config = Config::parse(std::path::Path::new("weir.toml"), &text).expect("nothing is open");
    let pipeline = &config.services[1];
    let places = pipeline.places().expect("each stage is placed");
    let parts = placement.spots[1].as_ref().map(|spot| spot.parts.iter().map(|part| part.placed.clone()));
    assert_eq!(Some(places), parts.map(Iterator::collect));
    assert!(pipeline.candidates.is_none() && pipeline.is_placed() && !pipeline.is_open());
    let again = site(&text).solve(LIMIT).expect("it is profiled");
    assert_eq!((again.changes.len(), again.accuracy), (0, placement.accuracy), "{text}");
    assert_eq!(again.complete.expect("it fits").text, text);
    // The plan of what is written is what was planned.
    let served = site(&text).served().expect("it is planned").expect("nothing is open");
    assert!(served.services[1].pipeline.as_ref().is_some_and(|pipeline| pipeline.admission.is_some()));
}

#[test]
fn what_does_not_fit_is_said_of_pipelines_too() {
    let much = site(&BOX.replace("demand = 20.0\n    value", "demand = 900.0\n    value"));
    let much = much.solve(LIMIT).expect("it is profiled");
    assert_eq!((much.feasible, much.reason), (false, Some(Reason::Demand)));
    let (fits, fails) = much.factor.expect("a part fits");
    assert!(fits > 0.0 && fits < fails && fails - fits < 0.001, "{fits} {fails}");
    let burst =
        site(&BOX.replace("period = \"50ms\"", "period = \"2ms\"")).solve(LIMIT).expect("it is profiled");
    assert_eq!((burst.feasible, burst.reason), (false, Some(Reason::Promises)));
    let [violated] = &burst.violated[..] else { panic!("{:?}", burst.violated) };
    assert!(violated.service == "meter" && (0.1..0.9).contains(&violated.missing), "{violated:?}");
    // Two models that take as long as the deadline keep no promise on whatever devices.
    let late = BOX.replace("deadline = \"120ms\"", "deadline = \"8ms\"");
    let late = site(&late).solve(LIMIT).expect("it is profiled");
    assert!(late.violated.iter().any(|of| of.service == "meter" && of.missing == 1.0), "{:?}", late.violated);
}

/// Three requests of each result in place of one and a half are too many for the better reader, and the file says what it said.
#[test]
fn what_results_become_may_be_told_beside_demand() {
    let with = |mean: f64| {
        let known = [("meter".to_owned(), 75.0), ("meter/read".to_owned(), mean)].into();
        site(BOX).demanding(&known).expect("a demand").solve(LIMIT).expect("it is profiled")
    };
    let [few, many] = [0.5, 3.0].map(|mean| (mean, with(mean)));
    for (mean, placement) in [&few, &many] {
        let complete =
            placement.complete.as_ref().unwrap_or_else(|| panic!("{mean}: {:?}", placement.reason));
        assert!(complete.text.contains("mean = 1.5"), "{}", complete.text);
        assert_eq!(complete.config.services[1].stages[1].mean, *mean);
        let busy = placement.spots[1].as_ref().map(|spot| spot.parts[1].busy[0]).expect("it is placed");
        let read = &complete.plan.services[1].stages()[1].runs;
        let of_all = 82.5 * mean / read.capacity();
        assert!((busy - of_all).abs() < 1e-9, "{busy} {of_all}");
    }
    assert!(few.1.accuracy > many.1.accuracy, "{:?} {:?}", few.1.accuracy, many.1.accuracy);
    let told = |name: &str, mean: f64| {
        let known = [(name.to_owned(), mean)].into();
        site(BOX).demanding(&known).expect_err("wrong").to_string()
    };
    assert_eq!(told("meter/read", 3.5), "demand of meter/read = 3.5: must be in 0..=3, as fan-out says");
    let none = "no such stage is behind another one, and no join";
    assert_eq!(told("meter/detect", 1.0), format!("demand of meter/detect = 1: {none}"));
    assert_eq!(told("other/read", 1.0), format!("demand of other/read = 1: {none}"));
}

#[test]
fn where_time_is_short_nothing_is_called_the_best() {
    let site = site(BOX);
    let best = site.accuracy(LIMIT).expect("it is profiled").expect("it fits");
    let staged = |end| Staged { site: &site, pipeline: 1, demand: 22.0, end };
    let looked = staged(Instant::ZERO).all().expect("it is profiled");
    assert!(looked.unseen.is_some());
    let whole = staged(super::super::judge::after(LIMIT)).all().expect("it is profiled");
    assert!(whole.unseen.is_none() && whole.offers.len() > 1);
    let most = whole.offers.iter().map(|offer| offer.spot.accuracy).fold(0.0, f64::max);
    assert!(looked.unseen >= Some(most), "{:?} is no bound on {most}", looked.unseen);
    // Nothing is known yet, and no time is left to find out.
    let fresh = super::super::tests::site(BOX).solve(rt_core::Span::from_nanos(1)).expect("it is profiled");
    assert!(fresh.bound.is_none_or(|bound| bound >= best - 1e-9));
    assert!(fresh.feasible || fresh.reason == Some(Reason::Time), "{:?}", fresh.reason);
}

#[test]
fn each_stage_is_measured_with_every_model_on_every_class() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let text = format!(
        "[daemon]\nmodels = {models:?}\nrealtime = false\n[placement]\n\
         [[placement.class]]\nname = \"one\"\ncores = [0]\n[[placement.class]]\nname = \"two\"\ncores = [1]\n\
         [[pipeline]]\nname = \"plates\"\ndeadline = \"400ms\"\nguard = \"60ms\"\n\
         [[pipeline.stage]]\nname = \"detect\"\nmodels = [\"scenes-detect\"]\nclasses = [\"one\"]\n\
         [[pipeline.stage]]\nname = \"read\"\nmodels = [\"digits-s\", \"digits-l\"]\nafter = \"detect\"\nfan-out = 4\n\
         [pipeline.stage.adapter]\neach = {{ scores = \"scores\", threshold = 0.5 }}\n\
         inputs.image = {{ crop = \"source.image\", boxes = \"boxes\" }}\n"
    );
    let names = |text: &str| {
        let all = measured(&load(text));
        let specs = crate::models::resolve_models(&all).expect("they are shipped");
        let work = crate::profile::Work::new(&all, &specs, false);
        let mut names: Vec<String> = work.subjects.into_iter().map(|subject| subject.timed.name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        names(&text),
        [
            "digits-l at plates/read in one",
            "digits-l at plates/read in two",
            "digits-s at plates/read in one",
            "digits-s at plates/read in two",
            "scenes-detect at plates/detect in one",
        ]
    );
    // Where a class is shared, all of them are on it or none is.
    let shared = text.replace("cores = [1]\n", "cores = [1]\nshared = true\n");
    let own = names(&shared);
    assert!(own.len() == 3 && own.iter().all(|name| name.ends_with("in one")), "{own:?}");
    let all = shared.replace("classes = [\"one\"]\n", "");
    assert_eq!(names(&all).len(), 6);
    assert_eq!(measured(&load(&all)).services.iter().filter(|pipeline| pipeline.is_fused()).count(), 1);
}
