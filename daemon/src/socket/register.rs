//! REGISTER: from the fields of the frame to a stream with a promise, or to the reason there is none.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Density, Span, StreamSpec};
use weir_client::wire::{CLASS_VERSION, DaemonFrame};
use weir_client::{ArrivalBound as WireBound, Constraint as WireConstraint};
use weir_client::{ClassInfo, RefusalCode, Registration, StreamInfo};

use super::Connection;
use super::session::DRAINING;
use crate::overview::Overview;
use weir_engine::{TensorSpec, packed_len};
use weir_oip::text::is_printable;
use weir_os::clock;
use weir_os::locks::lock;
use weir_os::realtime::{self, Role};
use weir_plan::config::RequestClass;
use weir_serve::service::{Effects, Lease, Refusal, Registry, Service};

/// Registrations of one connection that may wait for their turn.
const MAX_WAITING: usize = 16;

/// Registrations that take their time, in their order, in a thread beside the one that reads: the admission test is worked
/// out, it is waited until no long batch is in the way, or until another service has taken over. Meanwhile the
/// connection's other frames are served.
#[derive(Default)]
pub(super) struct Waiting {
    thread: Option<(SyncSender<Asked>, JoinHandle<()>)>,
    /// Those whose outcome has not been taken.
    open: usize,
    /// What has come of them.
    ended: Arc<Mutex<Vec<Ended>>>,
    /// The client has gone: what waits is of no use to it any more.
    gone: Arc<AtomicBool>,
}

/// The frame that asks for a stream.
type Asked = (u64, Registration);
/// The same, and what came of it.
type Ended = (u64, Result<Lease, Refusal>);

impl Waiting {
    /// Registers in the background; `connection` is woken when [`Waiting::take`] has something. Waits itself while as many
    /// as may be are before it.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn start(
        &mut self,
        overview: &Arc<Overview>,
        connection: &Arc<Connection>,
        asked: Asked,
    ) -> Result<(), Refusal> {
        let queue = match &self.thread {
            Some((queue, _)) => queue,
            None => &self.thread.insert(self.spawn(overview, connection)?).0,
        };
        let none = |_| Refusal { code: RefusalCode::TooManyStreams, text: "its thread has ended".to_owned() };
        queue.send(asked).map_err(none)?;
        self.open += 1;
        Ok(())
    }

    fn spawn(
        &self,
        overview: &Arc<Overview>,
        connection: &Arc<Connection>,
    ) -> Result<(SyncSender<Asked>, JoinHandle<()>), Refusal> {
        let (queue, asked) = sync_channel::<Asked>(MAX_WAITING);
        let (overview, connection) = (Arc::clone(overview), Arc::clone(connection));
        let (ended, gone) = (Arc::clone(&self.ended), Arc::clone(&self.gone));
        let run = move || {
            realtime::enter(Role::Dispatch, None, overview.config.daemon.realtime);
            for (id, registration) in asked.iter().take_while(|_| !gone.load(Ordering::Relaxed)) {
                let outcome = register(&overview, &registration, &mut Effects::default(), true);
                lock(&ended).extend(outcome.map(|outcome| (id, outcome)));
                connection.wake();
            }
        };
        let none = |error| Refusal { code: RefusalCode::TooManyStreams, text: format!("no thread: {error}") };
        let thread = std::thread::Builder::new().name("register".to_owned()).spawn(run).map_err(none)?;
        Ok((queue, thread))
    }

    /// What has ended since the last time.
    pub(super) fn take(&mut self) -> Vec<Ended> {
        let ended = std::mem::take(&mut *lock(&self.ended));
        self.open -= ended.len();
        ended
    }

    /// How many have not been taken yet.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// Waits for the one that is being worked out; the streams that were still given out.
    pub(super) fn finish(&mut self) -> Vec<Lease> {
        if let Some((queue, thread)) = self.thread.take() {
            self.gone.store(true, Ordering::Relaxed);
            drop(queue);
            // A panic there has told its message.
            let _ = thread.join();
        }
        self.take().into_iter().filter_map(|(_, outcome)| outcome.ok()).collect()
    }
}

/// Gives out a stream. Without `patience` it is `None` if that may have to be waited for, or take long to be worked out, as
/// for every stream that is not reserved; nothing has happened then.
///
/// # Errors
/// A [`Refusal`] that names the field, or the instant at which the promise would fail.
pub(crate) fn register(
    overview: &Overview,
    registration: &Registration,
    effects: &mut Effects,
    patience: bool,
) -> Option<Result<Lease, Refusal>> {
    let (service, spec) = match asked_for(overview, registration) {
        Ok(found) => found,
        Err(refusal) => return Some(Err(refusal)),
    };
    let name = registration.stream();
    if !patience && service.plan.config.reserved.iter().all(|stream| stream.name != name) {
        return None;
    }
    let outcome = Registry::register(&service, effects, (name, spec, registration.class()), patience)?;
    // Whatever the reason: this one is the last.
    Some(outcome.map_err(|refusal| if overview.served.is_draining() { draining() } else { refusal }))
}

/// The service of which a stream is wanted, and what it declares.
fn asked_for(
    overview: &Overview,
    registration: &Registration,
) -> Result<(Arc<Service>, Option<StreamSpec>), Refusal> {
    let refuse = |code, text: String| Refusal { code, text };
    if overview.served.is_draining() {
        return Err(draining());
    }
    let services = overview.served.services();
    let service = services.iter().find(|s| s.name() == registration.service()).ok_or_else(|| {
        let names: Vec<_> = services.iter().map(|s| s.name()).collect();
        let text = format!("no service {}; there are: {}", registration.service(), names.join(", "));
        refuse(RefusalCode::UnknownService, text)
    })?;
    let name = registration.stream();
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_printable) {
        let text =
            format!("stream name {name:?} must be 1..=64 bytes without control characters or invisible ones");
        return Err(refuse(RefusalCode::InvalidConstraint, text));
    }
    Ok((Arc::clone(service), spec(registration)?))
}

fn draining() -> Refusal {
    Refusal { code: RefusalCode::Draining, text: DRAINING.to_owned() }
}

/// The answer to a registration that was granted.
pub(super) fn registered(stream: u32, lease: &Lease, version: Option<u16>) -> DaemonFrame<'static> {
    let plan = &lease.service.plan;
    let classes = if version >= Some(CLASS_VERSION) { &plan.config.classes[..] } else { &[] };
    let density = lease.spec.demand().map_or(Density::ZERO, |_| plan.density(&lease.spec));
    DaemonFrame::Registered(Cow::Owned(StreamInfo {
        id: stream,
        input_bytes: packed_len(plan.spec.request()) as u32,
        deadline: clock::duration(plan.config.deadline),
        output_bytes: packed_len(plan.spec.answer()) as u32,
        density_numerator: density.numerator(),
        density_denominator: density.denominator(),
        accuracy: plan.spec.accuracy as f32,
        variant: plan.spec.name.clone(),
        inputs: plan.spec.request().iter().map(TensorSpec::info).collect(),
        outputs: plan.spec.answer().iter().map(TensorSpec::info).collect(),
        class: lease.classes.own(),
        classes: classes.iter().map(class).collect(),
        wanted: None,
        asked: None,
    }))
}

fn class(class: &RequestClass) -> ClassInfo {
    let [deadline, reach] = [class.deadline, class.reach].map(clock::duration);
    ClassInfo { name: class.name.clone(), deadline, reach }
}

/// What the frame declares; `None` if it declares nothing.
fn spec(registration: &Registration) -> Result<Option<StreamSpec>, Refusal> {
    let constraints: Result<Vec<_>, _> =
        registration.constraints().iter().enumerate().map(|(i, c)| constraint(i, *c)).collect();
    let bounds: Result<Vec<_>, _> =
        registration.arrivals().iter().enumerate().map(|(i, b)| bound(i, *b)).collect();
    let (constraints, bounds) = (constraints?, bounds?);
    let invalid = |text: String| Refusal { code: RefusalCode::InvalidArrivals, text };
    match (constraints.is_empty(), bounds.is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Err(invalid("a stream with constraints must declare how its requests come".into())),
        _ => {
            let set = ConstraintSet::new(&constraints)
                .map_err(|e| Refusal { code: RefusalCode::InvalidConstraint, text: e.to_string() })?;
            let curve = ArrivalCurve::new(&bounds).map_err(|e| invalid(e.to_string()))?;
            Ok(Some(StreamSpec::promised(set, curve)))
        }
    }
}

fn constraint(index: usize, wire: WireConstraint) -> Result<Constraint, Refusal> {
    let refuse = |text: String| Refusal {
        code: RefusalCode::InvalidConstraint,
        text: format!("constraint {index} ({wire}): {text}"),
    };
    match wire {
        WireConstraint::AnyMiss { misses, window } => Constraint::any_miss(misses, window),
        WireConstraint::AnyHit { hits, window } => Constraint::any_hit(hits, window),
        WireConstraint::RowMiss { misses } => Constraint::row_miss(misses),
        WireConstraint::RowHit { hits, window } => Constraint::row_hit(hits, window),
        WireConstraint::Unknown { form, .. } => return Err(refuse(format!("form {form} is not known"))),
    }
    .map_err(|error| refuse(error.to_string()))
}

fn bound(index: usize, wire: WireBound) -> Result<ArrivalBound, Refusal> {
    let refuse = |text: String| Refusal {
        code: RefusalCode::InvalidArrivals,
        text: format!("arrival bound {index}: {text}"),
    };
    let span = Span::from_nanos;
    match wire {
        WireBound::Window { count, length_ns } => ArrivalBound::window(count, span(length_ns)),
        WireBound::Periodic { period_ns, jitter_ns } => {
            ArrivalBound::periodic(span(period_ns), span(jitter_ns))
        }
        WireBound::TokenBucket { burst, period_ns } => ArrivalBound::token_bucket(burst, span(period_ns)),
        WireBound::Unknown { form, .. } => return Err(refuse(format!("form {form} is not known"))),
    }
    .map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests;
