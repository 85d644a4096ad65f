//! Policies at work: requests come at random, go round, and are served as the policy says.

use rt_core::Span;

use super::super::*;
use super::{model, three};

/// A generator of random numbers (G. Marsaglia, Xorshift RNGs, 2003).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Above 0 and below 1.
    pub(super) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// The time until the next tick of a clock, in ticks.
    pub(super) fn wait(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// What happened to the requests of one worker.
#[derive(Default)]
pub(super) struct Happened {
    pub(super) decisions: f64,
    pub(super) right: f64,
    pub(super) late: f64,
    pub(super) requests: f64,
    pub(super) missed: f64,
    pub(super) accurate: f64,
}

/// One worker with `policy`, for so many decisions.
pub(super) fn run(spec: &Spec, arrivals: &dyn Arrivals, policy: &Policy, decisions: usize) -> Happened {
    let Clock { ticks, per_ns } = arrivals.clock(1);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut request = 0.0;
    let arrive = || {
        request += (0..ticks).map(|_| dice.wait()).sum::<f64>() / per_ns;
        request
    };
    serve(spec, std::iter::repeat_with(arrive), policy, decisions)
}

/// One worker to which requests come at these instants, in nanoseconds, until they end or so many decisions are made.
pub(super) fn serve(
    spec: &Spec,
    arrivals: impl Iterator<Item = f64>,
    policy: &Policy,
    decisions: usize,
) -> Happened {
    let slo = spec.slo_ns as f64;
    let mut arrivals = arrivals.chain(std::iter::repeat(f64::INFINITY));
    let mut arrive = || arrivals.next().unwrap_or(f64::INFINITY);
    let (mut now, mut coming) = (0.0, arrive());
    let mut queue = std::collections::VecDeque::new();
    let mut seen = Happened::default();
    for _ in 0..decisions {
        if queue.is_empty() {
            now = f64::max(now, coming);
            if now.is_infinite() {
                break;
            }
        }
        while coming <= now {
            queue.push_back(coming);
            coming = arrive();
        }
        let slack = Span::from_nanos((slo - (now - queue[0])).max(0.0) as u64);
        let Action { model, batch } = policy.action(queue.len(), slack);
        let batch = usize::from(batch).min(queue.len());
        let Some(model) = spec.models.get(usize::from(model)) else {
            queue.drain(..batch);
            seen.requests += batch as f64;
            seen.missed += batch as f64;
            continue;
        };
        now += model.latency(batch);
        seen.decisions += 1.0;
        let in_time = now <= queue[0] + slo + 1.0;
        seen.right += if in_time { model.accuracy } else { 0.0 };
        seen.late += f64::from(u8::from(!in_time));
        for came in queue.drain(..batch) {
            seen.requests += 1.0;
            if now > came + slo + 1.0 {
                seen.missed += 1.0;
            } else {
                seen.accurate += model.accuracy;
            }
        }
    }
    seen
}

#[test]
fn what_is_expected_happens() {
    for (flavour, batching, shape, rate) in [
        (Flavour::Program, Batching::Maximal, 1.0, 300.0),
        (Flavour::Program, Batching::Maximal, 1.0, 600.0),
        (Flavour::Paper, Batching::Variable, 1.0, 400.0),
        (Flavour::Program, Batching::Maximal, 1.0 / 3.0, 300.0),
        (Flavour::Program, Batching::Maximal, 4.0, 450.0),
    ] {
        let mut spec = three(Slack::Fixed(200), batching, flavour);
        // Room enough not to lose anything.
        spec.queue = 9;
        spec.models = [("fast", 0.5, 1.0, 1.0), ("middle", 0.7, 2.0, 3.0), ("slow", 0.8, 5.0, 7.0)]
            .map(|(name, accuracy, base, each)| {
                let ms: Vec<f64> = (1..=10).map(|b| base + each * f64::from(b)).collect();
                model(name, accuracy, &ms)
            })
            .to_vec();
        let arrivals = RoundRobin::gamma(rate, 3, shape).expect("valid");
        let problem = Problem::new(&spec, &arrivals).expect("valid");
        let policy = problem.solve().policy;
        let expected = problem.evaluate(&policy).expect("its own");
        let seen = run(&spec, &arrivals, &policy, 300_000);
        let (accuracy, late) = (seen.right / seen.decisions, seen.late / seen.decisions);
        println!("{flavour:?}, {shape}, {rate}: {accuracy:.4}, {late:.4} late; {expected:?}");
        println!(
            "by request {:.4}, missed {:.4}",
            seen.accurate / (seen.requests - seen.missed),
            seen.missed / seen.requests
        );
        assert!((accuracy - expected.accuracy_per_decision).abs() < 0.01);
        assert!((late - expected.late_per_decision).abs() < 0.01);
        assert!(seen.missed / seen.requests < expected.missed + 0.002);
    }
}
