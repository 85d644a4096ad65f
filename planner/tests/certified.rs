//! What is certified, and what the checker makes of it, and of what was tampered with: one program, so that what they share is compiled once.

#[path = "../../rt-core/tests/named.rs"]
mod named;

mod naive;
mod pipelines;
#[path = "../../tests/e2e/harness/prover.rs"]
mod prover;

mod absorb;
mod capacity;
mod every_instant;
mod every_line;
mod pipeline;
mod pipeline_by_hand;
mod shared;
mod shared_random;
mod tampered;
mod verify;
mod verify_random;
