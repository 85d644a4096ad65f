//! Sources that are begun and not yet answered as a whole, and what of each has come to which stage.

use alloc::vec::Vec;

use super::Stage;
use crate::Request;

/// Names a source of one scheduler that has been begun; an old name never means a new source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// One source.
#[derive(Clone, Copy, Debug)]
struct Source {
    generation: u32,
    /// Requests of it that wait or run, at whatever stage.
    left: u32,
    /// The joins that have taken it, one bit for each stage.
    joined: u32,
    /// As the first stage knows it; `None` if the place is free.
    request: Option<Request>,
}

/// Of one source at one stage.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    came: u32,
    waiting: u32,
    running: u32,
}

/// All of them, each in its place.
#[derive(Debug)]
pub(super) struct Sources {
    places: Vec<Source>,
    /// By place, then by stage.
    parts: Vec<Parts>,
    stages: usize,
    free: Vec<u32>,
    /// How many have been begun.
    begun: u32,
}

impl Sources {
    /// None, with room for so many. Allocates.
    pub(super) fn new(room: usize, stages: usize) -> Self {
        Self {
            places: alloc::vec![Source { generation: 0, left: 0, joined: 0, request: None }; room],
            parts: alloc::vec![Parts::default(); room * stages],
            stages,
            free: (0..room as u32).rev().collect(),
            begun: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// For how many there is room.
    pub(super) fn room(&self) -> usize {
        self.places.len()
    }

    /// Who is in a place.
    pub(super) fn at(&self, slot: usize) -> Option<SourceId> {
        let place = self.places[slot];
        place.request.map(|_| SourceId { slot: slot as u32, generation: place.generation })
    }

    /// A source begins: its only request runs at the first stage. `None` if there is no room.
    pub(super) fn begin(&mut self, request: &Request) -> Option<SourceId> {
        let slot = self.free.pop()?;
        let place = &mut self.places[slot as usize];
        // So sources are told apart, and which of two was begun first.
        self.begun = self.begun.wrapping_add(1);
        place.generation = self.begun;
        (place.left, place.joined, place.request) = (1, 0, Some(*request));
        let first = slot as usize * self.stages;
        self.parts[first..first + self.stages].fill(Parts::default());
        self.parts[first].running = 1;
        Some(SourceId { slot, generation: place.generation })
    }

    /// As the first stage knows it; `None` if it has ended.
    pub(super) fn get(&self, id: SourceId) -> Option<&Request> {
        let place = self.places.get(id.slot as usize)?;
        place.request.as_ref().filter(|_| place.generation == id.generation)
    }

    /// Whether nothing of it waits or runs.
    pub(super) fn is_over(&self, id: SourceId) -> bool {
        self.places[id.slot as usize].left == 0
    }

    /// The first join in order that is to take it, if any: all its parents are done with it. It has taken it then.
    pub(super) fn next_join(&mut self, id: SourceId, stages: &[Stage]) -> Option<usize> {
        let (mut done, joined) = (0, self.places[id.slot as usize].joined);
        for (i, stage) in stages.iter().enumerate() {
            let bit = 1 << i;
            if !stage.parents.are_all_in(done) {
                continue;
            }
            if stage.parents.is_join() && joined & bit == 0 {
                self.places[id.slot as usize].joined |= bit;
                return Some(i);
            }
            if self.at_stage(id, i) == (0, 0) {
                done |= bit;
            }
        }
        None
    }

    /// A request of it comes to a stage; its number there. It has not ended.
    pub(super) fn come(&mut self, id: SourceId, stage: usize) -> u32 {
        self.places[id.slot as usize].left += 1;
        let parts = self.parts(id, stage);
        parts.came += 1;
        parts.waiting += 1;
        parts.came - 1
    }

    /// A request of it that waited at a stage no longer does.
    pub(super) fn leave(&mut self, id: SourceId, stage: usize) {
        self.parts(id, stage).waiting -= 1;
    }

    /// A request of it that waited at a stage runs.
    pub(super) fn run(&mut self, id: SourceId, stage: usize) {
        let parts = self.parts(id, stage);
        (parts.waiting, parts.running) = (parts.waiting - 1, parts.running + 1);
    }

    /// How many of it wait and run at a stage.
    pub(super) fn at_stage(&self, id: SourceId, stage: usize) -> (u64, u64) {
        let parts = &self.parts[id.slot as usize * self.stages + stage];
        (parts.waiting.into(), parts.running.into())
    }

    /// How many of it wait at a stage.
    pub(super) fn waiting(&mut self, id: SourceId, stage: usize) -> u32 {
        self.parts(id, stage).waiting
    }

    /// A request of it that ran at a stage has ended: whether it was the last.
    pub(super) fn end(&mut self, id: SourceId, stage: usize) -> bool {
        self.parts(id, stage).running -= 1;
        let left = &mut self.places[id.slot as usize].left;
        *left -= 1;
        *left == 0
    }

    /// It ends, and its place is free.
    pub(super) fn close(&mut self, id: SourceId) -> Option<Request> {
        self.get(id)?;
        self.free.push(id.slot);
        self.places[id.slot as usize].request.take()
    }

    /// Those that have begun and not ended, as the first stage knows them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SourceId, &Request)> {
        (0..self.places.len()).filter_map(|slot| self.at(slot).zip(self.places[slot].request.as_ref()))
    }

    fn parts(&mut self, id: SourceId, stage: usize) -> &mut Parts {
        &mut self.parts[id.slot as usize * self.stages + stage]
    }
}
