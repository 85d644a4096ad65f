//! What the bound of a plan's batches was measured from: its runs, what the machine did to the longest of them, and what would
//! help.

use std::fmt;
use std::time::Duration;

use rt_core::{Span, Stalls};

use super::{PlanError, RatePlan, ServicePlan, workers_of};
use crate::config::ServiceConfig;
use crate::profile::{Basis, BatchTimes, Cause, Entry};
use weir_engine::ModelSpec;

/// A bound that is above what the undisturbed runs need by less than this share is not worth a proposal.
const WORTH: f64 = 0.25;
/// From so many expected excesses on runs support a quantile: none of them comes by chance with 5 %.
const SUPPORTED: f64 = 3.0;
/// The exceedances that are proposed, the smallest first.
const EXCEEDANCES: [f64; 2] = [1e-3, 1e-2];

/// A declaration of the stalls that were seen, and what could be promised with it. Nothing of it is in force until somebody
/// declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// What would be declared.
    pub stalls: Stalls,
    /// How many were seen.
    pub seen: usize,
    /// The batch size that the plan would choose.
    pub batch: usize,
    /// What such a batch would take at most, but for stalls, with the handover.
    pub bound: Span,
    /// Requests a second that could be promised beside the reserved streams; absent without constraints or room.
    pub promised_per_s: Option<f64>,
}

impl ServicePlan {
    /// What was measured of the batches that decide the bound of the promise: its own, or smaller ones whose bound is the
    /// same because no larger batch takes less. Absent in a plan of what could be.
    pub fn measured(&self) -> Option<(&BatchTimes, &Entry)> {
        let entry = self.entry.as_ref()?;
        let bound = entry.batches.get(self.workers().batch - 1)?.bound_ns;
        Some((entry.batches.iter().find(|times| times.bound_ns == bound)?, entry))
    }

    /// The stalls that the profile saw as a declaration, if with it more could be promised.
    pub fn proposal(&self) -> Option<Proposal> {
        // Services that share workers cannot declare any.
        let config = Some(&self.config).filter(|config| config.share.is_none())?;
        let (proposal, plan) = propose(config, &self.spec, self.entry.as_ref()?)?;
        let promised = |plan: &Self| plan.rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0);
        let more = match self.rate {
            Some(_) => promised(&plan) > promised(self) * (1.0 + WORTH / 10.0),
            None => plan.capacity() > self.capacity() * (1.0 + WORTH),
        };
        more.then_some(proposal)
    }

    /// What helps against the longest times, one line each, where the bound is far above what the undisturbed runs need.
    pub fn levers(&self) -> Vec<String> {
        let Some((times, entry)) = self.measured() else { return Vec::new() };
        let calm = times.machine.map_or(0, |machine| machine.longest_calm_ns);
        let hostage = |time: u64| times.bound_ns as f64 > time as f64 * (1.0 + entry.margin) * (1.0 + WORTH);
        let by = times.machine.map(|machine| machine.longest[0]).unwrap_or_default();
        let mut levers = Vec::new();
        if calm > 0 && hostage(calm) {
            let known = [
                (Cause::Stolen, "a host that leaves the processor to this machine"),
                (
                    Cause::Waited,
                    "real-time priority (daemon.realtime, LimitRTPRIO) and isolated cores of its own (cores)",
                ),
                (Cause::Paged, "locked memory (LimitMEMLOCK)"),
                (Cause::Mapped, "locked memory (LimitMEMLOCK)"),
                (Cause::Slowed, "a fixed frequency: the governor `performance`, and cooling"),
            ];
            for (_, lever) in known.into_iter().filter(|&(cause, _)| by.has(cause)) {
                if levers.iter().all(|known| known != lever) {
                    levers.push(lever.to_owned());
                }
            }
            let lost = Span::from_nanos(entry.stalls.map_or(0, |stalls| stalls.longest_ns));
            if by.has(Cause::Waited) && lost > self.config.guard {
                levers.push(format!(
                    "a guard of {lost} or more: what keeps a batch waiting so long can keep dispatch waiting too"
                ));
            }
        }
        let runs = times.samples as f64;
        let larger = EXCEEDANCES.into_iter().find(|share| runs * share >= SUPPORTED);
        if let Some(share) = larger.filter(|&share| share > entry.exceedance)
            && times.basis != Basis::Quantile
            && hostage(times.p999_ns)
        {
            levers.push(format!(
                "`weir profile --exceedance {share}`: so many runs support that, with a P({}) near {}; one batch in {:.0} \
                 may then take longer, which is announced",
                times.batch,
                Span::from_nanos(if share < 1e-2 { times.p999_ns } else { times.p99_ns }),
                1.0 / share
            ));
        }
        levers
    }
}

impl PlanError {
    /// The same, and with which declaration of the stalls that the profile saw there would be a plan, if with any.
    pub(super) fn or_proposal(self, config: &ServiceConfig, spec: &ModelSpec, entry: &Entry) -> Self {
        match propose(config, spec, entry) {
            Some((proposal, _)) => Self::Declare { source: Box::new(self), proposal: Box::new(proposal) },
            None => self,
        }
    }

    /// Whether it is that a promise cannot be kept, which a certificate can show.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Stream { .. } | Self::Never { .. } | Self::Reserved { .. } | Self::Unkept { .. } => true,
            Self::Declare { source, .. } | Self::Kind { source, .. } => source.is_refusal(),
            _ => false,
        }
    }
}

/// The stalls of `entry` as a declaration, and the plan with it; none if nothing was seen or something is declared.
fn propose(config: &ServiceConfig, spec: &ModelSpec, entry: &Entry) -> Option<(Proposal, ServicePlan)> {
    let seen = entry.stalls.filter(|_| config.stalls.is_none())?;
    let length = seen.longest_ns.saturating_add((seen.longest_ns as f64 * entry.margin) as u64);
    let span = |ns: u64| Span::from_nanos(ns);
    let stalls = Stalls::new(1, span(rounded_down(seen.closest_ns)), span(rounded_up(length))).ok()?;
    let config = ServiceConfig { stalls: Some(stalls), ..config.clone() };
    let plan = ServicePlan::of(&config, spec, "", &workers_of(&config, entry).ok()?).ok()?;
    let workers = plan.workers();
    let proposal = Proposal {
        stalls,
        seen: seen.count,
        batch: workers.batch,
        bound: workers.batch_time(),
        promised_per_s: plan.rate.as_ref().and_then(RatePlan::per_second),
    };
    Some((proposal, plan))
}

/// To whole seconds, or milliseconds below one.
fn rounded_down(ns: u64) -> u64 {
    let unit = if ns >= 1_000_000_000 { 1_000_000_000 } else { 1_000_000 };
    ns - ns % unit
}

/// To whole milliseconds, or tenths of them below ten.
fn rounded_up(ns: u64) -> u64 {
    ns.next_multiple_of(if ns >= 10_000_000 { 1_000_000 } else { 100_000 })
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stalls, seen, batch, bound, promised_per_s } = self;
        let time = |span: Span| humantime::format_duration(Duration::from_nanos(span.as_nanos())).to_string();
        write!(
            f,
            "stalls = {{ at-most = {}, in = \"{}\", of = \"{}\" }} would declare the {seen} that the profile saw, with \
             P({batch}) = {bound}",
            stalls.count(),
            time(stalls.window()),
            time(stalls.length())
        )?;
        promised_per_s.map_or(Ok(()), |rate| write!(f, " and {rate:.1} requests/s promised"))
    }
}

#[cfg(test)]
mod tests;
