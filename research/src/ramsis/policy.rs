//! Policies: tables that tell a worker what to do next, looked up in constant time.

use rt_core::Span;
use serde::{Deserialize, Serialize};

use super::RamsisError;
use super::error::{refuse, within};
use super::problem::{Action, Problem, State};
use super::spec::{MAX_BINS, MAX_QUEUE, MAX_SLO};

/// Places of the table that leads from slack to interval.
const BUCKETS: u64 = 4096;

/// What to do in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    parts: Parts,
    /// For each of [`BUCKETS`] parts of the latency objective, the interval of its least slack.
    buckets: Vec<u16>,
}

/// A policy as files hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    /// Of all inputs.
    pub(super) inputs_sha256: String,
    /// What an [`Action`]'s model stands for.
    pub(super) models: Vec<String>,
    /// The least whole nanoseconds of each interval of slack.
    pub(super) slack_ns: Vec<u64>,
    /// `[n - 1][interval]`: model and batch.
    pub(super) table: Vec<Vec<(u16, u16)>>,
    /// For longer queues.
    pub(super) full: (u16, u16),
}

impl Policy {
    /// In each state the choice with this index.
    pub(super) fn new(problem: &Problem, chosen: &[u16]) -> Self {
        let of = |(state, &choice): (usize, &u16)| {
            let Action { model, batch } = problem.choices(state)[usize::from(choice)].action;
            (model, batch)
        };
        let all: Vec<_> = chosen.iter().enumerate().map(of).collect();
        let full = problem.layout.full();
        Self::index(Parts {
            inputs_sha256: problem.hash.clone(),
            models: problem.spec.models.iter().map(|model| model.name.clone()).collect(),
            slack_ns: problem.grid.ends.iter().map(|end| end.ceil() as u64).collect(),
            table: all[..full].chunks(problem.layout.bins).map(<[_]>::to_vec).collect(),
            full: all[full],
        })
    }

    /// In each state of `problem` the last of its models up to `model` that may be run there; if none may, what comes
    /// first.
    #[must_use]
    pub fn constant(problem: &Problem, model: usize) -> Self {
        Self::new(problem, &problem.constant(model))
    }

    /// Checks what a file says.
    pub(super) fn of_parts(parts: Parts) -> Result<Self, RamsisError> {
        let Parts { models, slack_ns, table, full, .. } = &parts;
        within("length of table", table.len() as f64, 1.0, MAX_QUEUE as f64)?;
        within("length of models", models.len() as f64, 1.0, super::MAX_MODELS as f64)?;
        // Model-based intervals have one end for each batch at most.
        let most = MAX_BINS.max(super::MAX_MODELS * super::MAX_LATENCIES) + 2;
        within("length of slack_ns", slack_ns.len() as f64, 2.0, most as f64)?;
        let last = slack_ns[slack_ns.len() - 1];
        within("last of slack_ns", last as f64, 1.0, MAX_SLO as f64)?;
        if let Some(i) = slack_ns.windows(2).position(|two| two[0] > two[1]) {
            return Err(refuse(
                format!("slack_ns[{}]", i + 1),
                slack_ns[i + 1],
                "must not be below the one before",
            ));
        }
        within("slack_ns[0]", slack_ns[0] as f64, 0.0, 0.0)?;
        let action = |field: String, n: usize, (model, batch): (u16, u16)| {
            if model != Action::DROP {
                within(format!("{field}[0]"), f64::from(model), 0.0, (models.len() - 1) as f64)?;
            }
            within(format!("{field}[1]"), f64::from(batch), 1.0, n as f64)
        };
        for (i, row) in table.iter().enumerate() {
            let bins = slack_ns.len() as f64;
            within(format!("length of table[{i}]"), row.len() as f64, bins, bins)?;
            for (j, &cell) in row.iter().enumerate() {
                action(format!("table[{i}][{j}]"), i + 1, cell)?;
            }
        }
        action("full".to_owned(), table.len() + 1, *full)?;
        Ok(Self::index(parts))
    }

    fn index(parts: Parts) -> Self {
        let ends = &parts.slack_ns;
        let slo = u128::from(ends[ends.len() - 1]);
        let bin = |bucket: u64| {
            let least = (u128::from(bucket) * slo).div_ceil(u128::from(BUCKETS)) as u64;
            (ends.partition_point(|&end| end <= least) - 1) as u16
        };
        let buckets = (0..=BUCKETS).map(bin).collect();
        Self { parts, buckets }
    }

    /// What a free worker does with `n` ≥ 1 requests, the oldest of which has this much time left (zero if it is
    /// late). A queue of none is read as one.
    ///
    /// Takes constant time for intervals of equal length, and about as little for others; no allocation.
    #[must_use]
    pub fn action(&self, n: usize, slack: Span) -> Action {
        let of = |(model, batch)| Action { model, batch };
        if n > self.parts.table.len() {
            return of(self.parts.full);
        }
        of(self.parts.table[n.max(1) - 1][self.bin(slack)])
    }

    /// The action in a state; none if it is empty or outside the table.
    #[must_use]
    pub fn at(&self, state: State) -> Option<Action> {
        let (model, batch) = match state {
            State::Empty => return None,
            State::Queue { n, bin } => *self.parts.table.get(n.checked_sub(1)?)?.get(bin)?,
            State::Full => self.parts.full,
        };
        Some(Action { model, batch })
    }

    /// The interval that `slack` is in.
    #[must_use]
    pub fn bin(&self, slack: Span) -> usize {
        let ends = &self.parts.slack_ns;
        let last = ends.len() - 1;
        let (slack, slo) = (slack.as_nanos(), ends[last]);
        if slack >= slo {
            return last;
        }
        let bucket = u128::from(slack) * u128::from(BUCKETS) / u128::from(slo);
        let mut bin = usize::from(self.buckets[bucket as usize]);
        while bin < last && ends[bin + 1] <= slack {
            bin += 1;
        }
        bin
    }

    /// The names of the models, in the order of [`Action::model`].
    #[must_use]
    pub fn models(&self) -> &[String] {
        &self.parts.models
    }

    /// The longest queue that is told apart.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.parts.table.len()
    }

    /// The least slack of each interval, in nanoseconds, ascending.
    #[must_use]
    pub fn slack_ns(&self) -> &[u64] {
        &self.parts.slack_ns
    }

    /// SHA-256, in hexadecimal, of the inputs that it was made from.
    #[must_use]
    pub fn inputs(&self) -> &str {
        &self.parts.inputs_sha256
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }
}
