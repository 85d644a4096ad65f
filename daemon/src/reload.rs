//! Another configuration, taken over while serving: all of it is checked first, and nothing changes if anything is
//! wrong.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tracing::{error, info};
use weir_plan::certificate::checked;
use weir_plan::config::Config;
use weir_plan::models::resolve_models;
use weir_plan::plan::{Plan, ServicePlan};
use weir_plan::profile::{Fingerprint, profile_missing};
use weir_serve::manager;
use weir_serve::out::Audience;
use weir_serve::service::Service;

use crate::doors::Doors;
use crate::errors::whole;
use crate::overview::Overview;
use crate::reloads::Outcome;

/// Takes configurations over, for a daemon that serves.
pub(crate) struct Reload {
    pub(crate) overview: Arc<Overview>,
    pub(crate) doors: Arc<Doors>,
}

impl Reload {
    /// Takes the configuration over whenever `again` becomes readable, until it is shut down.
    pub(crate) fn run(&self, mut again: UnixStream) {
        let (reloads, served) = (&self.overview.reloads, &self.overview.served);
        let mut asked = [0; 64];
        while again.read(&mut asked).is_ok_and(|count| count > 0) {
            let begun = reloads.begin();
            manager::reloading();
            let outcome = reload(self)
                .unwrap_or_else(|error| Outcome { failures: vec![whole(&error)], ..Outcome::default() });
            outcome.changes.iter().for_each(|line| info!("reload: {line}"));
            if let Some(line) = outcome.error() {
                error!("reload: {line}");
            } else if outcome.changes.is_empty() {
                info!("reload: nothing has changed");
            }
            reloads.end(begun, &outcome, || {
                if !served.is_draining() {
                    manager::ready();
                }
                self.doors.refresh();
            });
        }
        reloads.close();
    }
}

/// What one service of the new configuration needs.
enum Step {
    Keep,
    Start(ServicePlan),
    Replace(Arc<Service>, ServicePlan),
}

/// Reads the configuration again, measures what was never measured, plans, checks, and takes over what has changed.
fn reload(this: &Reload) -> Result<Outcome> {
    let at = |step: &str| this.overview.reloads.at(step, 0, 0);
    at("reading and checking the configuration and its models");
    let config = Config::load(&this.overview.config.path)?;
    let models = resolve_models(&config)?;
    let profile = profile_missing(&config, &models, this.overview.served.draining(), &mut |progress| {
        let step = format!("measuring {}, in rounds", progress.what);
        this.overview.reloads.at(&step, progress.done as u64, progress.of as u64);
    })?;
    at("planning what can be promised");
    let plan = checked(&config, Plan::of(&config, models, &profile)?)?;
    let present = this.overview.served.services();
    let find = |name: &str| present.iter().find(|service| service.name() == name);
    let same_mode = this.overview.reloads.taken().safe_mode == config.safe_mode;
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
    for service in &gone {
        ensure!(service.plan.shared.is_none(), "{}", at_next_start(&service.plan));
    }
    for step in &steps {
        if let Step::Replace(service, plan) = step {
            for plan in [plan, &service.plan] {
                ensure!(plan.shared.is_none(), "{}", at_next_start(plan));
            }
            service
                .check_heir(plan)
                .map_err(anyhow::Error::msg)
                .with_context(|| service.name().to_owned())?;
        }
        if let Step::Replace(_, plan) | Step::Start(plan) = step {
            ensure!(plan.shared.is_none(), "{}", at_next_start(plan));
            check_record(plan, &present)?;
        }
    }
    let successors = prepare(this, &config, steps)?;
    let gone: Vec<_> = gone.into_iter().cloned().collect();
    Ok(take_over(this, config, plan.profiled, successors, &gone))
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

/// Why a service that shares its workers is not taken over: all that run on them would have to be, at once.
fn at_next_start(plan: &ServicePlan) -> String {
    let (service, device) = (&plan.config.name, plan.device_name());
    format!(
        "service {service} shares device {device}: what changes on a device takes effect at the next start"
    )
}

fn stays(service: &Service, held: &[String]) -> String {
    format!("service {} is to go, but these streams are held: {}", service.name(), held.join(", "))
}

/// What was started, and whom it is to take over from.
type Successor = (Arc<Service>, Option<Arc<Service>>);

/// Loads and warms all that is new; if anything cannot be, what was started is stopped again.
fn prepare(this: &Reload, config: &Config, steps: Vec<Step>) -> Result<Vec<Successor>> {
    let mut successors: Vec<Successor> = Vec::new();
    for step in steps {
        let (plan, before) = match step {
            Step::Keep => continue,
            Step::Start(plan) => (plan, None),
            Step::Replace(service, plan) => (plan, Some(service)),
        };
        let name = plan.config.name.clone();
        this.overview.reloads.at(&format!("loading and warming service {name}"), 0, 0);
        let (doors, realtime) =
            (Arc::clone(&this.doors) as Arc<dyn Audience>, this.overview.config.daemon.realtime);
        let start = || {
            let started = Service::start(vec![plan], config.safe_mode, &doors, realtime, before.as_deref());
            started.and_then(|(mut services, threads)| Ok((services.pop().context("one service")?, threads)))
        };
        match goes_on(this).map_err(|stop| anyhow!(stop)).and_then(|()| start()) {
            Ok((service, threads)) => {
                this.overview.served.add_threads(threads);
                successors.push((service, before));
            }
            Err(error) => {
                successors.iter().for_each(|(service, _)| service.stop());
                return Err(error.context(format!("service {name}")));
            }
        }
    }
    Ok(successors)
}

/// Nothing more is begun once the daemon ends.
fn goes_on(this: &Reload) -> Result<(), String> {
    if this.overview.served.is_draining() { Err("the daemon is stopping".to_owned()) } else { Ok(()) }
}

/// Lets what is ready take over, one service after the other, and each is seen as soon as it has; a service that cannot
/// be taken over, or that somebody holds by now, goes on.
fn take_over(
    this: &Reload,
    config: Config,
    profiled: Fingerprint,
    successors: Vec<Successor>,
    gone: &[Arc<Service>],
) -> Outcome {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    for (service, before) in successors {
        let name = service.name().to_owned();
        let Some(old) = before else {
            changes.push(format!("service {name}: new"));
            this.overview.served.change(|all| all.push(service));
            continue;
        };
        let step = format!("waiting for an instant at which service {name} can be taken over");
        this.overview.reloads.at(&step, 0, 0);
        match goes_on(this).and_then(|()| old.hand_over(&service)) {
            Ok(()) => {
                changes.push(format!(
                    "service {name}: {}, deadline {}",
                    service.plan.spec.name, service.plan.config.deadline
                ));
                this.overview.served.change(|all| {
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
                this.overview.served.change(|all| all.retain(|one| !Arc::ptr_eq(one, service)));
                this.doors.forget(service.name());
                changes.push(format!("service {}: gone", service.name()));
            }
            Err(held) => failures.push(stays(service, &held)),
        }
    }
    let place = |service: &Arc<Service>| config.services.iter().position(|c| c.name == service.name());
    this.overview.served.change(|all| all.sort_by_key(|service| place(service).unwrap_or(usize::MAX)));
    if failures.is_empty() {
        let taken = this.overview.reloads.taken();
        if taken.hook != config.hook {
            let program =
                config.hook.as_ref().map_or("none".to_owned(), |hook| hook.program.display().to_string());
            changes.push(format!("safe-mode.hook: {program}"));
            this.doors.set_hook(config.hook.clone());
        }
        if taken.daemon.needs_start(&config.daemon) {
            changes.push("[daemon]: what has changed there takes effect at the next start".to_owned());
        }
        this.overview.reloads.take(config, profiled);
    }
    Outcome { changes, failures }
}
