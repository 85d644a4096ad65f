//! What selection among variants is worth: for people, as JSON and as a picture.

use std::path::Path;

use anyhow::{Context, Result};
use planner::selection::{Choice, Compared, Expected, Inputs, Planned, choose_all};
use rt_core::{LoadMonitor, Selector};
use serde_json::{Value, json};
use sim::figure::Cells;

use weir_os::pipe::{say, say_part};
use weir_plan::plan::{Meanwhile, SelectionPlan, ServicePlan};

/// What is less than this apart counts as equal.
const NEAR: f64 = 0.003;
/// More rows are no longer told apart in a picture.
const ROWS: usize = 32;

/// Prints what to expect at each load, and of the best variant alone.
pub(super) fn print(service: &ServicePlan, selection: &SelectionPlan) {
    let max_miss = selection.inputs.max_miss;
    say!("{}: what selection among variants is worth, with random (Poisson) arrivals:", service.config.name);
    let headroom = service.lull().map_or_else(|_| "none".to_owned(), |lull| format!("{lull} in a lull"));
    say!(
        "  certified {:.1} requests/s in all; headroom for slower variants: {headroom}",
        selection.rate_per_s
    );
    say!("  expected if at most {} % may miss, before the shield forbids anything:", 100.0 * max_miss);
    let worth = worth(service);
    say!("    {:>5} {:>11} {:>8} {:>9}   best variant alone", "load", "requests/s", worth, "missed");
    for load in &selection.loads {
        say_part!("    {:>4.0}% {:>11.1} ", 100.0 * load.part, load.rate_per_s);
        let Some(planned) = &load.planned else {
            say!("more than the base can carry: it answers alone");
            continue;
        };
        let share = |e: Expected| format!("{:>7.2}% {:>8.4}%", 100.0 * e.accuracy, 100.0 * e.missed);
        match planned.best_alone(max_miss) {
            Some((best, alone)) => {
                say!("{}   {} {}", share(planned.expected), service.variants[best].spec.name, share(alone));
            }
            None => say!("{}", share(planned.expected)),
        }
    }
}

/// What is counted: right answers, or with classes what answers are worth.
fn worth(service: &ServicePlan) -> &'static str {
    if service.config.classes.is_empty() { "right" } else { "worth" }
}

/// The same as JSON.
pub(super) fn json(service: &ServicePlan, selection: &SelectionPlan) -> Value {
    let expected = |e: &Expected| json!({ "accuracy": e.accuracy, "missed": e.missed });
    let max_miss = selection.inputs.max_miss;
    let loads = selection.loads.iter().map(|load| {
        let planned = load.planned.as_ref();
        let best = planned.and_then(|p| p.best_alone(max_miss)).map(|(best, _)| best);
        json!({
            "part": load.part,
            "rate_per_s": load.rate_per_s,
            "expected": planned.map(|p| expected(&p.expected)),
            "alone": planned.map(|p| p.alone.iter().map(|a| a.as_ref().map(expected)).collect::<Vec<_>>()),
            "best_alone": best.map(|best| &service.variants[best].spec.name),
        })
    });
    json!({
        "max_miss": max_miss,
        "rate_per_s": selection.rate_per_s,
        "loads": loads.collect::<Vec<_>>(),
    })
}

/// Who selects at which rate with `select = "auto"`, and how that compares with all others.
pub(super) struct Auto {
    chosen: Vec<Choice>,
    compared: Vec<Compared>,
    learned: bool,
}

impl Auto {
    /// None of a service that says who selects.
    pub(super) fn of(service: &ServicePlan, planned: &SelectionPlan) -> Result<Option<Self>> {
        let Some(Meanwhile { inputs, auto: Some(net) }) = service.meanwhile() else { return Ok(None) };
        let chosen = choose_all(&inputs, net.as_ref())?;
        let auto = inputs.auto(&chosen, net.as_ref())?;
        let base = Selector::new(inputs.variants.clone(), [], LoadMonitor::default())?;
        let mut others = vec![base, inputs.accurate()?, planned.selector()?];
        let learned = net.is_some();
        others.extend(net.map(|net| inputs.learned(net)).transpose()?);
        Ok(Some(Self { chosen, compared: inputs.compared(&others, &auto)?, learned }))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        ["base", "accurate", "planned"].into_iter().chain(self.learned.then_some("learned"))
    }

    pub(super) fn print(&self, service: &ServicePlan) {
        say!("{}: select = \"auto\", SIMULATED with nothing promised:", service.config.name);
        let mut from = 0.0;
        for (i, choice) in self.chosen.iter().enumerate() {
            // One line for neighbours that are alike.
            if self.chosen.get(i + 1).is_some_and(|next| next.by == choice.by) {
                continue;
            }
            let last = i + 1 == self.chosen.len();
            let to = if last { "on".to_owned() } else { format!("to {:.1}", choice.rate_per_s) };
            say!("    from {from:.1} requests/s {to}: {}", choice.by.name());
            from = choice.rate_per_s;
        }
        let worth = worth(service);
        say!(
            "  {worth} in time, of all requests, on arrivals that nothing was chosen on (%), and beside it missed by auto:"
        );
        say_part!("    {:>5} {:>11}", "load", "requests/s");
        self.names().for_each(|name| say_part!(" {name:>9}"));
        say!(" {:>9} {:>9}   best variant alone", "auto", "missed");
        let percent = |of: f64| format!("{:.2}", 100.0 * of);
        for one in &self.compared {
            say_part!("    {:>4.0}% {:>11.1}", 100.0 * one.part, one.rate_per_s);
            one.each.iter().for_each(|each| say_part!(" {:>9}", percent(each.right())));
            say_part!(" {:>9} {:>9}", percent(one.auto.right()), percent(one.auto.missed));
            let (best, alone) = one.alone;
            say!("   {} {}", service.variants[best].spec.name, percent(alone.right()));
        }
        for one in self.compared.iter().filter(|one| one.lack() > NEAR) {
            say!("  at {:.0}% auto is {} below the best", 100.0 * one.part, percent(one.lack()));
        }
    }

    pub(super) fn json(&self, service: &ServicePlan) -> Value {
        let expected = |e: &Expected| json!({ "worth": e.right(), "missed": e.missed });
        let chosen =
            self.chosen.iter().map(|one| json!({ "rate_per_s": one.rate_per_s, "by": one.by.name() }));
        let compared = self.compared.iter().map(|one| {
            let each = self.names().zip(&one.each).map(|(name, each)| (name.to_owned(), expected(each)));
            json!({
                "part": one.part,
                "rate_per_s": one.rate_per_s,
                "each": each.collect::<serde_json::Map<_, _>>(),
                "best_alone": service.variants[one.alone.0].spec.name,
                "alone": expected(&one.alone.1),
                "auto": expected(&one.auto),
            })
        });
        json!({ "up_to": chosen.collect::<Vec<_>>(), "compared": compared.collect::<Vec<_>>() })
    }
}

/// Draws the table for the load nearest to this part of the whole rate.
pub(super) fn draw(service: &ServicePlan, selection: &SelectionPlan, part: f64, path: &Path) -> Result<()> {
    let planned = selection.nearest(part).context("no load is planned: the base cannot carry any")?;
    let svg = cells(service, &selection.inputs, planned).svg();
    planner::write_atomically(path, svg.as_bytes())
        .with_context(|| format!("{}: cannot be written", path.display()))
}

fn cells(service: &ServicePlan, inputs: &Inputs, planned: &Planned) -> Cells {
    let (table, rate) = (&planned.table, planned.rate_per_s);
    let (name, columns) = (&service.config.name, table.columns());
    let variant =
        |v: &weir_plan::plan::VariantPlan| format!("{}, {:.1}% right", v.spec.name, 100.0 * v.spec.accuracy);
    let names = service.variants.iter().map(variant).collect();
    let y = "requests in the batch and waiting".to_owned();
    if table.prices().is_empty() {
        let row = |row: &[u8]| row.iter().map(|&wish| usize::from(wish)).collect();
        let title = format!("{name}: variants wished for at {rate:.1} requests/s");
        let x = "time left for the earliest of the batch, less the guard (ms)".to_owned();
        let width = table.bin().as_secs_f64() * 1e3;
        return Cells {
            title,
            x,
            width,
            y,
            names,
            rows: table.wishes().chunks(columns).take(ROWS).map(row).collect(),
        };
    }
    let row = |n: usize| {
        let size = n.min(inputs.batch).min(table.most(n));
        let of = |free| inputs.worthiest(size, table.price(n, free).unwrap_or(0.0));
        (0..columns).map(of).collect()
    };
    Cells {
        title: format!("{name}: variants for a batch of the usual mix at {rate:.1} requests/s"),
        x: "other workers that are free".to_owned(),
        width: 1.0,
        y,
        names,
        rows: (1..=ROWS).map(row).collect(),
    }
}
