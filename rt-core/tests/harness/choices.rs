//! Choices of an adversary, gone through one and all.

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
