//! What is seen of a service without its scheduler's lock: whoever holds the lock publishes what it changes, and everybody
//! else reads that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use rt_core::{
    Alarm, Evidence, Instant, MissReason, Scheduler, Span, StreamCounts, StreamSpec, StreamState, WorkerId,
};

use super::latch::Latch;
use super::pace::Pace;
use super::standing::{self, Standing};

const REASONS: usize = MissReason::ALL.len();
/// Of a stream: where its suspension begins, and all.
const SUSPENDED: usize = 3 + REASONS;
/// Where it is told how early requests came.
const EARLY: usize = SUSPENDED + 5;
/// Where it is told which of its promises is in force.
const LEVEL: usize = EARLY + 2;
const WORDS: usize = LEVEL + 1;

/// A stream as others see it, under one name for as long as it is there, whoever holds it.
#[derive(Debug)]
pub struct StreamView {
    pub name: String,
    /// The weaker promises behind its own, in words.
    levels: Vec<String>,
    /// Arrived, served, missed by reason, one more than the misses left, or 0, and why its promise is suspended: the number of
    /// the cause, or 0, its evidence and when; how many were early, and by how much at most; the level in force, for which all that is
    /// told but 0.
    words: Latch<WORDS>,
    /// How its requests come.
    pub pace: Pace,
}

/// How a stream's requests ended so far, and the misses that it can still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fared {
    pub arrived: u64,
    pub served: u64,
    /// Requests that came before they were declared to, within the tolerance, and by how much at most.
    pub early: u64,
    pub earliest: Span,
    missed: [u64; REASONS],
    pub misses_left: Option<u32>,
    /// What it broke itself, while that suspends its promise; the stream is not named in it.
    pub suspended: Option<Alarm>,
    /// Which weaker promise is in force instead of its own, from 1, and what it broke.
    pub degraded: Option<(u8, Alarm)>,
}

impl StreamView {
    /// Of a stream without requests, that declares this of them or nothing.
    pub(super) fn new(name: &str, spec: &StreamSpec) -> Self {
        let levels = spec.levels().iter().map(|level| level.constraints.to_string()).collect();
        Self { name: name.to_owned(), levels, words: Latch::new([0; WORDS]), pace: Pace::of(spec.arrivals()) }
    }

    /// The weaker promise that is in force in such a state, in words; empty if none is.
    pub fn promise(&self, state: StreamState) -> &str {
        let StreamState::Degraded(level) = state else { return "" };
        self.levels.get(usize::from(level).saturating_sub(1)).map_or("", String::as_str)
    }

    /// To be called by whoever holds the scheduler.
    pub(super) fn publish(
        &self,
        counts: &StreamCounts,
        misses_left: Option<u32>,
        (state, alarm): (StreamState, Option<Alarm>),
    ) {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (counts.arrived, counts.served);
        for (word, reason) in words[2..].iter_mut().zip(MissReason::ALL) {
            *word = counts.missed(reason);
        }
        words[2 + REASONS] = misses_left.map_or(0, |left| u64::from(left) + 1);
        if let Some(Alarm { cause, evidence: e, entered }) = alarm {
            words[SUSPENDED..EARLY].copy_from_slice(&[
                cause as u64,
                e.limit,
                e.seen,
                e.window,
                entered.as_nanos(),
            ]);
        }
        (words[EARLY], words[EARLY + 1]) = (counts.early, counts.earliest.as_nanos());
        words[LEVEL] = if let StreamState::Degraded(level) = state { level.into() } else { 0 };
        self.words.write(words);
    }

    pub fn fared(&self) -> Fared {
        let words = self.words.read();
        let mut missed = [0; REASONS];
        missed.copy_from_slice(&words[2..2 + REASONS]);
        let misses_left = words[2 + REASONS].checked_sub(1).map(|left| left as u32);
        let [cause, limit, seen, window, entered] = [0, 1, 2, 3, 4].map(|word| words[SUSPENDED + word]);
        let evidence = Evidence { limit, seen, window, stream: None };
        let alarm = standing::cause(cause).map(|cause| {
            let entered = Instant::from_nanos(entered);
            Alarm { cause, evidence, entered }
        });
        let (early, earliest) = (words[EARLY], Span::from_nanos(words[EARLY + 1]));
        let level = words[LEVEL] as u8;
        let (suspended, degraded) =
            if level == 0 { (alarm, None) } else { (None, alarm.map(|alarm| (level, alarm))) };
        Fared {
            arrived: words[0],
            served: words[1],
            early,
            earliest,
            missed,
            misses_left,
            suspended,
            degraded,
        }
    }
}

impl Fared {
    /// Requests missed, by reason.
    pub fn missed(&self) -> impl Iterator<Item = (MissReason, u64)> + '_ {
        MissReason::ALL.into_iter().zip(self.missed)
    }
}

/// A service as others see it.
#[derive(Debug)]
pub struct ServiceView {
    /// Requests taken in and not resolved, and those of them that wait.
    open: AtomicUsize,
    waiting: AtomicUsize,
    /// Those that wait at each stage of a pipeline.
    stages: Box<[AtomicUsize]>,
    workers: Arc<WorkerViews>,
    /// Whether any of them has an engine of it.
    served: AtomicBool,
    /// The arrivals that count towards the rate warning, as the bits of requests a second, and when that was so.
    rate: AtomicU64,
    rate_at: AtomicU64,
    standing: Latch<{ standing::WORDS }>,
    /// The longest time for which the scheduler's lock was held, in nanoseconds.
    longest_hold: AtomicU64,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkerView {
    Free = 1,
    AtWork = 2,
    Lost = 3,
}

/// What each worker does, for all services that run on them.
#[derive(Debug)]
pub(super) struct WorkerViews(Box<[AtomicU8]>);

impl WorkerViews {
    /// Of workers that are free.
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicU8::new(WorkerView::Free as u8)).collect())
    }

    pub(super) fn publish(&self, worker: WorkerId, does: WorkerView) {
        if let Some(place) = self.0.get(worker) {
            place.store(does as u8, Ordering::Relaxed);
        }
    }
}

impl ServiceView {
    /// Of a service that has just been made, or a pipeline of so many stages.
    pub(super) fn new(workers: Arc<WorkerViews>, stages: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stages: (0..stages).map(|_| AtomicUsize::new(0)).collect(),
            workers,
            served: AtomicBool::new(true),
            rate: AtomicU64::new(0f64.to_bits()),
            rate_at: AtomicU64::new(0),
            standing: Latch::new(standing::NORMAL),
            longest_hold: AtomicU64::new(0),
        }
    }

    pub(super) fn publish_load(&self, open: usize, waiting: usize) {
        self.waiting.store(waiting, Ordering::Relaxed);
        // Who sees that nothing is open any more sees who is still telling, too.
        self.open.store(open, Ordering::Release);
    }

    /// What waits at each stage of a pipeline.
    pub(super) fn publish_stages(&self, waiting: impl Iterator<Item = usize>) {
        self.stages.iter().zip(waiting).for_each(|(place, count)| place.store(count, Ordering::Relaxed));
    }

    pub(super) fn publish_served(&self, served: bool) {
        self.served.store(served, Ordering::Relaxed);
    }

    pub(super) fn publish_rate(&self, per_s: f64, now: Instant) {
        self.rate.store(per_s.to_bits(), Ordering::Relaxed);
        self.rate_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// `shield` is whether there is one, and what has gone ahead by it; `stream` is the name of the stream in the evidence, or empty.
    pub(super) fn publish_standing(&self, scheduler: &Scheduler, shield: (bool, u64), stream: &str) {
        self.standing.write(standing::words(scheduler, shield, stream));
    }

    /// To be called by whoever holds the scheduler: nobody else writes meanwhile.
    pub(super) fn publish_hold(&self, length: Span) {
        if length.as_nanos() > self.longest_hold.load(Ordering::Relaxed) {
            self.longest_hold.store(length.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Counts the longest hold from now on.
    pub(super) fn forget_hold(&self) {
        self.longest_hold.store(0, Ordering::Relaxed);
    }

    /// Requests without an outcome.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests waiting at each stage of a pipeline.
    pub fn waiting_at_stages(&self) -> impl Iterator<Item = usize> + '_ {
        self.stages.iter().map(|place| place.load(Ordering::Relaxed))
    }

    /// Requests running; an instant ahead of those waiting, or behind.
    pub fn running(&self) -> usize {
        let waiting = self.waiting();
        self.open().saturating_sub(waiting)
    }

    /// What each worker does; lost to a service are those that others have without an engine of it.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = WorkerView> + '_ {
        let served = self.served.load(Ordering::Relaxed);
        self.workers.0.iter().map(move |place| match place.load(Ordering::Relaxed) {
            1 if served => WorkerView::Free,
            2 if served => WorkerView::AtWork,
            _ => WorkerView::Lost,
        })
    }

    /// Workers not lost.
    pub fn workers_alive(&self) -> usize {
        self.workers().filter(|&does| does != WorkerView::Lost).count()
    }

    /// The rate that is warned of at `now`, measured over `window`. Since the last arrival those before it are reckoned to
    /// have come evenly: that is out by one request of the window at most where they did.
    pub(super) fn rate_per_s(&self, now: Instant, window: Span) -> f64 {
        let (rate, at) = (self.rate.load(Ordering::Relaxed), self.rate_at.load(Ordering::Relaxed));
        let since = now.since(Instant::from_nanos(at)).as_nanos() as f64 / window.as_nanos() as f64;
        f64::from_bits(rate) * (1.0 - since).max(0.0)
    }

    pub fn standing(&self) -> Standing {
        Standing::of(self.standing.read())
    }

    /// The longest time for which the scheduler's lock was held while requests could come.
    pub fn longest_hold(&self) -> Span {
        Span::from_nanos(self.longest_hold.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_core::Cause;

    #[test]
    fn the_rate_falls_with_the_time_since_the_last_arrival() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let (view, window) = (ServiceView::new(Arc::new(WorkerViews::new(1)), 0), Span::from_millis(500));
        assert_eq!(view.rate_per_s(at(7_000), window), 0.0);
        view.publish_rate(40.0, at(7_000));
        let rates = [6_999, 7_000, 7_250, 7_500, 9_000].map(|ms| view.rate_per_s(at(ms), window));
        assert_eq!(rates, [40.0, 40.0, 20.0, 0.0, 0.0]);
    }

    #[test]
    fn a_stream_without_constraints_has_no_misses_left_and_one_that_has_used_them_up_has_none() {
        let (view, at) = (StreamView::new("cam", &StreamSpec::best_effort()), Instant::from_nanos(9));
        let published = [None, Some(0), Some(7)].map(|left| {
            let mut counts = StreamCounts::default();
            (counts.arrived, counts.served) = (5, 3);
            (counts.early, counts.earliest) = (2, Span::from_nanos(8));
            let evidence = Evidence { limit: 1, seen: 2, window: 3, stream: None };
            let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: at };
            let state = left.map_or(StreamState::Normal, |_| StreamState::Suspended);
            view.publish(&counts, left, (state, left.map(|_| alarm)));
            view.fared()
        });
        assert_eq!(
            published.map(|fared| fared.suspended.map(|alarm| alarm.entered)),
            [None, Some(at), Some(at)]
        );
        assert_eq!(published.map(|fared| fared.misses_left), [None, Some(0), Some(7)]);
        assert_eq!((published[0].arrived, published[0].served), (5, 3));
        assert!(published.iter().all(|fared| (fared.early, fared.earliest) == (2, Span::from_nanos(8))));
    }
}
