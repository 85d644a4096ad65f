//! The rule that asks a network: what waits, how long it may take and how much comes in, what each variant is worth out.

use super::{BatchView, LoadMonitor, Net, SelectError, VariantSelector, range};
use crate::time::{Instant, MAX_SPAN, Span};

/// What a network is shown of a batch: its size, what waits, the slack, the rate.
pub const LEARNED_INPUTS: usize = 4;

/// What inputs of a network are parts of: at these values each is 1, and twice that is the most that it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedScale {
    /// Requests of a batch, and requests that wait: at least 1.
    pub requests: usize,
    /// The slack: above 0.
    pub slack: Span,
    /// Requests a second: above 0.
    pub rate_per_s: f64,
}

impl LearnedScale {
    /// # Errors
    /// If a value is outside its range.
    fn check(self) -> Result<Self, SelectError> {
        range("requests", self.requests as u64, 1, u64::from(u32::MAX))?;
        range("slack in nanoseconds", self.slack.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        if self.rate_per_s > 0.0 && self.rate_per_s.is_finite() {
            Ok(self)
        } else {
            Err(SelectError::Rate { rate: self.rate_per_s })
        }
    }

    /// What a network is shown of `batch` at this rate. Does not allocate.
    #[must_use]
    pub fn inputs(&self, batch: &BatchView, rate_per_s: f64) -> [f32; LEARNED_INPUTS] {
        let part = |value: f64, whole: f64| (value / whole).min(2.0) as f32;
        let whole = self.requests as f64;
        [
            part(batch.size as f64, whole),
            part(batch.waiting as f64, whole),
            part(batch.slack.as_secs_f64(), self.slack.as_secs_f64()),
            part(rate_per_s, self.rate_per_s),
        ]
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
    /// A scale outside its range, or a network of other inputs than [`LEARNED_INPUTS`] or other outputs than `variants`.
    pub(super) fn new(
        net: Net,
        scale: LearnedScale,
        load: LoadMonitor,
        variants: usize,
    ) -> Result<Self, SelectError> {
        let scale = scale.check()?;
        let (inputs, outputs) = (net.widths()[0] as u64, net.widths()[net.widths().len() - 1] as u64);
        range("inputs of the network", inputs, LEARNED_INPUTS as u64, LEARNED_INPUTS as u64)?;
        range("outputs of the network", outputs, variants as u64, variants as u64)?;
        Ok(Self { net, scale, load })
    }
}

impl VariantSelector for LearnedRule {
    fn wish(&mut self, batch: &BatchView) -> usize {
        let inputs = self.scale.inputs(batch, self.load.rate_per_s(batch.now));
        self.net.best(&inputs)
    }

    fn observe(&mut self, now: Instant) {
        self.load.observe(now);
    }

    fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.load.rate_per_s(now)
    }
}
