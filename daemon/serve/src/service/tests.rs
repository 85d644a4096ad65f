//! Tests of a service by itself: what it takes in, and when it no longer does.

use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use rt_core::{Dispatch, LatencyProfile, SafeModeConfig, SchedulerConfig, Span, Workers};
use weir_client::RefusalCode;

use super::*;
use weir_plan::config::Config;
use weir_plan::plan::Plan;
use weir_plan::profile::{Entry, Fingerprint, Profile};

const CONFIG: &str = r#"
    [daemon]
    bus = "off"
    profile = "profile.json"
    [[service]]
    name = "idle"
    engine = "simulated"
    simulated = { times = ["1ms"], input = 4, output = 4 }
    deadline = "1s"
"#;

/// A scheduler of three streams and one worker that takes a millisecond, for what only needs one.
pub(crate) fn small_config() -> SchedulerConfig {
    let span = Span::from_millis(1);
    let profile = LatencyProfile::new(&[span]).expect("a profile");
    SchedulerConfig {
        deadline: span + span,
        guard: Span::ZERO,
        tolerance: Span::ZERO,
        stalls: None,
        workers: vec![Workers { count: 1, batch: 1, profile }],
        dispatch: Dispatch::Eager,
        background: true,
        spread: false,
        queue: 1,
        streams: 3,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
    }
}

/// A service named `idle`, and its threads.
pub(crate) fn idle_service() -> (Arc<Service>, Vec<JoinHandle<()>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, CONFIG).unwrap();
    let config = Config::load(&path).unwrap();
    let model = &weir_plan::models::resolve_models(&config).unwrap()[0][0];
    let mut profile = Profile::new(Fingerprint::current());
    profile.put(Entry::of_simulated(model, &[1_100_000]));
    profile.save(&config.daemon.profile).unwrap();
    let plans = Plan::compute(&config).unwrap().services;
    let audience: Arc<dyn Audience> = Arc::new(Nobody);
    let (mut services, threads) = Service::start(plans, config.safe_mode, &audience, false, &[]).unwrap();
    (services.remove(0), threads)
}

/// Hears nothing.
struct Nobody;

impl Audience for Nobody {
    fn announce(&self, _: crate::announcement::Announcement) {}
    fn misses_left(&self, _: &str, _: &str, _: u32, _: rt_core::Constraint) {}
    fn refresh(&self) {}
}

/// A client that counts.
#[derive(Default)]
struct Client {
    open: AtomicUsize,
    replies: AtomicUsize,
}

impl crate::out::Replies for Client {
    fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn in_vain(&self, _: usize) {}

    fn send(&self, _: &[u8]) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }
}

fn register(service: &Arc<Service>, name: &str) -> Result<Lease, RefusalCode> {
    let outcome = Registry::register(service, &mut Effects::default(), (name, None, None), false);
    outcome.expect("nobody takes over").map_err(|refusal| refusal.code)
}

#[test]
fn what_comes_after_a_service_was_closed_is_given_back_and_what_came_before_is_answered() {
    let (service, threads) = idle_service();
    let mut lease = register(&service, "cam").unwrap();
    let client = Arc::new(Client::default());
    let mut submit = |id| {
        let token = service.slots.take().unwrap();
        {
            let mut slot = service.slots.get(token);
            slot.input = vec![0; 16];
            slot.origin = Some(Origin::new(Arc::clone(&client) as _, id, 1, None));
        }
        let meant = lease.meant(&service.plan.config, Said::default());
        (token, service.submit(&mut Effects::default(), &mut lease, token, meant))
    };
    assert_eq!(submit(1).1, Ok(()));
    service.close();
    let (token, outcome) = submit(2);
    assert_eq!(outcome, Err(Closed::Ending));
    assert!(service.slots.get(token).origin.is_some(), "the request is the caller's");
    while !service.is_drained() {
        std::thread::yield_now();
    }
    // All of it is on its way by then.
    assert_eq!(client.replies.load(Ordering::Relaxed), 1);
    assert_eq!(client.open.load(Ordering::Relaxed), 1, "the one that was given back");
    service.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A promise may have come to stand since it was asked.
#[test]
fn what_was_said_to_be_in_vain_is_refused_only_if_it_still_is() {
    let (service, threads) = idle_service();
    let lease = register(&service, "cam").unwrap();
    let refuse = |in_vain| service.refuse(&mut Effects::default(), &lease, Said::default(), in_vain);
    assert!(refuse(true).is_none(), "a worker is free for it");
    let refused = refuse(false);
    assert!(matches!(refused, Some(Handed::Refused(Some((_, 0, _))))), "the first of all: {refused:?}");
    Registry::release(&lease, &mut Effects::default());
    assert_eq!(service.stop_unless_held(), Ok(()));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_service_ends_only_while_nobody_holds_a_stream_and_gives_none_out_afterwards() {
    let (service, threads) = idle_service();
    let lease = register(&service, "cam").unwrap();
    assert_eq!(service.stop_unless_held(), Err(vec!["cam".to_owned()]));
    assert!(
        !service.is_closed()
            && register(&service, "other").is_ok_and(|other| {
                Registry::release(&other, &mut Effects::default());
                true
            })
    );
    Registry::release(&lease, &mut Effects::default());
    assert_eq!(service.stop_unless_held(), Ok(()));
    assert_eq!(register(&service, "cam").map(|lease| lease.name), Err(RefusalCode::UnknownService));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
