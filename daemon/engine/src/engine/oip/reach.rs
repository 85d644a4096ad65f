//! Reaching a remote server: its name is looked up, each of its addresses is tried, and it must be whom TLS has us trust.
//!
//! All of it within one limit of time, on the worker's own thread, and anew with each connection.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use weir_oip::tls::{ClientFiles, HTTP, HTTP2, pki_types::ServerName};
use weir_os::clock;

use super::connection::{Sender, told};
use crate::engine::{Address, Host, Location, Protocol, Remote};

/// Bytes that the head of an answer may have.
const MAX_HEAD: u32 = 64 << 10;
/// Addresses of a name that are tried, in the order in which the system gives them.
const TRIED: usize = 8;
/// Names that are looked up at a time: whoever looks them up may take as long as it likes, and nobody can stop it.
const LOOKED_UP: usize = 32;

/// Looked up at the moment, also for those who wait for it no more.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// What is asked through, and the same socket.
pub(super) type Reached = (Sender, OwnedFd);

/// Connects within the `timeout` of `remote`.
pub(super) async fn reach(remote: &Remote, address: &Address) -> Result<Reached, String> {
    let protocol = address.protocol;
    match &address.place {
        Location::Port { secure, host, port } => {
            let stream = connect(host, *port, remote.timeout).await?;
            // A call is written at once, and nothing follows it that it could wait for.
            stream.set_nodelay(true).map_err(told)?;
            let socket = stream.as_fd().try_clone_to_owned().map_err(told)?;
            if !secure {
                return Ok((start(TokioIo::new(stream), protocol).await?, socket));
            }
            let secured = secure_with(remote.tls.as_ref(), (host, protocol), stream).await?;
            Ok((start(TokioIo::new(secured), protocol).await?, socket))
        }
        Location::Socket(path) => {
            let stream = UnixStream::connect(path).await.map_err(told)?;
            let socket = stream.as_fd().try_clone_to_owned().map_err(told)?;
            Ok((start(TokioIo::new(stream), protocol).await?, socket))
        }
    }
}

/// The first address that answers; each has an equal part of the time that is left.
async fn connect(host: &Host, port: u16, limit: Duration) -> Result<TcpStream, String> {
    let begun = clock::now();
    let addresses = match host {
        Host::Number(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => look_up(name, port).await?,
    };
    let mut failed = Vec::new();
    for (tried, address) in addresses.iter().enumerate() {
        let spent = clock::duration(clock::now().since(begun));
        let part = limit.saturating_sub(spent) / (addresses.len() - tried) as u32;
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed.push((address.ip(), error.to_string())),
            Err(_) => failed.push((address.ip(), format!("no answer within {} ms", part.as_millis()))),
        }
    }
    Err(match (host, failed.as_slice()) {
        (Host::Number(_), [(_, reason)]) => reason.clone(),
        _ => {
            let one = |(address, reason): &(IpAddr, String)| format!("{address}: {reason}");
            failed.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    })
}

/// The addresses of a name.
async fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    struct UnderWay;
    impl Drop for UnderWay {
        fn drop(&mut self) {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let before = UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    let under_way = UnderWay;
    if before >= LOOKED_UP {
        return Err(format!("{before} names are being looked up already"));
    }
    // By a thread of its own, which may outlive whoever waits.
    let pair = (name.to_owned(), port);
    let looked_up = tokio::task::spawn_blocking(move || {
        let _under_way = under_way;
        std::net::ToSocketAddrs::to_socket_addrs(&pair).map(|found| found.take(TRIED).collect())
    });
    let found: Vec<_> = looked_up.await.map_err(told)?.map_err(|error| format!("looking it up: {error}"))?;
    if found.is_empty() { Err("its name has no address".to_owned()) } else { Ok(found) }
}

/// TLS over a connection to `host`, whom those must vouch for whom the files name.
async fn secure_with(
    files: Option<&ClientFiles>,
    (host, protocol): (&Host, Protocol),
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let files = files.ok_or("there is no remote.tls to trust it by")?;
    let spoken = match protocol {
        Protocol::Http => HTTP,
        Protocol::Grpc => HTTP2,
    };
    let connector = TlsConnector::from(Arc::new(files.config(spoken).map_err(told)?));
    let name = match host {
        Host::Number(address) => ServerName::from(*address),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(told)?,
    };
    connector.connect(name, stream).await.map_err(|error| format!("TLS: {}", told(error)))
}

async fn start(io: impl Read + Write + Unpin + Send + 'static, protocol: Protocol) -> Result<Sender, String> {
    // What a connection ends with, the question tells that was asked.
    match protocol {
        Protocol::Http => {
            let builder = http1::Builder::new().max_buf_size(MAX_HEAD as usize).max_headers(64).handshake(io);
            let (sender, connection) = builder.await.map_err(told)?;
            tokio::spawn(async { drop(connection.await) });
            Ok(Sender::Http(sender))
        }
        Protocol::Grpc => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) =
                builder.max_header_list_size(MAX_HEAD).handshake(io).await.map_err(told)?;
            Ok(Sender::Grpc(sender, tokio::spawn(connection)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio_rustls::rustls;
    use weir_oip::tls::ServerFiles;

    use super::super::connection::Connection;
    use super::*;

    fn remote(timeout: Duration) -> Remote {
        Remote {
            addresses: Vec::new(),
            model: "m".to_owned(),
            version: None,
            stream: None,
            timeout,
            tls: None,
        }
    }

    fn open(url: &str) -> Result<Connection, String> {
        Connection::open(&remote(Duration::from_secs(20)), &url.parse().unwrap())
    }

    #[test]
    fn a_name_is_looked_up_when_connecting_and_each_of_its_addresses_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The other address that it may have refuses, for nobody listens there.
        assert!(!open(&format!("http://localhost:{port}")).unwrap().is_closed());
        // A port that was free a moment ago may be another test's.
        let refused = open("http://localhost:1").err().expect("nobody listens");
        assert!(refused.contains("127.0.0.1: ") && refused.contains("refused"), "{refused}");
        let number = open("http://127.0.0.1:1").err().expect("nobody listens");
        assert!(number.contains("refused") && !number.contains("127.0.0.1"), "{number}");
    }

    #[test]
    fn a_name_that_nobody_has_is_told() {
        // Reserved for names that do not exist: RFC 6761.
        let refused = open("http://box.invalid:80").err().expect("nobody has it");
        assert!(refused.starts_with("looking it up: ") || refused.starts_with("no answer"), "{refused}");
    }

    #[test]
    fn tls_takes_its_files_anew_and_names_the_one_that_is_of_no_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let files = ClientFiles { ca: "/nowhere/ca.pem".into(), own: None };
        let remote = Remote { tls: Some(files), ..remote(Duration::from_secs(20)) };
        let url = format!("https://{}", listener.local_addr().unwrap());
        let refused = Connection::open(&remote, &url.parse().unwrap()).err().expect("no files");
        assert!(refused.contains("/nowhere/ca.pem: No such file"), "{refused}");
    }

    #[test]
    fn what_tls_says_unasked_is_no_end_and_its_end_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = write("box.pem", own.cert.pem());
        let key = write("box.key", own.signing_key.serialize_pem());
        let server = ServerFiles {
            certificate: certificate.clone(),
            key,
            client_ca: None,
            revoked: None,
            allowed: Vec::new(),
        };
        let mut config = server.config(&server.read().unwrap(), HTTP).unwrap();
        // As others do: tickets come once the connection is there.
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(8);
        config.send_tls13_tickets = 4;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            tls.complete_io(&mut stream).unwrap();
            assert!(ended.recv().is_err(), "until the other end is dropped");
        });
        let files = ClientFiles { ca: certificate, own: None };
        let remote = Remote { tls: Some(files), ..remote(Duration::from_secs(60)) };
        let connection = Connection::open(&remote, &url.parse().unwrap()).unwrap();
        for _ in 0..20 {
            std::thread::park_timeout(Duration::from_millis(5));
            assert!(!connection.is_closed());
        }
        drop(end);
        server.join().unwrap();
        assert!(connection.is_closed());
    }
}
