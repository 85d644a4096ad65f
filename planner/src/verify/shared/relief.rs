//! Why a service may have no need of lines of Theorem E: its requests begin in time by what is counted from another point.
//!
//! *Singly*: no batch begun since nothing as urgent waited holds less than one of the requests that came since. *Arrival*: from a point
//! at which the request itself is there, or the start of a batch behind it, those that wait and those that come fill so many batches, if
//! each that is not full is followed by one of those that come. *After*: from a point behind the reference of a line, all batches but the
//! last are full. Which of them holds is found here anew; that it is enough is shown in `docs/guarantee.md`.

use super::super::problem::up;
use super::lines::{Line, Lines, No, Reference, Rule};
use super::read::Shared;

/// So many points are looked at, of each service.
const POINTS: usize = 1 << 10;

/// By how much the requests of a service begin sooner than they must; of those that are negative the start is too late.
#[derive(Clone, Default)]
pub(super) struct Relief {
    /// Within what time they begin.
    within: i128,
    /// By what needs no line.
    all: Option<i128>,
    /// By what needs the lines at smaller distances alone; the margins rise.
    after: Vec<(i128, i128)>,
    /// Counted in full batches from where more comes: behind what runs there, and from a start there.
    points: Vec<[Line; 2]>,
    /// Up to where nothing more comes than at one of these.
    counted: i128,
    longest: i128,
}

impl Relief {
    /// The largest margin of what does without the line at a distance.
    pub(super) fn margin(&self, distance: i128) -> Option<i128> {
        let after = self.after.iter().take_while(|(from, _)| *from <= distance).last();
        let there = counted(&self.points, distance, self.longest).filter(|_| distance <= self.counted);
        self.all.max(after.map(|(_, margin)| *margin)).max(there)
    }

    /// The least time within which they may begin that does without the line at a distance.
    pub(super) fn at(&self, distance: i128) -> Option<i128> {
        self.margin(distance).map(|margin| self.within - margin)
    }

    /// From which distance on lines are not looked at, and the margin of what stands for them, if it must stand for one at `first`.
    pub(super) fn cut(&self, first: i128) -> Option<(i128, i128)> {
        match self.all {
            Some(margin) if margin >= 0 => Some((0, margin)),
            _ => Some((first, self.margin(first)?)),
        }
    }
}

/// The margin of what is counted from a point at `z`, by the lines at points at which more comes.
fn counted(points: &[[Line; 2]], z: i128, longest: i128) -> Option<i128> {
    let [behind, _] = points.iter().rev().find(|[line, _]| line.distance <= z)?;
    let behind = behind.margin() + z - behind.distance;
    let (begin, mut worst) = (z - longest, i128::MAX);
    for [_, start] in points.iter().rev().filter(|[line, _]| line.distance <= z) {
        worst = worst.min(start.margin() + (begin - start.distance).max(0));
        if start.distance <= begin {
            return Some(behind.max(worst));
        }
    }
    Some(behind)
}

/// The same services, one by one.
pub(super) fn singles(shared: &Shared) -> Shared {
    let mut singles = shared.clone();
    singles.services.iter_mut().for_each(|service| service.batch = 1);
    singles
}

/// Within what time requests begin if each batch may hold a single one; `None` if that has no end.
pub(super) fn singly(shared: &Shared) -> Option<Vec<i128>> {
    let (singles, none) = (singles(shared), vec![0; shared.services.len()]);
    let mut lines = Lines::new(&singles, &Rule::Earliest, &none);
    lines.horizon(Reference::Clear, *lines.promised.first()?).over(0)?;
    lines.least = 0;
    lines.each(Some(&vec![i128::MAX >> 8; none.len()])).ok()?;
    Some(lines.within)
}

impl Lines<'_> {
    /// The smallest margin, of a service whose lines do not all hold with what stands in place of them.
    pub(super) fn all(&mut self) -> Result<i128, No> {
        match (self.each(None), self.rule) {
            (Err(No::Fails(_)), Rule::Earliest) if self.may_be_eased() => {}
            (said, _) => return said.map(|()| self.least),
        }
        (self.least, self.steps) = (0, 0);
        self.ease(&singly(self.shared));
        self.each(None)?;
        (self.least, self.steps) = (i128::MAX, 0);
        for (k, relief) in std::mem::take(&mut self.reliefs).into_iter().enumerate() {
            if let Some((from, margin)) = self.relieved[k].and_then(|first| relief.cut(first)) {
                (self.cuts[k], self.least) = (from, self.least.min(margin));
            }
        }
        self.each(None).map(|()| self.least)
    }

    /// Whether the workers are faster than what comes, without which nothing stands in place of a line.
    pub(super) fn may_be_eased(&self) -> bool {
        self.promised.first().is_some_and(|&first| self.horizon(Reference::Clear, first).gain())
    }

    /// From now on a line that does not hold is no matter where something stands in its place, as requests begin now; nothing has been
    /// needed yet.
    pub(super) fn ease(&mut self, singly: &Option<Vec<i128>>) {
        let singly = |k: usize| singly.as_ref().map(|starts| starts[k]);
        let relief = |k: usize| match self.shared.services[k].demands() {
            true => self.relief(k, singly(k)),
            false => Relief::default(),
        };
        self.reliefs = (0..self.within.len()).map(relief).collect();
        self.relieved = vec![None; self.within.len()];
    }

    /// The reliefs of service `k`, as requests begin now; `singly` if each batch may hold a single one.
    pub(super) fn relief(&self, k: usize, singly: Option<i128>) -> Relief {
        let within = self.within[k];
        let (shared, due) = (self.shared, self.shared.due(k));
        let longest = shared.longest;
        let mut relief =
            Relief { within, all: singly.map(|start| within - start), longest, ..Relief::default() };
        let dues = || (0..self.within.len()).map(|j| shared.due(j));
        let end = dues().max().unwrap_or(0);
        let mut alone = Vec::new();
        let mut z = shared.services.iter().map(|service| service.time).min().unwrap_or(0);
        while z <= end && alone.len() < POINTS {
            let mut until = dues().filter(|&due| due >= z).min().unwrap_or(end);
            for j in 0..self.within.len() {
                for more in [0, self.within[j]] {
                    let length = z - shared.due(j) + 1 + more;
                    let next = self.rises(j, length);
                    until = next.map_or(until, |next| until.min(z + next - length - 1));
                }
            }
            relief.counted = until;
            alone.push(self.counted_from(Reference::Arrival, k, z));
            relief.points.push(self.counted_from(Reference::After, k, z));
            if until <= due {
                relief.all = relief.all.max(counted(&alone, until, longest));
            }
            let best = counted(&relief.points, until, longest);
            if let Some(best) = best.filter(|&best| relief.after.last().is_none_or(|(_, last)| best > *last))
            {
                relief.after.push((until, best));
            }
            z = until + 1;
        }
        relief
    }

    /// What is counted from a point at `z` for a request of `k`: behind what runs there, and from a start there.
    pub(super) fn counted_from(&self, reference: Reference, k: usize, z: i128) -> [Line; 2] {
        let (shared, n) = (self.shared, self.shared.workers);
        let batches = |j: usize| {
            let (come, size) = (z - shared.due(j) + 1, shared.services[j].batch);
            let all = self.mandatory(j, come + self.within[j]);
            let alone = match reference {
                Reference::Arrival => self.mandatory(j, come).min(all - 1).max(0),
                _ => 0,
            };
            (alone + up(all - alone, size)).max(i128::from(j == k))
        };
        let batches: Vec<_> = (0..self.within.len()).map(batches).collect();
        let (work, longest) = self.before(k, &batches);
        let share = longest.min(work / n);
        let behind = shared.late + shared.longest + share;
        let start = shared.late + (work + (n - 1) * shared.longest) / n;
        let rhs = z - shared.due(k) + self.within[k];
        [behind, start].map(|lhs| Line { reference, service: k, distance: z, lhs, rhs })
    }
}
