//! A service of another configuration takes over while requests come.
//!
//! It is made ready beside the one that serves, then gets its streams at an instant at which nothing that was promised
//! is open ([`Scheduler::hand_over`]): whoever feeds the scheduler next after such an instant has come carries it out,
//! registries and recording included, so that at any time one of the two has all of it. No lock but that on
//! registering is held until then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rt_core::{HandOverError, Instant, Shield, Span};

use super::registry::Moves;
use super::{Effects, Held, Service, lock, write};
use weir_os::clock;
use weir_os::pi_mutex::PiMutex;
use weir_plan::plan::ServicePlan;

/// How often it is tried beside every time the scheduler is fed.
const PAUSE: Duration = Duration::from_millis(1);
/// How long it is tried, beside two deadlines.
const PATIENCE: Span = Span::from_millis(1_000);

/// Who takes over from a service.
#[derive(Default)]
pub(super) struct Takeover {
    /// Whether `successor` is there: all that requests ask of it.
    pending: AtomicBool,
    successor: PiMutex<Option<Successor>>,
    done: OnceLock<Arc<Service>>,
}

/// Who is to take over, and with what.
struct Successor {
    service: Arc<Service>,
    moves: Moves,
    shield: Option<Shield>,
    /// What stood in the way last.
    refused: Option<HandOverError>,
}

impl Successor {
    /// Whether something stands in the way that no waiting mends.
    fn is_hopeless(&self) -> bool {
        self.refused.is_some_and(|error| !matches!(error, HandOverError::Busy { .. }))
    }
}

impl Service {
    /// Who has taken over, if anybody has.
    pub fn successor(&self) -> Option<&Arc<Self>> {
        self.takeover.done.get()
    }

    /// This service, or who has taken over since.
    pub fn latest(&self) -> &Self {
        let mut latest = self;
        while let Some(next) = latest.successor() {
            latest = next;
        }
        latest
    }

    /// Whether a service of `plan` could keep what this one has promised to those who hold its streams.
    ///
    /// # Errors
    /// The stream that would be promised less, and in what.
    pub fn check_heir(&self, plan: &ServicePlan) -> Result<(), String> {
        self.moves_to(plan).map(drop)
    }

    /// Gives all streams to `next`, which was started for that, as soon as nothing that was promised is open. Clients
    /// notice nothing but what is cancelled of requests that were promised nothing, and that new streams are given out
    /// afterwards. Blocks until it is done.
    ///
    /// # Errors
    /// The stream that would be promised less, or that no such instant has come; this service goes on then.
    pub fn hand_over(&self, next: &Arc<Self>) -> Result<(), String> {
        let _alone = write(&self.moving);
        let moves = self.moves_to(&next.plan)?;
        let shield = next.work_out_shield(&moves.load());
        next.scheduler().expect_streams(self.plan.config.streams, moves.load());
        let successor = Successor { service: Arc::clone(next), moves, shield, refused: None };
        *self.takeover.successor.lock() = Some(successor);
        self.takeover.pending.store(true, Ordering::Relaxed);
        let mut effects = Effects::default();
        self.with_scheduler(&mut effects, |scheduler, _| scheduler.set_quiet(true));
        let deadline = self.plan.config.deadline;
        let most = deadline + deadline + PATIENCE;
        let until = clock::now() + most;
        // There is no successor any more once it has taken over.
        while clock::now() < until
            && self.takeover.successor.lock().as_ref().is_some_and(|successor| !successor.is_hopeless())
        {
            std::thread::park_timeout(PAUSE);
            self.with_scheduler(&mut effects, |_, _| {});
        }
        // From here on nobody carries it out any more.
        self.with_scheduler(&mut effects, |scheduler, _| {
            self.takeover.pending.store(false, Ordering::Relaxed);
            scheduler.set_quiet(false);
        });
        if let Some(successor) = self.takeover.successor.lock().take() {
            return Err(match successor.refused {
                Some(error) if successor.is_hopeless() => error.to_string(),
                refused => {
                    let reason = refused.map(|error| format!(": {error}")).unwrap_or_default();
                    format!("no instant without open promises has come within {most}{reason}; try again")
                }
            });
        }
        let leftovers = next.scheduler().leftovers();
        drop(leftovers);
        next.with_scheduler(&mut effects, |_, _| {});
        self.stop();
        // Whoever still names this service follows to the next: its models are of no use any more.
        self.executors.iter().for_each(|executor| lock(executor).clear());
        Ok(())
    }

    /// Carries the takeover out, if there is one to be and the instant is right.
    pub(super) fn try_hand_over(&self, scheduler: &mut Held<'_>, now: Instant) -> bool {
        if !self.takeover.pending.load(Ordering::Relaxed) {
            return false;
        }
        let mut place = self.takeover.successor.lock();
        let Some(Successor { service: next, moves, shield, refused }) = place.as_mut() else { return false };
        // Their locks come before the scheduler's, so they may not be waited for here: next time, if they are held.
        let (Some(mut from), Some(mut to)) = (self.registry.try_lock(), next.registry.try_lock()) else {
            return false;
        };
        let mut successor = next.scheduler();
        if let Err(error) = scheduler.hand_over(now, &mut successor, &from.dropped(moves)) {
            *refused = Some(error);
            return false;
        }
        from.give(&mut to, moves, &mut successor, now);
        next.set_shield(&mut successor, shield.take());
        self.pass_recorder_on(next);
        let _ = self.takeover.done.set(Arc::clone(next));
        drop((successor, from, to));
        *place = None;
        true
    }

    /// What a service of `plan` would mean for each stream: worked out on a copy, for it takes as long as admitting
    /// them all.
    fn moves_to(&self, plan: &ServicePlan) -> Result<Moves, String> {
        let registry = self.registry.lock().clone();
        registry.moves(&self.plan, plan)
    }
}
