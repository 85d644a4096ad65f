//! Of which class each request of a load is, and what came of those of each.

use anyhow::{Result, ensure};
use serde::Serialize;
use weir_client::StreamInfo;
use weir_client::status::Class;

/// Of which classes requests are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Classes {
    /// Whatever the stream's own is.
    #[default]
    Own,
    /// All of this one.
    One(String),
    /// Each at random of one, by the shares that the service expects.
    Mixed {
        /// Another one chooses otherwise.
        seed: u64,
    },
}

/// What came of the requests of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ClassReport {
    pub(crate) class: String,
    pub(crate) scheduled: u64,
    pub(crate) answered: u64,
    /// Of these, those that came later than the class wants it.
    pub(crate) late: u64,
    pub(crate) missed: u64,
    /// What requests of the class were worth on average, as the daemon counts it, of all its clients meanwhile.
    pub(crate) worth: Option<f64>,
}

/// A registered stream, once for each class that requests are of, and how often.
pub(super) struct Mix {
    /// With the part of the requests that are of it or of one before; the last is 1.
    streams: Vec<(StreamInfo, f64)>,
    seed: u64,
}

impl Mix {
    /// The requests of `stream` where the service has these classes.
    pub(super) fn new(stream: &StreamInfo, classes: &Classes, known: &[Class]) -> Result<Self> {
        let one = |stream: StreamInfo| vec![(stream, 1.0)];
        let (streams, seed) = match classes {
            Classes::Own => (one(stream.clone()), 0),
            Classes::One(name) => (one(stream.of_class(name)?), 0),
            Classes::Mixed { seed } => {
                ensure!(!stream.classes.is_empty(), "the service has no classes to mix");
                let mut upto = 0.0;
                let of = |class: &Class| {
                    upto += class.share;
                    Ok((stream.of_class(&class.name)?, upto))
                };
                (known.iter().map(of).collect::<Result<_>>()?, *seed)
            }
        };
        Ok(Self { streams, seed })
    }

    /// What request `number` is sent as.
    pub(super) fn stream(&self, number: u64) -> &StreamInfo {
        let last = self.streams.len() - 1;
        // One that is spread over all of 0 to 1 whatever the seed (splitmix64).
        let z = (number ^ self.seed << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        &self.streams[self.streams.iter().position(|(_, upto)| drawn < *upto).unwrap_or(last)].0
    }

    /// Its class among those of the service; 0 where there are none.
    pub(super) fn class(&self, number: u64) -> usize {
        let stream = self.stream(number);
        stream.asked.unwrap_or(stream.class).into()
    }
}

/// With what requests of each class were worth between two times at which the daemon had counted this.
pub(crate) fn with_worth(reports: &mut [ClassReport], before: &[Class], after: &[Class]) {
    for report in reports {
        let of = |all: &[Class]| all.iter().find(|class| class.name == report.class).cloned();
        let (before, Some(after)) = (of(before).unwrap_or_default(), of(after)) else { continue };
        let sum = |class: &Class| class.worth.unwrap_or(0.0) * class.requests as f64;
        let ended = after.requests.saturating_sub(before.requests);
        report.worth = (ended > 0).then(|| ((sum(&after) - sum(&before)) / ended as f64).max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, share: f64, requests: u64, worth: f64) -> Class {
        Class { name: name.into(), share, requests, worth: Some(worth), ..Class::default() }
    }

    #[test]
    fn a_mix_has_the_shares_that_are_expected_and_worth_is_that_of_the_time_between() {
        let told = |name: &str| weir_client::ClassInfo {
            name: name.into(),
            deadline: Default::default(),
            reach: Default::default(),
        };
        let stream = StreamInfo {
            id: 1,
            deadline: Default::default(),
            input_bytes: 0,
            output_bytes: 0,
            density_numerator: 0,
            density_denominator: 1,
            variant: String::new(),
            accuracy: f32::NAN,
            inputs: Vec::new(),
            outputs: Vec::new(),
            class: 0,
            classes: vec![told("a"), told("b"), told("c")],
            wanted: None,
            asked: None,
        };
        let known = [class("a", 0.5, 10, 0.5), class("b", 0.3, 0, 0.0), class("c", 0.2, 4, 1.0)];
        let mix = Mix::new(&stream, &Classes::Mixed { seed: 7 }, &known).expect("classes");
        let mut counts = [0u32; 3];
        (0..10_000).for_each(|number| counts[mix.class(number)] += 1);
        for (count, share) in counts.iter().zip([0.5, 0.3, 0.2]) {
            assert!((f64::from(*count) / 1e4 - share).abs() < 0.02, "{counts:?}");
        }
        assert_eq!(Mix::new(&stream, &Classes::One("c".into()), &known).expect("it is there").class(5), 2);
        assert!(Mix::new(&stream, &Classes::One("d".into()), &known).is_err());
        let mut reports = known.clone().map(|c| ClassReport { class: c.name, ..ClassReport::default() });
        with_worth(
            &mut reports,
            &known,
            &[class("a", 0.5, 20, 0.75), class("b", 0.3, 2, 0.5), class("c", 0.2, 4, 1.0)],
        );
        assert_eq!(reports.map(|report| report.worth), [Some(1.0), Some(0.5), None]);
    }
}
