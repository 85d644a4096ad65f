//! Model selection for one queue shared by identical workers: which model a free worker runs, on how many requests.

mod fluid;
mod plan;
mod policy;
mod profile;
mod prospect;
mod trial;

pub use fluid::{Choice, Fluid, fluid};
pub use plan::{Demand, DemandError, Effort, MAX_SELECT_WORKERS, Plan, plan};
pub use policy::{Decision, Order, Policy, State, Take, Tuning};
pub use profile::{MAX_BATCH, MAX_MODELS, MAX_SLO, Model, Profile, ProfileError};
pub use trial::{Poisson, Score, trial};

#[cfg(test)]
mod tests;
