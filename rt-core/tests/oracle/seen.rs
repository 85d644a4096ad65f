//! The states that a search has seen, and how each was reached.

use std::hash::{Hash, Hasher};

/// Multiply and rotate, eight bytes at a time: states are many, and nobody chooses them to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The states seen, each with how it was reached: the state before it, and the step.
pub(super) struct Seen<S, T> {
    pub(super) states: Vec<(S, u32, T)>,
    /// Places in `states` plus one, by hash, with linear probing; 0 is empty.
    table: Vec<u32>,
}

impl<S: Copy + Default + Eq + Hash, T: Copy> Seen<S, T> {
    /// With the first state, the one in which nothing has been.
    pub(super) fn new(first: T) -> Self {
        let mut seen = Self { states: Vec::new(), table: vec![0; 1 << 12] };
        seen.insert(S::default(), 0, first);
        seen
    }

    fn slot(&self, state: &S) -> usize {
        let mut mixer = Mixer::default();
        state.hash(&mut mixer);
        let mask = self.table.len() - 1;
        let mut slot = mixer.finish() as usize & mask;
        while self.table[slot] != 0 && self.states[self.table[slot] as usize - 1].0 != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The place of `state` if it is new.
    pub(super) fn insert(&mut self, state: S, from: u32, step: T) -> Option<u32> {
        if self.states.len() * 2 >= self.table.len() {
            self.table = vec![0; self.table.len() * 4];
            for at in 0..self.states.len() {
                let slot = self.slot(&self.states[at].0);
                self.table[slot] = at as u32 + 1;
            }
        }
        let slot = self.slot(&state);
        if self.table[slot] != 0 {
            return None;
        }
        self.states.push((state, from, step));
        self.table[slot] = self.states.len() as u32;
        Some(self.states.len() as u32 - 1)
    }

    /// The steps that led to a state, and one more.
    pub(super) fn trace(&self, mut at: u32, last: T) -> Vec<T> {
        let mut steps = vec![last];
        while at != 0 {
            let (_, from, step) = self.states[at as usize];
            steps.push(step);
            at = from;
        }
        steps.reverse();
        steps
    }
}
