//! The promises of Weir and the machine that keeps them, without clock, I/O or threads.
//!
//! A *stream* is one client's ordered requests; it declares how its requests arrive (an
//! [`ArrivalCurve`]) and states *weakly-hard* [`Constraint`]s such as "at most 3 misses in any 10".
//! [`admission`] decides ahead of time whether identical workers with a measured [`LatencyProfile`] keep
//! every such promise; the [`Scheduler`] then keeps it, and watches each assumption the answer rests on. A
//! [`Shield`] tells which batches may take longer than measured, with a better model, and endanger none; a
//! [`Selector`] wishes for that model.
//!
//! Time is an argument and every output is a value, so the daemon, a simulator and the checks in `tests/`
//! drive the same code. The crate is `no_std`; it allocates while something is built (a scheduler, a
//! stream) and never while requests flow.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod absorb;
pub mod admission;
mod algebra;
mod arrival;
mod busy;
mod calm;
mod constraint;
mod counted;
mod curve;
mod distances;
mod fallback;
mod greedy;
mod growth;
mod ladder;
mod ledger;
mod level;
mod outcome;
pub mod pipeline;
mod police;
mod profile;
#[cfg(any(kani, test))]
mod proofs;
mod rate;
mod refine;
mod safe_mode;
mod scheduler;
mod select;
pub mod sharing;
mod shield;
mod stalls;
mod stream;
mod time;
mod tolerance;
mod word;
mod workers;

pub use admission::{Admission, AdmissionError, Binding, Dispatch, PerSecond, System};
pub use algebra::Standing;
pub use arrival::{ArrivalBound, ArrivalError, MAX_BOUNDS, MAX_COUNT};
pub use constraint::{
    Constraint, ConstraintError, ConstraintSet, MAX_CONSTRAINTS, MAX_WINDOW, ParseConstraintError,
};
pub use curve::ArrivalCurve;
pub use distances::{Distances, MAX_DISTANCES};
pub use fallback::{Fallback, Fallbacks, longer};
pub use greedy::Greedy;
pub use ledger::Load;
pub use level::{Level, LevelError, MAX_LEVELS};
pub use outcome::OutcomeMonitor;
pub use police::{Excess, MAX_MEMORY, Policer};
pub use profile::{BatchTime, LatencyProfile, MAX_BATCH, ProfileError};
pub use rate::{largest_count, seed_count, seed_theorem_1, seed_theorem_2};
pub use safe_mode::{
    Alarm, Cause, Evidence, SafeMode, SafeModeConfig, SafeModeState, Severity, Suspension, Transition,
};
pub use scheduler::{
    Action, Arrival, ConfigError, Event, HandOverError, Joined, MAX_WORKERS, Newcomer, Outcome, Ran, Request,
    Resolution, Retired, Scheduler, SchedulerConfig, ShieldRefusal, StreamError, WorkerId,
};
pub use select::{
    BatchView, Boxed, ClassWorth, Decay, DecayError, LEARNED_INPUTS, LearnedScale, LoadMonitor, MAX_CLASSES,
    MAX_NET_LAYERS, MAX_NET_WEIGHT, MAX_NET_WIDTH, MAX_PRICE, MAX_TABLES, MAX_VARIANTS, MAX_WORTH, Manner,
    Net, SelectError, SelectTable, SelectTables, Selector, Variant, VariantSelector,
};
pub use shield::{Shield, ShieldError};
pub use stalls::{MAX_STALLS, Stalls, StallsError};
pub use stream::{MissReason, StreamCounts, StreamId, StreamSpec, StreamState};
pub use time::{Instant, MAX_SPAN, Span};
pub use word::{BalancedWord, Density};
pub use workers::Workers;
