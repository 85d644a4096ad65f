//! One line on the terminal while a load runs.

use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::load::{Plan, Progress};
use weir_os::pipe::say;

/// One line that says how a run stands; nothing where nobody looks.
pub(in crate::commands) struct Live {
    bar: ProgressBar,
    phase: Option<usize>,
}

impl Live {
    pub(in crate::commands) fn new(plan: &Plan, wanted: bool) -> Result<Self> {
        let bar = ProgressBar::new(1);
        if !wanted {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let named = if plan.phases.len() > 1 { "{prefix:12} " } else { "" };
        let template = format!("{named}{{bar:16}} {{wide_msg}}");
        bar.set_style(ProgressStyle::with_template(&template).context("progress template")?);
        Ok(Self { bar, phase: None })
    }

    pub(in crate::commands) fn show(&mut self, progress: &Progress<'_>) {
        if self.phase.replace(progress.number) != Some(progress.number) {
            self.bar.set_prefix(progress.phase.name);
            self.bar.set_length(millis(progress.phase.end.at_most()));
        }
        self.bar.set_position(millis(progress.elapsed));
        let measures = progress.measures;
        let left = progress.misses_left.map_or_else(String::new, |left| format!(", {left} misses left"));
        let mode = progress.in_safe_mode().map_or_else(String::new, |cause| format!(", SAFE MODE {cause}"));
        let own = progress.suspended().map_or_else(String::new, |cause| format!(", SUSPENDED {cause}"));
        self.bar.set_message(format!(
            "{:.0}/s: {} served, {} missed, longest run {}{left}{mode}{own}",
            progress.phase.schedule.rate(),
            measures.answered,
            measures.missed,
            measures.longest_miss_run
        ));
    }

    /// Prints a line above the live one, or as it is where there is none.
    pub(in crate::commands) fn line(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }

    pub(in crate::commands) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
