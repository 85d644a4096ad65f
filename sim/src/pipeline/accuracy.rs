//! Accuracy scaling: the plan whose answers are worth most of all that carry a demand, as a mixed integer linear program.
//!
//! Loki's second step (sections 4.1 and 4.2). There each variant has one size of batch, here each worker has its own: what
//! was a product of variables becomes linear, every plan of the paper's is one of these, and none is worth less.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};
use rt_core::Span;
use virtual_time::Model;

use super::cluster::{Cluster, Plan, Post};

/// The most variables for parts of paths; beyond it a tree is too deep for its variants.
const MAX_PARTS: usize = 5_000;

/// A part of a path: from the first stage to some stage, each with a post.
struct Part {
    /// The part that it adds one stage to.
    before: Option<usize>,
    /// Which post of all.
    post: usize,
    /// Requests that one source becomes at its last stage.
    requests: f64,
    time: Span,
    accuracy: f64,
}

impl Cluster {
    /// The plan that is worth most for `demand` sources a second, where requests for further stages count `margin` times; `None`
    /// if none carries it.
    ///
    /// # Errors
    /// If there are more parts of paths than are looked at, or the solver gives up.
    pub(super) fn most_worth(&self, demand: f64, margin: f64) -> Result<Option<Plan>, String> {
        let posts = self.useful_posts();
        let parts = self.parts(&posts, margin)?;
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let most = i32::try_from(self.workers).map_err(|error| error.to_string())?;
        let counts: Vec<Variable> = posts.iter().map(|_| problem.add_integer_var(0.0, (0, most))).collect();
        let leaves = (0..self.tree.stages.len()).filter(|&stage| self.is_leaf(stage)).count() as f64;
        let worth = |part: &Part| {
            if self.is_leaf(posts[part.post].model.stage) { part.accuracy / leaves } else { 0.0 }
        };
        // What share of the sources goes through it.
        let shares: Vec<Variable> =
            parts.iter().map(|part| problem.add_var(worth(part), (0.0, 1.0))).collect();
        let mut work: Vec<LinearExpr> = posts.iter().map(|_| LinearExpr::empty()).collect();
        for (part, &share) in parts.iter().zip(&shares) {
            work[part.post].add(share, demand * part.requests / self.rate(posts[part.post]));
        }
        for (mut work, &count) in work.into_iter().zip(&counts) {
            work.add(count, -1.0);
            problem.add_constraint(work, ComparisonOp::Le, 0.0);
        }
        let mut all = LinearExpr::empty();
        counts.iter().for_each(|&count| all.add(count, 1.0));
        problem.add_constraint(all, ComparisonOp::Le, self.workers as f64);
        self.conserve(&mut problem, &posts, &parts, &shares);
        let solution = match problem.solve().map(microlp::SolveOutcome::into_solution) {
            Ok(Ok(solution)) => solution,
            Err(microlp::Error::Infeasible) => return Ok(None),
            Ok(Err(_)) => return Err("the solver stopped before it had a solution".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let count = |i: usize| solution.var_value(counts[i]).round() as usize;
        let mut posts: Vec<(Post, usize)> = (0..posts.len()).map(|i| (posts[i], count(i))).collect();
        posts.retain(|&(_, count)| count > 0);
        posts.sort_unstable();
        Ok(Some(Plan { posts, accuracy: solution.objective() }))
    }

    /// All sources enter, and what goes through a part goes on to every stage below.
    fn conserve(&self, problem: &mut Problem, posts: &[Post], parts: &[Part], shares: &[Variable]) {
        let mut first = LinearExpr::empty();
        for (part, &share) in parts.iter().zip(shares).filter(|(part, _)| part.before.is_none()) {
            debug_assert_eq!(posts[part.post].model.stage, 0);
            first.add(share, 1.0);
        }
        problem.add_constraint(first, ComparisonOp::Eq, 1.0);
        let mut on: BTreeMap<(usize, usize), LinearExpr> = BTreeMap::new();
        for (i, (part, &share)) in parts.iter().zip(shares).enumerate() {
            let stage = posts[part.post].model.stage;
            for child in self.tree.children(stage) {
                on.entry((i, child)).or_insert_with(LinearExpr::empty).add(share, -1.0);
            }
            if let Some(before) = part.before {
                on.entry((before, stage)).or_insert_with(LinearExpr::empty).add(share, 1.0);
            }
        }
        for (_, on) in on {
            problem.add_constraint(on, ComparisonOp::Eq, 0.0);
        }
    }

    /// Every part of a path that can be in time.
    fn parts(&self, posts: &[Post], margin: f64) -> Result<Vec<Part>, String> {
        let mut parts: Vec<Part> = Vec::new();
        for stage in 0..self.tree.stages.len() {
            let parent = self.tree.stages[stage].parent;
            let before: Vec<Option<usize>> = match parent {
                None => vec![None],
                Some(parent) => {
                    let of_parent = |&i: &usize| posts[parts[i].post].model.stage == parent;
                    (0..parts.len()).filter(of_parent).map(Some).collect()
                }
            };
            for before in before {
                for (post, of) in posts.iter().enumerate().filter(|(_, post)| post.model.stage == stage) {
                    let (requests, time, accuracy) = before.map_or((1.0, Span::ZERO, 1.0), |i| {
                        let part = &parts[i];
                        let mean = self.mean(stage, posts[part.post].model.variant) * margin;
                        (part.requests * mean, part.time, part.accuracy)
                    });
                    let (time, variant) = (time + self.time(*of), self.tree.variant(of.model));
                    if time + self.shortest_below(stage) <= self.half() {
                        let accuracy = accuracy * variant.accuracy;
                        parts.push(Part { before, post, requests, time, accuracy });
                    }
                }
                if parts.len() > MAX_PARTS {
                    return Err(format!("more than {MAX_PARTS} parts of paths"));
                }
            }
        }
        Ok(parts)
    }

    /// The posts that some plan may need. At the end of a path only those that serve most in the time that some part above
    /// leaves: another is no better than the one of the part that leaves least of those that use it.
    fn useful_posts(&self) -> Vec<Post> {
        let all = |stage: usize| {
            let variants = 0..self.tree.stages[stage].variants.len();
            variants.flat_map(move |variant| self.posts(Model { stage, variant })).collect::<Vec<_>>()
        };
        let mut kept = Vec::new();
        for stage in 0..self.tree.stages.len() {
            let posts = all(stage);
            if !self.is_leaf(stage) {
                kept.extend(posts);
                continue;
            }
            let mut lefts = vec![self.half()];
            let path =
                std::iter::successors(self.tree.stages[stage].parent, |&at| self.tree.stages[at].parent);
            for above in path {
                let times: Vec<Span> = all(above).into_iter().map(|post| self.time(post)).collect();
                let less = |left: &Span| {
                    let left = *left;
                    times
                        .iter()
                        .filter(move |&&time| time <= left)
                        .map(move |&time| left.saturating_sub(time))
                        .collect::<Vec<_>>()
                };
                lefts = lefts.iter().flat_map(less).collect();
                lefts.sort_unstable();
                lefts.dedup();
            }
            // Those of a model rise with its time.
            let last = |model: Model, left: Span| {
                posts.iter().rev().find(|post| post.model == model && self.time(**post) <= left).copied()
            };
            let models = (0..self.tree.stages[stage].variants.len()).map(|variant| Model { stage, variant });
            let mut of: Vec<Post> =
                models.flat_map(|model| lefts.iter().filter_map(move |&left| last(model, left))).collect();
            of.sort_unstable();
            of.dedup();
            kept.extend(of);
        }
        kept
    }

    /// The least time from the results of `stage` to the last answer.
    fn shortest_below(&self, stage: usize) -> Span {
        let shortest = |child: usize| {
            let variants = &self.tree.stages[child].variants;
            let least = variants.iter().map(|variant| variant.profile.bound(1)).min();
            least.unwrap_or(Span::ZERO) + self.shortest_below(child)
        };
        self.tree.children(stage).map(shortest).max().unwrap_or(Span::ZERO)
    }

    fn is_leaf(&self, stage: usize) -> bool {
        self.tree.children(stage).next().is_none()
    }
}
