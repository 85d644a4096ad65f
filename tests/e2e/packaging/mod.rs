//! The daemon under a service manager, and what is installed.

mod activation;
mod booted;
mod files;
mod lifecycle;
