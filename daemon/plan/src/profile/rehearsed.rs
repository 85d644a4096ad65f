//! A stage's worker at work on made-up requests and results, so that what it does beside its model is timed with it.

use weir_engine::Buffers;
use weir_engine::adapter::{Adapter, Rehearsal};

use crate::models::Staging;

/// So many made-up requests are gone through in turns, as other sources follow each other.
const REHEARSALS: u64 = 4;

/// Made-up results of the stages before, and the rows of the last that become a request.
type Made = (Rehearsal, Vec<u32>);

/// What a stage does, with requests and results of which everything becomes a request.
pub(super) struct Rehearsed {
    /// The ways in turns, and of each several rehearsals.
    making: Vec<(Adapter, Made)>,
    choosing: Vec<(Adapter, Vec<u8>)>,
    result: Vec<u8>,
    rows: Vec<u32>,
}

impl Rehearsed {
    pub(super) fn new(staging: &Staging) -> Self {
        let chosen = |adapter: &Adapter, seed| {
            let (rehearsal, mut rows) = (adapter.rehearse(seed), Vec::new());
            let parent = rehearsal.answers.last().map(Vec::as_slice).unwrap_or_default();
            adapter.select(parent, &mut rows);
            (rehearsal, rows)
        };
        let each = (0..REHEARSALS).flat_map(|seed| staging.making.iter().map(move |adapter| (adapter, seed)));
        let making = each.map(|(adapter, seed)| (adapter.clone(), chosen(adapter, seed))).collect();
        let choosing = staging.choosing.iter().map(|adapter| {
            let answers = adapter.rehearse(0).answers;
            (adapter.clone(), answers.last().cloned().unwrap_or_default())
        });
        Self { making, choosing: choosing.collect(), result: Vec::new(), rows: Vec::new() }
    }

    /// Whether it makes the requests.
    pub(super) fn makes(&self) -> bool {
        !self.making.is_empty()
    }

    /// Makes the requests of a batch, run number `run`.
    pub(super) fn make(&mut self, run: u64, batch: usize, buffers: &mut Buffers) {
        if self.making.is_empty() {
            return;
        }
        for index in 0..batch {
            let (adapter, (rehearsal, rows)) =
                &self.making[(run as usize).wrapping_add(index) % self.making.len()];
            let row = rows.get(index % rows.len().max(1)).copied().unwrap_or(0);
            adapter.lay(rehearsal.given(&rehearsal.all(), &rehearsal.path(row)), buffers, index);
        }
    }

    /// Takes the results of a batch, and chooses what becomes of each.
    pub(super) fn choose(&mut self, batch: usize, buffers: &Buffers) {
        for index in 0..batch {
            buffers.get(index, &mut self.result);
            for (adapter, answer) in &self.choosing {
                self.rows.clear();
                adapter.select(answer, &mut self.rows);
            }
        }
    }
}
