//! Pipelines for which is chosen: as a whole, for each stage among its models.

use crate::config::check::{ABSENT, Check, Refused, all};
use crate::config::{Candidates, PlacementConfig, raw};

/// Demands and values at most.
const MOST: f64 = 1e9;

impl Check<'_> {
    /// Among what is chosen for a stage, which has devices of its own: on those of the classes that are not shared.
    pub(in crate::config) fn of_its_own(
        &self,
        at: &str,
        candidates: Option<Candidates>,
        named: &Option<Vec<String>>,
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<Option<Candidates>, Refused> {
        let (Some(mut candidates), Ok(Some(placement))) = (candidates, placement) else { return Ok(None) };
        let is_shared = |class: &usize| placement.classes[*class].shared;
        let reason = "a stage has devices of its own: name classes that are not shared";
        let shared = candidates.classes.iter().copied().find(is_shared).filter(|_| named.is_some());
        candidates.classes.retain(|class| !is_shared(class));
        if shared.is_some() || candidates.classes.is_empty() {
            let name =
                shared.map_or_else(|| ABSENT.to_owned(), |class| placement.classes[class].name.clone());
            return Err(self.refuse(&format!("{at}.classes"), &name, reason));
        }
        Ok(Some(candidates))
    }

    /// How many sources of a pipeline come a second on average, and what one counts; none where nothing is chosen for it.
    pub(in crate::config) fn worth(
        &self,
        at: &str,
        raw: &raw::Pipeline,
    ) -> Result<Option<(f64, f64)>, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        if !raw.stage.iter().any(raw::Stage::has_candidates) {
            let only = "only for a pipeline whose stages say among which models to choose; remove it, or list models";
            let said = [("demand", raw.demand), ("value", raw.value)];
            let refused = said.into_iter().map(|(name, value)| match value {
                Some(value) => Err(self.refuse(&field(name), &value.to_string(), only)),
                None => Ok(()),
            });
            return all(refused).map(|_| None);
        }
        let lacking = raw.stage.iter().enumerate().map(|(i, stage)| match stage.has_candidates() {
            true => Ok(()),
            false => {
                let reason = "is placed with the other stages, which list models: a list may have one";
                Err(self.refuse(&field(&format!("stage[{i}].models")), ABSENT, reason))
            }
        });
        let lacking = all(lacking);
        let workers = raw.workers.map_or(Ok(()), |workers| {
            let reason = "is chosen by `weir place`, stage by stage: remove it";
            Err(self.refuse(&field("workers"), &workers.to_string(), reason))
        });
        let demand = raw.demand.map(|demand| self.real(&field("demand"), demand, (0.0, MOST))).transpose();
        let value = self.real(&field("value"), raw.value.unwrap_or(1.0), (0.0, MOST));
        // What declares its sources comes as often as it declares, unless it is said how often.
        let declared = raw.stream.iter().filter_map(|stream| self.declared(stream)).sum();
        lacking.and(workers)?;
        Ok(Some((demand?.unwrap_or(declared), value?)))
    }
}
