//! Tests of a service by itself: what it takes in, and when it no longer does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, LatencyProfile, SafeModeConfig,
    SchedulerConfig, Severity, Span, StreamSpec, Workers,
};
use weir_client::RefusalCode;

use super::*;
use crate::announcement::{Announcement, State};
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
    let (mut services, threads) = services(CONFIG);
    (services.remove(0), threads)
}

/// The services of a configuration, whose batches of one take 1.1 ms, and their threads.
fn services(text: &str) -> (Vec<Arc<Service>>, Vec<JoinHandle<()>>) {
    services_after(text, &[])
}

/// The same to take over from those `before`.
fn services_after(text: &str, before: &[Arc<Service>]) -> (Vec<Arc<Service>>, Vec<JoinHandle<()>>) {
    services_before(text, before, Arc::new(Nobody))
}

/// The same before an audience.
fn services_before(
    text: &str,
    before: &[Arc<Service>],
    audience: Arc<dyn Audience>,
) -> (Vec<Arc<Service>>, Vec<JoinHandle<()>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&path).unwrap();
    let mut profile = Profile::new(Fingerprint::current());
    for models in weir_plan::models::resolve_models(&config).unwrap() {
        profile.put(Entry::of_simulated(&models[0], &[1_100_000]));
    }
    profile.save(&config.daemon.profile).unwrap();
    let plans = Plan::compute(&config).unwrap().services;
    Service::start(plans, config.safe_mode, &audience, false, before).unwrap()
}

/// Hears which services are announced to be how.
#[derive(Default)]
struct Told(Mutex<Vec<(String, Severity)>>);

impl Audience for Told {
    fn announce(&self, told: Announcement) {
        if let State::Service(severity) = told.state {
            self.0.lock().unwrap().push((told.service, severity));
        }
    }
    fn misses_left(&self, _: &str, _: &str, _: u32, _: Constraint) {}
    fn refresh(&self) {}
}

/// Hears nothing.
struct Nobody;

impl Audience for Nobody {
    fn announce(&self, _: Announcement) {}
    fn misses_left(&self, _: &str, _: &str, _: u32, _: Constraint) {}
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

fn register_as(service: &Arc<Service>, name: &str, spec: Option<StreamSpec>) -> Result<Lease, RefusalCode> {
    let outcome = Registry::register(service, &mut Effects::default(), (name, spec, None), false);
    outcome.expect("nobody takes over").map_err(|refusal| refusal.code)
}

fn register(service: &Arc<Service>, name: &str) -> Result<Lease, RefusalCode> {
    register_as(service, name, None)
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
    let mut lease = register(&service, "cam").unwrap();
    let mut refuse = |in_vain| service.refuse(&mut Effects::default(), &mut lease, Said::default(), in_vain);
    assert!(refuse(true).is_none(), "a worker is free for it");
    let refused = refuse(false);
    assert!(matches!(refused, Some(Handed::Refused(Some((_, 0, _))))), "the first of all: {refused:?}");
    Registry::release(&lease, &mut Effects::default());
    assert_eq!(service.stop_unless_held(), Ok(()));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Whoever takes over may number classes otherwise.
#[test]
fn what_is_refused_while_another_service_takes_over_counts_for_the_class_that_it_names() {
    let with = |names: [&str; 2]| {
        let class = |name| format!("[[service.class]]\nname = \"{name}\"\n");
        let (mut services, threads) = services(&format!("{CONFIG}\n{}", names.map(class).concat()));
        (services.remove(0), threads)
    };
    let ((service, threads), (next, more)) = (with(["clean", "torn"]), with(["torn", "clean"]));
    let mut lease = register(&service, "cam").unwrap();
    let said = Said { class: lease.classes.told("torn"), ..Said::default() };
    service.heir.set(Arc::clone(&next)).ok().expect("nobody before");
    service.refuse(&mut Effects::default(), &mut lease, said, false);
    let missed: Vec<_> = next.classes_status().into_iter().map(|class| (class.name, class.missed)).collect();
    assert_eq!(missed, [("torn".to_owned(), 1), ("clean".to_owned(), 0)]);
    [service, next].iter().for_each(|service| service.stop());
    threads.into_iter().chain(more).for_each(|thread| thread.join().unwrap());
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

/// A device of two services that reserve nothing.
fn two_on_a_device() -> String {
    let on = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nstreams = 2\n\
             simulated = {{ times = [\"1ms\"], input = 4, output = 4 }}\ndeadline = \"1s\"\n"
        )
    };
    let daemon = "[daemon]\nbus = \"off\"\nprofile = \"profile.json\"\n[[device]]\nname = \"box\"\n";
    format!("{daemon}{}{}", on("one"), on("other"))
}

/// A stream that sends so many requests a second and may miss none.
fn promised(count: u64) -> Option<StreamSpec> {
    let window = ArrivalBound::window(count, Span::from_millis(1_000)).unwrap();
    let set = ConstraintSet::new(&[Constraint::row_miss(0).unwrap()]).unwrap();
    Some(StreamSpec::promised(set, ArrivalCurve::new(&[window]).unwrap()))
}

/// Who is refused leaves others no less room for batches that run over, nor does who has gone.
#[test]
fn what_batches_of_a_device_may_run_over_by_is_what_those_leave_who_are_there() {
    let (services, threads) = services(&two_on_a_device());
    let register = |of: usize, name: &str, spec| register_as(&services[of], name, spec);
    let margin = || services[0].scheduler().overrun_margin();
    let all = margin();
    let first = register(0, "first", promised(1)).unwrap();
    let beside_it = margin();
    let other = register(0, "other", None).unwrap();
    assert_eq!(register(0, "many", promised(200)).map(drop), Err(RefusalCode::TooManyStreams));
    assert_eq!(margin(), beside_it);
    let many = register(1, "many", promised(200)).unwrap();
    assert!(margin() < beside_it && beside_it < all);
    let more = register(1, "more", promised(1)).unwrap();
    Registry::release(&many, &mut Effects::default());
    assert!(margin() < beside_it, "one that is there was admitted beside it");
    Registry::release(&more, &mut Effects::default());
    assert_eq!(margin(), beside_it);
    Registry::release(&first, &mut Effects::default());
    assert_eq!(margin(), all);
    Registry::release(&other, &mut Effects::default());
    services.iter().for_each(|service| service.stop());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Behind a takeover as well, whoever goes while it is waited for or later.
#[test]
fn who_goes_once_another_device_is_to_take_over_leaves_as_much_as_was_there() {
    let text = two_on_a_device();
    let (first, mut threads) = services(&text);
    let margin = |services: &[Arc<Service>]| services[0].scheduler().overrun_margin();
    let release = |lease: &Lease| Registry::release(lease, &mut Effects::default());
    let all = margin(&first);
    let stays = register_as(&first[0], "stays", promised(1)).unwrap();
    let beside_it = margin(&first);
    let goes = register_as(&first[1], "goes", promised(200)).unwrap();
    let least = margin(&first);
    assert!(least < beside_it && beside_it < all);

    let (second, more) = services_after(&text, &first);
    threads.extend(more);
    std::thread::scope(|scope| {
        // As long as this is held nobody takes over.
        let held = second[0].registry.lock();
        let taken_over = scope.spawn(|| Service::hand_over(&first, &second));
        let begun = clock::now();
        while margin(&second) != least {
            assert!(clock::now().since(begun) < Span::from_millis(20_000), "both of them are to come along");
            std::thread::yield_now();
        }
        release(&goes);
        drop(held);
        assert_eq!(taken_over.join().unwrap(), Ok(()));
    });
    assert_eq!(margin(&second), beside_it);

    let goes = register_as(&second[1], "goes", promised(200)).unwrap();
    let (third, more) = services_after(&text, &second);
    threads.extend(more);
    assert_eq!(Service::hand_over(&second, &third), Ok(()));
    assert_eq!(margin(&third), least);
    release(&goes);
    assert_eq!(margin(&third), beside_it);
    release(&stays);
    assert_eq!(margin(&third), all);
    third.iter().for_each(|service| service.stop());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Who is to take over has workers that are lost as others are: nobody is served by them, and nobody is told, until it has.
#[test]
fn what_befalls_the_workers_of_who_is_to_take_over_is_told_once_it_has() {
    let text = two_on_a_device();
    let told = Arc::new(Told::default());
    let heard = || std::mem::take(&mut *told.0.lock().unwrap());
    let (first, mut threads) = services(&text);
    let with_another = text.clone() + &text[text.rfind("[[service]]").unwrap()..].replace("other", "new");
    let (second, more) = services_before(&with_another, &first, Arc::clone(&told) as _);
    threads.extend(more);
    let mut effects = Effects::default();
    second[0].with_scheduler(&mut effects, |scheduler, now| scheduler.handle_worker_lost(now, 0));
    assert_eq!(heard(), []);
    assert_eq!(Service::hand_over(&first, &second), Ok(()));
    let lost = ["one", "other", "new"].map(|name| (name.to_owned(), Severity::Lost));
    let mut all = heard();
    all.sort_by_key(|(name, _)| lost.iter().position(|(lost, _)| lost == name));
    assert_eq!(all, lost);
    second.iter().for_each(|service| service.stop());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
