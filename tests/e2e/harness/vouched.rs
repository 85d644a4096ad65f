//! Certificates for tests: somebody who vouches for others, and the files of those.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use weir_oip::tls::ClientFiles;

static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);

/// Somebody who vouches for others.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one, whose certificate is put into this file.
    pub(crate) fn new(file: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each has a name of its own, by which it is told from others before its signature is looked at.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        std::fs::write(file, issuer.pem()).expect("written");
        Self(issuer)
    }

    /// Puts a certificate with this name, valid until a year, and its key into `file` with `.pem` and `.key`.
    pub(crate) fn vouch(&self, file: &Path, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let files = (file.with_extension("pem"), file.with_extension("key"));
        // The key last, as a careless renewal does: between the two they do not go together.
        std::fs::write(&files.0, certificate.pem()).expect("written");
        std::fs::write(&files.1, key.serialize_pem()).expect("written");
        files
    }

    /// A client that trusts `ca` and has a certificate with this name, in `file`.
    pub(crate) fn client(&self, file: &Path, (ca, name, until): (PathBuf, &str, i32)) -> ClientFiles {
        ClientFiles { ca, own: Some(self.vouch(file, name, until)) }
    }
}

/// An address of this machine that no other process has.
pub(crate) fn own_address() -> String {
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{}", 64 + high % 64, low.max(1))
}
