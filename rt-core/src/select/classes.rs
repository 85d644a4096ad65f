//! Classes of requests: what an answer of each variant is worth to a request of each, and which variant is worth most to a batch.

use alloc::boxed::Box;

use super::{Decay, SelectError, Selector, range};
use crate::scheduler::Request;
use crate::time::{Instant, MAX_SPAN, Span};

/// The most classes of requests of one service.
pub const MAX_CLASSES: usize = 16;
/// The most that an answer may be worth.
pub const MAX_WORTH: f64 = 1e6;

/// A class of requests, as a selector sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassWorth {
    /// What an answer in time is worth, by variant: each in 0..=[`MAX_WORTH`].
    pub worth: Box<[f64]>,
    /// From arrival to answer.
    pub deadline: Span,
    /// What becomes of the worth afterwards.
    pub decay: Decay,
}

impl ClassWorth {
    /// # Errors
    /// With the first value that is outside its range.
    fn check(&self, class: usize, variants: usize) -> Result<(), SelectError> {
        let (found, all) = (self.worth.len() as u64, variants as u64);
        range("variants that a class knows the worth of", found, all, all)?;
        range("deadline of a class in nanoseconds", self.deadline.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        let wrong = |worth: &f64| !(0.0..=MAX_WORTH).contains(worth);
        if let Some(variant) = self.worth.iter().position(wrong) {
            return Err(SelectError::Worth { class, variant, worth: self.worth[variant] });
        }
        self.decay.check().map_err(|_| SelectError::Decay { class })
    }

    /// What the answer of a variant is worth to a request, at `end`.
    fn of(&self, variant: usize, request: &Request, end: Instant) -> f64 {
        if end > request.wanted {
            return 0.0;
        }
        self.worth[variant] * self.decay.part_of(end.since(request.arrival), self.deadline)
    }
}

impl Selector {
    /// The same for requests of these classes, by their numbers; a request of none of them counts as one of the first. A wish
    /// then says how long a batch may take, and which variant that is depends on the batch: see [`Selector::worthiest`].
    ///
    /// # Errors
    /// None or more than [`MAX_CLASSES`], or a value outside its range.
    pub fn for_classes(self, classes: impl Into<Box<[ClassWorth]>>) -> Result<Self, SelectError> {
        let classes = classes.into();
        range("number of classes", classes.len() as u64, 1, MAX_CLASSES as u64)?;
        let variants = self.variants.len();
        classes.iter().enumerate().try_for_each(|(i, class)| class.check(i, variants))?;
        Ok(Self { classes, ..self })
    }

    /// The classes; none if requests are all alike.
    #[must_use]
    pub fn classes(&self) -> &[ClassWorth] {
        &self.classes
    }

    /// How many of these requests are of each class.
    #[inline(never)]
    pub(crate) fn mix(&self, batch: &[Request]) -> [u8; MAX_CLASSES] {
        let mut mix = [0; MAX_CLASSES];
        for request in batch {
            mix[self.class(request)] += 1;
        }
        mix
    }

    fn class(&self, request: &Request) -> usize {
        let class = usize::from(request.class);
        if class < self.classes.len() { class } else { 0 }
    }

    /// The variant that is worth most to this batch, started at `now`, beyond its time at `price` a second, of those that take
    /// it, within `limit`, and no longer than the slowest up to `wish` does; of equals the one that takes least. Late answers
    /// count by what they keep of their worth, where batches take what they most likely do. With its time bound; `None` for
    /// the base, which is always among them.
    #[inline(never)]
    #[must_use]
    pub fn worthiest(
        &self,
        now: Instant,
        wish: usize,
        batch: &[Request],
        (limit, price): (Span, f64),
    ) -> Option<(usize, Span)> {
        let size = batch.len();
        let upto = self.variants.get(..=wish).unwrap_or(&self.variants);
        let slowest = upto.iter().filter_map(|variant| variant.time(size)).max()?;
        let most = slowest.min(limit);
        let mut best = (self.worth(now, 0, batch, price), None::<(usize, Span)>);
        for (variant, of) in self.variants.iter().enumerate().skip(1) {
            let Some(time) = of.time(size).filter(|time| *time <= most) else { continue };
            let worth = self.worth(now, variant, batch, price);
            let sooner = || best.1.is_some_and(|(_, before)| time < before);
            if worth > best.0 || worth == best.0 && sooner() {
                best = (worth, Some((variant, time)));
            }
        }
        best.1
    }

    /// What the answers of a variant are worth to a batch that it starts at `now`, beyond its time at `price` a second.
    /// Requests that are all alike are worth its accuracy.
    fn worth(&self, now: Instant, variant: usize, batch: &[Request], price: f64) -> f64 {
        let took = self.variants[variant].profile.likely(batch.len());
        let end = now + took;
        let worth = |request: &Request| match self.classes.get(self.class(request)) {
            Some(class) => class.of(variant, request, end),
            None if end <= request.wanted => self.variants[variant].accuracy,
            None => 0.0,
        };
        batch.iter().map(worth).sum::<f64>() - price * took.as_secs_f64()
    }
}
