//! `weir profile --check`: measures again, as the profile was measured, and compares.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::bar;
use tracing::warn;
use weir_plan::config::Config;
use weir_plan::models::{prepare_engines, resolve_models};
use weir_plan::profile::{Entry, Fingerprint, Profile, Rule, Session, Until, Verdict, Work};

/// The part of the runs of the profile that is measured again, and that if it has to be quick.
const PART: (usize, usize) = (4, 40);
/// Runs of each batch size at least.
const FEWEST: usize = 20;

/// Whether the profile of `config` still holds: the machine first, then every batch size.
///
/// # Errors
/// If there is no profile of what the configuration uses, a model cannot be loaded or run, and if `stop` was set
/// meanwhile.
pub(super) fn check(config: &Config, quick: bool, alone: bool, stop: &AtomicBool) -> Result<Verdict> {
    let profile = Profile::load(&config.daemon.profile)?;
    prepare_engines(config)?;
    let specs = resolve_models(config)?;
    let work = Work::new(config, &specs, alone);
    let entries: Vec<&Entry> = work
        .subjects
        .iter()
        .map(|subject| {
            let entry = profile.timed(&subject.timed, subject.engine)?;
            let (written, wanted) = (entry.batches.len(), subject.max_batch);
            ensure!(
                written >= wanted,
                "model {} is profiled for batches of 1..={written}, 1..={wanted} are used: run `weir profile FILE` anew",
                entry.model
            );
            Ok(entry)
        })
        .collect::<Result<_>>()?;
    let mut differences = profile.fingerprint().differences(&Fingerprint::current());
    for (entry, equipment) in entries.iter().zip(work.equipment()) {
        differences.extend(entry.differences(&equipment));
    }
    for difference in &differences {
        warn!("the machine is not as profiled: {difference}");
    }
    for line in Work::other_company(config, &specs, &profile) {
        warn!("{line}");
    }
    let modes = work.subjects.iter().zip(&entries).map(|(subject, entry)| {
        let mut modes = entry.modes();
        modes.truncate(subject.max_batch);
        modes
    });
    let samples = entries.iter().flat_map(|entry| &entry.batches).map(|batch| batch.samples).min();
    let samples = samples.unwrap_or(1) / if quick { PART.1 } else { PART.0 };
    let samples = samples.max(FEWEST);
    let mut session = Session::new(&work, Some(modes.collect()))?;
    let (bar, mut show) = bar()?;
    let until = Until { samples, stable: None, most: 4 * samples, limit: Duration::MAX };
    // No bound is made of these times.
    let rule = entries.first().map(|entry| Rule::new(entry.exceedance, entry.margin, true));
    let rule = rule.context("there is nothing to check")??;
    let measured = session.run(&until, &rule, stop, &mut show)?;
    bar.finish_and_clear();
    let times: Vec<Vec<Vec<u64>>> =
        measured.runs.into_iter().map(|all| all.into_iter().map(|runs| runs.times).collect()).collect();
    let fresh: Vec<_> = entries.into_iter().zip(times.iter().map(Vec::as_slice)).collect();
    Ok(Verdict::new(differences, &fresh))
}
