//! What a served request is answered with: the shipped models are what their manifest says they are.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{DAEMON, Deployment, repository, stderr, weir};
use serde_json::Value;
use tempfile::TempDir;

fn models(manifest: &Path) -> Output {
    let output = Command::new(weir()).args(["models", "--json"]).arg(manifest).output();
    output.expect("weir can be run")
}

/// A copy of the shipped models that may be tampered with.
fn copied() -> TempDir {
    let copy = TempDir::new().expect("a temporary folder");
    for entry in std::fs::read_dir(repository("models")).expect("the folder of models") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    copy
}

/// Changes one byte in the middle of a file.
fn tamper(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

/// A service of one model of a manifest.
fn deployment(model: &str, manifest: &Path) -> Deployment {
    Deployment::new(format!(
        "{DAEMON}models = \"{}\"\n{}",
        manifest.display(),
        format_args!(
            "[[service]]\nname = \"digits\"\nmodel = \"{model}\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 2\n"
        )
    ))
}

#[test]
fn each_model_is_as_accurate_as_its_manifest_says() {
    let output = models(&repository("models/manifest.toml"));
    assert!(output.status.success(), "{}", stderr(&output));
    let measured: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measured = measured.as_array().expect("a list");
    let mut accuracies = Vec::new();
    // The detector takes other images; what it and the readers make of them together is held in `daemon/engine/tests/adapter`.
    let (others, measured): (Vec<&Value>, Vec<_>) =
        measured.iter().partition(|model| model["accuracy"].is_null());
    assert!(others.iter().map(|model| &model["name"]).eq(&["scenes-detect"]), "{others:?}");
    for model in measured {
        let (found, told) = (model["accuracy"].as_f64(), model["manifest"].as_f64());
        let (found, told) = (found.expect("an accuracy"), told.expect("an accuracy"));
        assert!((found - told).abs() <= 5e-4, "{}: {found}, the manifest says {told}", model["name"]);
        accuracies.push(found);
        let classes = model["classes"].as_object().expect("classes");
        assert!(classes.keys().eq(["clean", "noisy", "occluded"]), "{classes:?}");
        for (class, of) in classes {
            let (found, told) = (of["accuracy"].as_f64(), of["manifest"].as_f64());
            let apart = found.zip(told).map(|(found, told)| (found - told).abs());
            assert!(apart.is_some_and(|apart| apart <= 5e-4), "{}, {class}: {of}", model["name"]);
        }
    }
    assert_eq!(accuracies.len(), 6);
    assert!(accuracies.is_sorted(), "the cheapest comes first: {accuracies:?}");
    assert!(accuracies[0] < 0.8 && accuracies[5] >= 0.98, "the family spans too little: {accuracies:?}");
}

#[test]
fn a_model_file_that_was_changed_is_refused_wherever_it_is_used() {
    let copy = copied();
    let manifest = copy.path().join("manifest.toml");
    let place = deployment("digits-s", &manifest);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    tamper(&copy.path().join("digits-s.onnx"));
    for command in ["profile", "serve"] {
        let message = place.fail(&[command]);
        assert!(message.contains("digits-s.onnx") && message.contains("SHA-256"), "{command}: {message}");
    }
    let output = models(&manifest);
    assert!(!output.status.success() && stderr(&output).contains("digits-s.onnx"), "{}", stderr(&output));
    assert!(!place.socket().exists());
}

#[test]
fn a_model_file_that_is_not_the_one_profiled_is_refused_with_the_remedy() {
    let copy = copied();
    let manifest = copy.path().join("manifest.toml");
    let place = deployment("digits-xs", &manifest);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    // The name is kept, the file and its hash become those of another model.
    let text = std::fs::read_to_string(&manifest).expect("the manifest");
    let hash = |name: &str| {
        let entry = text.split("[[model]]").find(|entry| entry.contains(&format!("name = \"{name}\"")));
        let line = entry.and_then(|entry| entry.lines().find(|line| line.starts_with("sha256")));
        line.expect("a hash").to_owned()
    };
    let swapped = text.replacen("file = \"digits-xs.onnx\"", "file = \"digits-s.onnx\"", 1).replacen(
        &hash("digits-xs"),
        &hash("digits-s"),
        1,
    );
    std::fs::write(&manifest, swapped).expect("written");
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(format!("{text}constraints = [{{ row-miss = 1 }}]\n"));
    for command in ["plan", "serve"] {
        let message = place.fail(&[command]);
        assert!(message.contains("digits-xs") && message.contains("weir profile"), "{command}: {message}");
    }
}

#[test]
fn held_out_data_that_was_changed_is_refused() {
    for file in ["heldout-images.idx3-ubyte", "heldout-labels.idx1-ubyte", "heldout-noisy.idx3-ubyte"] {
        let copy = copied();
        tamper(&copy.path().join(file));
        let output = models(&copy.path().join("manifest.toml"));
        assert!(!output.status.success() && stderr(&output).contains(file), "{}", stderr(&output));
    }
}

#[test]
fn a_served_model_recognises_held_out_digits() {
    let place = deployment("digits-s", &repository("models/manifest.toml"));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let _daemon = place.serve();
    let images = repository("models/heldout-images.idx3-ubyte");
    let labels = std::fs::read(repository("models/heldout-labels.idx1-ubyte")).expect("the labels");
    let infer = |arguments: &[&str]| {
        let socket = place.socket();
        let mut command = Command::new(weir());
        command.arg("infer").arg("digits").args(arguments).arg("--socket").arg(socket);
        command.output().expect("weir can be run")
    };
    let mut right = 0;
    for number in 0..20 {
        let output = infer(&["--json", "--image", &format!("{}:{number}", images.display())]);
        assert!(output.status.success(), "{}", stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&answer["served"], &answer["variant"]), (&true.into(), &"digits-s".into()));
        assert_eq!(answer["batch"], 1, "{answer}");
        assert!(answer["run_ns"].as_u64().is_some_and(|time| time > 0), "{answer}");
        let logits: Vec<f64> = answer["outputs"]["logits"]
            .as_array()
            .expect("logits")
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        assert_eq!(logits.len(), 10, "{answer}");
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class);
        // The labels follow a header of eight bytes.
        right += u32::from(best == Some(labels[8 + number].into()));
    }
    assert!(right >= 14, "{right} of 20 digits were recognised");
    // For people: the picture and its digit.
    let output = infer(&["--image", &format!("{}:0", images.display())]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains('█') && text.contains("digits-s says "), "{text}");
    // What is no picture, or none of this file, is refused by name.
    let none = infer(&["--image", &format!("{}:99999", images.display())]);
    assert!(!none.status.success() && stderr(&none).contains("99999"), "{}", stderr(&none));
    let other = infer(&["--image", &format!("{}:0", place.config().display())]);
    assert!(!other.status.success() && stderr(&other).contains("weir.toml"), "{}", stderr(&other));
}
