//! The rule that asks a network: what waits, how long it may take and how much comes in, what each variant is worth out.

use super::{BatchView, LoadMonitor, MAX_CLASSES, Net, SelectError, VariantSelector, range};
use crate::time::{Instant, MAX_SPAN, Span};

/// What a network is shown of a batch: its size, what waits, the slack, the rate, the other workers that are free. Behind these
/// comes how many of the batch are of each class, where there are classes.
pub const LEARNED_INPUTS: usize = 5;
/// The most that a network is shown.
const MOST_INPUTS: usize = LEARNED_INPUTS + MAX_CLASSES;

/// What inputs of a network are parts of: at these values each is 1, and twice that is the most that it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedScale {
    /// Requests of a batch, also of one class, and requests that wait: at least 1.
    pub requests: usize,
    /// The slack: above 0.
    pub slack: Span,
    /// Requests a second: above 0.
    pub rate_per_s: f64,
    /// Workers: at least 1.
    pub workers: usize,
    /// How many classes requests are of; 0 if they are all alike.
    pub classes: usize,
}

impl LearnedScale {
    /// How many inputs a network has.
    #[must_use]
    pub const fn count(&self) -> usize {
        LEARNED_INPUTS + self.classes
    }

    /// # Errors
    /// If a value is outside its range.
    fn check(self) -> Result<Self, SelectError> {
        range("requests", self.requests as u64, 1, u64::from(u32::MAX))?;
        range("workers", self.workers as u64, 1, u64::from(u32::MAX))?;
        range("classes", self.classes as u64, 0, MAX_CLASSES as u64)?;
        range("slack in nanoseconds", self.slack.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        if self.rate_per_s > 0.0 && self.rate_per_s.is_finite() {
            Ok(self)
        } else {
            Err(SelectError::Rate { rate: self.rate_per_s })
        }
    }

    /// What a network is shown of `batch` at this rate: the first [`LearnedScale::count`], and zeros. Does not allocate.
    #[must_use]
    pub fn inputs(&self, batch: &BatchView, rate_per_s: f64) -> [f32; MOST_INPUTS] {
        let part = |value: f64, whole: f64| (value / whole).min(2.0) as f32;
        let whole = self.requests as f64;
        let mut inputs = [0.0; MOST_INPUTS];
        inputs[..LEARNED_INPUTS].copy_from_slice(&[
            part(batch.size as f64, whole),
            part(batch.waiting as f64, whole),
            part(batch.slack.as_secs_f64(), self.slack.as_secs_f64()),
            part(rate_per_s, self.rate_per_s),
            part(batch.free as f64, self.workers as f64),
        ]);
        for (input, &count) in inputs[LEARNED_INPUTS..].iter_mut().zip(&batch.classes).take(self.classes) {
            *input = part(f64::from(count), whole);
        }
        inputs
    }
}

/// Wishes for the variant that its network holds to be worth most.
#[derive(Clone, Debug)]
pub(super) struct LearnedRule {
    net: Net,
    scale: LearnedScale,
    load: LoadMonitor,
}

impl LearnedRule {
    /// # Errors
    /// A scale outside its range, or a network of other inputs than [`LearnedScale::count`] or other outputs than `variants`.
    pub(super) fn new(
        net: Net,
        scale: LearnedScale,
        load: LoadMonitor,
        variants: usize,
    ) -> Result<Self, SelectError> {
        let scale = scale.check()?;
        let (inputs, outputs) = (net.widths()[0] as u64, net.widths()[net.widths().len() - 1] as u64);
        let shown = scale.count() as u64;
        range("inputs of the network", inputs, shown, shown)?;
        range("outputs of the network", outputs, variants as u64, variants as u64)?;
        Ok(Self { net, scale, load })
    }
}

impl VariantSelector for LearnedRule {
    fn wish(&mut self, batch: &BatchView) -> usize {
        let inputs = self.scale.inputs(batch, self.load.present_per_s(batch.now));
        self.net.best(&inputs)
    }

    fn observe(&mut self, now: Instant) {
        self.load.observe(now);
    }

    fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.load.present_per_s(now)
    }
}
