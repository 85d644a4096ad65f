//! Random systems of workers of several kinds, with just the deadline that the bound over their sum asks for.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{LatencyProfile, SchedulerConfig, Shield, Span, StreamSpec, Workers};

use super::load::{Setup, guarded, ns, setup, stream, tight_setup, with_stalls};
use super::{Dice, system};

/// Offsets looked at; no run lasts longer.
pub(crate) const HORIZON: u64 = 4_000;

/// The least latency at which `min{u : σ(u) ≥ α_m(Δ)} + max P ≤ Δ + L` holds, with `σ(u) = Σ B·floor(u/P)`.
fn least_latency(workers: &[Workers], streams: &[StreamSpec]) -> u64 {
    let full = |kind: &Workers| kind.batch_time().as_nanos();
    let sigma = |u: u64| workers.iter().map(|k| (k.count * k.batch) as u64 * (u / full(k))).sum::<u64>();
    let slowest = workers.iter().map(full).max().expect("workers");
    let demand: Vec<_> = streams.iter().filter_map(StreamSpec::demand).collect();
    let (mut u, mut latency) = (0, slowest);
    for offset in 0..HORIZON {
        let coming: u64 = demand.iter().map(|(d, curve)| d.ceil_of(curve.count(ns(offset + 1)))).sum();
        while sigma(u) < coming {
            u += 1;
        }
        latency = latency.max((u + slowest).saturating_sub(offset));
    }
    latency
}

fn kind() -> impl Strategy<Value = Workers> {
    let steps = proptest::collection::vec(0u64..4, 4);
    (1u64..20, steps, 1usize..5, 1usize..3).prop_map(|(first, steps, batch, count)| {
        let mut times = vec![ns(first)];
        steps.iter().for_each(|step| times.push(times[times.len() - 1] + ns(*step)));
        Workers { count, batch, profile: LatencyProfile::new(&times).expect("a profile") }
    })
}

/// Workers of up to three kinds, and the streams that they can serve with some patience.
pub(crate) fn mixed() -> impl Strategy<Value = Setup> {
    let kinds = proptest::collection::vec(kind(), 2..4);
    let streams = proptest::collection::vec(stream(), 1..5);
    (setup(), kinds, streams, 0u64..4).prop_map(|(setup, workers, mut streams, guard)| {
        let slowest = workers.iter().map(|k| k.batch_time().as_nanos()).max().expect("workers");
        while least_latency(&workers, &streams) > 12 * slowest {
            streams.pop();
        }
        let deadline = ns(least_latency(&workers, &streams) + guard);
        let config = SchedulerConfig { workers, deadline, guard: ns(guard), ..setup.config };
        Setup { config, streams, ..setup }
    })
}

/// One of all systems by chance, also with workers of two kinds, with room for late reading, two of five with stalls where these fit; and what
/// chance goes on from. `None` if nobody sends anything.
pub(crate) fn some(nth: usize, runner: &mut TestRunner) -> Option<(Setup, Dice)> {
    let draw = match nth % 4 {
        0 => setup().boxed(),
        1 => mixed().boxed(),
        _ => tight_setup().boxed(),
    };
    let setup = draw.new_tree(runner).expect("a setup").current();
    if setup.streams.is_empty() {
        return None;
    }
    let mut dice = Dice(setup.seed);
    let setup = if setup.config.guard == Span::ZERO { guarded(setup, dice.within(0, 3)) } else { setup };
    let stalled = if nth % 5 < 2 { with_stalls(setup.clone(), 1, dice.within(1, 9)) } else { None };
    Some((stalled.map_or(setup, |(setup, _)| setup), dice))
}

/// By how much requests may come early where these send.
pub(crate) fn tolerance(config: &SchedulerConfig, specs: &[StreamSpec]) -> Span {
    system(config).tolerance(specs, config.tolerance, config.queue as u64)
}

/// What long batches are asked of where these send, of workers of one kind whose stalls nothing absorbs.
pub(crate) fn shield(config: &SchedulerConfig, specs: &[StreamSpec]) -> Option<Shield> {
    let [alike] = &config.workers[..] else { return None };
    config.stalls.is_none_or(|stalls| stalls.recovery().is_none()).then_some(())?;
    let latency = config.deadline.saturating_sub(config.reserve());
    let load = specs.iter().filter_map(StreamSpec::demand);
    Shield::tolerant(alike, (latency, tolerance(config, specs)), load).ok()
}
