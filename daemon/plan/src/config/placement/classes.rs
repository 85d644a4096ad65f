//! Checks what a file says of classes of devices, and that nothing else runs on them.

use std::collections::HashSet;

use rt_core::{MAX_WORKERS, Span};
use weir_engine::Address;

use super::{ClassConfig, PlacementConfig, Servers};
use crate::config::check::{Check, Refused, all, shown};
use crate::config::{DaemonConfig, DeviceConfig, ServiceConfig, raw};

/// Classes of devices at most.
const MAX_CLASSES: u64 = 8;

impl Check<'_> {
    pub(in crate::config) fn placement(
        &self,
        raw: raw::Placement,
        daemon: Option<&DaemonConfig>,
    ) -> Result<PlacementConfig, Refused> {
        let least = Span::from_millis(10);
        let period = self.span("placement.period", &raw.period, Span::from_millis(100));
        let limit = self.span("placement.limit", &raw.limit, least);
        let budget = self.number("placement.budget", raw.budget, 1, 16);
        let controller = self.controller(&raw, daemon);
        let headroom = self.real("placement.headroom", raw.headroom, (1.0, 100.0));
        let count = self.number("placement.class (how many)", raw.class.len() as u64, 1, MAX_CLASSES);
        let (mut names, mut taken) = (HashSet::new(), HashSet::new());
        let class = |(i, raw): (usize, raw::Class)| {
            self.class(&format!("placement.class[{i}]"), raw, (&mut names, &mut taken), daemon)
        };
        let classes = all(raw.class.into_iter().enumerate().map(class));
        count?;
        let mut classes = classes?;
        self.servers_of_one_class(&classes)?;
        ClassConfig::tell_apart(&mut classes);
        let (period, limit, budget) = (period?, limit?, budget? as usize);
        Ok(PlacementConfig {
            mode: raw.mode,
            period,
            budget,
            limit,
            headroom: headroom?,
            controller: controller?,
            classes,
        })
    }

    fn class(
        &self,
        at: &str,
        mut raw: raw::Class,
        (names, taken): (&mut HashSet<String>, &mut HashSet<(bool, u64)>),
        daemon: Option<&DaemonConfig>,
    ) -> Result<ClassConfig, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let name = self.name(&field("name"), std::mem::take(&mut raw.name), names);
        let built = match raw.engine.how_to_build() {
            Some(remedy) => {
                let reason = format!("this weir was built without it: {remedy}");
                Err(self.refuse(&field("engine"), &raw.engine.to_string(), reason))
            }
            None => Ok(()),
        };
        let memory = raw.memory.map(|bytes| self.number(&field("memory"), bytes, 1, 1 << 44)).transpose();
        let gpus = match &raw.gpu {
            None => Vec::new(),
            Some(raw::Gpu::One(gpu)) => vec![*gpu],
            Some(raw::Gpu::Each(gpus)) => gpus.clone(),
        };
        if let Some(said) = self.said(at, raw.remote.as_ref(), raw.engine)?.cloned() {
            return self.elsewhere(at, name, (raw, said), daemon);
        }
        let said = [raw.gpu.is_some(), !raw.cores.is_empty(), raw.count.is_some()];
        if said.into_iter().filter(|&said| said).count() != 1 {
            let reason = "says which devices there are by exactly one of gpu, cores and count";
            return Err(self.refuse(&field("name"), &format!("{:?}", name?), reason));
        }
        for (list, what) in [(&gpus, "gpu"), (&raw.cores, "cores")] {
            for (i, &one) in list.iter().enumerate() {
                if !taken.insert((what == "gpu", one)) {
                    let reason = "is there already: a device is of one class, and listed once";
                    return Err(self.refuse(&format!("{at}.{what}[{i}]"), &one.to_string(), reason));
                }
            }
        }
        if raw.gpu.is_some() && !raw.engine.has_devices() {
            let reason = format!("engine \"{}\" has none: say cores or count", raw.engine);
            return Err(self.refuse(&field("gpu"), &format!("{gpus:?}"), reason));
        }
        let (what, devices) = match (&raw.gpu, raw.count) {
            (Some(_), _) => ("gpu (how many)", gpus.len() as u64),
            (None, Some(count)) => ("count", count),
            (None, None) => ("cores (how many)", raw.cores.len() as u64),
        };
        let devices = self.number(&field(what), devices, 1, MAX_WORKERS as u64);
        let core =
            |(i, &core): (usize, &u64)| Ok(self.number(&format!("{at}.cores[{i}]"), core, 0, 1023)? as usize);
        let cores = all(raw.cores.iter().enumerate().map(core));
        let runs = (raw.engine, raw.engine.isolation());
        let backends = self.backends(&field("gpu"), runs, raw.gpu, daemon);
        built?;
        Ok(ClassConfig {
            name: name?,
            engine: raw.engine,
            devices: devices? as usize,
            cores: cores?,
            gpus: gpus.into_iter().map(|gpu| gpu as u32).collect(),
            servers: None,
            memory: memory?,
            shared: raw.shared,
            is_one_of_several: false,
            backends: backends?,
        })
    }

    /// A class of servers elsewhere.
    fn elsewhere(
        &self,
        at: &str,
        name: Result<String, Refused>,
        (raw, said): (raw::Class, raw::Remote),
        daemon: Option<&DaemonConfig>,
    ) -> Result<ClassConfig, Refused> {
        let refuse =
            |name: &str, value: &str, reason: &str| Err(self.refuse(&format!("{at}.{name}"), value, reason));
        let only = "is for devices of this machine, and each server of engine \"oip\" is a device elsewhere: remove it";
        let here = [
            ("gpu", raw.gpu.is_some()),
            ("cores", !raw.cores.is_empty()),
            ("count", raw.count.is_some()),
            ("memory", raw.memory.is_some()),
            ("shared", raw.shared),
        ];
        if let Some((name, _)) = here.into_iter().find(|&(_, there)| there) {
            return refuse(name, "(present)", only);
        }
        if let Some(model) = &said.model {
            let reason = "is for one model, and servers of a class call each by its own name: remove it";
            return refuse("remote.model", &format!("{model:?}"), reason);
        }
        let urls = said.url.all();
        if let Some(i) = (1..urls.len()).find(|&i| urls[..i].contains(&urls[i])) {
            let reason = "is there already: a server is one device";
            return refuse(&format!("remote.url[{i}]"), &format!("{:?}", urls[i]), reason);
        }
        // Each model has a name of its own there.
        let remote = self.servers(at, &said, "model");
        let backends = self.backends(at, (raw.engine, raw.engine.isolation()), None, daemon);
        let (name, remote) = (name?, remote?);
        Ok(ClassConfig {
            name,
            engine: raw.engine,
            devices: remote.addresses.len(),
            cores: Vec::new(),
            gpus: Vec::new(),
            servers: Some(Servers { said, remote }),
            memory: None,
            shared: false,
            is_one_of_several: false,
            backends: backends?,
        })
    }

    /// No server is a device of two classes, nor two of one, however its URL is written.
    fn servers_of_one_class(&self, classes: &[ClassConfig]) -> Result<(), Refused> {
        let mut taken: Vec<(&Address, &str)> = Vec::new();
        for (at, class) in classes.iter().enumerate() {
            for (i, address) in class.addresses().iter().enumerate() {
                if let Some((_, other)) = taken.iter().find(|(one, _)| *one == address) {
                    let reason =
                        format!("is there already, in class {other}: a server is one device, of one class");
                    let field = format!("placement.class[{at}].remote.url[{i}]");
                    return Err(self.refuse(&field, &format!("{:?}", class.unit(i).to_string()), reason));
                }
                taken.push((address, &class.name));
            }
        }
        Ok(())
    }

    pub(in crate::config) fn real(
        &self,
        field: &str,
        value: f64,
        (least, most): (f64, f64),
    ) -> Result<f64, Refused> {
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), format!("must be in {least}..={most}")))
    }

    /// No class has fewer devices than what is placed there has to itself, in a file that is to be served.
    pub(in crate::config) fn all_fit(
        &self,
        placement: Option<&PlacementConfig>,
        services: &[ServiceConfig],
    ) -> Result<(), Refused> {
        let Some(placement) = placement.filter(|_| !self.open) else { return Ok(()) };
        let mut left: Vec<usize> = placement.classes.iter().map(|class| class.devices).collect();
        for runs in services.iter().flat_map(ServiceConfig::running) {
            let placed = runs.candidates.as_ref().and_then(|candidates| candidates.placed.as_ref());
            let Some(placed) = placed else { continue };
            let (class, left) = (&placement.classes[placed.class], &mut left[placed.class]);
            if placed.devices > *left {
                let reason = match *left == class.devices {
                    true => format!("class {} has {left} devices", class.name),
                    false => {
                        format!("class {} has {} devices, {left} of them free", class.name, class.devices)
                    }
                };
                return Err(self.refuse(
                    &format!("{}.workers", runs.at),
                    &placed.devices.to_string(),
                    reason,
                ));
            }
            *left -= placed.devices;
        }
        Ok(())
    }

    /// No other service runs where services are placed.
    pub(in crate::config) fn nobody_else(
        &self,
        placement: Option<&PlacementConfig>,
        devices: &[DeviceConfig],
        services: &[ServiceConfig],
    ) -> Result<(), Refused> {
        let Some(placement) = placement else { return Ok(()) };
        if !services.iter().any(ServiceConfig::is_placed) {
            let reason = "no service says among which models to choose: list models, or remove this";
            return Err(self.refuse("placement", "(present)", reason));
        }
        let fixed = services.iter().filter(|service| !service.is_placed());
        for (service, runs) in fixed.flat_map(|service| service.running().map(move |runs| (service, runs))) {
            let at = match runs.share {
                Some(share) => format!("device[{}]", share.device),
                None => runs.at.clone(),
            };
            for class in &placement.classes {
                if let Some(core) = runs.cores.iter().find(|core| class.cores.contains(core)) {
                    let reason = format!("is of class {}, where services are placed", class.name);
                    return Err(self.refuse(&format!("{at}.cores"), &core.to_string(), reason));
                }
                let servers = runs.backends.iter().filter_map(|backend| backend.remote.as_ref());
                let mut servers = servers.flat_map(|remote| &remote.addresses);
                if let Some(server) = servers.find(|server| class.addresses().contains(server)) {
                    let reason = format!("is of class {}, where services are placed", class.name);
                    return Err(self.refuse(
                        &format!("{at}.remote.url"),
                        &shown(&server.to_string()),
                        reason,
                    ));
                }
                let name = runs.share.map(|share| &devices[share.device].name);
                if name == Some(&class.name) {
                    let reason = "is a class, where services are placed: list models, or name another device";
                    return Err(self.refuse(
                        &format!("{}.device", service.at),
                        &shown(name.unwrap_or(&class.name)),
                        reason,
                    ));
                }
            }
        }
        Ok(())
    }
}
