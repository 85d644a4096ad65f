//! How rare stalls must be, so that no more meet one request than one window has.

use super::super::problem::up;
use super::super::{MAX_STEPS, UNCONFIRMED};
use super::lines::Rule;
use super::read::Shared;

impl Shared {
    /// Behind a delay of two deadlines `D`, the longest of those that are promised something, the workers have done all that has come
    /// after `busy`, the least length with `2·D + W(busy)/n ≤ busy`; and a stall that begins by another `D` ends a stall later.
    pub(super) fn stalls_are_rare(&self, rule: &Rule) -> Result<(), String> {
        let Some((window, length)) = self.stalls else { return Ok(()) };
        let promised: Vec<usize> = (0..self.services.len()).filter(|&s| self.services[s].demands()).collect();
        let deadline = promised.iter().map(|&s| self.due(s)).max().unwrap_or(0);
        // By turns each is looked at for itself; by deadlines all at once.
        let looked_at = match rule {
            Rule::Earliest => &promised[..promised.len().min(1)],
            Rule::Turns(_) => &promised[..],
        };
        for &first in looked_at {
            let mut busy = 2 * deadline;
            for step in 0..=MAX_STEPS {
                let needed = busy + deadline + length;
                if needed > window {
                    return Err(format!("stalls must be {needed} ns apart, not {window}"));
                }
                if step == MAX_STEPS {
                    return Err(format!(
                        "{UNCONFIRMED}: behind a delay there are more than {MAX_STEPS} rises"
                    ));
                }
                let longer = 2 * deadline + up(self.work_within(rule, first, busy), self.workers);
                if longer <= busy {
                    break;
                }
                busy = longer;
            }
        }
        Ok(())
    }

    /// `W(length)`, by turns as the service `first` is looked at.
    fn work_within(&self, rule: &Rule, first: usize, length: i128) -> i128 {
        let batches = |s: usize| up(self.services[s].mandatory(length), self.services[s].batch);
        let count = |s: usize| match rule {
            Rule::Turns(turns) if s != first => {
                let all = up(batches(first), turns[first]) * turns[s];
                all.min(self.services[s].mandatory(length))
            }
            _ => batches(s),
        };
        (0..self.services.len()).map(|s| self.services[s].time * count(s)).sum()
    }
}
