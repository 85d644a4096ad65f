//! One look for a better placement: asked for, judged, told, and carried out, one service or pipeline after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Result, anyhow, ensure};
use tracing::{info, warn};
use weir_os::clock;
use weir_plan::config::{Config, Mode, ModelChoice, PlacementConfig, ServiceConfig};
use weir_plan::placed;

use super::Controller;
use super::find::{Plan, Stop};
use super::verdict::{Proposal, Verdict, objection, verdict};

/// Why a plan is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A period is over.
    Period,
    /// More is asked of that service than was planned, and no chance.
    Burst(String),
    /// That service has lost a worker for good.
    Lost(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period => to.write_str("a period is over"),
            Self::Burst(service) => write!(to, "more is asked of {service} than was planned"),
            Self::Lost(service) => write!(to, "{service} has lost a worker for good"),
        }
    }
}

impl Controller<'_> {
    /// Looks for a plan; what comes of it is told, and carried out if that is wanted.
    pub(super) fn place(&mut self, config: &Config, placement: &PlacementConfig, reason: &Reason) {
        let expected = self.seen.expected(config);
        let planned = expected.iter().map(|(name, rate)| (name.clone(), rate * placement.headroom)).collect();
        self.seen.plan_for(&planned);
        let plan = self.find(config, placement, &expected);
        let now = clock::now().as_nanos();
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let line = format!("no plan: {error:#}");
                return self.conclude(&line, true, |told| {
                    (told.looked_ns, told.reason, told.failures) =
                        (now, reason.to_string(), told.failures + 1);
                    told.changes.clear();
                });
            }
        };
        let Plan { answer, next, moves, stuck, unkept, .. } = &plan;
        let present = self.seen.present(config, &expected, unkept);
        let going: BTreeSet<&String> = moves.iter().map(|stop| &stop.service).collect();
        let changed: Vec<&String> = going.into_iter().chain(stuck).collect();
        let lines: Vec<_> = changed.iter().map(|name| change(config, next, name)).collect();
        let changes = lines.len();
        let is_needed = self.seen.is_needed(&changed, unkept);
        let proposal = Proposal { feasible: answer.feasible, accuracy: answer.accuracy, changes, is_needed };
        let to_try = self.to_try((config, placement), &expected).filter(|_| changes > 0);
        let objection = to_try.and_then(|_| objection(answer.trial.as_ref()));
        let verdict = match verdict(present, proposal, placement.controller.hysteresis) {
            Verdict::Take if objection.is_some() => Verdict::Worse,
            verdict => verdict,
        };
        if objection.is_none() && (to_try.is_some() || verdict == Verdict::Same) {
            self.known.note(self.seen.load(config, &expected), placement.controller.window);
        }
        let fits = match (answer.feasible, answer.reason.as_deref(), &answer.refused) {
            (true, ..) => String::new(),
            (false, _, Some(refused)) => {
                format!("; what would fit is refused: {}", refused.lines().collect::<Vec<_>>().join("; "))
            }
            (false, reason, None) => format!("; not everything fits ({})", reason.unwrap_or("no plan")),
        };
        let unkept = match unkept.is_empty() {
            true => String::new(),
            false => {
                format!("; what is left of the devices does not keep the promise of {}", unkept.join(", "))
            }
        };
        let told = lines.join("; ");
        let follows = placement.mode == Mode::Follow;
        let line = match verdict {
            Verdict::Same => "the placement is as planned".to_owned(),
            Verdict::DoesNotFit => format!("nothing is changed{fits}"),
            Verdict::TooLittle => format!("nothing is changed, too little is gained by: {told}"),
            Verdict::Worse => {
                let why = objection.unwrap_or_default();
                format!("nothing is changed, as {why}: {told}")
            }
            Verdict::Take if follows => format!("changes, for {reason}{fits}: {told}"),
            Verdict::Take => format!("would change, for {reason}{fits}: {told}"),
        };
        let unfit = answer.unfit.iter().map(|unfit| format!("; nothing is placed on a server of {unfit}"));
        let line = format!("{line}{unkept}{}", unfit.collect::<String>());
        let (taken, refused) = (verdict == Verdict::Take, answer.refused.is_some());
        self.conclude(&line, refused, |status| {
            (status.looked_ns, status.reason) = (now, reason.to_string());
            status.failures += u64::from(refused);
            (status.accuracy, status.present_accuracy) = (answer.accuracy, present);
            status.changes = if taken { lines.clone() } else { Vec::new() };
            status.unkept.clone_from(&plan.unkept);
        });
        if taken && follows {
            self.carry_out(config, placement, &plan);
        }
    }

    /// Tells what has come of it, in the log only if that is new.
    fn conclude(&self, line: &str, is_bad: bool, change: impl FnOnce(&mut weir_client::status::Placement)) {
        let mut is_new = false;
        self.overview.placement.change(|told| {
            is_new = told.state != line;
            told.state = line.to_owned();
            told.looks += 1;
            change(told);
        });
        match is_new {
            true if is_bad => warn!("placement: {line}"),
            true => info!("placement: {line}"),
            false => {}
        }
    }

    /// Moves one service after the other, as far as the budget goes; the first that cannot be moved ends it.
    fn carry_out(&mut self, config: &Config, placement: &PlacementConfig, plan: &Plan) {
        let (mut moved, mut aside) = (BTreeSet::new(), BTreeMap::new());
        let mut before = config.text().to_owned();
        let (period, budget) = (placement.period, placement.budget);
        let services: BTreeSet<&str> = plan.moves.iter().map(|stop| &*stop.service).collect();
        // Who stands aside is not to stay there for want of a budget that a period later would have been enough.
        let left = self.budget.left(clock::now(), budget, period);
        if plan.moves.iter().any(|stop| stop.aside.is_some()) && left < services.len().min(budget) {
            return info!(
                "placement: the budget is spent: services that make room for each other wait for the next period"
            );
        }
        for Stop { service: name, aside: stands } in &plan.moves {
            // Who has stood aside is changed no second time.
            if !aside.contains_key(&**name) {
                if self.budget.left(clock::now(), budget, period) == 0 {
                    let line =
                        format!("the budget is spent: {name} and what follows wait for the next period");
                    return info!("placement: {line}");
                }
                self.budget.spend(clock::now());
            }
            match stands {
                Some(text) => drop(aside.insert(&**name, &**text)),
                None => {
                    aside.remove(&**name);
                    moved.insert(&**name);
                }
            }
            let text = placed::mixed(config.text(), plan.next.text(), &moved);
            let text = aside.iter().fold(text, |text, (name, aside)| {
                text.and_then(|text| placed::mixed(&text, aside, &BTreeSet::from([*name])))
            });
            let made = text.and_then(|text| {
                self.step(config, &text, &before)?;
                before = text;
                Ok(())
            });
            let line = match &made {
                Ok(()) if stands.is_some() => format!("{name} stands aside until others have moved"),
                Ok(()) => format!("{name} has moved"),
                Err(error) => format!("{name} stays where it is: {error:#}"),
            };
            self.overview.placement.change(|told| match made {
                Ok(()) => told.made += 1,
                Err(_) => (told.failures, told.state) = (told.failures + 1, line.clone()),
            });
            match made {
                Ok(()) => info!("placement: {line}"),
                Err(_) => return warn!("placement: {line}"),
            }
        }
        if let [first, ..] = &*plan.stuck {
            let line = format!(
                "{first} waits for a device of another that waits for one too, {}: they stay where they are",
                plan.because
            );
            self.overview.placement.change(|told| told.state.clone_from(&line));
            warn!("placement: {line}");
        }
    }

    /// Has the daemon take over `text` as a reload does, and puts `before` back if it does not.
    fn step(&self, config: &Config, text: &str, before: &str) -> Result<()> {
        let reloads = &self.overview.reloads;
        let edited = "the configuration file has been edited: `weir reload` takes it over first";
        ensure!(reloads.taken().of_file == config.of_file && placed::is_of_the_file(config), edited);
        placed::keep(config, Some(text))?;
        let outcome = reloads
            .ask()
            .and_then(|outcome| outcome.blocking_recv().map_err(|_| anyhow!("the daemon is stopping")));
        let error = match outcome {
            Ok(outcome) => outcome.error().map(anyhow::Error::msg),
            Err(error) => Some(error),
        };
        let Some(error) = error else { return Ok(()) };
        // The next start is to find what is served.
        placed::keep(config, Some(before))?;
        Err(error)
    }
}

/// What the plan has otherwise, in a line.
fn change(config: &Config, next: &Config, name: &str) -> String {
    let of = |config: &Config| config.services.iter().find(|service| service.name == name).cloned();
    let (before, after) = (of(config), of(next));
    let is_staged = before.as_ref().is_some_and(|service| !service.stages.is_empty());
    let kind = if is_staged { "pipeline" } else { "service" };
    let places = |service: &Option<ServiceConfig>| service.as_ref().and_then(ServiceConfig::places);
    // What shares devices and what does not cannot take over from each other.
    let reached = places(&before).zip(places(&after)).is_none_or(|(before, after)| {
        before.iter().zip(&after).all(|(before, after)| after.is_reached_from(before))
    });
    let [before, after] = [(config, before), (next, after)]
        .map(|(config, service)| service.map_or_else(String::new, |service| at(config, &service)));
    format!("{kind} {name}: {before} -> {after}{}", if reached { "" } else { ", which takes a restart" })
}

/// Where a service is, and with which models.
fn at(config: &Config, service: &ServiceConfig) -> String {
    if !service.stages.is_empty() {
        let stages =
            service.stages.iter().map(|stage| format!("{} {}", stage.runs.name, at(config, &stage.runs)));
        return stages.collect::<Vec<_>>().join(", ");
    }
    let placed = service.candidates.as_ref().and_then(|candidates| candidates.placed.as_ref());
    let Some((placed, placement)) = placed.zip(config.placement.as_ref()) else {
        return format!("{} workers", service.workers);
    };
    let class = &placement.classes[placed.class].name;
    let models = match &service.model {
        ModelChoice::Named(names) => names.join(", "),
        ModelChoice::Simulated { models, .. } => {
            let models: Vec<_> = models
                .iter()
                .map(|model| format!("accuracy {}", model.accuracy.unwrap_or(f64::NAN)))
                .collect();
            models.join(", ")
        }
    };
    match placed.devices {
        0 => format!("shares {class} with {models}"),
        devices => format!("{devices} of {class} with {models}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: &str = r#"
        [placement]
        [[placement.class]]
        name = "own"
        engine = "simulated"
        count = 4
        [[placement.class]]
        name = "all"
        engine = "simulated"
        count = 1
        shared = true
        [[service]]
        name = "s"
        engine = "simulated"
        deadline = "50ms"
        workers = 1
        simulated = { times = ["2ms"], accuracy = 0.5, models = [{ accuracy = 0.5, times = { own = ["2ms"], all = ["2ms"] } }] }
        [[pipeline]]
        name = "p"
        deadline = "1s"
        [[pipeline.stage]]
        name = "a"
        engine = "simulated"
        workers = 1
        simulated = { times = ["2ms"], accuracy = 0.5, models = [{ accuracy = 0.5, times = { own = ["2ms"] } }] }
    "#;

    #[test]
    fn what_changes_is_told_with_what_it_takes() {
        let parse =
            |text: &str| Config::parse(std::path::Path::new("weir.toml"), text).expect("a configuration");
        let line = |next: &str, name: &str| change(&parse(BOX), &parse(next), name);
        let more = BOX.replace("workers = 1", "workers = 2");
        assert_eq!(line(&more, "s"), "service s: 1 of own with accuracy 0.5 -> 2 of own with accuracy 0.5");
        assert_eq!(
            line(&more, "p"),
            "pipeline p: a 1 of own with accuracy 0.5 -> a 2 of own with accuracy 0.5"
        );
        let shared =
            BOX.replacen("workers = 1", "device = \"all\"", 1) + "[[device]]\nname = \"all\"\nworkers = 1\n";
        assert_eq!(
            line(&shared, "s"),
            "service s: 1 of own with accuracy 0.5 -> shares all with accuracy 0.5, which takes a restart"
        );
    }
}
