//! Which selector is used at which rate: of all that a service can have, what simulation of it says is worth most there.

use rt_core::{Instant, LearnedScale, LoadMonitor, Manner, Net, SelectError, SelectTable, Selector};
use virtual_time::Poisson;

use super::trial::{Effort, Trial};
use super::{Expected, Inputs, Kinds, SelectionError};

/// Up to which rates one is chosen each, as parts of what the base carries; the last one also for more. Where little comes, what half a
/// second tells of the rate is off by much of it, and a table for twice as much gives answers away: they are closer there.
pub const AUTO_PARTS: [f64; 20] = [
    0.05, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1,
    1.2,
];
/// Loads at which what was chosen is compared with all others.
pub const COMPARED_PARTS: [f64; 9] = [0.15, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95, 1.05, 1.2];
/// Requests that selectors are tried on, and the seeds of the arrivals: others than tables are planned on.
const REQUESTS: usize = 40_000;
const CHOSEN: u64 = 2;
const COMPARED: u64 = 3;
/// What is worth less by no more than this part is as good: of all these the one is chosen that does best in surges.
const AS_GOOD: f64 = 2e-3;
/// In a surge so many times as much comes as on average, for this part of each second: the rate is not seen before.
const SURGE: f64 = 3.0;
const SURGE_S: f64 = 0.125;

/// Who may select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The base alone.
    Base,
    /// The most accurate variant after which the base still answers what waits.
    Accurate,
    /// A table of wishes that is planned for the load, whatever it misses, for what that is worth.
    Tables,
    /// A table of prices that is planned so, where there are classes.
    Prices,
    /// The network that was trained.
    Learned,
}

impl By {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Accurate => "accurate",
            Self::Tables => "tables",
            Self::Prices => "prices",
            Self::Learned => "learned",
        }
    }
}

/// Who selects up to a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// In requests a second.
    pub rate_per_s: f64,
    /// Who it is.
    pub by: By,
    /// What to expect of it at this rate.
    pub expected: Expected,
    /// What the scheduler reads for it.
    table: SelectTable,
}

/// What becomes of a load by each who may select alone at all rates, and by what was chosen for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The load, as a part of what the base carries.
    pub part: f64,
    /// In requests a second.
    pub rate_per_s: f64,
    /// Of those that were given.
    pub each: Vec<Expected>,
    /// The variant that is best alone, and what to expect of it.
    pub alone: (usize, Expected),
    /// Of what was chosen.
    pub auto: Expected,
}

impl Compared {
    /// By how much what was chosen is worth less than the best of the others; 0 if it is not.
    #[must_use]
    pub fn lack(&self) -> f64 {
        let best = self.each.iter().chain([&self.alone.1]).map(Expected::right).fold(0.0, f64::max);
        (best - self.auto.right()).max(0.0)
    }
}

impl Inputs {
    /// Who selects up to `part` of what the base carries: of the base, the most accurate variant that gives up nothing that waits,
    /// tables for this load and `net`, if there is one, the one whose answers are worth most; of several that are worth as much, who
    /// does best where as much comes in full batches at once, and now and then, for an eighth of a second, three times as much. A miss counts as an answer that
    /// is worth nothing, and as no more.
    ///
    /// # Errors
    /// [`SelectionError`] for the first value that is outside its range.
    pub fn choose(&self, part: f64, net: Option<&Net>) -> Result<Choice, SelectionError> {
        self.choose_with(part, net, Effort::default())
    }

    pub(super) fn choose_with(
        &self,
        part: f64,
        net: Option<&Net>,
        effort: Effort,
    ) -> Result<Choice, SelectionError> {
        self.check()?;
        let free = Self { max_miss: 1.0, ..self.clone() };
        let rate_per_s = part * free.capacity_per_s(0);
        let trial = Trial::new(&free, rate_per_s, effort);
        let planned = |kinds| {
            let mut tables = trial.finalists(kinds)?;
            let best = tables.iter().map(|(found, _)| found.right()).fold(0.0, f64::max);
            tables.retain(|(found, _)| found.right() >= best * (1.0 - AS_GOOD));
            Ok::<_, SelectionError>(tables)
        };
        let last = (self.variants.len() - 1) as u8;
        let accurate = SelectTable::constant(last).in_manner(Manner::Sparing);
        let learned = SelectTable::constant(0).in_manner(Manner::Learned);
        let mut all = vec![(By::Base, SelectTable::constant(0)), (By::Accurate, accurate)];
        all.extend(planned(Kinds::Wishes)?.into_iter().map(|(_, table)| (By::Tables, table)));
        if !self.classes.is_empty() {
            all.extend(planned(Kinds::Prices)?.into_iter().map(|(_, table)| (By::Prices, table)));
        }
        all.extend(net.map(|_| (By::Learned, learned)));
        let tried = |(by, table): (By, SelectTable)| {
            let arrivals = Poisson::new(rate_per_s, CHOSEN).take(REQUESTS);
            let expected = self.tried(self.mixed(vec![table.clone()], net)?, arrivals)?;
            Ok(Choice { rate_per_s, by, expected, table })
        };
        let mut all: Vec<_> = all.into_iter().map(tried).collect::<Result<_, SelectionError>>()?;
        let best = all.iter().map(|choice| choice.expected.right()).fold(0.0, f64::max);
        all.retain(|choice| choice.expected.right() >= best * (1.0 - AS_GOOD));
        let in_surges = |choice: Choice| {
            let arrivals = surging(rate_per_s, self.batch).take(REQUESTS);
            let found = self.tried(self.mixed(vec![choice.table.clone()], net)?, arrivals)?;
            Ok((found.right(), choice))
        };
        let all: Vec<_> = all.into_iter().map(in_surges).collect::<Result<_, SelectionError>>()?;
        let best = all.into_iter().reduce(|best, other| if other.0 > best.0 { other } else { best });
        // The base is always there.
        best.map(|(_, choice)| choice).ok_or_else(|| SelectionError::value("part", part, "must be above 0"))
    }

    /// Who selects as `choices` say, by rising rate; before there are any the most accurate variant that gives up nothing that waits.
    ///
    /// # Errors
    /// Variants that no selector has, or rates out of order.
    pub fn auto(&self, choices: &[Choice], net: Option<&Net>) -> Result<Selector, SelectError> {
        let tables = auto_tables(choices, self.variants.len())?;
        self.mixed(tables, net)
    }

    /// What becomes of each load of [`COMPARED_PARTS`] by each of `others`, by each variant alone, and by `auto`, on arrivals that nobody
    /// was chosen on.
    ///
    /// # Errors
    /// What the scheduler finds wrong with variants, workers or latency.
    pub fn compared(&self, others: &[Selector], auto: &Selector) -> Result<Vec<Compared>, SelectionError> {
        let at = |part: f64| {
            let rate_per_s = part * self.capacity_per_s(0);
            let arrivals: Vec<_> = Poisson::new(rate_per_s, COMPARED).take(REQUESTS).collect();
            let tried =
                |inputs: &Self, selector: &Selector| inputs.tried(selector.clone(), arrivals.iter().copied());
            let able =
                |&variant: &usize| variant == 0 || self.variants[variant].profile.bound(1) <= self.latency;
            let alone = |variant| {
                let own = self.alone(variant);
                let base = Selector::new(own.variants.clone(), [], LoadMonitor::default())?;
                Ok((variant, tried(&own, &base)?))
            };
            let alone = (0..self.variants.len()).filter(able).map(alone);
            let alone = alone.collect::<Result<Vec<_>, SelectionError>>()?.into_iter();
            let best = alone.reduce(|best, one| if one.1.right() > best.1.right() { one } else { best });
            Ok(Compared {
                part,
                rate_per_s,
                each: others.iter().map(|other| tried(self, other)).collect::<Result<_, _>>()?,
                alone: best.ok_or_else(|| SelectionError::value("variants", 0, "must be 1 at least"))?,
                auto: tried(self, auto)?,
            })
        };
        super::in_parallel(&COMPARED_PARTS, |&part| at(part))
    }

    fn mixed(&self, tables: Vec<SelectTable>, net: Option<&Net>) -> Result<Selector, SelectError> {
        let load = LoadMonitor::default();
        match net {
            None => Selector::new(self.variants.clone(), tables, load),
            Some(net) => {
                let shown: (Net, LearnedScale) = (net.clone(), self.scale());
                Selector::mixed(self.variants.clone(), tables, shown, load)
            }
        }
    }
}

/// Arrivals at a mean rate, `batch` at once each time, of which as much comes as [`SURGE`] and [`SURGE_S`] say in the beginning of each
/// second.
fn surging(rate_per_s: f64, batch: usize) -> impl Iterator<Item = Instant> {
    // What comes in a surge, and how long the rest of it takes to come.
    let part = SURGE * SURGE_S;
    let slower = (1.0 - SURGE_S) / (1.0 - part);
    let times = Poisson::new(rate_per_s / batch as f64, CHOSEN).map(move |at| {
        let second = at.since(Instant::ZERO).as_secs_f64();
        let (whole, of) = (second.floor(), second.fract());
        let of = if of < part { of / SURGE } else { SURGE_S + (of - part) * slower };
        Instant::from_nanos(((whole + of) * 1e9) as u64)
    });
    times.flat_map(move |at| std::iter::repeat_n(at, batch))
}

/// What the scheduler reads for `choices`, by rising rate, among so many variants; the last one at all rates above it too.
///
/// # Errors
/// A rate that is not above 0.
pub fn auto_tables(choices: &[Choice], variants: usize) -> Result<Vec<SelectTable>, SelectError> {
    if choices.is_empty() {
        let last = variants.saturating_sub(1) as u8;
        return Ok(vec![SelectTable::constant(last).in_manner(Manner::Sparing)]);
    }
    let rate = |i: usize| if i + 1 < choices.len() { choices[i].rate_per_s } else { f64::INFINITY };
    choices.iter().enumerate().map(|(i, choice)| choice.table.clone().up_to(rate(i))).collect()
}

/// [`Inputs::choose`] for all of [`AUTO_PARTS`], on all processors.
///
/// # Errors
/// As that.
pub fn choose_all(inputs: &Inputs, net: Option<&Net>) -> Result<Vec<Choice>, SelectionError> {
    super::in_parallel(&AUTO_PARTS, |&part| inputs.choose(part, net))
}

#[cfg(test)]
mod tests {
    use rt_core::Span;

    use super::*;

    #[test]
    fn surges_bring_three_times_as_much_for_an_eighth_of_each_second_and_no_more_in_all() {
        let rate = 800.0;
        let all: Vec<_> = surging(rate, 4).take(160_000).collect();
        assert!(all.is_sorted() && all.chunks(4).all(|at_once| at_once.iter().all(|at| *at == at_once[0])));
        let seconds = all[all.len() - 1].since(Instant::ZERO).as_secs_f64();
        assert!((all.len() as f64 / seconds - rate).abs() < rate * 0.02, "{seconds}");
        let in_surge = |at: &&Instant| at.since(Instant::ZERO).as_nanos() % 1_000_000_000 < 125_000_000;
        let surge = all.iter().filter(in_surge).count() as f64 / (seconds * SURGE_S);
        assert!((surge - SURGE * rate).abs() < SURGE * rate * 0.03, "{surge}");
    }

    #[test]
    fn nothing_that_is_as_good_on_a_steady_load_does_better_in_surges_than_what_is_chosen() {
        let variant = |accuracy, ms: [u64; 4]| {
            let times = ms.map(Span::from_millis);
            rt_core::Variant { profile: rt_core::LatencyProfile::new(&times).expect("a profile"), accuracy }
        };
        let inputs = Inputs {
            variants: vec![
                variant(0.8, [2, 3, 4, 5]),
                variant(0.83, [10, 15, 20, 25]),
                variant(0.831, [40, 60, 80, 95]),
            ],
            latency: Span::from_millis(100),
            workers: 1,
            batch: 4,
            max_miss: 1.0,
            classes: Vec::new(),
        };
        let effort = Effort::QUICK;
        let mut passed_over = 0;
        for part in [0.05, 0.1, 0.3] {
            let chosen = inputs.choose_with(part, None, effort).expect("in range");
            let tried = |table: &SelectTable, arrivals: &mut dyn Iterator<Item = Instant>| {
                let selector = inputs.mixed(vec![table.clone()], None).expect("valid");
                inputs.tried(selector, arrivals.take(REQUESTS)).expect("tried").right()
            };
            let steady = |table| tried(table, &mut Poisson::new(chosen.rate_per_s, CHOSEN));
            let in_surges = |table| tried(table, &mut surging(chosen.rate_per_s, 4));
            let finalists = Trial::new(&inputs, chosen.rate_per_s, effort).finalists(Kinds::Wishes);
            let tables: Vec<_> = finalists.expect("tried").into_iter().map(|(_, table)| table).collect();
            let best = tables.iter().map(steady).fold(chosen.expected.right(), f64::max);
            let least = best * (1.0 - AS_GOOD);
            assert!(steady(&chosen.table) >= least, "{part}");
            for table in tables.iter().filter(|table| steady(table) >= least) {
                assert!(in_surges(table) <= in_surges(&chosen.table), "{part}: {table:?}");
                passed_over += usize::from(steady(table) > steady(&chosen.table));
            }
        }
        assert!(passed_over > 0, "what is best on a steady load was always chosen: nothing is shown");
    }
}
