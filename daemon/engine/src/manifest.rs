//! The manifest says which models there are: read once before any request comes, by `serve`, `plan` and
//! `profile`.

mod fields;
mod heldout;
mod model;
mod states;
mod tensors;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::engine::{EngineError, ModelSpec};
use fields::Fields;
use model::model;

pub(crate) use tensors::half;

pub use fields::Problems;
pub use heldout::{Heldout, argmax, measure_accuracy};

/// What a name must be.
const NAME: &str = "1 to 64 of a-z, 0-9, `-`, `_` and `.` are needed, a letter or digit first";
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
        let load = |heldout: &HeldoutToml| Heldout::load(folder, &heldout.images, heldout);
        self.heldout.as_ref().map(load).transpose()
    }

    /// The same for each class of requests that there are images of, by its name.
    ///
    /// # Errors
    /// As [`Manifest::heldout`].
    pub fn heldout_by_class(&self) -> Result<Vec<(&str, Heldout)>, ManifestError> {
        let Some(heldout) = &self.heldout else { return Ok(Vec::new()) };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let all = heldout.classes.iter();
        all.map(|(name, images)| Ok((&**name, Heldout::load(folder, images, heldout)?))).collect()
    }

    /// Checks the text of the manifest at `path`.
    ///
    /// # Errors
    /// As [`Manifest::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ManifestError> {
        let document = DeTable::parse(text)
            .map_err(|source| ManifestError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        let mut problems = Problems::new(text);
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut fields = Fields::new("manifest", 0, document.get_ref());
        let heldout = fields.optional("heldout");
        let heldout = heldout.and_then(|value| HeldoutToml::read(value, &mut problems));
        let listed = fields.optional("model");
        let listed: Vec<_> = listed.into_iter().flat_map(each).collect();
        fields.finish(&mut problems);
        if listed.is_empty() || listed.len() > MAX_MODELS {
            let found = listed.len();
            problems.add(0, format!("[[model]]: {found} models are listed, the limits are 1..={MAX_MODELS}"));
        }
        let mut names = BTreeSet::new();
        let mut models = Vec::with_capacity(listed.len());
        for value in listed {
            let Some(spec) = Fields::of("[[model]]", value, &mut problems)
                .and_then(|fields| model(fields, folder, &mut problems))
            else {
                continue;
            };
            if !names.insert(spec.name.clone()) {
                problems.add(value.span().start, format!("model `{}` is listed twice", spec.name));
            }
            models.push(spec);
        }
        let problems = problems.into_list();
        if problems.is_empty() {
            Ok(Self { path: path.to_owned(), models, heldout })
        } else {
            Err(ManifestError::Wrong { path: path.to_owned(), problems })
        }
    }
}

/// Why a manifest, or what it names, is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    /// All that is wrong, each with its line.
    #[error("{}", lines(path, problems))]
    Wrong { path: PathBuf, problems: Vec<(usize, String)> },
    #[error("{}: no model is named `{name}`; there are: {available}", path.display())]
    Unknown { path: PathBuf, name: String, available: String },
    #[error("{}: not the IDX file expected: {what} is {found}, {expected} is needed", path.display())]
    Idx { path: PathBuf, what: &'static str, expected: usize, found: usize },
    #[error("model {model}: its {side} holds {found} f32, the held-out data needs {expected}")]
    Fit { model: String, side: crate::engine::Side, expected: usize, found: usize },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A line for each problem of a file, which says where it is.
pub fn lines(path: &Path, problems: &[(usize, String)]) -> String {
    let line = |(line, text): &(usize, String)| format!("{}:{line}: {text}", path.display());
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[derive(Debug, Clone, PartialEq)]
struct HeldoutToml {
    images: Named,
    labels: Named,
    count: usize,
    /// The images once more, as requests of each class bring them: with the same labels.
    classes: Vec<(String, Named)>,
}

/// A file in the manifest's folder.
#[derive(Debug, Clone, PartialEq)]
struct Named {
    file: PathBuf,
    sha256: String,
}

impl HeldoutToml {
    fn read(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<Self> {
        let mut fields = Fields::of("heldout", value, problems)?;
        let images = Named::read(&mut fields, ["images", "images_sha256"], problems);
        let labels = Named::read(&mut fields, ["labels", "labels_sha256"], problems);
        fields.required("count", problems);
        let count = fields.number("count", problems);
        // For people.
        fields.text("origin", problems);
        fields.text("licence", problems);
        let mut classes = Vec::new();
        for value in fields.optional("class").into_iter().flat_map(each) {
            if let Some((name, images, at)) = Self::class(value, problems) {
                if classes.iter().any(|(other, _)| *other == name) {
                    problems.add(at, format!("heldout.class `{name}` is listed twice"));
                }
                classes.push((name, images));
            }
        }
        fields.finish(problems);
        if let Some((0, at)) = count {
            problems.refuse(at, "heldout.count", 0, "at least 1 is needed");
        }
        let count = usize::try_from(count?.0).ok()?;
        Some(Self { images: images?, labels: labels?, count, classes })
    }

    /// A class's name and images, and where it stands.
    fn class(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<(String, Named, usize)> {
        let mut fields = Fields::of("heldout.class", value, problems)?;
        let name = fields.text("name", problems);
        let images = Named::read(&mut fields, ["images", "images_sha256"], problems);
        fields.finish(problems);
        let (name, at) = name?;
        if !is_name(name) {
            problems.refuse(at, "heldout.class.name", name, NAME);
            return None;
        }
        Some((name.to_owned(), images?, at))
    }
}

impl Named {
    fn read(
        fields: &mut Fields<'_, '_>,
        [file, hash]: [&'static str; 2],
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let (file, sha256) = (path(fields, file, problems), sha256(fields, hash, problems));
        Some(Self { file: file?, sha256: sha256? })
    }
}

/// What is listed, or the only one.
fn each<'t, 'd>(value: &'t Spanned<DeValue<'d>>) -> Vec<&'t Spanned<DeValue<'d>>> {
    match value.get_ref() {
        DeValue::Array(all) => all.iter().collect(),
        _ => vec![value],
    }
}

/// Which version of the model called `name` this one is, by its whole name.
fn version(whole: &str, name: &str) -> Option<u32> {
    whole.strip_prefix(name)?.strip_prefix('@')?.parse().ok()
}

/// A path within the manifest's folder.
fn path(fields: &mut Fields<'_, '_>, field: &'static str, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let (text, at) = fields.text(field, problems)?;
    let path = Path::new(text);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && path.file_name().is_some() {
        return Some(path.to_owned());
    }
    problems.refuse(at, &place(fields, field), text, "a relative path without `..` is needed");
    None
}

fn sha256(fields: &mut Fields<'_, '_>, field: &'static str, problems: &mut Problems<'_>) -> Option<String> {
    let (text, at) = fields.text(field, problems)?;
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digits && text.len() == 64 {
        return Some(text.to_owned());
    }
    problems.refuse(at, &place(fields, field), text, "64 lower-case hexadecimal digits are needed");
    None
}

fn place(fields: &Fields<'_, '_>, field: &str) -> String {
    let separator = if fields.name.contains(' ') { ": " } else { "." };
    format!("{}{separator}{field}", fields.name)
}

fn is_name(name: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(first)
        && name.bytes().all(|byte| first(byte) || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests;
