//! Pipelines at exactly full load, a little below and a little above: what is admitted the independent checker confirms.
//! `WEIR_EXHAUSTIVE=n` draws `n` times as many.

use planner::certificate::PipelineReason;
use planner::verify::verify;
use planner::{Certificate, PipelineClaim, PipelineProblem, Question, certify_pipeline};
use serde_json::{Value, json};

fn read(problem: &Value) -> PipelineProblem {
    match Question::parse(&problem.to_string()) {
        Ok(Question::Pipeline(problem)) => problem,
        other => panic!("{problem}: {other:?}"),
    }
}

fn confirmed(claim: PipelineClaim) -> Result<(), String> {
    verify(&Certificate::of_pipeline("weir", claim)).map(drop).map_err(|no| no.to_string())
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn within(&mut self, least: u64, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        least + self.0 % (most - least + 1)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Up to four stages, perhaps the last one a merge or a join; and what a source costs the busiest, as a fraction of a time.
fn stages(dice: &mut Dice, scale: u64) -> (Vec<Value>, (u64, u64)) {
    let (count, graph) = (dice.within(1, 3) as usize, dice.within(0, 2));
    let (mut stages, mut most, mut busiest) = (Vec::<Value>::new(), Vec::<u64>::new(), (0, 1));
    for i in 0..count + usize::from(graph < 2) {
        let (workers, batch) = (dice.within(1, 2), dice.within(1, 3));
        let time = dice.within(1, 9) * scale + dice.within(0, 1);
        let fan_out = if i == 0 { 1 } else { dice.within(1, 3) };
        let mut stage = json!({"name": format!("s{i}"), "workers": workers, "batch": batch, "time": time});
        let all = match i {
            0 => 1,
            _ if i < count => {
                let parent = dice.within(0, i as u64 - 1) as usize;
                stage["parent"] = json!(format!("s{parent}"));
                stage["fan_out"] = json!(fan_out);
                most[parent] * fan_out
            }
            _ => {
                stage["parents"] = json!((0..i).map(|parent| format!("s{parent}")).collect::<Vec<_>>());
                stage["join"] = json!(graph == 0);
                stage[if graph == 0 { "requests" } else { "fan_out" }] = json!(fan_out);
                if graph == 0 { fan_out } else { most.iter().sum::<u64>() * fan_out }
            }
        };
        let cost = (time * all, workers * batch);
        if cost.0 * busiest.1 > busiest.0 * cost.1 {
            busiest = cost;
        }
        most.push(all);
        stages.push(stage);
    }
    (stages, busiest)
}

/// `p` of `q` of `count` sources in any `length` must be answered.
type Stream = (u64, u64, u64, u64);

/// Streams of which the busiest stage is full, up to three: all in step, or of lengths that have little in common.
fn streams(dice: &mut Dice, (time, round): (u64, u64)) -> Option<Vec<Stream>> {
    let mut all = Vec::new();
    // What is left of the capacity, in sources a time.
    let (mut left, mut over) = (round, time);
    for _ in 0..dice.within(0, 2) {
        let q = dice.within(1, 4);
        let p = dice.within(1, q);
        let length = (dice.within(2, 5) * time / round + dice.within(0, 3)).max(1);
        let (take, of) = (p * over, q * length);
        if take >= left * of {
            break;
        }
        (left, over) = (left * of - take, over * of);
        let common = gcd(left, over);
        (left, over) = (left / common, over / common);
        all.push((p, q, 1, length));
    }
    // The last has just what is left: `p·count/(q·length) = left/over`.
    let q = dice.within(1, 4);
    let p = dice.within(1, q);
    let (numerator, denominator) = (left * q, over * p);
    let common = gcd(numerator, denominator);
    let (count, length) = (numerator / common, denominator / common);
    all.push((p, q, count, length));
    (count <= 4096 && length <= 3_600_000).then_some(all)
}

/// Full to the last is admitted only if the checker can follow, whatever the lengths have in common; more is never.
#[test]
fn what_is_admitted_at_capacity_is_confirmed_and_what_is_beyond_it_is_neither() {
    let wanted = 15 * crate::naive::effort() as usize;
    let mut dice = Dice(17);
    let (mut full, mut refused, mut further, mut drawn) = ([0; 3], 0, 0, 0);
    while drawn < wanted {
        let (unit, scale) = [("us", 1), ("ms", 1), ("ms", 700)][drawn % 3];
        let (stages, busiest) = stages(&mut dice, scale);
        let Some(streams) = streams(&mut dice, busiest) else { continue };
        drawn += 1;
        // At capacity, a little below it, and a little above.
        for (which, shift) in [0_i64, 1, -1].into_iter().enumerate() {
            let last = streams.len() - 1;
            let told = streams.iter().enumerate().map(|(i, &(p, q, count, length))| {
                let length = length as i64 + if i == last { shift } else { 0 };
                json!({
                    "name": format!("c{i}"),
                    "constraints": [format!("any_miss({},{q})", q - p)],
                    "arrivals": {"windows": [[count, length]]},
                })
            });
            let told: Vec<_> = told.collect();
            if told[last]["arrivals"]["windows"][0][1].as_i64() < Some(1) {
                continue;
            }
            let mut problem =
                json!({"unit": unit, "deadline": 3_600_000, "pipeline": stages, "streams": told});
            let claim = certify_pipeline(&read(&problem));
            if let Some(bound) = claim.bound.filter(|_| claim.admissible) {
                full[which] += 1;
                assert!(shift >= 0, "more than the stages can do is admitted: {problem}");
                confirmed(claim).unwrap_or_else(|no| panic!("admitted and not confirmed: {no}: {problem}"));
                problem["deadline"] = json!(bound);
                confirmed(certify_pipeline(&read(&problem))).expect("the bound is a deadline");
                continue;
            }
            // Of a refusal the checker derives nothing, unless it looks further than the test; of what is too much it never does.
            let forged =
                PipelineClaim { admissible: true, reason: None, rule: PipelineReason::TheoremP2, ..claim };
            let no = confirmed(forged).expect_err("it states no bound");
            let underived = no.contains("admissible is true, derived: ");
            assert!(shift >= 0 || underived, "more than the stages can do: {no}: {problem}");
            refused += 1;
            further += usize::from(!underived);
        }
    }
    println!(
        "{full:?} admitted at capacity, below and above; {refused} refused, {further} of them derived by the checker"
    );
    assert!(full[0] * 2 >= wanted && full[1] * 2 >= wanted && refused >= wanted, "{full:?} {refused}");
}
