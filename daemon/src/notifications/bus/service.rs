//! The objects of a service and of its workers: what they are, and how they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rt_core::WorkerId;
use serde::{Deserialize, Serialize};
use zbus::object_server::SignalEmitter;
use zbus::{Type, Variant};

use super::{Announcement, State};
use weir_os::clock;
use weir_serve::service::{AlarmView, Service, Standing, WorkerView};

/// Properties and their values, always in the same order.
pub(super) type Facts = Vec<(&'static str, Variant<'static>)>;

/// Why the state is not normal, in the units of its cause; zeroes and empty in the normal state, but for the stream that
/// it is the state of.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Type, Variant)]
pub(super) struct Evidence {
    limit: u64,
    seen: u64,
    window: u64,
    stream: String,
    text: String,
}

impl Evidence {
    pub(super) fn of(announcement: &Announcement) -> Self {
        let Announcement { evidence, stream, text, cause, .. } = announcement;
        match announcement.state {
            State::Service(_) if cause.is_none() => return Self::default(),
            State::Stream(_) if cause.is_none() => return Self { stream: stream.clone(), ..Self::default() },
            _ => {}
        }
        let (stream, text) = (stream.clone(), text.clone());
        Self { limit: evidence.limit, seen: evidence.seen, window: evidence.window, stream, text }
    }
}

/// A stage of a pipeline.
#[derive(Clone, Debug, Serialize, Deserialize, Type, Variant)]
pub(super) struct StageFacts {
    name: String,
    model: String,
    /// The stage whose results it takes; empty for the first.
    after: String,
    workers: u32,
    workers_alive: u32,
    waiting: u32,
}

/// What came of the requests of a class since the start.
#[derive(Clone, Debug, Serialize, Deserialize, Type, Variant)]
pub(super) struct ClassFacts {
    name: String,
    /// That have ended.
    requests: u64,
    answered: u64,
    /// Of those that were answered.
    late: u64,
    missed: u64,
    /// On average, a missed one nothing; 0 where none has ended.
    worth: f64,
}

/// `org.weir.Weir1.Service`.
pub(super) struct ServiceObject {
    service: Arc<Service>,
}

impl ServiceObject {
    pub(super) fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    /// Goes on with `service`, which has taken over.
    pub(super) fn follow(&mut self, service: &Arc<Service>) {
        self.service = Arc::clone(service);
    }

    /// What is told of the state of the promise when it changes.
    pub(super) fn standing(&self) -> Facts {
        vec![
            ("State", self.state().into()),
            ("Cause", self.cause().into()),
            ("Sequence", self.sequence().into()),
            ("EnteredUsec", self.entered_usec().into()),
            ("Breaches", self.breaches().into()),
            ("Demoted", self.demoted().into()),
            ("Evidence", self.evidence().into()),
            ("SuspendedStreams", self.suspended_streams().into()),
            ("Level", self.level().into()),
            ("DegradedStreams", self.degraded_streams().into()),
            ("SuspensionSequence", self.suspension_sequence().into()),
        ]
    }

    /// What else is told when it changes: by a reload, or because workers are lost and return.
    pub(super) fn facts(&self) -> Facts {
        vec![
            ("CertifiedRate", self.certified_rate().into()),
            ("DeadlineUsec", self.deadline_usec().into()),
            ("GuardUsec", self.guard_usec().into()),
            ("Workers", self.workers().into()),
            ("WorkersAlive", self.workers_alive().into()),
        ]
    }

    /// Whether announcements are held back.
    pub(super) fn is_inhibited(&self) -> bool {
        self.seen().inhibited_until > clock::now()
    }

    fn seen(&self) -> Standing {
        self.service.latest().view().standing()
    }
}

#[zbus::interface(name = "org.weir.Weir1.Service", introspection_docs = false)]
impl ServiceObject {
    #[zbus(property(emits_changed_signal = "const"))]
    fn name(&self) -> &str {
        self.service.name()
    }

    /// The device whose workers it shares with others; empty if they are its own.
    #[zbus(property(emits_changed_signal = "const"))]
    fn device(&self) -> &str {
        self.service.plan.shared_device().unwrap_or_default()
    }

    #[zbus(property)]
    pub(super) fn state(&self) -> u32 {
        self.seen().severity as u32
    }

    #[zbus(property)]
    fn cause(&self) -> u32 {
        self.seen().cause_number()
    }

    #[zbus(property)]
    fn sequence(&self) -> u64 {
        self.seen().sequence
    }

    /// When the state was entered, on the monotonic clock; 0 in the normal state.
    #[zbus(property)]
    fn entered_usec(&self) -> u64 {
        self.seen().alarm.map_or(0, |alarm| alarm.entered.as_nanos() / 1_000)
    }

    #[zbus(property)]
    fn breaches(&self) -> u64 {
        self.seen().breaches
    }

    /// Whether it is promised nothing for what its batches did to the others on its device.
    #[zbus(property)]
    fn demoted(&self) -> bool {
        self.seen().demoted
    }

    #[zbus(property)]
    fn evidence(&self) -> Evidence {
        let Some(alarm) = self.seen().alarm else { return Evidence::default() };
        let text = self.service.latest().words_of(&alarm);
        let AlarmView { limit, seen, window, stream, .. } = alarm;
        Evidence { limit, seen, window, stream, text }
    }

    /// The streams whose promises are suspended, by name.
    #[zbus(property)]
    fn suspended_streams(&self) -> Vec<String> {
        self.service.latest().suspended_streams()
    }

    /// The weakest promise that is in force in place of a stream's own, by its level from 1 on; 0 where every stream has its own, or
    /// nothing.
    #[zbus(property)]
    fn level(&self) -> u32 {
        self.degraded_streams().values().copied().max().unwrap_or(0)
    }

    /// The streams of which a weaker promise is in force, by name, and its level.
    #[zbus(property)]
    fn degraded_streams(&self) -> BTreeMap<String, u32> {
        let degraded = self.service.latest().degraded_streams().into_iter();
        degraded.map(|(name, level)| (name, level.into())).collect()
    }

    /// The number of the last suspension or its end.
    #[zbus(property)]
    fn suspension_sequence(&self) -> u64 {
        self.seen().suspensions.0
    }

    /// Until when nothing is announced, on the monotonic clock; past if all is.
    #[zbus(property(emits_changed_signal = "false"))]
    fn inhibited_until_usec(&self) -> u64 {
        self.seen().inhibited_until.as_nanos() / 1_000
    }

    /// Requests a second; 0 if nothing is certified.
    #[zbus(property)]
    fn certified_rate(&self) -> f64 {
        self.service.latest().plan.certified_per_s().unwrap_or(0.0)
    }

    /// Requests a second of streams that declare their arrivals; 0 if nothing is certified.
    #[zbus(property(emits_changed_signal = "false"))]
    fn measured_rate(&self) -> f64 {
        self.service.latest().rate_seen_per_s().unwrap_or(0.0)
    }

    /// By stream, of those with constraints.
    #[zbus(property(emits_changed_signal = "false"))]
    fn misses_left(&self) -> HashMap<String, u32> {
        let service = self.service.latest();
        let views: Vec<_> = service.registry.lock().iter().map(|(view, ..)| Arc::clone(view)).collect();
        views.iter().filter_map(|view| Some((view.name.clone(), view.fared().misses_left?))).collect()
    }

    #[zbus(property)]
    fn workers(&self) -> u32 {
        self.service.latest().plan.worker_count() as u32
    }

    #[zbus(property)]
    fn workers_alive(&self) -> u32 {
        self.service.latest().view().workers_alive() as u32
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn waiting(&self) -> u32 {
        self.service.latest().view().waiting() as u32
    }

    /// Of a pipeline, each with its place, its workers and what waits there.
    #[zbus(property(emits_changed_signal = "false"))]
    fn stages(&self) -> Vec<StageFacts> {
        let stages = weir_serve::status::stages(self.service.latest()).into_iter();
        let facts = stages.map(|stage| StageFacts {
            name: stage.name,
            model: stage.model,
            after: stage.parents.join(","),
            workers: stage.workers as u32,
            workers_alive: stage.workers_alive as u32,
            waiting: stage.waiting as u32,
        });
        facts.collect()
    }

    /// Of its requests, each with what came of them.
    #[zbus(property(emits_changed_signal = "false"))]
    fn classes(&self) -> Vec<ClassFacts> {
        let facts = |class: weir_client::status::Class| ClassFacts {
            name: class.name,
            requests: class.requests,
            answered: class.answered,
            late: class.late,
            missed: class.missed,
            worth: class.worth.unwrap_or(0.0),
        };
        self.service.latest().classes_status().into_iter().map(facts).collect()
    }

    #[zbus(property)]
    fn deadline_usec(&self) -> u64 {
        self.service.latest().plan.config.deadline.as_nanos() / 1_000
    }

    #[zbus(property)]
    fn guard_usec(&self) -> u64 {
        self.service.latest().plan.config.guard.as_nanos() / 1_000
    }

    /// How much of the guard was needed so far.
    #[zbus(property(emits_changed_signal = "false"))]
    fn guard_seen_usec(&self) -> u64 {
        self.seen().worst_delays.0.as_nanos() / 1_000
    }

    /// A change of state, or a further cause of it; a gap in `sequence` is what was missed.
    #[zbus(signal)]
    pub(super) async fn safe_mode_changed(
        emitter: &SignalEmitter<'_>,
        state: u32,
        cause: u32,
        sequence: u64,
        entered_usec: u64,
        breaches: u64,
        evidence: &Evidence,
    ) -> zbus::Result<()>;

    /// The stream that the evidence names is suspended, or no longer; a gap in `sequence` is what was missed.
    #[zbus(signal)]
    pub(super) async fn suspension_changed(
        emitter: &SignalEmitter<'_>,
        state: u32,
        cause: u32,
        sequence: u64,
        entered_usec: u64,
        breaches: u64,
        evidence: &Evidence,
    ) -> zbus::Result<()>;
}

/// `org.weir.Weir1.Worker`.
pub(super) struct WorkerObject {
    service: Arc<Service>,
    id: WorkerId,
}

impl WorkerObject {
    pub(super) fn new(service: Arc<Service>, id: WorkerId) -> Self {
        Self { service, id }
    }

    /// Goes on with `service`, which has taken over.
    pub(super) fn follow(&mut self, service: &Arc<Service>) {
        self.service = Arc::clone(service);
    }
}

#[zbus::interface(name = "org.weir.Weir1.Worker", introspection_docs = false)]
impl WorkerObject {
    #[zbus(property(emits_changed_signal = "const"))]
    fn service(&self) -> &str {
        self.service.name()
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn id(&self) -> u32 {
        self.id as u32
    }

    /// The stage of the pipeline that it is a worker of; empty of a service.
    #[zbus(property(emits_changed_signal = "false"))]
    fn stage(&self) -> String {
        let service = self.service.latest();
        let pipeline = service.plan.pipeline.as_ref().filter(|pipeline| self.id < pipeline.workers());
        let stage = pipeline.map(|pipeline| &pipeline.stages[pipeline.place_of(self.id).0]);
        stage.map_or_else(String::new, |stage| stage.config.runs.name.clone())
    }

    /// What workers like it are called, where a service has several kinds; empty otherwise.
    #[zbus(property(emits_changed_signal = "false"))]
    fn kind(&self) -> String {
        let service = self.service.latest();
        let there = self.id < service.plan.worker_count();
        there.then(|| service.plan.kind_of(self.id)).flatten().unwrap_or_default()
    }

    /// 1 free, 2 at work, 3 lost; that it is lost and that it has returned are told, each batch is not.
    #[zbus(property)]
    pub(super) fn state(&self) -> u32 {
        let worker = self.service.latest().view().workers().nth(self.id);
        worker.unwrap_or(WorkerView::Lost) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::announced::{overrun, suspension};

    #[test]
    fn the_evidence_names_its_stream_also_when_the_suspension_is_over() {
        let told = Evidence::of(&suspension(("lanes", "front"), 1, true));
        assert_eq!((told.limit, told.seen, told.window, told.stream.as_str()), (5, 6, 100_000_000, "front"));
        let over = Evidence::of(&suspension(("lanes", "front"), 2, false));
        assert_eq!((over.limit, over.stream.as_str(), over.text.as_str()), (0, "front", ""));
        assert_eq!(Evidence::of(&overrun("lanes", 1)).seen, 6_000);
    }
}
