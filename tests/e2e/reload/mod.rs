//! Another configuration while the daemon serves.

mod configuration;
mod pipelines;
mod remeasure;
mod takeover;
