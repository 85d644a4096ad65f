//! From a problem and recorded arrivals to the report of what a policy makes of them.

use std::io::Read;

use planner::certify::decide;
use planner::{Problem, SharedProblem};
use rt_core::{Selector, Span, StreamSpec, WorkerId};

use crate::arrivals::{Arrivals, ArrivalsError, service_of};
use crate::classes::{self, Class, ClassError};
use crate::log::Log;
use crate::policy::{Logged, PlayError, PolicyKind, on_device, on_device_by, scheduled_by, selecting};
use crate::record::{MAX_WAITING, record};
use crate::report::Report;
use virtual_time::{Order, Run, Scheduled, drive};

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The arrivals are none.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
    /// They cannot be run.
    #[error(transparent)]
    Run(#[from] PlayError),
    /// A class that there is not.
    #[error(transparent)]
    Class(#[from] ClassError),
}

/// Runs the arrivals in `csv`, lines `time,stream` (see [`Arrivals::read`]), under `policy`. Batches of `b` take
/// exactly `P(b)`; of one instant, batches end first, then requests arrive, then the policy decides.
///
/// # Errors
/// If the arrivals cannot be read, or the problem cannot be run.
pub fn simulate(problem: &Problem, csv: impl Read, policy: PolicyKind) -> Result<Report, SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let run = record(policy, problem, &arrivals.list, Order::Together, |_, _, bound| bound)?;
    Ok(Report::new(problem, &arrivals.streams, &run))
}

/// As [`simulate`] under the daemon's scheduler, with a log of all that it does. With a `selector`, there are variants of
/// the problem's model among which it selects as far as a shield for the problem's streams allows; a batch takes exactly
/// the time of its variant. Requests are of `classes`, if there are any, as their lines say, or else of the first. Misses of what nothing
/// is promised for may be `spread`.
///
/// # Errors
/// As [`simulate`]; also if a line names a class that there is not, if the variants are not for the problem's workers, or its streams have no shield.
pub fn simulate_logged(
    problem: &Problem,
    csv: impl Read,
    selector: Option<Selector>,
    classes: &[Class],
    spread: bool,
) -> Result<(Report, Log), SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let numbers = classes::numbers(&arrivals, classes)?;
    let wanted = numbers.iter().map(|&number| (number, classes[usize::from(number)].reach)).collect();
    let weir = chosen(problem, &arrivals, selector, spread)?.of_classes(wanted);
    let (run, log) = logged(weir, &arrivals, Order::Together, |_, _, bound| bound)?;
    let report = Report::new(problem, &arrivals.streams, &run);
    Ok((Report { classes: classes::reports(&run, &numbers, classes), ..report }, log))
}

/// As [`simulate`] under the daemon's scheduler for services that share workers, with a log of all that it does: lines are
/// `time,service/stream`. What nothing is promised for may go `ahead` of mandatory requests where that harms none, which the model that
/// logs are held against knows nothing of; and its misses may be `spread`.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_shared(
    problem: &SharedProblem,
    csv: impl Read,
    (ahead, spread): (bool, bool),
) -> Result<(Report, Log), SimulateError> {
    let arrivals = Arrivals::read_shared(problem, csv)?;
    let (run, log) = run_shared(problem, &arrivals, (ahead, spread), Order::Together, |_, _, bound| bound)?;
    let written = problem.raw.services.iter().flat_map(|service| &service.streams);
    let specs: Vec<_> = problem.specs().flatten().collect();
    let told: Vec<_> = specs.iter().zip(written).collect();
    Ok((Report::of(problem.raw.unit, &told, &arrivals.streams, &run), log))
}

/// Runs `arrivals`, which name streams, through the device of `problem`, batches taking `service(worker, size, bound)`.
pub(crate) fn run_shared(
    problem: &SharedProblem,
    arrivals: &Arrivals,
    (ahead, spread): (bool, bool),
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<(Run, Log), PlayError> {
    let declared = problem.specs().enumerate().flat_map(|(s, of)| of.into_iter().map(move |spec| (s, spec)));
    let mut streams: Vec<_> = declared.collect();
    // Whoever read them has seen that there is such a service.
    let stranger = |name: &String| (service_of(problem, name).unwrap_or(0), StreamSpec::best_effort());
    streams.extend(arrivals.streams.iter().skip(streams.len()).map(stranger));
    let queue = arrivals.list.len().clamp(1, MAX_WAITING);
    let device = match ahead {
        true => on_device(problem, queue, &streams, spread)?,
        false => on_device_by(problem, &decide(problem), queue, &streams, spread)?,
    };
    let mut device = Logged::new(device);
    let mut run = Run { streams: streams.len(), ..Run::default() };
    drive(&mut device, arrivals.list.iter().copied(), order, service, &mut run)?;
    Ok((run, Log { streams: arrivals.streams.clone(), entries: device.entries }))
}

/// Runs `arrivals`, which name streams, through the daemon's scheduler, batches taking `service(worker, size, bound)`.
#[cfg(test)]
pub(crate) fn run_logged(
    problem: &Problem,
    arrivals: &Arrivals,
    selector: Option<Selector>,
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<(Run, Log), PlayError> {
    logged(chosen(problem, arrivals, selector, false)?, arrivals, order, service)
}

/// The daemon's scheduler for the streams of `arrivals`.
fn chosen(
    problem: &Problem,
    arrivals: &Arrivals,
    selector: Option<Selector>,
    spread: bool,
) -> Result<Scheduled, PlayError> {
    let streams = arrivals.streams.len();
    Ok(match selector {
        Some(selector) => selecting(problem, MAX_WAITING, streams, selector, spread)?,
        None => scheduled_by(problem, MAX_WAITING, streams, spread)?,
    })
}

/// The same through a scheduler that is given.
pub(crate) fn logged(
    weir: Scheduled,
    arrivals: &Arrivals,
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<(Run, Log), PlayError> {
    let streams = arrivals.streams.len();
    let mut weir = Logged::new(weir);
    let mut run = Run { streams, ..Run::default() };
    drive(&mut weir, arrivals.list.iter().copied(), order, service, &mut run)?;
    Ok((run, Log { streams: arrivals.streams.clone(), entries: weir.entries }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::Question;

    fn problem(background: bool) -> SharedProblem {
        let text = format!(
            r#"{{"unit": "ms", "background": {background}, "workers": {{"count": 1}}, "services": [
            {{"name": "scene", "deadline": 33, "batch": 4, "times": [2, 3, 3, 4], "streams": [
                {{"name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": {{"windows": [[4, 16]]}}}}]}},
            {{"name": "stop", "deadline": 8, "batch": 1, "time": 2, "streams": [
                {{"name": "pedal", "constraints": ["row_miss(0)"], "arrivals": {{"periodic": {{"period": 10}}}}}}]}}]}}"#
        );
        match Question::parse(&text).expect("a problem") {
            Question::Shared(problem) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn services_that_share_a_worker_are_simulated_by_their_rule() {
        let csv = "time,stream\n0,scene/cam0\n0,scene/cam0\n0,scene/other\n1,stop/pedal\n11,stop/pedal\n";
        let (report, _) = simulate_shared(&problem(true), csv.as_bytes(), (true, false)).expect("simulated");
        let names: Vec<_> = report.streams.iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!(names, ["scene/cam0", "stop/pedal", "scene/other"]);
        assert!(report.streams.iter().all(|stream| stream.missed == 0), "{report:#?}");
        assert!(report.streams.iter().flat_map(|stream| &stream.constraints).all(|c| c.held));
        // The three of the scene go together, and the pedal after them, whose deadline is earlier but who came later.
        let ran: Vec<_> = report.requests.iter().map(|request| (request.batch, request.mandatory)).collect();
        assert_eq!(
            ran,
            [(Some(3), false), (Some(3), true), (Some(3), false), (Some(1), true), (Some(1), true)]
        );
        let start = |index: usize| report.requests[index].start.expect("it ran").instant.as_nanos();
        assert_eq!([0, 3, 4].map(start), [0, 3_000_000, 11_000_000]);
        assert_eq!(report.safe_mode, []);
    }

    /// Of two that come at once in a lull for nobody, then one that must be served at 30 and one that would be late behind it.
    #[test]
    fn services_that_share_a_worker_go_ahead_and_spread_as_they_do_in_the_daemon() {
        let csv = "0,stop/other\n0.5,scene/cam0\n0.5,scene/cam0\n0.5,stop/other\n0.5,stop/other\n";
        let began = |ahead| {
            let (report, _) =
                simulate_shared(&problem(true), csv.as_bytes(), (ahead, false)).expect("simulated");
            report
                .requests
                .iter()
                .filter_map(|r| Some(r.start.as_ref()?.instant.as_nanos()))
                .collect::<Vec<_>>()
        };
        assert_ne!(began(true), began(false), "what nothing is promised for goes before what is");
        // Of twelve at once four can be answered: those that came first, or some of them all.
        let many = "0,stop/other\n".repeat(12);
        let longest = |spread| {
            let (report, _) =
                simulate_shared(&problem(true), many.as_bytes(), (true, spread)).expect("simulated");
            report.streams.iter().map(|stream| stream.longest_miss_run).max().expect("streams")
        };
        let [refused, spread] = [false, true].map(longest);
        assert!(spread < refused, "{spread} beside {refused}");
    }

    #[test]
    fn a_stream_of_no_service_is_refused_and_one_of_no_promise_where_there_is_no_background() {
        let refused = |background, csv: &str| {
            simulate_shared(&problem(background), csv.as_bytes(), (true, false))
                .expect_err("refused")
                .to_string()
        };
        let text = refused(true, "0,cam0\n");
        assert_eq!(text, "line 1: stream = cam0: must be service/stream, of one of the services scene, stop");
        let text = refused(false, "0,scene/other\n");
        assert!(
            text.ends_with(
                "must be a stream of the problem (scene/cam0, stop/pedal), which has no background"
            ),
            "{text}"
        );
    }
}
