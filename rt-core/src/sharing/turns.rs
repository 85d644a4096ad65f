//! Theorem T: services take turns of `k` batches in the order in which they came to have something waiting.
//!
//! With `D_s = L_s + g` and `X_s = D_s - P_s`, `g` being by how much dispatch may be late, every mandatory request of `s` is
//! answered in time if for every `δ ≥ 0` behind an arrival that found none of `s` waiting, with `J = ⌈α_s(δ + 1)/B_s⌉`,
//!
//! ```text
//! g + P̂ + share(c)  ≤  δ + X_s ,    c_s = J - 1 ,    c_i = min( ⌈J/k_s⌉·k_i , α_i(X_i + δ + X_s + 1) ) .
//! ```
//!
//! Of which nothing is mandatory takes no turn: it never joins.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::horizon::{Ceiling, Repeat};
use super::sweep::{Both, Look, Rises, Shift, Sweep};
use super::{Asked, Demands, Reference, SharedAdmission, SharedBinding, Sharing, SharingError};
use crate::growth::Envelope;
use crate::time::Span;

pub(super) fn admit(
    sharing: &Sharing,
    demands: &[Demands],
    asked: Asked,
) -> Result<SharedAdmission, SharingError> {
    let start_within = sharing.latest_starts();
    let mut test = Test {
        sharing,
        demands,
        within: &start_within,
        envelopes: demands.iter().map(|of| Envelope::of(of)).collect(),
        points: asked.points,
    };
    let (mut tightest, mut below): (Option<SharedBinding>, _) = (None, asked.below);
    for service in (0..demands.len()).filter(|&s| !demands[s].is_empty()) {
        if let Some(line) = test.tightest(service, below)? {
            line.tighten(&mut tightest);
            // Of each service the first line that fails is of interest, by however much.
            below = line.margin().max(0);
        }
    }
    match tightest {
        Some(binding) if binding.margin() < 0 => Err(SharingError::Late(binding)),
        binding => Ok(SharedAdmission::by_lines(start_within, binding)),
    }
}

struct Test<'a> {
    sharing: &'a Sharing,
    demands: &'a [Demands<'a>],
    within: &'a [Span],
    envelopes: Vec<Envelope>,
    /// Distances that may still be looked at.
    points: u64,
}

impl Test<'_> {
    /// The tightest line of service `s`, or the first that fails; none if no margin is `below`.
    fn tightest(&mut self, s: usize, below: i128) -> Result<Option<SharedBinding>, SharingError> {
        let (sharing, demands) = (self.sharing, self.demands);
        let (own, uniform) = (&sharing.services[s], sharing.is_uniform(demands));
        let may_wait = |j: usize| i128::from(self.within[j].as_nanos());
        let [guard, longest] = [sharing.guard, sharing.longest].map(|span| u128::from(span.as_nanos()));
        let grows: Vec<_> = (0..demands.len()).map(|i| self.turns_to_requests(s, i)).collect();
        let (before, work) = (guard + longest, self.ceiling(s, &grows));
        let over = |least: i128| {
            let late = least.saturating_add(before as i128) - may_wait(s);
            work.ahead_from(0, late.saturating_mul(sharing.workers as i128) as f64)
        };
        let (mut tightest, mut least, mut over_from): (Option<SharedBinding>, _, _) =
            (None, below, over(below));
        let shift = |j: usize| Shift::All(if j == s { 0 } else { -(may_wait(j) + may_wait(s)) });
        let shifts: Vec<_> = (0..demands.len()).map(shift).collect();
        // Of others their requests, each of which may make a batch.
        let mut rises: Vec<Both> =
            demands.iter().map(|of| [0, 1].map(|but| Rises::new(of, 1, but))).collect();
        rises[s][0] = Rises::new(&demands[s], own.batch as u64, 0);
        let mut batches = Vec::with_capacity(demands.len());
        let own_time = u128::from(own.time.as_nanos());
        let ended = over_from == 0
            || Sweep::new(&mut rises, &shifts, 0).walk(
                Repeat::of_turns(sharing, demands, s, &grows),
                &mut self.points,
                |sweep| {
                    let rounds = sweep.batches[s];
                    let turns = rounds.div_ceil(own.turn.into());
                    let rhs = i128::from(sweep.distance) + may_wait(s);
                    // Of each other what grows more slowly, or both: what repeats.
                    batches.clear();
                    let taken = |i: usize| turns.saturating_mul(sharing.services[i].turn.into());
                    let slow = |i: usize| match grows[i] {
                        Ordering::Less => taken(i),
                        Ordering::Equal => taken(i).min(sweep.batches[i]),
                        Ordering::Greater => sweep.batches[i],
                    };
                    batches.extend((0..demands.len()).map(slow));
                    batches[s] = rounds;
                    let mut plain = before + (sharing.work(&batches) - own_time) / sharing.workers as u128;
                    if uniform {
                        plain = plain.min(before + sharing.longest_share(&batches, s));
                    }
                    for (i, batches) in batches.iter_mut().enumerate().filter(|&(i, _)| i != s) {
                        *batches = sweep.batches[i].min(taken(i));
                    }
                    let latest = before + sharing.share(&batches, s);
                    let binding = SharedBinding {
                        reference: Reference::Turn,
                        service: s,
                        distance: Span::from_nanos(sweep.distance),
                        lhs: Span::from_nanos(u64::try_from(latest).unwrap_or(u64::MAX)),
                        rhs,
                    };
                    if binding.margin() < least {
                        (tightest, least) = (Some(binding), binding.margin());
                        over_from = over(least);
                    }
                    if least < 0 {
                        return Look::ENOUGH;
                    }
                    let regular = i128::try_from(plain).is_ok_and(|plain| rhs - plain >= least);
                    Look { regular, over: over_from }
                },
            );
        if ended { Ok(tightest) } else { Err(SharingError::Horizon) }
    }

    /// How fast the turns of service `i` grow, against what can come of it. Of which nothing is mandatory takes none.
    fn turns_to_requests(&self, s: usize, i: usize) -> Ordering {
        let turns = self.envelopes[s].rate / self.sharing.turn(s) as f64;
        let turns = turns * f64::from(self.sharing.services[i].turn);
        let rate = self.envelopes[i].rate;
        // As fast, but for rounding: both are counted, which is never wrong.
        if (turns - rate).abs() <= 1e-9 * rate { Ordering::Equal } else { turns.total_cmp(&rate) }
    }

    /// What the line of `s` counts at most: of each other service its turns, or what can have come.
    fn ceiling(&self, s: usize, grows: &[Ordering]) -> Ceiling {
        let time = |i: usize| self.sharing.services[i].time.as_nanos() as f64;
        let (mut work, size) = (Ceiling::new(self.sharing.workers), self.sharing.services[s].batch as f64);
        work.count(time(s) / size, self.envelopes[s], 1.0, -1.0);
        for i in (0..grows.len()).filter(|&i| i != s && !self.demands[i].is_empty()) {
            let turn = self.sharing.turn(s) as f64;
            if grows[i].is_le() {
                let each = time(i) * f64::from(self.sharing.services[i].turn) / turn;
                work.count(each, self.envelopes[s], 1.0, turn - 1.0);
            } else {
                let ahead = (self.within[i] + self.within[s]).as_nanos() as f64;
                work.count(time(i), self.envelopes[i], ahead + 1.0, 0.0);
            }
        }
        work
    }
}
