//! `weir inspect MODEL.onnx`: what a model wants and gives, as its file says.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::word;
use weir_engine::Backend;
use weir_engine::inspect::{Dimension, OnnxFile, OnnxTensor, inspect, likely_states};
use weir_oip::text::printable;
use weir_os::pipe::say;

/// Operators that are shown to people.
const SHOWN: usize = 12;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// ONNX files
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut all = Vec::new();
    for path in &args.models {
        let file = inspect(path, Backend::MAX_MODEL)?;
        match args.json {
            true => all.push(object(&file)),
            false => show(&file),
        }
    }
    if args.json {
        say!("{:#}", Value::from(all));
    }
    Ok(ExitCode::SUCCESS)
}

/// A shape as people write it, such as `[batch, 3, ?, 640]`.
pub(super) fn shape(tensor: &OnnxTensor) -> String {
    let Some(shape) = &tensor.shape else { return "of any shape".to_owned() };
    let dimension = |dimension: &Dimension| match dimension {
        Dimension::Fixed(size) => size.to_string(),
        Dimension::Dynamic(name) => name.as_deref().map_or_else(|| "?".to_owned(), printable),
    };
    format!("[{}]", shape.iter().map(dimension).collect::<Vec<_>>().join(", "))
}

fn show(file: &OnnxFile) {
    let opsets = file.opsets.iter().map(|(domain, version)| match domain.as_str() {
        "" | "ai.onnx" => format!("opset {version}"),
        other => format!("{other} {version}"),
    });
    let opsets = printable(&opsets.collect::<Vec<_>>().join(", "));
    let by =
        if file.producer.is_empty() { String::new() } else { format!(", by {}", printable(&file.producer)) };
    say!("{}: {} bytes, {} parameters, {opsets}{by}", file.path.display(), file.bytes, file.parameters);
    say!("  sha256     {}", file.sha256);
    for (side, tensors) in [("input", &file.inputs), ("output", &file.outputs)] {
        for tensor in tensors {
            let served = if tensor.data_type().is_some() || tensor.type_name == "unknown" {
                ""
            } else {
                ", a type that Weir does not serve"
            };
            let name = printable(&tensor.name);
            say!("  {side:<10} {name}: {} {}{served}", tensor.type_name, shape(tensor));
        }
    }
    for (input, output) in likely_states(file) {
        let (input, output) = (printable(&input), printable(&output));
        say!("  state      by their names, {output} may be {input} of the next request of a stream");
    }
    for (weights, bytes) in &file.external {
        say!("  weights    {}: {bytes} bytes, sha256 {}", printable(&weights.location), weights.sha256);
    }
    let mut operators: Vec<_> = file.operators.iter().collect();
    operators.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
    let shown: Vec<_> = operators.iter().take(SHOWN).map(|(name, count)| format!("{name} {count}")).collect();
    let more = operators.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    say!("  operators  {}{more}", printable(&shown.join(", ")));
    let dynamic = file.inputs.iter().flat_map(|input| input.shape.iter().flatten());
    if dynamic.into_iter().any(|dimension| matches!(dimension, Dimension::Dynamic(_))) {
        say!("  dynamic dimensions need a size: weir import {} suggests one for each", word(&file.path));
    }
}

fn object(file: &OnnxFile) -> Value {
    let dimension = |dimension: &Dimension| match dimension {
        Dimension::Fixed(size) => json!(size),
        Dimension::Dynamic(name) => json!(name.as_deref().unwrap_or("?")),
    };
    let tensor = |tensor: &OnnxTensor| {
        let shape = tensor.shape.as_ref().map(|shape| shape.iter().map(dimension).collect::<Vec<_>>());
        json!({
            "name": tensor.name, "type": tensor.type_name, "shape": shape, "served": tensor.data_type().is_some(),
        })
    };
    let tensors = |list: &[OnnxTensor]| list.iter().map(tensor).collect::<Vec<_>>();
    let weights = file.external.iter().map(
        |(weights, bytes)| json!({ "file": weights.location, "sha256": weights.sha256, "bytes": bytes }),
    );
    json!({
        "file": file.path, "sha256": file.sha256, "bytes": file.bytes, "producer": file.producer,
        "opsets": file.opsets.iter().map(|(domain, version)| json!({ "domain": domain, "version": version }))
            .collect::<Vec<_>>(),
        "parameters": file.parameters, "operators": file.operators,
        "inputs": tensors(&file.inputs), "outputs": tensors(&file.outputs),
        "states": likely_states(file).iter().map(|(input, output)| json!({ "input": input, "output": output }))
            .collect::<Vec<_>>(),
        "external": weights.collect::<Vec<_>>(),
    })
}
