//! Loads read off the page: curves by their definitions at every length, and the words in which a problem says them.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod instants;
pub(crate) mod lines;

/// One bound on arrivals, by its definition.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    /// So many in any length.
    Window(u64, u64),
    /// One a period, each up to so much late.
    Periodic(u64, u64),
    /// So many at once, one more a period.
    Bucket(u64, u64),
    /// At least so long from a request to the next, the one after that, and so on; sums of two are no longer.
    Distances(Vec<u64>),
}

impl Bound {
    fn most(&self, length: u64) -> u64 {
        match self {
            Self::Window(count, window) => count * length.div_ceil(*window),
            Self::Periodic(period, jitter) => (length + jitter).div_ceil(*period),
            Self::Bucket(burst, period) => (length + (burst - 1) * period).div_ceil(*period),
            Self::Distances(list) => {
                let n = list.len() as u64;
                let distance = |i: u64| match i % n {
                    0 => i / n * list[list.len() - 1],
                    rest => i / n * list[list.len() - 1] + list[rest as usize - 1],
                };
                1 + (0..).take_while(|&i| distance(i) < length).last().expect("0 is below every length")
            }
        }
    }

    /// So many thousandths times as fast, rounded towards more; `None` below 1 ns.
    pub(crate) fn faster(&self, scale: u64) -> Option<Self> {
        let shorter = |t: u64| t * 1000 / scale;
        let late = |late: u64, period: u64| (late * shorter(period)).div_ceil(period);
        let new = match self {
            Self::Window(count, length) => Self::Window(*count, shorter(*length)),
            Self::Periodic(period, jitter) => Self::Periodic(shorter(*period), late(*jitter, *period)),
            Self::Bucket(burst, period) => Self::Bucket(*burst, shorter(*period)),
            Self::Distances(list) => Self::Distances(list.iter().map(|&d| shorter(d)).collect()),
        };
        (new.step() > 0).then_some(new)
    }

    /// After what length it grows by a fixed number.
    pub(crate) fn step(&self) -> u64 {
        match self {
            Self::Window(_, step) | Self::Periodic(step, _) | Self::Bucket(_, step) => *step,
            Self::Distances(list) => list[list.len() - 1],
        }
    }
}

/// At most `constraint.0` of any `constraint.1` in a row may be missed; nothing is promised without.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) bounds: Vec<Bound>,
    pub(crate) constraint: Option<(u64, u64)>,
}

impl Stream {
    /// The most requests in a half-open interval of this length.
    pub(crate) fn arrivals(&self, length: u64) -> u64 {
        if length == 0 { 0 } else { self.bounds.iter().map(|b| b.most(length)).min().expect("a bound") }
    }

    /// So many of so many requests in a row must be served.
    pub(crate) fn density(&self) -> (u64, u64) {
        self.constraint.map_or((0, 1), |(m, k)| (k - m, k))
    }

    /// As many of so many requests as may be mandatory.
    pub(crate) fn share(&self, requests: u64) -> u64 {
        let (p, q) = self.density();
        (p * requests).div_ceil(q)
    }

    pub(crate) fn constraints(&self) -> Vec<String> {
        self.constraint.iter().map(|(m, k)| format!("any_miss({m},{k})")).collect()
    }

    /// As a problem says it.
    pub(crate) fn text(&self, name: &str) -> String {
        let (mut windows, mut periodic, mut rest) = (Vec::new(), Vec::new(), String::new());
        for bound in &self.bounds {
            match bound {
                Bound::Window(count, length) => windows.push(format!("[{count}, {length}]")),
                Bound::Periodic(period, jitter) => {
                    periodic.push(format!(r#"{{"period": {period}, "jitter": {jitter}}}"#));
                }
                Bound::Bucket(burst, period) => {
                    rest += &format!(r#", "token_bucket": {{"burst": {burst}, "period": {period}}}"#);
                }
                Bound::Distances(list) => rest += &format!(r#", "distances": {list:?}"#),
            }
        }
        format!(
            r#"{{"name": "{name}", "constraints": {:?}, "arrivals": {{"windows": [{}], "periodic": [{}]{rest}}}}}"#,
            self.constraints(),
            windows.join(","),
            periodic.join(",")
        )
    }
}

/// Every kind of bound, alone and several at once, the slowest of which does not count at first.
pub(crate) fn arrivals() -> Vec<Vec<Bound>> {
    use Bound::{Bucket, Distances, Periodic, Window};
    vec![
        vec![Window(1, 2)],
        vec![Window(1, 3)],
        vec![Window(2, 3)],
        vec![Window(1, 4)],
        vec![Window(3, 4)],
        vec![Window(1, 6)],
        vec![Window(4, 6)],
        vec![Window(3, 8)],
        vec![Periodic(2, 0)],
        vec![Periodic(3, 4)],
        vec![Periodic(4, 1)],
        vec![Periodic(6, 13)],
        vec![Bucket(3, 2)],
        vec![Bucket(4, 6)],
        vec![Distances(vec![0, 4])],
        vec![Distances(vec![1, 2, 8])],
        vec![Window(4, 6), Window(1, 1)],
        vec![Window(5, 8), Window(3, 4)],
        vec![Bucket(5, 3), Window(1, 2)],
        vec![Periodic(4, 9), Window(1, 2)],
        vec![Window(3, 6), Periodic(2, 3), Window(2, 3)],
        vec![Distances(vec![0, 0, 6]), Window(2, 4)],
        vec![Bucket(3, 4), Periodic(4, 3), Distances(vec![1, 6])],
    ]
}

/// The constraints, and so densities, that are tried: 1, 1/2, 2/3, 3/4 and 2/5.
pub(crate) const CONSTRAINTS: [(u64, u64); 5] = [(0, 1), (1, 2), (1, 3), (1, 4), (3, 5)];

pub(crate) fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Small deterministic randomness.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number in `low..=high`.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0, all.len() as u64 - 1) as usize]
    }
}

/// How many times as many systems as usual are looked at: `WEIR_EXHAUSTIVE`.
pub(crate) fn effort() -> u64 {
    std::env::var("WEIR_EXHAUSTIVE").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}
