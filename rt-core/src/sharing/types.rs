//! What a device is made of, and what it asks of its caller, as values.

use alloc::vec::Vec;

use super::{MAX_SERVICES, Rule};
use crate::scheduler::{ConfigError, Event, Resolution, SchedulerConfig, WorkerId};
use crate::time::{Instant, Span};

/// Everything that is fixed for the life of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Which service goes next, and the batches of each in a turn; means something to [`Rule::Turns`] alone.
    pub rule: Rule,
    /// Of each service, by number: at least 1.
    pub turns: Vec<u32>,
    /// `P̂`: the longest batch that anyone may start; at least every full batch.
    pub longest: Span,
    /// By how much batches may exceed their time and make nothing mandatory late, in all until what has is forgotten: once, since the
    /// last that did, nothing mandatory waited and every worker was free within `longest`, and all that ran then has ended. Beyond
    /// it all services are in safe mode ([`super::SharedAdmission::binding`]).
    pub overrun_margin: Span,
    /// The services: eager, with background, of as many workers of one kind each, and the same stalls, which none absorbs.
    pub services: Vec<SchedulerConfig>,
}

/// Why a configuration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No services, or too many.
    #[error("{count} services, must be 1..={MAX_SERVICES}, with a turn each")]
    Services {
        /// How many.
        count: usize,
    },
    /// What workers that are shared do not allow, or a number that differs from that of the first service.
    #[error("service {service}: {field} is not what workers that are shared allow")]
    Service {
        /// Which one, from 0.
        service: usize,
        /// The field.
        field: &'static str,
    },
    /// Not even a scheduler of its own.
    #[error("service {service}: {error}")]
    Config {
        /// Which one, from 0.
        service: usize,
        /// Why.
        error: ConfigError,
    },
}

/// What the caller must do next; see [`crate::Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAction {
    /// Run the batch of this worker, which the scheduler of this service holds.
    Start {
        /// The service.
        service: usize,
        /// The worker.
        worker: WorkerId,
    },
    /// Tell the client how its request ended.
    Resolve(usize, Resolution),
    /// Announce this of a service.
    Event(usize, Event),
    /// Nothing more now; poll again at this instant, or only after the next `handle_*` if `None`.
    WakeAt(Option<Instant>),
}
