//! A server that takes a call and never answers, and one that refuses each: what becomes of the requests, and what is told of it.

use std::time::Duration;

use super::liar::{Behaviour, Liar};
use super::{PATIENT, alive, front, profiled, says, told, url};
use crate::harness::{Deployment, Listener, answers, best_effort, eventually, now, one_in_three, pause};
use weir_client::{ArrivalBound, Constraint, MissReason, Outcome, Registration, SafeModeCause};

const DEADLINE: Duration = Duration::from_secs(6);

/// A front with a worker for each of two servers, as `remote` says more of them.
fn between(one: &Liar, other: &Liar, remote: &str) -> Deployment {
    let place = front("toy", &url(&one.socket()), remote);
    let text = std::fs::read_to_string(place.config()).expect("there");
    let single = format!("url = {:?}", url(&one.socket()));
    let both = format!("url = {:?}", [url(&one.socket()), url(&other.socket())]);
    let text = text.replacen("\"20s\"", &format!("\"{}s\"", DEADLINE.as_secs()), 1);
    place.configure(text.replace(&single, &both));
    profiled(&place, [500, 500]);
    place
}

#[test]
fn what_a_server_holds_that_hangs_is_missed_at_its_deadline_and_all_else_is_served() {
    let (hangs, other) = (Liar::new(), Liar::new());
    let place = between(&hangs, &other, PATIENT);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    alive(&daemon, 2);
    hangs.behave(Behaviour::Silent);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("far", "asker")).expect("a stream");
    let (before, sent) = (hangs.calls(), now());
    let id = client.submit(&stream, &[1.0f32, 0.5]).expect("submitted");
    eventually("the call", || (hangs.calls() > before).then_some(()));
    // More than a stream may have open or, behind an open one, answered.
    for n in 0..600 {
        let outcome = client.infer(&stream, &[1.0f32, 0.5]).expect("an answer");
        assert!(outcome.result().is_some(), "{n}: {outcome:?}");
    }
    let outcomes = answers(&mut client, &[id]);
    assert!(
        matches!(&outcomes[..], [Outcome::Miss(miss)] if miss.reason == MissReason::Late),
        "{outcomes:?}"
    );
    assert!(sent.elapsed() >= DEADLINE, "until then it could have been answered");
    // Nobody has given the worker up, which is waited for ten times as long.
    alive(&daemon, 2);
    told(&mut listener, SafeModeCause::ServiceOverrun);
    assert!(listener.changes().iter().all(|change| change.cause != SafeModeCause::WorkerLost));
}

#[test]
fn batches_that_a_server_refuses_are_told_once_a_second_with_how_many_they_were() {
    const ASKED: usize = 60;
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    profiled(&place, [2_000, 2_000]);
    let daemon = place.serve();
    alive(&daemon, 1);
    liar.behave(Behaviour::Refuses);
    let began = now();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("far", "asker")).expect("a stream");
    let refused = |_: &usize| {
        let outcome = client.infer(&stream, &[1.0f32, 0.5]).expect("an answer");
        assert!(outcome.result().is_none(), "it answered");
        matches!(&outcome, Outcome::Miss(miss) if miss.reason == MissReason::EngineFailed)
    };
    // On a busy machine some may be late: those are told of if they were refused as well.
    let refused = (0..ASKED).filter(refused).count();
    assert!(refused > ASKED / 2, "{refused}");
    liar.behave(Behaviour::Well);
    says(&daemon, "it answered 429: not  now");
    // Those that no line was for are told of with a later batch.
    eventually("all of them", || {
        client.infer(&stream, &[1.0f32, 0.5]).expect("an answer");
        let said = daemon.stderr();
        let of = |line: &str| {
            let more = line.split(" more batches").next().filter(|_| line.contains(" more batches"));
            more.and_then(|before| before.rsplit(' ').next())
                .map_or(0, |more| more.parse().expect("a number"))
        };
        let told: usize =
            said.lines().map(|line| usize::from(line.contains("answered 429")) + of(line)).sum();
        (refused..=ASKED).contains(&told).then_some(())
    });
    let lines = daemon.stderr().lines().filter(|line| line.contains("answered 429")).count();
    assert!(lines as u64 <= 1 + began.elapsed().as_secs(), "{lines} lines");
}

#[test]
fn whatever_a_server_does_a_promise_beside_it_is_kept_or_told_and_nothing_is_left_behind() {
    let (bad, other) = (Liar::new(), Liar::new());
    let place = between(&bad, &other, ", timeout = \"2s\"");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    alive(&daemon, 2);
    let (mut client, mut stranger) = (daemon.client(), daemon.client());
    let every = Duration::from_millis(100);
    let cam = Registration::builder("far", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, every));
    let cam = client.register(&cam.build().expect("it fits")).expect("admitted");
    let stream = stranger.register(&best_effort("far", "stranger")).expect("a stream");
    let (descriptors, threads) = (daemon.count("fd"), daemon.count("task"));
    let all = [
        (Behaviour::Silent, ""),
        (Behaviour::Stalls, ""),
        (Behaviour::Half, ""),
        (Behaviour::HangsUp, ""),
        (Behaviour::NoHttp, ""),
        (Behaviour::TooFew, ""),
        (Behaviour::Endless, ""),
        (Behaviour::Refuses, ""),
        (Behaviour::RefusesAll, ""),
        (Behaviour::Unready, ""),
        // It comes back so, and is not served until it is as it was.
        (Behaviour::OtherModel, "input `in` has shape [-1, 3] there, [2] by the manifest"),
        (Behaviour::NewVersion, "run `weir profile`"),
    ];
    for (behaviour, reason) in all {
        let told_before = listener.changes().len();
        bad.behave(behaviour);
        let mut ids = (Vec::new(), Vec::new());
        for _ in 0..12 {
            ids.0.push(client.submit(&cam, &[1.0f32, 0.5]).expect("submitted"));
            ids.1.push(stranger.submit(&stream, &[1.0f32, 0.5]).expect("submitted"));
            pause(every);
        }
        let outcomes = answers(&mut client, &ids.0);
        let others = answers(&mut stranger, &ids.1);
        let hits: Vec<bool> = outcomes.iter().map(|outcome| outcome.result().is_some()).collect();
        let kept = one_in_three(hits.iter().copied());
        let told = listener.changes().len() > told_before;
        assert!(kept || told, "{behaviour:?}: {outcomes:?}");
        assert!(others.iter().any(|outcome| outcome.result().is_some()), "{behaviour:?}: {others:?}");
        assert!(hits.contains(&true), "{behaviour:?}: {outcomes:?}");
        if !reason.is_empty() {
            says(&daemon, reason);
            alive(&daemon, 1);
        }
        bad.behave(Behaviour::Well);
        alive(&daemon, 2);
        eventually("what is promised again", || {
            let far = daemon.status()["services"][0].clone();
            (far["name"] == "far" && far["safe_mode"]["state"] == "normal").then_some(())
        });
    }
    // A name that is looked up has a thread of its own for a while.
    eventually("no more than before", || {
        (daemon.count("fd") <= descriptors && daemon.count("task") <= threads).then_some(())
    });
    assert!(daemon.resident_kib() < 1 << 20, "an endless answer was kept");
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

/// What fails at once is free at once: it would be given all that whoever is beside it could answer.
#[test]
fn a_server_that_refuses_whatever_it_is_asked_is_lost_and_the_one_beside_it_answers() {
    let (bad, other) = (Liar::new(), Liar::new());
    let place = between(&bad, &other, PATIENT);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("far", "asker")).expect("a stream");
    for (behaviour, words) in [
        (Behaviour::RefusesAll, "is lost: it refuses a request of zeros as well: it answered 429: not  now"),
        (Behaviour::Unready, "/v2: it answered 503: it still loads"),
    ] {
        alive(&daemon, 2);
        bad.behave(behaviour);
        let outcomes: Vec<_> =
            (0..50).map(|_| client.infer(&stream, &[1.0f32, 0.5]).expect("an answer")).collect();
        let missed = outcomes.iter().filter(|outcome| outcome.result().is_none()).count();
        assert!(missed <= 2, "{behaviour:?}: {missed} of {}: {}", outcomes.len(), daemon.stderr());
        // It may have idled all the while, and is asked whether it is ready then.
        eventually("what it is lost for", || {
            drop(client.infer(&stream, &[1.0f32, 0.5]));
            daemon.stderr().contains(words).then_some(())
        });
        alive(&daemon, 1);
        bad.behave(Behaviour::Well);
    }
    alive(&daemon, 2);
}
