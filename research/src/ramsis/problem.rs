//! The decision problem of one worker: what may be done in each state, what it is worth, and where it leads.

use super::RamsisError;
use super::arrivals::{Arrivals, Clock};
use super::fresh::{Ages, Block};
use super::grid::Grid;
use super::left::{During, Left, RARE, Remainder, Taken};
use super::phases::Phases;
use super::poisson::{CUT, Rules};
use super::rows::{Layout, Rows};
use super::spec::{Batching, Flavour, Spec};
use super::work::Work;

/// A queue with its slack, as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// No request waits.
    Empty,
    /// So many requests wait, at least 1; the slack of the oldest is in the interval with this number, 0 being that
    /// of the latest.
    Queue {
        /// How many.
        n: usize,
        /// Which interval.
        bin: usize,
    },
    /// More requests wait than are told apart.
    Full,
}

/// What a worker does: a batch of the oldest `batch` ≥ 1 requests on the model with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// Index into [`Spec::models`]; [`Action::DROP`] if the oldest request is dropped instead.
    pub model: u16,
    /// How many requests.
    pub batch: u16,
}

impl Action {
    /// Stands for no model: the batch is dropped.
    pub const DROP: u16 = u16::MAX;
}

/// An action in a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) action: Action,
    /// What it is worth in this flavour.
    pub(super) reward: f64,
    /// Whether the oldest request of the batch keeps its deadline.
    pub(super) on_time: bool,
    pub(super) next: Next,
    /// How many requests find the queue full meanwhile, on average: at most, for round robin.
    pub(super) lost: f64,
}

/// Where an action leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// The whole queue was taken: the rows of this block.
    Fresh(u32),
    /// Part of it was left.
    Left(Remainder),
    /// The probabilities are in this row.
    Row(u32),
    /// One request waits, just come, after the worker was idle.
    Lone,
}

/// The decision problem for one load.
pub struct Problem {
    pub(super) spec: Spec,
    pub(super) hash: String,
    pub(super) grid: Grid,
    pub(super) layout: Layout,
    pub(super) phases: Phases,
    pub(super) blocks: Vec<Block>,
    pub(super) rows: Rows,
    pub(super) left: Left,
    /// Next states of choices that share them with no other.
    pub(super) own: Rows,
    /// What may be done, state by state, and where each state's part ends.
    pub(super) choices: Vec<Choice>,
    pub(super) ends: Vec<u32>,
    error: f64,
}

impl Problem {
    /// The problem of one worker to which requests come as `arrivals` says.
    ///
    /// # Errors
    /// [`RamsisError::Value`] for the first input that is outside its range.
    pub fn new(spec: &Spec, arrivals: &dyn Arrivals) -> Result<Self, RamsisError> {
        spec.check(arrivals)?;
        let grid = Grid::new(spec);
        let layout = Layout { queue: spec.queue, bins: grid.len() };
        let mut made = Self {
            spec: spec.clone(),
            hash: spec.hash(arrivals),
            grid,
            layout,
            phases: Phases::default(),
            blocks: Vec::new(),
            rows: Rows::default(),
            left: Left::default(),
            own: Rows::default(),
            choices: Vec::new(),
            ends: Vec::new(),
            error: 0.0,
        };
        let program = spec.flavour == Flavour::Program;
        let rules = Rules::new();
        for n in 1..=spec.queue {
            let clock = arrivals.clock(n);
            for bin in 0..layout.bins {
                let age = spec.slo_ns as f64 - made.grid.ends[bin];
                made.phases.push(clock, n, age, program);
                made.choose(&rules, clock, n, bin);
                made.ends.push(made.choices.len() as u32);
            }
        }
        let held = if program { spec.queue + 1 } else { spec.queue };
        let clock = arrivals.clock(spec.queue);
        made.phases.push(clock, held, spec.slo_ns as f64, program);
        made.late(&rules, clock, held, 0);
        made.ends.push(made.choices.len() as u32);
        made.left.finish();
        made.fill(&rules);
        made.overflow(|n| arrivals.clock(n));
        Ok(made)
    }

    /// How far the probabilities of next states were from a sum of 1 at most, before they were scaled to it: all
    /// errors of the quadrature and of what was left out.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.error
    }

    /// SHA-256, in hexadecimal, of all inputs.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The lower ends of the intervals of slack, in nanoseconds, ascending.
    #[must_use]
    pub fn slack(&self) -> &[f64] {
        &self.grid.ends
    }

    /// The probabilities of the next states after `action` in `state`, those above 0, largest first; none if the
    /// state has no such action.
    #[must_use]
    pub fn next(&self, state: State, action: Action) -> Vec<(State, f64)> {
        let number = match state {
            State::Empty => return vec![(self.state(self.layout.lone()), 1.0)],
            State::Queue { n, bin } if n > 0 && bin < self.layout.bins => self.layout.state(n, bin),
            State::Queue { .. } => return Vec::new(),
            State::Full => self.layout.full(),
        };
        let Some(choice) = self.choices(number).iter().find(|choice| choice.action == action) else {
            return Vec::new();
        };
        let mut out = vec![0.0; self.layout.len()];
        let mut work = Work::default();
        self.spread(number, choice, 1.0, &mut work);
        self.push(&mut work, &mut out);
        let mut all: Vec<_> =
            out.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(i, p)| (self.state(i), *p)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    pub(super) fn state(&self, number: usize) -> State {
        if number == self.layout.empty() {
            State::Empty
        } else if number == self.layout.full() {
            State::Full
        } else {
            State::Queue { n: number / self.layout.bins + 1, bin: number % self.layout.bins }
        }
    }

    /// What may be done in a state; the empty state has nothing.
    pub(super) fn choices(&self, state: usize) -> &[Choice] {
        let begin = state.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.choices[begin..self.ends[state] as usize]
    }

    /// Adds the choices of `n` requests with the slack of `bin` (section 4.3).
    fn choose(&mut self, rules: &Rules, clock: Clock, n: usize, bin: usize) {
        let slack = self.grid.ends[bin];
        let begin = self.choices.len();
        let program = self.spec.flavour == Flavour::Program;
        let (least, most) = self.batches(n, slack);
        for i in 0..=most - least {
            let batch = if program { least + i } else { most - i };
            for model in 0..self.spec.models.len() {
                let time = self.spec.models[model].latency(batch);
                if time > slack {
                    continue;
                }
                let mut reward = self.spec.models[model].accuracy;
                match self.spec.flavour {
                    Flavour::Paper => {}
                    Flavour::Program => reward = reward / n as f64 * batch as f64,
                    Flavour::Requests { .. } => reward *= batch as f64,
                }
                let action = Action { model: model as u16, batch: batch as u16 };
                let next = self.after(rules, Taken { clock, time, n, bin, batch });
                self.choices.push(Choice { action, reward, on_time: true, next, lost: 0.0 });
            }
        }
        let limited = matches!(self.spec.batching, Batching::Limited(_));
        let drops = matches!(self.spec.flavour, Flavour::Requests { .. }) && !limited;
        let default = Action { model: 0, batch: n as u16 };
        let has = |wanted: Action| self.choices[begin..].iter().any(|choice| choice.action == wanted);
        if self.choices.len() == begin || drops || program && !has(default) {
            self.late(rules, clock, n, bin);
        }
    }

    /// The least and the most that may be taken of `n` requests with this slack.
    fn batches(&self, n: usize, slack: f64) -> (usize, usize) {
        match self.spec.batching {
            Batching::Maximal => (n, n),
            Batching::Variable => (1, n),
            Batching::Limited(most) => {
                let fits = |batch: &usize| self.spec.models[0].latency(*batch) <= slack;
                let batch = (1..=n.min(most)).rev().find(fits).unwrap_or(1);
                (batch, batch)
            }
        }
    }

    /// Adds the choice of those who are too late: all `n` on the fastest model, or dropping the oldest.
    fn late(&mut self, rules: &Rules, clock: Clock, n: usize, bin: usize) {
        let time = |model: usize| self.spec.models[model].latency(n);
        let all = 0..self.spec.models.len();
        let (model, batch, time) = match self.spec.flavour {
            Flavour::Paper => {
                let fastest = all.min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(0);
                (fastest as u16, n, time(fastest))
            }
            Flavour::Program => (0, n, time(0)),
            Flavour::Requests { .. } => (Action::DROP, 1, 0.0),
        };
        let action = Action { model, batch: batch as u16 };
        let next = self.after(rules, Taken { clock, time, n, bin, batch });
        self.choices.push(Choice { action, reward: 0.0, on_time: false, next, lost: 0.0 });
    }

    fn after(&mut self, rules: &Rules, taken: Taken) -> Next {
        let Taken { clock, time, n, bin, batch } = taken;
        if batch >= n {
            return if time > 0.0 { self.fresh(clock, time) } else { Next::Lone };
        }
        let state = self.layout.state(n, bin);
        let likely = self.phases.likely(state);
        if likely >= RARE {
            let (to, error) = self.left.remainder(rules, &self.grid, self.layout, &taken, likely);
            self.error = self.error.max(error);
            return Next::Left(to);
        }
        // All that is known of the others is that they came after the oldest.
        let bin = self.grid.bin(self.grid.ends[bin] - time);
        let (first, mass) = self.phases.of(state);
        let during = During::new(clock.per_ns * time);
        let mut below = 0.0f64;
        for rounds in 1.. {
            let next = during.below(mass, first, rounds * clock.ticks);
            let n = n - batch + rounds - 1;
            if n > self.layout.queue {
                self.own.run(self.layout.full(), &[(1.0 - below).max(0.0)], 0.0);
                break;
            }
            self.own.run(self.layout.state(n, bin), &[(next - below).max(0.0)], CUT);
            below = next;
            if next >= 1.0 - CUT {
                break;
            }
        }
        self.own.end_row();
        Next::Row((self.own.len() - 1) as u32)
    }

    fn fresh(&mut self, clock: Clock, time: f64) -> Next {
        let wanted = |block: &Block| block.time == time && block.clock == clock;
        let index = self.blocks.iter().position(wanted).unwrap_or_else(|| {
            self.blocks.push(Block { time, clock, row: 0 });
            self.blocks.len() - 1
        });
        Next::Fresh(index as u32)
    }

    /// Works out the rows of all blocks.
    fn fill(&mut self, rules: &Rules) {
        let mut ages: Vec<(Clock, Ages)> = Vec::new();
        for block in &mut self.blocks {
            let known = ages.iter().position(|(clock, _)| *clock == block.clock);
            let at = known.unwrap_or_else(|| {
                let longest = self.choices.iter().filter_map(|c| match c.next {
                    Next::Fresh(_) => {
                        Some(self.spec.models[usize::from(c.action.model)].latency(c.action.batch.into()))
                    }
                    _ => None,
                });
                let longest = longest.fold(0.0, f64::max);
                ages.push((block.clock, Ages::new(rules, block.clock, &self.grid, self.layout, longest)));
                ages.len() - 1
            });
            block.row = self.rows.len();
            self.error = self.error.max(ages[at].1.rows(rules, self.layout, block.time, &mut self.rows));
        }
    }

    /// Works out how many requests each choice loses because the queue is full.
    fn overflow(&mut self, clock: impl Fn(usize) -> Clock) {
        let mut full = vec![0.0; self.layout.len()];
        full[self.layout.full()] = 1.0;
        let mut work = Work::default();
        self.pull(&full, &mut work);
        let queue = self.layout.queue;
        let more = usize::from(self.spec.flavour == Flavour::Program);
        let mut choices = std::mem::take(&mut self.choices);
        for state in 0..self.layout.empty() {
            let n = if state == self.layout.full() { queue + more } else { state / self.layout.bins + 1 };
            let Clock { ticks, per_ns } = clock(n.min(queue));
            let begin = state.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
            for choice in &mut choices[begin..self.ends[state] as usize] {
                let batch = usize::from(choice.action.batch);
                let time =
                    self.spec.models.get(usize::from(choice.action.model)).map_or(0.0, |m| m.latency(batch));
                let fit = queue - n.saturating_sub(batch);
                let excess = beyond(per_ns * time / ticks as f64, fit) - more as f64;
                choice.lost = self.expect(state, choice, &work) * excess;
            }
        }
        self.choices = choices;
    }
}

/// By how much a Poisson number of this mean is above `fit` on average if it is above.
fn beyond(mean: f64, fit: usize) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for i in fit + 2.. {
        term *= mean / i as f64;
        sum += term;
        // All that comes changes nothing any more.
        if term < 1e-17 * sum || sum > 1e17 {
            break;
        }
    }
    mean + (fit + 1) as f64 / sum - fit as f64
}
