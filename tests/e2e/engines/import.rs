//! Models that nobody here made come into service: their files are looked at, a manifest is written, and they are served.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{DAEMON, Deployment, best_effort, stderr, weir};
use weir_client::StreamInfo;
use weir_engine::sha256_hex;

/// A folder with some of the models that tests/fetch.sh has fetched.
fn folder(models: &[&str]) -> TempDir {
    let fetched = Path::new(weir()).ancestors().nth(2).expect("the target folder").join("onnx-models");
    let folder = TempDir::new().expect("a temporary folder");
    for model in models {
        let file = fetched.join(model);
        assert!(file.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", file.display());
        std::fs::copy(&file, folder.path().join(model)).expect("copied");
    }
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(weir());
    command.args(arguments).current_dir(folder.path()).output().expect("weir can be run")
}

fn succeed(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "weir {arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn fail(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(!output.status.success(), "weir {arguments:?} must fail");
    stderr(&output)
}

fn read(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).expect("a file")
}

#[test]
fn a_file_is_inspected_for_people_and_for_programs() {
    let folder = folder(&["silero_vad_half.onnx"]);
    let told = succeed(&folder, &["inspect", "silero_vad_half.onnx"]);
    for part in ["1280395 bytes", "opset 16", "input: f32 [batch, sequence]", "state: f32 [2, batch, 128]"] {
        assert!(told.contains(part), "{told} lacks {part}");
    }
    let told: Value = serde_json::from_str(&succeed(&folder, &["inspect", "--json", "silero_vad_half.onnx"]))
        .expect("JSON");
    let file = &told[0];
    assert_eq!(file["inputs"][1]["shape"], serde_json::json!([2, "batch", 128]));
    assert_eq!(
        file["sha256"],
        sha256_hex(&std::fs::read(folder.path().join("silero_vad_half.onnx")).expect("read"))
    );
    std::fs::write(folder.path().join("x.onnx"), "no model").expect("written");
    assert!(fail(&folder, &["inspect", "x.onnx"]).contains("x.onnx: not an ONNX model"));
}

#[test]
fn a_foreign_model_is_imported_checked_profiled_and_served() {
    let folder = folder(&["magika.onnx", "silero_vad_op18_ifless.onnx"]);
    let told = succeed(&folder, &["import", "magika.onnx"]);
    assert!(told.contains("dynamic dimension `unk__214` is the batch"), "{told}");
    assert!(told.contains("next: weir check ./weir.toml && weir profile ./weir.toml"), "{told}");
    // The next model is added; what the user wrote stays.
    let changed = read(&folder, "manifest.toml").replace("# accuracy = 0.9", "accuracy = 0.75 # mine");
    std::fs::write(folder.path().join("manifest.toml"), &changed).expect("written");
    let configured = read(&folder, "weir.toml");
    let fix = ["--fix", "sequence=512,sr=16000", "--name", "voice"];
    let told = succeed(&folder, &[&["import", "silero_vad_op18_ifless.onnx"][..], &fix].concat());
    assert!(told.contains("./weir.toml is left as it is") && told.contains("model = \"voice\""), "{told}");
    let manifest = read(&folder, "manifest.toml");
    assert!(manifest.starts_with(&changed) && manifest.contains("value = 16000"), "{manifest}");
    assert_eq!(read(&folder, "weir.toml"), configured);
    // What is there is left alone.
    let told = succeed(&folder, &["import", "."]);
    assert_eq!(told.matches("already, and left as it is").count(), 2, "{told}");
    assert_eq!(read(&folder, "manifest.toml"), manifest);
    let service = "[[service]]\nname = \"voice\"\nmodel = \"voice\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 2\n";
    std::fs::write(folder.path().join("weir.toml"), format!("{configured}\n{service}")).expect("written");
    let told = fail(&folder, &["check", "weir.toml"]);
    assert!(told.contains("service[1].max-batch = 2: must be 1: voice has state"), "{told}");
    let service = service.replace("max-batch = 2", "max-batch = 1");
    std::fs::write(folder.path().join("weir.toml"), format!("{configured}\n{service}")).expect("written");
    assert!(succeed(&folder, &["check", "weir.toml"]).contains(": ok, 2 service(s)"));
    succeed(&folder, &["profile", "--quick", "--samples", "10", "weir.toml"]);
    let mut daemon = Command::new(weir())
        .args(["serve", "--quiet", "weir.toml"])
        .current_dir(folder.path())
        .spawn()
        .expect("weir can be started");
    let socket = folder.path().join("weir.sock");
    let mut client =
        crate::harness::eventually("the socket", || weir_client::blocking::Client::connect(&socket).ok());
    let stream = client.register(&best_effort("voice", "microphone")).expect("a stream");
    // Neither the constant nor the state is the client's business.
    let told: Vec<_> =
        stream.inputs.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.clone())).collect();
    assert_eq!(told, [("input", vec![512])]);
    let noise: Vec<f32> = (0..512u32).map(|i| (i.wrapping_mul(2654435761) >> 8) as f32 / 1e7 - 0.8).collect();
    let mut hear = |stream: &StreamInfo| {
        let outcome = client.infer(stream, &noise).expect("an answer");
        let result = outcome.result().expect("in time");
        (stream.output::<f32>(result).expect("the only output")[0], result.skipped)
    };
    let heard: Vec<_> = (0..3).map(|_| hear(&stream)).collect();
    assert!((0.0..=1.0).contains(&heard[0].0) && heard.iter().all(|(_, skipped)| *skipped == 0), "{heard:?}");
    assert!(heard[0] != heard[1] && heard[1] != heard[2], "it remembers what was before: {heard:?}");
    // Another client begins anew. What is not executed leaves the state as it is, and is told.
    let other = weir_client::blocking::Client::connect(&socket);
    let other = other.and_then(|mut other| Ok((other.register(&best_effort("voice", "other"))?, other)));
    let (fresh, mut other) = other.expect("a stream");
    let mut hear = |stream: &StreamInfo| {
        let outcome = other.infer(stream, &noise).expect("an answer");
        outcome
            .result()
            .map(|result| (stream.output::<f32>(result).expect("the only output")[0], result.skipped))
    };
    assert_eq!(hear(&fresh), Some(heard[0]));
    assert_eq!(hear(&fresh.within(std::time::Duration::from_micros(1))), None);
    assert_eq!(hear(&fresh), Some((heard[1].0, 1)));
    assert_eq!(hear(&fresh), Some(heard[2]));
    let stream = client.register(&best_effort("magika", "files")).expect("a stream");
    assert_eq!(stream.accuracy, 0.75);
    let outcome = client.infer(&stream, &vec![65i32; 2048]).expect("an answer");
    let kinds = stream.output::<f32>(outcome.result().expect("in time")).expect("probabilities");
    assert!((kinds.iter().sum::<f32>() - 1.0).abs() < 1e-3, "of which there is one");
    daemon.kill().and_then(|()| daemon.wait()).expect("the daemon ends");
}

#[test]
fn a_folder_is_imported_and_a_size_counts_for_the_models_that_have_the_dimension() {
    let folder = folder(&["magika.onnx", "silero_vad_v6.onnx"]);
    let told = succeed(&folder, &["import", ".", "--fix", "seq_len=7", "--out", "all.toml"]);
    assert!(
        told.contains("2 model(s) written to all.toml") && told.contains("`seq_len` is 7: as you say"),
        "{told}"
    );
    assert!(read(&folder, "all.toml").contains("dimensions = { seq_len = 7 }"));
    assert!(read(&folder, "weir.toml").contains("models = \"all.toml\""));
}

#[test]
fn what_cannot_be_imported_is_refused_with_the_reason() {
    let folder = folder(&["magika.onnx", "ch_PP-OCRv4_rec_infer.onnx"]);
    let unknown = fail(&folder, &["import", "magika.onnx", "--fix", "height=640"]);
    assert!(
        unknown.contains("--fix height: there is no such input or dynamic dimension")
            && unknown.contains("`unk__214`"),
        "{unknown}"
    );
    // No text of this height can be read.
    let wrong = fail(
        &folder,
        &["import", "ch_PP-OCRv4_rec_infer.onnx", "--fix", "x_2=224,p2o.DynamicDimension.1=64"],
    );
    assert!(wrong.contains("does not run on") && wrong.contains("x_2 = 224"), "{wrong}");
    std::fs::create_dir(folder.path().join("below")).expect("a folder");
    let outside = fail(&folder, &["import", "magika.onnx", "--out", "below/manifest.toml"]);
    assert!(outside.contains("names files of its own folder") && outside.contains("--out"), "{outside}");
    assert!(fail(&folder, &["import", "below"]).contains("there is no .onnx file"));
    assert!(!folder.path().join("manifest.toml").exists() && !folder.path().join("weir.toml").exists());
    // A broken manifest is not added to.
    std::fs::write(folder.path().join("manifest.toml"), "[[model]]\nname = 3\nfile = \"../x\"\n")
        .expect("written");
    let broken = fail(&folder, &["import", "magika.onnx"]);
    assert!(broken.contains("manifest.toml:2: ") && broken.contains("manifest.toml:3: "), "{broken}");
}

/// A sum over all requests of the batch: CumSum along the first of [N, 6].
const SUM: &str = "08083a5a0a120a01780a026178120179220643756d53756d120663756d73756d2a101007420261784a0800000000000000005a14\
    0a0178120f0a0d080112090a0312014e0a02080662140a0179120f0a0d080112090a0312014e0a02080642040a00100d";
/// Batch normalization as it is while a model is trained, at which some versions of ONNX Runtime crash.
const TRAINED: &str = "08083acd010a400a01780a01730a01620a016d0a017612017912001200221242617463684e6f726d616c697a6174696f6e2a14\
    0a0d747261696e696e675f6d6f64651801a001021201672a11080210014201734a080000803f0000803f2a11080210014201624a08000000000000\
    00002a110802100142016d4a0800000000000000002a11080210014201764a080000803f0000803f5a1c0a017812170a15080112110a0712056261\
    7463680a0208020a020804621c0a017912170a15080112110a07120562617463680a0208020a02080442040a00100f";

fn write(folder: &TempDir, name: &str, digits: &str) {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hexadecimal digits");
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    std::fs::write(folder.path().join(name), bytes).expect("written");
}

#[test]
fn a_model_that_mixes_the_requests_of_a_batch_takes_one_at_a_time() {
    let folder = folder(&[]);
    write(&folder, "sum.onnx", SUM);
    let told = succeed(&folder, &["import", "sum.onnx"]);
    let why =
        "it takes one request at a time: what it answers to a request depends on what else is in the batch";
    assert!(told.contains(why), "{told}");
    let manifest = read(&folder, "manifest.toml");
    assert_eq!(manifest.matches("batch = false").count(), 2, "{manifest}");
    assert!(succeed(&folder, &["check", "weir.toml"]).contains(": ok, 1 service(s)"));
    // By hand it may be said otherwise, and is told.
    let manifest = manifest.replace(", batch = false", "").replace("[1, 6]", "[\"N\", 6]");
    let manifest = manifest.replace("N = 1", "N = \"batch\"");
    std::fs::write(folder.path().join("manifest.toml"), manifest).expect("written");
    let config = read(&folder, "weir.toml").replace("max-batch = 1", "max-batch = 4");
    std::fs::write(folder.path().join("weir.toml"), config).expect("written");
    let told = succeed(&folder, &["check", "weir.toml"]);
    let mixes = "depends on what else is in the batch (output `y`): say batch = false";
    assert!(told.contains(mixes), "{told}");
    // When it is measured as well, unless it is found to be faster one by one.
    let output = run(&folder, &["profile", "--quick", "--samples", "10", "--json", "weir.toml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let batches = told["profile"]["entries"][0]["batches"].as_array().expect("batches");
    let together = batches[1..3].iter().any(|batch| batch["mode"] == "batched");
    assert_eq!(stderr(&output).contains(mixes), together, "{}, {told}", stderr(&output));
}

#[test]
fn a_file_that_cannot_be_imported_keeps_none_of_the_others_out() {
    let folder = folder(&[]);
    std::fs::write(folder.path().join("a.onnx"), "no model").expect("written");
    write(&folder, "b.onnx", TRAINED);
    write(&folder, "c.onnx", SUM);
    let output = run(&folder, &["import", "."]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("a.onnx: not an ONNX model"), "{}", stderr(&output));
    assert!(read(&folder, "manifest.toml").contains("name = \"c\""));
    assert!(succeed(&folder, &["check", "weir.toml"]).contains(": ok"));
}

#[test]
fn of_more_models_than_services_the_first_are_configured() {
    let folder = folder(&[]);
    for number in 10..27 {
        write(&folder, &format!("m{number}.onnx"), SUM);
    }
    let told = succeed(&folder, &["import", "."]);
    assert!(told.contains("one daemon has 16 services at most; left out there: m26"), "{told}");
    assert!(read(&folder, "weir.toml").contains("Left out: m26."));
    assert!(succeed(&folder, &["check", "weir.toml"]).contains(": ok, 16 service(s)"));
}

#[test]
fn a_check_refuses_what_this_machine_cannot_run() {
    let service = "[[service]]\nname = \"s\"\nengine = \"simulated\"\nsimulated = { times = [\"1ms\"] }\n\
                   deadline = \"50ms\"\ncores = [1023]\n";
    let place = Deployment::new(format!("{DAEMON}{service}"));
    let told = place.fail(&["check"]);
    assert!(told.contains("service[0].cores = 1023: this machine has no such core, only 0"), "{told}");
    place.succeed(&["check", "--no-models"]);
}

#[test]
fn dynamic_dimensions_are_called_by_their_names() {
    let folder = folder(&["silero_vad_op18_ifless.onnx"]);
    succeed(&folder, &["import", "silero_vad_op18_ifless.onnx", "--fix", "sequence=512,sr=16000"]);
    let manifest = read(&folder, "manifest.toml");
    for (from, to, wanted) in [
        (
            "sequence = 512 }",
            "}",
            "dynamic dimension `sequence` has no size: write dimensions = { sequence = …",
        ),
        (
            "[2, \"batch\", 128]",
            "[2, 1, 128]",
            "the batch stands in front of the manifest's, unless shape names it",
        ),
        (
            "[\"batch\", \"sequence\"]",
            "[\"sequence\", \"batch\"]",
            "dynamic dimension `batch` is 512 in `input`, the batch here",
        ),
    ] {
        assert!(manifest.contains(from), "{manifest} lacks {from}");
        std::fs::write(folder.path().join("manifest.toml"), manifest.replace(from, to)).expect("written");
        let told = fail(&folder, &["check", "weir.toml"]);
        assert!(told.contains(wanted), "{told}");
    }
}
