//! Services of another configuration take over while requests come: one by itself, or all of a device at once.
//!
//! They are made ready beside those that serve, then get their streams at an instant at which nothing that was promised
//! is open ([`rt_core::Scheduler::hand_over`], [`rt_core::sharing::Device::hand_over`]): whoever feeds the scheduler next after
//! such an instant has come carries it out, registries and recording included, so that at any time one of the two has all
//! of it. No lock but that on registering is held until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt_core::sharing::{Heir, SharedShield};
use rt_core::{ArrivalCurve, Fallbacks, HandOverError, Instant, Span, StreamSpec};

use super::device::Device;
use super::registry::{Leeway, Moves};
use super::shield::AnyShield;
use super::{Effects, Held, Service, lock, write};
use weir_os::clock;
use weir_os::pi_mutex::PiMutex;
use weir_plan::plan::ServicePlan;

/// How often it is tried beside every time the scheduler is fed.
const PAUSE: Duration = Duration::from_millis(1);
/// How long it is tried, beside two deadlines.
const PATIENCE: Span = Span::from_millis(1_000);
/// As many streams are shown anew while the scheduler is held once.
const AT_ONCE: usize = 64;

/// Who takes over from the services of a device.
#[derive(Default)]
pub(super) struct Takeover {
    /// Whether `successor` is there: all that requests ask of it.
    pending: AtomicBool,
    successor: PiMutex<Option<Successor>>,
}

/// The device that is to take over, and from whom who.
struct Successor {
    device: Arc<Device>,
    from: Vec<Arc<Service>>,
    /// Of each of these: who takes over from it; none where it ends.
    heirs: Vec<Option<Arc<Service>>>,
    /// Of each: what becomes of its streams, and what they leave room for.
    moves: Vec<(Moves, Room)>,
    /// What may go before all that is promised on the device.
    shield: Option<SharedShield>,
    /// What stood in the way last.
    refused: Option<Obstacle>,
    /// It has taken over: what is left of this is to be dropped where nobody waits.
    done: bool,
}

/// What streams leave room for: longer batches, early requests, and what else may go wrong.
struct Room {
    shield: Option<AnyShield>,
    tolerance: Span,
    fallbacks: Fallbacks,
}

enum Obstacle {
    Scheduler(HandOverError),
    /// A service that is to end, and the streams of it that are held.
    Held(String, Vec<String>),
}

impl Obstacle {
    /// Whether no waiting mends it.
    fn is_final(&self) -> bool {
        !matches!(self, Self::Scheduler(HandOverError::Busy { .. }))
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scheduler(error) => error.fmt(f),
            Self::Held(service, streams) => f.write_str(&stays(service, streams)),
        }
    }
}

/// Why a service does not end: these of its streams are held.
pub fn stays(service: &str, held: &[String]) -> String {
    format!("service {service} is to go, but these streams are held: {}", held.join(", "))
}

impl Service {
    /// Who has taken over, if anybody has.
    pub fn successor(&self) -> Option<&Arc<Self>> {
        self.heir.get()
    }

    /// This service, or who has taken over since.
    pub fn latest(&self) -> &Self {
        let mut latest = self;
        while let Some(next) = latest.successor() {
            latest = next;
        }
        latest
    }

    /// All services that run on the same workers, this one among them.
    pub fn companions(&self) -> Vec<Arc<Self>> {
        self.device.services().collect()
    }

    /// Whether services of `plans` could keep what those of `old`, all of one device, have promised to those who hold their
    /// streams.
    ///
    /// # Errors
    /// The stream that would be promised less, and in what.
    pub fn check_heirs(old: &[Arc<Self>], plans: &[ServicePlan]) -> Result<(), String> {
        Self::moves_to(old, &plans.iter().collect::<Vec<_>>()).map(drop)
    }

    /// Gives all streams of `old`, all services of one device, to those of the same names among `next`, which were started
    /// for that, as soon as nothing that was promised is open; who has no heir ends. Clients notice nothing but what is
    /// cancelled of requests that were promised nothing, and that new streams are given out afterwards. Blocks until it is
    /// done.
    ///
    /// # Errors
    /// The stream that would be promised less, or that no such instant has come; the old services go on then.
    pub fn hand_over(old: &[Arc<Self>], next: &[Arc<Self>]) -> Result<(), String> {
        let _alone: Vec<_> = old.iter().map(|service| write(&service.moving)).collect();
        let (Some(any), Some(first)) = (old.first(), next.first()) else { return Ok(()) };
        let (moves, (margins, shield)) =
            Self::moves_to(old, &next.iter().map(|n| &n.plan).collect::<Vec<_>>())?;
        let heirs: Vec<_> = old.iter().map(|old| Self::named(next, old.name()).cloned()).collect();
        let expect = |((old, heir), moves): ((&Arc<Self>, &Option<Arc<Self>>), Moves)| {
            let shield = heir.as_ref().and_then(|next| {
                next.scheduler().expect_streams(old.plan.config.streams, &moves.load());
                next.work_out_shield(&moves.load())
            });
            let tolerance = heir.as_ref().map_or(Span::ZERO, |next| next.work_out_tolerance(&moves.load()));
            let fallbacks =
                heir.as_ref().map(|next| next.work_out_fallbacks(&moves.load())).unwrap_or_default();
            (moves, Room { shield, tolerance, fallbacks })
        };
        let moves: Vec<_> = old.iter().zip(&heirs).zip(moves).map(expect).collect();
        // Before anything of theirs comes: a recording that goes on is passed on with them, and has it.
        for (heir, (moves, _)) in heirs.iter().zip(&moves) {
            let Some(heir) = heir else { continue };
            moves.declared().for_each(|(name, spec)| heir.record_declared(name, spec));
        }
        let device = Arc::clone(&first.device);
        {
            let mut scheduler = device.lock(0);
            let now = scheduler.now;
            scheduler.set_overrun_margins(now, margins);
        }
        let from = old.to_vec();
        let takeover = &any.device.takeover;
        *takeover.successor.lock() =
            Some(Successor { device, from, heirs, moves, shield, refused: None, done: false });
        takeover.pending.store(true, Ordering::Relaxed);
        let mut effects = Effects::default();
        any.with_scheduler(&mut effects, |scheduler, _| scheduler.set_quiet(true));
        let deadline = old.iter().map(|service| service.plan.config.deadline).max().unwrap_or_default();
        let most = deadline + deadline + PATIENCE;
        let until = clock::now() + most;
        let is_final = |refused: &Option<Obstacle>| refused.as_ref().is_some_and(Obstacle::is_final);
        let waits = |successor: &Successor| !successor.done && !is_final(&successor.refused);
        while clock::now() < until && takeover.successor.lock().as_ref().is_some_and(waits) {
            std::thread::park_timeout(PAUSE);
            any.with_scheduler(&mut effects, |_, _| {});
        }
        // From here on nobody carries it out any more.
        any.with_scheduler(&mut effects, |scheduler, _| {
            takeover.pending.store(false, Ordering::Relaxed);
            scheduler.set_quiet(false);
        });
        let successor = takeover.successor.lock().take();
        if let Some(Successor { refused, done: false, .. }) = successor {
            let reason = match refused {
                Some(obstacle) if obstacle.is_final() => obstacle.to_string(),
                refused => {
                    let reason = refused.map(|obstacle| format!(": {obstacle}")).unwrap_or_default();
                    format!("no instant without open promises has come within {most}{reason}; try again")
                }
            };
            let names: Vec<_> = old.iter().map(|service| service.name()).collect();
            return Err(format!("{}: {reason}", names.join(", ")));
        }
        old.iter().for_each(|service| service.scheduler().let_names_go());
        for next in next {
            let leftovers = next.scheduler().leftovers();
            drop(leftovers);
            let ids = next.registry.lock().ids();
            ids.chunks(AT_ONCE).for_each(|some| next.scheduler().publish_streams(some));
        }
        first.with_scheduler(&mut effects, |_, _| {});
        old.iter().for_each(|service| service.stop());
        // Whoever still names these services follows to the next: their models are of no use any more.
        old.iter().flat_map(|service| &service.executors).for_each(|executor| lock(executor).clear());
        Ok(())
    }

    /// Carries the takeover of the device out, if there is one to be and the instant is right.
    pub(super) fn try_hand_over(&self, scheduler: &mut Held<'_>, now: Instant) -> bool {
        let takeover = &self.device.takeover;
        if !takeover.pending.load(Ordering::Relaxed) {
            return false;
        }
        let mut place = takeover.successor.lock();
        let Some(successor) = place.as_mut().filter(|successor| !successor.done) else { return false };
        successor.done = successor.carry_out(scheduler, now);
        successor.done
    }

    /// What services of `plans`, all of one device, would mean for each stream of `old`, all of one device, and what they leave
    /// room for ([`Moves::admit_all`]): worked out on copies, for it takes as long as admitting them all.
    fn moves_to(old: &[Arc<Self>], plans: &[&ServicePlan]) -> Result<(Vec<Moves>, Leeway), String> {
        let of = |service: &Arc<Self>| {
            let (registry, name) = (service.registry.lock().clone(), service.name());
            match plans.iter().find(|plan| plan.config.name == name) {
                Some(plan) => registry.moves(&service.plan, plan).map_err(|error| format!("{name}: {error}")),
                None if registry.held().is_empty() => Ok(Moves::default()),
                None => Err(stays(name, &registry.held())),
            }
        };
        let moves: Vec<Moves> = old.iter().map(of).collect::<Result<_, String>>()?;
        let into = |plan: &ServicePlan| old.iter().position(|old| old.name() == plan.config.name);
        let news: Vec<_> = plans.iter().map(|plan| (*plan, into(plan).map(|of| &moves[of]))).collect();
        let room = Moves::admit_all(&news)?;
        Ok((moves, room))
    }

    /// What those who hold reserved streams have to know: which of them have another declaration than they had with `old`.
    pub fn redeclared(&self, old: &Self) -> Vec<String> {
        let registry = self.registry.lock();
        let told = |name: &str, spec: &StreamSpec| {
            let before = old.plan.config.reserved.iter().find(|stream| stream.name == name)?;
            let text = |spec: &StreamSpec| {
                let bounds =
                    spec.arrivals().into_iter().flat_map(ArrivalCurve::bounds).map(ToString::to_string);
                let levels = spec.levels().iter().zip(1..);
                let levels = levels.map(|(level, nth)| format!("degraded-{nth}: {}", level.constraints));
                let all = spec.constraints().as_slice().iter().map(ToString::to_string).chain(bounds);
                let all = all.chain(levels);
                all.collect::<Vec<_>>().join(", ")
            };
            let (now, then) = (text(spec), text(&before.spec));
            (*spec != before.spec).then(|| format!("stream {name}, which is held: {now}; before {then}"))
        };
        let held = registry.iter().filter(|(.., reserved, held)| *reserved && *held);
        let mut all: Vec<_> = held.filter_map(|(view, spec, ..)| told(&view.name, spec)).collect();
        all.sort();
        all
    }

    /// The one of that name: who takes over from it, or whom it takes over from.
    pub fn named<'a>(all: &'a [Arc<Self>], name: &str) -> Option<&'a Arc<Self>> {
        all.iter().find(|service| service.name() == name)
    }
}

impl Successor {
    /// Takes over now, if nothing is in the way; `scheduler` is that of a service that it takes over from.
    fn carry_out(&mut self, scheduler: &mut Held<'_>, now: Instant) -> bool {
        let Self { device, from, heirs, moves, shield, refused, .. } = self;
        // Their locks come before the schedulers', so they may not be waited for here: next time, if they are held.
        let registries: Option<Vec<_>> = from.iter().map(|service| service.registry.try_lock()).collect();
        // Of each service from which somebody takes over; none of one that ends.
        let to = heirs.iter().map(|heir| match heir {
            Some(heir) => heir.registry.try_lock().map(Some),
            None => Some(None),
        });
        let (Some(mut registries), Some(to)) = (registries, to.collect::<Option<Vec<_>>>()) else {
            return false;
        };
        let mut ended = Vec::new();
        for (((registry, heir), service), (moves, _)) in
            registries.iter().zip(&*heirs).zip(&*from).zip(&*moves)
        {
            let held = if heir.is_none() { registry.held() } else { Vec::new() };
            if !held.is_empty() {
                *refused = Some(Obstacle::Held(service.name().to_owned(), held));
                return false;
            }
            ended.push(if heir.is_none() { registry.ids() } else { registry.dropped(moves) });
        }
        let places = heirs.iter().map(|heir| heir.as_ref().map(|heir| heir.index));
        let all: Vec<_> =
            places.zip(&ended).map(|(service, ended)| Heir { service, ended: &ended[..] }).collect();
        let mut next = device.lock(0);
        if let Err(error) = scheduler.hand_over(now, &mut next, &all) {
            *refused = Some(Obstacle::Scheduler(error));
            return false;
        }
        for ((((registry, heir), to), service), (moves, room)) in
            registries.iter_mut().zip(&*heirs).zip(to).zip(&*from).zip(moves)
        {
            match heir.as_ref().zip(to) {
                None => service.closed.store(true, Ordering::Relaxed),
                Some((heir, mut to)) => {
                    next.turn_to(heir.index);
                    registry.give(&mut to, moves, &mut next, now);
                    next.set_tolerance(room.tolerance);
                    next.set_fallbacks(now, room.fallbacks);
                    // Of what has just been made there was none.
                    let _none = heir.set_shield(&mut next, room.shield.take());
                    service.pass_recorder_on(heir);
                    let _ = service.heir.set(Arc::clone(heir));
                }
            }
        }
        let is_new = |service: &usize| heirs.iter().flatten().all(|heir| heir.index != *service);
        for service in device.services().map(|service| service.index).filter(is_new) {
            next.turn_to(service);
            // As the others were told of before, so is it from now on.
            next.inhibit_safe_mode(now);
        }
        let _none = next.set_shared_shield(shield.take());
        true
    }
}
