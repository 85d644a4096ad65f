//! Tests of the watchdog: a scheduler that nobody can poll gets no ping, one that idles does.

use super::*;
use crate::config::Config;
use crate::doors::Doors;
use crate::engine::{EngineKind, RunMode};
use crate::plan::Plan;
use crate::profile::{Fingerprint, Profile};
use crate::service::{Effects, Service};

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

fn idle_service() -> (Arc<Service>, Vec<JoinHandle<()>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, CONFIG).unwrap();
    let config = Config::load(&path).unwrap();
    let model = &crate::plan::resolve_models(&config).unwrap()[0][0];
    let times = serde_json::json!({
        "model": model.name, "sha256": model.sha256, "engine": EngineKind::Simulated,
        "equipment": { "version": "none", "gpu": null, "driver": null }, "workers": 1,
        "exceedance": 1e-4, "margin": 0.1, "batches": [{
            "batch": 1, "mode": RunMode::Simulated, "samples": 1, "p50_ns": 1_000_000, "p99_ns": 1_000_000,
            "max_ns": 1_000_000, "bound_ns": 1_100_000, "basis": "few", "stable": false, "tail": null,
        }],
    });
    let mut profile = Profile::new(Fingerprint::current());
    profile.put(serde_json::from_value(times).unwrap());
    profile.save(&config.daemon.profile).unwrap();
    let plan = Plan::compute(&config).unwrap().services.remove(0);
    let (doors, _) = Doors::open(&config).unwrap();
    Service::start(plan, config.safe_mode, doors, false, None).unwrap()
}

/// Whether the service is seen to move within so many milliseconds.
fn moves_within(services: &[Arc<Service>], asked: Instant, ms: u64) -> bool {
    let until = clock::now() + Span::from_millis(ms);
    while clock::now() < until && !have_moved(services, asked) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    have_moved(services, asked)
}

#[test]
fn an_idle_service_moves_when_asked_and_one_whose_scheduler_is_stalled_does_not() {
    let (service, threads) = idle_service();
    let services = [service];
    assert!(moves_within(&services, ask(&services), 60_000));
    // Nobody asks: nothing moves, and a ping for an older question is no answer to a new one.
    assert!(!have_moved(&services, clock::now()));
    let mut stalled = (false, Instant::from_nanos(0));
    // The feed runs under the scheduler's lock.
    services[0].with_scheduler(&mut Effects::default(), |_, _| {
        let asked = ask(&services);
        stalled = (moves_within(&services, asked, 100), asked);
    });
    assert!(!stalled.0, "the timer polled a scheduler that was locked");
    assert!(moves_within(&services, stalled.1, 60_000), "it does not go on");
    services[0].stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(have_moved(&services, clock::now()), "one that has ended holds the pings up");
}
