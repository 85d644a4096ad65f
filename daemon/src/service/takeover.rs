//! A service of another configuration takes over while requests come.
//!
//! It is made ready beside the one that serves, then gets its streams at an instant at which nothing that was promised
//! is open ([`Scheduler::hand_over`]): whoever feeds the scheduler next after such an instant has come carries it out.
//! Locks are taken in the order of [`super::registry`], those of the older service first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rt_core::{HandOverError, Instant, Scheduler, Shield, Span, StreamId};

use super::registry::Moves;
use super::{Effects, Service, lock};
use crate::clock;
use crate::plan::ServicePlan;

/// How often it is tried beside every time the scheduler is fed.
const PAUSE: Duration = Duration::from_millis(1);
/// How long it is tried, beside two deadlines.
const PATIENCE: Span = Span::from_millis(1_000);

/// Who takes over from a service.
#[derive(Default)]
pub(super) struct Takeover {
    /// Whether `heir` is there: all that requests ask of it.
    pending: AtomicBool,
    heir: Mutex<Option<Heir>>,
    done: OnceLock<Arc<Service>>,
}

/// Who is to take over, and with what.
struct Heir {
    service: Arc<Service>,
    moves: Moves,
    shield: Option<Shield>,
    /// The numbers of the streams that were added, once it is done.
    added: Vec<StreamId>,
    /// What stood in the way last.
    refused: Option<HandOverError>,
}

/// Another service has taken over.
#[derive(Debug)]
pub(crate) struct Retired;

impl Service {
    /// Who has taken over, if anybody has.
    pub(crate) fn successor(&self) -> Option<&Arc<Self>> {
        self.takeover.done.get()
    }

    /// This service, or who has taken over since.
    pub(crate) fn latest(&self) -> &Self {
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
    pub(crate) fn check_heir(&self, plan: &ServicePlan) -> Result<(), String> {
        lock(&self.registry).moves(&self.plan, plan).map(drop)
    }

    /// Gives all streams to `next`, which was started for that, as soon as nothing that was promised is open. Clients
    /// notice nothing but what is cancelled of requests that were promised nothing. Blocks until it is done.
    ///
    /// # Errors
    /// The stream that would be promised less, or that no such instant has come; this service goes on then.
    pub(crate) fn hand_over(&self, next: &Arc<Self>) -> Result<(), String> {
        let _turn = lock(&self.admission);
        let mut registry = lock(&self.registry);
        let mut to = lock(&next.registry);
        let moves = registry.moves(&self.plan, &next.plan)?;
        let shield = match next.plan.selector {
            Some(_) => next.work_out_shield(&moves.load()),
            None => None,
        };
        *lock(&next.names) = lock(&self.names).clone();
        let heir = Heir { service: Arc::clone(next), moves, shield, added: Vec::new(), refused: None };
        *lock(&self.takeover.heir) = Some(heir);
        self.takeover.pending.store(true, Ordering::Relaxed);
        let mut effects = Effects::default();
        self.with_scheduler(&mut effects, |scheduler, _| scheduler.set_quiet(true));
        let deadline = self.plan.config.deadline;
        let most = deadline + deadline + PATIENCE;
        let until = clock::now() + most;
        while self.successor().is_none() && clock::now() < until {
            std::thread::park_timeout(PAUSE);
            self.with_scheduler(&mut effects, |_, _| {});
        }
        // From here on nobody carries it out any more.
        self.with_scheduler(&mut effects, |scheduler, _| {
            self.takeover.pending.store(false, Ordering::Relaxed);
            scheduler.set_quiet(false);
        });
        let Some(heir) = lock(&self.takeover.heir).take() else { return Err("it was given up".to_owned()) };
        if self.successor().is_none() {
            let reason = heir.refused.map(|e| format!(": {e}")).unwrap_or_default();
            return Err(format!(
                "no instant without open promises has come within {most}{reason}; try again"
            ));
        }
        let evidence = next.streams_in_evidence();
        registry.give(&mut to, heir.moves, &heir.added, &mut lock(&next.names), &evidence);
        drop((registry, to));
        next.with_scheduler(&mut effects, |_, _| {});
        self.stop();
        // Whoever still names this service follows to the next: its models are of no use any more.
        self.executors.iter().for_each(|executor| lock(executor).clear());
        Ok(())
    }

    /// Carries the takeover out, if there is one to be and the instant is right.
    pub(super) fn try_hand_over(&self, scheduler: &mut Scheduler, now: Instant) -> bool {
        if !self.takeover.pending.load(Ordering::Relaxed) || self.successor().is_some() {
            return false;
        }
        let mut heir = lock(&self.takeover.heir);
        let Some(Heir { service, moves, shield, added, refused }) = heir.as_mut() else { return false };
        let mut next = lock(&service.scheduler);
        if let Err(error) = scheduler.hand_over(now, &mut next) {
            *refused = Some(error);
            return false;
        }
        moves.dropped.iter().for_each(|(_, id)| next.remove_stream(*id));
        for stream in &moves.added {
            match next.add_stream(stream.spec.clone()) {
                Ok(id) => added.push(id),
                // The plan has counted them; there is a place for each.
                Err(error) => eprintln!("weir: service {}: stream {}: {error}", self.name(), stream.name),
            }
        }
        service.set_shield(&mut next, shield.take());
        let _ = self.takeover.done.set(Arc::clone(service));
        true
    }
}
