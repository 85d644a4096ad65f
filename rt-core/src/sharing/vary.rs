//! Slower variants on shared workers: where nothing mandatory is left waiting, a batch may take as long as any.
//!
//! *Why it is safe.* The tests of shared workers count, before whatever is to come, a batch of up to P̂ on each of them, for that
//! is what may have been begun while nothing mandatory waited. A batch that leaves nothing mandatory waiting for any service is
//! such a batch, whatever it holds, if it takes no longer than P̂; what it holds that has to be served is in time by itself, also if
//! batches run over by all that the margin leaves.

use super::device::Device;
use crate::scheduler::{Scheduler, WorkerId};
use crate::time::{Instant, Span};

impl Device {
    /// What the batch takes at most that `worker` starts for `service`, with the variant that is selected for it: `time` if that is the
    /// base.
    #[inline(never)]
    pub(super) fn vary(&mut self, now: Instant, worker: WorkerId, service: usize, time: Span) -> Span {
        let clear = |scheduler: &Scheduler| scheduler.waiting_mandatory() == 0;
        if self.quiet
            || self.demoted >> service & 1 == 1
            || !self.schedulers.iter().all(clear)
            || !self.crew.is_prompt(now, self.longest)
        {
            return time;
        }
        // Nothing has run over that anybody would have to wait for.
        let (longest, kept) = (self.longest.min(self.spared(now)), self.crew.most_over());
        self.schedulers[service].vary(now, worker, (longest, kept))
    }

    /// How long a batch may take so that all that wait, and the next that comes to each service, can be answered in time by full batches.
    /// No promise rests on it.
    fn spared(&self, now: Instant) -> Span {
        let waits = |scheduler: &Scheduler| scheduler.backlog();
        let workers = self.schedulers[0].config().worker_count() as u64;
        let before = |due: Instant| {
            let behind = self.schedulers.iter().filter_map(waits).filter(|&(first, _)| first <= due);
            Span::from_nanos(
                behind.fold(0, |all: u64, (_, work)| all.saturating_add(work.as_nanos())) / workers,
            )
        };
        let all = before(Instant::from_nanos(u64::MAX));
        let left = |scheduler: &Scheduler| {
            let next = now + scheduler.config().deadline - scheduler.reserve();
            let own = all + scheduler.config().workers[0].batch_time();
            let first = scheduler.backlog().map(|(due, _)| due.since(now).saturating_sub(before(due)));
            first.into_iter().fold(next.since(now).saturating_sub(own), Span::min)
        };
        self.schedulers.iter().map(left).fold(self.longest, Span::min)
    }
}
