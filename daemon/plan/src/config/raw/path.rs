//! The path of a file as it is written: never empty, since an empty one would be the folder of the configuration.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A path that is not empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "PathBuf")]
pub(in crate::config) struct FilePath(PathBuf);

impl TryFrom<PathBuf> for FilePath {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        match path.as_os_str().is_empty() {
            true => Err("must name a file, not \"\""),
            false => Ok(Self(path)),
        }
    }
}

impl From<&str> for FilePath {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}
