//! The watch on the machine: whether it still is what was profiled, looked at while requests are served.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use rt_core::{Cause, Evidence, Span};

use crate::overview::Overview;
use tracing::{info, warn};
use weir_os::clock;
use weir_plan::profile::{Fingerprint, folders, read_line};
use weir_serve::cause::Stale;
use weir_serve::service::Effects;

/// How often: the longest time until a change is seen.
const INTERVAL: Duration = Duration::from_millis(500);
/// A breach lasts until the look after the next one.
const LASTS: Span = Span::from_millis(1_500);

/// A difference: what, the value profiled and the one seen, and in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    what: Stale,
    limit: u64,
    seen: u64,
    text: String,
}

/// Compares the machine with the profile, look by look.
pub(crate) struct Watch {
    sysfs: PathBuf,
    /// How often heat has throttled the processor, as far as it counts.
    throttled: u64,
}

impl Watch {
    /// A watch on the machine that `sysfs` shows.
    pub(crate) fn new(sysfs: PathBuf) -> Self {
        Self { throttled: throttle_count(&sysfs), sysfs }
    }

    /// The worst difference there is now from what was `profiled`.
    pub(crate) fn look(&mut self, profiled: &Fingerprint) -> Option<Difference> {
        let count = throttle_count(&self.sysfs);
        let since = count.saturating_sub(std::mem::replace(&mut self.throttled, count));
        let seen = since + cooling(&self.sysfs);
        if seen > 0 {
            let text = "heat throttles the processor".to_owned();
            return Some(Difference { what: Stale::Throttled, limit: 0, seen, text });
        }
        let here = Fingerprint::read(&self.sysfs);
        let text = profiled.differences(&here);
        // What cannot be read for want of a descriptor has not changed.
        if text.is_empty() || std::fs::read_dir(&self.sysfs).is_err_and(|error| is_starved(&error)) {
            return None;
        }
        let ((cores, most), (cores_here, most_here)) = (profiled.numbers(), here.numbers());
        let (what, limit, seen) = if most != most_here {
            (Stale::Frequency, most.unwrap_or(0), most_here.unwrap_or(0))
        } else if cores != cores_here {
            (Stale::Cores, cores, cores_here)
        } else {
            (Stale::Other, 0, text.len() as u64)
        };
        Some(Difference { what, limit, seen, text: text.join("; ") })
    }

    /// Looks at the machine until the daemon drains, and raises safe mode of all services that run on it, or of those alone
    /// whose engine is not the one that was profiled.
    pub(crate) fn run(mut self, overview: &Overview) {
        let mut effects = Effects::default();
        let mut told = None;
        while !overview.served.is_draining() {
            let difference = self.look(&overview.profiled());
            let mut texts: Vec<String> = difference.iter().map(|d| d.text.clone()).collect();
            for service in overview.served.services().iter().filter(|s| !s.plan.is_simulated()) {
                let engine = &service.plan.mismatches;
                let other = || (!engine.is_empty()).then_some((Stale::Other, 0, engine.len() as u64));
                let breach = difference.as_ref().map(|d| (d.what, d.limit, d.seen)).or_else(other);
                if let Some((what, limit, seen)) = breach {
                    let evidence = Evidence { limit, seen, window: what as u64, stream: None };
                    let until = clock::now() + LASTS;
                    service.with_scheduler(&mut effects, |scheduler, now| {
                        scheduler.raise_safe_mode(now, Cause::ProfileStale, evidence, until);
                    });
                }
                for line in engine {
                    if !texts.contains(line) {
                        texts.push(line.clone());
                    }
                }
            }
            let text = (!texts.is_empty()).then(|| texts.join("; "));
            match &text {
                Some(text) if told.as_ref() != Some(text) => {
                    warn!("the machine is not as profiled: {text}; run `weir profile` again");
                }
                None if told.is_some() => info!("the machine is as profiled again"),
                _ => {}
            }
            told = text;
            std::thread::park_timeout(INTERVAL);
        }
    }
}

/// Whether it is for want of descriptors, this process's or the machine's.
fn is_starved(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// How often x86 processors say that heat throttled them since boot.
fn throttle_count(sysfs: &Path) -> u64 {
    let counts = ["core_throttle_count", "package_throttle_count"];
    let of = |cpu: PathBuf| {
        counts.map(|name| read_line(&cpu.join("thermal_throttle").join(name))).into_iter().flatten()
    };
    let cpus = folders(&sysfs.join("devices/system/cpu"), "cpu");
    cpus.into_iter().flat_map(of).filter_map(|count| count.parse::<u64>().ok()).sum()
}

/// How many cooling devices hold the processor back now: how other architectures tell.
fn cooling(sysfs: &Path) -> u64 {
    let devices = folders(&sysfs.join("class/thermal"), "cooling_device");
    let holds_back = |device: &PathBuf| {
        let kind = read_line(&device.join("type")).unwrap_or_default();
        let state = read_line(&device.join("cur_state")).and_then(|state| state.parse::<u64>().ok());
        (kind.contains("cpufreq") || kind == "Processor") && state.is_some_and(|state| state > 0)
    };
    devices.iter().filter(|device| holds_back(device)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn what_changes_is_seen_and_what_is_back_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let sysfs = folder.path();
        let governor = "devices/system/cpu/cpufreq/policy0/scaling_governor";
        let limit = "devices/system/cpu/cpufreq/policy0/scaling_max_freq";
        let count = "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count";
        write(sysfs, governor, "performance\n");
        write(sysfs, limit, "2400000\n");
        write(sysfs, count, "3\n");
        write(sysfs, "class/thermal/cooling_device0/type", "cpufreq-cpu0\n");
        write(sysfs, "class/thermal/cooling_device0/cur_state", "0\n");
        let (profiled, mut watch) = (Fingerprint::read(sysfs), Watch::new(sysfs.to_owned()));
        let what = |watch: &mut Watch| watch.look(&profiled).map(|d| (d.what, d.limit, d.seen));
        assert_eq!(what(&mut watch), None);
        write(sysfs, limit, "1800000");
        assert_eq!(what(&mut watch), Some((Stale::Frequency, 2_400_000, 1_800_000)));
        write(sysfs, limit, "2400000");
        write(sysfs, governor, "powersave");
        let difference = watch.look(&profiled).expect("another governor");
        assert_eq!(difference.what, Stale::Other);
        assert!(difference.text.contains("governor: profile performance, here powersave"), "{difference:?}");
        write(sysfs, governor, "performance");
        write(sysfs, count, "5");
        assert_eq!(what(&mut watch), Some((Stale::Throttled, 0, 2)));
        assert_eq!(what(&mut watch), None, "throttled twice since the look before, not since the last one");
        write(sysfs, "class/thermal/cooling_device0/cur_state", "2");
        assert_eq!(what(&mut watch), Some((Stale::Throttled, 0, 1)));
        write(sysfs, "class/thermal/cooling_device0/cur_state", "0");
        write(sysfs, "firmware/acpi/platform_profile", "low-power");
        assert!(watch.look(&profiled).expect("another mode").text.contains("power_mode"));
    }
}
