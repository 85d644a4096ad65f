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

/// With which `X` a service has no need of lines, and of which.
pub(super) struct Eased {
    /// For all of them.
    all: Option<SharedBinding>,
    /// For those from a distance on: by rising distance, and falling `X`.
    from: Vec<(u64, SharedBinding)>,
    /// Its `X` as these lines have it.
    within: i128,
}

impl Eased {
    /// Nothing eases it.
    pub(super) const fn never() -> Self {
        Self { all: None, from: Vec::new(), within: 0 }
    }

    /// The least `X` with which the line at `distance` need not hold, in nanoseconds.
    pub(super) fn needs(&self, distance: u64) -> i128 {
        let from = self.from.partition_point(|&(from, _)| from <= distance).checked_sub(1);
        let lines = self.all.into_iter().chain(from.map(|last| self.from[last].1));
        lines.map(|line| self.within - line.margin()).min().unwrap_or(i128::MAX)
    }

    /// From which distance on its lines need not hold, and the line that is there for them; `None` if none does.
    pub(super) fn cut(&self) -> Option<(u64, SharedBinding)> {
        let holds = |line: &SharedBinding| line.margin() >= 0;
        let all = self.all.filter(holds).map(|line| (0, line));
        all.or_else(|| self.from.iter().copied().find(|(_, line)| holds(line)))
    }
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
        let [guard, longest, own] =
            [sharing.guard, sharing.longest, sharing.services[k].time].map(|span| u128::from(span.as_nanos()));
        let (n, last, wait) = (sharing.workers as u128, due(k), longest as i128);
        let line = |reference, z: i128, lhs: u128| SharedBinding {
            reference,
            service: k,
            distance: Span::from_nanos(u64::try_from(z).unwrap_or(0)),
            lhs: Span::from_nanos(u64::try_from(lhs).unwrap_or(u64::MAX)),
            rhs: z - last + i128::from(within[k].as_nanos()),
        };
        let end = 2 * (0..within.len()).map(due).max().unwrap_or(0);
        let mut eased = Eased::never();
        eased.within = within[k].as_nanos().into();
        eased.all = self.singly[k].map(|of| line(of.reference, of.distance.as_nanos().into(), of.lhs.as_nanos().into()));
        // Counted from a start, where more comes: singly, and in full batches.
        let mut starts: [Vec<SharedBinding>; 2] = [Vec::new(), Vec::new()];
        let mut batches = [alloc::vec![0; within.len()], alloc::vec![0; within.len()]];
        let first = i128::from(sharing.services[k].time.as_nanos());
        let mut z = first;
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
            for (how, (batches, starts)) in batches.iter_mut().zip(&mut starts).enumerate() {
                let reference = [Reference::Arrival, Reference::After][how];
                // The request itself is one.
                batches[k] = batches[k].max(1);
                let share = sharing.share(batches, k);
                let mean = (sharing.work(batches) - own + (n - 1) * longest) / n;
                starts.push(line(reference, z, guard + if n == 1 { share } else { mean }));
                let mut best = line(reference, until, guard + longest + share);
                let begin = until - wait;
                if begin >= first {
                    // The worst of those from which it may be counted.
                    let mut worst = best;
                    for (i, start) in starts.iter().rev().enumerate() {
                        let at = i128::from(start.distance.as_nanos());
                        let start = line(reference, at.max(begin), start.lhs.as_nanos().into());
                        if i == 0 || start.margin() < worst.margin() {
                            worst = start;
                        }
                        if at <= begin {
                            break;
                        }
                    }
                    if worst.margin() > best.margin() {
                        best = worst;
                    }
                }
                let better = |of: Option<SharedBinding>| of.is_none_or(|of| best.margin() > of.margin());
                if how == 1 && better(eased.from.last().map(|of| of.1)) {
                    eased.from.push((until as u64, best));
                }
                if how == 0 && until <= last && better(eased.all) {
                    eased.all = Some(best);
                }
            }
            z = until + 1;
            if z > end {
                break;
            }
        }
        eased
    }
}
