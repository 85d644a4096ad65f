//! Recorded arrivals, which come from wherever somebody kept them.

use planner::Problem;
use planner::problem::raw::Unit;
use rt_core::Span;
use sim::Arrivals;
use sim::process::{Process, Recording};

/// Reads `data` as every kind of recording there is. Instants that are accepted never go back, nor beyond their
/// streams. Returns by how many kinds it is accepted.
pub fn recording(data: &[u8]) -> usize {
    let mut accepted = 0;
    for unit in [Unit::Ns, Unit::Ms] {
        if let Ok(Process::Trace(instants)) = Process::read(Recording::Instants { unit }, data) {
            assert!(instants.is_sorted(), "{instants:?}");
            accepted += 1;
        }
        accepted += usize::from(Process::read(Recording::Counts { unit }, data).is_ok());
    }
    accepted += usize::from(Process::read(Recording::Rates { interval: Span::from_millis(1) }, data).is_ok());
    for background in [true, false] {
        let Ok(arrivals) = Arrivals::read(&problem(background), data) else { continue };
        assert!(arrivals.list.is_sorted_by_key(|(instant, _)| *instant), "{arrivals:?}");
        assert!(arrivals.list.iter().all(|(_, stream)| *stream < arrivals.streams.len()), "{arrivals:?}");
        assert!(background || arrivals.streams.len() == 1, "{arrivals:?}");
        accepted += 1;
    }
    accepted
}

fn problem(background: bool) -> Problem {
    let text = format!(
        r#"{{"unit": "ms", "deadline": 10, "background": {background},
            "workers": [{{"count": 1, "batch": 1, "time": 1}}],
            "streams": [{{"name": "cam", "constraints": ["any_miss(0,1)"], "arrivals": {{"windows": [[1, 5]]}}}}]}}"#
    );
    Problem::parse(&text).expect("a problem")
}
