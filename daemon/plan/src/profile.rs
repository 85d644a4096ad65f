//! The profile keeps the execution times that promises rest on, and those to be expected: `weir profile` writes it,
//! `plan` and `serve` read it.

mod check;
mod entry;
mod fingerprint;
mod group;
mod machine;
mod measure;
mod part;
mod rehearsed;
mod running;
mod session;
mod tail;
mod take;

use std::path::{Path, PathBuf};

use planner::write_atomically;
use serde::{Deserialize, Serialize};

use crate::config::ServiceConfig;
use crate::models::Timed;
use weir_engine::{EngineKind, ModelSpec};

pub use check::{Found, Verdict};
pub use entry::{BatchTimes, Entry};
pub use fingerprint::{Fingerprint, folders, read_line, sysfs};
pub use group::{Subject, Work};
pub use machine::{Cause, Causes, Disturbance, Machine, Runs, SeenStalls};
pub use part::Part;
pub use session::{Measured, Progress, Session, Until};
pub use tail::{Basis, DEFAULT_EXCEEDANCE, DEFAULT_MARGIN, Rule, Tail};
pub use take::{MOST, Request, Taken, profile_missing, profile_to_serve, take};

/// The version of the file format, its field `weir_profile`.
pub const VERSION: u32 = 4;

/// A checked `*.profile.json`: where it was measured, and at most one [`Entry`] per model file and engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    weir_profile: u32,
    fingerprint: Fingerprint,
    /// When it was last written, seconds since 1970.
    created_unix: u64,
    entries: Vec<Entry>,
}

impl Profile {
    /// An empty profile, made now.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self { weir_profile: VERSION, fingerprint, created_unix: unix_now(), entries: Vec::new() }
    }

    /// Reads and checks a profile.
    ///
    /// # Errors
    /// A file that cannot be read, is no profile or one of another version, and values that contradict each
    /// other.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = planner::read_text(path)
            .map_err(|source| ProfileError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Writes the profile as a whole: after a failure or a crash `path` holds what it held before.
    ///
    /// # Errors
    /// Whatever creating, writing or renaming reports.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |source| ProfileError::Write { path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        write_atomically(path, format!("{text}\n").as_bytes()).map_err(failed)
    }

    /// Puts `entry` in, in place of all of the same model and engine.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|old| (&old.model, old.engine) != (&entry.model, entry.engine));
        self.add(entry);
    }

    /// Adds `entry` beside all others, unless there is one of the same file and engine.
    pub fn add(&mut self, entry: Entry) {
        if self.entries.iter().all(|old| old.key() != entry.key()) {
            self.entries.push(entry);
            self.entries.sort_by(|a, b| (&a.model, a.engine as u8).cmp(&(&b.model, b.engine as u8)));
            self.created_unix = unix_now();
        }
    }

    /// All entries, by model name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a model file on an engine.
    ///
    /// # Errors
    /// No such entry, or only of other files of that name; both say what to do.
    pub fn entry(&self, model: &str, sha256: &str, engine: EngineKind) -> Result<&Entry, ProfileError> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.key() == (model, sha256, engine)) {
            return Ok(entry);
        }
        let other = self.entries.iter().find(|entry| entry.model == model && entry.engine == engine);
        let model = model.to_owned();
        Err(match other.map(|entry| entry.sha256.clone()) {
            Some(measured) => ProfileError::Stale { model, engine, measured, present: sha256.to_owned() },
            None => ProfileError::Missing { model, engine, available: self.names() },
        })
    }

    /// The entry of what was timed on an engine.
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn timed(&self, of: &Timed, engine: EngineKind) -> Result<&Entry, ProfileError> {
        self.entry(&of.name, &of.identity, engine)
    }

    /// Each of these models with its entry for the workers of a service.
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn with_entries(
        &self,
        specs: Vec<ModelSpec>,
        config: &ServiceConfig,
    ) -> Result<Vec<(ModelSpec, &Entry)>, ProfileError> {
        let with = |spec: ModelSpec| Ok((self.timed(&Timed::by(config, &spec), config.engine)?, spec));
        specs.into_iter().map(with).map(|both| both.map(|(entry, spec)| (spec, entry))).collect()
    }

    /// The machine it was measured on.
    pub fn fingerprint(&self) -> &Fingerprint {
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
        let Version { weir_profile: found } = planner::from_json(text).map_err(failed)?;
        if found != VERSION {
            return Err(ProfileError::Version { path: path.to_owned(), found });
        }
        let profile: Self = planner::from_json(text).map_err(failed)?;
        for (i, entry) in profile.entries.iter().enumerate() {
            let twice = profile.entries[..i].iter().any(|before| before.key() == entry.key());
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

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
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
    #[error("margin is {margin}, the limits are 0..={}", tail::MAX_MARGIN)]
    Margin { margin: f64 },
    #[error("exceedance is {exceedance}, it must be above 0 and at most {}", tail::MAX_EXCEEDANCE)]
    Exceedance { exceedance: f64 },
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
