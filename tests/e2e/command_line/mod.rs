//! What people meet at the prompt: subcommands, configurations, profiles, experiments.

mod configs;
mod experiments;
mod manual;
mod pipelines;
mod place;
mod problems;
mod profile;
mod prompt;
mod random;
mod tune;
