//! What an admission test of services that share workers answers: within what time requests begin, or which line fails.

use alloc::vec::Vec;

use crate::time::Span;

/// What a line of a test counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The last instant at which nothing waited that must be answered as early as the request looked at.
    Clear,
    /// The start of a batch of this service that was not full.
    Short(usize),
    /// The last arrival of the service that found none of its own waiting.
    Turn,
    /// The last instant at which nothing as urgent waited, if every batch may hold a single request.
    Singly,
    /// An instant since the arrival of the request itself, or the start after it.
    Arrival,
    /// An instant since the reference that another line would count from, or the start after it.
    After,
}

/// The tightest line of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBinding {
    /// What it counts from.
    pub reference: Reference,
    /// The service whose request is looked at.
    pub service: usize,
    /// From the reference to when that must be answered; for [`Reference::Turn`] from the reference to when it came.
    pub distance: Span,
    /// When its batch begins at the latest, counted from the reference.
    pub lhs: Span,
    /// When it must begin; negative if even at the reference it would be too late.
    pub rhs: i128,
}

impl SharedBinding {
    /// By how much the batch begins sooner than it must; negative if it may be too late.
    #[must_use]
    pub fn margin(&self) -> i128 {
        self.rhs - i128::from(self.lhs.as_nanos())
    }

    /// Takes the place of `tightest` if it is tighter.
    pub(super) fn tighten(self, tightest: &mut Option<Self>) {
        if tightest.is_none_or(|t| self.margin() < t.margin()) {
            *tightest = Some(self);
        }
    }
}

/// The answer to a test that says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAdmission {
    /// Of each service: within what time of its arrival a mandatory request is in a batch, dispatch as late as it may be.
    pub start_within: Vec<Span>,
    /// The line with the smallest margin; `None` if nothing is promised to anyone. By as much as that margin the batches begun
    /// between two *calm* instants may exceed their times in all: where nothing mandatory waits, and every worker is free
    /// within `P̂`.
    pub binding: Option<SharedBinding>,
    /// Services, a bit each, of which not all lines hold, as something else stands for these.
    pub relieved: u64,
    /// Those of them for which that is what counts from the same reference in batches of one.
    pub singly: u64,
}

impl SharedAdmission {
    /// With all lines.
    pub(super) fn by_lines(start_within: Vec<Span>, binding: Option<SharedBinding>) -> Self {
        Self { start_within, binding, relieved: 0, singly: 0 }
    }

    /// By how much the batches begun between two calm instants may exceed their times in all; without limit if nothing is
    /// promised to anyone.
    #[must_use]
    pub fn overrun_margin(&self) -> Span {
        let tightest = self.binding.map_or(i128::MAX, |line| line.margin());
        Span::from_nanos(u64::try_from(tightest.clamp(0, crate::MAX_SPAN.as_nanos().into())).unwrap_or(0))
    }
}

/// Why services are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// No workers, no services or too many, or a number of one outside its range.
    #[error("{field} of service {service} = {value} is outside {min}..={max}")]
    Range {
        /// Which number.
        field: &'static str,
        /// Whose, from 0; 0 for a number of all.
        service: usize,
        /// The number.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A batch does not fit into the latency of its service.
    #[error("a batch of service {service} takes {time}, but {latency} is all there is")]
    Latency {
        /// Which one, from 0.
        service: usize,
        /// What the batch takes.
        time: Span,
        /// Its latency.
        latency: Span,
    },
    /// In the long run more work comes than the workers can do.
    #[error("the mandatory requests need {} thousandths of a worker, there are {workers} workers", .thousandths)]
    Rate {
        /// The work that comes, in thousandths of a worker, rounded up.
        thousandths: u64,
        /// The workers.
        workers: usize,
    },
    /// A request may begin too late; the line says which.
    #[error("a request of service {} may have to wait {}, but must begin by {} ns", .0.service, .0.lhs, .0.rhs)]
    Late(
        /// The line that fails.
        SharedBinding,
    ),
    /// The load is so close to capacity that more instants would have to be looked at than are.
    #[error("there are too many instants to test: lower the load a little")]
    Horizon,
    /// More stalls than are kept back for may meet one request.
    #[error("stalls must be so rare that a window of them covers {needed}, but it is {window}")]
    Stalls {
        /// What a request can see of what was before it, behind a delay of two deadlines, and what may end late after it; the longest of
        /// all spans if that is not seen within a minute.
        needed: Span,
        /// The window that is declared.
        window: Span,
    },
}
