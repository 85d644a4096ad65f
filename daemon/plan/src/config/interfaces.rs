//! What the daemon is told and asked by, in the configuration: the bus, the hook, the metrics and the Open Inference Protocol, checked.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rt_core::Span;

use weir_oip::tls::ServerFiles;

use super::check::{Check, Refused, all};
use super::raw;

/// Added to the name of a socket until others may connect.
pub const SOCKET_DRAFT: &str = ".new";
/// Bytes that the path of a socket may have: what the kernel takes, less the draft's.
pub const LONGEST_PATH: u64 = 107 - SOCKET_DRAFT.len() as u64;

/// The same of a socket to connect to: what the kernel takes.
pub(super) const LONGEST_SOCKET: u64 = 107;

/// How long a hook may be let run.
const SHORTEST_HOOK: Span = Span::from_millis(1);
const LONGEST_HOOK: Span = Span::from_millis(60_000);

/// Where the daemon shows itself on D-Bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusConfig {
    System,
    Session,
    /// Nowhere.
    Off,
    /// On the bus with this address.
    Address(String),
}

/// The program that is run at each announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// It is killed if it runs longer.
    pub limit: Span,
}

/// Clients that a list may name.
const MOST_CLIENTS: u64 = 1024;

/// Where something is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// On a Unix socket at this path.
    Socket(PathBuf),
    /// On a port, of this machine alone but where TLS says who connects.
    Port(SocketAddr),
}

impl ListenAddress {
    /// The socket's, if it is one.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Socket(path) => Some(path),
            Self::Port(_) => None,
        }
    }

    /// The port's, if it is one and not any that is free.
    pub(super) fn port(&self) -> Option<&SocketAddr> {
        match self {
            Self::Port(address) if address.port() > 0 => Some(address),
            _ => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Port(address) => write!(f, "{address}"),
        }
    }
}

/// Where the Open Inference Protocol is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OipConfig {
    pub http: Option<ListenAddress>,
    pub grpc: Option<ListenAddress>,
    /// What is shown at ports, and who may connect there; without it they are in plain text, for this machine.
    pub tls: Option<ServerFiles>,
    /// Whether a model counts as ready while its service is in safe mode.
    pub ready_in_safe_mode: bool,
}

impl Check<'_> {
    pub(super) fn bus(&self, raw: &str) -> Result<BusConfig, Refused> {
        match raw {
            "system" => Ok(BusConfig::System),
            "session" => Ok(BusConfig::Session),
            "off" => Ok(BusConfig::Off),
            address if address.starts_with("unix:") => Ok(BusConfig::Address(address.to_owned())),
            other => {
                let reason = "must be \"system\", \"session\", \"off\" or an address \"unix:path=…\"";
                Err(self.refuse("daemon.bus", &format!("\"{other}\""), reason))
            }
        }
    }

    /// Where clients are `listed`, a port must know who connects; and so must one that other machines reach.
    pub(super) fn oip(&self, raw: &raw::Oip, listed: bool) -> Result<OipConfig, Refused> {
        let tls = raw.tls.as_ref().map(|raw| self.server_tls(raw)).transpose()?;
        let known = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let at = |field: &str, raw: Option<&str>| match self.listen(field, raw)? {
            Some(ListenAddress::Port(address)) if !known && !address.ip().is_loopback() => {
                let reason = "other machines reach it: needs daemon.oip.tls with a client-ca, or must be an address of this machine \
                              alone, in 127.0.0.0/8 or [::1]";
                Err(self.refuse(field, &format!("\"{address}\""), reason))
            }
            Some(ListenAddress::Port(address)) if !known && listed => {
                let reason = "a port lets everybody in who is not in daemon.allow-users and allow-groups: use \"unix:PATH\", or \
                              daemon.oip.tls with a client-ca";
                Err(self.refuse(field, &format!("\"{address}\""), reason))
            }
            address => Ok(address),
        };
        let (http, grpc) =
            (at("daemon.oip.http", raw.http.as_deref())?, at("daemon.oip.grpc", raw.grpc.as_deref())?);
        let is_port = |address: &Option<ListenAddress>| matches!(address, Some(ListenAddress::Port(_)));
        if tls.is_some() && !is_port(&http) && !is_port(&grpc) {
            let reason = "is for ports, and neither daemon.oip.http nor grpc is one; remove it";
            return Err(self.refuse("daemon.oip.tls", "(table)", reason));
        }
        Ok(OipConfig { http, grpc, tls, ready_in_safe_mode: raw.ready_in_safe_mode })
    }

    /// The files are looked at by whoever uses them: not everybody who reads a configuration may read keys.
    fn server_tls(&self, raw: &raw::ServerTls) -> Result<ServerFiles, Refused> {
        let field = "daemon.oip.tls.allow-clients";
        self.number(&format!("{field} (how many)"), raw.allow_clients.len() as u64, 0, MOST_CLIENTS)?;
        let allowed = raw.allow_clients.iter().enumerate().map(|(i, client)| {
            client
                .parse()
                .map_err(|reason: &str| self.refuse(&format!("{field}[{i}]"), &format!("{client:?}"), reason))
        });
        let allowed = all(allowed)?;
        if raw.client_ca.is_none() && !allowed.is_empty() {
            let reason = "needs client-ca, those who vouch for clients: without it nobody is asked who he is";
            return Err(self.refuse(field, &format!("{:?}", raw.allow_clients), reason));
        }
        if let (None, Some(revoked)) = (&raw.client_ca, &raw.revoked) {
            let reason = "needs client-ca, whose certificates it lists: without it nobody is asked who he is";
            return Err(self.refuse("daemon.oip.tls.revoked", &format!("{revoked:?}"), reason));
        }
        Ok(ServerFiles {
            certificate: self.resolve(&raw.certificate),
            key: self.resolve(&raw.key),
            client_ca: raw.client_ca.as_deref().map(|path| self.resolve(path)),
            revoked: raw.revoked.as_deref().map(|path| self.resolve(path)),
            allowed,
        })
    }

    /// An address of this machine alone, if one is given.
    pub(super) fn local(&self, field: &str, raw: Option<&str>) -> Result<Option<ListenAddress>, Refused> {
        match self.listen(field, raw)? {
            Some(ListenAddress::Port(address)) if !address.ip().is_loopback() => {
                let reason = "must be an address of this machine alone, in 127.0.0.0/8 or [::1]";
                Err(self.refuse(field, &format!("\"{address}\""), reason))
            }
            address => Ok(address),
        }
    }

    /// An address to listen at, if one is given.
    fn listen(&self, field: &str, raw: Option<&str>) -> Result<Option<ListenAddress>, Refused> {
        let Some(raw) = raw else { return Ok(None) };
        if let Some(path) = raw.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let path = self.resolve(Path::new(path));
            // As for `daemon.socket`.
            let field = format!("{field} (length in bytes)");
            self.number(&field, path.as_os_str().len() as u64, 1, LONGEST_PATH)?;
            return Ok(Some(ListenAddress::Socket(path)));
        }
        match raw.parse::<SocketAddr>() {
            Ok(address) => Ok(Some(ListenAddress::Port(address))),
            Err(_) => {
                let reason = "must be \"unix:PATH\" or \"ADDRESS:PORT\"";
                Err(self.refuse(field, &format!("\"{raw}\""), reason))
            }
        }
    }

    pub(super) fn hook(&self, raw: &[String], limit: &str) -> Result<Option<HookConfig>, Refused> {
        let field = "safe-mode.hook-limit";
        let span = self.duration(field, limit)?;
        if span < SHORTEST_HOOK || span > LONGEST_HOOK {
            return Err(self.refuse(field, limit, format!("must be {SHORTEST_HOOK}..={LONGEST_HOOK}")));
        }
        let [program, arguments @ ..] = raw else { return Ok(None) };
        let program = self.resolve_named(Path::new(program));
        let runs = |file: &std::fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
        if !std::fs::metadata(&program).is_ok_and(|file| runs(&file)) {
            let reason = "must be a file that can be run";
            return Err(self.refuse("safe-mode.hook[0]", &program.display().to_string(), reason));
        }
        Ok(Some(HookConfig { program, arguments: arguments.to_vec(), limit: span }))
    }
}
