//! The margin for overruns of a device, by hand: what counts on it, and when it may grow; and what stalls may have taken of a batch that is
//! longer than any.

use rt_core::{Instant, SafeModeConfig, Span, StreamId, StreamSpec};

use crate::oracle::Stream;
use crate::oracle::sharing::{Service, Shared};
use crate::shared::clients::margin;
use crate::shared::{Run, spec};

/// At each of these instants so many requests of the stream of a service come.
fn send(run: &mut Run, ids: [StreamId; 2], all: &[(u64, usize, usize)]) {
    for &(at, service, count) in all {
        run.advance(at, true);
        for _ in 0..count {
            run.arrive(service, ids[service]);
            run.settle();
        }
    }
}

/// What goes ahead counts on what is left of the margin then, and that must not grow before what it went ahead of has ended: a calm
/// instant from before says nothing of that. One that is promised nothing goes before six that wait, when the margin is used up; what
/// ran when all was calm ends only then.
#[test]
fn what_was_run_over_is_not_forgotten_behind_what_goes_ahead() {
    let stream = |count| Stream::hard(count, 80);
    let service = |streams| Service::of(streams, 4, 20);
    for turns in [false, true] {
        let services = vec![service(vec![stream(6)]), service(vec![])];
        let shared = Shared::of(services, 2, 4, turns);
        assert_eq!(margin(&shared), Some(4));
        // The first runs over by the margin, and so does the last.
        let mut times = [8, 3, 4, 4, 2, 4, 4, 4, 4, 4, 4, 8].into_iter();
        let mut run = Run::new(&shared, 4, move |_, _| times.next().expect("twelve batches"));
        let ids = [run.add(0, spec(&stream(6))), run.add(1, StreamSpec::best_effort())];
        send(&mut run, ids, &[(0, 1, 2), (1, 1, 1), (5, 1, 1), (6, 1, 1), (8, 1, 1), (9, 0, 6)]);
        run.advance(10, true);
        assert_eq!(run.gone_ahead, 1);
        run.drain();
        assert!(!run.missed.is_empty(), "the last is late");
        assert!(run.missed.iter().all(|&(_, _, warned)| warned), "{:?} {:?}", run.missed, run.causes);
    }
}

/// What runs over when all was calm already counts, though that was waited for: it is met by what came meanwhile. One batch and the next run
/// over by a tick each, the second one beside nothing that waits when it began; of the two that came then the last runs over by two.
#[test]
fn what_runs_over_behind_a_calm_instant_is_not_forgotten_with_what_was_before() {
    let services =
        vec![Service::of(vec![Stream::hard(2, 40)], 2, 8), Service::of(vec![Stream::hard(1, 40)], 2, 20)];
    let shared = Shared::of(services, 1, 2, false);
    assert_eq!(margin(&shared), Some(2));
    let mut times = [3, 3, 2, 4].into_iter();
    let mut run = Run::new(&shared, 2, move |_, _| times.next().expect("four batches"));
    let [tight, other] = [0, 1].map(|s| run.add(s, spec(&shared.services[s].streams[0])));
    let stranger = run.add(1, StreamSpec::best_effort());
    run.arrive(1, stranger);
    run.settle();
    send(&mut run, [tight, other], &[(1, 1, 1), (3, 0, 2)]);
    run.drain();
    assert_eq!(run.now, 12);
    let [(late, 0, warned)] = run.missed[..] else { panic!("the last is late: {:?}", run.missed) };
    assert!(warned && run.causes.iter().any(|&(told, ..)| told < late), "{late}: {:?}", run.causes);
}

/// What is left of the margin is shared by all that run: two that run over at once are told of when they have by that together, be it all
/// of the margin, as it was set anew, or what one before has left of it.
#[test]
fn two_that_run_over_at_once_are_told_of_when_they_have_by_the_margin_together() {
    let service = || Service::of(vec![Stream::hard(1, 50)], 2, 8);
    let shared = Shared::of(vec![service(), service()], 2, 2, false);
    assert_eq!(margin(&shared), Some(4));
    let of = |times: [u64; 3], sent: &[(u64, usize, usize)]| {
        let mut times = times.into_iter();
        let mut run = Run::new(&shared, 4, move |_, _| times.next().expect("three batches"));
        assert!(run.device.set_overrun_margin(Instant::ZERO, Span::from_nanos(4)));
        let strangers = [0, 1].map(|s| run.add(s, StreamSpec::best_effort()));
        send(&mut run, strangers, sent);
        run.advance(50, true);
        run.causes.first().map(|&(told, ..)| told)
    };
    assert_eq!(of([100, 100, 0], &[(0, 0, 1), (0, 1, 1)]), Some(2 + 4 / 2 + 1));
    // One runs over by 2 until 4, when all is calm but the second still runs; that and a third are due at 5 and 6.
    assert_eq!(of([4, 100, 100], &[(0, 0, 1), (3, 1, 1), (4, 0, 1)]), Some(7));
}

/// A slower variant leaves room for all that batches may run over by before it ends, also where that is to become more meanwhile: what ran
/// when all was calm last ends beside it.
#[test]
fn a_slower_variant_leaves_room_for_the_margin_that_is_to_come() {
    let stream = || Stream::hard(1, 50);
    for turns in [false, true] {
        let services = vec![Service::of(vec![stream()], 2, 9), Service::of(vec![], 4, 20)];
        let shared = Shared::of(services, 2, 4, turns);
        assert_eq!(margin(&shared), Some(3));
        let mut run = Run::new(&shared, 3, |service, bound| if service == 0 { bound + 3 } else { bound });
        let (own, stranger) = (run.add(0, spec(&stream())), run.add(1, StreamSpec::best_effort()));
        // Somebody comes beside whom nothing is left, and goes at once.
        let now = |run: &Run| Instant::from_nanos(run.now);
        run.arrive(1, stranger);
        run.settle();
        run.advance(1, true);
        run.arrive(1, stranger);
        run.settle();
        for left in [0, 3] {
            assert!(run.device.set_overrun_margin(now(&run), Span::from_nanos(left)));
        }
        run.add(1, StreamSpec::best_effort());
        run.arrive(0, own);
        run.settle();
        run.drain();
        assert_eq!((&run.missed[..], &run.causes[..], run.served[0]), (&[][..], &[][..], 1));
        assert_eq!(run.varied[1], 1, "there was time for a tick more");
    }
}

/// Nor does a larger margin count behind a calm instant from before it was set: a slower variant that began since then leaves no room for it.
#[test]
fn a_larger_margin_waits_until_what_runs_has_ended() {
    let stream = || Stream::hard(1, 80);
    for turns in [false, true] {
        let services = vec![Service::of(vec![stream()], 4, 18), Service::of(vec![], 8, 21)];
        let shared = Shared::of(services, 2, 8, turns);
        assert_eq!(margin(&shared), Some(6));
        // The first runs over by one, beside somebody who leaves no more.
        let mut times = [9, 7, 8, 5, 14].into_iter();
        let mut run = Run::new(&shared, 1, move |_, _| times.next().expect("five batches"));
        let ids = [run.add(0, spec(&stream())), run.add(1, StreamSpec::best_effort())];
        send(&mut run, ids, &[(0, 1, 2), (1, 1, 1), (2, 1, 1), (9, 0, 1)]);
        run.advance(14, true);
        assert_eq!(run.varied[1], 1, "a slower variant runs");
        assert!(run.device.set_overrun_margin(Instant::from_nanos(14), Span::from_nanos(6)));
        run.settle();
        run.drain();
        assert!(!run.missed.is_empty(), "it is late");
        assert!(run.missed.iter().all(|&(_, _, warned)| warned), "{:?} {:?}", run.missed, run.causes);
    }
}

/// Nobody is promised anything, and a batch of a service that is demoted takes much longer than any may. It stood still when it had just
/// begun, which nobody knows: so who comes waits until no more is left of it than another stall leaves of the longest batch.
#[test]
fn who_comes_beside_a_very_long_batch_waits_for_what_a_stall_may_have_taken_of_it() {
    let stream = || Stream::hard(1, 30);
    let service = |streams, deadline| Service::of(streams, 2, deadline);
    for turns in [false, true] {
        let services = vec![service(vec![], 100), service(vec![stream()], 9)];
        let shared =
            Shared { services, workers: 1, longest: 4, turns, late: 0, overrun: 0, stall: 3, window: 100 };
        assert_eq!(margin(&shared), Some(0));
        let lasting = Span::from_nanos(100_000);
        let safe_mode = SafeModeConfig { hold: lasting, clean: lasting, latch: false };
        let mut run = Run::lasting(
            &shared,
            (&[0, 0], safe_mode),
            0,
            |service, bound| {
                if service == 0 { 200 } else { bound }
            },
        );
        run.stalls = vec![(221, 224), (424, 427)];
        let stranger = run.add(0, StreamSpec::best_effort());
        let before = run.add(1, spec(&stream()));
        run.arrive(0, stranger);
        run.settle();
        run.advance(205, true);
        assert!(run.demoted[0], "its batch took a hundred times as long");
        run.remove(1, before);
        run.device.service_mut(1).clear_safe_mode(Instant::from_nanos(205));
        run.settle();
        run.advance(220, true);
        run.arrive(0, stranger);
        run.settle();
        let came = (410..430).find_map(|now| {
            run.advance(now, true);
            // The first time it is told that it waits.
            run.try_add(1, spec(&stream())).or_else(|| run.try_add(1, spec(&stream())))
        });
        let at = run.now;
        run.arrive(1, came.expect("nothing is in its way"));
        run.settle();
        run.drain();
        assert_eq!((&run.missed[..], run.served[1]), (&[][..], 1));
        assert_eq!(at, 419, "one is left of 200");
    }
}

/// Where a device takes over its account of stalls begins anew: one more than declared, of which one is over by then, meets nothing that is
/// promised, and is told to nobody. The next one is.
#[test]
fn a_stall_before_a_takeover_is_none_of_those_behind_it() {
    for takes_over in [false, true] {
        let service = |streams| Service::of(streams, 2, 7);
        let services = vec![service(vec![Stream::hard(1, 12)]), service(vec![])];
        let shared = Shared { stall: 3, window: 100, ..Shared::of(services, 1, 2, false) };
        assert_eq!(margin(&shared), Some(0));
        let mut run = Run::new(&shared, 0, |_, bound| bound);
        run.stalls = vec![(1, 4), (21, 24), (41, 44)];
        let id = run.add(0, spec(&shared.services[0].streams[0]));
        let own = usize::from(takes_over);
        let mut told = Vec::new();
        for (at, service) in [(0, 0), (20, own), (40, own)] {
            run.advance(at, true);
            run.arrive(service, id);
            run.settle();
            run.drain();
            told.push(!run.causes.is_empty());
            if takes_over && at == 0 {
                let mut turned = shared.clone();
                turned.services.rotate_right(1);
                run.hand_over(&turned, 0, None).expect("nothing is open");
            }
        }
        assert_eq!(told, [false, !takes_over, true]);
        assert_eq!(run.missed, [], "each alone is kept back for");
    }
}

/// A service that an operator has promised again before what it ran over by is forgotten: of what others run over by meanwhile all are told,
/// but it is no more their matter than before; it is demoted anew if it runs over itself.
#[test]
fn who_is_promised_again_stays_the_one_that_has_run_over_most_until_that_is_forgotten() {
    let service = |time| Service::of(vec![Stream::hard(1, 90)], time, 20);
    let shared = Shared::of(vec![service(2), service(6)], 2, 6, false);
    let left = margin(&shared).expect("admitted");
    let long = Span::from_nanos(100);
    let safe_mode = SafeModeConfig { hold: long, clean: long, latch: false };
    for again in [false, true] {
        // One of the first harms, one of the second runs when all is calm again; then one of the two is late by a tick.
        let late = [left + 3, 6 + u64::from(!again), 2 + u64::from(again)];
        let mut times = late.into_iter();
        let mut run =
            Run::lasting(&shared, (&[0, 0], safe_mode), left, move |_, _| times.next().expect("three"));
        let strangers = [0, 1].map(|s| run.add(s, StreamSpec::best_effort()));
        send(&mut run, strangers, &[(0, 0, 1), (left + 1, 1, 1)]);
        run.advance(left + 3, true);
        let demoted = |run: &Run| [0, 1].map(|s| run.device.service(s).is_demoted());
        assert_eq!(demoted(&run), [true, false]);
        run.device.service_mut(0).clear_safe_mode(Instant::from_nanos(run.now));
        run.settle();
        assert_eq!(demoted(&run), [false; 2], "nothing mandatory waits");
        let told = run.causes.len();
        send(&mut run, strangers, &[(left + 4, 0, 1)]);
        run.drain();
        assert!(run.causes.len() > told, "what ran over before counts");
        assert_eq!(demoted(&run), [again, false], "{:?}", run.causes);
    }
}

/// What fits the margin is an overrun, though it could be a stall, and counts beside what no stall explains: of two batches the longer is
/// told of at the instant from which it harms with what the other ran over by.
#[test]
fn what_ran_over_counts_beside_what_no_stall_explains() {
    let service = || Service::of(vec![Stream::hard(1, 90)], 2, 20);
    let shared = Shared { stall: 2, window: 1_000, ..Shared::of(vec![service(), service()], 2, 2, false) };
    let left = 8;
    assert!(margin(&shared).is_some_and(|most| most >= left));
    for (first, second) in [(1, 2), (1, 7), (1, 9), (2, 6), (2, 7), (2, 9), (3, 5), (3, 6), (3, 9)] {
        let mut times = [2 + first, 2 + second].into_iter();
        let mut run = Run::new(&shared, left, move |_, _| times.next().expect("two batches"));
        let strangers = [0, 1].map(|s| run.add(s, StreamSpec::best_effort()));
        send(&mut run, strangers, &[(0, 0, 1), (0, 1, 1)]);
        run.drain();
        assert_eq!(run.device.service(0).stalls(), 0, "{first} fits");
        let beyond = left - first + 1;
        let told = run.causes.first().map(|&(at, ..)| at);
        assert_eq!(told, (second >= beyond).then_some(2 + beyond), "{first} and {second}");
    }
}

/// What a service ran over by, and what is forgotten of it, is no part of who has run over most.
#[test]
fn who_ran_over_within_the_margin_before_is_not_demoted_for_another() {
    let service = || Service::of(vec![Stream::hard(1, 90)], 2, 20);
    let shared = Shared::of(vec![service(), service()], 1, 2, false);
    let left = margin(&shared).expect("admitted");
    let mut times = [2 + left, 2 + left, 2 + left + 3].into_iter();
    let mut run = Run::new(&shared, left, move |_, _| times.next().expect("three batches"));
    let strangers = [0, 1].map(|s| run.add(s, StreamSpec::best_effort()));
    for (at, service) in [(0, 0), (100, 0), (200, 1)] {
        assert_eq!(run.causes, []);
        send(&mut run, strangers, &[(at, service, 1)]);
        run.advance(at + 2 + left + 1, true);
    }
    assert_eq!([0, 1].map(|s| run.device.service(s).is_demoted()), [false, true], "{:?}", run.causes);
}
