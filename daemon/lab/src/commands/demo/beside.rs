//! The stream of another service on the same worker, which keeps to its declaration all the time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use weir_client::Registration;
use weir_client::blocking::Client;

use crate::load::{self, End, Inputs, Phase, Report, Schedule};
use weir_plan::config::Config;
use weir_plan::plan::ServicePlan;

/// It ends when it is told to.
const AT_MOST: Duration = Duration::from_secs(2 * 3600);
/// How its one phase is called.
pub(super) const THROUGHOUT: &str = "throughout";

/// A load that goes on until it is ended.
pub(super) struct Beside {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Report>>,
}

impl Beside {
    /// Sends what the reserved stream of `service` declares.
    pub(super) fn start(config: &Config, service: &ServicePlan, inputs: Inputs) -> Result<Self> {
        let (load, client) = (plan(service, inputs)?, connect(&config.daemon.socket)?);
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let run = move || load::run(client, &load, &until, &mut |_| {});
        let thread = std::thread::Builder::new().name("beside".to_owned()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Sends no more; what became of it.
    pub(super) fn end(self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread beside panicked"))?
    }
}

fn connect(socket: &Path) -> Result<Client> {
    Client::connect(socket).with_context(|| socket.display().to_string())
}

fn plan(service: &ServicePlan, inputs: Inputs) -> Result<load::Plan> {
    let stream = service.config.reserved.first().context("config/demo.toml: no reserved stream")?;
    let rate = stream.spec.arrivals().context("config/demo.toml: it declares nothing")?.rate_per_s();
    let registration = Registration::builder(&service.config.name, &stream.name).build()?;
    let constraints = stream.spec.constraints().as_slice().to_vec();
    let phase =
        Phase { name: THROUGHOUT, schedule: Schedule::constant(rate)?, end: End::After(AT_MOST), of: None };
    Ok(load::Plan { registration, constraints, inputs, phases: vec![phase], classes: load::Classes::Own })
}
