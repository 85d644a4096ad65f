//! The stages of a pipeline: what each has of its own, and what follows from which comes after which.

use rt_core::pipeline::Parents;
use weir_engine::adapter::AdapterConfig;

use super::ServiceConfig;

/// A stage of a pipeline.
#[derive(Clone, Debug)]
pub struct StageConfig {
    /// Its name, and what runs its batches: engine, model, workers, batches and handover.
    pub runs: ServiceConfig,
    /// The stages whose results become its requests, or which it waits for if it is a join; none for the first.
    pub after: Parents,
    /// The most requests that a result of a parent becomes; 1 for the first and for a join, which makes one of a source.
    pub fan_out: u32,
    /// How many it becomes on average.
    pub mean: f64,
    /// How they are made.
    pub adapter: AdapterConfig,
    /// Whether its results are part of the answer.
    pub answers: bool,
    /// Whether the plan chooses how many workers it has, of as many as such stages have together until then.
    pub open: bool,
}

impl ServiceConfig {
    /// Of what there is for each variant of each stage of a pipeline, one after the other: what is for each stage.
    pub fn by_stage<'a, T>(&'a self, mut all: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        self.stages.iter().map(move |stage| {
            let (own, rest) = all.split_at(stage.runs.model.variants().min(all.len()));
            all = rest;
            own
        })
    }

    /// Of each stage of a pipeline what follows from what is known of its parents.
    pub fn stage_by_stage<T>(&self, of: impl Fn(usize, &StageConfig, &[T]) -> T) -> Vec<T> {
        let mut known = Vec::with_capacity(self.stages.len());
        for (i, stage) in self.stages.iter().enumerate() {
            known.push(of(i, stage, &known));
        }
        known
    }

    /// The most requests that one of the pipeline becomes at each stage.
    pub fn most(&self) -> Vec<usize> {
        self.stage_by_stage(|i, stage, most| match i == 0 || stage.after.is_join() {
            true => 1,
            false => stage.after.iter().map(|parent| most[parent]).sum::<usize>() * stage.fan_out as usize,
        })
    }

    /// How many requests one of the pipeline becomes at each stage on average.
    pub fn means(&self) -> Vec<f64> {
        self.means_of(&self.stages.iter().map(|stage| stage.mean).collect::<Vec<_>>())
    }

    /// The same where a result becomes so many at each stage.
    pub fn means_of(&self, each: &[f64]) -> Vec<f64> {
        self.stage_by_stage(|i, stage, means| match i == 0 || stage.after.is_join() {
            true => 1.0,
            false => stage.after.iter().map(|parent| means[parent]).sum::<f64>() * each[i],
        })
    }

    /// The accuracy of a pipeline whose stages have these: on the way to each stage that nothing comes after all must be right; the mean over
    /// these (Loki, section 4).
    pub fn accuracy_of(&self, stages: &[f64]) -> f64 {
        let ends: Vec<usize> =
            (0..stages.len()).filter(|&i| self.stages.iter().all(|stage| !stage.after.has(i))).collect();
        let right =
            |&end: &usize| self.above(end).into_iter().chain([end]).map(|i| stages[i]).product::<f64>();
        ends.iter().map(right).sum::<f64>() / ends.len() as f64
    }

    /// How many stages there are on the longest way to each, itself among them.
    pub fn depths(&self) -> Vec<usize> {
        self.stage_by_stage(|_, stage, depths| stage.after.most(depths) + 1)
    }

    /// The ways to each stage, up to its parents: from the first stage, or from the last join on the way. To a join there is one, and
    /// it is empty.
    pub fn ways(&self) -> Vec<Vec<Vec<usize>>> {
        self.stage_by_stage(|_, stage, ways: &[Vec<Vec<usize>>]| {
            if stage.after.is_join() {
                return vec![Vec::new()];
            }
            let through = |parent: usize| ways_through(&ways[parent], parent);
            stage.after.iter().flat_map(through).collect()
        })
    }

    /// The stages that must be done with a source before `stage` has all of it, in order.
    pub fn above(&self, stage: usize) -> Vec<usize> {
        let above = self.stage_by_stage(|_, stage, above: &[u32]| {
            stage.after.iter().fold(0, |all, parent| all | 1 << parent | above[parent])
        });
        (0..stage).filter(|&other| above[stage] >> other & 1 == 1).collect()
    }
}

/// Those that lead on through a stage which these lead to. One to a join, and that to the first stage, begins there.
fn ways_through(ways: &[Vec<usize>], stage: usize) -> Vec<Vec<usize>> {
    match ways {
        [] => vec![vec![stage]],
        ways => ways.iter().map(|way| [&**way, &[stage]].concat()).collect(),
    }
}
