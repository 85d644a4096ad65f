//! What became of a load: counted as answers come, judged in request order, told in one report.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rt_core::Constraint;
use serde::Serialize;
use weir_client::status::Class;

use super::classes::{ClassReport, with_worth};

/// The longest latency told apart, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) service: String,
    pub(crate) stream: String,
    /// Each phase, in order.
    pub(crate) phases: Vec<PhaseReport>,
    /// Every change of the service's safe mode that was seen, in order.
    pub(crate) safe_mode: Vec<Change>,
    /// Every suspension of the stream and its end, in order.
    pub(crate) suspension: Vec<Change>,
    /// Answers whose sequence number is not their place in the order of sending; must be 0.
    pub(crate) misnumbered: u64,
    /// Why the connection ended before the run did.
    pub(crate) broken: Option<String>,
}

/// One phase of a run. Misses count everything that was scheduled and not answered with a result.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PhaseReport {
    pub(crate) name: String,
    /// Seconds from the start of the run.
    pub(crate) started_s: f64,
    pub(crate) seconds: f64,
    /// Requests per second, as scheduled.
    pub(crate) rate: f64,
    pub(crate) scheduled: u64,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) missed: u64,
    /// Misses by reason: those of the protocol, and `refused`, `not-sent`, `unanswered`.
    pub(crate) missed_by: BTreeMap<&'static str, u64>,
    /// Share of the scheduled requests, 0..=1.
    pub(crate) miss_ratio: f64,
    pub(crate) longest_miss_run: u64,
    pub(crate) constraints: Vec<Judgement>,
    /// Of the answers, from the scheduled instant, in nanoseconds.
    pub(crate) latency_ns: Option<Quantiles>,
    /// Answers later than the deadline counted from the scheduled instant; the daemon counts from arrival.
    pub(crate) answered_past_deadline: u64,
    /// How late the generator itself sent, in nanoseconds.
    pub(crate) lateness_ns: Option<Quantiles>,
    /// Answers by variant of the model, up to the last one that answered.
    pub(crate) by_variant: Vec<u64>,
    /// Requests of this load in a batch, mean over batches.
    pub(crate) batch_mean: Option<f64>,
    /// Share of the answers that are right, 0..=1; `None` without labels.
    pub(crate) accuracy: Option<f64>,
    /// Where the service has classes: those that requests were of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) classes: Vec<ClassReport>,
}

/// How one constraint fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) constraint: String,
    /// Misses allowed, and the window in requests.
    pub(crate) m: u32,
    pub(crate) k: u32,
    /// The most misses in any `k` consecutive requests.
    pub(crate) worst: u32,
    pub(crate) held: bool,
}

/// Quantiles of a distribution, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

/// The service entered or left safe mode, or the stream a suspension.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    /// Seconds from the start of the run; 0 if it was so before.
    pub(crate) at_s: f64,
    pub(crate) entered: bool,
    /// The assumption that broke; empty when left.
    pub(crate) cause: String,
    pub(crate) text: String,
}

impl PhaseReport {
    /// Whether every constraint held.
    pub(crate) fn held(&self) -> bool {
        self.constraints.iter().all(|c| c.held)
    }

    /// Adds what its classes were worth between two times at which the daemon had counted this.
    pub(crate) fn count_worth(&mut self, before: &[Class], after: &[Class]) {
        with_worth(&mut self.classes, before, after);
    }

    /// Those of `changes` that came during the phase.
    pub(crate) fn of<'a>(&self, changes: &'a [Change]) -> impl Iterator<Item = &'a Change> {
        let span = self.started_s..self.started_s + self.seconds;
        changes.iter().filter(move |change| span.contains(&change.at_s))
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ended {
    Answered { latency_ns: u64, batch: u16, variant: u16, right: Option<bool>, late: bool },
    Missed(&'static str),
}

/// Counts one phase. Numbers that need no order are taken as answers come, the others when all earlier
/// requests have ended too.
pub(crate) struct Measures {
    deadline_ns: u64,
    pub(crate) scheduled: u64,
    pub(crate) answered: u64,
    pub(crate) missed: u64,
    pub(crate) longest_miss_run: u64,
    missed_by: BTreeMap<&'static str, u64>,
    not_sent: u64,
    miss_run: u64,
    windows: Vec<Window>,
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
    past_deadline: u64,
    by_variant: Vec<u64>,
    batches: f64,
    right: u64,
    judged: u64,
    classes: Vec<ClassReport>,
}

impl Measures {
    pub(super) fn new(constraints: &[Constraint], deadline_ns: u64, classes: &[Class]) -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3).context("histogram");
        Ok(Self {
            deadline_ns,
            scheduled: 0,
            answered: 0,
            missed: 0,
            longest_miss_run: 0,
            missed_by: BTreeMap::new(),
            not_sent: 0,
            miss_run: 0,
            windows: constraints.iter().map(|c| Window::new(*c)).collect(),
            latency: histogram()?,
            lateness: histogram()?,
            past_deadline: 0,
            by_variant: Vec::new(),
            batches: 0.0,
            right: 0,
            judged: 0,
            classes: classes
                .iter()
                .map(|class| ClassReport { class: class.name.clone(), ..ClassReport::default() })
                .collect(),
        })
    }

    /// A request was due, and the generator came to it so late; `sent` unless its limit forbade it.
    pub(super) fn issue(&mut self, lateness_ns: u64, sent: bool) {
        self.scheduled += 1;
        self.not_sent += u64::from(!sent);
        self.lateness.saturating_record(lateness_ns.max(1));
    }

    /// A request of that class ended; calls come in any order.
    pub(super) fn end(&mut self, class: usize, ended: Ended) {
        if let Some(own) = self.classes.get_mut(class) {
            own.scheduled += 1;
            match ended {
                Ended::Answered { late, .. } => {
                    own.answered += 1;
                    own.late += u64::from(late);
                }
                Ended::Missed(_) => own.missed += 1,
            }
        }
        match ended {
            Ended::Answered { latency_ns, batch, variant, right, .. } => {
                self.answered += 1;
                let variant = usize::from(variant);
                self.by_variant.resize(self.by_variant.len().max(variant + 1), 0);
                self.by_variant[variant] += 1;
                self.latency.saturating_record(latency_ns.max(1));
                self.past_deadline += u64::from(latency_ns > self.deadline_ns);
                self.batches += 1.0 / f64::from(batch.max(1));
                self.judged += u64::from(right.is_some());
                self.right += u64::from(right == Some(true));
            }
            Ended::Missed(reason) => {
                self.missed += 1;
                *self.missed_by.entry(reason).or_default() += 1;
            }
        }
    }

    /// The outcome of the next request in order.
    pub(super) fn judge(&mut self, hit: bool) {
        self.miss_run = if hit { 0 } else { self.miss_run + 1 };
        self.longest_miss_run = self.longest_miss_run.max(self.miss_run);
        self.windows.iter_mut().for_each(|w| w.record(hit));
    }

    pub(super) fn report(&self, name: &str, rate: f64, started_s: f64, seconds: f64) -> PhaseReport {
        PhaseReport {
            name: name.to_owned(),
            started_s,
            seconds,
            rate,
            scheduled: self.scheduled,
            sent: self.scheduled - self.not_sent,
            answered: self.answered,
            missed: self.missed,
            missed_by: self.missed_by.clone(),
            miss_ratio: self.missed as f64 / self.scheduled.max(1) as f64,
            longest_miss_run: self.longest_miss_run,
            constraints: self.windows.iter().map(Window::judgement).collect(),
            latency_ns: quantiles(&self.latency),
            answered_past_deadline: self.past_deadline,
            lateness_ns: quantiles(&self.lateness),
            by_variant: self.by_variant.clone(),
            batch_mean: (self.answered > 0).then(|| self.answered as f64 / self.batches),
            accuracy: (self.judged > 0).then(|| self.right as f64 / self.judged as f64),
            classes: self.classes.iter().filter(|class| class.scheduled > 0).cloned().collect(),
        }
    }
}

/// The worst window of a constraint so far. What came before the first request counts as hits.
struct Window {
    constraint: Constraint,
    recent: VecDeque<bool>,
    misses: u32,
    worst: u32,
}

impl Window {
    fn new(constraint: Constraint) -> Self {
        let recent = VecDeque::with_capacity(constraint.window() as usize + 1);
        Self { constraint, recent, misses: 0, worst: 0 }
    }

    fn record(&mut self, hit: bool) {
        self.recent.push_back(hit);
        self.misses += u32::from(!hit);
        if self.recent.len() > self.constraint.window() as usize {
            self.misses -= u32::from(self.recent.pop_front() == Some(false));
        }
        self.worst = self.worst.max(self.misses);
    }

    fn judgement(&self) -> Judgement {
        let (m, k) = (self.constraint.misses(), self.constraint.window());
        Judgement { constraint: self.constraint.to_string(), m, k, worst: self.worst, held: self.worst <= m }
    }
}

fn quantiles(histogram: &Histogram<u64>) -> Option<Quantiles> {
    let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
    (!histogram.is_empty()).then(|| Quantiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p99_9: at(0.999),
        max: histogram.max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measures(constraints: &[(u32, u32)]) -> Measures {
        let constraints: Vec<_> =
            constraints.iter().map(|&(m, k)| Constraint::any_miss(m, k).unwrap()).collect();
        Measures::new(&constraints, 1_000, &[]).unwrap()
    }

    proptest! {
        #[test]
        fn windows_and_runs_agree_with_a_naive_recount(
            hits in proptest::collection::vec(any::<bool>(), 0..60), k in 1u32..12, m in 0u32..12
        ) {
            let m = m.min(k - 1);
            let mut measures = measures(&[(m, k), (0, 1)]);
            hits.iter().for_each(|&hit| measures.judge(hit));
            let misses = |window: &[bool]| window.iter().filter(|&&hit| !hit).count() as u32;
            let ends = |end: usize| &hits[end.saturating_sub(k as usize)..end];
            let worst = (0..=hits.len()).map(|end| misses(ends(end))).max().unwrap_or(0);
            let report = measures.report("x", 1.0, 0.0, 1.0);
            prop_assert_eq!((report.constraints[0].worst, report.constraints[0].held), (worst, worst <= m));
            prop_assert_eq!(report.held(), worst <= m && hits.iter().all(|&hit| hit));
            let longest = hits.split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0);
            prop_assert_eq!(report.longest_miss_run, longest as u64);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut values in proptest::collection::vec(1u64..2_000, 1..200)) {
            let mut measures = measures(&[]);
            for &latency_ns in &values {
                measures.end(0, Ended::Answered { latency_ns, batch: 1, variant: 0, right: None, late: false });
            }
            values.sort_unstable();
            let found = measures.report("x", 1.0, 0.0, 1.0).latency_ns.unwrap();
            let wanted = values[(values.len() as f64 * 0.5).ceil() as usize - 1];
            prop_assert!(found.p50.abs_diff(wanted) <= 1);
            prop_assert_eq!(found.max, *values.last().unwrap());
        }
    }

    #[test]
    fn every_request_is_counted_once() {
        let mut measures = measures(&[(1, 2)]);
        (0..4).for_each(|i| measures.issue(i * 10, i < 3));
        measures.end(0, Ended::Missed("not-sent"));
        measures.end(0, Ended::Missed("shed"));
        measures.end(
            0,
            Ended::Answered { latency_ns: 500, batch: 2, variant: 0, right: Some(true), late: false },
        );
        measures.end(
            0,
            Ended::Answered { latency_ns: 1_500, batch: 2, variant: 2, right: Some(false), late: false },
        );
        let report = measures.report("x", 1.0, 0.0, 1.0);
        assert_eq!((report.scheduled, report.sent, report.answered, report.missed), (4, 3, 2, 2));
        assert_eq!(report.missed_by, BTreeMap::from([("not-sent", 1), ("shed", 1)]));
        assert_eq!((report.miss_ratio, report.accuracy), (0.5, Some(0.5)));
        assert_eq!(report.by_variant, [1, 0, 1]);
        assert_eq!((report.answered_past_deadline, report.batch_mean), (1, Some(2.0)));
    }

    #[test]
    fn an_empty_phase_has_no_figures_and_breaks_nothing() {
        let report = measures(&[(0, 1)]).report("x", 1.0, 0.0, 1.0);
        assert!(report.held() && report.latency_ns.is_none() && report.accuracy.is_none());
        assert_eq!((report.miss_ratio, report.batch_mean), (0.0, None));
    }

    #[test]
    fn changes_belong_to_the_phase_they_fall_into() {
        let change = |at_s| Change { at_s, entered: true, cause: String::new(), text: String::new() };
        let phase = |started_s| measures(&[]).report("x", 1.0, started_s, 1.0);
        let changes = [change(0.0), change(1.0), change(1.5)];
        assert_eq!((phase(0.0).of(&changes).count(), phase(1.0).of(&changes).count()), (1, 2));
    }
}
