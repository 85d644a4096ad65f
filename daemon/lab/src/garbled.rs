//! Files that somebody garbled: each is read within its limits or refused in words, and nothing panics.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use planner::verify::{VerifyError, verify};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{LEARNED_INPUTS, MAX_BATCH, MAX_SPAN, MAX_WORKERS, Net};
use tempfile::TempDir;

use crate::load::{Inputs, Schedule};
use weir_engine::manifest::Manifest;
use weir_plan::certificate::of_plan;
use weir_plan::config::Config;
use weir_plan::models::resolve_models;
use weir_plan::plan::{Plan, check_tables, check_weights, write_weights};
use weir_plan::profile::{Entry, Fingerprint, Profile};

/// What stands where something else should.
const WRONG: &[&str] = &[
    "0",
    "1",
    "-1",
    "-0.0",
    "0.5",
    "1e308",
    "5e-324",
    "1e400",
    "nan",
    "-inf",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "true",
    "null",
    "[]",
    "{}",
    "\"\"",
    "\"\\u0000\"",
    "\"..\"",
    "\"0s\"",
    "\"1h\"",
    "\"1ns\"",
    "\"600years\"",
    "\"-1ms\"",
];

const SHIPPED: &[&str] = &[
    include_str!("../../../config/classes.toml"),
    include_str!("../../../config/demo.toml"),
    include_str!("../../../config/digits.toml"),
    include_str!("../../../config/robot.toml"),
    include_str!("../../../config/scenes.toml"),
    include_str!("../../../config/selection.toml"),
    include_str!("../../../config/simulated.toml"),
    include_str!("../../../config/variants.toml"),
];
const MANIFEST: &str = include_str!("../../../models/manifest.toml");
/// Whatever a plan is computed from, without a model's file.
const PLANNED: &str = r#"
    [daemon]
    profile = "profile.json"
    bus = "off"
    [[service]]
    name = "lanes"
    engine = "simulated"
    simulated = { times = ["5ms", "8ms"], accuracy = 0.6, variants = [{ times = ["15ms", "20ms"], accuracy = 0.8 }] }
    deadline = "200ms"
    guard = "50ms"
    max-batch = 2
    constraints = [{ any-miss = { m = 1, k = 3 } }, { row-hit = { h = 1, k = 4 } }]
    [[service.stream]]
    name = "camera"
    arrivals = [{ periodic = { period = "100ms", jitter = "10ms" } }, { token-bucket = { burst = 3, period = "90ms" } }]
"#;
const TABLES: &str = r#"{ "weir_select": 1, "inputs_sha256": "00", "window_ns": 500000000, "tables": [
    { "rate_per_s": 10.5, "bin_ns": 1000000, "wishes": [[0, 1, 2], [0, 0, 1]] },
    { "rate_per_s": 20.0, "bin_ns": 1000000, "wishes": [[0, 1]] },
    { "rate_per_s": 30.0, "prices": [[1.5, 0.25], [2e3, 0]], "sizes": [1, 1, 2] } ] }"#;
const TRACE: &str = "time,who\n0.5,a\n0.75,b\n1e1,a\n10.25,b\n";
const PICTURES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];
const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 1, 0];

/// A file with a few things wrong: bits, bytes and words, their order, its lines and its end.
fn garbled(seed: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (0usize..8, any::<Index>(), any::<Index>(), select(WRONG));
    let edits = prop::collection::vec(edit, 1..4);
    (seed, edits).prop_map(|(seed, edits)| edits.into_iter().fold(seed, edited))
}

fn one_of(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    select(seeds).prop_map(|text| text.as_bytes().to_vec())
}

fn edited(mut file: Vec<u8>, (kind, at, to, wrong): (usize, Index, Index, &str)) -> Vec<u8> {
    let words = words(&file);
    if words.is_empty() {
        return wrong.into();
    }
    let (word, other) = (words[at.index(words.len())].clone(), words[to.index(words.len())].clone());
    let place = at.index(file.len());
    match kind {
        0 => file[place] ^= 1 << to.index(8),
        1 => file.truncate(place),
        2 => drop(file.splice(place..place, wrong.bytes())),
        3 => drop(file.splice(word, file[other].to_vec())),
        4 => drop(file.splice(word.start..word.start, file[word.start.min(other.start)..other.end].to_vec())),
        5 => drop(file.drain(word)),
        _ => drop(file.splice(word, wrong.bytes())),
    }
    file
}

/// Where numbers, names and quoted texts stand.
fn words(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_word = |byte: &u8| !byte.is_ascii_whitespace() && !b"[]{},=:".contains(byte);
    let mut words = Vec::new();
    let mut at = 0;
    for part in file.chunk_by(|a, b| is_word(a) == is_word(b)) {
        if is_word(&part[0]) {
            words.push(at..at + part.len());
        }
        at += part.len();
    }
    words
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// What `read` makes of a file of these bytes; a refusal has words for it.
fn read<T, E: Display>(bytes: &[u8], read: impl FnOnce(&Path) -> Result<T, E>) -> Option<T> {
    let folder = folder(&[("file", bytes)]);
    match read(&folder.path().join("file")) {
        Ok(made) => Some(made),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// A profile of [`PLANNED`], of these times in nanoseconds, for the base and the variant.
fn profile_of(times: [[u64; 2]; 2]) -> Vec<u8> {
    let folder = folder(&[("weir.toml", PLANNED.as_bytes())]);
    let config = Config::load(&folder.path().join("weir.toml")).unwrap();
    let mut profile = Profile::new(Fingerprint::current());
    for (model, times) in resolve_models(&config).unwrap()[0].iter().zip(times) {
        profile.put(Entry::of_simulated(model, &times));
    }
    serde_json::to_vec(&profile).unwrap()
}

fn profile() -> Vec<u8> {
    profile_of([[8_000_000, 11_000_000], [18_000_000, 21_000_000]])
}

/// [`PLANNED`] and its profile with other numbers, whole but for what they mean.
fn renumbered() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    // From a nanosecond to an hour, most of them around what a deadline leaves.
    let time =
        || prop_oneof![(1u64..10, 0u32..12), (1u64..10, 5u32..8)].prop_map(|(digit, e)| digit * 10u64.pow(e));
    let times = prop::array::uniform2(prop::array::uniform2(time()));
    let spans = prop::array::uniform6(time());
    let counts = (1u64..5, select(vec![1u64, 8, 256, 65_536]), 1u64..40, 0u64..4, 1u64..4);
    (times, spans, counts).prop_map(|(mut times, spans, (workers, queue, burst, m, h))| {
        times.iter_mut().for_each(|pair| pair.sort_unstable());
        let [deadline, guard, handover, jitter, period, bucket] = spans.map(|ns| format!("{ns}ns"));
        let more = format!(
            "handover = \"{handover}\"\njitter = \"{jitter}\"\nworkers = {workers}\nqueue = {queue}\nmax-batch = 2"
        );
        let config = [
            ("200ms", deadline), ("50ms", guard), ("100ms", period), ("90ms", bucket), ("max-batch = 2", more),
            ("burst = 3", format!("burst = {burst}")), ("m = 1, k = 3", format!("m = {m}, k = {}", m + h)),
        ];
        let config = config.iter().fold(PLANNED.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
        (config.into_bytes(), profile_of(times))
    })
}

/// The plan of a configuration and a profile of these bytes, if they allow one.
fn plan(config: &[u8], profile: &[u8]) -> Option<Plan> {
    let folder = folder(&[("weir.toml", config), ("profile.json", profile)]);
    let config = Config::load(&folder.path().join("weir.toml")).ok()?;
    Plan::compute(&config).ok()
}

/// A network for the service that is planned.
fn weights() -> Vec<u8> {
    let plan = plan(PLANNED.as_bytes(), &profile()).unwrap();
    let net = Net::new([LEARNED_INPUTS, 2, 2], [0.5; 18]).unwrap();
    let folder = folder(&[]);
    let path = folder.path().join("weights");
    write_weights(&plan.services[0], &net, &path).unwrap();
    std::fs::read(path).unwrap()
}

/// What is planned is what the checker derives, unless that takes it too long.
fn confirmed(plan: &Plan) -> Result<(), VerifyError> {
    match verify(&of_plan(plan).unwrap()) {
        Err(error) if error.derived.starts_with("not confirmed") => Ok(()),
        other => other.map(drop),
    }
}

#[test]
fn what_is_garbled_is_read_as_long_as_it_is_whole() {
    for config in SHIPPED {
        assert!(read(config.as_bytes(), Config::load).is_some());
    }
    assert!(read(MANIFEST.as_bytes(), Manifest::load).is_some());
    assert!(read(&profile(), Profile::load).is_some());
    confirmed(&plan(PLANNED.as_bytes(), &profile()).unwrap()).unwrap();
    assert!(read(TABLES.as_bytes(), |path| check_tables(path, 3)).is_some());
    assert!(read(&weights(), |path| check_weights(path, 2, 0)).is_some());
    assert!(read(TRACE.as_bytes(), Schedule::trace).is_some());
    assert!(inputs(PICTURES, LABELS).is_some());
}

/// Else the last of the tests below tests next to nothing.
#[test]
fn of_other_numbers_some_are_planned_and_some_refused() {
    let mut runner = TestRunner::deterministic();
    let mut planned = 0;
    for _ in 0..200 {
        let (config, profile) = renumbered().new_tree(&mut runner).unwrap().current();
        planned += usize::from(plan(&config, &profile).is_some());
    }
    assert!((20..180).contains(&planned), "{planned} of 200");
}

fn inputs(pictures: &[u8], labels: &[u8]) -> Option<Inputs> {
    let folder = folder(&[("pictures", pictures), ("labels", labels)]);
    let path = |name| -> PathBuf { folder.path().join(name) };
    Inputs::read(&path("pictures"), Some(&path("labels"))).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn configurations(file in garbled(one_of(SHIPPED))) {
        let Some(config) = read(&file, Config::load) else { return Ok(()) };
        prop_assert!(config.daemon.socket.as_os_str().len() <= 107);
        prop_assert!((1..=16).contains(&config.services.len()));
        for service in &config.services {
            prop_assert!(service.guard < service.deadline && service.deadline <= MAX_SPAN);
            prop_assert!(service.handover <= MAX_SPAN && service.jitter <= MAX_SPAN);
            prop_assert!((1..=MAX_WORKERS).contains(&service.workers));
            prop_assert!((1..=MAX_BATCH).contains(&service.max_batch));
            prop_assert!(service.batch.is_none_or(|batch| (1..=service.max_batch).contains(&batch)));
            prop_assert!((1..=1 << 16).contains(&service.queue) && service.reserved.len() <= service.streams);
        }
    }

    #[test]
    fn manifests(file in garbled(one_of(&[MANIFEST]))) {
        let Some(manifest) = read(&file, Manifest::load) else { return Ok(()) };
        for model in manifest.models() {
            // Where a manifest does not tell, nobody knows.
            prop_assert!(model.accuracy.is_nan() || (0.0..=1.0).contains(&model.accuracy));
            prop_assert_eq!(model.sha256.len(), 64);
            prop_assert!(manifest.model(&model.name).is_ok());
            for tensor in model.inputs.iter().chain(&model.outputs) {
                prop_assert!((1..=1 << 24).contains(&tensor.elements()), "{tensor:?}");
            }
        }
    }

    #[test]
    fn profiles(file in garbled(Just(profile()))) {
        let Some(profile) = read(&file, Profile::load) else { return Ok(()) };
        for entry in profile.entries() {
            prop_assert!((1..=MAX_BATCH).contains(&entry.batches.len()) && entry.bounds().is_sorted());
        }
        prop_assert_eq!(read(&serde_json::to_vec(&profile).unwrap(), Profile::load), Some(profile));
    }

    #[test]
    fn tables(file in garbled(one_of(&[TABLES]))) {
        read(&file, |path| check_tables(path, 3));
    }

    #[test]
    fn weights_of_networks(file in garbled(Just(weights()))) {
        if read(&file, |path| check_weights(path, 2, 0)).is_some() {
            let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
            prop_assert_eq!(json(&file), json(&weights()), "what is hashed is what is used");
        }
    }

    #[test]
    fn traces(file in garbled(one_of(&[TRACE]))) {
        let Some(schedule) = read(&file, Schedule::trace) else { return Ok(()) };
        prop_assert!(schedule.rate() > 0.0 && schedule.rate().is_finite(), "{}", schedule.rate());
        prop_assert!(schedule.instants().is_sorted());
    }

    #[test]
    fn pictures(pictures in garbled(Just(PICTURES.to_vec())), labels in garbled(Just(LABELS.to_vec()))) {
        for (pictures, labels) in [(&pictures[..], LABELS), (PICTURES, &labels), (&pictures, &labels)] {
            let Some(inputs) = inputs(pictures, labels) else { continue };
            let all = 0..inputs.count();
            prop_assert!(all.into_iter().all(|place| inputs.payload(place).len() == inputs.payload(0).len()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(50) })]

    #[test]
    fn what_is_planned_from_them_is_what_the_checker_derives(
        config in garbled(one_of(&[PLANNED])), profile in garbled(Just(profile())), other in renumbered()
    ) {
        let whole = (PLANNED.as_bytes(), &self::profile()[..]);
        for (config, profile) in [(&config[..], whole.1), (whole.0, &profile), (&other.0, &other.1)] {
            let said = plan(config, profile).map_or(Ok(()), |plan| confirmed(&plan));
            prop_assert!(said.is_ok(), "{said:?}");
        }
    }
}
