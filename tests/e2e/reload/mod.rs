//! Another configuration while the daemon serves.

mod configuration;
mod pipelines;
mod placement;
mod remeasure;
mod takeover;
