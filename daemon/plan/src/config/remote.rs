//! Servers elsewhere that compute for a service, checked.

use std::path::Path;

use rt_core::{MAX_WORKERS, Span};

use super::check::{Check, Refused, all};
use super::interfaces::LONGEST_SOCKET;
use super::service::{Promise, Runs};
use super::{ServiceConfig, raw};
use weir_engine::{Address, EngineKind, Isolation, Location, Remote};
use weir_oip::tls::ClientFiles;
use weir_os::clock;

/// How long a server may be given to answer.
const SHORTEST_TIMEOUT: Span = Span::from_millis(1);
const LONGEST_TIMEOUT: Span = Span::from_millis(60_000);

impl Check<'_> {
    /// The servers of a service, if they are what computes.
    pub(super) fn remote(&self, at: &str, raw: &raw::Service) -> Result<Option<Remote>, Refused> {
        let refuse =
            |name: &str, value: &str, reason: &str| Err(self.refuse(&format!("{at}.{name}"), value, reason));
        let Some(said) = self.said(at, raw.remote.as_ref(), raw.engine)? else { return Ok(None) };
        if raw.isolation == Some(Isolation::Process) && !raw.has_candidates() {
            let reason = "engine \"oip\" runs no model here that could crash: remove it";
            return refuse("isolation", "\"process\"", reason);
        }
        if let Some(first) = raw.variants.first() {
            let reason = "is not possible with engine \"oip\" yet: serve each model as a service of its own";
            return refuse("variants", &format!("{first:?}"), reason);
        }
        let default = raw.model.clone().unwrap_or_default();
        self.servers(at, said, model_there(&default)).map(Some)
    }

    /// What is said of servers, which the engine must want, or must not.
    pub(super) fn said<'a>(
        &self,
        at: &str,
        remote: Option<&'a raw::Remote>,
        engine: EngineKind,
    ) -> Result<Option<&'a raw::Remote>, Refused> {
        let (value, reason) = match (remote, engine) {
            (Some(said), EngineKind::Oip) => return Ok(Some(said)),
            (None, EngineKind::Oip) => (
                "(absent)",
                "engine \"oip\" needs the servers that compute: { url = \"http://127.0.0.1:8000\" }",
            ),
            (None, _) => return Ok(None),
            (Some(_), _) => ("(table)", "only for engine = \"oip\"; remove it"),
        };
        Err(self.refuse(&format!("{at}.remote"), value, reason))
    }

    /// The servers that a service or a class of devices names at `at`, which call the model as is said there, or else so.
    pub(super) fn servers(&self, at: &str, said: &raw::Remote, model: &str) -> Result<Remote, Refused> {
        let refuse =
            |name: &str, value: &str, reason: &str| Err(self.refuse(&format!("{at}.{name}"), value, reason));
        let field = |name: &str| format!("{at}.remote.{name}");
        let urls = said.url.all();
        let count =
            self.number(&format!("{} (how many)", field("url")), urls.len() as u64, 1, MAX_WORKERS as u64);
        let tls = said.tls.as_ref().map(|raw| self.client_tls(&field("tls"), raw)).transpose();
        let trusts = said.tls.is_some();
        let addresses =
            all(urls.iter().map(|url| self.address(&field("url"), url, (trusts, said.plaintext))));
        let model = self.part(&field("model"), said.model.as_deref().unwrap_or(model));
        let version =
            said.version.as_deref().map(|version| self.part(&field("version"), version)).transpose();
        let stream = match said.stream.as_deref() {
            Some(name) if !super::is_name(name) => {
                let reason = "must be 1..=64 letters, digits or any of - _ . /";
                return refuse("remote.stream", &format!("{name:?}"), reason);
            }
            name => name.map(str::to_owned),
        };
        let timeout = self.duration(&field("timeout"), &said.timeout)?;
        if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) {
            let reason = format!("must be {SHORTEST_TIMEOUT}..={LONGEST_TIMEOUT}");
            return refuse("remote.timeout", &said.timeout, &reason);
        }
        count?;
        let (addresses, timeout, tls) = (addresses?, clock::duration(timeout), tls?);
        if tls.is_some() && !addresses.iter().any(Address::is_secure) {
            return refuse("remote.tls", "(table)", "no url is \"https://…\" or \"grpcs://…\"; remove it");
        }
        Ok(Remote { addresses, model: model?, version: version?, stream, timeout, tls })
    }

    /// Workers enough for all servers, and time enough for what may stand still.
    pub(super) fn remote_fits(&self, at: &str, runs: &Runs, promise: &Promise) -> Result<(), Refused> {
        let Some(remote) = runs.remote() else { return Ok(()) };
        if runs.workers() < remote.addresses.len() {
            let (count, workers) = (remote.addresses.len(), runs.workers());
            let reason =
                format!("only {workers} worker(s) are there to call them: remove some, or say more workers");
            return Err(self.refuse(&format!("{at}.remote.url (how many)"), &count.to_string(), reason));
        }
        match runs.stalls(promise) {
            Some(stalls) if clock::duration(stalls.lost()) >= remote.timeout => {
                let (value, lost) = (format!("{} ms", remote.timeout.as_millis()), stalls.lost());
                let reason =
                    format!("must be above {lost}, for which the stalls that are declared may stop a server");
                Err(self.refuse(&format!("{at}.remote.timeout"), &value, reason))
            }
            _ => Ok(()),
        }
    }

    /// A model has one entry in the profile, and so one place where it is served.
    pub(super) fn remotes_differ(&self, services: &[ServiceConfig]) -> Result<(), Refused> {
        let place = |service: &ServiceConfig| {
            let remote = service.backends[0].remote.clone()?;
            Some((remote.addresses, remote.model, remote.version))
        };
        // Workers with a name have an entry of their own, and what is placed has that of the whole class.
        let own = |runs: &&ServiceConfig| runs.kind.is_none() && !runs.is_on_some_servers();
        let all = services.iter().flat_map(ServiceConfig::running).filter(own);
        let all: Vec<_> = all.filter(|runs| place(runs).is_some()).collect();
        for (i, service) in all.iter().enumerate() {
            let same = |other: &&&ServiceConfig| other.model == service.model;
            if let Some(other) = all[..i].iter().find(same).filter(|other| place(other) != place(service)) {
                let reason = format!(
                    "service {} has the same model at other servers, and the profile has one entry for both: give it another \
                     name in the manifest, or its workers one",
                    other.name
                );
                return Err(self.refuse(&format!("{}.remote", service.at), "(table)", reason));
            }
        }
        Ok(())
    }

    /// The files are looked at by whoever uses them: not everybody who reads a configuration may read keys.
    fn client_tls(&self, field: &str, raw: &raw::ClientTls) -> Result<ClientFiles, Refused> {
        let own = match (&raw.certificate, &raw.key) {
            (Some(certificate), Some(key)) => Some((self.resolve(certificate), self.resolve(key))),
            (None, None) => None,
            (Some(_), None) => {
                return Err(self.refuse(
                    &format!("{field}.key"),
                    "(absent)",
                    "must be there with certificate",
                ));
            }
            (None, Some(_)) => {
                let reason = "must be there with key";
                return Err(self.refuse(&format!("{field}.certificate"), "(absent)", reason));
            }
        };
        Ok(ClientFiles { ca: self.resolve(&raw.ca), own })
    }

    fn address(&self, field: &str, url: &str, (trusts, plaintext): (bool, bool)) -> Result<Address, Refused> {
        let refuse = |reason: &str| Err(self.refuse(field, &format!("{url:?}"), reason));
        match url.parse() {
            Ok(Address { protocol, place: Location::Socket(path) }) => {
                let path = self.resolve(Path::new(&path));
                let length = path.as_os_str().len() as u64;
                self.number(&format!("{field} (length in bytes)"), length, 1, LONGEST_SOCKET)?;
                Ok(Address { protocol, place: Location::Socket(path) })
            }
            Ok(address) if address.is_secure() && !trusts => {
                refuse("needs remote.tls, with the ca that vouches for the server")
            }
            Ok(address) if address.is_secure() || address.is_local() || plaintext => Ok(address),
            Ok(_) => refuse(
                "whoever is on the way reads and changes all that goes to another machine in plain text: say \"https://…\" or \
                 \"grpcs://…\", or plaintext = true if that network is your own",
            ),
            Err(reason) => refuse(reason),
        }
    }

    /// What becomes part of a path.
    pub(super) fn part(&self, field: &str, name: &str) -> Result<String, Refused> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if (1..=64).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".." {
            return Ok(name.to_owned());
        }
        Err(self.refuse(field, &format!("{name:?}"), "must be 1..=64 letters, digits or any of - _ ."))
    }
}

/// What servers call a model if nothing else is said: a version of the manifest's is none of theirs.
pub(super) fn model_there(name: &str) -> &str {
    name.split('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
