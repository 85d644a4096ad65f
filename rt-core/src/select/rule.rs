//! Who wishes for the variant of a batch: a trait, and the rule that reads tables.

use alloc::boxed::Box;
use core::fmt;

use super::{LearnedRule, LoadMonitor, MAX_CLASSES, Manner, SelectTable, SelectTables};
use crate::time::{Instant, Span};

/// What a rule is shown of a batch that is about to be started.
#[derive(Clone, Copy, Debug)]
pub struct BatchView {
    /// When it starts.
    pub now: Instant,
    /// How many requests it holds.
    pub size: usize,
    /// How many are left waiting.
    pub waiting: usize,
    /// How many other workers are free.
    pub free: usize,
    /// In what time the earliest of it is due, less the guard.
    pub slack: Span,
    /// How many of it are of each class; all of the first where there are none.
    pub classes: [u8; MAX_CLASSES],
}

impl BatchView {
    /// Of requests that are all of the first class, where no other worker is free.
    #[must_use]
    pub const fn alike(now: Instant, size: usize, waiting: usize, slack: Span) -> Self {
        let mut classes = [0; MAX_CLASSES];
        classes[0] = size as u8;
        Self { now, size, waiting, free: 0, slack, classes }
    }
}

/// Chooses the variant of each batch: a view of the batch in, a wish out. No promise depends on what it wishes for: the
/// shield cuts every wish down to what is safe. It is called for each request and each batch, so it must neither allocate nor
/// block.
pub trait VariantSelector: fmt::Debug + Send + Sync + Boxed {
    /// The variant it wishes for, at most: 0 is the base, and one that is not there counts as the last.
    fn wish(&mut self, batch: &BatchView) -> usize;

    /// What its wish at `now` means. Not asked of who reads tables all of which are plain.
    fn manner(&mut self, _now: Instant) -> Manner {
        Manner::Plain
    }

    /// The most requests that a batch may hold which is started at `now`, while so many wait, where nothing is promised for any of
    /// them. Not asked of who reads tables all of which are plain.
    fn most(&mut self, _now: Instant, _waiting: usize) -> usize {
        usize::MAX
    }

    /// What a second of a worker's time costs this batch, in what an answer is worth, if variants are weighed by that.
    fn price(&mut self, _batch: &BatchView) -> Option<f64> {
        None
    }

    /// A request came.
    fn observe(&mut self, _now: Instant) {}

    /// Requests a second as it sees them; 0 if it does not look.
    fn rate_per_s(&mut self, _now: Instant) -> f64 {
        0.0
    }

    /// The tables that it reads, if it reads any.
    fn tables(&self) -> Option<&SelectTables> {
        None
    }

    /// The same, to be exchanged.
    fn tables_mut(&mut self) -> Option<&mut SelectTables> {
        None
    }
}

/// What can be cloned behind a pointer; all that is `Clone` can.
pub trait Boxed {
    /// A clone. Allocates.
    fn boxed(&self) -> Box<dyn VariantSelector>;
}

impl<T: VariantSelector + Clone + 'static> Boxed for T {
    fn boxed(&self) -> Box<dyn VariantSelector> {
        Box::new(self.clone())
    }
}

/// Reads the table of the lowest rate at or above the one to be prepared for: after RAMSIS (Mendoza et al., EuroSys 2024).
#[derive(Clone, Debug)]
pub(super) struct TableRule {
    pub(super) tables: SelectTables,
    pub(super) load: LoadMonitor,
    /// Which table was read last.
    pub(super) last: usize,
}

impl TableRule {
    /// The table that is read at `now`.
    #[inline]
    pub(super) fn table(&mut self, now: Instant) -> Option<&SelectTable> {
        self.tables.at(&mut self.last, || self.load.prudent_per_s(now))
    }
}

impl VariantSelector for TableRule {
    fn wish(&mut self, batch: &BatchView) -> usize {
        self.table(batch.now).map_or(0, |table| table.wish(batch.size + batch.waiting, batch.slack))
    }

    fn manner(&mut self, now: Instant) -> Manner {
        self.table(now).map_or(Manner::Plain, SelectTable::manner)
    }

    fn most(&mut self, now: Instant, waiting: usize) -> usize {
        self.table(now).map_or(usize::MAX, |table| table.most(waiting))
    }

    fn price(&mut self, batch: &BatchView) -> Option<f64> {
        if !self.tables.are_mannered() {
            return None;
        }
        self.table(batch.now)?.price(batch.size + batch.waiting, batch.free)
    }

    fn observe(&mut self, now: Instant) {
        self.load.observe(now);
    }

    fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.load.present_per_s(now)
    }

    fn tables(&self) -> Option<&SelectTables> {
        Some(&self.tables)
    }

    fn tables_mut(&mut self) -> Option<&mut SelectTables> {
        Some(&mut self.tables)
    }
}

/// Reads tables, and where one says so asks a network.
#[derive(Clone, Debug)]
pub(super) struct MixedRule {
    pub(super) tables: TableRule,
    pub(super) learned: LearnedRule,
}

impl VariantSelector for MixedRule {
    fn wish(&mut self, batch: &BatchView) -> usize {
        match self.manner(batch.now) {
            Manner::Learned => self.learned.wish(batch),
            _ => self.tables.wish(batch),
        }
    }

    fn manner(&mut self, now: Instant) -> Manner {
        self.tables.manner(now)
    }

    fn most(&mut self, now: Instant, waiting: usize) -> usize {
        self.tables.most(now, waiting)
    }

    fn price(&mut self, batch: &BatchView) -> Option<f64> {
        self.tables.price(batch)
    }

    fn observe(&mut self, now: Instant) {
        self.tables.observe(now);
        self.learned.observe(now);
    }

    fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.tables.rate_per_s(now)
    }

    fn tables(&self) -> Option<&SelectTables> {
        self.tables.tables()
    }

    fn tables_mut(&mut self) -> Option<&mut SelectTables> {
        self.tables.tables_mut()
    }
}
