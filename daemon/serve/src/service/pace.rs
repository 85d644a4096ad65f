//! How a stream's requests really come, told in the terms of its declaration: by how much they are ahead of its rate.

use std::sync::atomic::{AtomicU64, Ordering};

use rt_core::{ArrivalCurve, Instant, Span};

/// Follows one stream. Whoever holds the scheduler writes, everybody else may read.
///
/// Of requests spaced by the declared rate the next one is due a period after the one before, or after the instant at which
/// that was due, whichever is later (the generic cell rate algorithm, ITU-T I.371). By so much as one comes before it is due,
/// so much jitter a periodic declaration of that rate needs, exactly.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds between two requests at the declared rate, and none if none is declared.
    period: u64,
    /// When the next is due.
    due: AtomicU64,
    /// The most by which one came before it was due, and how many have come.
    early: AtomicU64,
    count: AtomicU64,
}

/// What was seen of a stream, and the declaration that would have fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Of the declared rate.
    pub period: Span,
    /// The least jitter with which all requests keep to that period.
    pub jitter: Span,
    /// The least tokens of a bucket that gets one each period, from which all of them can be paid.
    pub burst: u64,
}

impl Pace {
    /// Of a stream that declares this, or nothing.
    pub(super) fn of(declared: Option<&ArrivalCurve>) -> Self {
        let period = declared.map(ArrivalCurve::rate_per_s).filter(|rate| *rate > 0.0);
        Self { period: period.map_or(0, |rate| (1e9 / rate).ceil() as u64), ..Self::default() }
    }

    /// Takes down a request that came at `at`; to be called by whoever holds the scheduler.
    pub(super) fn came(&self, at: Instant) {
        if self.period == 0 {
            return;
        }
        let (at, due) = (at.as_nanos(), self.due.load(Ordering::Relaxed));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.early.fetch_max(due.saturating_sub(at), Ordering::Relaxed);
        self.due.store(due.max(at).saturating_add(self.period), Ordering::Relaxed);
    }

    /// Another client has come: what the one before did is none of its business.
    pub(super) fn begin_anew(&self) {
        for word in [&self.due, &self.early, &self.count] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// What was seen so far; nothing before the second request, and of a stream that declares nothing.
    pub fn seen(&self) -> Option<Paced> {
        let jitter = self.early.load(Ordering::Relaxed);
        let told = self.period > 0 && self.count.load(Ordering::Relaxed) > 1;
        told.then(|| Paced {
            period: Span::from_nanos(self.period),
            jitter: Span::from_nanos(jitter),
            burst: 1 + jitter.div_ceil(self.period),
        })
    }
}

#[cfg(test)]
mod tests {
    use rt_core::ArrivalBound;

    use super::*;

    fn ms(count: u64) -> Span {
        Span::from_millis(count)
    }

    /// What is seen of requests at these milliseconds where one in 10 ms is declared.
    fn seen(at: &[u64]) -> Option<Paced> {
        let curve = ArrivalCurve::new(&[ArrivalBound::window(2, ms(20)).unwrap()]).unwrap();
        let pace = Pace::of(Some(&curve));
        at.iter().for_each(|&at| pace.came(Instant::ZERO + ms(1_000 + at)));
        pace.seen()
    }

    #[test]
    fn the_jitter_and_the_burst_that_are_told_fit_all_that_came_and_less_does_not() {
        for (at, jitter, burst) in [
            (&[0, 10, 20, 35, 45][..], 0, 1),
            (&[0, 12, 20, 30], 2, 2),
            (&[0, 0, 0, 25, 30], 20, 3),
            (&[0, 9, 18, 27, 36, 45], 5, 2),
        ] {
            assert_eq!(seen(at), Some(Paced { period: ms(10), jitter: ms(jitter), burst }), "{at:?}");
            // The arrival monitor says the same of it.
            let excess = |bound: ArrivalBound| {
                let mut police = rt_core::Policer::new(&ArrivalCurve::new(&[bound]).unwrap());
                at.iter().any(|&at| police.observe(Instant::ZERO + ms(1_000 + at), false).1.is_some())
            };
            assert!(!excess(ArrivalBound::periodic(ms(10), ms(jitter)).unwrap()));
            assert!(!excess(ArrivalBound::token_bucket(burst, ms(10)).unwrap()));
            assert!(jitter == 0 || excess(ArrivalBound::periodic(ms(10), ms(jitter - 1)).unwrap()));
            assert!(burst == 1 || excess(ArrivalBound::token_bucket(burst - 1, ms(10)).unwrap()));
        }
    }

    #[test]
    fn nothing_is_told_of_one_request_or_of_a_stream_that_declares_nothing_or_begins_anew() {
        assert_eq!((seen(&[]), seen(&[5])), (None, None));
        let pace = Pace::of(None);
        (0..9).for_each(|_| pace.came(Instant::ZERO));
        assert_eq!(pace.seen(), None);
        let curve = ArrivalCurve::new(&[ArrivalBound::periodic(ms(10), ms(0)).unwrap()]).unwrap();
        let pace = Pace::of(Some(&curve));
        (0..9).for_each(|_| pace.came(Instant::ZERO + ms(7)));
        assert_eq!(pace.seen().map(|paced| paced.burst), Some(9));
        pace.begin_anew();
        assert_eq!(pace.seen(), None);
    }
}
