//! What a trained router is shown.

use super::{Setting, View};

/// What makes numbers of what a router sees: what Jha et al. show theirs (section 3.2), the class, the requests of each model and
/// the rate.
#[derive(Clone, Debug)]
pub(super) struct Features {
    /// The highest rate that is trained.
    high: f64,
    /// Of each model the requests that keep a deadline on all workers.
    most: Vec<f64>,
}

impl Features {
    pub(super) fn new(setting: &Setting, high: f64) -> Self {
        let most = |model| f64::from(setting.largest(model)) * setting.workers as f64;
        Self { high, most: (0..setting.models.len()).map(most).collect() }
    }

    /// How many numbers there are.
    pub(super) fn count(setting: &Setting) -> usize {
        setting.classes.len() + 1 + setting.models.len()
    }

    /// The numbers, each about 0 to 1, behind what `inputs` holds.
    pub(super) fn see(&self, view: &View<'_>, inputs: &mut Vec<f32>) {
        let setting = view.fleet.setting;
        inputs.extend((0..setting.classes.len()).map(|class| if class == view.class { 1.0 } else { 0.0 }));
        inputs.push((libm::log1p(view.rate) / libm::log1p(self.high)).min(2.0) as f32);
        for (model, most) in self.most.iter().enumerate() {
            inputs.push((f64::from(view.fleet.batch(model)) / most).min(2.0) as f32);
        }
    }
}
