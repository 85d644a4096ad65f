//! How a stream is dealt to several daemons so that its constraints hold of the whole: `docs/cluster.md`, "Several fronts".

use crate::types::{ArrivalBound, Constraint, Registration, RegistrationError};
use crate::wire::MAX_ARRIVALS;

/// Whose each request of a stream is, and what each daemon is to promise.
///
/// ```
/// use std::time::Duration;
/// use weir_client::{ArrivalBound, Constraint, Registration, dealing::Dealing};
///
/// let whole = Registration::builder("obstacles", "front-camera")
///     .constraint(Constraint::any_miss(1, 2))
///     .arrivals(ArrivalBound::periodic(Duration::from_millis(10), Duration::ZERO))
///     .build()?;
/// let dealing = Dealing::new(whole.constraints(), 2)?;
/// // Every second request must be answered, by each of both in turn; any of them may have the others, of the stream `rest`.
/// assert_eq!([0, 1, 2, 3].map(|sequence| dealing.front(sequence)), [None, Some(0), None, Some(1)]);
/// let [must, rest] = dealing.registrations(&whole)?;
/// assert_eq!(must.constraints(), [Constraint::RowMiss { misses: 0 }]);
/// assert_eq!(must.arrivals(), [ArrivalBound::periodic(Duration::from_millis(40), Duration::ZERO)]);
/// assert_eq!((must.stream(), rest.stream()), ("front-camera", "front-camera/rest"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealing {
    /// So many …
    kept: u64,
    /// … of so many consecutive requests must be answered, in lowest terms.
    of: u64,
    fronts: u64,
}

/// Why a stream cannot be dealt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DealingError {
    /// Nothing must be answered, so that any daemon will do for each request.
    #[error("a stream without constraints needs no dealing: any front will do")]
    NoConstraint,
    /// A constraint that promises nothing, cannot hold, or is not known here.
    #[error("{0}: leaves nothing to be served, or cannot hold")]
    Constraint(Constraint),
    /// A bound of arrivals that is not known here.
    #[error("arrivals of the unknown form {0}")]
    Arrivals(u8),
    /// Nobody to deal it to.
    #[error("fronts = 0: must be at least 1")]
    NoFront,
    /// The name is too long.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
}

impl Dealing {
    /// Of a stream with these constraints to so many daemons.
    ///
    /// # Errors
    /// If there is nothing to be dealt, or nobody to deal it to.
    pub fn new(constraints: &[Constraint], fronts: usize) -> Result<Self, DealingError> {
        if fronts == 0 {
            return Err(DealingError::NoFront);
        }
        let densities: Result<Vec<_>, _> = constraints.iter().map(density).collect();
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let above = |&(a, b): &(u64, u64), &(c, d): &(u64, u64)| product(a, d).cmp(&product(c, b));
        let (kept, of) = densities?.into_iter().max_by(above).ok_or(DealingError::NoConstraint)?;
        let common = gcd(kept.into(), of.into()) as u64;
        Ok(Self { kept: kept / common, of: of / common, fronts: fronts as u64 })
    }

    /// Of the request with this number, from 0 on, the daemon that must answer it; `None` if none must.
    pub fn front(&self, sequence: u64) -> Option<usize> {
        let mandatory = |count: u128| count * u128::from(self.kept) / u128::from(self.of);
        let before = mandatory(sequence.into());
        let own = (before % u128::from(self.fronts)) as usize;
        (mandatory(u128::from(sequence) + 1) > before).then_some(own)
    }

    /// At most so many of any `window` consecutive requests are missed if those daemons that are `promising` answer all that they
    /// must.
    pub fn misses(&self, window: usize, promising: impl Fn(usize) -> bool) -> usize {
        // The word repeats after so many requests, and who gets them after so many times more.
        let period = (self.of * self.fronts) as usize;
        let served = |place: usize| self.front(place as u64).is_some_and(&promising);
        let mut inside = (0..window).filter(|&place| served(place)).count();
        let mut least = inside;
        for begin in 0..period {
            inside = inside + usize::from(served(begin + window)) - usize::from(served(begin));
            least = least.min(inside);
        }
        window - least
    }

    /// What each daemon is told of the requests that it must answer, where `arrivals` hold of the whole; each of these bounds holds of
    /// them.
    ///
    /// # Errors
    /// A form of bounds that is not known here.
    pub fn share(&self, arrivals: &[ArrivalBound]) -> Result<Vec<ArrivalBound>, DealingError> {
        // Of the whole, as many requests on average go by from one of a share to the next.
        let (requests, shares) = lowest(u128::from(self.fronts) * u128::from(self.of), self.kept.into());
        let (mut rates, mut bursts) = (Vec::new(), Vec::new());
        for bound in arrivals {
            let (period, jitter) = match *bound {
                ArrivalBound::Window { count, length_ns } => {
                    // Of so many windows the share is a whole number; of one alone it is rounded up.
                    let (own, windows) = lowest(u128::from(count) * shares, requests);
                    let length_ns_of_all = narrow(u128::from(length_ns) * windows);
                    rates.push(ArrivalBound::Window { count: narrow(own), length_ns: length_ns_of_all });
                    if windows > 1 {
                        let count = narrow(own.div_ceil(windows));
                        bursts.push(ArrivalBound::Window { count, length_ns });
                    }
                    continue;
                }
                ArrivalBound::Periodic { period_ns, jitter_ns } => (period_ns.into(), jitter_ns.into()),
                ArrivalBound::TokenBucket { burst, period_ns } => {
                    (u128::from(period_ns), u128::from(period_ns) * u128::from(burst.saturating_sub(1)))
                }
                ArrivalBound::Unknown { form, .. } => return Err(DealingError::Arrivals(form)),
            };
            // Where the share's requests are not equally far apart, one may come up to so much early.
            let early = (period * (shares - 1)).div_ceil(shares);
            let period_ns = narrow(period * requests / shares);
            rates.push(ArrivalBound::Periodic { period_ns, jitter_ns: narrow(jitter + early) });
        }
        rates.append(&mut bursts);
        rates.truncate(MAX_ARRIVALS);
        Ok(rates)
    }

    /// What each daemon is asked for: the stream of what it must answer, of which none may be missed, and `NAME/rest` of what it need
    /// not.
    ///
    /// # Errors
    /// Those of [`share`](Self::share), and a name that is too long.
    pub fn registrations(&self, whole: &Registration) -> Result<[Registration; 2], DealingError> {
        let begin = |name: String| {
            let builder = Registration::builder(whole.service(), name);
            whole.class().map_or(builder.clone(), |class| builder.class(class))
        };
        let must = begin(whole.stream().to_owned()).constraint(Constraint::RowMiss { misses: 0 });
        let must = self.share(whole.arrivals())?.into_iter().fold(must, crate::RegistrationBuilder::arrivals);
        Ok([must.build()?, begin(format!("{}/rest", whole.stream())).build()?])
    }
}

/// Of how many consecutive requests how many must be served so that it holds, whichever these are among balanced ones.
fn density(constraint: &Constraint) -> Result<(u64, u64), DealingError> {
    let wrong = || DealingError::Constraint(*constraint);
    let (misses, window) = match *constraint {
        Constraint::AnyMiss { misses, window } => (Some(misses.into()), u64::from(window)),
        Constraint::AnyHit { hits, window } => (window.checked_sub(hits).map(u64::from), window.into()),
        Constraint::RowMiss { misses } => (Some(misses.into()), u64::from(misses) + 1),
        // At least `hits` in a row in any `window` are promised by at most so many misses among them.
        Constraint::RowHit { hits: 0, .. } | Constraint::Unknown { .. } => return Err(wrong()),
        Constraint::RowHit { hits, window } => ((window / hits).checked_sub(1).map(u64::from), window.into()),
    };
    let misses = misses.filter(|misses| *misses < window).ok_or_else(wrong)?;
    Ok((window - misses, window))
}

/// A fraction in lowest terms.
fn lowest(over: u128, under: u128) -> (u128, u128) {
    let common = gcd(over, under).max(1);
    (over / common, under / common)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The cases that the Python client is held against too.
    #[test]
    fn a_stream_is_dealt_as_by_the_other_client() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../tests/dealing.json")).expect("cases");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let number = |value: &Value| value.as_u64().expect("a number");
        let three = |value: &Value| {
            let of = list(value);
            (number(&of[0]) as u8, number(&of[1]), number(&of[2]))
        };
        assert!(cases.len() > 20);
        for case in &cases {
            let constraints: Vec<_> = list(&case["constraints"]).iter().map(three).collect();
            let constraints: Vec<_> = constraints
                .iter()
                .map(|&(form, a, k)| Constraint::from_fields(form, a as u32, k as u32))
                .collect();
            let dealing = Dealing::new(&constraints, number(&case["fronts"]) as usize);
            if case["density"].is_null() {
                assert!(dealing.is_err(), "{case}");
                continue;
            }
            let dealing = dealing.expect("a stream that can be dealt");
            let density: Vec<_> = list(&case["density"]).iter().map(number).collect();
            assert_eq!([dealing.kept, dealing.of], density[..], "{case}");
            for (sequence, front) in (0..).zip(list(&case["dealt"])) {
                assert_eq!(dealing.front(sequence), front.as_u64().map(|front| front as usize), "{case}");
            }
            for told in list(&case["misses"]) {
                let (window, most) = (number(&told["window"]) as usize, number(&told["most"]) as usize);
                let promising: Vec<_> = list(&told["promising"]).iter().map(number).collect();
                let found = dealing.misses(window, |front| promising.contains(&(front as u64)));
                assert_eq!(found, most, "{case}: {told}");
            }
            for share in list(&case["shares"]) {
                let bound = |value: &Value| {
                    let (form, a, b) = three(value);
                    ArrivalBound::from_fields(form, a, b)
                };
                let bounds = |field: &str| list(&share[field]).iter().map(bound).collect::<Vec<_>>();
                assert_eq!(dealing.share(&bounds("whole")), Ok(bounds("share")), "{case}");
            }
        }
    }

    #[test]
    fn what_cannot_be_dealt_is_refused() {
        assert_eq!(Dealing::new(&[], 2), Err(DealingError::NoConstraint));
        assert_eq!(Dealing::new(&[Constraint::any_miss(1, 2)], 0), Err(DealingError::NoFront));
        let dealing = Dealing::new(&[Constraint::any_miss(1, 2)], 2).expect("it can be dealt");
        assert_eq!(
            dealing.share(&[ArrivalBound::Unknown { form: 9, a: 1, b: 1 }]),
            Err(DealingError::Arrivals(9))
        );
        let whole = Registration::builder("s", "n".repeat(251)).build().expect("it fits");
        assert!(matches!(dealing.registrations(&whole), Err(DealingError::Registration(_))));
        // Beyond all that anybody waits for nothing overflows.
        let endless = dealing.share(&[ArrivalBound::TokenBucket { burst: u64::MAX, period_ns: u64::MAX }]);
        assert_eq!(endless, Ok(vec![ArrivalBound::Periodic { period_ns: u64::MAX, jitter_ns: u64::MAX }]));
    }
}
