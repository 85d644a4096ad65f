//! What the devices of a box may hold: each service alone, two by turns, stages of pipelines.

use crate::configuration::{self, Configuration, Shared};
use crate::pipeline::Parts;
use crate::problem::Problem;

/// The most columns of devices; a problem with more has too many pairs that may share.
const MAX_COLUMNS: usize = 20_000;

/// What devices may hold, whoever shares them.
pub(crate) struct Columns {
    pub(crate) alone: Vec<Vec<Configuration>>,
    pub(crate) shared: Vec<Shared>,
    pub(super) parts: Vec<Parts>,
}

impl Columns {
    /// All of a problem, whatever its demand.
    ///
    /// # Errors
    /// If there are too many paths through a pipeline: in words.
    pub(crate) fn new(problem: &Problem) -> Result<Self, String> {
        let classes = 0..problem.classes.len();
        let alone = |service| {
            classes.clone().flat_map(move |class| configuration::alone(problem, service, class)).collect()
        };
        let alone: Vec<Vec<Configuration>> = problem.services.iter().map(alone).collect();
        let mut shared = Vec::new();
        if !problem.rounds.is_empty() {
            for one in 0..problem.services.len() {
                for other in one + 1..problem.services.len() {
                    shared.extend(
                        classes.clone().flat_map(|class| configuration::shared(problem, one, other, class)),
                    );
                }
            }
        }
        let parts = problem
            .pipelines
            .iter()
            .map(|pipeline| Parts::new(pipeline, problem))
            .collect::<Result<_, _>>()?;
        Ok(Self { alone, shared: configuration::worth_sharing(shared), parts })
    }

    /// How many of services, and of two of them.
    pub(crate) fn count(&self) -> usize {
        self.alone.iter().map(Vec::len).sum::<usize>() + self.shared.len()
    }

    /// Checks that the program can hold them.
    ///
    /// # Errors
    /// If there are more: in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let count = self.count();
        if count > MAX_COLUMNS {
            return Err(format!(
                "{count} ways to hold services on a device, must be at most {MAX_COLUMNS}: fewer variants, sizes of batches or rounds to share by"
            ));
        }
        Ok(())
    }
}
