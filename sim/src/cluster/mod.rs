//! Clusters in virtual time: devices of several classes that can hold any variant of any service, and who decides what they hold.
//!
//! Proteus (Ahmad et al., ASPLOS 2024) and the baselines and ablations of its paper. Who allocates is an [`Allocation`]; on each
//! device requests wait and are batched by a policy for one model, as if it were alone.

mod allocate;
mod greedy;
mod hosting;
mod told;

#[cfg(test)]
mod tests;

use placement::Problem;
use placement::problem::Runs;
use rt_core::{Instant, Span, WorkerId};
use virtual_time::{Backwards, Order, drive};

use crate::policy::PolicyKind;
use allocate::Allocator;
use hosting::Hosting;
pub use told::{BUCKET, Bucket, Told};

/// Devices and services, and how often it is decided anew who holds what.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The devices and services; their demands are not looked at.
    pub problem: Problem,
    /// From one allocation to the next.
    pub period: Span,
    /// No sooner than that, if more comes than is allocated for.
    pub soonest: Span,
    /// How many times the demand that was seen is allocated for.
    pub margin: f64,
    /// How long a device answers nothing that is to hold another variant.
    pub load: Span,
}

/// Who decides which device holds what, and which requests go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// The most accurate plan for the demand seen, as Proteus finds it by its program: the `placement` room's.
    Best,
    /// The same with batches of one.
    NoBatching,
    /// The same of the most accurate variants.
    NoSelection,
    /// The same, but requests go to all devices of a service alike.
    NoAssignment,
    /// The first plan decides which service a device is for, and the best variants are chosen for that: Sommelier, and
    /// Proteus without placement.
    NoPlacement,
    /// Of the least accurate variants, once and for all: Clipper-HT.
    ClipperHt,
    /// Of the most accurate variants, once and for all: Clipper-HA.
    ClipperHa,
    /// Service by service, what costs least accuracy next: INFaaS-Accuracy.
    Infaas,
}

impl Allocation {
    /// All but the best, which goes by the name of the policy on its devices.
    pub const OTHERS: [Self; 7] = [
        Self::NoBatching,
        Self::NoSelection,
        Self::NoAssignment,
        Self::NoPlacement,
        Self::ClipperHt,
        Self::ClipperHa,
        Self::Infaas,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best-plan",
            Self::NoBatching => "proteus-no-batching",
            Self::NoSelection => "proteus-no-selection",
            Self::NoAssignment => "proteus-no-assignment",
            Self::NoPlacement => "sommelier",
            Self::ClipperHt => "clipper-ht",
            Self::ClipperHa => "clipper-ha",
            Self::Infaas => "infaas-accuracy",
        }
    }

    /// How its devices batch: as the paper says, and for INFaaS, of whose batching it says nothing, what waits at once.
    #[must_use]
    pub const fn batching(self) -> PolicyKind {
        match self {
            Self::ClipperHt | Self::ClipperHa => PolicyKind::Clipper,
            Self::Infaas => PolicyKind::Edf,
            _ => PolicyKind::Proteus,
        }
    }
}

impl Cluster {
    /// How many devices there are.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.problem.classes.iter().map(|&(_, count)| count as usize).sum()
    }

    /// Plays `arrivals`, instants with the service of each, of which `demand` come a second on average, which is known at the
    /// beginning.
    ///
    /// # Errors
    /// If they go back in time.
    pub fn play(
        &self,
        (allocation, batching): (Allocation, PolicyKind),
        demand: &[f64],
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
    ) -> Result<Told, Backwards> {
        let mut told = Told::new(self);
        let allocator = Allocator::new(self, allocation, demand);
        let mut hosting = Hosting::new(self, allocator, batching, demand);
        drive(&mut hosting, arrivals, Order::Together, service, &mut told)?;
        told.held(hosting.in_use());
        Ok(told)
    }
}

/// Of each service, the sizes of batches of each variant on each class and their times; none where only a peak is known.
pub(crate) fn batches(problem: &Problem, service: usize, variant: usize, class: usize) -> &[(u32, Span)] {
    match &problem.services[service].variants[variant].runs[class] {
        Runs::Batches(batches) => batches,
        Runs::Peak(_) => &[],
    }
}
