//! From a problem of a pipeline and recorded arrivals of sources to the report of what its scheduler makes of them.

use std::io::Read;

use planner::PipelineProblem;
use planner::certify::chosen;
use rt_core::StreamSpec;
use virtual_time::Order;

use super::heard::{Heard, Written};
use super::staged::play;
use crate::arrivals::Arrivals;
use crate::log::Log;
use crate::report::Report;
use crate::simulate::SimulateError;

/// Runs the sources in `csv`, lines `time,stream`, through the scheduler of pipelines. Batches of `b` take exactly `P(b)`, and each
/// result becomes as many requests as it may; of one instant, batches end first, then sources come, then the scheduler decides. With a
/// log of all that it does.
///
/// # Errors
/// If the arrivals cannot be read, or no source could ever meet the deadline.
pub fn simulate_pipeline(problem: &PipelineProblem, csv: impl Read) -> Result<(Report, Log), SimulateError> {
    let arrivals = Arrivals::read_pipeline(problem, csv)?;
    let specs = problem.specs().cloned().chain(std::iter::repeat(StreamSpec::best_effort()));
    let streams: Vec<_> = specs.take(arrivals.streams.len()).map(|spec| (spec, None)).collect();
    let of = (problem, &chosen(problem));
    let all = Heard::All(Written::new(arrivals.streams.clone()));
    let (run, heard) = play(of, &streams, &arrivals.list, Order::Together, all)?;
    let log = if let Heard::All(written) = heard { written.log } else { Log::default() };
    let told: Vec<_> = problem.specs().zip(&problem.raw.streams).collect();
    Ok((Report::of(problem.raw.unit, &told, &arrivals.streams, &run).without_batches(), log))
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
        let (report, _) = simulate_pipeline(problem, csv.as_bytes()).expect("simulated");
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
        let (report, _) =
            simulate_pipeline(&problem(), "0,cam\n0,cam\n1,cam\n".as_bytes()).expect("simulated");
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
    fn a_log_tells_what_became_of_each_source_and_is_read_again() {
        let problem = problem();
        let (_, log) = simulate_pipeline(&problem, "0,cam\n0,stranger\n".as_bytes()).expect("simulated");
        let mut written = Vec::new();
        log.write_pipeline(&problem, &mut written).expect("written");
        assert_eq!(
            String::from_utf8_lossy(&written),
            "time,stream\n0,cam\n0,stranger\n# take,cam,0\n# start,0,detect,0,3\n# become,cam,0,read,2\n\
             # end,3,detect,0\n# take,stranger,0\n# start,3,detect,0,3\n# take,cam,0\n# take,cam,0\n\
             # start,3,read,0,2\n# end,5,read,0\n# become,stranger,0,read,2\n# end,6,detect,0\n\
             # take,stranger,0\n# take,stranger,0\n# start,6,read,0,2\n# end,8,read,0\n"
        );
        assert_eq!(Log::read_pipeline(&problem, &written[..]).expect("a log"), log);
    }

    #[test]
    fn arrivals_that_are_none_are_refused_with_their_line() {
        let refused = simulate_pipeline(&problem(), "0,cam\nx,cam\n".as_bytes()).expect_err("refused");
        assert!(refused.to_string().starts_with("line 2: time = x:"), "{refused}");
    }
}
