//! Model selection of the literature, and ours beside it: who picks which model for which requests, on many workers.
//!
//! Experiments use it, and [`learned`] `weir train`. [`ramsis`] and [`select`] plan policies, and [`serving`] plays them and their rivals; [`router`]
//! trains one that sends requests of several classes to models, [`learned`] a
//! selector of variants for the scheduler of the daemon. All else that the daemon selects by is in `planner::selection`.
#![forbid(unsafe_code)]

pub mod learned;
mod qlearning;
pub mod ramsis;
pub mod router;
pub mod select;
pub mod serving;
