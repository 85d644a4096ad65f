//! What choosing the batches of a pipeline costs and is worth: `cargo test --release -p planner --bench choice -- --nocapture`
//! prints the tables of `docs/validation.md`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use planner::choice::{Choices, Split, StageChoices, StageOption};
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, LatencyProfile, Span, StreamSpec};

/// Numbers that differ and are always the same (SplitMix64).
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

const BATCHES: usize = 16;
/// Of each number of stages.
const PIPELINES: usize = 12;

/// How much of the sources is to be the largest.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    /// How many may come in any time as long as the deadline, all at once if they like.
    Count,
    /// How fast they may come one by one behind a burst of up to four, in thousandths of what the stages could do at best.
    Rate,
}

/// A pipeline, and how its sources come.
struct Drawn {
    choices: Choices,
    burst: u64,
    /// From a source to the next where the stages do all that they can, in nanoseconds.
    period: f64,
}

impl Drawn {
    /// `P(b) = a + c·b` for `b` of 1 to 16, one worker or two, results that become up to three; a chain, now and then with a
    /// branch; a deadline of 3 to 12 times the longest way of a source alone.
    fn new(dice: &mut Dice, stages: u64) -> Self {
        let stage = |i: u64, dice: &mut Dice| {
            let (constant, each) = (dice.within(500, 10_000), dice.within(100, 3_000));
            let times: Vec<_> =
                (1..=BATCHES as u64).map(|b| Span::from_micros(constant + each * b)).collect();
            let profile = LatencyProfile::new(&times).expect("rising");
            let workers = dice.within(1, 2) as usize;
            let back = u64::from(dice.within(0, 3) == 0);
            StageChoices {
                parents: i.checked_sub(1).map(|last| last.saturating_sub(back) as usize).into(),
                fan_out: if i == 0 { 1 } else { dice.within(1, 3) as u32 },
                options: StageOption::of_profile(&profile, 1..=BATCHES, workers..=workers),
            }
        };
        let stages: Vec<_> = (0..stages).map(|i| stage(i, dice)).collect();
        let mut choices = Choices {
            deadline: Span::from_millis(1),
            guard: Span::ZERO,
            stalls: None,
            workers: None,
            stages,
        };
        let alone = choices.pipeline(&vec![0; choices.stages.len()]);
        let (mut ways, mut period) = (Vec::<Span>::new(), 0f64);
        for (stage, requests) in choices.stages.iter().zip(alone.descendants().expect("few")) {
            ways.push(stage.parents.most(&ways) + stage.options[0].time);
            let cost = |o: &StageOption| o.time.as_nanos() as f64 / (o.workers * o.batch) as f64;
            let least = stage.options.iter().map(cost).fold(f64::INFINITY, f64::min);
            period = period.max(least * requests as f64);
        }
        let longest = ways.into_iter().max().expect("a stage").as_nanos();
        choices.deadline = Span::from_nanos(longest * dice.within(3, 12));
        Self { choices, burst: dice.within(1, 4), period }
    }

    /// Every source is to be answered.
    fn load(&self, ask: Ask, much: u64) -> Option<Vec<StreamSpec>> {
        let bound = match ask {
            Ask::Count => ArrivalBound::window(much, self.choices.deadline),
            Ask::Rate => {
                let period = Span::from_nanos((self.period * 1000.0 / much as f64) as u64);
                ArrivalBound::token_bucket(self.burst, period)
            }
        };
        let constraints = ConstraintSet::new(&[Constraint::row_miss(0).ok()?]).ok()?;
        Some(vec![StreamSpec::promised(constraints, ArrivalCurve::new(&[bound.ok()?]).ok()?)])
    }

    /// The most that a split of the deadline promises.
    fn split(&self, split: Split, ask: Ask) -> u64 {
        let passes = |much| {
            self.load(ask, much).is_some_and(|streams| split.choose(&self.choices, &streams).is_some())
        };
        let (mut yes, mut no) = (0, MOST + 1);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if passes(middle) { yes = middle } else { no = middle }
        }
        yes
    }
}

/// As many sources, or thousandths.
const MOST: u64 = 1000;

/// The shortest of five runs, for other work on the machine only ever makes them longer.
fn time<T>(mut run: impl FnMut() -> T) -> Duration {
    let one = || {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed()
    };
    std::iter::repeat_with(one).take(5).min().expect("five")
}

#[test]
fn choices() {
    for ask in [Ask::Count, Ask::Rate] {
        println!(
            "| stages | proportional | best split | Theorem P1 | exact | exact to proportional | none by proportional | longest search |"
        );
        println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
        let mut dice = Dice(48);
        for stages in [2, 3, 4, 6] {
            let (mut shares, mut longest, mut none) = ([0.0; 3], Duration::ZERO, 0);
            let mut drawn = 0;
            while drawn < PIPELINES {
                let one = Drawn::new(&mut dice, stages);
                let search = || one.choices.largest(MOST, |much| one.load(ask, much)).expect("in range");
                // Not even a single source, or so slow ones, is answered in time by any choice.
                let Some((best, chosen)) = search() else { continue };
                assert!(chosen.proved, "{:?}", one.choices);
                drawn += 1;
                longest = longest.max(time(search));
                let splits =
                    [Split::Proportional, Split::Free, Split::BySource].map(|split| one.split(split, ask));
                assert!(splits.iter().all(|&much| much <= best), "{splits:?} {best} {:?}", one.choices);
                none += usize::from(splits[0] == 0);
                for (share, much) in shares.iter_mut().zip(splits) {
                    *share += much as f64 / best as f64 / PIPELINES as f64;
                }
            }
            let [proportional, free, by_source] = shares;
            println!(
                "| {stages} | {proportional:.2} | {free:.2} | {by_source:.2} | 1 | {:.1} | {none} of {PIPELINES} | {:.1} ms |",
                1.0 / proportional,
                longest.as_secs_f64() * 1e3
            );
            let aim = if stages == 2 { 1.5 } else { 3.0 };
            assert!(ask == Ask::Rate || stages == 3 || proportional * aim <= 1.0, "the aim is {aim}");
        }
    }
}

/// More pipelines of six stages: as they are, and with twelve workers to be shared out.
#[test]
fn six_stages() {
    println!("| 6 stages, 16 batches | pipelines | median | longest |");
    println!("|---|---:|---:|---:|");
    for (what, count, workers) in [("workers as stated", 48, None), ("12 workers to share out", 12, Some(12))]
    {
        let (mut dice, mut times) = (Dice(6), Vec::new());
        while times.len() < count {
            let mut one = Drawn::new(&mut dice, 6);
            one.choices.workers = workers;
            for stage in one.choices.stages.iter_mut().filter(|_| workers.is_some()) {
                let with = |o: &StageOption| {
                    (1..=7).map(|workers| StageOption { workers, ..*o }).collect::<Vec<_>>()
                };
                stage.options = stage.options.iter().flat_map(with).collect();
            }
            let search = || one.choices.largest(MOST, |much| one.load(Ask::Count, much)).expect("in range");
            let start = Instant::now();
            let found = search();
            if let Some((_, chosen)) = found {
                assert!(chosen.proved, "{:?}", one.choices);
                times.push(if start.elapsed() < Duration::from_millis(20) {
                    start.elapsed()
                } else {
                    time(search)
                });
            }
        }
        times.sort_unstable();
        let ms = |t: Duration| format!("{:.1} ms", t.as_secs_f64() * 1e3);
        println!("| {what} | {count} | {} | {} |", ms(times[count / 2]), ms(times[count - 1]));
    }
}
