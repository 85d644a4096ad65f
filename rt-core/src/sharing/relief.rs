//! A relief for Theorem E: when a mandatory request begins that is counted from its own arrival on, whatever was before.
//!
//! Reckoned `z ≤ D_k` back from when a request of `k` must be answered, let of each service `N_j = α_j(z - D_j + X_j + 1)` be what waits
//! or comes and may go first, and `A_j = α_j(z - D_j + 1)` what comes of it. A batch that is not full leaves nothing waiting, so each but
//! the last is followed by one of those that come:
//!
//! ```text
//! c_j = p + ⌈(N_j - p) / B_j⌉ ,   p = min(A_j, N_j - 1) .
//! ```
//!
//! Every mandatory request of `k` begins within `X_k`, whatever the lines of `k` say, if for some `z`, with one batch of `k` less in `c'`,
//!
//! ```text
//! g + P̂ + share(c')  ≤  z - D_k + X_k .
//! ```

use alloc::vec::Vec;

use super::sweep::Rises;
use super::{Demands, Reference, SharedBinding, Sharing};
use crate::time::Span;

/// So many distances are looked at.
const LOOKS: usize = 1 << 10;

/// What is counted of each service, request by request.
pub(super) struct Reliefs<'a> {
    sharing: &'a Sharing,
    rises: Vec<Rises<'a>>,
}

impl<'a> Reliefs<'a> {
    pub(super) fn new(sharing: &'a Sharing, demands: &[Demands<'a>]) -> Self {
        Self { sharing, rises: demands.iter().map(|of| Rises::new(of, 1, 0)).collect() }
    }

    /// The line of `k` with the largest margin where requests begin `within` such times; `None` if its deadline leaves no time for one.
    pub(super) fn of(&mut self, k: usize, within: &[Span]) -> Option<SharedBinding> {
        let sharing = self.sharing;
        let due = |j: usize| i128::from((sharing.services[j].latency + sharing.guard).as_nanos());
        let mut z;
        let (last, mut best) = (due(k), None::<SharedBinding>);
        let mut batches = alloc::vec![0; within.len()];
        let [guard, longest, own] =
            [sharing.guard, sharing.longest, sharing.services[k].time].map(|span| u128::from(span.as_nanos()));
        let line = |distance: i128, lhs: u128| SharedBinding {
            reference: Reference::Arrival,
            service: k,
            distance: Span::from_nanos(u64::try_from(distance).unwrap_or(0)),
            lhs: Span::from_nanos(u64::try_from(lhs).unwrap_or(u64::MAX)),
            rhs: distance - last + i128::from(within[k].as_nanos()),
        };
        z = i128::from((sharing.services[k].time).as_nanos());
        let first = z;
        // The line of each distance at which more comes, counted from a start.
        let mut starts: Vec<SharedBinding> = Vec::new();
        for _ in 0..LOOKS {
            if z > last {
                break;
            }
            // So far nothing more comes.
            let mut until = last;
            for (j, batches) in batches.iter_mut().enumerate() {
                let come = z - due(j) + 1;
                let mut count = |length: i128| {
                    let (requests, next) = self.rises[j].at(length);
                    until = until.min(next.saturating_add(z - length - 1));
                    requests
                };
                let all = count(come + i128::from(within[j].as_nanos()));
                let single = count(come).min(all.saturating_sub(1));
                *batches = single + (all - single).div_ceil(sharing.services[j].batch as u64);
            }
            // The request itself is one.
            batches[k] = batches[k].max(1);
            let clear = line(until, guard + longest + sharing.share(&batches, k));
            let n = sharing.workers as u128;
            let work = sharing.work(&batches) - own;
            starts.push(line(z, guard + (work + (n - 1) * longest) / n));
            let wait = (guard + longest) as i128;
            if until - wait >= first {
                // The worst of those from which it may be counted.
                let mut worst = None;
                for start in starts.iter().rev() {
                    let at = i128::from(start.distance.as_nanos()).max(until - wait);
                    let start = line(at, u128::from(start.lhs.as_nanos()));
                    start.tighten(&mut worst);
                    if at == until - wait {
                        break;
                    }
                }
                for found in [worst, Some(clear)].into_iter().flatten() {
                    if best.is_none_or(|best| found.margin() > best.margin()) {
                        best = Some(found);
                    }
                }
            }
            z = until + 1;
        }
        best
    }
}
