//! What `weir import` writes: an entry of a manifest, and a configuration to begin with.

use std::fmt::Write as _;
use std::path::Path;

use weir_client::wire::{DEFAULT_MAX_FRAME, RESULT_HEAD_LEN};
use weir_engine::inspect::{Dimension, OnnxTensor};
use weir_engine::{BatchAxis, Constant, EngineKind, TensorSpec, packed_len};
use weir_oip::text::{is_printable, printable};
use weir_plan::config::MAX_SERVICES;

use super::dimensions::{Part, Size};
use super::draft::Draft;

/// The entry of a model whose file lies at `file` from the manifest's folder.
pub(super) fn entry(draft: &Draft, file: &Path) -> String {
    let spec = &draft.spec;
    let mut text = format!(
        "[[model]]\nname = {}\nfile = {}\nsha256 = \"{}\"\n",
        quoted(&spec.name),
        quoted(&file.display().to_string()),
        spec.sha256
    );
    if !spec.external.is_empty() {
        let files = spec.external.iter().map(|file| {
            format!("    {{ file = {}, sha256 = \"{}\" }},\n", quoted(&file.location), file.sha256)
        });
        let _ = write!(text, "external = [\n{}]\n", files.collect::<String>());
    }
    if let Some(why) = &draft.why_singly {
        text += &format!("# One request at a time: {}.\n", printable(why));
    }
    text += &dimensions(draft);
    let inputs = draft.file.inputs.iter().zip(&draft.shapes).map(|(input, parts)| {
        let constant = spec.constants.iter().find(|constant| constant.tensor.name == input.name);
        match (spec.inputs.iter().find(|tensor| tensor.name == input.name), constant) {
            (Some(tensor), _) => tensor_text(tensor, &input_shape(draft, tensor, parts), None, None),
            (None, Some(constant)) => {
                let shape = input_shape(draft, &constant.tensor, parts);
                tensor_text(&constant.tensor, &shape, Some((draft, constant)), None)
            }
            (None, None) => String::new(),
        }
    });
    text += &side("input", inputs.collect());
    let batch = draft.dimensions.iter().find(|(_, size, _)| *size == Size::Batch);
    let outputs = spec.outputs.iter().zip(&draft.file.outputs).map(|(tensor, output)| {
        let mut shape = output_shape(&draft.dimensions, tensor, output);
        if let (BatchAxis::At(place), Some((name, ..))) = (tensor.batch, batch) {
            shape.insert(place, quoted(name));
        }
        let state = draft.states.iter().find(|(_, output)| *output == tensor.name);
        tensor_text(tensor, &shape, None, state.map(|(input, _)| input))
    });
    if !draft.states.is_empty() {
        text += "# By their names, what has a `state` is that input of the stream's next request. Where requests bring the input\n\
                 # themselves, take `state` out.\n";
    }
    text += &side("output", outputs.collect());
    text + "# accuracy = 0.9  # the share of right answers, if you know it: variants of one service are chosen by it\n"
}

/// Bytes that a request over HTTP may say of its tensors before them.
const HEAD: usize = 4096;

/// A configuration that serves these models, of a manifest in its own folder, without root.
pub(super) fn configuration(drafts: &[Draft], manifest: &str, onnxruntime: Option<&Path>) -> String {
    let mut text = format!(
        "# Written by `weir import`; every field is in docs/configuration.md. Paths are relative to this file.\n\
         [daemon]\n\
         socket = \"weir.sock\"\n\
         models = {}\n\
         profile = \"weir.profile.json\"\n\
         bus = \"off\"                # D-Bus: nobody is told there\n\
         realtime = false           # real-time priority needs a privilege; see docs/operations.md\n",
        quoted(manifest)
    );
    if let Some(path) = onnxruntime {
        let _ = writeln!(text, "onnxruntime = {}", quoted(&path.display().to_string()));
    }
    let largest = |bytes: fn(&Draft) -> usize| drafts.iter().map(bytes).max().unwrap_or(0);
    let request = largest(|draft| packed_len(&draft.spec.inputs));
    let answer = RESULT_HEAD_LEN + largest(|draft| packed_len(&draft.spec.outputs));
    let frame = request.max(answer) + HEAD;
    if frame > DEFAULT_MAX_FRAME as usize {
        let _ = writeln!(
            text,
            "max-frame = {frame}        # a request or an answer is as large, also over HTTP; larger ones go through shared memory"
        );
    }
    if answer > 1 << 20 {
        let _ = writeln!(
            text,
            "max-pending = {}      # for a client that reads slowly: four answers",
            4 * answer
        );
    }
    let served = drafts.len().min(MAX_SERVICES);
    for draft in &drafts[..served] {
        text += "\n";
        text += &service(draft);
    }
    if served < drafts.len() {
        let left_out: Vec<_> = drafts[served..].iter().map(|draft| draft.spec.name.as_str()).collect();
        let left_out = left_out.join(", ");
        let _ = write!(text, "\n# One daemon has {MAX_SERVICES} services at most. Left out: {left_out}.\n");
    }
    text
}

/// A service of one model.
pub(super) fn service(draft: &Draft) -> String {
    let name = quoted(&draft.spec.name);
    let engine = match draft.engine {
        EngineKind::Tract => String::new(),
        engine => format!("engine = \"{engine}\"\n"),
    };
    let singly = match (draft.singly, draft.states.is_empty()) {
        (_, false) => {
            "max-batch = 1              # each request of a stream needs what the one before has left\n"
        }
        (true, true) => "max-batch = 1              # the model takes one request at a time\n",
        (false, true) => "",
    };
    format!(
        "[[service]]\n\
         name = {name}\n\
         model = {name}\n\
         {engine}{singly}\
         deadline = \"1s\"            # from a request's arrival to its answer: say what you need\n\
         guard = \"100ms\"            # of which so much is left for dispatch that comes late\n\
         constraints = [{{ any-miss = {{ m = 1, k = 5 }} }}]  # what may be missed: one request in any five\n"
    )
}

fn dimensions(draft: &Draft) -> String {
    if draft.dimensions.is_empty() {
        return String::new();
    }
    let all = draft.dimensions.iter().map(|(name, size, _)| match size {
        Size::Batch => format!("{} = \"batch\"", key(name)),
        Size::Fixed(size) => format!("{} = {size}", key(name)),
    });
    let suggested = draft.dimensions.iter().filter(|(_, _, given)| !given).map(|(name, ..)| name.as_str());
    let suggested: Vec<_> = suggested.collect();
    let remark = match suggested.is_empty() {
        true => String::new(),
        false => format!(
            "# The file leaves open, and these run: change what you want otherwise ({}).\n",
            printable(&suggested.join(", "))
        ),
    };
    format!("{remark}dimensions = {{ {} }}\n", all.collect::<Vec<_>>().join(", "))
}

/// An input's shape by the names of its open dimensions; those fixed in front are the batch's where nothing is open.
fn input_shape(draft: &Draft, tensor: &TensorSpec, parts: &[Part]) -> Vec<String> {
    if tensor.batch == BatchAxis::Front {
        return tensor.shape.iter().map(usize::to_string).collect();
    }
    let part = |part: &Part| match part {
        Part::Fixed(size) => size.to_string(),
        Part::Open(at) => quoted(&draft.dimensions[*at].0),
    };
    parts.iter().map(part).collect()
}

/// An output's shape without the batch: by the names that its file has for it, where these are dimensions of the inputs and as long.
fn output_shape(
    dimensions: &[(String, Size, bool)],
    tensor: &TensorSpec,
    output: &OnnxTensor,
) -> Vec<String> {
    let mut named = output.shape.clone().unwrap_or_default();
    if let Some(place) = tensor.batch.place().filter(|&place| place < named.len()) {
        named.remove(place);
    }
    // Exporters may err.
    if named.len() != tensor.shape.len() {
        named.clear();
    }
    let part = |(place, &size): (usize, &usize)| match named.get(place) {
        Some(Dimension::Dynamic(Some(name)))
            if dimensions.iter().any(|(known, is, _)| known == name && *is == Size::Fixed(size)) =>
        {
            quoted(name)
        }
        _ => size.to_string(),
    };
    tensor.shape.iter().enumerate().map(part).collect()
}

fn tensor_text(
    tensor: &TensorSpec,
    shape: &[String],
    constant: Option<(&Draft, &Constant)>,
    state: Option<&String>,
) -> String {
    let (name, shape) = (quoted(&tensor.name), shape.join(", "));
    let rest = match (constant, tensor.batch) {
        (Some((draft, constant)), _) => {
            let value = draft.values.get(&constant.tensor.name).map_or("0", String::as_str);
            format!(", value = {value}")
        }
        (None, BatchAxis::Nowhere) => ", batch = false".to_owned(),
        (None, _) => String::new(),
    };
    let state = state.map(|input| format!(", state = {}", quoted(input))).unwrap_or_default();
    format!("{{ name = {name}, type = \"{}\", shape = [{shape}]{rest}{state} }}", tensor.data_type)
}

fn side(name: &str, tensors: Vec<String>) -> String {
    match tensors.as_slice() {
        [tensor] => format!("{name} = {tensor}\n"),
        several => {
            let lines: String = several.iter().map(|tensor| format!("    {tensor},\n")).collect();
            format!("{name} = [\n{lines}]\n")
        }
    }
}

/// A TOML string on one line, which a terminal shows as it is.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if is_printable(c) => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted + "\""
}

/// A TOML key, bare where it can be.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_the_names_of_the_dimensions_that_it_shares_with_inputs() {
        let named = |names: &[&str]| {
            let dimension = |name: &&str| match name.parse() {
                Ok(size) => Dimension::Fixed(size),
                Err(_) => Dimension::Dynamic(Some((*name).to_owned())),
            };
            let shape = Some(names.iter().map(dimension).collect());
            OnnxTensor { name: "mask".to_owned(), type_name: "f32".to_owned(), shape }
        };
        let sizes = [("n", Size::Batch), ("height", Size::Fixed(64)), ("width", Size::Fixed(48))];
        let sizes: Vec<_> = sizes.map(|(name, size)| (name.to_owned(), size, false)).into();
        let tensor = TensorSpec {
            batch: BatchAxis::At(0),
            ..TensorSpec::new("mask", weir_engine::DataType::F32, &[4, 64, 48])
        };
        let shape = |names: &[&str]| output_shape(&sizes, &tensor, &named(names)).join(", ");
        assert_eq!(shape(&["n", "4", "height", "width"]), "4, \"height\", \"width\"");
        // Names of something else, and of other sizes than these are.
        assert_eq!(shape(&["n", "4", "h", "height"]), "4, 64, 48");
        assert_eq!(shape(&["n", "height"]), "4, 64, 48");
    }

    #[test]
    fn any_name_is_one_line_of_toml() {
        for name in ["x", "in put/ä:0", "a\"b\\c", "x\n\u{1b}[31m", "\0\u{7f}\u{202e}", "'", ""] {
            let line = format!("{} = {}", key(name), quoted(name));
            assert!(line.chars().all(is_printable), "{line:?}");
            let table: toml::Table = line.parse().unwrap();
            assert_eq!(table.get(name).and_then(toml::Value::as_str), Some(name), "{line}");
        }
    }
}
