//! What Theorem P2 says of so many sources, and from where on more of them say nothing new.

use super::super::problem::Stream;
use super::super::theorem::{lcm, repetition};
use super::{PARTS, Pipeline, Stage, UNCONFIRMED, above};

/// The most requests that sources are followed as, of all stages together: so many that what is admitted is never too much.
const MAX_FOLLOWED: i128 = 1 << 24;

/// `f` of Theorem P2, of as many requests of each stage as have been asked for, or sources where some stage takes the results of
/// several or a source once.
///
/// Those that take whole rounds are looked at once: beyond them all is as for so many fewer, a number of batch times later. Of those
/// that take no more rounds than another the first says most, as least is left below.
pub(super) struct Terms<'a> {
    pipeline: &'a Pipeline,
    /// In nanoseconds, in half the room of those that are reckoned with.
    known: Vec<Vec<i64>>,
    whole: Vec<Whole>,
}

/// How many make whole rounds of a stage, how many rounds, and at which of them another round begins.
struct Whole {
    items: i128,
    rounds: i128,
    begins: Vec<i128>,
}

impl<'a> Terms<'a> {
    pub(super) fn new(pipeline: &'a Pipeline) -> Result<Self, String> {
        let whole = |stage: &Stage| {
            let round = stage.workers * stage.batch;
            if pipeline.is_tree() {
                return Some(Whole { items: round, rounds: 1, begins: vec![1] });
            }
            let items = whole_rounds(stage.descendants, round)?;
            let rounds = |x: i128| (x * stage.descendants + round - 1) / round;
            let begins = (1..=items).filter(|&x| rounds(x) > rounds(x - 1)).collect();
            Some(Whole { items, rounds: rounds(items), begins })
        };
        let whole: Option<_> = pipeline.stages.iter().map(whole).collect();
        let whole = whole.ok_or_else(|| format!("{UNCONFIRMED}: rounds without end"))?;
        Ok(Self { pipeline, known: vec![Vec::new(); pipeline.stages.len()], whole })
    }

    pub(super) fn latest(&mut self, sources: i128) -> Result<i128, String> {
        let (stages, tree) = (&self.pipeline.stages, self.pipeline.is_tree());
        let work = |(stage, whole): (&Stage, &Whole)| {
            sources * if tree { stage.descendants } else { whole.begins.len() as i128 }
        };
        let all: i128 = stages.iter().zip(&self.whole).map(work).sum();
        if all > MAX_FOLLOWED {
            return Err(format!("{UNCONFIRMED}: sources become more than {MAX_FOLLOWED} requests"));
        }
        for (i, stage) in stages.iter().enumerate().rev() {
            let (most, each) =
                if tree { (stage.descendants * sources, 1) } else { (sources, stage.descendants) };
            let Whole { items, rounds, begins } = &self.whole[i];
            for counted in self.known[i].len() as i128 + 1..=most {
                let below = |left: i128| {
                    let so_many = |c: usize| if tree { stages[c].fan_out * left } else { left };
                    self.pipeline
                        .children(i)
                        .map(|c| i128::from(self.known[c][so_many(c) as usize - 1]))
                        .max()
                        .unwrap_or(0)
                };
                let looked_at = begins.iter().take_while(|&&x| x <= counted);
                let first = looked_at.map(|x| self.pipeline.served(stage, x * each) + below(counted - x + 1));
                let more = (counted > *items)
                    .then(|| i128::from(self.known[i][(counted - items) as usize - 1]) + rounds * stage.time);
                let end = first.chain(more).max().unwrap_or(0);
                let end = i64::try_from(end).map_err(|_| format!("{UNCONFIRMED}: {end} ns are too many"))?;
                self.known[i].push(end);
            }
        }
        Ok(self.known[0][sources as usize - 1].into())
    }
}

/// The fewest sources, each of so many requests, that make whole rounds.
fn whole_rounds(requests: i128, round: i128) -> Option<i128> {
    lcm(requests, round).map(|all| all / requests)
}

/// From where on no rise says anything new.
pub(super) struct End {
    /// Beyond this length.
    over: Option<i128>,
    /// Beyond this length, once there are more sources than this.
    repeated: Option<(i128, i128)>,
}

impl End {
    /// *Over*: a path of `S` stages takes `f(Y) ≤ Σ (g + 2·P) + c·(Y + S)`, `c` being the most that a source costs a stage, and
    /// `Y` is at most a line.
    ///
    /// *Repeated*: in every `period` the sources grow by the same number `N`. Where more than `S·N` are counted, some stage of
    /// the path serves what more than `N` become; without these it is a path for `N` fewer, and shorter by no more than the
    /// `⌈N·M/(n·B)⌉` rounds that they are. If a period is as long, a rise a period earlier said as much.
    pub(super) fn new(pipeline: &Pipeline, promised: &[&Stream]) -> Self {
        let stages = &pipeline.stages;
        let (mut fixed, mut depth) = (Vec::<i128>::new(), Vec::<i128>::new());
        for stage in stages {
            fixed.push(above(stage, &fixed) + pipeline.guard + 2 * stage.time);
            depth.push(above(stage, &depth) + 1);
        }
        let [fixed, depth] = [fixed, depth].map(|list| list.into_iter().max().unwrap_or(0));
        let up = |a: i128, b: i128| (a + b - 1) / b;
        let round = |stage: &Stage| stage.workers * stage.batch;
        let cost = stages.iter().map(|s| up(s.time * s.descendants * PARTS, round(s))).max().unwrap_or(0);
        let (mut slope, mut most) = (0, depth);
        for stream in promised {
            let Some(slow) = stream.slowest() else { continue };
            slope += up(cost * stream.p * slow.count(), stream.q * slow.step);
            most += up(stream.p * slow.most(slow.step).0, stream.q) + 1;
        }
        let over = (slope < PARTS).then(|| (fixed * PARTS + cost * most) / (PARTS - slope) + 1);
        let repeated = repetition(promised.iter().copied(), 1).and_then(|(from, period)| {
            let gain: i128 = promised.iter().map(|s| s.p * s.growth(period) / s.q).sum();
            let whole = stages.iter().try_fold(1, |all, stage| lcm(all, round(stage)))?;
            let keeps_up = |&times: &i128| {
                let took = |s: &Stage| s.time * up(gain * times * s.descendants, round(s));
                stages.iter().all(|stage| took(stage) <= period * times)
            };
            let times = (0..20).map(|i| 1 << i).chain([whole]).find(keeps_up)?;
            Some((from + period * times, depth * gain * times))
        });
        Self { over, repeated }
    }

    pub(super) fn is_at(&self, length: i128, next: i128, sources: i128) -> bool {
        let repeated = |&(from, enough): &(i128, i128)| length > from && sources > enough;
        self.over.is_some_and(|over| next > over) || self.repeated.as_ref().is_some_and(repeated)
    }
}
