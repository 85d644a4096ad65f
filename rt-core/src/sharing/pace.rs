//! Pace: a straight line above what the batches of a service take of whatever comes.

use super::{Demands, SharedService};
use crate::busy::MandatoryCurve;
use crate::growth::{Envelope, repetition};
use crate::time::MAX_SPAN;

/// The most rises of a curve that are looked at, by admission.
const RISES: usize = 1 << 12;
/// A whole worker.
pub(super) const WHOLE: u128 = 1 << 32;

/// What the batches of a service take at most that has some of what comes: this much at once, and so much a nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// In nanoseconds.
    pub(super) burst: u64,
    /// In `1/`[`WHOLE`].
    pub(super) slope: u64,
}

impl Pace {
    /// The least for `P·⌈α(z + 1)/B⌉`, rises looked at until they repeat or are too many.
    pub(super) fn new(service: &SharedService, demands: &Demands) -> Self {
        let (time, batch) = (service.time.as_nanos(), service.batch as u64);
        let envelope = Envelope::of(demands);
        let slope = (envelope.utilisation(service) * WHOLE as f64 * (1.0 + 1e-12)) as u64 + 1;
        let rough = time as f64 * (envelope.at_once() / batch as f64 + 1.0);
        let repeated = repetition(demands, []).and_then(|all| {
            let length = all.length.checked_mul(batch)?;
            all.from.checked_add(length)
        });
        if demands.is_empty() {
            return Self::default();
        }
        let (mut burst, mut curve) = (0, MandatoryCurve::new(demands));
        for _ in 0..RISES {
            let y = curve.length().as_nanos() - 1;
            let work = time.saturating_mul(curve.requests().div_ceil(batch));
            burst = burst.max(work.saturating_sub((u128::from(y) * u128::from(slope) / WHOLE) as u64));
            let next = curve.next_rise();
            if next >= MAX_SPAN || repeated.is_some_and(|repeated| next.as_nanos() > repeated + 1) {
                return Self { burst, slope };
            }
            curve.rise();
        }
        Self { burst: burst.max((rough * 1.000_001) as u64 + 1), slope }
    }

    /// What the batches take within `distance` of the first that comes.
    pub(super) fn within(self, distance: u64) -> u64 {
        let more = u128::from(distance) * u128::from(self.slope);
        self.burst.saturating_add(u64::try_from(more.div_ceil(WHOLE)).unwrap_or(u64::MAX))
    }
}
