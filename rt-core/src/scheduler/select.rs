//! The variant of a batch that has just been formed: what the table wishes for, as far as the shield allows.

use super::pool::State;
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use super::{Action, Scheduler, WorkerId};
use crate::select::{BatchView, SelectError, SelectTables, Selector};
use crate::time::{Instant, Span};

/// Who selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    selector: Option<Selector>,
}

impl Selection {
    fn is_sparing(&self) -> bool {
        self.selector.as_ref().is_some_and(Selector::is_sparing)
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
        self.selection.selector = None;
        let Some(selector) = selector else { return Ok(()) };
        let Some(workers) = self.pool.only_kind() else {
            return Err(SelectError::Kinds { kinds: self.config.workers.len() });
        };
        if selector.variants()[0].profile != workers.profile {
            return Err(SelectError::Base);
        }
        self.selection.selector = Some(selector);
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
        let next = (self.waiting(), now + self.config.deadline - self.config.reserve());
        let rest = rest.chain([next]);
        shield.longest_beside(now, self.pool.long_beside(now, worker), rest)
    }

    #[inline(never)]
    fn select(&mut self, now: Instant, worker: WorkerId) {
        let slack = self.slack(now, worker);
        let Some((wish, size, granted)) = self.wish(now, worker, slack) else { return };
        let mut longest = match &self.shield {
            Some(shield) if self.may_prolong(now) => granted.max(self.longest_by(shield, now, worker, slack)),
            _ => granted,
        };
        if self.selection.is_sparing() {
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
        let selector = self.selection.selector.as_mut()?;
        let mut view = BatchView::alike(now, size, waiting, slack);
        if !selector.classes().is_empty() {
            view.classes = selector.mix(self.pool.batch(worker));
        }
        let wish = selector.wish(&view);
        (wish > 0).then_some((wish, size, granted))
    }

    /// Takes the variant that is wished for, or the best below it that takes no longer than `longest`; with classes the one of
    /// these times that is worth most to the batch.
    fn take_variant(
        &mut self,
        now: Instant,
        worker: WorkerId,
        (wish, size, granted): (usize, usize, Span),
        longest: Span,
    ) {
        let Some(selector) = &self.selection.selector else { return };
        let chosen = match selector.classes().is_empty() {
            true => selector.fitting(wish, size, longest),
            false => selector.worthiest(now, wish, self.pool.batch(worker), longest),
        };
        if let Some((variant, time)) = chosen {
            self.pool.set_variant(worker, variant as u8);
            if time > granted {
                self.grant(now, worker, time);
            }
        }
    }
}
