//! Another configuration, taken over while serving: all of it is checked first, and nothing changes if anything is
//! wrong.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};
use rt_core::SafeModeConfig;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::certificate::checked_plan;
use crate::clock;
use crate::commands::profile_missing;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::manager;
use crate::plan::ServicePlan;
use crate::service::{Service, lock};

/// How many may wait for the outcome of theirs at a time.
const CALLERS: usize = 16;

/// What has changed, a line each; or why not.
pub(crate) type Outcome = Result<Vec<String>, String>;

/// What has come of it so far.
pub(crate) struct Reloads {
    state: Mutex<State>,
}

struct State {
    /// That of the services there are.
    safe_mode: SafeModeConfig,
    /// How many there have been, and the last one's end and outcome.
    sequence: u64,
    last: Option<(u64, Outcome)>,
    /// Who waits for the outcome of the next one.
    waiting: Vec<Sender<Outcome>>,
}

impl Reloads {
    /// Nothing was taken over yet.
    pub(crate) fn new(safe_mode: SafeModeConfig) -> Self {
        Self { state: Mutex::new(State { safe_mode, sequence: 0, last: None, waiting: Vec::new() }) }
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
        kill_process(getpid(), Signal::HUP)?;
        Ok(outcome)
    }

    /// The last one, as JSON; `null` before the first.
    pub(crate) fn status(&self) -> Value {
        let state = lock(&self.state);
        let Some((ended_ns, outcome)) = &state.last else { return Value::Null };
        json!({
            "sequence": state.sequence,
            "ended_ns": ended_ns,
            "changes": outcome.as_ref().ok(),
            "error": outcome.as_ref().err(),
        })
    }
}

/// Takes the configuration over whenever `again` becomes readable, until it is shut down.
pub(crate) fn run(daemon: &Daemon, mut again: UnixStream) {
    let mut asked = [0; 64];
    while again.read(&mut asked).is_ok_and(|count| count > 0) {
        // Whoever asks from now on, asks for another one.
        let callers = std::mem::take(&mut lock(&daemon.reloads.state).waiting);
        manager::reloading();
        let outcome = reload(daemon).map_err(|error| crate::commands::whole(&error));
        match &outcome {
            Ok(changes) if changes.is_empty() => eprintln!("weir: reload: nothing has changed"),
            Ok(changes) => changes.iter().for_each(|change| eprintln!("weir: reload: {change}")),
            Err(error) => eprintln!("weir: reload: refused, everything goes on as it was: {error}"),
        }
        let mut state = lock(&daemon.reloads.state);
        state.sequence += 1;
        state.last = Some((clock::now().as_nanos(), outcome.clone()));
        drop(state);
        manager::ready();
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
fn reload(daemon: &Daemon) -> Result<Vec<String>> {
    let config = Config::load(&daemon.config.path)?;
    profile_missing(&config, daemon.draining())?;
    let plan = checked_plan(&config)?;
    let present = daemon.services();
    let find = |name: &str| present.iter().find(|service| service.name() == name);
    let same_mode = lock(&daemon.reloads.state).safe_mode == config.safe_mode;
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
        let held = lock(&service.registry).held();
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
    take_over(daemon, &config, heirs, &gone.into_iter().cloned().collect::<Vec<_>>())
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
        match Service::start(plan, config.safe_mode, doors, realtime, before.as_deref()) {
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

/// Lets what is ready take over, one service after the other, and each is seen as soon as it has; a service that cannot
/// be taken over, or that somebody holds by now, goes on.
fn take_over(
    daemon: &Daemon,
    config: &Config,
    heirs: Vec<Heir>,
    gone: &[Arc<Service>],
) -> Result<Vec<String>> {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    for (service, before) in heirs {
        let name = service.name().to_owned();
        let Some(old) = before else {
            changes.push(format!("service {name}: new"));
            daemon.change_services(|all| all.push(service));
            continue;
        };
        match old.hand_over(&service) {
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
                changes.push(format!("service {}: gone", service.name()));
            }
            Err(held) => failures.push(stays(service, &held)),
        }
    }
    let place = |service: &Arc<Service>| config.services.iter().position(|c| c.name == service.name());
    daemon.change_services(|all| all.sort_by_key(|service| place(service).unwrap_or(usize::MAX)));
    if format!("{:?}", config.daemon) != format!("{:?}", daemon.config.daemon) {
        changes.push("[daemon]: what differs there and is not about models, profile or certificate takes effect at the next start".to_owned());
    }
    if failures.is_empty() {
        lock(&daemon.reloads.state).safe_mode = config.safe_mode;
        return Ok(changes);
    }
    bail!(
        "{}{}",
        failures.join("; "),
        if changes.is_empty() { String::new() } else { format!("; done: {}", changes.join("; ")) }
    )
}
