//! Words that one thread writes and any other reads as a whole, without either ever waiting for the other.

// `tests/models` tries it in every order of threads.
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// `N` words in two copies and a number that says which of them is whole (the kernel's `seqcount_latch_t`).
///
/// A writer that is put off its core between two words keeps no reader waiting, however urgent: that one reads the other
/// copy. A reader starts over if a whole write has gone by meanwhile.
#[derive(Debug)]
pub(super) struct Latch<const N: usize> {
    /// Even: the first copy is whole; odd: the second one is.
    sequence: AtomicU64,
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> Latch<N> {
    pub(super) fn new(words: [u64; N]) -> Self {
        Self { sequence: AtomicU64::new(0), copies: [words, words].map(|copy| copy.map(AtomicU64::new)) }
    }

    /// Replaces the words if they are others. There may be one writer at a time.
    pub(super) fn write(&self, words: [u64; N]) {
        let [first, second] = &self.copies;
        if first.iter().zip(words).all(|(old, new)| old.load(Ordering::Relaxed) == new) {
            return;
        }
        for copy in [first, second] {
            // Readers go to the other copy before this one changes, and come back after it.
            fence(Ordering::Release);
            self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            fence(Ordering::Release);
            copy.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        }
    }

    /// The words of one write.
    pub(super) fn read(&self) -> [u64; N] {
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            let copy = &self.copies[usize::from(sequence % 2 == 1)];
            let words = std::array::from_fn(|i| copy[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) == sequence {
                return words;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_is_read_is_of_one_write_and_never_an_older_one_than_before() {
        // Miri is a thousand times slower, and sees more in each.
        let writes = if cfg!(miri) { 50 } else { 100_000 };
        let latch = Latch::new([0; 5]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Relaxed) {
                        let words = latch.read();
                        assert!(
                            words.iter().all(|&word| word == words[0]) && words[0] >= last,
                            "{words:?} after {last}"
                        );
                        last = words[0];
                    }
                });
            }
            (1..=writes).for_each(|n| latch.write([n; 5]));
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(latch.read(), [writes; 5]);
    }

    #[test]
    fn a_write_of_what_is_there_already_writes_nothing() {
        let latch = Latch::new([1, 2]);
        latch.write([1, 2]);
        assert_eq!(latch.sequence.load(Ordering::Relaxed), 0);
        latch.write([1, 3]);
        assert_eq!((latch.sequence.load(Ordering::Relaxed), latch.read()), (2, [1, 3]));
    }
}
