//! What came of requests, judged by how the promise to their stream stood when they were taken in.

use rt_core::{Cause, Event, MissReason, Outcome, Severity, StreamId, StreamSpec, StreamState};

use crate::harness::load::Setup;
use crate::harness::{Harness, violates_any};

/// What there was of it in all runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: usize,
    pub(crate) served: usize,
    pub(crate) losses: usize,
    pub(crate) in_force: usize,
    pub(crate) early: usize,
    pub(crate) read_late: usize,
    pub(crate) too_late: usize,
    pub(crate) stalls: u64,
    pub(crate) longer: usize,
    pub(crate) excesses: usize,
    pub(crate) falls: usize,
    pub(crate) came: usize,
    pub(crate) waited: usize,
    pub(crate) takeovers: usize,
    /// While promises had fallen back, with a worker that was not there, and with a stream that was declared anew.
    pub(crate) fallen: usize,
    pub(crate) incomplete: usize,
    pub(crate) redeclared: usize,
    pub(crate) missed: usize,
    pub(crate) weaker: usize,
}

/// How the promise to a stream stood when a request of it was taken in, and after how many changes; none if there was none.
pub(crate) type Stood = Option<(StreamState, u64, u64, usize)>;

/// A request that was taken in: when, under which constraints, and how its promise stood.
pub(crate) struct Taken {
    pub(crate) at: u64,
    pub(crate) spec: StreamSpec,
    pub(crate) stood: Stood,
}

/// Nothing that had to be served was missed but for what was announced, and each promise was kept over what came while it was in force.
pub(crate) fn judge(
    setup: &Setup,
    (harness, all): (&Harness, &[Option<Taken>]),
    wild: bool,
    tally: &mut Tally,
) {
    let breaks: Vec<u64> = harness.events.iter().filter_map(breaks).collect();
    let told = || format!("{setup:?}, broken at {breaks:?}: {:?}", harness.events);
    let mut by_stream: Vec<(StreamId, Vec<_>)> = Vec::new();
    for (at, resolution) in &harness.resolutions {
        let request = resolution.request;
        let Some(taken) = all.get(request.token as usize).and_then(Option::as_ref) else { continue };
        let struck = breaks.iter().any(|&broken| taken.at <= broken && broken <= *at);
        let outcome = resolution.outcome;
        let kept = [Outcome::Served, Outcome::Missed(MissReason::Cancelled)].contains(&outcome);
        tally.served += usize::from(request.mandatory && outcome == Outcome::Served);
        tally.missed += usize::from(request.mandatory && !kept);
        let said =
            || format!("at {at}, taken in at {}, {:?}: {resolution:?} {}", taken.at, taken.stood, told());
        assert!(kept || !request.mandatory || taken.stood.is_none() || struck, "{}", said());
        match by_stream.iter_mut().find(|(id, _)| *id == request.stream) {
            Some((_, all)) => all.push((request.seq, taken, outcome, struck)),
            None => by_stream.push((request.stream, vec![(request.seq, taken, outcome, struck)])),
        }
    }
    for (id, mut ended) in by_stream {
        ended.sort_by_key(|&(seq, ..)| seq);
        for same in ended.chunk_by(|one, other| {
            (one.1.stood, &one.1.spec) == (other.1.stood, &other.1.spec) && one.0 + 1 == other.0
        }) {
            let level = match same[0].1.stood {
                Some((StreamState::Normal, ..)) => 0,
                Some((StreamState::Degraded(level), ..)) => usize::from(level),
                Some((StreamState::Suspended, ..)) | None => continue,
            };
            let cancelled = Outcome::Missed(MissReason::Cancelled);
            let whole = same.iter().take_while(|(.., outcome, struck)| !struck && *outcome != cancelled);
            let hits: Vec<_> = whole.map(|(.., outcome, _)| *outcome == Outcome::Served).collect();
            let set = same[0].1.spec.constraints_at(level);
            assert!(
                !violates_any(&hits, set),
                "level {level} of {id:?} from {}: {hits:?} {}",
                same[0].0,
                told()
            );
            tally.weaker += if level > 0 { hits.len() } else { 0 };
        }
    }
    look_at_causes(setup, harness, wild, tally);
    tally.runs += 1;
    tally.stalls += harness.scheduler.stalls();
    tally.longer += harness.longer_than(setup.config.workers[0].batch_time().as_nanos());
}

/// Nothing is announced but what there was.
fn look_at_causes(setup: &Setup, harness: &Harness, wild: bool, tally: &mut Tally) {
    let mut suspended = false;
    for (at, event) in &harness.events {
        match event {
            Event::SafeMode(told) => {
                let cause = told.state.alarm.map(|alarm| alarm.cause);
                let stalls = setup.config.stalls.is_some();
                let known = match cause {
                    None | Some(Cause::MissesLow | Cause::WorkerLost | Cause::ServiceOverrun) => true,
                    Some(Cause::LateDispatch) => stalls,
                    // Over a window that began before all was well again.
                    Some(Cause::ConstraintViolated) => suspended,
                    Some(_) => false,
                };
                assert!(known, "at {at}: {told:?} {setup:?} {:?}", harness.events);
                suspended |= told.state.is_suspended();
                tally.in_force +=
                    usize::from(told.state.severity == Severity::Warning && cause != Some(Cause::MissesLow));
            }
            Event::Suspension(told) => {
                let cause = told.alarm.map(|alarm| alarm.cause);
                assert!(wild || cause != Some(Cause::ArrivalExcess), "at {at}: {told:?} {setup:?}");
                tally.excesses += usize::from(cause == Some(Cause::ArrivalExcess));
                tally.falls += usize::from(matches!(told.state, StreamState::Degraded(_)));
            }
            Event::MissesLeft { .. } => {}
        }
    }
}

/// When nothing was promised any more.
fn breaks((at, event): &(u64, Event)) -> Option<u64> {
    matches!(event, Event::SafeMode(told) if told.state.is_suspended()).then_some(*at)
}
