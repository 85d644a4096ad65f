//! Ports of the Open Inference Protocol with TLS: who is let in, what slow handshakes do, and certificates that are renewed.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Authority, DAEMON, Daemon, Deployment, PATIENCE, eventually, own_address};
use rustls::{ClientConnection, StreamOwned};
use weir_oip::tls::{ClientFiles, HTTP, pki_types::ServerName};

/// A null service behind a port of its own, which lets those in whom `ca.pem` vouches for as `front.example`.
struct Place {
    place: Deployment,
    address: String,
    authority: Authority,
}

fn place(port: u16, more: &str) -> Place {
    let address = format!("{}:{port}", own_address());
    let place = Deployment::new(format!(
        "{DAEMON}{more}[daemon.oip]\nhttp = \"{address}\"\n\
         tls = {{ certificate = \"box.pem\", key = \"box.key\", client-ca = \"ca.pem\", allow-clients = [\"front.example\"] }}\n{}",
        r#"
        [[service]]
        name = "null"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 3, output = 2 }
        deadline = "20s"
        "#
    ))
    .profiled(&[5]);
    let authority = Authority::new(&place.path("ca.pem"));
    authority.vouch(&place.path("box"), &own_address(), 4000);
    Place { place, address, authority }
}

impl Place {
    fn serve(&self) -> Daemon {
        let daemon = self.place.serve();
        eventually("the port", || TcpStream::connect(&self.address).ok());
        daemon
    }

    /// A client with a certificate by the daemon's authority.
    fn client(&self, name: &str, until: i32) -> ClientFiles {
        self.authority.client(&self.place.path("client"), (self.place.path("ca.pem"), name, until))
    }

    fn connect(&self, client: &ClientFiles) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(&self.address).expect("the port");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let name = ServerName::try_from(own_address()).expect("an address");
        let config = Arc::new(client.config(HTTP).expect("good files"));
        StreamOwned::new(ClientConnection::new(config, name).expect("a client"), stream)
    }

    /// The status line that a client is told, if it is told one.
    fn ask(&self, client: &ClientFiles) -> Result<String> {
        let mut connection = self.connect(client);
        live(&mut connection)
    }
}

fn live(connection: &mut (impl Read + Write)) -> Result<String> {
    connection.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")?;
    let mut told = Vec::new();
    connection.read_to_end(&mut told)?;
    Ok(String::from_utf8_lossy(&told).lines().next().unwrap_or_default().to_owned())
}

const GOOD: &str = "HTTP/1.1 200 OK";

#[test]
fn only_who_is_on_the_list_is_let_in_and_nobody_else_is_told_anything() {
    let place = place(8000, "");
    let daemon = place.serve();
    let front = place.client("front.example", 4000);
    assert_eq!(place.ask(&front).expect("an answer"), GOOD);
    let told = |client: &ClientFiles, here: &str, there: &str| {
        let error = place.ask(client).expect_err("refused").to_string();
        assert!(error.contains(here), "{error}");
        eventually(there, || {
            // One refusal a second is told.
            drop(place.ask(client));
            daemon.stderr().contains(there).then_some(())
        });
    };
    let past = place
        .authority
        .client(&place.place.path("past"), (place.place.path("ca.pem"), "front.example", 2001));
    told(&past, "CertificateExpired", "certificate expired");
    let other = place
        .authority
        .client(&place.place.path("other"), (place.place.path("ca.pem"), "other.example", 4000));
    told(&other, "AccessDenied", "ApplicationVerificationFailure");
    let stranger = Authority::new(&place.place.path("strange.pem"));
    let strange =
        stranger.client(&place.place.path("stranger"), (place.place.path("ca.pem"), "front.example", 4000));
    told(&strange, "UnknownCA", "UnknownIssuer");
    told(&ClientFiles { own: None, ..front.clone() }, "CertificateRequired", "sent no certificates");
    // Nor is who trusts others, or speaks in plain text.
    let deceived = ClientFiles { ca: place.place.path("strange.pem"), ..front.clone() };
    assert!(place.ask(&deceived).expect_err("refused").to_string().contains("UnknownIssuer"));
    let mut plain = TcpStream::connect(&place.address).expect("the port");
    plain.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert!(!live(&mut plain).is_ok_and(|line| line.starts_with("HTTP")));
    assert_eq!(place.ask(&front).expect("an answer"), GOOD, "whoever may is let in all the same");
}

#[test]
fn who_begins_and_does_not_go_on_keeps_nobody_out_and_is_hung_up_on() {
    let place = place(8001, "max-clients = 1\n");
    let _daemon = place.serve();
    let front = place.client("front.example", 4000);
    // More than have places, and more handshakes than a machine may have under way.
    let mut slow: Vec<_> = (0..100).map(|_| TcpStream::connect(&place.address).expect("the port")).collect();
    slow.iter_mut().for_each(|stream| drop(stream.write_all(&[0x16, 3, 1])));
    eventually("an answer", || place.ask(&front).ok().filter(|line| line == GOOD));
    for stream in &mut slow {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // An alert, or nothing: in any case the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn renewed_certificates_hold_from_then_on_and_what_is_of_no_use_does_not() {
    let place = place(8002, "");
    let daemon = place.serve();
    let front = place.client("front.example", 4000);
    let mut lasting = place.connect(&front);
    lasting.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: weir\r\n\r\n").expect("sent");
    let mut head = [0; 15];
    lasting.read_exact(&mut head).expect("an answer");
    assert_eq!(head, GOOD.as_bytes());

    std::fs::write(place.place.path("box.key"), "").expect("written");
    eventually("that it is of no use", || {
        daemon.stderr().contains("box.key: has no private key").then_some(())
    });
    assert_eq!(place.ask(&front).expect("an answer"), GOOD, "what was there before holds on");
    // By another authority, which vouches for another front.
    let next = Authority::new(&place.place.path("ca.pem"));
    next.vouch(&place.place.path("box"), &own_address(), 4000);
    let renewed = next.client(&place.place.path("next"), (place.place.path("ca.pem"), "front.example", 4000));
    eventually("the new certificate", || place.ask(&renewed).ok().filter(|line| line == GOOD));
    let past = place.ask(&ClientFiles { ca: renewed.ca, ..front }).expect_err("refused").to_string();
    assert!(past.contains("UnknownCA"), "{past}");
    // Who is connected stays.
    lasting.sock.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    let mut rest = [0; 4096];
    while lasting.read(&mut rest).is_ok_and(|count| count > 0) {}
    lasting.sock.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(live(&mut lasting).expect("an answer"), GOOD);
}

#[test]
fn files_that_are_of_no_use_are_named_before_anything_is_served() {
    let place = place(8003, "");
    std::fs::remove_file(place.place.path("box.key")).expect("it was there");
    for told in [place.place.fail(&["check"]), place.place.fail(&["serve"])] {
        assert!(told.contains("daemon.oip.tls") && told.contains("box.key: No such file"), "{told}");
    }
}
