//! The variant of a batch that has just been formed: what the table wishes for, as far as the shield allows.

use alloc::boxed::Box;

use super::pool::{Kind, State};
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use super::{Action, Scheduler, WorkerId};
use crate::admission::Dispatch;
use crate::select::{BatchView, SelectError, SelectTables, Selector, Variant, WEIGHED};
use crate::time::{Instant, Span};
use crate::workers::Workers;

/// Who selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    selector: Option<Selector>,
    /// By variant: what batches are formed as that are formed for it. They take no less than the base, which runs them if the
    /// wish is another one by then.
    kinds: Box<[Kind]>,
}

impl Selection {
    fn is_sparing(&mut self, now: Instant) -> bool {
        self.selector.as_mut().is_some_and(|selector| selector.is_sparing(now))
    }

    /// Whether anything but the base in batches of all that waits may be formed for.
    #[inline]
    fn shapes(&mut self, now: Instant, waiting: usize) -> bool {
        let Some(selector) = &mut self.selector else { return false };
        selector.is_forming(now) || selector.most(now, waiting) < waiting
    }

    /// What a batch is formed as that is formed for `variant`; `None` for the base.
    #[inline]
    pub(super) fn kind(&self, variant: usize) -> Option<&Kind> {
        if variant == 0 { None } else { self.kinds.get(variant) }
    }

    /// A request came.
    pub(super) fn arrived(&mut self, now: Instant) {
        if let Some(selector) = &mut self.selector {
            selector.observe(now);
        }
    }
}

impl Scheduler {
    /// Sets who selects the variant of each batch from now on, or nobody. Before [`Action::Start`] is returned the
    /// batch is given the most accurate variant, up to the one that is wished for, whose time for it
    /// [`Scheduler::longest`] allows, and is granted that time as by [`Scheduler::prolong`]. So without a shield
    /// ([`Scheduler::set_shield`]), and in safe mode, batches take the base variant, or one that is no slower.
    ///
    /// # Errors
    /// If variant 0 is not the one of the workers' profile, or the workers are of several kinds.
    pub fn set_selector(&mut self, selector: Option<Selector>) -> Result<(), SelectError> {
        self.selection = Selection::default();
        let Some(selector) = selector else { return Ok(()) };
        let Some(workers) = self.pool.only_kind() else {
            return Err(SelectError::Kinds { kinds: self.config.workers.len() });
        };
        if selector.variants()[0].profile != workers.profile {
            return Err(SelectError::Base);
        }
        let kind = |Variant { profile, .. }: &Variant| {
            let profile = profile.slower_of(&workers.profile);
            let (count, batch) = (workers.count, workers.batch.min(profile.max_batch()));
            Kind::new(Workers { count, batch, profile })
        };
        let kinds = selector.variants().iter().map(kind).collect();
        self.selection = Selection { selector: Some(selector), kinds };
        Ok(())
    }

    /// Exchanges the tables of the selector for `tables`, from the next batch on; see [`Selector::swap_tables`].
    ///
    /// # Errors
    /// If nobody selects, or the tables are for more variants than there are; nothing is exchanged then.
    pub fn swap_tables(&mut self, tables: &mut SelectTables) -> Result<(), SelectError> {
        self.selection.selector.as_mut().ok_or(SelectError::Nobody)?.swap_tables(tables)
    }

    /// Requests a second as the selector sees them at `now`; 0 if nobody selects.
    #[must_use]
    pub fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.selection.selector.as_mut().map_or(0.0, |selector| selector.rate_per_s(now))
    }

    /// Who selects, if anybody does.
    #[must_use]
    pub fn selector(&self) -> Option<&Selector> {
        self.selection.selector.as_ref()
    }

    /// The variant that the batch which `worker` was told to start last is to be run with: an index into
    /// [`Selector::variants`], 0 without a selector.
    #[must_use]
    pub fn variant(&self, worker: WorkerId) -> usize {
        self.pool.get(worker).map_or(0, |w| usize::from(w.variant))
    }

    /// How long the batch of `worker` may take by what was granted to it; 0 if it runs none.
    #[must_use]
    pub fn granted(&self, worker: WorkerId) -> Span {
        match self.pool.get(worker).map(|w| w.state) {
            Some(State::Busy { started, due, .. }) => due.since(started),
            _ => Span::ZERO,
        }
    }

    /// The variant that the batch which `worker` takes at `now` is formed for, and the most requests of it: the base, 0, and any
    /// number, unless nothing is promised for anything that waits, a table wishes for another one so, and the shield lets that
    /// run for what is due last, or a table limits batches. No promise rests on it: however it is formed, the batch takes the
    /// base no longer than a full one, and what it leaves is promised nothing.
    #[inline]
    pub(super) fn formed_for(&mut self, now: Instant, worker: WorkerId) -> (usize, usize) {
        if self.selection.shapes(now, self.waiting.len()) {
            self.formed_for_wish(now, worker)
        } else {
            (0, usize::MAX)
        }
    }

    #[inline(never)]
    fn formed_for_wish(&mut self, now: Instant, worker: WorkerId) -> (usize, usize) {
        let chosen_otherwise = self.planner.spreads() || !self.config.background || self.guest.is_some();
        let promised = !self.waiting.class(MANDATORY).is_empty();
        let waiting = self.waiting.len();
        match &mut self.selection.selector {
            Some(selector) if !chosen_otherwise && !promised => {
                let (forming, most) = (selector.is_forming(now), selector.most(now, waiting));
                if !self.may_prolong(now) {
                    return (0, usize::MAX);
                }
                // Where a worker waits for a full batch, what is left over would wait for one again.
                let most = if self.config.dispatch == Dispatch::Eager { most } else { usize::MAX };
                (if forming { self.formed_as_wished(now, worker, most).unwrap_or(0) } else { 0 }, most)
            }
            _ => (0, usize::MAX),
        }
    }

    fn formed_as_wished(&mut self, now: Instant, worker: WorkerId, most: usize) -> Option<usize> {
        let ends = [DEMOTED, OPTIONAL].map(|class| self.waiting.class(class));
        let ends = ends.into_iter().filter_map(|queue| Some((queue.first()?, queue.get(queue.len() - 1)?)));
        let ends = ends.map(|(first, last)| (first.deadline, last.deadline));
        let (first, last) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let [first, last] = [first, last].map(|due| (due - self.reserve).since(now));
        let size = self.waiting.len().min(self.pool.kind(worker).workers.batch).min(most);
        let view = BatchView::alike(now, size, self.waiting.len() - size, first);
        let wish = self.selection.selector.as_mut()?.forms(&view)?;
        let least = self.selection.kind(wish)?.workers.profile.bound(1);
        (self.longest_by(self.shield.as_ref()?, now, worker, last) >= least).then_some(wish)
    }

    /// Has the variant selected for the batch that `worker` starts at `now`.
    pub(super) fn start(&mut self, now: Instant, worker: WorkerId) -> Action {
        if self.selection.selector.is_some() {
            self.select(now, worker);
        }
        Action::Start { worker }
    }

    /// How long the batch that `worker` starts may take so that all that wait, mandatory ones first, and the next that
    /// comes, can be answered in time by full batches. No promise rests on it.
    #[inline(never)]
    fn sparing(&self, now: Instant, worker: WorkerId) -> Span {
        let Some(shield) = &self.shield else { return Span::ZERO };
        let [mandatory, demoted, optional] =
            [MANDATORY, DEMOTED, OPTIONAL].map(|class| self.waiting.class(class));
        let first = mandatory.len();
        // The first of each batch is due first, and of each class.
        let each = shield.workers().batch;
        let at = |i: usize| demoted.get(i).or_else(|| optional.get(i - demoted.len()));
        let firsts = (first.next_multiple_of(each) - first..demoted.len() + optional.len()).step_by(each);
        let rest = [0, demoted.len()].into_iter().chain(firsts);
        let rest = rest.filter_map(|i| Some((first + i, self.due(at(i)?))));
        let next = (self.waiting(), now + self.config.deadline - self.reserve);
        let rest = rest.chain([next]);
        shield.longest_beside(now, self.long_beside(now, worker), rest)
    }

    #[inline(never)]
    fn select(&mut self, now: Instant, worker: WorkerId) {
        let slack = self.slack(now, worker);
        let Some((wish, size, granted)) = self.wish(now, worker, slack) else { return };
        let mut longest = match &self.shield {
            Some(shield) if self.may_prolong(now) => granted.max(self.longest_by(shield, now, worker, slack)),
            _ => granted,
        };
        if self.selection.is_sparing(now) {
            longest = longest.min(self.sparing(now, worker));
        }
        self.take_variant(now, worker, (wish, size, granted), longest);
    }

    /// Has the variant selected for the batch that `worker` starts at `now` and that is due in `slack`, which may take as long as
    /// `longest` if that is more than the base does.
    pub(super) fn select_within(&mut self, now: Instant, worker: WorkerId, slack: Span, longest: Span) {
        if let Some(wish) = self.wish(now, worker, slack) {
            self.take_variant(now, worker, wish, longest);
        }
    }

    /// What is wished for the batch that `worker` starts, if it is not the base; its size, and the time that it has.
    fn wish(&mut self, now: Instant, worker: WorkerId, slack: Span) -> Option<(usize, usize, Span)> {
        if self.fallen.is_some() {
            return None;
        }
        let (size, waiting) = (self.batch(worker).len(), self.waiting());
        let granted = self.pool.time_granted(now, worker)?;
        let free = self.pool.free_count();
        let selector = self.selection.selector.as_mut()?;
        let mut view = BatchView { free, ..BatchView::alike(now, size, waiting, slack) };
        if !selector.classes().is_empty() {
            view.classes = selector.mix(self.pool.batch(worker));
        }
        let wish = selector.wish(&view);
        (wish > 0).then_some((wish, size, granted))
    }

    /// What a second of a worker's time costs the batch that `worker` starts, if variants are weighed by that.
    #[inline(never)]
    fn price(&mut self, now: Instant, worker: WorkerId) -> Option<f64> {
        let (size, waiting, free) = (self.batch(worker).len(), self.waiting(), self.pool.free_count());
        let view = BatchView { free, ..BatchView::alike(now, size, waiting, Span::ZERO) };
        self.selection.selector.as_mut()?.price(&view)
    }

    /// Takes the variant that is wished for, or the best below it that takes no longer than `longest`; with classes the one of
    /// these times that is worth most to the batch, and with a price of time the one that is most beyond what its time costs.
    #[inline(always)]
    fn take_variant(
        &mut self,
        now: Instant,
        worker: WorkerId,
        (wish, size, granted): (usize, usize, Span),
        longest: Span,
    ) {
        let price = if wish == WEIGHED { self.price(now, worker) } else { None };
        let Some(selector) = &self.selection.selector else { return };
        let chosen = match price {
            None if selector.classes().is_empty() => selector.fitting(wish, size, longest),
            price => selector.worthiest(now, wish, self.pool.batch(worker), (longest, price.unwrap_or(0.0))),
        };
        if let Some((variant, time)) = chosen {
            self.pool.set_variant(worker, variant as u8);
            if time > granted {
                self.grant(now, worker, time);
            }
        }
    }
}
