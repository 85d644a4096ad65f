//! Where a remote server is, and what is asked of it there: plain data, as the configuration has it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_oip::tls::ClientFiles;

/// A model on servers of the Open Inference Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// One for each worker, cyclically; at least one.
    pub addresses: Vec<Address>,
    /// What the servers call the model; 1 to 64 letters, digits or `- _ .`.
    pub model: String,
    /// Which of its versions, likewise; what the server chooses if absent.
    pub version: Option<String>,
    /// The stream that calls belong to, where the server is a Weir.
    pub stream: Option<String>,
    /// Whatever is asked is answered within this time, or the connection is given up.
    pub timeout: Duration,
    /// Whom to trust at addresses with TLS, and what to show there.
    pub tls: Option<ClientFiles>,
}

/// Where a server listens for HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// At a port.
    Port {
        /// Whether TLS is spoken there.
        secure: bool,
        host: Host,
        port: u16,
    },
    /// On a Unix socket.
    Socket(PathBuf),
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    Number(IpAddr),
    /// Looked up with each connection.
    Name(String),
}

impl Address {
    /// Whether what goes there does not leave this machine; of a name nobody knows.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Port { host: Host::Number(address), .. } => address.is_loopback(),
            Self::Port { host: Host::Name(_), .. } => false,
            Self::Socket(_) => true,
        }
    }

    /// Whether TLS is spoken there.
    pub fn is_secure(&self) -> bool {
        matches!(self, Self::Port { secure: true, .. })
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, &'static str> {
        if let Some(path) = url.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("must name a socket: \"unix:PATH\"")
            } else {
                Ok(Self::Socket(path.into()))
            };
        }
        let (secure, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(("grpc" | "grpcs", _)) => {
                return Err("gRPC is not spoken to remote servers: give the port of HTTP, \"http://…\"");
            }
            _ => return Err("must be \"http://HOST:PORT\", \"https://HOST:PORT\" or \"unix:PATH\""),
        };
        let rest = rest.trim_end_matches('/');
        if let Ok(address) = rest.parse::<SocketAddr>() {
            return Ok(Self::Port { secure, host: Host::Number(address.ip()), port: address.port() });
        }
        let named = rest.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
        match named {
            Some((name, port)) if is_name(name) => {
                Ok(Self::Port { secure, host: Host::Name(name.to_owned()), port })
            }
            _ => Err(
                "must be \"http://HOST:PORT\" or \"https://HOST:PORT\", with an address or a name for HOST",
            ),
        }
    }
}

/// Whether it can be the name of a machine, and is no address that was mistyped.
fn is_name(name: &str) -> bool {
    let plain = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(plain) && !last.chars().all(|c| c.is_ascii_digit())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Number(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { secure, host, port } => {
                write!(f, "http{}://{host}:{port}", if *secure { "s" } else { "" })
            }
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (text, local) in [
            ("http://127.0.0.1:8000", true),
            ("http://[::1]:8000", true),
            ("https://127.0.0.1:8000", true),
            ("unix:/run/x", true),
            ("http://10.0.0.7:80", false),
            ("https://triton-1.example:443", false),
            ("http://localhost:80", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (text, local));
            assert_eq!(address.is_secure(), text.starts_with("https"));
        }
        assert_eq!("http://127.0.0.1:8000/".parse(), "http://127.0.0.1:8000".parse::<Address>());
    }

    #[test]
    fn what_is_not_spoken_is_refused_by_name() {
        for (text, word) in [
            ("grpc://127.0.0.1:8001", "gRPC"),
            ("grpcs://127.0.0.1:8001", "gRPC"),
            ("http://127.0.0.1", "HOST:PORT"),
            ("http://127.0.0.256:80", "HOST:PORT"),
            ("http://127.0.0.1:8000/v2", "HOST:PORT"),
            ("http://:80", "HOST:PORT"),
            ("http://a..b:80", "HOST:PORT"),
            ("http://me@there:80", "HOST:PORT"),
            ("https://-a:80", "HOST:PORT"),
            ("https://there:65536", "HOST:PORT"),
            ("127.0.0.1:8000", "http://HOST:PORT"),
            ("unix:", "unix:PATH"),
        ] {
            let told = text.parse::<Address>().unwrap_err();
            assert!(told.contains(word), "{text}: {told}");
        }
    }
}
