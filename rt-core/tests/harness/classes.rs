//! Classes of requests, as absurd as they may be: no promise knows of them.

use rt_core::{ClassWorth, Decay, MAX_WORTH, Request, Selector, Span};

use super::Dice;

/// The class of a request, also one that no service has.
pub(crate) fn class_of(token: u64) -> u8 {
    (token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as u8
}

/// The same selector for any classes at all.
pub(crate) fn classed(selector: Selector, deadline: u64, dice: &mut Dice) -> Selector {
    let variants = selector.variants().len();
    let worth = |dice: &mut Dice| match dice.within(0, 4) {
        0 => 0.0,
        1 => MAX_WORTH,
        _ => dice.within(0, 1000) as f64 / 1000.0,
    };
    let part = |dice: &mut Dice| dice.within(0, 100) as f64 / 100.0;
    let decay = |dice: &mut Dice| match dice.within(0, 3) {
        0 => Decay::Hard,
        1 => Decay::Linear { per_ms: part(dice), cutoff: 3.0 * part(dice) },
        2 => Decay::Step { part: part(dice), cutoff: 3.0 * part(dice) },
        _ => {
            let (late, left) = (part(dice), part(dice));
            Decay::Points(vec![(late, left), (late + part(dice), left * part(dice))])
        }
    };
    let class = |dice: &mut Dice| ClassWorth {
        worth: (0..variants).map(|_| worth(dice)).collect(),
        deadline: Span::from_nanos(dice.within(1, 2 * deadline)),
        decay: decay(dice),
    };
    let classes: Vec<_> = (0..dice.within(1, 16)).map(|_| class(dice)).collect();
    selector.for_classes(classes).expect("valid")
}

/// What the answers of a variant that takes `time` are worth to a batch that begins at `now`, by definition.
pub(crate) fn worth_of(
    classes: &[ClassWorth],
    variant: usize,
    batch: &[Request],
    (now, time): (u64, u64),
) -> f64 {
    let one = |request: &Request| {
        let class = classes.get(usize::from(request.class)).unwrap_or(&classes[0]);
        let end = now + time;
        if end > request.wanted.as_nanos() {
            return 0.0;
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let (took, deadline) = (ms(end - request.arrival.as_nanos()), ms(class.deadline.as_nanos()));
        class.worth[variant] * class.decay.part(took, deadline)
    };
    batch.iter().map(one).sum()
}
