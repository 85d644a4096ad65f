//! The fingerprint ties a profile to the machine it was measured on: written with it, compared before it is
//! served by, and while it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::utsname::uname;
use serde::{Deserialize, Serialize};

/// What execution times depend on, as far as the machine tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The CPU's model name.
    cpu: String,
    /// Cores online.
    cores: usize,
    /// The kernel's release.
    kernel: String,
    /// The frequency governors, "none" without frequency scaling.
    governor: String,
    /// The highest frequency that the slowest core may scale to in kHz, null without frequency scaling.
    max_freq_khz: Option<u64>,
    /// The lowest frequency that any core may scale to in kHz, null without frequency scaling.
    min_freq_khz: Option<u64>,
    /// Whether frequencies beyond the nominal one are allowed, "none" where the kernel does not tell.
    boost: String,
    /// The power mode of the firmware or of the board, "none" without.
    power_mode: String,
    /// The version of weir.
    weir: String,
}

impl Fingerprint {
    /// The fingerprint of this machine and this weir; what the machine does not tell is "unknown", "none" or
    /// null.
    pub fn current() -> Self {
        Self::read(&sysfs())
    }

    /// The fingerprint with what a `sysfs` tells.
    pub fn read(sysfs: &Path) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let policies = folders(&sysfs.join("devices/system/cpu/cpufreq"), "policy");
        let scaling =
            |name: &str| policies.iter().filter_map(|p| read_line(&p.join(name))).collect::<BTreeSet<_>>();
        let governors: Vec<_> = scaling("scaling_governor").into_iter().collect();
        let frequency = |name: &str| scaling(name).iter().filter_map(|freq| freq.parse().ok()).min();
        let cpu = sysfs.join("devices/system/cpu");
        // The driver of Intel's processors tells it its own way.
        let no_turbo = read_line(&cpu.join("intel_pstate/no_turbo"));
        let no_turbo = no_turbo.map(|no| if no == "0" { "1" } else { "0" }.to_owned());
        // The firmware's profile on PCs; the index of nvpmodel on Jetson boards.
        let modes = [sysfs.join("firmware/acpi/platform_profile"), PathBuf::from("/var/lib/nvpmodel/status")];
        Self {
            cpu: cpu_model(&cpuinfo),
            cores: values(&cpuinfo, "processor").count(),
            kernel: uname().map_or_else(|_| none(), |name| name.release().to_string_lossy().into_owned()),
            governor: if governors.is_empty() { none() } else { governors.join("+") },
            max_freq_khz: frequency("scaling_max_freq"),
            min_freq_khz: frequency("scaling_min_freq"),
            boost: read_line(&cpu.join("cpufreq/boost")).or(no_turbo).unwrap_or_else(none),
            power_mode: modes.iter().find_map(|mode| read_line(mode)).unwrap_or_else(none),
            weir: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Names and values, for certificates.
    pub fn fields(&self) -> [(&'static str, String); 9] {
        let freq = |limit: Option<u64>| limit.map_or_else(none, |khz| khz.to_string());
        [
            ("cpu", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            ("kernel", self.kernel.clone()),
            ("governor", self.governor.clone()),
            ("max_freq_khz", freq(self.max_freq_khz)),
            ("min_freq_khz", freq(self.min_freq_khz)),
            ("boost", self.boost.clone()),
            ("power_mode", self.power_mode.clone()),
            ("weir", self.weir.clone()),
        ]
    }

    /// The fields in which `here` differs, such as "cores: profile 4, here 2".
    pub fn differences(&self, here: &Self) -> Vec<String> {
        let pairs = self.fields().into_iter().zip(here.fields());
        let differing = pairs.filter(|(profile, here)| profile != here);
        differing
            .map(|((name, profile), (_, here))| format!("{name}: profile {profile}, here {here}"))
            .collect()
    }

    /// The cores, and the highest frequency.
    pub fn numbers(&self) -> (u64, Option<u64>) {
        (self.cores as u64, self.max_freq_khz)
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

/// Where the kernel shows its devices; elsewhere in tests, by `WEIR_SYSFS`.
pub fn sysfs() -> PathBuf {
    std::env::var_os("WEIR_SYSFS").map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// The folders in `parent` whose name begins with `prefix`.
pub fn folders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix)).map(|e| e.path()).collect()
}

/// What is in a file, without white space around it.
pub fn read_line(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn none() -> String {
    "none".to_owned()
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
            min_freq_khz: Some(1),
            boost: "1".to_owned(),
            power_mode: "low-power".to_owned(),
            weir: "0.0.1".to_owned(),
        };
        let told = profile.differences(&here);
        assert_eq!(told.len(), 9, "{told:?}");
        assert_eq!(told[0], format!("cpu: profile X, here {}", here.cpu));
        assert_eq!(told[1], format!("cores: profile {}, here {}", here.cores + 1, here.cores));
    }

    #[test]
    fn frequencies_are_read_where_the_kernel_shows_them() {
        let dir = tempfile::tempdir().unwrap();
        let none = Fingerprint::read(dir.path());
        assert_eq!((none.max_freq_khz, none.min_freq_khz, none.boost.as_str()), (None, None, "none"));
        let cpu = dir.path().join("devices/system/cpu");
        for (core, most) in [(0, "3600000\n"), (1, "2400000\n")] {
            let policy = cpu.join(format!("cpufreq/policy{core}"));
            fs::create_dir_all(&policy).unwrap();
            fs::write(policy.join("scaling_max_freq"), most).unwrap();
            fs::write(policy.join("scaling_min_freq"), "800000\n").unwrap();
            fs::write(policy.join("scaling_governor"), "powersave\n").unwrap();
        }
        fs::create_dir(cpu.join("intel_pstate")).unwrap();
        fs::write(cpu.join("intel_pstate/no_turbo"), "1\n").unwrap();
        let read = Fingerprint::read(dir.path());
        assert_eq!((read.max_freq_khz, read.min_freq_khz), (Some(2_400_000), Some(800_000)));
        assert_eq!((read.governor.as_str(), read.boost.as_str()), ("powersave", "0"));
        fs::write(cpu.join("cpufreq/boost"), "1\n").unwrap();
        assert_eq!(Fingerprint::read(dir.path()).boost, "1");
    }

    #[test]
    fn cpu_model_of_x86_arm_and_others() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0b");
        assert_eq!(cpu_model(""), "unknown");
    }
}
