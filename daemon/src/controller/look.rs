//! One look for a better placement: asked for, judged, told, and carried out one service after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result, anyhow, ensure};
use tracing::{info, warn};
use weir_os::clock;
use weir_plan::config::{Config, Mode, ModelChoice, PlacementConfig, ServiceConfig};
use weir_plan::placed;

use super::solver::{Answer, Question, ask};
use super::steps::{Hold, Move, order};
use super::verdict::{Proposal, Verdict, verdict};
use super::{Controller, patience, seen};

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

/// A plan beside what is served.
struct Plan {
    answer: Answer,
    next: Config,
    /// Services that it has otherwise, in the order in which they move; then those that wait for each other in a circle.
    moves: Vec<String>,
    stuck: Vec<String>,
}

impl Controller<'_> {
    /// Looks for a plan; what comes of it is told, and carried out if that is wanted.
    pub(super) fn place(&mut self, config: &Config, placement: &PlacementConfig, reason: &Reason) {
        let expected = self.seen.expected(config);
        let planned = expected.iter().map(|(name, rate)| (name.clone(), rate * placement.headroom)).collect();
        let present = self.seen.present(config);
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
        let Plan { answer, next, moves, stuck } = &plan;
        let changes = moves.len() + stuck.len();
        let proposal = Proposal { feasible: answer.feasible, accuracy: answer.accuracy, changes };
        let verdict = verdict(present, proposal, placement.controller.hysteresis);
        let lines: Vec<_> = moves.iter().chain(stuck).map(|name| change(config, next, name)).collect();
        let fits = match (answer.feasible, answer.reason.as_deref()) {
            (true, _) => String::new(),
            (false, reason) => format!("; not everything fits ({})", reason.unwrap_or("no plan")),
        };
        let told = lines.join("; ");
        let follows = placement.mode == Mode::Follow;
        let line = match verdict {
            Verdict::Same => "the placement is as planned".to_owned(),
            Verdict::DoesNotFit => format!("nothing is changed{fits}"),
            Verdict::TooLittle => format!("nothing is changed, too little is gained by: {told}"),
            Verdict::Take if follows => format!("changes, for {reason}{fits}: {told}"),
            Verdict::Take => format!("would change, for {reason}{fits}: {told}"),
        };
        let taken = verdict == Verdict::Take;
        self.conclude(&line, false, |status| {
            (status.looked_ns, status.reason) = (now, reason.to_string());
            (status.accuracy, status.present_accuracy) = (answer.accuracy, present.accuracy);
            status.changes = if taken { lines.clone() } else { Vec::new() };
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

    /// Asks for a plan, and puts it in order.
    fn find(
        &self,
        config: &Config,
        placement: &PlacementConfig,
        demand: &BTreeMap<String, f64>,
    ) -> Result<Plan> {
        let text = placed::without(config.text(), self.seen.gone())?;
        let question = Question {
            program: std::env::current_exe().context("this program's own path")?,
            file: &config.path,
            text: &text,
            demand,
            limit: placement.limit,
            patience: patience(placement.limit),
            folder: &placed::folder(config),
        };
        let answer = ask(&question, || self.overview.served.is_draining())?;
        let text = answer.configuration.as_deref().unwrap_or(config.text());
        let next = Config::parse(&config.path, text).context("the plan is no configuration")?;
        let (before, after) = (seen::holds(config), seen::holds(&next));
        // A device that is lost takes its class's place along where it was the last.
        let class = |hold: &Hold| {
            let name = next.placement.as_ref().map(|next| &next.classes[hold.class].name);
            let class = placement.classes.iter().position(|class| Some(&class.name) == name);
            class.map(|class| Hold { class, ..hold.clone() })
        };
        let candidates: Vec<_> =
            config.services.iter().filter(|service| service.candidates.is_some()).collect();
        let holds: Vec<_> = candidates
            .iter()
            .map(|service| before.get(&*service.name).cloned().unwrap_or_default())
            .collect();
        let mut moves = Vec::new();
        for (i, service) in candidates.iter().enumerate() {
            let name = &*service.name;
            let to = after.get(name).and_then(class);
            let then = next.services.iter().find(|then| then.name == name);
            let (Some(to), Some(then)) = (to, then) else { continue };
            if before.get(name) != Some(&to) || format!("{:?}", service.model) != format!("{:?}", then.model)
            {
                moves.push(Move { service: i, to, urgent: self.seen.is_urgent(name) });
            }
        }
        let devices: Vec<_> = placement.classes.iter().map(|class| class.devices).collect();
        let order = order(&holds, &moves, &devices);
        let name = |one: usize| candidates[moves[one].service].name.clone();
        let stuck = (0..moves.len()).filter(|one| !order.contains(one)).map(name).collect();
        Ok(Plan { moves: order.iter().copied().map(name).collect(), stuck, answer, next })
    }

    /// Moves one service after the other, as far as the budget goes; the first that cannot be moved ends it.
    fn carry_out(&mut self, config: &Config, placement: &PlacementConfig, plan: &Plan) {
        let mut moved = BTreeSet::new();
        let mut before = config.text().to_owned();
        for name in &plan.moves {
            if self.budget.left(clock::now(), placement.budget, placement.period) == 0 {
                let line = format!("the budget is spent: {name} and what follows wait for the next period");
                return info!("placement: {line}");
            }
            self.budget.spend(clock::now());
            moved.insert(&**name);
            let made = placed::mixed(config.text(), plan.next.text(), &moved).and_then(|text| {
                self.step(config, &text, &before)?;
                before = text;
                Ok(())
            });
            let line = match &made {
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
                "{first} waits for a device of another that waits for one too: nobody is moved out of the way"
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
    let of = |config: &Config| {
        let service = config.services.iter().find(|service| service.name == name);
        service.map_or_else(String::new, |service| at(config, service))
    };
    format!("service {name}: {} -> {}", of(config), of(next))
}

/// Where a service is, and with which models.
fn at(config: &Config, service: &ServiceConfig) -> String {
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
