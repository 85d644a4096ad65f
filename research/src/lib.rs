//! Model selection of the literature, and ours beside it: who picks which model for which requests, on many workers.
//!
//! Only experiments use it. [`ramsis`] and [`select`] plan policies, and [`serving`] plays them and their rivals; [`router`]
//! trains one that sends requests of several classes to models, [`learned`] a
//! selector of variants for the scheduler of the daemon. The daemon selects by the tables of `planner::selection`, which are tried on its own scheduler.
#![forbid(unsafe_code)]

pub mod learned;
mod qlearning;
pub mod ramsis;
pub mod router;
pub mod select;
pub mod serving;
