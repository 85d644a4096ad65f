//! What a late answer is worth: nothing, or less with every millisecond.

use super::{SettingError, within};

/// What part of its worth an answer keeps that is late. The deadline is one for each token.
#[derive(Clone, Debug, PartialEq)]
pub enum Decay {
    /// None.
    Hard,
    /// So much less for each millisecond too late, and nothing beyond a lateness of this part of the deadline (Jha et al.,
    /// section 4.3.2: 0.01 and 0.1).
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

impl Decay {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        const LATE: f64 = 100.0;
        match self {
            Self::Hard => Ok(()),
            &Self::Linear { per_ms, cutoff } => {
                within("decay.per-ms", per_ms, 0.0, 1.0)?;
                within("decay.cutoff", cutoff, 0.0, LATE)
            }
            &Self::Step { part, cutoff } => {
                within("decay.part", part, 0.0, 1.0)?;
                within("decay.cutoff", cutoff, 0.0, LATE)
            }
            Self::Points(points) => {
                within("number of decay.points", points.len() as f64, 1.0, 64.0)?;
                let mut before = (0.0, 1.0);
                for (i, &(late, part)) in points.iter().enumerate() {
                    within(&format!("decay.points[{i}][0]"), late, before.0, LATE)?;
                    within(&format!("decay.points[{i}][1]"), part, 0.0, before.1)?;
                    before = (late, part);
                }
                Ok(())
            }
        }
    }

    /// What part of the worth an answer keeps whose tokens took `token_ms` where they may take `deadline_ms`: in 0..=1.
    #[must_use]
    pub fn part(&self, token_ms: f64, deadline_ms: f64) -> f64 {
        let over = token_ms - deadline_ms;
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
}
