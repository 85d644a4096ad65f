//! The files that a configuration names: where they are, and which may be written.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::check::{Check, Refused, all};
use super::raw::FilePath;
use super::{DaemonConfig, DeviceConfig, ListenAddress, RecordConfig, ServiceConfig};

/// How a recording begins, before `service` or `device` and its name.
pub const RECORDING: &str = "# weir: arrivals at";

/// Arrivals of a recording at most: as many as a simulation reads.
pub const MAX_RECORDED: u64 = 10_000_000;

impl Check<'_> {
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Where to find what is run or loaded: a bare name would be looked for elsewhere than beside the file.
    pub(super) fn resolve_named(&self, path: &Path) -> PathBuf {
        Path::new(".").join(self.resolve(path))
    }

    pub(super) fn record(
        &self,
        at: &str,
        path: Option<FilePath>,
        limit: Option<u64>,
    ) -> Result<Option<RecordConfig>, Refused> {
        let most = MAX_RECORDED;
        let field = format!("{at}.record-limit");
        match (path, limit) {
            (Some(path), limit) => {
                let path = self.resolve(&path);
                if holds_else(&path) {
                    let reason = "is there and is no recording; remove it, or name another file";
                    return Err(self.refuse(&format!("{at}.record"), &path.display().to_string(), reason));
                }
                Ok(Some(RecordConfig { path, limit: self.number(&field, limit.unwrap_or(most), 1, most)? }))
            }
            (None, Some(limit)) => Err(self.refuse(
                &field,
                &limit.to_string(),
                "only with record; remove it, or name a file there",
            )),
            (None, None) => Ok(None),
        }
    }

    /// What the daemon or a command makes must be no other file of the configuration.
    pub(super) fn files(
        &self,
        daemon: &DaemonConfig,
        devices: &[DeviceConfig],
        services: &[ServiceConfig],
    ) -> Result<(), Refused> {
        let read = services.iter().filter_map(|service| service.select.file());
        let read = read.chain([self.path]).chain(daemon.models.as_deref());
        let mut taken: HashSet<PathBuf> = read.map(place).collect();
        // Services that share workers are recorded in the file of their device.
        let own = services.iter().filter(|service| service.share.is_none());
        let own = own.map(|service| (format!("{}.record", service.at), &service.record));
        let shared = devices.iter().enumerate();
        let shared = shared.map(|(i, device)| (format!("device[{i}].record"), &device.record));
        let records = shared.chain(own);
        let records = records.filter_map(|(field, record)| Some((field, &record.as_ref()?.path)));
        let made = [
            ("daemon.profile", Some(&daemon.profile)),
            ("daemon.certificate", daemon.certificate.as_ref()),
            ("daemon.socket", Some(&daemon.socket)),
            ("daemon.metrics", daemon.metrics.as_ref().and_then(ListenAddress::path)),
            ("daemon.oip.http", daemon.oip.http.as_ref().and_then(ListenAddress::path)),
            ("daemon.oip.grpc", daemon.oip.grpc.as_ref().and_then(ListenAddress::path)),
        ];
        let ports = [
            ("daemon.metrics", &daemon.metrics),
            ("daemon.oip.http", &daemon.oip.http),
            ("daemon.oip.grpc", &daemon.oip.grpc),
        ];
        let ports = ports.map(|(field, address)| (field, address.as_ref().and_then(ListenAddress::port)));
        for (i, (field, port)) in ports.iter().enumerate() {
            let same = |(_, other): &&(_, _)| port.is_some() && other == port;
            if let (Some(port), Some((other, _))) = (port, ports[..i].iter().find(same)) {
                let reason = format!("is that of {other} already: each needs an address of its own");
                return Err(self.refuse(field, &format!("\"{port}\""), reason));
            }
        }
        let made = made.into_iter().filter_map(|(field, path)| Some((field.to_owned(), path?)));
        all(made.chain(records).map(|(field, path)| match taken.insert(place(path)) {
            true => Ok(()),
            false => {
                let value = path.display().to_string();
                Err(self.refuse(&field, &value, "must be no other file of this configuration"))
            }
        }))
        .map(drop)
    }
}

/// Where a file is or will be, however it is spelt.
fn place(path: &Path) -> PathBuf {
    let folder =
        path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let new = || Some(folder?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(new).unwrap_or_else(|| path.to_owned())
}

/// Whether the recording at `path` has arrivals, which would be lost if another one began there.
pub fn has_arrivals(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let said = |line: String| !line.is_empty() && !line.starts_with('#') && line != "time,stream";
    BufReader::new(file).lines().map_while(Result::ok).any(said)
}

/// Whether a recording would take the place of something else: a model, a profile, a pipe.
fn holds_else(path: &Path) -> bool {
    let Ok(there) = std::fs::metadata(path) else { return false };
    let mut head = Vec::new();
    let mut read = || File::open(path)?.take(RECORDING.len() as u64).read_to_end(&mut head);
    // What this user may not read, the daemon's may.
    !there.is_file() || (read().is_ok() && !RECORDING.as_bytes().starts_with(&head))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn a_file_is_the_same_however_it_is_spelt() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("here")).expect("made");
        std::os::unix::fs::symlink("here", folder.path().join("there")).expect("linked");
        let path = folder.path().join("weir.toml");
        let service = "[[service]]\nname = \"a\"\nmodel = \"m\"\ndeadline = \"9ms\"\n";
        let load = |daemon: &str| {
            std::fs::write(&path, format!("[daemon]\n{daemon}\n{service}")).expect("written");
            Config::load(&path).map(drop).map_err(|error| error.to_string())
        };
        for (daemon, field) in [
            ("socket = \"f\"\nmetrics = \"unix:./f\"", "daemon.metrics"),
            ("profile = \"here/p\"\ncertificate = \"there/p\"", "daemon.certificate"),
            ("profile = \"here/../weir.toml\"", "daemon.profile"),
            ("[daemon.oip]\nhttp = \"unix:a\"\ngrpc = \"unix:here/../a\"", "daemon.oip.grpc"),
        ] {
            let told = load(daemon).expect_err(daemon);
            assert!(told.contains(field) && told.contains("must be no other file"), "{daemon}: {told}");
        }
        assert_eq!(load("profile = \"here/p\"\ncertificate = \"there/q\""), Ok(()));
    }
}
