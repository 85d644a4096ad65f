//! Pipelines: stages that feed one another, each with a model and workers of its own, and one promise for all of them.

use std::collections::HashSet;

use rt_core::pipeline::{MAX_FAN_OUT, MAX_STAGES, Parents};
use rt_core::{MAX_WORKERS, Span};
use toml::Value;
use weir_engine::adapter::AdapterConfig;
use weir_engine::{EngineKind, Isolation};

use super::check::{ABSENT, Check, Refused, all, shown};
use super::service::{Beside, Promise, Runs};
use super::{Candidates, ModelChoice, PlacementConfig, ServiceConfig, StageConfig, raw};

/// The most results of one source at a stage: its answer has room for so many.
const MAX_RESULTS: u64 = 256;

/// How adapters name the pipeline's own request.
const SOURCE: &str = "source";

/// Requests that can wait at a stage behind the first.
const MAX_WAITING: u64 = 1 << 16;

/// Ways from the first stage, or from a join, to a stage: its requests are made by one adapter for each.
const MAX_WAYS: u64 = 16;

const ONCE: &str = "a join makes one request of a source: remove it";

/// Where a stage stands among the others.
struct Branch {
    after: Parents,
    fan_out: u32,
    mean: f64,
    /// The most requests that one of the pipeline becomes here.
    most: u64,
}

/// A stage by itself: its name, where it stands, what runs it, how its requests are made, and among what is chosen for it.
type Run = (String, String, Runs, AdapterConfig, Option<Candidates>);

impl Check<'_> {
    pub(super) fn pipeline(
        &self,
        at: &str,
        mut raw: raw::Pipeline,
        beside: Beside<'_>,
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<ServiceConfig, Refused> {
        let refused = self.refused(at, raw.refused());
        let worth = self.worth(at, &raw);
        let stalls = self.kept_stalls(at, &raw);
        let place = self.place(at, &raw.on_device(), beside.0);
        let device = raw.device.take().filter(|_| place.is_ok());
        let chosen = match device.as_ref().filter(|_| raw.stage.iter().any(raw::Stage::is_open)) {
            Some(device) => {
                let reason = "is chosen by `weir place`: remove it, or say the model of each stage as well";
                Err(self.refuse(&format!("{at}.device"), &device.to_string(), reason))
            }
            None => Ok(()),
        };
        let device = device.filter(|_| chosen.is_ok());
        let shared = self.shared_by_all(&raw.stage, placement);
        let (name, mut promise) = (raw.name.clone(), raw.promise());
        let promise = self.promise(at, &mut promise, false);
        let promise = promise.map(Promise::held_by_deadline);
        let count = raw.stage.len() as u64;
        let count = self.number(&format!("{at}.stage (how many)"), count, 1, MAX_STAGES as u64);
        let stages: Vec<String> = raw.stage.iter().map(|stage| stage.name.clone()).collect();
        let tree = self.tree(at, &raw.stage);
        let workers = raw.workers.filter(|_| matches!(worth, Ok(None)) && device.is_none());
        let open = self.open(at, workers, &mut raw.stage);
        let answers = self.answers(at, raw.answer.as_deref(), &stages, tree.as_deref().ok());
        let mut names = HashSet::new();
        let several = tree.as_deref().is_ok_and(|tree| tree.iter().any(|branch| !branch.after.is_of_tree()));
        let runs = all(raw.stage.into_iter().enumerate().map(|(i, mut stage)| -> Result<Run, Refused> {
            let at = format!("{at}.stage[{i}]");
            let named = self.name(&format!("{at}.name"), stage.name.clone(), &mut names);
            let named = named.and_then(|name| {
                let reason = "is what adapters call the request of the pipeline: choose another name";
                let taken = name == SOURCE;
                if taken { Err(self.refuse(&format!("{at}.name"), SOURCE, reason)) } else { Ok(name) }
            });
            let refused = self.refused(&at, stage.refused());
            let (name, adapter) = (stage.name.clone(), stage.adapter.take());
            let once = match &adapter {
                Some(adapter) if stage.join && adapter.each.is_some() => {
                    Err(self.refuse(&format!("{at}.adapter.each"), "(present)", ONCE))
                }
                _ => Ok(()),
            };
            let mut stage = stage.runs(device.clone());
            let candidates = self.choosable(&at, &mut stage, placement)?;
            let candidates = self.at_a_stage(&at, candidates, (&stage.classes, &shared), placement)?;
            if stage.engine == EngineKind::Oip {
                let reason = "is not possible in a pipeline yet: a stage computes on this machine";
                return Err(self.refuse(&format!("{at}.engine"), "\"oip\"", reason));
            }
            let runs = self.runs(&at, stage, beside)?;
            once.and(named.and(refused))?;
            if (several || candidates.is_some() || device.is_some()) && !runs.model.is_single() {
                let reason = match several {
                    _ if device.is_some() => "is not possible on a device, where each batch runs all stages: remove it",
                    true => "is not possible where a stage has several parents or is a join: no choice is known there that \
                             puts no promise at risk",
                    false => "is not possible at a stage that is placed, which has one model: remove it",
                };
                let field = match runs.model {
                    ModelChoice::Named(_) => "variants",
                    ModelChoice::Simulated { .. } => "simulated.variants",
                };
                return Err(self.refuse(&format!("{at}.{field}"), "(present)", reason));
            }
            Ok((name, at, runs, adapter.unwrap_or_default(), candidates))
        }));
        let queue = match &tree {
            Ok(tree) => self.room(&format!("{at}.queue"), raw.queue, &stages, tree),
            Err(Refused) => Err(Refused),
        };
        refused.and(count)?;
        stalls?;
        chosen?;
        queue?;
        let ((tree, answers), (runs, promise)) = ((tree?, answers?), (runs?, promise?));
        let (workers, worth, place) = (open?, worth?, place?);
        let placement = placement.ok().and_then(Option::as_ref);
        let stage = |(((name, at, runs, adapter, candidates), branch), answers): ((Run, _), _)| {
            let Branch { after, fan_out, mean, .. } = branch;
            let runs = ServiceConfig::of(name, &at, runs, promise.clone());
            let candidates = candidates.zip(worth).map(|(candidates, worth)| worth.of_each(candidates));
            let runs = runs.chosen_for(candidates.zip(placement), beside.0);
            StageConfig { runs, after, fan_out, mean, adapter, answers, open: false }
        };
        let stages = runs.into_iter().zip(tree).zip(answers).map(stage).zip(workers);
        let mut stages: Vec<_> = stages.map(|(stage, open)| StageConfig { open, ..stage }).collect();
        if place.share.is_some() {
            on_one_worker(&mut stages);
        }
        let first = stages.first().ok_or(Refused)?.runs.clone();
        // What is chosen is said of each stage.
        Ok(ServiceConfig {
            name,
            at: at.to_owned(),
            share: place.share,
            record: place.record,
            stages,
            candidates: None,
            ..first
        })
    }

    /// What stalls may take is kept back of the deadline of a pipeline, and nobody has asked what that leaves to models that are chosen.
    fn kept_stalls(&self, at: &str, raw: &raw::Pipeline) -> Result<(), Refused> {
        self.kept_by_deadline(at, raw.stalls.as_ref())?;
        if raw.stalls.is_some() && raw.stage.iter().any(raw::Stage::has_candidates) {
            let reason = "is not possible where `weir place` chooses the models of stages: remove it";
            return Err(self.refuse(&format!("{at}.stalls"), "(present)", reason));
        }
        Ok(())
    }

    /// Of which stages the plan chooses the workers: those that state none where `all` says how many they have together. These
    /// are given as many as one another until then.
    fn open(&self, at: &str, all: Option<u64>, stages: &mut [raw::Stage]) -> Result<Vec<bool>, Refused> {
        let open: Vec<bool> = stages.iter().map(|stage| all.is_some() && stage.workers.is_none()).collect();
        let Some(all) = all else { return Ok(open) };
        let field = format!("{at}.workers");
        let free = open.iter().filter(|&&open| open).count() as u64;
        if free == 0 {
            let reason = "each stage says how many it has: remove it";
            return Err(self.refuse(&field, &all.to_string(), reason));
        }
        let stated = stages.iter().filter_map(|stage| stage.workers).fold(0, u64::saturating_add);
        let least = stated.saturating_add(free);
        let all = self.number(&field, all, least, least.max((MAX_STAGES * MAX_WORKERS) as u64))?;
        let (each, more) = ((all - stated) / free, (all - stated) % free);
        for (place, stage) in stages.iter_mut().filter(|stage| stage.workers.is_none()).enumerate() {
            stage.workers = Some((each + u64::from((place as u64) < more)).min(MAX_WORKERS as u64));
        }
        Ok(open)
    }

    /// How the stages hang together.
    fn tree(&self, at: &str, stages: &[raw::Stage]) -> Result<Vec<Branch>, Refused> {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        // Of each stage how many requests one of the pipeline becomes there at most, and how many ways lead on through it.
        let mut known: Vec<(Option<u64>, u64)> = Vec::new();
        all(stages.iter().enumerate().map(|(i, stage)| {
            let field = |name: &str| format!("{at}.stage[{i}].{name}");
            if i == 0 {
                known.push((Some(1), 1));
                return self.first(stage, field).map(|()| Branch {
                    after: Parents::NONE,
                    fan_out: 1,
                    mean: 1.0,
                    most: 1,
                });
            }
            let after = self.after(&field("after"), stage.after.as_ref(), &names[..i]);
            let fan_out = match (stage.join, stage.fan_out.unwrap_or(1)) {
                (true, 2..) => Err(self.refuse(&field("fan-out"), &stage.fan_out.unwrap_or(1).to_string(), ONCE)),
                (_, fan_out) => self.number(&field("fan-out"), fan_out, 1, u64::from(MAX_FAN_OUT)),
            };
            let parents = || after.iter().flatten().map(|&parent| known[parent]);
            let (above, ways) = match stage.join {
                true => (Some(1), 1),
                false => {
                    let above = parents().map(|(most, _)| most).sum::<Option<u64>>().filter(|_| after.is_ok());
                    (above, parents().map(|(_, ways)| ways).sum())
                }
            };
            let all = above.zip(fan_out.as_ref().ok()).map(|(above, fan_out)| above * fan_out);
            known.push((all.filter(|&all| all <= MAX_RESULTS), ways.min(MAX_WAYS)));
            let (after, fan_out) = (after?, fan_out?);
            if ways > MAX_WAYS {
                let reason = format!("{ways} ways lead to {:?}, at most {MAX_WAYS} are possible", stage.name);
                return Err(self.refuse(&field("after"), &shown(&stage.after), reason));
            }
            if let Some(all) = all.filter(|&all| all > MAX_RESULTS) {
                let reason = format!(
                    "a request of the pipeline would become {all} requests of {:?}, at most {MAX_RESULTS} are possible",
                    stage.name
                );
                return Err(self.refuse(&field("fan-out"), &fan_out.to_string(), reason));
            }
            let mean = stage.mean.unwrap_or(fan_out as f64);
            if stage.join && mean != 1.0 {
                return Err(self.refuse(&field("mean"), &mean.to_string(), ONCE));
            }
            if !self.lacks(&field("fan-out")) && !(0.0..=fan_out as f64).contains(&mean) {
                let reason = format!("must be in 0..={fan_out}, as fan-out says");
                return Err(self.refuse(&field("mean"), &mean.to_string(), reason));
            }
            let most = all.ok_or(Refused)?;
            let after = if stage.join { Parents::join(after) } else { Parents::each(after) };
            Ok(Branch { after, fan_out: fan_out as u32, mean, most })
        }))
    }

    /// Whether every stage has room for all that the requests in the queue can become there.
    fn room(&self, field: &str, queue: u64, names: &[String], tree: &[Branch]) -> Result<(), Refused> {
        let Some((most, name)) = tree.iter().map(|branch| branch.most).zip(names).max_by_key(|all| all.0)
        else {
            return Err(Refused);
        };
        if queue <= MAX_WAITING / most {
            return Ok(());
        }
        let reason = format!(
            "each may become {most} requests of {name:?}, where {MAX_WAITING} can wait: must be at most {}",
            MAX_WAITING / most
        );
        Err(self.refuse(field, &queue.to_string(), reason))
    }

    /// The first stage takes the pipeline's requests as they are.
    fn first(&self, stage: &raw::Stage, field: impl Fn(&str) -> String) -> Result<(), Refused> {
        let said = [
            ("after", stage.after.as_ref().map(ToString::to_string)),
            ("join", stage.join.then(|| "true".to_owned())),
            ("fan-out", stage.fan_out.filter(|&fan_out| fan_out != 1).map(|fan_out| fan_out.to_string())),
            ("mean", stage.mean.filter(|&mean| mean != 1.0).map(|mean| mean.to_string())),
            ("adapter", stage.adapter.as_ref().map(|_| "(present)".to_owned())),
        ];
        let reason = "the first stage takes each request of the pipeline as it comes: remove it";
        all(said.into_iter().map(|(name, value)| match value {
            Some(value) => Err(self.refuse(&field(name), &value, reason)),
            None => Ok(()),
        }))
        .map(drop)
    }

    /// The parents of a stage, among those `before` it.
    fn after(&self, field: &str, after: Option<&Value>, before: &[&str]) -> Result<Vec<usize>, Refused> {
        let known = |field: &str, value: &Value| {
            let name = value.as_str().ok_or_else(|| {
                let reason = "must be the name of a stage before it, or a list of such names";
                self.refuse(field, &value.to_string(), reason)
            })?;
            before.iter().position(|known| *known == name).ok_or_else(|| {
                let reason = format!("no stage before it has this name ({})", before.join(", "));
                self.refuse(field, &format!("{name:?}"), reason)
            })
        };
        match after {
            None => {
                let reason = format!(
                    "must name the stage whose results it takes ({}): the first stage alone takes the pipeline's requests",
                    before.join(", ")
                );
                Err(self.refuse(field, ABSENT, reason))
            }
            Some(Value::Array(several)) => {
                let count = several.len() as u64;
                self.number(&format!("{field} (how many)"), count, 1, MAX_STAGES as u64)?;
                let mut found = HashSet::new();
                all(several.iter().enumerate().map(|(i, value)| {
                    let field = format!("{field}[{i}]");
                    let parent = known(&field, value)?;
                    let reason = "is there already: name each stage once";
                    if found.insert(parent) {
                        Ok(parent)
                    } else {
                        Err(self.refuse(&field, &value.to_string(), reason))
                    }
                }))
            }
            Some(one) => known(field, one).map(|parent| vec![parent]),
        }
    }

    /// Of each stage whether its results are in the answer: those that are named, or else those that nothing comes after.
    fn answers(
        &self,
        at: &str,
        named: Option<&[String]>,
        stages: &[String],
        tree: Option<&[Branch]>,
    ) -> Result<Vec<bool>, Refused> {
        let Some(named) = named else {
            let tree = tree.ok_or(Refused)?;
            let is_leaf = |i: usize| tree.iter().all(|branch| !branch.after.has(i));
            return Ok((0..stages.len()).map(is_leaf).collect());
        };
        let field = format!("{at}.answer");
        self.number(&format!("{field} (how many)"), named.len() as u64, 1, stages.len().max(1) as u64)?;
        let mut answers = vec![false; stages.len()];
        all(named.iter().enumerate().map(|(i, name)| {
            let field = format!("{field}[{i}]");
            let Some(place) = stages.iter().position(|stage| stage == name) else {
                let reason = format!("no stage has this name ({})", stages.join(", "));
                return Err(self.refuse(&field, &format!("{name:?}"), reason));
            };
            match std::mem::replace(&mut answers[place], true) {
                true => {
                    Err(self.refuse(&field, &format!("{name:?}"), "is there already: name each stage once"))
                }
                false => Ok(()),
            }
        }))?;
        Ok(answers)
    }

    /// Notes what may not be said there.
    fn refused<'a>(
        &self,
        at: &str,
        said: impl Iterator<Item = (&'static str, &'a Value, &'static str)>,
    ) -> Result<(), Refused> {
        all(said.map(|(name, value, reason)| -> Result<(), Refused> {
            Err(self.refuse(&format!("{at}.{name}"), &value.to_string(), reason))
        }))
        .map(drop)
    }
}

/// Stages that one worker runs for each batch: it is woken once, and one process has all of their models if any needs one.
pub(super) fn on_one_worker(stages: &mut [StageConfig]) {
    let process = stages.iter().any(|stage| stage.runs.isolation == Isolation::Process);
    for stage in stages.iter_mut().filter(|_| process) {
        stage.runs.isolation = Isolation::Process;
    }
    for stage in stages.iter_mut().skip(1) {
        stage.runs.handover = Span::ZERO;
    }
}

#[cfg(test)]
mod tests;
