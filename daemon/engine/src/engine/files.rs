//! The files of models: each is read and verified once, however many workers load it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Backend, EngineError, ModelSpec};

/// What has been read so far, to be dropped once all is loaded.
#[derive(Default)]
pub struct Files {
    /// By path and hash.
    read: HashMap<(PathBuf, String), ModelFile>,
}

/// An ONNX file, and those of its weights.
pub(super) struct ModelFile {
    pub(super) bytes: Vec<u8>,
    /// By what the ONNX file calls them.
    pub(super) external: Vec<(String, Arc<[u8]>)>,
}

impl Files {
    /// A model's file with those of its weights, unless they are too large together.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`], and as [`read_verified`].
    pub(super) fn read(&mut self, backend: &Backend, spec: &ModelSpec) -> Result<&ModelFile, EngineError> {
        if spec.path.as_os_str().is_empty() {
            return Err(EngineError::NoFile { model: spec.name.clone() });
        }
        let key = (spec.path.clone(), spec.identity());
        if !self.read.contains_key(&key) {
            let mut left = backend.max_model;
            let mut read = |path: &Path, sha256: &str| {
                let bytes = read_within(path, left, backend.max_model)?;
                left -= bytes.len() as u64;
                verified(path, sha256, bytes)
            };
            let bytes = read(&spec.path, &spec.sha256)?;
            let external = spec.external.iter().map(|file| {
                read(&file.path, &file.sha256).map(|bytes| (file.location.clone(), Arc::from(bytes)))
            });
            let external = external.collect::<Result<_, _>>()?;
            self.read.insert(key.clone(), ModelFile { bytes, external });
        }
        Ok(&self.read[&key])
    }
}

/// Reads a file of at most `left` bytes, where `limit` are allowed for all of its kind together.
///
/// # Errors
/// [`EngineError::Read`] and [`EngineError::TooLarge`].
pub(crate) fn read_within(path: &Path, left: u64, limit: u64) -> Result<Vec<u8>, EngineError> {
    let path = path.to_owned();
    let too_large = |path, bytes: u64| EngineError::TooLarge { path, bytes: bytes + (limit - left), limit };
    match std::fs::metadata(&path).map(|file| file.len()) {
        Err(source) => return Err(EngineError::Read { path, source }),
        Ok(bytes) if bytes > left => return Err(too_large(path, bytes)),
        Ok(_) => {}
    }
    // A device or a pipe has no length, and a file may grow.
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(left.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Err(source) => Err(EngineError::Read { path, source }),
        Ok(read) if read as u64 > left => Err(too_large(path, read as u64)),
        Ok(_) => Ok(bytes),
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
        assert_eq!(files.read(&Backend::TRACT, &spec).unwrap().bytes, b"abc");
        std::fs::write(&path, "abd").unwrap();
        assert_eq!(files.read(&Backend::TRACT, &spec).unwrap().bytes, b"abc");
        let fresh = |spec| Files::default().read(&Backend::TRACT, spec).map(|file| file.bytes.clone());
        assert!(matches!(fresh(&spec), Err(EngineError::Hash { .. })));
        let other = ModelSpec { sha256: sha256_hex(b"abd"), ..spec };
        assert_eq!(files.read(&Backend::TRACT, &other).unwrap().bytes, b"abd");
    }

    #[test]
    fn what_has_no_length_is_read_up_to_the_limit() {
        let spec = ModelSpec { path: "/dev/zero".into(), ..toy_spec(1, 1) };
        let backend = Backend { max_model: 5, ..Backend::TRACT };
        let refused = Files::default().read(&backend, &spec).map(|file| file.bytes.len());
        assert!(matches!(refused, Err(EngineError::TooLarge { bytes: 6, limit: 5, .. })), "{refused:?}");
    }

    #[test]
    fn weights_beside_a_file_are_verified_and_count_towards_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let [path, weights] = ["toy.onnx", "toy.data"].map(|name| dir.path().join(name));
        std::fs::write(&path, "abc").unwrap();
        std::fs::write(&weights, "defgh").unwrap();
        let file = super::super::ExternalFile {
            location: "toy.data".to_owned(),
            path: weights.clone(),
            sha256: sha256_hex(b"defgh"),
        };
        let spec = ModelSpec { path, sha256: sha256_hex(b"abc"), external: vec![file], ..toy_spec(1, 1) };
        let read = |max_model| {
            let backend = Backend { max_model, ..Backend::TRACT };
            Files::default().read(&backend, &spec).map(|file| file.external.clone())
        };
        assert_eq!(read(8).unwrap(), [("toy.data".to_owned(), Arc::from(&b"defgh"[..]))]);
        assert!(matches!(read(7), Err(EngineError::TooLarge { bytes: 8, limit: 7, .. })));
        std::fs::write(&weights, "defgi").unwrap();
        let changed = read(8).unwrap_err().to_string();
        assert!(changed.contains("toy.data: its SHA-256 is"), "{changed}");
    }
}
