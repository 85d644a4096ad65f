//! The least times within which requests begin by Theorem E, from below: by lines alone, or by what stands for some of them.

use alloc::vec::Vec;

use super::super::margin::Keys;
use super::super::relief::{Eased, Reliefs};
use super::super::sweep::{Look, Shift};
use super::super::{Reference, SharedBinding, SharingError};
use super::Test;
use crate::time::Span;

/// So often these are raised.
const MAX_RAISES: usize = 32;

/// Of each service within what time its requests begin, and where first something stands for a line.
type Least = (Vec<Span>, Vec<Option<u64>>);

impl<'a> Test<'a> {
    /// About the least `X` with which all lines would hold if counts were straight lines: near capacity it is quickly seen
    /// that they do hold, as fewer wait at once. `None` if it is beyond `latest`.
    pub(super) fn least_of_straight(&self, latest: &[Span]) -> Option<Vec<Span>> {
        let mut within = alloc::vec![Span::ZERO; latest.len()];
        for _ in 0..MAX_RAISES {
            let mut raised = false;
            for reference in self.references() {
                let shifts = self.shifts(reference, &within);
                let lines = self.lines(reference, &shifts);
                if !lines.work.is_caught_up_with() {
                    return None;
                }
                for k in (0..latest.len()).filter(|&k| !self.demands[k].is_empty()) {
                    // The work falls back behind the workers from where the line begins on.
                    let y = i128::from(lines.from).max(shifts[k].all());
                    let time = i128::from(self.sharing.services[k].time.as_nanos());
                    let busy = lines.work.at(y as f64) + (lines.running - time) as f64;
                    let starts = busy / self.sharing.workers as f64 + self.sharing.guard.as_nanos() as f64;
                    let needed = (starts + (self.due(k) - y) as f64) as u64 + 1;
                    if needed > latest[k].as_nanos() {
                        return None;
                    }
                    if needed > within[k].as_nanos() {
                        // With a little more it comes to an end.
                        within[k] = Span::from_nanos(needed + (latest[k].as_nanos() - needed) / 16);
                        raised = true;
                    }
                }
            }
            if !raised {
                return Some(within);
            }
        }
        None
    }

    /// The least `X` with which all lines hold, or those for which none of the `reliefs` stands: of each service the least distance at which
    /// one does.
    pub(super) fn least(
        &mut self,
        latest: &[Span],
        reliefs: Option<&mut Reliefs<'_>>,
    ) -> Result<Least, SharingError> {
        self.least_with(latest, reliefs, |_| {})
    }

    /// The same, told of every line that asks for more than was known.
    fn least_with(
        &mut self,
        latest: &[Span],
        mut reliefs: Option<&mut Reliefs<'_>>,
        mut raises: impl FnMut(SharedBinding),
    ) -> Result<Least, SharingError> {
        let mut within = alloc::vec![Span::ZERO; latest.len()];
        let references: Vec<_> = self.references().collect();
        // What was counted of each reference when it was looked at last.
        let mut counted: Vec<Vec<Shift>> = alloc::vec![Vec::new(); references.len()];
        loop {
            let (mut raised, mut relieved) = (false, alloc::vec![None::<u64>; within.len()]);
            // What stands for lines of each service as things are, once one of them fails.
            let before = within.clone();
            let mut easing: Vec<Option<Eased>> = (0..within.len()).map(|_| None).collect();
            if let Some(reliefs) = &mut reliefs {
                let looked = reliefs.count(&within);
                self.points = self.points.checked_sub(looked).ok_or(SharingError::Horizon)?;
            }
            for (&reference, counted) in references.iter().zip(&mut counted) {
                let shifts = self.shifts(reference, &within);
                // Nothing is there that was not there then, and what was asked for then was given.
                if *counted == shifts && reliefs.is_none() {
                    continue;
                }
                let lines = self.lines(reference, &shifts);
                let mut keys = self.keys(&within);
                let (mut over, mut failed, uniform) = (lines.hold_from(0, &keys), None, self.uniform);
                let (sharing, demands) = (self.sharing, self.demands);
                let ended = self.look(&lines, &shifts, over, |front| {
                    if front.is_no_tighter_than(0, &keys) {
                        return Look { regular: true, over };
                    }
                    let (mut regular, mut late) = (true, false);
                    for line in front.lines() {
                        // Their number says no more than the average of all.
                        if line.binding(&within, line.average()).margin() >= 0 {
                            continue;
                        }
                        let exact = line.binding(&within, line.latest());
                        if exact.margin() >= 0 {
                            regular &= uniform;
                            continue;
                        }
                        let k = line.service;
                        let mut needed = i128::from(within[k].as_nanos()) - exact.margin();
                        if let Some(reliefs) = &mut reliefs {
                            let eased = easing[k].get_or_insert_with(|| reliefs.of(k, &before));
                            let distance = exact.distance.as_nanos();
                            if let Some(stands) = eased.at(distance) {
                                needed = needed.min(i128::from(before[k].as_nanos()) - stands.margin());
                            }
                            if needed <= i128::from(within[k].as_nanos()) {
                                relieved[k] = Some(relieved[k].map_or(distance, |first| first.min(distance)));
                                continue;
                            }
                        }
                        (regular, late) = (false, true);
                        match u64::try_from(needed).map(Span::from_nanos) {
                            Ok(needed) if needed <= latest[k] => {
                                raises(exact);
                                within[k] = needed;
                            }
                            _ => failed = Some(line.binding(latest, line.latest())),
                        }
                    }
                    if failed.is_some() {
                        return Look::ENOUGH;
                    }
                    if late {
                        raised = true;
                        keys = Keys::of(sharing, demands, &within);
                        over = lines.hold_from(0, &keys);
                    }
                    Look { regular, over }
                });
                if let Some(binding) = failed {
                    return Err(SharingError::Late(binding));
                }
                if !ended {
                    return Err(SharingError::Horizon);
                }
                *counted = shifts;
            }
            if !raised {
                return Ok((within, relieved));
            }
        }
    }

    /// Whether the workers are faster than what comes: without that nothing stands for a line.
    pub(super) fn is_caught_up_with(&self) -> bool {
        let shifts = self.shifts(Reference::Clear, &alloc::vec![Span::ZERO; self.demands.len()]);
        self.lines(Reference::Clear, &shifts).work.is_caught_up_with()
    }

    /// What may stand for lines.
    pub(super) fn reliefs(&self) -> Reliefs<'a> {
        let mut singles = self.sharing.clone();
        singles.services.iter_mut().for_each(|service| service.batch = 1);
        let mut most = alloc::vec![None; self.demands.len()];
        // Else what waits may never be worked off so.
        if singles.load(self.demands) < self.sharing.workers as f64 * (1.0 - 1e-6) {
            let mut test = Test::new(&singles, self.demands, self.points);
            let ever = alloc::vec![Span::from_nanos(u64::MAX); self.demands.len()];
            let raised = |line: SharedBinding| {
                most[line.service] = Some(SharedBinding { reference: Reference::Singly, ..line });
            };
            if test.least_with(&ever, None, raised).is_err() {
                most.fill(None);
            }
        }
        Reliefs::new(self.sharing, self.demands, most)
    }
}
