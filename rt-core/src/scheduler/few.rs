//! A few of the workers.

use super::types::MAX_WORKERS;

/// Numbers of workers, a bit each; as an iterator it gives them in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Few([u64; MAX_WORKERS / 64]);

impl Few {
    /// The first of them.
    pub(crate) fn first(&self) -> Option<usize> {
        let (index, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(index * 64 + word.trailing_zeros() as usize)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, number: usize, there: bool) {
        let bit = 1 << (number % 64);
        let word = &mut self.0[number / 64];
        *word = if there { *word | bit } else { *word & !bit };
    }
}

impl Iterator for Few {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index * 64 + bit)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_those_of_a_set(steps in proptest::collection::vec((0..MAX_WORKERS, any::<bool>()), 0..60)) {
            let (mut few, mut set) = (Few::default(), BTreeSet::new());
            for (number, there) in steps {
                few.set(number, there);
                if there { set.insert(number) } else { set.remove(&number) };
                prop_assert!(few.eq(set.iter().copied()));
                prop_assert_eq!(few.first(), set.first().copied());
                prop_assert_eq!(few.is_empty(), set.is_empty());
                prop_assert_eq!(few.has(number), there);
            }
        }
    }
}
