//! How the requests of one stream came, and the declaration that would have fitted them.

use rt_core::{ArrivalBound, ArrivalCurve, ArrivalError, Instant, MAX_SPAN, Policer, Span};

/// So many gaps between requests are the least within which these are to be few: the rate counts as the burst does.
const GAPS: u64 = 10;

/// The requests of a stream, a stretch for each time that a client registered it: another client begins anew.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    stretches: Vec<Vec<Instant>>,
}

/// What the arrival monitor would have said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Requests that would not have conformed.
    pub(crate) count: u64,
    /// When the first of them came.
    pub(crate) first: Option<Instant>,
}

impl Seen {
    /// A request that came at `at`, not before the one before it.
    pub(super) fn came(&mut self, at: Instant) {
        if self.stretches.is_empty() {
            self.begin_anew();
        }
        self.stretches.iter_mut().last().into_iter().for_each(|stretch| stretch.push(at));
    }

    /// What comes from now on, another client sends.
    pub(super) fn begin_anew(&mut self) {
        self.stretches.push(Vec::new());
    }

    /// The same as one stretch, in which a new client is none of it: so a reserved declaration goes on.
    pub(super) fn joined(&self) -> Self {
        Self { stretches: vec![self.stretches.concat()] }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.len() as u64).sum()
    }

    /// From one request to the next, how many times, and how long all of that took.
    fn gaps(&self) -> (u64, u64) {
        let gaps = |stretch: &Vec<Instant>| match (stretch.first(), stretch.last()) {
            (Some(&first), Some(&last)) => (stretch.len() as u64 - 1, last.since(first).as_nanos()),
            _ => (0, 0),
        };
        self.stretches.iter().map(gaps).fold((0, 0), |(count, length), (n, ns)| (count + n, length + ns))
    }

    /// Requests a second, on average; none of less than two.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        let (count, ns) = self.gaps();
        (ns > 0).then(|| count as f64 / ns as f64 * 1e9)
    }

    /// What the arrival monitor of the daemon would have said of these requests.
    pub(crate) fn beyond(&self, curve: &ArrivalCurve) -> Beyond {
        let mut beyond = Beyond::default();
        for stretch in &self.stretches {
            let mut police = Policer::new(curve);
            for &at in stretch {
                if !police.observe(at, false).0 {
                    beyond.count += 1;
                    beyond.first.get_or_insert(at);
                }
            }
        }
        beyond
    }

    /// This bound with as much jitter, or as many requests, as were seen, and no more: what it was declared to be is to
    /// be compared with it.
    pub(crate) fn as_seen(&self, bound: &ArrivalBound) -> Result<ArrivalBound, ArrivalError> {
        match bound {
            ArrivalBound::Window { length, .. } => ArrivalBound::window(self.most_within(*length), *length),
            ArrivalBound::Periodic { period, .. } => ArrivalBound::periodic(*period, self.jitter(*period)),
            ArrivalBound::Distances(_) => Ok(bound.clone()),
        }
    }

    /// The bound of the same form that would have fitted. The period of one that has a period is kept, unless more came in the
    /// long run, or another one allows fewer requests within `deadline` or some gaps: what is promised has to reckon with those.
    ///
    /// # Errors
    /// If none of that form can be declared.
    pub(crate) fn fitted(&self, bound: &ArrivalBound, deadline: Span) -> Result<ArrivalBound, ArrivalError> {
        let ArrivalBound::Periodic { period, .. } = bound else { return self.as_seen(bound) };
        let (found, within) = (self.periodic(deadline)?, self.horizon(deadline));
        let kept = self.with_jitter(*period, is_bucket(bound));
        match kept {
            Ok(kept) if self.keeps_up(*period) && kept.count(within) <= found.count(within) => Ok(kept),
            _ if is_bucket(bound) => self.with_jitter(period_of(&found), true),
            _ => Ok(found),
        }
    }

    /// One request a period: of all periods that keep up with what came, each with the least jitter, the one that allows the
    /// fewest requests within `deadline` or some gaps.
    ///
    /// # Errors
    /// If none can be declared, as of requests that all came at once.
    pub(crate) fn periodic(&self, deadline: Span) -> Result<ArrivalBound, ArrivalError> {
        let (count, length) = self.gaps();
        // A longer one than on average has been too long by the end, if only a little.
        let longest = (length / count.max(1)).clamp(1, MAX_SPAN.as_nanos());
        let horizon = u128::from(self.horizon(deadline).as_nanos());
        let fewer = |left: u64, right: u64| {
            let allowed = |period: u64| horizon + u128::from(self.jitter_ns(period));
            (allowed(left) * u128::from(right)).cmp(&(allowed(right) * u128::from(left)))
        };
        // Jitter is convex in the period, so what is allowed per period falls, and then rises.
        let (mut low, mut high) = (1, longest);
        while high - low > 2 {
            let (left, right) = (low + (high - low) / 3, high - (high - low) / 3);
            if fewer(left, right).is_le() { high = right } else { low = left }
        }
        let best = (low..=high).min_by(|&left, &right| fewer(left, right)).unwrap_or(longest);
        self.with_jitter(Span::from_nanos(to_digits(best, 4, false)), false)
    }

    /// The stretch within which requests are to be few: a deadline, but some gaps at least, of the usual length.
    fn horizon(&self, deadline: Span) -> Span {
        let gaps = |stretch: &Vec<Instant>| {
            let gaps: Vec<_> = stretch.windows(2).map(|two| two[1].since(two[0])).collect();
            gaps
        };
        let mut all: Vec<_> = self.stretches.iter().flat_map(gaps).collect();
        let middle = all.len() / 2;
        let usual = if all.is_empty() { Span::ZERO } else { *all.select_nth_unstable(middle).1 };
        deadline.max(Span::from_nanos(usual.as_nanos().saturating_mul(GAPS)).min(MAX_SPAN))
    }

    /// Whether no more came in the long run than one a period.
    fn keeps_up(&self, period: Span) -> bool {
        let (count, length) = self.gaps();
        u128::from(count) * u128::from(period.as_nanos())
            <= u128::from(length) + u128::from(period.as_nanos())
    }

    /// The periodic bound with the least jitter that fits; as a token bucket, with whole periods of it.
    fn with_jitter(&self, period: Span, bucket: bool) -> Result<ArrivalBound, ArrivalError> {
        let jitter = self.jitter(period).as_nanos();
        if bucket {
            return ArrivalBound::token_bucket(1 + jitter.div_ceil(period.as_nanos()), period);
        }
        ArrivalBound::periodic(period, Span::from_nanos(to_digits(jitter, 3, true)))
    }

    /// The least jitter with which all requests keep to that period: by how much one came before it was due.
    fn jitter(&self, period: Span) -> Span {
        Span::from_nanos(self.jitter_ns(period.as_nanos()))
    }

    fn jitter_ns(&self, period: u64) -> u64 {
        let of = |stretch: &Vec<Instant>| {
            let early = stretch.iter().map(|at| at.as_nanos()).scan(0, |due: &mut u64, at| {
                let early = due.saturating_sub(at);
                *due = (*due).max(at).saturating_add(period);
                Some(early)
            });
            early.max().unwrap_or(0)
        };
        self.stretches.iter().map(of).max().unwrap_or(0)
    }

    /// The most requests in any half-open interval of that length.
    fn most_within(&self, length: Span) -> u64 {
        let of = |stretch: &Vec<Instant>| {
            let mut first = 0;
            let within = stretch.iter().enumerate().map(|(last, &at)| {
                while at.since(stretch[first]) >= length {
                    first += 1;
                }
                last - first + 1
            });
            within.max().unwrap_or(0) as u64
        };
        self.stretches.iter().map(of).max().unwrap_or(0)
    }
}

/// Whether a bound is better written as a token bucket: its jitter is that of whole periods.
pub(crate) fn is_bucket(bound: &ArrivalBound) -> bool {
    matches!(bound, ArrivalBound::Periodic { period, jitter }
        if *jitter > Span::ZERO && jitter.as_nanos() % period.as_nanos() == 0)
}

fn period_of(bound: &ArrivalBound) -> Span {
    match bound {
        ArrivalBound::Window { length, .. } => *length,
        ArrivalBound::Periodic { period, .. } => *period,
        ArrivalBound::Distances(distances) => distances.as_slice()[0],
    }
}

/// With so many decimal digits that say something, rounded up or down.
fn to_digits(ns: u64, digits: u32, up: bool) -> u64 {
    let unit = 10_u64.pow((ns.checked_ilog10().unwrap_or(0) + 1).saturating_sub(digits));
    if up { ns.next_multiple_of(unit) } else { ns - ns % unit }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(count: u64) -> Span {
        Span::from_millis(count)
    }

    fn seen(at_ms: &[u64]) -> Seen {
        let mut seen = Seen::default();
        at_ms.iter().for_each(|&at| seen.came(Instant::ZERO + ms(at)));
        seen
    }

    fn periodic(period: u64, jitter: u64) -> ArrivalBound {
        ArrivalBound::periodic(ms(period), ms(jitter)).expect("valid")
    }

    fn beyond(seen: &Seen, bound: ArrivalBound) -> u64 {
        seen.beyond(&ArrivalCurve::new(&[bound]).expect("one")).count
    }

    #[test]
    fn a_period_that_holds_is_kept_with_the_jitter_that_was_seen() {
        // One in 20 ms, each at most 6 ms late: the 4th is 6 ms late, the 5th is not.
        let seen = seen(&[0, 20, 40, 66, 80, 100, 120, 140]);
        let declared = periodic(20, 2);
        assert_eq!(
            seen.beyond(&ArrivalCurve::new(std::slice::from_ref(&declared)).expect("one")).first,
            Some(Instant::ZERO + ms(80))
        );
        assert_eq!(seen.as_seen(&declared), Ok(periodic(20, 6)));
        let fitted = seen.fitted(&declared, ms(50)).expect("one");
        assert_eq!(fitted, periodic(20, 6));
        assert_eq!(beyond(&seen, fitted), 0);
        assert!(beyond(&seen, periodic(20, 5)) > 0, "less does not fit");
    }

    #[test]
    fn a_period_that_is_too_long_is_replaced_by_that_of_what_came() {
        let at: Vec<_> = (0..200).map(|i| i * 18 + i % 3).collect();
        let fitted = seen(&at).fitted(&periodic(20, 1), ms(50)).expect("one");
        let ArrivalBound::Periodic { period, jitter } = fitted else { panic!("{fitted}") };
        assert!((17_900_000..=18_100_000).contains(&period.as_nanos()) && jitter <= ms(4), "{fitted}");
        assert_eq!(beyond(&seen(&at), fitted), 0);
    }

    #[test]
    fn a_camera_has_its_rate_and_the_jitter_that_was_seen_whatever_the_deadline() {
        // One in 33.3 ms, up to 4 ms late.
        let mut camera = Seen::default();
        (0..3_000u64).for_each(|i| camera.came(Instant::from_nanos(i * 33_333_333 + i * 7 % 5 * 1_000_000)));
        for deadline in [5, 30, 100, 1_000] {
            let fitted = camera.periodic(ms(deadline)).expect("one");
            let ArrivalBound::Periodic { period, jitter } = fitted else { panic!("{fitted}") };
            assert!((33_200_000..=33_340_000).contains(&period.as_nanos()), "{deadline}: {fitted}");
            assert!(jitter <= Span::from_micros(5_500), "{deadline}: {fitted}");
        }
    }

    #[test]
    fn pauses_say_nothing_of_the_period() {
        let at: Vec<_> = (0..600).map(|i| i * 30 + i / 100 * 60_000).collect();
        let fitted = seen(&at).periodic(ms(50)).expect("one");
        assert_eq!(fitted, periodic(30, 0));
        // A declaration of the mean would need a jitter of minutes, which no promise could reckon with.
        assert_eq!(seen(&at).fitted(&periodic(300, 0), ms(50)), Ok(fitted));
    }

    #[test]
    fn windows_and_buckets_are_told_as_such_and_a_new_client_begins_anew() {
        let burst = seen(&[0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302, 400, 401, 402]);
        let window = ArrivalBound::window(2, ms(100)).expect("valid");
        assert_eq!(burst.fitted(&window, ms(50)), ArrivalBound::window(3, ms(100)));
        let bucket = ArrivalBound::token_bucket(2, ms(30)).expect("valid");
        assert!(is_bucket(&bucket) && !is_bucket(&periodic(30, 7)) && !is_bucket(&periodic(30, 0)));
        assert_eq!(burst.fitted(&bucket, ms(50)), ArrivalBound::token_bucket(3, ms(30)));

        let mut two = seen(&[0, 10, 20]);
        two.begin_anew();
        two.came(Instant::ZERO + ms(21));
        assert_eq!((beyond(&two, periodic(10, 0)), two.requests()), (0, 4));
        assert_eq!(two.as_seen(&periodic(10, 5)), Ok(periodic(10, 0)));
        assert_eq!((beyond(&two.joined(), periodic(10, 0)), two.joined().requests()), (1, 4));
    }

    proptest! {
        #[test]
        fn what_is_proposed_fits_all_that_came(
            gaps in proptest::collection::vec(0u64..40_000_000, 2..60),
            period in 1u64..60,
            jitter in 0u64..60,
            count in 1u64..5,
        ) {
            let mut seen = Seen::default();
            gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).for_each(|at| seen.came(Instant::from_nanos(at)));
            let bucket = ArrivalBound::token_bucket(count, ms(period)).expect("valid");
            let window = ArrivalBound::window(count, ms(period)).expect("valid");
            for bound in [periodic(period, jitter), bucket, window] {
                // Where the period is tiny beside the jitter none can be declared.
                if let Ok(fitted) = seen.fitted(&bound, ms(25)) {
                    prop_assert_eq!(beyond(&seen, fitted.clone()), 0, "{}", fitted);
                }
            }
        }
    }
}
