//! The objects on the bus below the manager's: they follow what is served, and tell what has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rt_core::Severity;
use tokio::sync::Mutex;
use zbus::fdo::Properties;
use zbus::names::InterfaceName;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, ObjectServer, Variant};

use super::service::{Facts, ServiceObject, WorkerObject};
use crate::overview::Overview;
use weir_serve::service::{Service, WorkerView};

/// The object of the box; services lie below it.
pub(super) const ROOT: &str = "/org/weir/Weir1";

/// The objects of one connection.
pub(super) struct Tree {
    overview: Arc<Overview>,
    told: Mutex<Told>,
}

/// What the bus was told last.
struct Told {
    state: u32,
    shown: BTreeMap<String, Shown>,
}

/// A service with its objects, and what was told of it last.
struct Shown {
    service: Arc<Service>,
    path: String,
    state: u32,
    standing: Facts,
    facts: Facts,
    /// Of each worker.
    alive: Vec<bool>,
}

impl Tree {
    /// Without objects yet.
    pub(super) fn new(overview: Arc<Overview>) -> Self {
        let told = Told { state: Severity::Normal as u32, shown: BTreeMap::new() };
        Self { overview, told: Mutex::new(told) }
    }

    /// Has objects come and go as services and workers have, and tells which of their properties are different from
    /// what was told last.
    ///
    /// # Errors
    /// If the bus takes no more.
    pub(super) async fn follow(&self, connection: &Connection) -> zbus::Result<()> {
        let mut told = self.told.lock().await;
        let services = self.overview.served.services();
        let is_gone = |shown: &Shown| !services.iter().any(|service| is_heir(service, &shown.service));
        let gone: Vec<_> = told.shown.extract_if(.., |_, shown| is_gone(shown)).collect();
        for (_, shown) in gone {
            shown.hide(connection.object_server()).await?;
        }
        for service in &services {
            match told.shown.get_mut(service.name()) {
                Some(shown) => shown.update(connection, service).await?,
                None => {
                    let shown = Shown::show(connection.object_server(), service).await?;
                    told.shown.insert(service.name().to_owned(), shown);
                }
            }
        }
        let states = told.shown.values().map(|shown| shown.state);
        let state = states.max().unwrap_or(Severity::Normal as u32);
        if std::mem::replace(&mut told.state, state) != state {
            tell(connection, ROOT, "org.weir.Weir1.Manager", vec![("State", state.into())]).await?;
        }
        Ok(())
    }
}

impl Shown {
    /// Puts the objects of a service in their places.
    async fn show(server: &ObjectServer, service: &Arc<Service>) -> zbus::Result<Self> {
        let (object, path) = (ServiceObject::new(Arc::clone(service)), service_path(service.name()));
        let (state, standing, facts) = (object.state(), object.standing(), object.facts());
        server.at(path.as_str(), object).await?;
        let alive = alive(service);
        let shown = Self { service: Arc::clone(service), path, state, standing, facts, alive };
        for id in 0..shown.alive.len() {
            server.at(shown.worker_path(id), WorkerObject::new(Arc::clone(service), id)).await?;
        }
        Ok(shown)
    }

    /// Takes them away.
    async fn hide(&self, server: &ObjectServer) -> zbus::Result<()> {
        for id in 0..self.alive.len() {
            server.remove::<WorkerObject, _>(self.worker_path(id)).await?;
        }
        server.remove::<ServiceObject, _>(self.path.as_str()).await?;
        Ok(())
    }

    /// Tells what has changed since; `service` is the one there is now.
    async fn update(&mut self, connection: &Connection, service: &Arc<Service>) -> zbus::Result<()> {
        let server = connection.object_server();
        let object = ServiceObject::new(Arc::clone(service));
        let (before, now) = (self.alive.len(), alive(service));
        for id in now.len()..before {
            server.remove::<WorkerObject, _>(self.worker_path(id)).await?;
        }
        if !Arc::ptr_eq(&self.service, service) {
            // Objects that named the service before would keep it in memory.
            self.service = Arc::clone(service);
            let place = server.interface::<_, ServiceObject>(self.path.as_str()).await?;
            place.get_mut().await.follow(service);
            for id in 0..before.min(now.len()) {
                let place = server.interface::<_, WorkerObject>(self.worker_path(id)).await?;
                place.get_mut().await.follow(service);
            }
        }
        for id in before..now.len() {
            server.at(self.worker_path(id), WorkerObject::new(Arc::clone(service), id)).await?;
        }
        for (id, _) in self.alive.iter().zip(&now).enumerate().filter(|(_, (before, now))| before != now) {
            let state = WorkerObject::new(Arc::clone(service), id).state();
            let changes = vec![("State", state.into())];
            tell(connection, &self.worker_path(id), "org.weir.Weir1.Worker", changes).await?;
        }
        self.alive = now;
        let mut changes = difference(&mut self.facts, object.facts());
        // While announcements are held back the state is not told on this way either.
        if !object.is_inhibited() {
            self.state = object.state();
            changes.extend(difference(&mut self.standing, object.standing()));
        }
        tell(connection, &self.path, "org.weir.Weir1.Service", changes).await
    }

    fn worker_path(&self, id: usize) -> String {
        format!("{}/worker/{id}", self.path)
    }
}

/// Of each worker, whether it is there and not lost.
fn alive(service: &Service) -> Vec<bool> {
    service.latest().view().workers().map(|does| does != WorkerView::Lost).collect()
}

/// Whether `service` is `earlier`, or has taken over from it.
fn is_heir(service: &Service, earlier: &Service) -> bool {
    let latest = service.latest();
    // Another may take over between the two looks.
    std::ptr::eq(earlier.latest(), latest) || std::ptr::eq(earlier.latest(), service.latest())
}

/// Replaces what was `told` by what is so `now`; the difference.
fn difference(told: &mut Facts, now: Facts) -> Facts {
    let before = std::mem::replace(told, now);
    told.iter().zip(&before).filter(|(now, before)| now != before).map(|(now, _)| now.clone()).collect()
}

/// Sends the signal that these properties have changed, if any have.
async fn tell(
    connection: &Connection,
    path: &str,
    interface: &'static str,
    changes: Facts,
) -> zbus::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let emitter = SignalEmitter::new(connection, path)?;
    let interface = InterfaceName::from_static_str_unchecked(interface);
    let changes: HashMap<&str, Variant<'_>> = changes.into_iter().collect();
    Properties::properties_changed(&emitter, interface, changes, [].as_slice().into()).await?;
    Ok(())
}

/// The object of a service: what is no letter and no digit in its name becomes `_` and two hexadecimal digits, and so
/// does a digit at its beginning, as systemd writes unit names.
pub(super) fn service_path(name: &str) -> String {
    let mut path = format!("{ROOT}/service/");
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit()) {
            path.push(byte.into());
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_a_path_of_its_own() {
        assert_eq!(service_path("lanes"), "/org/weir/Weir1/service/lanes");
        assert_eq!(service_path("9a-b_c.d/e9"), "/org/weir/Weir1/service/_39a_2db_5fc_2ed_2fe9");
        assert!(zbus::ObjectPath::try_from(service_path("9a-b_c.d/e9")).is_ok());
    }

    #[test]
    fn only_what_is_different_is_told() {
        let facts =
            |rate: f64, alive: u32| vec![("CertifiedRate", rate.into()), ("WorkersAlive", alive.into())];
        let mut told = facts(3.5, 2);
        assert_eq!(difference(&mut told, facts(3.5, 1)), [("WorkersAlive", Variant::from(1u32))]);
        assert_eq!(difference(&mut told, facts(3.5, 1)), []);
        assert_eq!(told, facts(3.5, 1));
    }
}
