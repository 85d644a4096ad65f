//! Model selection of the literature, and ours beside it: who picks which model for which requests, on many workers.
//!
//! Only experiments use it. [`ramsis`] and [`select`] plan policies, and [`serving`] plays them and their rivals. The
//! daemon selects by the tables of `planner::selection`, which are tried on its own scheduler.
#![forbid(unsafe_code)]

pub mod ramsis;
pub mod select;
pub mod serving;
