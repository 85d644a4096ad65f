//! Who is served on a device where nothing mandatory waits: each service as long as the others, whatever was before.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{StreamId, StreamSpec};

use crate::oracle::Stream;
use crate::oracle::sharing::{Service, Shared};
use crate::shared::{Run, spec};

/// The services whose batches began, in order, with how long each took.
type Log = Rc<RefCell<Vec<(usize, u64)>>>;

/// Two services on one worker, the batches of the second of which take longer; what begins is logged.
fn two(turns: bool) -> (Run, Log) {
    let service = |time| Service::of(vec![Stream::hard(1, 200)], time, 60);
    let shared = Shared::of(vec![service(2), service(5)], 1, 8, turns);
    let log = Log::default();
    let seen = Rc::clone(&log);
    let run = Run::new(&shared, 0, move |service, bound| {
        seen.borrow_mut().push((service, bound));
        bound
    });
    (run, log)
}

/// For so many ticks a request of each of these in each.
fn flood(run: &mut Run, ticks: u64, streams: &[(usize, StreamId)]) {
    for _ in 0..ticks {
        streams.iter().for_each(|&(service, stream)| run.arrive(service, stream));
        run.settle();
        run.advance(run.now + 1, true);
    }
}

/// How long batches of each took that began behind the first so many.
fn used(log: &Log, from: usize) -> [u64; 2] {
    let log = log.borrow();
    [0, 1].map(|of| log[from..].iter().filter(|&&(service, _)| service == of).map(|&(_, time)| time).sum())
}

/// The longest batch of the two.
const LONGEST: u64 = 8;

#[test]
fn floods_of_several_services_have_the_same_time() {
    for turns in [false, true] {
        let (mut run, log) = two(turns);
        let streams = [0, 1].map(|s| (s, run.add(s, StreamSpec::best_effort())));
        flood(&mut run, 1_000, &streams);
        let [first, second] = used(&log, 0);
        assert!(first + second > 990 && first.abs_diff(second) <= LONGEST, "{first}, {second}");
    }
}

#[test]
fn who_had_nothing_to_be_served_has_no_claim_on_what_others_got_meanwhile() {
    for turns in [false, true] {
        let (mut run, log) = two(turns);
        let streams = [0, 1].map(|s| (s, run.add(s, StreamSpec::best_effort())));
        for alone in [0, 1] {
            flood(&mut run, 300, &streams[alone..=alone]);
            let before = log.borrow().len();
            flood(&mut run, 200, &streams);
            let [first, second] = used(&log, before);
            assert!(first.abs_diff(second) <= 2 * LONGEST, "{first}, {second} once both flood");
            run.drain();
        }
    }
}

#[test]
fn what_was_sent_too_soon_goes_before_what_nothing_was_ever_promised_for() {
    for turns in [false, true] {
        let (mut run, log) = two(turns);
        run.wild = true;
        let stranger = run.add(0, StreamSpec::best_effort());
        let own = run.add(1, spec(&Stream::hard(1, 200)));
        (0..3).for_each(|_| run.arrive(1, own));
        (0..3).for_each(|_| run.arrive(0, stranger));
        run.settle();
        run.drain();
        let order: Vec<_> = log.borrow().iter().map(|&(service, _)| service).collect();
        assert!(order.len() > 2 && order.is_sorted_by_key(|&service| 1 - service), "{order:?}");
    }
}
