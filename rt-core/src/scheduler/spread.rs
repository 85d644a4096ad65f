//! Spread: of what nothing is promised for and cannot all be answered, which requests run, so that no stream misses many in
//! a row.
//!
//! Each batch looks at what waits. Those that will be lost, were all begun in order of deadlines, say how many of them can be
//! answered: for each instant by which a full batch more could be, so many have a deadline before. The instant at which
//! the fewest of them can is the *horizon*, and what can be answered until then is shared by the streams so that the longest row
//! that it leaves any of them is as short as it can be, the requests since its last one that was taken among them (as per-batch
//! spread does it, and spread-drop, for one stream, one batch and what is lost without it). Rows are counted in the time in
//! which the stream sends so many: one that sends more than the others gets no more than they do. Within a stream they are taken evenly.
//!
//! A stream that waits alone goes *ahead*. Were it only taken evenly, all would wait until its deadline, and the next burst would have no room to
//! be spread over. So where more of it wait than can be answered, and several batches come until the last of these is due, those taken are as far
//! apart as rows were of late, or as come for each place if that is more: what is lost anyway is passed over sooner, and no fewer wait on than
//! can be answered.
//!
//! A row also ends at a mandatory request that waits, which is run in any case. Of a stream that sent too much nothing is mandatory; it has
//! at least as many places as it would have mandatory requests, however many others there are.
//!
//! What is passed over waits on behind all others, and takes places that these leave.

mod horizon;

use alloc::vec::Vec;

pub(super) use self::horizon::Outlook;
use self::horizon::Short;
use super::ordered::Ordered;
use super::types::{Note, Request};
use crate::stream::StreamId;
use crate::time::{Instant, Span};

/// Of so many arrivals, at least, a stream's rate is an estimate.
const ARRIVALS: u64 = 64;
/// How often the row that fits is halved to.
const STEPS: u32 = 24;
/// Parts of a request in which rows are measured.
const PARTS: u64 = 256;
/// So many requests ago a row begins at the earliest: what is older is not made good.
const OLDEST: u64 = 1024;
/// For each that can be answered so many wait to be chosen from, and fewer as room runs out.
const ENOUGH: u64 = 4;
/// Within as many batches what one ran over by has mostly been forgotten.
const LATELY: u64 = 256;

/// What is kept of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// The number of the last request that was taken: those before are passed over. Nothing is known of what was before the first that
    /// was looked at.
    last: u64,
    known: bool,
    /// Two earlier instants and the numbers of its requests then.
    seen: [(Instant, u64); 2],
    /// The longest row of late, and the latest, in parts of a request.
    row: u64,
    latest: u64,
    now: Plan,
}

/// Of one stream while a batch is formed.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    /// Requests within the horizon that are not passed over and not looked at yet, and of them those to be taken.
    count: u64,
    places: u64,
    /// How many mandatory requests lie between them, and how many places it has whoever else waits.
    marks: u64,
    entitled: u64,
    /// From the last one that was taken before to the last of them: how many there were, and in how much time they come.
    length: u64,
    time: u64,
    /// From one that is taken to the next, and from the last one taken before to the next that is due, in parts of a request.
    row: u64,
    due: u64,
}

impl Plan {
    /// The request so many behind the last one taken before is taken.
    fn take(&mut self, at: u64) {
        self.places -= 1;
        if at * PARTS >= self.due + PARTS {
            // It was due before any of those that wait: all others are as far apart as they can be.
            self.row = self.length.saturating_sub(at) * PARTS / (self.places + self.marks).max(1);
            self.due = at * PARTS;
        }
        self.due += self.row;
    }

    /// The request so many behind the last one taken before is mandatory.
    fn pass_mark(&mut self, at: u64) {
        self.marks = self.marks.saturating_sub(1);
        // Mandatory ones may be closer to each other, and leave the others farther apart.
        let rest = (self.length + 1).saturating_sub(at) * PARTS / (self.places + self.marks + 1);
        self.row = self.row.max(rest);
        self.due = self.due.max(at * PARTS + self.row);
    }
}

/// By the place of a stream what it may claim.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    of: Vec<Claim>,
    /// Streams of which some wait, while a batch is formed.
    listed: Vec<u16>,
    /// By how much batches have run over lately.
    over: Span,
}

impl Spread {
    /// Of so many streams. Allocates.
    pub(super) fn new(streams: usize) -> Self {
        let listed = Vec::with_capacity(streams);
        Self { of: alloc::vec![Claim::default(); streams], listed, over: Span::ZERO }
    }

    /// For so many streams. Allocates.
    pub(super) fn resize(&mut self, streams: usize) {
        self.of.resize(streams, Claim::default());
        self.listed.reserve(streams);
    }

    /// A stream is new in its place, or counts its requests anew.
    pub(super) fn forget(&mut self, place: usize) {
        self.of[place] = Claim::default();
    }

    /// A batch is run.
    #[inline(never)]
    pub(super) fn note(&mut self, batch: &[Request]) {
        for request in batch {
            let claim = &mut self.of[usize::from(request.stream.slot)];
            (claim.last, claim.known) = (request.seq.max(claim.last), true);
        }
        self.over = self.over.saturating_sub(Span::from_nanos(self.over.as_nanos().div_ceil(LATELY)));
    }

    /// A batch has run over by so much.
    pub(super) fn note_over(&mut self, over: Span) {
        self.over = self.over.max(over);
    }

    /// By how much batches have run over lately: the next may as well.
    pub(super) fn over(&self) -> Span {
        self.over
    }

    /// Whether request number `seq` of a stream should wait although it is not likely to be answered, where of the room for those
    /// that wait so many quarters are taken: which of them are answered is chosen later.
    pub(super) fn is_candidate(&self, stream: StreamId, seq: u64, quarters: usize) -> bool {
        let row = self.of[usize::from(stream.slot)].latest;
        let enough = (ENOUGH >> quarters.min(ENOUGH as usize)).max(1);
        seq.is_multiple_of((row / (enough * PARTS)).max(1))
    }

    /// Tells by their index which requests of `queue`, from the one at `from` on, are run now, where the `marked` ones are run
    /// in any case.
    #[inline(never)]
    pub(super) fn choose<'a>(
        &mut self,
        now: Instant,
        (queue, from): (&Ordered, usize),
        marked: impl Iterator<Item = &'a Request> + Clone,
        outlook: Outlook,
        mut run: impl FnMut(usize),
    ) {
        let mut left = outlook.room;
        let clear = marked.clone().next().is_none();
        match self.horizon(now, (queue, from), clear, outlook) {
            Ok(spare) => {
                let mut spare = spare;
                for (index, request) in (from..).zip(queue.from(from)) {
                    let passed = self.is_passed(request);
                    if left == 0 {
                        break;
                    }
                    if passed && spare == 0 {
                        continue;
                    }
                    spare -= usize::from(passed);
                    left -= 1;
                    run(index);
                }
            }
            Err(short) => {
                self.plan(now, (queue, from), marked.clone(), short);
                let mut marked = marked.peekable();
                for (index, request) in (from..short.end).zip(queue.from(from)) {
                    if left == 0 {
                        break;
                    }
                    while let Some(mark) = marked.next_if(|mark| is_before(mark, request)) {
                        let claim = &mut self.of[usize::from(mark.stream.slot)];
                        if let Some(at) = mark.seq.checked_sub(claim.last) {
                            claim.now.pass_mark(at);
                        }
                    }
                    let Claim { now: plan, last, .. } = &mut self.of[usize::from(request.stream.slot)];
                    if request.seq < *last {
                        continue;
                    }
                    plan.count -= 1;
                    let at = request.seq - *last;
                    if plan.places > 0 && (at * PARTS >= plan.due || plan.count < plan.places) {
                        plan.take(at);
                        left -= 1;
                        run(index);
                    }
                }
            }
        }
    }

    /// Shares places among the requests of the queue, from the one at `from` on, that are `short` of them.
    fn plan<'a>(
        &mut self,
        now: Instant,
        (queue, from): (&Ordered, usize),
        marked: impl Iterator<Item = &'a Request>,
        short: Short,
    ) {
        for slot in self.listed.drain(..) {
            self.of[usize::from(slot)].now = Plan::default();
        }
        for request in queue.from(from).take(short.end - from) {
            let slot = request.stream.slot;
            let claim = &mut self.of[usize::from(slot)];
            if request.seq < claim.last {
                continue;
            }
            if claim.now.count == 0 {
                self.listed.push(slot);
                let oldest = if claim.known { request.seq.saturating_sub(OLDEST) } else { request.seq };
                (claim.last, claim.known) = (claim.last.max(oldest), true);
                if claim.seen[0] == (Instant::ZERO, 0) {
                    claim.seen = [(request.arrival, request.seq); 2];
                }
            }
            claim.now.count += 1;
            claim.now.entitled += u64::from(request.note == Note::Entitled);
            claim.now.length = claim.now.length.max(request.seq - claim.last.min(request.seq));
        }
        let end = queue.get(short.end - 1).copied();
        for mark in marked.take_while(|mark| end.is_some_and(|end| is_before(mark, &end))) {
            let claim = &mut self.of[usize::from(mark.stream.slot)];
            claim.now.marks += u64::from(claim.now.count > 0 && mark.seq > claim.last);
        }
        let alone = self.listed.len() == 1;
        for &slot in &self.listed {
            let claim = &mut self.of[usize::from(slot)];
            let newest = claim.last + claim.now.length;
            let (at, seq) = claim.seen[0];
            let (time, came) = (now.since(at).as_nanos().max(1), (newest - seq.min(newest)).max(1));
            claim.now.length = claim.now.length.max(1);
            claim.now.time = match alone {
                true => claim.now.length * PARTS,
                // The next one would be missed as well.
                false => (u128::from(claim.now.length + 1) * u128::from(time) / u128::from(came)) as u64,
            };
            if newest >= claim.seen[1].1 + ARRIVALS {
                claim.seen = [claim.seen[1], (now, newest)];
            }
        }
        self.share(short.places as u64);
        for &slot in &self.listed {
            let Claim { now: plan, row, latest, .. } = &mut self.of[usize::from(slot)];
            // Evenly up to the last, or so that as many are left behind the last that is taken: what rows have been as long
            // of late may be so again.
            let taken = plan.places + plan.marks;
            let (even, least) = (plan.length * PARTS / taken.max(1), (plan.length + 1) * PARTS / (taken + 1));
            *latest = (*row).clamp(least.min(even), even);
            *row = if *latest > *row { *latest } else { *row - (*row - *latest).div_ceil(PARTS) };
            plan.row = short.apart.max(*latest);
            plan.due = plan.row;
        }
    }

    /// Gives each stream its places: the shortest row for which there are enough.
    fn share(&mut self, places: u64) {
        // Without a row each has a place: one that came in no time has none by any row, and a batch that is due must not be empty.
        let need = |&Claim { now: plan, .. }: &Claim, row: u64| {
            let rows = plan.time.checked_div(row);
            rows.map_or(plan.count, |rows| rows.saturating_sub(plan.marks).max(plan.entitled).min(plan.count))
        };
        let all = |spread: &Self, row: u64| {
            spread.listed.iter().map(|&slot| need(&spread.of[usize::from(slot)], row)).sum::<u64>()
        };
        let longest = self.listed.iter().map(|&slot| self.of[usize::from(slot)].now.time).max().unwrap_or(0);
        let (mut short, mut long) = (0, longest + 1);
        for _ in 0..STEPS {
            let row = u64::midpoint(short, long);
            if row == short {
                break;
            }
            if all(self, row) > places { short = row } else { long = row }
        }
        let mut left = places.saturating_sub(all(self, long));
        for &slot in &self.listed {
            let claim = &mut self.of[usize::from(slot)];
            let own = need(claim, long);
            let more = left.min(need(claim, short) - own);
            claim.now.places = own + more;
            left -= more;
        }
    }
}

/// Whether `mark` came before `request`, if they are of one stream.
fn is_before(mark: &Request, request: &Request) -> bool {
    (mark.deadline, mark.seq) < (request.deadline, request.seq)
}
