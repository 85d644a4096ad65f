//! How long batches take: exactly their bound, drawn from a distribution below it, or beyond it now and then.

use rt_core::Span;

use super::raw::Service as Raw;
use super::{ExperimentError, refuse};
use crate::dice::Dice;

/// The distribution of batch times, as parts of their bound.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Shares and parts, both rising; empty: always 1.
    quantiles: Vec<(f64, f64)>,
    overruns: f64,
    factor: f64,
}

impl Service {
    pub(super) fn new(raw: &Raw) -> Result<Self, ExperimentError> {
        let mut before = (0.0, 0.0);
        for (i, &(share, part)) in raw.quantiles.iter().enumerate() {
            let field = format!("service.quantiles[{i}]");
            let value = format!("[{share}, {part}]");
            if !(before.0..=1.0).contains(&share) || !(before.1..=1.0).contains(&part) {
                return Err(refuse(field, value, "shares and parts must rise from 0 to at most 1"));
            }
            before = (share, part);
        }
        if !raw.quantiles.is_empty() && before.0 < 1.0 {
            return Err(refuse("service.quantiles", before.0, "the last share must be 1"));
        }
        if !(0.0..=1.0).contains(&raw.overruns) {
            return Err(refuse("service.overruns", raw.overruns, "must be in 0..=1"));
        }
        if !(1.0..=1000.0).contains(&raw.factor) {
            return Err(refuse("service.factor", raw.factor, "must be in 1..=1000"));
        }
        Ok(Self { quantiles: raw.quantiles.clone(), overruns: raw.overruns, factor: raw.factor })
    }

    /// The time of a batch that is bounded by `bound`.
    pub(super) fn draw(&self, dice: &mut Dice, bound: Span) -> Span {
        let mut unit = || dice.within(0, (1 << 53) - 1) as f64 / (1u64 << 53) as f64;
        let part = match (self.overruns > 0.0 && unit() < self.overruns, self.quantiles.is_empty()) {
            (true, _) => self.factor,
            (false, true) => return bound,
            (false, false) => self.part(unit()),
        };
        Span::from_nanos((bound.as_nanos() as f64 * part).ceil().max(1.0) as u64)
    }

    /// The part below which a share `of` all batches lies.
    fn part(&self, of: f64) -> f64 {
        let after = self.quantiles.partition_point(|&(share, _)| share < of);
        let (share, part) = self.quantiles[after.min(self.quantiles.len() - 1)];
        let before = after.checked_sub(1).map(|i| self.quantiles[i]);
        // Nothing lies below the first point.
        let Some((from, least)) = before.filter(|&(from, _)| from < share) else { return part };
        least + (part - least) * (of - from) / (share - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(quantiles: &[(f64, f64)], overruns: f64, factor: f64) -> Result<Service, ExperimentError> {
        Service::new(&Raw { quantiles: quantiles.to_vec(), overruns, factor })
    }

    fn draws(service: &Service) -> Vec<u64> {
        let mut dice = Dice(1);
        (0..10_000).map(|_| service.draw(&mut dice, Span::from_nanos(1_000_000)).as_nanos()).collect()
    }

    #[test]
    fn times_are_drawn_as_the_quantiles_say() {
        let exact = draws(&service(&[], 0.0, 1.0).expect("valid"));
        assert!(exact.iter().all(|&time| time == 1_000_000));
        let half = draws(&service(&[(0.0, 0.2), (0.5, 0.4), (1.0, 1.0)], 0.0, 1.0).expect("valid"));
        let share = |limit: u64| half.iter().filter(|&&time| time <= limit).count() as f64 / 1e4;
        assert!(half.iter().all(|time| (200_000..=1_000_000).contains(time)));
        // Five standard deviations of a share of 10 000 draws are 0.025 at most.
        assert!((share(300_000) - 0.25).abs() < 0.025 && (share(400_000) - 0.5).abs() < 0.025);
        assert!((share(700_000) - 0.75).abs() < 0.025);
        let late = draws(&service(&[], 0.1, 3.0).expect("valid"));
        let overruns = late.iter().filter(|&&time| time == 3_000_000).count();
        assert!((850..1150).contains(&overruns) && late.iter().all(|t| [1_000_000, 3_000_000].contains(t)));
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let text = |made: Result<Service, ExperimentError>| made.expect_err("refused").to_string();
        let rise = "shares and parts must rise from 0 to at most 1";
        assert_eq!(
            text(service(&[(0.5, 0.5), (1.0, 0.4)], 0.0, 1.0)),
            format!("service.quantiles[1] = [1, 0.4]: {rise}")
        );
        assert_eq!(text(service(&[(1.0, 2.0)], 0.0, 1.0)), format!("service.quantiles[0] = [1, 2]: {rise}"));
        assert_eq!(
            text(service(&[(0.5, 0.5)], 0.0, 1.0)),
            "service.quantiles = 0.5: the last share must be 1"
        );
        assert_eq!(text(service(&[], -0.1, 1.0)), "service.overruns = -0.1: must be in 0..=1");
        assert_eq!(text(service(&[], 0.1, f64::NAN)), "service.factor = NaN: must be in 1..=1000");
    }
}
