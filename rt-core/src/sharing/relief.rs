//! Reliefs of Theorem E: of which lines a service has no need, as its requests begin in time for another reason.
//!
//! Let `C_j(z) = α_j(z - D_j + 1)` be what comes of each service from `z` before a request of `k` must be answered, and may go first, and
//! `N_j(z) = α_j(z - D_j + X_j + 1)` that and what may wait there. With one batch of `k` less in `c'`, a count `c` is enough at `z` if
//!
//! ```text
//! g + min( P̂ + share(c'(z)),  max over [z - P̂, z] of ⌊(Σ P_j·c'_j(x) + (n - 1)·P̂) / n⌋ + z - x )  ≤  z - D_k + X_k :
//! ```
//!
//! counted from there, or from the next start at `x`, of whose worker nothing is left. All mandatory requests of `k` begin within `X_k` if
//!
//! ```text
//! singly:   g + P̂ + share(c')  ≤  y - D_k + X_k  for every y, with c_j = C_j(y) ;
//! arrival:  c_j = p + ⌈(N_j - p)/B_j⌉, p = min(C_j, N_j - 1), is enough at some z ≤ D_k ;
//! after z:  c_j = ⌈N_j/B_j⌉ is enough at z, and the lines at all y < z hold.
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::sweep::Rises;
use super::{Demands, Reference, SharedBinding, Sharing};
use crate::time::Span;

/// So many distances are looked at.
const LOOKS: usize = 1 << 10;

/// By how much the requests of a service begin sooner than they must, counted from a point; nothing comes from there to the next.
#[derive(Clone, Copy)]
struct Margins {
    z: i128,
    /// Behind what runs there.
    behind: i128,
    /// From a start there.
    start: i128,
}

/// A distance, and the margin there.
type At = (i128, i128);

impl Margins {
    /// Counted from `z`, if no start is earlier than `start`, or none is so early that it could be in time.
    fn enough(self, z: i128, start: Option<At>) -> At {
        let behind = (z, self.behind + z - self.z);
        start.filter(|start| start.1 > behind.1).unwrap_or(behind)
    }

    /// From a start there, or at `begin` if that is later.
    fn start(self, begin: i128) -> At {
        let at = self.z.max(begin);
        (at, self.start + at - self.z)
    }
}

/// What stands for lines of a service.
pub(super) struct Eased {
    service: usize,
    /// `X_k - D_k`.
    rest: i128,
    /// `P̂`.
    wait: i128,
    /// For all of them.
    all: Option<SharedBinding>,
    /// For those from a distance on: by rising distance, each with a larger margin.
    from: Vec<(i128, At)>,
    /// Counted in full batches from each distance at which more comes, and up to which all were looked at.
    points: Vec<Margins>,
    counted: i128,
}

impl Eased {
    /// What stands for the line at `distance`, with the largest margin.
    pub(super) fn at(&self, distance: u64) -> Option<SharedBinding> {
        let distance = i128::from(distance);
        let from = self.from.partition_point(|&(from, _)| from <= distance).checked_sub(1);
        let before = from.map(|last| self.from[last].1);
        let after = [before, self.enough(distance)].into_iter().flatten();
        let after = after.map(|of| self.line(Reference::After, of));
        self.all
            .into_iter()
            .chain(after)
            .reduce(|one, other| if other.margin() > one.margin() { other } else { one })
    }

    fn line(&self, reference: Reference, (z, margin): At) -> SharedBinding {
        let span =
            |ns: i128| Span::from_nanos(u64::try_from(ns).unwrap_or(if ns < 0 { 0 } else { u64::MAX }));
        let rhs = z + self.rest;
        SharedBinding { reference, service: self.service, distance: span(z), lhs: span(rhs - margin), rhs }
    }

    /// Counted from `z`, behind what runs there or from the next start; none before the first of the points, or beyond what was counted.
    fn enough(&self, z: i128) -> Option<At> {
        if z > self.counted {
            return None;
        }
        let within = self.points.partition_point(|of| of.z <= z);
        let last = self.points[..within].last()?;
        let begin = z - self.wait;
        let first = self.points[..within].partition_point(|of| of.z <= begin).checked_sub(1);
        let starts = first.map_or(&[][..], |first| &self.points[first..within]);
        let start = starts.iter().map(|of| of.start(begin)).min_by_key(|of| of.1);
        Some(last.enough(z, start))
    }
}

/// The latest starts, each with a margin that none after it is below.
#[derive(Default)]
struct Latest {
    first: Option<i128>,
    starts: VecDeque<Margins>,
}

impl Latest {
    fn push(&mut self, of: Margins) {
        self.first.get_or_insert(of.z);
        while self.starts.back().is_some_and(|last| last.start >= of.start) {
            self.starts.pop_back();
        }
        self.starts.push_back(of);
    }

    /// The least margin of those from `begin` on, which only rises; none if some are before the first.
    fn since(&mut self, begin: i128) -> Option<At> {
        while self.starts.get(1).is_some_and(|next| next.z <= begin) {
            self.starts.pop_front();
        }
        self.first.filter(|&first| first <= begin)?;
        self.starts.iter().take(2).map(|of| of.start(begin)).min_by_key(|of| of.1)
    }
}

/// What comes of all services up to a point, and from there until the next one nothing more.
struct Point {
    z: i128,
    until: i128,
    /// Batches of each service, as the first and the second relief from a point count them, and what they take.
    batches: [Vec<u64>; 2],
    work: [u128; 2],
}

/// What is counted of each service, request by request.
pub(super) struct Reliefs<'a> {
    sharing: &'a Sharing,
    rises: Vec<Rises<'a>>,
    points: Vec<Point>,
    /// Of each service the least `X` if every batch may hold a single request, and where that is needed.
    singly: Vec<Option<SharedBinding>>,
}

impl<'a> Reliefs<'a> {
    /// With, of each service, what asks most of batches of one.
    pub(super) fn new(
        sharing: &'a Sharing,
        demands: &[Demands<'a>],
        singly: Vec<Option<SharedBinding>>,
    ) -> Self {
        let rises = demands.iter().map(|of| Rises::new(of, 1, 0)).collect();
        Self { sharing, rises, points: Vec::new(), singly }
    }

    /// `D`.
    fn due(&self, j: usize) -> i128 {
        i128::from((self.sharing.services[j].latency + self.sharing.guard).as_nanos())
    }

    /// Counts anew, where requests begin `within` such times: at so many distances of all services together.
    pub(super) fn count(&mut self, within: &[Span]) -> u64 {
        self.points.clear();
        let mut dues: Vec<_> = (0..within.len()).map(|j| self.due(j)).collect();
        dues.sort_unstable();
        let end = dues.last().copied().unwrap_or(0);
        dues.push(end);
        let mut z = self.sharing.services.iter().map(|s| i128::from(s.time.as_nanos())).min().unwrap_or(0);
        while self.points.len() < LOOKS && z <= end {
            let mut until = dues[dues.partition_point(|&due| due < z)];
            let mut batches = [Vec::with_capacity(within.len()), Vec::with_capacity(within.len())];
            for (j, start) in within.iter().enumerate() {
                let come = z - self.due(j) + 1;
                let mut count = |length: i128| {
                    let (requests, next) = self.rises[j].at(length);
                    until = until.min(next.saturating_add(z - length - 1));
                    requests
                };
                let all = count(come + i128::from(start.as_nanos()));
                let single = count(come).min(all.saturating_sub(1));
                let full = |requests: u64| requests.div_ceil(self.sharing.services[j].batch as u64);
                batches[0].push(single + full(all - single));
                batches[1].push(full(all));
            }
            let work = [0, 1].map(|how| self.sharing.work(&batches[how]));
            self.points.push(Point { z, until, batches, work });
            z = until + 1;
        }
        (self.points.len() * within.len()) as u64
    }

    /// What eases `k` where requests begin `within` such times, for which was counted.
    pub(super) fn of(&self, k: usize, within: &[Span]) -> Eased {
        let sharing = self.sharing;
        let due = self.due(k);
        let mut eased = Eased {
            service: k,
            rest: i128::from(within[k].as_nanos()) - due,
            wait: sharing.longest.as_nanos().into(),
            all: None,
            from: Vec::new(),
            points: Vec::with_capacity(self.points.len()),
            counted: self.points.last().map_or(0, |last| last.until),
        };
        eased.all = self.singly[k].map(|of| {
            let z = i128::from(of.distance.as_nanos());
            eased.line(of.reference, (z, z + eased.rest - i128::from(of.lhs.as_nanos())))
        });
        let mut latest = [Latest::default(), Latest::default()];
        for point in &self.points {
            for (how, latest) in latest.iter_mut().enumerate() {
                if how == 0 && point.until > due {
                    continue;
                }
                let of = self.margins(k, point, how, eased.rest);
                latest.push(of);
                let best = of.enough(point.until, latest.since(point.until - eased.wait));
                if how == 1 {
                    eased.points.push(of);
                    if eased.from.last().is_none_or(|last| best.1 > last.1.1) {
                        eased.from.push((point.until, best));
                    }
                } else if eased.all.is_none_or(|all| best.1 > all.margin()) {
                    eased.all = Some(eased.line(Reference::Arrival, best));
                }
            }
        }
        eased
    }

    /// Of each service of which something stands for lines, at `first` first, from which distance on it has no need of any, and what stands for
    /// them, where requests begin `within` such times.
    pub(super) fn stand(
        &mut self,
        within: &[Span],
        first: &[Option<u64>],
    ) -> Vec<Option<(u64, SharedBinding)>> {
        self.count(within);
        let stands = |(k, first): (usize, &Option<u64>)| {
            let (first, eased) = ((*first)?, self.of(k, within));
            let all = eased.all.filter(|line| line.margin() >= 0).map(|line| (0, line));
            all.or_else(|| Some((first, eased.at(first)?)))
        };
        first.iter().enumerate().map(stands).collect()
    }

    fn margins(&self, k: usize, point: &Point, how: usize, rest: i128) -> Margins {
        let sharing = self.sharing;
        let [guard, longest, own] = [sharing.guard, sharing.longest, sharing.services[k].time]
            .map(|span| i128::from(span.as_nanos()));
        let n = sharing.workers as i128;
        let batches = &point.batches[how];
        // The request itself is one.
        let work = point.work[how] as i128 - if batches[k] == 0 { 0 } else { own };
        let share = sharing.share_but(work as u128, batches, k) as i128;
        let start = (work + (n - 1) * longest) / n;
        let rhs = point.z + rest;
        Margins { z: point.z, behind: rhs - guard - longest - share, start: rhs - guard - start }
    }
}
