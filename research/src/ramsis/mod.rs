//! Policies that pick a model and a batch for each state of a worker's queue, worked out ahead for a load.
//!
//! The decision problem and its solution are those of D. Mendoza, F. Romero and C. Trippel, Model Selection for
//! Latency-Critical Inference Serving (RAMSIS), EuroSys 2024; sections are the paper's.

mod arrivals;
mod error;
mod evaluate;
mod file;
mod fresh;
mod grid;
mod left;
mod model;
mod objectives;
mod phases;
mod poisson;
mod policy;
mod problem;
mod requests;
mod rows;
mod set;
mod solve;
mod spec;
mod work;

pub use arrivals::{Arrivals, Clock, MAX_RATE, MAX_TICKS, MAX_WORKERS, RoundRobin, ShortestQueue};
pub use error::RamsisError;
pub use evaluate::Evaluation;
pub use file::{MAX_BYTES, VERSION};
pub use model::{MAX_LATENCIES, MAX_MODELS, Model, pareto};
pub use objectives::{Group, MAX_OBJECTIVES, Objectives};
pub use policy::Policy;
pub use problem::{Action, Problem, State};
pub use set::{Loaded, MAX_POLICIES, PolicySet};
pub use solve::Solution;
pub use spec::{Batching, Flavour, MAX_BINS, MAX_QUEUE, MAX_SLO, Slack, Spec};

#[cfg(test)]
mod tests;
