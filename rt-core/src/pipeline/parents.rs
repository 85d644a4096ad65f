//! Which stages a stage takes results of, and whether one by one or once for a source.

use super::MAX_STAGES;

/// The stages whose results a stage takes, which stand before it; none for the first, which takes the sources.
///
/// With several it is a *merge*: each result of each of them becomes requests by itself. A *join* takes what it is given for a
/// source once, when all of its parents are done with that source: nothing of it waits or runs there, nor can any more come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parents {
    set: u32,
    join: bool,
}

const _: () = assert!(MAX_STAGES == u32::BITS as usize);

impl Parents {
    /// Those of the first stage.
    pub const NONE: Self = Self { set: 0, join: false };

    /// Each result of these stages becomes requests. A number of no stage counts as that of the last there can be.
    #[must_use]
    pub fn each(of: impl IntoIterator<Item = usize>) -> Self {
        let bit = |stage: usize| 1_u32 << stage.min(MAX_STAGES - 1);
        Self { set: of.into_iter().fold(0, |set, stage| set | bit(stage)), join: false }
    }

    /// A source becomes requests once, when all of these stages are done with it.
    #[must_use]
    pub fn join(of: impl IntoIterator<Item = usize>) -> Self {
        Self { join: true, ..Self::each(of) }
    }

    /// Whether a source becomes requests once.
    #[must_use]
    pub fn is_join(self) -> bool {
        self.join
    }

    /// Whether each result of at most one stage becomes requests, as in a tree.
    #[must_use]
    pub fn is_of_tree(self) -> bool {
        !self.join && self.set.count_ones() <= 1
    }

    /// Whether this stage is one of them.
    #[must_use]
    pub fn has(self, stage: usize) -> bool {
        stage < MAX_STAGES && self.set & (1 << stage) != 0
    }

    /// Whether all of them are in a set of stages, one bit for each.
    pub(super) fn are_all_in(self, set: u32) -> bool {
        self.set & !set == 0
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let mut left = self.set;
        core::iter::from_fn(move || {
            let first = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (first < MAX_STAGES).then_some(first)
        })
    }

    /// The first of them: in a tree, all there are.
    #[must_use]
    pub fn first(self) -> Option<usize> {
        self.iter().next()
    }

    /// The last of them.
    pub(super) fn last(self) -> Option<usize> {
        self.set.checked_ilog2().map(|last| last as usize)
    }

    /// The largest of what is known `of` each stage, among them; the least there is for the first stage.
    #[inline]
    pub fn most<T: Copy + Default + PartialOrd>(self, of: &[T]) -> T {
        self.iter().map(|stage| of[stage]).fold(T::default(), |most, one| if one > most { one } else { most })
    }
}

impl From<Option<usize>> for Parents {
    fn from(parent: Option<usize>) -> Self {
        Self::each(parent)
    }
}
