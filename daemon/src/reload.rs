//! Another configuration, taken over while serving: all of it is checked first, and nothing changes if anything is
//! wrong.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt_core::Instant;
use serde_json::{Value, json};
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::certificate::checked;
use crate::clock;
use crate::commands::profile_missing;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::manager;
use crate::plan::{Plan, ServicePlan, resolve_models};
use crate::profile::Fingerprint;
use crate::service::{Service, lock};
use tracing::{error, info};

/// How many may wait for the outcome of theirs at a time.
const CALLERS: usize = 16;

/// What has come of it so far.
pub(crate) struct Reloads {
    state: Mutex<State>,
}

struct State {
    /// The last configuration that was taken over as a whole, and the machine of its profile.
    taken: Config,
    profiled: Fingerprint,
    /// How many there have been, and the last of them.
    sequence: u64,
    last: Option<Ended>,
    /// Who waits for the outcome of the next one.
    waiting: Vec<Sender<Outcome>>,
}

/// One that is over. Whoever asked before it began has its outcome.
struct Ended {
    began: Instant,
    ended: Instant,
    outcome: Outcome,
}

/// What one has changed, and what it could not, a line each.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<String>,
    failures: Vec<String>,
}

impl Reloads {
    /// None yet; the daemon has started with `config`, which was measured on the machine `profiled`.
    pub(crate) fn new(config: &Config, profiled: Fingerprint) -> Self {
        let state = State { taken: config.clone(), profiled, sequence: 0, last: None, waiting: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    /// The machine of the profile that was taken over last.
    pub(crate) fn profiled(&self) -> Fingerprint {
        lock(&self.state).profiled.clone()
    }

    /// Asks for one as SIGHUP does. The receiver gets the outcome of one that began after this call, or an error if
    /// the daemon ends instead.
    ///
    /// # Errors
    /// If too many wait for theirs already, or the signal cannot be sent.
    pub(crate) fn ask(&self) -> Result<Receiver<Outcome>> {
        let (sender, outcome) = channel();
        let mut state = lock(&self.state);
        state.waiting.retain(|caller| !caller.is_closed());
        ensure!(
            state.waiting.len() < CALLERS,
            "{CALLERS} callers, the most there may be, wait for a reload already"
        );
        state.waiting.push(sender);
        drop(state);
        kill(Pid::this(), Signal::SIGHUP)?;
        Ok(outcome)
    }

    /// The last one, as JSON; `null` before the first.
    pub(crate) fn status(&self) -> Value {
        let state = lock(&self.state);
        let Some(Ended { began, ended, outcome }) = &state.last else { return Value::Null };
        json!({
            "sequence": state.sequence,
            "began_ns": began.as_nanos(),
            "ended_ns": ended.as_nanos(),
            "changes": outcome.changes,
            "error": outcome.error(),
        })
    }
}

impl Outcome {
    /// What failed, in a sentence; `None` if nothing did.
    pub(crate) fn error(&self) -> Option<String> {
        let whose = if self.changes.is_empty() {
            "refused, everything goes on as it was"
        } else {
            "taken over in part, what is named here goes on as it was"
        };
        (!self.failures.is_empty()).then(|| format!("{whose}: {}", self.failures.join("; ")))
    }
}

/// Takes the configuration over whenever `again` becomes readable, until it is shut down.
pub(crate) fn run(daemon: &Daemon, mut again: UnixStream) {
    let mut asked = [0; 64];
    while again.read(&mut asked).is_ok_and(|count| count > 0) {
        // Whoever asks from now on, asks for another one.
        let began = clock::now();
        let callers = std::mem::take(&mut lock(&daemon.reloads.state).waiting);
        manager::reloading();
        let outcome = reload(daemon).unwrap_or_else(|error| Outcome {
            failures: vec![crate::commands::whole(&error)],
            ..Outcome::default()
        });
        outcome.changes.iter().for_each(|line| info!("reload: {line}"));
        if let Some(line) = outcome.error() {
            error!("reload: {line}");
        } else if outcome.changes.is_empty() {
            info!("reload: nothing has changed");
        }
        let mut state = lock(&daemon.reloads.state);
        state.sequence += 1;
        state.last = Some(Ended { began, ended: clock::now(), outcome: outcome.clone() });
        drop(state);
        if !daemon.is_draining() {
            manager::ready();
        }
        daemon.doors.refresh();
        // A caller that has given up does not hear it.
        callers.into_iter().for_each(|caller| drop(caller.send(outcome.clone())));
    }
    lock(&daemon.reloads.state).waiting.clear();
}

/// What one service of the new configuration needs.
enum Step {
    Keep,
    Start(ServicePlan),
    Replace(Arc<Service>, ServicePlan),
}

/// Reads the configuration again, measures what was never measured, plans, checks, and takes over what has changed.
fn reload(daemon: &Daemon) -> Result<Outcome> {
    let config = Config::load(&daemon.config.path)?;
    let models = resolve_models(&config)?;
    let profile = profile_missing(&config, &models, daemon.draining())?;
    let plan = checked(&config, Plan::of(&config, models, &profile)?)?;
    let present = daemon.services();
    let find = |name: &str| present.iter().find(|service| service.name() == name);
    let same_mode = lock(&daemon.reloads.state).taken.safe_mode == config.safe_mode;
    let steps = plan.services.into_iter().map(|plan| match find(&plan.config.name) {
        None => Step::Start(plan),
        // Plans that read alike are alike.
        Some(service) if same_mode && format!("{:?}", service.plan) == format!("{plan:?}") => Step::Keep,
        Some(service) => Step::Replace(Arc::clone(service), plan),
    });
    let steps: Vec<_> = steps.collect();
    let gone: Vec<_> =
        present.iter().filter(|s| config.services.iter().all(|c| c.name != s.name())).collect();
    for service in &gone {
        let held = service.registry.lock().held();
        ensure!(held.is_empty(), "{}", stays(service, &held));
    }
    for step in &steps {
        if let Step::Replace(service, plan) = step {
            service
                .check_heir(plan)
                .map_err(anyhow::Error::msg)
                .with_context(|| service.name().to_owned())?;
        }
        if let Step::Replace(_, plan) | Step::Start(plan) = step {
            check_record(plan, &present)?;
        }
    }
    let heirs = prepare(daemon, &config, steps)?;
    let gone: Vec<_> = gone.into_iter().cloned().collect();
    Ok(take_over(daemon, config, plan.profiled, heirs, &gone))
}

/// Whether no other service is recorded in the file of `plan` until all is taken over.
fn check_record(plan: &ServicePlan, present: &[Arc<Service>]) -> Result<()> {
    let Some(record) = &plan.config.record else { return Ok(()) };
    let name = &plan.config.name;
    let other = present.iter().find(|s| s.name() != name && s.recorded_in() == Some(&*record.path));
    other.map_or(Ok(()), |other| {
        let path = record.path.display();
        bail!("service {name}: record = {path}: service {} is recorded there until then", other.name())
    })
}

fn stays(service: &Service, held: &[String]) -> String {
    format!("service {} is to go, but these streams are held: {}", service.name(), held.join(", "))
}

/// What was started, and whom it is to take over from.
type Heir = (Arc<Service>, Option<Arc<Service>>);

/// Loads and warms all that is new; if anything cannot be, what was started is stopped again.
fn prepare(daemon: &Daemon, config: &Config, steps: Vec<Step>) -> Result<Vec<Heir>> {
    let mut heirs: Vec<Heir> = Vec::new();
    for step in steps {
        let (plan, before) = match step {
            Step::Keep => continue,
            Step::Start(plan) => (plan, None),
            Step::Replace(service, plan) => (plan, Some(service)),
        };
        let name = plan.config.name.clone();
        let (doors, realtime) = (Arc::clone(&daemon.doors), daemon.config.daemon.realtime);
        let start = || Service::start(plan, config.safe_mode, doors, realtime, before.as_deref());
        match goes_on(daemon).map_err(|stop| anyhow!(stop)).and_then(|()| start()) {
            Ok((service, threads)) => {
                daemon.add_threads(threads);
                heirs.push((service, before));
            }
            Err(error) => {
                heirs.iter().for_each(|(service, _)| service.stop());
                return Err(error.context(format!("service {name}")));
            }
        }
    }
    Ok(heirs)
}

/// Nothing more is begun once the daemon ends.
fn goes_on(daemon: &Daemon) -> Result<(), String> {
    if daemon.is_draining() { Err("the daemon is stopping".to_owned()) } else { Ok(()) }
}

/// Lets what is ready take over, one service after the other, and each is seen as soon as it has; a service that cannot
/// be taken over, or that somebody holds by now, goes on.
fn take_over(
    daemon: &Daemon,
    config: Config,
    profiled: Fingerprint,
    heirs: Vec<Heir>,
    gone: &[Arc<Service>],
) -> Outcome {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    for (service, before) in heirs {
        let name = service.name().to_owned();
        let Some(old) = before else {
            changes.push(format!("service {name}: new"));
            daemon.change_services(|all| all.push(service));
            continue;
        };
        match goes_on(daemon).and_then(|()| old.hand_over(&service)) {
            Ok(()) => {
                changes.push(format!(
                    "service {name}: {}, deadline {}",
                    service.plan.spec.name, service.plan.config.deadline
                ));
                daemon.change_services(|all| {
                    all.iter_mut()
                        .filter(|one| one.name() == name)
                        .for_each(|one| *one = Arc::clone(&service));
                });
            }
            Err(error) => {
                failures.push(format!("service {name}: {error}"));
                service.stop();
            }
        }
    }
    for service in gone {
        match service.stop_unless_held() {
            Ok(()) => {
                daemon.change_services(|all| all.retain(|one| !Arc::ptr_eq(one, service)));
                daemon.doors.forget(service.name());
                changes.push(format!("service {}: gone", service.name()));
            }
            Err(held) => failures.push(stays(service, &held)),
        }
    }
    let place = |service: &Arc<Service>| config.services.iter().position(|c| c.name == service.name());
    daemon.change_services(|all| all.sort_by_key(|service| place(service).unwrap_or(usize::MAX)));
    if failures.is_empty() {
        let mut state = lock(&daemon.reloads.state);
        if state.taken.hook != config.hook {
            let program =
                config.hook.as_ref().map_or("none".to_owned(), |hook| hook.program.display().to_string());
            changes.push(format!("safe-mode.hook: {program}"));
            daemon.doors.set_hook(config.hook.clone());
        }
        if state.taken.daemon.needs_start(&config.daemon) {
            changes.push("[daemon]: what has changed there takes effect at the next start".to_owned());
        }
        (state.taken, state.profiled) = (config, profiled);
    }
    Outcome { changes, failures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_taken_over_is_told_beside_what_was() {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let error = |changes: &[&str], failures: &[&str]| {
            Outcome { changes: list(changes), failures: list(failures) }.error()
        };
        assert_eq!(error(&["a"], &[]), None);
        assert_eq!(error(&[], &["b"]).as_deref(), Some("refused, everything goes on as it was: b"));
        let part = error(&["a"], &["b", "c"]).expect("failures");
        assert!(part.starts_with("taken over in part") && part.ends_with(": b; c"), "{part}");
    }
}
