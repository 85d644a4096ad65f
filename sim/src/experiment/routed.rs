//! Routers of an experiment: requests of several classes, models on every worker, and who says which answers which.

mod raw;

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use research::router::{
    Arrivals as Coming, Auto, Greedy, Load, Mix, Planned, Router, Setting, SettingError, Static, Tally,
    Trained, Training, play, train,
};

use super::contender::Contender;
use super::quantity::Quantity;
use super::service::Service;
use super::system::System;
use super::{Experiment, ExperimentError, Of, refuse};
use crate::process::{Process, stream_seed};
pub(super) use raw::{Raw, Redrawn};

/// The lowest and the highest rate that routers are planned and trained for.
const RATES: (f64, f64) = (0.25, 48.0);
/// For how many times their deadlines routers are planned; that is kept which does best where it is tried.
const LENIENCE: [f64; 2] = [1.0, 1.1];

/// Who says which model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouterKind {
    /// One model for all: the how many-th.
    Only(u8),
    /// The most accurate that still fits.
    Greedy,
    /// Planned for one worker's share of what comes.
    Planned,
    /// Trained, as Jha et al. have it.
    Learned,
    /// Whichever of all these simulation says is worth most at the rate that is seen.
    Auto,
}

/// A system of an experiment.
#[derive(Clone, Debug)]
pub(super) struct Routed {
    setting: Setting,
    mix: Vec<f64>,
    shift: Option<(f64, Vec<f64>)>,
    training: Training,
    restarts: u64,
}

/// Who routes, planned or trained as far ahead as it is.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Planned(Planned),
    Trained(Trained),
    Auto(Auto),
}

impl RouterKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Only(0),
        Self::Only(1),
        Self::Only(2),
        Self::Only(3),
        Self::Greedy,
        Self::Planned,
        Self::Learned,
        Self::Auto,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Only(0) => "model-1",
            Self::Only(1) => "model-2",
            Self::Only(2) => "model-3",
            Self::Only(_) => "model-4",
            Self::Greedy => "router-greedy",
            Self::Planned => "router-planned",
            Self::Learned => "router-learned",
            Self::Auto => "router-auto",
        }
    }
}

impl Routed {
    fn new(raw: &Raw) -> Result<Self, SettingError> {
        let setting = raw.setting();
        setting.check()?;
        let training = Training { hidden: raw.hidden.clone(), episodes: raw.episodes, ..Training::default() };
        training.check()?;
        if !(1..=64).contains(&raw.restarts) {
            let (field, value) = ("restarts".to_owned(), raw.restarts as f64);
            return Err(SettingError { field, value, min: 1.0, max: 64.0 });
        }
        let mix = raw.mix.clone().unwrap_or_else(|| vec![1.0; setting.classes.len()]);
        let routed = Self { setting, mix, shift: raw.shift.clone(), training, restarts: raw.restarts };
        routed.mix(1_000).check(routed.setting.classes.len())?;
        Ok(routed)
    }

    /// Of a run of so many requests.
    fn mix(&self, requests: u64) -> Mix {
        let shift =
            self.shift.as_ref().map(|(part, shares)| ((part * requests as f64) as u64, shares.clone()));
        Mix { shares: self.mix.clone(), shift }
    }

    /// What those have in common that are prepared alike: not what comes, which nobody is told of.
    fn key(&self, kind: RouterKind) -> String {
        match kind {
            RouterKind::Only(_) | RouterKind::Greedy => String::new(),
            RouterKind::Planned => format!("{:?}", self.setting),
            RouterKind::Learned => {
                format!("{:?} {:?} {}", self.setting, self.training, self.restarts)
            }
            RouterKind::Auto => format!("auto {}", self.key(RouterKind::Learned)),
        }
    }

    /// `None` for those that nothing is worked out for, and where there are too many states to plan.
    fn prepare(&self, kind: RouterKind) -> Option<Prepared> {
        match kind {
            // What auto chooses among is prepared first.
            RouterKind::Only(_) | RouterKind::Greedy | RouterKind::Auto => None,
            RouterKind::Planned => {
                let even = vec![1.0; self.setting.classes.len()];
                let planned = |&lenience: &f64| Planned::new(&self.setting, &even, RATES, lenience);
                let all: Option<Vec<_>> = LENIENCE.par_iter().map(planned).collect();
                let tried = |planned: &Planned| self.training.held_out(&self.setting, &mut &*planned);
                let best = all?.into_iter().map(|planned| (tried(&planned), planned));
                best.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, planned)| Prepared::Planned(planned))
            }
            RouterKind::Learned => {
                let trained = |seed| train(&self.setting, &Training { seed, ..self.training.clone() });
                let all: Vec<_> = (1..=self.restarts).into_par_iter().map(trained).collect();
                all.into_iter().max_by(|a, b| a.worth.total_cmp(&b.worth)).map(Prepared::Trained)
            }
        }
    }

    /// Who chooses among those that are `prepared`; `None` if nobody was trained.
    fn auto(&self, prepared: &HashMap<String, Prepared>) -> Option<Prepared> {
        let planned = match prepared.get(&self.key(RouterKind::Planned)) {
            Some(Prepared::Planned(planned)) => Some(planned.clone()),
            _ => None,
        };
        let Some(Prepared::Trained(trained)) = prepared.get(&self.key(RouterKind::Learned)) else {
            return None;
        };
        Some(Prepared::Auto(Auto::new(&self.setting, (planned, trained.clone()), RATES)))
    }

    fn play(&self, router: &mut dyn Router, load: Load, requests: u64, seed: u64) -> Tally {
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        let mut tally = Tally::new(&self.setting, count);
        let coming = Coming::new(load, self.mix(requests), seed);
        play(&self.setting, coming, count, router, |end| tally.ended(&self.setting, end));
        tally
    }
}

impl System {
    /// A system of classes, models and who routes between them.
    pub(super) fn of_router(
        field: &impl Fn(&str) -> String,
        raw: &super::raw::System,
        router: &Raw,
        service: Service,
    ) -> Result<Self, ExperimentError> {
        Self::nothing_beside("router", (field, raw, &service), "must be none of a router")?;
        let routed = Routed::new(router).map_err(|error| {
            let reason = format!("must be in {}..={}", error.min, error.max);
            refuse(field(&format!("router.{}", error.field)), error.value, reason)
        })?;
        Ok(Self { router: Some(Arc::new(routed)), ..Self::bare(raw, service) })
    }
}

impl Experiment {
    /// With routers that are hardly trained, and none that is planned: both take minutes where nothing is optimised.
    #[cfg(test)]
    pub(super) fn hurried(mut self) -> Self {
        for router in self.systems.iter_mut().filter_map(|system| system.router.as_mut()) {
            let routed = Arc::make_mut(router);
            routed.training = Training { episodes: 2, steps: 5, requests: 300, ..routed.training.clone() };
        }
        let slow = [RouterKind::Planned, RouterKind::Auto].map(Contender::Routing);
        self.policies.retain(|policy| !slow.contains(policy));
        self
    }

    /// Whether requests of classes are routed by those who can, and nobody else is asked to.
    pub(super) fn check_routers(&self) -> Result<(), ExperimentError> {
        let routes = |policy: &Contender| matches!(policy, Contender::Routing(_));
        let routed = self.systems.iter().filter(|system| system.router.is_some()).count();
        if routed == 0 {
            if let Some(arrivals) = self.arrivals.iter().find(|arrivals| arrivals.redrawn.is_some()) {
                return Err(refuse("arrivals", &arrivals.name, "needs a router"));
            }
            return match self.policies.iter().find(|policy| routes(policy)) {
                Some(policy) => Err(refuse("policies", policy, "needs a router")),
                None => Ok(()),
            };
        }
        if routed < self.systems.len() {
            return Err(refuse("system", routed, "must all be routers, or none"));
        }
        if self.x.of != Of::Second {
            return Err(refuse("x", self.x.label(), "must be `rate` of a router"));
        }
        if let Some(policy) = self.policies.iter().find(|policy| !routes(policy)) {
            return Err(refuse("policies", policy, "cannot route"));
        }
        let models = |system: &System| system.router.as_ref().map_or(0, |of| of.setting.models.len());
        for policy in &self.policies {
            let Contender::Routing(RouterKind::Only(model)) = policy else { continue };
            if let Some(system) = self.systems.iter().find(|system| models(system) <= usize::from(*model)) {
                return Err(refuse("policies", policy, format!("is no model of system {}", system.name)));
            }
        }
        for arrivals in &self.arrivals {
            if arrivals.redrawn.is_none() && arrivals.process != Some(Process::Poisson) {
                return Err(refuse("arrivals", &arrivals.name, "must be `poisson` or `redrawn` of a router"));
            }
            for &x in &self.x.values {
                self.load(arrivals, x).check().map_err(|error| {
                    let reason = format!("must be in {}..={}", error.min, error.max);
                    refuse(format!("arrivals {}: {}", arrivals.name, error.field), error.value, reason)
                })?;
            }
        }
        Ok(())
    }

    fn load(&self, arrivals: &super::Arrivals, x: f64) -> Load {
        let factor = x * arrivals.mean;
        arrivals.redrawn.as_ref().map_or(Load::Steady(factor), |redrawn| redrawn.load(factor))
    }

    /// Plans and trains what is needed, each once.
    pub(super) fn prepare(&self) -> HashMap<String, Prepared> {
        let kinds = self.policies.iter().filter_map(|policy| match policy {
            Contender::Routing(kind) => Some(*kind),
            _ => None,
        });
        let mut kinds: Vec<RouterKind> = kinds.collect();
        let is_auto = kinds.contains(&RouterKind::Auto);
        if is_auto {
            kinds.extend([RouterKind::Planned, RouterKind::Learned]);
        }
        let routers = || self.systems.iter().filter_map(|system| system.router.as_deref());
        let mut todo: HashMap<String, (&Routed, RouterKind)> = HashMap::new();
        for (kind, routed) in kinds.into_iter().flat_map(|kind| routers().map(move |routed| (kind, routed))) {
            todo.entry(routed.key(kind)).or_insert((routed, kind));
        }
        let one = |(key, (routed, kind)): (String, (&Routed, RouterKind))| {
            routed.prepare(kind).map(|prepared| (key, prepared))
        };
        let mut prepared: HashMap<String, Prepared> = todo.into_par_iter().filter_map(one).collect();
        if is_auto {
            let auto = |routed: &Routed| Some((routed.key(RouterKind::Auto), routed.auto(&prepared)?));
            let autos: Vec<_> = routers().collect::<Vec<_>>().into_par_iter().filter_map(auto).collect();
            prepared.extend(autos);
        }
        prepared
    }

    /// One run: what is told of it.
    pub(super) fn route(
        &self,
        routed: &Routed,
        (arrivals, x): (&super::Arrivals, f64),
        policy: Contender,
        prepared: &HashMap<String, Prepared>,
        seed: u64,
    ) -> Vec<f64> {
        let Contender::Routing(kind) = policy else { unreachable!("checked when the experiment was read") };
        let (load, seed) = (self.load(arrivals, x), stream_seed(seed, 0));
        let go = |router: &mut dyn Router| routed.play(router, load.clone(), self.requests, seed);
        let tally = match (kind, prepared.get(&routed.key(kind))) {
            (RouterKind::Only(model), _) => go(&mut Static(usize::from(model))),
            (_, Some(Prepared::Planned(planned))) => go(&mut &*planned),
            (_, Some(Prepared::Trained(trained))) => go(&mut trained.router()),
            (_, Some(Prepared::Auto(auto))) => go(&mut auto.choosing()),
            (RouterKind::Greedy, None) => go(&mut Greedy),
            // Where there is too much to plan nobody routes.
            (RouterKind::Planned | RouterKind::Learned | RouterKind::Auto, None) => {
                return vec![f64::NAN; self.quantities().len()];
            }
        };
        let told = |&quantity: &Quantity| match quantity {
            Quantity::Misses => tally.misses(),
            Quantity::Worth => tally.mean(),
            Quantity::Windows(percent) => tally.windows(f64::from(percent) / 100.0),
            Quantity::Routed(class, model) => {
                tally.routed(usize::from(class).wrapping_sub(1), usize::from(model).wrapping_sub(1))
            }
            Quantity::Unavailable(percent) => {
                f64::from(u8::from(tally.misses() > f64::from(percent) / 100.0))
            }
            _ => f64::NAN,
        };
        self.quantities().iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests;
