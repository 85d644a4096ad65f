//! How far a line is looked at.
//!
//! *Over*: the work that can have been begun is at most a sum of straight lines, each of which counts from where it is above
//! nothing. If all of them together rise more slowly than the workers work, these gain on it at every distance; and where
//! they are so far ahead that no line is tighter than one before, they stay so. *Repeated*: once the least bound alone speaks
//! for each curve, counts grow by whole batches (of whole turns) in every period; if the workers do these in a period, no
//! margin is smaller a period later. For that to say something each line must have been there for a period, with a margin
//! that holds in the long run: that which the average of all workers alone gives it, or, where all batches take the same
//! time, their number, in as many periods as there are workers.

use std::cmp::Ordering;

use super::super::problem::{Stream, up};
use super::super::theorem::{lcm, repetition};
use super::lines::{FARTHEST, Lines, Reference, Rule};
use super::read::Service;

/// A part of a nanosecond of work, for slopes that are rounded up.
const FINE: i128 = 1 << 40;

/// How far the lines of one reference are looked at.
pub(super) struct Horizon {
    workers: i128,
    /// Of each service the slope of its work, in parts, and what it is at distance 0.
    work: Vec<(i128, i128)>,
    /// Of each other service its turns against what can have come.
    grows: Vec<Ordering>,
    /// From what distance on, after what period all counts repeat.
    pub(super) repeats: Option<(i128, i128)>,
}

impl Horizon {
    /// What they fall short of at `y` for all work but `late` of them, in parts of a nanosecond.
    fn short(&self, y: i128, late: i128) -> i128 {
        let work: i128 = self.work.iter().map(|(slope, at_0)| (slope * y + at_0).max(0)).sum();
        work - (self.workers * y - late) * FINE
    }

    /// By how much sooner the workers would have to begin at `y` to have done all but `late` of the work; nothing is known if
    /// what comes is as much as they can do.
    pub(super) fn lacking(&self, y: i128, late: i128) -> Option<i128> {
        self.gain().then(|| up(self.short(y, late).max(0), self.workers * FINE))
    }

    /// From where on the workers have done all but `late` of the work, for good.
    pub(super) fn over(&self, late: i128) -> Option<i128> {
        let (mut no, mut yes) = (-1, FARTHEST);
        if !self.gain() || self.short(yes, late) > 0 {
            return None;
        }
        while yes - no > 1 {
            let middle = (no + yes) / 2;
            if self.short(middle, late) <= 0 { yes = middle } else { no = middle }
        }
        Some(yes)
    }

    /// Whether the straight lines rise more slowly than the workers work.
    pub(super) fn gain(&self) -> bool {
        let slope = self.work.iter().fold(0i128, |sum, work| sum.saturating_add(work.0));
        slope < self.workers * FINE
    }

    /// The batches up to the last of `service`, if of others only what grows more slowly of turns and requests were known, or
    /// both if they grow alike: what repeats.
    pub(super) fn of_the_slower(
        &self,
        rule: &Rule,
        service: usize,
        batches: &[i128],
        requests: &[i128],
    ) -> Vec<i128> {
        let Rule::Turns(turns) = rule else { return batches.to_vec() };
        let rounds = up(batches[service], turns[service]);
        let of = |j: usize| match self.grows[j] {
            _ if j == service => batches[j],
            Ordering::Less => rounds * turns[j],
            Ordering::Equal => requests[j].min(rounds * turns[j]),
            Ordering::Greater => requests[j],
        };
        (0..batches.len()).map(of).collect()
    }
}

impl Lines<'_> {
    /// Of the lines of `reference`; for turns those of `service`.
    pub(super) fn horizon(&self, reference: Reference, service: usize) -> Horizon {
        let shared = self.shared;
        let all = || (0..shared.services.len()).filter(|&j| shared.services[j].demands());
        // At distance 0 they are so long; `one` is what a part of a batch or turn is less than.
        let part = |(slope, most): (i128, i128), length: i128, one: i128| {
            (slope, slope.saturating_mul(length).saturating_add((most + one).saturating_mul(FINE)))
        };
        let length = |j: usize| self.lengths(reference, service, j, 0)[0].unwrap_or(0);
        let grows = (0..shared.services.len()).map(|j| self.turns_to_requests(service, j));
        let grows: Vec<_> = grows.collect();
        let work = all().map(|j| {
            let own = &shared.services[j];
            match (reference, self.rule) {
                (Reference::Turn, Rule::Turns(turns)) if j != service => {
                    let (s, turn) = (&shared.services[service], own.time * turns[j]);
                    if grows[j].is_le() {
                        let each = straight(s, turn, s.batch * turns[service]);
                        part(each, length(service), turn)
                    } else {
                        part(straight(own, own.time, 1), length(j), 0)
                    }
                }
                _ => {
                    let each = straight(own, own.time, own.batch);
                    let (slope, mut at_0) = part(each, length(j), own.time);
                    // One less than in a longer time.
                    if let Some(longer) = self.lengths(reference, service, j, 0)[1] {
                        at_0 = at_0.min(part(each, longer, own.time).1 - own.time * FINE / own.batch);
                    }
                    (slope, at_0)
                }
            }
        });
        let (work, repeats) = (work.collect(), self.repeats(reference, service, &grows));
        Horizon { workers: shared.workers, work, grows, repeats }
    }

    /// How many batches turns of `other` are, against its requests, in a time in which both repeat; if that is too long, about.
    fn turns_to_requests(&self, service: usize, other: usize) -> Ordering {
        let Rule::Turns(turns) = self.rule else { return Ordering::Equal };
        let (s, j) = (&self.shared.services[service], &self.shared.services[other]);
        let whole = s.batch * turns[service];
        let both = repeated(promised(s).chain(promised(j)), whole);
        let exactly =
            both.map(|(_, period)| (grown(s, period) / whole * turns[other]).cmp(&grown(j, period)));
        exactly.unwrap_or_else(|| straight(s, turns[other], whole).0.cmp(&straight(j, 1, 1).0))
    }

    fn repeats(&self, reference: Reference, service: usize, grows: &[Ordering]) -> Option<(i128, i128)> {
        let shared = self.shared;
        let all = || (0..shared.services.len()).filter(|&j| shared.services[j].demands());
        let shares = if self.uniform { shared.workers } else { 1 };
        let (from, period, batches): (_, _, Vec<_>) = match (reference, self.rule) {
            (Reference::Turn, Rule::Turns(turns)) => {
                let own = &shared.services[service];
                let arriving = |j: usize| j != service && grows[j].is_ge();
                let streams = all().filter(|&j| j == service || arriving(j));
                let streams = streams.flat_map(|j| promised(&shared.services[j]));
                let whole = own.batch.checked_mul(turns[service])?.checked_mul(shares)?;
                let (from, period) = repeated(streams, whole)?;
                let rounds = grown(own, period) / own.batch / turns[service];
                let of = |j: usize| {
                    if arriving(j) { grown(&shared.services[j], period) } else { rounds * turns[j] }
                };
                (from, period, all().map(|j| (j, of(j))).collect())
            }
            _ => {
                let due = all().map(|j| shared.due(j)).max().unwrap_or(0);
                let whole = all().try_fold(1, |whole, j| lcm(whole, shared.services[j].batch))?;
                let streams = all().flat_map(|j| promised(&shared.services[j]));
                let (from, period) = repeated(streams, whole.checked_mul(shares)?)?;
                let of = |j: usize| grown(&shared.services[j], period) / shared.services[j].batch;
                (from + due, period, all().map(|j| (j, of(j))).collect())
            }
        };
        let work = |&(j, count): &(usize, i128)| shared.services[j].time.saturating_mul(count);
        let work = batches.iter().map(work).fold(0, i128::saturating_add);
        (work <= shared.workers * period).then_some((from, period))
    }
}

fn promised(service: &Service) -> impl Iterator<Item = &Stream> {
    service.streams.iter().filter(|s| s.p > 0)
}

/// From where on, and in what period, the mandatory requests of each grow by a multiple of `whole`: in so many of the
/// periods in which they grow by the same number.
fn repeated<'a>(streams: impl IntoIterator<Item = &'a Stream>, whole: i128) -> Option<(i128, i128)> {
    let (from, period) = repetition(streams, 1)?;
    Some((from, period.checked_mul(whole).filter(|&period| period < 1 << 64)?))
}

/// `(r, e)` so that `time / size` for each of the mandatory requests in any length is at most `r·length/FINE + e`.
fn straight(service: &Service, time: i128, size: i128) -> (i128, i128) {
    promised(service).fold((0, 0), |(rate, most), stream| {
        let Some(slow) = stream.slowest() else { return (rate, most) };
        // In a whole step more it is always the same more, and at most all of one in a part of one.
        let work = time.checked_mul(stream.p * slow.count() * FINE);
        let whole = work.map_or(i128::MAX, |work| work / (stream.q * slow.step * size) + 1);
        let part = up(stream.p * slow.most(slow.step).0, stream.q) + 1;
        (whole.saturating_add(rate), most + up(time * part, size))
    })
}

/// By how many mandatory requests a service's curves grow in a period.
fn grown(service: &Service, period: i128) -> i128 {
    promised(service).map(|s| s.p * s.growth(period) / s.q).sum()
}
