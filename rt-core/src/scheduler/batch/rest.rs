//! What nothing is promised for and cannot all be answered: who of it is run, in turns or so that misses are spread.

use core::ops::Range;

use super::{BatchPlanner, Fate, Row, View};
use crate::scheduler::ordered::Ordered;
use crate::scheduler::queue::{MANDATORY, OPTIONAL, Waiting};
use crate::scheduler::spread::Outlook;
use crate::scheduler::types::Request;
use crate::stream::StreamId;
use crate::time::Span;

/// Of so many requests the one is taken whose stream has waited longest for its turn.
const NEAR: usize = 16;

impl View<'_> {
    /// Whether some of `queue`, from the one at `from` on, will most likely be answered too late although `room` of them are
    /// taken now, and as many by each batch to come.
    #[inline(never)]
    pub(in crate::scheduler) fn is_short_of(&self, queue: &Ordered, from: usize, room: usize) -> bool {
        let Some(more) = queue.len().checked_sub(from + room).filter(|&more| more > 0) else { return false };
        let rounds = (more / room.max(1)) as u64;
        let last = self.two_batches() + Span::from_nanos(self.step().as_nanos().saturating_mul(rounds));
        queue.get(from + room).is_some_and(|next| next.deadline < self.two_batches())
            || queue.get(queue.len() - 1).is_some_and(|request| request.deadline < last)
    }

    /// From a full batch to the next of all workers.
    fn step(&self) -> Span {
        let time = self.kind.workers.profile.mean(self.kind.workers.batch);
        Span::from_nanos(time.as_nanos() / self.pool.alive().max(1) as u64)
    }
}

impl BatchPlanner {
    /// The requests of the stream in this place are counted anew.
    pub(crate) fn restart(&mut self, place: usize) {
        self.spread.iter_mut().for_each(|spread| spread.forget(place));
    }

    /// A request of `stream` that nothing is promised for has its turn.
    pub(crate) fn take_turn(&mut self, stream: StreamId) {
        self.claims.take_turn(stream);
    }

    /// A batch is run.
    #[inline]
    pub(crate) fn note(&mut self, batch: &[Request]) {
        if let Some(spread) = &mut self.spread {
            spread.note(batch);
        }
    }

    /// A batch has run over by so much.
    pub(crate) fn note_over(&mut self, over: Span) {
        self.spread.iter_mut().for_each(|spread| spread.note_over(over));
    }

    /// How long a batch that is bounded so may take, if it runs over as others have lately.
    pub(super) fn surely(&self, bound: Span) -> Span {
        bound + self.spread.as_ref().map_or(Span::ZERO, |spread| spread.over())
    }

    /// Whether request number `seq` of a stream that nothing is promised for should wait although it is not likely to be answered:
    /// which of them are, is chosen later.
    pub(crate) fn is_candidate(&self, stream: StreamId, seq: u64, waiting: &Waiting) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_candidate(stream, seq, waiting.quarters()))
    }

    /// Which of the last optional requests is of the stream that had its turn last, if that was after `stream` had.
    pub(crate) fn displaced(&self, waiting: &Waiting, stream: StreamId) -> Option<usize> {
        let (queue, own) = (waiting.class(OPTIONAL), self.claims.get(stream).turn);
        let turn = |&index: &usize| self.claims.get(queue[index].stream).turn;
        let last = (queue.len().saturating_sub(NEAR)..queue.len()).max_by_key(turn);
        last.filter(|index| turn(index) > own)
    }

    /// Not all of a class can be answered, from the one at `from` on: which are run; `surely` if only what a batch that takes as long as it
    /// may is in time for.
    #[inline(never)]
    pub(super) fn spread_rest(&mut self, view: &View, class: usize, from: usize, room: usize, surely: bool) {
        let (kind, queue) = (view.kind, view.waiting.class(class));
        let profile = &kind.workers.profile;
        // The next batch may be a small one, and then less is lost: as many will wait as come at the rate of those that do.
        let (time, left) = (profile.likely(self.taken + room), queue.len() - from - room);
        let since = queue.get(from).map_or(Span::ZERO, |first| view.now.since(first.arrival));
        let come = (queue.len() - from) as u64 * time.as_nanos() / since.as_nanos().max(1);
        let left = left.saturating_add(come as usize).clamp(1, kind.workers.batch);
        let size = self.taken + room;
        let answer = |time: Span| {
            let later = view.next_answer() + time.saturating_sub(kind.time) - kind.time.saturating_sub(time);
            later.min(view.now + profile.mean(size) + time)
        };
        let next = answer(profile.likely(left));
        let sure = if surely { answer(self.surely(profile.bound(left))) } else { next };
        let outlook = Outlook { room, next, sure, step: view.step() };
        let Row { wait, expire, .. } = self.rows[MANDATORY];
        let marked = view.waiting.class(MANDATORY).from(self.fates[MANDATORY].len() + wait + expire);
        let Some(spread) = &mut self.spread else { return };
        let (fates, taken) = (&mut self.fates[class], &mut self.taken);
        spread.choose(view.now, (queue, from), marked, outlook, |index| {
            fates.resize(index, Fate::Wait);
            fates.push(Fate::Run);
            *taken += 1;
        });
    }

    /// More `candidates` are lost if they are not taken now than there is room: the streams take turns, each with
    /// its oldest.
    pub(super) fn take_turns(&mut self, view: &View, class: usize, candidates: Range<usize>, room: usize) {
        let (queue, fates) = (view.waiting.class(class), &mut self.fates[class]);
        let mut first = candidates.start;
        for _ in 0..room {
            let waits = |&index: &usize| fates.get(index).is_none_or(|fate| *fate == Fate::Wait);
            let near = (first..candidates.end).filter(waits).take(NEAR);
            let turn = |&index: &usize| self.claims.get(queue[index].stream).turn;
            let Some(chosen) = near.min_by_key(turn) else { break };
            if fates.len() <= chosen {
                fates.resize(chosen + 1, Fate::Wait);
            }
            fates[chosen] = Fate::Run;
            self.taken += 1;
            self.claims.take_turn(queue[chosen].stream);
            while fates.get(first).is_some_and(|fate| *fate != Fate::Wait) {
                first += 1;
            }
        }
    }
}
