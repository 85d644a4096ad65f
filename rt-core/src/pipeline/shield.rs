//! The shield of a pipeline: how long a batch of a stage may take beyond a full one without putting any promise at risk.
//!
//! By Theorem P1 stage `i` has all that a mandatory source became answered by `R_i` after its parent had. If these add up to less
//! than the deadline on every path, what is left is shared out: let `θ_i ≥ θ_p + R_i` for each stage and its parent `p`, and
//! `θ ≤ D` at the leaves, less what stalls may take. Then each stage is a service by itself, whose mandatory requests must be
//! answered by `θ_i` after their *source* came, and as long as each keeps that the others find what Theorem P1 counts on. So the shield of a service
//! (see [`crate::Shield`]) is asked, with these differences. As waiting counts all that sources which have come may still
//! become at the stage; as to come, `M_i` requests for each source. And where a stage has several workers a start `s` that
//! leaves nothing waiting behind a long batch is counted from by its own rule: the sources of what comes from `s` on came at
//! `s - θ_p` or later, so if at most one batch is long, and takes up to `ℓ`,
//!
//! ```text
//! g + S_⌈M_i·α_m(δ + 1 ns)/B⌉ + P  ≤  δ + θ_i - θ_p    for every offset δ ≥ 0,
//! ```
//!
//! `S_j` being the `j`-th smallest of all `ℓ + k·P` for one worker and `P + k·P` for the others. With one worker `s` comes when
//! the long batch is over. (The slack that a stage leaves is inherited: `θ` counts from the source. Theorem P3 of the
//! literature beside this project tests whole paths instead, which allows more and costs more.)

use alloc::vec::Vec;

use super::Pipeline;
use crate::counted::Counted;
use crate::shield::Shield;
use crate::stream::StreamSpec;
use crate::time::Span;
use crate::workers::Workers;

/// The most requests that a stage's shield counts one by one.
const MAX_COPIES: u64 = 1 << 12;

/// See the module.
#[derive(Clone, Debug)]
pub struct PipelineShield {
    pub(super) stages: Vec<StageShield>,
    pub(super) counted: Counted,
}

/// Of one stage.
#[derive(Clone, Debug)]
pub(super) struct StageShield {
    /// `None` if it never allows anything.
    pub(super) shield: Option<Shield>,
    /// `θ`: within what time of the arrival of its source what is mandatory is answered here.
    pub(super) theta: Span,
    /// The longest batch beside others of up to `P`, where there are several workers.
    pub(super) beside: Span,
}

impl Pipeline {
    /// The shield under which the promises of `streams` are kept while batches take longer than a full one. `workers` are those of
    /// the stages, with profiles. `None` where nothing is left of the deadline, the load is not admitted, or a stage takes the results of
    /// several or a source once: for these nothing is proved. Allocates.
    #[must_use]
    pub fn shield<'a>(
        &self,
        workers: &[Workers],
        streams: impl IntoIterator<Item = &'a StreamSpec> + Clone,
    ) -> Option<PipelineShield> {
        if !self.is_tree() {
            return None;
        }
        let admission = self.admit(streams.clone()).ok()?;
        let descendants = self.descendants().ok()?;
        let load: Vec<_> = streams.into_iter().filter_map(StreamSpec::demand).collect();
        let thetas = self.thetas(&admission.responses)?;
        let before = |i: usize| self.stages[i].parents.most(&thetas);
        let stage = |(i, &theta): (usize, &Span)| {
            let few = descendants[i].saturating_mul(load.len() as u64) <= MAX_COPIES;
            let shield = |within: Span| {
                let all = load.iter().flat_map(|&one| core::iter::repeat_n(one, descendants[i] as usize));
                let latency = within.saturating_sub(self.guard);
                if few { Shield::new(&workers[i], latency, all).ok() } else { None }
            };
            // What a shield says of a start behind which nothing waits is the rule for several workers, with that latency.
            let beside = match self.stages[i].workers {
                1 => theta,
                _ => shield(theta.saturating_sub(before(i))).map_or(Span::ZERO, |own| own.longest_alone()),
            };
            StageShield { shield: shield(theta), theta, beside }
        };
        let stages = thetas.iter().enumerate().map(stage).collect();
        Some(PipelineShield { stages, counted: Counted::new(&load) })
    }

    /// `θ` of each stage; `None` if the responses of some path add up to more than the deadline. What is left of it goes to the first
    /// stage, where all stages have it, and in equal parts to those that need it for themselves: with several workers.
    fn thetas(&self, responses: &[Span]) -> Option<Vec<Span>> {
        let mut below = alloc::vec![(Span::ZERO, 0_u64); self.stages.len()];
        for i in (1..self.stages.len()).rev() {
            let (time, several) = below[i];
            let own = (time + responses[i], several + u64::from(self.stages[i].workers > 1));
            for parent in self.stages[i].parents.iter() {
                below[parent] = (below[parent].0.max(own.0), below[parent].1.max(own.1));
            }
        }
        let mut thetas: Vec<Span> = Vec::with_capacity(self.stages.len());
        for (i, stage) in self.stages.iter().enumerate() {
            let least = stage.parents.most(&thetas) + responses[i];
            let left = self.latency().as_nanos().checked_sub((least + below[i].0).as_nanos())?;
            let needs = i == 0 || stage.workers > 1 || below[i].1 == 0;
            thetas.push(least + Span::from_nanos(if needs { left / (below[i].1 + 1) } else { 0 }));
        }
        Some(thetas)
    }
}
