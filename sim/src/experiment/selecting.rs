//! Services of an experiment whose requests are of classes: each of the daemon's selectors by itself, `auto` that chooses among them,
//! and the variant that is best alone.

mod raw;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use planner::selection::{Expected, Inputs, Kinds, SelectionError, choose_all, plan_kinds};
use rayon::prelude::*;
use research::learned::{AllLoads, Schooling, school};
use rt_core::{Instant, LoadMonitor, Net, Selector};

use super::contender::Contender;
use super::fleet::ServingKind;
use super::quantity::Quantity;
use super::service::Service;
use super::system::System;
use super::{Arrivals, Experiment, ExperimentError, Of, refuse};
use crate::process::stream_seed;
pub(super) use raw::Raw;

const LOADS: u32 = 10;
/// Networks that are trained, of which the one is kept that does best where it is tried; the rest is as `weir train` has it.
const RESTARTS: u64 = 2;
const EPISODES: usize = 300;
const PATIENCE: usize = 6;
const DISCOUNT: f64 = 0.98;
const UNIT: f64 = 16.0;

/// Who may be compared.
const KINDS: [ServingKind; 7] = [
    ServingKind::WeirAlone,
    ServingKind::WeirBase,
    ServingKind::WeirAccurate,
    ServingKind::WeirTables,
    ServingKind::WeirPrices,
    ServingKind::WeirLearned,
    ServingKind::WeirAuto,
];

/// A service of variants and classes.
#[derive(Clone, Debug)]
pub(super) struct Selecting {
    /// What selectors are made for.
    inputs: Inputs,
    /// The same with the shares of classes that come, which nobody is told.
    coming: Inputs,
    /// Episodes of a training at most.
    episodes: usize,
    /// So many loads are planned for, evenly up to what the base carries.
    loads: u32,
}

impl Selecting {
    fn new(raw: &Raw, field: &impl Fn(&str) -> String) -> Result<Self, ExperimentError> {
        let inputs = raw.inputs(field)?;
        let mut coming = inputs.clone();
        coming.classes.iter_mut().zip(raw.coming()).for_each(|(class, share)| class.share = share);
        let wrong = |error: SelectionError| refuse(field("selecting"), "", error);
        inputs.check().and_then(|()| coming.check()).map_err(wrong)?;
        // What classes must be is known to who selects for them.
        let accurate = inputs.accurate().and_then(|accurate| inputs.for_classes(accurate));
        accurate.map_err(|error| wrong(error.into()))?;
        Ok(Self { inputs, coming, episodes: EPISODES, loads: LOADS })
    }

    /// Requests a second that the base carries.
    pub(super) fn capacity(&self) -> f64 {
        self.inputs.capacity_per_s(0)
    }

    /// What those have in common for whom the same is planned and trained: not what comes.
    fn key(&self, kind: ServingKind) -> String {
        format!("{kind} {:?}", self.inputs)
    }

    /// Who selects; `None` for the variant that is best alone, which nobody does.
    fn selector(&self, kind: ServingKind) -> Result<Option<Selector>, SelectionError> {
        let variants = || self.inputs.variants.clone();
        let planned = |kinds| {
            let loads = (1..self.loads).map(|i| f64::from(i) / f64::from(self.loads) * self.capacity());
            let planned = plan_kinds(&self.inputs, &loads.collect::<Vec<_>>(), kinds)?;
            let tables: Vec<_> = planned.into_iter().map(|planned| planned.table).collect();
            Ok::<_, SelectionError>(Selector::new(variants(), tables, LoadMonitor::default())?)
        };
        Ok(Some(match kind {
            ServingKind::WeirBase => Selector::new(variants(), [], LoadMonitor::default())?,
            ServingKind::WeirAccurate => self.inputs.accurate()?,
            ServingKind::WeirTables => planned(Kinds::Wishes)?,
            ServingKind::WeirPrices => planned(Kinds::Prices)?,
            ServingKind::WeirLearned => self.inputs.learned(self.net()?)?,
            ServingKind::WeirAuto => {
                let net = self.net()?;
                self.inputs.auto(&choose_all(&self.inputs, Some(&net))?, Some(&net))?
            }
            _ => return Ok(None),
        }))
    }

    /// A network that is trained on Poisson arrivals at all loads that the base carries.
    fn net(&self) -> Result<Net, SelectionError> {
        let trained = |seed| {
            let schooling = Schooling {
                episodes: self.episodes,
                patience: PATIENCE,
                discount: DISCOUNT,
                unit: UNIT * self.inputs.batch as f64,
                seed,
                ..Schooling::default()
            };
            let course = AllLoads { capacity_per_s: self.capacity() };
            let build = |selector| self.inputs.scheduled(selector);
            school(&self.inputs, &schooling, &course, build, &mut |_| ControlFlow::Continue(()))
        };
        let mut best = trained(1)?;
        for other in (2..=RESTARTS).map(trained) {
            let other = other?;
            if other.progress.right > best.progress.right {
                best = other;
            }
        }
        Ok(best.net)
    }

    /// What becomes of what comes.
    fn tried(&self, selector: Option<&Selector>, arrivals: &[Instant]) -> Result<Expected, SelectionError> {
        if let Some(selector) = selector {
            return self.coming.tried(selector.clone(), arrivals.iter().copied());
        }
        let alone = |variant| {
            let own = self.coming.alone(variant);
            let base = Selector::new(own.variants.clone(), [], LoadMonitor::default())?;
            own.tried(base, arrivals.iter().copied())
        };
        let mut best = alone(0)?;
        let variants = &self.inputs.variants;
        for variant in (1..variants.len()).filter(|&v| variants[v].profile.bound(1) <= self.inputs.latency) {
            let other = alone(variant)?;
            if other.right() > best.right() {
                best = other;
            }
        }
        Ok(best)
    }
}

impl System {
    /// A service whose requests are of classes.
    pub(super) fn of_classes(
        field: &impl Fn(&str) -> String,
        raw: &super::raw::System,
        selecting: &Raw,
        service: Service,
    ) -> Result<Self, ExperimentError> {
        Self::nothing_beside("selecting", (field, raw, &service), "must be none beside selecting")?;
        let selecting = Selecting::new(selecting, field)?;
        Ok(Self { selecting: Some(Arc::new(selecting)), ..Self::bare(raw, service) })
    }
}

impl Experiment {
    /// With networks that are hardly trained, tables for hardly any loads, and nobody who chooses among them: all of that takes
    /// minutes where nothing is optimised.
    #[cfg(test)]
    pub(super) fn hurried_selectors(mut self) -> Self {
        for selecting in self.systems.iter_mut().filter_map(|system| system.selecting.as_mut()) {
            let selecting = Arc::make_mut(selecting);
            (selecting.episodes, selecting.loads) = (2, 3);
        }
        self.policies.retain(|policy| {
            self.systems.iter().all(|system| system.selecting.is_none())
                || *policy != Contender::Serving(ServingKind::WeirAuto)
        });
        self
    }

    /// Whether requests of classes are selected for by those who can, and nobody else is asked to.
    pub(super) fn check_selecting(&self) -> Result<(), ExperimentError> {
        let own = self.systems.iter().filter(|system| system.selecting.is_some()).count();
        if own == 0 {
            return Ok(());
        }
        if own < self.systems.len() {
            return Err(refuse("system", own, "must all be selecting, or none"));
        }
        let can = |policy: &Contender| matches!(policy, Contender::Serving(kind) if KINDS.contains(kind));
        if let Some(policy) = self.policies.iter().find(|policy| !can(policy)) {
            return Err(refuse("policies", policy, "cannot select by class"));
        }
        if !matches!(self.x.of, Of::Capacity | Of::Second) {
            return Err(refuse(
                "x",
                self.x.label(),
                "must be `capacity` or `rate` where selectors are compared",
            ));
        }
        match self.arrivals.iter().find(|arrivals| arrivals.process.is_none()) {
            Some(arrivals) => Err(refuse("arrivals", &arrivals.name, "must be a process of one stream")),
            None => Ok(()),
        }
    }

    /// Plans and trains what is needed, each once.
    pub(super) fn selectors(&self) -> Result<HashMap<String, Option<Selector>>, ExperimentError> {
        let mut todo = HashMap::new();
        for system in &self.systems {
            let Some(selecting) = system.selecting.as_deref() else { continue };
            for policy in &self.policies {
                let Contender::Serving(kind) = policy else { continue };
                todo.entry(selecting.key(*kind)).or_insert((system, selecting, *kind));
            }
        }
        let one = |(key, (system, selecting, kind)): (String, (&System, &Selecting, ServingKind))| {
            let wrong = |error| refuse(format!("system {}", system.name), kind, error);
            Ok((key, selecting.selector(kind).map_err(wrong)?))
        };
        todo.into_par_iter().map(one).collect()
    }

    /// One run: what is told of it.
    pub(super) fn select(
        &self,
        selecting: &Selecting,
        (system, arrivals, rate): (&System, &Arrivals, f64),
        policy: Contender,
        selectors: &HashMap<String, Option<Selector>>,
        seed: u64,
    ) -> Result<Vec<f64>, ExperimentError> {
        let (Contender::Serving(kind), Some(process)) = (policy, &arrivals.process) else {
            unreachable!("checked when the experiment was read")
        };
        let source = process.arrivals(rate, stream_seed(seed, 0));
        let source =
            source.map_err(|error| ExperimentError::Process { arrivals: arrivals.name.clone(), error })?;
        let come: Vec<_> = source.take(usize::try_from(self.requests).unwrap_or(usize::MAX)).collect();
        let selector = selectors.get(&selecting.key(kind)).and_then(Option::as_ref);
        let wrong = |error| refuse(format!("system {}", system.name), kind, error);
        let found = selecting.tried(selector, &come).map_err(wrong)?;
        let told = |&quantity: &Quantity| match quantity {
            Quantity::Misses => found.missed,
            Quantity::Worth => found.right(),
            _ => f64::NAN,
        };
        Ok(self.quantities().iter().map(told).collect())
    }
}

#[cfg(test)]
mod tests;
