//! Manifests as people write them: what they mean, and all that is wrong with them, each with its line.

use super::*;
use crate::engine::BatchAxis;

const DIGITS: &str = r#"
    [[model]]
    name = "digits-xs"
    file = "digits-xs.onnx"
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    input = { name = "image", type = "f32", shape = [1, 28, 28] }
    output = { name = "logits", type = "f32", shape = [10] }
    accuracy = 0.8123
    accuracy_by_class = { night = 0.9 }
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
    assert_eq!(model.accuracy, 0.8123);
    assert_eq!((model.accuracy_of("night"), model.accuracy_of("day")), (Some(0.9), None));
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
        ("0.9", "1.9", "model digits-xs: accuracy_by_class: night: `1.9` is refused, the limits are 0..=1"),
        ("0.9", "\"0.9\"", "model digits-xs: accuracy_by_class: night: a number is needed, not this string"),
        ("{ night = 0.9 }", "0.9", "model digits-xs: accuracy_by_class: a table is needed, not a float"),
        ("\"digits-xs.onnx\"", "\"/etc/x.onnx\"", "file: `/etc/x.onnx` is refused, a relative path"),
        ("\"digits-xs.onnx\"", "\"../x.onnx\"", "file: `../x.onnx` is refused"),
        ("\"digits-xs.onnx\"", "\"\"", "file: `` is refused"),
        ("ba7816", "BA7816", "sha256: `BA7816"),
        ("20015ad", "20015a", "64 lower-case hexadecimal digits are needed"),
        ("\"digits-xs\"", "\"Digits xs\"", "model.name: `Digits xs` is refused"),
        ("[1, 28, 28]", "[1, 0, 28]", "input.shape: `[1, 0, 28]` is refused"),
        ("[1, 28, 28]", "[9000000000, 9000000000]", "input.shape"),
        ("[1, 28, 28]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "input.shape: `9 dimensions` is refused, at most 8"),
        ("\"f32\", shape = [10]", "\"bf16\", shape = [10]", "output.type: `bf16` is refused, only f32, f16"),
        ("macs", "magic", "unknown field `magic`"),
        ("name = \"logits\"", "nom = \"logits\"", "unknown field `nom`"),
        ("file = \"digits-xs.onnx\"", "", "model digits-xs: missing field `file`"),
        ("12345", "-1", "parameters: a whole number of 0 or more is needed"),
    ] {
        assert!(DIGITS.contains(from), "{from}");
        let error = parse(&DIGITS.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_model_without_a_file_is_only_described_and_no_engine_here_loads_it() {
    let text = DIGITS.lines().filter(|line| !line.contains("file =") && !line.contains("sha256 ="));
    let text = text.collect::<Vec<_>>().join("\n");
    let described = parse(&text).unwrap().model("digits-xs").unwrap().clone();
    assert!(described.path.as_os_str().is_empty() && described.sha256.len() == 64);
    let other = parse(&text.replacen("[10]", "[11]", 1)).unwrap().model("digits-xs").unwrap().clone();
    assert_ne!(described.identity(), other.identity());
    let engine = crate::Engine::Real { backend: &crate::Backend::TRACT, modes: None };
    let refused = crate::load(engine, &described, 1).err().unwrap().to_string();
    assert_eq!(
        refused,
        "model digits-xs: the manifest names no file of it, so that engine oip alone can serve it"
    );
}

#[test]
fn all_that_is_wrong_is_told_at_once_each_with_its_line() {
    let wrong = DIGITS
        .replacen("ba7816", "BA7816", 1)
        .replacen("0.8123", "1.5", 1)
        .replacen("[10]", "[0]", 1)
        .replacen("macs", "magic", 1);
    let told = parse(&wrong).unwrap_err().to_string();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    for (line, wanted) in lines.iter().zip([
        "/models/manifest.toml:5: model digits-xs: sha256: `BA7816",
        "/models/manifest.toml:7: model digits-xs: output.shape: `[0]` is refused",
        "/models/manifest.toml:8: model digits-xs: accuracy: `1.5` is refused",
        "/models/manifest.toml:11: model digits-xs: unknown field `magic`",
    ]) {
        assert!(line.starts_with(wanted), "{line}");
    }
}

#[test]
fn what_nobody_needs_may_be_left_out() {
    let optional =
        ["accuracy = 0.8123", "accuracy_by_class = { night = 0.9 }", "parameters = 12345", "macs = 123456"];
    let text = optional.iter().fold(DIGITS.to_owned(), |text, line| text.replacen(line, "", 1));
    assert!(parse(&text).unwrap().models()[0].accuracy.is_nan());
}

#[test]
fn classes_of_held_out_images_are_read_and_refused_by_what_is_wrong() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let class = |name: &str| {
        format!("[[heldout.class]]\nname = \"{name}\"\nimages = \"{name}.idx\"\nimages_sha256 = \"{hash}\"\n")
    };
    let heldout = format!(
        "[heldout]\nimages = \"i\"\nlabels = \"l\"\nimages_sha256 = \"{hash}\"\nlabels_sha256 = \"{hash}\"\n\
         count = 2\norigin = \"o\"\nlicence = \"l\"\n"
    );
    let of = |classes: &str| parse(&format!("{heldout}{classes}{DIGITS}"));
    let read = of(&(class("day") + &class("night"))).unwrap();
    // The files are opened when they are asked for.
    assert!(read.heldout_by_class().unwrap_err().to_string().contains("/models/day.idx"));
    for (classes, message) in [
        (class("day") + &class("day"), "heldout.class `day` is listed twice"),
        (class("Day"), "heldout.class.name: `Day` is refused, 1 to 64 of a-z"),
        (class("day").replace("images_sha256", "hash"), "heldout.class: missing field `images_sha256`"),
        (class("day").replace("day.idx", "../day"), "`../day` is refused, a relative path"),
    ] {
        let told = of(&classes).unwrap_err().to_string();
        assert!(told.contains(message), "{told}");
    }
}

const VOICE: &str = r#"
    [[model]]
    name = "voice"
    file = "voice.onnx"
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    external = [{ file = "voice.data", sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" }]
    dimensions = { N = "batch", sequence = 512 }
    input = [
        { name = "input", type = "f32", shape = ["N", "sequence"] },
        { name = "state", type = "f32", shape = [2, "N", 128] },
        { name = "window", type = "f32", shape = ["sequence"] },
        { name = "sr", type = "i64", shape = [], value = 16000 },
        { name = "flags", type = "bool", shape = [2], value = [true, false] },
        { name = "gain", type = "f32", shape = [2], batch = false },
    ]
    output = { name = "speech", type = "f32", shape = ["N", 1] }
"#;

#[test]
fn dimensions_are_fixed_and_the_batch_stands_anywhere() {
    let manifest = parse(VOICE).unwrap();
    let model = manifest.model("voice").unwrap();
    let told: Vec<_> = model.inputs.iter().map(|t| (t.shape.clone(), t.batch)).collect();
    assert_eq!(
        told,
        [
            (vec![512], BatchAxis::At(0)),
            (vec![2, 128], BatchAxis::At(1)),
            (vec![512], BatchAxis::At(0)),
            (vec![2], BatchAxis::Nowhere)
        ]
    );
    let constants: Vec<_> = model.constants.iter().map(|c| (&*c.tensor.name, c.bytes.clone())).collect();
    assert_eq!(constants, [("sr", 16000i64.to_le_bytes().to_vec()), ("flags", vec![1, 0])]);
    assert_eq!(model.external[0].path, Path::new("/models/voice.data"));
    for (from, to, message) in [
        ("sequence = 512 }", "}", "input.shape: dynamic dimension `sequence` has no size: write dimensions"),
        ("[\"N\", 1]", "[\"how many\", 1]", "has no size: write dimensions = { \"how many\" = … }"),
        ("sequence = 512 }", "sequence = 0 }", "dimensions.sequence: 1 to 2^24, or \"batch\", is needed"),
        ("sequence = 512 }", "sequence = 512, w = 3 }", "dimensions.w: no shape has this name"),
        ("[\"N\", 1]", "[\"N\", \"N\"]", "dynamic dimension `N` is the batch, which a tensor has once"),
        (
            "value = 16000",
            "value = 1.5",
            "input.value: `1.5` is refused, a whole number in -9223372036854775808..=",
        ),
        ("[true, false]", "[true]", "input.value: `1 values` is refused, 2 are needed"),
        ("batch = false", "batch = 1", "input.batch: only `false` can be said"),
        ("[\"N\", 1] }", "[\"N\", 1], value = 0 }", "is the batch, which a tensor has once, or not at all"),
        ("file = \"voice.data\"", "file = \"../voice.data\"", "external: file: `../voice.data` is refused"),
    ] {
        assert!(VOICE.contains(from), "{from}");
        let error = parse(&VOICE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Requests bring the sound alone; the state goes from output to input.
#[test]
fn what_is_state_comes_last_on_both_sides_with_its_initial_value() {
    let text = VOICE.replacen("128] },", "128], initial = 0.5 },", 1).replacen(
        "output = { name = \"speech\", type = \"f32\", shape = [\"N\", 1] }",
        "output = [\n{ name = \"stateN\", type = \"f32\", shape = [2, \"N\", 128], state = \"state\" },\n\
             { name = \"speech\", type = \"f32\", shape = [\"N\", 1] },\n]",
        1,
    );
    let manifest = parse(&text).unwrap();
    let model = &manifest.models()[0];
    let names = |tensors: &[crate::engine::TensorSpec]| -> Vec<String> {
        tensors.iter().map(|tensor| tensor.name.clone()).collect()
    };
    assert_eq!(names(&model.inputs), ["input", "window", "gain", "state"]);
    assert_eq!(names(model.request()), ["input", "window", "gain"]);
    assert_eq!(
        (names(&model.outputs), names(model.answer())),
        (vec!["speech".to_owned(), "stateN".to_owned()], vec!["speech".to_owned()])
    );
    assert_eq!(model.initial_state(), 0.5f32.to_le_bytes().repeat(256));
    for (from, to, message) in [
        ("state = \"state\"", "state = \"stat\"", "output `stateN`: state: no input `stat` is left for it"),
        (
            "shape = [2, \"N\", 128], state",
            "shape = [2, \"N\", 64], state",
            "it is f32[2, 64], and input `state` f32[2, 128]",
        ),
        ("initial = 0.5", "initial = [0.5]", "input.initial: `1 values` is refused, 256 are needed"),
        (", state = \"state\"", "", "input `state`: initial: no output becomes it"),
        (", initial = 0.5", ", state = \"input\"", "input `state`: state: it is said of the output"),
        ("1] },\n]", "1], initial = 1 },\n]", "output `speech`: initial: it is said of the input"),
        ("1] },\n]", "1], state = \"input\" },\n]", "output: all of it is state"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_name_without_a_version_means_the_latest() {
    let version = |number: u32| DIGITS.replacen("[[model]]", &format!("[[model]]\nversion = {number}"), 1);
    let manifest = parse(&[version(2), version(10)].concat()).unwrap();
    assert_eq!(manifest.model("digits-xs").unwrap().name, "digits-xs@10");
    assert_eq!(manifest.model("digits-xs@2").unwrap().name, "digits-xs@2");
    let unknown = manifest.model("digits-xs@3").unwrap_err().to_string();
    assert!(unknown.ends_with("there are: digits-xs@2, digits-xs@10"), "{unknown}");
    let twice = parse(&[version(2), version(2)].concat()).unwrap_err();
    let twice = twice.to_string();
    assert!(twice.ends_with("model `digits-xs@2` is listed twice"), "{twice}");
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
        "/models/manifest.toml:1: [[model]]: 0 models are listed, the limits are 1..=64"
    );
    let twice = parse(&DIGITS.repeat(2)).unwrap_err();
    assert_eq!(twice.to_string(), "/models/manifest.toml:13: model `digits-xs` is listed twice");
    assert!(parse(&DIGITS.repeat(65)).unwrap_err().to_string().contains("65 models"));
}

#[test]
fn shipped_manifest_loads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/manifest.toml");
    assert!(!Manifest::load(&path).unwrap().models().is_empty());
}
