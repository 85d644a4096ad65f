//! One service at work: its scheduler behind a lock, its workers, its timer, and the way back to clients.

mod absence;
mod away;
mod classes;
mod device;
mod dispatcher;
mod end;
mod executor;
mod failures;
mod fused;
mod guarded;
mod hand_in;
mod kinds;
mod latch;
mod memory;
mod meters;
mod names;
mod operate;
mod pace;
mod planning;
mod recorder;
mod recording;
mod region;
mod registry;
mod shield;
mod slots;
mod stage;
mod staged;
mod standing;
mod start;
mod takeover;
mod tell;
mod timer;
mod totals;
mod view;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use rt_core::{Action, Arrival, Instant, Outcome, Resolution, Span, WorkerId};
use tracing::trace;

use crate::out::Audience;
use classes::ByClass;
use device::Device;
use executor::Executor;
use guarded::{Held, Named};
use meters::Meters;
use planning::Planning;
use slots::NOBODY;
use tell::Decided;
use weir_engine::Place;
use weir_os::clock;
use weir_os::locks::{lock, read, try_read, write};
use weir_os::pi_mutex::PiMutex;
use weir_os::realtime;
use weir_plan::plan::ServicePlan;
use worker::Part;

pub use classes::{Classes, unknown as unknown_class};
pub use hand_in::Handed;
pub use memory::Memory;
pub use region::Region;
pub use registry::{Lease, Refusal, Registry};
pub use slots::{Origin, Slots};
pub use standing::{AlarmView, Standing};
pub use takeover::stays;
pub use tell::wire_reason;
pub use totals::Totals;
pub use view::{ServiceView, StreamView, WorkerView};

/// The target of what is told of each request on its way, at the level of traces, for `--log weir::request=trace`.
const REQUEST: &str = "weir::request";

/// A service while it runs.
pub struct Service {
    pub plan: ServicePlan,
    pub slots: Slots,
    pub registry: PiMutex<Registry>,
    /// Read by whoever registers a stream, written by whoever moves or ends them all.
    moving: RwLock<()>,
    /// The workers that it runs on, and its number there.
    device: Arc<Device>,
    index: usize,
    /// Its models, for each worker.
    executors: Vec<Mutex<Executor>>,
    /// Of each worker, whether its batches are usually shorter than a wake-up: then the thread that brings a request runs them.
    inline: Box<[bool]>,
    /// Answers by variant.
    answered: Box<[AtomicU64]>,
    /// Of a pipeline: results so far, by stage and variant.
    results: Vec<Box<[AtomicU64]>>,
    /// And by stage of how many results of those before it was looked what they become there, and how many requests that is.
    factors: Vec<[AtomicU64; 2]>,
    meters: Meters,
    totals: Arc<Totals>,
    by_class: ByClass,
    /// What the rate is measured over that is warned of, if one is.
    rate_window: Option<Span>,
    /// Plans tables for the load that comes, if it is so configured.
    planning: Option<Planning>,
    audience: Arc<dyn Audience>,
    realtime: bool,
    /// Nothing is taken in any more; set under the scheduler's lock.
    closed: AtomicBool,
    /// It ends, and the threads of its device once all on it do.
    stopped: Arc<AtomicBool>,
    /// Who has taken over.
    heir: OnceLock<Arc<Self>>,
}

/// What a request says of itself, if it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// When it was sent.
    pub sent: Option<Instant>,
    /// How soon after its arrival the answer is wanted.
    pub within: Option<Span>,
    /// Its class, by the number that was told with its stream.
    pub class: Option<u8>,
}

/// What that comes to with the service as it is.
#[derive(Clone, Copy, Debug)]
pub struct Meant {
    sent: Option<Instant>,
    /// By its number now.
    class: u8,
    /// From when on after its arrival an answer is late, and for how long one is delivered.
    due: Span,
    within: Span,
}

/// Why a request was not taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    /// Another service has taken over: the lease must follow.
    Retired,
    /// The service is about to end.
    Ending,
}

/// What is to be told once the scheduler's lock is released; reused by its thread.
#[derive(Default)]
pub struct Effects {
    /// Of which service of the device, and what.
    resolutions: Vec<(usize, Resolution)>,
    events: Vec<(usize, Named)>,
    started: Vec<(usize, WorkerId)>,
    frame: Vec<u8>,
}

impl Service {
    /// The service's name in the configuration.
    pub fn name(&self) -> &str {
        &self.plan.config.name
    }

    /// Takes in a request whose tensor lies in the slot `token`, sent and wanted as it is `meant`; answers it at once if it is
    /// refused.
    ///
    /// # Errors
    /// If nothing is taken in any more; nothing has happened then, and the slot is the caller's.
    pub fn submit(
        &self,
        effects: &mut Effects,
        lease: &mut Lease,
        token: u64,
        meant: Meant,
    ) -> Result<(), Closed> {
        // Also for a client that asks too much, and is read without hurry.
        let _urgent = realtime::urgently(self.realtime);
        let (came, mut taken) = (clock::now(), Ok(()));
        trace!(target: REQUEST, service = self.name(), stream = %lease.name, token, "arrival");
        let decided = self.drive(effects, |scheduler, now| {
            taken = self.takes_in();
            if taken.is_err() {
                return None;
            }
            self.record(now, (lease, meant.class), Some(token));
            let arrival = Arrival::new(lease.id, token, came.min(now));
            let refused = scheduler.handle_arrival(now, arrival, meant, true);
            lease.promised = lease.spec.demand().is_some() && scheduler.suspension(lease.id).is_none();
            refused
        });
        let inline = effects.started.pop_if(|(_, worker)| self.inline[*worker]);
        decided.ring_and_tell(effects);
        if let Some((_, worker)) = inline {
            lock(&self.executors[worker]).run_batch(self, worker, effects, false);
        }
        taken
    }

    /// Whether a request that was `sent` then would be refused whatever it brings, as far as can be told now; see
    /// [`rt_core::Scheduler::is_ruled_out`].
    pub fn is_ruled_out(&self, lease: &Lease, sent: Option<Instant>) -> bool {
        let _urgent = realtime::urgently(self.realtime);
        let scheduler = self.scheduler();
        let now = scheduler.now;
        scheduler.is_ruled_out(now, lease.id, sent.unwrap_or(now))
    }

    /// Counts a request for which there is no slot; or one that would be refused whatever it brings, if `in_vain`: nothing happens
    /// then if a promise has come to stand meanwhile, for which it may have to be served.
    pub fn refuse(
        &self,
        effects: &mut Effects,
        lease: &mut Lease,
        said: Said,
        in_vain: bool,
    ) -> Option<Handed> {
        let (mut refused, mut retired, mut wanted) = (None, None, false);
        self.with_scheduler(effects, |scheduler, now| {
            retired = self.successor();
            wanted = in_vain && !scheduler.is_ruled_out(now, lease.id, said.sent.unwrap_or(now));
            if retired.is_none() && !wanted {
                let meant = lease.meant(&self.plan.config, said);
                self.record(now, (lease, meant.class), None);
                let arrival = Arrival::new(lease.id, NOBODY, now);
                refused = scheduler.handle_arrival(now, arrival, meant, false);
            }
        });
        if let Some(next) = retired {
            // Its classes may have other numbers there.
            lease.service();
            return next.refuse(effects, lease, said, in_vain);
        }
        if wanted {
            return None;
        }
        Some(Handed::Refused(refused.and_then(|r| {
            self.totals.count(r.outcome);
            match r.outcome {
                Outcome::Missed(reason) => {
                    self.by_class.missed(r.request.class);
                    Some((r.misses_left, r.request.seq, reason))
                }
                Outcome::Served => None,
            }
        })))
    }

    /// Feeds the scheduler and carries out what it decides, with the priority of those who dispatch: a worker that was
    /// given a batch is not to wait for a thread that was put off its core before it could tell.
    pub fn with_scheduler(&self, effects: &mut Effects, feed: impl FnOnce(&mut Held<'_>, Instant)) {
        let _urgent = realtime::urgently(self.realtime);
        let decided = self.drive(effects, |scheduler, now| {
            feed(scheduler, now);
            None
        });
        decided.ring_and_tell(effects);
    }

    /// What came of its requests by class.
    pub fn classes_status(&self) -> Vec<weir_client::status::Class> {
        self.by_class.status(&self.plan.config)
    }

    /// What is seen of the scheduler without its lock.
    pub fn view(&self) -> &ServiceView {
        self.device.view(self.index)
    }

    /// Its scheduler.
    fn scheduler(&self) -> Held<'_> {
        self.device.lock(self.index)
    }

    /// When its scheduler was last polled by the thread that wakes it.
    pub fn polled(&self) -> Instant {
        self.device.timer.polled()
    }

    /// Has that thread poll it now.
    pub fn nudge(&self) {
        self.device.timer.nudge();
    }

    /// Where worker `id` runs.
    fn place(&self, id: WorkerId) -> Place {
        start::place(&self.plan, id, self.realtime, &self.stopped)
    }

    /// Tells that worker `id` is lost with its batch, and has it loaded anew.
    fn lose_worker(&self, effects: &mut Effects, id: WorkerId) {
        self.with_scheduler(effects, |scheduler, now| scheduler.handle_worker_lost(now, id));
        self.device.services().for_each(|service| service.audience.refresh());
        self.device.mailboxes[id].break_down(self.index);
    }

    /// Takes worker `id` from all services of the device, if it runs nothing; whether it did.
    fn take_idle(&self, effects: &mut Effects, id: WorkerId) -> bool {
        let mut taken = false;
        self.with_scheduler(effects, |scheduler, now| {
            taken = !scheduler.is_at_work(id);
            if taken {
                scheduler.handle_worker_lost(now, id);
            }
        });
        taken
    }

    /// Whether a request may be taken in; to be asked under the scheduler's lock.
    fn takes_in(&self) -> Result<(), Closed> {
        match (self.successor(), self.is_closed()) {
            (Some(_), _) => Err(Closed::Retired),
            (None, true) => Err(Closed::Ending),
            (None, false) => Ok(()),
        }
    }

    /// Does this for one of the services of its device, unless that has gone.
    fn on(&self, index: usize, act: impl FnOnce(&Self)) {
        if index == self.index {
            act(self);
        } else if let Some(other) = self.device.service(index) {
            act(&other);
        }
    }

    /// Feeds the scheduler and takes down what it decides, which is still to be told.
    fn drive(
        &self,
        effects: &mut Effects,
        feed: impl FnOnce(&mut Held<'_>, Instant) -> Option<Resolution>,
    ) -> Decided<'_> {
        effects.resolutions.clear();
        effects.events.clear();
        effects.started.clear();
        let mut scheduler = self.scheduler();
        let decided = Decided::under(self, &scheduler);
        let now = scheduler.now;
        effects.resolutions.extend(feed(&mut scheduler, now).map(|refused| (self.index, refused)));
        if let Some(planning) = &self.planning {
            planning.meet(&mut scheduler, now);
        }
        loop {
            let (service, action) = scheduler.poll(now);
            match action {
                Action::Start { worker } => {
                    if let Some(staged) = scheduler.staged() {
                        self.record_start_of_stage(now, staged, worker);
                        let variant = staged.variant(worker);
                        self.device.mailboxes[worker].put((service, variant), staged.batch(worker));
                    } else {
                        self.hand_out(now, &scheduler, (service, worker));
                    }
                    effects.started.push((service, worker));
                }
                Action::Resolve(resolution) => effects.resolutions.push((service, resolution)),
                Action::Event(event) => effects.events.push((service, scheduler.named(service, event))),
                Action::WakeAt(alarm) => {
                    // What is cancelled by handing over is still to be told.
                    if !self.try_hand_over(&mut scheduler, now) {
                        self.device.timer.set(alarm);
                        return decided;
                    }
                }
            }
        }
    }

    /// Gives the batch of a worker to it, with what the scheduler of that service on the device has decided.
    fn hand_out(&self, now: Instant, scheduler: &Held<'_>, (service, worker): (usize, WorkerId)) {
        let own = scheduler.of(service);
        let batch = own.batch(worker).iter();
        self.on(service, |of| {
            if of.plan.spec.has_state() {
                batch.clone().for_each(|r| of.slots.get(r.token).sequence = r.seq);
            }
            of.record_start(now, own, worker);
        });
        let parts = batch.map(|r| Part { token: r.token, ..Part::default() });
        self.device.mailboxes[worker].put((service, own.variant(worker)), parts);
    }
}

#[cfg(test)]
pub(crate) mod tests;
