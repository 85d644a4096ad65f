//! How long a batch may be that goes before those that wait: the two lines of `docs/guarantee.md`, read off the page
//! at every tick.

use super::sharing::{Move, Service, Shared, State};
use super::{Stream, state::Record};

/// Ticks that are looked ahead: longer than anything keeps the workers busy.
const FAR: u64 = 100;

/// The shield of a system by its definition.
pub(crate) struct Ahead<'a> {
    pub(crate) shared: &'a Shared,
    /// By how much some requests must begin sooner than their answers ask.
    pub(crate) early: u8,
    /// Services of whose lines something else stands for some, a bit each, and those for which that is at every distance.
    pub(crate) relieved: u64,
    pub(crate) singly: u64,
    /// By how much more it grants.
    pub(crate) generous: u8,
}

impl Ahead<'_> {
    /// As [`Shared::judge`] with batches that go before others; also how often one may, of the batches that were asked for.
    pub(crate) fn judge(&self, limit: usize) -> (Result<usize, Option<Vec<Move>>>, usize, usize) {
        let (mut asked, mut granted) = (0, 0);
        let found = self.shared.search(limit, |state| {
            let longest = self.longest(state);
            asked += 1;
            granted += usize::from(longest > 0);
            longest
        });
        (found, asked, granted)
    }

    fn longest(&self, state: &State) -> u8 {
        let kept = u64::from(if state.overrun { 0 } else { self.shared.overrun });
        let services = self.shared.services.iter().enumerate();
        let requests: Vec<Vec<(u64, u64)>> = services.map(|(s, of)| self.requests(state, s, of)).collect();
        // What may run over is for each worker; what the others have left is what they have in all.
        let taken = state.busy.iter().map(|&left| u64::from(left)).sum::<u64>();
        let kept = kept * self.shared.workers as u64 + taken;
        let most = if self.shared.turns {
            self.by_turns(state, &requests, (kept, taken))
        } else {
            self.by_deadline(state, &requests)
        };
        (most.saturating_sub(kept) + u64::from(self.generous)).min(u64::from(self.shared.longest)) as u8
    }

    /// When each of a service comes, 0 for those that wait, and when it must be answered, lateness left.
    fn requests(&self, state: &State, s: usize, service: &Service) -> Vec<(u64, u64)> {
        let late = u64::from(self.shared.late);
        let waiting =
            state.waiting[s].as_slice().iter().map(|&left| (0, u64::from(left).saturating_sub(late)));
        let latency = u64::from(service.deadline) - late;
        let mut coming: Vec<u64> = service
            .streams
            .iter()
            .zip(&state.streams[s])
            .flat_map(|(k, &record)| all_at_once(k, record))
            .collect();
        coming.sort_unstable();
        waiting.chain(coming.into_iter().map(|at| (at, at + latency))).collect()
    }

    fn by_deadline(&self, state: &State, requests: &[Vec<(u64, u64)>]) -> u64 {
        let late = u64::from(self.shared.late);
        let first = state.waiting.iter().filter_map(|queue| queue.as_slice().first()).min();
        let first = first.map_or(0, |&left| u64::from(left).saturating_sub(late));
        let workers = self.shared.workers as u64;
        let longest = self.shared.services.iter().map(|s| u64::from(s.time)).max().unwrap_or(0);
        let deadlines = self.shared.services.iter().map(|s| u64::from(s.deadline));
        let until = deadlines.max().unwrap_or(0) + late;
        let batches = |y: u64, s: usize, apart: bool| {
            let waiting = state.waiting[s].len();
            let due = |of: &[(u64, u64)]| of.iter().filter(|&&(_, due)| due <= y).count();
            let (before, come) = (due(&requests[s][..waiting]), due(&requests[s][waiting..]));
            let batch = self.shared.services[s].batch;
            // Each of those that come may be in a batch of its own.
            if apart { before.div_ceil(batch) + come } else { (before + come).div_ceil(batch) }
        };
        let left = |y: u64, k: usize| {
            let has = |of: u64| of >> k & 1 == 1;
            if has(self.relieved) && !has(self.singly) && y > until {
                return u64::MAX;
            }
            let work =
                |s: usize| batches(y, s, has(self.relieved)) as u64 * u64::from(self.shared.services[s].time);
            let work: u64 = (0..requests.len()).map(work).sum();
            (workers * y.saturating_sub(self.early.into())).saturating_sub(work + (workers - 1) * longest)
        };
        let due = |y: u64, k: usize| requests[k].iter().any(|&(_, due)| due == y);
        let lines = (first..FAR).flat_map(|y| (0..requests.len()).map(move |k| (y, k)));
        lines.filter(|&(y, k)| due(y, k)).map(|(y, k)| left(y, k)).min().unwrap_or(u64::MAX)
    }

    fn by_turns(&self, state: &State, requests: &[Vec<(u64, u64)>], (kept, taken): (u64, u64)) -> u64 {
        let workers = self.shared.workers as u64;
        let services = &self.shared.services;
        let waiting = |s: usize| state.waiting[s].len();
        let mut least = u64::MAX;
        for s in (0..services.len()).filter(|&s| waiting(s) > 0) {
            // When the batch before begins at the latest, the one that goes ahead taking nothing.
            let mut begun = 0;
            for (place, &(at, due)) in requests[s].iter().enumerate() {
                // It would find none waiting, whatever goes ahead within what has been found, were nothing late.
                let longest = least.saturating_sub(kept).min(self.shared.longest.into());
                let clear = (longest + taken + begun).div_ceil(workers);
                if place >= waiting(s) && at > clear {
                    break;
                }
                let rounds = (place / services[s].batch) as u64;
                let turns = rounds / u64::from(services[s].turn) + 1;
                let others = (0..services.len()).filter(|&i| i != s).map(|i| {
                    let by = due + u64::from(self.shared.late);
                    let come = requests[i][waiting(i)..].iter().filter(|&&(at, _)| at <= by).count() as u64;
                    let batches = (waiting(i).div_ceil(services[i].batch) as u64 + come)
                        .min(turns * u64::from(services[i].turn));
                    batches * u64::from(services[i].time)
                });
                begun = others.sum::<u64>() + rounds * u64::from(services[s].time);
                let left = workers * due.saturating_sub(services[s].time.into());
                least = least.min(left.saturating_sub(begun));
            }
        }
        least
    }
}

/// When the mandatory requests of a stream come that sends as soon as it may.
fn all_at_once(stream: &Stream, mut record: Record) -> Vec<u64> {
    let mut coming = Vec::new();
    for at in 0..FAR {
        while record.allows(stream) {
            if record.arrive(stream) {
                coming.push(at);
            }
        }
        record.tick(stream);
    }
    coming
}
