//! Decisions that are remembered: what was seen, chosen and won, and what was seen next.

use virtual_time::Poisson;

/// The last so many decisions.
#[derive(Debug)]
pub(crate) struct Replay {
    inputs: usize,
    most: usize,
    /// Of each decision what was seen before and after it.
    seen: Vec<f32>,
    chosen: Vec<(u8, f32)>,
    /// Where the next one goes.
    next: usize,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) before: &'a [f32],
    pub(crate) choice: usize,
    pub(crate) reward: f32,
    pub(crate) after: &'a [f32],
}

impl Replay {
    pub(crate) fn new(inputs: usize, most: usize) -> Self {
        Self { inputs, most: most.max(1), seen: Vec::new(), chosen: Vec::new(), next: 0 }
    }

    /// The decisions of an episode; the last one has nothing after it, and is left out.
    pub(crate) fn remember(&mut self, seen: &[f32], chosen: &[u8], rewards: &[f32]) {
        let two = 2 * self.inputs;
        for (i, pair) in seen.windows(two).step_by(self.inputs).enumerate() {
            if self.chosen.len() < self.most {
                self.seen.extend(pair);
                self.chosen.push((chosen[i], rewards[i]));
            } else {
                self.seen[self.next * two..][..two].copy_from_slice(pair);
                self.chosen[self.next] = (chosen[i], rewards[i]);
            }
            self.next = (self.next + 1) % self.most;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// So many of them, any of them as likely as any other.
    pub(crate) fn sample<'a>(
        &'a self,
        count: usize,
        dice: &'a mut Poisson,
    ) -> impl ExactSizeIterator<Item = Decision<'a>> {
        (0..count).map(move |_| {
            let place = ((dice.unit() * self.chosen.len() as f64) as usize).min(self.chosen.len() - 1);
            let (before, after) =
                self.seen[place * 2 * self.inputs..][..2 * self.inputs].split_at(self.inputs);
            let (choice, reward) = self.chosen[place];
            Decision { before, choice: usize::from(choice), reward, after }
        })
    }
}
