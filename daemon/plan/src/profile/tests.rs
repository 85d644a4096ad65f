//! Tests of the profile file: what is written is read, and what contradicts itself is refused.

use std::fs;

use super::*;
use entry::LONGEST;
use group::Subject;
use group::tests::subject;
use rt_core::{Span, Stalls};
use weir_engine::{MAX_BATCH, RunMode};

/// Of times of which the longest is given, half of them half as long.
fn entry(model: &str, max_ns: &[u64], margin: f64) -> Entry {
    let series: Vec<Vec<u64>> = max_ns.iter().map(|&max| vec![max / 2, max / 2, max / 2, max]).collect();
    let count = series.len();
    let subject = Subject { engine: EngineKind::Tract, ..subject(model, &vec![1; count]) };
    let rule = Rule::new(1e-4, margin, false).unwrap();
    Entry::new(&subject, &vec![RunMode::Batched; count], (&series, &vec![false; count]), &rule, 1)
}

fn profile() -> Profile {
    let mut profile = Profile::new(Fingerprint::current());
    profile.put(entry("m", &[10, 20], DEFAULT_MARGIN));
    profile
}

fn parse(text: &str) -> Result<Profile, ProfileError> {
    Profile::parse(Path::new("x.profile.json"), text)
}

#[test]
fn bounds_have_the_margin_and_never_fall() {
    assert_eq!(entry("m", &[101, 50, 200], 0.10).bounds(), [112, 112, 220]);
    assert_eq!(entry("m", &[101, 50, 200], 0.0).bounds(), [101, 101, 200]);
    assert_eq!(entry("m", &[0, 0], 0.0).bounds(), [1, 1]);
}

#[test]
fn percentiles_are_nearest_ranks() {
    let series = [(1..=200).rev().collect(), vec![7]];
    let (subject, modes) = (subject("m", &[1, 1]), [RunMode::Batched, RunMode::Loop]);
    let rule = Rule::new(1e-4, 0.0, false).unwrap();
    let entry = Entry::new(&subject, &modes, (&series, &[true, false]), &rule, 3);
    let times = entry.batches.iter().map(|b| (b.samples, b.max_ns, b.bound_ns, b.stable));
    assert_eq!(times.collect::<Vec<_>>(), [(200, 200, 200, true), (1, 7, 200, false)]);
    let quantiles = entry.batches.iter().map(|b| [b.p50_ns, b.p90_ns, b.p95_ns, b.p99_ns, b.p999_ns]);
    assert_eq!(quantiles.collect::<Vec<_>>(), [[100, 180, 190, 198, 200], [7; 5]]);
    assert_eq!((entry.modes(), entry.workers), (modes.to_vec(), 3));
}

#[test]
fn at_least_as_many_runs_as_asked_for_end_within_the_likely_time() {
    for seed in 0..200 {
        let times = tail::tests::draws(seed, 1 + 7 * seed as usize, |u| (1e6 - 5e4 * u.ln()) as u64);
        let rule = Rule::new(1e-4, 0.1, false).unwrap();
        let series = [times.clone()];
        let entry = Entry::new(&subject("m", &[1]), &[RunMode::Loop], (&series, &[true]), &rule, 1);
        for probability in [0.5, 0.6, 0.9, 0.93, 0.95, 0.98, 0.99, 0.995, 0.999] {
            let likely = entry.times(probability, None)[0].likely.as_nanos();
            let within = times.iter().filter(|&&time| time <= likely).count();
            assert!(within as f64 >= probability * times.len() as f64, "{within} of {}", times.len());
        }
        assert!(entry.times(0.5, None)[0].likely < entry.times(0.99, None)[0].likely || times.len() < 10);
    }
}

#[test]
fn requests_that_are_run_one_by_one_do_not_seem_to_take_less_together() {
    let mean = |mode| {
        let (subject, rule) = (subject("m", &[1; 3]), Rule::new(1e-4, 0.1, false).unwrap());
        let series = [vec![900, 1_000, 1_100], vec![1_950; 3], vec![3_100; 3]];
        let entry = Entry::new(&subject, &[RunMode::Batched, mode, mode], (&series, &[true; 3]), &rule, 1);
        entry.times(0.9, None).iter().map(|time| time.mean.as_nanos()).collect::<Vec<_>>()
    };
    assert_eq!(mean(RunMode::Batched), [1_000, 1_950, 3_100]);
    assert_eq!(mean(RunMode::Loop), [1_000, 2_000, 3_100]);
}

#[test]
fn one_stall_in_a_thousand_raises_the_bound_and_nothing_that_is_expected() {
    let entry = |stall: u64| {
        let mut times = vec![10_000_000; 1001];
        times[500] = stall;
        let series = [times, vec![12_000_000; 1001]];
        let rule = Rule::new(1e-4, 0.1, false).unwrap();
        Entry::new(&subject("m", &[1, 1]), &[RunMode::Batched; 2], (&series, &[true; 2]), &rule, 1)
    };
    let (quiet, stalled) = (entry(10_000_000).times(0.999, None), entry(80_000_000).times(0.999, None));
    for (quiet, stalled) in quiet.iter().zip(&stalled) {
        assert!(quiet.bound.as_nanos() < 20_000_000 && stalled.bound.as_nanos() > 80_000_000);
        assert_eq!((quiet.likely, quiet.mean), (stalled.likely, stalled.mean));
    }
}

#[test]
fn what_is_expected_of_a_larger_batch_is_never_less() {
    let series: Vec<Vec<u64>> =
        [40, 30, 60].map(|ns| (0..100).map(|run| ns + if run < 60 { 0 } else { 20 }).collect()).into();
    let rule = Rule::new(1e-4, 0.0, false).unwrap();
    let entry = Entry::new(&subject("m", &[1; 3]), &[RunMode::Batched; 3], (&series, &[true; 3]), &rule, 1);
    let times = |probability| -> Vec<[u64; 3]> {
        let times = entry.times(probability, None).into_iter();
        times.map(|t| [t.bound.as_nanos(), t.likely.as_nanos(), t.mean.as_nanos()]).collect()
    };
    assert_eq!(times(0.5), [[60, 40, 48], [60, 40, 48], [80, 60, 68]]);
    assert_eq!(times(0.9), [[60, 60, 48], [60, 60, 48], [80, 80, 68]]);
    rt_core::LatencyProfile::expected(&entry.times(0.9, None)).unwrap();
}

#[test]
fn any_measured_times_give_valid_bounds() {
    for seed in 0..500 {
        let random = tail::tests::draws(seed, 40, |u| u as f32);
        let times: Vec<u64> = random[2..].iter().map(|x| (x * 1e9) as u64).collect();
        let count = 1 + (random[0] * 37.0) as usize;
        let entry = entry("m", &times[..count], f64::from(random[1]) * tail::MAX_MARGIN);
        entry.check().unwrap();
        assert!(entry.bounds().is_sorted() && entry.bounds().len() <= MAX_BATCH);
        assert!(entry.batches.iter().all(|times| times.bound_ns >= times.max_ns));
    }
}

#[test]
fn an_entry_with_a_tail_is_read_as_it_was_written() {
    for seed in 0..20 {
        let series = [tail::tests::draws(seed, 2000, |u| (1e6 - 5e4 * u.ln()) as u64)];
        let rule = Rule::new(1e-4, 0.1, false).unwrap();
        let entry = Entry::new(&subject("m", &[1]), &[RunMode::Loop], (&series, &[true]), &rule, 1);
        assert_eq!(entry.batches[0].basis, Basis::Tail);
        let mut profile = Profile::new(Fingerprint::current());
        profile.put(entry.clone());
        let read = parse(&serde_json::to_string(&profile).unwrap()).unwrap();
        assert_eq!(read.entries(), std::slice::from_ref(&entry));
        assert_eq!(read.entries()[0].digest(), entry.digest());
    }
}

#[test]
fn what_is_saved_is_loaded_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.profile.json");
    for _ in 0..2 {
        profile().save(&path).unwrap();
    }
    let loaded = Profile::load(&path).unwrap();
    assert_eq!(loaded.entries(), profile().entries());
    assert_eq!(loaded.fingerprint().differences(&Fingerprint::current()), Vec::<String>::new());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let nowhere = profile().save(&dir.path().join("no/box.profile.json")).unwrap_err();
    assert!(nowhere.to_string().contains("no/box.profile.json: cannot be written"));
    fs::create_dir(dir.path().join("folder")).unwrap();
    profile().save(&dir.path().join("folder")).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_entry_replaces_its_predecessor_only() {
    let mut profile = profile();
    profile.put(entry("a", &[5], 0.0));
    profile.put(entry("m", &[30], 0.0));
    assert_eq!(profile.entries(), [entry("a", &[5], 0.0), entry("m", &[30], 0.0)]);
}

#[test]
fn an_entry_is_found_by_model_engine_and_hash() {
    let profile = profile();
    assert_eq!(profile.entry("m", "aa", EngineKind::Tract).unwrap().bounds(), [11, 22]);
    assert_eq!(profile.entry("m", "aa", EngineKind::Tract).unwrap().modes(), [RunMode::Batched; 2]);
    let refused = |model, sha256, engine| profile.entry(model, sha256, engine).unwrap_err().to_string();
    assert_eq!(
        refused("n", "aa", EngineKind::Tract),
        "model n is not profiled on tract (there is: m on tract); run `weir profile FILE`"
    );
    assert!(refused("m", "aa", EngineKind::Simulated).contains("m is not profiled on simulated"));
    assert_eq!(
        refused("m", "bb", EngineKind::Tract),
        "model m: its file is bb, the profile on tract was measured on aa; run `weir profile FILE` anew"
    );
}

#[test]
fn what_is_added_takes_no_place_and_what_is_put_in_takes_all_of_its_model() {
    let other = |sha256: &str| Entry { sha256: sha256.to_owned(), ..entry("m", &[9], 0.0) };
    let mut profile = profile();
    let first = profile.entries()[0].clone();
    profile.add(other("bb"));
    profile.add(other("aa"));
    assert_eq!(profile.entries(), [first, other("bb")]);
    assert_eq!(profile.entry("m", "bb", EngineKind::Tract).unwrap().bounds(), [9]);
    assert!(profile.entry("m", "cc", EngineKind::Tract).unwrap_err().to_string().contains("anew"));
    profile.put(other("cc"));
    assert_eq!(profile.entries(), [other("cc")]);
}

#[test]
fn contradictions_in_a_file_are_refused() {
    let good = serde_json::to_string(&profile()).unwrap();
    parse(&good).unwrap();
    for (from, to, message) in [
        (
            "\"weir_profile\":4",
            "\"weir_profile\":3",
            "weir_profile is 3, this weir reads 4; run `weir profile",
        ),
        ("\"batch\":2", "\"batch\":3", "m on tract: batch 3 stands where 2 is needed"),
        ("\"bound_ns\":11", "\"bound_ns\":23", "batch 2: bound_ns is 22, at least 23 is needed"),
        ("\"bound_ns\":11", "\"bound_ns\":9", "batch 1: bound_ns is 9, at least max_ns = 10 is needed"),
        (
            "\"bound_ns\":11",
            "\"bound_ns\":-9",
            "entries[0].batches[0].bound_ns: must be a whole number of at least 0, not -9",
        ),
        ("\"p90_ns\":10", "\"p90_ns\":4", "batch 1: p50_ns to max_ns are [5, 4, 10,"),
        ("\"mean_ns\":6", "\"mean_ns\":11", "batch 1: mean_ns is 11, at most p99_ns = 10"),
        ("\"samples\":4", "\"samples\":0", "batch 1: samples is 0"),
        ("\"workers\":1", "\"workers\":0", "workers is 0"),
        ("\"basis\":\"few\"", "\"basis\":\"tail\"", "batch 1: basis is tail, but there is none"),
        ("\"exceedance\":0.0001", "\"exceedance\":0.5", "exceedance is 0.5"),
        ("\"margin\":0.1", "\"margin\":-0.1", "margin is -0.1"),
        ("\"margin\":0.1", "\"margin\":0.1,\"marge\":1", "unknown field `marge`"),
        ("\"engine\":\"tract\"", "\"engine\":\"tracked\"", "entries[0].engine: must be one of \"tract\""),
        ("{\"weir", "{{\"weir", "not a profile"),
    ] {
        assert!(good.contains(from), "{from} in {good}");
        let error = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("x.profile.json: ") && error.contains(message), "{error}");
    }
    let mut empty = profile();
    empty.entries[0].batches.clear();
    let error = parse(&serde_json::to_string(&empty).unwrap()).unwrap_err().to_string();
    assert!(error.contains("0 batch sizes are listed"), "{error}");
    let mut twice = profile();
    twice.entries.push(twice.entries[0].clone());
    let error = parse(&serde_json::to_string(&twice).unwrap()).unwrap_err().to_string();
    assert!(error.contains("m on tract: the entry is there twice"), "{error}");
}

/// One run of 29 ms among 1400 of which the longest other took 2 ms: with one stall declared in 10 s the bound is 2 ms and the
/// margin; with stalls of 20 ms it is the 9 ms that these leave; with a window that all runs fill eight times, all that is
/// known of was stalled.
#[test]
fn declared_stalls_are_left_out_of_the_bound() {
    let mut times = vec![1_400_000; 1400];
    (times[10], times[700]) = (2_000_000, 29_000_000);
    let subject = Subject { engine: EngineKind::Tract, ..subject("m", &[1]) };
    let rule = Rule::new(1e-4, 0.1, true).unwrap();
    let entry = Entry::new(&subject, &[RunMode::Batched], (&[times], &[true]), &rule, 1);
    let bound = |stalls: Option<(u32, u64, u64)>| {
        let stalls = stalls.map(|(count, window_ms, length_ms)| {
            Stalls::new(count, Span::from_millis(window_ms), Span::from_millis(length_ms)).unwrap()
        });
        entry.times(0.9, stalls)[0].bound.as_nanos()
    };
    assert_eq!(bound(None), 31_900_000);
    assert_eq!(bound(Some((1, 10_000, 30))), 2_200_000);
    assert_eq!(bound(Some((1, 10_000, 20))), 9_000_000);
    assert_eq!(bound(Some((1, 200, 30))), 1_540_000, "ten windows, eight times known: the least of them");
    let old =
        Entry { batches: vec![BatchTimes { longest_ns: [0; LONGEST], ..entry.batches[0] }], ..entry.clone() };
    let stalls = Stalls::new(1, Span::from_millis(10_000), Span::from_millis(30)).ok();
    assert_eq!(old.times(0.9, stalls)[0].bound.as_nanos(), 31_900_000, "nothing is known of the longest");
    let rising = [1, 2, 0, 0, 0, 0, 0, 0];
    let wrong = Entry { batches: vec![BatchTimes { longest_ns: rising, ..entry.batches[0] }], ..entry };
    assert!(wrong.check().unwrap_err().contains("longest_ns"));
}
