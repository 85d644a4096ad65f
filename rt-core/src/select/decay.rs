//! What part of its worth an answer keeps that is late: none, or less with every millisecond.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use crate::time::Span;

/// The most that a lateness may be, as a part of the deadline.
const LATE: f64 = 100.0;
/// The most points.
const MAX_POINTS: usize = 64;

/// What part of its worth an answer keeps that is late.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Decay {
    /// None.
    #[default]
    Hard,
    /// So much less for each millisecond too late, and nothing beyond a lateness of this part of the deadline (Jha et al.,
    /// "Learned Best-Effort LLM Serving", section 4.3.2: 0.01 and 0.1).
    Linear {
        /// In 0..=1.
        per_ms: f64,
        /// In 0..=100.
        cutoff: f64,
    },
    /// This part up to a lateness of this part of the deadline, and then nothing.
    Step {
        /// In 0..=1.
        part: f64,
        /// In 0..=100.
        cutoff: f64,
    },
    /// Points of lateness as a part of the deadline, and of what is left of the worth: from 0 and 1 by straight lines from one
    /// to the next, and nothing beyond the last.
    Points(Vec<(f64, f64)>),
}

/// Why something is no decay.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value}: must be in {min}..={max}")]
pub struct DecayError {
    /// Which field, such as `per-ms` or `points[1][0]`.
    pub field: String,
    /// Its value.
    pub value: f64,
    /// The least that it may be.
    pub min: f64,
    /// The most that it may be.
    pub max: f64,
}

impl Decay {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// With the first that is not.
    pub fn check(&self) -> Result<(), DecayError> {
        match self {
            Self::Hard => Ok(()),
            &Self::Linear { per_ms, cutoff } => {
                within("per-ms", per_ms, 0.0, 1.0)?;
                within("cutoff", cutoff, 0.0, LATE)
            }
            &Self::Step { part, cutoff } => {
                within("part", part, 0.0, 1.0)?;
                within("cutoff", cutoff, 0.0, LATE)
            }
            Self::Points(points) => {
                within("points (how many)", points.len() as f64, 1.0, MAX_POINTS as f64)?;
                let mut before = (0.0, 1.0);
                for (i, &(late, part)) in points.iter().enumerate() {
                    within(&format!("points[{i}][0]"), late, before.0, LATE)?;
                    within(&format!("points[{i}][1]"), part, 0.0, before.1)?;
                    before = (late, part);
                }
                Ok(())
            }
        }
    }

    /// What part of its worth an answer keeps that took `took_ms` where it may take `deadline_ms`: in 0..=1. Does not allocate.
    #[must_use]
    pub fn part(&self, took_ms: f64, deadline_ms: f64) -> f64 {
        let over = took_ms - deadline_ms;
        if over <= 0.0 {
            return 1.0;
        }
        let late = over / deadline_ms;
        match self {
            Self::Hard => 0.0,
            Self::Linear { per_ms, cutoff } if late <= *cutoff => (1.0 - per_ms * over).max(0.0),
            Self::Step { part, cutoff } if late <= *cutoff => *part,
            Self::Linear { .. } | Self::Step { .. } => 0.0,
            Self::Points(points) => {
                let mut before = (0.0, 1.0);
                for &(at, part) in points {
                    if late <= at {
                        let along = (late - before.0) / (at - before.0);
                        return before.1 + along * (part - before.1);
                    }
                    before = (at, part);
                }
                0.0
            }
        }
    }

    /// The same of times.
    #[must_use]
    pub fn part_of(&self, took: Span, deadline: Span) -> f64 {
        let ms = |span: Span| span.as_nanos() as f64 / 1e6;
        if took <= deadline { 1.0 } else { self.part(ms(took), ms(deadline)) }
    }

    /// How long an answer takes at most that is worth something, where it may take `deadline`; not below that.
    #[must_use]
    pub fn reach(&self, deadline: Span) -> Span {
        let whole = deadline.as_nanos() as f64;
        let late = match self {
            Self::Hard => 0.0,
            Self::Linear { per_ms, cutoff } => (cutoff * whole).min(1e6 / per_ms),
            Self::Step { part, cutoff } => {
                if *part > 0.0 {
                    cutoff * whole
                } else {
                    0.0
                }
            }
            Self::Points(points) => {
                // From the first point on at which nothing is left.
                let end = points.iter().find(|(_, part)| *part <= 0.0).or(points.last());
                end.map_or(0.0, |(late, _)| late * whole)
            }
        };
        deadline + Span::from_nanos(late as u64)
    }

    /// Whether no late answer is worth anything.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        *self == Self::Hard
    }
}

fn within(field: &str, value: f64, min: f64, max: f64) -> Result<(), DecayError> {
    // No number is in no range.
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(DecayError { field: field.to_owned(), value, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn beyond_its_reach_nothing_is_left_and_up_to_it_something() {
        let ms = Span::from_millis;
        let decays = [
            (Decay::Hard, 40),
            (Decay::Linear { per_ms: 0.01, cutoff: 0.1 }, 44),
            (Decay::Linear { per_ms: 0.5, cutoff: 0.1 }, 42),
            (Decay::Linear { per_ms: 0.0, cutoff: 2.0 }, 120),
            (Decay::Step { part: 0.5, cutoff: 0.5 }, 60),
            (Decay::Step { part: 0.0, cutoff: 0.5 }, 40),
            (Decay::Points(vec![(0.25, 0.8), (0.5, 0.0), (0.75, 0.0)]), 60),
            (Decay::Points(vec![(0.25, 0.8), (0.5, 0.2)]), 60),
        ];
        for (decay, reach) in decays {
            assert_eq!(decay.check(), Ok(()));
            assert_eq!(decay.reach(ms(40)), ms(reach), "{decay:?}");
            let part = |took: Span| decay.part_of(took, ms(40));
            assert_eq!(part(ms(40)), 1.0);
            assert!(part(ms(reach).saturating_sub(Span::from_micros(1))) > 0.0, "{decay:?}");
            assert_eq!(part(ms(reach) + Span::from_nanos(1)), 0.0, "{decay:?}");
        }
    }

    #[test]
    fn every_refusal_names_field_value_and_limit() {
        let text = |decay: Decay| format!("{}", decay.check().expect_err("refused"));
        let cases = [
            (Decay::Linear { per_ms: 1.5, cutoff: 0.1 }, "per-ms = 1.5: must be in 0..=1"),
            (Decay::Linear { per_ms: 0.5, cutoff: f64::NAN }, "cutoff = NaN: must be in 0..=100"),
            (Decay::Step { part: -0.5, cutoff: 0.1 }, "part = -0.5: must be in 0..=1"),
            (Decay::Points(vec![]), "points (how many) = 0: must be in 1..=64"),
            (Decay::Points(vec![(0.1, 0.8), (0.05, 0.2)]), "points[1][0] = 0.05: must be in 0.1..=100"),
            (Decay::Points(vec![(0.1, 0.8), (0.2, 0.9)]), "points[1][1] = 0.9: must be in 0..=0.8"),
        ];
        for (decay, told) in cases {
            assert_eq!(text(decay), told);
        }
    }
}
