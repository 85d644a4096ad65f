//! TLS for either side of the protocol, made of the files of a configuration: what a server shows and which clients it lets in, and whom a
//! client trusts.
//!
//! TLS 1.2 and 1.3, by rustls. No session is resumed: who was let in once is looked at again with each connection.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore};
use rustls::{ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use rustls::pki_types;

/// Bytes that a file of certificates or a key may have.
const MAX_FILE: u64 = 1 << 20;

/// What HTTP/1.1 is called when a connection is made.
pub const HTTP: &[u8] = b"http/1.1";
/// What HTTP/2 is called, which gRPC speaks.
pub const HTTP2: &[u8] = b"h2";

/// A file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct Unusable {
    /// Which file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What a server shows to its clients, and who they must be. All files are PEM, of at most 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, followed by those up to one that its clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Those who vouch for clients; without it nobody is asked who he is.
    pub client_ca: Option<PathBuf>,
    /// What each of these has revoked: a list of every one, whatever its age. Without it nothing is.
    pub revoked: Option<PathBuf>,
    /// Who of those that they vouch for is let in; all of them if it is empty.
    pub allowed: Vec<Client>,
}

/// A client, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Client {
    /// By one of the alternative names of the certificate: of a host, or an IP address.
    Name(ServerName<'static>),
    /// By the SHA-256 of the certificate itself.
    Certificate([u8; 32]),
}

/// Whom a client trusts, and what it shows of itself. All files are PEM, of at most 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFiles {
    /// Those who vouch for servers.
    pub ca: PathBuf,
    /// The client's certificate, followed by those up to one that its servers trust, and its private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// What stands in the files of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerPems {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
}

impl FromStr for Client {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let Some(hex) = text.strip_prefix("sha256:") else {
            let name = ServerName::try_from(text.to_owned());
            return name
                .map(Self::Name)
                .map_err(|_| "must be the name of a host, an IP address or \"sha256:\" and 64 hex digits");
        };
        let hex: String = hex.chars().filter(|c| *c != ':').collect();
        let mut hash = [0; 32];
        if hex.len() != 64 || !hex.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(
                "must have 64 hex digits after \"sha256:\", as `openssl x509 -fingerprint -sha256` tells them",
            );
        }
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| "must be hex digits")?;
        }
        Ok(Self::Certificate(hash))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&name.to_str()),
            Self::Certificate(hash) => {
                f.write_str("sha256:")?;
                hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl ServerFiles {
    /// What stands in them now.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&self) -> Result<ServerPems, Unusable> {
        let [client_ca, revoked] =
            [&self.client_ca, &self.revoked].map(|path| path.as_deref().map(read).transpose());
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        Ok(ServerPems { certificate, key, client_ca: client_ca?, revoked: revoked? })
    }

    /// TLS with what stood in them, for connections that speak `protocol`.
    ///
    /// # Errors
    /// A file that is not what it should be, or a key that is not the certificate's.
    pub fn config(&self, pems: &ServerPems, protocol: &[u8]) -> Result<ServerConfig, Unusable> {
        let provider = provider();
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(&self.certificate, error))?;
        let builder = match (&self.client_ca, &pems.client_ca) {
            (Some(path), Some(pem)) => {
                let roots = Arc::new(roots(path, pem)?);
                let mut trusted = WebPkiClientVerifier::builder_with_provider(roots, provider);
                if let (Some(path), Some(pem)) = (&self.revoked, &pems.revoked) {
                    trusted = trusted.with_crls(revoked(path, pem)?);
                }
                let trusted = trusted.build().map_err(|error| unusable(path, error))?;
                let allowed = self.allowed.clone();
                builder.with_client_cert_verifier(Arc::new(Listed { trusted, allowed }))
            }
            _ => builder.with_no_client_auth(),
        };
        let (chain, key) = (chain(&self.certificate, &pems.certificate)?, key(&self.key, &pems.key)?);
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| unusable(&self.key, own(&self.certificate, &error)))?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ClientFiles {
    /// TLS with what stands in them now, for connections that speak `protocol`.
    ///
    /// # Errors
    /// A file that cannot be read or is not what it should be, or a key that is not the certificate's.
    pub fn config(&self, protocol: &[u8]) -> Result<ClientConfig, Unusable> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(&self.ca, error))?;
        let builder = builder.with_root_certificates(roots(&self.ca, &read(&self.ca)?)?);
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((certificate, path)) => {
                let (chain, key) = (chain(certificate, &read(certificate)?)?, key(path, &read(path)?)?);
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(path, own(certificate, &error)))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Lets only those in who are trusted and on a list, if there is one.
#[derive(Debug)]
struct Listed {
    trusted: Arc<dyn ClientCertVerifier>,
    allowed: Vec<Client>,
}

impl ClientCertVerifier for Listed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trusted.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.trusted.verify_client_cert(certificate, between, now)?;
        let named = ParsedCertificate::try_from(certificate)?;
        let is = |client: &Client| match client {
            Client::Name(name) => verify_server_name(&named, name).is_ok(),
            Client::Certificate(hash) => Sha256::digest(certificate).as_slice() == hash,
        };
        if self.allowed.is_empty() || self.allowed.iter().any(is) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| unusable(path, error))?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(unusable(path, format!("has more than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

fn chain(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unusable(path, error))?;
    if chain.is_empty() { Err(unusable(path, "has no certificate (PEM)")) } else { Ok(chain) }
}

fn revoked(path: &Path, pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, Unusable> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let lists = lists.map_err(|error| unusable(path, error))?;
    // As good as no file at all, by which everybody would be let in.
    if lists.is_empty() { Err(unusable(path, "has no list of what is revoked (PEM)")) } else { Ok(lists) }
}

fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Unusable> {
    // What is wrong with it may tell of it.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| unusable(path, "has no private key that is not encrypted (PEM)"))
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for one in chain(path, pem)? {
        roots.add(one).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

/// Why a certificate of one's own and its key do not go together.
fn own(certificate: &Path, error: &rustls::Error) -> String {
    format!("is no key to {}: {error}", certificate.display())
}

fn unusable(path: &Path, reason: impl fmt::Display) -> Unusable {
    Unusable { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
