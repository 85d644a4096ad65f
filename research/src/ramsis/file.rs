//! Policies as files: JSON with a version, a digest, and the hash of what they were made from.

use std::path::Path;

use planner::{read_file_at_most, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::RamsisError;
use super::policy::{Parts, Policy};

/// The version of the format, its field `weir_ramsis_policy`.
pub const VERSION: u32 = 1;
/// The largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<Body> {
    weir_ramsis_policy: u32,
    /// SHA-256, in hexadecimal, of the text of `policy`.
    digest: String,
    policy: Body,
}

/// Only what other versions must have too.
#[derive(Deserialize)]
struct Version {
    weir_ramsis_policy: u32,
}

impl Policy {
    /// The file's contents.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Nothing in it can fail: there are no maps.
        let text = serde_json::to_string(self.parts()).unwrap_or_default();
        let digest = digest(&text);
        let whole = RawValue::from_string(text)
            .and_then(|policy| serde_json::to_string(&File { weir_ramsis_policy: VERSION, digest, policy }));
        whole.unwrap_or_default() + "\n"
    }

    /// Reads a policy; `inputs` is the hash of the inputs that it must have been made from, as
    /// [`super::Spec::hash`] gives it, if that matters.
    ///
    /// # Errors
    /// [`RamsisError`]: too long, no JSON, unknown or missing fields, another version, contents that do not match
    /// the digest, a value outside its range, or other inputs.
    pub fn parse(text: &str, inputs: Option<&str>) -> Result<Self, RamsisError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(RamsisError::Size { bytes: text.len() as u64 });
        }
        let Version { weir_ramsis_policy: found } = serde_json::from_str(text)?;
        if found != VERSION {
            return Err(RamsisError::Version { found });
        }
        let file: File<&RawValue> = serde_json::from_str(text)?;
        let computed = digest(file.policy.get());
        if file.digest != computed {
            return Err(RamsisError::Digest { written: file.digest, computed });
        }
        let parts: Parts = serde_json::from_str(file.policy.get())?;
        if let Some(expected) = inputs.filter(|&inputs| inputs != parts.inputs_sha256) {
            let expected = expected.to_owned();
            return Err(RamsisError::Inputs { written: parts.inputs_sha256, expected });
        }
        Self::of_parts(parts)
    }

    /// Reads the file at `path`, as [`Policy::parse`].
    ///
    /// # Errors
    /// As [`Policy::parse`], or if it cannot be read.
    pub fn load(path: &Path, inputs: Option<&str>) -> Result<Self, RamsisError> {
        let failed = |source| RamsisError::Read { path: path.to_owned(), source };
        Self::parse(&read_file_at_most(MAX_BYTES, path).map_err(failed)?, inputs)
    }

    /// Writes the file as a whole: after a failure or a crash `path` holds what it held before.
    ///
    /// # Errors
    /// [`RamsisError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), RamsisError> {
        write_atomically(path, self.to_json().as_bytes())
            .map_err(|source| RamsisError::Write { path: path.to_owned(), source })
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
