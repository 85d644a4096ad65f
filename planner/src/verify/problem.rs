//! A problem as the checker reads it: times in nanoseconds, curves as patterns that repeat.

use super::{VerifyError, same, wrong};
use crate::number::Number;
use crate::problem::raw::{self, Arrivals, Dispatch, Problem, Unit};

const HOUR: i128 = 3_600_000_000_000;
/// The most requests or workers that one number may stand for: all products fit 128 bits.
pub(super) const MANY: i128 = 1 << 16;

#[derive(Clone)]
pub(super) struct System {
    pub(super) latency: i128,
    /// What is kept back of the deadline, stalls included.
    pub(super) guard: i128,
    /// The window of stalls, and the length of one.
    pub(super) stalls: Option<(i128, i128)>,
    /// What constraints absorb of them.
    pub(super) absorbed: Option<Absorbed>,
    pub(super) full_or_latest: bool,
    pub(super) background: bool,
    pub(super) kinds: Vec<Kind>,
    pub(super) streams: Vec<Stream>,
}

/// So many stalls in a window, for each of which requests may be missed so long after it began.
#[derive(Clone, Copy)]
pub(super) struct Absorbed {
    pub(super) count: i128,
    pub(super) recovery: i128,
}

#[derive(Clone)]
pub(super) struct Kind {
    pub(super) count: i128,
    /// `P(1) ≤ … ≤ P(B)`.
    pub(super) times: Vec<i128>,
}

/// With density `p/q`, 0/1 for best effort; without bounds if it declares nothing.
#[derive(Clone)]
pub(super) struct Stream {
    pub(super) name: String,
    /// `(m, K)` of each constraint.
    pub(super) constraints: Vec<(i128, i128)>,
    pub(super) p: i128,
    pub(super) q: i128,
    pub(super) bounds: Vec<Bound>,
}

/// In every `step`, requests at these offsets (the first is 0), so many at each; seen from `shift` on.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) step: i128,
    pub(super) shift: i128,
    pub(super) starts: Vec<(i128, i128)>,
}

impl Bound {
    /// `α(length)`, for lengths from 1, and the next length with a larger one.
    pub(super) fn most(&self, length: i128) -> (i128, i128) {
        let last = length - 1 + self.shift;
        let (whole, rest) = (last / self.step, last % self.step);
        let rise = self.starts.iter().map(|start| start.0).find(|&at| at > rest).unwrap_or(self.step);
        let most = self.starts.iter().map(|&(at, count)| count * (whole + i128::from(at <= rest))).sum();
        (most, length + rise - rest)
    }

    /// The least length that holds more than so many.
    pub(super) fn least_above(&self, most: i128) -> i128 {
        let (whole, mut rest) = (most / self.count(), most % self.count());
        let start = self.starts.iter().find(|start| {
            rest -= start.1;
            rest < 0
        });
        (whole * self.step + start.map_or(0, |start| start.0) - self.shift + 1).max(1)
    }

    /// From when on one more may come after those `sent`.
    ///
    /// With a `shift` it is one a `step`, and `regular` when it would come had none come sooner than that. Without,
    /// who keeps the offsets and the `step` keeps all their sums.
    pub(super) fn earliest(&self, sent: &[i128], regular: i128) -> i128 {
        if self.shift > 0 {
            return regular - self.shift;
        }
        let (mut before, mut earliest) = (0, 0);
        for (i, &(_, count)) in self.starts.iter().enumerate() {
            before += count as usize;
            let apart = self.starts.get(i + 1).map_or(self.step, |next| next.0);
            earliest =
                sent.len().checked_sub(before).map_or(earliest, |first| earliest.max(sent[first] + apart));
        }
        earliest
    }

    /// So many thousandths times as fast: lengths rounded down, jitter in proportion and up.
    pub(super) fn hasten(&mut self, thousandths: i128) -> Option<()> {
        let shorter = |t: i128| (t * 1000).checked_div(thousandths);
        let step = shorter(self.step).filter(|&step| step > 0)?;
        (self.shift, self.step) = (up(self.shift * step, self.step), step);
        self.starts.iter_mut().try_for_each(|start| shorter(start.0).map(|at| start.0 = at))
    }

    /// By how much `α` grows in each `step`, from any length on.
    pub(super) fn count(&self) -> i128 {
        self.starts.iter().map(|start| start.1).sum()
    }
}

impl Stream {
    /// `α(length)`, the least of all bounds.
    pub(super) fn most(&self, length: i128) -> Option<i128> {
        self.bounds.iter().map(|b| b.most(length).0).min()
    }

    /// `ceil(ρ·α(length))`.
    pub(super) fn mandatory(&self, length: i128) -> i128 {
        up(self.p * self.most(length).unwrap_or(0), self.q)
    }
}

impl System {
    pub(super) fn read(problem: &Problem) -> Result<Self, VerifyError> {
        let (unit, mut kinds) = (problem.unit, Vec::new());
        let span = |field: &str, number, least| span(field, number, least, unit);
        for w in &problem.workers {
            let times = times("workers", w.batch, (w.time, w.times.as_deref()), unit)?;
            same("problem.workers", &(1..=MANY).contains(&(w.count as i128)), &true)?;
            kinds.push(Kind { count: w.count as i128, times });
        }
        same("problem.workers", &kinds.is_empty(), &false)?;
        let streams = streams("streams", &problem.streams, unit)?;
        let (deadline, mut guard) =
            (span("deadline", problem.deadline, 1)?, span("guard", problem.guard, 0)?);
        let (mut stalls, mut absorbed) = (None, None);
        if let Some(s) = &problem.stalls {
            let (window, length) = (span("stalls.window", s.window, 1)?, span("stalls.length", s.length, 1)?);
            stalls = Some((window, length));
            let count = i128::from(s.count);
            match s.recovery {
                None => guard += count * length,
                Some(recovery) => {
                    absorbed = Some(Absorbed { count, recovery: span("stalls.recovery", recovery, 1)? });
                }
            }
        }
        let (background, full_or_latest) = (problem.background, problem.dispatch == Dispatch::FullOrLatest);
        let latency = deadline - guard;
        let mut system =
            Self { latency, guard, stalls, absorbed, full_or_latest, background, kinds, streams };
        // Of a refusal it may be that one leaves no room; then it is what it asks for by itself.
        for (stream, dense) in system.dense().into_iter().enumerate() {
            system.streams[stream] = dense.unwrap_or_else(|| system.streams[stream].clone());
        }
        Ok(system)
    }

    /// The streams with the share that must be served for each constraint to be kept: with `c` requests of a stream in
    /// a deadline and a recovery less 1 ns, and `u` missed of `ceil(p·c/q)`, it is the largest `(K - m + count·u)/K`. `None` if that is
    /// more than all of them.
    pub(super) fn dense(&self) -> Vec<Option<Stream>> {
        let Some(Absorbed { count, recovery }) = self.absorbed else {
            return self.streams.iter().cloned().map(Some).collect();
        };
        let length = self.latency + self.guard + recovery - 1;
        let dense = |stream: &Stream| {
            let (mut stream, come) = (stream.clone(), stream.most(length).unwrap_or(0));
            let mut missed = 0;
            loop {
                (stream.p, stream.q) = (0, 1);
                for &(m, k) in &stream.constraints {
                    let p = k - m + count * missed;
                    if p > k {
                        return None;
                    }
                    (stream.p, stream.q) =
                        if p * stream.q > stream.p * k { (p, k) } else { (stream.p, stream.q) };
                }
                let more = up(stream.p * come, stream.q);
                if more <= missed {
                    return Some(stream);
                }
                missed = more;
            }
        };
        self.streams.iter().map(dense).collect()
    }
}

/// A time of at least so many nanoseconds.
pub(super) fn span(field: &str, number: Number, least: i128, unit: Unit) -> Result<i128, VerifyError> {
    let inside = time(number, unit).filter(|t| (least..=HOUR).contains(t));
    inside.ok_or_else(|| wrong(format!("problem.{field}"), number, format!("{least} ns to an hour, whole")))
}

/// `P(1) ≤ … ≤ P(batch)`, from one time for all or one for each.
pub(super) fn times(
    field: &str,
    batch: usize,
    (one, each): (Option<Number>, Option<&[Number]>),
    unit: Unit,
) -> Result<Vec<i128>, VerifyError> {
    if let (Some(time), Some(_)) = (one, each) {
        return Err(wrong(format!("problem.{field}.time"), time, "absent, as there are times"));
    }
    let all = each.map(<[_]>::to_vec).or_else(|| Some(vec![one?; batch.min(MANY as usize)]));
    let time = |&t: &Number| span(&format!("{field}.time"), t, 1, unit);
    let times = all.unwrap_or_default().iter().map(time).collect::<Result<Vec<_>, _>>()?;
    let times: Vec<i128> = times.into_iter().take(batch).collect();
    same(format!("problem.{field}"), &(times.len() == batch && batch > 0 && times.is_sorted()), &true)?;
    Ok(times)
}

pub(super) fn streams(field: &str, list: &[raw::Stream], unit: Unit) -> Result<Vec<Stream>, VerifyError> {
    let mut streams = Vec::new();
    for stream in list {
        let (mut p, mut q, mut constraints) = (0, 1, Vec::new());
        for text in &stream.constraints {
            let no = || wrong(format!("problem.{field}.constraints"), text, "no constraint");
            let share = share(text).ok_or_else(no)?;
            (p, q) = if share.0 * q > p * share.1 { share } else { (p, q) };
            constraints.push((share.1 - share.0, share.1));
        }
        let bounds = stream.arrivals.as_ref().map_or(Ok(Vec::new()), |a| bounds(a, unit))?;
        let absent = stream.arrivals.is_none() && p == 0;
        same(format!("problem.{field}.arrivals"), &bounds.is_empty(), &absent)?;
        streams.push(Stream { name: stream.name.clone(), constraints, p, q, bounds });
    }
    Ok(streams)
}

fn bounds(arrivals: &Arrivals, unit: Unit) -> Result<Vec<Bound>, VerifyError> {
    let span = |field: &str, number, least| span(field, number, least, unit);
    let window = |&(count, length): &(u64, Number)| Ok((i128::from(count), span("windows", length, 1)?, 0));
    let mut steps = arrivals.windows.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    for periodic in &arrivals.periodic {
        steps.push((1, span("period", periodic.period, 1)?, span("jitter", periodic.jitter, 0)?));
        periodic
            .distance
            .map_or(Ok(()), |least| span("distance", least, 1).map(|d| steps.push((1, d, 0))))?;
    }
    if let Some(bucket) = arrivals.token_bucket {
        let (burst, period) = (i128::from(bucket.burst), span("token_bucket.period", bucket.period, 1)?);
        same("problem.token_bucket.burst", &(1..=MANY).contains(&burst), &true)?;
        steps.push((1, period, (burst - 1) * period));
    }
    let stated = arrivals.distances.iter().flatten().map(|&d| span("distances", d, 0));
    let mut lists = vec![stated.collect::<Result<Vec<_>, _>>()?];
    let trace: Option<Vec<_>> = arrivals.trace.iter().flatten().map(|&t| time(t, unit)).collect();
    let trace =
        trace.filter(|t| t.is_sorted()).ok_or_else(|| wrong("problem.trace", "a list", "times in order"))?;
    // The least time from a request to the i-th after it; up to 64, or the first that is an hour.
    let apart =
        |i: usize| trace.iter().zip(&trace[i..]).map(|(a, b)| (b - a).min(HOUR)).min().unwrap_or(HOUR);
    let mut least: Vec<_> = (1..trace.len().min(65)).map(apart).collect();
    least.truncate(least.iter().position(|&d| d == HOUR).map_or(64, |last| last + 1));
    // Where a part of the list has a lower rate than all of it, it counts as a window too.
    let slowest = (1..).zip(&least).reduce(|a, b| if b.1 * a.0 >= a.1 * b.0 { b } else { a });
    steps.extend(slowest.filter(|s| s.0 < least.len() as i128).map(|(count, &length)| (count, length, 0)));
    lists.push(least);
    let mut all = Vec::new();
    for (count, step, shift) in steps {
        same("problem.streams.arrivals", &(step > 0 && (1..=MANY).contains(&count)), &true)?;
        all.push(Bound { step, shift, starts: vec![(0, count)] });
    }
    for mut list in lists {
        same("problem.streams.arrivals", &list.is_sorted(), &true)?;
        // Who keeps two distances keeps their sum.
        for last in 1..list.len() {
            list[last] = (0..last).map(|i| list[i] + list[last - 1 - i]).fold(list[last], i128::max);
        }
        let Some((&step, before)) = list.split_last() else { continue };
        same("problem.streams.arrivals", &(step > 0), &true)?;
        all.push(Bound { step, shift: 0, starts: [0].iter().chain(before).map(|&d| (d, 1)).collect() });
    }
    Ok(all)
}

/// Whole nanoseconds, read from the decimal itself.
pub(super) fn time(number: Number, unit: Unit) -> Option<i128> {
    let digits = [Unit::Ns, Unit::Us, Unit::Ms, Unit::S].iter().position(|&u| u == unit)? * 3;
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let plain = (whole.to_owned() + part).bytes().all(|b| b.is_ascii_digit()) && part.len() <= digits;
    format!("{whole}{part:0<digits$}").parse().ok().filter(|t| plain && *t < 1 << 64)
}

/// `(K - m, K)` of a constraint.
fn share(text: &str) -> Option<(i128, i128)> {
    let (name, list) = text.trim().strip_suffix(')')?.split_once('(')?;
    let numbers = list.split(',').map(|n| n.trim().parse::<u16>().ok().map(i128::from));
    let (m, k) = match (name.trim(), numbers.collect::<Option<Vec<_>>>()?.as_slice()) {
        ("any_miss", &[m, k]) => (m, k),
        ("any_hit", &[h, k]) => (k - h, k),
        ("row_miss", &[m]) => (m, m + 1),
        ("row_hit", &[h, k]) if h > 0 => (k / h - 1, k),
        _ => return None,
    };
    (0..k).contains(&m).then_some((k - m, k))
}

/// `ceil(a / b)` for `a` from 0, `b` from 1.
pub(super) fn up(a: i128, b: i128) -> i128 {
    (a + b - 1) / b
}
