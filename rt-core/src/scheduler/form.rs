//! Forms the batch of a worker: of what comes first where there is nothing to choose, by the planner of `batch.rs` else.

use super::Scheduler;
use super::batch::View;
use super::pool::Kind;
use super::queue::{Classes, DEMOTED, MANDATORY, OPTIONAL};
use super::types::{NEVER, Request, WorkerId};
use crate::stream::{MissReason, Stream};
use crate::time::{Instant, Span};

impl Scheduler {
    /// Takes a batch for `worker`: what it takes at most. `None` if none is left that a batch could serve; what is given up on
    /// the way is resolved.
    #[inline]
    pub(super) fn form_batch(&mut self, now: Instant, worker: WorkerId) -> Option<Span> {
        self.armed = NEVER;
        let skip = self.out_of_reach(now, worker);
        if !self.waiting.class(DEMOTED).is_empty() && !self.goes_on() {
            self.pass_marks_back(now, worker, skip.unwrap_or_default());
        }
        if self.shield.is_some() {
            self.look_for_lull();
        }
        let (form, first) = match skip {
            None => {
                let form = self.formed_for(now, worker);
                (form, self.first_in_line(now, worker, form))
            }
            Some(_) => ((0, usize::MAX), None),
        };
        match first {
            Some((class, count)) => {
                let batch = self.pool.batch_mut(worker);
                self.waiting.take_first(class, count, |request| {
                    if class != MANDATORY {
                        self.planner.take_turn(request.stream);
                    }
                    batch.push(*request);
                });
            }
            None => self.choose(now, worker, skip.unwrap_or_default(), form),
        }
        self.note_clear();
        self.begin_batch(now, worker)
    }

    /// The same of one that takes at most `longest`, of what nothing is promised for.
    pub(super) fn form_batch_ahead(&mut self, now: Instant, worker: WorkerId, longest: Span) -> Option<Span> {
        let most = self.most_of_any(worker);
        let apart = self.keeps_apart(now);
        let view = View { apart, most, ..View::new(now, &self.pool, worker, &self.waiting) };
        self.planner.plan_ahead(&view, longest);
        let batch = self.pool.batch_mut(worker);
        self.planner.carry_out(&mut self.waiting, |request| batch.push(request), |_, _| {});
        self.begin_batch(now, worker)
    }

    /// `worker` begins the batch that it was given, if that is not empty: what it takes at most.
    #[inline(always)]
    fn begin_batch(&mut self, now: Instant, worker: WorkerId) -> Option<Span> {
        if self.pool.batch(worker).is_empty() {
            return None;
        }
        self.planner.note(self.pool.batch(worker));
        if self.in_order {
            self.shed_overtaken(now, worker);
        }
        let (time, long) = self.pool.start(now, worker);
        self.note_long(long);
        Some(time)
    }

    /// Gives up what waits of a stream and came before what the batch of `worker` holds of it. Mandatory requests are taken in
    /// the order in which they came, and before all others: none of them is overtaken.
    #[inline(never)]
    fn shed_overtaken(&mut self, now: Instant, worker: WorkerId) {
        for index in 0..self.batch(worker).len() {
            let taken = self.batch(worker)[index];
            let overtaken = |r: &Request| r.stream == taken.stream && r.seq < taken.seq;
            for class in [DEMOTED, OPTIONAL] {
                while let Some(found) = self.waiting.class(class).from(0).position(overtaken)
                    && let Some(request) = self.waiting.remove(class, found)
                {
                    self.give_up(now, request, MissReason::Shed);
                }
            }
        }
    }

    /// How many of the first requests of which class make the batch of `worker`, if there is nothing to choose: those that
    /// come first, of the only class that waits or mandatory ones enough for a full batch, are all in time, and none of
    /// those left would be late for the next. It is what the planner would choose.
    #[inline]
    fn first_in_line(&self, now: Instant, worker: WorkerId, form: (usize, usize)) -> Option<(usize, usize)> {
        let (kind, most) = self.formed_as(now, worker, form);
        let (class, count, time) = match self.waiting.only_class() {
            Some(class) if class != MANDATORY => {
                let all = self.waiting.len().min(most);
                (class, usize::from(kind.paying[all - 1]), kind.workers.profile.likely(all))
            }
            only => {
                let (full, mandatory) = (kind.workers.batch, self.waiting.class(MANDATORY).len());
                if most > full || only.is_none() && mandatory < full {
                    return None;
                }
                (MANDATORY, mandatory.min(full), kind.time)
            }
        };
        let queue = self.waiting.class(class);
        let plain = queue.first()?.deadline >= now + time
            && queue.get(count).is_none_or(|next| next.deadline >= now + kind.time + kind.time);
        // Where misses are spread all that waits is looked at.
        let chosen = || {
            class != MANDATORY
                && View::new(now, &self.pool, worker, &self.waiting).is_short_of(queue, 0, count)
        };
        (plain && !(self.planner.spreads() && chosen())).then_some((class, count))
    }

    /// What the batch of `worker` is formed as for a variant, and the most that it may hold, which is not above `limit`.
    #[inline(always)]
    fn formed_as(&self, now: Instant, worker: WorkerId, (variant, limit): (usize, usize)) -> (&Kind, usize) {
        let most = self.most(now, worker).min(limit);
        match self.selection.kind(variant) {
            Some(kind) => (kind, most.min(kind.workers.profile.max_batch())),
            None => (self.pool.kind(worker), most),
        }
    }

    /// Whether no batch is made smaller for a request that is nearly late. Behind a stall that constraints absorb, and in safe
    /// mode, batches must be full for what has piled up to be worked off: one small batch after the other may save each first
    /// request, and lose all others for ever. With workers of several kinds a quicker one may still be in time.
    fn keeps_whole(&self) -> bool {
        self.absorbs || self.safe_mode.state().severity.is_suspended() && self.config.workers.len() == 1
    }

    /// Has the planner choose the batch.
    #[inline(never)]
    fn choose(&mut self, now: Instant, worker: WorkerId, skip: Classes<usize>, form: (usize, usize)) {
        let (closed, whole, apart) = (!self.config.background, self.keeps_whole(), self.keeps_apart(now));
        let (_, most) = self.formed_as(now, worker, form);
        let kind = self.selection.kind(form.0).unwrap_or_else(|| self.pool.kind(worker));
        let plain = View::new(now, &self.pool, worker, &self.waiting);
        let view = View { kind, skip, closed, whole, apart, most, limit: form.1, ..plain };
        self.planner.plan(&view);
        let (batch, given_up) = (self.pool.batch_mut(worker), &mut self.given_up);
        self.planner.carry_out(
            &mut self.waiting,
            |request| batch.push(request),
            |request, reason| given_up.push((request, reason)),
        );
        for index in 0..self.given_up.len() {
            let (request, reason) = self.given_up[index];
            self.give_up(now, request, reason);
        }
        self.given_up.clear();
    }

    /// Within a stream the oldest come first: a mandatory request that is about to run gives its place to an older demoted
    /// one of its own stream and is demoted itself, which is the same to all other streams: it is of the batch that is being formed.
    /// (At the later stages of a pipeline it would go before what came behind it, which counts only what came before.) What stalls and
    /// overruns may take must be left of its deadline. Only if they are few, so that all may yet be served. In a lasting overload the
    /// places of mandatory requests are what keeps the misses apart.
    #[inline(never)]
    fn pass_marks_back(&mut self, now: Instant, worker: WorkerId, skip: Classes<usize>) {
        let kind = self.pool.kind(worker);
        let full = kind.workers.batch;
        let lost = self.reserve + self.guest.map_or(Span::ZERO, |guest| guest.margin);
        let first = self.waiting.before(DEMOTED, now + kind.time + lost).max(skip[DEMOTED]);
        if self.waiting.class(DEMOTED).len() - first > full / 2 {
            return;
        }
        let last = self.waiting.class(MANDATORY).len().min(skip[MANDATORY] + full);
        for index in skip[MANDATORY]..last {
            let place = self.waiting.class(MANDATORY)[index];
            // What came before a change of levels has no part in what is promised since.
            let from = self.streams.get(place.stream).map_or(0, Stream::level_from);
            let older = |r: &Request| {
                r.stream == place.stream && r.deadline < place.deadline && (from <= r.seq || place.seq < from)
            };
            let demoted = self.waiting.class(DEMOTED).from(first).position(older);
            if let Some(found) = demoted
                && let Some(other) = self.waiting.remove(DEMOTED, first + found)
                && let Some(later) = self.waiting.remove(MANDATORY, index)
            {
                self.waiting.put(MANDATORY, Request { mandatory: true, ..other });
                self.waiting.put(DEMOTED, Request { mandatory: false, ..later });
            }
        }
    }
}
