//! Tests of what is said of a machine: which runs it disturbed, and what is left of them.

use super::*;
use crate::profile::group::tests::subject;
use crate::profile::{Basis, Entry, Rule};
use rt_core::Stalls;
use weir_engine::RunMode;

const STOLEN: Cause = Cause::Stolen;

fn set(causes: &[Cause]) -> Causes {
    causes.to_vec().into()
}

/// Runs of 1.4 ms, of which some, ending at so many milliseconds, took so many milliseconds for such causes.
fn runs(count: usize, longer: &[(usize, u64, u64, &[Cause])]) -> Runs {
    let mut runs = Runs { times: vec![1_400_000; count], disturbed: Vec::new() };
    for &(run, at, ms, causes) in longer {
        runs.times[run] = ms * 1_000_000;
        if !causes.is_empty() {
            runs.disturbed.push(Disturbance { run, at_ns: at * 1_000_000, causes: set(causes) });
        }
    }
    runs
}

fn entry(runs: &[Runs]) -> Entry {
    let count = runs.len();
    let rule = Rule::new(1e-4, 0.1, false).unwrap();
    let subject = subject("m", &vec![1; count]);
    Entry::of_runs(&subject, &vec![RunMode::Batched; count], (runs, &vec![true; count]), &rule, 1)
}

#[test]
fn causes_are_written_by_name_and_read_again() {
    let causes = set(&[Cause::Paged, STOLEN]);
    let text = serde_json::to_string(&causes).unwrap();
    assert_eq!(text, "[\"stolen\",\"paged\"]");
    assert_eq!(serde_json::from_str::<Causes>(&text).unwrap(), causes);
    assert_eq!(causes.to_string(), "stolen by the host, paged in from disk");
    assert_eq!(Causes::default().to_string(), "nothing that the kernel counts");
    serde_json::from_str::<Causes>("[\"moon\"]").unwrap_err();
}

#[test]
fn a_run_is_disturbed_by_what_took_a_hundredth_of_it() {
    let mut watch = Watch::new(None, None, 2);
    let before = Counts { waited_ns: 500, minor_faults: 10, khz: Some(3_000_000), ..Counts::default() };
    let mut causes = |more: fn(&mut Counts)| {
        let mut after = before;
        more(&mut after);
        watch.causes(2, before, after, Span::from_millis(1))
    };
    assert_eq!(causes(|_| {}), Causes::default());
    assert_eq!(causes(|after| after.waited_ns += 9_999), Causes::default());
    assert_eq!(causes(|after| after.waited_ns += 10_000), set(&[Cause::Waited]));
    assert_eq!(causes(|after| after.switches += 1), Causes::default(), "it is known how long that was");
    assert_eq!(causes(|after| after.stolen_ns += 10_000_000), set(&[STOLEN]));
    assert_eq!(causes(|after| after.major_faults += 1), set(&[Cause::Paged]));
    assert_eq!(causes(|after| after.minor_faults += 9), Causes::default());
    assert_eq!(causes(|after| after.minor_faults += 10), set(&[Cause::Mapped]));
    assert_eq!(causes(|after| after.khz = Some(2_700_000)), Causes::default());
    assert_eq!(causes(|after| after.khz = Some(2_699_999)), set(&[Cause::Slowed]));
    // What every run maps is what the model takes.
    let mut watch = Watch::new(None, None, 1);
    let maps = |pages: u64| Counts { minor_faults: 10 + pages, ..before };
    assert_eq!(watch.causes(1, before, maps(100), Span::from_millis(1)), Causes::default());
    assert_eq!(watch.causes(1, before, maps(109), Span::from_millis(1)), Causes::default());
    // Without a count of waiting, being taken off the core counts.
    let none = Counts::default();
    let off = Counts { switches: 1, ..none };
    assert_eq!(watch.causes(1, none, off, Span::from_millis(1)), set(&[Cause::Waited]));
}

/// One stall of 29 ms in 14 097 batches of 1.4 ms: the bound covers it, and what the model takes is said beside it. What is
/// declared then lets the bound be that.
#[test]
fn one_stall_is_in_the_bound_and_what_the_model_takes_beside_it() {
    let runs = [runs(14_097, &[(77, 9_000, 2, &[]), (7_000, 12_000, 29, &[STOLEN])])];
    let entry = entry(&runs);
    let times = entry.batches[0];
    assert_eq!((times.basis, times.bound_ns, times.max_ns), (Basis::Few, 31_900_000, 29_000_000));
    let machine = times.machine.unwrap();
    assert_eq!((machine.disturbed, machine.stolen, machine.waited), (1, 1, 0));
    assert_eq!(machine.longest_calm_ns, 2_000_000);
    assert_eq!(machine.longest[..3], [set(&[STOLEN]), Causes::default(), Causes::default()]);
    let stalls = entry.stalls.unwrap();
    assert_eq!((stalls.count, stalls.longest_ns), (1, 29_000_000 - 2_200_000));
    assert!((19_000_000_000..20_000_000_000).contains(&stalls.closest_ns), "{stalls:?}");
    let of = |window, length| {
        let stalls = Stalls::new(1, Span::from_millis(window), Span::from_millis(length)).unwrap();
        entry.times(0.9, Some(stalls))[0].bound
    };
    assert_eq!(of(10_000, 30), Span::from_nanos(2_200_000));
    // However often stalls may come, what nothing disturbed is not taken for one.
    assert_eq!(of(100, 30), Span::from_nanos(2_200_000));
    assert_eq!(of(10_000, 20), Span::from_nanos(9_000_000));
    let read: Entry = serde_json::from_str(&serde_json::to_string(&entry).unwrap()).unwrap();
    assert_eq!(read, entry);
}

/// A profile that was written before machines were watched is read as ever, and its digest, which certificates hold, stays.
#[test]
fn an_entry_that_nobody_watched_says_nothing_of_the_machine() {
    let watched = entry(&[runs(100, &[(5, 1, 29, &[STOLEN])])]);
    let mut plain = watched;
    (plain.stalls, plain.batches[0].machine) = (None, None);
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("machine") && !text.contains("stalls"), "{text}");
    assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), plain);
}

#[test]
fn stalls_of_all_batch_sizes_are_told_apart_by_when_they_ended() {
    let one = runs(100, &[(10, 1_000, 29, &[STOLEN]), (50, 5_000, 12, &[STOLEN]), (51, 5_100, 1, &[STOLEN])]);
    // The first of these ran beside the first of the others, and ended a little later.
    let two = runs(100, &[(10, 1_002, 25, &[STOLEN, Cause::Waited]), (60, 3_500, 15, &[Cause::Paged])]);
    let stalls = SeenStalls::of(&[one, two], 0.0, 1).unwrap();
    let expected = SeenStalls { count: 3, longest_ns: 27_600_000, closest_ns: 1_500_000_000 };
    assert_eq!(stalls, expected);
    // Long runs that nothing disturbed are no stalls, and a run that is all there is tells nothing of others.
    assert_eq!(SeenStalls::of(&[runs(100, &[(10, 1_000, 29, &[])])], 0.0, 1), None);
    assert_eq!(SeenStalls::of(&[runs(1, &[(0, 1_000, 29, &[STOLEN])])], 0.0, 1), None);
}

/// What a batch of 4 once took is nothing that batches of 1 to 3 need, nor do its stalls say anything of theirs.
#[test]
fn an_outlier_of_a_larger_batch_raises_no_smaller_one() {
    let quiet = || runs(1_000, &[]);
    let with = entry(&[quiet(), quiet(), quiet(), runs(1_000, &[(9, 20, 29, &[STOLEN])])]);
    let without = entry(&[quiet(), quiet(), quiet(), quiet()]);
    assert_eq!(with.batches[..3], without.batches[..3]);
    assert_eq!(with.bounds()[..3], [1_540_000; 3]);
    assert_eq!((with.bounds()[3], without.bounds()[3]), (31_900_000, 1_540_000));
}
