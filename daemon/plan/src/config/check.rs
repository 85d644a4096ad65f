//! From fields as written to values that can only be right, or an error that says which field is not.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Group, User};
use rt_core::{MAX_SPAN, SafeModeConfig, Span};
use serde::Serialize;
use toml::ser::ValueSerializer;
use weir_engine::manifest::Problems;

use super::LONGEST_PATH;
use super::places::Tree;
use super::{Allowed, Config, DaemonConfig, raw};

/// The longest REGISTERED, of 16 tensors a side with the longest names, takes 9.5 KB.
const MIN_FRAME: u64 = 16 << 10;

/// The most services of a configuration.
pub const MAX_SERVICES: usize = 16;

/// The value of a field that is not there.
pub(super) const ABSENT: &str = "(absent)";

/// Looks at every field of a file, notes all that is wrong with its place, and resolves paths against the file's folder.
pub(super) struct Check<'a> {
    pub(super) path: &'a Path,
    tree: &'a Tree<'a>,
    problems: RefCell<Problems<'a>>,
    /// Whether services may leave open what serves them.
    pub(super) open: bool,
}

/// Something is wrong, which has been noted.
#[derive(Debug)]
pub(super) struct Refused;

/// All of them, once each has been looked at.
pub(super) fn all<T>(items: impl Iterator<Item = Result<T, Refused>>) -> Result<Vec<T>, Refused> {
    let (mut list, mut whole) = (Vec::new(), true);
    for item in items {
        match item {
            Ok(item) => list.push(item),
            Err(Refused) => whole = false,
        }
    }
    if whole { Ok(list) } else { Err(Refused) }
}

/// Whether a service, a device or a stream of a configuration may be called so.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(plain)
}

impl<'a> Check<'a> {
    pub(super) fn new(path: &'a Path, tree: &'a Tree<'a>, problems: Problems<'a>, open: bool) -> Self {
        Self { path, tree, problems: RefCell::new(problems), open }
    }

    /// All that was found wrong.
    pub(super) fn into_problems(self) -> Vec<(usize, String)> {
        self.problems.into_inner().into_list()
    }

    pub(super) fn file(&self, raw: raw::File) -> Result<Config, Refused> {
        let hold = self.span("safe-mode.hold", &raw.safe_mode.hold, Span::ZERO);
        let clean = self.span("safe-mode.clean", &raw.safe_mode.clean, Span::ZERO);
        let daemon = self.daemon(raw.daemon);
        let hook = self.hook(&raw.safe_mode.hook, &raw.safe_mode.hook_limit);
        let devices = self.devices(raw.device);
        let placement = raw.placement.map(|raw| self.placement(raw, daemon.as_ref().ok())).transpose();
        let count = (raw.service.len() + raw.pipeline.len()) as u64;
        let count = self.number("service (how many, with those of pipeline)", count, 1, MAX_SERVICES as u64);
        let mut names = HashSet::new();
        let beside = (devices.as_deref().ok(), daemon.as_ref().ok());
        let services = all(raw.service.into_iter().enumerate().map(|(i, service)| {
            let at = format!("service[{i}]");
            let named = self.name(&format!("{at}.name"), service.name.clone(), &mut names);
            let service = self.placed_service(&at, service, beside, placement.as_ref());
            named.and(service)
        }));
        let pipelines = all(raw.pipeline.into_iter().enumerate().map(|(i, pipeline)| {
            let at = format!("pipeline[{i}]");
            let named = self.name(&format!("{at}.name"), pipeline.name.clone(), &mut names);
            let pipeline = self.pipeline(&at, pipeline, beside, placement.as_ref());
            named.and(pipeline)
        }));
        count?;
        let safe_mode = SafeModeConfig { hold: hold?, clean: clean?, latch: raw.safe_mode.latch };
        let (daemon, hook, devices, placement) = (daemon?, hook?, devices?, placement?);
        let services = [services?, pipelines?].concat();
        self.remotes_differ(&services)?;
        self.nobody_else(placement.as_ref(), &devices, &services)?;
        self.all_fit(placement.as_ref(), &services)?;
        let named = self.all_named(&devices, &services, placement.as_ref());
        self.files(&daemon, &devices, &services).and(named)?;
        Ok(Config {
            path: self.path.to_owned(),
            of_file: String::new(),
            text: String::new(),
            daemon,
            safe_mode,
            hook,
            devices,
            services,
            placement,
        })
    }

    fn daemon(&self, raw: raw::Daemon) -> Result<DaemonConfig, Refused> {
        let mode = u32::from_str_radix(&raw.socket_mode, 8).ok().filter(|mode| *mode <= 0o777);
        let socket_mode = mode
            .ok_or_else(|| self.refuse("daemon.socket-mode", &raw.socket_mode, "must be octal, 0..=0777"));
        let users = self.ids("daemon.allow-users", raw.allow_users, |name| {
            User::from_name(name).ok()?.map(|user| user.uid.as_raw())
        });
        let groups = self.ids("daemon.allow-groups", raw.allow_groups, |name| {
            Group::from_name(name).ok()?.map(|group| group.gid.as_raw())
        });
        let socket = self.resolve(&raw.socket);
        let length = socket.as_os_str().len() as u64;
        // The kernel's sockaddr_un holds 108 bytes, the last one zero.
        let fits = self.number("daemon.socket (length in bytes)", length, 1, LONGEST_PATH);
        let max_model = self.number("daemon.max-model", raw.max_model, 1, 1 << 40);
        let max_clients = self.number("daemon.max-clients", raw.max_clients, 1, 1024);
        let client_streams = self.number("daemon.client-streams", raw.client_streams, 1, 1024);
        let client_requests = self.number("daemon.client-requests", raw.client_requests, 1, 1 << 16);
        let client_questions = self.number("daemon.client-questions", raw.client_questions, 1, 1 << 16);
        let max_frame = self.number("daemon.max-frame", raw.max_frame, MIN_FRAME, 64 << 20);
        let max_pending = self.number("daemon.max-pending", raw.max_pending, 4096, 64 << 20);
        let max_arena = self.number("daemon.max-arena", raw.max_arena, 0, 1 << 30);
        let (bus, metrics) = (self.bus(&raw.bus), self.local("daemon.metrics", raw.metrics.as_deref()));
        let (users, groups) = (users?, groups?);
        let allowed = (users.is_some() || groups.is_some())
            .then(|| Allowed { users: users.unwrap_or_default(), groups: groups.unwrap_or_default() });
        fits?;
        let oip = self.oip(&raw.oip, allowed.is_some());
        Ok(DaemonConfig {
            socket,
            socket_mode: socket_mode?,
            models: raw.models.map(|path| self.resolve(&path)),
            profile: self.resolve(&raw.profile),
            onnxruntime: raw.onnxruntime.map(|path| self.resolve_named(&path)),
            max_model: max_model?,
            certificate: raw.certificate.map(|path| self.resolve(&path)),
            max_clients: max_clients? as usize,
            client_streams: client_streams? as usize,
            client_requests: client_requests? as usize,
            client_questions: client_questions? as usize,
            max_frame: max_frame? as u32,
            max_pending: max_pending? as usize,
            max_arena: max_arena?,
            realtime: raw.realtime,
            allowed,
            bus: bus?,
            metrics: metrics?,
            oip: oip?,
        })
    }

    pub(super) fn span(&self, field: &str, text: &str, least: Span) -> Result<Span, Refused> {
        let span = self.duration(field, text)?;
        if span < least || span > MAX_SPAN {
            return Err(self.refuse(field, text, format!("must be {least}..=1h")));
        }
        Ok(span)
    }

    /// Of any length.
    pub(super) fn duration(&self, field: &str, text: &str) -> Result<Span, Refused> {
        let duration: Duration = text
            .parse::<humantime::Duration>()
            .map_err(|e| self.refuse(field, text, format!("no duration such as \"50ms\" ({e})")))?
            .into();
        Ok(Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn number(&self, field: &str, value: u64, min: u64, max: u64) -> Result<u64, Refused> {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), format!("must be in {min}..={max}")))
    }

    pub(super) fn name(
        &self,
        field: &str,
        name: String,
        taken: &mut HashSet<String>,
    ) -> Result<String, Refused> {
        if !is_name(&name) {
            let reason = "must be 1..=64 letters, digits or any of - _ . /";
            return Err(self.refuse(field, &format!("\"{name}\""), reason));
        }
        if !taken.insert(name.clone()) {
            return Err(self.refuse(field, &name, "is taken already"));
        }
        Ok(name)
    }

    /// Names or numbers to ids, through the third field of a colon-separated database.
    fn ids(
        &self,
        field: &str,
        names: Option<Vec<String>>,
        look_up: impl Fn(&str) -> Option<u32>,
    ) -> Result<Option<Vec<u32>>, Refused> {
        let id = |(i, name): (usize, &String)| {
            let id = name.parse().ok().or_else(|| look_up(name));
            let reason = "is neither a number nor a name that this machine knows";
            id.ok_or_else(|| self.refuse(&format!("{field}[{i}]"), name, reason))
        };
        names.map(|names| all(names.iter().enumerate().map(id))).transpose()
    }

    /// Whether a field stands in the file and was left out, so that nothing can be said of what depends on it.
    pub(super) fn lacks(&self, field: &str) -> bool {
        self.tree.lacks(field)
    }

    /// Notes that a field has a value which is not allowed; behind its name may stand what of it is meant. What is wrong itself, and
    /// has been noted as such, is not missing as well, nor are there too few of it.
    pub(super) fn refuse(&self, field: &str, value: &str, reason: impl Display) -> Refused {
        let (name, meant) = field.split_once(' ').unwrap_or((field, ""));
        let of_what_is_there = value != ABSENT && !meant.starts_with("(how many");
        if of_what_is_there || !self.tree.lacks(name) {
            self.problems.borrow_mut().add(self.tree.place(name), format!("{field} = {value}: {reason}"));
        }
        Refused
    }
}

/// A value as it stands in the file.
pub(super) fn shown(value: &impl Serialize) -> String {
    let mut text = String::new();
    match value.serialize(ValueSerializer::new(&mut text)) {
        Ok(_) => text,
        Err(error) => error.to_string(),
    }
}
