//! The files of models: each is read and verified once, however many workers load it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Backend, EngineError, ModelSpec};

/// What has been read so far, to be dropped once all is loaded.
#[derive(Default)]
pub struct Files {
    /// By path and hash.
    read: HashMap<(PathBuf, String), Vec<u8>>,
}

impl Files {
    /// A model's file, unless it is too large.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`], and as [`read_verified`].
    pub(super) fn read(&mut self, backend: &Backend, spec: &ModelSpec) -> Result<&[u8], EngineError> {
        let key = (spec.path.clone(), spec.sha256.clone());
        if !self.read.contains_key(&key) {
            let bytes = read_model(backend, spec)?;
            self.read.insert(key.clone(), bytes);
        }
        Ok(&self.read[&key])
    }
}

fn read_model(backend: &Backend, spec: &ModelSpec) -> Result<Vec<u8>, EngineError> {
    let (path, limit) = (spec.path.clone(), backend.max_model);
    match std::fs::metadata(&path).map(|file| file.len()) {
        Err(source) => return Err(EngineError::Read { path, source }),
        Ok(bytes) if bytes > limit => return Err(EngineError::TooLarge { path, bytes, limit }),
        Ok(_) => {}
    }
    // A device or a pipe has no length, and a file may grow.
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Err(source) => Err(EngineError::Read { path, source }),
        Ok(read) if read as u64 > limit => Err(EngineError::TooLarge { path, bytes: read as u64, limit }),
        Ok(_) => verified(&path, &spec.sha256, bytes),
    }
}

/// Reads a file whole and checks that it is the one meant.
///
/// # Errors
/// [`EngineError::Read`] and [`EngineError::Hash`].
pub fn read_verified(path: &Path, sha256: &str) -> Result<Vec<u8>, EngineError> {
    let bytes = std::fs::read(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })?;
    verified(path, sha256, bytes)
}

fn verified(path: &Path, sha256: &str, bytes: Vec<u8>) -> Result<Vec<u8>, EngineError> {
    let found = sha256_hex(&bytes);
    if found != sha256 {
        return Err(EngineError::Hash { path: path.to_owned(), expected: sha256.to_owned(), found });
    }
    Ok(bytes)
}

/// SHA-256 as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::conformance::toy_spec;
    use super::*;

    #[test]
    fn hash_is_the_known_one() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), abc);
    }

    #[test]
    fn a_file_is_read_once_and_another_of_its_name_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toy.onnx");
        std::fs::write(&path, "abc").unwrap();
        let spec = ModelSpec { path: path.clone(), sha256: sha256_hex(b"abc"), ..toy_spec(1, 1) };
        let mut files = Files::default();
        assert_eq!(files.read(&Backend::TRACT, &spec).unwrap(), b"abc");
        std::fs::write(&path, "abd").unwrap();
        assert_eq!(files.read(&Backend::TRACT, &spec).unwrap(), b"abc");
        let fresh = |spec| Files::default().read(&Backend::TRACT, spec).map(<[u8]>::to_vec);
        assert!(matches!(fresh(&spec), Err(EngineError::Hash { .. })));
        let other = ModelSpec { sha256: sha256_hex(b"abd"), ..spec };
        assert_eq!(files.read(&Backend::TRACT, &other).unwrap(), b"abd");
    }

    #[test]
    fn what_has_no_length_is_read_up_to_the_limit() {
        let spec = ModelSpec { path: "/dev/zero".into(), ..toy_spec(1, 1) };
        let backend = Backend { max_model: 5, ..Backend::TRACT };
        let refused = Files::default().read(&backend, &spec).map(<[u8]>::len);
        assert!(matches!(refused, Err(EngineError::TooLarge { bytes: 6, limit: 5, .. })), "{refused:?}");
    }
}
