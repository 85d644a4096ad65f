//! What is promised, certified and kept, below the declared rate and beyond it.

mod agreement;
mod ahead;
mod batches;
mod certificates;
mod classes;
mod closed;
mod demoted;
mod devices;
mod early;
mod fallback;
mod floods;
mod fused;
mod joins;
mod ladder;
mod learned;
mod observers;
mod pipelines;
mod recorded;
mod sent;
mod serving;
mod soak;
mod stage_variants;
mod stalls;
mod variants;
mod wanted;

pub(crate) use pipelines::METER;
