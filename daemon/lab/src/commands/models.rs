//! `weir models MANIFEST`: the accuracy of each model on the held-out data, through the engine that serves it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;

use weir_engine::manifest::{Manifest, measure_accuracy};
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
        if args.json {
            all.push(json!({ "name": spec.name, "accuracy": accuracy, "manifest": spec.accuracy }));
        } else {
            let agrees = match (accuracy - spec.accuracy).abs() {
                apart if apart < 5e-5 => "",
                apart if apart.is_nan() => "  the manifest tells none",
                _ => "  differs from the manifest",
            };
            say!("{:<16} accuracy {accuracy:.4} on {} images{agrees}", spec.name, heldout.count());
        }
    }
    if args.json {
        say!("{:#}", json!(all));
    }
    Ok(ExitCode::SUCCESS)
}
