//! What a source holds: how many requests each result becomes, the same for all who ask.

/// What is found in all sources of a run: a pure function of what is asked, so that all policies see the same, and a model
/// that finds more finds all that another does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content(pub(super) u64);

/// Where in a source a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Content {
    /// The source as a whole.
    pub(super) fn source(self, number: u64) -> Place {
        Place(mixed(self.0 ^ mixed(number)))
    }
}

impl Place {
    /// Which of `fan_out` things that may be there a model finds that finds `mean` of them on average: each is there by
    /// itself.
    pub(super) fn found(self, stage: usize, fan_out: u32, mean: f64) -> impl Iterator<Item = Self> {
        let share = mean / f64::from(fan_out.max(1));
        let stage = mixed(self.0 ^ mixed(stage as u64 + 1));
        let thing = move |i: u32| Self(mixed(stage ^ mixed(u64::from(i) | 1 << 40)));
        (0..fan_out)
            .map(thing)
            .filter(move |place| (mixed(place.0) >> 11) as f64 / (1u64 << 53) as f64 <= share)
    }
}

/// The last step of splitmix64 (Steele, Lea and Flood 2014) behind its increment.
fn mixed(bits: u64) -> u64 {
    let z = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_found_as_on_average_and_never_more_than_there_may_be() {
        let counts = |mean: f64| (0..20_000).map(move |n| Content(7).source(n).found(1, 8, mean).count());
        for mean in [0.5, 3.0, 7.5] {
            let found = counts(mean).sum::<usize>() as f64 / 2e4;
            // Five standard deviations of the mean of 20 000 are below 0.05.
            assert!((found - mean).abs() < 0.05, "{found} of {mean}");
        }
        assert!(counts(8.0).all(|count| count == 8) && counts(0.0).all(|count| count == 0));
    }

    #[test]
    fn who_finds_more_finds_all_that_others_find() {
        for number in 0..1000 {
            let source = Content(3).source(number);
            let few: Vec<_> = source.found(2, 16, 4.0).collect();
            let many: Vec<_> = source.found(2, 16, 9.0).collect();
            assert!(few.iter().all(|place| many.contains(place)));
            assert!(
                source.found(1, 16, 9.0).all(|place| !many.contains(&place)),
                "other stages see other things"
            );
        }
    }
}
