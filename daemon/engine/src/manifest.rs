//! The manifest says which models there are: read once before any request comes, by `serve`, `plan` and
//! `profile`.

mod heldout;
mod tensors;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::engine::{EngineError, ModelSpec};
use tensors::Tensors;

pub use heldout::{Heldout, argmax, measure_accuracy};

/// The most models a manifest may list.
pub const MAX_MODELS: usize = 64;
/// A checked `manifest.toml`: its models and, if it names any, the held-out data their accuracy was measured
/// on.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    path: PathBuf,
    models: Vec<ModelSpec>,
    heldout: Option<HeldoutToml>,
}

impl Manifest {
    /// Reads and checks the manifest; the paths in it are relative to its folder. Opens none of the files it
    /// names.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, and any value outside its limits; the message names the field.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let text = planner::read_text(path)
            .map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// All models, in the order of the file.
    pub fn models(&self) -> &[ModelSpec] {
        &self.models
    }

    /// The model of that name; of one with versions that one is named of, the latest.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`], which lists the models there are.
    pub fn model(&self, name: &str) -> Result<&ModelSpec, ManifestError> {
        let latest = self.models.iter().filter(|model| version(&model.name, name).is_some());
        let latest = latest.max_by_key(|model| version(&model.name, name));
        let exact = self.models.iter().find(|model| model.name == name);
        exact.or(latest).ok_or_else(|| ManifestError::Unknown {
            path: self.path.clone(),
            name: name.to_owned(),
            available: self.models.iter().map(|model| &*model.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Loads the held-out images and labels; `None` if the manifest names none.
    ///
    /// # Errors
    /// Files that cannot be read, have another hash, are no IDX files, or do not hold `count` items.
    pub fn heldout(&self) -> Result<Option<Heldout>, ManifestError> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        self.heldout.as_ref().map(|heldout| Heldout::load(folder, heldout)).transpose()
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ManifestError> {
        let toml: ManifestToml = toml::from_str(text)
            .map_err(|source| ManifestError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        if toml.model.is_empty() || toml.model.len() > MAX_MODELS {
            return Err(ManifestError::Count { found: toml.model.len() });
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut names = BTreeSet::new();
        let mut models = Vec::with_capacity(toml.model.len());
        for model in toml.model {
            let spec = model.check(folder)?;
            if !names.insert(spec.name.clone()) {
                return Err(ManifestError::Duplicate { name: spec.name });
            }
            models.push(spec);
        }
        if let Some(heldout) = &toml.heldout {
            heldout.check()?;
        }
        Ok(Self { path: path.to_owned(), models, heldout: toml.heldout })
    }
}

/// Why a manifest, or what it names, is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("[[model]]: {found} models are listed, the limits are 1..={MAX_MODELS}")]
    Count { found: usize },
    #[error("model `{name}` is listed twice")]
    Duplicate { name: String },
    #[error("{field}: `{value}` is refused, {rule}")]
    Value { field: String, value: String, rule: &'static str },
    #[error("{}: no model is named `{name}`; there are: {available}", path.display())]
    Unknown { path: PathBuf, name: String, available: String },
    #[error("{}: not the IDX file expected: {what} is {found}, {expected} is needed", path.display())]
    Idx { path: PathBuf, what: &'static str, expected: usize, found: usize },
    #[error("model {model}: its {side} holds {found} f32, the held-out data needs {expected}")]
    Fit { model: String, side: crate::engine::Side, expected: usize, found: usize },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestToml {
    heldout: Option<HeldoutToml>,
    #[serde(default)]
    model: Vec<ModelToml>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldoutToml {
    images: PathBuf,
    labels: PathBuf,
    images_sha256: String,
    labels_sha256: String,
    count: usize,
    origin: String,
    licence: String,
}

impl HeldoutToml {
    fn check(&self) -> Result<(), ManifestError> {
        check_path("heldout.images", &self.images)?;
        check_path("heldout.labels", &self.labels)?;
        check_sha256("heldout.images_sha256", &self.images_sha256)?;
        check_sha256("heldout.labels_sha256", &self.labels_sha256)?;
        let rule = "at least 1 is needed";
        check(self.count > 0, || ("heldout.count".to_owned(), self.count.to_string(), rule))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelToml {
    name: String,
    /// Tells several of one name apart: the whole name is `name@version`.
    version: Option<u32>,
    file: PathBuf,
    sha256: String,
    input: Tensors,
    output: Tensors,
    accuracy: f64,
    parameters: u64,
    macs: u64,
}

impl ModelToml {
    fn check(self, folder: &Path) -> Result<ModelSpec, ManifestError> {
        let name = self.name;
        let name_rule = "1 to 64 of a-z, 0-9, `-`, `_` and `.` are needed, a letter or digit first";
        check(is_name(&name), || ("model.name".to_owned(), name.clone(), name_rule))?;
        let name = self.version.map_or(name.clone(), |version| format!("{name}@{version}"));
        check_path(&format!("model {name}: file"), &self.file)?;
        check_sha256(&format!("model {name}: sha256"), &self.sha256)?;
        check((0.0..=1.0).contains(&self.accuracy), || {
            (format!("model {name}: accuracy"), self.accuracy.to_string(), "the limits are 0..=1")
        })?;
        let inputs = self.input.check(&format!("model {name}: input"))?;
        let outputs = self.output.check(&format!("model {name}: output"))?;
        let (path, sha256) = (folder.join(self.file), self.sha256);
        let Self { accuracy, parameters, macs, .. } = self;
        Ok(ModelSpec { name, path, sha256, inputs, outputs, accuracy, parameters, macs })
    }
}

/// Which version of the model called `name` this one is, by its whole name.
fn version(whole: &str, name: &str) -> Option<u32> {
    whole.strip_prefix(name)?.strip_prefix('@')?.parse().ok()
}

fn check(holds: bool, refusal: impl FnOnce() -> (String, String, &'static str)) -> Result<(), ManifestError> {
    if holds {
        return Ok(());
    }
    let (field, value, rule) = refusal();
    Err(ManifestError::Value { field, value, rule })
}

fn check_path(field: &str, path: &Path) -> Result<(), ManifestError> {
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    let rule = "a relative path without `..` is needed";
    check(inside && path.file_name().is_some(), || (field.to_owned(), path.display().to_string(), rule))
}

fn check_sha256(field: &str, sha256: &str) -> Result<(), ManifestError> {
    let digits = sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let rule = "64 lower-case hexadecimal digits are needed";
    check(digits && sha256.len() == 64, || (field.to_owned(), sha256.to_owned(), rule))
}

fn is_name(name: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(first)
        && name.bytes().all(|byte| first(byte) || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = r#"
        [[model]]
        name = "digits-xs"
        file = "digits-xs.onnx"
        sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        input = { name = "image", type = "f32", shape = [1, 28, 28] }
        output = { name = "logits", type = "f32", shape = [10] }
        accuracy = 0.8123
        parameters = 12345
        macs = 123456
    "#;

    fn parse(text: &str) -> Result<Manifest, ManifestError> {
        Manifest::parse(Path::new("/models/manifest.toml"), text)
    }

    #[test]
    fn reads_what_is_declared() {
        let manifest = parse(DIGITS).unwrap();
        let model = manifest.model("digits-xs").unwrap();
        assert_eq!(model.path, Path::new("/models/digits-xs.onnx"));
        assert_eq!((model.inputs[0].elements(), model.outputs[0].elements()), (784, 10));
        assert_eq!((model.accuracy, model.parameters, model.macs), (0.8123, 12345, 123456));
        assert_eq!(manifest.heldout().unwrap(), None);
        assert_eq!(
            manifest.model("digits-xl").unwrap_err().to_string(),
            "/models/manifest.toml: no model is named `digits-xl`; there are: digits-xs"
        );
    }

    #[test]
    fn values_outside_their_limits_are_refused_by_name() {
        for (from, to, message) in [
            ("0.8123", "1.5", "model digits-xs: accuracy: `1.5` is refused, the limits are 0..=1"),
            ("0.8123", "nan", "model digits-xs: accuracy: `NaN` is refused"),
            ("\"digits-xs.onnx\"", "\"/etc/x.onnx\"", "file: `/etc/x.onnx` is refused, a relative path"),
            ("\"digits-xs.onnx\"", "\"../x.onnx\"", "file: `../x.onnx` is refused"),
            ("\"digits-xs.onnx\"", "\"\"", "file: `` is refused"),
            ("ba7816", "BA7816", "sha256: `BA7816"),
            ("20015ad", "20015a", "64 lower-case hexadecimal digits are needed"),
            ("\"digits-xs\"", "\"Digits xs\"", "model.name: `Digits xs` is refused"),
            ("[1, 28, 28]", "[1, 0, 28]", "input.shape: `[1, 0, 28]` is refused"),
            ("[1, 28, 28]", "[9000000000, 9000000000]", "input.shape"),
            (
                "[1, 28, 28]",
                "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
                "input.shape: `9 dimensions` is refused, at most 8",
            ),
            (
                "\"f32\", shape = [10]",
                "\"f64\", shape = [10]",
                "output.type: `f64` is refused, only f32, f16",
            ),
            ("macs", "magic", "unknown field `magic`"),
            ("name = \"logits\"", "nom = \"logits\"", "unknown field `nom`"),
            ("accuracy = 0.8123", "", "missing field `accuracy`"),
        ] {
            assert!(DIGITS.contains(from), "{from}");
            let error = parse(&DIGITS.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_name_without_a_version_means_the_latest() {
        let version =
            |number: u32| DIGITS.replacen("[[model]]", &format!("[[model]]\nversion = {number}"), 1);
        let manifest = parse(&[version(2), version(10)].concat()).unwrap();
        assert_eq!(manifest.model("digits-xs").unwrap().name, "digits-xs@10");
        assert_eq!(manifest.model("digits-xs@2").unwrap().name, "digits-xs@2");
        let unknown = manifest.model("digits-xs@3").unwrap_err().to_string();
        assert!(unknown.ends_with("there are: digits-xs@2, digits-xs@10"), "{unknown}");
        let twice = parse(&[version(2), version(2)].concat()).unwrap_err();
        assert_eq!(twice.to_string(), "model `digits-xs@2` is listed twice");
    }

    #[test]
    fn several_tensors_are_listed_and_have_names_of_their_own() {
        let several = |second: &str| {
            let first = r#"{ name = "a", type = "u8", shape = [] }"#;
            let (from, to) = DIGITS.split_once("input = ").unwrap();
            let rest = to.split_once('\n').unwrap().1;
            parse(&format!("{from}input = [{first}, {second}]\n{rest}"))
        };
        let manifest = several(r#"{ name = "b", type = "i64", shape = [2] }"#).unwrap();
        let inputs = &manifest.models()[0].inputs;
        assert_eq!((inputs.len(), inputs[0].bytes(), inputs[1].bytes()), (2, 1, 16));
        let twice = several(r#"{ name = "a", type = "i64", shape = [2] }"#).unwrap_err();
        assert!(twice.to_string().contains("input.name: `a` is refused, each tensor needs"), "{twice}");
    }

    #[test]
    fn the_number_of_models_is_limited_and_names_are_unique() {
        assert_eq!(
            parse("").unwrap_err().to_string(),
            "[[model]]: 0 models are listed, the limits are 1..=64"
        );
        let twice = parse(&DIGITS.repeat(2)).unwrap_err();
        assert_eq!(twice.to_string(), "model `digits-xs` is listed twice");
        assert!(parse(&DIGITS.repeat(65)).unwrap_err().to_string().contains("65 models"));
    }

    #[test]
    fn shipped_manifest_loads() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/manifest.toml");
        assert!(!Manifest::load(&path).unwrap().models().is_empty());
    }
}
