//! What all rivals share: one queue in order of arrival, free workers, and a rule that decides.

use std::collections::VecDeque;
use std::mem;

use planner::Problem;
use rt_core::{BatchTime, Instant, LatencyProfile, MissReason, Outcome, Span, WorkerId, Workers};

use super::{End, Policy, Step};

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its name.
    pub(super) token: u64,
    /// Its stream: an index into the problem's, or beyond them for one of no promise.
    pub(super) stream: usize,
    /// When it came.
    pub(super) arrival: Instant,
    /// When its answer must be out: the last instant that is in time.
    pub(super) deadline: Instant,
    /// Whether the rule must not lose it.
    pub(super) mandatory: bool,
}

/// A free worker and what waits for it, for a rule to decide.
pub(super) struct Floor<'a> {
    /// The present instant.
    pub(super) now: Instant,
    /// The number of the worker.
    pub(super) id: WorkerId,
    /// The worker.
    pub(super) worker: &'a Workers,
    /// What waits, in order of arrival, which is that of deadlines.
    pub(super) queue: &'a mut VecDeque<Waiting>,
    /// How many requests all free workers that are as quick as this one can take now.
    pub(super) places: usize,
    /// When a full batch that starts later than those can end, at the earliest, as far as is known now.
    pub(super) later: Instant,
    /// What it is to run.
    batch: &'a mut Vec<Waiting>,
    ended: &'a mut VecDeque<(Waiting, Outcome)>,
}

/// A batch that has ended.
pub(super) struct Finish<'a> {
    /// The present instant.
    pub(super) now: Instant,
    /// The number of its worker.
    pub(super) id: WorkerId,
    /// Its worker.
    pub(super) worker: &'a Workers,
    /// How many requests wait.
    pub(super) waiting: usize,
    /// Whether one of its answers came after its deadline.
    pub(super) late: bool,
}

/// Decides for a free worker.
///
/// It may be asked again at any time, so what it answers depends on what waits and not on how often it was asked.
pub(super) trait Rule {
    /// What it counts on.
    fn reckoning(&self) -> Reckoning {
        Reckoning::Likely
    }

    /// A request comes, while `waiting` wait and `busy` says that no worker is free; false refuses it as
    /// [`MissReason::QueueFull`].
    fn arrive(&mut self, request: &mut Waiting, waiting: usize, busy: bool) -> bool {
        let _ = (request, waiting, busy);
        true
    }

    /// A request was answered in time, or missed. Told before the next decision.
    fn hear(&mut self, request: &Waiting, hit: bool) {
        let _ = (request, hit);
    }

    /// A batch has ended.
    fn finish(&mut self, batch: &Finish<'_>) {
        let _ = batch;
    }

    /// Takes what the worker is to run now, or nothing; and drops what it gives up. Returns the instant after
    /// `now` at which to ask again if nothing was taken and nothing happens before. A rule that drops and takes
    /// nothing is asked again at once.
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant>;
}

impl<'a> Floor<'a> {
    /// One worker by itself, without others that are free, for the requests of one service among several.
    pub(super) fn of_one(
        (now, id): (Instant, WorkerId),
        worker: &'a Workers,
        queue: &'a mut VecDeque<Waiting>,
        (places, later): (usize, Instant),
        batch: &'a mut Vec<Waiting>,
        ended: &'a mut VecDeque<(Waiting, Outcome)>,
    ) -> Self {
        Self { now, id, worker, queue, places, later, batch, ended }
    }
}

impl Floor<'_> {
    /// What a batch of `size` takes, as the rule reckons.
    pub(super) fn time(&self, size: usize) -> Span {
        self.worker.profile.bound(size)
    }

    /// The largest batch of what waits.
    pub(super) fn window(&self) -> usize {
        self.queue.len().min(self.worker.batch)
    }

    /// The largest batch of what waits in which the oldest request is still in time; 0 if there is none.
    pub(super) fn window_in_time(&self) -> usize {
        let budget = self.queue.front().map_or(Span::ZERO, |first| first.deadline.since(self.now));
        self.worker.profile.largest_within(budget, self.window())
    }

    /// Which request has the least `key`, the oldest of equals, of those with which the batch would be in time as a
    /// whole if they joined it.
    pub(super) fn least<K: Ord>(&self, mut key: impl FnMut(&Waiting) -> K) -> Option<usize> {
        let size = self.batch.len() + 1;
        let finish = self.now + self.time(size);
        if size > self.worker.batch || self.batch.iter().any(|request| request.deadline < finish) {
            return None;
        }
        let fits = self.queue.iter().enumerate().filter(|(_, request)| request.deadline >= finish);
        fits.min_by_key(|(_, request)| key(request)).map(|(index, _)| index)
    }

    /// Whether an answer of the batch will come after its deadline.
    pub(super) fn is_late(&self) -> bool {
        let finish = self.now + self.time(self.batch.len());
        self.batch.iter().any(|request| request.deadline < finish)
    }

    /// Puts the first `count` that wait into the batch, or all if there are fewer. Whether there was any.
    pub(super) fn take_first(&mut self, count: usize) -> bool {
        let count = count.min(self.queue.len());
        self.batch.extend(self.queue.drain(..count));
        count > 0
    }

    /// Puts the request at `index` of the queue into the batch, and returns it.
    pub(super) fn take(&mut self, index: usize) -> Option<Waiting> {
        let request = self.queue.remove(index);
        self.batch.extend(request);
        request
    }

    /// Of the first `count` that wait, keeps as many as there are [`Floor::places`] of those that are `chosen` by
    /// their number from 1, and gives up the others. Puts the first of those kept into the batch.
    pub(super) fn take_among(&mut self, count: usize, chosen: impl Fn(usize) -> bool) {
        let rest = self.queue.split_off(count);
        let candidates = mem::replace(self.queue, rest);
        let mut kept = Vec::with_capacity(self.places);
        for (request, number) in candidates.into_iter().zip(1..) {
            if kept.len() < self.places && chosen(number) {
                kept.push(request);
            } else {
                self.ended.push_back((request, Outcome::Missed(MissReason::Shed)));
            }
        }
        let size = kept.len().min(self.worker.batch);
        kept.into_iter().rev().for_each(|request| self.queue.push_front(request));
        self.take_first(size);
    }

    /// Gives up the oldest requests while `hopeless` says so. Whether there was any.
    pub(super) fn drop_while(&mut self, mut hopeless: impl FnMut(&Self, &Waiting) -> bool) -> bool {
        let before = self.queue.len();
        while let Some(first) = self.queue.front()
            && hopeless(self, first)
        {
            let missed = self.queue.pop_front().map(|first| (first, Outcome::Missed(MissReason::Expired)));
            self.ended.extend(missed);
        }
        self.queue.len() < before
    }

    /// Gives up what came more than `age` ago. Whether there was any.
    pub(super) fn drop_older(&mut self, age: Span) -> bool {
        self.drop_while(|floor, first| first.arrival + age < floor.now)
    }

    /// Gives up the oldest requests for which a batch of `size` that starts now would come too late. Whether there
    /// was any.
    pub(super) fn drop_hopeless(&mut self, size: usize) -> bool {
        let finish = self.now + self.time(size);
        self.drop_while(|_, first| first.deadline < finish)
    }

    /// Gives up the oldest requests while the largest batch of what waits would be too late for the first.
    pub(super) fn drop_for_window(&mut self) -> bool {
        self.drop_while(|floor, first| first.deadline < floor.now + floor.time(floor.window()))
    }
}

/// What a rule takes a batch to last, of what its profile knows, and how large its batches may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reckoning {
    /// Its bound; batches are those of the promise.
    Bound,
    /// The time that it most likely takes no longer than; batches are as large as the profile has them.
    Likely,
    /// Its mean; batches are as large as the profile has them.
    Mean,
}

impl Reckoning {
    /// `kind` as the rule sees it: its bounds are what the rule counts on.
    fn of(self, kind: &Workers) -> Workers {
        let pick = |time: BatchTime| match self {
            Self::Bound => time.bound,
            Self::Likely => time.likely,
            Self::Mean => time.mean,
        };
        let times: Vec<_> =
            (1..=kind.profile.max_batch()).map(|size| pick(kind.profile.time(size))).collect();
        let batch = if self == Self::Bound { kind.batch } else { kind.profile.max_batch() };
        let profile = LatencyProfile::new(&times).unwrap_or_else(|_| kind.profile.clone());
        Workers { count: kind.count, batch, profile }
    }
}

/// A rule at work on the workers and the deadline of a problem.
///
/// All workers share the queue. Of several free ones the one with the shortest full batch decides first; what it
/// lets wait, slower ones leave to it.
pub(super) struct Rival {
    rule: Box<dyn Rule>,
    deadline: Span,
    queue: VecDeque<Waiting>,
    /// By their numbers; `order` has them by the time of a full batch.
    workers: Vec<Worker>,
    order: Vec<WorkerId>,
    ended: VecDeque<(Waiting, Outcome)>,
}

struct Worker {
    /// As the rule sees it.
    kind: Workers,
    /// As it is.
    profile: LatencyProfile,
    batch: Vec<Waiting>,
    /// When that is expected to end.
    until: Instant,
}

impl Rival {
    pub(super) fn new(problem: &Problem, rule: Box<dyn Rule>) -> Self {
        let reckoning = rule.reckoning();
        let kinds = problem.workers.iter().flat_map(|kind| vec![kind; kind.count]);
        let worker = |kind: &Workers| {
            let (profile, batch) = (kind.profile.clone(), Vec::new());
            Worker { kind: reckoning.of(kind), profile, batch, until: Instant::ZERO }
        };
        let workers: Vec<_> = kinds.map(worker).collect();
        let mut order: Vec<_> = (0..workers.len()).collect();
        order.sort_by_key(|&worker| workers[worker].kind.batch_time());
        let (queue, ended) = (VecDeque::new(), VecDeque::new());
        Self { rule, deadline: problem.deadline, queue, workers, order, ended }
    }

    /// Asks the free workers one by one, until one has taken or dropped something.
    fn decide(&mut self, now: Instant) -> Step {
        let (mut until, mut asked) = (None::<Instant>, None);
        for &id in &self.order {
            let time = self.workers[id].kind.batch_time();
            if !self.workers[id].batch.is_empty() {
                continue;
            }
            if asked.is_some_and(|asked| time > asked) {
                break;
            }
            asked = Some(time);
            let (places, later) = self.others(now, time);
            let (queue, ended) = (&mut self.queue, &mut self.ended);
            let Worker { kind: worker, batch, until: end, .. } = &mut self.workers[id];
            let wait = self.rule.decide(&mut Floor { now, id, worker, queue, places, later, batch, ended });
            if !batch.is_empty() {
                *end = now + worker.profile.bound(batch.len());
                return Step::Start { worker: id };
            }
            if !self.ended.is_empty() {
                break;
            }
            debug_assert!(wait.is_none_or(|wait| wait > now), "a rule waits for what is past");
            until = until.into_iter().chain(wait).min();
        }
        Step::Wait { until }
    }

    /// [`Floor::places`] and [`Floor::later`] of a free worker with full batches of `time`.
    fn others(&self, now: Instant, time: Span) -> (usize, Instant) {
        let (mut places, mut later) = (0, now + time + time);
        for Worker { kind, batch, until, .. } in &self.workers {
            let mut start = now;
            if !batch.is_empty() {
                start = now.max(*until);
            } else if kind.batch_time() <= time {
                places += kind.batch;
                start = now + kind.batch_time();
            }
            later = later.min(start + kind.batch_time());
        }
        (places, later)
    }
}

impl Policy for Rival {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let deadline = now + self.deadline;
        let mut request = Waiting { token, stream, arrival: now, deadline, mandatory: false };
        let busy = self.workers.iter().all(|worker| !worker.batch.is_empty());
        if self.rule.arrive(&mut request, self.queue.len(), busy) {
            // At the end, but for one that came elsewhere before.
            let place = self.queue.partition_point(|other| other.deadline <= request.deadline);
            self.queue.insert(place, request);
            return None;
        }
        self.rule.hear(&request, false);
        let outcome = Outcome::Missed(MissReason::QueueFull);
        Some(End { token, mandatory: request.mandatory, outcome })
    }

    fn complete(&mut self, now: Instant, id: WorkerId, _: Span) {
        let Worker { kind, batch, .. } = &mut self.workers[id];
        let any_late = batch.iter().any(|request| request.deadline < now);
        self.ended.extend(batch.drain(..).map(|request| {
            let late = request.deadline < now;
            (request, if late { Outcome::Missed(MissReason::Late) } else { Outcome::Served })
        }));
        let waiting = self.queue.len();
        self.rule.finish(&Finish { now, id, worker: kind, waiting, late: any_late });
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            if let Some((request, outcome)) = self.ended.pop_front() {
                self.rule.hear(&request, outcome == Outcome::Served);
                return Step::End(End { token: request.token, mandatory: request.mandatory, outcome });
            }
            let step = self.decide(now);
            if self.ended.is_empty() || matches!(step, Step::Start { .. }) {
                return step;
            }
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.workers[worker].batch.iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let Worker { profile, batch, .. } = &self.workers[worker];
        profile.bound(batch.len())
    }
}
