//! `weir import MODEL.onnx...`: entries of a manifest from the models' own files, and a configuration to begin with.

mod dimensions;
mod draft;
mod entry;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use weir::errors::whole;
use weir_engine::inspect::inspect;
use weir_engine::manifest::{Manifest, ManifestError};
use weir_engine::{Backend, BatchAxis, EngineKind, prepare};
use weir_oip::text::printable;
use weir_os::notice;
use weir_os::pipe::say;
use weir_plan::config::MAX_SERVICES;

use super::inspect::shape;
use super::word;
use dimensions::{Fixes, Size};
use draft::Draft;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// ONNX files, or folders that hold some
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// What the model is to be called, if it is one; by its file otherwise
    #[arg(long)]
    name: Option<String>,
    /// Sizes of dynamic dimensions, and values of inputs that are the same in all requests, such as
    /// batch=N,height=640: N is the batch
    #[arg(long, value_name = "NAME=SIZE", value_delimiter = ',')]
    fix: Vec<String>,
    /// The manifest, in a folder that the models are in or below [default: manifest.toml beside the first]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The library of ONNX Runtime, if it is where nobody looks for it
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let files = files(&args.models)?;
    if args.name.is_some() && files.len() > 1 {
        bail!("--name is for one model, and there are {}", files.len());
    }
    let fixes = fixes(&args.fix)?;
    let out = args.out.clone().unwrap_or_else(|| files[0].with_file_name("manifest.toml"));
    ensure!(
        !out.is_dir(),
        "--out = {}: is a folder, must be a file of one, as {}",
        out.display(),
        out.join("manifest.toml").display()
    );
    let folder = folder_of(&out);
    let old = match std::fs::read_to_string(&out) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| out.display().to_string()),
    };
    let known = old.as_ref().map(|_| Manifest::load(&out)).transpose()?;
    let listed = |path: &Path| {
        let models = known.iter().flat_map(Manifest::models);
        models.into_iter().find(|model| same_file(&model.path, path)).map(|model| model.name.clone())
    };
    let mut taken: BTreeSet<String> =
        known.iter().flat_map(Manifest::models).map(|model| model.name.clone()).collect();
    let engines = engines(args.onnxruntime.as_deref());
    let (mut drafts, mut text, mut refused) = (Vec::new(), String::new(), 0);
    for path in &files {
        if let Some(name) = listed(path) {
            say!("{}: is {name} in {} already, and left as it is", path.display(), out.display());
            continue;
        }
        let relative = within(&folder, path).with_context(|| {
            let (path, folder) = (path.display(), folder.display());
            format!("{path}: a manifest names files of its own folder, {folder}, and below: copy it there, or say --out")
        })?;
        let name = match &args.name {
            Some(name) if taken.contains(name) => bail!("--name {name}: {} has such a model", out.display()),
            Some(name) => name.clone(),
            None => free_name(path, &taken),
        };
        let file = inspect(path, Backend::MAX_MODEL).with_context(|| path.display().to_string());
        let drafted = file.and_then(|file| Draft::new(file, &name, &fixes, &engines));
        let (draft, entry) = match drafted.and_then(|draft| with_entry(draft, &relative)) {
            Ok(both) => both,
            Err(error) if files.len() == 1 => return Err(error),
            // One of many that cannot be imported keeps none of the others out.
            Err(error) => {
                notice::say(printable(&whole(&error)));
                refused += 1;
                continue;
            }
        };
        tell(&draft);
        taken.insert(name);
        text += &format!("\n{entry}");
        drafts.push(draft);
    }
    let code = ExitCode::from(if refused > 0 { 2 } else { 0 });
    if refused > 0 {
        say!("{refused} of {} files cannot be imported", files.len());
    } else if !drafts.is_empty() {
        check_fixes(&fixes, &drafts)?;
    }
    if drafts.is_empty() {
        return Ok(code);
    }
    let head = "# The models that a configuration can name; see docs/manifest.md.\n";
    let manifest = format!("{}{text}", old.as_deref().unwrap_or(head));
    Manifest::parse(&out, &manifest).context("what was found makes no manifest")?;
    append(&out, if old.is_some() { &text } else { &manifest })?;
    let done = if old.is_some() { "added to" } else { "written to" };
    say!("{} model(s) {done} {}", drafts.len(), out.display());
    configure(&drafts, &out, &folder, args.onnxruntime.as_deref())?;
    Ok(code)
}

/// The entry of a model whose file lies there from the manifest's folder.
///
/// # Errors
/// What a manifest cannot say of a model, such as more tensors than it may list.
fn with_entry(draft: Draft, relative: &Path) -> Result<(Draft, String)> {
    let entry = entry::entry(&draft, relative);
    match Manifest::parse(Path::new("manifest.toml"), &entry) {
        Ok(_) => Ok((draft, entry)),
        Err(ManifestError::Wrong { problems, .. }) => {
            let problems: Vec<_> = problems.into_iter().map(|(_, text)| text).collect();
            bail!("{}: {}", draft.file.path.display(), problems.join("; "))
        }
        Err(error) => Err(error).with_context(|| draft.file.path.display().to_string()),
    }
}

/// Writes a configuration beside the manifest where there is none, and says how to go on.
fn configure(drafts: &[Draft], manifest: &Path, folder: &Path, onnxruntime: Option<&Path>) -> Result<()> {
    let path = folder.join("weir.toml");
    if path.exists() {
        say!("{} is left as it is; these would serve what is new:\n", path.display());
        drafts.iter().for_each(|draft| say!("{}", entry::service(draft)));
        say!("next: weir check {}", word(&path));
        return Ok(());
    }
    let name = manifest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let library = onnxruntime.map(std::path::absolute).transpose()?;
    append(&path, &entry::configuration(drafts, &name, library.as_deref()))?;
    say!("a configuration to begin with is in {}: say your deadline and constraints there", path.display());
    if let Some(left_out) = drafts.get(MAX_SERVICES..).filter(|rest| !rest.is_empty()) {
        let names: Vec<_> = left_out.iter().map(|draft| draft.spec.name.as_str()).collect();
        say!("one daemon has {MAX_SERVICES} services at most; left out there: {}", names.join(", "));
    }
    let path = word(&path);
    say!("next: weir check {path} && weir profile {path} && weir plan {path}");
    Ok(())
}

/// The files, and those of the folders.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
        found.sort();
        if found.is_empty() {
            bail!("{}: there is no .onnx file in this folder", path.display());
        }
        files.extend(found);
    }
    Ok(files)
}

fn fixes(given: &[String]) -> Result<Fixes> {
    let mut fixes = Fixes::new();
    for fix in given {
        // Names may have a `=` in them, sizes have none.
        let (name, size) =
            fix.rsplit_once('=').with_context(|| format!("--fix {fix}: NAME=SIZE is needed"))?;
        if fixes.insert(name.to_owned(), size.to_owned()).is_some() {
            bail!("--fix {name}: is said twice");
        }
    }
    Ok(fixes)
}

/// Refuses what fits none of the models.
fn check_fixes(fixes: &Fixes, drafts: &[Draft]) -> Result<()> {
    let inputs: BTreeSet<_> =
        drafts.iter().flat_map(|draft| &draft.file.inputs).map(|input| &input.name).collect();
    let open: BTreeSet<_> =
        drafts.iter().flat_map(|draft| &draft.dimensions).map(|(name, ..)| name).collect();
    let Some(name) = fixes.keys().find(|name| !inputs.contains(name) && !open.contains(name)) else {
        return Ok(());
    };
    let all: Vec<_> = open.iter().map(|name| format!("`{name}`")).collect();
    let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    bail!("--fix {name}: there is no such input or dynamic dimension; the latter are {all}")
}

/// tract, and ONNX Runtime where it is.
fn engines(onnxruntime: Option<&Path>) -> Vec<Backend> {
    let ort =
        Backend { kind: EngineKind::OrtCpu, library: onnxruntime.map(Path::to_owned), ..Backend::TRACT };
    let mut engines = vec![Backend::TRACT];
    match prepare(&ort) {
        Ok(()) => engines.push(ort),
        Err(error) if onnxruntime.is_some() => say!("models are tried on tract alone: {error}"),
        Err(_) => say!("models are tried on tract alone; with --onnxruntime FILE also on ONNX Runtime"),
    }
    engines
}

fn tell(draft: &Draft) {
    let (spec, file) = (&draft.spec, &draft.file);
    say!("{}: {} on {}", file.path.display(), spec.name, draft.engine);
    for input in &file.inputs {
        say!("  input {}: {} {}", printable(&input.name), input.type_name, shape(input));
    }
    for output in &spec.outputs {
        say!("  output {}: {} {:?}", printable(&output.name), output.data_type, output.file_shape(1));
    }
    for (name, size, given) in &draft.dimensions {
        let size = match size {
            Size::Batch => "the batch".to_owned(),
            Size::Fixed(size) => size.to_string(),
        };
        let source = if *given { "as you say" } else { "a suggestion that runs; --fix says otherwise" };
        say!("  dynamic dimension `{}` is {size}: {source}", printable(name));
    }
    for (input, output) in &draft.states {
        let (input, output) = (printable(input), printable(output));
        say!(
            "  `{output}` is `{input}` of the stream's next request: a suggestion by their names; `state` says so in the manifest"
        );
    }
    if draft.singly {
        let why = draft.why_singly.iter().map(|why| format!(": {}", printable(why)));
        say!("  it takes one request at a time{}", why.collect::<String>());
    }
    for scalar in
        spec.inputs.iter().filter(|input| input.batch == BatchAxis::Nowhere && input.elements() == 1)
    {
        let name = printable(&scalar.name);
        say!("  `{name}` is one number: if it is the same in all requests, say it with --fix {name}=…");
    }
    draft.remarks.iter().for_each(|remark| say!("  {}", printable(remark)));
}

/// A name after the file's, as manifests have them, that is not taken.
fn free_name(path: &Path, taken: &BTreeSet<String>) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    let name = if name.is_empty() { "model" } else { &name[..name.len().min(56)] };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The way from a folder down to a file.
fn within(folder: &Path, file: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    // The file itself may be a link.
    let own = folder_of(file).canonicalize().ok()?.join(file.file_name()?);
    own.strip_prefix(folder).ok().map(Path::to_owned)
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().zip(other.canonicalize().ok()).is_some_and(|(one, other)| one == other)
}

/// Adds to a file, or makes it.
fn append(path: &Path, text: &str) -> Result<()> {
    let place = || path.display().to_string();
    let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(place)?;
    file.write_all(text.as_bytes()).with_context(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_after_their_files() {
        let mut taken = BTreeSet::new();
        for (file, name) in [
            ("a/Silero VAD.onnx", "silero-vad"),
            ("silero vad.onnx", "silero-vad-2"),
            ("_.onnx", "model"),
            ("320n.onnx", "320n"),
        ] {
            assert_eq!(free_name(Path::new(file), &taken), name);
            taken.insert(name.to_owned());
        }
    }

    #[test]
    fn sizes_are_said_by_name() {
        let said = |given: &[&str]| fixes(&given.iter().map(|&fix| fix.to_owned()).collect::<Vec<_>>());
        assert_eq!(said(&["batch=N", "a=b=3"]).unwrap()["a=b"], "3");
        assert!(said(&["batch"]).unwrap_err().to_string().contains("NAME=SIZE"));
        assert!(said(&["h=1", "h=2"]).unwrap_err().to_string().contains("twice"));
    }
}
