//! `weir models MANIFEST`: the accuracy of each model on the held-out data, and by class of it, through the engine that serves it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Map, json};

use weir_engine::manifest::{Heldout, Manifest, measure_accuracy};
use weir_engine::{Backend, Engine, EngineKind, load};
use weir_os::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The manifest
    #[arg(default_value = "models/manifest.toml")]
    manifest: PathBuf,
    /// The engine; one of ONNX Runtime's finds its library by ORT_DYLIB_PATH, or where docs/engines.md says
    #[arg(long, default_value_t = EngineKind::Tract)]
    engine: EngineKind,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let manifest = Manifest::load(&args.manifest)?;
    let heldout = manifest.heldout()?.context("the manifest names no held-out data")?;
    let by_class = manifest.heldout_by_class()?;
    let backend = Backend { kind: args.engine, ..Backend::TRACT };
    let mut all = Vec::new();
    for spec in manifest.models() {
        if let Err(misfit) = heldout.check(spec) {
            if args.json {
                all.push(json!({ "name": spec.name, "accuracy": null, "manifest": spec.accuracy }));
            } else {
                say!("{:<16} not measured: {misfit}", spec.name);
            }
            continue;
        }
        let mut runner = load(Engine::Real { backend: &backend, modes: None }, spec, 1)?;
        let accuracy = measure_accuracy(runner.as_mut(), spec, &heldout)?;
        let measured = |(class, images): &(&str, Heldout)| {
            Ok((class.to_string(), measure_accuracy(runner.as_mut(), spec, images)?))
        };
        let classes = by_class.iter().map(measured).collect::<Result<Vec<_>>>()?;
        if args.json {
            let told = |class: &str| spec.accuracy_of(class);
            let class = |(name, found): &(String, f64)| {
                (name.clone(), json!({ "accuracy": found, "manifest": told(name) }))
            };
            all.push(json!({
                "name": spec.name,
                "accuracy": accuracy,
                "manifest": spec.accuracy,
                "classes": classes.iter().map(class).collect::<Map<_, _>>(),
            }));
            continue;
        }
        let beside = agrees(accuracy, spec.accuracy);
        say!("{:<16} accuracy {accuracy:.4} on {} images{beside}", spec.name, heldout.count());
        for (class, found) in classes {
            let beside = agrees(found, spec.accuracy_of(&class).unwrap_or(f64::NAN));
            say!("{:<16}   {class} {found:.4}{beside}", "");
        }
    }
    if args.json {
        say!("{:#}", json!(all));
    }
    Ok(ExitCode::SUCCESS)
}

/// Beside what the manifest tells.
fn agrees(found: f64, told: f64) -> &'static str {
    match (found - told).abs() {
        apart if apart < 5e-5 => "",
        apart if apart.is_nan() => "  the manifest tells none",
        _ => "  differs from the manifest",
    }
}
