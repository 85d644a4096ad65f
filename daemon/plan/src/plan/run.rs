//! What decides when a worker starts which batch, as a plan says: in the daemon and in virtual time.

use rt_core::pipeline::{PipelineConfig, StageConfig};
use rt_core::sharing::DeviceConfig;
use rt_core::{SafeModeConfig, SchedulerConfig};

use super::{DevicePlan, PipelinePlan, ServicePlan};
use crate::config::ServiceConfig;

impl ServicePlan {
    /// Of the service, be it by itself or one of its device.
    #[must_use]
    pub fn scheduler_config(&self, safe_mode: SafeModeConfig) -> SchedulerConfig {
        let config = &self.config;
        SchedulerConfig {
            deadline: config.deadline,
            guard: config.guard,
            tolerance: config.tolerance.most,
            stalls: config.stalls,
            workers: self.all_workers().to_vec(),
            dispatch: config.dispatch,
            background: config.background,
            spread: config.spread,
            queue: config.queue,
            streams: config.streams,
            safe_mode,
        }
    }
}

impl PipelinePlan {
    /// Of a pipeline that is configured so.
    #[must_use]
    pub fn scheduler_config(&self, config: &ServiceConfig, safe_mode: SafeModeConfig) -> PipelineConfig {
        let stages = self.stages.iter().map(|stage| StageConfig {
            parents: stage.config.after,
            fan_out: stage.config.fan_out,
            mean: stage.config.mean,
            workers: stage.runs.workers().clone(),
        });
        PipelineConfig {
            deadline: self.pipeline.deadline,
            guard: config.guard,
            stalls: config.stalls,
            stages: stages.collect(),
            queue: config.queue,
            streams: config.streams,
            safe_mode,
        }
    }
}

impl DevicePlan {
    /// Of the device, with these `services`.
    #[must_use]
    pub fn core_config(&self, services: Vec<SchedulerConfig>) -> DeviceConfig {
        DeviceConfig {
            rule: self.sharing.rule,
            turns: self.sharing.services.iter().map(|service| service.turn).collect(),
            longest: self.sharing.longest,
            overrun_margin: self.admission.overrun_margin(),
            services,
        }
    }
}
