//! The fingerprint ties a profile to the machine it was measured on: written with it, compared before it is
//! served by.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::engine::TRACT_VERSION;

/// What execution times depend on, as far as the machine tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fingerprint {
    /// The CPU's model name.
    cpu: String,
    /// Cores online.
    cores: usize,
    /// The kernel's release.
    kernel: String,
    /// The frequency governor of core 0, "none" without frequency scaling.
    governor: String,
    /// The highest frequency core 0 may scale to in kHz, null without frequency scaling.
    max_freq_khz: Option<u64>,
    /// The built-in engine and its version.
    engine: String,
    /// The version of weir.
    weir: String,
}

impl Fingerprint {
    /// The fingerprint of this machine and this weir; what the machine does not tell is "unknown", "none" or
    /// null.
    pub(crate) fn current() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let scaling = |name| read_line(&format!("/sys/devices/system/cpu/cpu0/cpufreq/scaling_{name}"));
        Self {
            cpu: cpu_model(&cpuinfo),
            cores: values(&cpuinfo, "processor").count(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            governor: scaling("governor").unwrap_or_else(|| "none".to_owned()),
            max_freq_khz: scaling("max_freq").and_then(|freq| freq.parse().ok()),
            engine: format!("tract {TRACT_VERSION}"),
            weir: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The fields in which `here` differs, such as "cores: profile 4, here 2".
    pub(super) fn differences(&self, here: &Self) -> Vec<String> {
        let freq = |khz: Option<u64>| khz.map_or_else(|| "none".to_owned(), |khz| khz.to_string());
        let fields = |f: &Self| {
            [
                ("cpu", f.cpu.clone()),
                ("cores", f.cores.to_string()),
                ("kernel", f.kernel.clone()),
                ("governor", f.governor.clone()),
                ("max_freq_khz", freq(f.max_freq_khz)),
                ("engine", f.engine.clone()),
                ("weir", f.weir.clone()),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(here));
        let differing = pairs.filter(|(profile, here)| profile != here);
        differing
            .map(|((name, profile), (_, here))| format!("{name}: profile {profile}, here {here}"))
            .collect()
    }
}

/// x86 tells a model name; ARM, core by core, at best the numbers of its maker and part.
fn cpu_model(cpuinfo: &str) -> String {
    let first = |key| values(cpuinfo, key).next();
    match (first("model name"), first("CPU implementer"), first("CPU part")) {
        (Some(name), _, _) => name.to_owned(),
        (None, Some(implementer), Some(part)) => format!("implementer {implementer} part {part}"),
        _ => "unknown".to_owned(),
    }
}

/// The values of all lines `key : value`.
fn values<'a>(cpuinfo: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.filter(move |(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

fn read_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_one_and_equals_itself() {
        let here = Fingerprint::current();
        assert!(here.cores >= 1 && !here.kernel.is_empty(), "{here:?}");
        assert_eq!(here.differences(&Fingerprint::current()), Vec::<String>::new());
    }

    #[test]
    fn every_field_that_differs_is_told() {
        let here = Fingerprint::current();
        let profile = Fingerprint {
            cpu: "X".to_owned(),
            cores: here.cores + 1,
            kernel: "1.0".to_owned(),
            governor: "powersave".to_owned(),
            max_freq_khz: Some(1),
            engine: "tract 0.1".to_owned(),
            weir: "0.0.1".to_owned(),
        };
        let told = profile.differences(&here);
        assert_eq!(told.len(), 7, "{told:?}");
        assert_eq!(told[0], format!("cpu: profile X, here {}", here.cpu));
        assert_eq!(told[1], format!("cores: profile {}, here {}", here.cores + 1, here.cores));
    }

    #[test]
    fn cpu_model_of_x86_arm_and_others() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0b");
        assert_eq!(cpu_model(""), "unknown");
    }
}
