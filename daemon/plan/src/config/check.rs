//! From fields as written to values that can only be right, or an error that says which field is not.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Group, User};
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, MAX_BATCH, MAX_SPAN, MAX_STALLS,
    SafeModeConfig, Span, Stalls, StreamSpec,
};
use serde::Serialize;
use toml::ser::ValueSerializer;

use super::LONGEST_PATH;
use super::device::Place;
use super::{
    Allowed, Config, ConfigError, DaemonConfig, DeviceConfig, HeldBy, ReservedStream, ServiceConfig,
    Tolerance, raw,
};

/// The longest REGISTERED, of 16 tensors a side with the longest names, takes 9.5 KB.
const MIN_FRAME: u64 = 16 << 10;

/// The largest batch that is profiled and served, unless told otherwise.
const MOST_SERVED: u64 = 8;
/// Unless it is stated, requests may be early by one such part of the time that there is to answer them.
const AUTO_TOLERANCE: u64 = 10;

/// Knows the file, to name it and to resolve paths against its folder.
pub(super) struct Check<'a> {
    pub(super) path: &'a Path,
}

/// Whether a service, a device or a stream of a configuration may be called so.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(plain)
}

impl<'a> Check<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self { path }
    }

    pub(super) fn file(&self, raw: raw::File) -> Result<Config, ConfigError> {
        let safe_mode = SafeModeConfig {
            hold: self.span("safe-mode.hold", &raw.safe_mode.hold, Span::ZERO)?,
            clean: self.span("safe-mode.clean", &raw.safe_mode.clean, Span::ZERO)?,
            latch: raw.safe_mode.latch,
        };
        let daemon = self.daemon(raw.daemon)?;
        let hook = self.hook(&raw.safe_mode.hook, &raw.safe_mode.hook_limit)?;
        let devices = self.devices(raw.device)?;
        self.number("number of [[service]]", raw.service.len() as u64, 1, 16)?;
        let mut names = HashSet::new();
        let mut services = Vec::new();
        for (i, service) in raw.service.into_iter().enumerate() {
            let at = format!("service[{i}]");
            self.name(&format!("{at}.name"), &service.name, &mut names)?;
            services.push(self.service(&at, service, (&devices, &daemon))?);
        }
        self.all_named(&devices, &services)?;
        self.files(&daemon, &devices, &services)?;
        Ok(Config { path: self.path.to_owned(), daemon, safe_mode, hook, devices, services })
    }

    fn daemon(&self, raw: raw::Daemon) -> Result<DaemonConfig, ConfigError> {
        let mode = u32::from_str_radix(&raw.socket_mode, 8).ok().filter(|mode| *mode <= 0o777);
        let socket_mode = mode
            .ok_or_else(|| self.refuse("daemon.socket-mode", &raw.socket_mode, "must be octal, 0..=0777"))?;
        let users = self.ids("daemon.allow-users", raw.allow_users, |name| {
            User::from_name(name).ok()?.map(|user| user.uid.as_raw())
        })?;
        let groups = self.ids("daemon.allow-groups", raw.allow_groups, |name| {
            Group::from_name(name).ok()?.map(|group| group.gid.as_raw())
        })?;
        let allowed = (users.is_some() || groups.is_some())
            .then(|| Allowed { users: users.unwrap_or_default(), groups: groups.unwrap_or_default() });
        let socket = self.resolve(&raw.socket);
        let length = socket.as_os_str().len() as u64;
        // The kernel's sockaddr_un holds 108 bytes, the last one zero.
        self.number("length of daemon.socket in bytes", length, 1, LONGEST_PATH)?;
        Ok(DaemonConfig {
            socket,
            socket_mode,
            models: raw.models.map(|path| self.resolve(&path)),
            profile: self.resolve(&raw.profile),
            onnxruntime: raw.onnxruntime.map(|path| self.resolve_named(&path)),
            max_model: self.number("daemon.max-model", raw.max_model, 1, 1 << 40)?,
            certificate: raw.certificate.map(|path| self.resolve(&path)),
            max_clients: self.number("daemon.max-clients", raw.max_clients, 1, 1024)? as usize,
            client_streams: self.number("daemon.client-streams", raw.client_streams, 1, 1024)? as usize,
            client_requests: self.number("daemon.client-requests", raw.client_requests, 1, 1 << 16)? as usize,
            client_questions: self.number("daemon.client-questions", raw.client_questions, 1, 1 << 16)?
                as usize,
            max_frame: self.number("daemon.max-frame", raw.max_frame, MIN_FRAME, 64 << 20)? as u32,
            max_pending: self.number("daemon.max-pending", raw.max_pending, 4096, 64 << 20)? as usize,
            max_arena: self.number("daemon.max-arena", raw.max_arena, 0, 1 << 30)?,
            realtime: raw.realtime,
            allowed,
            bus: self.bus(&raw.bus)?,
            metrics: self.metrics(raw.metrics.as_deref())?,
        })
    }

    fn service(
        &self,
        at: &str,
        raw: raw::Service,
        (devices, daemon): (&[DeviceConfig], &DaemonConfig),
    ) -> Result<ServiceConfig, ConfigError> {
        let field = |name: &str| format!("{at}.{name}");
        let max_batch = match raw.max_batch {
            Some(most) => self.number(&field("max-batch"), most, 1, MAX_BATCH as u64)?,
            None => {
                MOST_SERVED.max(self.number(&field("batch"), raw.batch.unwrap_or(1), 1, MAX_BATCH as u64)?)
            }
        };
        let isolation = raw.isolation.unwrap_or(raw.engine.isolation());
        let engine = (raw.engine, isolation);
        if let Some(remedy) = raw.engine.how_to_build() {
            let reason = format!("this weir was built without it: {remedy}");
            return Err(self.refuse(&field("engine"), &raw.engine.to_string(), reason));
        }
        let Place { share, workers, cores, gpu, record } = self.place(at, &raw, devices)?;
        let backends = self.backends(&gpu.0, engine, gpu.1, daemon)?;
        let models = (raw.engine, raw.model, raw.variants);
        let (model, select) = self.model(at, models, raw.simulated, raw.select)?;
        let deadline = self.span(&field("deadline"), &raw.deadline, Span::from_nanos(1))?;
        let guard = self.span(&field("guard"), &raw.guard, Span::ZERO)?;
        if guard >= deadline {
            let reason = format!("must be below the deadline, {deadline}");
            return Err(self.refuse(&field("guard"), &raw.guard, reason));
        }
        let stalls_held_by = raw.stalls.as_ref().map_or(HeldBy::Auto, |stalls| stalls.by);
        let possible = raw.background && share.is_none();
        let stated = raw.tolerance.as_deref().unwrap_or("auto");
        let tolerance =
            self.tolerance((&field("tolerance"), stated), deadline.saturating_sub(guard), possible)?;
        let stalls = raw.stalls.map(|stalls| self.stalls(&field("stalls"), &stalls)).transpose()?;
        let batch = match raw.batch {
            Some(b) => Some(self.number(&field("batch"), b, 1, max_batch)? as usize),
            None => None,
        };
        let constraints = self.constraints(&field("constraints"), &raw.constraints)?;
        let mut names = HashSet::new();
        let mut reserved = Vec::new();
        for (i, stream) in raw.stream.into_iter().enumerate() {
            let at = format!("{at}.stream[{i}]");
            self.name(&format!("{at}.name"), &stream.name, &mut names)?;
            let stream = self.stream(&at, stream, &constraints)?;
            if !raw.background && stream.spec.arrivals().is_none() {
                let reason = "must declare how its requests come where background = false";
                return Err(self.refuse(&format!("{at}.arrivals"), "[]", reason));
            }
            reserved.push(stream);
        }
        if !raw.background && !model.is_single() {
            let reason = "is not possible with variants, whose longer batches are reckoned beside background";
            return Err(self.refuse(&field("background"), "false", reason));
        }
        let streams = self.number(&field("streams"), raw.streams, 1, 1024)? as usize;
        self.number(&field("stream (how many)"), reserved.len() as u64, 0, streams as u64)?;
        Ok(ServiceConfig {
            name: raw.name,
            engine: raw.engine,
            isolation,
            share,
            backends,
            model,
            select,
            deadline,
            guard,
            tolerance,
            stalls,
            stalls_held_by,
            handover: self.span(&field("handover"), &raw.handover, Span::ZERO)?,
            workers,
            cores,
            max_batch: max_batch as usize,
            batch,
            probability: self.probability(&field("probability"), raw.probability)?,
            optimise: raw.optimise.unwrap_or_default(),
            dispatch: match raw.dispatch {
                raw::Dispatch::Eager => Dispatch::Eager,
                raw::Dispatch::FullOrLatest => Dispatch::FullOrLatest,
            },
            queue: self.number(&field("queue"), raw.queue, 1, 1 << 16)? as usize,
            background: raw.background,
            streams,
            constraints: constraints.as_slice().to_vec(),
            jitter: self.span(&field("jitter"), &raw.jitter, Span::ZERO)?,
            record,
            reserved,
        })
    }

    /// How early requests may come, of `latency` to answer them, where that is `possible`.
    fn tolerance(
        &self,
        (at, stated): (&str, &str),
        latency: Span,
        possible: bool,
    ) -> Result<Tolerance, ConfigError> {
        if stated == "auto" {
            let most = Span::from_nanos(latency.as_nanos() / AUTO_TOLERANCE);
            return Ok(Tolerance { most: if possible { most } else { Span::ZERO }, paced: true });
        }
        let most = self.span(at, stated, Span::ZERO)?;
        if most > Span::ZERO && !possible {
            let reason =
                "is not possible where services share workers, nor with background = false: remove it";
            return Err(self.refuse(at, stated, reason));
        }
        if most >= latency {
            let reason = format!("must be below the deadline less the guard, {latency}");
            return Err(self.refuse(at, stated, reason));
        }
        Ok(Tolerance { most, paced: false })
    }

    fn stalls(&self, at: &str, raw: &raw::Stalls) -> Result<Stalls, ConfigError> {
        let count = self.number(&format!("{at}.at-most"), raw.at_most, 1, MAX_STALLS as u64)?;
        let window = self.span(&format!("{at}.in"), &raw.window, Span::from_nanos(1))?;
        let length = self.span(&format!("{at}.of"), &raw.length, Span::from_nanos(1))?;
        Stalls::new(count as u32, window, length)
            .map_err(|error| self.refuse(&format!("{at}.of"), &raw.length, error))
    }

    fn probability(&self, field: &str, value: f64) -> Result<f64, ConfigError> {
        if (0.5..=0.999).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), "must be in 0.5..=0.999"))
    }

    fn stream(
        &self,
        at: &str,
        raw: raw::Stream,
        defaults: &ConstraintSet,
    ) -> Result<ReservedStream, ConfigError> {
        let constraints = match raw.constraints {
            Some(list) => self.constraints(&format!("{at}.constraints"), &list)?,
            None => defaults.clone(),
        };
        let field = format!("{at}.arrivals");
        let mut bounds = Vec::new();
        for (i, arrival) in raw.arrivals.iter().enumerate() {
            bounds.push(self.arrival(&format!("{field}[{i}]"), arrival)?);
        }
        let spec = match (constraints.as_slice().is_empty(), bounds.is_empty()) {
            (true, true) => StreamSpec::best_effort(),
            (false, true) => {
                let reason = "a stream with constraints must declare how its requests come";
                return Err(self.refuse(&field, "[]", reason));
            }
            _ => {
                let curve = ArrivalCurve::new(&bounds)
                    .map_err(|e| self.refuse(&field, &format!("{} bounds", bounds.len()), e))?;
                StreamSpec::promised(constraints, curve)
            }
        };
        Ok(ReservedStream { name: raw.name, spec })
    }

    fn constraints(&self, field: &str, raw: &[raw::Constraint]) -> Result<ConstraintSet, ConfigError> {
        let mut list = Vec::new();
        for (i, c) in raw.iter().enumerate() {
            let made = match *c {
                raw::Constraint::AnyMiss { m, k } => Constraint::any_miss(m, k),
                raw::Constraint::AnyHit { h, k } => Constraint::any_hit(h, k),
                raw::Constraint::RowMiss(m) => Constraint::row_miss(m),
                raw::Constraint::RowHit { h, k } => Constraint::row_hit(h, k),
            };
            list.push(made.map_err(|e| self.refuse(&format!("{field}[{i}]"), &shown(c), e))?);
        }
        ConstraintSet::new(&list).map_err(|e| self.refuse(field, &format!("{} constraints", list.len()), e))
    }

    fn arrival(&self, field: &str, raw: &raw::Arrival) -> Result<ArrivalBound, ConfigError> {
        let span = |name: &str, text: &str| self.span(&format!("{field}.{name}"), text, Span::ZERO);
        let made = match raw {
            raw::Arrival::Window { count, length } => ArrivalBound::window(*count, span("length", length)?),
            raw::Arrival::Periodic { period, jitter } => {
                ArrivalBound::periodic(span("period", period)?, span("jitter", jitter)?)
            }
            raw::Arrival::TokenBucket { burst, period } => {
                ArrivalBound::token_bucket(*burst, span("period", period)?)
            }
        };
        made.map_err(|e| self.refuse(field, &shown(raw), e))
    }

    pub(super) fn span(&self, field: &str, text: &str, least: Span) -> Result<Span, ConfigError> {
        let span = self.duration(field, text)?;
        if span < least || span > MAX_SPAN {
            return Err(self.refuse(field, text, format!("must be {least}..=1h")));
        }
        Ok(span)
    }

    /// Of any length.
    pub(super) fn duration(&self, field: &str, text: &str) -> Result<Span, ConfigError> {
        let duration: Duration = text
            .parse::<humantime::Duration>()
            .map_err(|e| self.refuse(field, text, format!("no duration such as \"50ms\" ({e})")))?
            .into();
        Ok(Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn number(&self, field: &str, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), format!("must be in {min}..={max}")))
    }

    pub(super) fn name(
        &self,
        field: &str,
        name: &str,
        taken: &mut HashSet<String>,
    ) -> Result<(), ConfigError> {
        if !is_name(name) {
            let reason = "must be 1..=64 letters, digits or any of - _ . /";
            return Err(self.refuse(field, &format!("\"{name}\""), reason));
        }
        if !taken.insert(name.to_owned()) {
            return Err(self.refuse(field, name, "is taken already"));
        }
        Ok(())
    }

    /// Names or numbers to ids, through the third field of a colon-separated database.
    fn ids(
        &self,
        field: &str,
        names: Option<Vec<String>>,
        look_up: impl Fn(&str) -> Option<u32>,
    ) -> Result<Option<Vec<u32>>, ConfigError> {
        let id = |name: &String| {
            let id = name.parse().ok().or_else(|| look_up(name));
            id.ok_or_else(|| {
                self.refuse(field, name, "is neither a number nor a name that this machine knows")
            })
        };
        names.map(|names| names.iter().map(id).collect()).transpose()
    }

    pub(super) fn refuse(&self, field: &str, value: &str, reason: impl Display) -> ConfigError {
        ConfigError::Value {
            path: self.path.to_owned(),
            field: field.to_owned(),
            value: value.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// A value as it stands in the file.
fn shown(value: &impl Serialize) -> String {
    let mut text = String::new();
    match value.serialize(ValueSerializer::new(&mut text)) {
        Ok(_) => text,
        Err(error) => error.to_string(),
    }
}
