//! Which variant of which service runs on which devices, so that every promise is kept and the mean answer is most accurate.
//!
//! Proteus and Loki decide that by a mixed integer linear program for the mean demand, and promise nothing. Here promises are
//! constraints: each device counts for a share of the promise, its [`quota`], that holds whatever arrives within the declared curve.
//! [`place`] finds the plan, proves a bound on every other, and verifies what it found before it says so. Where nothing fits it says
//! what does: which promises are in the way, or how much of the demand can be served.
#![forbid(unsafe_code)]

pub mod answer;
mod bundle;
pub mod configuration;
mod factor;
mod pipeline;
mod place;
pub mod plan;
pub mod problem;
pub mod promise;
pub mod quota;
mod sharing;
mod until;
mod verify;
mod whole;

pub use answer::Answer;
pub use place::{Outcome, PROVEN, PlaceError, Placed, place};
pub use plan::Plan;
pub use problem::{Problem, ProblemError};
