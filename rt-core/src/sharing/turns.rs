//! Theorem T: services take turns of `k` batches in the order in which they came to have something waiting.
//!
//! With `D_s = L_s + g` and `X_s = D_s - P_s`, `g` being by how much dispatch may be late, every mandatory request of `s` is
//! answered in time if for every `δ ≥ 0` behind an arrival that found none of `s` waiting, with `J = ⌈α_s(δ + 1)/B_s⌉`,
//!
//! ```text
//! g + P̂ + share(c)  ≤  δ + X_s ,    c_s = J - 1 ,    c_i = min( ⌈J/k_s⌉·k_i , α_i(X_i + δ + X_s + 1) ) .
//! ```

use alloc::vec::Vec;

use super::horizon::Horizon;
use super::sweep::{Count, Counter, Look, walk};
use super::{Demands, Reference, SharedAdmission, SharedBinding, Sharing, SharingError};
use crate::time::Span;

pub(super) fn admit(sharing: &Sharing, demands: &[Demands]) -> Result<SharedAdmission, SharingError> {
    let start_within = sharing.latest_starts();
    let mut tightest: Option<SharedBinding> = None;
    for service in (0..demands.len()).filter(|&s| !demands[s].is_empty()) {
        of(sharing, demands, &start_within, service)?.tighten(&mut tightest);
    }
    match tightest {
        Some(binding) if binding.margin() < 0 => Err(SharingError::Late(binding)),
        binding => Ok(SharedAdmission { start_within, binding }),
    }
}

/// The tightest line of service `s`.
fn of(
    sharing: &Sharing,
    demands: &[Demands],
    within: &[Span],
    s: usize,
) -> Result<SharedBinding, SharingError> {
    let own = &sharing.services[s];
    let may_wait = |j: usize| i128::from(within[j].as_nanos());
    let count = |j: usize| {
        let shift = if j == s { 0 } else { -(may_wait(j) + may_wait(s)) };
        Count::All(Counter::new(&demands[j], shift, 0))
    };
    let [guard, longest] = [sharing.guard, sharing.longest].map(|span| u128::from(span.as_nanos()));
    let mut tightest: Option<SharedBinding> = None;
    let mut batches = Vec::with_capacity(demands.len());
    let counts = (0..demands.len()).map(count).collect();
    let ended = walk(counts, 0, &Horizon::of_turns(sharing, demands, s), |delta, requests| {
        let rounds = requests[s].div_ceil(own.batch as u64);
        let turns = rounds.div_ceil(own.turn.into());
        let rhs = i128::from(delta) + may_wait(s);
        // Without what is known of the arrivals of others: what repeats.
        batches.clear();
        batches.extend(sharing.services.iter().map(|other| turns * u64::from(other.turn)));
        batches[s] = rounds;
        let own_time = u128::from(own.time.as_nanos());
        let plain = guard + longest + (sharing.work(&batches) - own_time) / sharing.workers as u128;
        for (i, batches) in batches.iter_mut().enumerate().filter(|&(i, _)| i != s) {
            *batches = requests[i].min(*batches);
        }
        let latest = guard + longest + sharing.share(&batches, s);
        let binding = SharedBinding {
            reference: Reference::Turn,
            service: s,
            distance: Span::from_nanos(delta),
            lhs: Span::from_nanos(u64::try_from(latest).unwrap_or(u64::MAX)),
            rhs,
        };
        binding.tighten(&mut tightest);
        let margin = tightest.map_or(i128::MAX, |t| t.margin());
        match i128::try_from(plain) {
            _ if margin < 0 => Look::Failed,
            Ok(plain) if rhs - plain >= margin => Look::Regular,
            _ => Look::Irregular,
        }
    });
    tightest.filter(|_| ended).ok_or(SharingError::Horizon)
}
