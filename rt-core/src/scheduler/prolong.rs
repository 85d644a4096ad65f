//! Longer batches: what the shield allows, of more requests than promises are computed for or with a slower variant, and
//! what is then expected of them.

use alloc::sync::Arc;

use super::carry_in::CarryIn;
use super::queue::MANDATORY;
use super::types::{NEVER, Request, ShieldRefusal, WorkerId};
use super::{Retired, Scheduler};
use crate::shield::{Shield, ShieldError};
use crate::time::{Instant, Span};

/// How often a smaller size is tried for a batch that the shield does not allow.
const TRIES: usize = 4;

impl Scheduler {
    /// Sets the shield that longer batches are asked of, or takes it away; the old one is to be dropped where nobody waits. It
    /// must count every promised stream that is there, and may count streams that are yet to come. One that does not count
    /// a stream that is added is replaced by that which comes with it ([`Scheduler::try_add_stream`]), so a stale one
    /// is never asked.
    ///
    /// # Errors
    /// If the shield is for other workers, a longer latency or fewer streams, or the queue could overflow; there is none then.
    pub fn set_shield(&mut self, shield: Option<Shield>) -> Result<Retired, ShieldError> {
        let old = self.shield.take();
        self.changed = true;
        if let Some(shield) = shield {
            self.check_shield(&shield)?;
            // What was begun under another one was safe for those that it counted.
            self.vouched = self.carry_in == CarryIn::None;
            self.shield = Some(Arc::new(shield));
        }
        self.note_shield(false);
        Ok(Retired::of(old))
    }

    /// Whether `shield` is for this scheduler and all of its streams.
    pub(super) fn check_shield(&self, shield: &Shield) -> Result<(), ShieldError> {
        if self.pool.only_kind() != Some(shield.workers()) {
            return Err(ShieldError::Foreign);
        }
        if self.absorbs {
            return Err(ShieldError::Absorbed);
        }
        let (latency, limit) = (shield.latency(), self.config.deadline.saturating_sub(self.reserve));
        if latency > limit {
            return Err(ShieldError::Deadline { latency, limit });
        }
        // Without long batches the queue may be shorter; behind them it fills up to what deadlines allow.
        let waiting = shield.most_waiting(self.config.deadline);
        if waiting > self.config.queue as u64 {
            return Err(ShieldError::Queue { waiting, limit: self.config.queue });
        }
        match self.ledger.left_out(shield.counted()) {
            0 => Ok(()),
            count => Err(ShieldError::Stream { count }),
        }
    }

    /// The shield, if one is set and still counts every promised stream.
    #[must_use]
    pub fn shield(&self) -> Option<&Shield> {
        self.shield.as_deref()
    }

    /// How long the batch that `worker` was told to start at `now` may take at most: what
    /// [`Scheduler::prolong`] will grant. `P(b)` if it may not take longer, 0 if there is no such batch.
    #[must_use]
    pub fn longest(&self, now: Instant, worker: WorkerId) -> Span {
        let Some(granted) = self.pool.time_granted(now, worker) else { return Span::ZERO };
        match &self.shield {
            Some(shield) if self.may_prolong(now) => {
                granted.max(self.longest_by(shield, now, worker, self.slack(now, worker)))
            }
            _ => granted,
        }
    }

    /// Grants the batch that `worker` was told to start at `now` up to `length` instead of `P(b)`; call it
    /// between [`crate::Action::Start`] and the next input, as often as there are lengths to try. The service
    /// monitor then expects it by `now + length`. A length up to what is granted already changes nothing.
    ///
    /// # Errors
    /// If there is no shield, or it does not allow it, or some request of the batch would be late.
    pub fn prolong(&mut self, now: Instant, worker: WorkerId, length: Span) -> Result<(), ShieldRefusal> {
        let shield = self.shield.as_ref().ok_or(ShieldRefusal::NoShield)?;
        let granted = self.pool.time_granted(now, worker).ok_or(ShieldRefusal::NotStarted { worker })?;
        if !self.may_prolong(now) {
            return Err(ShieldRefusal::Unsafe);
        }
        let limit = granted.max(self.longest_by(shield, now, worker, self.slack(now, worker)));
        if length > limit {
            return Err(ShieldRefusal::Length { length, limit });
        }
        if length > granted {
            self.grant(now, worker, length);
        }
        Ok(())
    }

    /// Expects the batch that `worker` started at `now` by `now + length`, unless it has longer already.
    pub(super) fn grant(&mut self, now: Instant, worker: WorkerId, length: Span) {
        self.note_long(length > self.pool.kind(worker).time);
        self.changed = true;
        self.pool.prolong(worker, now + length);
    }

    /// A `long` batch was started: newcomers may have to wait for it, also those that the shield counts, for it may have been
    /// allowed in a lull of those that are there.
    pub(super) fn note_long(&mut self, long: bool) {
        if long && self.guest.is_none() {
            self.carry_in = CarryIn::Open;
            self.vouched = false;
        }
    }

    /// Looks anew at who can send next. What is known of each stream stays true while it sends, for the earliest instant at
    /// which its next request conforms only moves on; so only those that come first need a look.
    pub(super) fn look_for_lull(&mut self) {
        while let Some((known, slot)) = self.to_come.earliest()
            && let Some(earliest) = self.streams.at_mut(slot as u16).map(|stream| stream.earliest())
            && earliest > known
        {
            self.to_come.set(slot, earliest);
        }
    }

    /// For how long from `now` on no mandatory request can come of the streams that are there, be they as early as the shield
    /// leaves room for.
    fn lull(&self, now: Instant) -> Span {
        let at = self.to_come.instant();
        if at < NEVER { at.since(now + self.tolerance.reserve()) } else { Span::ZERO }
    }

    /// The most requests that a batch which `worker` starts at `now` may hold: as many as a full batch, and more where
    /// nothing is promised or the shield allows the bound on its time.
    #[inline(always)]
    pub(super) fn most(&self, now: Instant, worker: WorkerId) -> usize {
        let kind = &self.pool.kind(worker).workers;
        if let Some(guest) = &self.guest {
            return if guest.background { self.most_of_any(worker) } else { kind.batch };
        }
        let size = kind.profile.max_batch().min(self.waiting.len());
        if size <= kind.batch || !self.may_be_long() {
            kind.batch
        } else {
            self.most_allowed(now, worker, size)
        }
    }

    /// The most that a batch may hold if it may take as long as any on workers that are shared.
    pub(super) fn most_of_any(&self, worker: WorkerId) -> usize {
        let profile = &self.pool.kind(worker).workers.profile;
        let longest = self.most_demoted().or(self.guest.map(|guest| guest.longest)).unwrap_or(Span::ZERO);
        profile.largest_within(longest, profile.max_batch())
    }

    /// The same, of batches of more than are full and at most `size`.
    #[inline(never)]
    fn most_allowed(&self, now: Instant, worker: WorkerId, mut size: usize) -> usize {
        let kind = &self.pool.kind(worker).workers;
        let (full, profile) = (kind.batch, &kind.profile);
        let Some(shield) = self.shield.as_deref().filter(|_| !self.ledger.is_empty()) else { return size };
        if !self.pool.is_on_time(now) {
            return full;
        }
        let others = self.long_beside(now, worker);
        let head = self.mandatory_due(0).next().map_or(Span::from_nanos(u64::MAX), |due| due.since(now));
        for _ in 0..TRIES {
            let longest =
                shield.longest(now, others.clone(), self.mandatory_due(size), self.lull(now)).min(head);
            let allowed = profile.largest_within(longest, size);
            if allowed >= size {
                return size;
            }
            if allowed <= full {
                break;
            }
            size = allowed;
        }
        full
    }

    /// Whether batches of more requests than promises are computed for may be formed at all.
    pub(super) fn may_be_long(&self) -> bool {
        let stands = || self.fallen.is_none() && !self.safe_mode.severity().is_suspended();
        let shielded = || self.shield.is_some() && self.config.background && stands();
        !self.awaited
            && !self.waits_for_calm()
            && !self.quiet
            && !self.absorbs
            && (self.ledger.is_empty() || shielded())
    }

    /// Whether the shield may be asked at all. What smaller batches take the refinement counts, so without background it is not.
    #[inline]
    pub(super) fn may_prolong(&self, now: Instant) -> bool {
        self.config.background
            && !self.awaited
            && !self.waits_for_calm()
            && self.fallen.is_none()
            && !self.safe_mode.severity().is_suspended()
            && self.pool.is_on_time(now)
    }

    /// How long the shield lets the batch that `worker` starts at `now` take, which is due in `slack`.
    #[inline]
    pub(super) fn longest_by(&self, shield: &Shield, now: Instant, worker: WorkerId, slack: Span) -> Span {
        let lull = self.lull(now);
        // Mostly that is all there is to know.
        let alone = lull == Span::ZERO && self.waiting.is_clear() && !self.pool.has_long();
        slack.min(if alone { shield.longest_alone() } else { self.longest_beside(shield, now, worker, lull) })
    }

    #[inline(never)]
    fn longest_beside(&self, shield: &Shield, now: Instant, worker: WorkerId, lull: Span) -> Span {
        shield.longest(now, self.long_beside(now, worker), self.mandatory_due(0), lull)
    }

    /// What the longer batches of others than `worker` still take at most.
    pub(super) fn long_beside(
        &self,
        now: Instant,
        worker: WorkerId,
    ) -> impl Iterator<Item = Span> + Clone + '_ {
        let lost = self.most_stalled();
        self.pool.long_beside(now, worker).map(move |left| left + lost)
    }

    /// When a request must be answered: its deadline less what is kept back for late dispatch and stalls.
    pub(super) fn due(&self, request: &Request) -> Instant {
        request.deadline - self.reserve
    }

    /// When those that wait and that a promise counts on must be answered, in order, but for the first few.
    pub(super) fn mandatory_due(&self, skip: usize) -> impl ExactSizeIterator<Item = Instant> + Clone + '_ {
        self.waiting.class(MANDATORY).from(skip).map(|request| self.due(request))
    }

    /// How long the batch of `worker` may take at most to be in time; 0 if it has none.
    #[inline]
    pub(super) fn slack(&self, now: Instant, worker: WorkerId) -> Span {
        let earliest = self.pool.batch(worker).iter().map(|request| request.deadline).min();
        earliest.map_or(Span::ZERO, |earliest| (earliest - self.reserve).since(now))
    }
}
