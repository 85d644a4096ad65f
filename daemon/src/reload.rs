//! Another configuration, taken over while serving: all of it is checked first, and nothing changes if anything is
//! wrong.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::certificate::checked;
use crate::clock;
use crate::commands::profile_missing;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::manager;
use crate::plan::{Plan, ServicePlan, resolve_models};
use crate::profile::Fingerprint;
use crate::service::{Service, lock};

/// What has come of it so far.
pub(crate) struct Reloads {
    state: Mutex<State>,
}

struct State {
    /// The last configuration that was taken over as a whole, and the machine of its profile.
    taken: Config,
    profiled: Fingerprint,
    /// How many there have been, and the last one's end and outcome.
    sequence: u64,
    last: Option<(u64, Outcome)>,
}

/// What one has changed, and what it could not.
#[derive(Default)]
struct Outcome {
    changes: Vec<String>,
    failures: Vec<String>,
}

impl Reloads {
    /// None yet; the daemon has started with `config`, which was measured on the machine `profiled`.
    pub(crate) fn new(config: &Config, profiled: Fingerprint) -> Self {
        Self { state: Mutex::new(State { taken: config.clone(), profiled, sequence: 0, last: None }) }
    }

    /// The machine of the profile that was taken over last.
    pub(crate) fn profiled(&self) -> Fingerprint {
        lock(&self.state).profiled.clone()
    }

    /// The last one, as JSON; `null` before the first.
    pub(crate) fn status(&self) -> Value {
        let state = lock(&self.state);
        let Some((ended_ns, outcome)) = &state.last else { return Value::Null };
        json!({
            "sequence": state.sequence,
            "ended_ns": ended_ns,
            "changes": outcome.changes,
            "error": outcome.error(),
        })
    }
}

impl Outcome {
    fn error(&self) -> Option<String> {
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
        manager::reloading();
        let outcome = reload(daemon).unwrap_or_else(|error| Outcome {
            failures: vec![crate::commands::whole(&error)],
            ..Outcome::default()
        });
        let error = outcome.error();
        outcome.changes.iter().chain(&error).for_each(|line| eprintln!("weir: reload: {line}"));
        if outcome.changes.is_empty() && error.is_none() {
            eprintln!("weir: reload: nothing has changed");
        }
        let mut state = lock(&daemon.reloads.state);
        state.sequence += 1;
        state.last = Some((clock::now().as_nanos(), outcome));
        drop(state);
        if !daemon.is_draining() {
            manager::ready();
        }
    }
}

/// What one service of the new configuration needs.
enum Step {
    Keep(Arc<Service>),
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
        Some(service) if same_mode && format!("{:?}", service.plan) == format!("{plan:?}") => {
            Step::Keep(Arc::clone(service))
        }
        Some(service) => Step::Replace(Arc::clone(service), plan),
    });
    let steps: Vec<_> = steps.collect();
    let gone: Vec<_> =
        present.iter().filter(|s| config.services.iter().all(|c| c.name != s.name())).collect();
    for service in &gone {
        let held = lock(&service.registry).held();
        ensure!(
            held.is_empty(),
            "service {} is to go, but these streams are held: {}",
            service.name(),
            held.join(", ")
        );
    }
    for step in &steps {
        if let Step::Replace(service, plan) = step {
            service
                .check_heir(plan)
                .map_err(anyhow::Error::msg)
                .with_context(|| service.name().to_owned())?;
        }
    }
    let (heirs, threads) = prepare(daemon, &config, steps)?;
    let gone: Vec<_> = gone.into_iter().cloned().collect();
    Ok(take_over(daemon, config, plan.profiled, heirs, threads, &gone))
}

/// What is to be served, and whom it is to take over from.
type Heir = (Arc<Service>, Option<Arc<Service>>, bool);

/// Loads and warms all that is new; if anything cannot be, what was started is stopped again.
fn prepare(daemon: &Daemon, config: &Config, steps: Vec<Step>) -> Result<(Vec<Heir>, Vec<JoinHandle<()>>)> {
    let (mut heirs, mut threads): (Vec<Heir>, Vec<JoinHandle<()>>) = Default::default();
    for step in steps {
        let (plan, before) = match step {
            Step::Keep(service) => {
                heirs.push((service, None, false));
                continue;
            }
            Step::Start(plan) => (plan, None),
            Step::Replace(service, plan) => (plan, Some(service)),
        };
        let name = plan.config.name.clone();
        let (doors, realtime) = (Arc::clone(&daemon.doors), daemon.config.daemon.realtime);
        let start = || Service::start(plan, config.safe_mode, doors, realtime, before.as_deref());
        match goes_on(daemon).map_err(|stop| anyhow!(stop)).and_then(|()| start()) {
            Ok((service, mut own)) => {
                threads.append(&mut own);
                heirs.push((service, before, true));
            }
            Err(error) => {
                heirs.iter().filter(|(.., fresh)| *fresh).for_each(|(service, ..)| service.stop());
                return Err(error.context(format!("service {name}")));
            }
        }
    }
    Ok((heirs, threads))
}

/// Nothing more is begun once the daemon ends.
fn goes_on(daemon: &Daemon) -> Result<(), String> {
    if daemon.is_draining() { Err("the daemon is stopping".to_owned()) } else { Ok(()) }
}

/// Lets what is ready take over, one service after the other; a service that cannot be taken over goes on.
fn take_over(
    daemon: &Daemon,
    config: Config,
    profiled: Fingerprint,
    heirs: Vec<Heir>,
    threads: Vec<JoinHandle<()>>,
    gone: &[Arc<Service>],
) -> Outcome {
    let (mut changes, mut failures, mut services) = (Vec::new(), Vec::new(), Vec::new());
    for (service, before, fresh) in heirs {
        let name = service.name().to_owned();
        match before {
            None if fresh => {
                changes.push(format!("service {name}: new"));
                services.push(service);
            }
            None => services.push(service),
            Some(old) => match goes_on(daemon).and_then(|()| old.hand_over(&service)) {
                Ok(()) => {
                    changes.push(format!(
                        "service {name}: {}, deadline {}",
                        service.plan.spec.name, service.plan.config.deadline
                    ));
                    services.push(service);
                }
                Err(error) => {
                    failures.push(format!("service {name}: {error}"));
                    service.stop();
                    services.push(old);
                }
            },
        }
    }
    changes.extend(gone.iter().map(|service| format!("service {}: gone", service.name())));
    daemon.set_services(services, threads);
    for service in gone {
        service.stop();
        daemon.doors.forget(service.name());
    }
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
