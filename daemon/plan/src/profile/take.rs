//! Taking a profile: measuring, keeping what is finished, writing the file; or adding to it what it does not have.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{
    DEFAULT_EXCEEDANCE, DEFAULT_MARGIN, Entry, Fingerprint, Measured, Part, Profile, ProfileError, Progress,
    Rule, Runs, Session, Until, Work,
};
use crate::config::{Config, ServiceConfig};
use crate::models::{Timed, prepare_engines, resolve_models, running};
use tracing::{info, warn};
use weir_engine::{EngineKind, ModelSpec, sha256_hex};

/// Runs of each batch size at most, unless more are asked for.
pub const MOST: usize = 50_000;

/// Runs of each batch size of a model that is measured beside what is served.
const SAMPLES: usize = 300;

/// Runs of each batch size of a model that only best effort is served with, …
const FEW: usize = 20;
/// … and the longest that they may take, but for a round.
const BRIEFLY: Duration = Duration::from_secs(10);

/// What is asked of a profile.
pub struct Request {
    /// Runs of each batch size at least, at least 1.
    pub samples: usize,
    /// The share by which no bound may change any more; `None` does not wait for that.
    pub stable: Option<f64>,
    /// The longest that is measured, but for a round.
    pub limit: Duration,
    /// How bounds are made.
    pub rule: Rule,
    /// Each model by itself.
    pub alone: bool,
    /// Nothing that was kept is gone on from.
    pub afresh: bool,
}

/// A profile that was taken.
pub struct Taken {
    /// As it was written.
    pub profile: Profile,
    /// What was measured now, with the runs of batches of 1, 2, …
    pub measured: Vec<(Entry, Vec<Runs>)>,
    /// Runs that were kept when an earlier call was interrupted.
    pub resumed: usize,
}

impl Request {
    /// A first look: `samples` runs and no waiting.
    pub fn quick(samples: usize, rule: Rule) -> Self {
        Self { samples, stable: None, limit: Duration::MAX, rule, alone: false, afresh: false }
    }

    /// SHA-256 of all that what was kept must have been measured for, in hexadecimal.
    fn key(&self, machine: &Fingerprint, work: &Work) -> String {
        let options = (self.samples, self.stable, &self.rule, self.alone);
        sha256_hex(
            &serde_json::to_vec(&(machine, work.equipment(), work.digest(), options)).unwrap_or_default(),
        )
    }
}

impl Taken {
    /// The runs of the batch size that has fewest.
    pub fn fewest(&self) -> usize {
        let batches = self.measured.iter().flat_map(|(entry, _)| &entry.batches);
        batches.map(|times| times.samples).min().unwrap_or(0)
    }

    /// The batch sizes whose bounds are not stable, where that was waited for.
    pub fn unstable(&self, request: &Request) -> Vec<String> {
        let waited =
            |(entry, _): &&(Entry, _)| request.stable.is_some() && entry.engine != EngineKind::Simulated;
        let unstable = self.measured.iter().filter(waited).flat_map(|(entry, _)| {
            entry.batches.iter().filter(|b| !b.stable).map(|b| format!("{} × {}", entry.model, b.batch))
        });
        unstable.collect()
    }
}

/// Measures what `config` uses and writes its profile; entries of other models stay if the machine is the same. What is
/// finished is kept beside the profile until the end, and gone on from by the next call that asks for the same. `show` is
/// told how far it is.
///
/// # Errors
/// If a model cannot be loaded or run, a file not be written, and if `stop` was set meanwhile.
pub fn take(
    config: &Config,
    request: &Request,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Taken> {
    prepare_engines(config)?;
    let here = Fingerprint::current();
    let work = Work::new(config, &resolve_models(config)?, request.alone);
    let path = &config.daemon.profile;
    let mut session = begin(&work, request, &here, &Part::path(path))?;
    let resumed = session.runs();
    let until = Until { samples: request.samples, stable: request.stable, most: MOST, limit: request.limit };
    let measured = session.run(&until, &request.rule, stop, show).with_context(|| {
        format!(
            "what was measured is kept in {}: `weir profile` goes on from there",
            Part::path(path).display()
        )
    })?;
    let mut profile = Profile::load(path)
        .ok()
        .filter(|old| old.fingerprint().differences(&here).is_empty())
        .unwrap_or_else(|| Profile::new(here));
    let measured: Vec<_> =
        entries(&work, &measured, &request.rule).zip(measured.runs.iter().cloned()).collect();
    for (entry, _) in &measured {
        profile.put(entry.clone());
    }
    profile.save(path)?;
    session.finish()?;
    Ok(Taken { profile, measured, resumed })
}

/// The profile of `config`, to which what it does not have of `models` is added: measured beside what is served, for the
/// largest batch that any service wants. Nothing that is in the file is taken out of it, nor is what an interrupted
/// `weir profile` keeps.
///
/// Requests go first, so that times come out longer rather than shorter than those of an idle machine. `show` is told how
/// far it is.
///
/// # Errors
/// If the profile cannot be read, if something is to be measured and the machine is not the profiled one, and as [`take`].
pub fn profile_missing(
    config: &Config,
    models: &[Vec<ModelSpec>],
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Profile> {
    let path = &config.daemon.profile;
    let profile = load_or_new(path)?;
    let unknown = |of: &Timed, engine| profile.timed(of, engine).is_err();
    let work = Work { realtime: false, ..Work::of(config, models, false, unknown) };
    if work.subjects.is_empty() {
        return Ok(profile);
    }
    let names = names(&work);
    prepare_engines(config)?;
    let here = Fingerprint::current();
    let of_here = |profile: &Profile| {
        let differences = profile.fingerprint().differences(&here);
        ensure!(
            differences.is_empty(),
            "{} is not profiled, and the machine is not as profiled: {}; run `weir profile`",
            names,
            differences.join("; ")
        );
        Ok(())
    };
    of_here(&profile)?;
    info!("measuring what the profile does not have: {}", names);
    let measured = measure(&work, SAMPLES, Duration::MAX, stop, show)?;
    // It may have been written anew meanwhile.
    let mut profile = load_or_new(path)?;
    of_here(&profile)?;
    measured.into_iter().for_each(|entry| profile.add(entry));
    profile.save(path)?;
    Ok(profile)
}

/// The profile of `config` to serve by. Of models that only services without a promise have, what it lacks is measured, a
/// few rounds of it, and not written: such services need no bound to rely on.
///
/// # Errors
/// If there is no profile for services that promise something, a model cannot be loaded or run, and if `stop` was set
/// meanwhile.
pub fn profile_to_serve(config: &Config, models: &[Vec<ModelSpec>], stop: &AtomicBool) -> Result<Profile> {
    let path = &config.daemon.profile;
    let mut profile = match Profile::load(path) {
        Err(error) if config.services.iter().all(ServiceConfig::is_best_effort) => {
            warn!("{error}");
            Profile::new(Fingerprint::current())
        }
        loaded => loaded?,
    };
    let promised = |of: &Timed, engine| {
        let mut all = running(config, models).filter(|runs| !runs.config.is_best_effort());
        all.any(|runs| {
            runs.config.engine == engine
                && runs.specs.iter().any(|spec| runs.timed(spec).identity == of.identity)
        })
    };
    let lacks = |of: &Timed, engine| profile.timed(of, engine).is_err() && !promised(of, engine);
    let work = Work::of(config, models, false, lacks);
    if work.subjects.is_empty() {
        return Ok(profile);
    }
    prepare_engines(config)?;
    let names = names(&work);
    warn!(
        "{}: not profiled; a few batches are timed now, enough for best effort (`weir profile` measures what promises can \
         rely on)",
        names
    );
    measure(&work, FEW, BRIEFLY, stop, &mut |_| {})?.into_iter().for_each(|entry| profile.put(entry));
    Ok(profile)
}

/// So many runs of each subject, as far as they are done within `limit`, by the rule that nobody has chosen.
fn measure(
    work: &Work,
    samples: usize,
    limit: Duration,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<Entry>> {
    let rule = Rule::new(DEFAULT_EXCEEDANCE, DEFAULT_MARGIN, false)?;
    let until = Until { samples, stable: None, most: samples, limit };
    let measured = Session::new(work, None)?.run(&until, &rule, stop, show)?;
    Ok(entries(work, &measured, &rule).collect())
}

/// What is measured, for people.
fn names(work: &Work) -> String {
    let names = work.subjects.iter().map(|subject| format!("{} on {}", subject.timed.name, subject.engine));
    names.collect::<Vec<_>>().join(", ")
}

/// The profile at `path`; an empty one if there is none.
fn load_or_new(path: &Path) -> Result<Profile, ProfileError> {
    match Profile::load(path) {
        Err(ProfileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(Profile::new(Fingerprint::current()))
        }
        loaded => loaded,
    }
}

/// What was measured of each subject.
fn entries<'a>(work: &'a Work, measured: &'a Measured, rule: &'a Rule) -> impl Iterator<Item = Entry> + 'a {
    work.subjects.iter().enumerate().map(|(index, subject)| {
        let times = (&measured.runs[index][..], &measured.stable[index][..]);
        Entry::of_runs(subject, &measured.modes[index], times, rule, work.workers_beside(index))
    })
}

/// A session that goes on from what was kept for the same purpose, or a new one.
fn begin<'a>(work: &'a Work, request: &Request, here: &Fingerprint, path: &Path) -> Result<Session<'a>> {
    let key = request.key(here, work);
    if !request.afresh {
        match Part::resume(path, &key) {
            Ok(Some((part, kept))) => match Session::resume(work, kept) {
                Ok(mut session) => {
                    session.keep(part);
                    let runs = session.runs();
                    info!(
                        "goes on after {runs} runs that were kept when it was interrupted (--afresh starts over)"
                    );
                    return Ok(session);
                }
                Err(error) => warn!("{}: {error}; starts over", path.display()),
            },
            Ok(None) => warn!(
                "{}: is of another machine, configuration, model or request; starts over",
                path.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => warn!("{}: {error}; starts over", path.display()),
        }
    }
    let mut session = Session::new(work, None)?;
    session.keep(Part::create(path, &key, session.modes())?);
    Ok(session)
}
