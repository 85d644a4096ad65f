//! The shield of a service while streams come and go: behind it batches may take longer, of more requests or with a better
//! variant.
//!
//! It counts the streams that are there and, as long as there is room, one at the promised rate. Who registers a
//! stream that it counts gets it at once. For any other a new shield is worked out; then long batches are held back
//! until none is in its way any more, at most for a deadline and the busy period that follows. A stream that leaves
//! stays counted until then: its shield protects the others all the same.

use std::sync::Arc;
use std::time::Duration;

use rt_core::pipeline::PipelineShield;
use rt_core::sharing::SharedShield;
use rt_core::{Fallbacks, Instant, Joined, Load, Newcomer, Shield, Span, StreamId, StreamSpec};
use weir_client::RefusalCode;

use super::guarded::Margins;
use super::registry::{Refusal, refuse};
use super::{Held, Service, StreamView};
use tracing::warn;
use weir_os::clock;
use weir_os::realtime::calmly;
use weir_plan::plan::Share;

/// How often it is looked whether long batches are out of the way.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a stream waits for that at most, beside two deadlines.
const PATIENCE: Span = Span::from_millis(1_000);

/// How often a shield is worked out anew for others who have come meanwhile.
const RENEWALS: usize = 8;

/// A shield of a service, or of a pipeline.
#[expect(clippy::large_enum_variant, reason = "a box would be freed while others wait for the scheduler")]
pub(super) enum AnyShield {
    Alone(Shield),
    Staged(PipelineShield),
}

impl AnyShield {
    fn alone(self) -> Option<Shield> {
        match self {
            Self::Alone(shield) => Some(shield),
            Self::Staged(_) => None,
        }
    }
}

/// What the promises of all services of a device, or of a pipeline, leave room for; nothing of another service.
struct Together {
    /// By how much batches may run over in all.
    margin: Span,
    /// What may go before them.
    shield: Option<SharedShield>,
}

/// Sets the first shield of a device, before anything runs.
pub(super) fn raise_together(services: &[Arc<Service>]) {
    let Some((first, share)) = services.first().and_then(|first| Some((first, first.plan.shared.as_ref()?)))
    else {
        return;
    };
    let reserved = |service: &Arc<Service>| {
        service.plan.config.reserved.iter().map(|stream| stream.spec.clone()).collect()
    };
    let streams: Vec<_> = services.iter().map(reserved).collect();
    let shield = calmly(|| share.device.shield(&streams, &share.device.admission));
    let _none = first.scheduler().set_shared_shield(shield);
}

impl Service {
    /// Sets the first shield, how early requests may come, and what promises fall back on, before anything runs.
    pub(super) fn raise_shield(&self) {
        let reserved: Vec<_> = self.plan.config.reserved.iter().map(|s| &s.spec).collect();
        let (shield, tolerance) = (self.work_out_shield(&reserved), self.work_out_tolerance(&reserved));
        let fallbacks = self.work_out_fallbacks(&reserved);
        let margin = self.plan.overrun_margin(reserved.iter().copied());
        let mut scheduler = self.scheduler();
        scheduler.set_tolerance(tolerance);
        let now = scheduler.now;
        scheduler.set_fallbacks(now, fallbacks);
        if self.plan.pipeline.is_some() {
            scheduler.set_overrun_margins(now, Margins::new(margin));
        }
        let _before = self.set_shield(&mut scheduler, shield);
    }

    /// Adds a stream once it is admitted beside all that count, and no long batch is in its way, nor in a closed service
    /// what was begun for streams that have gone. Blocks until then.
    ///
    /// # Errors
    /// If it cannot be promised what it asks beside the others, there are too many streams, or something stays in its way.
    pub(super) fn add_stream(&self, spec: &StreamSpec, view: &Arc<StreamView>) -> Result<StreamId, Refusal> {
        let before = self.scheduler().overrun_margin();
        self.add_beside_all(spec, view).inspect_err(|_| {
            let mut scheduler = self.scheduler();
            let now = scheduler.now;
            scheduler.withdraw_newcomer(now, before);
        })
    }

    fn add_beside_all(&self, spec: &StreamSpec, view: &Arc<StreamView>) -> Result<StreamId, Refusal> {
        let config = self.scheduler().config().clone();
        let most = config.deadline + config.deadline + PATIENCE;
        let until = clock::now() + most;
        loop {
            let load = self.scheduler().load();
            let Together { margin, shield: together } = self.admit(spec, &load)?;
            let margin = spec.demand().map(|_| margin);
            let shielded = load.is_shielded(spec);
            let all = || load.specs().chain([spec]).collect::<Vec<_>>();
            // That of a pipeline counts who is there, and is set once this one is.
            let later = shielded || self.plan.pipeline.is_some();
            let shield = if later { None } else { self.work_out_shield(&all()) };
            let newcomer = match &self.plan.pipeline {
                Some(pipeline) => pipeline.pipeline.newcomer(&config, spec.clone()),
                None => Newcomer::new(&config, spec.clone()),
            };
            let newcomer = newcomer.beside(&load).shielded(shield.and_then(AnyShield::alone));
            let newcomer = newcomer.tolerant(&config, self.work_out_tolerance(&all()));
            let newcomer = newcomer.falling_back(self.work_out_fallbacks(&all()));
            if let Some(id) = self.add_when_ready((newcomer, margin), together, view, until)? {
                self.renew_shield();
                return Ok(id);
            }
            if clock::now() >= until {
                let text = format!(
                    "what was begun before is still in the way of this stream after {most}: try again"
                );
                return Err(refuse(RefusalCode::NotAdmissible, text));
            }
        }
    }

    /// Has the shield of a pipeline count all who are there. Until then no batch takes longer than a full one of the base.
    fn renew_shield(&self) {
        // Who comes meanwhile does the same, and may have counted others.
        for _ in 0..RENEWALS {
            let load = {
                let scheduler = self.scheduler();
                let staged = scheduler.staged().filter(|staged| !staged.scheduler.is_shielded());
                staged.map(|_| scheduler.load())
            };
            let Some(load) = load else { return };
            let Some(shield) = self.work_out_shield(&load.specs().collect::<Vec<_>>()) else { return };
            let before = self.set_shield(&mut self.scheduler(), Some(shield));
            // Nobody waits for what that frees.
            drop(before);
        }
    }

    /// Adds a stream that was admitted once nothing is in its way, with what all leave room for then; `None` if others came
    /// meanwhile, or `until` has come.
    fn add_when_ready(
        &self,
        (mut newcomer, margin): (Newcomer, Option<Span>),
        mut together: Option<SharedShield>,
        view: &Arc<StreamView>,
        until: Instant,
    ) -> Result<Option<StreamId>, Refusal> {
        let too_many = |e: rt_core::StreamError| refuse(RefusalCode::TooManyStreams, e.to_string());
        loop {
            let (joined, _before) = {
                let mut scheduler = self.scheduler();
                let now = scheduler.now;
                let joined = scheduler.try_add_stream(now, (newcomer, margin), view);
                // The one before does not count it. Who is admitted on a device is alone in that.
                let added = matches!(joined, Ok(Joined::Added(..))) && self.plan.shared.is_some();
                (joined, if added { scheduler.set_shared_shield(together.take()) } else { None })
            };
            // What it brings and no longer needs is dropped here, where nobody waits for the scheduler.
            newcomer = match joined.map_err(too_many)? {
                Joined::Added(id, _) => return Ok(Some(id)),
                Joined::Stale(_) => return Ok(None),
                Joined::Wait(newcomer) => newcomer,
            };
            if clock::now() >= until {
                return Ok(None);
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    /// Whether `spec` can be promised beside what counts; what that leaves room for where services share the workers.
    fn admit(&self, spec: &StreamSpec, load: &Load) -> Result<Together, Refusal> {
        if let Some(share) = &self.plan.shared {
            return self.admit_on_device(share, spec);
        }
        let (queue, there) = (self.plan.config.queue, load.specs().count());
        match calmly(|| self.plan.room(load.specs().chain([spec]))) {
            Err(error) => Err(format!("beside {there} other promised streams: {error}")),
            Ok((waiting, _)) if waiting > queue as u64 => Err(format!(
                "beside {there} other promised streams up to {waiting} requests that must be served can wait, queue = {queue}"
            )),
            Ok((_, margin)) => Ok(Together { margin, shield: None }),
        }
        .map_err(|text| refuse(RefusalCode::NotAdmissible, text))
    }

    /// The same where other services share the workers: beside what counts of them as well.
    fn admit_on_device(&self, share: &Share, spec: &StreamSpec) -> Result<Together, Refusal> {
        let services: Vec<_> = self.device.services().collect();
        let mut streams: Vec<Vec<StreamSpec>> =
            services.iter().map(|service| service.scheduler().load().specs().cloned().collect()).collect();
        let there: usize = streams.iter().map(Vec::len).sum();
        streams[self.index].push(spec.clone());
        let queue_of = |service: usize| services[service].plan.config.queue;
        let together = calmly(|| {
            let admission = share.device.admit(&streams, queue_of)?;
            let shield = share.device.shield(&streams, &admission);
            Ok(Together { margin: admission.overrun_margin(), shield })
        });
        together.map_err(|error: String| {
            let device = self.plan.device_name();
            let text = format!("beside {there} other promised streams of device {device}: {error}");
            refuse(RefusalCode::NotAdmissible, text)
        })
    }

    /// A shield for `load`; `None` where no batch may take longer than a full one of the base.
    pub(super) fn work_out_shield(&self, load: &[&StreamSpec]) -> Option<AnyShield> {
        if let Some(pipeline) = self.plan.pipeline.as_ref().filter(|pipeline| pipeline.has_variants()) {
            let more = self.plan.promised_stream().map(|(_, spec)| spec);
            return calmly(|| pipeline.shield(load, more.as_ref())).map(AnyShield::Staged);
        }
        let workers = self.plan.workers();
        let larger = workers.profile.max_batch() > workers.batch;
        if self.plan.shared.is_some()
            || !self.plan.kinds.is_empty()
            || self.plan.pipeline.is_some()
            || self.plan.is_absorbed()
            || !self.plan.config.background
            || !larger && self.plan.selector.is_none()
        {
            return None;
        }
        calmly(|| self.plan.shield(load))
            .inspect_err(|e| warn!("service {}: base only: {e}", self.name()))
            .ok()
            .map(AnyShield::Alone)
    }

    /// How early requests may come where these are promised something.
    pub(super) fn work_out_tolerance(&self, load: &[&StreamSpec]) -> Span {
        calmly(|| self.plan.tolerance(load.iter().copied()))
    }

    /// What the promises to these fall back on.
    pub(super) fn work_out_fallbacks(&self, load: &[&StreamSpec]) -> Fallbacks {
        calmly(|| self.plan.fallbacks(load.iter().copied()))
    }

    /// Hands out the shield before of a pipeline, which is to be dropped where nobody waits.
    pub(super) fn set_shield(&self, held: &mut Held<'_>, shield: Option<AnyShield>) -> Option<AnyShield> {
        let alone = match shield {
            Some(AnyShield::Staged(shield)) => {
                return held.set_staged_shield(Some(shield)).map(AnyShield::Staged);
            }
            Some(AnyShield::Alone(shield)) => Some(shield),
            None => None,
        };
        if let Err(error) = held.set_shield(alone).map(drop) {
            warn!("service {}: base only: {error}", self.name());
        }
        None
    }
}
