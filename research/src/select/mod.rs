//! Model selection for one queue shared by identical workers: which model a free worker runs, on how many requests.

mod candidate;
mod ceiling;
mod decision;
mod fluid;
mod plan;
mod policy;
mod priced;
mod profile;
mod prospect;
mod rules;
mod score;

pub use ceiling::ceiling;
pub use decision::{Decision, Demand, DemandError, MAX_LOAD, MAX_SELECT_WORKERS, Order, State, Take, Tuning};
pub use fluid::{Choice, Fluid, fluid};
pub use plan::{Effort, Plan, plan, plan_thresholds};
pub use policy::Policy;
pub use profile::{MAX_MODELS, MAX_SLO, Profile, ProfileError};
pub use score::{Score, trial};

#[cfg(test)]
mod tests;
