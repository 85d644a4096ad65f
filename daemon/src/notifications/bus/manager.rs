//! The object of the box: its state, what is promised on it, and what operators may do.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt_core::{Severity, Span};
use serde_json::json;
use zbus::fdo::{Error, Result};
use zbus::message::Header;
use zbus::{BoxDBusError, Connection, DBusError};

use super::permit::permit;
use super::tree::Tree;
use crate::overview::{self, Overview};
use crate::socket::Hub;
use weir_plan::text::service_json;
use weir_serve::service::Service;

/// The longest time for which announcements can be held back: a day.
const LONGEST_INHIBITION_USEC: u64 = 86_400_000_000;
/// How long the outcome of a reload is waited for: as `weir reload` does unless told otherwise.
const RELOAD_LIMIT: Duration = Duration::from_secs(600);

/// What only this interface may answer.
#[derive(Debug, DBusError)]
#[zbus(prefix = "org.weir.Weir1.Error")]
enum ManagerError {
    /// The new configuration was not taken over, or not wholly; why.
    ReloadRefused(String),
}

/// `org.weir.Weir1.Manager`.
pub(super) struct Manager {
    overview: Arc<Overview>,
    hub: Arc<Hub>,
    tree: Arc<Tree>,
}

impl Manager {
    pub(super) fn new(overview: Arc<Overview>, hub: Arc<Hub>, tree: Arc<Tree>) -> Self {
        Self { overview, hub, tree }
    }

    /// The service of that name, or all of them if it is empty.
    fn services(&self, name: &str) -> Result<Vec<Arc<Service>>> {
        let all = self.overview.served.services();
        let (chosen, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|service| name.is_empty() || service.name() == name);
        if chosen.is_empty() {
            let names: Vec<_> = others.iter().map(|service| service.name()).collect();
            let text = format!("service = {name}: must be empty, for all, or one of {}", names.join(", "));
            return Err(Error::InvalidArgs(text));
        }
        Ok(chosen)
    }

    /// Does it to the service of that name, or to all if it is empty, if the caller may.
    async fn operate(
        &self,
        (connection, header): (&Connection, Header<'_>),
        service: &str,
        act: impl Fn(&Service),
    ) -> Result<()> {
        permit(connection, &header).await?;
        self.services(service)?.iter().for_each(|service| act(service));
        Ok(())
    }
}

#[zbus::interface(name = "org.weir.Weir1.Manager", introspection_docs = false)]
impl Manager {
    /// The version of the daemon.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// 1 normal, 2 warning, 3 safe mode, 4 lost: the worst of the services.
    #[zbus(property)]
    fn state(&self) -> u32 {
        let services = self.overview.served.services();
        let states = services.iter().map(|service| service.latest().view().standing().severity);
        states.max().unwrap_or(Severity::Normal) as u32
    }

    /// Whether new requests are refused because the daemon is about to end.
    #[zbus(property(emits_changed_signal = "false"))]
    fn draining(&self) -> bool {
        self.overview.served.is_draining()
    }

    /// Clients on the socket.
    #[zbus(property(emits_changed_signal = "false"))]
    fn clients(&self) -> u32 {
        self.hub.count() as u32
    }

    /// What came of the last look for a better placement, in a sentence; empty where none is looked for.
    #[zbus(property(emits_changed_signal = "false"))]
    fn placement(&self) -> String {
        self.overview.placement.status().map_or_else(String::new, |told| told.state)
    }

    /// What `weir status --json` prints.
    #[zbus(out_args("json"))]
    fn status(&self) -> String {
        overview::json(&self.overview.status(self.hub.count()))
    }

    /// What is promised and why: `services` as `weir plan --json` prints them.
    #[zbus(out_args("json"))]
    async fn plan(&self) -> Result<String> {
        let overview = Arc::clone(&self.overview);
        let compute = move || {
            let services: Vec<_> =
                overview.served.services().iter().map(|service| service_json(&service.plan)).collect();
            json!({ "services": services }).to_string()
        };
        tokio::task::spawn_blocking(compute).await.map_err(|error| Error::Failed(error.to_string()))
    }

    /// Suspends the promises of a service until they are cleared; of all if the name is empty.
    async fn enter_safe_mode(
        &self,
        service: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<()> {
        self.operate((connection, header), service, Service::enter_safe_mode).await
    }

    /// Ends the safe mode of a service, or of all, as soon as it may end.
    async fn clear(
        &self,
        service: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<()> {
        self.operate((connection, header), service, Service::clear_safe_mode).await
    }

    /// Announces no change of a service, or of all, on any channel for so many microseconds from now on; 0 ends that.
    async fn inhibit(
        &self,
        service: &str,
        usec: u64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<()> {
        permit(connection, &header).await?;
        if usec > LONGEST_INHIBITION_USEC {
            let text = format!("usec = {usec}: must be in 0..={LONGEST_INHIBITION_USEC}");
            return Err(Error::InvalidArgs(text));
        }
        self.services(service)?.iter().for_each(|service| service.inhibit_safe_mode(Span::from_micros(usec)));
        Ok(())
    }

    /// Takes the configuration over anew, as SIGHUP does, and returns what has changed once that has ended.
    #[zbus(out_args("changes"))]
    async fn reload(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> std::result::Result<Vec<String>, BoxDBusError> {
        permit(connection, &header).await?;
        let outcome =
            self.overview.reloads.ask().map_err(|error| Error::LimitsExceeded(error.to_string()))?;
        let ending = || Error::Failed("the daemon is about to end".to_owned());
        if self.overview.served.is_draining() {
            return Err(ending().into());
        }
        let outcome = tokio::time::timeout(RELOAD_LIMIT, outcome).await;
        let outcome = outcome.map_err(|_| Error::Timeout(format!("not ended within {RELOAD_LIMIT:?}")))?;
        // Who hears of it finds the objects as they are now.
        self.tree.follow(connection).await?;
        let refused = |reason| -> BoxDBusError { Box::new(ManagerError::ReloadRefused(reason)) };
        let outcome = outcome.map_err(|_| ending())?;
        outcome.error().map_or(Ok(outcome.changes), |reason| Err(refused(reason)))
    }

    /// Answers what can be answered in time, refuses what is new, and ends the daemon, as SIGTERM does.
    async fn drain(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<()> {
        permit(connection, &header).await?;
        kill(Pid::this(), Signal::SIGTERM).map_err(|error| Error::Failed(error.to_string()))
    }
}
