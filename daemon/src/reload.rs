//! Another configuration, taken over while serving: all of it is checked first, and nothing changes if anything is
//! wrong.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail, ensure};
use tracing::{error, info};
use weir_plan::certificate::checked;
use weir_plan::config::{Config, has_arrivals};
use weir_plan::models::resolve_models;
use weir_plan::placed;
use weir_plan::plan::{Plan, ServicePlan};
use weir_plan::profile::{Fingerprint, profile_missing};
use weir_serve::manager;
use weir_serve::out::Audience;
use weir_serve::service::{Service, stays};

use crate::errors::whole;
use crate::notifications::Notifications;
use crate::overview::Overview;
use crate::reloads::Outcome;

/// Why nothing more is taken over.
const STOPPING: &str = "the daemon is stopping";

/// Takes configurations over, for a daemon that serves.
pub(crate) struct Reload {
    pub(crate) overview: Arc<Overview>,
    pub(crate) notifications: Arc<Notifications>,
}

impl Reload {
    /// Takes the configuration over whenever `again` becomes readable, until it is shut down. It never returns: the processes of
    /// engines that were started here end with this thread, and what is in flight there is answered first.
    pub(crate) fn run(&self, mut again: UnixStream) -> ! {
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
                self.notifications.refresh();
            });
        }
        reloads.close();
        loop {
            std::thread::park();
        }
    }
}

/// What the services of a device of the new configuration need, or one that has its workers to itself.
enum Step {
    Keep,
    /// To be started, and to take over from all services of a device, if from any.
    Start(Vec<ServicePlan>, Vec<Arc<Service>>),
}

/// Reads the configuration again, measures what was never measured, plans, checks, and takes over what has changed.
fn reload(this: &Reload) -> Result<Outcome> {
    let at = |step: &str| this.overview.reloads.at(step, 0, 0);
    at("reading and checking the configuration and its models");
    let config = placed::serving(&this.overview.config.path)?;
    let models = resolve_models(&config)?;
    let profile = profile_missing(&config, &models, this.overview.served.draining(), &mut |progress| {
        let step = format!("measuring {}, in rounds", progress.what);
        this.overview.reloads.at(&step, progress.done as u64, progress.of as u64);
    })?;
    at("planning what can be promised");
    let plan = Plan::watched(&config, models, &profile, &mut |search| {
        let step = format!("choosing the batches of device {}, by admission tests", search.device);
        this.overview.reloads.at(&step, search.tests, search.most);
    })?;
    let plan = checked(&config, plan)?;
    let profiled = plan.profiled.clone();
    let present = this.overview.served.services();
    let same_mode = this.overview.reloads.taken().safe_mode == config.safe_mode;
    let devices = plan.into_devices().into_iter();
    let devices = devices.map(|on| on.into_iter().map(|(_, plan)| plan).collect());
    let steps: Vec<_> = devices.map(|plans| step(plans, &present, same_mode)).collect::<Result<_>>()?;
    let is_gone = |service: &&Arc<Service>| config.services.iter().all(|c| c.name != service.name());
    let gone: Vec<_> = present.iter().filter(is_gone).cloned().collect();
    for service in &gone {
        let held = service.registry.lock().held();
        ensure!(held.is_empty(), "{}", stays(service.name(), &held));
    }
    for step in &steps {
        if let Step::Start(plans, before) = step {
            Service::check_heirs(before, plans).map_err(anyhow::Error::msg)?;
            check_record(&plans[0], before, &present)?;
        }
    }
    let successors = prepare(this, &config, steps)?;
    Ok(take_over(this, config, profiled, successors, &gone))
}

/// What is to be done for these, which are all that run on the same workers.
fn step(plans: Vec<ServicePlan>, present: &[Arc<Service>], same_mode: bool) -> Result<Step> {
    let found = |plan: &ServicePlan| Service::named(present, &plan.config.name);
    let before = plans.iter().find_map(found).map_or_else(Vec::new, |service| service.companions());
    for plan in &plans {
        let Some(service) = found(plan) else { continue };
        ensure!(
            service.plan.stages().is_empty() == plan.stages().is_empty(),
            "{} becomes a pipeline from the next start on, or is one no longer: that takes a restart",
            service.name()
        );
        let runs_on = |device: Option<&str>| match device {
            Some(name) => format!("device {name}"),
            None => "workers of its own".to_owned(),
        };
        let (now, then) = (service.plan.shared_device(), plan.shared_device());
        ensure!(
            now == then,
            "service {} runs on {}, and on {} from the next start on: to move it takes a restart",
            service.name(),
            runs_on(now),
            runs_on(then)
        );
    }
    // Plans that read alike are alike.
    let alike =
        |(plan, service): (&ServicePlan, &Arc<Service>)| format!("{:?}", service.plan) == format!("{plan:?}");
    match same_mode && plans.len() == before.len() && plans.iter().zip(&before).all(alike) {
        true => Ok(Step::Keep),
        false => Ok(Step::Start(plans, before)),
    }
}

/// Whether nobody is recorded in the file of `plan` until all is taken over but those `before`, whom it takes over from, and nothing
/// that was recorded there is lost.
fn check_record(plan: &ServicePlan, before: &[Arc<Service>], present: &[Arc<Service>]) -> Result<()> {
    let Some(record) = &plan.config.record else { return Ok(()) };
    let is_other = |s: &&Arc<Service>| before.iter().all(|before| !Arc::ptr_eq(before, s));
    let other = present.iter().filter(is_other).find(|s| s.recorded_in() == Some(&*record.path));
    let at = || format!("{}: record = {}", place(plan), record.path.display());
    if let Some(other) = other {
        bail!("{}: {} is recorded there until then", at(), place(&other.plan));
    }
    let goes_on = before.iter().any(|s| s.recorded_in() == Some(&*record.path));
    ensure!(
        goes_on || !has_arrivals(&record.path),
        "{}: holds a recording, which would be lost; move it away, or name another file",
        at()
    );
    Ok(())
}

/// What was started, and whom it is to take over from.
type Successor = (Vec<Arc<Service>>, Vec<Arc<Service>>);

/// Loads and warms all that is new; if anything cannot be, what was started is stopped again.
fn prepare(this: &Reload, config: &Config, steps: Vec<Step>) -> Result<Vec<Successor>> {
    let mut successors: Vec<Successor> = Vec::new();
    for step in steps {
        let Step::Start(plans, before) = step else { continue };
        let (audience, realtime) =
            (Arc::clone(&this.notifications) as Arc<dyn Audience>, this.overview.config.daemon.realtime);
        let place = plans.first().map_or_else(String::new, place);
        this.overview.reloads.at(&format!("loading and warming {place}"), 0, 0);
        let start = || Service::start(plans, config.safe_mode, &audience, realtime, &before);
        match goes_on(this).map_err(|stop| anyhow!(stop)).and_then(|()| start()) {
            Ok((services, threads)) => {
                this.overview.served.add_threads(threads);
                successors.push((services, before));
            }
            Err(error) => {
                successors.iter().flat_map(|(services, _)| services).for_each(|service| service.stop());
                return Err(error.context(place));
            }
        }
    }
    Ok(successors)
}

/// Nothing more is begun once the daemon ends.
fn goes_on(this: &Reload) -> Result<(), String> {
    if this.overview.served.is_draining() { Err(STOPPING.to_owned()) } else { Ok(()) }
}

/// Lets what is ready take over, one device after the other, and each is seen as soon as it has; services that cannot
/// be taken over, or one that somebody holds by now, go on.
fn take_over(
    this: &Reload,
    config: Config,
    profiled: Fingerprint,
    successors: Vec<Successor>,
    gone: &[Arc<Service>],
) -> Outcome {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    let served = &this.overview.served;
    let Some(_taking_over) = this.overview.reloads.taking_over() else {
        successors.iter().flat_map(|(services, _)| services).for_each(|service| service.stop());
        return Outcome { changes, failures: vec![STOPPING.to_owned()] };
    };
    let mut gone: Vec<_> = gone.to_vec();
    for (services, before) in successors {
        if !before.is_empty() {
            let place = place(&services[0].plan);
            let step = format!("waiting for an instant at which {place} can be taken over");
            this.overview.reloads.at(&step, 0, 0);
        }
        if let Err(error) = goes_on(this).and_then(|()| Service::hand_over(&before, &services)) {
            failures.push(error);
            services.iter().for_each(|service| service.stop());
            continue;
        }
        served.change(|all| {
            for old in &before {
                match (
                    all.iter().position(|one| Arc::ptr_eq(one, old)),
                    Service::named(&services, old.name()),
                ) {
                    (Some(place), Some(heir)) => all[place] = Arc::clone(heir),
                    (Some(place), None) => drop(all.remove(place)),
                    (None, _) => {}
                }
            }
            all.extend(services.iter().filter(|one| Service::named(&before, one.name()).is_none()).cloned());
        });
        for service in &services {
            changes.extend(change(service, &before));
            changes.extend(
                Service::named(&before, service.name()).into_iter().flat_map(|old| service.redeclared(old)),
            );
        }
        let (ended, others) = gone.into_iter().partition(|one| before.iter().any(|b| Arc::ptr_eq(one, b)));
        gone = others;
        for service in Vec::<Arc<Service>>::from_iter(ended) {
            this.notifications.forget(service.name());
            changes.push(format!("service {}: gone", service.name()));
        }
    }
    for service in &gone {
        match service.stop_unless_held() {
            Ok(()) => {
                served.change(|all| all.retain(|one| !Arc::ptr_eq(one, service)));
                this.notifications.forget(service.name());
                changes.push(format!("service {}: gone", service.name()));
            }
            Err(held) => failures.push(stays(service.name(), &held)),
        }
    }
    let place = |service: &Arc<Service>| config.services.iter().position(|c| c.name == service.name());
    served.change(|all| all.sort_by_key(|service| place(service).unwrap_or(usize::MAX)));
    if failures.is_empty() {
        let taken = this.overview.reloads.taken();
        if taken.hook != config.hook {
            let program =
                config.hook.as_ref().map_or("none".to_owned(), |hook| hook.program.display().to_string());
            changes.push(format!("safe-mode.hook: {program}"));
            this.notifications.set_hook(config.hook.clone());
        }
        if taken.daemon.needs_start(&config.daemon) {
            changes.push("[daemon]: what has changed there takes effect at the next start".to_owned());
        }
        this.overview.reloads.take(config, profiled);
    }
    Outcome { changes, failures }
}

/// What has changed for a service that has just been started, in a line; nothing if only others of its device have.
fn change(service: &Service, before: &[Arc<Service>]) -> Option<String> {
    let (name, plan) = (service.name(), &service.plan);
    let Some(old) = Service::named(before, name) else {
        return Some(format!("service {name}: new"));
    };
    let told = |plan: &ServicePlan| format!("{:?} {:?}", plan.config, plan.spec);
    let device = |plan: &ServicePlan| plan.shared.as_ref().map(|share| format!("{:?}", share.device.config));
    let is_new = plan.shared.is_none() || told(plan) != told(&old.plan) || device(plan) != device(&old.plan);
    is_new.then(|| format!("service {name}: {}, deadline {}", plan.spec.name, plan.config.deadline))
}

/// What runs by `plan`: its device, or the service by itself.
fn place(plan: &ServicePlan) -> String {
    match plan.shared_device() {
        Some(device) => format!("device {device}"),
        None => format!("service {}", plan.config.name),
    }
}
