//! Levels of a promise: whether of a weaker one no more requests must be served than of the first, rise by rise.

use super::problem::{Bound, Stream, streams};
use super::theorem::repetition;
use super::{MAX_STEPS, UNCONFIRMED, VerifyError, same, wrong};
use crate::problem::raw::{self, Unit};

/// Every level of every stream has at most as many mandatory requests as its first promise, in intervals of any length, and asks for no
/// larger share than the one before it: then what holds with the first promises holds with any level of each.
pub(super) fn check(list: &[raw::Stream], unit: Unit) -> Result<(), VerifyError> {
    for stream in list.iter().filter(|stream| !stream.degraded.is_empty()) {
        let level = |level: &raw::Level| raw::Stream {
            name: stream.name.clone(),
            constraints: level.constraints.clone(),
            arrivals: Some(level.arrivals.clone()),
            degraded: Vec::new(),
        };
        let first = raw::Stream { degraded: Vec::new(), ..stream.clone() };
        let all: Vec<_> = std::iter::once(first).chain(stream.degraded.iter().map(level)).collect();
        let all = streams("streams.degraded", &all, unit)?;
        for pair in all.windows(2) {
            let weaker = pair[1].p > 0 && pair[1].p * pair[0].q <= pair[0].p * pair[1].q;
            same("problem.streams.degraded", &weaker, &true)?;
        }
        for (number, level) in (1..).zip(&all[1..]) {
            let held = is_within(level, &all[0]);
            let at = || format!("problem.streams.degraded of {}, level {number}", stream.name);
            held.map_err(|reason| wrong(at(), "more that must be served", reason))?;
        }
    }
    Ok(())
}

/// There are none where promises do not change: among several services, in pipelines, without background, and where constraints absorb
/// stalls.
pub(super) fn absent<'a>(streams: impl IntoIterator<Item = &'a raw::Stream>) -> Result<(), VerifyError> {
    let any = streams.into_iter().any(|stream| !stream.degraded.is_empty());
    same("problem.streams.degraded, where there can be none,", &any, &false)
}

/// Whether of `level` no more must be served than of `first`: as each bound of the first is above one of it, or looked at wherever it
/// rises, until both repeat.
fn is_within(level: &Stream, first: &Stream) -> Result<(), String> {
    if first.bounds.iter().all(|above| level.bounds.iter().any(|own| is_below(level, own, first, above))) {
        return Ok(());
    }
    let unconfirmed = || format!("{UNCONFIRMED}: it does not repeat within {MAX_STEPS} rises");
    let (from, period) = repetition([level, first], 1).ok_or_else(unconfirmed)?;
    let gain = |stream: &Stream| stream.p * stream.growth(period) / stream.q;
    if gain(level) > gain(first) {
        return Err(format!("{} of it in {period} ns, {} of the first", gain(level), gain(first)));
    }
    let mut length = 1;
    for _ in 0..MAX_STEPS {
        let (own, most) = (level.mandatory(length), first.mandatory(length));
        if own > most {
            return Err(format!("{own} of it in {length} ns, {most} of the first"));
        }
        if length > from + period {
            return Ok(());
        }
        length = level.rise(length);
    }
    Err(unconfirmed())
}

/// Whether of requests within `own` no more must be served at the level than of those within `above` at the first, by one look: with
/// `of / per` times as many at the level. Not said of all of which it is so.
fn is_below(level: &Stream, own: &Bound, first: &Stream, above: &Bound) -> bool {
    let (of, per) = (first.p * level.q, first.q * level.p);
    // In a row of windows no more come than in each of them.
    if above.shift == 0 && above.starts.len() == 1 && own.most(above.step).0 * per <= above.count() * of {
        return true;
    }
    // Of periods that are no shorter, with no more jitter, `ceil(c·x) <= c·ceil(x)` for a whole `c`, and `ceil(ceil(x) / k) = ceil(x / k)`.
    let periodic = |bound: &Bound| bound.starts.len() == 1 && bound.count() == 1;
    periodic(own)
        && periodic(above)
        && own.step * of >= above.step * per
        && (own.shift <= above.shift && (of % per == 0 || level.q % level.p == 0)
            || (own.shift + own.step) * above.step * per <= above.shift * of * own.step)
}
