//! Theorem A, its refinement and what stalls ask for, as `docs/guarantee.md` writes them, at every instant.

use super::{Dice, Stream, lcm};

#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) count: u64,
    /// Of batches of 1, 2, …, B.
    pub(crate) times: Vec<u64>,
}

impl Kind {
    fn time(&self) -> u64 {
        self.times[self.times.len() - 1]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) kinds: Vec<Kind>,
    /// `L`, what stalls may take in it.
    pub(crate) latency: u64,
    pub(crate) guard: u64,
    /// So many in a window, each so long.
    pub(crate) stalls: Option<(u64, u64, u64)>,
    pub(crate) patient: bool,
    pub(crate) background: bool,
    pub(crate) streams: Vec<Stream>,
}

/// What is answered at an offset: how many wait, by when the last has an answer, and by when it must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) delta: u64,
    pub(crate) backlog: u64,
    pub(crate) lhs: u64,
    pub(crate) rhs: u64,
}

impl Moment {
    pub(crate) fn margin(&self) -> i64 {
        self.rhs as i64 - self.lhs as i64
    }
}

impl System {
    pub(crate) fn mandatory(&self, length: u64) -> u64 {
        self.streams.iter().map(|s| s.share(s.arrivals(length))).sum()
    }

    /// The same where a whole holds no more than its parts may.
    pub(crate) fn possible(&self, reach: u64) -> Vec<u64> {
        let mut all = vec![0; reach as usize + 1];
        for s in &self.streams {
            let mut least = vec![0];
            for length in 1..=reach as usize {
                let parts = (1..=length / 2).map(|part| least[part] + least[length - part]).min();
                least.push(s.arrivals(length as u64).min(parts.unwrap_or(u64::MAX)));
                all[length] += s.share(least[length]);
            }
        }
        all
    }

    /// `σ`.
    fn begun(&self, u: u64) -> u64 {
        self.kinds.iter().map(|k| k.count * k.times.len() as u64 * (u / k.time())).sum()
    }

    /// All streams so many thousandths times as fast.
    pub(crate) fn faster(&self, scale: u64) -> Option<Self> {
        let mut system = self.clone();
        for bound in system.streams.iter_mut().flat_map(|s| &mut s.bounds) {
            *bound = bound.faster(scale)?;
        }
        Some(system)
    }

    /// The same with another `L`, of which stalls leave something.
    pub(crate) fn with_latency(&self, latency: u64) -> Option<Self> {
        (latency >= self.reserve()).then(|| Self { latency, ..self.clone() })
    }

    fn reserve(&self) -> u64 {
        self.stalls.map_or(0, |(count, _, length)| count * length)
    }

    /// In what length all repeats.
    pub(crate) fn hyperperiod(&self) -> u64 {
        let steps = self.streams.iter().flat_map(|s| &s.bounds).fold(1, |all, b| lcm(all, b.step()));
        let words = self.streams.iter().fold(1, |all, s| lcm(all, s.density().1));
        self.kinds.iter().fold(steps * words, |all, k| lcm(all, k.time()))
    }

    /// What comes in such a length, far out, and what is begun in it.
    pub(crate) fn load(&self) -> (u64, u64) {
        let (far, period) = (300, self.hyperperiod());
        (self.mandatory(far + period) - self.mandatory(far), self.begun(period))
    }

    /// The inequality of Theorem A at every offset from 0 on, by how many have come until then.
    pub(crate) fn plain(&self, backlogs: impl IntoIterator<Item = u64>) -> Vec<Moment> {
        let slowest = self.kinds.iter().map(Kind::time).max().expect("a kind");
        let (mut all, mut begun) = (Vec::new(), 0);
        for (delta, backlog) in (0..).zip(backlogs) {
            begun = (begun..).find(|&u| self.begun(u) >= backlog).expect("some time");
            all.push(Moment {
                delta,
                backlog,
                lhs: begun + slowest,
                rhs: delta + self.latency - self.reserve(),
            });
        }
        all
    }

    /// The first length at the end of which all that can have come is begun; up to `reach`.
    pub(crate) fn busy(&self, reach: u64) -> Option<u64> {
        (1..=reach).find(|&x| self.mandatory(x) <= self.begun(x))
    }

    /// Whether no more stalls than are kept back for meet what one request sees.
    pub(crate) fn stalls_are_rare(&self) -> bool {
        let Some((_, window, length)) = self.stalls else { return true };
        let deadline = self.latency + self.guard;
        let caught_up = |x: &u64| *x >= deadline && self.mandatory(*x) <= self.begun(*x - deadline);
        (1..=window).find(caught_up).is_some_and(|busy| busy + deadline + length <= window)
    }

    /// Whether the refinement has a say.
    pub(crate) fn closed(&self) -> bool {
        !self.background && self.stalls.is_none() && self.kinds.len() == 1
    }

    /// The refinement at an offset: the worst of all that can block the workers, for no longer than `longest`.
    pub(crate) fn refined(&self, delta: u64, longest: u64) -> Moment {
        let kind = &self.kinds[0];
        let (n, size, time) = (kind.count, kind.times.len() as u64, kind.time());
        let patience = if self.patient && size > 1 { self.latency.saturating_sub(time) } else { 0 };
        // τ: g is the largest P(b)/b.
        let (slow, of) = (1..)
            .zip(&kind.times)
            .map(|(b, &t)| (t, b))
            .max_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))
            .expect("a time");
        let tau = |t: i64| if t <= 0 { 0 } else { (t as u64 * of).div_ceil(slow) };
        let mut worst = Moment { delta, backlog: 0, lhs: 0, rhs: delta + self.latency };
        for blocking in blockings(kind) {
            let lengths: Vec<u64> = blocking.iter().map(|&b| kind.times[b as usize - 1]).collect();
            let ahead = if lengths.len() < 2 { 0 } else { lengths[0] - 1 };
            for d in 0..=ahead {
                for t in 0..=if blocking.is_empty() { 0 } else { longest } {
                    let chain = tau(t as i64) + (n - 1) * tau(t as i64 - time as i64 + 1);
                    let x = blocking.iter().sum::<u64>() + chain;
                    let (short, long) = (d + t + self.guard, d + t + self.guard + patience);
                    let Some(mut k) = self.left(delta, long, x) else { continue };
                    if patience > 0 {
                        match self.left(delta, short, x.saturating_sub(size - 1)) {
                            Some(other) => k = k.min(other),
                            None => continue,
                        }
                    }
                    if k == 0 {
                        continue;
                    }
                    let mut free = lengths.clone();
                    free.resize(n as usize, 0);
                    if let Some(first) = free.first_mut() {
                        *first -= d.min(*first);
                    }
                    let batches = k.div_ceil(size);
                    let mut starts: Vec<u64> =
                        free.iter().flat_map(|f| (0..batches).map(move |i| f + i * time)).collect();
                    starts.sort_unstable();
                    for j in 0..batches {
                        let start = starts[j as usize];
                        let come: u64 = self.streams.iter().map(|s| s.arrivals(long + start + 1)).sum();
                        let holds = come.saturating_sub(x + j * size).clamp(1, size);
                        let lhs = start + kind.times[holds as usize - 1];
                        if lhs > worst.lhs {
                            worst = Moment { backlog: k, lhs, ..worst };
                        }
                    }
                }
            }
        }
        worst
    }

    /// The most mandatory requests that wait at an offset if `spent` others came by at most `before` earlier than 0, over all ways
    /// to split these.
    fn left(&self, delta: u64, before: u64, spent: u64) -> Option<u64> {
        let all = |s: &Stream| s.arrivals(delta + 1 + before);
        let waiting = |s: &Stream, own: u64| s.share(s.arrivals(delta + 1)).min(s.share(all(s) - own));
        let most = |s: &Stream| s.arrivals(before + 1).min(all(s)).min(spent);
        match self.streams.as_slice() {
            [one] => (most(one) >= spent).then(|| waiting(one, spent)),
            [one, other] => (0..=most(one))
                .filter(|own| spent - own <= most(other))
                .map(|own| waiting(one, own) + waiting(other, spent - own))
                .max(),
            _ => panic!("one or two streams"),
        }
    }

    pub(crate) fn text(&self) -> String {
        let kind = |k: &Kind| {
            format!(r#"{{"count": {}, "batch": {}, "times": {:?}}}"#, k.count, k.times.len(), k.times)
        };
        let stalls = self.stalls.map_or_else(String::new, |(count, window, length)| {
            format!(r#""stalls": {{"count": {count}, "window": {window}, "length": {length}}}, "#)
        });
        let streams = self.streams.iter().enumerate().map(|(i, s)| s.text(&format!("s{i}")));
        format!(
            r#"{{"unit": "ns", "deadline": {}, "guard": {}, {stalls}"dispatch": "{}", "background": {}, "workers": [{}], "streams": [{}]}}"#,
            self.latency + self.guard,
            self.guard,
            if self.patient { "full-or-latest" } else { "eager" },
            self.background,
            self.kinds.iter().map(kind).collect::<Vec<_>>().join(","),
            streams.collect::<Vec<_>>().join(",")
        )
    }
}

/// All sets of batches that may run, the first of which may be ahead, in any order.
fn blockings(kind: &Kind) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    let mut from = 0;
    for _ in 0..kind.count {
        let until = all.len();
        for at in from..until {
            for b in 1..=kind.times.len() as u64 {
                let more = [all[at].as_slice(), &[b]].concat();
                all.push(more);
            }
        }
        from = until;
    }
    all
}

/// A system with one kind of workers, or two.
pub(crate) fn draw(dice: &mut Dice, kinds: u64, arrivals: &[Vec<super::Bound>]) -> System {
    let kind = |dice: &mut Dice| {
        let mut times = vec![dice.within(1, 3)];
        for b in 1..dice.within(1, 3) as usize {
            times.push(times[b - 1] + dice.within(0, 2));
        }
        Kind { count: dice.within(1, 2), times }
    };
    let kinds: Vec<_> = (0..kinds).map(|_| kind(dice)).collect();
    let longest = kinds.iter().map(Kind::time).max().expect("a kind");
    let stream = |dice: &mut Dice| Stream {
        bounds: dice.of(arrivals).clone(),
        constraint: (dice.within(0, 5) > 0).then(|| *dice.of(&super::CONSTRAINTS)),
    };
    let stalls =
        (dice.within(0, 4) == 0).then(|| (dice.within(1, 2), dice.within(50, 300), dice.within(1, 4)));
    let reserve = stalls.map_or(0, |(count, _, length)| count * length);
    System {
        kinds,
        latency: longest + dice.within(0, 3 * longest + 2) + reserve,
        guard: dice.within(0, 3).saturating_sub(1),
        stalls,
        patient: dice.within(0, 1) == 0,
        background: dice.within(0, 1) == 0,
        streams: (0..dice.within(1, 2)).map(|_| stream(dice)).collect(),
    }
}
