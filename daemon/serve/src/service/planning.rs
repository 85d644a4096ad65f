//! Tables that are planned, or selectors that are chosen, while a service runs, by one thread that gives way to all others.
//!
//! It never holds the scheduler's lock: whoever feeds the scheduler tells the load in passing, and exchanges the
//! tables in constant time when others lie ready. The old ones are freed by the thread that made them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use planner::selection::{AUTO_PARTS, Choice, Expected, Inputs, MAX_PLANNED, Planned, auto_tables, plan};
use rt_core::{Instant, Net, Scheduler, SelectError, SelectTable, SelectTables};
use weir_client::status;
use weir_plan::plan::Meanwhile;

use super::{Service, lock};
use tracing::{error, info};
use weir_os::realtime::{self, Role};

/// How often it is looked whether a table is missing: half of what the load is measured over.
const PAUSE: Duration = Duration::from_millis(250);

/// What planning and serving tell each other.
pub(super) struct Planning {
    inputs: Inputs,
    /// Who selects at which rate is chosen, with this network among them, and not tables for the load that comes.
    auto: Option<Option<Net>>,
    /// Requests a second, as the bits of a float.
    load: AtomicU64,
    /// What is being planned for, likewise; 0 if nothing is.
    busy: AtomicU64,
    /// Whether `ready` holds tables that the scheduler has not taken yet.
    fresh: AtomicBool,
    ready: Mutex<SelectTables>,
    planned: Mutex<Vec<Planned>>,
    chosen: Mutex<Vec<Choice>>,
}

impl Planning {
    /// Nothing is planned yet.
    pub(super) fn new(Meanwhile { inputs, auto }: Meanwhile) -> Self {
        let zero = || AtomicU64::new(0f64.to_bits());
        Self {
            inputs,
            auto,
            load: zero(),
            busy: zero(),
            fresh: AtomicBool::new(false),
            ready: Mutex::default(),
            planned: Mutex::default(),
            chosen: Mutex::default(),
        }
    }

    /// Tells the load, and gives the scheduler what was planned meanwhile. Waits for nobody, allocates nothing.
    pub(super) fn meet(&self, scheduler: &mut Scheduler, now: Instant) {
        self.load.store(scheduler.rate_per_s(now).to_bits(), Ordering::Relaxed);
        if self.fresh.load(Ordering::Relaxed)
            && let Ok(mut ready) = self.ready.try_lock()
            && scheduler.swap_tables(&mut ready).is_ok()
        {
            self.fresh.store(false, Ordering::Relaxed);
        }
    }

    /// Starts the thread of `service`. It is not waited for at the end: a table that was begun is of no use then.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(service: &Arc<Service>) -> std::io::Result<()> {
        let own = Arc::clone(service);
        let name = format!("{}/planner", service.name());
        std::thread::Builder::new().name(name).spawn(move || own.keep_planning()).map(drop)
    }

    /// The load, what was planned and what is expected of it, and what is being planned for.
    pub(super) fn status(&self) -> status::Planning {
        let number = |of: &AtomicU64| f64::from_bits(of.load(Ordering::Relaxed));
        let table = |rate_per_s: f64, expected: Expected| status::Table {
            rate_per_s,
            accuracy: expected.accuracy,
            missed: expected.missed,
        };
        let planned = lock(&self.planned);
        let planned = planned.iter().map(|one| table(one.rate_per_s, one.expected));
        let chosen = lock(&self.chosen);
        let chosen = chosen.iter().map(|one| table(one.rate_per_s, one.expected));
        status::Planning {
            load_per_s: number(&self.load),
            planning_per_s: Some(number(&self.busy)).filter(|&rate| rate > 0.0),
            tables: planned.chain(chosen).collect(),
            most_tables: if self.auto.is_some() { AUTO_PARTS.len() } else { MAX_PLANNED },
        }
    }

    /// What is to be done next; false if nothing is.
    fn go_on(&self) -> Result<bool, String> {
        match &self.auto {
            None => self.plan_missing(),
            Some(_) if !lock(&self.chosen).is_empty() => Ok(false),
            Some(net) => self.choose(net.as_ref()).map(|()| true),
        }
    }

    /// Chooses who selects at which rate.
    fn choose(&self, net: Option<&Net>) -> Result<(), String> {
        let each = AUTO_PARTS.iter().map(|&part| {
            let rate = part * self.inputs.capacity_per_s(0);
            self.busy.store(rate.to_bits(), Ordering::Relaxed);
            self.inputs.choose(part, net)
        });
        let chosen = each.collect::<Result<Vec<_>, _>>();
        self.busy.store(0f64.to_bits(), Ordering::Relaxed);
        let chosen = chosen.map_err(|error| error.to_string())?;
        self.publish(auto_tables(&chosen, self.inputs.variants.len()))?;
        *lock(&self.chosen) = chosen;
        Ok(())
    }

    /// Lays tables ready for the scheduler.
    fn publish(&self, tables: Result<Vec<SelectTable>, SelectError>) -> Result<(), String> {
        let tables = tables.and_then(|tables| SelectTables::new(tables, self.inputs.variants.len()));
        let mut tables = tables.map_err(|error| error.to_string())?;
        let mut ready = lock(&self.ready);
        std::mem::swap(&mut *ready, &mut tables);
        self.fresh.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Plans the table that is missing most for the present load; false if none is.
    fn plan_missing(&self) -> Result<bool, String> {
        let load = f64::from_bits(self.load.load(Ordering::Relaxed));
        let missing = self.inputs.missing(&lock(&self.planned), load);
        let Some(rate) = missing else { return Ok(false) };
        self.busy.store(rate.to_bits(), Ordering::Relaxed);
        let one = plan(&self.inputs, &[rate]);
        self.busy.store(0f64.to_bits(), Ordering::Relaxed);
        // Worked on as a copy: who asks for it would wait for a thread that gives way to all others.
        let mut planned = lock(&self.planned).clone();
        planned.extend(one.map_err(|error| error.to_string())?);
        planned.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        self.publish(Ok(planned.iter().map(|one| one.table.clone()).collect()))?;
        *lock(&self.planned) = planned;
        Ok(true)
    }
}

impl Service {
    fn keep_planning(&self) {
        let Some(planning) = &self.planning else { return };
        realtime::enter(Role::Background, None, true);
        let mut told = false;
        while !self.is_stopped() {
            match planning.go_on() {
                Ok(true) if !told => {
                    told = true;
                    info!("service {}: tables for the load that comes are planned meanwhile", self.name());
                }
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(PAUSE),
                Err(error) => {
                    error!("service {}: no more tables are planned: {error}", self.name());
                    return;
                }
            }
        }
    }
}
