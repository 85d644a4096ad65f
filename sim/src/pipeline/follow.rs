//! Plans that follow the demand seen, without what Loki adds: hardware scaling alone, and every task by itself as Proteus does.
//!
//! Loki's paper (section 6.1) compares with InferLine, which scales hardware and keeps its models, and with Proteus, set up so that it
//! "handles each task in the pipeline independently". It says neither how a task gets a part of the deadline nor how its demand
//! is seen: here each has an equal part along its longest path, and the requests that came to it are counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use placement::plan::Held;
use placement::problem::{Runs, Service, Variant};
use placement::{Outcome, Problem};
use rt_core::{Instant, Span};
use virtual_time::Model;

use super::Planned;
use super::cluster::{Cluster, Plan, Post};
use super::loki::{DECAY, LOOK};
use super::planner::MARGIN;

/// A plan is made for demands rounded up to powers of this.
const STEP: f64 = 1.02;

/// The least that is planned for, and the longest that a plan for one class of equal workers is looked for; none takes nearly as long.
const LEAST: f64 = 1.0;
const LIMIT: Duration = Duration::from_secs(10);

/// What is followed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// The fewest workers with the most accurate variants; all, if they do not suffice.
    Hardware,
    /// Each task is a service by itself, on all workers together.
    Tasks,
}

/// Plans for the demands of all stages, each worked out once.
#[derive(Debug, Default)]
pub(super) struct Followed(Mutex<HashMap<Key, Arc<Plan>>>);

/// By what, and for which powers of the step.
type Key = (Rule, Vec<i32>);

/// Looks at what came so often as Loki does.
pub(super) struct Follow<'a> {
    planned: &'a Planned,
    rule: Rule,
    /// When it is looked next.
    pub(super) look: Instant,
    /// What came to each stage since.
    came: Vec<u64>,
    /// Of each stage, weighted observations and their weight.
    demand: Vec<(f64, f64)>,
}

impl<'a> Follow<'a> {
    /// It begins with what the most accurate variants make of `demand` sources a second.
    pub(super) fn new(planned: &'a Planned, rule: Rule, demand: f64) -> Self {
        let cluster = &planned.cluster;
        let mut each = vec![(demand, 1.0)];
        for (stage, of) in cluster.tree.stages.iter().enumerate().skip(1) {
            let parent = of.parent.unwrap_or(0);
            each.push((each[parent].0 * cluster.mean(stage, cluster.most_accurate()[parent]), 1.0));
        }
        let came = vec![0; each.len()];
        Self { planned, rule, look: Instant::ZERO + LOOK, came, demand: each }
    }

    /// A request has come to a stage.
    pub(super) fn came(&mut self, stage: usize) {
        self.came[stage] += 1;
    }

    /// Weighs what came since the last look.
    pub(super) fn look(&mut self, now: Instant) {
        for (came, demand) in self.came.iter_mut().zip(&mut self.demand) {
            let seen = std::mem::take(came) as f64 / LOOK.as_secs_f64();
            *demand = (demand.0 * DECAY + seen, demand.1 * DECAY + 1.0);
        }
        self.look = now + LOOK;
    }

    /// The plan for what is expected.
    ///
    /// # Errors
    /// If no batches are fast enough.
    pub(super) fn plan(&self) -> Result<Arc<Plan>, String> {
        let step = |&(sum, weight): &(f64, f64)| {
            (libm::log((sum / weight).max(LEAST)) / libm::log(STEP)).ceil() as i32
        };
        let of = if self.rule == Rule::Hardware { &self.demand[..1] } else { &self.demand };
        let steps: Vec<i32> = of.iter().map(step).collect();
        let mut known = self.planned.followed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known.get(&(self.rule, steps.clone())) {
            return Ok(Arc::clone(plan));
        }
        let demand: Vec<f64> = steps.iter().map(|&step| libm::pow(STEP, f64::from(step))).collect();
        let cluster = &self.planned.cluster;
        let plan = match self.rule {
            Rule::Hardware => {
                let fewest = cluster.fewest(&cluster.most_accurate(), demand[0], MARGIN);
                match fewest.filter(|plan| plan.workers() <= cluster.workers) {
                    Some(plan) => Arc::new(plan),
                    None => self.planned.all_workers()?,
                }
            }
            Rule::Tasks => Arc::new(cluster.by_task(&demand)?),
        };
        known.insert((self.rule, steps), Arc::clone(&plan));
        Ok(plan)
    }
}

impl Cluster {
    /// Of each stage an equal part of the deadline along its longest path.
    pub(super) fn equal_parts(&self) -> Vec<Span> {
        let stages = self.tree.stages.len();
        let mut below = vec![1u64; stages];
        for stage in (0..stages).rev() {
            let longest = self.tree.children(stage).map(|child| below[child]).max();
            below[stage] = 1 + longest.unwrap_or(0);
        }
        let part = |stage: usize| {
            let above =
                std::iter::successors(self.tree.stages[stage].parent, |&at| self.tree.stages[at].parent);
            Span::from_nanos(self.tree.deadline.as_nanos() / (below[stage] + above.count() as u64))
        };
        (0..stages).map(part).collect()
    }

    /// The most accurate plan for the `demand` of each stage, as if it were a service by itself; what is left of the workers goes
    /// where least is.
    fn by_task(&self, demand: &[f64]) -> Result<Plan, String> {
        let service = |(stage, deadline): (usize, Span)| {
            let variant = |variant: usize| {
                let model = Model { stage, variant };
                let batches = self
                    .batches
                    .iter()
                    .filter(|&&batch| batch <= self.tree.variant(model).profile.max_batch());
                let times = batches.map(|&batch| (batch as u32, self.tree.bound(model, batch)));
                let accuracy = self.tree.variant(model).accuracy * 100.0;
                Variant { name: variant.to_string(), accuracy, runs: vec![Runs::Batches(times.collect())] }
            };
            Service {
                name: stage.to_string(),
                demand: demand[stage],
                deadline,
                weight: 1.0,
                variants: (0..self.tree.stages[stage].variants.len()).map(variant).collect(),
                promise: None,
            }
        };
        let problem = Problem {
            classes: vec![("server".to_owned(), self.workers as u32)],
            services: self.equal_parts().into_iter().enumerate().map(service).collect(),
            pipelines: Vec::new(),
            rounds: Vec::new(),
            switch: false,
        };
        let placed = placement::place(&problem, LIMIT).map_err(|error| error.to_string())?;
        let (Outcome::Fits { plan, .. } | Outcome::Demand { plan: Some((plan, _)), .. }) = placed.outcome
        else {
            return Err("no batches are fast enough for an equal part of the deadline".to_owned());
        };
        let mut posts: Vec<(Post, usize)> = Vec::new();
        for devices in &plan.devices {
            let Held::Alone(stage, configuration) = &devices.held else { continue };
            let base = configuration.base;
            let batch = base.batch.map_or(1, |batch| batch as usize);
            let model = Model { stage: *stage, variant: base.variant };
            posts.push((Post { model, batch }, devices.count as usize));
        }
        let room = |posts: &[(Post, usize)], stage: usize| {
            let of = posts.iter().filter(|(post, _)| post.model.stage == stage);
            of.map(|&(post, count)| count as f64 * self.rate(post)).sum::<f64>() / demand[stage]
        };
        while posts.iter().map(|&(_, count)| count).sum::<usize>() < self.workers {
            let stages = 0..demand.len();
            let least = stages.min_by(|&a, &b| room(&posts, a).total_cmp(&room(&posts, b))).unwrap_or(0);
            let accuracy = |post: &Post| self.tree.variant(post.model).accuracy;
            let of = posts.iter_mut().filter(|(post, _)| post.model.stage == least);
            match of.max_by(|(a, _), (b, _)| accuracy(a).total_cmp(&accuracy(b))) {
                Some((_, count)) => *count += 1,
                None => return Err(format!("no worker serves stage {least}")),
            }
        }
        posts.sort_unstable();
        Ok(Plan { posts, accuracy: plan.accuracy / 100.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{choice, post};
    use super::*;

    /// The first stage does 500 a second; the second 250 with 0.9 or 1000 with 0.5, two for each source.
    #[test]
    fn each_task_is_planned_for_what_came_to_it_and_no_worker_is_left() {
        let cluster = choice();
        assert_eq!(cluster.equal_parts(), [Span::from_millis(50); 2]);
        // One for the first; of 400 two accurate ones serve 500, which leave least room and get the fourth.
        let plan = cluster.by_task(&[200.0, 400.0]).expect("a plan");
        assert_eq!(plan.posts, [(post(0, 0, 1), 1), (post(1, 0, 1), 3)]);
        // Of what is too much the largest part.
        let plan = cluster.by_task(&[4000.0, 8000.0]).expect("a plan");
        assert_eq!(plan.workers(), 4);
    }

    #[test]
    fn hardware_scaling_keeps_its_models_and_never_has_more_than_all_workers() {
        let planned = Planned::new(choice());
        let workers = |demand| Follow::new(&planned, Rule::Hardware, demand).plan().expect("a plan");
        assert_eq!(workers(100.0).posts, [(post(0, 0, 1), 1), (post(1, 0, 1), 1)]);
        assert_eq!(workers(9000.0).workers(), 4);
        assert!(workers(9000.0).each().all(|post| post.model.variant == 0));
    }
}
