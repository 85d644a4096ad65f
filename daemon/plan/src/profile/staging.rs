//! What a stage's worker does beside its model: makes requests of what came before, and chooses what becomes of its results.

use weir_engine::adapter::{Adapter, Rehearsal};
use weir_engine::{Buffers, ModelSpec, sha256_hex};

use crate::config::ServiceConfig;
use crate::models::{ModelsError, adapters};

/// So many made-up requests are gone through in turns, as other sources follow each other.
const REHEARSALS: u64 = 4;

/// What a profile has an entry of, on an engine: a model, or one with what a stage does beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    pub name: String,
    /// The hash of all that its times depend on.
    pub identity: String,
}

/// What a stage does beside its model.
#[derive(Clone, Debug)]
pub struct Staging {
    /// The pipeline and the stage.
    pub place: String,
    /// Makes its requests; `None` for the first stage.
    making: Option<Adapter>,
    /// Each chooses what a result becomes.
    choosing: Vec<Adapter>,
}

impl Timed {
    /// A model, perhaps at a stage.
    pub fn of(spec: &ModelSpec, staging: Option<&Staging>) -> Self {
        let Some(Staging { place, making, choosing }) = staging else {
            return Self { name: spec.name.clone(), identity: spec.identity() };
        };
        let digests: Vec<_> = making.iter().chain(choosing).map(Adapter::digest).collect();
        let all = format!("{} {} {}", spec.identity(), making.is_some(), digests.join(" "));
        Self { name: format!("{} at {place}", spec.name), identity: sha256_hex(all.as_bytes()) }
    }
}

impl Staging {
    /// What the stages of a pipeline with these models do; nothing if there is but one.
    ///
    /// # Errors
    /// As [`adapters`].
    pub fn all(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Result<Vec<Option<Self>>, ModelsError> {
        let adapters = adapters(pipeline, specs)?;
        let staging = |(i, making): (usize, &Option<Adapter>)| {
            let children = pipeline.stages.iter().zip(&adapters).filter(|(child, _)| child.after == Some(i));
            let choosing: Vec<_> = children.filter_map(|(_, adapter)| adapter.clone()).collect();
            let place = format!("{}/{}", pipeline.name, pipeline.stages[i].runs.name);
            let has_any = making.is_some() || !choosing.is_empty();
            has_any.then(|| Self { place, making: making.clone(), choosing })
        };
        Ok(adapters.iter().enumerate().map(staging).collect())
    }
}

/// Made-up results of the stages before, and the rows of the last that become a request.
type Made = (Rehearsal, Vec<u32>);

/// The same with made-up requests and results of which everything becomes a request.
pub(super) struct Rehearsed {
    making: Option<(Adapter, Vec<Made>)>,
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
        let making = staging
            .making
            .as_ref()
            .map(|adapter| (adapter.clone(), (0..REHEARSALS).map(|seed| chosen(adapter, seed)).collect()));
        let choosing = staging.choosing.iter().map(|adapter| {
            let answers = adapter.rehearse(0).answers;
            (adapter.clone(), answers.last().cloned().unwrap_or_default())
        });
        Self { making, choosing: choosing.collect(), result: Vec::new(), rows: Vec::new() }
    }

    /// Whether it makes the requests.
    pub(super) fn makes(&self) -> bool {
        self.making.is_some()
    }

    /// Makes the requests of a batch, run number `run`.
    pub(super) fn make(&mut self, run: u64, batch: usize, buffers: &mut Buffers) {
        let Some((adapter, rehearsals)) = &self.making else { return };
        for index in 0..batch {
            let (rehearsal, rows) = &rehearsals[(run as usize).wrapping_add(index) % rehearsals.len()];
            let row = rows.get(index % rows.len().max(1)).copied().unwrap_or(0);
            adapter.lay(&rehearsal.source, &rehearsal.path(row), buffers, index);
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
