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

/// Where a server listens, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub protocol: Protocol,
    pub place: Location,
}

/// What is spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1 with JSON, and tensors as they lie in memory where the server takes them.
    Http,
    /// gRPC.
    Grpc,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Location {
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
        match &self.place {
            Location::Port { host: Host::Number(address), .. } => address.is_loopback(),
            Location::Port { host: Host::Name(_), .. } => false,
            Location::Socket(_) => true,
        }
    }

    /// Whether TLS is spoken there.
    pub fn is_secure(&self) -> bool {
        matches!(self.place, Location::Port { secure: true, .. })
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, &'static str> {
        for (scheme, protocol) in [("unix:", Protocol::Http), ("grpc+unix:", Protocol::Grpc)] {
            match url.strip_prefix(scheme) {
                Some("") => return Err("must name a socket: \"unix:PATH\" or \"grpc+unix:PATH\""),
                Some(path) => return Ok(Self { protocol, place: Location::Socket(path.into()) }),
                None => {}
            }
        }
        let (protocol, secure, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Protocol::Http, false, rest),
            Some(("https", rest)) => (Protocol::Http, true, rest),
            Some(("grpc", rest)) => (Protocol::Grpc, false, rest),
            Some(("grpcs", rest)) => (Protocol::Grpc, true, rest),
            _ => {
                return Err(
                    "must be \"http://HOST:PORT\", \"grpc://HOST:PORT\", with TLS \"https://…\" or \"grpcs://…\", or a socket, \"unix:PATH\" \
                     or \"grpc+unix:PATH\"",
                );
            }
        };
        let rest = rest.trim_end_matches('/');
        const PORT: &str = "must have an address or a name, and a port of 1 to 65535: \"http://HOST:PORT\"";
        let at = |host, port| match port {
            0 => Err(PORT),
            _ => Ok(Self { protocol, place: Location::Port { secure, host, port } }),
        };
        if let Ok(address) = rest.parse::<SocketAddr>() {
            return at(Host::Number(address.ip()), address.port());
        }
        let named = rest.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
        match named {
            Some((name, port)) if is_name(name) => at(Host::Name(name.to_owned()), port),
            _ => Err(PORT),
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
        match (&self.place, self.protocol) {
            (Location::Port { secure, host, port }, protocol) => {
                let scheme = match protocol {
                    Protocol::Http => "http",
                    Protocol::Grpc => "grpc",
                };
                write!(f, "{scheme}{}://{host}:{port}", if *secure { "s" } else { "" })
            }
            (Location::Socket(path), Protocol::Http) => write!(f, "unix:{}", path.display()),
            (Location::Socket(path), Protocol::Grpc) => write!(f, "grpc+unix:{}", path.display()),
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
            ("grpc://127.0.0.1:8001", true),
            ("grpcs://box:8001", false),
            ("grpc+unix:/run/x", true),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (text, local));
            assert_eq!(address.is_secure(), text.split_once("s://").is_some());
            assert_eq!(address.protocol == Protocol::Grpc, text.starts_with("grpc"));
        }
        assert_eq!("http://127.0.0.1:8000/".parse(), "http://127.0.0.1:8000".parse::<Address>());
    }

    #[test]
    fn what_is_not_spoken_is_refused_by_name() {
        for (text, word) in [
            ("ftp://127.0.0.1:8001", "grpc://HOST:PORT"),
            ("grpc+unix:", "grpc+unix:PATH"),
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
