//! What the daemon shows of itself to whoever looks: its services, its reloads, and the state of everything.

use serde_json::{Value, json};
use weir_os::clock;
use weir_plan::config::Config;
use weir_plan::profile::Fingerprint;
use weir_serve::served::Served;
use weir_serve::status;

use crate::reloads::Reloads;
use std::sync::Arc;

/// Shared by the socket, the notification channels, the watch on the machine and the reload.
pub(crate) struct Overview {
    /// As it was at the start.
    pub(crate) config: Config,
    pub(crate) served: Arc<Served>,
    pub(crate) reloads: Reloads,
}

impl Overview {
    /// The machine that the promises were measured on.
    pub(crate) fn profiled(&self) -> Fingerprint {
        self.reloads.profiled()
    }

    /// The state of everything, as a JSON object, with so many clients; `docs/protocol.md` lists the fields.
    pub(crate) fn status(&self, clients: usize) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "now_ns": clock::now().as_nanos(),
            "draining": self.served.is_draining(),
            "clients": clients,
            "reload": self.reloads.status(),
            "services": self.served.services().iter().map(|service| status::of(service)).collect::<Vec<_>>(),
        })
    }
}
