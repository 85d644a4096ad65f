//! Every line of Theorems E and T, at each distance at which more may have been begun.
//!
//! A line holds from one such distance to the next if it holds at the first: only its right side grows between. So each
//! curve is asked where it rises, and as far as is needed.

use super::super::problem::up;
use super::super::{MAX_STEPS, UNCONFIRMED};
use super::curves::Curve;
use super::read::Shared;
use super::relief::{Relief, singles};

/// No distance is looked at beyond: some two weeks, for which all products fit 128 bits.
pub(super) const FARTHEST: i128 = 1 << 50;

/// Which service goes next.
pub(super) enum Rule {
    /// That with the earliest deadline.
    Earliest,
    /// They take turns of so many batches.
    Turns(Vec<i128>),
}

/// What a line counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Clear,
    Short(usize),
    Turn,
    Singly,
    Arrival,
    After,
}

/// `lhs ≤ rhs`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) reference: Reference,
    pub(super) service: usize,
    pub(super) distance: i128,
    pub(super) lhs: i128,
    pub(super) rhs: i128,
}

impl Line {
    pub(super) fn margin(&self) -> i128 {
        self.rhs - self.lhs
    }
}

/// Why not all lines hold.
pub(super) enum No {
    /// This one does not.
    Fails(Line),
    /// There are too many of them.
    TooMany,
}

pub(super) fn told(no: &No) -> String {
    match no {
        No::Fails(line) => format!(
            "a start {} ns after the reference, there are {} ns ({:?}, service {}, {} ns)",
            line.lhs, line.rhs, line.reference, line.service, line.distance
        ),
        No::TooMany => format!("{UNCONFIRMED}: more than {MAX_STEPS} lines, or farther than two weeks"),
    }
}

/// All lines of a problem, and how many of them were looked at.
pub(super) struct Lines<'a> {
    pub(super) shared: &'a Shared,
    pub(super) rule: &'a Rule,
    curves: Vec<Curve<'a>>,
    /// Who is promised something.
    pub(super) promised: Vec<usize>,
    pub(super) within: Vec<i128>,
    /// Whether all batches that count take the same time.
    pub(super) uniform: bool,
    pub(super) steps: i128,
    /// So many are.
    pub(super) most: i128,
    /// No smaller margin is known.
    pub(super) least: i128,
    /// Of each service what it has in place of lines, where that is asked for, and the least distance at which it has been needed.
    pub(super) reliefs: Vec<Relief>,
    pub(super) relieved: Vec<Option<i128>>,
    /// From which distance on each service needs no lines.
    pub(super) cuts: Vec<i128>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(shared: &'a Shared, rule: &'a Rule, within: &[i128]) -> Self {
        let promised: Vec<_> = (0..within.len()).filter(|&s| shared.services[s].demands()).collect();
        let curves = shared.services.iter().map(Curve::new).collect();
        let time = |&s: &usize| shared.services[s].time;
        let uniform = promised.windows(2).all(|two| time(&two[0]) == time(&two[1]));
        let within = within.to_vec();
        let cuts = vec![i128::MAX; within.len()];
        Self {
            shared,
            rule,
            curves,
            promised,
            within,
            uniform,
            steps: 0,
            most: MAX_STEPS,
            least: i128::MAX,
            reliefs: Vec::new(),
            relieved: Vec::new(),
            cuts,
        }
    }

    /// Looks at all lines. What a failing one asks for is granted, as far as is in time by `latest`: later lines are about
    /// such starts then, and the earlier ones hold if nothing had to be granted.
    pub(super) fn each(&mut self, latest: Option<&[i128]>) -> Result<(), No> {
        let promised = self.promised.clone();
        match self.rule {
            Rule::Earliest => {
                let first = promised.iter().map(|&s| self.shared.due(s)).min().unwrap_or(0);
                self.walk(Reference::Clear, &promised, first, latest)?;
                for &s in promised.iter().filter(|&&s| self.shared.services[s].batch > 1) {
                    self.walk(Reference::Short(s), &promised, self.shared.due(s), latest)?;
                }
            }
            Rule::Turns(_) => {
                for &s in &promised {
                    self.walk(Reference::Turn, &[s], 0, latest)?;
                }
            }
        }
        Ok(())
    }

    /// The line of `service` at `distance`, if there is one.
    pub(super) fn at(&self, reference: Reference, service: usize, distance: i128) -> Option<Line> {
        if reference == Reference::Singly {
            let singles = singles(self.shared);
            let line =
                Lines::new(&singles, self.rule, &self.within).at(Reference::Clear, service, distance)?;
            return Some(Line { reference, ..line });
        }
        let turns = matches!(self.rule, Rule::Turns(_)) == (reference == Reference::Turn);
        if distance > FARTHEST {
            return None;
        }
        let requests: Vec<_> = (0..self.within.len())
            .map(|j| self.requests(j, self.lengths(reference, service, j, 0), distance).0)
            .collect();
        let batches = self.batches(reference, service, &requests);
        let there = batches[service] > 0
            && match reference {
                Reference::Clear => true,
                Reference::Short(i) => {
                    self.shared.services[i].batch > 1 && batches[i] > 0 && distance >= self.shared.due(i)
                }
                Reference::Turn => self.shared.services[service].demands(),
                Reference::Singly | Reference::Arrival | Reference::After => false,
            };
        (turns && there).then(|| self.line(reference, service, distance, &batches).0)
    }

    /// Looks at the lines of `services` from a distance on.
    fn walk(
        &mut self,
        reference: Reference,
        services: &[usize],
        from: i128,
        latest: Option<&[i128]>,
    ) -> Result<(), No> {
        let all = 0..self.within.len();
        let horizon = self.horizon(reference, services[0]);
        // The requests are those that wait for starts as they are now.
        let lengths: Vec<_> = all.clone().map(|j| self.lengths(reference, services[0], j, 0)).collect();
        let (mut asked, mut over) = (self.asked(reference, services), None);
        let (mut y, mut since, mut known) = (from, None, i128::MAX);
        if self.least < known {
            (over, known) = (horizon.over(self.late(reference, asked, self.least)), self.least);
        }
        if over.is_some_and(|over| over <= from) {
            return Ok(());
        }
        let (mut next, mut requests) = (vec![Some(from); all.len()], vec![0; all.len()]);
        loop {
            for j in all.clone() {
                if next[j] == Some(y) {
                    (requests[j], next[j]) = self.requests(j, lengths[j], y);
                }
            }
            let batches = self.batches(reference, services[0], &requests);
            let there = !matches!(reference, Reference::Short(i) if batches[i] == 0);
            let mut regular = there && services.iter().all(|&k| batches[k] > 0);
            self.steps += 1;
            if there && !self.holds(reference, y, asked, &batches) {
                for &k in services {
                    self.steps += 1;
                    if batches[k] == 0 || y >= self.cuts[k] {
                        continue;
                    }
                    let (line, mut governs) = self.line(reference, k, y, &batches);
                    if reference == Reference::Turn {
                        let alone = horizon.of_the_slower(self.rule, k, &batches, &requests);
                        governs = self.line(reference, k, y, &alone).1;
                    }
                    let relief = self.reliefs.get(k).and_then(|relief| relief.at(y));
                    let lacks = relief.map_or(i128::MAX, |start| start - self.within[k]).min(-line.margin());
                    if line.margin() < 0 && lacks <= 0 {
                        self.relieved[k] = Some(self.relieved[k].map_or(y, |first| first.min(y)));
                        continue;
                    }
                    match latest {
                        Some(latest) if line.margin() < 0 && self.within[k] + lacks <= latest[k] => {
                            self.within[k] += lacks;
                            (asked, known) = (self.asked(reference, services), i128::MAX);
                            regular = false;
                            continue;
                        }
                        _ => self.least = self.least.min(line.margin()),
                    }
                    if self.least < 0 {
                        return Err(No::Fails(line));
                    }
                    regular &= governs >= self.least;
                }
            }
            if self.least < known {
                (over, known) = (horizon.over(self.late(reference, asked, self.least)), self.least);
            }
            if self.steps > self.most || y > FARTHEST {
                return Err(No::TooMany);
            }
            let Some(following) = next.iter().flatten().copied().min() else { return Ok(()) };
            since = since.filter(|_| regular).or(horizon.repeats.filter(|r| regular && y >= r.0).map(|_| y));
            let repeated =
                since.zip(horizon.repeats).is_some_and(|(since, (_, period))| following > since + period);
            if repeated || over.is_some_and(|over| following >= over) {
                return Ok(());
            }
            y = following;
        }
    }

    /// What the lines of `services` leave for work at distance 0, on all workers, of whichever they leave least.
    pub(super) fn asked(&self, reference: Reference, services: &[usize]) -> i128 {
        let left = |&k: &usize| {
            let due = if reference == Reference::Turn { 0 } else { self.shared.due(k) };
            self.shared.workers * (self.within[k] - due) + self.shared.services[k].time
        };
        services.iter().map(left).min().unwrap_or(0)
    }

    /// How much work the workers may lack, for every margin to be at least `margin`: `n·y` less this is for batches.
    pub(super) fn late(&self, reference: Reference, asked: i128, margin: i128) -> i128 {
        let (n, longest) = (self.shared.workers, self.shared.longest);
        let running = match reference {
            Reference::Short(i) => self.shared.services[i].time + (n - 1) * longest,
            _ => n * longest,
        };
        n * (self.shared.late + margin) + running - asked
    }

    /// Whether by the average no line is tighter than any so far; that asks no more than a few products.
    fn holds(&self, reference: Reference, y: i128, asked: i128, batches: &[i128]) -> bool {
        if self.least == i128::MAX || reference == Reference::Turn {
            return false;
        }
        let services = self.shared.services.iter().zip(batches);
        let work: i128 = services.map(|(s, count)| s.time * count).sum();
        work <= self.shared.workers * y - self.late(reference, asked, self.least)
    }

    /// The mandatory requests of `j` in lengths that are so long at distance 0, and the next distance where they may be more.
    fn requests(&self, j: usize, lengths: [Option<i128>; 2], y: i128) -> (i128, Option<i128>) {
        let [all, more] = lengths.map(|length| length.map(|at_0| self.curves[j].at(at_0 + y)));
        let next = |length: Option<i128>, at: Option<(i128, Option<i128>)>| Some(at?.1? - length?);
        let next = [next(lengths[0], all), next(lengths[1], more)].into_iter().flatten().min();
        match (all, more) {
            (Some((all, _)), Some((more, _))) => (all.min((more - 1).max(0)), next),
            (all, _) => (all.map_or(0, |all| all.0), next),
        }
    }

    /// In what lengths requests of `j` can have come: all of them; for a short start also with the one that was in it.
    pub(super) fn lengths(
        &self,
        reference: Reference,
        service: usize,
        j: usize,
        y: i128,
    ) -> [Option<i128>; 2] {
        let (shared, within) = (self.shared, &self.within);
        let until = y - shared.due(j) + 1;
        match reference {
            Reference::Clear | Reference::Singly | Reference::Arrival | Reference::After => {
                [Some(until), None]
            }
            Reference::Short(i) if i == j => [Some(until), Some(until + within[j])],
            Reference::Short(i) => {
                let waited = within[j].min(within[i] + shared.due(j) - shared.due(i)).max(0);
                [Some(until + waited), None]
            }
            Reference::Turn if service == j => [Some(y + 1), None],
            Reference::Turn => [Some(within[j] + y + within[service] + 1), None],
        }
    }

    /// The batches of each that these make.
    fn batches(&self, reference: Reference, service: usize, requests: &[i128]) -> Vec<i128> {
        let services = &self.shared.services;
        match (reference, self.rule) {
            (Reference::Turn, Rule::Turns(turns)) => {
                let own = up(requests[service], services[service].batch);
                let rounds = up(own, turns[service]);
                let of = |j: usize| if j == service { own } else { requests[j].min(rounds * turns[j]) };
                (0..services.len()).map(of).collect()
            }
            _ => services.iter().zip(requests).map(|(s, &n)| up(n, s.batch)).collect(),
        }
    }

    /// The most mandatory requests of `j` in a length.
    pub(super) fn mandatory(&self, j: usize, length: i128) -> i128 {
        self.curves[j].at(length).0
    }

    /// The next length in which there may be more.
    pub(super) fn rises(&self, j: usize, length: i128) -> Option<i128> {
        self.curves[j].at(length).1
    }

    /// The work that is begun before `k`, and the longest batches of it that are a worker's share by their number.
    pub(super) fn before(&self, k: usize, batches: &[i128]) -> (i128, i128) {
        let services = &self.shared.services;
        let without = |j: usize| (services[j].time, batches[j] - i128::from(j == k));
        let mut before: Vec<_> = (0..services.len()).map(without).collect();
        let work: i128 = before.iter().map(|(time, count)| time * count).sum();
        before.sort_unstable_by(|a, b| b.cmp(a));
        let (mut left, mut longest) = (before.iter().map(|b| b.1).sum::<i128>() / self.shared.workers, 0);
        for (time, count) in before {
            longest += time * count.min(left);
            left -= count.min(left);
        }
        (work, longest)
    }

    /// The line of `k`, and its margin if all that is known of a worker is what governs in the long run.
    fn line(&self, reference: Reference, k: usize, y: i128, batches: &[i128]) -> (Line, i128) {
        let (n, (work, longest)) = (self.shared.workers, self.before(k, batches));
        let busy = self.shared.late + self.shared.longest;
        let together = match reference {
            Reference::Short(i) => {
                self.shared.late + (self.shared.services[i].time + (n - 1) * self.shared.longest + work) / n
            }
            _ => i128::MAX,
        };
        let average = (busy + work / n).min(together);
        let lhs = average.min(busy + longest);
        let rhs = match reference {
            Reference::Turn => y + self.within[k],
            _ => y - self.shared.due(k) + self.within[k],
        };
        let governs = if self.uniform { lhs } else { average };
        (Line { reference, service: k, distance: y, lhs, rhs }, rhs - governs)
    }
}
