//! What was found, as a program reads it.

use serde::Serialize;

use crate::configuration::{Configuration, Post};
use crate::place::{Outcome, Placed};
use crate::plan::{Held, Of, Plan};
use crate::problem::Problem;
use crate::promise::Rule;

/// The answer of `weir place --json`. Accuracies are points, rates requests a second.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Whether all demand is served and every promise kept.
    pub feasible: bool,
    /// Of the plan, by demand and weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// No plan is more accurate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// What the plan is below the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// How long it took.
    pub seconds: f64,
    /// Why not, if not: `demand`, `promises` or `time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Services of whose promises something is missing if as little as possible is, and which part; or that no device answers in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violated: Option<Vec<Violated>>,
    /// No plan lacks less in sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_bound: Option<f64>,
    /// The largest part of all demand that fits. The plan is for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// No larger part fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor_bound: Option<f64>,
    /// What the devices hold.
    pub plan: Vec<Devices>,
    /// Who answers what.
    pub flows: Vec<Flow>,
    /// How each promise is kept.
    pub promises: Vec<Kept>,
}

/// A promise that does not fit.
#[derive(Clone, Debug, Serialize)]
pub struct Violated {
    /// Of which service.
    pub service: String,
    /// The part of it that is missing, of 1.
    pub missing: f64,
}

/// Equal devices that hold the same.
#[derive(Clone, Debug, Serialize)]
pub struct Devices {
    /// Their class.
    pub class: String,
    /// How many.
    pub count: u32,
    /// What runs on each of them.
    pub configuration: Vec<Runs>,
}

/// A variant on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Runs {
    /// The service, or the pipeline.
    pub service: String,
    /// The stage, if it is a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Which variant.
    pub variant: String,
    /// The largest batch; absent where only a peak is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// Batches in a round, if the device is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// `base` and `better` where a more accurate variant runs when nothing mandatory waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
}

/// Requests that are answered alike.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// The service, or the pipeline.
    pub service: String,
    /// The stage, if it is a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Which variant answers.
    pub variant: String,
    /// With batches of up to so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// On devices of this class.
    pub class: String,
    /// Which entry of the plan that is, from 0.
    pub devices: usize,
    /// Requests a second.
    pub rate: f64,
}

/// How a promise is kept.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// Of which service.
    pub service: String,
    /// `quotas`, of at most two kinds of devices with a queue each; `pool`, one queue for several kinds.
    pub rule: &'static str,
    /// What counts.
    pub kinds: Vec<Kind>,
    /// With two kinds, the share of mandatory requests that goes to the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// The sum of quotas: 1 or more keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

/// Devices that count alike for a promise.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// How many.
    pub count: u32,
    /// Requests of a full batch.
    pub batch: u32,
    /// How long it takes, in ms.
    pub time: f64,
    /// The part of the promise that one device keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
}

impl Answer {
    /// What `placed` says of `problem`.
    #[must_use]
    pub fn new(problem: &Problem, placed: &Placed) -> Self {
        let mut answer = Self {
            feasible: false,
            accuracy: None,
            bound: None,
            gap: None,
            seconds: placed.took.as_secs_f64(),
            reason: None,
            violated: None,
            missing_bound: None,
            factor: None,
            factor_bound: None,
            plan: Vec::new(),
            flows: Vec::new(),
            promises: Vec::new(),
        };
        match &placed.outcome {
            Outcome::Fits { plan, bound } => {
                answer.feasible = true;
                answer.hold(problem, plan, *bound);
            }
            Outcome::Demand { factor, at_most, hopeless, plan } => {
                answer.reason = Some("demand");
                let violated =
                    |&s: &usize| Violated { service: problem.services[s].name.clone(), missing: 1.0 };
                answer.violated = Some(hopeless.iter().map(violated).collect());
                (answer.factor, answer.factor_bound) = (Some(*factor), Some(*at_most));
                if let Some((plan, bound)) = plan {
                    answer.hold(problem, plan, *bound);
                }
            }
            Outcome::Promises { violated, at_least } => {
                answer.missing_bound = Some(*at_least);
                answer.reason = Some("promises");
                let violated = violated
                    .iter()
                    .map(|&(s, missing)| Violated { service: problem.services[s].name.clone(), missing });
                answer.violated = Some(violated.collect());
            }
            Outcome::Unknown { bound } => {
                answer.reason = Some("time");
                answer.bound = bound.is_finite().then_some(*bound);
            }
        }
        answer
    }

    fn hold(&mut self, problem: &Problem, plan: &Plan, bound: f64) {
        // Of no requests there is no mean.
        self.accuracy = (!plan.flows.is_empty()).then_some(plan.accuracy);
        self.bound = self.accuracy.map(|_| bound).filter(|bound| bound.is_finite());
        self.gap = self.bound.map(|bound| (bound - plan.accuracy).max(0.0));
        for devices in &plan.devices {
            let class = problem.classes[devices.class].0.clone();
            self.plan.push(Devices {
                class,
                count: devices.count,
                configuration: runs(problem, &devices.held),
            });
        }
        for flow in &plan.flows {
            let (service, stage, variant) = names(problem, flow.of, &flow.post);
            let class = problem.classes[plan.devices[flow.devices].class].0.clone();
            let (batch, devices, rate) = (flow.post.batch, flow.devices, flow.rate);
            self.flows.push(Flow { service, stage, variant, batch, class, devices, rate });
        }
        for (s, rule) in &plan.promises {
            self.promises.push(kept(&problem.services[*s].name, rule));
        }
    }
}

/// Service, stage and variant by name.
fn names(problem: &Problem, of: Of, post: &Post) -> (String, Option<String>, String) {
    match of {
        Of::Service(s) => {
            let service = &problem.services[s];
            (service.name.clone(), None, service.variants[post.variant].name.clone())
        }
        Of::Stage(p, stage) => {
            let (pipeline, stage) = (&problem.pipelines[p], &problem.pipelines[p].stages[stage]);
            (pipeline.name.clone(), Some(stage.name.clone()), stage.variants[post.variant].name.clone())
        }
    }
}

fn runs(problem: &Problem, held: &Held) -> Vec<Runs> {
    let run = |of: Of, post: &Post, turn, role| {
        let (service, stage, variant) = names(problem, of, post);
        Runs { service, stage, variant, batch: post.batch, turn, role }
    };
    match held {
        Held::Alone(s, Configuration { base, better: None, .. }) => {
            vec![run(Of::Service(*s), base, None, None)]
        }
        Held::Alone(s, Configuration { base, better: Some(better), .. }) => {
            let both = [(base, "base"), (better, "better")];
            both.map(|(post, role)| run(Of::Service(*s), post, None, Some(role))).into()
        }
        Held::Shared(shared) => {
            let of = shared.of.iter().zip(shared.turns);
            of.map(|((s, configuration), turn)| run(Of::Service(*s), &configuration.base, Some(turn), None))
                .collect()
        }
        Held::Stage { pipeline, stage, post } => vec![run(Of::Stage(*pipeline, *stage), post, None, None)],
    }
}

fn kept(service: &str, rule: &Rule) -> Kept {
    let kind = |shape: &crate::quota::Shape, count, quota| Kind {
        count,
        batch: shape.batch,
        time: shape.time.as_secs_f64() * 1e3,
        quota,
    };
    let service = service.to_owned();
    match rule {
        Rule::Quotas(kinds) => {
            let parts: Vec<f64> = kinds.iter().map(|(_, count, quota)| f64::from(*count) * quota).collect();
            let total: f64 = parts.iter().sum();
            Kept {
                service,
                rule: "quotas",
                kinds: kinds.iter().map(|(shape, count, quota)| kind(shape, *count, Some(*quota))).collect(),
                theta: (kinds.len() == 2).then(|| parts[0] / total),
                total: Some(total),
            }
        }
        Rule::Pool(kinds) => Kept {
            service,
            rule: "pool",
            kinds: kinds.iter().map(|(shape, count)| kind(shape, *count, None)).collect(),
            theta: None,
            total: None,
        },
    }
}
