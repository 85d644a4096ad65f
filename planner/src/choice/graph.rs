//! Choices where stages take the results of several others, or sources at once: few are all tried, many one stage at a time.
//!
//! A stage below several others has one option for all of them, so the tables of `tables.rs`, made branch by branch, do not tell
//! what can be had together.

use rt_core::pipeline::Pipeline;
use rt_core::{MAX_SPAN, Span, StreamSpec};

use super::{Choices, Chosen, StageOption, largest};

/// So many choices are all tried; of more one stage at a time is changed, and so often at most.
const MAX_TRIED: usize = 1 << 12;

impl Choices {
    pub(super) fn is_tree(&self) -> bool {
        self.stages.iter().all(|stage| stage.parents.is_of_tree())
    }

    /// [`Choices::largest`] of what is no tree.
    pub(super) fn largest_tried(
        &self,
        most: u64,
        load: impl Fn(u64) -> Option<Vec<StreamSpec>>,
    ) -> Option<(u64, Chosen)> {
        let admits = |options: &[usize], at: u64| {
            load(at).is_some_and(|streams| self.pipeline(options).admit(&streams).is_ok())
        };
        let least = load(1);
        let (mut best, mut passes, mut soonest) = (None::<Vec<usize>>, 0, MAX_SPAN);
        let proved = self.try_choices(|options| {
            if passes < most && admits(options, passes + 1) {
                passes = largest(passes + 1, most + 1, |at| admits(options, at));
            } else if passes == 0 {
                // What answers sooner may be on the way to what passes.
                let bound = least.as_deref().and_then(|streams| self.bound(options, streams));
                let sooner = bound.is_some_and(|bound| bound < soonest);
                soonest = bound.filter(|_| sooner).unwrap_or(soonest);
                return sooner;
            } else {
                let fewer = |best: &Vec<usize>| self.workers_of(options) < self.workers_of(best);
                if self.workers.is_none() || !best.as_ref().is_some_and(fewer) || !admits(options, passes) {
                    return false;
                }
            }
            best = Some(options.to_vec());
            true
        });
        best.filter(|_| passes > 0).map(|options| (passes, self.chosen(options, proved)))
    }

    /// [`Choices::least`] of what is no tree.
    pub(super) fn least_tried(&self, streams: &[StreamSpec]) -> Option<Chosen> {
        let mut best = None::<(Span, Vec<usize>)>;
        let proved = self.try_choices(|options| {
            let bound = self.bound(options, streams);
            let sooner = bound.filter(|bound| best.as_ref().is_none_or(|(least, _)| bound < least));
            best = sooner.map(|bound| (bound, options.to_vec())).or(best.take());
            sooner.is_some()
        });
        best.map(|(_, options)| self.chosen(options, proved))
    }

    /// Within what time a source is answered, whatever the deadline.
    fn bound(&self, options: &[usize], streams: &[StreamSpec]) -> Option<Span> {
        let endless = Pipeline { deadline: MAX_SPAN, stalls: None, ..self.pipeline(options) };
        endless.admit(streams).ok().map(|admission| admission.bound)
    }

    /// Tries choices within the workers, all if they are few: then true. Of many one stage at a time is changed from the one that
    /// keeps up with most, to what is `better` than all before, until nothing is.
    fn try_choices(&self, mut better: impl FnMut(&[usize]) -> bool) -> bool {
        let counts: Vec<usize> = self.stages.iter().map(|stage| stage.options.len()).collect();
        let all = counts.iter().copied().fold(1, usize::saturating_mul);
        let most = self.workers.unwrap_or(usize::MAX);
        if all <= MAX_TRIED {
            for number in 0..all {
                let mut left = number;
                let digit = |&count: &usize| {
                    let option = left % count;
                    left /= count;
                    option
                };
                let options: Vec<usize> = counts.iter().map(digit).collect();
                if self.workers_of(&options) <= most {
                    better(&options);
                }
            }
            return true;
        }
        let fastest = |i: usize| {
            let options = &self.stages[i].options;
            let fewest = options.iter().map(|o| o.workers).min();
            let rate = |&o: &usize| {
                let StageOption { workers, batch, time } = options[o];
                (workers * batch) as f64 / time.as_nanos() as f64
            };
            let few = (0..options.len()).filter(|&o| Some(options[o].workers) == fewest);
            few.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0)
        };
        let mut here: Vec<usize> = (0..counts.len()).map(fastest).collect();
        better(&here);
        let (mut tried, mut stage, mut unchanged) = (0, 0, 0);
        while unchanged < counts.len() && tried < MAX_TRIED {
            unchanged += 1;
            for option in 0..counts[stage] {
                let mut there = here.clone();
                there[stage] = option;
                if option != here[stage] && self.workers_of(&there) <= most {
                    tried += 1;
                    if better(&there) {
                        (here, unchanged) = (there, 1);
                    }
                }
            }
            stage = (stage + 1) % counts.len();
        }
        false
    }
}
