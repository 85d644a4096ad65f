//! Machines that stand still now and then, and streams of which it is known what must be served.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rt_core::{ArrivalBound, ArrivalCurve, BalancedWord, Constraint, ConstraintSet, StreamId, StreamSpec};

use crate::harness::load::ns;
use crate::harness::{Harness, end_of};

pub(crate) fn stream(constraint: (u32, u32), bound: ArrivalBound) -> StreamSpec {
    let constraint = Constraint::any_miss(constraint.0, constraint.1).expect("m < k");
    let set = ConstraintSet::new(&[constraint]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

pub(crate) fn window(count: u64, length: u64) -> ArrivalBound {
    ArrivalBound::window(count, ns(length)).expect("valid")
}

/// Batches of `harness` stand still in the stalls, and take `work` of their bound otherwise.
pub(crate) fn stand_still(
    harness: &mut Harness,
    stalls: Rc<RefCell<Vec<(u64, u64)>>>,
    mut work: impl FnMut(u64) -> u64 + 'static,
) {
    let started = Rc::new(Cell::new(0));
    let now = Rc::clone(&started);
    harness.longer = Some(Box::new(move |_, now, _, bound| {
        started.set(now);
        bound
    }));
    harness.set_service(move |_, bound| end_of(now.get(), work(bound), &stalls.borrow()) - now.get());
}

/// A stream that is driven, with the word that says which of its requests must be served.
pub(crate) struct Driven {
    pub(crate) id: StreamId,
    pub(crate) word: BalancedWord,
    pub(crate) history: Vec<u64>,
}

impl Driven {
    /// Its next request comes, and was sent at `at`. There is no room for one that need not be served.
    pub(crate) fn send(&mut self, harness: &mut Harness, at: u64) {
        if !self.word.next_is_mandatory() {
            harness.refuse_late(self.id, at);
        } else if at < harness.now {
            harness.arrive_late(self.id, at);
        } else {
            harness.arrive(self.id);
        }
    }
}
