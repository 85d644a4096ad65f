//! Theorem E: a free worker serves the service whose oldest mandatory request has the earliest deadline.
//!
//! Let `D_s = L_s + g`, `g` being by how much dispatch may be late, and `X_s ≤ D_s - P_s`. Reckoned `y` back from when the
//! request looked at must be answered, let `c_j` be `⌈N_j / B_j⌉` with
//!
//! ```text
//! clear:    N_j = α_j(y - D_j + 1)
//! short i:  N_j = α_j(y - D_j + h_j + 1),  h_j = max(0, min(X_j, X_i + D_j - D_i))
//!           N_i = min( α_i(y - D_i + 1), α_i(y - D_i + X_i + 1) - 1 ),  for B_i > 1, N_i ≥ 1
//! ```
//!
//! Every mandatory request begins within `X` if for each `y`, and each `k` with `c_k ≥ 1`, of which there be one less in `c'`,
//!
//! ```text
//! clear:    g + P̂ + share(c')  ≤  y - D_k + X_k
//! short i:  g + min( P̂ + share(c'), ⌊(P_i + (n - 1)·P̂ + Σ P_j·c'_j) / n⌋ )  ≤  y - D_k + X_k
//! ```
//!
//! First `X = D - P` is tried, which asks least of each line; then the least `X` of all, which is found from below, as a
//! smaller `X` makes fewer requests wait at once.

use alloc::vec::Vec;

use super::horizon::Horizon;
use super::sweep::{Count, Counter, Look, walk};
use super::{Demands, Reference, SharedAdmission, SharedBinding, Sharing, SharingError};
use crate::time::Span;

/// How often the least `X` is raised before the test gives up.
const MAX_PASSES: usize = 1_000;

pub(super) fn admit(sharing: &Sharing, demands: &[Demands]) -> Result<SharedAdmission, SharingError> {
    let test = Test { sharing, demands, horizon: Horizon::of_earliest(sharing, demands) };
    let latest = sharing.latest_starts();
    let binding = test.tightest(&latest)?;
    if binding.is_none_or(|binding| binding.margin() >= 0) {
        return Ok(SharedAdmission { start_within: latest, binding });
    }
    let start_within = test.least(&latest)?;
    let binding = test.tightest(&start_within)?;
    Ok(SharedAdmission { start_within, binding })
}

struct Test<'a> {
    sharing: &'a Sharing,
    demands: &'a [Demands<'a>],
    horizon: Horizon,
}

impl Test<'_> {
    /// The line with the smallest margin, or the first that fails.
    fn tightest(&self, within: &[Span]) -> Result<Option<SharedBinding>, SharingError> {
        let mut tightest: Option<SharedBinding> = None;
        for reference in self.references() {
            let ended = self.look(reference, within, |line| {
                // The share is at most the average, with which the margin is mostly large enough.
                let plain = line.binding(within, line.average());
                if tightest.is_none_or(|t| plain.margin() < t.margin()) {
                    line.binding(within, line.latest()).tighten(&mut tightest);
                }
                match tightest.map_or(i128::MAX, |t| t.margin()) {
                    ..0 => Look::Failed,
                    least if plain.margin() >= least => Look::Regular,
                    _ => Look::Irregular,
                }
            });
            if !ended {
                return Err(SharingError::Horizon);
            }
            if tightest.is_some_and(|t| t.margin() < 0) {
                break;
            }
        }
        Ok(tightest)
    }

    /// The least `X` with which all lines hold.
    fn least(&self, latest: &[Span]) -> Result<Vec<Span>, SharingError> {
        let mut within = alloc::vec![Span::ZERO; latest.len()];
        for _ in 0..MAX_PASSES {
            let (mut raised, mut failed) = (false, None);
            for reference in self.references() {
                let before = within.clone();
                let ended = self.look(reference, &before, |line| {
                    let plain = line.binding(&within, line.average());
                    if plain.margin() < 0 {
                        let exact = line.binding(&within, line.latest());
                        let needed = i128::from(within[line.service].as_nanos()) - exact.margin();
                        if exact.margin() < 0 {
                            raised = true;
                            match u64::try_from(needed).map(Span::from_nanos) {
                                Ok(needed) if needed <= latest[line.service] => within[line.service] = needed,
                                _ => failed = Some(line.binding(latest, line.latest())),
                            }
                        }
                    }
                    match plain.margin() {
                        _ if failed.is_some() => Look::Failed,
                        0.. => Look::Regular,
                        _ => Look::Irregular,
                    }
                });
                if let Some(binding) = failed {
                    return Err(SharingError::Late(binding));
                }
                if !ended {
                    return Err(SharingError::Horizon);
                }
            }
            if !raised {
                return Ok(within);
            }
        }
        Err(SharingError::Horizon)
    }

    fn references(&self) -> impl Iterator<Item = Reference> + '_ {
        let short = |&i: &usize| self.sharing.services[i].batch > 1 && !self.demands[i].is_empty();
        let all = 0..self.demands.len();
        core::iter::once(Reference::Clear).chain(all.filter(short).map(Reference::Short))
    }

    /// Looks at every line of `reference`, until one fails. False if the end was not seen.
    fn look(&self, reference: Reference, within: &[Span], mut at: impl FnMut(&Line) -> Look) -> bool {
        let due = |j: usize| i128::from((self.sharing.services[j].latency + self.sharing.guard).as_nanos());
        let may_wait = |j: usize| i128::from(within[j].as_nanos());
        let from = match reference {
            Reference::Short(i) => due(i),
            _ => (0..self.demands.len()).filter(|&j| !self.demands[j].is_empty()).map(due).min().unwrap_or(0),
        };
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        let count = |j: usize| {
            let counter = |shift| Counter::new(&self.demands[j], shift, from);
            match reference {
                Reference::Short(i) if i == j => Count::Less(counter(due(j)), counter(due(j) - may_wait(j))),
                Reference::Short(i) => {
                    let waits = may_wait(j).min(may_wait(i) + due(j) - due(i)).max(0);
                    Count::All(counter(due(j) - waits))
                }
                _ => Count::All(counter(due(j))),
            }
        };
        let counts = (0..self.demands.len()).map(count).collect();
        let mut batches = Vec::with_capacity(self.demands.len());
        walk(counts, from, &self.horizon, |distance, requests| {
            batches.clear();
            let sizes = self.sharing.services.iter().map(|s| s.batch as u64);
            batches.extend(requests.iter().zip(sizes).map(|(n, size)| n.div_ceil(size)));
            // A period later there may be one.
            if matches!(reference, Reference::Short(i) if batches[i] == 0) {
                return Look::Irregular;
            }
            let work = self.sharing.work(&batches);
            let line = |service| Line {
                sharing: self.sharing,
                reference,
                service,
                distance,
                batches: &batches,
                work,
            };
            // Every line is looked at, whatever the ones before it say.
            let there = (0..batches.len()).filter(|&service| batches[service] > 0);
            there.map(|service| at(&line(service))).fold(Look::Regular, Look::max)
        })
    }
}

/// One line of the test.
struct Line<'a> {
    sharing: &'a Sharing,
    reference: Reference,
    service: usize,
    distance: u64,
    batches: &'a [u64],
    /// `Σ P_j·c_j`.
    work: u128,
}

impl Line<'_> {
    /// When the batch begins at the latest, if all that is known of a worker's share is the average.
    fn average(&self) -> u128 {
        let n = self.sharing.workers as u128;
        let [guard, longest, own] =
            [self.sharing.guard, self.sharing.longest, self.sharing.services[self.service].time]
                .map(|span| u128::from(span.as_nanos()));
        let work = self.work - own;
        let clear = longest + work / n;
        guard
            + match self.reference {
                Reference::Short(i) => {
                    let first = u128::from(self.sharing.services[i].time.as_nanos());
                    clear.min((first + (n - 1) * longest + work) / n)
                }
                _ => clear,
            }
    }

    /// When it begins at the latest.
    fn latest(&self) -> u128 {
        let [guard, longest] =
            [self.sharing.guard, self.sharing.longest].map(|span| u128::from(span.as_nanos()));
        self.average().min(guard + longest + self.sharing.longest_share(self.batches, self.service))
    }

    fn binding(&self, within: &[Span], latest: u128) -> SharedBinding {
        let service = &self.sharing.services[self.service];
        let due = i128::from((service.latency + self.sharing.guard).as_nanos());
        SharedBinding {
            reference: self.reference,
            service: self.service,
            distance: Span::from_nanos(self.distance),
            lhs: Span::from_nanos(u64::try_from(latest).unwrap_or(u64::MAX)),
            rhs: i128::from(self.distance) - due + i128::from(within[self.service].as_nanos()),
        }
    }
}
