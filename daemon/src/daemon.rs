//! The daemon as a whole: started in order, ready last, drained before it ends.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::{Alarm, MissReason, Span};
use serde_json::{Value, json};

use crate::clock;
use crate::config::Config;
use crate::doors::Doors;
use crate::engine::ModelSpec;
use crate::hardware::Watch;
use crate::manager::{self, Watchdog};
use crate::plan::{Plan, VariantPlan};
use crate::profile::{Fingerprint, sysfs};
use crate::realtime;
use crate::reload::{self, Reloads};
use crate::service::{Service, lock};
use crate::socket::{Listener, describe};

/// Everything that serves.
pub(crate) struct Daemon {
    pub(crate) config: Config,
    services: RwLock<Vec<Arc<Service>>>,
    pub(crate) doors: Arc<Doors>,
    draining: AtomicBool,
    /// Those of the services.
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) reloads: Reloads,
}

impl Daemon {
    /// Serves `plan` until `stop` becomes readable, then drains; takes its configuration over anew whenever `again`
    /// becomes readable. `ready` is called once clients can connect.
    ///
    /// # Errors
    /// If a model cannot be loaded or the socket not be bound; nothing is left behind then.
    pub(crate) fn run(
        config: Config,
        plan: Plan,
        (stop, again): (&UnixStream, UnixStream),
        ready: impl FnOnce(&Self),
    ) -> Result<()> {
        let listener = Listener::bind(&config.daemon)?;
        let (doors, mut telling) = Doors::open(&config)?;
        let mut services = Vec::new();
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for service in plan.services {
            let name = service.config.name.clone();
            let realtime = config.daemon.realtime;
            let started = Service::start(service, config.safe_mode, Arc::clone(&doors), realtime, None);
            let (service, mut own) = started.with_context(|| format!("service {name}"))?;
            services.push(service);
            threads.append(&mut own);
        }
        if config.daemon.realtime {
            realtime::lock_memory();
            if let Some(warning) = realtime::throttle_warning() {
                eprintln!("weir: {warning}");
            }
        }
        let daemon = Arc::new(Self {
            reloads: Reloads::new(&config, plan.profiled),
            config,
            services: RwLock::new(services),
            doors,
            draining: AtomicBool::new(false),
            threads: Mutex::new(threads),
        });
        let watch = {
            let (watch, daemon) = (Watch::new(sysfs()), Arc::clone(&daemon));
            std::thread::Builder::new().name("hardware".to_owned()).spawn(move || watch.run(&daemon))?
        };
        telling.append(&mut daemon.doors.start(&daemon)?);
        let reloader = {
            let (daemon, again) = (Arc::clone(&daemon), again.try_clone()?);
            std::thread::Builder::new()
                .name("reload".to_owned())
                .spawn(move || reload::run(&daemon, again))?
        };
        ready(&daemon);
        let watchdog = Watchdog::start(&daemon).context("watchdog")?;
        let served = listener.run(&daemon, stop);
        daemon.draining.store(true, Ordering::Relaxed);
        // What is being taken over is finished first: one service at most, within two deadlines and a second.
        let longest = daemon.longest_deadline();
        manager::stopping(longest + longest + longest);
        let _ = again.shutdown(std::net::Shutdown::Both);
        let _ = reloader.join();
        daemon.drain();
        watch.thread().unpark();
        let threads = std::mem::take(&mut *lock(&daemon.threads));
        for thread in threads.into_iter().chain([watch]) {
            // A panic there has told its message; the others still end in order.
            let _ = thread.join();
        }
        watchdog.into_iter().for_each(Watchdog::stop);
        daemon.doors.close();
        for thread in telling {
            let _ = thread.join();
        }
        served
    }

    /// New requests are refused from now on.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Set from then on.
    pub(crate) fn draining(&self) -> &AtomicBool {
        &self.draining
    }

    /// The machine that the promises were measured on.
    pub(crate) fn profiled(&self) -> Fingerprint {
        self.reloads.profiled()
    }

    /// What is served now.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.services.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves these from now on; `threads` are those of new ones among them.
    pub(crate) fn set_services(&self, services: Vec<Arc<Service>>, threads: Vec<JoinHandle<()>>) {
        *self.services.write().unwrap_or_else(PoisonError::into_inner) = services;
        let mut all = lock(&self.threads);
        all.retain(|thread| !thread.is_finished());
        all.extend(threads);
    }

    /// The state of everything, as a JSON object; `docs/protocol.md` lists the fields.
    pub(crate) fn status(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "now_ns": clock::now().as_nanos(),
            "draining": self.is_draining(),
            "clients": self.doors.hub.count(),
            "reload": self.reloads.status(),
            "services": self.services().iter().map(|s| service_status(s)).collect::<Vec<_>>(),
        })
    }

    fn longest_deadline(&self) -> Span {
        self.services().iter().map(|service| service.plan.config.deadline).max().unwrap_or_default()
    }

    /// Answers what can still be answered in time, then stops the services.
    fn drain(&self) {
        let (services, longest) = (self.services(), self.longest_deadline());
        manager::stopping(longest);
        let until = clock::now() + longest;
        while clock::now() < until && !services.iter().all(|s| s.is_drained()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        services.iter().for_each(|s| s.stop());
    }
}

/// `null` where it is not known.
fn accuracy(spec: &ModelSpec) -> Value {
    if spec.accuracy.is_nan() { Value::Null } else { spec.accuracy.into() }
}

fn service_status(service: &Service) -> Value {
    let plan = &service.plan;
    let variant = |(v, answered): (&VariantPlan, u64)| json!({ "model": v.spec.name, "accuracy": accuracy(&v.spec), "answered": answered });
    let variants: Vec<_> = plan.variants.iter().zip(service.answered()).map(variant).collect();
    let planning = service.planning_status();
    let measured = service.rate_seen_per_s();
    let (latency, batch_sizes) = service.meters_status();
    let registry = lock(&service.registry);
    let names = lock(&service.names);
    service.look(|scheduler| {
        let name = |id| names.get(&id).map(String::as_str).unwrap_or_default();
        let mode = scheduler.safe_mode();
        let (late, handover) = scheduler.worst_delays();
        let state = mode.state();
        let safe_mode = match state.alarm {
            None => json!({ "state": state.severity.to_string(), "state_number": state.severity as u32, "cause_number": 0, "sequence": mode.sequence(), "breaches": mode.breaches() }),
            Some(Alarm { cause, evidence, entered }) => json!({
                "state": state.severity.to_string(),
                "state_number": state.severity as u32,
                "sequence": mode.sequence(),
                "breaches": mode.breaches(),
                "cause": cause.to_string(),
                "cause_number": cause as u32,
                "entered_ns": entered.as_nanos(),
                "text": describe(cause, evidence.limit, evidence.seen, evidence.window, evidence.stream.map(&name).unwrap_or_default()),
            }),
        };
        let mut streams: Vec<_> = registry
            .iter()
            .filter_map(|(name, id, spec, reserved, held)| {
                let (counts, misses_left) = scheduler.stream_counts(id)?;
                let missed: serde_json::Map<_, _> = MissReason::ALL
                    .iter()
                    .map(|&reason| (reason.to_string(), counts.missed(reason).into()))
                    .collect();
                Some(json!({
                    "name": name,
                    "reserved": reserved,
                    "connected": held,
                    "constraints": spec.constraints().as_slice().iter().map(|c| c.to_string()).collect::<Vec<_>>(),
                    "arrivals": spec.arrivals().map(|a| a.bounds().iter().map(|b| b.to_string()).collect::<Vec<_>>()),
                    "arrived": counts.arrived,
                    "served": counts.served,
                    "missed": missed,
                    "misses_left": misses_left,
                }))
            })
            .collect();
        streams.sort_by_key(|s| s["name"].as_str().map(str::to_owned));
        json!({
            "name": service.name(),
            "engine": plan.config.engine.to_string(),
            "simulated": plan.is_simulated(),
            "model": plan.spec.name,
            "accuracy": accuracy(&plan.spec),
            "variants": variants,
            "select": if plan.variants.len() > 1 { plan.config.select.name().into() } else { Value::Null },
            "planning": planning,
            "shielded": scheduler.shield().is_some(),
            "inputs": plan.spec.inputs,
            "outputs": plan.spec.outputs,
            "deadline_ns": plan.config.deadline.as_nanos(),
            "guard_ns": plan.config.guard.as_nanos(),
            "batch": plan.workers().batch,
            "batch_time_ns": plan.workers().batch_time().as_nanos(),
            "jitter_ns": plan.config.jitter.as_nanos(),
            "constraints": plan.config.constraints.iter().map(|c| c.to_string()).collect::<Vec<_>>(),
            "promised_period_ns": plan.rate.as_ref().and_then(|r| r.spare).map(|(period, _)| period.as_nanos()),
            "certified_per_s": plan.certified_per_s(),
            "measured_per_s": measured,
            "latency_ns": latency,
            "batch_sizes": batch_sizes,
            "workers": scheduler.config().worker_count(),
            "workers_alive": scheduler.workers_alive(),
            "waiting": scheduler.waiting(),
            "running": scheduler.running(),
            "guard_seen_ns": late.as_nanos(),
            "handover_ns": plan.config.handover.as_nanos(),
            "handover_seen_ns": handover.as_nanos(),
            "safe_mode": safe_mode,
            "streams": streams,
        })
    })
}
