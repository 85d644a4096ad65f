//! Choices of an adversary, gone through one and all.

use std::cell::RefCell;
use std::rc::Rc;

/// All runs of `first` ticks, then of one more, and so on, until `budget` runs are spent; how many ticks were exhausted.
pub(crate) fn exhaust(first: u64, mut budget: u64, mut run: impl FnMut(u64, &Rc<RefCell<Choices>>)) -> u64 {
    for ticks in first.. {
        let choices = Rc::new(RefCell::new(Choices::default()));
        let mut more = true;
        while more && budget > 0 {
            run(ticks, &choices);
            budget -= 1;
            more = choices.borrow_mut().next_run();
        }
        if more {
            return ticks - 1;
        }
    }
    unreachable!("a budget is spent some time")
}

/// Goes through every sequence of choices: run by run, the last choice that can still rise does.
#[derive(Default)]
pub(crate) struct Choices {
    made: Vec<(u64, u64)>,
    at: usize,
}

impl Choices {
    /// One of `0..options`.
    pub(crate) fn choose(&mut self, options: u64) -> u64 {
        if self.at == self.made.len() {
            self.made.push((0, options));
        }
        let (choice, of) = self.made[self.at];
        assert_eq!(of, options, "a run must only depend on its choices");
        self.at += 1;
        choice
    }

    /// Sets up the next run; false after the last one.
    pub(crate) fn next_run(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.made.pop() {
            if choice + 1 < options {
                self.made.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}
