//! The profile keeps the execution times that promises rest on: `weir profile` writes it, `plan` and `serve`
//! read it.

mod fingerprint;
mod measure;

use std::fs;
use std::path::{Path, PathBuf};

use planner::write_atomically;
use serde::{Deserialize, Serialize};

use crate::engine::{EngineKind, MAX_BATCH, ModelSpec, RunMode, sha256_hex};

pub(crate) use fingerprint::{Fingerprint, folders, read_line, sysfs};
pub(crate) use measure::{Measured, measure};

/// The version of the file format, its field `weir_profile`.
pub(crate) const VERSION: u32 = 1;
/// The share by which a bound lies above the largest time seen, unless told otherwise.
pub(crate) const DEFAULT_MARGIN: f64 = 0.10;
/// The largest margin: a bound of eleven times the largest time seen.
pub(crate) const MAX_MARGIN: f64 = 10.0;

/// A checked `*.profile.json`: where it was measured, and at most one [`Entry`] per model and engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    weir_profile: u32,
    fingerprint: Fingerprint,
    /// When it was last written, seconds since 1970.
    created_unix: u64,
    entries: Vec<Entry>,
}

/// The times of one model on one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The model's name in its manifest.
    pub(crate) model: String,
    /// The hash of the model file that was measured.
    pub(crate) sha256: String,
    /// The engine that ran it.
    pub(crate) engine: EngineKind,
    /// Timed runs per batch size, at least 1.
    pub(crate) samples: usize,
    /// The share by which bounds lie above the largest time seen, 0..=[`MAX_MARGIN`].
    pub(crate) margin: f64,
    /// One per batch size, for 1, 2, … in this order.
    pub(crate) batches: Vec<BatchTimes>,
}

/// The times of one batch size, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchTimes {
    /// Requests in the batch, at least 1.
    pub(crate) batch: usize,
    /// How the engine ran it; the bound holds for this way only.
    pub(crate) mode: RunMode,
    /// Half of the runs took no longer.
    pub(crate) p50_ns: u64,
    /// 99 % of the runs took no longer.
    pub(crate) p99_ns: u64,
    /// The largest time seen.
    pub(crate) max_ns: u64,
    /// P(batch), the time that plans count with: never below `max_ns`, nor below the bound of a smaller
    /// batch.
    pub(crate) bound_ns: u64,
}

impl Profile {
    /// An empty profile, made now.
    pub(crate) fn new(fingerprint: Fingerprint) -> Self {
        Self { weir_profile: VERSION, fingerprint, created_unix: unix_now(), entries: Vec::new() }
    }

    /// Reads and checks a profile.
    ///
    /// # Errors
    /// A file that cannot be read, is no profile or one of another version, and values that contradict each
    /// other.
    pub(crate) fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ProfileError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Writes the profile as a whole: after a failure or a crash `path` holds what it held before.
    ///
    /// # Errors
    /// Whatever creating, writing or renaming reports.
    pub(crate) fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |source| ProfileError::Write { path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        write_atomically(path, format!("{text}\n").as_bytes()).map_err(failed)
    }

    /// Puts `entry` in, in place of one of the same model and engine.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.entries.retain(|old| (&old.model, old.engine) != (&entry.model, entry.engine));
        self.entries.push(entry);
        self.entries.sort_by(|a, b| (&a.model, a.engine as u8).cmp(&(&b.model, b.engine as u8)));
        self.created_unix = unix_now();
    }

    /// All entries, by model name.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a model file on an engine.
    ///
    /// # Errors
    /// No such entry, or one that was measured on another file of that name; both say what to do.
    pub(crate) fn entry(
        &self,
        model: &str,
        sha256: &str,
        engine: EngineKind,
    ) -> Result<&Entry, ProfileError> {
        let Some(entry) = self.entries.iter().find(|e| e.model == model && e.engine == engine) else {
            let model = model.to_owned();
            return Err(ProfileError::Missing { model, engine, available: self.names() });
        };
        if entry.sha256 != sha256 {
            let (model, measured) = (model.to_owned(), entry.sha256.clone());
            return Err(ProfileError::Stale { model, engine, measured, present: sha256.to_owned() });
        }
        Ok(entry)
    }

    /// The machine it was measured on.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn names(&self) -> String {
        let names = self.entries.iter().map(|entry| format!("{} on {}", entry.model, entry.engine));
        match names.collect::<Vec<_>>() {
            names if names.is_empty() => "nothing".to_owned(),
            names => names.join(", "),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ProfileError> {
        /// Only the version, so that a file of another version is refused for being that.
        #[derive(Deserialize)]
        struct Version {
            weir_profile: u32,
        }
        let failed = |source| ProfileError::Parse { path: path.to_owned(), source };
        let Version { weir_profile: found } = serde_json::from_str(text).map_err(failed)?;
        if found != VERSION {
            return Err(ProfileError::Version { path: path.to_owned(), found });
        }
        let profile: Self = serde_json::from_str(text).map_err(failed)?;
        for (i, entry) in profile.entries.iter().enumerate() {
            let twice =
                profile.entries[..i].iter().any(|e| (&e.model, e.engine) == (&entry.model, entry.engine));
            let fault = if twice { Err("the entry is there twice".to_owned()) } else { entry.check() };
            fault.map_err(|fault| ProfileError::Entry {
                path: path.to_owned(),
                entry: format!("{} on {}", entry.model, entry.engine),
                fault,
            })?;
        }
        Ok(profile)
    }
}

impl Entry {
    /// What was measured of `spec` on `engine`, with bounds by `margin`: see [`BatchTimes::bound_ns`].
    ///
    /// # Errors
    /// A margin outside 0..=[`MAX_MARGIN`].
    pub(crate) fn new(
        spec: &ModelSpec,
        engine: EngineKind,
        measured: &Measured,
        margin: f64,
    ) -> Result<Self, ProfileError> {
        if !(0.0..=MAX_MARGIN).contains(&margin) {
            return Err(ProfileError::Margin { margin });
        }
        let mut bound_ns = 0;
        let batches = measured.sizes.iter().enumerate().map(|(i, size)| {
            let added = (size.max_ns as f64 * margin).ceil() as u64;
            bound_ns = bound_ns.max(size.max_ns.saturating_add(added)).max(1);
            let (p50_ns, p99_ns, max_ns) = (size.p50_ns, size.p99_ns, size.max_ns);
            BatchTimes { batch: i + 1, mode: size.mode, p50_ns, p99_ns, max_ns, bound_ns }
        });
        let batches = batches.collect();
        let (model, sha256) = (spec.name.clone(), spec.sha256.clone());
        Ok(Self { model, sha256, engine, samples: measured.samples, margin, batches })
    }

    /// P(1), P(2), … in nanoseconds, non-decreasing.
    pub(crate) fn bounds(&self) -> Vec<u64> {
        self.batches.iter().map(|times| times.bound_ns).collect()
    }

    /// How batches of 1, 2, … were run; an engine that serves by these bounds must run them the same way.
    pub(crate) fn modes(&self) -> Vec<RunMode> {
        self.batches.iter().map(|times| times.mode).collect()
    }

    /// SHA-256 of what it says, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        sha256_hex(&serde_json::to_vec(self).unwrap_or_default())
    }

    fn check(&self) -> Result<(), String> {
        let holds = |holds: bool, fault: &dyn Fn() -> String| if holds { Ok(()) } else { Err(fault()) };
        holds(self.samples >= 1, &|| "samples is 0, at least 1 is needed".to_owned())?;
        let margin = self.margin;
        holds((0.0..=MAX_MARGIN).contains(&margin), &|| ProfileError::Margin { margin }.to_string())?;
        let sizes = self.batches.len();
        holds((1..=MAX_BATCH).contains(&sizes), &|| {
            format!("{sizes} batch sizes are listed, the limits are 1..={MAX_BATCH}")
        })?;
        let mut below = 1;
        for (i, times) in self.batches.iter().enumerate() {
            let BatchTimes { batch, p50_ns, p99_ns, max_ns, bound_ns, .. } = *times;
            holds(batch == i + 1, &|| format!("batch {batch} stands where {} is needed", i + 1))?;
            holds(p50_ns <= p99_ns && p99_ns <= max_ns && max_ns <= bound_ns, &|| {
                format!("batch {batch}: {p50_ns}, {p99_ns}, {max_ns}, {bound_ns} ns do not rise")
            })?;
            holds(bound_ns >= below, &|| {
                format!("batch {batch}: bound_ns is {bound_ns}, at least {below} is needed")
            })?;
            below = bound_ns;
        }
        Ok(())
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("{}: cannot be read: {source}; `weir profile FILE` writes it", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{}: not a profile: {source}", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error(
        "{}: weir_profile is {found}, this weir reads {VERSION}; run `weir profile FILE` anew",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
    #[error("{}: {entry}: {fault}", path.display())]
    Entry { path: PathBuf, entry: String, fault: String },
    #[error("margin is {margin}, the limits are 0..={MAX_MARGIN}")]
    Margin { margin: f64 },
    #[error("model {model} is not profiled on {engine} (there is: {available}); run `weir profile FILE`")]
    Missing { model: String, engine: EngineKind, available: String },
    #[error(
        "model {model}: its file is {present}, the profile on {engine} was measured on {measured}; \
         run `weir profile FILE` anew"
    )]
    Stale { model: String, engine: EngineKind, measured: String, present: String },
}

/// The date is for people; no decision is taken on it.
#[allow(clippy::disallowed_methods)]
fn unix_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
