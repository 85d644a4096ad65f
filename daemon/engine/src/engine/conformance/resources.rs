//! What engines may use: no larger models than allowed, no memory after they are gone, no provider but their own.

use std::process::Command;

use super::*;

#[test]
fn a_model_larger_than_allowed_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    std::fs::File::options().write(true).open(&spec.path).unwrap().set_len(2 << 30).unwrap();
    for kind in [EngineKind::Tract, EngineKind::OrtCpu] {
        let backend = Backend { kind, ..Backend::TRACT };
        let refused = load(Engine::Real { backend: &backend, modes: None }, &spec, 1).err().unwrap();
        let wanted = "toy.onnx: has 2147483648 bytes, daemon.max-model allows 1073741824";
        assert!(refused.to_string().ends_with(wanted), "{refused}");
    }
}

/// Without what only some machines have, each other engine says what is missing and how to get it.
#[test]
fn a_provider_that_is_not_there_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let absent =
        EngineKind::ALL.into_iter().filter(|kind| kind.is_onnxruntime() && *kind != EngineKind::OrtCpu);
    for kind in absent.filter(|kind| under_test().iter().all(|(name, _)| *name != kind.to_string())) {
        let Some(refused) = real(kind, &spec, 1, None).err() else {
            assert!(Path::new("/proc/driver/nvidia/version").exists(), "{kind} must be refused");
            continue;
        };
        let text = refused.to_string();
        for part in
            [&format!("engine {kind}: "), "libonnxruntime.so", "CPUExecutionProvider", "docs/engines.md"]
        {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

/// In a program that was built without it, or on a machine without a GPU of NVIDIA's.
#[test]
fn tracts_cuda_runtime_says_what_it_lacks() {
    if cfg!(feature = "tract-cuda") && Path::new("/proc/driver/nvidia/version").exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let wanted: &[&str] = match cfg!(feature = "tract-cuda") {
        true => &["engine tract-cuda: cannot run on device 0", "libcuda.so.1", "CUDA 13", "docs/engines.md"],
        false => &["engine tract-cuda: this weir was built without it", "--features tract-cuda"],
    };
    for load in [real, apart] {
        let text = load(EngineKind::TractCuda, &spec, 1, None).err().expect("must be refused").to_string();
        for part in wanted {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

/// A process of its own, as others' memory would count in this one. Its heap gives back at once what is freed: how much it keeps otherwise
/// depends on which thread freed what when.
#[test]
fn unloading_gives_the_memory_back() {
    for (engine, _) in under_test() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["loads_again_and_again", "--ignored", "--nocapture"])
            .env("WEIR_TEST_ENGINES", engine)
            .envs([
                ("MALLOC_MMAP_THRESHOLD_", "65536"),
                ("MALLOC_TRIM_THRESHOLD_", "65536"),
                ("MALLOC_ARENA_MAX", "1"),
            ])
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("1 passed"), "{engine}: {out}{err}");
    }
}

#[test]
#[ignore = "run by unloading_gives_the_memory_back"]
fn loads_again_and_again() {
    const SIDE: usize = 1024;
    let weights: Vec<u8> = random_f32(1, SIDE * SIDE).iter().flat_map(|w| w.to_le_bytes()).collect();
    let side = SIDE.to_string();
    let onnx = Onnx::default()
        .input("in", 1, &["N", &side])
        .output("out", 1, &["N", &side])
        .weight("weights", 1, &[SIDE as i64, SIDE as i64], &weights)
        .node("MatMul", &["in", "weights"], &["out"])
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    let spec = ModelSpec {
        inputs: toy_spec(SIDE, 1).inputs,
        outputs: toy_spec(1, SIDE).outputs,
        ..toy_file(&dir, &onnx)
    };
    let (_, load) = under_test()[0];
    let load_and_run = || {
        let mut runner = load(&spec, 4, Some(&[RunMode::Batched; 4])).unwrap();
        (1..=4).for_each(|batch| runner.run(batch).unwrap());
        resident()
    };
    // Libraries keep some of what they are given back, and grow until that suffices.
    let loaded = (0..40).map(|_| load_and_run()).max().unwrap();
    let before = resident();
    (0..40).for_each(|_| {
        load_and_run();
    });
    let after = resident();
    let mib = |bytes: u64| bytes >> 20;
    println!("MiB loaded {}, unloaded {}, after 40 more {}", mib(loaded), mib(before), mib(after));
    // The weights have 4 MiB: kept once a time, they would be 160.
    assert!(after < before + (24 << 20), "{} MiB became {}", mib(before), mib(after));
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}
