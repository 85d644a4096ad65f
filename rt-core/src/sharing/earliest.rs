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

use super::horizon::{Ceiling, Repeat};
use super::margin::{Front, Keys, Line, Lines};
use super::sweep::{Both, Look, Rises, Shift, Sweep};
use super::{Asked, Demands, FEW_POINTS, Reference, SharedAdmission, SharedBinding, Sharing, SharingError};
use crate::growth::Envelope;
use crate::time::Span;

mod least;

/// So many distances are looked at, of each service, for what may stand for lines: far fewer systems are admitted by more than by
/// these, and a refusal takes no longer.
const EASED_POINTS: u64 = 1 << 15;
/// Such a part of the longest batch is kept for overruns where that can be, at starts that are the sooner.
const RESERVE: u64 = 32;

pub(super) fn admit(
    sharing: &Sharing,
    demands: &[Demands],
    asked: Asked,
) -> Result<SharedAdmission, SharingError> {
    let latest = sharing.latest_starts();
    if asked.below <= 0 && Test::new(sharing, demands, asked.points.min(FEW_POINTS)).is_soon_seen(&latest) {
        return Ok(SharedAdmission::by_lines(latest, None));
    }
    let binding = Test::new(sharing, demands, asked.points).tightest(&latest, (asked.below, &[]))?;
    let reserve = Span::from_nanos(sharing.longest.as_nanos().div_ceil(RESERVE));
    let wanted = i128::from(reserve.as_nanos()).min(asked.below);
    if binding.is_none_or(|binding| binding.margin() >= wanted) {
        return Ok(SharedAdmission::by_lines(latest, binding));
    }
    let admission = match binding.is_some_and(|binding| binding.margin() >= 0) {
        true => SharedAdmission::by_lines(latest.clone(), binding),
        false => sooner(sharing, demands, &latest, asked)?,
    };
    if wanted <= 0 {
        return Ok(admission);
    }
    // What runs over by as much in all delays no more than dispatch that is so much later.
    let mut later = sharing.clone();
    later.guard = later.guard + reserve;
    later.services.iter_mut().for_each(|service| service.latency = service.latency.saturating_sub(reserve));
    Ok(match sooner(&later, demands, &latest, asked) {
        Ok(mut with_reserve) => {
            with_reserve.binding.iter_mut().for_each(|line| line.lhs = line.lhs.saturating_sub(reserve));
            with_reserve
        }
        Err(_) => admission,
    })
}

/// With the least `X`, by lines or by what stands for some of them.
fn sooner(
    sharing: &Sharing,
    demands: &[Demands],
    latest: &[Span],
    asked: Asked,
) -> Result<SharedAdmission, SharingError> {
    let mut test = Test::new(sharing, demands, asked.points);
    let mut reliefs = None;
    let (start_within, first) = match test.least(latest, None) {
        Err(no @ SharingError::Late(_)) if test.is_caught_up_with() => {
            let reliefs = reliefs.insert(test.reliefs());
            test.points = test.points.min(EASED_POINTS);
            test.least(latest, Some(reliefs)).map_err(|_| no)?
        }
        found => found?,
    };
    test.points = asked.points;
    let stands = reliefs.map(|mut reliefs| reliefs.stand(&start_within, &first)).unwrap_or_default();
    let binding = test.tightest(&start_within, (asked.below, &stands))?;
    let bits = |is: fn(Reference) -> bool| {
        let stands = stands.iter().enumerate();
        stands
            .filter(|(_, stands)| stands.is_some_and(|(_, line)| is(line.reference)))
            .map(|(k, _)| 1 << k)
            .sum()
    };
    let singly = bits(|reference| reference == Reference::Singly);
    Ok(SharedAdmission { start_within, binding, relieved: bits(|_| true), singly })
}

/// The line with the smallest margin if requests begin `within` such times; none if no margin is below what is `asked`.
pub(super) fn tightest(
    sharing: &Sharing,
    demands: &[Demands],
    within: &[Span],
    asked: Asked,
) -> Result<Option<SharedBinding>, SharingError> {
    Test::new(sharing, demands, asked.points).tightest(within, (asked.below, &[]))
}

struct Test<'a> {
    sharing: &'a Sharing,
    demands: &'a [Demands<'a>],
    envelopes: Vec<Envelope>,
    rises: Vec<Both<'a>>,
    repeat: Option<Repeat>,
    /// Whether a worker never gets the average in the long run, but always the number of batches.
    uniform: bool,
    /// Distances that may still be looked at.
    points: u64,
}

impl<'a> Test<'a> {
    fn new(sharing: &'a Sharing, demands: &'a [Demands<'a>], points: u64) -> Self {
        let services = || sharing.services.iter().zip(demands);
        let both = |(s, of): (&super::SharedService, &Demands<'a>)| {
            [0, 1].map(|but| Rises::new(of, s.batch as u64, but))
        };
        Self {
            sharing,
            demands,
            envelopes: demands.iter().map(|of| Envelope::of(of)).collect(),
            rises: services().map(both).collect(),
            repeat: Repeat::of_earliest(sharing, demands),
            uniform: sharing.is_uniform(demands),
            points,
        }
    }

    /// The line with the smallest margin, or the first that fails; none if no margin is `below`. Of services of which something stands for
    /// lines from a distance on, that and the lines before.
    fn tightest(
        &mut self,
        within: &[Span],
        (below, stands): (i128, &[Option<(u64, SharedBinding)>]),
    ) -> Result<Option<SharedBinding>, SharingError> {
        let (mut tightest, mut least): (Option<SharedBinding>, _) = (None, below);
        for &(_, line) in stands.iter().flatten() {
            if line.margin() < least {
                (tightest, least) = (Some(line), line.margin());
            }
        }
        let is_asked = |line: &Line<'_>, distance| {
            stands.get(line.service).copied().flatten().is_none_or(|(from, _)| distance < from)
        };
        for reference in self.references() {
            let shifts = self.shifts(reference, within);
            let lines = self.lines(reference, &shifts);
            let keys = self.keys(within);
            let over = |least| lines.hold_from(least, &keys);
            let (mut over_from, uniform) = (over(least), self.uniform);
            let ended = self.look(&lines, &shifts, over_from, |front| {
                // The share is at most the average, with which the margin is mostly large enough.
                if front.is_no_tighter_than(least, &keys) {
                    return Look { regular: true, over: over_from };
                }
                let (mut regular, before) = (true, least);
                for line in front.lines().filter(|line| is_asked(line, front.distance)) {
                    let plain = line.binding(within, line.average());
                    let exact = line.binding(within, line.latest());
                    if exact.margin() < least {
                        (tightest, least) = (Some(exact), exact.margin());
                    }
                    regular &= uniform || plain.margin() >= least;
                }
                if least < 0 {
                    return Look::ENOUGH;
                }
                if least < before {
                    over_from = over(least);
                }
                Look { regular, over: over_from }
            });
            if !ended {
                return Err(SharingError::Horizon);
            }
            if least < 0 {
                break;
            }
        }
        Ok(tightest)
    }

    /// Whether `latest` keeps all lines, or else what would if counts were straight lines, at few distances.
    fn is_soon_seen(&mut self, latest: &[Span]) -> bool {
        self.tightest(latest, (0, &[])).is_ok_and(|line| line.is_none()) || {
            self.points = FEW_POINTS;
            let straight = self.least_of_straight(latest);
            straight.is_some_and(|within| self.tightest(&within, (0, &[])).is_ok_and(|line| line.is_none()))
        }
    }

    fn references(&self) -> impl Iterator<Item = Reference> + use<'a> {
        let (sharing, demands) = (self.sharing, self.demands);
        let short = move |&i: &usize| sharing.services[i].batch > 1 && !demands[i].is_empty();
        core::iter::once(Reference::Clear).chain((0..demands.len()).filter(short).map(Reference::Short))
    }

    fn keys(&self, within: &[Span]) -> Keys {
        Keys::of(self.sharing, self.demands, within)
    }

    /// `D`.
    fn due(&self, j: usize) -> i128 {
        i128::from((self.sharing.services[j].latency + self.sharing.guard).as_nanos())
    }

    /// What the lines of `reference` count of each service.
    fn shifts(&self, reference: Reference, within: &[Span]) -> Vec<Shift> {
        let may_wait = |j: usize| i128::from(within[j].as_nanos());
        let shift = |j: usize| match reference {
            Reference::Short(i) if i == j => Shift::Less(self.due(j), self.due(j) - may_wait(j)),
            Reference::Short(i) => {
                let waits = may_wait(j).min(may_wait(i) + self.due(j) - self.due(i)).max(0);
                Shift::All(self.due(j) - waits)
            }
            _ => Shift::All(self.due(j)),
        };
        (0..self.demands.len()).map(shift).collect()
    }

    fn lines(&self, reference: Reference, shifts: &[Shift]) -> Lines<'a> {
        let promised = (0..self.demands.len()).filter(|&j| !self.demands[j].is_empty());
        let from = match reference {
            Reference::Short(i) => self.due(i),
            _ => promised.clone().map(|j| self.due(j)).min().unwrap_or(0),
        };
        let n = self.sharing.workers as i128;
        let longest = i128::from(self.sharing.longest.as_nanos());
        let running = match reference {
            Reference::Short(i) => i128::from(self.sharing.services[i].time.as_nanos()) + (n - 1) * longest,
            _ => n * longest,
        };
        let mut work = Ceiling::new(self.sharing.workers);
        for j in promised {
            let service = &self.sharing.services[j];
            let weight = service.time.as_nanos() as f64 / service.batch as f64;
            // A batch may hold a single request; of both counts either is enough.
            let of = self.envelopes[j];
            let (shift, fewer) = match shifts[j] {
                Shift::Less(_, more) if of.rate * ((shifts[j].all() - more) as f64) < 1.0 => (more, 1.0),
                shift => (shift.all(), 0.0),
            };
            work.count(weight, of, 1.0 - shift as f64, service.batch as f64 - 1.0 - fewer);
        }
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        Lines { sharing: self.sharing, reference, from, running, work }
    }

    /// Looks at every line, until none is tighter than any so far: already from `over` on. False if the end was not seen.
    fn look(
        &mut self,
        lines: &Lines,
        shifts: &[Shift],
        over: u64,
        mut at: impl FnMut(&Front) -> Look,
    ) -> bool {
        if over <= lines.from {
            return true;
        }
        let times: Vec<_> = self.sharing.services.iter().map(|s| i128::from(s.time.as_nanos())).collect();
        let sweep = Sweep::new(&mut self.rises, shifts, lines.from);
        let (mut counted, mut work) = (alloc::vec![0; times.len()], 0);
        let mut there = 0;
        sweep.walk(self.repeat, &mut self.points, |sweep| {
            let mut risen = sweep.risen;
            while risen != 0 {
                let j = risen.trailing_zeros() as usize;
                risen &= risen - 1;
                work += times[j] * i128::from(sweep.batches[j] - counted[j]);
                counted[j] = sweep.batches[j];
                there |= u64::from(counted[j] > 0) << j;
            }
            // A period later there may be one.
            if matches!(lines.reference, Reference::Short(i) if counted[i] == 0) {
                return Look { regular: false, over: u64::MAX };
            }
            at(&Front { lines, distance: sweep.distance, batches: &sweep.batches, there, work })
        })
    }
}
