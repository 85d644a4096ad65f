//! Streams come, go, and change hands.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::carry_in::CarryIn;
use super::queue::{OPTIONAL, Waiting};
use super::types::{SchedulerConfig, StreamError};
use super::{Request, Scheduler};
use crate::fallback::Fallbacks;
use crate::ledger::Load;
use crate::outcome::SpareLogs;
use crate::shield::Shield;
use crate::stream::{MissReason, Stream, StreamId, StreamSpec};
use crate::time::{Instant, Span};
use crate::workers::Workers;

/// A stream that is about to be added: all that is to be allocated for it.
#[derive(Debug)]
pub struct Newcomer {
    stream: Box<Stream>,
    shield: Option<Arc<Shield>>,
    version: Option<u64>,
    tolerance: Span,
    fallbacks: Fallbacks,
}

/// What came of a newcomer.
#[derive(Debug)]
pub enum Joined {
    /// It has been added, under this number. What is no longer needed is to be dropped where nobody waits.
    Added(StreamId, Retired),
    /// Batches longer than `P`, or what streams that departed have left, are still in its way; no more long batches are
    /// started until [`Scheduler::withdraw`] or until it is added. Try again after the next completion, at the latest in a
    /// deadline and the busy period that follows.
    Wait(Newcomer),
    /// Others came since the load was told that it was admitted with: to be tested again.
    Stale(Newcomer),
}

/// What a scheduler no longer needs.
#[derive(Debug, Default)]
pub struct Retired {
    _shield: Option<Arc<Shield>>,
    _stream: Option<Box<Stream>>,
    _logs: SpareLogs,
}

impl Retired {
    /// Logs.
    pub(super) fn logs(logs: SpareLogs) -> Self {
        Self { _logs: logs, ..Self::default() }
    }

    pub(super) fn of(shield: Option<Arc<Shield>>) -> Self {
        Self { _shield: shield, ..Self::default() }
    }

    pub(super) fn stream(shield: Option<Arc<Shield>>, stream: Stream) -> Self {
        Self { _stream: Some(Box::new(stream)), ..Self::of(shield) }
    }
}

/// The streams of a scheduler, each in its place.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    places: Vec<Option<Box<Stream>>>,
    /// Places that are free.
    free: Vec<u16>,
    next_generation: u32,
}

impl Streams {
    /// None, with so many places. Allocates.
    pub(super) fn new(count: usize) -> Self {
        let free = (0..count as u16).rev().collect();
        Self { places: (0..count).map(|_| None).collect(), free, next_generation: 1 }
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.places
            .get(usize::from(id.slot))?
            .as_deref()
            .filter(|stream| stream.id.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.places.get_mut(usize::from(id.slot))?.as_deref_mut();
        stream.filter(|stream| stream.id.generation == id.generation)
    }

    /// Who is in a place.
    pub(super) fn at(&self, slot: u16) -> Option<&Stream> {
        self.places.get(usize::from(slot))?.as_deref()
    }

    /// The same, to be changed.
    pub(super) fn at_mut(&mut self, slot: u16) -> Option<&mut Stream> {
        self.places.get_mut(usize::from(slot))?.as_deref_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Places, free ones among them.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.places.iter().flatten().map(|stream| &**stream)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().flatten().map(|stream| &mut **stream)
    }

    /// A number that no stream has had.
    fn generation(&mut self) -> u32 {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        generation
    }

    /// Gives a stream a place and a number; there is a free one.
    fn insert(&mut self, mut stream: Box<Stream>) -> Option<StreamId> {
        let slot = self.free.pop()?;
        let id = StreamId { slot, generation: self.generation() };
        stream.id = id;
        self.places[usize::from(slot)] = Some(stream);
        Some(id)
    }

    fn remove(&mut self, id: StreamId) -> Option<Box<Stream>> {
        self.get(id)?;
        self.free.push(id.slot);
        self.places[usize::from(id.slot)].take()
    }

    /// At least so many places; none is taken. Allocates if they are more.
    pub(super) fn resize(&mut self, count: usize) {
        if count > self.places.len() {
            *self = Self { next_generation: self.next_generation, ..Self::new(count) };
        }
    }

    /// Goes on with those of another, in the same places: as many of them, or more.
    pub(super) fn continue_from(&mut self, other: &mut Self) {
        self.resize(other.places.len());
        self.next_generation = other.next_generation;
        self.free.clear();
        self.free.extend((other.places.len()..self.places.len()).rev().map(|slot| slot as u16));
        self.free.append(&mut other.free);
        other.free.extend((0..other.places.len()).rev().map(|slot| slot as u16));
        self.places.iter_mut().zip(&mut other.places).for_each(|(place, from)| *place = from.take());
    }
}

impl Newcomer {
    /// A stream of a scheduler of this configuration. Allocates all that it needs.
    #[must_use]
    pub fn new(config: &SchedulerConfig, spec: StreamSpec) -> Self {
        Self::lasting(config, spec, life(config))
    }

    /// The same of a stream of which a request may be unanswered for as long as `life`.
    pub(crate) fn lasting(config: &SchedulerConfig, spec: StreamSpec, life: Span) -> Self {
        let (places, density) = (places(config, &spec, life), config.density_of(&spec));
        Self {
            stream: Box::new(Stream::new(spec, density, places)),
            shield: None,
            version: None,
            tolerance: Span::ZERO,
            fallbacks: Fallbacks::default(),
        }
    }

    /// It was admitted beside `load`, and beside nobody else.
    #[must_use]
    pub fn beside(mut self, load: &Load) -> Self {
        self.version = Some(load.version);
        self
    }

    /// The shield that is to be set with it, which counts it and all others; without one, the present one stays if it
    /// counts it.
    #[must_use]
    pub fn shielded(mut self, shield: Option<Shield>) -> Self {
        self.shield = shield.map(Arc::new);
        self
    }

    /// What the promises to it and to all others fall back on when something is wrong ([`crate::System::fallbacks`]).
    #[must_use]
    pub fn falling_back(mut self, fallbacks: Fallbacks) -> Self {
        self.fallbacks = fallbacks;
        self
    }

    /// Its admission leaves room for requests, of all that are promised anything, that come early by so much
    /// ([`crate::System::tolerance`]). More than the configuration has is none.
    #[must_use]
    pub fn tolerant(mut self, config: &SchedulerConfig, tolerance: Span) -> Self {
        self.tolerance = tolerance.min(config.most_early());
        self
    }
}

impl Scheduler {
    /// A stream of this scheduler. Allocates all that it needs.
    pub(crate) fn newcomer(&self, spec: StreamSpec) -> Newcomer {
        Newcomer::lasting(&self.config, spec, self.life)
    }

    /// Places in the log of the outcomes of such a stream here.
    pub(super) fn places_for(&self, spec: &StreamSpec) -> usize {
        places(&self.config, spec, self.life)
    }

    /// What a new stream is to be tested beside: streams that are there or reserved, and those that have departed and
    /// still count. Allocates.
    #[must_use]
    pub fn load(&self) -> Load {
        self.ledger.load(self.shield.as_ref())
    }

    /// Adds a stream that was admitted beside [`Scheduler::load`], if nothing is in its way that its admission does not
    /// count. What batches longer than `P` leave of each worker's time is not in its way where the shield that is set
    /// and counts it, or the one that comes with it, says so of the state at `now` without regard to any lull. Constant
    /// but for streams that differ.
    ///
    /// # Errors
    /// If the configured number of streams is reached, or it is background and none is served.
    pub fn try_add_stream(&mut self, now: Instant, newcomer: Newcomer) -> Result<Joined, StreamError> {
        let Newcomer { stream, shield, version, tolerance, fallbacks } = newcomer;
        let mut new = None;
        if self.streams.len() >= self.config.streams {
            return Err(StreamError::Limit { limit: self.config.streams });
        }
        if !self.config.background && stream.spec.arrivals().is_none() {
            return Err(StreamError::Undeclared);
        }
        if stream.ladder.is_some() && !self.may_change_levels() {
            return Err(StreamError::Levels);
        }
        let demands = stream.spec.demand().is_some();
        if demands && version.is_some_and(|version| !self.ledger.is_current(version)) {
            return Ok(Joined::Stale(Newcomer { stream, shield, version, tolerance, fallbacks }));
        }
        let counted = self.shield.as_ref().is_some_and(|shield| {
            self.ledger.alike(&stream.spec, stream.digest) < shield.counts_alike(&stream.spec, stream.digest)
        });
        if demands {
            // No shield was made for fewer or slower workers.
            let fallen = self.fallen.is_some();
            let vouched = counted && self.config.background && !fallen && self.is_vouched(now);
            let fits = self.is_ready(now, shield.as_deref().filter(|_| !fallen)) && self.is_borne(fallbacks);
            let calm = self.tolerance.may_be(tolerance);
            if !(vouched || fits) || !calm || self.ledger.departed() >= self.config.streams {
                self.awaited = true;
                return Ok(Joined::Wait(Newcomer { stream, shield, version, tolerance, fallbacks }));
            }
            new = shield.filter(|_| fits);
        }
        if demands {
            self.tolerance.join(tolerance, self.ledger.is_empty());
            self.join_fallbacks(fallbacks);
        }
        self.ledger.join(&stream.spec, stream.digest);
        let Some(id) = self.streams.insert(stream) else {
            return Err(StreamError::Limit { limit: self.config.streams });
        };
        self.planner.forget(usize::from(id.slot));
        if demands {
            self.to_come.set(usize::from(id.slot), Instant::ZERO);
            self.tolerance.set(id.slot, Some((tolerance, self.fallbacks)));
            self.hold_newcomer(now, id.slot);
            self.cover_missing(now);
        }
        (self.awaited, self.changed) = (false, true);
        let mut old = None;
        if let Some(new) = new.filter(|new| self.check_shield(new).is_ok()) {
            old = self.shield.replace(new);
            self.vouched = true;
            self.note_shield(true);
        } else if demands && !counted {
            old = self.shield.take();
            self.note_shield(false);
        }
        Ok(Joined::Added(id, Retired::of(old)))
    }

    /// Nobody waits to be added any more.
    pub fn withdraw(&mut self) {
        (self.awaited, self.changed) = (false, true);
    }

    /// Adds a stream at once, where nobody waits for what is allocated and the caller has tested its admission: before
    /// requests come, in simulations, for streams that are promised nothing. A shield that does not count it is dropped.
    ///
    /// # Errors
    /// As [`Scheduler::try_add_stream`], and if it would have to wait.
    pub fn add_stream(&mut self, now: Instant, spec: StreamSpec) -> Result<StreamId, StreamError> {
        match self.try_add_stream(now, self.newcomer(spec))? {
            Joined::Added(id, _) => Ok(id),
            Joined::Wait(_) | Joined::Stale(_) => {
                self.withdraw();
                Err(StreamError::Wait)
            }
        }
    }

    /// Removes a stream: what waits is cancelled, what runs ends unheard. It counts for newcomers until no mandatory
    /// request waits, for only then is it out of every busy period. Linear in what of it is unanswered.
    pub fn remove_stream(&mut self, id: StreamId) -> Retired {
        let Some(spec) = self.streams.get(id).map(|stream| Arc::clone(&stream.spec)) else {
            return Retired::default();
        };
        if !self.config.background {
            self.carry_in = CarryIn::Open;
        }
        self.cancel(id);
        self.end_suspension(id);
        self.to_come.remove(usize::from(id.slot));
        self.tolerance.set(id.slot, None);
        let stream = self.streams.remove(id);
        let digest = stream.as_ref().map_or(0, |stream| stream.digest);
        self.ledger.depart(&spec, digest, self.waiting.is_clear() && self.guest.is_none());
        self.note_break();
        self.note_departure();
        Retired { _stream: stream, ..Retired::default() }
    }

    /// Starts a stream anew for another client of the same declaration: new number, requests from 0, a clean record. The
    /// arrival monitor, the word and a suspension go on, so the promise to others is untouched. Linear in what of it is
    /// unanswered.
    pub fn restart_stream(&mut self, id: StreamId) -> Option<StreamId> {
        self.streams.get(id)?;
        self.cancel(id);
        let fresh = StreamId { generation: self.streams.generation(), ..id };
        self.streams.get_mut(id)?.restart(fresh);
        self.planner.restart(usize::from(id.slot));
        Some(fresh)
    }

    /// Takes every waiting request of a stream back.
    fn cancel(&mut self, id: StreamId) {
        self.changed = true;
        if let Some(stream) = self.streams.get(id) {
            for (place, deadline) in stream.outcomes.open_places() {
                let is = |request: &Request| request.stream == id && request.place == place;
                if let Some(request) = self.waiting.take_back(deadline, is) {
                    self.told.cancelled(request);
                }
            }
            // Those that are not listed may be anywhere.
            for class in (0..=OPTIONAL).filter(|_| stream.outcomes.has_passed()) {
                let find = |waiting: &Waiting| waiting.class(class).from(0).position(|r| r.stream == id);
                while let Some(request) =
                    find(&self.waiting).and_then(|found| self.waiting.remove(class, found))
                {
                    self.told.cancelled(request);
                }
            }
        }
        self.note_clear();
    }

    /// Busy periods end where no mandatory request waits.
    #[inline(always)]
    pub(super) fn note_clear(&mut self) {
        if self.waiting.is_clear() && self.guest.is_none() {
            self.clears += 1;
            self.ledger.clear();
            self.relax_tolerance();
        }
    }

    /// Gives up all that wait.
    pub(super) fn give_up_all(&mut self, now: Instant, reason: MissReason) {
        for class in 0..=OPTIONAL {
            while let Some(request) = self.waiting.pop(class) {
                self.give_up(now, request, reason);
            }
        }
        self.note_clear();
    }
}

/// How long a request is unanswered at most, while all is as declared.
pub(super) fn life(config: &SchedulerConfig) -> Span {
    let longest = |kind: &Workers| kind.profile.bound(kind.profile.max_batch());
    let slowest = config.workers.iter().map(longest).max().unwrap_or(Span::ZERO);
    let lost = config.stalls.map_or(Span::ZERO, |stalls| stalls.lost());
    config.deadline + slowest + config.guard + lost + config.most_early()
}

/// Places in the log of a stream's outcomes: for as many requests as it may send in the longest `life` of one, and for as many
/// as the scheduler holds.
pub(super) fn places(config: &SchedulerConfig, spec: &StreamSpec, life: Span) -> usize {
    let curves = spec.arrivals().into_iter().chain(spec.levels().iter().map(|level| &level.arrivals));
    let sent = curves.map(|arrivals| arrivals.count(life)).max().unwrap_or(0).min(1 << 20) as usize;
    sent + most_open(config)
}

/// As many requests as the scheduler holds, waiting or in batches.
pub(super) fn most_open(config: &SchedulerConfig) -> usize {
    config.queue + config.kinds().map(|kind| kind.profile.max_batch()).sum::<usize>()
}
