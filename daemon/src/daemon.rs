//! The daemon as a whole: started in order, ready last, drained before it ends.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::Span;
use serde_json::{Value, json};
use tracing::warn;

use crate::clock;
use crate::config::Config;
use crate::doors::Doors;
use crate::hardware::Watch;
use crate::manager::{self, Watchdog};
use crate::notice::Notices;
use crate::pi_mutex::PiMutex;
use crate::plan::Plan;
use crate::profile::{Fingerprint, sysfs};
use crate::realtime;
use crate::reload::{self, Reloads};
use crate::service::{Service, lock};
use crate::socket::{Intake, Listener};
use crate::status;

/// How long the daemon waits at its end for clients that have not read their answers: within [`manager::stopping`]'s
/// margin.
const LAST_WORDS: Span = Span::from_millis(5_000);
/// How long it waits before that for what it has read to be answered.
const LAST_FRAMES: Span = Span::from_millis(2_000);

/// Everything that serves.
pub(crate) struct Daemon {
    pub(crate) config: Config,
    services: PiMutex<Vec<Arc<Service>>>,
    pub(crate) doors: Arc<Doors>,
    draining: AtomicBool,
    pub(crate) intake: Intake,
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
        let _notices = Notices::queue().context("notices")?;
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
                warn!("{warning}");
            }
        }
        let daemon = Arc::new(Self {
            reloads: Reloads::new(&config, plan.profiled),
            config,
            services: PiMutex::new(services),
            doors,
            draining: AtomicBool::new(false),
            intake: Intake::default(),
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
        daemon.intake.close(LAST_FRAMES);
        daemon.doors.hub.wait_until_flushed(LAST_WORDS);
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
        self.services.lock().clone()
    }

    /// Serves what `change` leaves from now on.
    pub(crate) fn change_services(&self, change: impl FnOnce(&mut Vec<Arc<Service>>)) {
        change(&mut self.services.lock());
    }

    /// Waits for these threads of services at the end, too.
    pub(crate) fn add_threads(&self, threads: Vec<JoinHandle<()>>) {
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
            "services": self.services().iter().map(|s| status::of(s)).collect::<Vec<_>>(),
        })
    }

    fn longest_deadline(&self) -> Span {
        self.services().iter().map(|service| service.plan.config.deadline).max().unwrap_or_default()
    }

    /// Takes nothing in any more, answers what can still be answered in time, then stops the services.
    fn drain(&self) {
        let (services, longest) = (self.services(), self.longest_deadline());
        manager::stopping(longest);
        services.iter().for_each(|s| s.close());
        let until = clock::now() + longest;
        while clock::now() < until && !services.iter().all(|s| s.is_drained()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        services.iter().for_each(|s| s.stop());
    }
}
