//! How long it takes until the workers have caught up, whatever was before.
//!
//! A *calm* instant is one at which no mandatory request waits and every worker is free within its `P`. Let no batch longer than `P` begin from
//! `t` on, no worker wait for a full one, and what runs at `t` end by `t + D'` if nothing stands still, `D' ≥ D`. Say that no instant until
//! `t + D' + x` is calm. What was mandatory at `t` has been begun or given up by `t + D`, so all that is begun behind `t + D'` came behind `t`; each worker
//! is free within its `P` of that, and as no start leaves nothing waiting, they begin one full batch after another: `σ(x - k·ℓ - δ)` requests by
//! `t + D' + x`, with what stalls and late dispatch take. No more than `α_m(D' + x + τ + 1 ns)` have come, up to `τ` early, and some of these still wait.
//! So the busy period behind a delay of `D' + k·ℓ + δ + τ + 1 ns` is not over, the last two of which nobody waits for: behind a worker that was busy
//! for long it can be much longer than one behind none. (What is read up to `δ` late was sent from `t - δ` on; but what reading takes of `δ` dispatch
//! does not, so it is over sooner by as much.)

use alloc::vec::Vec;

use crate::admission::{LONGEST_BUSY, System};
use crate::busy::BusyPeriod;
use crate::fallback::{Fallback, Fallbacks, longer};
use crate::stream::StreamSpec;
use crate::time::Span;

impl System {
    /// How long after any instant one is calm at the latest, if nothing breaks from then on and no longer batches begin: so long a change to a weaker
    /// promise may take, where requests of `streams` come up to `tolerance` early. `None` if that is not seen in a minute, or there may be more
    /// stalls meanwhile than a window has.
    #[must_use]
    pub fn time_to_calm<'a>(
        &self,
        streams: impl IntoIterator<Item = &'a StreamSpec>,
        tolerance: Span,
    ) -> Option<Span> {
        self.time_behind(Span::ZERO, streams, tolerance)
    }

    /// How long after a worker is lost, and after a batch takes longer, what the promises to `streams` fall back on then is in force at the latest, unless
    /// more goes wrong; `None` as in [`System::time_to_calm`], where there is nothing to fall back on, and with workers of several kinds: what is too late
    /// for the slow ones they leave to others, also if that is not full batches.
    #[must_use]
    pub fn times_to_fall_back<'a>(
        &self,
        streams: impl IntoIterator<Item = &'a StreamSpec>,
        fallbacks: Fallbacks,
    ) -> [Option<Span>; 2] {
        if self.workers.len() > 1 {
            return [None; 2];
        }
        let streams: Vec<_> = streams.into_iter().collect();
        let most = |systems: &[Self], longest: Span, Fallback { level, tolerance }: Fallback| {
            let specs: Vec<_> = streams.iter().map(|spec| spec.at_level(level)).collect();
            let times = systems.iter().map(|system| system.time_behind(longest, &specs, tolerance));
            times.collect::<Option<Vec<_>>>()?.into_iter().max()
        };
        // What runs may take longer too.
        let slow = longer(self.unstalled_latency());
        [
            fallbacks.worker_lost.and_then(|to| most(&self.with_a_worker_less(), Span::ZERO, to)),
            fallbacks.longer_batches.and_then(|to| most(self.with_longer_batches().as_slice(), slow, to)),
        ]
    }

    /// The same behind batches of up to `longest`, or a deadline if that is more.
    fn time_behind<'a>(
        &self,
        longest: Span,
        streams: impl IntoIterator<Item = &'a StreamSpec>,
        tolerance: Span,
    ) -> Option<Span> {
        let load: Vec<_> = streams.into_iter().filter_map(StreamSpec::demand).collect();
        let before = longest.max(self.deadline()) + self.reserve() + self.guard;
        let beyond = tolerance + Span::from_nanos(1);
        let calm = match load.is_empty() {
            true => before,
            false => {
                BusyPeriod::after(self, &load, before + beyond).length(LONGEST_BUSY)?.saturating_sub(beyond)
            }
        };
        self.stalls.is_none_or(|stalls| calm + stalls.length() <= stalls.window()).then_some(calm)
    }
}
