//! Reliefs of Theorem E: of which lines a service has no need, as its requests begin in time for another reason.
//!
//! Let `C_j(z) = α_j(z - D_j + 1)` be what comes of each service from `z` before a request of `k` must be answered, and may go first, and
//! `N_j(z) = α_j(z - D_j + X_j + 1)` that and what may wait there. With one batch of `k` less in `c'`, a count `c` is enough at `z` if
//!
//! ```text
//! g + min( P̂ + share(c'(z)),  max over [z - P̂, z] of u + z - x )  ≤  z - D_k + X_k ,
//! u = share(c'(x)) for n = 1, else ⌊(Σ P_j·c'_j(x) + (n - 1)·P̂) / n⌋ :
//! ```
//!
//! counted from there, or from the next start at `x`, of whose worker nothing is left. All mandatory requests of `k` begin within `X_k` if
//!
//! ```text
//! singly:   g + P̂ + share(c')  ≤  y - D_k + X_k  for every y, with c_j = C_j(y) ;
//! arrival:  c_j = p + ⌈(N_j - p)/B_j⌉, p = min(C_j, N_j - 1), is enough at some z ≤ D_k ;
//! after z:  c_j = ⌈N_j/B_j⌉ is enough at z, and the lines at all y < z hold.
//! ```

use alloc::vec::Vec;

use super::sweep::Rises;
use super::{Demands, Reference, SharedBinding, Sharing};
use crate::time::Span;

/// So many distances are looked at.
const LOOKS: usize = 1 << 10;

/// What stands for lines of a service.
pub(super) struct Eased {
    /// For all of them.
    all: Option<SharedBinding>,
    /// For those from a distance on: by rising distance, each with a larger margin.
    from: Vec<(i128, SharedBinding)>,
    /// Counted in full batches from each distance at which more comes: behind what runs there, and from a start there.
    points: Vec<[SharedBinding; 2]>,
    /// `P̂`.
    wait: i128,
}

impl Eased {
    /// What stands for the line at `distance`, with the largest margin.
    pub(super) fn at(&self, distance: u64) -> Option<SharedBinding> {
        let from = self.from.partition_point(|&(from, _)| from <= distance.into()).checked_sub(1);
        let there = enough(&self.points, distance.into(), self.wait);
        let all = [self.all, from.map(|last| self.from[last].1), there];
        all.into_iter().flatten().reduce(|one, other| if other.margin() > one.margin() { other } else { one })
    }

    /// What stands for all of them.
    pub(super) fn for_all(&self) -> Option<SharedBinding> {
        self.all
    }
}

/// Counted from `z`, behind what runs there or from the next start, by lines at the distances at which more comes; none before the first
/// of them.
fn enough(points: &[[SharedBinding; 2]], z: i128, wait: i128) -> Option<SharedBinding> {
    let at = |line: &SharedBinding, z: i128| {
        let later = z - i128::from(line.distance.as_nanos());
        SharedBinding {
            distance: Span::from_nanos(u64::try_from(z).unwrap_or(0)),
            rhs: line.rhs + later,
            ..*line
        }
    };
    let within = points.partition_point(|[of, _]| i128::from(of.distance.as_nanos()) <= z);
    let behind = at(&points[within.checked_sub(1)?][0], z);
    let begin = z - wait;
    let mut worst: Option<SharedBinding> = None;
    for [_, start] in points[..within].iter().rev() {
        let from = i128::from(start.distance.as_nanos());
        at(start, from.max(begin)).tighten(&mut worst);
        if from <= begin {
            return worst.filter(|worst| worst.margin() > behind.margin()).or(Some(behind));
        }
    }
    // No start is so early that it could be in time.
    Some(behind)
}

/// What is counted of each service, request by request.
pub(super) struct Reliefs<'a> {
    sharing: &'a Sharing,
    rises: Vec<Rises<'a>>,
    /// Of each service the least `X` if every batch may hold a single request, and where that is needed.
    pub(super) singly: Vec<Option<SharedBinding>>,
}

impl<'a> Reliefs<'a> {
    /// All but those by single requests.
    pub(super) fn new(sharing: &'a Sharing, demands: &[Demands<'a>]) -> Self {
        let rises = demands.iter().map(|of| Rises::new(of, 1, 0)).collect();
        Self { sharing, rises, singly: alloc::vec![None; demands.len()] }
    }

    /// What eases `k` where requests begin `within` such times.
    pub(super) fn of(&mut self, k: usize, within: &[Span]) -> Eased {
        let sharing = self.sharing;
        let due = |j: usize| i128::from((sharing.services[j].latency + sharing.guard).as_nanos());
        let [guard, longest, own] = [sharing.guard, sharing.longest, sharing.services[k].time]
            .map(|span| u128::from(span.as_nanos()));
        let (n, last, wait) = (sharing.workers as u128, due(k), longest as i128);
        let line = |reference, z: i128, lhs: u128| SharedBinding {
            reference,
            service: k,
            distance: Span::from_nanos(u64::try_from(z).unwrap_or(0)),
            lhs: Span::from_nanos(u64::try_from(lhs).unwrap_or(u64::MAX)),
            rhs: z - last + i128::from(within[k].as_nanos()),
        };
        let end = 2 * (0..within.len()).map(due).max().unwrap_or(0);
        let mut all = self.singly[k]
            .map(|of| line(of.reference, of.distance.as_nanos().into(), of.lhs.as_nanos().into()));
        let mut from: Vec<(i128, SharedBinding)> = Vec::new();
        // Singly, and in full batches.
        let mut points: [Vec<[SharedBinding; 2]>; 2] = [Vec::new(), Vec::new()];
        let mut batches = [alloc::vec![0; within.len()], alloc::vec![0; within.len()]];
        let mut z = i128::from(sharing.services[k].time.as_nanos());
        for _ in 0..LOOKS {
            // Until then nothing more comes.
            let mut until = if z <= last { last } else { end };
            for j in 0..within.len() {
                let come = z - due(j) + 1;
                let mut count = |length: i128| {
                    let (requests, next) = self.rises[j].at(length);
                    until = until.min(next.saturating_add(z - length - 1));
                    requests
                };
                let all = count(come + i128::from(within[j].as_nanos()));
                let single = count(come).min(all.saturating_sub(1));
                let full = |requests: u64| requests.div_ceil(sharing.services[j].batch as u64);
                (batches[0][j], batches[1][j]) = (single + full(all - single), full(all));
            }
            for (how, (batches, points)) in batches.iter_mut().zip(&mut points).enumerate() {
                let reference = [Reference::Arrival, Reference::After][how];
                // The request itself is one.
                batches[k] = batches[k].max(1);
                let share = sharing.share(batches, k);
                let mean = (sharing.work(batches) - own + (n - 1) * longest) / n;
                let behind = line(reference, z, guard + longest + share);
                points.push([behind, line(reference, z, guard + if n == 1 { share } else { mean })]);
                let Some(best) = enough(points, until, wait) else { continue };
                let better = |of: Option<SharedBinding>| of.is_none_or(|of| best.margin() > of.margin());
                if how == 1 && better(from.last().map(|of| of.1)) {
                    from.push((until, best));
                }
                if how == 0 && until <= last && better(all) {
                    all = Some(best);
                }
            }
            z = until + 1;
            if z > end {
                break;
            }
        }
        let [_, points] = points;
        Eased { all, from, points, wait }
    }
}
