//! Which load to plan a table for next, when loads come that those at hand are too far apart for.

use super::{Inputs, Planned};

/// How much the expected accuracies of neighbours may differ (RAMSIS, section 6).
pub const APART: f64 = 0.01;
/// Loads are not told apart below such a part of what the base can carry.
const STEPS: usize = 64;
/// The most tables that [`Inputs::missing`] asks for in all.
pub const MAX_PLANNED: usize = STEPS - 1;

impl Inputs {
    /// The load to plan a table for while `load` requests a second come, if one is missing beside those `planned`,
    /// by rising rate: halfway between the neighbours of `load` where their expected accuracies are more than
    /// [`APART`]. Below all stands the most accurate variant that has time for a request, at no load at all, and above
    /// all the base, at what it can carry. None if nothing comes, or more than that.
    ///
    /// Asked again with each table that it asked for, it ends after six at the most, and asks for [`MAX_PLANNED`] at the
    /// most however loads change.
    #[must_use]
    pub fn missing(&self, planned: &[Planned], load: f64) -> Option<f64> {
        let capacity = self.capacity_per_s(0);
        if !(load > 0.0 && load < capacity) {
            return None;
        }
        let at = planned.partition_point(|one| one.rate_per_s < load);
        let of = |one: &Planned| (one.rate_per_s, one.expected.right());
        let (below, best) = at.checked_sub(1).map_or_else(|| (0.0, self.best()), |i| of(&planned[i]));
        let (above, worst) = planned.get(at).map_or_else(|| (capacity, self.worth(0)), of);
        let near = (best - worst).abs() <= APART;
        let narrow = above - below < 1.5 * capacity / STEPS as f64;
        (!near && !narrow).then(|| below.midpoint(above))
    }

    /// The accuracy of the best variant that has time for one request.
    fn best(&self) -> f64 {
        let most = self.longest();
        let able = (0..self.variants.len()).filter(|&v| self.variants[v].profile.bound(1) <= most);
        able.map(|v| self.worth(v)).fold(self.worth(0), f64::max)
    }
}
