//! Another device takes over: with other workers, other batches, services that are new and others that are no more.
//!
//! *Why it is safe.* As of one scheduler ([`Scheduler::hand_over`]), at an instant at which no worker of the device runs anything
//! and of no service a mandatory request waits: from then on the new device is one that starts with free workers, at a calm
//! instant, and its admission bounds what may come of all services together in any stretch of time. The account of stalls begins anew as well:
//! what is promised counts those behind the instant alone, of which no more than declared are explained.

use super::Device;
use crate::scheduler::{HandOverError, Scheduler};
use crate::stream::StreamId;
use crate::time::Instant;

/// What becomes of a service when another device takes over.
#[derive(Clone, Debug)]
pub struct Heir<'a> {
    /// Its number on the device that takes over; `None` if it ends.
    pub service: Option<usize>,
    /// Those of its streams that do not go on.
    pub ended: &'a [StreamId],
}

impl Device {
    /// As [`Scheduler::set_quiet`], for all services.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.set_quiet(quiet));
        self.touched = self.all();
    }

    /// As [`Scheduler::hand_over`], all services at once: `heirs` says of each what becomes of it. Services of `next` that are
    /// nobody's heir are new and may have streams already. What waits is cancelled, and of a service that ends all streams end:
    /// call [`Device::poll`] on this one a last time.
    ///
    /// # Errors
    /// If one of the services cannot be taken over; nothing has changed then.
    pub fn hand_over(
        &mut self,
        now: Instant,
        next: &mut Self,
        heirs: &[Heir<'_>],
    ) -> Result<(), HandOverError> {
        for (scheduler, heir) in self.schedulers.iter().zip(heirs) {
            if let Some(to) = heir.service {
                scheduler.check_heir(&next.schedulers[to], heir.ended)?;
            }
        }
        if next.schedulers.iter().any(|scheduler| scheduler.waiting() + scheduler.running() > 0) {
            return Err(HandOverError::NotNew);
        }
        let open = self.schedulers.iter().map(Scheduler::promised_open);
        let (running, waiting) = open.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        if running + waiting > 0 {
            return Err(HandOverError::Busy { running, waiting });
        }
        // As evidence has it, from 1; 0 of one that ends.
        let number = |before: u64| {
            let heir = before.checked_sub(1).and_then(|service| heirs.get(service as usize));
            heir.and_then(|heir| heir.service).map_or(0, |service| service as u64 + 1)
        };
        for (scheduler, heir) in self.schedulers.iter_mut().zip(heirs) {
            scheduler.end_streams(now, heir.ended);
            if let Some(to) = heir.service {
                scheduler.pass_on(now, &mut next.schedulers[to]);
                next.schedulers[to].renumber(number);
            }
        }
        (self.touched, next.touched, next.unknown) = (self.all(), next.all(), next.all());
        next.demoted = next.still_demoted();
        next.crew.set_stalls(self.crew.stalls());
        next.count_stalls();
        Ok(())
    }

    /// A bit for each service.
    fn all(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.schedulers.len())
    }
}
