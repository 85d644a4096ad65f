//! Weakly-hard constraints (Bernat, Burns and Llamosí, 2001): what a stream is promised.

use alloc::string::{String, ToString};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use crate::word::Density;

/// The longest window `K` of a constraint.
pub const MAX_WINDOW: u32 = 4096;
/// The most constraints that one stream may state.
pub const MAX_CONSTRAINTS: usize = 8;

/// At most `m` misses among any `k` consecutive requests, `0 ≤ m < k ≤` [`MAX_WINDOW`].
///
/// Misses are counted, not hits: Hamdaoui and Ramanathan's "(m,k)-firm" is [`Constraint::any_hit`]. The
/// four names are those of Bernat et al. as used by WeaklyHard.jl.
#[derive(Clone, Copy, Debug)]
pub struct Constraint {
    m: u32,
    k: u32,
    /// Whether it was stated as misses in a row, to be shown so: it means the same.
    row: bool,
}

impl PartialEq for Constraint {
    fn eq(&self, other: &Self) -> bool {
        (self.m, self.k) == (other.m, other.k)
    }
}

impl Eq for Constraint {}

impl Hash for Constraint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.m, self.k).hash(state);
    }
}

/// Why a constraint cannot be stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The window is empty or longer than [`MAX_WINDOW`].
    #[error("window K = {k} is outside 1..={MAX_WINDOW}")]
    Window {
        /// The window asked for.
        k: u64,
    },
    /// Every request of a window may be missed, so nothing is promised.
    #[error("m = {m} misses in a window of K = {k} promise nothing: m must be below K")]
    Vacuous {
        /// Misses allowed.
        m: u32,
        /// Window length.
        k: u32,
    },
    /// The hits asked for do not fit into the window, or none is asked for.
    #[error("h = {h} hits in a window of K = {k}: h must be in 1..=K")]
    Hits {
        /// Hits asked for.
        h: u32,
        /// Window length.
        k: u32,
    },
    /// More than [`MAX_CONSTRAINTS`].
    #[error("{count} constraints on one stream, at most {MAX_CONSTRAINTS}")]
    TooMany {
        /// How many were given.
        count: usize,
    },
}

impl Constraint {
    /// At most `m` misses in any `k` consecutive requests.
    ///
    /// # Errors
    /// If `k` is not in `1..=MAX_WINDOW`, or `m ≥ k`.
    pub const fn any_miss(m: u32, k: u32) -> Result<Self, ConstraintError> {
        if k == 0 || k > MAX_WINDOW {
            return Err(ConstraintError::Window { k: k as u64 });
        }
        if m >= k {
            return Err(ConstraintError::Vacuous { m, k });
        }
        Ok(Self { m, k, row: false })
    }

    /// At least `h` hits in any `k` consecutive requests: `any_miss(k - h, k)`.
    ///
    /// # Errors
    /// As [`Constraint::any_miss`]; `h` must be in `1..=k`.
    pub const fn any_hit(h: u32, k: u32) -> Result<Self, ConstraintError> {
        if h == 0 || h > k {
            return Err(ConstraintError::Hits { h, k });
        }
        Self::any_miss(k - h, k)
    }

    /// At most `m` misses in a row, the maximum of consecutive misses (MCD): exactly `any_miss(m, m + 1)`.
    ///
    /// # Errors
    /// If `m + 1` exceeds [`MAX_WINDOW`].
    pub const fn row_miss(m: u32) -> Result<Self, ConstraintError> {
        if m >= MAX_WINDOW {
            return Err(ConstraintError::Window { k: m as u64 + 1 });
        }
        Ok(Self { m, k: m + 1, row: true })
    }

    /// At least `h` hits in a row within any `k` consecutive requests, promised through the weakest
    /// `any_miss` over the same window that implies it: `any_miss(floor(k/h) - 1, k)`.
    ///
    /// With `m` misses in the window the `k - m` hits fall into `m + 1` runs, so the longest has at least
    /// `ceil((k - m)/(m + 1))`, which reaches `h` exactly for `m ≤ floor(k/h) - 1`.
    ///
    /// # Errors
    /// As [`Constraint::any_hit`].
    pub const fn row_hit(h: u32, k: u32) -> Result<Self, ConstraintError> {
        if h == 0 || h > k {
            return Err(ConstraintError::Hits { h, k });
        }
        Self::any_miss(k / h - 1, k)
    }

    /// The most misses allowed in a window.
    #[must_use]
    pub const fn misses(self) -> u32 {
        self.m
    }

    /// The window length `K`, in requests.
    #[must_use]
    pub const fn window(self) -> u32 {
        self.k
    }

    /// The fewest hits in a window, `K - m`, at least 1.
    #[must_use]
    pub const fn hits(self) -> u32 {
        self.k - self.m
    }

    /// The share of requests that must be served, `(K-m)/K`.
    #[must_use]
    pub fn density(self) -> Density {
        Density::new(self.hits(), self.k).unwrap_or(Density::ZERO)
    }
}

/// Why a text is no constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseConstraintError {
    /// None of the four names with as many numbers as it needs.
    #[error(
        "constraint {text:?} is none of any_miss(m,K), any_hit(h,K), row_miss(M), row_hit(h,K), e.g. any_miss(3,10)"
    )]
    Form {
        /// The text.
        text: String,
    },
    /// What stands for a number is none, or far above [`MAX_WINDOW`].
    #[error("constraint {text:?}: {number:?} is no whole number in 0..={MAX_WINDOW}, e.g. any_miss(3,10)")]
    Number {
        /// The text.
        text: String,
        /// The part of it that should be a number.
        number: String,
    },
    /// The numbers promise nothing.
    #[error("constraint {text:?}: {reason}")]
    Value {
        /// The text.
        text: String,
        /// What is wrong with them.
        reason: ConstraintError,
    },
}

/// Reads what [`Display`](fmt::Display) writes, and the other names: `any_miss(m,K)`, `any_hit(h,K)`,
/// `row_miss(M)`, `row_hit(h,K)`, each with `-` or `_`. Spaces around names and numbers do not matter.
impl FromStr for Constraint {
    type Err = ParseConstraintError;

    fn from_str(text: &str) -> Result<Self, ParseConstraintError> {
        let form = || ParseConstraintError::Form { text: text.to_string() };
        let (name, inside) =
            text.trim_end().strip_suffix(')').and_then(|rest| rest.split_once('(')).ok_or_else(form)?;
        let mut numbers = heapless::Vec::<u32, 2>::new();
        for number in inside.split(',').map(str::trim) {
            let value = number.parse().map_err(|_| match number {
                "" => form(),
                _ => ParseConstraintError::Number { text: text.to_string(), number: number.to_string() },
            })?;
            numbers.push(value).map_err(|_| form())?;
        }
        match (name.trim().replace('-', "_").as_str(), numbers.as_slice()) {
            ("any_miss", &[m, k]) => Self::any_miss(m, k),
            ("any_hit", &[h, k]) => Self::any_hit(h, k),
            ("row_miss", &[m]) => Self::row_miss(m),
            ("row_hit", &[h, k]) => Self::row_hit(h, k),
            _ => return Err(form()),
        }
        .map_err(|reason| ParseConstraintError::Value { text: text.to_string(), reason })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.row {
            write!(f, "row_miss({})", self.m)
        } else {
            write!(f, "any_miss({},{})", self.m, self.k)
        }
    }
}

/// The constraints of one stream, up to [`MAX_CONSTRAINTS`]; empty means best effort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConstraintSet(heapless::Vec<Constraint, MAX_CONSTRAINTS>);

impl fmt::Display for ConstraintSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, constraint) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{constraint}")?;
        }
        Ok(())
    }
}

impl ConstraintSet {
    /// The set of `constraints`.
    ///
    /// # Errors
    /// If there are more than [`MAX_CONSTRAINTS`].
    pub fn new(constraints: &[Constraint]) -> Result<Self, ConstraintError> {
        heapless::Vec::from_slice(constraints)
            .map(Self)
            .map_err(|_| ConstraintError::TooMany { count: constraints.len() })
    }

    /// The constraint that demands the largest share, the last of equals; `None` for best effort.
    #[must_use]
    pub fn densest(&self) -> Option<Constraint> {
        self.0.iter().copied().max_by_key(|c| c.density())
    }

    /// The largest density of the set: serving that share along a balanced word satisfies all of it.
    #[must_use]
    pub fn density(&self) -> Density {
        self.densest().map_or(Density::ZERO, Constraint::density)
    }

    /// The constraints, in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[Constraint] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::word::BalancedWord;
    use std::string::ToString;
    use std::vec::Vec;

    /// The definitions, read off a sequence of hits (`true`) the slow way.
    fn longest_row(window: &[bool], what: bool) -> usize {
        window.split(|&x| x != what).map(<[bool]>::len).max().unwrap_or(0)
    }

    #[test]
    fn a_constraint_is_shown_as_it_was_stated() {
        for text in ["any_miss(1,2)", "row_miss(1)", "any_miss(5,10)"] {
            assert_eq!(text.parse::<Constraint>().expect("valid").to_string(), text);
        }
        assert_eq!(Constraint::any_miss(1, 2), Constraint::row_miss(1));
    }

    #[test]
    fn the_four_names_agree_with_their_definitions_on_every_short_sequence() {
        for bits in 0u32..1 << 10 {
            let sequence: Vec<bool> = (0..10).map(|i| bits >> i & 1 == 1).collect();
            let holds = |c: Constraint| {
                sequence
                    .windows(c.window() as usize)
                    .all(|w| w.iter().filter(|&&hit| !hit).count() as u32 <= c.misses())
            };
            for k in 1u32..=8 {
                for x in 1..=k {
                    let hits = |w: &[bool]| w.iter().filter(|&&hit| hit).count() as u32;
                    let any_hit = sequence.windows(k as usize).all(|w| hits(w) >= x);
                    assert_eq!(holds(Constraint::any_hit(x, k).expect("valid")), any_hit);
                    if holds(Constraint::row_hit(x, k).expect("valid")) {
                        assert!(sequence.windows(k as usize).all(|w| longest_row(w, true) >= x as usize));
                    }
                }
                let row_miss = longest_row(&sequence, false) <= k as usize;
                assert_eq!(holds(Constraint::row_miss(k).expect("valid")), row_miss);
            }
        }
    }

    #[test]
    fn row_hit_takes_the_weakest_any_miss_that_implies_it() {
        for k in 1u32..=10 {
            for h in 1..=k {
                let m = Constraint::row_hit(h, k).expect("valid").misses() + 1;
                // One more miss, spread evenly, leaves no row of h hits.
                let runs = (m + 1).min(k);
                assert!(m >= k || (k - m).div_ceil(runs) < h, "h={h} k={k}");
            }
        }
    }

    #[test]
    fn a_balanced_word_of_the_set_density_satisfies_all_of_the_set() {
        let set = ConstraintSet::new(&[
            Constraint::any_miss(3, 10).expect("valid"),
            Constraint::row_miss(2).expect("valid"),
            Constraint::row_hit(2, 7).expect("valid"),
        ])
        .expect("three");
        let mut word = BalancedWord::new(set.density());
        let served: Vec<bool> = (0..500).map(|_| word.next_is_mandatory()).collect();
        for c in set.as_slice() {
            for w in served.windows(c.window() as usize) {
                assert!(w.iter().filter(|&&hit| !hit).count() as u32 <= c.misses(), "{c}");
            }
        }
    }

    #[test]
    fn constraints_are_read_as_they_are_written_and_in_every_spelling() {
        for k in 1..=40 {
            for m in 0..k {
                let c = Constraint::any_miss(m, k).expect("m < k");
                assert_eq!(c.to_string().parse(), Ok(c));
            }
        }
        let read = |text: &str| text.parse::<Constraint>();
        let valid = |c: Result<Constraint, ConstraintError>| Ok(c.expect("valid"));
        assert_eq!(read("any-miss(3,10)"), valid(Constraint::any_miss(3, 10)));
        assert_eq!(read(" any_hit ( 3 , 5 ) "), valid(Constraint::any_hit(3, 5)));
        assert_eq!(read("row-miss(0)"), valid(Constraint::row_miss(0)));
        assert_eq!(read("row_hit(2,6)"), valid(Constraint::row_hit(2, 6)));
    }

    #[test]
    fn what_is_no_constraint_is_refused_with_text_value_and_limit() {
        let told = |text: &str| text.parse::<Constraint>().expect_err("none").to_string();
        let forms =
            ["", "any-miss", "any-miss()", "any-miss(1)", "row-miss(1,2)", "any-miss(1,2", "miss(1,2)"];
        for text in forms.into_iter().chain(["any-miss(1,2,3)", "any-miss(1,2))", "any-miss(3,10"]) {
            assert!(
                told(text).contains(&std::format!("{text:?}")) && told(text).contains("e.g. any_miss(3,10)")
            );
        }
        for (text, number) in
            [("any-miss(-1,2)", "-1"), ("any-miss(3,1 0)", "1 0"), ("row-miss(4294967296)", "4294967296")]
        {
            let error = told(text);
            assert!(error.contains(&std::format!("{number:?}")) && error.contains("4096"), "{error}");
        }
        assert_eq!(
            told("any-miss(5,5)"),
            "constraint \"any-miss(5,5)\": m = 5 misses in a window of K = 5 promise nothing: m must be below K"
        );
        assert!(told("row-miss(5000)").contains("5001") && told("row-miss(5000)").contains("4096"));
    }

    #[test]
    fn nonsense_is_refused_with_value_and_limit() {
        assert_eq!(Constraint::any_miss(5, 5), Err(ConstraintError::Vacuous { m: 5, k: 5 }));
        assert_eq!(Constraint::any_miss(0, 0), Err(ConstraintError::Window { k: 0 }));
        assert_eq!(Constraint::any_hit(0, 4), Err(ConstraintError::Hits { h: 0, k: 4 }));
        assert_eq!(Constraint::row_miss(4096), Err(ConstraintError::Window { k: 4097 }));
        let text = Constraint::any_miss(1, 9999).expect_err("too long").to_string();
        assert!(text.contains("9999") && text.contains("4096"), "{text}");
    }
}
