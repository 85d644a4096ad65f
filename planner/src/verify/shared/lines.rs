//! Every line of Theorems E and T, at each distance at which more may have been begun.
//!
//! A line holds from one such distance to the next if it holds at the first: only its right side grows between. So each
//! curve is asked where it rises, and as far as is needed, which is the least of two. *Over*: the work that can have been
//! begun is at most a straight line, and where the workers have done even that, with twice the longest deadline to
//! spare, no line is as tight as that of a request that finds nothing before it. *Repeated*: once the least bound alone
//! speaks for each curve, counts grow by whole batches (of whole turns) in every period; if the workers do these in a
//! period, no margin is smaller a period later. For that to say something each line must have been there for a period,
//! with a margin that the average of all workers alone gives it.

use super::super::problem::{Stream, up};
use super::super::theorem::{lcm, repetition};
use super::super::{MAX_STEPS, UNCONFIRMED};
use super::read::{Service, Shared};

/// A part of a nanosecond of work, for slopes that are rounded up.
const FINE: i128 = 1 << 40;
/// No distance is looked at beyond: some two weeks, for which all products fit 128 bits.
const FARTHEST: i128 = 1 << 50;

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

/// Whether there are starts with which all lines hold; found from below, as a smaller one makes fewer requests wait.
pub(super) fn admits(shared: &Shared, rule: &Rule) -> Result<(), String> {
    let latest: Vec<i128> = (0..shared.services.len()).map(|s| shared.latest(s)).collect();
    if latest.iter().zip(&shared.services).any(|(&start, s)| start < 0 && s.demands()) {
        return Err("a batch takes longer than there is".to_owned());
    }
    let mut lines = Lines::new(shared, rule, &latest);
    let mut said = lines.all();
    if matches!((&said, rule), (Err(No::Fails(_)), Rule::Earliest)) {
        let (mut within, mut steps) = (vec![0; latest.len()], lines.steps);
        loop {
            lines = Lines { steps, ..Lines::new(shared, rule, &within) };
            said = lines.all();
            steps = lines.steps;
            let Err(No::Fails(line)) = said else { break };
            let raised = within[line.service] - line.margin();
            if raised > latest[line.service] {
                break;
            }
            within[line.service] = raised;
        }
    }
    said.map(|_| ()).map_err(|no| told(&no))
}

/// All lines of a problem, and how many of them were looked at.
pub(super) struct Lines<'a> {
    pub(super) shared: &'a Shared,
    rule: &'a Rule,
    within: Vec<i128>,
    steps: i128,
    least: i128,
}

impl<'a> Lines<'a> {
    pub(super) fn new(shared: &'a Shared, rule: &'a Rule, within: &[i128]) -> Self {
        Self { shared, rule, within: within.to_vec(), steps: 0, least: i128::MAX }
    }

    /// The smallest margin.
    pub(super) fn all(&mut self) -> Result<i128, No> {
        let promised: Vec<_> =
            (0..self.within.len()).filter(|&s| self.shared.services[s].demands()).collect();
        match self.rule {
            Rule::Earliest => {
                let first = promised.iter().map(|&s| self.shared.due(s)).min().unwrap_or(0);
                self.walk(Reference::Clear, &promised, first)?;
                for &s in promised.iter().filter(|&&s| self.shared.services[s].batch > 1) {
                    self.walk(Reference::Short(s), &promised, self.shared.due(s))?;
                }
            }
            Rule::Turns(_) => {
                for &s in &promised {
                    self.walk(Reference::Turn, &[s], 0)?;
                }
            }
        }
        Ok(self.least)
    }

    /// The line of `service` at `distance`, if there is one.
    pub(super) fn at(&self, reference: Reference, service: usize, distance: i128) -> Option<Line> {
        let turns = matches!(self.rule, Rule::Turns(_)) == (reference == Reference::Turn);
        if distance > FARTHEST {
            return None;
        }
        let requests: Vec<_> =
            (0..self.within.len()).map(|j| self.requests(reference, service, j, distance)).collect();
        let batches = self.batches(reference, service, &requests);
        let there = batches[service] > 0
            && match reference {
                Reference::Clear => true,
                Reference::Short(i) => {
                    self.shared.services[i].batch > 1 && batches[i] > 0 && distance >= self.shared.due(i)
                }
                Reference::Turn => self.shared.services[service].demands(),
            };
        (turns && there).then(|| self.line(reference, service, distance, &batches).0)
    }

    /// Looks at the lines of `services` from a distance on.
    fn walk(&mut self, reference: Reference, services: &[usize], from: i128) -> Result<(), No> {
        let all = 0..self.within.len();
        let (over, repeats) = self.horizon(reference, services);
        let (mut y, mut since) = (from, None);
        let (mut next, mut requests) = (vec![Some(from); all.len()], vec![0; all.len()]);
        loop {
            for j in all.clone() {
                if next[j] == Some(y) {
                    requests[j] = self.requests(reference, services[0], j, y);
                    next[j] = self.next(reference, services[0], j, y);
                }
            }
            let batches = self.batches(reference, services[0], &requests);
            let there = !matches!(reference, Reference::Short(i) if batches[i] == 0);
            let mut regular = there;
            for &k in services.iter().filter(|_| there) {
                self.steps += 1;
                if batches[k] == 0 {
                    regular = false;
                    continue;
                }
                let (line, average) = self.line(reference, k, y, &batches);
                self.least = self.least.min(line.margin());
                if self.least < 0 {
                    return Err(No::Fails(line));
                }
                regular &= average >= self.least;
            }
            self.steps += 1;
            if self.steps > MAX_STEPS || y > FARTHEST {
                return Err(No::TooMany);
            }
            let Some(following) = next.iter().flatten().copied().min() else { return Ok(()) };
            since = since.filter(|_| regular).or(repeats.filter(|r| regular && y >= r.0).map(|_| y));
            let repeated = since.zip(repeats).is_some_and(|(since, (_, period))| following > since + period);
            if repeated || over.is_some_and(|over| following > over) {
                return Ok(());
            }
            y = following;
        }
    }

    /// The mandatory requests of `j` that a line counts; for turns those of `service`, whose turn it is.
    fn requests(&self, reference: Reference, service: usize, j: usize, y: i128) -> i128 {
        let lengths = self.lengths(reference, service, j, y);
        let counts = lengths.map(|length| length.map(|length| self.shared.services[j].mandatory(length)));
        match counts {
            [Some(all), Some(more)] => all.min((more - 1).max(0)),
            [all, _] => all.unwrap_or(0),
        }
    }

    /// The next distance at which these may be more.
    fn next(&self, reference: Reference, service: usize, j: usize, y: i128) -> Option<i128> {
        let rise = |length: i128| self.shared.services[j].rise(length).map(|next| y + next - length);
        self.lengths(reference, service, j, y).into_iter().flatten().filter_map(rise).min()
    }

    /// In what lengths requests of `j` can have come: all of them; for a short start also with the one that was in it.
    fn lengths(&self, reference: Reference, service: usize, j: usize, y: i128) -> [Option<i128>; 2] {
        let (shared, within) = (self.shared, &self.within);
        let until = y - shared.due(j) + 1;
        match reference {
            Reference::Clear => [Some(until), None],
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

    /// The line of `k`, and its margin if all that is known of a worker is the average; for turns also if nothing is
    /// known of the arrivals of others.
    fn line(&self, reference: Reference, k: usize, y: i128, batches: &[i128]) -> (Line, i128) {
        let (n, services) = (self.shared.workers, &self.shared.services);
        let without = |j: usize| (services[j].time, batches[j] - i128::from(j == k));
        let mut before: Vec<_> = (0..services.len()).map(without).collect();
        let work: i128 = before.iter().map(|(time, count)| time * count).sum();
        before.sort_unstable_by(|a, b| b.cmp(a));
        let (mut left, mut longest) = (before.iter().map(|b| b.1).sum::<i128>() / n, 0);
        for (time, count) in before {
            longest += time * count.min(left);
            left -= count.min(left);
        }
        let busy = self.shared.late + self.shared.longest;
        let together = match reference {
            Reference::Short(i) => {
                self.shared.late + (services[i].time + (n - 1) * self.shared.longest + work) / n
            }
            _ => i128::MAX,
        };
        let average = (busy + work / n).min(together);
        let lhs = average.min(busy + longest);
        let rhs = match reference {
            Reference::Turn => y + self.within[k],
            _ => y - self.shared.due(k) + self.within[k],
        };
        let plain = match (reference, self.rule) {
            (Reference::Turn, Rule::Turns(turns)) => {
                let rounds = up(batches[k], turns[k]);
                let all = |j: usize| if j == k { batches[k] - 1 } else { rounds * turns[j] };
                busy + (0..services.len()).map(|j| services[j].time * all(j)).sum::<i128>() / n
            }
            _ => average,
        };
        (Line { reference, service: k, distance: y, lhs, rhs }, rhs - plain)
    }

    /// Beyond what distance no line is tighter than one before; from what distance on, after what period, all counts
    /// repeat, if the workers keep up with what comes in one.
    fn horizon(&self, reference: Reference, services: &[usize]) -> (Option<i128>, Option<(i128, i128)>) {
        let shared = self.shared;
        let all = || shared.services.iter().enumerate().filter(|(_, s)| s.demands());
        let due = all().map(|(j, _)| shared.due(j)).max().unwrap_or(0);
        let (mut slope, mut constant, mut repeats) = (0, 0, None);
        match (reference, self.rule) {
            (Reference::Turn, Rule::Turns(turns)) => {
                let (s, own) = (services[0], &shared.services[services[0]]);
                // Batches of its own, and for each of its turns one of every other, or what can have come of it.
                (slope, constant) = straight(own, own.time, own.batch);
                constant += own.time;
                for (j, other) in shared.services.iter().enumerate().filter(|&(j, _)| j != s) {
                    let turn = other.time * turns[j];
                    let (by_turn, most) = straight(own, turn, own.batch * turns[s]);
                    let (arriving, come) = straight(other, other.time, 1);
                    if by_turn <= arriving {
                        slope = by_turn.saturating_add(slope);
                        constant += most + 2 * turn;
                    } else {
                        slope = arriving.saturating_add(slope);
                        let ahead = self.within[j] + self.within[s] + 1;
                        constant += come + arriving.saturating_mul(ahead) / FINE + 1;
                    }
                }
                let turn = own.batch.checked_mul(turns[s]);
                if let Some((from, period)) = turn.and_then(|turn| repeated(promised(own), turn)) {
                    let rounds = grown(own, period) / own.batch / turns[s];
                    let cycle: i128 = shared.services.iter().zip(turns).map(|(o, turn)| o.time * turn).sum();
                    let work = rounds.saturating_mul(cycle);
                    repeats = (work <= shared.workers * period).then_some((from, period));
                }
            }
            _ => {
                for (_, s) in all() {
                    let (rate, most) = straight(s, s.time, s.batch);
                    slope = rate.saturating_add(slope);
                    constant += most + s.time;
                }
                let whole = all().try_fold(1, |whole, (_, s)| lcm(whole, s.batch));
                let streams = all().flat_map(|(_, s)| promised(s));
                if let Some((from, period)) = whole.and_then(|whole| repeated(streams, whole)) {
                    let work = |(_, s): (usize, &Service)| s.time.saturating_mul(grown(s, period) / s.batch);
                    let work = all().map(work).fold(0, i128::saturating_add);
                    repeats = (work <= shared.workers * period).then_some((from + due, period));
                }
            }
        }
        // (n - slope)·y ≥ n·(g + P̂ + 2 max D) + constant, with all lengths 1 longer.
        let spare = (shared.workers * FINE).saturating_sub(slope);
        let needed = shared.workers * (shared.late + shared.longest + 2 * due) + constant;
        let over = needed.checked_mul(FINE).filter(|_| spare > 0).map(|needed| up(needed + slope, spare));
        (over, repeats)
    }
}

fn promised(service: &Service) -> impl Iterator<Item = &Stream> {
    service.streams.iter().filter(|s| s.p > 0)
}

/// From where on, and in what period, the mandatory requests of each grow by a multiple of `whole`: in so many of the
/// periods in which they grow by the same number.
fn repeated<'a>(streams: impl IntoIterator<Item = &'a Stream>, whole: i128) -> Option<(i128, i128)> {
    let (from, period) = repetition(streams, 1)?;
    Some((from, period.checked_mul(whole).filter(|&period| period < 1 << 64)?))
}

/// `(r, e)` so that `time / size` for each of the mandatory requests in any length is at most `r·length/FINE + e`.
fn straight(service: &Service, time: i128, size: i128) -> (i128, i128) {
    promised(service).fold((0, 0), |(rate, most), stream| {
        let Some(slow) = stream.slowest() else { return (rate, most) };
        // In a whole step more it is always the same more, and at most all of one in a part of one.
        let work = time.checked_mul(stream.p * slow.count() * FINE);
        let whole = work.map_or(i128::MAX, |work| work / (stream.q * slow.step * size) + 1);
        let part = up(stream.p * slow.most(slow.step).0, stream.q) + 1;
        (whole.saturating_add(rate), most + up(time * part, size))
    })
}

/// By how many mandatory requests a service's curves grow in a period.
fn grown(service: &Service, period: i128) -> i128 {
    promised(service).map(|s| s.p * s.growth(period) / s.q).sum()
}
