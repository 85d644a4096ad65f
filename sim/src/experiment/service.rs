//! How long batches take: exactly the time of the profile, drawn from a distribution below it, stalled or beyond its
//! bound now and then; and what a profile of such batches knows.

use rt_core::{BatchTime, LatencyProfile, ProfileError, Span};
use serde::Deserialize;

use super::raw::RawService as Raw;
use crate::dice::Dice;

/// The share of batches that take no longer than their likely time.
const LIKELY: f64 = 0.9;

/// The distribution of batch times. A batch takes a part of its undisturbed bound and, if it stalls, a fixed time more.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub(super) struct Service {
    /// Shares and parts of the undisturbed bound, both rising; empty: always 1.
    quantiles: Vec<(f64, f64)>,
    /// The share of batches that stall, and for how long.
    stalls: f64,
    stall: Span,
    overruns: f64,
    factor: f64,
}

impl TryFrom<Raw> for Service {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        let mut before = (0.0, 0.0);
        for (i, &(share, part)) in raw.quantiles.iter().enumerate() {
            if !(before.0..=1.0).contains(&share) || !(before.1..=1.0).contains(&part) {
                let reason = "shares and parts must rise from 0 to at most 1";
                return Err(format!("quantiles[{i}] = [{share}, {part}]: {reason}"));
            }
            before = (share, part);
        }
        if !raw.quantiles.is_empty() && before.0 < 1.0 {
            return Err(format!("quantiles = {}: the last share must be 1", before.0));
        }
        if let Some(one_in) = raw.stalls.map(|stalls| stalls.one_in).filter(|&one_in| one_in < 10) {
            let reason = "must be at least 10, so that a batch most likely does not stall";
            return Err(format!("stalls.one-in = {one_in}: {reason}"));
        }
        if !(1.0..=1000.0).contains(&raw.factor) {
            return Err(format!("factor = {}: must be in 1..=1000", raw.factor));
        }
        Ok(Self {
            stalls: raw.stalls.map_or(0.0, |stalls| 1.0 / f64::from(stalls.one_in)),
            stall: raw.stalls.map_or(Span::ZERO, |stalls| stalls.length.0),
            quantiles: raw.quantiles,
            overruns: raw.overruns.0,
            factor: raw.factor,
        })
    }
}

/// Exactly the times of the workers.
impl Default for Service {
    fn default() -> Self {
        Self { quantiles: Vec::new(), stalls: 0.0, stall: Span::ZERO, overruns: 0.0, factor: 1.0 }
    }
}

impl Service {
    /// How much longer than undisturbed a batch takes that stalls; 0 if none does.
    pub(super) fn stall(&self) -> Span {
        self.stall
    }

    /// What a profile of batches with these `bounds` knows of them, from many measurements: overruns, which are what
    /// breaks a profile, are not in it.
    ///
    /// # Errors
    /// If a time is 0, a bound too long, or they decrease.
    pub(super) fn profile(
        &self,
        bounds: impl IntoIterator<Item = Span>,
    ) -> Result<LatencyProfile, ProfileError> {
        let time = |bound: Span| {
            let quiet = bound.saturating_sub(self.stall);
            let mean = part_of(quiet, self.mean()) + part_of(self.stall, self.stalls);
            let likely = part_of(quiet, self.part((LIKELY / (1.0 - self.stalls)).min(1.0)));
            BatchTime { bound, likely: likely.min(bound), mean: mean.min(bound) }
        };
        LatencyProfile::expected(&bounds.into_iter().map(time).collect::<Vec<_>>())
    }

    /// The time of a batch that is bounded by `bound`. It always throws the dice as often, so that the batches of all
    /// who start from the same dice fare alike by their number; or never, where there is nothing to choose.
    #[inline]
    pub(super) fn draw(&self, dice: &mut Dice, bound: Span) -> Span {
        if self.is_exact() { bound } else { self.throw(dice, bound) }
    }

    /// Whether every batch takes exactly its bound.
    fn is_exact(&self) -> bool {
        self.quantiles.is_empty() && self.stalls == 0.0 && self.overruns == 0.0
    }

    #[inline(never)]
    fn throw(&self, dice: &mut Dice, bound: Span) -> Span {
        let mut unit = || dice.within(0, (1 << 53) - 1) as f64 / (1u64 << 53) as f64;
        let (chance, of) = (unit(), unit());
        if chance < self.overruns {
            return part_of(bound, self.factor);
        }
        let held = chance < self.overruns + self.stalls;
        let quiet = part_of(bound.saturating_sub(self.stall), self.part(of));
        if held { quiet + self.stall } else { quiet.max(Span::from_nanos(1)) }
    }

    /// The part below which a share `of` all batches lies.
    fn part(&self, of: f64) -> f64 {
        let after = self.quantiles.partition_point(|&(share, _)| share < of);
        let Some(&(share, part)) = self.quantiles.get(after).or(self.quantiles.last()) else { return 1.0 };
        let before = after.checked_sub(1).map(|i| self.quantiles[i]);
        // Nothing lies below the first point.
        let Some((from, least)) = before.filter(|&(from, _)| from < share) else { return part };
        least + (part - least) * (of - from) / (share - from)
    }

    /// The mean part.
    fn mean(&self) -> f64 {
        let Some(&(share, part)) = self.quantiles.first() else { return 1.0 };
        let between = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
        share * part + self.quantiles.windows(2).map(between).sum::<f64>()
    }
}

/// In whole nanoseconds, rounded up.
fn part_of(whole: Span, part: f64) -> Span {
    Span::from_nanos((whole.as_nanos() as f64 * part).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::raw::Stalls;
    use super::super::value::{Share, Time};
    use super::*;

    fn raw(quantiles: &[(f64, f64)], overruns: f64, factor: f64) -> Raw {
        Raw { quantiles: quantiles.to_vec(), stalls: None, overruns: Share(overruns), factor }
    }

    fn service(raw: &Raw) -> Result<Service, String> {
        raw.clone().try_into()
    }

    fn stalling(one_in: u32) -> Raw {
        let stalls = Some(Stalls { one_in, length: Time(Span::from_millis(1)) });
        Raw { stalls, ..raw(&[(0.0, 0.2), (0.5, 0.4), (1.0, 1.0)], 0.0, 1.0) }
    }

    fn draws(service: &Service, bound: u64) -> Vec<u64> {
        let mut dice = Dice(1);
        (0..10_000).map(|_| service.draw(&mut dice, Span::from_nanos(bound)).as_nanos()).collect()
    }

    #[test]
    fn times_are_drawn_as_the_quantiles_say() {
        let exact = draws(&service(&raw(&[], 0.0, 1.0)).expect("valid"), 1_000_000);
        assert!(exact.iter().all(|&time| time == 1_000_000));
        let half = service(&raw(&[(0.0, 0.2), (0.5, 0.4), (1.0, 1.0)], 0.0, 1.0)).expect("valid");
        let half = draws(&half, 1_000_000);
        let share = |limit: u64| half.iter().filter(|&&time| time <= limit).count() as f64 / 1e4;
        assert!(half.iter().all(|time| (200_000..=1_000_000).contains(time)));
        // Five standard deviations of a share of 10 000 draws are 0.025 at most.
        assert!((share(300_000) - 0.25).abs() < 0.025 && (share(400_000) - 0.5).abs() < 0.025);
        assert!((share(700_000) - 0.75).abs() < 0.025);
        let late = draws(&service(&raw(&[], 0.1, 3.0)).expect("valid"), 1_000_000);
        let overruns = late.iter().filter(|&&time| time == 3_000_000).count();
        assert!((850..1150).contains(&overruns) && late.iter().all(|t| [1_000_000, 3_000_000].contains(t)));
    }

    #[test]
    fn a_profile_knows_what_is_drawn() {
        // A batch takes up to 1 ms, and 1 ms more if it stalls.
        let service = service(&stalling(50)).expect("valid");
        let profile = service.profile([Span::from_millis(2)]).expect("a profile").time(1);
        let mut all = draws(&service, 2_000_000);
        all.sort_unstable();
        let stalled = all.iter().filter(|&&time| time > 1_000_000).count();
        // Five standard deviations of 200 of 10 000.
        assert!((130..270).contains(&stalled), "{stalled}");
        assert!(all[9_999] <= profile.bound.as_nanos());
        let (likely, mean) = (profile.likely.as_nanos() as f64, profile.mean.as_nanos() as f64);
        assert!((all[9_000] as f64 / likely - 1.0).abs() < 0.02, "{} {likely}", all[9_000]);
        let drawn = all.iter().sum::<u64>() as f64 / 1e4;
        assert!((drawn / mean - 1.0).abs() < 0.02, "{drawn} {mean}");
        // 0.9 / 0.98 of those that do not stall; (0.2 + 0.4) / 4 + (0.4 + 1) / 4 of a millisecond.
        assert!((likely - 1e6 * (0.4 + 0.6 * (0.9 / 0.98 - 0.5) / 0.5)).abs() < 2.0, "{likely}");
        assert!((mean - 520_000.0).abs() < 3.0, "{mean}");
        let exact = Service::default();
        assert_eq!(
            exact.profile([Span::from_nanos(7)]).expect("a profile").time(1),
            BatchTime::at_most(Span::from_nanos(7))
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let text = |raw: &Raw| service(raw).expect_err("refused");
        let rise = "shares and parts must rise from 0 to at most 1";
        assert_eq!(
            text(&raw(&[(0.5, 0.5), (1.0, 0.4)], 0.0, 1.0)),
            format!("quantiles[1] = [1, 0.4]: {rise}")
        );
        assert_eq!(text(&raw(&[(1.0, 2.0)], 0.0, 1.0)), format!("quantiles[0] = [1, 2]: {rise}"));
        assert_eq!(text(&raw(&[(0.5, 0.5)], 0.0, 1.0)), "quantiles = 0.5: the last share must be 1");
        assert_eq!(Share::try_from(-0.1), Err("-0.1: must be in 0..=1".to_owned()));
        assert_eq!(text(&raw(&[], 0.1, f64::NAN)), "factor = NaN: must be in 1..=1000");
        let seldom = "must be at least 10, so that a batch most likely does not stall";
        assert_eq!(text(&stalling(9)), format!("stalls.one-in = 9: {seldom}"));
    }
}
