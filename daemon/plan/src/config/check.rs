//! From fields as written to values that can only be right, or an error that says which field is not.

use std::cell::RefCell;
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
use toml::de::DeTable;
use toml::ser::ValueSerializer;
use weir_engine::manifest::Problems;

use super::LONGEST_PATH;
use super::places::place;
use super::{
    Allowed, Config, DaemonConfig, DeviceConfig, HeldBy, ReservedStream, ServiceConfig, Tolerance, raw,
};

/// The longest REGISTERED, of 16 tensors a side with the longest names, takes 9.5 KB.
const MIN_FRAME: u64 = 16 << 10;

/// The largest batch that is profiled and served, unless told otherwise.
const MOST_SERVED: u64 = 8;
/// Unless it is stated, requests may be early by one such part of the time that there is to answer them.
const AUTO_TOLERANCE: u64 = 10;

/// Looks at every field of a file, notes all that is wrong with its place, and resolves paths against the file's folder.
pub(super) struct Check<'a> {
    pub(super) path: &'a Path,
    table: &'a DeTable<'a>,
    problems: RefCell<Problems<'a>>,
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
    pub(super) fn new(path: &'a Path, table: &'a DeTable<'a>, problems: Problems<'a>) -> Self {
        Self { path, table, problems: RefCell::new(problems) }
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
        let count = self.number("service (how many)", raw.service.len() as u64, 1, 16);
        let mut names = HashSet::new();
        let beside = (devices.as_deref().ok(), daemon.as_ref().ok());
        let services = all(raw.service.into_iter().enumerate().map(|(i, service)| {
            let at = format!("service[{i}]");
            let named = self.name(&format!("{at}.name"), service.name.clone(), &mut names);
            let service = self.service(&at, service, beside);
            named.and(service)
        }));
        count?;
        let safe_mode = SafeModeConfig { hold: hold?, clean: clean?, latch: raw.safe_mode.latch };
        let (daemon, hook, devices, services) = (daemon?, hook?, devices?, services?);
        let named = self.all_named(&devices, &services);
        self.files(&daemon, &devices, &services).and(named)?;
        Ok(Config { path: self.path.to_owned(), daemon, safe_mode, hook, devices, services })
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
        let (bus, metrics) = (self.bus(&raw.bus), self.metrics(raw.metrics.as_deref()));
        let (users, groups) = (users?, groups?);
        let allowed = (users.is_some() || groups.is_some())
            .then(|| Allowed { users: users.unwrap_or_default(), groups: groups.unwrap_or_default() });
        fits?;
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
        })
    }

    fn service(
        &self,
        at: &str,
        raw: raw::Service,
        (devices, daemon): (Option<&[DeviceConfig]>, Option<&DaemonConfig>),
    ) -> Result<ServiceConfig, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let most = MAX_BATCH as u64;
        let max_batch = match raw.max_batch {
            Some(stated) => self.number(&field("max-batch"), stated, 1, most),
            None => Ok(MOST_SERVED.max(raw.batch.unwrap_or(1)).min(most)),
        };
        let largest = max_batch.as_ref().copied().unwrap_or(most);
        let batch = raw.batch.map(|batch| self.number(&field("batch"), batch, 1, largest)).transpose();
        let isolation = raw.isolation.unwrap_or(raw.engine.isolation());
        let built = match raw.engine.how_to_build() {
            Some(remedy) => {
                let reason = format!("this weir was built without it: {remedy}");
                Err(self.refuse(&field("engine"), &raw.engine.to_string(), reason))
            }
            None => Ok(()),
        };
        let place = self.place(at, &raw, devices).and_then(|place| {
            let backends = self.backends(&place.gpu.0, (raw.engine, isolation), place.gpu.1, daemon)?;
            Ok((place.share, place.workers, place.cores, place.record, backends))
        });
        let (shared, background) = (raw.device.is_some(), raw.background);
        let model = self.model(at, (raw.engine, raw.model, raw.variants), raw.simulated, raw.select);
        let deadline = match &raw.deadline {
            Some(stated) => self.span(&field("deadline"), stated, Span::from_nanos(1)),
            None => Err(self.refuse(&field("deadline"), "(absent)", "must be given, such as \"50ms\"")),
        };
        let guard = self.span(&field("guard"), &raw.guard, Span::ZERO);
        let times = deadline.and_then(|deadline| Ok((deadline, guard?)));
        let times = times.and_then(|(deadline, guard)| match guard < deadline {
            true => Ok((deadline, guard)),
            false => {
                let reason = format!("must be below the deadline, {deadline}");
                Err(self.refuse(&field("guard"), &raw.guard, reason))
            }
        });
        let stalls_held_by = raw.stalls.as_ref().map_or(HeldBy::Auto, |stalls| stalls.by);
        let stated = raw.tolerance.as_deref().unwrap_or("auto");
        let room = times.as_ref().map_or(MAX_SPAN, |(deadline, guard)| deadline.saturating_sub(*guard));
        let tolerance = self.tolerance((&field("tolerance"), stated), room, background && !shared);
        let stalls = raw.stalls.map(|stalls| self.stalls(&field("stalls"), &stalls)).transpose();
        let constraints = self.constraints(&field("constraints"), &raw.constraints);
        let mut names = HashSet::new();
        let count = raw.stream.len() as u64;
        let reserved = all(raw.stream.into_iter().enumerate().map(|(i, stream)| {
            let at = format!("{at}.stream[{i}]");
            let named = self.name(&format!("{at}.name"), stream.name.clone(), &mut names);
            let stream = self.stream(&at, stream, constraints.as_ref().ok())?;
            if !background && stream.spec.arrivals().is_none() {
                let reason = "must declare how its requests come where background = false";
                return Err(self.refuse(&format!("{at}.arrivals"), "[]", reason));
            }
            named.and(Ok(stream))
        }));
        let closed = match &model {
            Ok((model, _)) if !background && !model.is_single() => {
                let reason =
                    "is not possible with variants, whose longer batches are reckoned beside background";
                Err(self.refuse(&field("background"), "false", reason))
            }
            _ => Ok(()),
        };
        let streams = self.number(&field("streams"), raw.streams, 1, 1024);
        let fits = match streams {
            Ok(streams) => self.number(&field("stream (how many)"), count, 0, streams),
            Err(Refused) => Err(Refused),
        };
        let handover = self.span(&field("handover"), &raw.handover, Span::ZERO);
        let probability = self.probability(&field("probability"), raw.probability);
        let queue = self.number(&field("queue"), raw.queue, 1, 1 << 16);
        let jitter = self.span(&field("jitter"), &raw.jitter, Span::ZERO);
        built.and(closed)?;
        fits?;
        let (share, workers, cores, record, backends) = place?;
        let ((model, select), (deadline, guard)) = (model?, times?);
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
            tolerance: tolerance?,
            stalls: stalls?,
            stalls_held_by,
            handover: handover?,
            workers,
            cores,
            max_batch: max_batch? as usize,
            batch: batch?.map(|batch| batch as usize),
            probability: probability?,
            optimise: raw.optimise.unwrap_or_default(),
            dispatch: match raw.dispatch {
                raw::Dispatch::Eager => Dispatch::Eager,
                raw::Dispatch::FullOrLatest => Dispatch::FullOrLatest,
            },
            queue: queue? as usize,
            background,
            streams: streams? as usize,
            constraints: constraints?.as_slice().to_vec(),
            jitter: jitter?,
            record,
            reserved: reserved?,
            stages: Vec::new(),
        })
    }

    /// How early requests may come, of `latency` to answer them, where that is `possible`.
    fn tolerance(
        &self,
        (at, stated): (&str, &str),
        latency: Span,
        possible: bool,
    ) -> Result<Tolerance, Refused> {
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

    fn stalls(&self, at: &str, raw: &raw::Stalls) -> Result<Stalls, Refused> {
        let count = self.number(&format!("{at}.at-most"), raw.at_most, 1, MAX_STALLS as u64);
        let window = self.span(&format!("{at}.in"), &raw.window, Span::from_nanos(1));
        let length = self.span(&format!("{at}.of"), &raw.length, Span::from_nanos(1));
        Stalls::new(count? as u32, window?, length?)
            .map_err(|error| self.refuse(&format!("{at}.of"), &raw.length, error))
    }

    fn probability(&self, field: &str, value: f64) -> Result<f64, Refused> {
        if (0.5..=0.999).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), "must be in 0.5..=0.999"))
    }

    fn stream(
        &self,
        at: &str,
        raw: raw::Stream,
        defaults: Option<&ConstraintSet>,
    ) -> Result<ReservedStream, Refused> {
        let constraints = match raw.constraints {
            Some(list) => self.constraints(&format!("{at}.constraints"), &list),
            None => defaults.cloned().ok_or(Refused),
        };
        let field = format!("{at}.arrivals");
        let arrivals = raw.arrivals.iter().enumerate();
        let bounds = all(arrivals.map(|(i, arrival)| self.arrival(&format!("{field}[{i}]"), arrival)));
        let (constraints, bounds) = (constraints?, bounds?);
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

    fn constraints(&self, field: &str, raw: &[raw::Constraint]) -> Result<ConstraintSet, Refused> {
        let list = all(raw.iter().enumerate().map(|(i, c)| {
            let made = match *c {
                raw::Constraint::AnyMiss { m, k } => Constraint::any_miss(m, k),
                raw::Constraint::AnyHit { h, k } => Constraint::any_hit(h, k),
                raw::Constraint::RowMiss(m) => Constraint::row_miss(m),
                raw::Constraint::RowHit { h, k } => Constraint::row_hit(h, k),
            };
            made.map_err(|e| self.refuse(&format!("{field}[{i}]"), &shown(c), e))
        }))?;
        ConstraintSet::new(&list).map_err(|e| self.refuse(field, &format!("{} constraints", list.len()), e))
    }

    fn arrival(&self, field: &str, raw: &raw::Arrival) -> Result<ArrivalBound, Refused> {
        let span = |name: &str, text: &str| self.span(&format!("{field}.{name}"), text, Span::ZERO);
        let made = match raw {
            raw::Arrival::Window { count, length } => ArrivalBound::window(*count, span("length", length)?),
            raw::Arrival::Periodic { period, jitter } => {
                let (period, jitter) = (span("period", period), span("jitter", jitter));
                ArrivalBound::periodic(period?, jitter?)
            }
            raw::Arrival::TokenBucket { burst, period } => {
                ArrivalBound::token_bucket(*burst, span("period", period)?)
            }
        };
        made.map_err(|e| self.refuse(field, &shown(raw), e))
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

    /// Notes that a field has a value which is not allowed; behind its name may stand what of it is meant.
    pub(super) fn refuse(&self, field: &str, value: &str, reason: impl Display) -> Refused {
        let name = field.split(' ').next().unwrap_or_default();
        self.problems.borrow_mut().add(place(self.table, name), format!("{field} = {value}: {reason}"));
        Refused
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
