//! Choosers with one queue for all workers: one model for all, and models by load.

use rt_core::{Span, Variant};

use super::{Choice, Chooser, View};

/// One model for every request: at once, as many as wait, up to the largest batch within some time.
#[derive(Clone, Debug)]
pub struct Static {
    model: usize,
    cap: usize,
}

impl Static {
    /// Of `models`; no batch takes longer than `longest`, but for one of one request.
    #[must_use]
    pub fn new(models: &[Variant], model: usize, longest: Span) -> Self {
        let profile = &models[model].profile;
        Self { model, cap: profile.largest_within(longest, profile.max_batch()).max(1) }
    }

    /// Requests a second that a worker serves in full batches.
    #[must_use]
    pub fn capacity(&self, models: &[Variant]) -> f64 {
        self.cap as f64 / models[self.model].profile.bound(self.cap).as_secs_f64()
    }
}

impl Chooser for Static {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::Start { model: self.model, batch: view.queue.len().min(self.cap), newest: false }
    }
}

/// Jellyfish+ (RAMSIS, section 7, after Jellyfish: Nigade et al., RTSS 2022): the most accurate model that has a
/// batch in half of the deadline with the throughput that the load asks of each worker.
///
/// As the authors' program has it: 5 % more than the load; the largest such batch is the cap; one queue. Open: what
/// is done when no model has the throughput. Here the one with the most is taken.
#[derive(Clone, Debug)]
pub struct Jellyfish {
    /// Of each model, requests a second of one worker at most, and the batch that gives them; by rising accuracy.
    models: Vec<(usize, f64, usize)>,
    workers: f64,
}

impl Jellyfish {
    /// Of `models` on `workers` workers that answer within `deadline`.
    #[must_use]
    pub fn new(models: &[Variant], workers: usize, deadline: Span) -> Self {
        let half = Span::from_nanos(deadline.as_nanos() / 2);
        let cap = |m: &usize| models[*m].profile.largest_within(half, models[*m].profile.max_batch());
        let mut list: Vec<_> = (0..models.len()).map(|m| (m, cap(&m))).filter(|&(_, cap)| cap > 0).collect();
        list.sort_by(|a, b| models[a.0].accuracy.total_cmp(&models[b.0].accuracy));
        let entry = |(model, cap): (usize, usize)| {
            let rate = |batch: usize| batch as f64 / models[model].profile.bound(batch).as_secs_f64();
            (model, (1..=cap).map(rate).fold(0.0, f64::max), cap)
        };
        Self { models: list.into_iter().map(entry).collect(), workers: workers as f64 }
    }
}

impl Chooser for Jellyfish {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let asked = 1.05 * view.load / self.workers;
        let able = self.models.iter().rev().find(|(_, rate, _)| *rate >= asked);
        let most = || self.models.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        match able.or_else(most) {
            Some(&(model, _, cap)) => {
                Choice::Start { model, batch: view.queue.len().min(cap), newest: false }
            }
            None => Choice::Start { model: 0, batch: 1, newest: false },
        }
    }
}

/// ModelSwitching (Zhang et al., HotCloud 2020, as RAMSIS, section 7, has it): the most accurate model that was found,
/// beforehand, to violate less than 1 % of the deadlines at the load.
///
/// Open: the largest batch. Here all of the deadline, two thirds or half of it, whatever goes with the largest load.
#[derive(Clone, Debug)]
pub struct Switching {
    /// By rising load: up to it, this model, with this cap.
    steps: Vec<(f64, Static)>,
}

impl Switching {
    /// Of `models` that answer within `deadline`: `largest` tells of a model up to which load it violates less than
    /// 1 %.
    pub fn new(models: &[Variant], deadline: Span, largest: impl Fn(&Static) -> f64) -> Self {
        let mut order: Vec<_> =
            (0..models.len()).filter(|&m| models[m].profile.bound(1) <= deadline).collect();
        order.sort_by(|&a, &b| models[b].accuracy.total_cmp(&models[a].accuracy));
        let mut steps: Vec<(f64, Static)> = Vec::new();
        for model in order {
            let part = |sixths: u64| Span::from_nanos(deadline.as_nanos() * sixths / 6);
            let caps = [6, 4, 3].map(|sixths| Static::new(models, model, part(sixths)));
            let best = caps.map(|one| (largest(&one), one)).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            steps.extend(best.filter(|(load, _)| steps.last().is_none_or(|(before, _)| load > before)));
        }
        Self { steps }
    }
}

impl Chooser for Switching {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let index = self.steps.iter().position(|(load, _)| view.load <= *load);
        let index = index.unwrap_or(self.steps.len().saturating_sub(1));
        match self.steps.get_mut(index) {
            Some((_, one)) => one.choose(view),
            None => Choice::Start { model: 0, batch: 1, newest: false },
        }
    }
}

/// The most accurate model that is in time for all that wait, at once; blind to what comes next.
#[derive(Clone, Debug)]
pub struct Greedy {
    /// By falling accuracy.
    order: Vec<usize>,
    models: Vec<Variant>,
}

impl Greedy {
    /// Of `models`.
    #[must_use]
    pub fn new(models: &[Variant]) -> Self {
        let mut order: Vec<_> = (0..models.len()).collect();
        order.sort_by(|&a, &b| models[b].accuracy.total_cmp(&models[a].accuracy));
        Self { order, models: models.to_vec() }
    }
}

impl Chooser for Greedy {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let left = view.queue[0].deadline.since(view.now);
        // A share of what waits for each free worker, so that no one takes all.
        let share = view.queue.len().div_ceil(view.free.max(1));
        let best = self.order.iter().find_map(|&model| {
            let profile = &self.models[model].profile;
            (share <= profile.max_batch() && profile.bound(share) <= left).then_some((model, share))
        });
        let most = || {
            let sizes = self.order.iter().map(|&m| (m, self.models[m].profile.largest_within(left, share)));
            sizes.max_by_key(|&(_, batch)| batch).filter(|&(_, batch)| batch > 0)
        };
        match best.or_else(most) {
            Some((model, batch)) => Choice::Start { model, batch, newest: false },
            None => Choice::Drop,
        }
    }
}
