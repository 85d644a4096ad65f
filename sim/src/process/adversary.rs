//! The worst that an arrival curve allows, over and over.

use rt_core::{ArrivalBound, ArrivalCurve, Instant, MAX_COUNT, MAX_SPAN, Span};

use super::draws::Draws;
use crate::curves::Pacer;

/// The last instant sent: behind it the bounds, which look ahead by a span or two, would meet the clock's end.
const END: u64 = u64::MAX - 4 * MAX_SPAN.as_nanos();

/// Sends as early as its curve allows for a while, pauses, and does so again.
///
/// A while is one burst, a part of one, a little more than one, or a long stretch. A pause is one after which just
/// nothing that was sent counts any more, so that the next burst is a full one; or shorter, or longer. The first
/// burst comes at 0.
#[derive(Clone, Debug)]
pub(super) struct Adversary {
    pacer: Pacer<'static>,
    /// Requests that a fresh source sends before every bound counts.
    burst: u64,
    /// Requests until the next pause.
    left: u64,
    /// The last request; after a pause, its end.
    from: u64,
    draws: Draws,
}

impl Adversary {
    pub(super) fn new(curve: &ArrivalCurve, draws: Draws) -> Self {
        let reach = |bound: &ArrivalBound| match bound {
            ArrivalBound::Window { length, .. } => *length,
            ArrivalBound::Periodic { period, jitter } => *period + *jitter,
            ArrivalBound::Distances(distances) => distances.as_slice().last().copied().unwrap_or(Span::ZERO),
        };
        let reach = curve.bounds().iter().map(reach).max().unwrap_or(Span::ZERO);
        let burst = curve.greedy().take(MAX_COUNT as usize).take_while(|&offset| offset < reach).count();
        let burst = (burst as u64).max(1);
        Self { pacer: Pacer::owned(curve.clone()), burst, left: burst, from: 0, draws }
    }

    pub(super) fn reseed(&mut self, draws: Draws) {
        self.draws = draws;
    }

    pub(super) fn next(&mut self) -> Option<Instant> {
        if self.left == 0 {
            self.pause();
        }
        self.left -= 1;
        let instant = self.pacer.earliest(self.from);
        if instant > END {
            return None;
        }
        self.pacer.send(instant);
        self.from = instant;
        Some(Instant::from_nanos(instant))
    }

    fn pause(&mut self) {
        self.left = match self.draws.below(8) {
            0..=3 => self.burst,
            4 | 5 => 1 + self.draws.below(self.burst),
            6 => self.burst + 1 + self.draws.below(16),
            _ => (self.burst << self.draws.below(7)).max(64),
        };
        let rest = self.pacer.recovered().saturating_sub(self.from);
        let pause = match self.draws.below(4) {
            0 | 1 => rest,
            2 => self.draws.below(rest.saturating_add(1)),
            _ => rest.saturating_add(self.draws.below(rest.saturating_mul(4).saturating_add(1))),
        };
        self.from = self.from.saturating_add(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::{curve_of, keeps};
    use crate::samples;
    use crate::time::ns;
    use proptest::prelude::*;

    fn sent(curve: &ArrivalCurve, seed: u64, count: usize) -> Vec<Instant> {
        let mut source = Adversary::new(curve, Draws::new(seed));
        std::iter::from_fn(|| source.next()).take(count).collect()
    }

    /// At which requests the worst trace begins anew, for `burst` requests.
    fn bursts(curve: &ArrivalCurve, sent: &[Instant], burst: usize) -> Vec<usize> {
        let worst: Vec<_> = curve.greedy().take(burst).collect();
        let offsets = |from: &[Instant]| from.iter().map(|at| at.since(from[0])).eq(worst.iter().copied());
        (0..=sent.len() - burst).filter(|&i| offsets(&sent[i..i + burst])).collect()
    }

    proptest! {
        #[test]
        fn it_keeps_to_its_curve_and_reaches_it_again_and_again(curve in samples::curve(), seed: u64) {
            let sent = sent(&curve, seed, 20_000);
            prop_assert!(sent.is_sorted());
            prop_assert!(keeps(&curve, &sent));
            let burst = Adversary::new(&curve, Draws::new(0)).burst as usize;
            prop_assert!(burst <= 64, "the curves of the samples are small");
            let full = bursts(&curve, &sent, burst);
            // Not only at first: full bursts come throughout.
            prop_assert!(full.iter().any(|&i| i > 10_000));
            prop_assert_eq!(full[0], 0);
        }
    }

    #[test]
    fn there_are_bursts_after_idle_times_and_long_stretches_without_any() {
        // Four at once every 10 ms, and a token bucket of as many.
        let window = samples::window(4, 10_000_000);
        let bucket = curve_of(ArrivalBound::token_bucket(4, ns(2_500_000)).expect("valid"));
        for curve in [window, bucket] {
            let sent = sent(&curve, 11, 20_000);
            assert!(keeps(&curve, &sent));
            let idle = |&&i: &&usize| i > 0 && sent[i].since(sent[i - 1]) > ns(20_000_000);
            let full = bursts(&curve, &sent, 4);
            assert!(full.iter().filter(idle).count() > 100);
            // At the rate of the curve for 100 requests and more.
            let busy = sent.windows(101).filter(|w| w[100].since(w[0]) <= ns(250_000_000)).count();
            assert!(busy > 100, "{busy}");
        }
    }

    #[test]
    fn it_ends_just_before_the_clock_does() {
        let curve = curve_of(ArrivalBound::periodic(MAX_SPAN, MAX_SPAN).expect("valid"));
        let sent = sent(&curve, 1, usize::MAX);
        let last = sent[sent.len() - 1].as_nanos();
        assert!(keeps(&curve, &sent) && last > u64::MAX / 1_000 * 999);
    }
}
