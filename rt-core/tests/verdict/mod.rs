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

/// How the promise to a stream stood when a request of it was taken in, and after how many breaches and takeovers that began it anew; none if
/// there was none.
pub(crate) type Stood = Option<(StreamState, u64, usize)>;

/// A request that was taken in: when, under which constraints, and how its promise stood.
pub(crate) struct Taken {
    pub(crate) at: u64,
    pub(crate) spec: StreamSpec,
    pub(crate) stood: Stood,
    /// Events that had been told by then.
    pub(crate) told: usize,
}

/// A request that has ended.
struct Ended<'a> {
    seq: u64,
    at: u64,
    taken: &'a Taken,
    outcome: Outcome,
    /// The promise to all was broken, and that was told, between when it was taken in and when it ended.
    struck: bool,
}

impl Ended<'_> {
    fn is_promised(&self) -> bool {
        !self.struck && self.taken.stood.is_some_and(|(state, ..)| state != StreamState::Suspended)
    }

    /// Whether the same promise stood when `next` was taken in, with nothing else in between.
    fn is_followed_by(&self, next: &Self, own: &[(usize, StreamState)]) -> bool {
        let Some((state, ..)) = self.taken.stood else { return next.taken.stood.is_none() };
        let told_before = own.iter().rev().find(|(place, _)| *place < self.taken.told);
        let known = told_before.map_or(StreamState::Normal, |(_, state)| *state) == state;
        let between = own.iter().filter(|(place, _)| (self.taken.told..next.taken.told).contains(place));
        // What was not told yet when it was taken in is how it stood then.
        let between: Vec<_> = between.map(|(_, told)| *told).collect();
        let changed = match between.split_first() {
            None => false,
            Some((first, more)) => known || *first != state || !more.is_empty(),
        };
        !changed
            && self.seq + 1 == next.seq
            && (self.taken.stood, &self.taken.spec) == (next.taken.stood, &next.taken.spec)
    }
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
    let mut by_stream: Vec<(StreamId, Vec<Ended>)> = Vec::new();
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
        let ended = Ended { seq: request.seq, at: *at, taken, outcome, struck };
        match by_stream.iter_mut().find(|(id, _)| *id == request.stream) {
            Some((_, all)) => all.push(ended),
            None => by_stream.push((request.stream, vec![ended])),
        }
    }
    for (id, ended) in &mut by_stream {
        ended.sort_by_key(|one| one.seq);
        let own = own_changes(harness, *id);
        for same in ended.chunk_by(|one, next| one.is_followed_by(next, &own)) {
            let level = match same[0].taken.stood {
                Some((StreamState::Normal, ..)) => 0,
                Some((StreamState::Degraded(level), ..)) => usize::from(level),
                Some((StreamState::Suspended, ..)) | None => continue,
            };
            let cancelled = Outcome::Missed(MissReason::Cancelled);
            let whole = same.iter().take_while(|one| !one.struck && one.outcome != cancelled);
            let hits: Vec<_> = whole.map(|one| one.outcome == Outcome::Served).collect();
            let set = same[0].taken.spec.constraints_at(level);
            assert!(
                !violates_any(&hits, set),
                "level {level} of {id:?} from {}: {hits:?} {}",
                same[0].seq,
                told()
            );
            tally.weaker += if level > 0 { hits.len() } else { 0 };
        }
    }
    look_at_causes(setup, harness, wild, tally);
    look_at_violations(setup, harness, &by_stream);
    tally.runs += 1;
    tally.stalls += harness.scheduler.stalls();
    tally.longer += harness.longer_than(setup.config.workers[0].batch_time().as_nanos());
}

/// How the promise to a stream stands from which event on.
fn own_changes(harness: &Harness, id: StreamId) -> Vec<(usize, StreamState)> {
    let own = |(place, (_, event)): (usize, &(u64, Event))| match event {
        Event::Suspension(told) if told.stream == id => Some((place, told.state)),
        _ => None,
    };
    harness.events.iter().enumerate().filter_map(own).collect()
}

/// A violation is told over a window alone that holds a request for which nothing was promised, for what had been told before; and as
/// the stream's own over one in which its own promise was suspended or another.
fn look_at_violations(setup: &Setup, harness: &Harness, by_stream: &[(StreamId, Vec<Ended>)]) {
    for (place, (at, event)) in harness.events.iter().enumerate() {
        let (alarm, of) = match event {
            Event::SafeMode(told) => (told.state.alarm.filter(|_| told.state.is_suspended()), None),
            Event::Suspension(told) if told.state == StreamState::Suspended => {
                (told.alarm, Some(told.stream))
            }
            _ => continue,
        };
        let Some(alarm) = alarm.filter(|alarm| alarm.cause == Cause::ConstraintViolated) else { continue };
        let (limit, window) = (alarm.evidence.limit as usize, alarm.evidence.window as usize);
        let id = of.or(alarm.evidence.stream).expect("of a stream");
        let ended = by_stream.iter().find(|(other, _)| *other == id).map_or(&[][..], |(_, ended)| ended);
        let ended: Vec<_> = ended.iter().filter(|one| one.at <= *at).collect();
        let own = own_changes(harness, id);
        let before = own
            .iter()
            .rev()
            .find(|(other, _)| *other < place)
            .map_or(StreamState::Normal, |(_, state)| *state);
        let explains = |all: &[&Ended]| {
            let misses = all.iter().filter(|one| one.outcome != Outcome::Served).count();
            let changed = all.windows(2).any(|two| match of {
                Some(_) => !two[0].is_followed_by(two[1], &own),
                None => two[0].taken.stood.map(|s| s.2) != two[1].taken.stood.map(|s| s.2),
            });
            let other = |one: &&Ended| one.taken.stood.is_some_and(|(state, ..)| state != before);
            misses > limit
                && (changed
                    || of.is_some() && all.iter().any(other)
                    || all.iter().any(|one| !one.is_promised()))
        };
        assert!(
            (0..ended.len()).any(|from| explains(&ended[from..ended.len().min(from + window)])),
            "at {at}: {event:?} {setup:?} {:?}",
            harness.events
        );
    }
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

/// When something broke that nothing is promised beside, and that was told.
fn breaks((at, event): &(u64, Event)) -> Option<u64> {
    let Event::SafeMode(told) = event else { return None };
    told.breach().filter(|&cause| cause != Cause::ConstraintViolated).map(|_| *at)
}
