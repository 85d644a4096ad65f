//! The workers of a service as written: so many, or an entry for each kind.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};

use super::{Gpu, Remote, Service, Simulated};
use weir_engine::{EngineKind, Isolation};

/// How many workers, or of which kinds.
#[derive(Debug)]
pub(in crate::config) enum Staff {
    Count(u64),
    Kinds(Vec<Kind>),
}

impl Staff {
    /// As an error shows it.
    pub(in crate::config) fn shown(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Kinds(kinds) => format!("{} kind(s)", kinds.len()),
        }
    }
}

/// Workers that are alike. What is absent is as the service says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct Kind {
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) count: Option<u64>,
    pub(in crate::config) engine: Option<EngineKind>,
    pub(in crate::config) isolation: Option<Isolation>,
    pub(in crate::config) cores: Option<Vec<u64>>,
    pub(in crate::config) gpu: Option<Gpu>,
    pub(in crate::config) remote: Option<Remote>,
    pub(in crate::config) simulated: Option<Simulated>,
    pub(in crate::config) handover: Option<String>,
    pub(in crate::config) max_batch: Option<u64>,
    pub(in crate::config) batch: Option<u64>,
}

impl Service {
    /// A service of such workers alone, as far as what runs its batches is concerned.
    pub(in crate::config) fn of_kind(&self, kind: Kind) -> Self {
        let engine = kind.engine.unwrap_or(self.engine);
        let simulated = kind.simulated.or_else(|| self.simulated.clone());
        Self {
            name: self.name.clone(),
            engine,
            isolation: kind.isolation,
            gpu: kind.gpu,
            remote: kind.remote,
            model: self.model.clone(),
            simulated,
            handover: kind.handover.unwrap_or_else(|| self.handover.clone()),
            workers: kind.count.map(Staff::Count),
            cores: kind.cores,
            max_batch: kind.max_batch.or(self.max_batch),
            batch: kind.batch,
            probability: self.probability,
            ..Self::default()
        }
    }
}

impl<'de> Deserialize<'de> for Staff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfWorkers)
    }
}

/// A number of workers where there can be but one kind of them.
pub(super) fn alike<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Staff::deserialize(deserializer)? {
        Staff::Count(count) => Ok(Some(count)),
        Staff::Kinds(_) => Err(D::Error::custom(
            "workers of several kinds are not possible where services share workers, nor at a stage of a pipeline: say how many, as a \
             number",
        )),
    }
}

struct OfWorkers;

impl<'de> Visitor<'de> for OfWorkers {
    type Value = Staff;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("how many workers, or a table for each kind of them")
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<Staff, E> {
        Ok(Staff::Count(count))
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<Staff, E> {
        let count = u64::try_from(count).map_err(|_| E::invalid_value(Unexpected::Signed(count), &self))?;
        Ok(Staff::Count(count))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, kinds: A) -> Result<Staff, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(kinds)).map(Staff::Kinds)
    }
}
