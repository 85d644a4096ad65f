//! What the simulator says of given arrivals when everything may be a little later than it should.

use planner::Problem;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rt_core::{Instant, Span};
use sim::{Order, run_with};

/// What the load is made to bear: batches, timers and requests later by this.
const SLACK: Span = Span::from_millis(7);

/// Requests to be sent: when, and of which stream.
pub(crate) type Load = Vec<(Instant, usize)>;

/// What became of a request: with how many it was served, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Served { batch: usize },
    Missed(String),
}

impl Fate {
    /// The same, whatever the batch.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Served { .. }, Self::Served { .. }))
    }
}

/// What the simulator says of a request.
pub(crate) struct Said {
    pub(crate) stream: usize,
    pub(crate) seq: u64,
    pub(crate) fate: Fate,
    pub(crate) waited: Option<Span>,
}

/// What the simulator says in one of many runs in which a batch of `b` takes up to `slow` longer than `P(b)`, and
/// timers ring up to `late`: the corners first, then runs of their own slowness.
pub(crate) fn simulated(
    problem: &Problem,
    arrivals: &[(Instant, usize)],
    index: usize,
    (slow, late): (Span, Span),
    dice: &mut StdRng,
) -> Vec<Said> {
    let (least, most, late) = match index {
        0 => (Span::ZERO, Span::ZERO, Span::ZERO),
        1 => (slow, slow, Span::ZERO),
        2 => (Span::ZERO, Span::ZERO, late),
        3 => (slow, slow, late),
        _ => (Span::ZERO, up_to(slow, dice), up_to(late, dice)),
    };
    let problem = Problem { guard: problem.guard.saturating_sub(late), ..problem.clone() };
    let mut slower = || least + up_to(most.saturating_sub(least), dice);
    // One by one, as the daemon takes what happens.
    let run = run_with(&problem, arrivals, Order::CompletionsFirst, |_, _, bound| bound + slower());
    let run = run.expect("arrivals in order");
    let said = |request: &sim::Request| {
        let batch = request.batch.map(|batch| run.batches[batch]);
        let fate = match (request.outcome, batch) {
            (rt_core::Outcome::Missed(reason), _) => Fate::Missed(reason.to_string()),
            (rt_core::Outcome::Served, batch) => Fate::Served { batch: batch.map_or(0, |batch| batch.size) },
        };
        let waited = batch.map(|batch| batch.start.since(request.arrival));
        Said { stream: request.stream, seq: request.seq, fate, waited }
    };
    run.requests.iter().map(said).collect()
}

/// Whether the same becomes of all requests after the first `known` when all that can is a little late.
pub(crate) fn is_clear(problem: &Problem, load: &Load, known: usize) -> bool {
    let mut dice = StdRng::seed_from_u64(0);
    let mut runs = (0..24).map(|index| {
        let mut sent = load.clone();
        let (mut last, unpunctual) = (Instant::ZERO, up_to(SLACK, &mut dice));
        for (at, _) in &mut sent {
            // A client that is late with one is late with the next.
            last = last.max(*at + up_to(unpunctual, &mut dice));
            *at = last;
        }
        let said = simulated(problem, &sent, index, (SLACK, SLACK), &mut dice);
        said.into_iter().skip(known).map(|said| said.fate).collect::<Vec<_>>()
    });
    let first = runs.next();
    runs.all(|run| Some(run) == first)
}

fn up_to(most: Span, dice: &mut StdRng) -> Span {
    Span::from_nanos(dice.random_range(0..=most.as_nanos()))
}
