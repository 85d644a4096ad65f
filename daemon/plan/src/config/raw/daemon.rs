//! The daemon as a whole, its doors and its safe mode, as they are written.

use serde::Deserialize;
use weir_engine::Backend;

use super::FilePath;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in crate::config) struct Daemon {
    pub(in crate::config) socket: FilePath,
    pub(in crate::config) socket_mode: String,
    pub(in crate::config) models: Option<FilePath>,
    pub(in crate::config) profile: FilePath,
    pub(in crate::config) onnxruntime: Option<FilePath>,
    pub(in crate::config) max_model: u64,
    pub(in crate::config) certificate: Option<FilePath>,
    pub(in crate::config) max_clients: u64,
    pub(in crate::config) client_streams: u64,
    pub(in crate::config) client_requests: u64,
    pub(in crate::config) client_questions: u64,
    pub(in crate::config) max_frame: u64,
    pub(in crate::config) max_pending: u64,
    pub(in crate::config) max_arena: u64,
    pub(in crate::config) realtime: bool,
    pub(in crate::config) allow_users: Option<Vec<String>>,
    pub(in crate::config) allow_groups: Option<Vec<String>>,
    pub(in crate::config) bus: String,
    pub(in crate::config) metrics: Option<String>,
    pub(in crate::config) oip: Oip,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            socket: "/run/weir/weir.sock".into(),
            socket_mode: "0660".into(),
            models: None,
            profile: "/var/lib/weir/profile.json".into(),
            onnxruntime: None,
            max_model: Backend::MAX_MODEL,
            certificate: None,
            max_clients: 64,
            client_streams: 16,
            client_requests: 1024,
            client_questions: 1000,
            max_frame: 4 << 20,
            max_pending: 1 << 20,
            max_arena: 16 << 20,
            realtime: true,
            allow_users: None,
            allow_groups: None,
            bus: "system".into(),
            metrics: None,
            oip: Oip::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in crate::config) struct Oip {
    pub(in crate::config) http: Option<String>,
    pub(in crate::config) grpc: Option<String>,
    pub(in crate::config) tls: Option<ServerTls>,
    pub(in crate::config) ready_in_safe_mode: bool,
}

/// What is shown at ports, and who may connect there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct ServerTls {
    pub(in crate::config) certificate: FilePath,
    pub(in crate::config) key: FilePath,
    pub(in crate::config) client_ca: Option<FilePath>,
    pub(in crate::config) revoked: Option<FilePath>,
    #[serde(default)]
    pub(in crate::config) allow_clients: Vec<String>,
}

impl Default for Oip {
    fn default() -> Self {
        Self { http: None, grpc: None, tls: None, ready_in_safe_mode: true }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in crate::config) struct SafeMode {
    pub(in crate::config) hold: String,
    pub(in crate::config) clean: String,
    pub(in crate::config) latch: bool,
    /// A program and its arguments; empty runs none.
    pub(in crate::config) hook: Vec<String>,
    pub(in crate::config) hook_limit: String,
}

impl Default for SafeMode {
    fn default() -> Self {
        Self {
            hold: "1s".into(),
            clean: "1s".into(),
            latch: false,
            hook: Vec::new(),
            hook_limit: "5s".into(),
        }
    }
}
