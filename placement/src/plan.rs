//! A plan: what each device holds, who answers how many requests, and how each promise is kept.

use crate::configuration::{Configuration, Post, Shared};
use crate::promise::Rule;

/// What a device holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// One service.
    Alone(usize, Configuration),
    /// Two services that take turns.
    Shared(Shared),
    /// A stage of a pipeline.
    Stage {
        /// Which pipeline.
        pipeline: usize,
        /// Which stage of it.
        stage: usize,
        /// What runs there.
        post: Post,
    },
}

/// Equal devices that hold the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    /// Their class.
    pub class: usize,
    /// How many.
    pub count: u32,
    /// What each holds.
    pub held: Held,
}

/// Requests of a service or a stage that are answered alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Which entry of [`Plan::devices`] answers them.
    pub devices: usize,
    /// The service; or of a pipeline the stage.
    pub of: Of,
    /// By which variant and batch.
    pub post: Post,
    /// Requests a second.
    pub rate: f64,
}

/// Whose requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A service.
    Service(usize),
    /// A pipeline's stage.
    Stage(usize, usize),
}

/// What is to run where.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Those that hold something.
    pub devices: Vec<Devices>,
    /// All requests of the mean demand.
    pub flows: Vec<Flow>,
    /// Of each service that is promised something, how that is kept.
    pub promises: Vec<(usize, Rule)>,
    /// The mean accuracy, by demand and weight, in points.
    pub accuracy: f64,
}

impl Plan {
    /// How many devices hold this.
    pub(crate) fn devices_of(&self, held: &Held) -> u32 {
        self.devices.iter().filter(|devices| devices.held == *held).map(|devices| devices.count).sum()
    }
}

/// Adds what `counts` devices of each of a service's configurations answer of its demand at best, the most accurate first.
pub(crate) fn host(
    plan: &mut Plan,
    service: usize,
    demand: f64,
    configurations: &[Configuration],
    counts: &[u32],
) {
    let mut parts: Vec<(f64, f64, usize, usize)> = Vec::new();
    let first = plan.devices.len();
    let held = configurations.iter().zip(counts).filter(|(_, count)| **count > 0);
    for (i, (configuration, &count)) in held.clone().enumerate() {
        plan.devices.push(Devices {
            class: configuration.class,
            count,
            held: Held::Alone(service, configuration.clone()),
        });
        for (s, (capacity, slope)) in crate::bundle::segments(configuration, 1.0).into_iter().enumerate() {
            parts.push((slope, capacity * f64::from(count), i, s));
        }
    }
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = demand;
    let mut served = vec![[0.0; 2]; held.clone().count()];
    for (_, capacity, i, s) in parts {
        served[i][s] = left.min(capacity);
        left -= served[i][s];
    }
    for (i, (configuration, &count)) in held.enumerate() {
        let (n, [most, more]) = (f64::from(count), served[i]);
        let base = configuration.base;
        let mut flow = |post: Post, rate: f64| {
            if rate > 0.0 {
                plan.flows.push(Flow { devices: first + i, of: Of::Service(service), post, rate });
            }
        };
        match configuration.better {
            None => flow(base, most),
            Some(better) if better.peak >= base.peak => flow(better, most),
            Some(better) => {
                // The part of the devices' time that goes to the base, so that they serve more.
                let part = more / (n * (base.peak - better.peak));
                flow(better, if more > 0.0 { n * better.peak * (1.0 - part) } else { most });
                flow(base, n * base.peak * part);
            }
        }
    }
}
