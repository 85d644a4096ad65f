//! Adapters between models, from outside the crate: while requests flow nothing is allocated, digits in scenes are found and read,
//! and so is text, by models that nobody here made.
#![allow(missing_docs, reason = "tests")]

mod allocation;
mod picture;
mod scenes;
mod text;
