//! Why there is no plan, of a service, a device, or several.

use std::path::PathBuf;

use planner::selection::SelectionError;
use rt_core::{AdmissionError, Constraint, SelectError, Span};

use super::{Proposal, TableError, WeightsError};
use crate::models::ModelsError;
use crate::profile::ProfileError;
use weir_engine::EngineError;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Models(#[from] ModelsError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("service {service}: batch = {batch}, but the profile covers 1..={profiled}: {remedy}")]
    Batch { service: String, batch: usize, profiled: usize, remedy: &'static str },
    #[error("service {service}: the times of {model} with the handover: {source}")]
    Times { service: String, model: String, source: rt_core::ProfileError },
    #[error(
        "service {service}: P(1) = {time} leaves nothing of the deadline {deadline} less {guard} for late dispatch \
         and stalls"
    )]
    Deadline { service: String, time: Span, deadline: Span, guard: Span },
    #[error("service {service}: the promise to stream {stream}, {constraint}, cannot be kept: {source}")]
    Stream { service: String, stream: String, constraint: Constraint, source: AdmissionError },
    #[error("service {service}: queue = {queue}, but up to {waiting} requests that must be served can wait")]
    Queue { service: String, queue: usize, waiting: u64 },
    #[error(
        "pipeline {service}: deadline {deadline} is too short for one source: P(1) is {times}, and at each stage dispatch may be \
         late by {guard}"
    )]
    Path { service: String, times: String, deadline: Span, guard: Span },
    #[error("pipeline {service}: the promise to stream {stream}, {constraint}, cannot be kept: {reason}")]
    Reserved { service: String, stream: String, constraint: Constraint, reason: String },
    #[error("pipeline {service}: {constraint} cannot be promised at any rate: {reason}")]
    Unkept { service: String, constraint: Constraint, reason: String },
    #[error("pipeline {service}: {reason}")]
    Reason { service: String, reason: String },
    #[error("pipeline {service}: {source}")]
    Problem { service: String, source: planner::ProblemError },
    #[error("device {device}: its worker(s) load model files of {bytes} bytes in all, max-memory = {limit}")]
    Memory { device: String, bytes: u64, limit: u64 },
    #[error("device {device}: not every promise can be kept: {reason}")]
    Device { device: String, reason: String },
    #[error(
        "{field}.remote.timeout = {timeout}: must be at least P({batch}) = {bound}, the time that a batch of {batch} may take: a server \
         that keeps it would be given up"
    )]
    Timeout { field: String, timeout: Span, batch: usize, bound: Span },
    #[error("{field} = {value}: {reason}")]
    Variant { field: String, value: String, reason: String },
    #[error("service {service}: {source}")]
    Select { service: String, source: SelectError },
    #[error("service {service}: select = \"planned\": {source}")]
    Planned { service: String, source: SelectionError },
    #[error("{}: {source}", path.display())]
    Table { path: PathBuf, source: TableError },
    #[error("{}: {source}", path.display())]
    Weights { path: PathBuf, source: WeightsError },
    #[error(
        "service {service}: {constraint} cannot be promised at any rate: a request can wait for one batch and \
         then needs its own, together {twice}, but the deadline less guard and stalls is {latency}"
    )]
    Never { service: String, constraint: Constraint, twice: Span, latency: Span },
    #[error("service {service}: {constraint} cannot be promised at any rate: {source}")]
    Declared { service: String, constraint: Constraint, source: AdmissionError },
    #[error(
        "{source}; it could be but for rare long times: {share} % of batches of {batch} take at most {likely}, but \
         P({batch}) = {bound}"
    )]
    Stalls { source: Box<Self>, share: f64, batch: usize, likely: Span, bound: Span },
    #[error("{source}; without the workers of {kind} it could be")]
    Kind { source: Box<Self>, kind: String },
    #[error("{source}; {proposal}")]
    Declare { source: Box<Self>, proposal: Box<Proposal> },
    /// Two or more of the others, of as many services and devices.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Self>),
}

impl PlanError {
    /// Itself, or the several that it stands for.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(all) => all,
            one => vec![one],
        }
    }
}
