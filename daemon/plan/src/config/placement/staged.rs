//! Pipelines for which is chosen: as a whole, for each stage among its models.

use crate::config::check::{ABSENT, Check, Refused, all};
use crate::config::{Candidates, ClassConfig, PlacementConfig, raw};

/// Demands and values at most.
const MOST: f64 = 1e9;

/// What a pipeline is worth where it is placed.
#[derive(Clone, Copy)]
pub(in crate::config) struct Worth {
    /// Mean sources a second.
    demand: f64,
    /// What one counts.
    value: f64,
    /// What one more a second is worth beside the other services of a device.
    weight: f64,
    /// What keeps it from sharing devices.
    alone: Option<&'static str>,
}

impl Check<'_> {
    /// The classes whose devices a pipeline of these stages may share: each of them may run there.
    pub(in crate::config) fn shared_by_all(
        &self,
        stages: &[raw::Stage],
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Vec<usize> {
        let Ok(Some(placement)) = placement else { return Vec::new() };
        let may = |stage: &raw::Stage, class: &ClassConfig| {
            stage.classes.as_ref().is_none_or(|names| names.contains(&class.name))
        };
        let all = placement.classes.iter().enumerate().filter(|(_, class)| class.shared);
        all.filter(|(_, class)| stages.iter().all(|stage| may(stage, class)))
            .map(|(place, _)| place)
            .collect()
    }

    /// Among what is chosen for a stage: on devices of its own, or on those of a class that the pipeline has `shared` with all of its
    /// stages.
    pub(in crate::config) fn at_a_stage(
        &self,
        at: &str,
        candidates: Option<Candidates>,
        (named, shared): (&Option<Vec<String>>, &[usize]),
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<Option<Candidates>, Refused> {
        let (Some(mut candidates), Ok(Some(placement))) = (candidates, placement) else { return Ok(None) };
        let elsewhere = |class: &usize| placement.classes[*class].servers.is_some();
        let first = candidates.classes.iter().copied().find(elsewhere);
        candidates.classes.retain(|class| !elsewhere(class));
        if let Some(class) = first.filter(|_| named.is_some() || candidates.classes.is_empty()) {
            let name = placement.classes[class].name.clone();
            let reason =
                "are servers elsewhere, which stages of a pipeline cannot have yet: name other classes";
            return Err(self.refuse(&format!("{at}.classes"), &name, reason));
        }
        let may = |class: &usize| !placement.classes[*class].shared || shared.contains(class);
        let reason = "is shared, which a pipeline does with all of its stages or with none: let each of them run there, or name classes that \
                      are not shared";
        let not = candidates.classes.iter().copied().find(|class| !may(class)).filter(|_| named.is_some());
        candidates.classes.retain(may);
        if not.is_some() || candidates.classes.is_empty() {
            let name = not.map_or_else(|| ABSENT.to_owned(), |class| placement.classes[class].name.clone());
            return Err(self.refuse(&format!("{at}.classes"), &name, reason));
        }
        Ok(Some(candidates))
    }

    /// What a pipeline is worth where it is placed; none where nothing is chosen for it.
    pub(in crate::config) fn worth(&self, at: &str, raw: &raw::Pipeline) -> Result<Option<Worth>, Refused> {
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
        let declared =
            raw.stream.iter().filter_map(|stream| self.declared(stream)).fold(0.0, |all, one| all + one);
        let weight = self.real(&field("weight"), raw.weight.unwrap_or(1.0), (1e-6, 1e6));
        lacking.and(workers)?;
        Ok(Some(Worth {
            demand: demand?.unwrap_or(declared),
            value: value?,
            weight: weight?,
            alone: raw.record.is_some().then_some("record"),
        }))
    }
}

impl Worth {
    /// What is chosen among for a stage of it.
    pub(in crate::config) fn of_each(self, candidates: Candidates) -> Candidates {
        let Self { demand, value, weight, alone } = self;
        Candidates { demand, value, weight, alone, ..candidates }
    }
}
