//! Hardware scaling: the fewest workers that carry a demand with one variant of each stage, and the most that all carry.
//!
//! Loki's first step (section 4.1), without a solver: with the variants given, stages share nothing but the time along a
//! path, so the best batches of what is below a stage depend on the time that is left for it alone.

use rt_core::Span;
use virtual_time::Model;

use super::cluster::{Cluster, Plan, Post};

/// Demands are told apart to one in so many.
const DIGITS: f64 = 1e12;

impl Cluster {
    /// The fewest workers for `demand` sources a second with these `variants`, one of each stage; `None` if no batches are
    /// fast enough. Requests for further stages count `margin` times.
    pub(super) fn fewest(&self, variants: &[usize], demand: f64, margin: f64) -> Option<Plan> {
        let mut posts = self.below(0, variants, demand, margin, self.half())?;
        posts.sort_unstable();
        let leaves: Vec<usize> =
            (0..self.tree.stages.len()).filter(|&stage| self.tree.children(stage).next().is_none()).collect();
        let of = |leaf: usize| {
            let mut path = std::iter::successors(Some(leaf), |&stage| self.tree.stages[stage].parent);
            path.try_fold(1.0, |product, stage| {
                Some(product * self.tree.variant(Model { stage, variant: variants[stage] }).accuracy)
            })
        };
        let accuracy = leaves.iter().filter_map(|&leaf| of(leaf)).sum::<f64>() / leaves.len() as f64;
        Some(Plan { posts, accuracy })
    }

    /// The posts of `stage` and what is below it, with `demand` requests a second, in the time that is `left`.
    fn below(
        &self,
        stage: usize,
        variants: &[usize],
        demand: f64,
        margin: f64,
        left: Span,
    ) -> Option<Vec<(Post, usize)>> {
        let model = Model { stage, variant: variants[stage] };
        let mut best: Option<Vec<(Post, usize)>> = None;
        for post in self.posts(model) {
            let time = self.time(post);
            if time > left {
                continue;
            }
            // A hair less, so that what just fills a worker does not ask for another.
            let count = ((demand / self.rate(post)) * (1.0 - 1.0 / DIGITS)).ceil().max(1.0) as usize;
            let mut all = vec![(post, count)];
            let fits = self.tree.children(stage).all(|child| {
                let demand = demand * self.mean(child, variants[stage]) * margin;
                let found = self.below(child, variants, demand, margin, left.saturating_sub(time));
                found.map(|posts| all.extend(posts)).is_some()
            });
            let workers = |posts: &[(Post, usize)]| posts.iter().map(|&(_, count)| count).sum::<usize>();
            if fits && best.as_ref().is_none_or(|best| workers(&all) < workers(best)) {
                best = Some(all);
            }
        }
        best
    }

    /// The most sources a second that all workers carry with these variants, and how; `None` if no batches are fast enough.
    pub(super) fn most(&self, variants: &[usize], margin: f64) -> Option<(f64, Plan)> {
        let fits =
            |demand: f64| self.fewest(variants, demand, margin).filter(|plan| plan.workers() <= self.workers);
        let (mut yes, mut plan) = (0.0, fits(0.0)?);
        let mut no = 1.0;
        while let Some(found) = fits(no) {
            (yes, plan, no) = (no, found, no * 2.0);
        }
        while (no - yes) * DIGITS > no {
            let middle = yes + (no - yes) / 2.0;
            if middle <= yes || middle >= no {
                break;
            }
            match fits(middle) {
                Some(found) => (yes, plan) = (middle, found),
                None => no = middle,
            }
        }
        Some((yes, plan))
    }
}
