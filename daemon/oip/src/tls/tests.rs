//! Who is let in and who is trusted, with certificates made here and both ends in memory.

use std::io::{Read, Write};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::{ClientConnection, ServerConnection};

use super::*;

/// Somebody who vouches for others, with a folder for files.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        // Each has a name of its own, by which it is told from others before its signature is looked at.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { folder, issuer };
        this.write("ca.pem", &this.issuer.pem());
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A certificate with these names and its key, valid until a year; the certificate's hash.
    fn vouch(&self, file: &str, names: &[&str], until: i32) -> (PathBuf, PathBuf, [u8; 32]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "common.example");
        params.serial_number = Some(SerialNumber::from_slice(file.as_bytes()));
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let hash = Sha256::digest(certificate.der()).into();
        let files = [("pem", certificate.pem()), ("key", key.serialize_pem())];
        let [certificate, key] = files.map(|(kind, text)| self.write(&format!("{file}.{kind}"), &text));
        (certificate, key, hash)
    }

    fn server(&self, allowed: &[&str]) -> ServerFiles {
        let (certificate, key, _) = self.vouch("server", &["box.example", "127.0.0.1"], 4000);
        let allowed = allowed.iter().map(|client| client.parse().unwrap()).collect();
        ServerFiles { certificate, key, client_ca: Some(self.path("ca.pem")), revoked: None, allowed }
    }

    /// A list of those that are revoked, by their files.
    fn revoke(&self, files: &[&str]) -> PathBuf {
        let one = |file: &&str| RevokedCertParams {
            serial_number: SerialNumber::from_slice(file.as_bytes()),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(2002, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: files.iter().map(one).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let name = format!("revoked-{}.pem", files.len());
        self.write(&name, &list.signed_by(&self.issuer).unwrap().pem().unwrap())
    }

    fn client(&self, names: &[&str], until: i32) -> ClientFiles {
        let (certificate, key, _) = self.vouch("client", names, until);
        ClientFiles { ca: self.path("ca.pem"), own: Some((certificate, key)) }
    }
}

/// What either end says of a connection to `name`: the client's word first.
fn meet(client: &ClientFiles, server: &ServerFiles, name: &str) -> (Result<(), String>, Result<(), String>) {
    let config = server.config(&server.read().unwrap(), HTTP).unwrap();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client.config(HTTP).unwrap()), name).unwrap();
    client.writer().write_all(b"hello").unwrap();
    let (mut at_client, mut at_server) = (Ok(()), Ok(()));
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut bytes.as_slice()).unwrap();
        at_server = at_server.and(server.process_new_packets().map(drop).map_err(|error| error.to_string()));
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut bytes.as_slice()).unwrap();
        at_client = at_client.and(client.process_new_packets().map(drop).map_err(|error| error.to_string()));
    }
    let mut read = [0; 8];
    let heard = server.reader().read(&mut read).is_ok_and(|count| &read[..count] == b"hello");
    assert_eq!(heard, at_client.is_ok() && at_server.is_ok(), "only who is let in is heard");
    (at_client, at_server)
}

fn refused((client, server): (Result<(), String>, Result<(), String>)) -> String {
    format!("{} / {}", client.expect_err("the client is told"), server.expect_err("the server refuses"))
}

#[test]
fn whoever_is_vouched_for_is_let_in_where_there_is_no_list() {
    let authority = Authority::new();
    let (client, server) = (authority.client(&["front.example"], 4000), authority.server(&[]));
    for name in ["box.example", "127.0.0.1"] {
        assert_eq!(meet(&client, &server, name), (Ok(()), Ok(())));
    }
}

#[test]
fn with_a_list_only_who_is_on_it_by_a_name_or_by_the_certificate() {
    let authority = Authority::new();
    let server = authority.server(&["front.example", "10.0.0.7"]);
    for names in [&["front.example"][..], &["other.example", "front.example"], &["10.0.0.7"]] {
        assert_eq!(
            meet(&authority.client(names, 4000), &server, "box.example"),
            (Ok(()), Ok(())),
            "{names:?}"
        );
    }
    for names in [&["other.example"][..], &["front.example.org"], &["10.0.0.8"], &[]] {
        let told = refused(meet(&authority.client(names, 4000), &server, "box.example"));
        assert!(told.contains("AccessDenied"), "{names:?}: {told}");
    }
    let (certificate, key, hash) = authority.vouch("plain", &[], 4000);
    let named = Client::Certificate(hash).to_string();
    let client = ClientFiles { ca: authority.path("ca.pem"), own: Some((certificate, key)) };
    assert_eq!(meet(&client, &authority.server(&[&named]), "box.example"), (Ok(()), Ok(())));
    let other = authority.client(&["front.example"], 4000);
    assert!(refused(meet(&other, &authority.server(&[&named]), "box.example")).contains("AccessDenied"));
    // The common name is no name.
    let common = authority.server(&["common.example"]);
    assert!(refused(meet(&client, &common, "box.example")).contains("AccessDenied"));
}

#[test]
fn whom_nobody_trusted_vouches_for_is_refused_and_so_is_who_shows_nothing_or_what_is_past() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(&[]);
    let own = |client: ClientFiles| ClientFiles { ca: authority.path("ca.pem"), ..client };
    let strange = own(stranger.client(&["front.example"], 4000));
    assert!(refused(meet(&strange, &server, "box.example")).contains("UnknownIssuer"));
    let past = authority.client(&["front.example"], 2001);
    assert!(refused(meet(&past, &server, "box.example")).contains("expired"));
    let silent = ClientFiles { ca: authority.path("ca.pem"), own: None };
    assert!(refused(meet(&silent, &server, "box.example")).contains("CertificateRequired"));
    let open = ServerFiles { client_ca: None, ..server };
    assert_eq!(meet(&silent, &open, "box.example"), (Ok(()), Ok(())));
}

#[test]
fn what_is_revoked_is_refused_and_so_is_what_no_list_is_there_of() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client = authority.client(&["front.example"], 4000);
    let with = |list: PathBuf| ServerFiles { revoked: Some(list), ..authority.server(&[]) };
    // A list that is past its time says what it says.
    assert_eq!(meet(&client, &with(authority.revoke(&[])), "box.example"), (Ok(()), Ok(())));
    let revoked = with(authority.revoke(&["client"]));
    assert!(refused(meet(&client, &revoked, "box.example")).contains("Revoked"));
    // Of another one with the list of ours: whether it is revoked nobody knows.
    let unknown = with(other.revoke(&[]));
    assert!(refused(meet(&client, &unknown, "box.example")).contains("UnknownRevocationStatus"));
}

#[test]
fn a_server_must_be_vouched_for_by_its_name_and_now() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (client, server) = (authority.client(&["front.example"], 4000), authority.server(&[]));
    assert!(refused(meet(&client, &server, "other.example")).contains("not valid for name"));
    assert!(refused(meet(&client, &server, "127.0.0.2")).contains("not valid for name"));
    let deceived = ClientFiles { ca: stranger.path("ca.pem"), ..client.clone() };
    assert!(refused(meet(&deceived, &server, "box.example")).contains("UnknownIssuer"));
    let (certificate, key, _) = authority.vouch("past", &["box.example"], 2001);
    let past = ServerFiles { certificate, key, ..server };
    assert!(refused(meet(&client, &past, "box.example")).contains("expired"));
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let authority = Authority::new();
    let good = authority.server(&[]);
    let told = |files: &ServerFiles| files.read().and_then(|pems| files.config(&pems, HTTP)).unwrap_err();
    let empty = authority.write("empty.pem", "");
    let large = authority.write("large.pem", &"x".repeat((1 << 20) + 1));
    let broken = authority.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let (_, other, _) = authority.vouch("other", &[], 4000);
    for (files, path, word) in [
        (ServerFiles { certificate: authority.path("none"), ..good.clone() }, "none", "No such file"),
        (ServerFiles { certificate: empty.clone(), ..good.clone() }, "empty.pem", "no certificate"),
        (ServerFiles { certificate: large, ..good.clone() }, "large.pem", "more than 1048576 bytes"),
        (ServerFiles { key: empty.clone(), ..good.clone() }, "empty.pem", "no private key"),
        (ServerFiles { key: other, ..good.clone() }, "other.key", "no key to"),
        (ServerFiles { client_ca: Some(empty.clone()), ..good.clone() }, "empty.pem", "no certificate"),
        (
            ServerFiles { revoked: Some(empty.clone()), ..good.clone() },
            "empty.pem",
            "no list of what is revoked",
        ),
        (ServerFiles { client_ca: Some(broken), ..good }, "broken.pem", ""),
    ] {
        let told = told(&files).to_string();
        assert!(told.contains(path) && told.contains(word), "{told}");
    }
    let client = ClientFiles { ca: empty, own: None };
    assert!(client.config(HTTP).unwrap_err().to_string().contains("empty.pem: has no certificate"));
}

#[test]
fn clients_are_named_as_they_are_written() {
    let hash = format!("sha256:{}", "0f".repeat(32));
    for text in ["front.example", "10.0.0.7", "::1", &hash] {
        assert_eq!(text.parse::<Client>().unwrap().to_string(), text);
    }
    let colons = format!("sha256:{}", ["0F"; 32].join(":"));
    assert_eq!(colons.parse::<Client>().unwrap().to_string(), hash);
    for text in
        ["", "front example", "sha256:", "sha256:0f", &format!("sha256:{}", "0g".repeat(32)), "sha256:é"]
    {
        assert!(text.parse::<Client>().is_err(), "{text}");
    }
}
