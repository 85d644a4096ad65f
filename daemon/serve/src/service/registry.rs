//! Who holds which stream of a service, and whether another one can be promised anything beside them.
//!
//! Locks are taken in this order: moving, admission, registry, scheduler (and an executor before a scheduler; all of it is in
//! `ARCHITECTURE.md`). The first two are held while a new stream is tested and waits for long batches, and the first one
//! while another service takes over; the others for as short as can be.

mod moves;

use std::collections::HashMap;
use std::sync::Arc;

use rt_core::{StreamId, StreamSpec};
use weir_client::RefusalCode;

use super::{Classes, Effects, Memory, Service, StreamView, lock, read, try_read};

use super::totals::Past;
pub(super) use moves::{Leeway, Moves};

/// The streams of a service by name.
#[derive(Clone, Default)]
pub struct Registry {
    streams: HashMap<String, Entry>,
    past: Past,
}

#[derive(Clone)]
struct Entry {
    id: StreamId,
    view: Arc<StreamView>,
    spec: StreamSpec,
    reserved: bool,
    held: bool,
}

/// A client's hold on a stream.
#[derive(Clone)]
pub struct Lease {
    pub service: Arc<Service>,
    pub id: StreamId,
    pub name: Arc<str>,
    /// How it is called in a recording.
    pub(super) recorded: Arc<str>,
    pub spec: StreamSpec,
    /// What a model with state remembers of the stream while this client holds it.
    pub memory: Arc<Memory>,
    /// Whether its requests are promised anything, as of the last one: the stream is, and its promise was not suspended.
    pub promised: bool,
    /// The classes of its requests.
    pub classes: Classes,
}

impl Lease {
    /// The service that serves the stream now: the one that gave it out, or who has taken over since.
    pub fn service(&mut self) -> &Arc<Service> {
        while let Some(next) = self.service.successor() {
            self.service = Arc::clone(next);
            self.classes.follow(&self.service.plan.config, &self.name);
        }
        &self.service
    }
}

/// Why a stream is not given out.
#[derive(Debug)]
pub struct Refusal {
    pub code: RefusalCode,
    pub text: String,
}

impl Registry {
    /// Enters the reserved streams of the configuration, which the plan has admitted.
    ///
    /// # Errors
    /// If there are more than the service may have.
    pub fn reserve(service: &Arc<Service>) -> anyhow::Result<()> {
        let mut registry = service.registry.lock();
        for stream in &service.plan.config.reserved {
            let view = Arc::new(StreamView::new(&stream.name, &stream.spec));
            let mut scheduler = service.scheduler();
            let now = scheduler.now;
            let id = scheduler.add_stream(now, stream.spec.clone(), &view)?;
            drop(scheduler);
            let entry = Entry { id, view, spec: stream.spec.clone(), reserved: true, held: false };
            registry.streams.insert(stream.name.clone(), entry);
        }
        Ok(())
    }

    /// Gives the stream `name` to a client, its requests of that `class` unless they say otherwise: a reserved one if `spec` is `None`, else a new one if its promise
    /// can be kept beside all others. Requests go on meanwhile; while a new stream is tested and waits for long
    /// batches only other new ones wait behind it. Without `patience` it is `None` if all would have to wait, for
    /// another service is to take over.
    ///
    /// # Errors
    /// A [`Refusal`] with the number of the protocol.
    pub fn register(
        service: &Arc<Service>,
        effects: &mut Effects,
        (name, spec, class): (&str, Option<StreamSpec>, Option<&str>),
        patience: bool,
    ) -> Option<Result<Lease, Refusal>> {
        let still = if patience { read(&service.moving) } else { try_read(&service.moving)? };
        if let Some(next) = service.successor() {
            drop(still);
            return Self::register(next, effects, (name, spec, class), patience);
        }
        let lease = Classes::of(&service.plan.config, name, class)
            .and_then(|classes| Ok((classes, Self::give_out(service, name, spec)?)));
        let lease = lease.map(|(classes, (id, spec))| {
            let (service, memory, promised) = (Arc::clone(service), Arc::default(), spec.demand().is_some());
            let recorded = service.recorded_as(name);
            Lease { service, id, name: name.into(), recorded, spec, memory, promised, classes }
        });
        drop(still);
        // What a restarted stream still had waiting was cancelled: carry it out.
        service.with_scheduler(effects, |_, _| {});
        Some(lease)
    }

    fn give_out(
        service: &Service,
        name: &str,
        spec: Option<StreamSpec>,
    ) -> Result<(StreamId, StreamSpec), Refusal> {
        let reserved = service.plan.config.reserved.iter().any(|stream| stream.name == name);
        let _turn = (!reserved).then(|| lock(&service.device.admission));
        let mut registry = service.registry.lock();
        if service.is_closed() {
            return Err(refuse(RefusalCode::UnknownService, format!("service {} has ended", service.name())));
        }
        match (registry.streams.get_mut(name), spec) {
            (Some(entry), _) if entry.held => {
                Err(refuse(RefusalCode::NameInUse, format!("stream {name} is in use")))
            }
            (Some(entry), None) => {
                let fresh = service.scheduler().restart_stream(entry.id);
                let id = fresh.ok_or_else(|| refuse(RefusalCode::UnknownStream, name.to_owned()))?;
                (entry.id, entry.held) = (id, true);
                Ok((id, entry.spec.clone()))
            }
            (Some(_), Some(_)) => Err(refuse(
                RefusalCode::NameInUse,
                format!(
                    "stream {name} is reserved by the configuration: register it without constraints and arrivals"
                ),
            )),
            (None, spec) => {
                let spec = service.plan.config.laddered(spec.unwrap_or_else(StreamSpec::best_effort));
                if !service.plan.config.background && spec.arrivals().is_none() {
                    let text = format!(
                        "service {} has background = false: stream {name} must declare how its requests come",
                        service.name()
                    );
                    return Err(refuse(RefusalCode::InvalidArrivals, text));
                }
                drop(registry);
                let view = Arc::new(StreamView::new(name, &spec));
                let id = service.add_stream(&spec, &view)?;
                let entry = Entry { id, view, spec: spec.clone(), reserved: false, held: true };
                service.registry.lock().streams.insert(name.to_owned(), entry);
                service.record_declared(name, &spec);
                Ok((id, spec))
            }
        }
    }

    /// Takes a stream back from a client; what waits of it is cancelled.
    pub fn release(lease: &Lease, effects: &mut Effects) {
        let service = &lease.service;
        let mut guard = service.registry.lock();
        if let Some(next) = service.successor() {
            drop(guard);
            return Self::release(&Lease { service: Arc::clone(next), ..lease.clone() }, effects);
        }
        let registry = &mut *guard;
        let Some(entry) = registry.streams.get_mut(&*lease.name).filter(|e| e.id == lease.id) else { return };
        registry.past.add(&lease.name, &entry.view.fared());
        if entry.reserved {
            let id = service.scheduler().restart_stream(lease.id).unwrap_or(lease.id);
            (entry.id, entry.held) = (id, false);
        } else {
            let retired = service.scheduler().remove_stream(lease.id);
            registry.streams.remove(&*lease.name);
            drop(retired);
        }
        drop(guard);
        service.with_scheduler(effects, |_, _| {});
    }

    /// Every stream: how it is seen, its declaration, whether reserved, whether a client holds it.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<StreamView>, &StreamSpec, bool, bool)> {
        self.streams.values().map(|e| (&e.view, &e.spec, e.reserved, e.held))
    }

    /// What has become of the requests of those that clients have given up.
    pub fn departed(&self) -> Vec<weir_client::status::Departed> {
        self.past.status()
    }

    /// The numbers of all streams.
    pub(super) fn ids(&self) -> Vec<StreamId> {
        self.streams.values().map(|entry| entry.id).collect()
    }

    /// The names of the streams that clients hold.
    pub fn held(&self) -> Vec<String> {
        self.streams.iter().filter(|(_, entry)| entry.held).map(|(name, _)| name.clone()).collect()
    }
}

pub(super) fn refuse(code: RefusalCode, text: String) -> Refusal {
    Refusal { code, text }
}
