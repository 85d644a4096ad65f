//! Looks, while requests are served, for a better placement of the services, and tells it or carries it out.

mod circle;
mod demand;
mod find;
mod known;
mod look;
mod seen;
mod solver;
mod steps;
mod verdict;

use std::time::Duration;

use rt_core::{Instant, Span};
use tracing::info;
use weir_os::clock;
use weir_plan::config::{Config, Mode, PlacementConfig};
use weir_plan::place::Gone;
use weir_plan::placed;

use crate::overview::Overview;
use known::Known;
use look::Reason;
use seen::Seen;
use verdict::Budget;

/// How often it is looked whether there is anything to look at while nothing is placed.
const IDLE: Duration = Duration::from_millis(500);

/// What it goes by between two looks.
struct Controller<'a> {
    overview: &'a Overview,
    /// The configuration that `seen` is of, by the digest of its file.
    of_file: String,
    seen: Seen,
    known: Known,
    budget: Budget,
    /// The last look.
    looked: Instant,
}

/// Looks until the daemon drains.
pub(crate) fn run(overview: &Overview) {
    let now = clock::now();
    let mut controller = Controller {
        overview,
        of_file: String::new(),
        seen: Seen::default(),
        known: Known::default(),
        budget: Budget::default(),
        looked: now,
    };
    let mut pause = IDLE;
    while !overview.served.is_draining() {
        std::thread::park_timeout(pause);
        let looks = |placement: &PlacementConfig| placement.mode != Mode::Off;
        let config = overview.reloads.taken_if(|taken| taken.placement.as_ref().is_some_and(looks));
        pause = match config.as_ref().and_then(|config| Some((config, config.placement.as_ref()?))) {
            Some((config, placement)) => {
                controller.look_at(config, placement);
                clock::duration(placement.controller.window)
            }
            None => {
                overview.placement.clear();
                IDLE
            }
        };
    }
}

impl Controller<'_> {
    /// One window has ended.
    fn look_at(&mut self, config: &Config, placement: &PlacementConfig) {
        let now = clock::now();
        if self.of_file != config.of_file {
            // Another file than before: what was made of the one before is of no use.
            if !self.of_file.is_empty() {
                info!("placement: begins anew with the new configuration");
                if !placed::is_kept_of(config) {
                    let _ = placed::keep(config, None);
                }
            }
            self.of_file.clone_from(&config.of_file);
            (self.seen, self.known) = (Seen::default(), Known::default());
            self.looked = now;
            self.overview.placement.clear();
        }
        let services = self.overview.served.services();
        self.seen.look(now, config, placement, &services);
        self.tell(config, placement);
        let Some(reason) = self.reason(now, placement) else { return };
        self.looked = now;
        self.place(config, placement, &reason);
        self.seen.begin();
        self.tell(config, placement);
    }

    /// Why a plan is to be looked for now, if one is.
    fn reason(&mut self, now: Instant, placement: &PlacementConfig) -> Option<Reason> {
        // What is to be carried out at once needs something left of the budget.
        let follows = placement.mode == Mode::Follow;
        let may = !follows || self.budget.left(now, placement.budget, placement.period) > 0;
        if let Some(service) = self.seen.newly_lost().filter(|_| may) {
            return Some(Reason::Lost(service));
        }
        if let Some(service) = self.seen.burst().filter(|_| may) {
            return Some(Reason::Burst(service));
        }
        (now.since(self.looked) >= placement.period).then_some(Reason::Period)
    }

    fn tell(&self, config: &Config, placement: &PlacementConfig) {
        let demand = self.seen.demand(config);
        let unit = |gone: &Gone| {
            let class = placement.classes.iter().find(|class| class.name == gone.class);
            class.zip(gone.number).map(|(class, number)| class.unit(number))
        };
        let gone = self.seen.gone().iter().map(|gone| match unit(gone) {
            Some(unit) => format!("{} {unit}", gone.class),
            None => gone.class.clone(),
        });
        let gone: Vec<_> = gone.collect();
        self.overview.placement.change(|told| {
            told.mode = match placement.mode {
                Mode::Off => "off",
                Mode::Advise => "advise",
                Mode::Follow => "follow",
            }
            .to_owned();
            (told.demand, told.lost) = (demand, gone);
        });
    }
}

/// After how long a plan is no longer waited for: starting, reading and writing take time too where the processor is busy, and
/// trying it takes up to another `limit`.
fn patience(limit: Span) -> Span {
    limit + limit + Span::from_millis(10_000)
}
