//! A request on its way from whoever read it to its service, whoever serves the stream by then.

use std::sync::Arc;

use rt_core::MissReason;

use super::{Closed, Effects, Lease, Meant, Origin, Said};
use weir_os::clock;
use weir_plan::config::ServiceConfig;

/// To copy fewer bytes takes no longer than to ask whether they are wanted.
const WORTH_ASKING: usize = 16 << 10;

/// What has become of a request that was handed in.
#[derive(Debug)]
pub enum Handed {
    /// Its reply goes to its origin.
    TakenIn,
    /// It was missed at once, with these misses left, this number and for this reason; nothing else is told of it, and nothing
    /// at all if its stream has gone.
    Refused(Option<(Option<u32>, u64, MissReason)>),
    /// The service is about to end.
    Ending,
}

impl Lease {
    /// Counts a request of so many bytes that has `said` so much of itself as missed, if nothing is promised to it and it would be
    /// refused whatever it brings: what can no longer be answered in time is not copied first.
    pub fn refuse_in_vain(&mut self, effects: &mut Effects, said: Said, bytes: usize) -> Option<Handed> {
        let service = Arc::clone(self.service());
        let config = &service.plan.config;
        let late =
            || config.background && said.sent.is_some_and(|sent| sent + config.deadline <= clock::now());
        let in_vain =
            !self.promised && (late() || bytes >= WORTH_ASKING && service.is_ruled_out(self, said.sent));
        if in_vain { service.refuse(effects, self, said, true) } else { None }
    }

    /// What a request of this lease that has `said` so much of itself means to its service, which has that configuration: one of a class
    /// that is no more counts as one that names none.
    pub(super) fn meant(&self, config: &ServiceConfig, said: Said) -> Meant {
        let class = self.classes.find(said.class).unwrap_or(self.classes.own());
        let (due, within) = config.terms(class, said.within);
        Meant { sent: said.sent, class, due, within }
    }

    /// Counts a request as missed for which there is no room.
    pub fn refuse(&mut self, effects: &mut Effects, said: Said) -> Handed {
        let service = Arc::clone(self.service());
        service.refuse(effects, self, said, false).unwrap_or(Handed::Refused(None))
    }

    /// Hands in a request; `fill` lays its tensors in an empty slot.
    pub fn hand_in(
        &mut self,
        effects: &mut Effects,
        (origin, said): (Origin, Said),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Handed {
        let mut fresh = Some((fill, origin));
        let mut moved = None;
        loop {
            let service = Arc::clone(self.service());
            let meant = self.meant(&service.plan.config, said);
            // Slots can run out only while answers to earlier requests are still being written.
            let Some(token) = service.slots.take() else {
                return self.refuse(effects, said);
            };
            {
                let mut slot = service.slots.get(token);
                if let Some(content) = moved.take() {
                    *slot = content;
                } else if let Some((fill, origin)) = fresh.take() {
                    slot.input.clear();
                    fill(&mut slot.input);
                    slot.origin = Some(origin);
                }
                slot.due = meant.due;
                slot.memory = service.plan.spec.has_state().then(|| Arc::clone(&self.memory));
            }
            let Err(closed) = service.submit(effects, self, token, meant) else { return Handed::TakenIn };
            moved = Some(std::mem::take(&mut *service.slots.get(token)));
            service.slots.put_back(token);
            // Else another one has taken over just now.
            if closed == Closed::Ending {
                return Handed::Ending;
            }
        }
    }
}
