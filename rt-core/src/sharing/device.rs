//! A device: the schedulers of several services on the same workers, and which of them starts the next batch.

use alloc::vec::Vec;

use super::crew::Crew;
use super::line::Line;
use super::shield::SharedShield;
use super::types::{DeviceAction, DeviceConfig, DeviceError};
use super::{MAX_SERVICES, Rule};
use crate::admission::Dispatch;
use crate::scheduler::earliest::{Earliest, When};
use crate::scheduler::{Arrival, Ran, Resolution, Scheduler, WorkerId};
use crate::time::{Instant, Span};

/// The end of time.
pub(super) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When something is to happen to a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// The earliest mandatory request that waits must be answered, less the guard.
    pub(super) due: Instant,
    /// Its scheduler has something to do if nothing happens to it before.
    pub(super) wake: Instant,
}

impl When for Expected {
    const NEVER: Self = Self { due: NEVER, wake: NEVER };

    #[inline(always)]
    fn earlier(self, other: Self) -> Self {
        Self { due: self.due.min(other.due), wake: self.wake.min(other.wake) }
    }
}

/// The schedulers of several services on the same workers.
///
/// It is called as a [`Scheduler`] is, by the same contract, and in place of the schedulers for all that has to do with
/// requests and workers. Streams are added, removed and looked at on the scheduler of their service
/// ([`Device::service_mut`]); admission is that of [`super::Sharing`]. Nothing here allocates after [`Device::new`]. A step
/// looks at the services that something has happened to, and at all of them only where nothing mandatory waits; at all workers
/// where promises are broken, or for what is promised nothing and comes to a service that has all of them.
#[derive(Debug)]
pub struct Device {
    pub(super) rule: Rule,
    pub(super) turns: Vec<u32>,
    pub(super) longest: Span,
    pub(super) schedulers: Vec<Scheduler>,
    pub(super) crew: Crew,
    pub(super) line: Line,
    /// Of each service.
    pub(super) expected: Earliest<Expected>,
    /// Services, a bit each: those that something has happened to since they were polled, those of which anything waits, those
    /// that wait for nothing mandatory to wait.
    pub(super) touched: u64,
    pub(super) waiting: u64,
    pub(super) unclear: u64,
    /// Those that are promised nothing, as their batches have harmed others.
    pub(super) demoted: u64,
    /// Those that have nothing to do but to tell how requests ended.
    telling: u64,
    /// What each service has had of the workers while nothing mandatory waited.
    pub(super) used: Vec<Span>,
    /// Since when a free worker should have been given what waits; the end of time if none should.
    pub(super) armed: Instant,
    /// See [`Device::set_quiet`].
    pub(super) quiet: bool,
    /// See [`Device::set_shield`].
    pub(super) shield: Option<SharedShield>,
    /// Services, a bit each, whose streams may have changed since the shield looked at them.
    pub(super) unknown: u64,
    /// Something has gone before mandatory requests since nothing mandatory waited.
    pub(super) ahead: bool,
    /// Batches may run over and be no matter of their own service: all together keep to the margin.
    pub(super) excused: bool,
    /// See [`Device::gone_ahead_of`].
    pub(super) gone_ahead: Vec<u64>,
}

impl Device {
    /// Allocates everything that running needs.
    ///
    /// # Errors
    /// If a number is outside its range, or services differ in what they must share.
    pub fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        let DeviceConfig { rule, turns, longest, overrun_margin, services } = config;
        let count = services.len();
        if !(1..=MAX_SERVICES).contains(&count) || turns.len() != count || turns.contains(&0) {
            return Err(DeviceError::Services { count });
        }
        let workers = services[0].worker_count();
        let guard = services.iter().map(|config| config.guard).min().unwrap_or(Span::ZERO);
        let stalls = services[0].stalls;
        let mut schedulers = Vec::with_capacity(count);
        for (service, config) in services.into_iter().enumerate() {
            let alike = config.workers.len() == 1 && config.worker_count() == workers;
            let wrong = [
                ("workers", !alike),
                ("dispatch", config.dispatch != Dispatch::Eager),
                ("background", !config.background),
                (
                    "stalls",
                    config.stalls != stalls || stalls.is_some_and(|stalls| stalls.recovery().is_some()),
                ),
                ("batch", config.workers.iter().any(|kind| kind.is_valid() && kind.batch_time() > longest)),
            ];
            if let Some(&(field, _)) = wrong.iter().find(|(_, wrong)| *wrong) {
                return Err(DeviceError::Service { service, field });
            }
            let scheduler = Scheduler::new(config);
            let mut scheduler = scheduler.map_err(|error| DeviceError::Config { service, error })?;
            scheduler.share(longest, guard);
            schedulers.push(scheduler);
        }
        Ok(Self {
            rule,
            turns,
            longest,
            schedulers,
            crew: Crew::new(workers, count, (overrun_margin, stalls)),
            line: Line::default(),
            expected: Earliest::new(count),
            touched: 0,
            waiting: 0,
            unclear: 0,
            demoted: 0,
            telling: 0,
            used: alloc::vec![Span::ZERO; count],
            armed: NEVER,
            quiet: false,
            shield: None,
            unknown: 0,
            ahead: false,
            excused: true,
            gone_ahead: alloc::vec![0; count],
        })
    }

    /// How many services there are.
    #[must_use]
    pub fn services(&self) -> usize {
        self.schedulers.len()
    }

    /// The scheduler of a service, to be looked at.
    #[must_use]
    pub fn service(&self, service: usize) -> &Scheduler {
        &self.schedulers[service]
    }

    /// The scheduler of a service, for what concerns its streams and its safe mode; requests and workers are the device's.
    pub fn service_mut(&mut self, service: usize) -> &mut Scheduler {
        self.touched |= 1 << service;
        self.unknown |= 1 << service;
        if self.ahead {
            self.schedulers[service].await_clear();
        }
        &mut self.schedulers[service]
    }

    /// [`Scheduler::rate_seen_per_s`] of a service.
    pub fn rate_seen_per_s(&mut self, service: usize, now: Instant) -> Option<f64> {
        self.schedulers[service].rate_seen_per_s(now)
    }

    /// Sets [`DeviceConfig::overrun_margin`] to that of an admission that counts more streams, before they are added; false
    /// if batches have run over by more already: then they are to be added later. A larger one counts once what is there has ended.
    #[must_use]
    pub fn set_overrun_margin(&mut self, now: Instant, margin: Span) -> bool {
        self.crew.set_margin(now, margin)
    }

    /// What [`Device::set_overrun_margin`] has set last.
    #[must_use]
    pub fn overrun_margin(&self) -> Span {
        self.crew.most_over()
    }

    /// Whose batch a worker runs.
    #[must_use]
    pub fn owner(&self, worker: WorkerId) -> Option<usize> {
        self.crew.get(worker).map(|running| running.service)
    }

    /// By when the batch that `worker` runs is counted on to end: of a service that is demoted later than by its profile.
    #[must_use]
    pub fn due(&self, worker: WorkerId) -> Option<Instant> {
        self.crew.get(worker).map(|running| running.due)
    }

    /// [`Scheduler::handle_arrival`] of a request for `service`.
    #[inline]
    pub fn handle_arrival(&mut self, now: Instant, service: usize, arrival: Arrival) -> Option<Resolution> {
        let within = self.schedulers[service].config().deadline;
        self.handle_wanted(now, service, arrival, (arrival.at, within), true)
    }

    /// [`Scheduler::handle_wanted`] of a request for `service`.
    pub fn handle_wanted(
        &mut self,
        now: Instant,
        service: usize,
        arrival: Arrival,
        wanted: (Instant, Span),
        room: bool,
    ) -> Option<Resolution> {
        let at = arrival.at;
        let (scheduler, bit) = (&mut self.schedulers[service], 1 << service);
        let late = now.since(at) > scheduler.most_late();
        let before = if late { scheduler.waiting_mandatory() } else { 0 };
        let resolution = scheduler.handle_wanted(now, arrival, wanted, room);
        if late && scheduler.has_taken_in(before, resolution.as_ref()) {
            self.armed = self.armed.min(at);
        }
        match scheduler.waits_until(now) {
            Some(wake) if self.touched & bit == 0 => {
                // Mostly it only waits behind others.
                if scheduler.has_new_first() {
                    self.look_at(service, wake);
                }
                debug_assert!(self.is_known(service, wake), "who comes behind others changes nothing");
            }
            _ => {
                self.touched |= bit;
                // Who comes first stands first, though all of one instant be polled together.
                self.note_mandatory(service);
            }
        }
        if self.crew.has_free() && resolution.is_none() {
            self.arm(at);
        }
        resolution
    }

    /// Takes in the end of the batch that `worker` was running. A worker that runs nothing is left alone.
    pub fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        let Some(ended) = self.crew.take(worker) else { return };
        let (service, stalled) = (ended.service, self.crew.end(now, worker, ended));
        self.look_for_harm(now);
        let (scheduler, bit) = (&mut self.schedulers[service], 1 << service);
        scheduler.take_end(now, worker, ran, stalled);
        // Mostly what waits is what waited, and it waits for what it did.
        match scheduler.rest_after_end(now) {
            Some(moved) if self.touched & bit == 0 => {
                self.telling |= bit;
                if moved {
                    let (due, wake) = (self.expected.at(service).due, scheduler.next_wake(now));
                    self.expected.set(service, Expected { due, wake });
                }
            }
            _ => self.touched |= bit,
        }
        if stalled {
            self.count_stalls();
        }
        if now > ended.due && !stalled {
            self.ended_late(now, ended);
        }
        // Its worker is free since now, or another was before.
        self.armed = self.armed.min(now);
    }

    /// Takes in that a worker is gone, for all services.
    pub fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        self.crew.lose(worker);
        self.look_for_harm(now);
        self.others(usize::MAX, |scheduler| scheduler.handle_worker_lost(now, worker));
    }

    /// Takes in that a lost worker is back, for all services.
    pub fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        // One that is there, or is no worker at all, is left alone.
        let lost =
            |scheduler: &Scheduler| worker < scheduler.config().worker_count() && !scheduler.is_alive(worker);
        if lost(&self.schedulers[0]) {
            self.crew.set_free(now, worker);
            self.others(usize::MAX, |scheduler| scheduler.handle_worker_ready(now, worker));
            self.arm(now);
        }
    }

    /// The next thing to do at `now`; see the calling contract of [`Scheduler`].
    #[inline]
    pub fn poll(&mut self, now: Instant) -> DeviceAction {
        if self.telling != 0 {
            return self.tell(now);
        }
        if self.is_busy(now) { self.wait(now) } else { self.decide(now) }
    }

    /// Tells how a request ended, before anything else is done.
    #[inline(never)]
    fn tell(&mut self, now: Instant) -> DeviceAction {
        let service = self.telling.trailing_zeros() as usize;
        let scheduler = &mut self.schedulers[service];
        if scheduler.untold_ends() <= 1 {
            self.telling &= self.telling - 1;
        }
        match scheduler.tell_end() {
            Some(resolution) => DeviceAction::Resolve(service, resolution),
            None => self.decide(now),
        }
    }

    /// Whether there is nothing to do as all workers are busy, nothing has happened and all are on time.
    #[inline]
    fn is_busy(&self, now: Instant) -> bool {
        let rest = self.armed == NEVER && self.touched | self.unclear == 0 && !self.ahead;
        rest && now < self.expected.instant().wake && self.crew.is_busy(now)
    }

    /// There is nothing to do before something happens, or time brings something about.
    #[inline]
    pub(super) fn wait(&self, now: Instant) -> DeviceAction {
        let next = self.expected.instant().wake.min(self.crew.alarm(now));
        DeviceAction::WakeAt((next < NEVER).then_some(next))
    }

    /// Notes whether a mandatory request of `service` waits.
    #[inline(always)]
    pub(super) fn note_mandatory(&mut self, service: usize) {
        if self.rule == Rule::Turns {
            self.line.set(service, self.schedulers[service].has_mandatory());
        }
    }

    /// Something has happened to all services but one.
    pub(super) fn others(&mut self, but: usize, mut happens: impl FnMut(&mut Scheduler)) {
        for service in (0..self.schedulers.len()).filter(|&service| service != but) {
            happens(&mut self.schedulers[service]);
            self.touched |= 1 << service;
        }
    }

    /// Notes that a free worker should have been given what came at `since`.
    fn arm(&mut self, since: Instant) {
        self.armed = self.armed.min(since.max(self.crew.free_since));
    }
}
