//! Workers of several kinds in one service, each with an engine of its own and a place where it computes.

use std::collections::HashSet;

use rt_core::MAX_WORKERS;

use super::check::{ABSENT, Check, Refused, all};
use super::service::{Beside, Runs};
use super::{HeldBy, ModelChoice, Optimise, ServiceConfig, is_name, raw};
use weir_engine::EngineKind;

/// Kinds of workers that a service has at most.
const MAX_KINDS: u64 = 16;

/// What is each kind's own.
const OF_KIND: &str = "belongs to the entries of workers: say it there";

impl ServiceConfig {
    /// What its workers are called: as their entry says, or else by their engine.
    pub fn kind_name(&self) -> String {
        self.kind.clone().unwrap_or_else(|| self.engine.to_string())
    }

    /// The service and the name of its workers, if they have one of their own.
    pub fn named_place(&self) -> Option<String> {
        self.kind.as_ref().map(|kind| format!("{}/{kind}", self.name))
    }

    /// The engines of its workers.
    pub fn engines(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for name in self.running().map(|runs| runs.engine.to_string()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

impl Check<'_> {
    /// A service that has an entry for each kind of its workers.
    pub(super) fn mixed(
        &self,
        at: &str,
        mut raw: raw::Service,
        kinds: Vec<raw::Kind>,
        beside: Beside<'_>,
    ) -> Result<ServiceConfig, Refused> {
        let field = format!("{at}.workers (how many kinds)");
        let several = kinds.len() > 1;
        self.number(&field, kinds.len() as u64, 1, MAX_KINDS)?;
        self.not_mixed(at, &raw, several)?;
        let (name, alone) = (raw.name.clone(), raw.background);
        let promise = self.promise(at, &mut raw, alone)?;
        let promise = if several { promise.held_by_deadline() } else { promise };
        let record = self.record(at, raw.record.take(), raw.record_limit)?;
        let mut names = HashSet::new();
        let runs = all(kinds.into_iter().enumerate().map(|(i, kind)| {
            let at = format!("{at}.workers[{i}]");
            // Said once, by the name that the entry has for it.
            if let Some(count) = kind.count {
                self.number(&format!("{at}.count"), count, 1, MAX_WORKERS as u64)?;
            }
            let name = self.kind(&at, &raw, &kind, &mut names);
            let runs = self.runs(&at, raw.of_kind(kind), beside)?;
            self.remote_fits(&at, &runs, &promise)?;
            Ok((name?, at, runs))
        }))?;
        let count = runs.iter().map(|(.., runs)| runs.workers() as u64).sum();
        self.number(&format!("{at}.workers (how many, of all kinds)"), count, 1, MAX_WORKERS as u64)?;
        self.alike(&runs)?;
        let kind = |(kind, at, runs): (Option<String>, String, Runs)| {
            let config = ServiceConfig::of(name.clone(), &at, runs, promise.clone());
            ServiceConfig { kind, ..config }
        };
        let mut kinds: Vec<_> = runs.into_iter().map(kind).collect();
        if !several {
            return kinds.pop().map(|only| ServiceConfig { record, ..only }).ok_or(Refused);
        }
        let (first, max_batch) = (kinds[0].clone(), kinds.iter().map(|kind| kind.max_batch).max());
        Ok(ServiceConfig {
            at: at.to_owned(),
            kind: None,
            workers: count as usize,
            cores: Vec::new(),
            max_batch: max_batch.unwrap_or(1),
            batch: None,
            record,
            kinds,
            ..first
        })
    }

    /// What a service with an entry for each kind of workers does not say, or cannot have.
    fn not_mixed(&self, at: &str, raw: &raw::Service, several: bool) -> Result<(), Refused> {
        let shown = |there: bool| there.then(|| "(present)".to_owned());
        let of_kinds = [
            ("isolation", shown(raw.isolation.is_some())),
            ("cores", shown(raw.cores.is_some())),
            ("gpu", shown(raw.gpu.is_some())),
            ("remote", shown(raw.remote.is_some())),
            ("batch", raw.batch.map(|batch| batch.to_string())),
        ];
        let of_kinds = of_kinds.into_iter().map(|(name, value)| (name, value, OF_KIND));
        let variants = raw.simulated.as_ref().is_some_and(|simulated| !simulated.variants.is_empty());
        let single = "the shield, which longer batches need, is for workers of one kind: remove it, or say workers as a number";
        let never = [
            (
                "device",
                shown(raw.device.is_some()),
                "workers that services share are of one kind: say it without entries of workers",
            ),
            ("turn", shown(raw.turn.is_some()), "only for a service that names a device; remove it"),
            ("weight", shown(raw.weight.is_some()), "only for a service that names a device; remove it"),
            ("variants", raw.variants.first().map(|first| format!("{first:?}")), single),
            ("simulated.variants", shown(variants), single),
            ("select", shown(raw.select.is_some()), "only with variants to select among; remove it"),
        ];
        let headroom = raw.optimise == Some(Optimise::Headroom);
        let absorbed = raw.stalls.as_ref().is_some_and(|stalls| stalls.by == HeldBy::Constraints);
        let of_several = [
            ("optimise", shown(headroom), single),
            (
                "stalls.by",
                shown(absorbed),
                "constraints absorb stalls with workers of one kind: say \"deadline\"",
            ),
        ];
        let of_several = of_several.into_iter().filter(|_| several);
        all(of_kinds.chain(never).chain(of_several).map(|(name, value, reason)| match value {
            Some(value) => Err(self.refuse(&format!("{at}.{name}"), &value, reason)),
            None => Ok(()),
        }))?;
        if raw.engine != EngineKind::Simulated && raw.simulated.is_none() && raw.model.is_none() {
            return Err(self.refuse(&format!("{at}.model"), ABSENT, "must name a model of daemon.models"));
        }
        Ok(())
    }

    /// The name of a kind, if its entry gives one.
    fn kind(
        &self,
        at: &str,
        service: &raw::Service,
        kind: &raw::Kind,
        names: &mut HashSet<String>,
    ) -> Result<Option<String>, Refused> {
        let field = format!("{at}.name");
        if let Some(name) = kind.name.as_ref().filter(|name| !is_name(name)) {
            let reason = "must be 1..=64 letters, digits or any of - _ . /";
            return Err(self.refuse(&field, &format!("{name:?}"), reason));
        }
        let engine = kind.engine.unwrap_or(service.engine);
        let name = kind.name.clone().unwrap_or_else(|| engine.to_string());
        if names.insert(name.clone()) {
            return Ok(kind.name.clone());
        }
        let reason = "is the name of another entry already; without a name an entry has that of its engine: give each a name of its own";
        Err(self.refuse(&field, &format!("{name:?}"), reason))
    }

    /// Whatever kind answers, requests and answers are the same.
    fn alike(&self, runs: &[(Option<String>, String, Runs)]) -> Result<(), Refused> {
        let sides = |model: &ModelChoice| match model {
            ModelChoice::Named(_) => None,
            ModelChoice::Simulated { input, output, .. } => Some((*input, *output)),
        };
        let first = sides(&runs[0].2.model);
        all(runs.iter().map(|(_, at, runs)| match (sides(&runs.model), first) {
            (one, other) if one == other => Ok(()),
            (Some((input, output)), Some((first_input, first_output))) => {
                let reason =
                    format!("must be {first_input} values in and {first_output} out, as of the first entry");
                Err(self.refuse(&format!("{at}.simulated"), &format!("{input} in and {output} out"), reason))
            }
            _ => {
                let reason = "engine \"simulated\" computes nothing: its workers cannot stand beside others";
                Err(self.refuse(&format!("{at}.engine"), &format!("{:?}", runs.engine().to_string()), reason))
            }
        }))
        .map(drop)
    }
}

#[cfg(test)]
mod tests;
