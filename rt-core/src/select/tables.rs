//! Tables for rising arrival rates, checked together, so that a running selector can take them over at once.

use alloc::boxed::Box;

use super::{MAX_TABLES, Manner, SelectError, SelectTable, range};

/// Tables by rising rate, each of which wishes for the same variants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectTables {
    tables: Box<[SelectTable]>,
    /// Every wish is below.
    variants: usize,
    /// Whether a wish of any of them is other than plain, or its batches are limited.
    mannered: bool,
}

impl SelectTables {
    /// Checks `tables`, by rising rate, against the number of `variants` that they select among. Allocates.
    ///
    /// # Errors
    /// More than [`MAX_TABLES`], rates out of order, or a wish for a variant that is not there.
    pub fn new(tables: impl Into<Box<[SelectTable]>>, variants: usize) -> Result<Self, SelectError> {
        let tables = tables.into();
        range("number of tables", tables.len() as u64, 0, MAX_TABLES as u64)?;
        for (table, pair) in tables.windows(2).enumerate().map(|(i, pair)| (i + 1, pair)) {
            let (before, rate) = (pair[0].rate_per_s(), pair[1].rate_per_s());
            if rate <= before {
                return Err(SelectError::Rates { table, rate, before });
            }
        }
        for (table, of) in tables.iter().enumerate() {
            let wrong = of.wishes().iter().enumerate().find(|&(_, &wish)| usize::from(wish) >= variants);
            if let Some((index, &wish)) = wrong {
                return Err(SelectError::Wish { table, index, wish, variants });
            }
        }
        let plain = |table: &SelectTable| table.manner() == Manner::Plain && table.sizes().is_empty();
        let mannered = !tables.iter().all(plain);
        Ok(Self { tables, variants, mannered })
    }

    /// All, by rising rate.
    #[must_use]
    pub fn as_slice(&self) -> &[SelectTable] {
        &self.tables
    }

    /// The number of variants that they select among.
    #[must_use]
    pub const fn variants(&self) -> usize {
        self.variants
    }

    /// Whether it matters which table is read for what its wishes mean, and for the size of batches.
    #[inline]
    pub(super) const fn are_mannered(&self) -> bool {
        self.mannered
    }

    /// The table with the lowest rate at or above that which `rate` tells; above all, none. `near` is where it was the last
    /// time: rates change little from one batch to the next.
    #[inline(always)]
    pub(super) fn at(&self, near: &mut usize, rate: impl FnOnce() -> f64) -> Option<&SelectTable> {
        match &self.tables[..] {
            [] => None,
            // Most often there is one table, for any rate.
            [only] if only.rate_per_s() == f64::INFINITY => Some(only),
            tables => {
                let rate = rate();
                let below = |table: &SelectTable| table.rate_per_s() < rate;
                let found = (*near == 0 || tables.get(*near - 1).is_some_and(below))
                    && !tables.get(*near).is_some_and(below);
                if !found {
                    *near = tables.partition_point(below);
                }
                tables.get(*near)
            }
        }
    }
}
