//! A table for one arrival rate: of wishes, by what waits and how much time is left, or of prices, by what waits and who is free.

use alloc::boxed::Box;

use super::{SelectError, range};
use crate::time::{MAX_SPAN, Span};

/// The most wishes or prices of one table.
const MAX_CELLS: u64 = 1 << 20;
/// The most that a second of a worker's time may cost.
pub const MAX_PRICE: f32 = 1e12;

/// What a table of prices wishes for: the last variant, whichever that is, of those that are weighed.
pub(crate) const WEIGHED: usize = usize::MAX;

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
    /// It has prices instead of wishes; see [`SelectTable::of_prices`].
    Weighing,
}

/// Which variant to wish for, for one arrival rate: by the number of requests in the batch and waiting, and by the
/// slack of the batch's earliest deadline. Or what time costs: by that number, and by how many other workers are free.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectTable {
    rate_per_s: f64,
    bin: Span,
    bins: usize,
    rows: usize,
    wishes: Box<[u8]>,
    /// Instead of wishes, `bins` of them in a row.
    prices: Box<[f32]>,
    manner: Manner,
    /// The most requests of a batch, by how many wait; none if there is no such limit.
    sizes: Box<[u8]>,
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
        range("number of wishes", wishes.len() as u64, 1, MAX_CELLS)?;
        range("bins", bins as u64, 1, wishes.len() as u64)?;
        if wishes.len() % bins != 0 {
            return Err(SelectError::Rows { wishes: wishes.len(), bins });
        }
        let rows = wishes.len() / bins;
        Self { bin, bins, rows, wishes, ..Self::constant(0) }.up_to(rate_per_s)
    }

    /// What a second of a worker's time costs, in what an answer is worth, up to `rate_per_s` requests a second, which may be
    /// infinite. Row `n`, from 1, is for `n` requests in the batch and waiting, the last one also for more; in it, `frees`
    /// prices for 0, 1 and so on other workers that are free, the last one also for more. The batch gets the variant that is
    /// worth most to its own requests beyond what its time costs. Allocates.
    ///
    /// # Errors
    /// A rate that is not above 0, no price or more than 2^20, one outside 0..=[`MAX_PRICE`], or an incomplete row.
    pub fn of_prices(
        rate_per_s: f64,
        frees: usize,
        prices: impl Into<Box<[f32]>>,
    ) -> Result<Self, SelectError> {
        let prices = prices.into();
        range("number of prices", prices.len() as u64, 1, MAX_CELLS)?;
        range("prices in a row", frees as u64, 1, prices.len() as u64)?;
        if prices.len() % frees != 0 {
            return Err(SelectError::PriceRows { prices: prices.len(), frees });
        }
        if let Some(index) = prices.iter().position(|price| !(0.0..=MAX_PRICE).contains(price)) {
            return Err(SelectError::Price { index, price: prices[index] });
        }
        let (rows, wishes) = (prices.len() / frees, Box::default());
        Self { bins: frees, rows, wishes, prices, manner: Manner::Weighing, ..Self::constant(0) }
            .up_to(rate_per_s)
    }

    /// The same wish at any rate, for anything that waits. Allocates.
    #[must_use]
    pub fn constant(wish: u8) -> Self {
        let (rate_per_s, wishes) = (f64::INFINITY, Box::new([wish]));
        let (prices, sizes) = (Box::default(), Box::default());
        Self { rate_per_s, bin: MAX_SPAN, bins: 1, rows: 1, wishes, prices, manner: Manner::Plain, sizes }
    }

    /// The same with batches of at most `sizes`, where nothing is promised for anything that waits and no worker waits for
    /// more: number `n`, from 0, where `n + 1` requests wait, the last one also for more; none for no such limit. What takes
    /// fewer than all that wait has more time for each of them.
    ///
    /// # Errors
    /// A size of 0, or more than 2^20 of them.
    pub fn in_batches(self, sizes: impl Into<Box<[u8]>>) -> Result<Self, SelectError> {
        let sizes = sizes.into();
        range("number of batches", sizes.len() as u64, 0, MAX_CELLS)?;
        let least = sizes.iter().min().map_or(1, |&size| u64::from(size));
        range("requests of a batch", least, 1, u64::from(u8::MAX))?;
        Ok(Self { sizes, ..self })
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

    /// All wishes, row after row; none of a table of prices.
    #[must_use]
    pub fn wishes(&self) -> &[u8] {
        &self.wishes
    }

    /// All prices, row after row; none of a table of wishes.
    #[must_use]
    pub fn prices(&self) -> &[f32] {
        &self.prices
    }

    /// The most requests of a batch, by how many wait; none if there is no such limit.
    #[must_use]
    pub fn sizes(&self) -> &[u8] {
        &self.sizes
    }

    /// The most requests of a batch where so many wait, at least 1.
    #[must_use]
    #[inline]
    pub fn most(&self, waiting: usize) -> usize {
        let place = waiting.clamp(1, self.sizes.len().max(1)) - 1;
        self.sizes.get(place).map_or(usize::MAX, |&size| usize::from(size))
    }

    /// How many wishes or prices are in a row, at least 1.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.bins
    }

    /// How long each interval of slack is, of a table of wishes.
    #[must_use]
    pub const fn bin(&self) -> Span {
        self.bin
    }

    /// The wish where `requests` (at least 1; 0 counts as 1) are in the batch or wait, and the earliest of the batch
    /// is due, less the guard, in `slack`. Of a table of prices `usize::MAX`: the last variant, whichever that is.
    #[must_use]
    #[inline]
    pub fn wish(&self, requests: usize, slack: Span) -> usize {
        match self.wishes[..] {
            [] => return WEIGHED,
            [only] => return usize::from(only),
            _ => {}
        }
        let bin = (slack.as_nanos() / self.bin.as_nanos()).min(self.bins as u64 - 1) as usize;
        usize::from(self.wishes[(requests.clamp(1, self.rows) - 1) * self.bins + bin])
    }

    /// What a second of a worker's time costs where `requests` are in the batch or wait, and `free` other workers are free;
    /// `None` of a table of wishes.
    #[must_use]
    pub fn price(&self, requests: usize, free: usize) -> Option<f64> {
        let place = (requests.clamp(1, self.rows) - 1) * self.bins + free.min(self.bins - 1);
        self.prices.get(place).map(|&price| f64::from(price))
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
        let new = |rate, frees, prices: &[f32]| {
            let made = SelectTable::of_prices(rate, frees, prices);
            alloc::format!("{}", made.expect_err("refused"))
        };
        assert_eq!(new(-1.0, 1, &[0.0]), "rate_per_s = -1: must be above 0");
        assert_eq!(new(1.0, 1, &[]), "number of prices = 0 is outside 1..=1048576");
        assert_eq!(new(1.0, 2, &[0.0]), "prices in a row = 2 is outside 1..=1");
        assert_eq!(new(1.0, 2, &[0.0; 3]), "3 prices: must be a multiple of 2, those in a row");
        assert_eq!(new(1.0, 2, &[0.0, f32::NAN]), "price[1] = NaN: must be in 0..=1000000000000");
        assert_eq!(new(1.0, 1, &[-0.5]), "price[0] = -0.5: must be in 0..=1000000000000");
    }

    #[test]
    fn batches_are_limited_by_what_waits() {
        let table = SelectTable::constant(1);
        assert_eq!((table.most(0), table.most(9)), (usize::MAX, usize::MAX));
        let table = table.in_batches([1, 1, 3]).expect("valid");
        assert_eq!([0, 1, 2, 3, usize::MAX].map(|waiting| table.most(waiting)), [1, 1, 1, 3, 3]);
        assert_eq!(table.sizes(), [1, 1, 3]);
        let wrong = table.in_batches([1, 0]).expect_err("refused");
        assert_eq!(alloc::format!("{wrong}"), "requests of a batch = 0 is outside 1..=255");
    }

    #[test]
    fn prices_are_by_what_waits_and_who_is_free() {
        let table = SelectTable::of_prices(1.0, 2, [1.0, 2.0, 3.0, 4.0]).expect("valid");
        let price = |requests, free| table.price(requests, free);
        assert_eq!(
            [(0, 0), (1, 1), (1, 9), (2, 0), (9, 9)].map(|(n, free)| price(n, free)),
            [1.0, 2.0, 2.0, 3.0, 4.0].map(Some)
        );
        assert_eq!((table.wish(1, Span::ZERO), table.manner()), (usize::MAX, Manner::Weighing));
        assert_eq!(SelectTable::constant(1).price(1, 0), None);
    }
}
