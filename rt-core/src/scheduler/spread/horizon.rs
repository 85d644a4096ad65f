//! The horizon: how many of those that wait, up to which of them, can be answered.

use super::{ARRIVALS, PARTS, Spread};
use crate::scheduler::ordered::Ordered;
use crate::scheduler::types::Request;
use crate::time::{Instant, Span};

/// Nobody goes ahead where fewer batches than this are to come until the last that waits is due: there is no room to be had by it.
const SEVERAL: usize = 3;

/// The answers to come, as they are seen when a batch is formed.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Outlook {
    /// How many requests have a place in this batch, and in each after it.
    pub(in crate::scheduler) room: usize,
    /// When what is not taken now is most likely answered at the earliest.
    pub(in crate::scheduler) next: Instant,
    /// By when it must be due at the earliest to be begun then. Not before `next`.
    pub(in crate::scheduler) sure: Instant,
    /// From each of these instants to the next.
    pub(in crate::scheduler) step: Span,
}

/// Requests that share fewer places than they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    /// Up to the one with this index.
    pub(super) end: usize,
    pub(super) places: usize,
    /// So far apart, in parts of a request, those of a stream are taken at least that goes ahead; otherwise 0.
    pub(super) apart: u64,
}

impl Spread {
    pub(super) fn is_passed(&self, request: &Request) -> bool {
        request.seq < self.of[usize::from(request.stream.slot)].last
    }

    /// Who shares which places, of those from the one at `from` on. If most likely all are answered, how many places of this batch none of them
    /// needs that is not passed over. Where it is `clear`, no mandatory requests wait.
    pub(super) fn horizon(
        &self,
        now: Instant,
        (queue, from): (&Ordered, usize),
        clear: bool,
        outlook: Outlook,
    ) -> Result<usize, Short> {
        let likely = self.shared_from(outlook.next, now, (queue, from), clear, outlook);
        // Who is passed over is lost a bound before it is due, if enough others wait then.
        match likely {
            Err(_) if outlook.sure > outlook.next => {
                self.shared_from(outlook.sure, now, (queue, from), clear, outlook)
            }
            _ => likely,
        }
    }

    /// The same where what is not taken now must be due at `reach` to be answered, and a step later for each batch more.
    fn shared_from(
        &self,
        mut reach: Instant,
        now: Instant,
        (queue, from): (&Ordered, usize),
        clear: bool,
        outlook: Outlook,
    ) -> Result<usize, Short> {
        let Outlook { room, step, .. } = outlook;
        let step = step.as_nanos().max(1);
        let (mut count, mut batches) = (0usize, 1usize);
        let (mut need, mut worst) = (0usize, None::<(usize, usize, usize)>);
        let (mut index, mut alone) = (from, clear);
        let mut last = None::<&Request>;
        let mut note = |index: usize, count: usize, batches: usize| {
            need = need.max(count.saturating_sub(room * (batches - 1)));
            let worse = |(_, c, b): (usize, usize, usize)| count * b > c * batches;
            if count > room * batches && worst.is_none_or(worse) {
                worst = Some((index, count, batches));
            }
        };
        for request in queue.from(from) {
            if request.deadline >= reach {
                note(index, count, batches);
                let more = (request.deadline.since(reach).as_nanos() / step) as usize + 1;
                batches += more;
                reach = reach + Span::from_nanos(step.saturating_mul(more as u64));
            }
            alone &= last.is_none_or(|last| last.stream == request.stream);
            last = Some(request);
            count += usize::from(!self.is_passed(request));
            index += 1;
        }
        note(index, count, batches);
        let Some((end, most, within)) = worst else { return Ok(room - need.min(room)) };
        let (all, places) = (room * batches, room * within);
        if let Some(last) = last.filter(|_| alone && batches >= SEVERAL && count > all) {
            let apart = self.apart(now, last, outlook);
            if apart * places as u64 >= most as u64 * PARTS {
                return Err(Short { end: index, places: all, apart });
            }
        }
        Err(Short { end, places, apart: 0 })
    }

    /// How far apart those of the stream of `last`, its last request that waits, are taken where it goes ahead.
    fn apart(&self, now: Instant, last: &Request, Outlook { room, step, .. }: Outlook) -> u64 {
        let claim = &self.of[usize::from(last.stream.slot)];
        let (at, seq) = claim.seen[0];
        let came = last.seq.saturating_sub(seq);
        let places = now.since(at).as_nanos().saturating_mul(room as u64).max(1);
        // Of too few no rate is known.
        let each = if came < ARRIVALS { 0 } else { came.saturating_mul(step.as_nanos()).div_ceil(places) };
        claim.row.max(each.saturating_mul(PARTS)).next_multiple_of(PARTS)
    }
}
