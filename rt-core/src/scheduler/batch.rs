//! The batch planner: of what waits, which requests a free worker takes, and which are given up.
//!
//! It sees a [`View`] and writes a plan; nothing else changes but its own memory of whose turn it was. A request is *too
//! late* for an answer at `t` if its deadline is before `t`, and that is asked of three answers: the soonest that any
//! worker could give (what fails that has expired before it comes here), that of the batch being formed, and that of the
//! full batch after it, which whatever is left over must wait for. What a promise counts on is asked by the bound on a
//! batch's time, all else by the time that the batch most likely takes.

mod rest;
mod spread;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::pool::{Kind, Pool};
use super::queue::{Classes, DEMOTED, MANDATORY, OPTIONAL, Waiting};
use super::spread::Spread;
use super::types::{Request, WorkerId};
use crate::stream::{MissReason, StreamId};
use crate::time::{Instant, Span};

/// The classes that fill a batch, in order.
const FILLING: [usize; 2] = [DEMOTED, OPTIONAL];

/// What a batch is formed of.
pub(crate) struct View<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    /// The worker that takes it, and what it is.
    pub(crate) worker: WorkerId,
    pub(crate) kind: &'a Kind,
    pub(crate) waiting: &'a Waiting,
    /// How many of each class are left to quicker workers.
    pub(crate) skip: Classes<usize>,
    /// Whether a load that only the refinement admits is served: it counts on batches being no larger than what is left.
    pub(crate) closed: bool,
    /// Whether no batch is made smaller for a request that is nearly late, so that what has piled up is worked off.
    pub(crate) whole: bool,
    /// Whether no batch holds both mandatory requests and others.
    pub(crate) apart: bool,
    /// The most requests that the batch may hold, given how many mandatory ones there are to choose from.
    pub(crate) most: usize,
    /// The most that it is to hold, where nothing is promised for anything that waits; see [`crate::SelectTable::most`].
    pub(crate) limit: usize,
}

impl<'a> View<'a> {
    /// A full batch at most, of all that waits for a free worker of the pool.
    pub(crate) fn new(now: Instant, pool: &'a Pool, worker: WorkerId, waiting: &'a Waiting) -> Self {
        let kind = pool.kind(worker);
        let most = kind.workers.batch;
        Self {
            now,
            pool,
            worker,
            kind,
            waiting,
            skip: [0; 3],
            closed: false,
            whole: false,
            apart: false,
            most,
            limit: usize::MAX,
        }
    }

    /// When a full batch after this one is answered at the earliest.
    fn next_answer(&self) -> Instant {
        self.pool.next_answer(self.now, self.worker)
    }

    /// By when the worker itself has answered two full batches. The answer after this one comes no later.
    fn two_batches(&self) -> Instant {
        self.now + self.kind.time + self.kind.time
    }
}

/// What becomes of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wait,
    Run,
    Miss(MissReason),
}

/// Of one stream: the part of a request that it has earned when load is shed, in 1/2³², and when a request of it that
/// nothing is promised for was last taken.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    share: i64,
    turn: u64,
}

/// What becomes of those of a class whose fates are not listed: so many wait on, then so many have expired, then so many
/// are run. Deadlines are in order, so mostly this is all of the plan.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    wait: usize,
    expire: usize,
    run: usize,
}

/// Forms batches; see the module. The last plan is read off by [`BatchPlanner::carry_out`].
#[derive(Clone, Debug)]
pub(crate) struct BatchPlanner {
    /// Of each class, the fates of those that wait, from the first on, where they are chosen one by one; then come those of
    /// its row, and all others wait on.
    fates: Classes<Vec<Fate>>,
    rows: Classes<Row>,
    taken: usize,
    claims: Claims,
    /// What cannot all be answered is spread over each stream's requests, and waits until then; without it streams take turns.
    spread: Option<Box<Spread>>,
}

/// By the place of a stream, and the turns that were taken.
#[derive(Clone, Debug)]
struct Claims {
    of: Vec<Claim>,
    turns: u64,
}

impl Claims {
    fn get(&self, stream: StreamId) -> &Claim {
        &self.of[usize::from(stream.slot)]
    }

    fn get_mut(&mut self, stream: StreamId) -> &mut Claim {
        &mut self.of[usize::from(stream.slot)]
    }

    /// A request of `stream` that nothing is promised for has its turn.
    fn take_turn(&mut self, stream: StreamId) {
        self.turns += 1;
        self.get_mut(stream).turn = self.turns;
    }
}

impl BatchPlanner {
    /// For so many requests waiting and streams. Allocates.
    pub(crate) fn new(queue: usize, streams: usize) -> Self {
        let fates = [(); 3].map(|()| Vec::with_capacity(queue));
        let claims = Claims { of: alloc::vec![Claim::default(); streams], turns: 0 };
        Self { fates, rows: Default::default(), taken: 0, claims, spread: None }
    }

    /// The same, by which misses of what nothing is promised for may be `spread`. Allocates.
    pub(crate) fn spreading(self, spread: bool) -> Self {
        let spread = spread.then(|| Box::new(Spread::new(self.claims.of.len())));
        Self { spread, ..self }
    }

    /// Whether it is.
    #[inline]
    pub(crate) fn spreads(&self) -> bool {
        self.spread.is_some()
    }

    /// For so many streams. Allocates.
    pub(crate) fn resize(&mut self, streams: usize) {
        self.claims.of.resize(streams, Claim::default());
        self.spread.iter_mut().for_each(|spread| spread.resize(streams));
    }

    /// A stream is new in its place.
    pub(crate) fn forget(&mut self, place: usize) {
        self.claims.of[place] = Claim::default();
        self.restart(place);
    }

    /// Plans the batch: mandatory requests first, then demoted, then optional ones.
    pub(crate) fn plan(&mut self, view: &View) {
        self.fates.iter_mut().for_each(Vec::clear);
        (self.rows, self.taken) = (Default::default(), 0);
        let full = view.kind.workers.batch;
        let spread = self.spread(view);
        if view.whole && !spread {
            self.keep_whole(view);
        }
        let queue = view.waiting.class(MANDATORY);
        let rest = queue.len().saturating_sub(self.first_mandatory(view));
        let most = if spread { full } else { view.most.max(full).min(view.limit) };
        let size = self.size(view, most, rest);
        self.take_mandatory(view, size);
        if self.taken == 0 || !view.apart {
            self.fill(view, size);
        }
    }

    /// Plans a batch that takes at most `longest` and goes before mandatory requests: what nothing is promised for, and mandatory ones
    /// only for the places that are left. None if `longest` would cut it by so much that it pays less.
    pub(crate) fn plan_ahead(&mut self, view: &View, longest: Span) {
        self.fates.iter_mut().for_each(Vec::clear);
        (self.rows, self.taken) = (Default::default(), 0);
        let (profile, mandatory) = (&view.kind.workers.profile, view.waiting.class(MANDATORY));
        let others = |size: usize| {
            let end = view.now + profile.likely(size);
            let in_time = |class| view.waiting.class(class).len() - self.first_in_time(view, class, end);
            FILLING.map(in_time).iter().sum::<usize>()
        };
        let Some(largest) = (1..=view.most).rev().find(|&size| others(size) >= size) else { return };
        let (wanted, most) =
            (usize::from(view.kind.paying[largest - 1]), profile.largest_within(longest, view.most));
        let pays = |size: usize| {
            10 * size as u64 * profile.mean(wanted).as_nanos()
                >= 9 * wanted as u64 * profile.mean(size).as_nanos()
        };
        let size = wanted.min(most);
        if size == 0 || !pays(size) {
            return;
        }
        // Places that are left cost little.
        let places = if view.apart { 0 } else { mandatory.len() };
        let more = (size..=most.min(size + places)).rev().find(|&more| others(more) >= size);
        let size = more.map_or(size, |more| size.max(usize::from(view.kind.paying[more - 1])));
        self.fill(view, size);
        let in_time = mandatory.first().is_some_and(|head| head.deadline >= view.now + profile.bound(size));
        if self.taken > 0 && in_time && !view.apart {
            let run = (size - self.taken).min(mandatory.len());
            self.rows[MANDATORY] = Row { wait: 0, expire: 0, run };
            self.taken += run;
        }
    }

    /// Takes out of `waiting` what the plan disposes of: `run` hears of each request of the batch, in order of class and
    /// deadline, `miss` of each that is given up.
    pub(crate) fn carry_out(
        &self,
        waiting: &mut Waiting,
        mut run: impl FnMut(Request),
        mut miss: impl FnMut(Request, MissReason),
    ) {
        for (class, (fates, row)) in self.fates.iter().zip(self.rows).enumerate() {
            if fates.is_empty() && row.expire + row.run == 0 {
                continue;
            }
            let mut left = 0;
            for fate in fates {
                if *fate == Fate::Wait {
                    left += 1;
                    continue;
                }
                let Some(request) = waiting.remove(class, left) else { break };
                match *fate {
                    Fate::Miss(reason) => miss(request, reason),
                    _ => run(request),
                }
            }
            left += row.wait;
            for _ in 0..row.expire {
                let Some(request) = waiting.remove(class, left) else { break };
                miss(request, MissReason::Expired);
            }
            for _ in 0..row.run {
                let Some(request) = waiting.remove(class, left) else { break };
                run(request);
            }
        }
    }

    /// Gives up as few of the first mandatory requests as lets those behind them fill the batch in time, or all of them be in it.
    fn keep_whole(&mut self, view: &View) {
        let (queue, profile, full) =
            (view.waiting.class(MANDATORY), &view.kind.workers.profile, view.kind.workers.batch);
        let first = self.first_mandatory(view);
        let size = |index: usize| (queue.len() - index).min(full);
        let late = |&index: &usize| queue[index].deadline < view.now + profile.bound(size(index));
        let count = (first..queue.len()).take_while(late).count();
        self.fates[MANDATORY].resize(first, Fate::Wait);
        self.fates[MANDATORY].resize(first + count, Fate::Miss(MissReason::Expired));
    }

    /// How large the batch is: as large as promises need, of the sizes up to `most` for which enough requests are in time the
    /// largest, or the fewest that make nearly as many a second, for those are answered sooner. `rest` mandatory requests can still be
    /// taken.
    fn size(&self, view: &View, most: usize, rest: usize) -> usize {
        let profile = &view.kind.workers.profile;
        let mut most = most.min(profile.max_batch());
        let mandatory = self.taken + rest;
        let mut least = mandatory.min(view.kind.workers.batch);
        // Shrink the batch rather than lose the first mandatory request; never for others.
        if let Some(head) = view.waiting.class(MANDATORY).get(self.first_mandatory(view)) {
            let largest = profile.largest_within(head.deadline.since(view.now), most).max(1);
            (most, least) = (largest, least.min(largest));
        }
        if view.apart && rest > 0 {
            return least.max(mandatory.min(most));
        }
        let enough = |&size: &usize| {
            let end = view.now + profile.likely(size);
            let in_time = |class| view.waiting.class(class).len() - self.first_in_time(view, class, end);
            mandatory + FILLING.map(in_time).iter().sum::<usize>() >= size
        };
        let all = (mandatory + view.waiting.len() - view.waiting.class(MANDATORY).len()).min(most);
        let largest = (least.max(1) + 1..=all).rev().find(enough).unwrap_or(least);
        let size = least.max(usize::from(view.kind.paying[largest.max(1) - 1]));
        // More than a full batch was allowed for as many mandatory requests left waiting as the most leaves, and no more.
        if size > view.kind.workers.batch { size.max(mandatory.min(most)) } else { size }
    }

    /// Takes mandatory requests for a batch of `size`; what that is too late for is given up.
    fn take_mandatory(&mut self, view: &View, size: usize) {
        let (queue, profile) = (view.waiting.class(MANDATORY), &view.kind.workers.profile);
        let first = self.first_mandatory(view);
        if queue.len() <= first || self.taken >= size {
            return;
        }
        let size = match size {
            1 => 1,
            _ => profile.largest_within(queue[first].deadline.since(view.now), size).max(1),
        };
        let expire = view.waiting.before(MANDATORY, view.now + profile.bound(size)).saturating_sub(first);
        let run = (queue.len() - first - expire).min(size - self.taken);
        self.rows[MANDATORY] = Row { wait: first - self.fates[MANDATORY].len(), expire, run };
        self.taken += run;
    }

    /// Fills the batch up to `size` with what is in time for it, class by class, each in order of deadlines. What it is too
    /// late for is left to a smaller one.
    fn fill(&mut self, view: &View, size: usize) {
        let profile = &view.kind.workers.profile;
        if self.taken >= size || view.waiting.is_mandatory_only() {
            return;
        }
        // The next batch may be a small one, and then less is lost.
        let left = (view.waiting.len() + self.taken).saturating_sub(size).clamp(1, view.kind.workers.batch);
        let sooner = view.kind.time.saturating_sub(profile.likely(left));
        for class in FILLING {
            if self.taken >= size || view.waiting.class(class).is_empty() {
                continue;
            }
            let from = self.first_in_time(view, class, view.now + profile.likely(size));
            let room = size - self.taken;
            let queue = view.waiting.class(class);
            if self.spreads() && view.is_short_of(queue, from, room) {
                // Of enough others none is begun that a longer batch answers too late: the next would be late after it, and so on.
                let sure = self.first_in_time(view, class, view.now + self.surely(profile.bound(size)));
                let surely = view.is_short_of(queue, sure, room);
                self.spread_rest(view, class, if surely { sure } else { from }, room, surely);
                continue;
            }
            let lost = if self.spreads()
                || queue.get(from + room).is_none_or(|next| next.deadline >= view.two_batches())
            {
                0
            } else {
                view.waiting.before(class, view.next_answer() - sooner)
            };
            if lost > from + room {
                self.take_turns(view, class, from..lost, room);
            } else {
                let run = room.min(queue.len() - from);
                self.rows[class] = Row { wait: from, expire: 0, run };
                self.taken += run;
                queue.from(from).take(run).for_each(|request| self.claims.take_turn(request.stream));
            }
        }
    }

    /// Where the first mandatory request is that can still be taken.
    fn first_mandatory(&self, view: &View) -> usize {
        self.fates[MANDATORY].len().max(view.skip[MANDATORY])
    }

    /// The first request of a class that is in time for an answer at `end`; the first few are left to others.
    fn first_in_time(&self, view: &View, class: usize, end: Instant) -> usize {
        view.waiting.before(class, end).max(view.skip[class])
    }
}
