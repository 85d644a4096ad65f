//! Adapters between models, from outside the crate: while requests flow nothing is allocated, and the shipped scene is read whole.
#![allow(missing_docs, reason = "tests")]

mod allocation;
