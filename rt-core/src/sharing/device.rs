//! A device: the schedulers of several services on the same workers, and which of them starts the next batch.

use alloc::vec::Vec;

use super::line::Line;
use super::{MAX_SERVICES, Rule};
use crate::admission::Dispatch;
use crate::scheduler::{
    Action, Arrival, ConfigError, Event, Ran, Resolution, Scheduler, SchedulerConfig, WorkerId,
};
use crate::stream::StreamId;
use crate::time::{Instant, Span};

/// Everything that is fixed for the life of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Which service goes next, and the batches of each in a turn; means something to [`Rule::Turns`] alone.
    pub rule: Rule,
    /// Of each service, by number: at least 1.
    pub turns: Vec<u32>,
    /// `P̂`: the longest batch that anyone may start; at least every full batch.
    pub longest: Span,
    /// By how much one batch may exceed its time before the other services are in safe mode for it
    /// ([`super::SharedAdmission::binding`]).
    pub overrun_margin: Span,
    /// The services: eager, with background, of as many workers of one kind each, without stalls.
    pub services: Vec<SchedulerConfig>,
}

/// Why a configuration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No services, or too many.
    #[error("{count} services, must be 1..={MAX_SERVICES}, with a turn each")]
    Services {
        /// How many.
        count: usize,
    },
    /// What workers that are shared do not allow, or a number that differs from that of the first service.
    #[error("service {service}: {field} is not what workers that are shared allow")]
    Service {
        /// Which one, from 0.
        service: usize,
        /// The field.
        field: &'static str,
    },
    /// Not even a scheduler of its own.
    #[error("service {service}: {error}")]
    Config {
        /// Which one, from 0.
        service: usize,
        /// Why.
        error: ConfigError,
    },
}

/// What the caller must do next; see [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAction {
    /// Run the batch of this worker, which the scheduler of this service holds.
    Start {
        /// The service.
        service: usize,
        /// The worker.
        worker: WorkerId,
    },
    /// Tell the client how its request ended.
    Resolve(usize, Resolution),
    /// Announce this of a service.
    Event(usize, Event),
    /// Nothing more now; poll again at this instant, or only after the next `handle_*` if `None`.
    WakeAt(Option<Instant>),
}

/// The schedulers of several services on the same workers.
///
/// It is called as a [`Scheduler`] is, by the same contract, and in place of the schedulers for all that has to do with
/// requests and workers. Streams are added, removed and looked at on the scheduler of their service
/// ([`Device::service_mut`]); admission is that of [`super::Sharing`]. Nothing here allocates after [`Device::new`], and a
/// step is linear in the services.
#[derive(Debug)]
pub struct Device {
    rule: Rule,
    turns: Vec<u32>,
    schedulers: Vec<Scheduler>,
    line: Line,
    /// Whose batch each worker runs.
    owners: Vec<Option<usize>>,
    /// What each service has had of the workers while nothing mandatory waited.
    used: Vec<Span>,
    /// Since when a free worker should have been given what waits.
    armed: Option<Instant>,
    /// Since when at least one worker is free; means something only if one is.
    free_since: Instant,
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
        let mut schedulers = Vec::with_capacity(count);
        for (service, config) in services.into_iter().enumerate() {
            let alike = config.workers.len() == 1 && config.worker_count() == workers;
            let wrong = [
                ("workers", !alike),
                ("dispatch", config.dispatch != Dispatch::Eager),
                ("background", !config.background),
                ("stalls", config.stalls.is_some()),
                ("batch", config.workers.iter().any(|kind| kind.is_valid() && kind.batch_time() > longest)),
            ];
            if let Some(&(field, _)) = wrong.iter().find(|(_, wrong)| *wrong) {
                return Err(DeviceError::Service { service, field });
            }
            let scheduler = Scheduler::new(config);
            let mut scheduler = scheduler.map_err(|error| DeviceError::Config { service, error })?;
            scheduler.share(longest, overrun_margin);
            schedulers.push(scheduler);
        }
        Ok(Self {
            rule,
            turns,
            schedulers,
            line: Line::default(),
            owners: alloc::vec![None; workers],
            used: alloc::vec![Span::ZERO; count],
            armed: None,
            free_since: Instant::ZERO,
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
        &mut self.schedulers[service]
    }

    /// Whose batch a worker runs.
    #[must_use]
    pub fn owner(&self, worker: WorkerId) -> Option<usize> {
        *self.owners.get(worker)?
    }

    /// [`Scheduler::handle_arrival`] of a request for `service`.
    pub fn handle_arrival(&mut self, now: Instant, service: usize, arrival: Arrival) -> Option<Resolution> {
        let scheduler = &mut self.schedulers[service];
        let waited = (scheduler.waiting() > 0, scheduler.first_mandatory().is_some());
        let resolution = scheduler.handle_arrival(now, arrival);
        if self.rule == Rule::Turns && !waited.1 && scheduler.first_mandatory().is_some() {
            self.line.join(service);
        }
        if !waited.0 && self.schedulers[service].waiting() > 0 {
            // Who had nothing to be served has no claim on what others got meanwhile.
            let others = (0..self.used.len()).filter(|&s| s != service && self.schedulers[s].waiting() > 0);
            if let Some(least) = others.map(|s| self.used[s]).min() {
                self.used[service] = self.used[service].max(least);
            }
        }
        self.arm(arrival.at);
        resolution
    }

    /// [`Scheduler::handle_refused`] for `service`.
    pub fn handle_refused(&mut self, now: Instant, service: usize, stream: StreamId) -> Option<Resolution> {
        self.schedulers[service].handle_refused(now, stream)
    }

    /// Takes in the end of the batch that `worker` was running. A worker that runs nothing is left alone.
    pub fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        let Some(owner) = self.owners.get_mut(worker).and_then(Option::take) else { return };
        let was_free = self.schedulers[0].has_free_worker();
        for (service, scheduler) in self.schedulers.iter_mut().enumerate() {
            if service == owner {
                scheduler.handle_completion(now, worker, ran);
            } else {
                scheduler.take_back(now, worker);
            }
        }
        self.has_freed(now, was_free);
    }

    /// Takes in that a worker is gone, for all services.
    pub fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        if let Some(owner) = self.owners.get_mut(worker) {
            *owner = None;
            self.schedulers.iter_mut().for_each(|scheduler| scheduler.handle_worker_lost(now, worker));
        }
    }

    /// Takes in that a lost worker is back, for all services.
    pub fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        let was_free = self.schedulers[0].has_free_worker();
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.handle_worker_ready(now, worker));
        self.has_freed(now, was_free);
    }

    /// The next thing to do at `now`; see the calling contract of [`Scheduler`].
    pub fn poll(&mut self, now: Instant) -> DeviceAction {
        self.watch(now);
        loop {
            let mut wake: Option<Instant> = None;
            for (service, scheduler) in self.schedulers.iter_mut().enumerate() {
                match scheduler.poll(now) {
                    Action::Resolve(resolution) => return DeviceAction::Resolve(service, resolution),
                    Action::Event(event) => return DeviceAction::Event(service, event),
                    Action::Start { worker } => return DeviceAction::Start { service, worker },
                    Action::WakeAt(at) => wake = wake.into_iter().chain(at).min(),
                }
            }
            if self.clear(now) {
                continue;
            }
            match self.start(now) {
                Some(Ok(action)) => return action,
                Some(Err(())) => {}
                None => {
                    self.armed = None;
                    return DeviceAction::WakeAt(wake);
                }
            }
        }
    }

    /// Tells those that wait for it that nothing mandatory waits for anyone; whether there was one.
    fn clear(&mut self, now: Instant) -> bool {
        if self.schedulers.iter().any(|scheduler| scheduler.first_mandatory().is_some()) {
            return false;
        }
        let mut any = false;
        for scheduler in self.schedulers.iter_mut().filter(|scheduler| scheduler.awaits_clear()) {
            scheduler.all_clear(now);
            any |= !scheduler.awaits_clear();
        }
        any
    }

    /// Starts a batch, if a worker is free and something waits; an error if nothing of what was to start could be served.
    fn start(&mut self, now: Instant) -> Option<Result<DeviceAction, ()>> {
        let worker = self.schedulers[0].free_worker()?;
        let next = self.next();
        let background = next.is_none();
        let service = next.or_else(|| self.next_background())?;
        let started = self.schedulers[service].take_turn(now, worker, background);
        let more = self.schedulers[service].first_mandatory().is_some();
        let Some((_, time)) = started else {
            return Some(Err(()));
        };
        if background {
            self.used[service] = self.used[service] + time;
        } else if self.rule == Rule::Turns {
            self.line.served(self.turns[service], more);
        }
        self.owners[worker] = Some(service);
        for (other, scheduler) in self.schedulers.iter_mut().enumerate() {
            if other != service {
                scheduler.give_away(now, worker, time);
            }
        }
        self.armed = None;
        Some(Ok(DeviceAction::Start { service, worker }))
    }

    /// The service that goes next, of those of which something mandatory waits.
    fn next(&mut self) -> Option<usize> {
        match self.rule {
            Rule::Earliest => {
                let due = |(service, scheduler): (usize, &Scheduler)| {
                    Some((scheduler.first_mandatory()? - scheduler.config().guard, service))
                };
                self.schedulers.iter().enumerate().filter_map(due).min().map(|(_, service)| service)
            }
            Rule::Turns => loop {
                let first = self.line.first()?;
                if self.schedulers[first].first_mandatory().is_some() {
                    return Some(first);
                }
                // What it waited for has expired, or its stream has gone.
                self.line.leave(first);
            },
        }
    }

    /// The service that goes next where nothing mandatory waits: with demoted requests before those without, each time the one
    /// that had least.
    fn next_background(&self) -> Option<usize> {
        let waits = |&service: &usize| self.schedulers[service].waiting() > 0;
        let turn = |&service: &usize| (!self.schedulers[service].has_demoted(), self.used[service], service);
        (0..self.schedulers.len()).filter(waits).min_by_key(turn)
    }

    /// Notes that a free worker should have been given what came at `since`.
    fn arm(&mut self, since: Instant) {
        let waits = || self.schedulers.iter().any(|scheduler| scheduler.waiting() > 0);
        if self.schedulers[0].has_free_worker() && waits() {
            let since = since.max(self.free_since);
            self.armed = Some(self.armed.map_or(since, |armed| armed.min(since)));
        }
    }

    fn has_freed(&mut self, now: Instant, was_free: bool) {
        if !was_free {
            self.free_since = now;
        }
        self.arm(now);
    }

    /// Reports dispatch that comes too late, to all services.
    fn watch(&mut self, now: Instant) {
        if let Some(armed) = self.armed.take_if(|armed| *armed < now) {
            let delay = now.since(armed);
            self.schedulers.iter_mut().for_each(|scheduler| scheduler.was_late(now, delay));
        }
    }
}
