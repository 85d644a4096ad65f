//! Tables that are planned while a service runs: for the load that comes, by one thread that gives way to all others.
//!
//! It never holds the scheduler's lock: whoever feeds the scheduler tells the load in passing, and exchanges the
//! tables in constant time when others lie ready. The old ones are freed by the thread that made them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use planner::selection::{Inputs, MAX_PLANNED, Planned, plan};
use rt_core::{Instant, Scheduler, SelectTable, SelectTables};
use weir_client::status;

use super::{Service, lock};
use tracing::{error, info};
use weir_os::realtime::{self, Role};

/// How often it is looked whether a table is missing: half of what the load is measured over.
const PAUSE: Duration = Duration::from_millis(250);

/// What planning and serving tell each other.
pub(super) struct Planning {
    inputs: Inputs,
    /// Requests a second, as the bits of a float.
    load: AtomicU64,
    /// What is being planned for, likewise; 0 if nothing is.
    busy: AtomicU64,
    /// Whether `ready` holds tables that the scheduler has not taken yet.
    fresh: AtomicBool,
    ready: Mutex<SelectTables>,
    planned: Mutex<Vec<Planned>>,
}

impl Planning {
    /// Nothing is planned yet.
    pub(super) fn new(inputs: Inputs) -> Self {
        let zero = || AtomicU64::new(0f64.to_bits());
        Self {
            inputs,
            load: zero(),
            busy: zero(),
            fresh: AtomicBool::new(false),
            ready: Mutex::default(),
            planned: Mutex::default(),
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
        let table = |one: &Planned| status::Table {
            rate_per_s: one.rate_per_s,
            accuracy: one.expected.accuracy,
            missed: one.expected.missed,
        };
        status::Planning {
            load_per_s: number(&self.load),
            planning_per_s: Some(number(&self.busy)).filter(|&rate| rate > 0.0),
            tables: lock(&self.planned).iter().map(table).collect(),
            most_tables: MAX_PLANNED,
        }
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
        let tables: Result<Vec<SelectTable>, _> = planned.iter().map(Planned::table).collect();
        let tables = tables.and_then(|tables| SelectTables::new(tables, self.inputs.variants.len()));
        let mut tables = tables.map_err(|error| error.to_string())?;
        {
            let mut ready = lock(&self.ready);
            std::mem::swap(&mut *ready, &mut tables);
            self.fresh.store(true, Ordering::Relaxed);
        }
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
            match planning.plan_missing() {
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
