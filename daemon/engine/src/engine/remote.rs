//! Where a remote server is, and what is asked of it there: plain data, as the configuration has it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
}

/// Where a server listens for HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// At a port, in plain text.
    Port(SocketAddr),
    /// On a Unix socket.
    Socket(PathBuf),
}

impl Address {
    /// Whether what goes there does not leave this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Port(address) => address.ip().is_loopback(),
            Self::Socket(_) => true,
        }
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
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(match url.split_once("://") {
                Some(("https" | "grpcs", _)) => "TLS is not spoken to remote servers yet: say \"http://…\"",
                Some(("grpc", _)) => {
                    "gRPC is not spoken to remote servers: give the port of HTTP, \"http://…\""
                }
                _ => "must be \"http://ADDRESS:PORT\" or \"unix:PATH\"",
            });
        };
        rest.trim_end_matches('/').parse().map(Self::Port).map_err(|_| {
            "must be \"http://ADDRESS:PORT\" with the number of an address: names are not looked up, which takes as long as it likes"
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => write!(f, "http://{address}"),
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
            ("unix:/run/x", true),
            ("http://10.0.0.7:80", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (text, local));
        }
        assert_eq!("http://127.0.0.1:8000/".parse(), "http://127.0.0.1:8000".parse::<Address>());
    }

    #[test]
    fn what_is_not_spoken_is_refused_by_name() {
        for (text, word) in [
            ("https://10.0.0.7:443", "TLS"),
            ("grpc://127.0.0.1:8001", "gRPC"),
            ("http://triton:8000", "names are not looked up"),
            ("http://127.0.0.1", "ADDRESS:PORT"),
            ("http://127.0.0.1:8000/v2", "ADDRESS:PORT"),
            ("127.0.0.1:8000", "http://ADDRESS:PORT"),
            ("unix:", "unix:PATH"),
        ] {
            let told = text.parse::<Address>().unwrap_err();
            assert!(told.contains(word), "{text}: {told}");
        }
    }
}
