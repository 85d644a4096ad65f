//! Fleets of an experiment: many identical workers that can run any of several models, and who picks the model.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rayon::prelude::*;
use research::learned::Schooling;
use research::ramsis::{self, Batching, Flavour, PolicySet, RoundRobin, Spec};
use research::select::{self, Demand, DemandError, Effort};
use research::serving::{
    Chooser, Greedy, Jellyfish, Ramsis, Serving, Shared, Static, Switching, read_models,
};
use rt_core::{Instant, LatencyProfile, MAX_BATCH, Span, Variant, WorkerId};

use super::profile::Data;
use super::scheduled::Scheduled;
use super::{ExperimentError, raw, refuse};
use crate::process::{Process, stream_seed};
use virtual_time::{Backwards, Observer, Order, drive};

/// Identical workers, and the models that they can run.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) workers: usize,
    /// By rising time.
    pub(super) models: Vec<Variant>,
    pub(super) deadline: Span,
}

/// Who picks models at a load, planned as far ahead as it plans.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    /// Nothing to plan.
    Static(Static),
    Greedy(Greedy),
    Jellyfish(Jellyfish),
    Switching(Switching),
    Ramsis(Ramsis),
    Shared(Shared),
    Weir(Box<Scheduled>),
}

/// Who picks models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServingKind {
    /// The fastest model for every request.
    Fastest,
    /// The fastest model for as many as are in time; what is late is given up.
    FastestInTime,
    /// Of three models the one that goes with what waits, by two thresholds, tuned for the load that comes.
    TwoThresholds,
    /// The most accurate model that is in time for what waits.
    MostAccurate,
    /// Jellyfish+.
    Jellyfish,
    /// ModelSwitching.
    ModelSwitching,
    /// RAMSIS, as its authors' program plans.
    Ramsis,
    /// RAMSIS, planned for accuracy per request, with late requests dropped.
    RamsisRequests,
    /// One queue for all workers, planned for the load that comes: ours.
    SharedQueue,
    /// The daemon's scheduler with the variant that is best alone, which it has no other of.
    WeirAlone,
    /// The daemon's scheduler with the base alone.
    WeirBase,
    /// The daemon's scheduler with the tables that it plans; of wishes, where there are classes.
    WeirTables,
    /// The daemon's scheduler with tables of prices, which have a batch's own classes decide.
    WeirPrices,
    /// The daemon's scheduler with the most accurate variant that gives up nothing that waits.
    WeirAccurate,
    /// The daemon's scheduler with a network that was trained on it.
    WeirLearned,
    /// The daemon's scheduler with whoever is worth most in simulation at the rate that comes, without classes but for a network.
    WeirAuto,
}

impl ServingKind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Fastest,
        Self::FastestInTime,
        Self::TwoThresholds,
        Self::MostAccurate,
        Self::Jellyfish,
        Self::ModelSwitching,
        Self::Ramsis,
        Self::RamsisRequests,
        Self::SharedQueue,
        Self::WeirAlone,
        Self::WeirBase,
        Self::WeirTables,
        Self::WeirPrices,
        Self::WeirAccurate,
        Self::WeirLearned,
        Self::WeirAuto,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::FastestInTime => "fastest-in-time",
            Self::TwoThresholds => "two-thresholds",
            Self::MostAccurate => "most-accurate",
            Self::Jellyfish => "jellyfish",
            Self::ModelSwitching => "model-switching",
            Self::Ramsis => "ramsis",
            Self::RamsisRequests => "ramsis-requests",
            Self::SharedQueue => "shared-queue",
            Self::WeirAlone => "weir-alone",
            Self::WeirBase => "weir-base",
            Self::WeirTables => "weir-tables",
            Self::WeirPrices => "weir-prices",
            Self::WeirAccurate => "weir-accurate",
            Self::WeirLearned => "weir-learned",
            Self::WeirAuto => "weir-auto",
        }
    }
}

impl fmt::Display for ServingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ServingKind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

impl Fleet {
    /// Checks `raw`.
    pub(super) fn new(
        field: &str,
        raw: &raw::Fleet,
        deadline: Span,
        data: &Data,
    ) -> Result<Self, ExperimentError> {
        const MOST: usize = 1024;
        if !(1..=MOST).contains(&raw.workers) {
            return Err(refuse(format!("{field}.workers"), raw.workers, format!("must be in 1..={MOST}")));
        }
        let path = data.path(&format!("{field}.file"), &raw.file)?;
        let mut models =
            read_models(&path).map_err(|e| refuse(format!("{field}.file"), path.display(), e))?;
        if let Some(batch) = raw.batch {
            let refuse = |reason| refuse(format!("{field}.batch"), batch, reason);
            if !(1..=MAX_BATCH).contains(&batch) {
                return Err(refuse(format!("must be in 1..={MAX_BATCH}")));
            }
            for model in &mut models {
                let times: Vec<Span> = model.profile.bounds().take(batch).collect();
                model.profile = LatencyProfile::new(&times).map_err(|error| refuse(error.to_string()))?;
            }
        }
        let fastest = models.iter().map(|model| model.profile.bound(1)).min();
        if fastest.is_none_or(|time| time > deadline) {
            return Err(refuse(
                format!("{field}.file"),
                path.display(),
                "no model is as fast as the deadline",
            ));
        }
        Ok(Self { workers: raw.workers, models, deadline })
    }

    /// Plans `kind` for each load from `loads.0` to `loads.1`, or just that one if they are the same.
    ///
    /// # Errors
    /// What the planner finds wrong with the models, as text.
    pub(super) fn plan(&self, kind: ServingKind, loads: (f64, f64)) -> Result<Planned, String> {
        let (models, deadline) = (&self.models, self.deadline);
        Ok(match kind {
            ServingKind::Fastest => Planned::Static(Static::new(models, 0, deadline)),
            ServingKind::MostAccurate => Planned::Greedy(Greedy::new(models)),
            ServingKind::Jellyfish => Planned::Jellyfish(Jellyfish::new(models, self.workers, deadline)),
            ServingKind::ModelSwitching => Planned::Switching(Switching::new(models, deadline, |one| {
                largest_load(one, models, self.workers, deadline)
            })),
            ServingKind::Ramsis => Planned::Ramsis(self.ramsis(Flavour::Program, loads)?),
            ServingKind::RamsisRequests => {
                Planned::Ramsis(self.ramsis(Flavour::Requests { max_miss: 0.001 }, loads)?)
            }
            ServingKind::SharedQueue => Planned::Shared(self.shared(loads, |profile, demand| {
                select::plan(profile, demand, Effort::default()).map(|plan| plan.policy)
            })?),
            ServingKind::TwoThresholds => Planned::Shared(self.shared(loads, |profile, demand| {
                select::plan_thresholds(profile, demand, Effort::default()).map(|plan| plan.policy)
            })?),
            ServingKind::FastestInTime => {
                let of = |profile: &select::Profile, _| Ok(select::Policy::single(profile, 0));
                Planned::Shared(self.shared((loads.1, loads.1), of)?)
            }
            ServingKind::WeirTables => Planned::Weir(Box::new(Scheduled::by_tables(self)?)),
            ServingKind::WeirAccurate => Planned::Weir(Box::new(Scheduled::accurate(self)?)),
            ServingKind::WeirAlone | ServingKind::WeirBase | ServingKind::WeirPrices => {
                return Err("needs a service with classes".to_owned());
            }
            ServingKind::WeirAuto => Planned::Weir(Box::new(Scheduled::auto(self)?)),
            ServingKind::WeirLearned => {
                Planned::Weir(Box::new(Scheduled::learned(self, &Schooling::default())?))
            }
        })
    }

    fn ramsis(&self, flavour: Flavour, loads: (f64, f64)) -> Result<Ramsis, String> {
        let named = |(i, model): (usize, &Variant)| {
            ramsis::Model::of_profile(&format!("{i}"), model.accuracy, &model.profile)
        };
        let models = self.models.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>();
        let models = models.map_err(|error| error.to_string())?;
        let (slo_ns, slack, batching) =
            (self.deadline.as_nanos(), ramsis::Slack::Fixed(100), Batching::Maximal);
        // The program tells so many apart, and wants to know a batch of one more.
        let queue = self.models.iter().map(|model| model.profile.max_batch()).min().unwrap_or(1).min(33) - 1;
        let spec = Spec { models, slo_ns, queue, slack, batching, flavour };
        let arrivals = |load| RoundRobin::poisson(load, self.workers);
        let set = PolicySet::over(&spec, arrivals, loads, 0.01, (loads.1 - loads.0) / 40.0 + 1.0);
        Ok(Ramsis(Arc::new(set.map_err(|error| error.to_string())?)))
    }

    /// In steps of 4 %, where loads change.
    fn shared(
        &self,
        loads: (f64, f64),
        plan: impl Fn(&select::Profile, Demand) -> Result<select::Policy, DemandError> + Sync,
    ) -> Result<Shared, String> {
        let profile = select::Profile::new(self.deadline, self.models.clone());
        let profile = profile.map_err(|error| error.to_string())?;
        let steps = ((loads.1 / loads.0).ln() / 1.04f64.ln()).ceil() as i32;
        let one = |step: i32| {
            let load = (loads.0 * 1.04f64.powi(step)).min(loads.1);
            let demand = Demand { load, workers: self.workers, order: select::Order::NewestToo };
            plan(&profile, demand).map(|policy| (load, policy)).map_err(|error| error.to_string())
        };
        let plans: Result<Vec<_>, _> = (0..=steps).into_par_iter().map(one).collect();
        Ok(Shared(plans?.into()))
    }

    /// What the fastest model serves in half of the deadline, on all workers, in requests a second.
    pub(super) fn capacity(&self) -> f64 {
        let rate = |model: &Variant| {
            let half = Span::from_nanos(self.deadline.as_nanos() / 2);
            let batch = model.profile.largest_within(half, model.profile.max_batch());
            batch as f64 / model.profile.bound(batch).as_secs_f64()
        };
        self.models.iter().map(rate).fold(0.0, f64::max) * self.workers as f64
    }

    /// As [`drive()`], with `planned` picking models.
    pub(super) fn play(
        &self,
        planned: &Planned,
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
        observer: &mut impl Observer,
    ) -> Result<(), Backwards> {
        let chooser: Box<dyn Chooser> = match planned.clone() {
            Planned::Weir(scheduled) => {
                return drive(&mut scheduled.policy(), arrivals, Order::Together, service, observer);
            }
            Planned::Static(one) => Box::new(one),
            Planned::Greedy(greedy) => Box::new(greedy),
            Planned::Jellyfish(jellyfish) => Box::new(jellyfish),
            Planned::Switching(switching) => Box::new(switching),
            Planned::Ramsis(ramsis) => Box::new(ramsis),
            Planned::Shared(shared) => Box::new(shared),
        };
        let mut serving = Serving::new(chooser, self.models.clone(), self.workers, self.deadline);
        drive(&mut serving, arrivals, Order::Together, service, observer)
    }
}

/// The largest load, in requests a second, at which one model violates less than 1 % of the deadlines, in ten
/// seconds of Poisson arrivals.
fn largest_load(one: &Static, models: &[Variant], workers: usize, deadline: Span) -> f64 {
    struct Count(u64, u64);
    impl Observer for Count {
        fn request(&mut self, request: &crate::Request) {
            self.0 += 1;
            self.1 += u64::from(request.outcome != rt_core::Outcome::Served);
        }
        fn batch(&mut self, _: &crate::Batch) {}
        fn safe_mode(&mut self, _: Instant, _: rt_core::Transition) {}
        fn suspension(&mut self, _: Instant, _: usize, _: rt_core::StreamState, _: Option<rt_core::Alarm>) {}
    }
    let within = |load: f64| {
        let Ok(source) = Process::Poisson.arrivals(load, stream_seed(0, 0)) else { return false };
        let end = Instant::from_nanos(10_000_000_000);
        let arrivals = source.take_while(|&instant| instant < end).map(|instant| (instant, 0));
        let mut serving = Serving::new(one.clone(), models.to_vec(), workers, deadline);
        let mut count = Count(0, 0);
        let played = drive(&mut serving, arrivals, Order::Together, |_, _, bound| bound, &mut count);
        played.is_ok() && (count.1 as f64) < 0.01 * count.0 as f64
    };
    // In steps of 10 requests a second, up to what full batches serve.
    let (mut yes, mut no) = (0u64, (workers as f64 * one.capacity(models) / 10.0).ceil() as u64 + 1);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if within(middle as f64 * 10.0) { yes = middle } else { no = middle }
    }
    yes as f64 * 10.0
}
