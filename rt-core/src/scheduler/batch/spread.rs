//! Spread: of more mandatory requests than are answered in time, those of a full batch, so that the misses stay apart.

use super::{BatchPlanner, Fate, View};
use crate::scheduler::ordered::Ordered;
use crate::scheduler::queue::MANDATORY;
use crate::stream::MissReason;

/// One request, as a share of it.
const WHOLE: i64 = 1 << 32;

impl BatchPlanner {
    /// Mandatory requests that miss their deadline if they are not taken now: should there be more than a batch of
    /// them, the promise is already broken, and what counts is to spread the misses. Takes a full batch evenly
    /// (per-batch spread: spread-drop paper, section 3.3, as corrected in the theory) and gives up the rest, each
    /// stream by a balanced word of its own.
    pub(super) fn spread(&mut self, view: &View) -> bool {
        let (full, skip) = (view.kind.workers.batch, view.skip[MANDATORY]);
        let next = view.waiting.class(MANDATORY).get(full + skip);
        next.is_some_and(|next| next.deadline < view.two_batches()) && self.spread_hurried(view, full, skip)
    }

    #[inline(never)]
    fn spread_hurried(&mut self, view: &View, full: usize, skip: usize) -> bool {
        let (profile, queue) = (&view.kind.workers.profile, view.waiting.class(MANDATORY));
        let mut next = view.next_answer();
        if view.closed {
            let left = view.waiting.before(MANDATORY, next).saturating_sub(full + skip);
            next = next - view.kind.time.saturating_sub(profile.bound(left.clamp(1, full)));
        }
        let hurried = view.waiting.before(MANDATORY, next);
        if hurried <= full + skip {
            return false;
        }
        self.fates[MANDATORY].resize(skip, Fate::Wait);
        if skip == 0 {
            let late = view.waiting.before(MANDATORY, view.now + view.kind.time).min(hurried);
            if late == queue.len() {
                // Only a smaller batch answers any.
                return false;
            }
            self.fates[MANDATORY].resize(late, Fate::Miss(MissReason::Shed));
        }
        let candidates = self.fates[MANDATORY].len()..hurried;
        if candidates.len() <= full {
            return true;
        }
        let step = (WHOLE * full as i64 + candidates.len() as i64 - 1) / candidates.len() as i64;
        for index in candidates.clone() {
            self.claims.get_mut(queue[index].stream).share += step;
            self.fates[MANDATORY].push(Fate::Miss(MissReason::Shed));
            self.choose(queue, index, full, WHOLE);
        }
        // Of many streams hardly any may have earned a whole one. If no later ones fill the batch, those that lack least have it
        // in advance.
        let rest = full.saturating_sub(queue.len() - hurried);
        for least in [3 * WHOLE / 4, WHOLE / 2, WHOLE / 4, i64::MIN] {
            if self.taken >= rest {
                break;
            }
            candidates.clone().rev().for_each(|index| self.choose(queue, index, rest, least));
        }
        true
    }

    /// Takes the mandatory request at `index`, unless it is taken or the batch is full, if its stream has earned `least`.
    fn choose(&mut self, queue: &Ordered, index: usize, full: usize, least: i64) {
        let (fate, claim) = (&mut self.fates[MANDATORY][index], self.claims.get_mut(queue[index].stream));
        if self.taken < full && *fate != Fate::Run && claim.share >= least {
            (*fate, claim.share) = (Fate::Run, claim.share - WHOLE);
            self.taken += 1;
        }
        claim.share = claim.share.min(WHOLE);
    }
}
