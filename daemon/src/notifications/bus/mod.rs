//! Notifications on D-Bus, for operators' tools and other programs of the box: `org.weir.Weir1`.

mod manager;
mod permit;
mod service;
mod tree;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use zbus::connection::{Builder, Connection};
use zbus::fdo::ObjectManager;
use zbus::object_server::SignalEmitter;

use super::{Announcement, ROOM, State};
use crate::overview::Overview;
use crate::socket::Hub;
use manager::Manager;
use service::{Evidence, ServiceObject};
use tracing::{info, warn};
use tree::{ROOT, Tree, service_path};
use weir_os::backoff::Backoff;
use weir_os::locks::lock;
use weir_plan::config::BusConfig;

/// The name on the bus.
const NAME: &str = "org.weir.Weir1";
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
    /// What is to be seen on the bus may have changed.
    changed: Arc<Notify>,
    stop: Arc<Notify>,
}

impl Bus {
    /// Not on the bus yet; `None` if it is to stay so.
    pub(super) fn new(config: &BusConfig) -> Option<Self> {
        let (queue, announcements) = channel(ROOM);
        let (config, announcements) = (config.clone(), Mutex::new(Some(announcements)));
        let (changed, stop) = Default::default();
        (config != BusConfig::Off).then_some(Self { config, queue, announcements, changed, stop })
    }

    /// Starts the thread, which shows `overview`, and how many clients `hub` has, on the bus whenever there is one.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(&self, overview: &Arc<Overview>, hub: &Arc<Hub>) -> Result<JoinHandle<()>> {
        let announcements = lock(&self.announcements).take().context("the bus is served already")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .context("D-Bus")?;
        let (shown, config) = ((Arc::clone(overview), Arc::clone(hub)), self.config.clone());
        let (changed, stop) = (Arc::clone(&self.changed), Arc::clone(&self.stop));
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stop.notified() => {}
                    () = keep(&config, &shown, announcements, &changed) => {}
                }
            });
            // A plan that is being computed for somebody is not waited for.
            runtime.shutdown_background();
        };
        Ok(std::thread::Builder::new().name("bus".to_owned()).spawn(run)?)
    }

    /// False if there is no room; the properties will still be told.
    pub(super) fn put(&self, announcement: &Arc<Announcement>) -> bool {
        let heard = self.queue.try_send(Arc::clone(announcement)).is_ok();
        if !heard {
            self.refresh();
        }
        heard
    }

    /// Has it looked at what may have changed.
    pub(super) fn refresh(&self) {
        self.changed.notify_one();
    }

    /// Leaves the bus; the thread ends.
    pub(super) fn close(&self) {
        self.stop.notify_one();
    }
}

/// Stays on the bus, and comes back to it. What is announced while there is none has no listeners.
async fn keep(
    config: &BusConfig,
    shown: &(Arc<Overview>, Arc<Hub>),
    mut announcements: Receiver<Arc<Announcement>>,
    changed: &Notify,
) {
    let (mut pauses, mut absent) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), false);
    loop {
        match connect(config, shown).await {
            Ok((connection, tree)) => {
                if absent {
                    info!("D-Bus: on the bus as {NAME}");
                }
                pauses.reset();
                absent = true;
                serve(&connection, &tree, &mut announcements, changed).await;
                warn!("D-Bus: the bus has gone; served without it until it is back");
            }
            Err(error) => {
                if !absent {
                    warn!("D-Bus: served without it until there is a bus: {error}");
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
async fn connect(
    config: &BusConfig,
    (overview, hub): &(Arc<Overview>, Arc<Hub>),
) -> zbus::Result<(Connection, Arc<Tree>)> {
    let builder = match config {
        BusConfig::System | BusConfig::Off => Builder::system(),
        BusConfig::Session => Builder::session(),
        BusConfig::Address(address) => Builder::address(address.as_str()),
    };
    let tree = Arc::new(Tree::new(Arc::clone(overview)));
    let manager = Manager::new(Arc::clone(overview), Arc::clone(hub), Arc::clone(&tree));
    let builder = builder.method_timeout(PATIENCE).serve_at(ROOT, ObjectManager).serve_at(ROOT, manager);
    let connection = builder.build().await?;
    tree.follow(&connection).await?;
    connection.request_name(NAME).await?;
    Ok((connection, tree))
}

/// Tells what is announced, and what changes besides, until the bus goes.
async fn serve(
    connection: &Connection,
    tree: &Tree,
    announcements: &mut Receiver<Arc<Announcement>>,
    changed: &Notify,
) {
    loop {
        let told = tokio::select! {
            // What is announced goes before the properties that tell of it.
            biased;
            () = connection.closed() => return,
            Some(announcement) = announcements.recv() => tell(connection, &announcement).await,
            () = changed.notified() => Ok(()),
        };
        // What could not be told does not keep the properties from being told.
        let followed = tree.follow(connection).await;
        if let Err(error) = told.and(followed)
            && !connection.is_closed()
        {
            warn!("D-Bus: {error}");
        }
    }
}

/// Sends the signal of one announcement.
async fn tell(connection: &Connection, announcement: &Announcement) -> zbus::Result<()> {
    let emitter = SignalEmitter::new(connection, service_path(&announcement.service))?;
    let Announcement { sequence, breaches, .. } = *announcement;
    let (cause, entered) = (announcement.cause_number(), announcement.entered.as_nanos() / 1_000);
    let evidence = Evidence::of(announcement);
    match announcement.state {
        State::Service(severity) => {
            let state = severity as u32;
            ServiceObject::safe_mode_changed(&emitter, state, cause, sequence, entered, breaches, &evidence)
                .await
        }
        State::Stream(state) => {
            let state = state.code().into();
            ServiceObject::suspension_changed(&emitter, state, cause, sequence, entered, breaches, &evidence)
                .await
        }
    }
}
