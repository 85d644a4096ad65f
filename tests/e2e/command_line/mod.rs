//! What people meet at the prompt: subcommands, configurations, profiles, experiments.

mod configs;
mod experiments;
mod pipelines;
mod place;
mod profile;
mod prompt;
mod random;
mod tune;
