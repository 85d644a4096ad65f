//! What a policy never decides is missed when nothing else can happen, and what it has decided stays as it is.

use std::collections::VecDeque;

use rt_core::{Instant, MissReason, Outcome, Span, WorkerId};
use virtual_time::{End, Order, Policy, Run, Step, drive};

/// Sheds every second request as it is asked, and forgets the others.
struct Forgets(VecDeque<u64>);

impl Policy for Forgets {
    fn workers(&self) -> usize {
        1
    }

    fn arrive(&mut self, _: Instant, _: usize, token: u64) -> Option<End> {
        self.0.extend((token % 2 == 1).then_some(token));
        None
    }

    fn complete(&mut self, _: Instant, _: WorkerId, _: Span) {}

    fn poll(&mut self, _: Instant) -> Step {
        let outcome = Outcome::Missed(MissReason::Shed);
        let next = self.0.pop_front().map(|token| Step::End(End { token, mandatory: false, outcome }));
        next.unwrap_or(Step::Wait { until: None })
    }

    fn batch(&self, _: WorkerId) -> impl Iterator<Item = u64> + '_ {
        std::iter::empty()
    }

    fn bound(&self, _: WorkerId) -> Span {
        Span::ZERO
    }
}

#[test]
fn what_is_never_decided_is_missed_at_the_end_and_nothing_else_is() {
    let mut run = Run { streams: 1, ..Run::default() };
    let arrivals = (0..5).map(|ms| (Instant::ZERO + Span::from_millis(ms), 0));
    let mut policy = Forgets(VecDeque::new());
    drive(&mut policy, arrivals, Order::Together, |_, _, bound| bound, &mut run).expect("in order");
    let ends: Vec<_> = run.requests.iter().map(|request| (request.seq, request.outcome)).collect();
    let [forgotten, shed] = [MissReason::Expired, MissReason::Shed].map(Outcome::Missed);
    assert_eq!(ends, [(0, forgotten), (1, shed), (2, forgotten), (3, shed), (4, forgotten)]);
}
