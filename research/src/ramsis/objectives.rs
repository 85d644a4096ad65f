//! Requests with several latency objectives: each has its own queue, workers and policies (appendix G).

use super::RamsisError;
use super::arrivals::Arrivals;
use super::error::refuse;
use super::set::{Loaded, PolicySet};
use super::spec::Spec;

/// The most objectives.
pub const MAX_OBJECTIVES: usize = 64;

/// Workers that are assigned to one objective, and what comes for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The time from arrival to answer, in nanoseconds, as [`Spec::slo_ns`].
    pub slo_ns: u64,
    /// How many workers serve these requests, and no others; at least 1.
    pub workers: usize,
    /// The least and the highest load of these requests alone, in requests per second, as [`PolicySet::over`].
    pub loads: (f64, f64),
}

/// Policies for requests with several objectives in one flow.
///
/// A request joins the queue of its objective, and from there goes to one of the workers that are assigned to it.
/// Poisson arrivals whose objectives are drawn independently are Poisson arrivals in each queue, so every queue is the
/// problem of one objective, with its own load to watch. How many workers an objective gets is for others to decide;
/// what they have to spare is not lent.
#[derive(Clone, Debug)]
pub struct Objectives(Vec<(Group, PolicySet)>);

impl Objectives {
    /// Policies for `groups`, by rising objective, each as [`PolicySet::over`] makes them with `spec`, whose own
    /// objective is not read; `arrivals` makes the load of one of that many workers.
    ///
    /// # Errors
    /// [`RamsisError::Value`]: no group, more than [`MAX_OBJECTIVES`], objectives that do not rise, or as
    /// [`PolicySet::over`].
    pub fn over<A: Arrivals>(
        spec: &Spec,
        groups: &[Group],
        arrivals: impl Fn(f64, usize) -> Result<A, RamsisError>,
        apart: f64,
        step: f64,
    ) -> Result<Self, RamsisError> {
        if !(1..=MAX_OBJECTIVES).contains(&groups.len()) {
            return Err(refuse("number of groups", groups.len(), format!("must be 1 to {MAX_OBJECTIVES}")));
        }
        if let Some(i) = groups.windows(2).position(|pair| pair[1].slo_ns <= pair[0].slo_ns) {
            let limit = format!("must be above {}, that of the group before", groups[i].slo_ns);
            return Err(refuse(format!("groups[{}].slo_ns", i + 1), groups[i + 1].slo_ns, limit));
        }
        let plan = |group: &Group| {
            let spec = Spec { slo_ns: group.slo_ns, ..spec.clone() };
            let set = PolicySet::over(&spec, |load| arrivals(load, group.workers), group.loads, apart, step)?;
            Ok((*group, set))
        };
        groups.iter().map(plan).collect::<Result<_, _>>().map(Self)
    }

    /// The number of the queue, from 0, that a request with this objective joins; none if no worker has it.
    #[must_use]
    pub fn queue(&self, slo_ns: u64) -> Option<usize> {
        self.0.binary_search_by_key(&slo_ns, |(group, _)| group.slo_ns).ok()
    }

    /// The number of the queue that `worker` serves, if workers are numbered from 0 through all groups.
    #[must_use]
    pub fn queue_of(&self, worker: usize) -> Option<usize> {
        let mut before = 0;
        self.0.iter().position(|(group, _)| {
            before += group.workers;
            worker < before
        })
    }

    /// The policy for workers of `queue` while requests come to it at this load; none if there is no such queue, or
    /// the load is more than its policies are for.
    #[must_use]
    pub fn at(&self, queue: usize, load: f64) -> Option<&Loaded> {
        self.0.get(queue)?.1.at(load)
    }

    /// All, by rising objective.
    #[must_use]
    pub fn all(&self) -> &[(Group, PolicySet)] {
        &self.0
    }
}
