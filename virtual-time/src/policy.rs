//! Who decides which request runs, when and where, as the drive asks.

use rt_core::{Alarm, Instant, Outcome, Span, StreamState, Transition, WorkerId};

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which, as it was named when it came.
    pub token: u64,
    /// Whether a promise counts on it.
    pub mandatory: bool,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a policy does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the batch of this worker.
    Start {
        /// The worker; it was free.
        worker: WorkerId,
    },
    /// A request has ended.
    End(End),
    /// Safe mode was entered, left, or given a further cause.
    SafeMode(Transition),
    /// The promise to one stream is suspended for this reason, a weaker one is in force, or it holds again.
    Suspension {
        /// The stream, as arrivals name it.
        stream: usize,
        /// How it stands.
        state: StreamState,
        /// What it broke.
        alarm: Option<Alarm>,
    },
    /// Nothing now; ask again at this instant, which is still to come, or only when something happens.
    Wait {
        /// The instant.
        until: Option<Instant>,
    },
}

/// Who decides which request runs, when and where: the calling contract of [`rt_core::Scheduler`].
///
/// Told of each arrival and each end of a batch, and then asked by [`Policy::poll`] until it waits. Each request
/// ends once, at its arrival or later; one in a batch ends when the batch does, or is missed once its deadline has passed.
pub trait Policy {
    /// How many workers there are, numbered from 0.
    fn workers(&self) -> usize;

    /// A request comes. Its end, if it is refused at once.
    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End>;

    /// The batch of `worker` ends, after it ran for `time`.
    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span);

    /// What is to be done now.
    fn poll(&mut self, now: Instant) -> Step;

    /// The requests of the batch that `worker` has just started, at least one.
    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_;

    /// The time that the policy counts on for it: `P(b)`, of its variant.
    fn bound(&self, worker: WorkerId) -> Span;

    /// The variant of the model that it is run with; 0, the base, for a policy that knows no other.
    fn variant(&self, _worker: WorkerId) -> usize {
        0
    }
}

impl<P: Policy> Policy for &mut P {
    fn workers(&self) -> usize {
        (**self).workers()
    }

    #[inline]
    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        (**self).arrive(now, stream, token)
    }

    #[inline]
    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        (**self).complete(now, worker, time);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Step {
        (**self).poll(now)
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        (**self).batch(worker)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        (**self).bound(worker)
    }

    fn variant(&self, worker: WorkerId) -> usize {
        (**self).variant(worker)
    }
}
