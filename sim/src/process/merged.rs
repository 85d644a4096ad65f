//! Several sources as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::iter::FusedIterator;

use rt_core::Instant;

use super::Source;

/// The arrivals of several sources in order of time, and of one instant by the number of their source. Each source
/// must be in order of time itself.
///
/// Holds one arrival of each; a step takes logarithmic time in the number of sources.
#[derive(Clone, Debug)]
pub struct Merged<I = Source> {
    sources: Vec<I>,
    /// The next arrival of every source that has one; unless there is only one source.
    heads: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl<I: Iterator<Item = Instant>> Merged<I> {
    /// Merges `sources`; their numbers are their places in it.
    pub fn new(sources: impl IntoIterator<Item = I>) -> Self {
        let mut sources: Vec<_> = sources.into_iter().collect();
        if sources.len() == 1 {
            return Self { sources, heads: BinaryHeap::new() };
        }
        let first = |(i, source): (usize, &mut I)| source.next().map(|instant| Reverse((instant, i)));
        let heads = sources.iter_mut().enumerate().filter_map(first).collect();
        Self { sources, heads }
    }
}

impl<I: Iterator<Item = Instant>> Iterator for Merged<I> {
    type Item = (Instant, usize);

    #[inline]
    fn next(&mut self) -> Option<(Instant, usize)> {
        match &mut self.sources[..] {
            [only] => only.next().map(|instant| (instant, 0)),
            _ => self.next_of_several(),
        }
    }
}

impl<I: Iterator<Item = Instant>> Merged<I> {
    #[inline(never)]
    fn next_of_several(&mut self) -> Option<(Instant, usize)> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((instant, source)) = *head;
        match self.sources[source].next() {
            Some(next) => *head = Reverse((next, source)),
            None => _ = PeekMut::pop(head),
        }
        Some((instant, source))
    }
}

impl<I: Iterator<Item = Instant>> FusedIterator for Merged<I> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_sorted_list_of_all(
            lists in proptest::collection::vec(proptest::collection::vec(0u64..40, 0..20), 0..8),
        ) {
            let lists = lists.into_iter().map(|mut list| {
                list.sort_unstable();
                list.into_iter().map(Instant::from_nanos).collect::<Vec<_>>()
            });
            let lists: Vec<_> = lists.collect();
            let all = lists.iter().enumerate().flat_map(|(i, list)| list.iter().map(move |&at| (at, i)));
            let mut all: Vec<_> = all.collect();
            all.sort_unstable();
            prop_assert_eq!(Merged::new(lists.into_iter().map(Vec::into_iter)).collect::<Vec<_>>(), all);
        }
    }
}
