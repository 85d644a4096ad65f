//! Pipelines that are drawn or small enough to reckon with, and sources as they may come to them.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{StreamId, StreamSpec};

use super::{Line, config};
use crate::harness::Dice;
use crate::oracle::pipeline::{Pipeline, Stage};
use crate::oracle::{Bound, Stream};
use crate::shared;

/// Within what time every mandatory source is answered.
pub(crate) fn bound(small: &Pipeline, streams: &[StreamSpec]) -> Option<u64> {
    let pipeline = config(small, 1_000_000, 1).pipeline();
    let admission = pipeline.admit(streams).ok()?;
    Some(admission.bound.as_nanos())
}

/// How a small pipeline is drawn.
pub(crate) type Draw = fn(&mut Dice, u8) -> Pipeline;

/// Two of five pipelines have a merge or a join.
pub(crate) fn tree_or_graph(seed: u64) -> Draw {
    if seed % 5 > 2 { Pipeline::draw_graph } else { Pipeline::draw }
}

/// A small tree, what its stream declares, and the least deadline that is admitted.
pub(crate) fn drawn(dice: &mut Dice, late: u8) -> (Pipeline, StreamSpec, u64) {
    drawn_by(Pipeline::draw, dice, late)
}

/// The same of a small pipeline that is drawn so.
pub(crate) fn drawn_by(draw: Draw, dice: &mut Dice, late: u8) -> (Pipeline, StreamSpec, u64) {
    loop {
        let small = draw(dice, late);
        let spec = shared::spec(&small.stream);
        // Deadlines that no source could meet are refused with the configuration.
        if let Some(bound) = bound(&small, std::slice::from_ref(&spec)) {
            return (small, spec, bound);
        }
    }
}

/// Sources as they may come within the declaration, most of them in bursts.
pub(crate) struct Bursts {
    window: (u64, u64),
    recent: Vec<u64>,
}

impl Bursts {
    pub(crate) fn of(stream: &Stream) -> Self {
        let Bound::Window { count, length } = stream.bounds[0] else { panic!("a window") };
        Self { window: (count.into(), length.into()), recent: Vec::new() }
    }

    /// How many come now.
    pub(crate) fn next(&mut self, now: u64, dice: &mut Dice, eager: u64) -> u64 {
        let (count, length) = self.window;
        self.recent.retain(|&came| now - came < length);
        let room = count - self.recent.len() as u64;
        let come = if dice.within(0, 9) < eager {
            room
        } else {
            dice.within(0, 2 * room) / 2 * (dice.within(0, 3) / 3)
        };
        self.recent.extend(std::iter::repeat_n(now, come as usize));
        come
    }
}

/// Each of those who are `there` sends what comes of it now; then, seldom, one of them begins anew or leaves.
pub(crate) fn send_and_change(
    line: &mut Line,
    there: &mut Vec<(StreamId, Bursts)>,
    (now, seldom): (u64, u64),
    dice: &mut Dice,
) {
    for (id, bursts) in &mut *there {
        (0..bursts.next(now, dice, 8)).for_each(|_| _ = line.arrive(*id));
    }
    if !there.is_empty() && dice.within(0, seldom) == 0 {
        let which = dice.within(0, there.len() as u64 - 1) as usize;
        if dice.within(0, 1) == 0 {
            there[which].0 = line.restart(there[which].0);
        } else {
            line.remove(there.swap_remove(which).0);
        }
    }
}

/// Times and fan-outs of a run: mostly the longest and the most.
pub(crate) fn harshly(line: &mut Line, seed: u64) {
    let dice = Rc::new(RefCell::new(Dice(seed)));
    let other = Rc::clone(&dice);
    line.time = Box::new(move |_, bound| {
        let mut dice = dice.borrow_mut();
        match dice.within(0, 5) {
            0 => 1,
            1 => dice.within(1, bound),
            _ => bound,
        }
    });
    line.became = Box::new(move |_, most| {
        let mut dice = other.borrow_mut();
        if dice.within(0, 5) == 0 { dice.within(0, u64::from(most)) as u32 } else { most }
    });
}

/// Two stages, of so many workers and of one: 3 ns and 2 ns; a source becomes up to two requests.
pub(crate) fn two_stages(deadline: u64, workers: usize) -> Line {
    let stage =
        |parents, fan_out, workers, time| Stage { parents, join: false, fan_out, workers, batch: 1, time };
    let stream = Stream { bounds: vec![Bound::Window { count: 1, length: 10 }], constraints: vec![(0, 1)] };
    let small =
        Pipeline { stages: vec![stage(vec![], 1, workers, 3), stage(vec![0], 2, 1, 2)], stream, late: 0 };
    let mut line = Line::new(config(&small, deadline, 20));
    line.became = Box::new(|_, most| most);
    line
}

pub(crate) fn one_in(length: u8) -> StreamSpec {
    shared::spec(&Stream { bounds: vec![Bound::Window { count: 1, length }], constraints: vec![(0, 1)] })
}

/// A stage of 1 ns, two behind it of 2 and 3 ns, and a last one of 1 ns that takes what these have, or each source when they are done
/// with it; a source becomes one request at each but `requests` at a join. One worker each.
pub(crate) fn two_ways(deadline: u64, join: bool, requests: u8) -> Line {
    let stage = |parents, time| Stage { parents, join: false, fan_out: 1, workers: 1, batch: 1, time };
    let stream = Stream { bounds: vec![Bound::Window { count: 1, length: 10 }], constraints: vec![(0, 1)] };
    let last = Stage { join, fan_out: requests, ..stage(vec![1, 2], 1) };
    let stages = vec![stage(vec![], 1), stage(vec![0], 2), stage(vec![0], 3), last];
    let mut line = Line::new(config(&Pipeline { stages, stream, late: 0 }, deadline, 20));
    line.became = Box::new(|_, most| most);
    line
}
