//! Several services on the same workers, small ones exhausted: what Theorems E and T admit is kept whatever an adversary
//! does. `WEIR_EXHAUSTIVE=n` looks at `n` instances of each.

mod harness;
mod oracle;

use harness::Dice;
use oracle::Stream;
use oracle::sharing::{Service, Shared};
use oracle::theory::{arrivals_within, density};
use oracle::{Bound, Stream as Declared};
use rt_core::sharing::{Rule, SharedAdmission, SharedService, Sharing, SharingError};
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Span, StreamSpec};

/// States that the judge looks at.
const LIMIT: usize = 150_000;

fn instances(default: usize) -> usize {
    std::env::var("WEIR_EXHAUSTIVE").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn ns(n: u8) -> Span {
    Span::from_nanos(u64::from(n))
}

fn spec(stream: &Declared) -> StreamSpec {
    let bound = |bound: &Bound| match bound {
        Bound::Window { count, length } => ArrivalBound::window(u64::from(*count), ns(*length)),
        other => panic!("{other:?}: windows alone are drawn"),
    };
    let bounds: Vec<_> = stream.bounds.iter().map(|b| bound(b).expect("valid")).collect();
    let of = |&(m, k): &(u8, u8)| Constraint::any_miss(m.into(), k.into()).expect("valid");
    let constraints: Vec<_> = stream.constraints.iter().map(of).collect();
    StreamSpec::promised(
        ConstraintSet::new(&constraints).expect("few"),
        ArrivalCurve::new(&bounds).expect("few"),
    )
}

/// What admission says.
fn admission(shared: &Shared) -> Result<SharedAdmission, SharingError> {
    let service = |s: &Service| SharedService {
        latency: ns(s.deadline - shared.late),
        batch: s.batch,
        time: ns(s.time),
        turn: s.turn.into(),
    };
    let sharing = Sharing {
        workers: shared.workers,
        guard: ns(shared.late),
        longest: ns(shared.longest),
        rule: if shared.turns { Rule::Turns } else { Rule::Earliest },
        services: shared.services.iter().map(service).collect(),
    };
    let specs: Vec<Vec<_>> = shared.services.iter().map(|s| s.streams.iter().map(spec).collect()).collect();
    let streams: Vec<&[StreamSpec]> = specs.iter().map(Vec::as_slice).collect();
    sharing.admit(&streams)
}

fn small(dice: &mut Dice, low: u64, high: u64) -> u8 {
    dice.within(low, high) as u8
}

/// One to three services near what the workers can do, so that neither answer is a foregone conclusion.
fn draw(dice: &mut Dice, turns: bool, late: u8) -> Shared {
    loop {
        let workers = dice.within(1, 2) as usize;
        let stream = |dice: &mut Dice| {
            let k = 1 + small(dice, 0, 3) / 3;
            let bounds = vec![Bound::Window { count: small(dice, 1, 3), length: small(dice, 2, 10) }];
            Stream { bounds, constraints: vec![(small(dice, 0, u64::from(k) - 1), k)] }
        };
        let service = |dice: &mut Dice| {
            let time = small(dice, 1, 3);
            Service {
                streams: (0..1 + dice.within(0, 7) / 7).map(|_| stream(dice)).collect(),
                batch: dice.within(1, 3) as usize,
                time,
                deadline: time + late + small(dice, 2, 10),
                turn: small(dice, 1, 2),
            }
        };
        let services: Vec<_> = (0..2 + dice.within(0, 4) / 4).map(|_| service(dice)).collect();
        let mandatory = |s: &Service, length: u64| -> u64 {
            let of = |stream: &Stream| {
                let (served, of) = density(&stream.constraints);
                (arrivals_within(stream, length) * u64::from(served)).div_ceil(u64::from(of))
            };
            s.streams.iter().map(of).sum()
        };
        let load = |s: &Service| mandatory(s, 240) * u64::from(s.time) * 100 / s.batch as u64;
        let load = services.iter().map(load).sum::<u64>() / (240 * workers as u64);
        let crowd = services.iter().map(|s| mandatory(s, u64::from(s.deadline))).max().unwrap_or(0);
        let longest = services.iter().map(|s| s.time).max().unwrap_or(1);
        if (35..=95).contains(&load) && crowd <= 6 && services.iter().all(|s| s.deadline >= longest + s.time)
        {
            return Shared { services, workers, longest, turns, late, overrun: 0 };
        }
    }
}

/// Never a yes that some behaviour breaks. Returns how many of a hundred that are true are admitted.
fn never_a_wrong_yes(turns: bool, late: u8, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let (mut yes, mut truly, mut broken, mut too_large) = (0, 0, 0, 0);
    let count = instances(if late == 0 { 120 } else { 50 });
    for _ in 0..count {
        let shared = draw(&mut dice, turns, late);
        let admitted = admission(&shared).is_ok();
        match shared.judge(LIMIT) {
            Ok(_) => {
                truly += 1;
                yes += usize::from(admitted);
            }
            Err(None) => too_large += 1,
            Err(Some(moves)) => {
                assert!(!admitted, "admitted, yet one misses: {shared:?}: {moves:?}");
                broken += 1;
            }
        }
    }
    println!(
        "turns {turns}, late {late}: {yes} admitted of {truly} that hold, {broken} break, {too_large} of {count} too large"
    );
    assert!(truly * 5 > count && broken * 5 > count, "one answer is too rare to say anything");
    assert!(too_large * 4 < count, "too many searches were cut short");
    yes * 100 / truly
}

#[test]
fn by_earliest_deadline_no_yes_is_wrong() {
    let share = never_a_wrong_yes(false, 0, 1);
    assert!(share >= 70, "{share} % of what holds is admitted");
}

#[test]
fn by_turns_no_yes_is_wrong() {
    let share = never_a_wrong_yes(true, 0, 2);
    assert!(share >= 60, "{share} % of what holds is admitted");
}

#[test]
fn late_dispatch_within_the_guard_breaks_nothing() {
    never_a_wrong_yes(false, 1, 3);
    never_a_wrong_yes(true, 2, 4);
}

/// What the tightest line leaves is what one batch may take longer.
#[test]
fn an_overrun_within_the_margin_harms_nobody() {
    for turns in [false, true] {
        let mut dice = Dice(5);
        let (mut looked, mut too_large) = (0, 0);
        while looked < instances(25) {
            let shared = draw(&mut dice, turns, 0);
            let margin = admission(&shared).ok().and_then(|a| a.binding).map_or(0, |b| b.margin());
            if margin < 1 {
                continue;
            }
            looked += 1;
            let shared = Shared { overrun: margin.min(4) as u8, ..shared };
            match shared.judge(LIMIT) {
                Ok(_) => {}
                Err(None) => too_large += 1,
                Err(Some(moves)) => panic!("an overrun of {margin} breaks {shared:?}: {moves:?}"),
            }
        }
        assert!(too_large * 2 < looked, "{too_large} of {looked} searches were cut short");
    }
}
