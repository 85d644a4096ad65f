//! The daemon as a whole: started in order, ready last, drained before it ends.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rt_core::Span;
use tracing::{info, warn};
use weir_os::clock;
use weir_os::notice::{self, Notices};
use weir_os::{panics, realtime};
use weir_plan::config::Config;
use weir_plan::plan::Plan;
use weir_plan::profile::sysfs;
use weir_serve::manager::{self, Watchdog};
use weir_serve::out::Audience;
use weir_serve::served::Served;
use weir_serve::service::Service;

use crate::controller;
use crate::hardware::Watch;
use crate::loading::unless_stopped;
use crate::notifications::Notifications;
use crate::oip::Oip;
use crate::overview::Overview;
use crate::placement::Told;
use crate::reload::Reload;
use crate::reloads::Reloads;
use crate::socket::{Debts, Front, Intake, Listener};

/// How long the daemon waits at its end for clients that have not read their answers: within [`manager::stopping`]'s
/// margin.
const LAST_WORDS: Span = Span::from_millis(5_000);
/// How long it waits before that for what it has read to be answered.
const LAST_FRAMES: Span = Span::from_millis(2_000);
/// Descriptors that a client may take: its socket, an event and an alarm, and one that it is about to share.
const EACH_CLIENT: usize = 4;
/// Those of all else: workers, their processes and memory, recordings, fronts.
const ALL_ELSE: usize = 1_024;

/// Serves `plan` until `stop` becomes readable, then drains; takes its configuration over anew whenever `again` becomes
/// readable. `ready` is called once clients can connect.
///
/// # Errors
/// If a model cannot be loaded or the socket not be bound; nothing is left behind then.
pub(crate) fn run(
    config: Config,
    plan: Plan,
    (stop, again): (&UnixStream, UnixStream),
    ready: impl FnOnce(&Config),
) -> Result<()> {
    let _notices = Notices::queue().context("notices")?;
    panics::tell();
    allow_descriptors(config.daemon.max_clients);
    let listener = Listener::bind(&config.daemon)?;
    let (notifications, mut telling) = Notifications::open(&config)?;
    let oip = Oip::new(&config.daemon.oip);
    let realtime = config.daemon.realtime;
    let mut services = Vec::new();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let (profiled, audience) = (plan.profiled.clone(), Arc::clone(&notifications) as Arc<dyn Audience>);
    let load = || {
        for device in plan.into_devices() {
            let (places, plans): (Vec<_>, Vec<_>) = device.into_iter().unzip();
            let (started, mut own) = Service::start(plans, config.safe_mode, &audience, realtime, &[])?;
            services.extend(places.into_iter().zip(started));
            threads.append(&mut own);
        }
        anyhow::Ok(())
    };
    let clean_up = || {
        listener.remove();
        notifications.close();
        notice::say("stopped while loading: nobody has been answered yet");
    };
    unless_stopped(stop, clean_up, load).context("loading")??;
    services.sort_by_key(|&(place, _)| place);
    let services = services.into_iter().map(|(_, service)| service).collect();
    if realtime {
        realtime::lock_memory();
        if let Some(warning) = realtime::throttle_warning() {
            warn!("{warning}");
        }
    }
    let served = Arc::new(Served::new(services, threads));
    let reloads = Reloads::new(&config, profiled);
    let overview =
        Arc::new(Overview { config, served: Arc::clone(&served), reloads, placement: Told::default() });
    let watch = {
        let (watch, overview) = (Watch::new(sysfs()), Arc::clone(&overview));
        Builder::new().name("hardware".to_owned()).spawn(move || watch.run(&overview))?
    };
    let debts = Arc::new(Debts::default());
    telling.append(&mut notifications.start(&overview)?);
    if let Some(oip) = &oip {
        telling.push(oip.start(&overview, &debts)?);
    }
    let reload = Reload { overview: Arc::clone(&overview), notifications: Arc::clone(&notifications) };
    let asked = again.try_clone()?;
    Builder::new().name("reload".to_owned()).spawn(move || reload.run(asked))?;
    let controller = {
        let overview = Arc::clone(&overview);
        Builder::new().name("placement".to_owned()).spawn(move || controller::run(&overview))?
    };
    ready(&overview.config);
    let watchdog = Watchdog::start(&served, realtime).context("watchdog")?;
    let front = Front { overview, hub: Arc::clone(&notifications.hub), intake: Intake::default(), debts };
    let front = Arc::new(front);
    let stopped = listener.run(&front, stop);
    served.refuse();
    info!(
        "stopping: nothing new is taken in, and what waits is answered within {}",
        served.longest_deadline()
    );
    // What is being taken over is finished first: one service at most, within two deadlines and a second.
    let longest = served.longest_deadline();
    // Nor is a server elsewhere waited for longer: it may be given more time than that.
    weir_engine::answers_end(clock::now() + longest);
    manager::stopping(longest + longest + longest);
    let _ = again.shutdown(std::net::Shutdown::Both);
    front.overview.reloads.end_taking_over();
    manager::stopping(served.longest_deadline());
    served.drain();
    watch.thread().unpark();
    controller.thread().unpark();
    served.join();
    // A panic there has told its message.
    let _ = watch.join();
    let _ = controller.join();
    front.intake.close(LAST_FRAMES);
    notifications.hub.wait_until_flushed(LAST_WORDS);
    watchdog.into_iter().for_each(Watchdog::stop);
    notifications.close();
    oip.iter().for_each(Oip::close);
    for thread in telling {
        let _ = thread.join();
    }
    info!("stopped");
    stopped
}

/// Lets the process open as many files as all its clients may need beside its engines, as far as it may: without, a full house of clients
/// would leave none for an engine that is to be started again.
fn allow_descriptors(max_clients: usize) {
    let needed = (max_clients * EACH_CLIENT + ALL_ELSE) as u64;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let allowed = needed.min(hard).max(soft);
    if allowed < needed {
        warn!(
            "daemon.max-clients = {max_clients} needs up to {needed} files open at a time, and the limit is {allowed}: LimitNOFILE= of the \
             unit or `ulimit -Hn` allows more"
        );
    }
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, allowed, hard) {
        warn!("the limit of open files stays {soft}: {error}");
    }
}
