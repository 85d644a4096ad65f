//! Tests of the search: it finds what trying everything finds, ends when it must and says so, and heeds the weights.

use rt_core::Span;

use super::super::split;
use super::*;
use crate::config::Config;
use crate::models::resolve_models;
use crate::plan::{DevicePlan, Plan};
use crate::profile::{Entry, Fingerprint, Profile, Rule, Runs, Work};
use weir_engine::{ModelSpec, RunMode};

/// A service: its name, what batches of 1, 2, … take and its deadline in milliseconds, and more fields.
type Of<'a> = (&'a str, &'a [u64], u64, &'a str);

struct Case {
    config: Config,
    models: Vec<Vec<ModelSpec>>,
    profile: Profile,
}

impl Case {
    /// Services on one worker, whose batches take as long as they are said to.
    fn new(services: &[Of<'_>]) -> Self {
        Self::on("", services)
    }

    /// The same on a device with these fields.
    fn on(device: &str, services: &[Of<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weir.toml");
        let mut text = format!("[daemon]\nrealtime = false\n[[device]]\nname = \"box\"\n{device}");
        for (name, times, deadline, more) in services {
            let times: Vec<_> = times.iter().map(|ms| format!("\"{ms}ms\"")).collect();
            text += &format!(
                "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nguard = \"1ms\"\nhandover = \"0ms\"\n\
                 simulated = {{ times = [{}], input = 1, output = 1 }}\nmax-batch = {}\ndeadline = \"{deadline}ms\"\n{more}",
                times.join(", "),
                times.len()
            );
        }
        std::fs::write(&path, text).expect("written");
        let config = Config::load(&path).expect("good");
        let models = resolve_models(&config).expect("simulated");
        let work = Work::new(&config, &models, false);
        let rule = Rule::new(1e-4, 0.0, true).expect("a rule");
        let mut profile = Profile::new(Fingerprint::current());
        for (subject, (_, times, ..)) in work.subjects.iter().zip(services) {
            let runs: Vec<_> = times
                .iter()
                .map(|ms| Runs { times: vec![ms * 1_000_000; 300], disturbed: Vec::new() })
                .collect();
            let modes = vec![RunMode::Simulated; times.len()];
            profile.put(Entry::of_runs(subject, &modes, (&runs, &vec![true; times.len()]), &rule, 1));
        }
        Self { config, models, profile }
    }

    fn choice(&self) -> Choice<'_> {
        Choice::new(&self.config, 0, &self.models, &self.profile).expect("all of it fits")
    }

    fn plan(&self) -> DevicePlan {
        let plan = Plan::of(&self.config, self.models.clone(), &self.profile).expect("it holds");
        plan.devices()[0].clone()
    }
}

const PROMISED: &str = "constraints = [{ row-miss = 1 }]\n";

/// Single requests of all kinds of cost, and batches that pay more or less.
fn cases() -> Vec<Case> {
    let systems: [[Of<'_>; 3]; 4] = [
        [
            ("stop", &[2, 3, 4, 5], 40, PROMISED),
            ("track", &[5, 8, 11, 14], 90, PROMISED),
            ("scene", &[12, 20, 28, 36], 300, PROMISED),
        ],
        [
            ("stop", &[2, 4, 6, 8], 20, PROMISED),
            ("track", &[3, 4, 5, 6], 60, PROMISED),
            ("scene", &[7, 13, 19, 25], 90, PROMISED),
        ],
        [
            ("stop", &[1, 2, 3, 3], 30, PROMISED),
            ("track", &[9, 10, 11, 12], 80, PROMISED),
            ("scene", &[15, 16, 25, 26], 120, ""),
        ],
        [
            ("stop", &[4, 5, 6, 7], 30, "constraints = [{ any-miss = { m = 2, k = 3 } }]\nweight = 20\n"),
            ("track", &[4, 6, 8, 10], 60, PROMISED),
            ("scene", &[9, 12, 15, 18], 200, PROMISED),
        ],
    ];
    systems.iter().map(|services| Case::new(services)).collect()
}

#[test]
fn no_combination_of_batches_leaves_much_more_than_the_one_that_is_found() {
    for (number, case) in cases().iter().enumerate() {
        let (found, untried) = search(&case.choice(), &mut |_| {}).expect("it holds");
        let choice = case.choice();
        let sizes: Vec<usize> = choice.sizes.iter().map(Vec::len).collect();
        let picks = |n: usize| vec![n % sizes[0], n / sizes[0] % sizes[1], n / sizes[0] / sizes[1]];
        let all = (0..sizes.iter().product()).filter_map(|n| choice.look_at(&picks(n), None).ok());
        let best = all.map(|chosen| chosen.merit).fold(0.0, f64::max);
        assert!(found.merit >= 0.97 * best && untried == 0, "{number}: {} of {best}", found.merit);
        // What is said to be the most there can be is.
        assert!(
            best <= (0..sizes.iter().product()).map(|n| choice.merit_at_most(&picks(n))).fold(0.0, f64::max)
        );
    }
}

#[test]
fn a_search_that_must_end_has_found_something_and_says_what_it_did_not_try() {
    let mut left_out = 0;
    for case in cases() {
        let choice = case.choice();
        let mut told = Vec::new();
        let (found, untried) = bounded(&choice, 60, &mut |at| told.push(at.tests)).expect("it holds");
        let (best, all) = search(&case.choice(), &mut |_| {}).expect("it holds");
        assert!(all == 0 && found.merit <= best.merit + 1e-9);
        // The first that are looked at are among the best.
        assert!(found.merit >= 0.7 * best.merit, "{} of {}", found.merit, best.merit);
        assert!(told.is_sorted() && told.iter().all(|&tests| tests < 60), "{told:?}");
        assert!(choice.look_at(&found.picks, None).is_ok());
        left_out += untried;
    }
    assert!(left_out > 0);
}

#[test]
fn what_weighs_more_can_be_promised_more() {
    let rate = |weight: &str| {
        let more = format!("{PROMISED}weight = {weight}\n");
        let case = Case::new(&[
            ("stop", &[4], 22, PROMISED),
            ("scene", &[10, 12, 14, 16, 18, 20, 22, 24], 200, &more),
        ]);
        let plan = Plan::of(&case.config, case.models.clone(), &case.profile).expect("it holds");
        let per_second =
            |service: usize| plan.services[service].rate.as_ref().and_then(|rate| rate.per_second());
        [0, 1].map(|service| per_second(service).unwrap_or(0.0))
    };
    let (light, heavy) = (rate("0.001"), rate("1000"));
    assert!(heavy[1] > 1.1 * light[1] && heavy[0] < light[0], "{light:?} {heavy:?}");
}

#[test]
fn who_keeps_a_service_from_larger_batches_is_named_with_what_it_needs() {
    let reserved = "[[service.stream]]\nname = \"line\"\nconstraints = [{ row-miss = 0 }]\n\
                    arrivals = [{ window = { count = 1, length = \"100ms\" } }]\n";
    let case = Case::new(&[("stop", &[2], 20, reserved), ("scene", &[6, 10, 14, 18], 500, "")]);
    let plan = case.plan();
    // Of 20 ms 1 is the guard's and 2 its own batch's: 17 are left for the guard and what runs.
    assert_eq!(
        plan.limits,
        ["a batch of 4 of scene takes 18.0 ms; stop with 20.0 ms needs P(4) ≤ 17.0 ms: batch ≤ 3"]
    );
    assert_eq!(plan.sharing.longest, Span::from_millis(14));
}

/// What stalls of the device may take is as if each deadline were as much shorter, but for the window.
#[test]
fn what_stalls_may_take_is_kept_back_of_every_deadline() {
    let stream = "[[service.stream]]\nname = \"a\"\nconstraints = [{ row-miss = 0 }]\n\
                  arrivals = [{ periodic = { period = \"50ms\" } }]\n";
    let of = |stalls: &str, deadline: u64| {
        Case::on(stalls, &[("a", &[5], deadline, stream), ("b", &[3], deadline + 20, stream)])
    };
    let stalls = "stalls = { at-most = 1, in = \"10s\", of = \"12ms\" }\n";
    let (plain, stalling) = (of("", 48).plan(), of(stalls, 60).plan());
    assert_eq!(stalling.sharing.guard, plain.sharing.guard + Span::from_millis(12));
    let latencies = |plan: &DevicePlan| plan.sharing.services.iter().map(|s| s.latency).collect::<Vec<_>>();
    assert_eq!(latencies(&stalling), latencies(&plain));
    assert_eq!(stalling.admission.overrun_margin(), plain.admission.overrun_margin());
    let often = of("stalls = { at-most = 1, in = \"100ms\", of = \"12ms\" }\n", 60);
    let refused = Plan::of(&often.config, often.models.clone(), &often.profile).expect_err("too often");
    assert!(refused.to_string().contains("stalls must be so rare"), "{refused}");
    let config = of(stalls, 60).config;
    assert!(config.services.iter().all(|service| service.stalls == config.devices[0].stalls));
}

/// In order a service has as much as it could have, whatever that costs those behind it; of the others the next.
#[test]
fn in_order_the_first_service_has_most_and_then_the_next() {
    let rates = |device: &str, first: &str| -> Vec<f64> {
        let of = |name: &str| format!("{PROMISED}weight = {}\n", if name == first { 3 } else { 1 });
        let services: [(&str, &[u64], u64); 2] =
            [("stop", &[4, 5, 6, 7], 24), ("scene", &[6, 8, 10, 12], 60)];
        let more: Vec<String> = services.iter().map(|(name, ..)| of(name)).collect();
        let all: Vec<Of<'_>> = services
            .iter()
            .zip(&more)
            .map(|(&(name, times, deadline), more)| (name, times, deadline, &**more))
            .collect();
        let case = Case::on(device, &all);
        let plan = Plan::of(&case.config, case.models.clone(), &case.profile).expect("it holds");
        plan.services.iter().map(|s| s.rate.as_ref().and_then(|r| r.per_second()).unwrap_or(0.0)).collect()
    };
    let (sum, stop, scene) =
        (rates("", ""), rates("prefer = \"in-order\"\n", "stop"), rates("prefer = \"in-order\"\n", "scene"));
    // Up to a level.
    assert!(stop[0] >= 0.9 * sum[0].max(scene[0]) && scene[1] >= 0.9 * sum[1].max(stop[1]));
    assert!(
        stop[0] > 1.1 * scene[0] && scene[1] > 1.1 * stop[1],
        "they want other batches: {stop:?}, {scene:?}"
    );
}

/// The rule is that with which more can be promised, not the first by which all that is reserved holds.
#[test]
fn the_rule_that_leaves_more_to_promise_is_taken() {
    use rt_core::sharing::Rule as By;
    /// Name, time, batch, deadline, and how many requests in what time.
    type Reserved<'a> = (&'a str, u64, usize, u64, (u64, &'a str));
    let merit = |rule: &str, services: &[Reserved<'_>]| {
        let more: Vec<String> = services
            .iter()
            .map(|(name, _, batch, _, (count, length))| {
                format!(
                    "{PROMISED}batch = {batch}\n[[service.stream]]\nname = \"{name}\"\nconstraints = [{{ row-miss = 0 }}]\n\
                     arrivals = [{{ window = {{ count = {count}, length = \"{length}\" }} }}]\n"
                )
            })
            .collect();
        let times: Vec<Vec<u64>> = services.iter().map(|&(_, time, batch, ..)| vec![time; batch]).collect();
        let of: Vec<Of<'_>> = (services.iter().zip(&times).zip(&more))
            .map(|((&(name, _, _, deadline, _), times), more)| (name, &**times, deadline, &**more))
            .collect();
        let (case, found) = (Case::on(rule, &of), |case: &Case| search(&case.choice(), &mut |_| {}));
        (found(&case).expect("it holds").0.merit, case.plan().sharing.rule)
    };
    // Of one it is a tight service that passes long batches, of the other one that would starve a burst.
    let tight = [
        ("scene", 4, 4, 33, (4, "33ms")),
        ("track", 6, 4, 100, (4, "100ms")),
        ("stop", 2, 1, 12, (1, "33ms")),
    ];
    let burst = [("radar", 2, 8, 12, (1, "22ms")), ("map", 4, 4, 200, (16, "2200ms"))];
    let ((auto, rule), (by_deadline, _)) = (merit("", &tight), merit("rule = \"deadline\"\n", &tight));
    assert_eq!((auto, rule), (by_deadline, By::Earliest));
    let [(auto, rule), (by_deadline, _), (by_turns, _)] =
        ["", "rule = \"deadline\"\n", "rule = \"turns\"\n"].map(|rule| merit(rule, &burst));
    assert_eq!((auto, rule), (by_turns, By::Turns));
    assert!(
        by_turns > by_deadline + 1000.0,
        "{by_turns}, and what is reserved holds by either: {by_deadline}"
    );
}

/// What is reserved of a service: so many requests in so many milliseconds, each to be answered.
fn reserved(streams: &[(u64, u64)]) -> String {
    let of = |(i, (count, ms)): (usize, &(u64, u64))| {
        format!(
            "[[service.stream]]\nname = \"s{i}\"\nconstraints = [{{ row-miss = 0 }}]\n\
             arrivals = [{{ window = {{ count = {count}, length = \"{ms}ms\" }} }}]\n"
        )
    };
    streams.iter().enumerate().map(of).collect()
}

/// Bursts above a batch, and deadlines that leave little time for the batches of all others.
fn bursts(faster: u64) -> Case {
    let of = |streams: &[(u64, u64)]| {
        reserved(&streams.iter().map(|&(count, ms)| (count, ms / faster)).collect::<Vec<_>>())
    };
    let (a, b, c, d) =
        (of(&[(6, 33)]), of(&[(2, 66), (2, 66), (2, 66)]), of(&[(8, 120), (8, 120)]), of(&[(1, 50)]));
    Case::on(
        "workers = 2\n",
        &[
            ("a", &[2, 3, 4, 4], 26, &a),
            ("b", &[3, 4, 5, 6], 46, &b),
            ("c", &[3, 4, 5, 5, 6, 6, 7, 7], 91, &c),
            ("d", &[2], 16, &d),
        ],
    )
}

#[test]
fn services_that_carry_more_on_workers_of_their_own_are_told_so() {
    let case = bursts(1);
    let found = split::split(&case.choice()).expect("a split");
    assert!(found.carries > found.together && found.together > 1000, "{found:?}");
    assert_eq!((found.groups.concat().len(), found.workers), (4, 1));
    // So much is certified of each of its devices, and of the whole with no batches more.
    for (groups, workers, scale) in
        [(found.groups.clone(), 1, found.carries), (vec![found.groups.concat()], 2, found.together)]
    {
        let mut least = u64::MAX;
        for group in groups {
            let mut device = case.config.devices[0].clone();
            device.workers = workers;
            let choice = case.choice();
            let members: Vec<_> = (0..4).filter(|&i| group.contains(&choice.service_name(i))).collect();
            let part = choice.of(&device, &members);
            let sizes: Vec<usize> = part.sizes.iter().map(Vec::len).collect();
            let picks = |mut n: usize| {
                let pick = |size: &usize| {
                    let pick = n % size;
                    n /= size;
                    pick
                };
                sizes.iter().map(pick).collect::<Vec<_>>()
            };
            let all = (0..sizes.iter().product()).map(|n| part.problem(&picks(n)).expect("a problem"));
            let most =
                all.fold(0, |most, problem| planner::certify::load_scale(&problem, most).unwrap_or(most));
            least = least.min(most);
        }
        assert!(least >= scale && least < scale + scale / 10, "{least} instead of {scale}");
    }
    // What carries as much together, of one worker and of nothing reserved, is left as it is.
    let loose = reserved(&[(4, 33)]);
    let loose: [Of<'_>; 2] = [("a", &[2, 3, 4, 4], 90, &loose), ("b", &[3, 4, 5, 6], 100, &loose)];
    for case in [Case::new(&loose), Case::on("workers = 2\n", &loose), cases().swap_remove(0)] {
        assert_eq!(split::split(&case.choice()), None);
    }
}

#[test]
fn a_refusal_tells_of_a_split_that_would_hold() {
    let case = bursts(3);
    let refused =
        Plan::of(&case.config, case.models.clone(), &case.profile).expect_err("too much").to_string();
    let told = "as 2 devices with 1 worker(s) each, for ";
    assert!(refused.contains(told) && refused.ends_with(", it could"), "{refused}");
}
