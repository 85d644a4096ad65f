//! From a problem of a pipeline and recorded arrivals of sources to the report of what its scheduler makes of them.

use std::collections::BTreeMap;
use std::io::Read;

use planner::PipelineProblem;
use planner::certify::chosen;
use rt_core::pipeline::{Pipeline, PipelineAction, PipelineConfig, PipelineScheduler, Stage, StageConfig};
use rt_core::{
    Arrival, Event, Instant, LatencyProfile, MissReason, Outcome, Ran, Resolution, SafeModeConfig, Span,
    StreamId, StreamSpec, Workers,
};
use virtual_time::{Batch, Request, Run};

use crate::arrivals::Arrivals;
use crate::record::MAX_WAITING;
use crate::report::Report;
use crate::simulate::SimulateError;

/// Runs the sources in `csv`, lines `time,stream`, through the scheduler of pipelines. Batches of `b` take exactly `P(b)`, and each
/// result becomes as many requests as it may; of one instant, batches end first, then sources come, then the scheduler decides.
///
/// # Errors
/// If the arrivals cannot be read, or no source could ever meet the deadline.
pub fn simulate_pipeline(problem: &PipelineProblem, csv: impl Read) -> Result<Report, SimulateError> {
    let arrivals = Arrivals::read_pipeline(problem, csv)?;
    let specs = problem.specs().cloned().chain(std::iter::repeat(StreamSpec::best_effort()));
    let mut play = Play::new(problem, arrivals.streams.len().max(1))?;
    for spec in specs.take(arrivals.streams.len()) {
        let id = play.scheduler.add_stream(Instant::ZERO, spec)?;
        play.streams.push(id);
    }
    play.run.streams = arrivals.streams.len();
    for &(at, stream) in &arrivals.list {
        play.advance(at);
        play.arrive(at, stream);
    }
    play.advance(Instant::from_nanos(u64::MAX));
    let told: Vec<_> = problem.specs().zip(&problem.raw.streams).collect();
    let mut report = Report::of(problem.raw.unit, &told, &arrivals.streams, &play.run);
    // A source runs in many batches: when the first began and the last ended is told, and of no size.
    report.requests.iter_mut().for_each(|request| request.batch = None);
    Ok(report)
}

struct Play<'a> {
    problem: &'a PipelineProblem,
    pipeline: Pipeline,
    scheduler: PipelineScheduler,
    streams: Vec<StreamId>,
    /// By when batches end: since when, at which stage, on which worker.
    ends: BTreeMap<Instant, Vec<(Instant, usize, usize)>>,
    wake: Option<Instant>,
    now: Instant,
    /// Sources that came at the present instant, and nobody has been asked what to do.
    unpolled: bool,
    /// Of each source when it was begun.
    begun: Vec<Option<Instant>>,
    run: Run,
}

impl<'a> Play<'a> {
    fn new(problem: &'a PipelineProblem, streams: usize) -> Result<Self, SimulateError> {
        let of = chosen(problem);
        let span = Span::from_millis(1_000);
        let stage = |(stage, profile): (&Stage, &LatencyProfile)| StageConfig {
            parents: stage.parents,
            fan_out: stage.fan_out,
            mean: stage.fan_out.into(),
            workers: Workers { count: stage.workers, batch: stage.batch, profile: profile.clone() },
        };
        let config = PipelineConfig {
            deadline: of.deadline,
            guard: of.guard,
            stages: of.stages.iter().zip(&problem.profiles).map(stage).collect(),
            queue: MAX_WAITING,
            streams,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        };
        Ok(Self {
            problem,
            pipeline: of,
            scheduler: PipelineScheduler::new(&config)?,
            streams: Vec::new(),
            ends: BTreeMap::new(),
            wake: None,
            now: Instant::ZERO,
            unpolled: false,
            begun: Vec::new(),
            run: Run::default(),
        })
    }

    fn arrive(&mut self, at: Instant, stream: usize) {
        let token = self.run.requests.len() as u64;
        self.run.requests.push(Request {
            stream,
            seq: 0,
            arrival: at,
            mandatory: false,
            outcome: Outcome::Missed(MissReason::Cancelled),
            ended: at,
            batch: None,
            worker: None,
            variant: 0,
        });
        self.begun.push(None);
        (self.now, self.unpolled) = (at, true);
        let arrival = Arrival { stream: self.streams[stream], token, at };
        if let Some(refused) = self.scheduler.handle_arrival(at, arrival) {
            self.resolved(&refused);
        }
    }

    /// Lets all happen that does before `to`, and what ends at it.
    fn advance(&mut self, to: Instant) {
        if self.unpolled && to > self.now {
            self.poll();
        }
        loop {
            let end = self.ends.keys().next().copied().filter(|&at| at <= to);
            let wake = self.wake.filter(|&at| at < to && at < Instant::from_nanos(u64::MAX));
            let Some(next) = end.into_iter().chain(wake).min() else { return };
            self.now = next;
            for (started, stage, worker) in self.ends.remove(&next).into_iter().flatten() {
                let children = &self.pipeline.stages;
                let ran = Ran::Done(next.since(started));
                let became = |_, child: usize| children[child].fan_out;
                self.scheduler.handle_completion(next, (stage, worker), ran, became);
            }
            // Who comes at this instant is to be seen first.
            if next == to {
                (self.wake, self.unpolled) = (None, true);
                continue;
            }
            self.poll();
        }
    }

    fn poll(&mut self) {
        self.unpolled = false;
        loop {
            match self.scheduler.poll(self.now) {
                PipelineAction::Start { stage, worker } => {
                    let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
                    for token in parts.iter().filter_map(|part| part.token).filter(|_| stage == 0) {
                        self.begun[token as usize] = Some(self.now);
                    }
                    let end = self.now + self.problem.profiles[stage].bound(parts.len());
                    self.ends.entry(end).or_default().push((self.now, stage, worker));
                }
                PipelineAction::Resolve(resolution) => self.resolved(&resolution),
                PipelineAction::Event(Event::SafeMode(transition)) => {
                    self.run.safe_mode.push((self.now, transition));
                }
                PipelineAction::Event(Event::Suspension(told)) => {
                    if let Some(stream) = self.streams.iter().position(|&id| id == told.stream) {
                        self.run.suspensions.push((self.now, stream, told.alarm));
                    }
                }
                PipelineAction::Event(Event::MissesLeft { .. }) => {}
                PipelineAction::WakeAt(wake) => {
                    self.wake = wake;
                    return;
                }
            }
        }
    }

    fn resolved(&mut self, resolution: &Resolution) {
        let token = resolution.request.token as usize;
        let answered = matches!(resolution.outcome, Outcome::Served | Outcome::Missed(MissReason::Late));
        let ran = self.begun[token].filter(|_| answered).map(|start| {
            let worker = 0;
            self.run.batches.push(Batch { worker, variant: 0, size: 1, start, finish: self.now });
            self.run.batches.len() - 1
        });
        let request = &mut self.run.requests[token];
        (request.seq, request.mandatory) = (resolution.request.seq, resolution.request.mandatory);
        (request.outcome, request.ended, request.batch) = (resolution.outcome, self.now, ran);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::Question;

    fn parse(text: &str) -> PipelineProblem {
        match Question::parse(text).expect("a problem") {
            Question::Pipeline(problem) => problem,
            other => panic!("{other:?}"),
        }
    }

    fn problem() -> PipelineProblem {
        let text = r#"{"unit": "ms", "background": true, "deadline": 13,
            "pipeline": [
              {"name": "detect", "workers": 1, "batch": 1, "time": 3},
              {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}],
            "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 14]]}}]}"#;
        parse(text)
    }

    fn ends(csv: &str) -> Vec<(u64, bool)> {
        ends_of(&problem(), csv)
    }

    fn ends_of(problem: &PipelineProblem, csv: &str) -> Vec<(u64, bool)> {
        let report = simulate_pipeline(problem, csv.as_bytes()).expect("simulated");
        let end = |request: &crate::report::RequestReport| {
            let finish = request.finish.map_or(0, |time| time.instant.as_nanos() / 1_000_000);
            (finish, request.outcome == crate::report::Outcome::Served)
        };
        report.requests.iter().map(end).collect()
    }

    #[test]
    fn each_source_is_told_as_a_whole() {
        // The second is detected by 6, and both places of it are read by 8.
        assert_eq!(ends("time,stream\n0,cam\n0,cam\n14,cam\n"), [(5, true), (8, true), (19, true)]);
    }

    /// Behind something else, which nothing is promised for, it takes as long as is promised at most.
    #[test]
    fn a_promise_is_kept_beside_strangers_and_what_is_beyond_it_is_told() {
        let beside = ends("0,stranger\n0,cam\n0,cam\n0,stranger\n");
        assert_eq!(beside[1..3], [(5, true), (8, true)], "of one instant all come before anybody is asked");
        let behind = ends("0,stranger\n0,stranger\n1,cam\n1,cam\n");
        assert_eq!(behind[2..], [(8, true), (11, true)]);
        let report = simulate_pipeline(&problem(), "0,cam\n0,cam\n1,cam\n".as_bytes()).expect("simulated");
        assert_eq!(report.safe_mode.len(), 1, "{:?}", report.safe_mode);
        assert_eq!(report.safe_mode[0].stream.as_deref(), Some("cam"));
    }

    /// Two ways of 2 and of 3 ms behind 1 ms, put together in 1 ms: both results one after the other, or the source once.
    #[test]
    fn what_goes_several_ways_is_merged_or_joined() {
        for (last, first, second) in
            [("", 5, 8), (r#""join": true,"#, 5, 8), (r#""join": true, "requests": 2,"#, 6, 9)]
        {
            let problem = parse(&format!(
                r#"{{"unit": "ms", "deadline": 30, "pipeline": [
                {{"name": "detect", "workers": 1, "batch": 1, "time": 1}},
                {{"name": "left", "parent": "detect", "workers": 1, "batch": 1, "time": 2}},
                {{"name": "right", "parent": "detect", "workers": 1, "batch": 1, "time": 3}},
                {{"name": "both", "parents": ["left", "right"], {last} "workers": 1, "batch": 1, "time": 1}}],
                "streams": [{{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 30]]}}}}]}}"#
            ));
            assert_eq!(ends_of(&problem, "0,cam\n0,cam\n"), [(first, true), (second, true)], "{last}");
        }
    }

    #[test]
    fn arrivals_that_are_none_are_refused_with_their_line() {
        let refused = simulate_pipeline(&problem(), "0,cam\nx,cam\n".as_bytes()).expect_err("refused");
        assert!(refused.to_string().starts_with("line 2: time = x:"), "{refused}");
    }
}
