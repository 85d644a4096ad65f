//! The door on D-Bus, for operators' tools and other programs of the box: `org.weir.Weir1`.

mod manager;
mod permit;
mod service;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::Severity;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use zbus::connection::{Builder, Connection};
use zbus::fdo::{ObjectManager, Properties};
use zbus::names::InterfaceName;
use zbus::object_server::SignalEmitter;

use super::{Announcement, ROOM};
use crate::backoff::Backoff;
use crate::config::BusConfig;
use crate::daemon::Daemon;
use crate::service::lock;
use manager::{Manager, worst};
use service::{Evidence, ServiceObject, WorkerObject};

/// The name on the bus.
const NAME: &str = "org.weir.Weir1";
/// The object of the box; services lie below it.
const ROOT: &str = "/org/weir/Weir1";
/// Pauses between attempts to reach a bus: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long others on the bus may take to answer us.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way to the thread that keeps us on the bus.
pub(crate) struct Bus {
    config: BusConfig,
    queue: Sender<Arc<Announcement>>,
    /// Until the thread starts.
    announcements: Mutex<Option<Receiver<Arc<Announcement>>>>,
    stop: Arc<Notify>,
}

impl Bus {
    /// A door that is still closed; `None` if it is to stay so.
    pub(super) fn new(config: &BusConfig) -> Option<Self> {
        let (queue, announcements) = channel(ROOM);
        let (config, announcements) = (config.clone(), Mutex::new(Some(announcements)));
        (config != BusConfig::Off).then_some(Self { config, queue, announcements, stop: Arc::default() })
    }

    /// Starts the thread, which serves `daemon` on the bus whenever there is one.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(&self, daemon: &Arc<Daemon>) -> Result<JoinHandle<()>> {
        let announcements = lock(&self.announcements).take().context("the bus is served already")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .context("D-Bus")?;
        let (daemon, config, stop) = (Arc::clone(daemon), self.config.clone(), Arc::clone(&self.stop));
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stop.notified() => {}
                    () = keep(&config, &daemon, announcements) => {}
                }
            });
            // A plan that is being computed for somebody is not waited for.
            runtime.shutdown_background();
        };
        Ok(std::thread::Builder::new().name("bus".to_owned()).spawn(run)?)
    }

    /// False if there is no room.
    pub(super) fn put(&self, announcement: &Arc<Announcement>) -> bool {
        self.queue.try_send(Arc::clone(announcement)).is_ok()
    }

    /// Leaves the bus; the thread ends.
    pub(super) fn close(&self) {
        self.stop.notify_one();
    }
}

/// Stays on the bus, and comes back to it. What is announced while there is none has no listeners.
async fn keep(config: &BusConfig, daemon: &Arc<Daemon>, mut announcements: Receiver<Arc<Announcement>>) {
    let (mut pauses, mut absent) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), false);
    loop {
        match connect(config, daemon).await {
            Ok(connection) => {
                if absent {
                    eprintln!("weir: D-Bus: on the bus as {NAME}");
                }
                pauses.reset();
                absent = true;
                serve(&connection, daemon, &mut announcements).await;
                eprintln!("weir: D-Bus: the bus has gone; served without it until it is back");
            }
            Err(error) => {
                if !absent {
                    eprintln!("weir: D-Bus: served without it until there is a bus: {error}");
                }
                absent = true;
            }
        }
        let unheard = async { while announcements.recv().await.is_some() {} };
        // The pause always ends this: the sender lives as long as the thread.
        let _ = tokio::time::timeout(pauses.pause(), unheard).await;
    }
}

/// Takes our name, with every object in place.
async fn connect(config: &BusConfig, daemon: &Arc<Daemon>) -> zbus::Result<Connection> {
    let builder = match config {
        BusConfig::System | BusConfig::Off => Builder::system(),
        BusConfig::Session => Builder::session(),
        BusConfig::Address(address) => Builder::address(address.as_str()),
    };
    let manager = Manager::new(Arc::clone(daemon));
    let mut builder = builder.method_timeout(PATIENCE).serve_at(ROOT, ObjectManager).serve_at(ROOT, manager);
    for service in &daemon.services() {
        let path = service_path(service.name());
        for id in 0..service.plan.workers().count {
            let worker = WorkerObject::new(Arc::clone(service), id);
            builder = builder.serve_at(format!("{path}/worker/{id}"), worker);
        }
        builder = builder.serve_at(path, ServiceObject::new(Arc::clone(service)));
    }
    builder.name(NAME).build().await
}

/// Tells what is announced until the bus goes.
async fn serve(connection: &Connection, daemon: &Daemon, announcements: &mut Receiver<Arc<Announcement>>) {
    let mut told = worst(daemon);
    loop {
        tokio::select! {
            () = connection.closed() => return,
            Some(announcement) = announcements.recv() => {
                if let Err(error) = tell(connection, daemon, &announcement, &mut told).await
                    && !connection.is_closed()
                {
                    eprintln!("weir: D-Bus: service {}: {error}", announcement.service);
                }
            }
        }
    }
}

/// Sends the signals of one announcement; `told` is the state of the box that was sent last.
async fn tell(
    connection: &Connection,
    daemon: &Daemon,
    announcement: &Announcement,
    told: &mut Severity,
) -> zbus::Result<()> {
    let emitter = SignalEmitter::new(connection, service_path(&announcement.service))?;
    let Announcement { severity, sequence, breaches, .. } = *announcement;
    let (state, cause) = (severity as u32, announcement.cause_number());
    let entered = announcement.entered.as_nanos() / 1_000;
    let evidence = Evidence::of(announcement);
    ServiceObject::safe_mode_changed(&emitter, state, cause, sequence, entered, breaches, &evidence).await?;
    let changed = HashMap::from([
        ("State", state.into()),
        ("Cause", cause.into()),
        ("Sequence", sequence.into()),
        ("EnteredUsec", if cause == 0 { 0 } else { entered }.into()),
        ("Breaches", breaches.into()),
        ("Evidence", evidence.into()),
    ]);
    let interface = InterfaceName::from_static_str_unchecked("org.weir.Weir1.Service");
    Properties::properties_changed(&emitter, interface, changed, [].as_slice().into()).await?;
    let now = worst(daemon);
    if now != *told {
        *told = now;
        let emitter = SignalEmitter::new(connection, ROOT)?;
        let interface = InterfaceName::from_static_str_unchecked("org.weir.Weir1.Manager");
        let changed = HashMap::from([("State", (now as u32).into())]);
        Properties::properties_changed(&emitter, interface, changed, [].as_slice().into()).await?;
    }
    Ok(())
}

/// The object of a service: what is no letter and no digit in its name becomes `_` and two hexadecimal digits, and so
/// does a digit at its beginning, as systemd writes unit names.
fn service_path(name: &str) -> String {
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
}
