//! Services that share workers in an experiment: what they declare at each load, and who admits how much of it.

use planner::problem::shared::raw as several;
use planner::problem::{MAX_STREAMS, raw as written};
use planner::{Number, ProblemError, SharedProblem};
use rt_core::{ArrivalCurve, MAX_BATCH, MAX_SPAN, Span, StreamSpec};

use super::service::Service;
use super::system::System;
use super::{ExperimentError, raw};
use crate::policy::{SharedKind, work_per_s};
use crate::process::{Process, ProcessError, Source, stream_seed};

/// Loads are told apart by one in so many of what the workers can do.
const STEPS: u32 = 200;

/// Several services on the same workers.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    /// As they are written in the experiment.
    written: several::SharedProblem,
    /// By how much windows are shorter at a load of 1, where the requests that must be served take all of the workers' time,
    /// in the batches that take least for each.
    whole: f64,
}

/// What a policy is told, and what comes.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The problem as the policy plans for it.
    pub(super) problem: SharedProblem,
    /// The problem with what comes.
    pub(super) comes: SharedProblem,
    /// The load that its own test of admission lets in; NaN if it has none.
    pub(super) admitted: f64,
}

impl Sharing {
    pub(super) fn new(field: &str, raw: &raw::Sharing) -> Result<Self, ProblemError> {
        let number = |time: &super::value::Time| Number::whole(time.0.as_nanos());
        let mut names = 0..;
        let mut services = Vec::new();
        for (i, of) in raw.services.iter().enumerate() {
            let mut streams = Vec::new();
            for kind in &of.streams {
                let (count, length) = &kind.window;
                let windows = vec![(*count, number(length))];
                // More than there may be are refused below.
                for name in names.by_ref().take(kind.count.min(MAX_STREAMS + 1)) {
                    streams.push(written::Stream {
                        name: format!("s{name}"),
                        constraints: kind.constraints.clone(),
                        arrivals: Some(written::Arrivals {
                            windows: windows.clone(),
                            ..written::Arrivals::default()
                        }),
                        degraded: Vec::new(),
                    });
                }
            }
            services.push(several::Service {
                name: format!("service{i}"),
                deadline: number(&of.deadline),
                guard: Number::default(),
                batch: of.times.len().clamp(1, MAX_BATCH),
                time: None,
                times: Some(of.times.iter().map(number).collect()),
                turn: None,
                streams,
            });
        }
        let workers = several::Workers { count: raw.workers };
        let (unit, rule) = (written::Unit::Ns, "auto".to_owned());
        let written =
            several::SharedProblem { unit, background: true, stalls: None, workers, rule, services };
        let problem = SharedProblem::from_raw(written.clone())?;
        let work: f64 = problem.services.iter().map(|service| work_per_s(service, true)).sum();
        if work > 0.0 {
            return Ok(Self { written, whole: problem.workers as f64 / work });
        }
        let reason = "must hold a stream with a constraint".to_owned();
        Err(ProblemError::Value { field: field.to_owned(), value: "services".to_owned(), reason })
    }

    /// Of all services, in order.
    pub(super) fn streams(&self) -> Vec<written::Stream> {
        self.written.services.iter().flat_map(|service| service.streams.clone()).collect()
    }

    /// Requests a second of all streams at that load.
    pub(super) fn rate(&self, load: f64) -> f64 {
        let all = self.at(1.0);
        let streams = all.services.iter().flat_map(|service| &service.streams);
        load * streams.filter_map(|(_, spec)| spec.arrivals()).map(ArrivalCurve::rate_per_s).sum::<f64>()
    }

    /// The problem at that load: windows are as much shorter, rounded to longer ones, the longest that there may be at most.
    fn at(&self, load: f64) -> SharedProblem {
        let mut written = self.written.clone();
        let shorter = |length: Number| {
            let nanos = length.to_span(written::Unit::Ns).unwrap_or(Span::ZERO).as_nanos() as f64;
            let longest = MAX_SPAN.as_nanos() as f64;
            Number::whole((nanos / (load * self.whole)).ceil().clamp(1.0, longest) as u64)
        };
        for arrivals in
            written.services.iter_mut().flat_map(|s| &mut s.streams).filter_map(|s| s.arrivals.as_mut())
        {
            for (_, length) in &mut arrivals.windows {
                *length = shorter(*length);
            }
        }
        match SharedProblem::from_raw(written) {
            Ok(problem) => problem,
            Err(error) => unreachable!("it was read once: {error}"),
        }
    }

    /// The largest load that the policy's own test of admission lets in; `None` if it has none, or no load is let in.
    pub(super) fn certify(&self, kind: SharedKind) -> Option<f64> {
        let load = |step: u32| f64::from(step) / f64::from(STEPS);
        let admits = |step: &u32| kind.planned(&self.at(load(*step))).is_some();
        if !kind.has_test() {
            return None;
        }
        if kind.is_own() || kind == SharedKind::Partition {
            // Less load never turns a yes of ours into a no, and the test takes long near capacity.
            let (mut yes, mut no) = (0, STEPS + 1);
            while no - yes > 1 {
                let middle = yes + (no - yes) / 2;
                *(if admits(&middle) { &mut yes } else { &mut no }) = middle;
            }
            return (yes > 0).then(|| load(yes));
        }
        (1..=STEPS).rev().find(admits).map(load)
    }

    /// What a policy is told that certifies its `own` load, where `rate` requests a second come. The daemon's devices are told what is
    /// certified of them, as they promise no more; rivals what comes, and a partition no more than it can promise.
    pub(super) fn tell(&self, kind: SharedKind, own: Option<f64>, rate: f64) -> Told {
        let load = rate / self.rate(1.0);
        let known = match kind {
            kind if kind.is_own() => own.unwrap_or(load),
            SharedKind::Partition => own.map_or(load, |own| own.min(load)),
            _ => load,
        };
        let problem = self.at(known);
        let admitted = own.unwrap_or(if kind.has_test() { 0.0 } else { f64::NAN });
        Told { problem: kind.planned(&problem).unwrap_or(problem), comes: self.at(load), admitted }
    }
}

impl System {
    /// A system of several services on the same workers.
    pub(super) fn of_services(
        field: &impl Fn(&str) -> String,
        raw: &raw::System,
        sharing: &raw::Sharing,
        service: Service,
    ) -> Result<Self, ExperimentError> {
        Self::nothing_beside(
            "sharing",
            (field, raw, &service),
            "must be none of services that share workers",
        )?;
        let sharing = Sharing::new(&field("sharing"), sharing)
            .map_err(|error| ExperimentError::System { name: raw.name.clone(), error })?;
        let streams = sharing.streams();
        Ok(Self {
            name: raw.name.clone(),
            periods: vec![None; streams.len()],
            // A partition has a worker for each service.
            accuracy: vec![None; raw.sharing.as_ref().map_or(0, |of| of.workers.max(of.services.len()))],
            written: Self::stands_in(raw, streams),
            service,
            queue: raw.queue,
            selector: None,
            fleet: None,
            sharing: Some(sharing),
            pipeline: None,
            cluster: None,
            router: None,
            selecting: None,
        })
    }
}

impl Told {
    /// The arrivals of each stream; `None` is the worst that they declare, of all streams at once.
    pub(super) fn sources(&self, process: Option<&Process>, seed: u64) -> Result<Vec<Source>, ProcessError> {
        let source = |(stream, (_, spec)): (usize, (usize, StreamSpec))| {
            let curve = spec.arrivals().cloned();
            let rate = curve.as_ref().map_or(1.0, ArrivalCurve::rate_per_s);
            match (process, curve) {
                (Some(process), _) => process.arrivals(rate, stream_seed(seed, stream)),
                (None, Some(curve)) => Process::Adversarial(curve).arrivals(rate, stream_seed(seed, 0)),
                (None, None) => Process::Constant.arrivals(rate, stream_seed(seed, stream)),
            }
        };
        streams_of(&self.comes).into_iter().enumerate().map(source).collect()
    }
}

/// The streams of all services, each with its service.
pub(super) fn streams_of(problem: &SharedProblem) -> Vec<(usize, StreamSpec)> {
    let of = |(s, service): (usize, &planner::problem::shared::Service)| {
        service.streams.iter().map(move |(_, spec)| (s, spec.clone())).collect::<Vec<_>>()
    };
    problem.services.iter().enumerate().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Cell, Data, Experiment, ExperimentError, Quantity, Results};

    const SHIPPED: &str = include_str!("../../experiments/sharing.toml");

    fn parse(text: &str) -> Result<Experiment, ExperimentError> {
        Experiment::parse(text, &Data::default())
    }

    /// The services that share workers, on arrivals that keep to what is declared.
    fn of_services(results: &Results) -> impl Iterator<Item = (&Cell, f64, f64)> {
        let cells = results.cells.iter().filter(|cell| cell.arrivals == "adversarial");
        let mean = |cell, quantity| results.estimate(cell, quantity).expect("told").mean;
        cells.map(move |cell| (cell, mean(cell, Quantity::Certified), mean(cell, Quantity::Violations)))
    }

    /// Promise: who tests for the worst keeps what the test admits; who tests for the mean does not.
    #[test]
    fn policies_of_several_services_keep_what_their_tests_for_the_worst_admit() {
        const SOUND: [&str; 5] = ["weir", "weir-split", "partition", "spread-drop-cycle", "deeprt"];
        let mut sharing = Experiment { runs: 1, requests: 3000, ..parse(SHIPPED).expect("an experiment") };
        sharing.policies.retain(|policy| policy.name() == "nexus-cycle" || SOUND.contains(&policy.name()));
        sharing.arrivals.retain(|arrivals| arrivals.name == "adversarial");
        let results = sharing.run(&|| {}).expect("results");
        let mut kept = std::collections::BTreeMap::<&str, (u32, u32)>::new();
        for (cell, _, violations) in of_services(&results).filter(|(cell, ..)| cell.rate <= cell.certified) {
            let (cells, broken) = kept.entry(cell.policy.name()).or_default();
            *cells += 1;
            *broken += u32::from(violations > 0.0);
        }
        for sound in SOUND {
            let (cells, broken) = kept[sound];
            assert!(cells >= 6 && broken == 0, "{sound}: {broken} of {cells} cells broken");
        }
        assert_eq!(kept["weir"].0, 4 * sharing.systems.len() as u32, "all loads up to 1");
        assert!(kept["nexus-cycle"].1 > 0, "{kept:?}");
        let certified = |policy: &str, system: &str| {
            let of = |(cell, ..): &(&Cell, f64, f64)| cell.policy.name() == policy && cell.system == system;
            of_services(&results).find(of).expect("a cell").1
        };
        for system in sharing.systems.iter().map(|system| system.name.as_str()) {
            let (together, split) = (certified("weir", system), certified("weir-split", system));
            // On a worker each the services of this one carry more.
            let more = system == "two workers, bursts";
            assert!(
                if more { split > 1.15 * together } else { split == together },
                "{system}: {together}, {split}"
            );
        }
        // Of those that do not interrupt batches and whose yes holds, none admits more.
        for (cell, admitted, _) in of_services(&results) {
            let ours = of_services(&results)
                .find(|(own, ..)| own.policy.name() == "weir" && own.system == cell.system);
            let less = ["spread-drop-cycle", "deeprt"].contains(&cell.policy.name());
            assert!(!less || ours.is_some_and(|(_, ours, _)| admitted <= ours), "{cell:?}");
        }
    }

    #[test]
    fn what_are_no_services_on_shared_workers_is_refused() {
        for (from, to, wanted) in [
            (
                "[system.sharing]\n",
                "deadline = \"5ms\"\n[system.sharing]\n",
                "system[0].deadline = : must be none of services",
            ),
            (
                "\"weir\", \"weir-split\"",
                "\"weir\", \"nexus\"",
                "policies = nexus: cannot serve several services; system two loose",
            ),
            ("workers = 2\n", "workers = 0\n", "system two workers: workers.count = 0: must be in 1..=256"),
            (
                "[\"row_miss(0)\"], window = [4, \"33ms\"]",
                "[\"row_miss(0)\"], window = [0, \"33ms\"]",
                "system two loose: ",
            ),
        ] {
            let error = parse(&SHIPPED.replacen(from, to, 1)).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let one = "title = \"t\"\nrequests = 1000\npolicies = [\"deeprt\"]\n\
             [[system]]\nname = \"one\"\ndeadline = \"20ms\"\nstreams = [{ constraints = [\"any_miss(1,2)\"] }]\n\
             workers = [{ batch = 2, time = \"10ms\" }]\n\
             [[arrivals]]\nname = \"all\"\nprocess = \"constant\"\n[x]\nload = [1]\n";
        let error = parse(one).expect_err("one service").to_string();
        assert!(error.contains("policies = deeprt: needs several services; system one"), "{error}");
        let error = parse(&one.replace("deadline = \"20ms\"\n", "")).expect_err("no deadline").to_string();
        assert!(error.contains("system[0].deadline = : must be there"), "{error}");
    }
}
