//! Which variant of a model a batch would best be run with: a wish of a rule, for what waits, how much time is left and how
//! much comes. The shield decides whether the wish is granted.
//!
//! One rule reads tables made ahead, after RAMSIS (Mendoza et al., EuroSys 2024): one table for each of several arrival
//! rates, and a sliding window over arrivals that tells which of them to read; instead of wishes a table may have prices of
//! time, which what a batch is worth is weighed against. Another asks a network that was trained, after
//! Jha et al. ("Learned Best-Effort LLM Serving", 2024).

mod classes;
mod decay;
mod error;
mod learned;
mod load;
mod net;
mod rule;
mod table;
mod tables;

use alloc::boxed::Box;

use crate::profile::LatencyProfile;
use crate::time::{Instant, Span};

pub use classes::{ClassWorth, MAX_CLASSES, MAX_WORTH};
pub use decay::{Decay, DecayError};
pub use error::SelectError;
use error::range;
use learned::LearnedRule;
pub use learned::{LEARNED_INPUTS, LearnedScale};
pub use load::LoadMonitor;
pub use net::{MAX_NET_LAYERS, MAX_NET_WEIGHT, MAX_NET_WIDTH, Net};
pub use rule::{BatchView, Boxed, VariantSelector};
use rule::{MixedRule, TableRule};
pub(crate) use table::WEIGHED;
pub use table::{MAX_PRICE, Manner, SelectTable};
pub use tables::SelectTables;

/// The share of what the base could answer that may come before a sparing selector leaves it all to the base.
const SPARE: f64 = 0.9;
/// The most variants of one model.
pub const MAX_VARIANTS: usize = 64;
/// The most tables of one [`Selector`].
pub const MAX_TABLES: usize = 1024;

/// One variant of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Bounds on its batch times. Batches beyond its largest are not run with it.
    pub profile: LatencyProfile,
    /// The share of right answers, in `0..=1`; of all requests, where they are of several classes.
    pub accuracy: f64,
}

impl Variant {
    /// The time bound of a batch of `size`; `None` if it takes none of this size.
    fn time(&self, size: usize) -> Option<Span> {
        (size <= self.profile.max_batch()).then(|| self.profile.bound(size))
    }
}

/// Variants of a model, and the rule that chooses among them.
#[derive(Debug)]
pub struct Selector {
    variants: Box<[Variant]>,
    rule: Box<dyn VariantSelector>,
    /// All that it wishes for is plain, as its tables are, and batches are not limited: then it is not asked for that.
    plain: bool,
    /// Up to how many requests a second, if it is sparing.
    sparing: Option<f64>,
    /// What variants are worth by class; none if requests are all alike.
    classes: Box<[ClassWorth]>,
}

impl Clone for Selector {
    fn clone(&self) -> Self {
        let (variants, classes) = (self.variants.clone(), self.classes.clone());
        Self { variants, classes, rule: self.rule.boxed(), ..*self }
    }
}

impl Selector {
    /// Reads `tables` for what `load` sees. `variants` rise in accuracy, and the first is the base.
    ///
    /// # Errors
    /// As [`Selector::of`]; more than [`MAX_TABLES`], rates out of order, or a wish for a variant that is not there.
    pub fn new(
        variants: impl Into<Box<[Variant]>>,
        tables: impl Into<Box<[SelectTable]>>,
        load: LoadMonitor,
    ) -> Result<Self, SelectError> {
        let variants = variants.into();
        let tables = SelectTables::new(tables, variants.len())?;
        Self::of(variants, TableRule { tables, load, last: 0 })
    }

    /// Reads `tables` as [`Selector::new`], and asks `net` as [`Selector::learned`] where one is [`Manner::Learned`].
    ///
    /// # Errors
    /// As these two.
    pub fn mixed(
        variants: impl Into<Box<[Variant]>>,
        tables: impl Into<Box<[SelectTable]>>,
        (net, scale): (Net, LearnedScale),
        load: LoadMonitor,
    ) -> Result<Self, SelectError> {
        let variants = variants.into();
        let learned = LearnedRule::new(net, scale, load.clone(), variants.len())?;
        let tables = SelectTables::new(tables, variants.len())?;
        Self::of(variants, MixedRule { tables: TableRule { tables, load, last: 0 }, learned })
    }

    /// Asks `net`, which is shown a batch as parts of `scale` and has an output for each of `variants`, which rise in accuracy;
    /// the first is the base.
    ///
    /// # Errors
    /// As [`Selector::of`]; a scale that is not above 0, or a network of other inputs or outputs.
    pub fn learned(
        variants: impl Into<Box<[Variant]>>,
        net: Net,
        scale: LearnedScale,
        load: LoadMonitor,
    ) -> Result<Self, SelectError> {
        let variants = variants.into();
        let rule = LearnedRule::new(net, scale, load, variants.len())?;
        Self::of(variants, rule)
    }

    /// Has `rule` choose among `variants`, which rise in accuracy; the first is the base.
    ///
    /// # Errors
    /// No variant or more than [`MAX_VARIANTS`], or accuracies out of order.
    pub fn of(
        variants: impl Into<Box<[Variant]>>,
        rule: impl VariantSelector + 'static,
    ) -> Result<Self, SelectError> {
        let variants = variants.into();
        range("number of variants", variants.len() as u64, 1, MAX_VARIANTS as u64)?;
        let mut least = 0.0;
        for (variant, &Variant { accuracy, .. }) in variants.iter().enumerate() {
            if !(least..=1.0).contains(&accuracy) {
                return Err(SelectError::Accuracy { variant, accuracy, least });
            }
            least = accuracy;
        }
        let plain = is_plain(&rule);
        Ok(Self { variants, rule: Box::new(rule), plain, sparing: None, classes: Box::default() })
    }

    /// Always wishes for the most accurate of `variants`: as accurate as the shield allows, here and now.
    ///
    /// # Errors
    /// As [`Selector::of`].
    pub fn greedy(variants: impl Into<Box<[Variant]>>) -> Result<Self, SelectError> {
        let variants = variants.into();
        let best = variants.len().saturating_sub(1).min(MAX_VARIANTS) as u8;
        Self::new(variants, [SelectTable::constant(best)], LoadMonitor::default())
    }

    /// The same, but requests that are promised nothing are not given up for accuracy either: a wish is cut down further
    /// to a time after which full batches of the base, `capacity_per_s` requests a second, answer all that waits and the
    /// next that comes, and where more than nine tenths of that come the base is left to itself. No promise rests on it.
    #[must_use]
    pub fn sparing(self, capacity_per_s: f64) -> Self {
        Self { sparing: Some(SPARE * capacity_per_s), ..self }
    }

    /// What its wish at `now` means.
    #[inline]
    fn manner(&mut self, now: Instant) -> Manner {
        if self.plain { Manner::Plain } else { self.rule.manner(now) }
    }

    /// Whether what it wishes for at `now` is [`Selector::sparing`].
    #[inline]
    #[must_use]
    pub fn is_sparing(&mut self, now: Instant) -> bool {
        self.sparing.is_some() || self.manner(now) == Manner::Sparing
    }

    /// Whether batches are formed for what it wishes for at `now`; see [`Manner::Forming`].
    #[inline]
    pub(crate) fn is_forming(&mut self, now: Instant) -> bool {
        self.sparing.is_none() && self.manner(now) == Manner::Forming
    }

    /// The most requests that a batch may hold while so many wait, where nothing is promised for them: 1 at least.
    #[inline]
    pub(crate) fn most(&mut self, now: Instant, waiting: usize) -> usize {
        if self.plain { usize::MAX } else { self.rule.most(now, waiting).max(1) }
    }

    /// The variant that a batch is formed for, if it is not the base, while batches are.
    #[inline]
    pub(crate) fn forms(&mut self, batch: &BatchView) -> Option<usize> {
        Some(self.rule.wish(batch)).filter(|&wish| wish > 0)
    }

    /// The variants, by rising accuracy.
    #[must_use]
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The tables, by rising rate, if there are any.
    #[must_use]
    pub fn tables(&self) -> &[SelectTable] {
        self.rule.tables().map_or(&[], SelectTables::as_slice)
    }

    /// Exchanges its tables for `tables`, in constant time: nothing is allocated, freed or checked again.
    ///
    /// # Errors
    /// If it reads none, or they are for more variants than there are; nothing is exchanged then.
    pub fn swap_tables(&mut self, tables: &mut SelectTables) -> Result<(), SelectError> {
        let (found, most) = (tables.variants() as u64, self.variants.len() as u64);
        range("variants of the tables", found, 0, most)?;
        core::mem::swap(self.rule.tables_mut().ok_or(SelectError::Nobody)?, tables);
        self.plain = is_plain(&*self.rule);
        Ok(())
    }

    /// Requests a second, as the rule sees them.
    #[must_use]
    pub fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.rule.rate_per_s(now)
    }

    /// A request came at `now`.
    pub fn observe(&mut self, now: Instant) {
        self.rule.observe(now);
    }

    /// The variant that the rule wishes for; the base, 0, where a sparing selector leaves it all to that.
    #[must_use]
    pub fn wish(&mut self, batch: &BatchView) -> usize {
        if self.sparing.is_some_and(|most| self.rule.rate_per_s(batch.now) > most) {
            return 0;
        }
        self.rule.wish(batch)
    }

    /// What a second of a worker's time costs the batch, if variants are weighed against that: see
    /// [`SelectTable::of_prices`].
    #[inline]
    pub(crate) fn price(&mut self, batch: &BatchView) -> Option<f64> {
        self.rule.price(batch)
    }

    /// The most accurate variant, not above `wish`, that runs a batch of `size` within `limit`; 0 if none does.
    #[must_use]
    pub fn within(&self, wish: usize, size: usize, limit: Span) -> usize {
        self.fitting(wish, size, limit).map_or(0, |(variant, _)| variant)
    }

    /// The same, with the time bound; `None` for the base.
    #[inline]
    pub(crate) fn fitting(&self, wish: usize, size: usize, limit: Span) -> Option<(usize, Span)> {
        let upto = self.variants.get(..=wish).unwrap_or(&self.variants);
        upto.iter().enumerate().skip(1).rev().find_map(|(variant, of)| {
            let time = of.time(size).filter(|time| *time <= limit)?;
            Some((variant, time))
        })
    }

    /// The time bound of a batch of `size` with a variant; `None` if there is no such variant, or it takes no
    /// batch of this size.
    #[must_use]
    pub fn time(&self, variant: usize, size: usize) -> Option<Span> {
        self.variants.get(variant)?.time(size)
    }
}

/// Whether `rule` reads tables whose wishes are all plain.
fn is_plain(rule: &dyn VariantSelector) -> bool {
    rule.tables().is_some_and(|tables| !tables.are_mannered())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ms(t: u64) -> Span {
        Span::from_millis(t)
    }

    fn batch(now: Instant) -> BatchView {
        BatchView::alike(now, 1, 0, ms(1))
    }

    fn variants(accuracies: &[f64]) -> Vec<Variant> {
        let variant = |(i, &accuracy): (usize, &f64)| {
            let times: Vec<_> = (0..4 - i).map(|b| ms(10 * (i as u64 + 1) + b as u64)).collect();
            Variant { profile: LatencyProfile::new(&times).expect("valid"), accuracy }
        };
        accuracies.iter().enumerate().map(variant).collect()
    }

    #[test]
    fn the_table_at_or_above_the_load_is_read_and_above_all_the_base() {
        let table = |rate, wish| SelectTable::new(rate, ms(1), 1, [wish]).expect("valid");
        let load = LoadMonitor::new(ms(630)).expect("valid");
        let tables = [table(10.0, 2), table(20.0, 1)];
        let mut selector = Selector::new(variants(&[0.5, 0.7, 0.9]), tables, load).expect("valid");
        // What has only begun to come may be anything.
        selector.observe(Instant::ZERO);
        assert_eq!(selector.wish(&batch(Instant::ZERO + ms(10))), 0);
        let now = Instant::ZERO + ms(10_000);
        let mut after = |requests: u32| {
            (0..requests).for_each(|_| selector.observe(now));
            selector.wish(&batch(now))
        };
        // In 0.63 s: 10 a second are 6.3, and 20 a second 12.6.
        assert_eq!((after(0), after(6), after(1), after(5), after(1)), (2, 2, 1, 1, 0));
        let later = now + ms(1_000);
        assert_eq!(selector.wish(&batch(later)), 2);
    }

    #[test]
    fn tables_are_exchanged_while_the_load_is_watched_on() {
        let table = |rate, wish| SelectTable::new(rate, ms(1), 1, [wish]).expect("valid");
        let tables = |wishes: [u8; 2], variants| {
            SelectTables::new([table(10.0, wishes[0]), table(20.0, wishes[1])], variants).expect("valid")
        };
        let load = LoadMonitor::new(ms(630)).expect("valid");
        let mut selector = Selector::new(variants(&[0.5, 0.7, 0.9]), [], load).expect("valid");
        let now = Instant::ZERO + ms(10_000);
        selector.observe(Instant::ZERO);
        (0..7).for_each(|_| selector.observe(now));
        assert_eq!(selector.wish(&batch(now)), 0, "without a table the base");
        let mut fresh = tables([2, 1], 3);
        assert_eq!(selector.swap_tables(&mut fresh), Ok(()));
        assert_eq!((selector.wish(&batch(now)), fresh), (1, SelectTables::new([], 3).expect("none")));
        let mut foreign = tables([0, 0], 4);
        let refused = selector.swap_tables(&mut foreign).map_err(|error| alloc::format!("{error}"));
        assert_eq!(refused, Err("variants of the tables = 4 is outside 0..=3".into()));
        assert_eq!((selector.tables(), foreign), (tables([2, 1], 3).as_slice(), tables([0, 0], 4)));
    }

    #[test]
    fn what_a_wish_means_is_exchanged_with_the_tables() {
        let tables =
            |manner| SelectTables::new([SelectTable::constant(1).in_manner(manner)], 2).expect("valid");
        let load = LoadMonitor::default();
        let mut selector = Selector::new(variants(&[0.5, 0.7]), [], load).expect("valid");
        let now = Instant::ZERO;
        for (manner, forming, sparing) in [
            (Manner::Plain, false, false),
            (Manner::Forming, true, false),
            (Manner::Sparing, false, true),
            (Manner::Plain, false, false),
        ] {
            assert_eq!(selector.swap_tables(&mut tables(manner)), Ok(()));
            let mut copy = selector.clone();
            assert_eq!((selector.is_forming(now), selector.is_sparing(now)), (forming, sparing));
            assert_eq!((copy.is_forming(now), copy.is_sparing(now)), (forming, sparing));
        }
    }

    #[test]
    fn a_wish_is_cut_down_to_what_fits() {
        let selector = Selector::greedy(variants(&[0.5, 0.7, 0.9])).expect("valid");
        let within = |wish, size, limit| selector.within(wish, size, ms(limit));
        assert_eq!((within(2, 1, 30), within(2, 1, 29), within(2, 1, 19)), (2, 1, 0));
        assert_eq!((within(1, 1, 30), within(9, 1, 30), within(0, 1, 30)), (1, 2, 0));
        // The last variant takes two at most, the second three.
        assert_eq!((within(2, 3, 99), within(2, 4, 99)), (1, 0));
    }

    #[test]
    fn every_refusal_names_field_value_and_limit() {
        let load = LoadMonitor::default;
        let new = |accuracies: &[f64], tables: Vec<SelectTable>| {
            Selector::new(variants(accuracies), tables, load()).map(drop)
        };
        let table = |rate, wish| SelectTable::new(rate, ms(1), 1, [wish]).expect("valid");
        let text = |result: Result<(), SelectError>| alloc::format!("{}", result.expect_err("refused"));
        assert_eq!(text(new(&[], alloc::vec![])), "number of variants = 0 is outside 1..=64");
        assert_eq!(text(new(&[0.5, 0.4], alloc::vec![])), "variant[1].accuracy = 0.4: must be in 0.5..=1");
        assert_eq!(text(new(&[f64::NAN], alloc::vec![])), "variant[0].accuracy = NaN: must be in 0..=1");
        let rates = alloc::vec![table(2.0, 0), table(2.0, 0)];
        let rates = text(new(&[0.5], rates));
        assert_eq!(rates, "table[1].rate_per_s = 2: must be above 2, that of the table before");
        let wish = text(new(&[0.5], alloc::vec![table(2.0, 1)]));
        assert_eq!(wish, "table[0].wish[0] = 1: must be below 1, the number of variants");
        assert_eq!(new(&[0.5, 0.5], alloc::vec![]), Ok(()));
    }
}
