//! Every target on its seeds, on seeds with a few bytes changed, and on noise: all of them on any machine.

use std::path::Path;
use std::process::Command;

use planner::{Certificate, Problem, Question, certify_shared};
use proptest::prelude::*;
use weir_fuzz::{
    answer, certificate, client_frames, daemon_frames, experiment, grpc_answer, grpc_call, http_answer,
    http_call, policy, problem, recording, sharing, small_problem, small_sharing,
};

/// Those that are shipped, among the seeds of the others.
const EXPERIMENTS: &str = "../../sim/experiments";

fn seeds(of: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(of);
    let entries = folder.read_dir().unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .collect()
}

fn text(seed: &[u8]) -> &str {
    std::str::from_utf8(seed).expect("text")
}

#[test]
fn seeds_of_problems_are_problems_and_are_answered() {
    for seed in seeds("problem") {
        Problem::parse(text(&seed)).unwrap_or_else(|e| panic!("{e}: {}", text(&seed)));
        problem(&seed);
        answer(&seed);
    }
}

#[test]
fn seeds_of_services_that_share_workers_are_problems_and_are_answered() {
    for seed in seeds("sharing") {
        assert!(sharing(&seed), "{}", String::from_utf8_lossy(&seed));
    }
}

#[test]
fn seeds_of_certificates_are_certificates() {
    for seed in seeds("certificate") {
        Certificate::parse(text(&seed)).unwrap_or_else(|e| panic!("{e}: {}", text(&seed)));
        certificate(&seed);
    }
}

/// With reads of one byte and of many. One seed has the frames of all the others.
#[test]
fn seeds_of_frames_are_cut_and_read() {
    for (of, target) in
        [("client_frames", client_frames as fn(&[u8]) -> usize), ("daemon_frames", daemon_frames)]
    {
        let seeds = seeds(of);
        for step in [0, 6, 255] {
            let with_step = |seed: &Vec<u8>| [&[step], &seed[1..]].concat();
            let read: usize = seeds.iter().map(|seed| target(&with_step(seed))).sum();
            assert_eq!(read, 2 * (seeds.len() - 1), "{of}, {step} bytes at a time");
        }
    }
}

#[test]
fn seeds_of_calls_fit_the_model() {
    for seed in seeds("http_call") {
        assert!(http_call(&seed), "{}", String::from_utf8_lossy(&seed));
    }
    for seed in seeds("grpc_call") {
        assert!(grpc_call(&seed), "{seed:?}");
    }
}

/// The others are what a server says of itself, of a model and why it refuses a call.
#[test]
fn seeds_of_answers_have_the_outputs() {
    let taken =
        |of, target: fn(&[u8]) -> usize| seeds(of).iter().map(|seed| target(seed)).collect::<Vec<_>>();
    assert_eq!(taken("http_answer", http_answer), [3, 0, 0]);
    assert_eq!(taken("grpc_answer", grpc_answer), [0, 3, 2]);
}

#[test]
fn seeds_of_recordings_are_read() {
    for seed in seeds("recording") {
        assert!(recording(&seed) > 0, "{}", text(&seed));
    }
}

#[test]
fn seeds_of_policies_are_read() {
    for seed in seeds("policy") {
        assert!(policy(&seed), "{}", text(&seed));
    }
}

/// But for those that name data of others.
#[test]
fn shipped_experiments_are_read() {
    for seed in seeds(EXPERIMENTS) {
        assert_ne!(experiment(&seed), text(&seed).contains("file ="), "{}", text(&seed));
    }
}

#[test]
fn what_was_found_once_stays_fixed() {
    for seed in seeds("answer") {
        answer(&seed);
    }
}

/// All that fuzzing found to differ from all else, of each target that a client or a remote server feeds.
#[test]
fn what_fuzzing_kept_holds() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 6] = [
        ("client_frames", |data| _ = client_frames(data)),
        ("daemon_frames", |data| _ = daemon_frames(data)),
        ("http_call", |data| _ = http_call(data)),
        ("http_answer", |data| _ = http_answer(data)),
        ("grpc_call", |data| _ = grpc_call(data)),
        ("grpc_answer", |data| _ = grpc_answer(data)),
    ];
    for (of, target) in targets {
        let inputs = kept(of);
        assert!(inputs.len() > 100, "{of}: {}", inputs.len());
        inputs.iter().for_each(|input| target(input));
    }
}

/// The corpus of a target.
fn kept(of: &str) -> Vec<Vec<u8>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(of).with_extension("tar.gz");
    let folder = tempfile::tempdir().expect("a folder");
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    assert!(unpacked.expect("tar runs").success(), "{}", archive.display());
    let files = folder.path().read_dir().expect("a folder").map(|file| file.expect("a file").path());
    files.map(|file| std::fs::read(file).expect("a file")).collect()
}

/// Of one of the seeds, with some bytes replaced, dropped or doubled.
fn changed(of: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let edit = (
        any::<prop::sample::Index>(),
        0usize..4,
        prop::sample::select(b"0123456789.-e\"[]{},:nul\0\xff".to_vec()),
    );
    (prop::sample::select(seeds(of)), prop::collection::vec(edit, 1..4)).prop_map(|(mut seed, edits)| {
        for (at, kind, byte) in edits {
            let at = at.index(seed.len());
            match kind {
                0 => seed[at] = byte,
                1 => seed.insert(at, byte),
                2 => drop(seed.remove(at)),
                _ => seed.insert(at, seed[at]),
            }
            if seed.is_empty() {
                break;
            }
        }
        seed
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn changed_problems(data in changed("problem")) {
        problem(&data);
    }

    #[test]
    fn changed_problems_of_services(data in changed("sharing")) {
        sharing(&data);
    }

    #[test]
    fn changed_certificates(data in changed("certificate")) {
        certificate(&data);
    }

    #[test]
    fn changed_frames(sent in changed("client_frames"), answered in changed("daemon_frames")) {
        client_frames(&sent);
        daemon_frames(&answered);
    }

    #[test]
    fn changed_calls(http in changed("http_call"), grpc in changed("grpc_call")) {
        http_call(&http);
        grpc_call(&grpc);
    }

    #[test]
    fn changed_answers(http in changed("http_answer"), grpc in changed("grpc_answer")) {
        http_answer(&http);
        grpc_answer(&grpc);
    }

    #[test]
    fn changed_recordings(data in changed("recording")) {
        recording(&data);
    }

    #[test]
    fn changed_policies(data in changed("policy")) {
        policy(&data);
    }

    #[test]
    fn changed_experiments(data in changed(EXPERIMENTS)) {
        experiment(&data);
    }

    #[test]
    fn noise(data in prop::collection::vec(any::<u8>(), 0..80)) {
        problem(&data);
        certificate(&data);
        answer(&data);
        sharing(&data);
        client_frames(&data);
        daemon_frames(&data);
        http_call(&data);
        http_answer(&data);
        grpc_call(&data);
        grpc_answer(&data);
        recording(&data);
        policy(&data);
        experiment(&data);
    }
}

/// Else the target that makes its own problems tests next to nothing.
#[test]
fn most_small_problems_are_problems_some_promised_some_refused() {
    let (mut read, mut promised) = (0, 0);
    for data in noises() {
        let Ok(problem) = Problem::parse(&small_problem(&data)) else { continue };
        read += 1;
        promised += u32::from(problem.system().admit(problem.specs()).is_ok());
    }
    assert!(read > 500 && promised > 100 && read - promised > 100, "{read} read, {promised} promised");
}

/// The same of services.
#[test]
fn most_small_problems_of_services_are_problems_some_promised_some_refused() {
    let (mut read, mut promised) = (0, 0);
    for data in noises() {
        let Ok(Question::Shared(problem)) = Question::parse(&small_sharing(&data)) else { continue };
        read += 1;
        promised += u32::from(certify_shared(&problem).admissible);
    }
    assert!(read > 500 && promised > 100 && read - promised > 100, "{read} read, {promised} promised");
}

/// A thousand lists of bytes.
fn noises() -> impl Iterator<Item = Vec<u8>> {
    (0..1000u64).map(|seed| {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..120).map(|_| byte()).collect()
    })
}
