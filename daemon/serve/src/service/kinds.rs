//! What is told of workers where they are of several kinds.

use std::fmt;

use rt_core::WorkerId;

use super::{Service, WorkerView};
use weir_plan::plan::{KindPlan, ServicePlan};

/// A worker as messages name it: by its number, and by its kind where there are several.
pub(super) struct WorkerName<'a>(&'a ServicePlan, WorkerId);

impl fmt::Display for WorkerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan, id) = self;
        match plan.kind_of(*id) {
            Some(kind) => write!(f, "service {}: worker {id} ({kind})", plan.config.name),
            None => write!(f, "service {}: worker {id}", plan.config.name),
        }
    }
}

impl Service {
    pub(super) fn worker(&self, id: WorkerId) -> WorkerName<'_> {
        WorkerName(&self.plan, id)
    }

    /// Each kind of its workers, if there are several, and how many of them are not lost.
    pub fn kinds(&self) -> Vec<(&KindPlan, usize)> {
        let mut workers = self.view().workers();
        let mut all = Vec::new();
        for kind in &self.plan.kinds {
            let own = workers.by_ref().take(kind.runs.workers().count);
            all.push((kind, own.filter(|&does| does != WorkerView::Lost).count()));
        }
        all
    }

    /// Of each kind that lacks workers how many are left, such as `far 0 of 2`.
    pub(super) fn kinds_that_lack(&self) -> String {
        let lacks = |(kind, alive): (&KindPlan, usize)| {
            let count = kind.runs.workers().count;
            (alive < count).then(|| format!("{} {alive} of {count}", kind.runs.config.kind_name()))
        };
        self.kinds().into_iter().filter_map(lacks).collect::<Vec<_>>().join(", ")
    }
}
