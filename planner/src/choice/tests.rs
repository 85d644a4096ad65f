//! Every choice tried: what is chosen passes at the load that is said, and none passes at one more.

use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet};

use super::*;

/// Numbers that differ and are always the same.
struct Dice(u64);

impl Dice {
    fn within(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (x ^ (x >> 31)) % (most - least + 1)
    }
}

fn ns(n: u64) -> Span {
    Span::from_nanos(n)
}

/// A tree of so many stages, with so many sizes of batches and numbers of workers.
fn drawn(dice: &mut Dice, stages: u64, batches: usize, workers: usize) -> Choices {
    let stage = |i: u64, dice: &mut Dice| {
        let (constant, each, own) = (dice.within(1, 30), dice.within(1, 12), dice.within(1, 2) as usize);
        let times: Vec<_> = (1..=batches as u64).map(|b| ns(constant + each * b)).collect();
        let profile = LatencyProfile::new(&times).expect("rising");
        let least = if workers == 1 { own } else { 1 };
        StageChoices {
            parents: i.checked_sub(1).map(|last| dice.within(last.saturating_sub(1), last) as usize).into(),
            fan_out: if i == 0 { 1 } else { dice.within(1, 3) as u32 },
            options: StageOption::of_profile(&profile, 1..=batches, least..=least.max(workers)),
        }
    };
    let stages: Vec<_> = (0..stages).map(|i| stage(i, dice)).collect();
    let guard = ns(dice.within(0, 2) * dice.within(0, 5));
    let mut choices = Choices { deadline: ns(1), guard, stalls: None, workers: None, stages };
    let alone = choices.pipeline(&vec![0; choices.stages.len()]);
    let shortest: u64 = alone.stages.iter().map(|s| (s.time + guard).as_nanos()).sum();
    choices.deadline = ns(shortest * dice.within(3, 12));
    choices
}

/// One or two streams that send faster the larger the number.
fn load(dice: &mut Dice) -> impl Fn(u64) -> Option<Vec<StreamSpec>> + use<> {
    let streams: Vec<_> = (0..dice.within(1, 2))
        .map(|_| {
            let m = dice.within(0, 2);
            let constraints = [format!("any_miss({m},3)").parse().expect("a constraint")];
            (
                dice.within(1, 3),
                dice.within(500, 2000),
                dice.within(0, 1),
                ConstraintSet::new(&constraints).expect("one"),
            )
        })
        .collect();
    move |scale| {
        let stream = |(burst, period, kind, constraints): &(u64, u64, u64, ConstraintSet)| {
            let period = ns(period * 20 / scale);
            let bound = if *kind == 0 {
                ArrivalBound::window(*burst, period).ok()?
            } else {
                ArrivalBound::token_bucket(*burst, period).ok()?
            };
            Some(StreamSpec::promised(constraints.clone(), ArrivalCurve::new(&[bound]).ok()?))
        };
        streams.iter().map(stream).collect()
    }
}

/// All choices within the workers.
fn all(choices: &Choices) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for stage in &choices.stages {
        let one = |before: &Vec<usize>| {
            let before = before.clone();
            (0..stage.options.len())
                .map(move |o| before.iter().copied().chain([o]).collect())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(one).collect();
    }
    all.retain(|options| workers(choices, options) <= choices.workers.unwrap_or(usize::MAX));
    all
}

fn workers(choices: &Choices, options: &[usize]) -> usize {
    choices.pipeline(options).stages.iter().map(|stage| stage.workers).sum()
}

const MOST: u64 = 3000;

fn is_the_best_of_all(choices: &Choices, load: impl Fn(u64) -> Option<Vec<StreamSpec>>) -> bool {
    let chosen = choices.largest(MOST, &load).expect("in range");
    let passes = |at: u64, options: &[usize]| {
        load(at).is_some_and(|streams| choices.pipeline(options).admit(&streams).is_ok())
    };
    let every = all(choices);
    let Some((at, chosen)) = chosen else {
        assert!(!every.iter().any(|options| passes(1, options)), "{choices:?}");
        return false;
    };
    assert_eq!(choices.pipeline(&chosen.options), chosen.pipeline);
    assert!(chosen.proved && passes(at, &chosen.options), "{choices:?}");
    for options in &every {
        assert!(at == MOST || !passes(at + 1, options), "{options:?} passes at {at} + 1: {choices:?}");
        let fewer =
            choices.workers.is_some() && workers(choices, options) < workers(choices, &chosen.options);
        assert!(!fewer || !passes(at, options), "{options:?} has fewer workers at {at}: {choices:?}");
    }
    let Some(streams) = load(at / 2 + 1) else { return true };
    let least = choices.least(&streams).expect("in range").expect("the one above");
    let bound = |options: &[usize]| {
        let endless = Pipeline { deadline: MAX_SPAN, ..choices.pipeline(options) };
        endless.admit(&streams).map(|admission| admission.bound)
    };
    let best = every.iter().filter_map(|options| bound(options).ok()).min();
    assert_eq!((bound(&least.options).ok(), least.proved), (best, true), "{choices:?}");
    true
}

#[test]
fn no_choice_of_batches_lets_more_come() {
    let (mut dice, mut some) = (Dice(1), 0);
    for i in 0..60 {
        let (stages, load) = (2 + i % 2, load(&mut dice));
        some += usize::from(is_the_best_of_all(&drawn(&mut dice, stages, 5, 1), load));
    }
    assert!(some >= 40, "{some}");
}

#[test]
fn no_choice_of_batches_and_workers_lets_more_come() {
    let (mut dice, mut some) = (Dice(2), 0);
    for i in 0..30 {
        let (stages, load) = (2 + i % 2, load(&mut dice));
        let mut choices = drawn(&mut dice, stages, 3, 3);
        choices.workers = Some(dice.within(stages, 3 * stages) as usize);
        some += usize::from(is_the_best_of_all(&choices, load));
    }
    assert!(some >= 20, "{some}");
}

/// As `drawn`, of which the last stage takes the results of two, or each source once.
fn graph(dice: &mut Dice, stages: u64, batches: usize, workers: usize) -> Choices {
    let mut choices = drawn(dice, stages, batches, workers);
    let last = stages as usize - 1;
    let parents = [dice.within(0, last as u64 - 2) as usize, last - 1];
    choices.stages[last].parents =
        if dice.within(0, 1) == 0 { Parents::each(parents) } else { Parents::join(parents) };
    choices
}

#[test]
fn no_choice_lets_more_come_through_merges_and_joins() {
    let (mut dice, mut some) = (Dice(3), 0);
    for i in 0..40 {
        let load = load(&mut dice);
        let mut choices = graph(&mut dice, 3 + i % 2, 4, 1 + i as usize % 2);
        choices.workers = (i % 2 > 0).then(|| dice.within(4, 8) as usize);
        some += usize::from(is_the_best_of_all(&choices, load));
    }
    assert!(some >= 25, "{some}");
}

/// Of too many to try them all what is chosen passes, no change of one stage lets more come, and nobody calls it the best.
#[test]
fn of_many_choices_through_a_merge_or_join_none_is_said_to_be_the_best() {
    let (mut dice, mut some) = (Dice(4), 0);
    for _ in 0..6 {
        let (load, choices) = (load(&mut dice), graph(&mut dice, 5, 6, 1));
        let Some((at, chosen)) = choices.largest(MOST, &load).expect("in range") else { continue };
        let passes = |at: u64, options: &[usize]| {
            load(at).is_some_and(|streams| choices.pipeline(options).admit(&streams).is_ok())
        };
        assert!(!chosen.proved && passes(at, &chosen.options));
        for (i, stage) in choices.stages.iter().enumerate() {
            for option in 0..stage.options.len() {
                let mut other = chosen.options.clone();
                other[i] = option;
                assert!(at == MOST || !passes(at + 1, &other), "{other:?} passes at {at} + 1: {choices:?}");
            }
        }
        let streams = load(at).expect("it passes");
        let least = choices.least(&streams).expect("in range").expect("one passes");
        assert!(!least.proved && least.pipeline.admit(&streams).is_ok());
        some += 1;
    }
    assert!(some >= 4, "{some}");
}
