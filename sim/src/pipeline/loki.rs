//! Loki: plans for the demand that it sees, tables that route at random, queues at workers, and what is given up.

use std::collections::VecDeque;
use std::sync::Arc;

use rt_core::{Instant, Span, WorkerId};
use virtual_time::{Arriving, Child, PipelinePolicy, PipelineStep};

use super::cluster::{Cluster, Plan, Post};
use super::planner::Planner;
use super::routes::{Fill, Routes, Shares};
use crate::dice::Dice;

/// Demand is looked at, and plans and tables made anew, so often: `solve_interval` of the released program.
pub(super) const LOOK: Span = Span::from_millis(1000);

/// What is left of the weight of an observation after each further one: `ewma_decay` of 1.6, a centre of mass.
pub(super) const DECAY: f64 = 1.6 / 2.6;

/// How sources find a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// At random, by a table as all others (Algorithm 1).
    Table,
    /// To the most accurate that keeps up with what comes to it, as the released program does.
    KeepsUp,
}

/// What kind of Loki it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) front: Front,
    pub(super) fill: Fill,
    pub(super) early: Early,
}

/// Which requests are given up early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// None.
    Never,
    /// Those that cannot be in time any more, at the last stage of their path.
    LastTask,
    /// Those that cannot be in time any more, and what became of those that took longer than the budget of their stage.
    PerTask,
    /// As before, but what can be made up for below is sent there: opportunistic rerouting.
    Reroute,
    /// Those that would take longer than the budget of their stage, before they run: the released program, in which
    /// rerouting asks that a late request be in time and so saves none.
    BeforeRun,
}

/// A request at a worker.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: u64,
    /// When its source came, and when itself did.
    source: Instant,
    came: Instant,
    /// Until when it should have left the stage.
    due: Instant,
}

/// The policy.
pub(super) struct Loki<'a> {
    cluster: &'a Cluster,
    planner: &'a Planner,
    style: Style,
    plan: Arc<Plan>,
    posts: Vec<Option<Post>>,
    routes: Routes,
    dice: Dice,
    /// Of each worker, by when they are due.
    waiting: Vec<VecDeque<Waiting>>,
    running: Vec<Vec<Waiting>>,
    given_up: VecDeque<u64>,
    /// When demand is looked at next, and what came since.
    look: Instant,
    came: u64,
    /// Weighted observations of demand, and their weight.
    demand: (f64, f64),
    /// Why there was no plan, if so once.
    failed: Option<String>,
}

impl<'a> Loki<'a> {
    /// It begins with the plan for `demand` sources a second.
    ///
    /// # Errors
    /// If there is no plan.
    pub(super) fn new(
        (cluster, planner): (&'a Cluster, &'a Planner),
        style: Style,
        demand: f64,
        dice: Dice,
    ) -> Result<Self, String> {
        let plan = planner.plan(cluster, demand)?;
        let mut posts: Vec<Option<Post>> = plan.each().map(Some).collect();
        posts.resize(cluster.workers, None);
        Ok(Self {
            routes: Routes::new(cluster, &posts, demand, style.fill),
            waiting: vec![VecDeque::new(); posts.len()],
            running: vec![Vec::new(); posts.len()],
            given_up: VecDeque::new(),
            look: Instant::ZERO + LOOK,
            came: 0,
            demand: (demand, 1.0),
            failed: None,
            cluster,
            planner,
            style,
            plan,
            posts,
            dice,
        })
    }

    /// Why there was no plan, if so once.
    pub(super) fn failed(self) -> Option<String> {
        self.failed
    }

    /// Makes plan and tables for the demand seen.
    fn look(&mut self, now: Instant) {
        let seen = self.came as f64 / LOOK.as_secs_f64();
        self.demand = (self.demand.0 * DECAY + seen, self.demand.1 * DECAY + 1.0);
        (self.came, self.look) = (0, now + LOOK);
        let demand = self.demand.0 / self.demand.1;
        match self.planner.plan(self.cluster, demand) {
            Ok(plan) if plan != self.plan => self.change(plan),
            Ok(_) => {}
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
        self.routes = Routes::new(self.cluster, &self.posts, demand, self.style.fill);
    }

    /// Gives workers the posts of another plan, as many as may be those they have; what waits at others moves.
    fn change(&mut self, plan: Arc<Plan>) {
        let mut moving = Vec::new();
        plan.given_to(&mut self.posts, |worker, post| {
            moving.extend(self.waiting[worker].drain(..).map(|one| (post.model.stage, one)));
        });
        self.plan = plan;
        for (stage, one) in moving {
            // Where least waits for what can be done.
            let of = |worker: &WorkerId| self.posts[*worker].filter(|post| post.model.stage == stage);
            let load = |worker: WorkerId| {
                let rate = of(&worker).map_or(1.0, |post| self.cluster.rate(post));
                (self.waiting[worker].len() + 1) as f64 / rate
            };
            let workers = (0..self.posts.len()).filter(|worker| of(worker).is_some());
            match workers.min_by(|&a, &b| load(a).total_cmp(&load(b))) {
                Some(worker) => self.queue(worker, one),
                None => self.given_up.push_back(one.token),
            }
        }
    }

    fn queue(&mut self, worker: WorkerId, one: Waiting) {
        let at = self.waiting[worker].partition_point(|other| other.due <= one.due);
        self.waiting[worker].insert(at, one);
    }

    /// A request comes to a worker, or nobody takes it.
    fn send(&mut self, now: Instant, worker: Option<WorkerId>, token: u64, source: Instant) {
        match worker.and_then(|worker| Some((worker, self.posts[worker]?))) {
            Some((worker, post)) => {
                let due = now + twice(self.cluster.time(post));
                self.queue(worker, Waiting { token, source, came: now, due });
            }
            None => self.given_up.push_back(token),
        }
    }

    /// A worker that makes up for `late` behind the one that is meant: the most accurate of those with room, any of several.
    fn instead(&mut self, meant: Option<WorkerId>, stage: usize, late: Span) -> Option<WorkerId> {
        let time = |worker: WorkerId| self.posts[worker].map(|post| self.cluster.time(post));
        let within = time(meant?)?.as_nanos().checked_sub(late.as_nanos())?;
        let fast = |&worker: &WorkerId| {
            let here = self.posts[worker].is_some_and(|post| post.model.stage == stage);
            here && self.routes.spare[worker] > 0.0
                && time(worker).is_some_and(|time| time.as_nanos() <= within)
        };
        let accuracy = |worker: WorkerId| {
            self.posts[worker].map_or(0.0, |post| self.cluster.tree.variant(post.model).accuracy)
        };
        let all: Vec<WorkerId> = (0..self.posts.len()).filter(fast).collect();
        let best = all.iter().map(|&worker| accuracy(worker)).fold(0.0, f64::max);
        let best: Vec<WorkerId> = all.into_iter().filter(|&worker| accuracy(worker) == best).collect();
        let worker = (!best.is_empty()).then(|| self.dice.pick(&best))?;
        self.routes.spare[worker] -= 1.0;
        Some(worker)
    }

    /// Gives up the first of a queue, as long as they are too late for the batch that would be formed.
    fn give_up(&mut self, now: Instant, worker: WorkerId, post: Post) {
        let is_last = self.cluster.tree.children(post.model.stage).next().is_none();
        let tree = &self.cluster.tree;
        while let Some(first) = self.waiting[worker].front() {
            let end = now + tree.bound(post.model, self.waiting[worker].len().min(post.batch));
            let hopeless = end > first.source + tree.deadline;
            let is_late = match self.style.early {
                Early::Never => false,
                Early::LastTask => is_last && hopeless,
                Early::PerTask | Early::Reroute => hopeless,
                Early::BeforeRun => end > first.due,
            };
            if !is_late {
                return;
            }
            self.given_up.extend(self.waiting[worker].pop_front().map(|first| first.token));
        }
    }
}

impl PipelinePolicy for Loki<'_> {
    fn workers(&self) -> usize {
        self.posts.len()
    }

    fn arrive(&mut self, now: Instant, arriving: Arriving) {
        self.came += 1;
        let worker = match self.style.front {
            Front::KeepsUp => self.front(now),
            Front::Table => draw(&self.routes.first, &mut self.dice),
        };
        self.send(now, worker, arriving.token, now);
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, _: Span, children: &[Child]) {
        let ran = std::mem::take(&mut self.running[worker]);
        for child in children {
            let Some(parent) = ran.iter().find(|one| one.token == child.parent) else { continue };
            let shares = self.routes.next.get(&(worker, child.stage));
            let meant = shares.and_then(|shares| draw(shares, &mut self.dice));
            // Tables are of those who are there now; a worker that has another post since has none for this stage.
            let meant = meant.or_else(|| self.anyone(child.stage));
            let late = now.as_nanos().saturating_sub(parent.due.as_nanos());
            let to = match self.style.early {
                Early::PerTask if late > 0 => None,
                Early::Reroute if late > 0 => self.instead(meant, child.stage, Span::from_nanos(late)),
                _ => meant,
            };
            self.send(now, to, child.token, parent.source);
        }
    }

    fn poll(&mut self, now: Instant) -> PipelineStep {
        if now >= self.look {
            self.look(now);
        }
        for worker in 0..self.posts.len() {
            if let Some(token) = self.given_up.pop_front() {
                return PipelineStep::DropRequest(token);
            }
            let Some(post) = self.posts[worker].filter(|_| self.running[worker].is_empty()) else { continue };
            self.give_up(now, worker, post);
            if let Some(token) = self.given_up.pop_front() {
                return PipelineStep::DropRequest(token);
            }
            let size = self.waiting[worker].len().min(post.batch);
            if size > 0 {
                self.running[worker].extend(self.waiting[worker].drain(..size));
                return PipelineStep::Start { worker, model: post.model };
            }
        }
        PipelineStep::Wait { until: Some(self.look) }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.running[worker].iter().map(|one| one.token)
    }

    fn in_use(&self) -> usize {
        self.posts.iter().flatten().count()
    }
}

impl Loki<'_> {
    /// Whom the released program sends a source to: the most accurate to whom less comes than it serves, by how many wait
    /// since when; else the one who is least above that.
    fn front(&self, now: Instant) -> Option<WorkerId> {
        let here = |&worker: &WorkerId| self.posts[worker].is_some_and(|post| post.model.stage == 0);
        let post = |worker: WorkerId| self.posts[worker].map(|post| (self.cluster.rate(post), post.model));
        let accuracy =
            |worker| post(worker).map_or(0.0, |(_, model)| self.cluster.tree.variant(model).accuracy);
        let load = |&worker: &WorkerId| {
            let waiting = &self.waiting[worker];
            let seconds = waiting.front().map_or(0.0, |first| now.since(first.came).as_secs_f64());
            let rate = post(worker).map_or(f64::INFINITY, |(rate, _)| rate);
            if seconds > 0.0 { waiting.len() as f64 / seconds / rate } else { 0.0 }
        };
        let mut workers: Vec<WorkerId> = (0..self.posts.len()).filter(here).collect();
        workers.sort_by(|&a, &b| accuracy(b).total_cmp(&accuracy(a)));
        let free = workers.iter().find(|&worker| load(worker) <= 1.0);
        free.or_else(|| workers.iter().min_by(|a, b| load(a).total_cmp(&load(b)))).copied()
    }

    /// The worker of a stage with most room.
    fn anyone(&self, stage: usize) -> Option<WorkerId> {
        let here = |&worker: &WorkerId| self.posts[worker].is_some_and(|post| post.model.stage == stage);
        let spare = &self.routes.spare;
        (0..self.posts.len()).filter(here).max_by(|&a, &b| spare[a].total_cmp(&spare[b]))
    }
}

fn twice(span: Span) -> Span {
    span + span
}

/// One of those with shares, at random; `None` if there are none.
fn draw(shares: &Shares, dice: &mut Dice) -> Option<WorkerId> {
    let mut left = dice.within(0, (1 << 53) - 1) as f64 / (1u64 << 53) as f64;
    for &(worker, share) in shares {
        left -= share;
        if left < 0.0 {
            return Some(worker);
        }
    }
    shares.last().map(|&(worker, _)| worker)
}

#[cfg(test)]
mod tests;
