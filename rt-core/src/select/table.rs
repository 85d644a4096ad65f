//! A table of wishes for one arrival rate, by what waits and how much time is left.

use alloc::boxed::Box;

use super::{SelectError, range};
use crate::time::{MAX_SPAN, Span};

/// The most wishes of one table.
const MAX_WISHES: u64 = 1 << 20;

/// What a table's wish means for the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manner {
    /// It was formed as the base answers it soonest; a variant that takes too long for the earliest of it is not taken.
    #[default]
    Plain,
    /// Where nothing is promised for anything that waits, it is formed for the variant that is wished for: what that is too
    /// late for is left out, as it would be if the variant were the base.
    Forming,
    /// As plain, and cut down as by [`Selector::sparing`](super::Selector::sparing).
    Sparing,
    /// The network is asked; see [`Selector::mixed`](super::Selector::mixed).
    Learned,
}

/// Which variant to wish for, for one arrival rate: by the number of requests in the batch and waiting, and by the
/// slack of the batch's earliest deadline.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectTable {
    rate_per_s: f64,
    bin: Span,
    bins: usize,
    rows: usize,
    wishes: Box<[u8]>,
    manner: Manner,
}

impl SelectTable {
    /// A table for up to `rate_per_s` requests a second, which may be infinite. Row `n`, from 1, is for `n` requests,
    /// the last one also for more; in it, `bins` wishes for a slack of `0..bin`, `bin..2·bin` and so on, the last one
    /// also for more. `wishes` holds row after row. Allocates.
    ///
    /// # Errors
    /// A rate that is not above 0, a `bin` outside 1 ns..=[`MAX_SPAN`], no wish or more than 2^20, or an incomplete row.
    pub fn new(
        rate_per_s: f64,
        bin: Span,
        bins: usize,
        wishes: impl Into<Box<[u8]>>,
    ) -> Result<Self, SelectError> {
        let wishes = wishes.into();
        range("bin in nanoseconds", bin.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        range("number of wishes", wishes.len() as u64, 1, MAX_WISHES)?;
        range("bins", bins as u64, 1, wishes.len() as u64)?;
        if wishes.len() % bins != 0 {
            return Err(SelectError::Rows { wishes: wishes.len(), bins });
        }
        let rows = wishes.len() / bins;
        Self { rate_per_s, bin, bins, rows, wishes, manner: Manner::Plain }.up_to(rate_per_s)
    }

    /// The same wish at any rate, for anything that waits. Allocates.
    #[must_use]
    pub fn constant(wish: u8) -> Self {
        let (rate_per_s, wishes) = (f64::INFINITY, Box::new([wish]));
        Self { rate_per_s, bin: MAX_SPAN, bins: 1, rows: 1, wishes, manner: Manner::Plain }
    }

    /// The same with another manner.
    #[must_use]
    pub fn in_manner(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    /// The same up to another rate, which is above 0 and may be infinite.
    ///
    /// # Errors
    /// A rate that is not above 0.
    pub fn up_to(self, rate_per_s: f64) -> Result<Self, SelectError> {
        // A NaN is not above 0 either.
        if rate_per_s.is_nan() || rate_per_s <= 0.0 {
            return Err(SelectError::Rate { rate: rate_per_s });
        }
        Ok(Self { rate_per_s, ..self })
    }

    /// What its wishes mean.
    #[must_use]
    pub const fn manner(&self) -> Manner {
        self.manner
    }

    /// The rate up to which it is read, in requests a second.
    #[must_use]
    pub const fn rate_per_s(&self) -> f64 {
        self.rate_per_s
    }

    /// All wishes, row after row.
    #[must_use]
    pub fn wishes(&self) -> &[u8] {
        &self.wishes
    }

    /// The wish where `requests` (at least 1; 0 counts as 1) are in the batch or wait, and the earliest of the batch
    /// is due, less the guard, in `slack`.
    #[must_use]
    #[inline]
    pub fn wish(&self, requests: usize, slack: Span) -> usize {
        if let [only] = self.wishes[..] {
            return usize::from(only);
        }
        let bin = (slack.as_nanos() / self.bin.as_nanos()).min(self.bins as u64 - 1) as usize;
        usize::from(self.wishes[(requests.clamp(1, self.rows) - 1) * self.bins + bin])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_bins_are_clipped_at_their_ends() {
        let bin = Span::from_nanos(10);
        let table = SelectTable::new(1.0, bin, 3, [0, 1, 2, 3, 4, 5]).expect("valid");
        let wish = |requests, slack| table.wish(requests, Span::from_nanos(slack));
        assert_eq!((wish(1, 0), wish(1, 9), wish(1, 10), wish(1, 29), wish(1, 30)), (0, 0, 1, 2, 2));
        assert_eq!((wish(0, 0), wish(2, 0), wish(3, 999), wish(usize::MAX, 20)), (0, 3, 5, 5));
        assert_eq!(SelectTable::constant(7).wish(0, Span::ZERO), 7);
    }

    #[test]
    fn every_refusal_names_field_value_and_limit() {
        let new = |rate, bin, bins, wishes: &[u8]| {
            let made = SelectTable::new(rate, Span::from_nanos(bin), bins, wishes);
            alloc::format!("{}", made.expect_err("refused"))
        };
        assert_eq!(new(0.0, 1, 1, &[0]), "rate_per_s = 0: must be above 0");
        assert_eq!(new(f64::NAN, 1, 1, &[0]), "rate_per_s = NaN: must be above 0");
        assert_eq!(new(1.0, 0, 1, &[0]), "bin in nanoseconds = 0 is outside 1..=3600000000000");
        assert_eq!(new(1.0, 1, 1, &[]), "number of wishes = 0 is outside 1..=1048576");
        assert_eq!(new(1.0, 1, 0, &[0]), "bins = 0 is outside 1..=1");
        assert_eq!(new(1.0, 1, 2, &[0, 0, 0]), "3 wishes: must be a multiple of bins = 2");
    }
}
