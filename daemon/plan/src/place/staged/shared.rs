//! Pipelines on devices that are shared: each batch runs all stages there.

use weir_engine::ModelSpec;
use weir_os::clock;

use super::{Looked, Staged, Way};
use crate::config::{Placed, StageConfig};
use crate::place::offers::Offer;
use crate::place::{Part, Spot};
use crate::plan::{PlanError, least_loads};

impl Staged<'_> {
    /// On the devices of each class that services share, with each choice of models: what that leaves the others says the plan of the
    /// device.
    ///
    /// # Errors
    /// If the profile lacks a model.
    pub(in crate::place) fn shared(&self) -> Result<Looked, PlanError> {
        let mut looked = Looked { offers: Vec::new(), unseen: None };
        let alone = |stage: &StageConfig| stage.runs.candidates.as_ref().is_some_and(|of| of.alone.is_some());
        if self.config().stages.iter().any(alone) {
            return Ok(looked);
        }
        for class in (0..self.site.placement.classes.len()).filter(|&class| self.is_shared(class)) {
            let mut offers = Vec::new();
            let unseen = self.best_first(&self.ways(|of| of == class), |chosen| {
                if clock::now() > self.end {
                    return Ok(false);
                }
                offers.extend(self.on_shared(chosen)?);
                Ok(true)
            })?;
            looked = looked.and(Looked { offers, unseen });
        }
        Ok(looked)
    }

    /// All stages on the devices of a class that is shared.
    fn on_shared(&self, chosen: &[&Way<'_>]) -> Result<Option<Offer>, PlanError> {
        let classes = &self.site.placement.classes;
        let placed = |way: &&Way<'_>| Placed { class: way.class, devices: 0, models: vec![way.model] };
        let placed: Vec<Placed> = chosen.iter().map(placed).collect();
        let specs: Vec<ModelSpec> = chosen.iter().map(|way| way.spec.clone()).collect();
        let Some(config) = self.config().staged_on(classes, &placed) else { return Ok(None) };
        let Some(loads) = least_loads(&config, &specs, &self.site.profile)? else { return Ok(None) };
        let devices = classes[placed[0].class].devices as f64;
        let accuracy = self.accuracy(specs.iter());
        let part = |(placed, load): (Placed, &f64)| Part {
            placed,
            units: Vec::new(),
            shares: vec![1.0],
            busy: vec![self.demand * load / devices],
        };
        let parts = placed.into_iter().zip(&loads).map(part).collect();
        let (load, bytes) =
            (self.demand * loads.iter().sum::<f64>(), specs.iter().map(ModelSpec::file_bytes).sum());
        Ok(Some(Offer { spot: Spot { accuracy, parts }, load, bytes, missing: 0.0 }))
    }
}
