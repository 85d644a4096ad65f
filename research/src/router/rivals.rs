//! Routers that nothing is worked out for: one model for all, and the best that still fits.

use super::{Router, View};

/// One model for every request.
#[derive(Clone, Copy, Debug)]
pub struct Static(pub usize);

impl Router for Static {
    fn route(&mut self, _: &View<'_>) -> usize {
        self.0
    }
}

/// The most accurate model for the class with which it, and all that are on its worker, would be in time if nothing else came;
/// the last of the equally accurate. If none is, the one with which a round takes the least time.
#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Router for Greedy {
    fn route(&mut self, view: &View<'_>) -> usize {
        let setting = view.fleet.setting;
        let accuracy = &setting.classes[view.class].accuracy;
        let round = |model| view.fleet.round_with(model);
        let models = || 0..setting.models.len();
        let fits = models().filter(|&model| view.fleet.all_in_time(view.class, model));
        let best = fits.max_by(|&a, &b| accuracy[a].total_cmp(&accuracy[b]));
        best.or_else(|| models().min_by(|&a, &b| round(a).total_cmp(&round(b)))).unwrap_or(0)
    }
}
