//! Rivals with one queue for each stage: a free worker takes the first of its stage, up to its batch. Plans stay, or follow the demand.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rt_core::{Instant, Span, WorkerId};
use virtual_time::{Arriving, Child, PipelinePolicy, PipelineStep};

use super::cluster::{Cluster, Plan, Post};
use super::follow::Follow;

/// In which order requests of a stage wait, and what is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// As they come to the stage; nothing is given up.
    Fifo,
    /// By the deadlines of their sources; nothing is given up.
    Earliest,
    /// The same, but what cannot be in time any more is given up.
    InTime,
    /// By local deadlines, parts of the whole in proportion to batch times; what cannot keep its own is given up.
    Split,
    /// By local deadlines that are equal along a path; what cannot keep its own is given up.
    Tasks,
}

/// A plan, and a queue for each stage.
pub(super) struct Central<'a> {
    cluster: &'a Cluster,
    line: Line,
    posts: Vec<Option<Post>>,
    /// Who is asked first: the most accurate where a plan follows the demand.
    order: Vec<WorkerId>,
    follow: Option<Follow<'a>>,
    /// Why there was no plan, if so once.
    failed: Option<String>,
    /// Of each stage, how long a request may stay there under [`Line::Split`] and [`Line::Tasks`].
    budgets: Vec<Span>,
    /// Of each stage, by when it is due, and by token: as they came.
    waiting: Vec<BTreeSet<(Instant, u64)>>,
    running: Vec<Vec<u64>>,
    /// Of each request that waits or runs, when its source came.
    came: HashMap<u64, Instant>,
    given_up: VecDeque<u64>,
}

impl<'a> Central<'a> {
    /// Workers as `plan` has them.
    pub(super) fn new(cluster: &'a Cluster, plan: &Plan, line: Line) -> Self {
        let posts: Vec<Post> = plan.each().collect();
        let stages = cluster.tree.stages.len();
        let mut times = vec![Span::ZERO; stages];
        for &post in &posts {
            let time = &mut times[post.model.stage];
            *time = cluster.time(post).max(*time);
        }
        Self {
            budgets: if line == Line::Tasks { cluster.equal_parts() } else { budgets(cluster, &times) },
            order: (0..posts.len()).collect(),
            follow: None,
            failed: None,
            waiting: vec![BTreeSet::new(); stages],
            running: vec![Vec::new(); posts.len()],
            came: HashMap::new(),
            given_up: VecDeque::new(),
            cluster,
            line,
            posts: posts.into_iter().map(Some).collect(),
        }
    }

    /// Workers as `follow` has them from time to time.
    ///
    /// # Errors
    /// If it has no plan.
    pub(super) fn following(cluster: &'a Cluster, follow: Follow<'a>, line: Line) -> Result<Self, String> {
        let plan = follow.plan()?;
        let mut central = Self::new(cluster, &plan, line);
        central.posts.resize(cluster.workers, None);
        central.running.resize(cluster.workers, Vec::new());
        central.follow = Some(follow);
        central.sort();
        Ok(central)
    }

    /// Why there was no plan, if so once.
    pub(super) fn failed(self) -> Option<String> {
        self.failed
    }

    /// The most accurate are asked first.
    fn sort(&mut self) {
        let accuracy =
            |post: &Option<Post>| post.map_or(0.0, |post| self.cluster.tree.variant(post.model).accuracy);
        let mut order: Vec<WorkerId> = (0..self.posts.len()).collect();
        order.sort_by(|&a, &b| accuracy(&self.posts[b]).total_cmp(&accuracy(&self.posts[a])));
        self.order = order;
    }

    /// Gives workers the posts of the plan for what came, as many as may be those they have.
    fn look(&mut self, now: Instant) {
        let Some(follow) = &mut self.follow else { return };
        follow.look(now);
        match follow.plan() {
            Ok(plan) => {
                plan.given_to(&mut self.posts, |_, _| {});
                self.sort();
            }
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    /// A request comes to a stage.
    fn wait(&mut self, now: Instant, stage: usize, token: u64, came: Instant) {
        if let Some(follow) = &mut self.follow {
            follow.came(stage);
        }
        let due = match self.line {
            Line::Fifo => now,
            Line::Earliest | Line::InTime => came + self.cluster.tree.deadline,
            Line::Split | Line::Tasks => now + self.budgets[stage],
        };
        self.came.insert(token, came);
        self.waiting[stage].insert((due, token));
    }

    /// What the first of its stage are too late for, in the batch that would be formed: Nexus' early drop (Shen et al., SOSP
    /// 2019, section 6.3).
    fn give_up(&mut self, now: Instant, post: Post) {
        let waiting = &mut self.waiting[post.model.stage];
        while let Some(&(due, token)) = waiting.first() {
            let size = waiting.len().min(post.batch);
            if now + self.cluster.tree.bound(post.model, size) <= due {
                return;
            }
            waiting.pop_first();
            self.came.remove(&token);
            self.given_up.push_back(token);
        }
    }
}

/// Of each stage its part of the deadline on the path that takes longest through it, in proportion to `times`.
fn budgets(cluster: &Cluster, times: &[Span]) -> Vec<Span> {
    let tree = &cluster.tree;
    let nanos = |stage: usize| times[stage].as_nanos() as f64;
    let below = |stage: usize| {
        let mut longest = vec![0.0f64; times.len()];
        for at in (0..times.len()).rev() {
            longest[at] = nanos(at) + tree.children(at).map(|child| longest[child]).fold(0.0, f64::max);
        }
        longest[stage]
    };
    let budget = |stage: usize| {
        let above = std::iter::successors(tree.stages[stage].parent, |&at| tree.stages[at].parent);
        let whole = below(stage) + above.map(nanos).sum::<f64>();
        Span::from_nanos((tree.deadline.as_nanos() as f64 * nanos(stage) / whole.max(1.0)) as u64)
    };
    (0..times.len()).map(budget).collect()
}

impl PipelinePolicy for Central<'_> {
    fn workers(&self) -> usize {
        self.posts.len()
    }

    fn arrive(&mut self, now: Instant, arriving: Arriving) {
        self.wait(now, 0, arriving.token, now);
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, _: Span, children: &[Child]) {
        for child in children {
            let came = self.came[&child.parent];
            self.wait(now, child.stage, child.token, came);
        }
        for token in std::mem::take(&mut self.running[worker]) {
            self.came.remove(&token);
        }
    }

    fn poll(&mut self, now: Instant) -> PipelineStep {
        if let Some(token) = self.given_up.pop_front() {
            return PipelineStep::DropRequest(token);
        }
        if self.follow.as_ref().is_some_and(|follow| now >= follow.look) {
            self.look(now);
        }
        for i in 0..self.order.len() {
            let worker = self.order[i];
            let Some(post) = self.posts[worker] else { continue };
            if !self.running[worker].is_empty() || self.waiting[post.model.stage].is_empty() {
                continue;
            }
            if matches!(self.line, Line::InTime | Line::Split | Line::Tasks) {
                self.give_up(now, post);
            }
            if let Some(token) = self.given_up.pop_front() {
                return PipelineStep::DropRequest(token);
            }
            let waiting = &mut self.waiting[post.model.stage];
            let first = std::iter::from_fn(|| waiting.pop_first()).take(post.batch);
            self.running[worker].extend(first.map(|(_, token)| token));
            return PipelineStep::Start { worker, model: post.model };
        }
        PipelineStep::Wait { until: self.follow.as_ref().map(|follow| follow.look) }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.running[worker].iter().copied()
    }

    fn in_use(&self) -> usize {
        self.posts.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chain, plan, play};
    use super::*;

    fn run(line: Line, deadline: u64, arrivals: &[u64]) -> Vec<(u64, bool)> {
        let cluster = chain(deadline);
        play(&cluster, &mut Central::new(&cluster, &plan(&[(0, 1, 1), (1, 2, 1)]), line), arrivals)
    }

    /// The first stage takes 2 and yields two, of which the second does one in 2 and two in 3.
    #[test]
    fn all_run_what_waits_at_once_and_first_come_is_not_earliest_first_everywhere() {
        for line in [Line::Fifo, Line::Earliest] {
            // Ends at 5, 8 and 11, whatever the order here.
            assert_eq!(run(line, 8, &[0, 0, 0]), [(5, true), (8, true), (11, false)], "{line:?}");
        }
    }

    /// Of 10, the stages have 2/5 and 3/5: 4 and 6.
    #[test]
    fn a_request_that_cannot_keep_its_part_is_given_up() {
        let cluster = chain(10);
        assert_eq!(budgets(&cluster, &[2, 3].map(Span::from_nanos)), [4, 6].map(Span::from_nanos));
        // The third of three would end its first stage at 6, and has 4.
        assert_eq!(run(Line::Split, 10, &[0, 0, 0]), [(5, true), (8, true), (4, false)]);
        // Without deadlines of its own it is in time: 11 of 11.
        assert_eq!(run(Line::Fifo, 11, &[0, 0, 0])[2], (11, true));
    }
}
