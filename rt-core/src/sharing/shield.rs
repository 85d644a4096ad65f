//! The shield of services that share workers: how long a batch may be that goes before mandatory requests.
//!
//! A batch that the rule would not start, with any requests of one service, may begin at `t` on one of `n` workers though mandatory
//! requests wait if all are in time even if it takes its time `ℓ`. Let `r_j` mandatory requests of `j` still wait, of which `r_j(y)` must
//! be answered by `t + y`, their deadlines less the guard of their service; let `a_j(y)` be the most that can come and must be
//! answered by then, as the arrival monitors have it; let `f` be what the other workers have left of their batches in all, and `e` what
//! batches may yet run over within the margin. By rule E it may begin if for every `y` from the first deadline of those that wait on
//!
//! ```text
//! ℓ + f + (n - 1)·max P + Σ P_j·⌈(r_j(y) + a_j(y)) / B_j⌉  ≤  n·( y - e - max_k (D_k - P_k - X_k) ) ,
//! ```
//!
//! or, for requests of services of whose lines something else stands for some, with `⌈r_j(y) / B_j⌉ + a_j(y)` in place of that count, up to
//! the longest deadline at least; and by rule T if, of every service `s` of which some wait, for every `p` up to the first that would find none of `s` waiting: if the
//! `p`-th, of those that wait and then those that come, must be answered by `t + y`, with `J = ⌈p/B_s⌉`,
//!
//! ```text
//! ℓ + f + (J - 1)·P_s + Σ P_i·min( ⌈J/k_s⌉·k_i , ⌈r_i/B_i⌉ + what can come of i by t + y + g )  ≤  n·( y - e - P_s ) .
//! ```
//!
//! Why that is enough is in `docs/guarantee.md`. Lines of E are looked at request by request until a straight line
//! above what may come keeps all others ([`Pace`]).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::coming::Coming;
use super::device::NEVER;
use super::pace::Pace;
use super::{Demands, Rule, SharedAdmission, SharedService, Sharing};
use crate::counted::Counted;
use crate::scheduler::Scheduler;
use crate::scheduler::earliest::Earliest;
use crate::stream::StreamSpec;
use crate::time::{Instant, Span};

mod lines;

/// Which batches may go before mandatory requests, of the services of a device; see the module. What it looks through is in here
/// too, so that nothing is allocated when it is asked.
#[derive(Debug)]
pub struct SharedShield {
    rule: Rule,
    guard: Span,
    /// The longest that it is ever asked for.
    longest: Span,
    workers: u64,
    /// `max (D - P - X)`.
    early: Span,
    /// Services of whose lines something else stands for some, a bit each, and those of them that need it at every distance; the
    /// others up to this one.
    relieved: u64,
    singly: u64,
    until: Span,
    /// `(n - 1)·max P`, of those that something is promised to.
    apart: u64,
    services: Box<[Service]>,
    /// Of each service of which something waits or can come: when the next must be answered.
    due: Earliest,
}

/// What a batch that goes ahead must leave to the workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    /// What those that run something have left of it, in all.
    pub(super) taken: Span,
    /// By how much batches may yet run over in all.
    pub(super) over: Span,
    /// By how much they have.
    pub(super) excess: Span,
}

/// What it knows of a service.
#[derive(Debug)]
struct Service {
    of: SharedService,
    pace: Pace,
    counted: Counted,
    /// If it is demoted: the margin for overruns with which the promises of the others hold on one worker less, if they do.
    fewer: Option<Span>,
    /// Who may send, and when.
    coming: Coming,
    /// Mandatory requests that the batch takes itself, the first; that wait beside it; that were looked at; and of those the ones
    /// that wait.
    inside: usize,
    waiting: usize,
    looked: u64,
    taken: usize,
}

impl Sharing {
    /// The shield of what was admitted. Allocates.
    ///
    /// # Panics
    /// If there are not as many lists of streams as services.
    #[must_use]
    pub fn shield(&self, streams: &[&[StreamSpec]], admission: &SharedAdmission) -> SharedShield {
        assert_eq!(streams.len(), self.services.len(), "one list of streams a service");
        let demands: Vec<Demands> =
            streams.iter().map(|of| of.iter().filter_map(StreamSpec::demand).collect()).collect();
        let sooner = self.latest_starts().into_iter().zip(&admission.start_within);
        let fewer = match self.workers {
            1 => alloc::vec![None; demands.len()],
            _ => self.margins_on_fewer(&demands, admission),
        };
        let service = |((&of, demands), fewer): ((&SharedService, &Demands), Option<Span>)| Service {
            of,
            fewer,
            pace: match admission.singly {
                0 => Pace::new(&of, demands),
                _ => Pace::new(&SharedService { batch: 1, ..of }, demands),
            },
            counted: Counted::new(demands),
            coming: Coming::new(demands.len()),
            inside: 0,
            waiting: 0,
            looked: 0,
            taken: 0,
        };
        let promised = self.services.iter().zip(&demands).filter(|(_, demands)| !demands.is_empty());
        let most = promised.map(|(of, _)| of.time.as_nanos()).max().unwrap_or(0);
        SharedShield {
            rule: self.rule,
            guard: self.guard,
            longest: self.longest,
            workers: self.workers as u64,
            early: sooner.map(|(latest, &within)| latest.saturating_sub(within)).max().unwrap_or(Span::ZERO),
            relieved: admission.relieved,
            singly: admission.singly,
            until: self.services.iter().map(|of| of.latency).max().unwrap_or(Span::ZERO)
                + self.guard
                + self.guard,
            apart: most.saturating_mul(self.workers as u64 - 1),
            services: self.services.iter().zip(&demands).zip(fewer).map(service).collect(),
            due: Earliest::new(self.services.len()),
        }
    }
}

impl SharedShield {
    /// Whether it is for such a service under this number.
    pub(super) fn fits(&self, service: usize, scheduler: &Scheduler) -> bool {
        let config = scheduler.config();
        let alike = |kind: &crate::workers::Workers, of: &SharedService| {
            (kind.count as u64, kind.batch, kind.batch_time()) == (self.workers, of.batch, of.time)
                && config.deadline.saturating_sub(config.reserve()) == of.latency
        };
        let of = self.services.get(service).map(|service| &service.of);
        of.is_some_and(|of| config.workers.iter().all(|kind| alike(kind, of)))
    }

    /// How many services it is for.
    pub(super) fn services(&self) -> usize {
        self.services.len()
    }

    /// The rule that it is for.
    pub(super) fn rule(&self) -> Rule {
        self.rule
    }

    /// Streams of a service have come or gone: how many of them it does not count. It looks at the others from now on.
    pub(super) fn note_streams(&mut self, service: usize, scheduler: &Scheduler) -> usize {
        let of = &mut self.services[service];
        let left_out = scheduler.left_out(&of.counted);
        if left_out == 0 {
            of.coming.set_streams(scheduler);
        }
        left_out
    }

    /// How long a batch may take that begins `now`, before the mandatory requests that wait, of which it takes the first so many of a
    /// service itself; 0 if that is below `least`. Batches may yet run over by as much as is `spare`.
    pub(super) fn longest(
        &mut self,
        now: Instant,
        schedulers: &[Scheduler],
        spare: Spare,
        least: Span,
        taken: Option<(usize, usize)>,
    ) -> Span {
        for (s, (of, scheduler)) in self.services.iter_mut().zip(schedulers).enumerate() {
            of.inside = taken.filter(|&(service, _)| service == s).map_or(0, |(_, count)| count);
            (of.waiting, of.looked, of.taken) = (scheduler.waiting_mandatory() - of.inside, 0, 0);
        }
        let limits = (least, self.longest);
        match self.rule {
            Rule::Earliest => self.by_deadline(now, schedulers, spare, limits, false),
            Rule::Turns => self.by_turns(now, schedulers, spare, limits, false),
        }
    }

    /// The margin for overruns while a worker runs a batch of this service, which is demoted, however long that takes; `None` if the
    /// promises of the others need that worker.
    pub(super) fn margin_on_fewer(&self, service: usize) -> Option<Span> {
        self.services[service].fewer
    }

    /// As [`SharedShield::longest`] where nothing mandatory waits, of a batch that may be longer than any, on the only worker: then
    /// what comes while it runs must be in time, whenever it does.
    pub(super) fn longest_alone(
        &mut self,
        now: Instant,
        schedulers: &[Scheduler],
        spare: Spare,
        limits: (Span, Span),
    ) -> Span {
        for of in &mut self.services {
            (of.inside, of.waiting, of.looked, of.taken) = (0, 0, 0, 0);
        }
        match self.rule {
            Rule::Earliest => self.by_deadline(now, schedulers, spare, limits, true),
            Rule::Turns => self.by_turns(now, schedulers, spare, limits, true),
        }
    }
}

impl Service {
    /// When the next must be answered, of those that wait and then those that come.
    fn next_due(&self, scheduler: &Scheduler) -> Instant {
        if self.taken < self.waiting {
            return scheduler.nth_due(self.inside + self.taken);
        }
        if self.coming.next < NEVER { self.coming.next + self.of.latency } else { NEVER }
    }

    /// Looks at that.
    fn look(&mut self, now: Instant, scheduler: &Scheduler) {
        self.looked += 1;
        if self.taken < self.waiting {
            self.taken += 1;
        } else {
            self.coming.advance(now, scheduler);
        }
    }

    /// What its batches take of so many turns, if each holds something that waits or comes by then.
    fn work_within(&mut self, now: Instant, scheduler: &Scheduler, by: Instant, turns: u64) -> u64 {
        let (most, waiting) = (turns * u64::from(self.of.turn), self.waiting.div_ceil(self.of.batch) as u64);
        while waiting + self.looked < most && self.coming.next <= by {
            self.looked += 1;
            self.coming.advance(now, scheduler);
        }
        self.of.time.as_nanos().saturating_mul(most.min(waiting + self.looked))
    }
}
