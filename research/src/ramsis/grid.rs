//! Slack told apart: the lower ends of its intervals (section 4.2).

use super::spec::{Flavour, Slack, Spec};

/// The lower ends, ascending from 0 to the whole latency objective, in nanoseconds.
///
/// The last interval is that of a request that has just come; all that is late is in the first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) ends: Vec<f64>,
}

impl Grid {
    pub(super) fn new(spec: &Spec) -> Self {
        let slo = spec.slo_ns as f64;
        let mut ends = match spec.slack {
            Slack::Fixed(bins) => (0..=bins).map(|i| slo / bins as f64 * i as f64).collect(),
            Slack::ModelBased => model_based(spec),
        };
        ends.retain(|&end| end > 0.0 && end < slo);
        ends.insert(0, 0.0);
        ends.push(slo);
        ends.dedup();
        Self { ends }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The interval of `slack` nanoseconds.
    pub(super) fn bin(&self, slack: f64) -> usize {
        self.ends.partition_point(|&end| end <= slack).saturating_sub(1)
    }

    /// Where age, which is the latency objective less slack, passes from one interval to the next: calls
    /// `part(bin, from, to)` for the ages `from..to`, youngest first, whose interval is the same.
    pub(super) fn ages(&self, from: f64, to: f64, mut part: impl FnMut(usize, f64, f64)) {
        let slo = self.ends[self.len() - 1];
        let mut at = from;
        for bin in (0..self.len() - 1).rev() {
            let end = if bin == 0 { to } else { (slo - self.ends[bin]).min(to) };
            if end > at {
                part(bin, at, end);
                at = end;
            }
        }
    }
}

/// The times of all batches of up to `queue` within the objective; the program knows one batch more, and leaves out
/// what lies between two others of the same model.
fn model_based(spec: &Spec) -> Vec<f64> {
    let program = spec.flavour == Flavour::Program;
    let batches = spec.queue + usize::from(program);
    let of_model = |(i, model): (usize, &super::Model)| {
        let times: Vec<_> = (1..=batches).map(|batch| (model.latency(batch), i)).collect();
        times
    };
    let mut all: Vec<(f64, usize)> = spec.models.iter().enumerate().flat_map(of_model).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let within = all.partition_point(|&(time, _)| time <= spec.slo_ns as f64);
    let counts = |&i: &usize| {
        let differs = |other: Option<&(f64, usize)>| other.is_some_and(|&(_, model)| model != all[i].1);
        let before = i.checked_sub(1).and_then(|i| all.get(i));
        let after = all[..within].get(i + 1);
        !program || i == 0 || differs(before) || differs(after)
    };
    (0..within).filter(counts).map(|i| all[i].0).collect()
}
