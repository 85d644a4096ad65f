//! Another configuration while the daemon serves.

mod configuration;
mod remeasure;
mod takeover;
