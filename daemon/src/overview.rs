//! What the daemon shows of itself to whoever looks: its services, its reloads, and the state of everything.

use std::sync::Arc;

use weir_client::status::Status;
use weir_os::clock;
use weir_plan::config::Config;
use weir_plan::profile::Fingerprint;
use weir_serve::served::Served;
use weir_serve::status;

use crate::placement::Told;
use crate::reloads::Reloads;

/// Shared by the socket, the notification channels, the watch on the machine and the reload.
pub(crate) struct Overview {
    /// As it was at the start.
    pub(crate) config: Config,
    pub(crate) served: Arc<Served>,
    pub(crate) reloads: Reloads,
    pub(crate) placement: Told,
}

/// What STATUS replies.
pub(crate) fn json(status: &Status) -> String {
    // It has nothing that could not be written.
    serde_json::to_string(status).unwrap_or_default()
}

impl Overview {
    /// The machine that the promises were measured on.
    pub(crate) fn profiled(&self) -> Fingerprint {
        self.reloads.profiled()
    }

    /// The state of everything, with so many clients.
    pub(crate) fn status(&self, clients: usize) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            now_ns: clock::now().as_nanos(),
            draining: self.served.is_draining(),
            clients,
            reloading: self.reloads.present(),
            reload: self.reloads.status(),
            services: self.served.services().iter().map(|service| status::of(service)).collect(),
            placement: self.placement.status(),
        }
    }
}
