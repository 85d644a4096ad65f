//! Choosers with one queue for all workers: one model for all, and models by load.

use rt_core::Span;

use super::{Choice, Chooser, Model, View};

/// One model for every request: at once, as many as wait, up to a batch that takes half of the deadline.
///
/// Half, as Jellyfish has it: a request can wait for one batch and then needs its own.
#[derive(Clone, Debug)]
pub struct Static {
    model: usize,
    cap: usize,
}

impl Static {
    /// Of `models`, which answer within `deadline`.
    #[must_use]
    pub fn new(models: &[Model], model: usize, deadline: Span) -> Self {
        Self { model, cap: cap(&models[model], deadline).max(1) }
    }
}

impl Chooser for Static {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::Start { model: self.model, batch: view.queue.len().min(self.cap) }
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
    pub fn new(models: &[Model], workers: usize, deadline: Span) -> Self {
        let mut list: Vec<_> =
            (0..models.len()).filter_map(|m| Some((m, cap_of(&models[m], deadline)?))).collect();
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
            Some(&(model, _, cap)) => Choice::Start { model, batch: view.queue.len().min(cap) },
            None => Choice::Start { model: 0, batch: 1 },
        }
    }
}

/// ModelSwitching (Zhang et al., HotCloud 2020, as RAMSIS, section 7, has it): the most accurate model that was found,
/// beforehand, to violate less than 1 % of the deadlines at the load.
#[derive(Clone, Debug)]
pub struct Switching {
    /// By rising load: up to it, this model, with this cap.
    steps: Vec<(f64, Static)>,
}

impl Switching {
    /// Of `models` that answer within `deadline`: `largest` tells of a model up to which load it violates less than
    /// 1 %.
    pub fn new(models: &[Model], deadline: Span, mut largest: impl FnMut(Static) -> f64) -> Self {
        let mut order: Vec<_> = (0..models.len()).filter(|&m| cap(&models[m], deadline) > 0).collect();
        order.sort_by(|&a, &b| models[b].accuracy.total_cmp(&models[a].accuracy));
        let mut steps: Vec<(f64, Static)> = Vec::new();
        for model in order {
            let one = Static::new(models, model, deadline);
            let load = largest(one.clone());
            if steps.last().is_none_or(|(before, _)| load > *before) {
                steps.push((load, one));
            }
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
            None => Choice::Start { model: 0, batch: 1 },
        }
    }
}

/// The most accurate model that is in time for all that wait, at once; blind to what comes next.
#[derive(Clone, Debug)]
pub struct Greedy {
    /// By falling accuracy.
    order: Vec<usize>,
    models: Vec<Model>,
}

impl Greedy {
    /// Of `models`.
    #[must_use]
    pub fn new(models: &[Model]) -> Self {
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
            Some((model, batch)) => Choice::Start { model, batch },
            None => Choice::Drop,
        }
    }
}

/// The largest batch that takes at most half of `deadline`, 0 if there is none.
fn cap(model: &Model, deadline: Span) -> usize {
    let half = Span::from_nanos(deadline.as_nanos() / 2);
    model.profile.largest_within(half, model.profile.max_batch())
}

fn cap_of(model: &Model, deadline: Span) -> Option<usize> {
    Some(cap(model, deadline)).filter(|&cap| cap > 0)
}
