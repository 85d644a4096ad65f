//! A worker process runs the batches of one worker in the daemon's stead, so that foreign code that crashes,
//! hangs or scribbles over its memory costs the batch in flight and no more.
//!
//! One process serves all variants of its worker. The tensors lie in a sealed file in memory that both map;
//! each batch costs a packet each way on a socket, which also tells at once when either end is gone.

mod child;
mod message;
mod process;
#[cfg(test)]
mod tests;
mod together;

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use rt_core::Span;

use super::{
    Backend, Buffers, Engine, EngineError, EngineKind, ModelSpec, RunMode, Runner, check_max_batch, gpu,
};
pub use child::engine_worker;
use message::{Reply, Setup};
use process::Process;

/// A model may take this long to load, silently, and for what nobody has timed yet: engines that compile for a GPU take minutes.
pub const PATIENCE: Span = Span::from_millis(600_000);
/// No batch is given up before this: pauses of a virtual machine must not look like death.
const LEAST_SILENCE: Span = Span::from_millis(1_000);
/// A batch is given up after this many times the longest time that its profile allows.
const SILENCE_FACTOR: u64 = 20;

/// One model for a worker process.
#[derive(Debug)]
pub struct Task<'a> {
    pub engine: Engine<'a>,
    pub spec: &'a ModelSpec,
    pub max_batch: usize,
    /// `silence[b - 1]`: a batch of `b` that takes longer than this is given up, and its process killed. The
    /// last counts for larger ones; with none, it is one second. The first batch of a size may take as long as
    /// loading: some engines finish it only then.
    pub silence: Vec<Span>,
}

/// Where a worker process runs.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// What `ps` shows: service and worker.
    pub name: String,
    /// Its core; `None` leaves it to the kernel.
    pub core: Option<usize>,
    /// Real-time priority and locked memory, where permitted.
    pub realtime: bool,
    /// Without what it would write on standard error: for a model that is only tried, its error and its end say enough.
    pub quiet: bool,
    /// Once set, what waits for the process gives it up within 0.1 s.
    pub stop: Arc<AtomicBool>,
}

/// How long a batch whose profile allows `bound` may take before its process counts as lost.
pub fn longest_silence(bound: Span) -> Span {
    LEAST_SILENCE.max(Span::from_nanos(bound.as_nanos().saturating_mul(SILENCE_FACTOR)))
}

/// Starts a process and loads the models in it: one runner each, in order. They share the process: once one
/// of them is lost, all are. It ends with the last of them, and with the calling thread at the latest.
///
/// # Errors
/// Those of [`super::load`] as the process tells them, and its loss while it loads.
pub fn isolate(tasks: &[Task<'_>], place: &Place) -> Result<Vec<Box<dyn Runner>>, EngineError> {
    isolate_within(tasks, place, PATIENCE)
}

/// The same of one model.
///
/// # Errors
/// Those of [`isolate`].
pub fn isolate_one(task: Task<'_>, place: &Place) -> Result<Box<dyn Runner>, EngineError> {
    isolate(&[task], place)?.pop().ok_or_else(|| EngineError::process_lost("it has loaded nothing"))
}

/// What [`super::run_on_zeros`] finds, in a process of its own.
pub(crate) fn outputs_of_zeros(
    backend: &Backend,
    spec: &ModelSpec,
    batch: usize,
) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
    let engine = Engine::Real { backend, modes: None };
    let place = Place { name: spec.name.clone(), quiet: true, ..Place::default() };
    let task = Task { engine, spec, max_batch: batch, silence: Vec::new() };
    let setup = Setup { zeros: true, ..Setup::new(&[task], &place) };
    let (setup, memory) =
        write_setup(&setup).and_then(|setup| Ok((setup, sealed_memory(1)?))).map_err(EngineError::Start)?;
    let mut process =
        Process::start(&place, visible_devices(&engine), &setup, &memory).map_err(EngineError::Start)?;
    match process.receive(0, PATIENCE)? {
        Reply::Outputs(found) => Ok(found),
        Reply::Failed(text) => Err(EngineError::Told(text)),
        Reply::Done | Reply::Ready(_) => Err(process.violation()),
    }
}

fn isolate_within(
    tasks: &[Task<'_>],
    place: &Place,
    loading: Span,
) -> Result<Vec<Box<dyn Runner>>, EngineError> {
    tasks.iter().try_for_each(|task| check_max_batch(task.spec, task.max_batch))?;
    let mut end = 0;
    let offset = |task: &Task<'_>| {
        let at = end;
        end += Buffers::len(task.spec, task.max_batch) as u64;
        at
    };
    let offsets: Vec<u64> = tasks.iter().map(offset).collect();
    let memory = sealed_memory(end).map_err(EngineError::Start)?;
    let setup = write_setup(&Setup::new(tasks, place)).map_err(EngineError::Start)?;
    let devices = tasks.first().and_then(|task| visible_devices(&task.engine));
    let process = Process::start(place, devices, &setup, &memory).map_err(EngineError::Start)?;
    let process = Arc::new(Mutex::new(process));
    let mut runners: Vec<Box<dyn Runner>> = Vec::new();
    for (index, (task, offset)) in tasks.iter().zip(offsets).enumerate() {
        let index = index as u32;
        let reply = lock(&process).receive(index, loading)?;
        let modes = match reply {
            Reply::Ready(modes) if modes.len() == task.max_batch => modes,
            Reply::Failed(text) => return Err(EngineError::Told(text)),
            Reply::Done | Reply::Ready(_) | Reply::Outputs(_) => return Err(lock(&process).violation()),
        };
        let buffers = Buffers::shared(task.spec, task.max_batch, (&memory, offset));
        let buffers = buffers.map_err(EngineError::Start)?;
        let (process, patience) = (Arc::clone(&process), vec![loading; task.max_batch]);
        let mut silence = task.silence.clone();
        silence.resize(task.max_batch, silence.last().copied().unwrap_or(LEAST_SILENCE));
        runners.push(Box::new(Isolated { process, index, buffers, modes, silence, patience }));
    }
    Ok(runners)
}

/// One model in a worker process.
struct Isolated {
    process: Arc<Mutex<Process>>,
    /// Which of its models.
    index: u32,
    buffers: Buffers,
    modes: Vec<RunMode>,
    silence: Vec<Span>,
    /// As `silence`, once a batch of that size has been run.
    patience: Vec<Span>,
}

impl Runner for Isolated {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        self.buffers.check(batch)?;
        let mut process = lock(&self.process);
        match process.run(self.index, batch as u32, self.patience[batch - 1])? {
            Reply::Done => {
                self.patience[batch - 1] = self.silence[batch - 1];
                Ok(())
            }
            Reply::Failed(text) => Err(EngineError::Told(text)),
            Reply::Ready(_) | Reply::Outputs(_) => Err(process.violation()),
        }
    }

    fn mode(&self, batch: usize) -> RunMode {
        self.modes[batch.clamp(1, self.modes.len()) - 1]
    }

    fn lost(&mut self) -> Option<String> {
        lock(&self.process).is_lost().then(|| "its process ended while idle".to_owned())
    }

    fn process(&self) -> Option<u32> {
        lock(&self.process).id()
    }
}

/// What `CUDA_VISIBLE_DEVICES` is to be for an engine that takes the first device it sees; one process has one device.
fn visible_devices(engine: &Engine<'_>) -> Option<String> {
    match engine {
        Engine::Real { backend, .. } if backend.kind == EngineKind::TractCuda => {
            Some(gpu::only(backend.device))
        }
        _ => None,
    }
}

fn lock(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in memory of `bytes` zeros that nobody can shrink under another's mapping.
fn sealed_memory(bytes: u64) -> io::Result<File> {
    let file = memfd_create("weir-batch", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    // Not only its length: where there is no room, this says so, and not a signal later.
    fallocate(&file, FallocateFlags::empty(), 0, bytes.cast_signed())?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

/// A file, because the setup may be too long for a packet.
fn write_setup(setup: &Setup) -> io::Result<File> {
    let mut file = File::from(memfd_create("weir-setup", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&serde_json::to_vec(setup)?)?;
    Ok(file)
}
