//! Plans for random problems beside simple rules and the fluid bound, simulated: `select_fuzz PROBLEMS [SEED [THREADS]]`.

use std::sync::Mutex;

use research::select::{Demand, Effort, Order, Policy, Profile, Score, fluid, plan, plan_thresholds, trial};
use rt_core::{Instant, LatencyProfile, Span, Variant};
use rustix::time::{ClockId, clock_gettime};
use virtual_time::Poisson;

/// The objective of every problem: only ratios of times count.
const SLO: Span = Span::from_millis(100);
/// Requests on which all are compared, at least, and for how many times the objective; a third of them comes first and does
/// not count.
const REQUESTS: usize = 36_000;
const OBJECTIVES: f64 = 96.0;
/// Upper ends of the loads that are told together; 1 is what the workers carry in the batches that take least for each request.
const LOADS: [f64; 7] = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5];
/// The table is printed each time that so many problems more are done.
const STEP: usize = 50;
/// The most workers that are told together.
const WORKERS: [usize; 4] = [1, 4, 16, 100];
/// Problems of which less of the distance is closed, in percent, are told one by one.
const TOLD: f64 = 30.0;
/// By how much a rule may be better: right answers, and misses, in percent of the requests.
const TOLERANCE: f64 = 0.2;
/// What is put into a plan.
const PLAN: Effort = Effort { tries: 400, requests: 16_000, seed: 1, thorough: true };
/// What is put into the best rule with two thresholds.
const THRESHOLDS: Effort = Effort { tries: 60, requests: 8000, seed: 2, thorough: false };
/// The least distance, in points, between one model for all and the fluid bound of which a share is told.
const DISTANCE: f64 = 0.5;

struct Case {
    profile: Profile,
    demand: Demand,
    /// The part of what the workers can carry.
    load: f64,
}

/// Percent of all requests.
#[derive(Clone, Copy)]
struct Figures {
    right: f64,
    missed: f64,
    worth: f64,
}

struct Outcome {
    seed: u64,
    case: Case,
    planned: Figures,
    rules: Vec<(&'static str, Figures)>,
    /// The fluid bound, if the workers can carry the load.
    bound: Option<f64>,
    seconds: f64,
}

fn main() {
    let number = |i: usize, or: u64| {
        std::env::args()
            .nth(i)
            .map_or(or, |text| text.parse().expect("usage: select_fuzz PROBLEMS [SEED [THREADS]]"))
    };
    let (problems, seed, threads) = (number(1, 100), number(2, 1), number(3, 1));
    let (next, outcomes) = (Mutex::new(seed..seed + problems), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(seed) = next.lock().expect("no panic").next() else { break };
                    let outcome = play(seed);
                    let mut outcomes = outcomes.lock().expect("no panic");
                    outcomes.push(outcome);
                    if outcomes.len().is_multiple_of(STEP) {
                        println!("{} problems so far:", outcomes.len());
                        print(&outcomes);
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no panic");
    outcomes.sort_by_key(|outcome: &Outcome| outcome.seed);
    println!("all problems:");
    print(&outcomes);
}

/// A random problem, always the same for the same seed.
fn case(seed: u64) -> Case {
    let mut draws = Poisson::new(1.0, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut between = |low: f64, high: f64| low + (high - low) * draws.unit();
    let count = between(2.0, 12.999) as usize;
    let batch = between(0.0, 33f64.ln()).exp().min(32.0) as usize;
    let workers = between(0.0, 101f64.ln()).exp().min(100.0) as usize;
    let load = between(0.05, 1.5);
    // Of the fastest model: one request, and each more beside it.
    let mut first = SLO.as_secs_f64() * between(0.02f64.ln(), 0.4f64.ln()).exp();
    let mut more = between(0.05, 0.9);
    let mut accuracy = between(0.3, 0.8);
    let mut models = Vec::new();
    for _ in 0..count {
        let span = |b: usize| Span::from_nanos((1e9 * first * (1.0 + more * b as f64)) as u64);
        let times: Vec<Span> = (0..batch).map(span).collect();
        models.push(Variant { accuracy, profile: LatencyProfile::new(&times).expect("times that rise") });
        first *= between(1.05, 2.0);
        more = (more * between(0.8, 1.25)).min(1.0);
        accuracy += (0.98 - accuracy) * between(0.02, 0.4);
    }
    let profile = Profile::new(SLO, models).expect("the first model is fast enough");
    let carried = profile.quickest() * workers as f64;
    Case { profile, demand: Demand { load: load * carried, workers, order: Order::NewestToo }, load }
}

fn play(seed: u64) -> Outcome {
    let case = case(seed);
    let Case { ref profile, demand, .. } = case;
    let now = || clock_gettime(ClockId::ThreadCPUTime);
    let seconds = |since| {
        let spent: rustix::time::Timespec = now() - since;
        spent.tv_sec as f64 + 1e-9 * spent.tv_nsec as f64
    };
    let start = now();
    let planned = plan(profile, demand, PLAN).expect("a plan").policy;
    let seconds = seconds(start);
    let requests = REQUESTS.max((OBJECTIVES * demand.load * SLO.as_secs_f64()) as usize);
    let arrivals: Vec<Instant> = Poisson::new(demand.load, !seed).take(requests).collect();
    let (from, to) = (arrivals[requests / 3], arrivals[requests - 1]);
    let of = |policy: &Policy| {
        figures(&trial(profile, policy, demand.workers, arrivals.iter().copied(), from..to))
    };
    let models = 0..profile.models().len();
    let mut rules =
        vec![("greedy", of(&Policy::greedy(profile))), ("fastest", of(&Policy::single(profile, 0)))];
    rules.extend(models.map(|model| ("static", of(&Policy::single(profile, model)))));
    let tuned = plan_thresholds(profile, demand, THRESHOLDS).expect("a plan").policy;
    rules.push(("two thresholds", of(&tuned)));
    // Of what came, which is not quite the load.
    let came = (requests - 1 - requests / 3) as f64 / to.since(from).as_secs_f64();
    let bound = fluid(profile, SLO, demand.workers as f64 / came).map(|bound| 100.0 * bound.accuracy);
    Outcome { seed, planned: of(&planned), rules, bound, seconds, case }
}

fn figures(score: &Score) -> Figures {
    Figures { right: 100.0 * score.right(), missed: 100.0 * score.violations(), worth: 100.0 * score.worth() }
}

impl Outcome {
    fn best(&self, name: &str) -> Figures {
        let all = self.rules.iter().filter(|(of, _)| name.is_empty() || *of == name);
        all.map(|(_, figures)| *figures).max_by(|a, b| a.worth.total_cmp(&b.worth)).expect("rules")
    }

    /// By how many more right answers, or fewer misses, a rule is better that is no worse in the other.
    fn below(&self) -> (f64, f64) {
        let Figures { right, missed, .. } = self.planned;
        let more =
            self.rules.iter().filter(|(_, rule)| rule.missed <= missed).map(|(_, rule)| rule.right - right);
        let fewer =
            self.rules.iter().filter(|(_, rule)| rule.right >= right).map(|(_, rule)| missed - rule.missed);
        (more.fold(0.0, f64::max), fewer.fold(0.0, f64::max))
    }

    fn is_beyond(&self) -> bool {
        let (more, fewer) = self.below();
        more.max(fewer) > TOLERANCE
    }

    /// The problem, and what came of the plan and of each rule.
    fn tell(&self) {
        let Case { profile, demand, load } = &self.case;
        let (batch, models, workers) = (profile.largest_batch(), profile.models().len(), demand.workers);
        let (closed, bound) = (self.closed().unwrap_or(f64::NAN), self.bound.unwrap_or(f64::NAN));
        println!(
            "seed {}: {models} models, {workers} workers, batches of {batch}, load {load:.2}",
            self.seed
        );
        println!("    fluid bound: {bound:.2} right, {closed:.0} % closed");
        println!("    plan: {:.2} right, {:.2} missed", self.planned.right, self.planned.missed);
        for name in ["greedy", "fastest", "static", "two thresholds"] {
            let best = self.best(name);
            println!("    {name}: {:.2} right, {:.2} missed", best.right, best.missed);
        }
    }

    /// The share of the distance from the best model for all to the fluid bound that the plan closes, in percent.
    fn closed(&self) -> Option<f64> {
        let from = self.best("static").right;
        let distance = self.bound? - from;
        (distance > DISTANCE).then(|| 100.0 * (self.planned.right - from) / distance)
    }
}

fn print(outcomes: &[Outcome]) {
    println!(
        "| | problems | distance closed, % | least | of | right, points | missed, % | beyond {TOLERANCE} | CPU s | most |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut from = 0.05;
    for to in LOADS {
        let name = format!("load {from} to {to}");
        line(&name, outcomes.iter().filter(|o| o.case.load >= from && o.case.load < to).collect());
        from = to;
    }
    let mut from = 1;
    for to in WORKERS {
        let within = |o: &&Outcome| (from..=to).contains(&o.case.demand.workers);
        line(&format!("{from} to {to} workers"), outcomes.iter().filter(within).collect());
        from = to + 1;
    }
    line("all", outcomes.iter().collect());
    println!();
    for o in outcomes {
        if o.is_beyond() || o.closed().is_some_and(|closed| closed < TOLD) {
            o.tell();
        }
    }
}

/// One line of the table: the share of the distance that is closed, and by how much a rule is better at most.
fn line(name: &str, of: Vec<&Outcome>) {
    let all = |value: &dyn Fn(&Outcome) -> f64| of.iter().map(|o| value(o)).collect::<Vec<_>>();
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let closed: Vec<f64> = of.iter().filter_map(|o| o.closed()).collect();
    let least = closed.iter().copied().reduce(f64::min);
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
    let seconds = all(&|o| o.seconds);
    println!(
        "| {name} | {} | {} | {} | {} | {:.2} | {:.2} | {} | {:.2} | {:.2} |",
        of.len(),
        number(least.map(|_| mean(&closed))),
        number(least),
        closed.len(),
        most(&all(&|o| o.below().0)),
        most(&all(&|o| o.below().1)),
        of.iter().filter(|o| o.is_beyond()).count(),
        mean(&seconds),
        most(&seconds),
    );
}
