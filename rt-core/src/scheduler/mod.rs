//! The scheduler: the one place where it is decided which request runs, when, where, or not at all.

mod accounting;
mod apart;
pub(crate) mod batch;
mod carry_in;
mod demotion;
mod dispatch;
pub(crate) mod due;
pub(crate) mod earliest;
mod entry;
mod fallback;
pub(crate) mod few;
pub(crate) mod first;
mod form;
mod guest;
mod handover;
mod levels;
mod ordered;
mod overdue;
pub(crate) mod pool;
mod prolong;
pub(crate) mod queue;
mod select;
mod spread;
mod streams;
mod suspension;
mod tolerance;
mod types;
mod wake;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::fallback::Fallbacks;
use crate::ledger::LoadLedger;
use crate::outcome::SpareLogs;
use crate::safe_mode::SafeMode;
use crate::select::LoadMonitor;
use crate::shield::Shield;
use crate::stalls::StallMonitor;
use crate::stream::{MissReason, StreamCounts, StreamId};
use crate::time::{Instant, Span};
use accounting::Told;
use apart::Apart;
use batch::BatchPlanner;
use carry_in::CarryIn;
use earliest::Earliest;
use fallback::Fallen;
use pool::{Pool, State};
use queue::Waiting;
use streams::Streams;
use suspension::Suspensions;
use tolerance::Tolerance;
use types::NEVER;

pub use handover::HandOverError;
pub use streams::{Joined, Newcomer, Retired};
pub use types::{
    Action, Arrival, ConfigError, Event, MAX_WORKERS, Outcome, Ran, Request, Resolution, SchedulerConfig,
    ShieldRefusal, StreamError, WorkerId,
};

/// Decides which request runs, when, where, or not at all.
///
/// It serves mandatory requests first, in order of deadlines, and fills batches with others (`docs/guarantee.md`):
/// first with those that a stream beyond its declaration would need. It does not test admission: run
/// [`crate::System::admit`] on [`Scheduler::load`] and the new stream before [`Scheduler::try_add_stream`].
///
/// # Calling contract
/// This is a state machine without clock or I/O. Instants must not go back from one call to the next.
///
/// 1. Feed it every arrival ([`Scheduler::handle_arrival`]), every end of a batch ([`Scheduler::handle_completion`]) and
///    whatever else its `handle_` functions take, with the present instant, as soon as it happens.
/// 2. After each of these, and when the last [`Action::WakeAt`] comes due, call [`Scheduler::poll`] with the present
///    instant until it returns `WakeAt`, and carry out what it returns in this order. With nothing to do it costs a compare.
/// 3. Between [`Action::Start`] and the next call, [`Scheduler::prolong`] may grant that batch more time, and
///    [`Scheduler::batch`] and [`Scheduler::variant`] tell what is to be run.
/// 4. Each request ends in exactly one [`Resolution`], returned at once by `handle_arrival` or later by `poll`.
/// 5. Streams come by [`Scheduler::try_add_stream`] alone: what takes long is done before it, what it no longer needs is
///    given back, to be dropped where nobody waits.
///
/// None of the calls of 1 to 3 allocates, and none is linear in workers or streams unless a promise has been broken.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    /// See [`SchedulerConfig::reserve`].
    reserve: Span,
    /// How long a request is unanswered at most, while all is as declared.
    life: Span,
    pool: Pool,
    waiting: Waiting,
    planner: BatchPlanner,
    streams: Streams,
    /// Room for those that it is to take over.
    spare: SpareLogs,
    ledger: LoadLedger,
    /// Of each stream that demands something, by its place: before when no request of it conforms, as far as was looked.
    to_come: Earliest,
    told: Told,
    /// Requests that the batch formed last left behind for good.
    given_up: Vec<(Request, MissReason)>,
    safe_mode: SafeMode,
    suspensions: Suspensions,
    /// By how much requests may come early and harm nobody.
    tolerance: Tolerance,
    /// What was begun or waited when an assumption was broken last.
    aftermath: CarryIn,
    /// What a newcomer's admission does not count: batches granted more than `P`, and without background what was begun
    /// for streams that were removed.
    carry_in: CarryIn,
    /// How often no mandatory request was left waiting.
    clears: u64,
    /// The instant at which an idle worker should have been given a batch; the end of time if none waits for it.
    armed: Instant,
    /// When the next request of a batch that has been reported as overdue passes its deadline.
    passes: Instant,
    /// Time brings nothing about before; and nothing is to be done but then, or when something `changed`.
    next: Instant,
    changed: bool,
    /// The latest dispatch, and the longest part of a batch's time outside the engine.
    worst_delay: Span,
    worst_handover: Span,
    /// Batches whose engine took longer than it may.
    overruns: u64,
    /// Of what is lost rarely, if that is declared. On shared workers the device keeps account of it, and the service for itself while
    /// it is demoted.
    stalls: Option<StallMonitor>,
    /// Whether constraints absorb what that makes miss, and how many requests that had to be served were.
    absorbs: bool,
    absorbed: u64,
    /// Which batches may take longer; it counts every promised stream.
    shield: Option<Arc<Shield>>,
    /// The shield is right for what runs, whoever of those that it counts comes.
    vouched: bool,
    /// A stream waits for what long batches have left: no more are started.
    awaited: bool,
    selection: select::Selection,
    /// What the promises fall back on when something is wrong, and while they have.
    fallbacks: Fallbacks,
    fallen: Option<Fallen>,
    /// Whether the engine failed on a batch lately.
    apart: Apart,
    /// Batches are started for mandatory requests alone.
    quiet: bool,
    /// No request is begun after a later one of its stream.
    in_order: bool,
    /// Its workers are shared with others.
    guest: Option<guest::Guest>,
    /// See [`Scheduler::is_excused`].
    excused: bool,
    /// See [`Scheduler::has_new_first`].
    leads: bool,
    /// Counts arrivals, and how many within its window are warned of.
    rate_warning: Option<(LoadMonitor, u64)>,
}

impl Scheduler {
    /// Allocates everything that running needs.
    ///
    /// # Errors
    /// If a number is outside its range, or no request could ever meet the deadline.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let running: usize = config.kinds().map(|kind| kind.profile.max_batch()).sum();
        Ok(Self {
            reserve: config.reserve(),
            life: streams::life(&config),
            pool: Pool::new(&config.workers),
            waiting: Waiting::new(config.queue, config.streams),
            planner: BatchPlanner::new(config.queue, config.streams)
                .spreading(config.spread && config.background),
            streams: Streams::new(config.streams),
            spare: SpareLogs::default(),
            ledger: LoadLedger::new(config.streams),
            to_come: Earliest::new(config.streams),
            told: Told::new(config.queue + running + 1),
            given_up: Vec::with_capacity(config.queue),
            safe_mode: SafeMode::new(config.safe_mode),
            suspensions: Suspensions::new(config.streams),
            tolerance: Tolerance::new(config.streams),
            aftermath: CarryIn::None,
            carry_in: CarryIn::None,
            clears: 0,
            armed: NEVER,
            passes: NEVER,
            next: NEVER,
            changed: false,
            worst_delay: Span::ZERO,
            worst_handover: Span::ZERO,
            overruns: 0,
            stalls: config.stalls.map(StallMonitor::new),
            absorbs: config.absorbs().is_some(),
            absorbed: 0,
            shield: None,
            vouched: true,
            awaited: false,
            selection: select::Selection::default(),
            fallbacks: Fallbacks::default(),
            fallen: None,
            apart: Apart::default(),
            quiet: false,
            in_order: false,
            guest: None,
            excused: false,
            leads: false,
            rate_warning: None,
            config,
        })
    }

    /// Takes in a request. Returns its resolution if it is refused at once; `None` means that it waits and `poll` will
    /// resolve it. A request of an unknown stream is cancelled.
    ///
    /// That it came more than the guard before `now`, while a worker is idle or if it must be served, is late dispatch.
    #[inline]
    pub fn handle_arrival(&mut self, now: Instant, arrival: Arrival) -> Option<Resolution> {
        self.take_in(now, arrival, (arrival.at, self.config.deadline), true)
    }

    /// Counts a request of `stream` that the caller has no room for: it is refused as [`MissReason::QueueFull`].
    pub fn handle_refused(&mut self, now: Instant, stream: StreamId) -> Option<Resolution> {
        let arrival = Arrival::new(stream, u64::MAX, now);
        self.take_in(now, arrival, (now, self.config.deadline), false)
    }

    /// From now on no request is begun after a later one of its stream: what waits and is overtaken by it is shed. Nothing
    /// mandatory is among that, so all promises stand.
    pub fn set_in_order(&mut self, in_order: bool) {
        self.in_order = in_order;
    }

    /// Takes in the end of the batch that `worker` was running. A worker that runs nothing is left alone.
    pub fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        self.take_end(now, worker, ran, false);
    }

    /// The same of a batch that may have `stalled` as declared, as who keeps account of that has found.
    pub(crate) fn take_end(&mut self, now: Instant, worker: WorkerId, ran: Ran, stalled: bool) {
        let Some(times) = self.pool.end(now, worker) else { return };
        self.changed |= !self.is_indifferent();
        let (Ran::Done(time) | Ran::Failed(time)) = ran;
        self.note_end(now, times, time, stalled);
        if matches!(ran, Ran::Failed(_)) {
            self.batch_failed(now, Self::kinds_of(self.pool.batch(worker)));
            self.end_batch(now, worker, |_| Outcome::Missed(MissReason::EngineFailed));
        } else {
            self.end_batch(now, worker, |request| match now > request.wanted {
                true => Outcome::Missed(MissReason::Late),
                false => Outcome::Served,
            });
        }
        self.arm(now, now);
    }

    /// A batch that began and was due at these instants ends `now`, after the engine ran for `time`.
    #[inline]
    fn note_end(
        &mut self,
        now: Instant,
        (started, due, reported): (Instant, Instant, bool),
        time: Span,
        stalled: bool,
    ) {
        self.worst_handover = self.worst_handover.max(now.since(started).saturating_sub(time));
        if now > due {
            self.ended_late(now, (started, due, reported), time, stalled);
        } else if self.fallen.is_some() {
            self.note_pace(now, started, due);
        }
    }

    /// A batch that began and was due at these instants ends `now`, later than it should, after the engine ran for `time`.
    #[cold]
    fn ended_late(
        &mut self,
        now: Instant,
        (started, due, reported): (Instant, Instant, bool),
        time: Span,
        stalled: bool,
    ) {
        let (bound, held) = (due.since(started), now.since(started));
        self.planner.note_over(now.since(due));
        self.overruns += u64::from(time > bound);
        let excused = self.is_excused();
        let stalled = !reported && (stalled || !excused && self.has_stalled(started, due, now));
        match time > bound {
            _ if stalled || !reported && excused => {}
            true => self.overran(now, (started, due, reported), time),
            // The engine kept its time; what lies around it did not.
            false => self.raise_late(now, bound, held),
        }
        if time > bound && !stalled {
            self.note_slow(now, bound, held);
        }
    }

    /// Takes in that a worker is gone; its batch is missed. With the last one, so is all that waits.
    pub fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        if self.pool.get(worker).is_none() {
            return;
        }
        self.changed = true;
        self.pool.lose(now, worker);
        // The quickest that is left may be too slow for what waits.
        self.look_at(now);
        self.worker_lost(now);
        self.end_batch(now, worker, |_| Outcome::Missed(MissReason::WorkerLost));
        if self.pool.alive() == 0 {
            self.give_up_all(now, MissReason::WorkerLost);
        }
    }

    /// Takes in that a lost worker is back. Safe mode is not left while one is missing.
    pub fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        if self.pool.get(worker).is_some_and(|w| w.state == State::Lost) {
            self.changed = true;
            self.pool.regain(now, worker);
            self.worker_back(now);
        }
    }

    /// The batch that `worker` runs, in order; empty if it runs none.
    #[must_use]
    pub fn batch(&self, worker: WorkerId) -> &[Request] {
        self.pool.batch(worker)
    }

    /// Requests waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.pool.running()
    }

    /// Workers not lost.
    #[must_use]
    pub fn workers_alive(&self) -> usize {
        self.pool.alive()
    }

    /// Whether a worker is there and not lost.
    #[must_use]
    pub fn is_alive(&self, worker: WorkerId) -> bool {
        self.pool.get(worker).is_some_and(|w| w.state != State::Lost)
    }

    /// The state of what all promises share.
    #[must_use]
    pub fn safe_mode(&self) -> &SafeMode {
        &self.safe_mode
    }

    /// The daemon's own delays so far: the latest dispatch after it was due, which the guard must cover, and
    /// the longest time a batch spent outside its engine between dispatch and completion, which `P(b)` must.
    #[must_use]
    pub fn worst_delays(&self) -> (Span, Span) {
        (self.worst_delay, self.worst_handover)
    }

    /// How a stream fared: its counts, and the misses that it can still take.
    #[must_use]
    pub fn stream_counts(&self, id: StreamId) -> Option<(StreamCounts, Option<u32>)> {
        let stream = self.streams.get(id)?;
        Some((stream.counts, stream.outcomes.monitor.told_left()))
    }

    /// Batches that have ended so far and whose engine took longer than it may, also where that broke no assumption: within what the
    /// tests of shared workers and of pipelines leave for it, or as a declared stall.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Stalls so far that were declared ([`SchedulerConfig::stalls`]), and so are no breach of an assumption.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        let shared = || self.guest.map_or(0, |guest| guest.stalls);
        let own = self.stalls.as_ref().filter(|_| !self.is_demoted());
        own.map_or_else(shared, |stalls| stalls.count)
    }

    /// Requests so far that had to be served and were missed while no assumption was broken: where constraints absorb stalls.
    #[must_use]
    pub fn absorbed(&self) -> u64 {
        self.absorbed
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }
}
