//! Why variants cannot be selected as was asked.

use super::{MAX_NET_WEIGHT, MAX_PRICE, MAX_WORTH};

/// Why variants cannot be selected so.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// A number outside its range.
    #[error("{field} = {value} is outside {min}..={max}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// The rate of a table is not above 0, or no number.
    #[error("rate_per_s = {rate}: must be above 0")]
    Rate {
        /// The rate.
        rate: f64,
    },
    /// Tables must be ordered by rising rate.
    #[error("table[{table}].rate_per_s = {rate}: must be above {before}, that of the table before")]
    Rates {
        /// The table.
        table: usize,
        /// Its rate.
        rate: f64,
        /// The rate of the one before.
        before: f64,
    },
    /// Wishes that do not fill whole rows.
    #[error("{wishes} wishes: must be a multiple of bins = {bins}")]
    Rows {
        /// How many there are.
        wishes: usize,
        /// Wishes in one row.
        bins: usize,
    },
    /// Prices that do not fill whole rows.
    #[error("{prices} prices: must be a multiple of {frees}, those in a row")]
    PriceRows {
        /// How many there are.
        prices: usize,
        /// Prices in one row.
        frees: usize,
    },
    /// A price that is no number, or absurd.
    #[error("price[{index}] = {price}: must be in 0..={MAX_PRICE}")]
    Price {
        /// Which, counted through all rows.
        index: usize,
        /// Its value.
        price: f32,
    },
    /// A wish for a variant that is not there.
    #[error("table[{table}].wish[{index}] = {wish}: must be below {variants}, the number of variants")]
    Wish {
        /// The table.
        table: usize,
        /// Which wish, counted through all rows.
        index: usize,
        /// The variant wished for.
        wish: u8,
        /// How many there are.
        variants: usize,
    },
    /// Accuracies must be shares that do not fall.
    #[error("variant[{variant}].accuracy = {accuracy}: must be in {least}..=1")]
    Accuracy {
        /// The variant.
        variant: usize,
        /// Its accuracy.
        accuracy: f64,
        /// The accuracy of the variant before, or 0.
        least: f64,
    },
    /// What an answer is worth that is no number, or absurd.
    #[error("class[{class}].worth[{variant}] = {worth}: must be in 0..={MAX_WORTH}")]
    Worth {
        /// The class.
        class: usize,
        /// The variant.
        variant: usize,
        /// Its worth.
        worth: f64,
    },
    /// A decay outside its range; see [`Decay::check`](super::Decay::check).
    #[error("class[{class}].decay is outside its range")]
    Decay {
        /// The class.
        class: usize,
    },
    /// A weight of a network that is no number, or absurd.
    #[error("weight[{index}] = {weight}: must be in -{MAX_NET_WEIGHT}..={MAX_NET_WEIGHT}")]
    Weight {
        /// Which, layer after layer.
        index: usize,
        /// Its value.
        weight: f32,
    },
    /// Variant 0 must be the one that the workers' profile, and so the promise, is about.
    #[error("variant[0].profile is not that of the workers")]
    Base,
    /// There is nobody whose tables could be exchanged.
    #[error("no selector that reads tables is set")]
    Nobody,
    /// Workers of several kinds have no shield, and no selection.
    #[error("workers of {kinds} kinds: must be of one kind")]
    Kinds {
        /// How many kinds there are.
        kinds: usize,
    },
}

/// Refuses a value outside its range.
pub(super) fn range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), SelectError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(SelectError::Range { field, value, min, max }) }
}
