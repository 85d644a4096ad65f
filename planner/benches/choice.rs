//! What choosing batches costs and is worth: `cargo test --release -p planner --bench choice -- --nocapture` prints the tables.
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
/// The largest load: thousandths of what the stages could do at best.
const MOST: u64 = 1000;

/// A pipeline, and how its sources come.
struct Drawn {
    choices: Choices,
    burst: u64,
    /// Between sources where the stages do all that they can.
    period: f64,
}

impl Drawn {
    /// `P(b) = a + c·b` in microseconds, one worker or two, each result becomes up to three; a deadline of 3 to 12 times the shortest
    /// way; up to four sources at once.
    fn new(dice: &mut Dice, stages: u64) -> Self {
        let mut all: Vec<StageChoices> = Vec::new();
        for i in 0..stages {
            let (constant, each, workers) =
                (dice.within(500, 10_000), dice.within(100, 3_000), dice.within(1, 2));
            let times: Vec<_> =
                (1..=BATCHES as u64).map(|b| Span::from_micros(constant + each * b)).collect();
            let profile = LatencyProfile::new(&times).expect("rising");
            let workers = workers as usize;
            all.push(StageChoices {
                // A chain, now and then with a branch.
                parent: i
                    .checked_sub(1)
                    .map(|last| last.saturating_sub(u64::from(dice.within(0, 3) == 0)) as usize),
                fan_out: if i == 0 { 1 } else { dice.within(1, 3) as u32 },
                options: StageOption::of_profile(&profile, 1..=BATCHES, workers..=workers),
            });
        }
        let mut choices =
            Choices { deadline: Span::from_millis(1), guard: Span::ZERO, workers: None, stages: all };
        let (mut ways, mut period) = (Vec::<Span>::new(), 0f64);
        let descendants = choices.pipeline(&vec![0; stages as usize]).descendants().expect("few");
        for (stage, requests) in choices.stages.iter().zip(descendants) {
            ways.push(stage.parent.map_or(Span::ZERO, |parent| ways[parent]) + stage.options[0].time);
            let cost = |o: &StageOption| o.time.as_secs_f64() / (o.workers * o.batch) as f64;
            let least = stage.options.iter().map(cost).fold(f64::INFINITY, f64::min);
            period = period.max(least * requests as f64);
        }
        let shortest = ways.into_iter().max().expect("a stage").as_nanos();
        choices.deadline = Span::from_nanos(shortest * dice.within(3, 12));
        Self { choices, burst: dice.within(1, 4), period }
    }

    /// So many thousandths of what the stages can do at best; every source is to be answered.
    fn load(&self, thousandths: u64) -> Option<Vec<StreamSpec>> {
        let period = Span::from_nanos((self.period * 1e12 / thousandths as f64) as u64);
        let curve = ArrivalCurve::new(&[if std::env::var_os("BURST").is_some() {
            ArrivalBound::window(thousandths, self.choices.deadline).ok()?
        } else {
            ArrivalBound::token_bucket(self.burst, period).ok()?
        }])
        .ok()?;
        Some(vec![StreamSpec::promised(ConstraintSet::new(&[Constraint::row_miss(0).ok()?]).ok()?, curve)])
    }

    /// The largest load by a split of the deadline.
    fn split(&self, split: Split) -> u64 {
        let passes =
            |at| self.load(at).is_some_and(|streams| split.choose(&self.choices, &streams).is_some());
        let (mut yes, mut no) = (0, MOST + 1);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if passes(middle) { yes = middle } else { no = middle }
        }
        yes
    }
}

#[test]
fn choices() {
    let mut dice = Dice(48);
    for stages in [2, 3, 4, 6] {
        let (mut shares, mut longest) = (Vec::new(), Duration::ZERO);
        let mut redrawn = 0;
        while shares.len() < 12 {
            let drawn = Drawn::new(&mut dice, stages);
            let start = Instant::now();
            let Some((best, chosen)) = drawn.choices.largest(MOST, |at| drawn.load(at)).expect("in range")
            else {
                redrawn += 1;
                continue;
            };
            let mut took = start.elapsed();
            for _ in 0..4 {
                let start = Instant::now();
                std::hint::black_box(drawn.choices.largest(MOST, |at| drawn.load(at)).expect("in range"));
                took = took.min(start.elapsed());
            }
            longest = longest.max(took);
            assert!(chosen.proved);
            let share = |n: u64| n as f64 / best as f64;
            println!(
                "{stages} {best} {took:?} prop {:.2} free {:.2} {:?}",
                share(drawn.split(Split::Proportional)),
                share(drawn.split(Split::Free)),
                chosen.pipeline.stages.iter().map(|s| s.batch).collect::<Vec<_>>()
            );
            shares.push((share(drawn.split(Split::Proportional)), share(drawn.split(Split::Free))));
        }
        println!(
            "| {stages} | {redrawn} | {:.2} | {:.2} | {longest:?} |",
            shares.iter().map(|s| s.0).sum::<f64>() / 12.0,
            shares.iter().map(|s| s.1).sum::<f64>() / 12.0
        );
    }
}
