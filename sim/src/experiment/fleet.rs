//! Fleets of an experiment: many identical workers that can run any of several models, and who picks the model.

use std::fmt;
use std::str::FromStr;

use rt_core::{Instant, Span, WorkerId};

use super::profile::Data;
use super::{ExperimentError, raw, refuse};
use crate::drive::{Backwards, Observer, Order, drive};
use crate::process::{Process, stream_seed};
use crate::serving::{Chooser, Greedy, Jellyfish, Model, Serving, Static, Switching, read_models};

/// Identical workers, and the models that they can run.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) workers: usize,
    /// By rising time.
    pub(super) models: Vec<Model>,
    deadline: Span,
    /// What ModelSwitching found out beforehand.
    switching: Switching,
}

/// Who picks models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServingKind {
    /// The fastest model for every request.
    Fastest,
    /// The most accurate model that is in time for what waits.
    MostAccurate,
    /// Jellyfish+.
    Jellyfish,
    /// ModelSwitching.
    ModelSwitching,
}

impl ServingKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fastest, Self::MostAccurate, Self::Jellyfish, Self::ModelSwitching];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::MostAccurate => "most-accurate",
            Self::Jellyfish => "jellyfish",
            Self::ModelSwitching => "model-switching",
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
        let models = read_models(&path).map_err(|e| refuse(format!("{field}.file"), path.display(), e))?;
        let fastest = models.iter().map(|model| model.profile.bound(1)).min();
        if fastest.is_none_or(|time| time > deadline) {
            return Err(refuse(
                format!("{field}.file"),
                path.display(),
                "no model is as fast as the deadline",
            ));
        }
        let workers = raw.workers;
        let switching =
            Switching::new(&models, deadline, |one| largest_load(one, &models, workers, deadline));
        Ok(Self { workers, models, deadline, switching })
    }

    /// What the fastest model serves in half of the deadline, on all workers, in requests a second.
    pub(super) fn capacity(&self) -> f64 {
        let rate = |model: &Model| {
            let half = Span::from_nanos(self.deadline.as_nanos() / 2);
            let batch = model.profile.largest_within(half, model.profile.max_batch());
            batch as f64 / model.profile.bound(batch).as_secs_f64()
        };
        self.models.iter().map(rate).fold(0.0, f64::max) * self.workers as f64
    }

    /// As [`crate::drive()`], with `kind` picking models.
    pub(super) fn play(
        &self,
        kind: ServingKind,
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
        observer: &mut impl Observer,
    ) -> Result<(), Backwards> {
        let models = &self.models;
        let chooser: Box<dyn Chooser> = match kind {
            ServingKind::Fastest => Box::new(Static::new(models, 0, self.deadline)),
            ServingKind::MostAccurate => Box::new(Greedy::new(models)),
            ServingKind::Jellyfish => Box::new(Jellyfish::new(models, self.workers, self.deadline)),
            ServingKind::ModelSwitching => Box::new(self.switching.clone()),
        };
        let mut serving = Serving::new(chooser, models.clone(), self.workers, self.deadline);
        drive(&mut serving, arrivals, Order::Together, service, observer)
    }
}

/// The largest load, in requests a second, at which one model violates less than 1 % of the deadlines, in ten
/// seconds of Poisson arrivals.
fn largest_load(one: &Static, models: &[Model], workers: usize, deadline: Span) -> f64 {
    struct Count(u64, u64);
    impl Observer for Count {
        fn request(&mut self, request: &crate::Request) {
            self.0 += 1;
            self.1 += u64::from(request.outcome != rt_core::Outcome::Served);
        }
        fn batch(&mut self, _: &crate::Batch) {}
        fn safe_mode(&mut self, _: Instant, _: rt_core::Transition) {}
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
