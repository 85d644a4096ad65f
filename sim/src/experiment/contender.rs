//! Who is compared: policies that schedule one model, pick among several, share workers among services, serve pipelines, place variants, or route classes.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::fleet::ServingKind;
use super::routed::RouterKind;
use crate::cluster::Allocation;
use crate::pipeline::PipelineKind;
use crate::policy::{PolicyKind, SharedKind};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Contender {
    /// Which request runs, when and where.
    Policy(PolicyKind),
    /// Also with which model, on a fleet.
    Serving(ServingKind),
    /// Which service too, of several on the same workers.
    Sharing(SharedKind),
    /// Which stage and with which model, of a pipeline.
    Pipeline(PipelineKind),
    /// Which variant of which service a device of a cluster holds; with the best plan it goes by how devices batch.
    Allocation(Allocation),
    /// Which model answers a request of which class.
    Routing(RouterKind),
}

impl Contender {
    /// Who it is among services that share workers, if it can be there.
    #[must_use]
    pub const fn sharing(self) -> Option<SharedKind> {
        match self {
            Self::Policy(PolicyKind::Weir) => Some(SharedKind::Device),
            Self::Sharing(kind) => Some(kind),
            _ => None,
        }
    }

    /// Who allocates on a cluster and how its devices batch, if it can be there.
    #[must_use]
    pub const fn allocation(self) -> Option<(Allocation, PolicyKind)> {
        match self {
            Self::Policy(batching) => Some((Allocation::Best, batching)),
            Self::Allocation(kind) => Some((kind, kind.batching())),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy(kind) => kind.name(),
            Self::Serving(kind) => kind.name(),
            Self::Sharing(kind) => kind.name(),
            Self::Pipeline(kind) => kind.name(),
            Self::Allocation(kind) => kind.name(),
            Self::Routing(kind) => kind.name(),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Ok(kind) = name.parse() {
            return Ok(Self::Policy(kind));
        }
        if let Ok(kind) = name.parse() {
            return Ok(Self::Serving(kind));
        }
        // The daemon's device on all workers is `weir` here too.
        if let Some(kind) = SharedKind::OTHERS.into_iter().find(|kind| kind.name() == name) {
            return Ok(Self::Sharing(kind));
        }
        if let Some(kind) = PipelineKind::ALL.into_iter().find(|kind| kind.name() == name) {
            return Ok(Self::Pipeline(kind));
        }
        if let Some(kind) = Allocation::OTHERS.into_iter().find(|kind| kind.name() == name) {
            return Ok(Self::Allocation(kind));
        }
        if let Some(kind) = RouterKind::ALL.into_iter().find(|kind| kind.name() == name) {
            return Ok(Self::Routing(kind));
        }
        let all =
            PolicyKind::ALL.map(PolicyKind::name).into_iter().chain(ServingKind::ALL.map(ServingKind::name));
        let all = all.chain(SharedKind::OTHERS.map(SharedKind::name));
        let all = all.chain(PipelineKind::ALL.map(PipelineKind::name));
        let all = all.chain(Allocation::OTHERS.map(Allocation::name));
        let all = all.chain(RouterKind::ALL.map(RouterKind::name));
        Err(format!("must be one of {}", all.collect::<Vec<_>>().join(", ")))
    }
}

impl TryFrom<String> for Contender {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map_err(|reason| format!("{name}: {reason}"))
    }
}
