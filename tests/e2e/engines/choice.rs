//! The engines as a user meets them: one key of the configuration, told by name everywhere, and no silent fall-back.

use std::path::Path;
use std::process::Command;

use crate::harness::{DAEMON, Deployment, eventually, repository, stderr, weir};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A service of one shipped model.
fn deployment(engine: &str, more: &str) -> Deployment {
    let models = repository("models/manifest.toml");
    Deployment::new(format!(
        "{DAEMON}models = \"{}\"\n{more}\n[[service]]\nname = \"digits\"\nmodel = \"digits-s\"\n\
         engine = \"{engine}\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 3\n",
        models.display()
    ))
}

/// Runs a subcommand with ONNX Runtime said to be at `library`.
fn with_library(place: &Deployment, command: &str, library: &Path) -> String {
    let output =
        Command::new(weir()).arg(command).arg(place.config()).env("ORT_DYLIB_PATH", library).output();
    let output = output.expect("weir can be run");
    assert!(!output.status.success(), "weir {command} must fail");
    stderr(&output)
}

#[test]
fn onnxruntime_serves_what_it_was_profiled_for() {
    let place = deployment("ort-cpu", "");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let profile = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    assert_eq!(profile["entries"][0]["engine"], "ort-cpu");
    let equipment = &profile["entries"][0]["equipment"];
    assert!(equipment["version"].as_str().expect("text").starts_with("onnxruntime 1."), "{profile}");
    assert!(equipment["gpu"].is_null() && profile["fingerprint"]["engine"].is_null(), "{profile}");
    place.set_bounds(&[10, 20, 30]);
    assert!(place.succeed(&["plan"]).contains("digits-s on ort-cpu"));
    let daemon = place.serve();
    assert_eq!(daemon.status()["services"][0]["engine"], "ort-cpu");
    drop(daemon);
    // The profile of one engine says nothing about another.
    let promised = "\nconstraints = [{ row-miss = 1 }]\nengine =";
    let text = std::fs::read_to_string(place.config()).expect("there").replace("ort-cpu", "tract");
    place.configure(text.replace("\nengine =", promised));
    assert!(place.fail(&["serve"]).contains("digits-s is not profiled on tract"));
}

#[test]
fn models_are_as_accurate_on_onnxruntime_and_nothing_is_told_to_its_maker() {
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(weir())
        .args(["models", "--json", "--engine", "ort-cpu"])
        .arg(repository("models/manifest.toml"))
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .env_remove("ORT_DISABLE_TELEMETRY")
        .output()
        .expect("weir can be run");
    // What its telemetry has to tell, it keeps in a cache of the user's.
    assert_eq!(std::fs::read_dir(home.path()).expect("the folder").count(), 0);
    assert!(output.status.success(), "{}", stderr(&output));
    let measured: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // The detector takes other images.
    for model in measured.as_array().expect("a list").iter().filter(|model| model["name"] != "scenes-detect")
    {
        let (found, told) = (model["accuracy"].as_f64(), model["manifest"].as_f64());
        let (found, told) = (found.expect("an accuracy"), told.expect("an accuracy"));
        assert!((found - told).abs() <= 5e-4, "{}: {found}, the manifest says {told}", model["name"]);
    }
}

#[test]
fn without_the_library_every_command_that_needs_it_says_how_to_get_it() {
    let place = deployment("ort-cpu", "");
    for library in ["/nowhere/libonnxruntime.so", "/etc/hostname", "libc.so.6"] {
        let told = with_library(&place, "profile", Path::new(library));
        for part in ["engine ort-cpu", "1.24 or later", library, "ORT_DYLIB_PATH", "pip download"] {
            assert!(told.contains(part), "{told} lacks {part}");
        }
    }
    // What the configuration names is tried, and nothing else.
    let place = deployment("ort-cpu", "onnxruntime = \"lib/none.so\"");
    let told = place.fail(&["profile"]);
    assert!(told.contains("lib/none.so (daemon.onnxruntime)") && !told.contains("search path"), "{told}");
    // A configuration can be read where there is no library, but not run; tract needs none.
    place.succeed(&["check", "--no-models"]);
    let told = place.fail(&["check"]);
    assert!(told.contains("service digits") && told.contains("lib/none.so (daemon.onnxruntime)"), "{told}");
    deployment("tract", "onnxruntime = \"lib/none.so\"").succeed(&["profile", "--quick", "--samples", "10"]);
}

#[test]
fn a_provider_that_is_not_there_is_never_replaced_by_the_cpu() {
    let place = deployment("ort-openvino", "");
    for command in ["check", "profile"] {
        let told = place.fail(&[command]);
        assert!(told.contains("engine ort-openvino") && told.contains("it has "), "{command}: {told}");
    }
    assert!(!place.path("profile.json").exists());
}

#[test]
fn a_profile_of_two_engines_is_stale_for_the_one_that_changed_only() {
    let place = deployment("tract", "");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let tract = std::fs::read_to_string(place.config()).expect("there");
    place.configure(tract.replace("\"tract\"", "\"ort-cpu\""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let differs = |name: &str| {
        let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
        let differences = plan["machine_differs"].as_array().expect("a list").clone();
        assert!(differences.iter().all(|d| d.as_str().expect("text").contains(name)), "{differences:?}");
        differences.len()
    };
    place.change_entries(|entries| {
        assert_eq!(entries.len(), 2, "both are kept");
        entries[1]["equipment"]["version"] = "onnxruntime 1.0.0".into();
    });
    assert_eq!(differs("digits-s on ort-cpu: engine: profile onnxruntime 1.0.0, here onnxruntime 1."), 1);
    let certificate = place.path("certificate.json");
    let certificate = certificate.to_str().expect("UTF-8");
    let certified = |verdict: bool| {
        place.succeed(&["certify", "--output", certificate]);
        let output = place.weir(&["verify", certificate, "--config"]);
        assert_eq!(output.status.success(), verdict, "{}", stderr(&output));
        stderr(&output)
    };
    assert!(certified(false).contains("whose digits-s on ort-cpu is onnxruntime 1.0.0, here it is"));
    let daemon = place.serve();
    eventually("safe mode", || (daemon.status()["services"][0]["safe_mode"]["sequence"] != 0).then_some(()));
    let told = "not as profiled: digits-s on ort-cpu: engine";
    eventually("the reason", || daemon.stderr().contains(told).then_some(()));
    drop(daemon);
    place.configure(tract);
    assert_eq!(differs("nothing"), 0);
    certified(true);
}

#[test]
fn tracts_cuda_runtime_says_what_it_lacks() {
    let place = deployment("tract-cuda", "");
    if !cfg!(feature = "tract-cuda") {
        for command in ["check", "profile", "plan", "serve"] {
            let told = place.fail(&[command]);
            for part in ["service[0].engine = tract-cuda", "built without it", "--features tract-cuda"] {
                assert!(told.contains(part), "{told} lacks {part}");
            }
        }
        return;
    }
    place.succeed(&["check", "--no-models"]);
    if Path::new("/proc/driver/nvidia/version").exists() {
        return;
    }
    assert!(place.fail(&["check"]).contains("engine tract-cuda: cannot run on device 0"));
    let told = place.fail(&["profile"]);
    for part in ["engine tract-cuda: cannot run on device 0", "libcuda.so.1", "NVIDIA GPU", "docs/engines.md"]
    {
        assert!(told.contains(part), "{told} lacks {part}");
    }
    let on_second = std::fs::read_to_string(place.config()).expect("there") + "gpu = 1\n";
    place.configure(on_second.clone());
    assert!(place.fail(&["profile"]).contains("cannot run on device 1"));
    place.configure(on_second + "isolation = \"thread\"\n");
    assert!(place.fail(&["check"]).contains("computes on 0 with isolation = \"thread\""));
}

#[test]
fn a_model_above_the_limit_is_refused_before_anything_runs() {
    let place = deployment("tract", "max-model = 1000");
    for command in ["check", "profile"] {
        let told = place.fail(&[command]);
        assert!(told.contains("digits-s.onnx") && told.contains("daemon.max-model allows 1000"), "{told}");
    }
}

#[test]
fn a_file_with_one_request_a_batch_is_said_to_be_run_singly() {
    let folder = Path::new(weir()).ancestors().nth(2).expect("the target folder").join("onnx-models");
    let file = folder.join("light_squeezenet.onnx");
    assert!(file.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", file.display());
    let place = deployment("ort-cpu", "");
    std::fs::copy(&file, place.path("squeezenet.onnx")).expect("copied");
    let sha256: String = Sha256::digest(std::fs::read(&file).expect("the file")).iter().map(hex).collect();
    let manifest = format!(
        "[[model]]\nname = \"squeezenet\"\nfile = \"squeezenet.onnx\"\nsha256 = \"{sha256}\"\n\
         input = {{ name = \"data_0\", type = \"f32\", shape = [3, 224, 224] }}\n\
         output = {{ name = \"softmaxout_1\", type = \"f32\", shape = [1000, 1, 1] }}\n\
         accuracy = 0.5\nparameters = 0\nmacs = 0\n"
    );
    std::fs::write(place.path("manifest.toml"), manifest).expect("written");
    place.configure(format!(
        "{DAEMON}models = \"manifest.toml\"\n[[service]]\nname = \"images\"\nmodel = \"squeezenet\"\n\
         engine = \"ort-cpu\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 2\n"
    ));
    for command in [&["check"][..], &["profile", "--quick", "--samples", "10"], &["plan"]] {
        let told = place.succeed(command);
        assert!(told.contains("squeezenet: its file is fixed to batch 1"), "{command:?}: {told}");
    }
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

#[test]
fn sessions_have_no_threads_beside_the_workers() {
    let serve = |engine| {
        let place = deployment(engine, "").profiled(&[10, 20, 30]);
        let config = std::fs::read_to_string(place.config()).expect("there");
        place.configure(format!("{config}workers = 2\n"));
        let daemon = place.serve();
        assert_eq!(daemon.status()["services"][0]["workers"], 2);
        daemon
    };
    // Its telemetry would have one, too.
    let (tract, ort) = (serve("tract"), serve("ort-cpu"));
    eventually("as many threads with either", || (tract.count("task") == ort.count("task")).then_some(()));
}
