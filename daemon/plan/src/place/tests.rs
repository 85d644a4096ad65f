//! Tests of placing: small boxes against every way to serve them, what is written, and what changes.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rt_core::{Instant, Span};

use super::*;
use crate::plan::ServicePlan;
use crate::profile::{Entry, Fingerprint, Work};

pub(super) const LIMIT: Span = Span::from_millis(60_000);

pub(super) fn load(text: &str) -> Config {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("box.toml");
    std::fs::write(&path, text).expect("written");
    Config::load_box(&path).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The box of a file whose simulated models take as long as they say.
pub(super) fn site(text: &str) -> Site {
    let config = load(text);
    let measured = measured(&config);
    let mut profile = Profile::new(Fingerprint::current());
    let specs = crate::models::resolve_models(&measured).expect("simulated");
    for subject in Work::new(&measured, &specs, false).subjects {
        let times: Vec<u64> = subject.times.iter().map(|time| time.bound).collect();
        let (model, sha256) = (subject.timed.name, subject.timed.identity);
        profile.put(Entry { model, sha256, ..Entry::of_simulated(&subject.spec, &times) });
    }
    Site::of(config, profile).expect("a box")
}

/// The most accurate mean answer of all ways to serve a box: each is written down, planned, and its accuracy worked out by trying.
fn tried(site: &Site) -> Option<f64> {
    let ways: Vec<Vec<Placed>> = site.config.services.iter().map(|service| ways(site, service)).collect();
    let weights: Vec<f64> = site.demand.clone();
    let mut picks = vec![0; ways.len()];
    let mut best: Option<f64> = None;
    loop {
        let chosen: Vec<&Placed> = ways.iter().zip(&picks).map(|(ways, &pick)| &ways[pick]).collect();
        if let Some(accuracy) = accuracy(site, &chosen, &weights) {
            best = Some(best.map_or(accuracy, |best| best.max(accuracy)));
        }
        let Some(next) = (0..picks.len()).find(|&s| picks[s] + 1 < ways[s].len()) else { return best };
        picks[..next].fill(0);
        picks[next] += 1;
    }
}

/// Every class, number of devices, base, and set of models beside it.
fn ways(site: &Site, service: &ServiceConfig) -> Vec<Placed> {
    let candidates = service.candidates.as_ref().expect("all are placed");
    let count = candidates.models.count();
    let mut all = Vec::new();
    for (class, of) in site.placement.classes.iter().enumerate() {
        for set in 1u32..1 << count {
            let models: Vec<usize> = (0..count).filter(|model| set >> model & 1 == 1).collect();
            if candidates.models.choice(class, &models).is_none() || (of.shared && models.len() > 1) {
                continue;
            }
            let devices = if of.shared { 0..=0 } else { 1..=of.devices };
            all.extend(devices.map(|devices| Placed { class, devices, models: models.clone() }));
        }
    }
    all
}

fn accuracy(site: &Site, chosen: &[&Placed], weights: &[f64]) -> Option<f64> {
    for (class, of) in site.placement.classes.iter().enumerate() {
        let used: usize =
            chosen.iter().filter(|placed| placed.class == class).map(|placed| placed.devices).sum();
        if used > of.devices {
            return None;
        }
    }
    let spot = |placed: &&Placed| {
        let (units, shares) = (Vec::new(), Vec::new());
        let part = Part { placed: (*placed).clone(), units, busy: Vec::new(), shares };
        Some(Spot { accuracy: 0.0, parts: vec![part] })
    };
    let spots: Vec<_> = chosen.iter().map(spot).collect();
    let complete = site.complete(&spots).ok()?;
    let mut shared = 0.0;
    let (mut sum, mut whole) = (0.0, 0.0);
    for ((plan, placed), (&demand, weight)) in
        complete.plan.services.iter().zip(chosen).zip(site.demand.iter().zip(weights))
    {
        let demand = demand * site.placement.headroom;
        let of = if placed.devices == 0 {
            let times = &plan.workers().profile;
            let latency = plan.config.deadline.saturating_sub(plan.config.guard);
            let sizes = plan.workers().batch..=plan.largest_batch().max(plan.workers().batch);
            let sizes = sizes.filter(|&b| times.bound(b) <= latency);
            let each = sizes.map(|b| times.bound(b).as_secs_f64() / b as f64).fold(f64::INFINITY, f64::min);
            shared += demand * each;
            100.0 * plan.spec.accuracy
        } else {
            mean(plan, demand, placed.devices)?
        };
        sum += weight * of;
        whole += weight;
    }
    let room = site.placement.classes.iter().find(|class| class.shared).map_or(0, |class| class.devices);
    (shared <= room as f64 + 1e-9).then_some(sum / whole)
}

/// The best mean answer of a service with devices of its own: of any two of its models, as much of the better one as there is time for.
pub(super) fn mean(plan: &ServicePlan, demand: f64, devices: usize) -> Option<f64> {
    let latency = plan.config.deadline.saturating_sub(plan.config.guard);
    let promised = !plan.config.reserved.is_empty();
    let lull = if promised { plan.lull().unwrap_or(Span::ZERO) } else { latency };
    let mut all = Vec::new();
    for (place, variant) in plan.variants.iter().enumerate() {
        let mut each = f64::INFINITY;
        for b in 1..=variant.times.max_batch() {
            let time = variant.times.bound(b);
            let own = place == 0 && promised && b == plan.workers().batch;
            if own || (time <= lull && time + time <= latency) {
                each = each.min(time.as_secs_f64() / b as f64);
            }
        }
        all.push((100.0 * variant.spec.accuracy, demand * each / devices as f64));
    }
    let mut best: Option<f64> = None;
    for &(better, slow) in &all {
        for &(worse, quick) in &all {
            let fits = |share: f64| {
                (if share > 0.0 { share * slow } else { 0.0 })
                    + (if share < 1.0 { (1.0 - share) * quick } else { 0.0 })
                    <= 1.0 + 1e-9
            };
            if better < worse || !(fits(0.0) || fits(1.0)) {
                continue;
            }
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                if fits(middle) { low = middle } else { high = middle }
            }
            let share = if fits(1.0) { 1.0 } else { low };
            let accuracy = share * better + (1.0 - share) * worse;
            best = Some(best.map_or(accuracy, |best: f64| best.max(accuracy)));
        }
    }
    // What never fits the deadline was not to be loaded.
    best.filter(|_| all.iter().all(|(_, busy)| busy.is_finite()))
}

/// A box of two classes, one of them shared, whose services are promised something or nothing.
fn thrown(seed: u64, services: usize, models: usize) -> String {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut text = format!(
        "[daemon]\nrealtime = false\n[placement]\nheadroom = 1.2\n\
         [[placement.class]]\nname = \"fast\"\nengine = \"simulated\"\ncount = {}\n\
         [[placement.class]]\nname = \"slow\"\nengine = \"simulated\"\ncount = {}\nshared = true\n",
        dice.random_range(1..=3),
        dice.random_range(1..=2),
    );
    for service in 0..services {
        let mut list = Vec::new();
        let (mut time, mut accuracy) = (dice.random_range(10..60u64), dice.random_range(0.3..0.5));
        for _ in 0..models {
            let slow = time * dice.random_range(15..40) / 10;
            let more = dice.random_range(4..10);
            let pair = |time: u64| format!("\"{time}00us\", \"{}00us\"", time + time * more / 10);
            list.push(format!(
                "{{ accuracy = {accuracy:.4}, times = {{ fast = [{}], slow = [{}] }} }}",
                pair(time),
                pair(slow)
            ));
            time = time * dice.random_range(12..40) / 10;
            accuracy += dice.random_range(0.02..0.15);
        }
        let period = dice.random_range(8..40);
        let demand = 1000.0 / f64::from(period) * dice.random_range(0.4..4.0);
        let promise = format!(
            "[[service.stream]]\nname = \"s\"\nconstraints = [{{ any-miss = {{ m = {}, k = 5 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"{period}ms\", jitter = \"{}ms\" }} }}]\n",
            dice.random_range(0..4),
            dice.random_range(0..90)
        );
        let promise = if dice.random_bool(0.7) { promise } else { String::new() };
        text += &format!(
            "[[service]]\nname = \"s{service}\"\nguard = \"1ms\"\nhandover = \"0ms\"\ndeadline = \"{}ms\"\ndemand = {demand:.2}\n\
             simulated.models = [{}]\n{promise}",
            dice.random_range(30..140),
            list.join(", ")
        );
    }
    text
}

#[test]
fn small_boxes_are_placed_as_well_as_by_trying_every_way() {
    let mut fit = 0;
    for (seed, services, models) in (0..14).map(|seed| (seed, 2, 3)).chain((20..24).map(|seed| (seed, 3, 2)))
    {
        let text = thrown(seed, services, models);
        let site = site(&text);
        let placement = site.solve(LIMIT).expect("it is profiled");
        let found = placement.accuracy.filter(|_| placement.feasible);
        let best = tried(&site);
        assert_eq!(found.is_some(), best.is_some(), "{seed}: {found:?} for {best:?}\n{text}");
        if let (Some(found), Some(best)) = (found, best) {
            assert!((found - best).abs() <= 0.001, "{seed}: {found} for {best}\n{text}");
            assert!(placement.bound.is_some_and(|bound| (bound - best).abs() <= 0.001), "{seed}\n{text}");
            fit += 1;
        }
    }
    assert!((6..18).contains(&fit), "{fit} of them fit: the dice say too little");
}

/// Two services that a box has room for.
const ROOM: &str = r#"
    [daemon]
    realtime = false
    [placement]
    [[placement.class]]
    name = "fast"   # the quick ones
    engine = "simulated"
    count = 3
    [[placement.class]]
    name = "slow"
    engine = "simulated"
    count = 1
    shared = true
    [[service]]
    name = "a"
    simulated.models = [
        { accuracy = 0.5, times = { fast = ["2ms"], slow = ["4ms"] } },
        { accuracy = 0.7, times = { fast = ["6ms"], slow = ["40ms"] } },
    ]
    demand = 300.0
    deadline = "60ms"
    handover = "0ms"
    [[service.stream]]
    name = "s"
    constraints = [{ row-miss = 1 }]
    arrivals = [{ periodic = { period = "5ms" } }]
    [[service]]
    name = "b"
    simulated.models = [{ accuracy = 0.9, times = { slow = ["10ms"] } }]
    demand = 20.0
    deadline = "90ms"
    handover = "0ms"
"#;

#[test]
fn what_is_written_is_a_box_again_and_stays_as_it_is() {
    let placement = site(ROOM).solve(LIMIT).expect("it is profiled");
    assert_eq!(placement.changes, ["a", "b"]);
    let complete = placement.complete.expect("it fits");
    for kept in [
        "# the quick ones",
        "count = 3",
        "simulated.models = [\n",
        "demand = 300.0",
        "[[device]]\nname = \"slow\"",
    ] {
        assert!(complete.text.contains(kept), "{kept} is not in\n{}", complete.text);
    }
    // Another service gets nothing by it, so that nothing changes.
    let again = site(&complete.text).solve(LIMIT).expect("it is profiled");
    assert_eq!((again.changes.len(), again.accuracy), (0, placement.accuracy));
    assert_eq!(again.complete.expect("it fits").text, complete.text);
}

#[test]
fn a_worse_place_is_left_and_an_equal_one_kept() {
    let text = site(ROOM).solve(LIMIT).expect("it is profiled").complete.expect("it fits").text;
    // The better model alone does as well as with the other below it.
    let all = text.replace("workers = 2", "workers = 3");
    assert_ne!(all, text, "two devices are enough:\n{text}");
    let kept = site(&all).solve(LIMIT).expect("it is profiled");
    assert!(kept.changes.is_empty(), "{:?}", kept.changes);
    let few = text.replace("workers = 2", "workers = 1");
    assert_eq!(site(&few).solve(LIMIT).expect("it is profiled").changes, ["a"]);
}

#[test]
fn what_does_not_fit_is_said_with_what_does() {
    let much = site(&ROOM.replace("demand = 300.0", "demand = 3000.0")).solve(LIMIT).expect("it is profiled");
    assert_eq!((much.feasible, much.reason), (false, Some(Reason::Demand)));
    // Three devices answer 1500 requests a second with the base, 2727 of them before headroom.
    let (fits, fails) = much.factor.expect("a part fits");
    assert!(fits <= 1500.0 / 3300.0 && 1500.0 / 3300.0 <= fails && fails - fits < 0.001, "{fits} {fails}");
    let burst = ROOM.replace("period = \"5ms\"", "period = \"200us\"");
    let much = site(&burst).solve(LIMIT).expect("it is profiled");
    assert_eq!((much.feasible, much.reason), (false, Some(Reason::Promises)));
    let [violated] = &much.violated[..] else { panic!("{:?}", much.violated) };
    // Half of 5000 requests a second must be served and each device serves 500: of five or more three are there.
    assert!(violated.service == "a" && (0.4..0.8).contains(&violated.missing), "{violated:?}");
}

/// A service of shipped models on two classes of the same engine, of which the profile says other times.
#[test]
fn models_have_times_of_their_own_on_each_class_of_an_engine() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let text = format!(
        "[daemon]\nmodels = {models:?}\nrealtime = false\n[placement]\n\
         [[placement.class]]\nname = \"slow\"\ncores = [1]\n[[placement.class]]\nname = \"fast\"\ncores = [0]\n\
         [[service]]\nname = \"s\"\nmodels = [\"digits-xs\", \"digits-s\"]\ndemand = 5.0\ndeadline = \"60ms\"\nguard = \"10ms\"\n\
         handover = \"0ms\"\nmax-batch = 1\n[[service.stream]]\nname = \"cam\"\nconstraints = [{{ row-miss = 1 }}]\n\
         arrivals = [{{ periodic = {{ period = \"100ms\" }} }}]\n"
    );
    let config = load(&text);
    let all = measured(&config);
    let specs = crate::models::resolve_models(&all).expect("they are shipped");
    let work = Work::new(&all, &specs, false);
    let names: Vec<&str> = work.subjects.iter().map(|subject| &*subject.timed.name).collect();
    assert_eq!(names, ["digits-xs in slow", "digits-s in slow", "digits-xs in fast", "digits-s in fast"]);
    let mut profile = Profile::new(Fingerprint::current());
    for subject in &work.subjects {
        // What takes a millisecond on the one takes longer than it may on the other.
        let time = if subject.timed.name.ends_with("fast") { 1_000_000 } else { 55_000_000 };
        let (model, engine) = (subject.timed.name.clone(), subject.engine);
        let mut entry = Entry { model, engine, ..Entry::of_simulated(&subject.spec, &[time]) };
        entry.batches.iter_mut().for_each(|times| times.mode = weir_engine::RunMode::Batched);
        profile.put(entry);
    }
    let placement = Site::of(config, profile.clone()).expect("a box").solve(LIMIT).expect("it is profiled");
    let complete = placement.complete.expect("it fits");
    assert_eq!(complete.config.services[0].class.as_deref(), Some("fast"));
    let plan = &complete.plan.services[0];
    assert_eq!((&*plan.spec.name, plan.workers().batch_time()), ("digits-s", Span::from_millis(1)));
    // On the only class of its engine a model is called as it is.
    let alone = text.replace("[[placement.class]]\nname = \"fast\"\ncores = [0]\n", "");
    let all = measured(&load(&alone));
    let specs = crate::models::resolve_models(&all).expect("they are shipped");
    let work = Work::new(&all, &specs, false);
    assert_eq!(work.subjects[0].timed.name, "digits-xs");
}

#[test]
fn more_devices_and_fewer_promises_are_never_worse() {
    let site = site(ROOM);
    let best = site.accuracy(LIMIT).expect("it is profiled").expect("it fits");
    for other in [site.with_one_more(0), site.with_one_more(1), site.unpromised(0)] {
        assert!(other.accuracy(LIMIT).expect("it is profiled").expect("it fits") >= best - 1e-9);
    }
}

#[test]
fn while_it_is_served_nobody_comes_on_to_shared_devices_or_off_them() {
    let text = site(ROOM).solve(LIMIT).expect("it is profiled").complete.expect("it fits").text;
    let moves = site(&text).without_restart().solve(LIMIT).expect("it is profiled");
    assert!(moves.feasible && moves.changes.is_empty(), "{:?}", moves.changes);
    let shared = |devices| Placed { class: 0, devices, models: vec![0] };
    for (here, there, reached) in [(1, 3, true), (0, 0, true), (0, 2, false), (2, 0, false)] {
        assert_eq!(shared(here).is_reached_from(&shared(there)), reached);
    }
    assert!(!shared(0).is_reached_from(&Placed { class: 1, ..shared(0) }), "other shared devices");
    // What would be better on the class that is shared stays where it is, and is placed there anew otherwise.
    let more = "slow = [\"40ms\"] } },\n { accuracy = 0.95, times = { slow = [\"1ms\"] } },";
    let better = text.replace("slow = [\"40ms\"] } },", more);
    assert_ne!(better, text);
    let free = site(&better).solve(LIMIT).expect("it is profiled");
    let placed = |of: &Placement| of.spots[0].as_ref().map(|spot| spot.parts[0].placed.devices);
    assert_eq!(placed(&free), Some(0), "{:?}", free.spots);
    let bound = site(&better).without_restart().solve(LIMIT).expect("it is profiled");
    assert!(placed(&bound).is_some_and(|devices| devices > 0), "{:?}", bound.spots);
}

#[test]
fn who_stands_aside_holds_as_little_as_keeps_its_promise() {
    let site = site(ROOM);
    // Every second of 200 requests a second must be served, of which a device serves 500.
    let asides = |service: usize| site.asides(service, Instant::ZERO).expect("it is profiled").0;
    let [aside] = &asides(0)[..] else { panic!("one class is not shared") };
    assert_eq!((aside.placed[0].class, aside.placed[0].devices), (0, 1));
    assert_eq!(load(&aside.text).services[0].places(), Some(aside.placed.clone()));
    assert!(asides(1).is_empty(), "it is on shared devices alone");
}

#[test]
fn a_demand_is_of_a_service_that_is_placed() {
    let demand = |name: &str, value: f64| {
        site(ROOM).demanding(&BTreeMap::from([(name.to_owned(), value)])).map(|site| site.demand)
    };
    assert_eq!(demand("b", 7.0).expect("good"), [300.0, 7.0]);
    let told = demand("c", 7.0).expect_err("no such service").to_string();
    assert_eq!(told, "demand of c = 7: no such service is placed (a, b)");
    let told = demand("b", -7.0).expect_err("no demand").to_string();
    assert_eq!(told, "demand of b = -7: must be in 0..=1000000000");
}
