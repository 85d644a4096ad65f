//! Another pipeline takes over from the one that is driven.

use rt_core::pipeline::{PipelineAction, PipelineConfig, PipelineScheduler};
use rt_core::{HandOverError, StreamId};

use super::{Line, at};

impl Line {
    /// A pipeline of this configuration takes over, without these streams.
    pub(crate) fn hand_over(
        &mut self,
        next: PipelineConfig,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        self.hand_over_without(next, ended, None)
    }

    /// The same to one that has `lost` a worker of a stage already.
    pub(crate) fn hand_over_without(
        &mut self,
        next: PipelineConfig,
        ended: &[StreamId],
        lost: Option<(usize, usize)>,
    ) -> Result<(), HandOverError> {
        let mut scheduler = PipelineScheduler::new(&next).expect("a configuration");
        lost.into_iter().for_each(|worker| scheduler.handle_worker_lost(at(self.now), worker));
        self.scheduler.hand_over(at(self.now), &mut scheduler, ended)?;
        loop {
            match self.scheduler.poll(at(self.now)) {
                PipelineAction::Resolve(resolution) => self.resolved(resolution),
                PipelineAction::Event(event) => self.announced(event),
                PipelineAction::Start { .. } => panic!("it has nothing left to start"),
                PipelineAction::WakeAt(_) => break,
            }
        }
        assert_eq!((self.scheduler.open(), self.scheduler.waiting_in_all()), (0, 0));
        assert!(self.sources.iter().all(|source| source.ended.is_some()), "what was open has ended");
        self.running = next.stages.iter().map(|stage| vec![None; stage.workers.count]).collect();
        (self.scheduler, self.config, self.wake) = (scheduler, next, None);
        self.settle();
        Ok(())
    }
}
