//! The lines of Theorems E and T as `docs/guarantee.md` writes them, at every distance, one after the other.

use planner::certificate::Reference;

use super::{Dice, Stream, lcm};

pub(crate) mod relief;

#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) batch: u64,
    pub(crate) time: u64,
    /// What is left of the deadline less the guard when the time of a batch is taken off.
    pub(crate) slack: u64,
    pub(crate) guard: u64,
    pub(crate) turn: u64,
    pub(crate) streams: Vec<Stream>,
}

#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) workers: u64,
    pub(crate) services: Vec<Service>,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) reference: Reference,
    pub(crate) service: usize,
    pub(crate) distance: i64,
    pub(crate) lhs: i64,
    pub(crate) rhs: i64,
}

impl Line {
    pub(crate) fn margin(&self) -> i64 {
        self.rhs - self.lhs
    }
}

pub(crate) fn name(service: usize) -> String {
    format!("v{service}")
}

/// A system, and how many mandatory requests of each service come in every length up to some.
#[derive(Clone)]
pub(crate) struct Walk<'a> {
    system: &'a Shared,
    turns: bool,
    reach: i64,
    counts: Vec<Vec<i64>>,
    /// `g`, and of each service `D`.
    late: i64,
    due: Vec<i64>,
    longest: i64,
}

impl Shared {
    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.services.iter().flat_map(|s| &s.streams)
    }

    /// In what length all counts of batches grow by whole numbers, once they repeat.
    pub(crate) fn hyperperiod(&self, turns: bool) -> u64 {
        let steps = self.streams().flat_map(|s| &s.bounds).fold(1, |all, b| lcm(all, b.step()));
        let words = self.streams().fold(1, |all, s| lcm(all, s.density().1));
        let whole = |s: &Service| if turns { s.batch * s.turn } else { s.batch };
        steps * words * self.services.iter().fold(1, |all, s| lcm(all, whole(s)))
    }

    /// The work that comes in such a length, far out, and what the workers can do in it.
    pub(crate) fn load(&self) -> (u64, u64) {
        let (far, period) = (300, self.hyperperiod(false));
        let grown = |s: &Service| {
            let at = |length: u64| s.streams.iter().map(|k| k.share(k.arrivals(length))).sum::<u64>();
            s.time * (at(far + period) - at(far)) / s.batch
        };
        (self.services.iter().map(grown).sum(), self.workers * period)
    }

    pub(crate) fn walk(&self, turns: bool, reach: i64) -> Walk<'_> {
        let late = self.services.iter().map(|s| s.guard).min().expect("services") as i64;
        let due: Vec<_> = self.services.iter().map(|s| (s.time + s.slack) as i64 + late).collect();
        let most = reach + 2 * due.iter().max().expect("services") + 4;
        let of = |s: &Service, length: i64| {
            s.streams.iter().map(|k| k.share(k.arrivals(length as u64)) as i64).sum()
        };
        let counts = self.services.iter().map(|s| (0..=most).map(|length| of(s, length)).collect());
        let longest = self.services.iter().map(|s| s.time).max().expect("services") as i64;
        Walk { system: self, turns, reach, counts: counts.collect(), late, due, longest }
    }

    /// All streams, or those of one service, so many thousandths times as fast.
    pub(crate) fn faster(&self, one: Option<usize>, scale: u64) -> Option<Self> {
        let mut system = self.clone();
        for (_, s) in system.services.iter_mut().enumerate().filter(|(s, _)| one.is_none_or(|one| one == *s))
        {
            for bound in s.streams.iter_mut().flat_map(|s| &mut s.bounds) {
                *bound = bound.faster(scale)?;
            }
        }
        Some(system)
    }

    pub(crate) fn text(&self, rule: &str) -> String {
        let service = |(i, s): (usize, &Service)| {
            let streams: Vec<_> =
                s.streams.iter().enumerate().map(|(k, stream)| stream.text(&format!("s{k}"))).collect();
            format!(
                r#"{{"name": "{}", "deadline": {}, "guard": {}, "batch": {}, "time": {}, "turn": {}, "streams": [{}]}}"#,
                name(i),
                s.time + s.slack + s.guard,
                s.guard,
                s.batch,
                s.time,
                s.turn,
                streams.join(",")
            )
        };
        let services: Vec<_> = self.services.iter().enumerate().map(service).collect();
        format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": {}}}, "rule": "{rule}", "services": [{}]}}"#,
            self.workers,
            services.join(",")
        )
    }
}

impl Walk<'_> {
    /// With so much that batches may run over by on every left side.
    pub(crate) fn with_overruns(&self, margin: i64) -> Self {
        Self { late: self.late + margin, ..self.clone() }
    }

    /// Of what is kept for overruns where that can be: a part in 32 of the longest batch.
    pub(crate) fn reserve(&self) -> i64 {
        up(self.longest, 32)
    }

    /// `D - P`.
    pub(crate) fn latest(&self) -> Vec<i64> {
        self.due.iter().zip(&self.system.services).map(|(due, s)| due - s.time as i64).collect()
    }

    pub(crate) fn reach(&self) -> i64 {
        self.reach
    }

    pub(crate) fn demands(&self, s: usize) -> bool {
        self.counts[s][1] > 0
    }

    /// `α`.
    fn count(&self, s: usize, length: i64) -> i64 {
        if length <= 0 { 0 } else { self.counts[s][length as usize] }
    }

    /// Every line there is.
    pub(crate) fn each(&self, within: &[i64], mut at: impl FnMut(Line)) {
        let all = 0..self.system.services.len();
        let batches = |requests: i64, s: usize| up(requests, self.system.services[s].batch);
        for y in 0..=self.reach {
            if self.turns {
                for s in all.clone().filter(|&s| self.demands(s)) {
                    let own = batches(self.count(s, y + 1), s);
                    let rounds = up(own, self.system.services[s].turn);
                    let before = |i: usize| match i == s {
                        true => own - 1,
                        false => (rounds * self.system.services[i].turn as i64)
                            .min(self.count(i, within[i] + y + within[s] + 1)),
                    };
                    let before: Vec<_> = all.clone().map(before).collect();
                    let lhs = self.late + self.longest + self.share(&before);
                    let (reference, rhs) = (Reference::Turn, y + within[s]);
                    at(Line { reference, service: s, distance: y, lhs, rhs });
                }
                continue;
            }
            let clear: Vec<_> = all.clone().map(|j| batches(self.count(j, y - self.due[j] + 1), j)).collect();
            for k in all.clone().filter(|&k| clear[k] >= 1) {
                let mut before = clear.clone();
                before[k] -= 1;
                let lhs = self.late + self.longest + self.share(&before);
                let (reference, rhs) = (Reference::Clear, y - self.due[k] + within[k]);
                at(Line { reference, service: k, distance: y, lhs, rhs });
            }
            for i in all.clone().filter(|&i| self.system.services[i].batch > 1 && y >= self.due[i]) {
                let own = self
                    .count(i, y - self.due[i] + 1)
                    .min(self.count(i, y - self.due[i] + within[i] + 1) - 1);
                if own < 1 {
                    continue;
                }
                let requests = |j: usize| {
                    let waited = within[j].min(within[i] + self.due[j] - self.due[i]).max(0);
                    if j == i { own } else { self.count(j, y - self.due[j] + waited + 1) }
                };
                let short: Vec<_> = all.clone().map(|j| batches(requests(j), j)).collect();
                for k in all.clone().filter(|&k| short[k] >= 1) {
                    let mut before = short.clone();
                    before[k] -= 1;
                    let n = self.system.workers as i64;
                    let first = self.system.services[i].time as i64;
                    let together = (first + (n - 1) * self.longest + self.work(&before)) / n;
                    let lhs = self.late + (self.longest + self.share(&before)).min(together);
                    let rhs = y - self.due[k] + within[k];
                    at(Line { reference: Reference::Short(name(i)), service: k, distance: y, lhs, rhs });
                }
            }
        }
    }

    fn work(&self, batches: &[i64]) -> i64 {
        batches.iter().zip(&self.system.services).map(|(count, s)| count * s.time as i64).sum()
    }

    fn share(&self, batches: &[i64]) -> i64 {
        let n = self.system.workers as i64;
        let (mut left, mut longest) = (batches.iter().sum::<i64>() / n, 0);
        for time in (1..=self.longest).rev() {
            let services = self.system.services.iter().zip(batches);
            let equal: i64 = services.filter(|(s, _)| s.time as i64 == time).map(|(_, count)| count).sum();
            longest += time * equal.min(left);
            left -= equal.min(left);
        }
        (self.work(batches) / n).min(longest)
    }

    /// The tightest line, and the tightest of those that hold.
    pub(crate) fn tightest(&self, within: &[i64]) -> (Line, Option<Line>) {
        let (mut tightest, mut holding): (Option<Line>, Option<Line>) = (None, None);
        self.each(within, |line| {
            if line.margin() >= 0 && holding.as_ref().is_none_or(|t| line.margin() < t.margin()) {
                holding = Some(line.clone());
            }
            if tightest.as_ref().is_none_or(|t| line.margin() < t.margin()) {
                tightest = Some(line);
            }
        });
        (tightest.expect("something is promised"), holding)
    }

    /// The least times to begin in with which all lines hold, or the first found that are too late for one.
    pub(crate) fn least(&self) -> Result<Vec<i64>, Vec<i64>> {
        self.least_with(|_| Line::margin)
    }

    /// The same, by margins that lines have where requests begin within such times.
    fn least_with<M: Fn(&Line) -> i64>(&self, margins: impl Fn(&[i64]) -> M) -> Result<Vec<i64>, Vec<i64>> {
        let (latest, mut within) = (self.latest(), vec![0; self.due.len()]);
        loop {
            let (mut raised, margin) = (within.clone(), margins(&within));
            self.each(&within, |line| {
                let k = line.service;
                raised[k] = raised[k].max(within[k] - margin(&line));
            });
            if raised == within {
                return Ok(within);
            }
            within = raised;
            if within.iter().zip(&latest).any(|(start, latest)| start > latest) {
                return Err(within);
            }
        }
    }
}

fn up(a: i64, b: u64) -> i64 {
    (a + b as i64 - 1) / b as i64
}

/// So many services of any kind.
pub(crate) fn draw(dice: &mut Dice, services: u64, arrivals: &[Vec<super::Bound>]) -> Vec<Service> {
    let stream = |dice: &mut Dice| Stream {
        bounds: dice.of(arrivals).clone(),
        constraint: (dice.within(0, 9) > 0).then(|| *dice.of(&super::CONSTRAINTS)),
    };
    let service = |dice: &mut Dice| Service {
        batch: dice.within(1, 3),
        time: dice.within(1, 4),
        slack: dice.within(1, 24),
        guard: dice.within(0, 2),
        turn: dice.within(1, 3),
        streams: (0..1 + dice.within(0, 3) / 3).map(|_| stream(dice)).collect(),
    };
    (0..services).map(|_| service(dice)).collect()
}
