//! What a stage's worker does beside its model: makes requests of what came before, and chooses what becomes of its results.

use weir_engine::adapter::Adapter;
use weir_engine::{ModelSpec, sha256_hex};

use super::{ModelsError, Way, adapters};
use crate::config::ServiceConfig;

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
    /// The class of devices that it is placed on, if another has the same engine.
    class: Option<String>,
    /// Make its requests, one on each way to it; none for the first stage.
    pub(crate) making: Vec<Adapter>,
    /// Each chooses what a result becomes.
    pub(crate) choosing: Vec<Adapter>,
}

impl Timed {
    /// A model on workers of a service: of a kind with a name, and on a class of devices that is not the only one of its engine, its
    /// times are its own.
    pub fn by(config: &ServiceConfig, spec: &ModelSpec) -> Self {
        let plain = Self::of(spec, None);
        match (config.named_place(), &config.class) {
            (Some(place), _) => Self { name: format!("{} by {place}", spec.name), ..plain },
            (None, Some(class)) => Self { name: format!("{} in {class}", spec.name), ..plain },
            (None, None) => plain,
        }
    }

    /// A model, perhaps at a stage.
    pub fn of(spec: &ModelSpec, staging: Option<&Staging>) -> Self {
        let Some(Staging { place, class, making, choosing }) = staging else {
            return Self { name: spec.name.clone(), identity: spec.identity() };
        };
        let digests: Vec<_> = making.iter().chain(choosing).map(Adapter::digest).collect();
        let all = format!("{} {} {}", spec.identity(), !making.is_empty(), digests.join(" "));
        let class = class.as_ref().map(|class| format!(" in {class}")).unwrap_or_default();
        Self { name: format!("{} at {place}{class}", spec.name), identity: sha256_hex(all.as_bytes()) }
    }
}

impl Staging {
    /// What the stages of a pipeline with these models do; nothing if there is but one.
    ///
    /// # Errors
    /// As [`adapters`].
    pub fn all(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Result<Vec<Option<Self>>, ModelsError> {
        let ways = adapters(pipeline, specs)?;
        let staging = |(i, making): (usize, &Vec<Way>)| {
            // Whatever the way, rows are chosen of the parent's result.
            let choosing =
                ways.iter().filter_map(|child| child.iter().find(|way| way.path.last() == Some(&i)));
            let choosing: Vec<_> = choosing.map(|way| way.adapter.clone()).collect();
            let making: Vec<_> = making.iter().map(|way| way.adapter.clone()).collect();
            let stage = &pipeline.stages[i].runs;
            let (place, class) = (format!("{}/{}", pipeline.name, stage.name), stage.class.clone());
            let has_any = !making.is_empty() || !choosing.is_empty();
            has_any.then_some(Self { place, class, making, choosing })
        };
        Ok(ways.iter().enumerate().map(staging).collect())
    }
}
