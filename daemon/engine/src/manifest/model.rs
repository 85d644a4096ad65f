//! One model of a manifest: its files, its tensors, and what is known of its answers.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::fields::{self, Fields, Problems};
use super::tensors::{self, Dimensions, Tensors};
use super::{NAME, is_name, path, place, sha256, states};
use crate::engine::{ExternalFile, ModelSpec, sha256_hex};

/// One model; `None` if anything is wrong with it.
pub(super) fn model(
    mut fields: Fields<'_, '_>,
    folder: &Path,
    problems: &mut Problems<'_>,
) -> Option<ModelSpec> {
    let at = fields.at;
    let name = fields.text("name", problems);
    // Tells several of one name apart: the whole name is `name@version`.
    let version = fields.number("version", problems);
    let name = name.and_then(|(name, at)| {
        if !is_name(name) {
            problems.refuse(at, "model.name", name, NAME);
            return None;
        }
        match version {
            Some((version, at)) if u32::try_from(version).is_err() => {
                problems.refuse(at, &format!("model {name}: version"), version, "at most 4294967295");
                None
            }
            Some((version, _)) => Some(format!("{name}@{version}")),
            None => Some(name.to_owned()),
        }
    });
    if let Some(name) = &name {
        fields.name = format!("model {name}");
    }
    let title = fields.name.clone();
    // Without any of these it is on servers alone, and only described here.
    let described = ["file", "sha256", "external"].map(|field| fields.optional(field).is_none()) == [true; 3];
    let (file, hash) = match described {
        true => (Some(PathBuf::new()), Some(String::new())),
        false => (path(&mut fields, "file", problems), sha256(&mut fields, "sha256", problems)),
    };
    let external = fields.optional("external");
    let external = external.map_or(Some(Vec::new()), |value| {
        external_files(&title, value, file.as_deref().map(|file| folder.join(file)), problems)
    });
    let mut dimensions = Dimensions::read(&title, fields.optional("dimensions"), problems);
    let inputs = side(&mut fields, "input", &mut dimensions, problems);
    let outputs = side(&mut fields, "output", &mut dimensions, problems);
    dimensions.finish(&title, at, problems);
    if let Some((outputs, at)) = &outputs
        && !outputs.constants.is_empty()
    {
        problems.add(*at, format!("{title}: output: only inputs can have a value"));
    }
    let accuracy = match fields.optional("accuracy") {
        None => Some(f64::NAN),
        Some(value) => share(&fields, "accuracy", value, problems),
    };
    let by_class = fields.optional("accuracy_by_class");
    let by_class = by_class.map_or(Some(Vec::new()), |value| {
        let classes = Fields::of(&format!("{title}: accuracy_by_class"), value, problems)?;
        let class =
            |(name, value): (&str, _)| Some((name.to_owned(), share(&classes, name, value, problems)?));
        classes.all().map(class).collect()
    });
    // For people.
    fields.number("parameters", problems);
    fields.number("macs", problems);
    fields.finish(problems);
    let ((mut inputs, inputs_at), (mut outputs, outputs_at)) = (inputs?, outputs?);
    let states = states::pair(&title, (&mut inputs, inputs_at), (&mut outputs, outputs_at), problems)?;
    let Tensors { tensors: inputs, constants, .. } = inputs;
    let (outputs, path) = (outputs.tensors, if described { file? } else { folder.join(file?) });
    let (mut sha256, external, accuracy, accuracy_by_class) = (hash?, external?, accuracy?, by_class?);
    if described {
        sha256 = sha256_hex(format!("{:?}", (&inputs, &outputs, &constants)).as_bytes());
    }
    let name = name?;
    Some(ModelSpec {
        name,
        path,
        sha256,
        inputs,
        outputs,
        states,
        constants,
        external,
        accuracy,
        accuracy_by_class,
    })
}

/// A share of right answers.
fn share(
    fields: &Fields<'_, '_>,
    field: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<f64> {
    let Some(found) = fields::real(value.get_ref()) else {
        fields.wrong_type(field, value, "a number", problems);
        return None;
    };
    if (0.0..=1.0).contains(&found) {
        return Some(found);
    }
    let (at, field) = (value.span().start, place(fields, field));
    problems.refuse(at, &field, found, "the limits are 0..=1; leave it out if it is unknown");
    None
}

/// The tensors of a side, those with a value apart, and where they stand.
fn side<'a>(
    fields: &mut Fields<'a, '_>,
    name: &'static str,
    dimensions: &mut Dimensions<'a>,
    problems: &mut Problems<'_>,
) -> Option<(Tensors<'a>, usize)> {
    let value = fields.required(name, problems)?;
    let field = format!("{}: {name}", fields.name);
    Some((tensors::read(&field, value, dimensions, problems), value.span().start))
}

/// The files of weights beside a model's own.
fn external_files(
    title: &str,
    value: &Spanned<DeValue<'_>>,
    model: Option<PathBuf>,
    problems: &mut Problems<'_>,
) -> Option<Vec<ExternalFile>> {
    let field = format!("{title}: external");
    let Some(list) = value.get_ref().as_array() else {
        let text =
            format!("{field}: a list of files is needed, such as [{{ file = \"…\", sha256 = \"…\" }}]");
        problems.add(value.span().start, text);
        return None;
    };
    let mut files = Some(Vec::new());
    for value in list.iter() {
        let file = Fields::of(&field, value, problems).and_then(|mut fields| {
            let location = path(&mut fields, "file", problems);
            let hash = sha256(&mut fields, "sha256", problems);
            fields.finish(problems);
            let folder = model.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
            let location = location?;
            let (path, location) = (folder.join(&location), location.to_string_lossy().into_owned());
            Some(ExternalFile { location, path, sha256: hash? })
        });
        files = files.zip(file).map(|(mut files, file)| {
            files.push(file);
            files
        });
    }
    files
}
