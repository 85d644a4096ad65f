//! Devices: workers that several services run on, and what a service says of those that it runs on.

use std::collections::HashSet;

use rt_core::sharing::{MAX_SERVICES, MAX_TURN, Rule};
use rt_core::{MAX_WORKERS, Stalls};

use super::check::{Check, Refused, all};
use super::{RecordConfig, raw};

/// Workers that services share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    pub name: String,
    pub workers: usize,
    /// The core of each worker, cyclically; empty leaves them to the kernel.
    pub cores: Vec<usize>,
    /// Which service a free worker serves next; chosen by the plan if absent.
    pub rule: Option<Rule>,
    /// Whether batches are chosen for the largest rate of the service with the largest weight, then of the next; else for the sum of all.
    pub in_order: bool,
    /// Whether what nothing is promised for may go before what is, where that makes nothing late.
    pub ahead: bool,
    /// Bytes of model files that all its workers may load together.
    pub max_memory: u64,
    /// Rare losses of time on its workers, which all its services keep back of their deadlines.
    pub stalls: Option<Stalls>,
    /// When requests of which of its services came, and what became of them, goes into a file.
    pub record: Option<RecordConfig>,
    /// The field of its GPUs and what it says.
    gpu: (String, Option<raw::Gpu>),
}

/// The part that a service has of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareConfig {
    /// Which one, by its place in [`super::Config::devices`].
    pub device: usize,
    /// Batches in a turn; chosen by the plan if absent.
    pub turn: Option<u32>,
    /// What one more request a second is worth beside those of the others.
    pub weight: f64,
}

impl DeviceConfig {
    /// So many workers, of which each may load so many bytes, and what else `said` of them says.
    pub(super) fn of_class(
        (name, workers, each): (&str, usize, Option<u64>),
        cores: Vec<usize>,
        said: Option<&Self>,
    ) -> Self {
        let plain = Self {
            name: name.to_owned(),
            workers,
            cores: Vec::new(),
            rule: None,
            in_order: false,
            ahead: true,
            max_memory: raw::four_gib(),
            stalls: None,
            record: None,
            gpu: (String::new(), None),
        };
        let said = said.cloned().unwrap_or(plain);
        let max_memory = each.map_or(said.max_memory, |each| Self::memory(workers, each));
        Self { workers, cores, max_memory, ..said }
    }

    /// What all workers together may load, if each may load so much.
    pub fn memory(workers: usize, each: u64) -> u64 {
        each.saturating_mul(workers as u64).min(1 << 44)
    }
}

/// What a service runs on.
pub(super) struct Place {
    pub(super) share: Option<ShareConfig>,
    pub(super) workers: usize,
    pub(super) cores: Vec<usize>,
    pub(super) gpu: (String, Option<raw::Gpu>),
    pub(super) record: Option<RecordConfig>,
    /// Those of the device.
    pub(super) stalls: Option<Stalls>,
}

impl Check<'_> {
    pub(super) fn devices(&self, raw: Vec<raw::Device>) -> Result<Vec<DeviceConfig>, Refused> {
        self.number("device (how many)", raw.len() as u64, 0, 16)?;
        let mut names = HashSet::new();
        let device = |(i, raw): (usize, raw::Device)| {
            let at = format!("device[{i}]");
            let named = self.name(&format!("{at}.name"), raw.name, &mut names);
            let (workers, cores) = (self.workers(&at, raw.workers.unwrap_or(1)), self.cores(&at, &raw.cores));
            let max_memory = self.number(&format!("{at}.max-memory"), raw.max_memory, 1, 1 << 44);
            let record = self.record(&at, raw.record, raw.record_limit);
            let field = format!("{at}.stalls");
            let stalls = raw.stalls.as_ref().map(|stalls| self.stalls(&field, stalls)).transpose();
            self.kept_by_deadline(&at, raw.stalls.as_ref())?;
            Ok(DeviceConfig {
                name: named?,
                workers: workers?,
                cores: cores?,
                rule: match raw.rule {
                    raw::Rule::Auto => None,
                    raw::Rule::Deadline => Some(Rule::Earliest),
                    raw::Rule::Turns => Some(Rule::Turns),
                },
                in_order: matches!(raw.prefer, raw::Prefer::InOrder),
                ahead: raw.ahead,
                max_memory: max_memory?,
                stalls: stalls?,
                record: record?,
                gpu: (format!("{at}.gpu"), raw.gpu),
            })
        };
        all(raw.into_iter().enumerate().map(device))
    }

    /// What the service runs on: the device that it names, or workers of its own.
    pub(super) fn place(
        &self,
        at: &str,
        raw: &raw::Service,
        devices: Option<&[DeviceConfig]>,
    ) -> Result<Place, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let Some(named) = &raw.device else {
            // What may be placed on a device may say what it is worth there.
            let refused = [
                ("turn", raw.turn.map(|turn| turn.to_string())),
                ("weight", raw.weight.map(|weight| weight.to_string())),
            ];
            for (name, value) in refused.into_iter().filter(|_| !raw.has_candidates()) {
                if let Some(value) = value {
                    let reason = "only for a service that names a device; remove it";
                    return Err(self.refuse(&field(name), &value, reason));
                }
            }
            // Each server has a worker, unless it is said how many there are.
            let servers =
                raw.remote.as_ref().map_or(1, |remote| remote.url.count().clamp(1, MAX_WORKERS as u64));
            let stated = match raw.workers {
                Some(raw::Staff::Count(count)) => count,
                _ => servers,
            };
            let workers = self.workers(at, stated);
            let cores = self.cores(at, raw.cores.as_deref().unwrap_or_default());
            let record = self.record(at, raw.record.clone(), raw.record_limit);
            let gpu = (field("gpu"), raw.gpu.clone());
            return Ok(Place {
                share: None,
                workers: workers?,
                cores: cores?,
                gpu,
                record: record?,
                stalls: None,
            });
        };
        let Some(name) = named.as_str() else {
            let reason = format!("must be the name of a [[device]]; the number of a GPU is gpu = {named}");
            return Err(self.refuse(&field("device"), &named.to_string(), reason));
        };
        // Which there are is not known where one of them is refused.
        let devices = devices.ok_or(Refused)?;
        let Some(device) = devices.iter().position(|device| device.name == name) else {
            let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            let known = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
            let reason = format!("no [[device]] has this name ({known})");
            return Err(self.refuse(&field("device"), &format!("{name:?}"), reason));
        };
        let of_device = "is the device's where services share one: remove it, or move it to its [[device]]";
        let never = "is not possible where services share workers: remove it";
        let shown = |there: bool| there.then(|| "(present)".to_owned());
        let refused = [
            ("workers", raw.workers.as_ref().map(raw::Staff::shown), of_device),
            ("cores", shown(raw.cores.is_some()), of_device),
            ("gpu", shown(raw.gpu.is_some()), of_device),
            ("record", raw.record.as_ref().map(|path| path.display().to_string()), of_device),
            ("record-limit", raw.record_limit.map(|limit| limit.to_string()), of_device),
            ("stalls", shown(raw.stalls.is_some()), of_device),
            (
                "optimise",
                shown(raw.optimise.is_some()),
                "the plan chooses for all services of a device: remove it",
            ),
            ("dispatch", shown(raw.dispatch != raw::Dispatch::Eager), never),
            ("background", (!raw.background).then(|| "false".to_owned()), never),
            (
                "select",
                match &raw.select {
                    Some(raw::Select::Planned) => Some("\"planned\"".to_owned()),
                    Some(raw::Select::Learned) => Some("\"learned\"".to_owned()),
                    Some(raw::Select::Auto) => Some("\"auto\"".to_owned()),
                    Some(raw::Select::Table(path)) => Some(format!("{{ table = {path:?} }}")),
                    _ => None,
                },
                "is for workers of the service's own: say \"accurate\" or \"base\", or remove it",
            ),
        ];
        let refused = all(refused.into_iter().map(|(name, value, reason)| match value {
            Some(value) => Err(self.refuse(&field(name), &value, reason)),
            None => Ok(()),
        }));
        let turn = raw.turn.map(|turn| self.number(&field("turn"), turn, 1, MAX_TURN.into())).transpose();
        let weight = raw.weight.unwrap_or(1.0);
        if !(1e-6..=1e6).contains(&weight) {
            return Err(self.refuse(&field("weight"), &weight.to_string(), "must be in 0.000001..=1000000"));
        }
        let DeviceConfig { workers, cores, gpu, record, stalls, .. } = devices[device].clone();
        refused?;
        let turn = turn?.map(|turn| turn as u32);
        Ok(Place { share: Some(ShareConfig { device, turn, weight }), workers, cores, gpu, record, stalls })
    }

    /// Every device has services, and no more than can share one.
    pub(super) fn all_named(
        &self,
        devices: &[DeviceConfig],
        services: &[super::ServiceConfig],
        placement: Option<&super::PlacementConfig>,
    ) -> Result<(), Refused> {
        let classes = placement.iter().flat_map(|placement| &placement.classes);
        // Services may be placed there yet.
        let waits = |name: &str| self.open && classes.clone().any(|class| class.shared && class.name == name);
        for (i, device) in devices.iter().enumerate() {
            let on = services.iter().filter(|service| service.is_on(i)).count();
            if on == 0 && waits(&device.name) {
                continue;
            }
            if on == 0 {
                let reason = format!("no service says device = \"{}\"", device.name);
                return Err(self.refuse(&format!("device[{i}].name"), &format!("{:?}", device.name), reason));
            }
            let on_it = || services.iter().filter(|service| service.is_on(i));
            let behind = |one: &&super::ServiceConfig| {
                on_it().find(|other| {
                    one.name.strip_prefix(&*other.name).is_some_and(|rest| rest.starts_with('/'))
                })
            };
            if let Some((one, other)) = on_it().find_map(|one| Some((one, behind(&one)?))) {
                let reason = format!(
                    "begins with {}/, as the streams of service {0} on device {} are named in recordings and problems: theirs \
                     could not be told apart",
                    other.name, device.name
                );
                return Err(self.refuse(&format!("{}.name", one.at), &format!("{:?}", one.name), reason));
            }
            if device.stalls.is_some()
                && classes.clone().any(|class| class.shared && class.name == device.name)
            {
                let reason = "is not possible where `weir place` chooses what shares the device: remove it";
                return Err(self.refuse(&format!("device[{i}].stalls"), "(present)", reason));
            }
            self.number(&format!("device[{i}] (how many services)"), on as u64, 1, MAX_SERVICES as u64)?;
        }
        Ok(())
    }

    fn workers(&self, at: &str, workers: u64) -> Result<usize, Refused> {
        Ok(self.number(&format!("{at}.workers"), workers, 1, MAX_WORKERS as u64)? as usize)
    }

    fn cores(&self, at: &str, cores: &[u64]) -> Result<Vec<usize>, Refused> {
        let core =
            |(i, &core): (usize, &u64)| Ok(self.number(&format!("{at}.cores[{i}]"), core, 0, 1023)? as usize);
        all(cores.iter().enumerate().map(core))
    }
}
