//! What runs the models: engines, worker processes, the shipped models.

mod choice;
mod import;
pub(crate) mod isolation;
mod joined;
mod mixed;
mod models;
mod remote;
mod shared;
mod text;
