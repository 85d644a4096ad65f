//! While requests flow through services that share workers, and through pipelines, nothing is allocated either.

mod counting;

use counting::allocations;
use rt_core::pipeline::{Parents, PipelineAction, PipelineConfig, PipelineScheduler, StageConfig};
use rt_core::sharing::{Device, DeviceAction, DeviceConfig, Rule, SharedService, Sharing};
use rt_core::{
    Arrival, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, LatencyProfile,
    Outcome, Ran, SafeModeConfig, SchedulerConfig, Span, StreamSpec, Workers,
};

const P: u64 = 1_000;

/// Two services on one worker, by either rule, with strangers.
#[test]
fn nothing_is_allocated_while_services_share_a_worker() {
    for rule in [Rule::Earliest, Rule::Turns] {
        let span = Span::from_nanos;
        let service = |time, deadline| {
            let profile = LatencyProfile::new(&[span(time), span(time)]).expect("a profile");
            SchedulerConfig {
                deadline: span(deadline),
                guard: Span::ZERO,
                tolerance: Span::ZERO,
                stalls: None,
                workers: vec![Workers { count: 1, batch: 2, profile }],
                dispatch: Dispatch::Eager,
                background: true,
                spread: false,
                queue: 64,
                streams: 4,
                safe_mode: SafeModeConfig { hold: Span::ZERO, clean: Span::ZERO, latch: false },
            }
        };
        let config = DeviceConfig {
            rule,
            turns: vec![1, 1],
            longest: span(300),
            overrun_margin: Span::ZERO,
            services: vec![service(200, 1_500), service(300, 2_500)],
        };
        let mut device = Device::new(config).expect("a device");
        let every = ArrivalCurve::new(&[ArrivalBound::window(1, span(1_000)).expect("valid")]).expect("one");
        let all = ConstraintSet::new(&[Constraint::any_miss(0, 1).expect("valid")]).expect("one");
        let promised = [StreamSpec::promised(all.clone(), every.clone())];
        let of =
            |time, latency| SharedService { latency: span(latency), batch: 2, time: span(time), turn: 1 };
        let sharing = Sharing {
            workers: 1,
            guard: Span::ZERO,
            stalls: None,
            longest: span(300),
            rule,
            services: vec![of(200, 1_500), of(300, 2_500)],
        };
        let lists: [&[StreamSpec]; 2] = [&promised, &promised];
        let admission = sharing.admit(&lists).expect("admitted");
        let streams = [0, 1].map(|s| {
            let (service, promised) =
                (device.service_mut(s), StreamSpec::promised(all.clone(), every.clone()));
            let promised = service.add_stream(Instant::ZERO, promised).expect("room");
            (promised, service.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room"))
        });
        drop(device.set_shield(Some(sharing.shield(&lists, &admission))).expect("its shield"));
        let (before, mut token, mut done, mut served, mut mandatory) = (allocations(), 0, None, 0u64, 0u64);
        for now in 0..200_000u64 {
            let at = Instant::from_nanos(now);
            if done == Some(now) {
                let ran = device
                    .owner(0)
                    .map_or(0, |s| device.service(s).config().workers[0].batch_time().as_nanos());
                device.handle_completion(at, 0, Ran::Done(span(ran)));
                done = None;
            }
            for (s, &(promised, stranger)) in streams.iter().enumerate() {
                for (every, stream) in [(1_000, promised), (170, stranger)] {
                    if now % every == 0 {
                        token += 1;
                        let _ = device.handle_arrival(at, s, Arrival::new(stream, token, at));
                    }
                }
            }
            loop {
                match device.poll(at) {
                    DeviceAction::Start { service, .. } => {
                        let time = device.service(service).config().workers[0].batch_time().as_nanos();
                        done = Some(now + time);
                    }
                    DeviceAction::Resolve(_, resolution) => {
                        let in_time = resolution.outcome == Outcome::Served;
                        served += u64::from(in_time);
                        mandatory += u64::from(resolution.request.mandatory);
                        assert!(in_time || !resolution.request.mandatory, "{resolution:?}");
                    }
                    DeviceAction::Event(..) => {}
                    DeviceAction::WakeAt(_) => break,
                }
            }
        }
        assert_eq!(allocations(), before, "{rule:?}");
        assert!(device.gone_ahead() > 50, "{} went ahead", device.gone_ahead());
        assert!(mandatory > 390 && served > mandatory + 200, "{served} served, {mandatory} mandatory");
    }
}

/// Two stages, and two streams: what the first one declares.
fn pipeline(queue: usize, streams: usize) -> (PipelineConfig, [StreamSpec; 2]) {
    let stage = |parents, fan_out, count, batch, time| {
        let profile = LatencyProfile::new(&[Span::from_nanos(time); 4]).expect("a profile");
        StageConfig { parents, fan_out, mean: 1.0, workers: Workers { count, batch, profile } }
    };
    let span = Span::from_nanos(20 * P);
    let config = PipelineConfig {
        deadline: Span::from_nanos(8 * P),
        guard: Span::ZERO,
        stalls: None,
        stages: vec![stage(Parents::NONE, 1, 1, 2, P / 2), stage(Parents::each([0]), 4, 2, 4, P)],
        queue,
        streams,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
    };
    let bound = ArrivalBound::window(2, Span::from_nanos(4 * P)).expect("valid");
    let constraints = ConstraintSet::new(&[Constraint::any_miss(1, 2).expect("valid")]).expect("one");
    let promised = StreamSpec::promised(constraints, ArrivalCurve::new(&[bound]).expect("one"));
    (config, [promised, StreamSpec::best_effort()])
}

/// A pipeline of two stages in overload: sources that nothing is promised for beside those that it is, more than there is
/// room for, a batch that runs over, a worker that is lost and comes back, streams that begin anew.
#[test]
fn nothing_is_allocated_while_sources_pass_through_stages() {
    let (config, specs) = pipeline(8, 2);
    passes_without_allocating(&config, specs);
}

/// The same with another stage beside the second, and one that takes what both have: each result, or each source once.
#[test]
fn nothing_is_allocated_in_merges_and_joins() {
    for last in [Parents::each([1, 2]), Parents::join([1, 2])] {
        let (mut config, specs) = pipeline(8, 2);
        let other = StageConfig { parents: Parents::each([0]), ..config.stages[1].clone() };
        let last = StageConfig { parents: last, ..config.stages[1].clone() };
        config.stages.extend([other, last]);
        passes_without_allocating(&config, specs);
    }
}

fn passes_without_allocating(config: &PipelineConfig, specs: [StreamSpec; 2]) {
    let mut scheduler = PipelineScheduler::new(config).expect("a configuration");
    let mut streams = specs.map(|spec| scheduler.add_stream(Instant::ZERO, spec).expect("room"));
    let mut ends = [[None::<u64>; 2]; 4];
    let (mut served, mut missed, mut starts) = (0, 0, 0);
    let before = allocations();
    for step in 0..20_000_u64 {
        let now = Instant::from_nanos(step * P / 8);
        for (stage, workers) in ends.iter_mut().enumerate() {
            for (worker, end) in workers.iter_mut().enumerate() {
                if let Some(started) = end.take_if(|end| Instant::from_nanos(*end) <= now) {
                    let ran = if step % 997 == 0 {
                        Ran::Failed(now.since(Instant::from_nanos(started)))
                    } else {
                        Ran::Done(now.since(Instant::from_nanos(started)))
                    };
                    scheduler.handle_completion(now, (stage, worker), ran, |place, _| {
                        (step as u32 + place as u32) % 6
                    });
                }
            }
        }
        if step % 70 == 3 {
            for stream in &mut streams {
                *stream = scheduler.restart_stream(now, *stream).expect("it is there");
            }
        }
        if step % 1_500 == 700 {
            (ends[1][1], _) = (None, scheduler.handle_worker_lost(now, (1, 1)));
        } else if step % 1_500 == 900 {
            scheduler.handle_worker_ready(now, (1, 1));
        }
        for (i, &stream) in streams.iter().enumerate() {
            if step % [17, 2][i] == 0 {
                let arrival = Arrival::new(stream, step, now);
                missed += u64::from(scheduler.handle_arrival(now, arrival).is_some());
            }
        }
        loop {
            match scheduler.poll(now) {
                PipelineAction::Start { stage, worker } => {
                    let over = if step % 1_300 == 0 { P } else { 0 };
                    ends[stage][worker] = Some(now.as_nanos() + [P / 2, P, P, P][stage] + over);
                    starts += 1;
                }
                PipelineAction::Resolve(resolution) => match resolution.outcome {
                    Outcome::Served => served += 1,
                    Outcome::Missed(_) => missed += 1,
                },
                PipelineAction::Event(_) => {}
                PipelineAction::WakeAt(_) => break,
            }
        }
    }
    assert_eq!(allocations(), before);
    assert!(served > 1_000 && missed > 1_000 && starts > 2_000, "{served} {missed} {starts}");
}

/// Another pipeline takes over, with more places for streams and a longer queue, while something waits at either stage.
#[test]
fn a_takeover_of_a_pipeline_that_was_expected_allocates_nothing() {
    let (config, specs) = pipeline(8, 2);
    let mut scheduler = PipelineScheduler::new(&config).expect("a configuration");
    let streams = specs.clone().map(|spec| scheduler.add_stream(Instant::ZERO, spec).expect("room"));
    let settle = |scheduler: &mut PipelineScheduler, at: Instant| {
        let mut told = 0;
        loop {
            match scheduler.poll(at) {
                PipelineAction::Resolve(_) => told += 1,
                PipelineAction::Start { .. } | PipelineAction::Event(_) => {}
                PipelineAction::WakeAt(_) => return told,
            }
        }
    };
    let [begun, ended, late] = [P / 4, P / 2, 3 * P / 4].map(Instant::from_nanos);
    for token in 0..5 {
        let _ = scheduler.handle_arrival(begun, Arrival::new(streams[1], token, begun));
    }
    settle(&mut scheduler, begun);
    scheduler.set_quiet(true);
    scheduler.handle_completion(ended, (0, 0), Ran::Done(ended.since(begun)), |_, _| 1);
    settle(&mut scheduler, ended);
    assert_eq!((scheduler.waiting(0), scheduler.waiting(1)), (1, 4));
    let mut next = PipelineScheduler::new(&pipeline(64, 9).0).expect("a configuration");
    next.expect_streams(2, &specs);
    let before = allocations();
    assert_eq!(scheduler.hand_over(late, &mut next, &[]), Ok(()));
    assert_eq!((settle(&mut scheduler, late), settle(&mut next, late)), (5, 0));
    assert_eq!(allocations(), before);
    drop(next.leftovers());
    assert!(streams.iter().all(|&id| next.first().stream_counts(id).is_some()));
}
