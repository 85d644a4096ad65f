//! What stands for lines of Theorem E, as `docs/guarantee.md` writes it, at every distance.

use super::{Line, Reference, Shared, Walk, up};

/// Of each service the line that asks most if every batch may hold a single request; none where that may have no end.
pub(crate) struct Singly(Vec<Option<Line>>);

/// What may stand for lines of a service.
struct Stands {
    all: Option<Line>,
    /// For the line at each distance.
    after: Vec<Option<Line>>,
}

impl Stands {
    fn at(&self, y: i64) -> Option<&Line> {
        // Beyond what is counted it is as good as there.
        let after = self.after.get(y as usize).or(self.after.last()).and_then(Option::as_ref);
        self.all.iter().chain(after).max_by_key(|line| line.margin())
    }
}

impl Walk<'_> {
    /// Nothing stands for lines unless the workers are faster than what comes.
    pub(crate) fn singly(&self) -> Option<Singly> {
        let faster = |system: &Shared| {
            let (work, done) = system.load();
            work < done
        };
        let mut singles = self.system.clone();
        singles.services.iter_mut().for_each(|s| s.batch = 1);
        let mut most: Vec<Option<Line>> = vec![None; self.due.len()];
        if faster(&singles) {
            Walk { late: self.late, ..singles.walk(false, self.reach) }.each(
                &vec![0; self.due.len()],
                |line| {
                    let most = &mut most[line.service];
                    if most.as_ref().is_none_or(|most| line.margin() < most.margin()) {
                        *most = Some(Line { reference: Reference::Singly, ..line });
                    }
                },
            );
        }
        faster(self.system).then_some(Singly(most))
    }

    fn stands(&self, k: usize, within: &[i64], singly: &Singly) -> Stands {
        let end = *self.due.iter().max().expect("services");
        let singly = singly.0[k].clone().map(|line| Line { rhs: line.rhs + within[k], ..line });
        let alone = (0..=self.due[k]).map(|z| self.enough(Reference::Arrival, k, z, within));
        let mut best: Option<Line> = None;
        let after = (0..=end).map(|z| {
            let here = self.enough(Reference::After, k, z, within);
            best = best.clone().into_iter().chain([here]).max_by_key(Line::margin);
            best.clone()
        });
        let after = after.collect();
        Stands { all: singly.into_iter().chain(alone).max_by_key(Line::margin), after }
    }

    /// Counted from `z`, behind what runs there or from the next start.
    fn enough(&self, reference: Reference, k: usize, z: i64, within: &[i64]) -> Line {
        let [behind, _] = self.from(&reference, k, z, within);
        let starts = (z - self.longest..=z).map(|x| self.from(&reference, k, x, within)[1].clone());
        let start = starts.min_by_key(Line::margin).expect("some distance");
        if start.margin() > behind.margin() { start } else { behind }
    }

    fn from(&self, reference: &Reference, k: usize, z: i64, within: &[i64]) -> [Line; 2] {
        let batches = |j: usize| {
            let (come, size) = (z - self.due[j] + 1, self.system.services[j].batch);
            let (come, all) = (self.count(j, come), self.count(j, come + within[j]));
            let alone = if *reference == Reference::Arrival { come.min((all - 1).max(0)) } else { 0 };
            alone + up(all - alone, size)
        };
        let mut before: Vec<_> = (0..within.len()).map(batches).collect();
        before[k] = (before[k] - 1).max(0);
        let n = self.system.workers as i64;
        let share = self.share(&before);
        let start = if n == 1 { share } else { (self.work(&before) + (n - 1) * self.longest) / n };
        [self.longest + share, start].map(|lhs| Line {
            reference: reference.clone(),
            service: k,
            distance: z,
            lhs: self.late + lhs,
            rhs: z - self.due[k] + within[k],
        })
    }

    fn all_stand(&self, within: &[i64], singly: &Singly) -> Vec<Stands> {
        (0..within.len()).map(|k| self.stands(k, within, singly)).collect()
    }

    /// The tightest line, of each service those before the first that does not hold and what stands for it and all further; none if
    /// nothing does.
    pub(crate) fn tightest_eased(&self, within: &[i64], singly: &Singly) -> Option<Line> {
        let stands = self.all_stand(within, singly);
        let mut first: Vec<Option<i64>> = vec![None; within.len()];
        let mut fails = false;
        self.each(within, |line| {
            if line.margin() < 0 {
                let stands = stands[line.service].at(line.distance);
                fails |= stands.is_none_or(|stands| stands.margin() < 0);
                let first = &mut first[line.service];
                *first = Some(first.map_or(line.distance, |first| first.min(line.distance)));
            }
        });
        let for_all = |k: usize| stands[k].all.as_ref().filter(|line| line.margin() >= 0);
        let mut tightest: Option<Line> = None;
        let mut tighten = |line: &Line| {
            if tightest.as_ref().is_none_or(|t| line.margin() < t.margin()) {
                tightest = Some(line.clone());
            }
        };
        for (k, first) in first.iter().enumerate() {
            first.iter().filter_map(|&first| for_all(k).or(stands[k].at(first))).for_each(&mut tighten);
        }
        self.each(within, |line| {
            let k = line.service;
            if first[k].is_none_or(|first| line.distance < first && for_all(k).is_none()) {
                tighten(&line);
            }
        });
        tightest.filter(|_| !fails)
    }

    /// The least times to begin in with which all lines hold or something stands for them, or the first found that are too late.
    pub(crate) fn least_eased(&self, singly: &Singly) -> Result<Vec<i64>, Vec<i64>> {
        self.least_with(|within| {
            let stands = self.all_stand(within, singly);
            move |line: &Line| {
                let stands = stands[line.service].at(line.distance);
                stands.map_or(line.margin(), |stands| stands.margin().max(line.margin()))
            }
        })
    }
}
