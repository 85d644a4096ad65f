//! The oip engine computes nothing here: it sends each batch to a server of the Open Inference Protocol and waits for what that
//! computes, on the worker's own thread and over one connection of its own.
//!
//! A remote that cannot be reached, is late, or says what it was not asked is lost, as a worker process is that has crashed. One
//! that refuses a batch in proper words has failed it, and goes on, unless it would refuse anything.

mod connection;
mod dialect;
mod reach;
mod signature;
mod within;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use rt_core::{Instant, Span};
use weir_client::TensorInfo;
use weir_oip::Refused;
use weir_oip::remote::Metadata;
use weir_oip::text::printable;

use super::batching::{BothWays, choose_modes, loop_modes};
use super::layout::Layout;
use super::{
    Address, Backend, Buffers, EngineError, EngineKind, ModelSpec, Remote, RunMode, Side, sha256_hex,
};
use connection::{Connection, Reply};
use dialect::{Dialect, Question};
use signature::Signature;
use weir_os::clock;

pub use within::answers_end;

/// One of which nothing was wanted for so long is asked whether it is ready: no server closes a connection that is used so often.
const QUIET: Span = Span::from_millis(2_000);

/// Ends what is told of a remote that was not met.
const UNMET: &str = " (not reached)";

/// What each remote was when it was last met in this process: of an address and a model its identity.
static MET: Mutex<BTreeMap<(String, String), String>> = Mutex::new(BTreeMap::new());

/// A model on a remote server.
pub(super) struct OipRunner {
    buffers: Buffers,
    endpoint: Endpoint,
    /// For each number of requests that are sent at once, from 1 on: the tensors of a call and of its answer.
    calls: Vec<[Vec<TensorInfo>; 2]>,
    /// How requests lie in the inputs and outputs.
    layouts: [Vec<Layout>; 2],
    /// What is sent: the inputs of a batch, and behind them the constants, which stay.
    sent: Vec<Vec<u8>>,
    received: Vec<u8>,
    scratch: Vec<u8>,
    modes: Vec<RunMode>,
    /// Calls so far.
    asked: u64,
    /// Batches in a row that were refused.
    refusals: u32,
    /// The version of the model that answers, once it is known.
    version: Option<String>,
    last_used: Instant,
}

/// A remote that was reached, and what it says.
struct Endpoint {
    url: String,
    dialect: Dialect,
    stream: Option<String>,
    connection: Connection,
    metadata: Metadata,
    /// All that times depend on, as far as a remote tells.
    identity: String,
}

/// Meets every remote of `backend`, so that [`identities`] tells what they are.
///
/// # Errors
/// One that is not reached, is not ready or does not have the model.
pub(super) fn prepare(backend: &Backend) -> Result<(), EngineError> {
    let remote = of(backend)?;
    remote.addresses.iter().try_for_each(|address| Endpoint::open(remote, address).map(drop))
}

/// The same, but that remotes may be out of reach: these, with the reason.
///
/// # Errors
/// If the backend has none.
pub(super) fn prepare_each(backend: &Backend) -> Result<Vec<EngineError>, EngineError> {
    let remote = of(backend)?;
    Ok(remote.addresses.iter().filter_map(|address| Endpoint::open(remote, address).err()).collect())
}

/// What the remote of a worker is, held against the manifest.
///
/// # Errors
/// As [`OipRunner::load`], but that nothing is run.
pub(super) fn meet(backend: &Backend, spec: &ModelSpec) -> Result<String, EngineError> {
    reach(backend, spec).map(|(endpoint, _)| endpoint.identity)
}

/// What the remotes of `backend` were when they were last met, each with where it is.
pub(super) fn identities(backend: &Backend) -> Vec<String> {
    let Some(remote) = &backend.remote else { return Vec::new() };
    let met = met();
    let one = |address: &Address| {
        let unmet = || format!("{address} {}{UNMET}", named(remote));
        met.get(&key(remote, address)).cloned().unwrap_or_else(unmet)
    };
    remote.addresses.iter().map(one).collect()
}

/// What `here` says of remotes, where one that was not met is as it was `before`; if that says nothing of it, it stays unmet.
pub(super) fn as_before(here: &str, before: &str) -> String {
    let one = |told: &str| {
        let known = told.strip_suffix(UNMET).map(|place| format!("{place} by "));
        let known = known.and_then(|known| before.split("; ").find(|one| one.starts_with(&known)));
        known.unwrap_or(told).to_owned()
    };
    here.split("; ").map(one).collect::<Vec<_>>().join("; ")
}

/// Whether the remote takes several requests as one batch.
///
/// # Errors
/// As [`OipRunner::load`], but that nothing is run.
pub(super) fn has_batches(backend: &Backend, spec: &ModelSpec) -> Result<bool, EngineError> {
    let (_, signature) = reach(backend, spec)?;
    Ok(signature.is_batched())
}

impl OipRunner {
    /// Reaches the remote, holds what it says against the manifest, and has it run a request of zeros; see [`super::load`] for the
    /// errors and [`super::Engine`] for `modes`.
    pub(super) fn load(
        (backend, spec): (&Backend, &ModelSpec),
        buffers: Buffers,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
        let (endpoint, signature) = reach(backend, spec)?;
        let (max_batch, batched) = (buffers.max_batch(), signature.is_batched());
        let largest = if batched { max_batch } else { 1 };
        let call = |batch| [Side::Input, Side::Output].map(|side| signature.tensors(side, batch));
        let layouts = [&spec.inputs, &spec.outputs].map(|side| side.iter().map(Layout::of).collect());
        let constants = spec.constants.iter().map(|constant| constant.bytes.clone());
        let mut runner = Self {
            buffers,
            endpoint,
            calls: (1..=largest).map(call).collect(),
            layouts,
            sent: spec.inputs.iter().map(|_| Vec::new()).chain(constants).collect(),
            received: Vec::new(),
            scratch: Vec::new(),
            modes: loop_modes(max_batch),
            asked: 0,
            refusals: 0,
            version: None,
            last_used: clock::now(),
        };
        runner.run_as(RunMode::Batched, 1)?;
        runner.modes = choose_modes(&mut runner, spec, batched, modes)?;
        Ok(runner)
    }

    /// Has the remote run these requests of the buffers as one batch.
    fn call(&mut self, requests: Range<usize>) -> Result<(), EngineError> {
        let batch = requests.len();
        for (number, layout) in self.layouts[0].iter().enumerate() {
            let sent = &mut self.sent[number];
            sent.resize(batch * self.buffers.each(Side::Input, number), 0);
            if layout.is_plain(batch) {
                self.buffers.read(Side::Input, number, requests.start, sent);
            } else {
                self.scratch.resize(sent.len(), 0);
                self.buffers.read(Side::Input, number, requests.start, &mut self.scratch);
                layout.spread(batch, &self.scratch, sent);
            }
        }
        let reply = self.ask(batch)?;
        if let Some(reason) = reply.refused {
            self.refusals = self.refusals.saturating_add(1);
            // Whoever fails all at once is free all the time, and would be given what others could answer. Seldom enough that who sends
            // what the model refuses takes no time from others.
            if self.refusals > 1 && self.refusals.is_power_of_two() {
                self.check_zeros()?;
            }
            return Err(self.failed(batch, reason));
        }
        self.refusals = 0;
        self.receive(requests, reply).map_err(|reason| self.lost_for(reason))
    }

    /// Sends what lies in `sent`, of so many requests.
    fn ask(&mut self, batch: usize) -> Result<Reply, EngineError> {
        let [inputs, outputs] = &self.calls[batch - 1];
        let tensors = inputs.iter().zip(self.sent.iter().map(Vec::as_slice));
        let Endpoint { dialect, stream, connection, .. } = &mut self.endpoint;
        self.asked += 1;
        let call = dialect.call(tensors, outputs, (self.asked, stream.as_deref()));
        let reply = call.map(|call| connection.ask(call));
        self.last_used = clock::now();
        let reply = reply.map_err(|refused| self.failed(batch, refused.to_string()))?;
        reply.map_err(|reason| self.endpoint.lost(reason))
    }

    /// Whether the remote still takes what it has taken when it was reached: it is lost if not.
    fn check_zeros(&mut self) -> Result<(), EngineError> {
        for (number, sent) in self.sent.iter_mut().take(self.layouts[0].len()).enumerate() {
            sent.clear();
            sent.resize(self.buffers.each(Side::Input, number), 0);
        }
        match self.ask(1)?.refused {
            None => Ok(()),
            Some(reason) => Err(self.lost_for(format!("it refuses a request of zeros as well: {reason}"))),
        }
    }

    /// Closes the connection to a remote that is of no use any more.
    fn lost_for(&mut self, reason: String) -> EngineError {
        self.endpoint.connection.close();
        self.endpoint.lost(reason)
    }

    /// Takes the outputs of these requests out of an answer.
    fn receive(&mut self, requests: Range<usize>, reply: Reply) -> Result<(), String> {
        let batch = requests.len();
        let read = self.endpoint.dialect.read(reply).map_err(|refused| told(&refused))?;
        let answer = read.answered().map_err(|refused| told(&refused))?;
        // An answer that comes twice must not be taken for that to the next call. Some servers tell a name of their own: that is none of ours.
        if let Some(other) = answer.id.parse().ok().filter(|id: &u64| *id != self.asked) {
            return Err(format!("it answers call {other}, and call {} was asked last", self.asked));
        }
        let version = self.version.get_or_insert_with(|| answer.version.clone());
        if *version != answer.version {
            let (now, before) = (printable(&answer.version), printable(version));
            return Err(format!("version {now} of the model answers, version {before} did before"));
        }
        for (number, (output, layout)) in self.calls[batch - 1][1].iter().zip(&self.layouts[1]).enumerate() {
            answer.take(output, &mut self.received).map_err(|refused| told(&refused))?;
            if layout.is_plain(batch) {
                self.buffers.write(Side::Output, number, requests.start, &self.received);
            } else {
                self.scratch.resize(self.received.len(), 0);
                layout.gather(batch, &self.received, &mut self.scratch);
                self.buffers.write(Side::Output, number, requests.start, &self.scratch);
            }
        }
        Ok(())
    }

    fn failed(&self, batch: usize, reason: String) -> EngineError {
        EngineError::Run { model: self.buffers.model().to_owned(), batch, reason }
    }
}

impl BothWays for OipRunner {
    fn kind(&self) -> EngineKind {
        EngineKind::Oip
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn modes(&self) -> &[RunMode] {
        &self.modes
    }

    fn run_as(&mut self, mode: RunMode, batch: usize) -> Result<(), EngineError> {
        let step = match mode {
            RunMode::Batched => batch,
            RunMode::Loop | RunMode::Simulated => 1,
        };
        (0..batch).step_by(step).try_for_each(|first| self.call(first..first + step))
    }

    fn lost(&mut self) -> Option<String> {
        let Endpoint { url, dialect, connection, .. } = &mut self.endpoint;
        if connection.is_closed() {
            return Some(format!("{url} hung up while idle"));
        }
        if clock::now().since(self.last_used) < QUIET {
            return None;
        }
        self.last_used = clock::now();
        let ready = ready(connection, dialect).err()?;
        connection.close();
        Some(format!("{url} was lost while idle: {ready}"))
    }

    fn endpoint(&self) -> Option<&str> {
        Some(&self.endpoint.identity)
    }
}

impl Endpoint {
    /// Connects, and asks what is there.
    fn open(remote: &Remote, address: &Address) -> Result<Self, EngineError> {
        let url = address.to_string();
        Self::ask_all(remote, address).map_err(|reason| EngineError::Remote { url, reason })
    }

    fn ask_all(remote: &Remote, address: &Address) -> Result<Self, String> {
        let mut connection = Connection::open(remote, address)?;
        let mut dialect = Dialect::new(remote, address.protocol);
        let server = said(&mut connection, &dialect, Question::Server)?;
        let server = dialect.server(server).map_err(|refused| told(&refused))?;
        ready(&mut connection, &dialect)?;
        let metadata = said(&mut connection, &dialect, Question::Metadata)?;
        let metadata = dialect.metadata(metadata).map_err(|refused| told(&refused))?;
        let hash = sha256_hex(format!("{metadata:?}").as_bytes());
        let identity = format!(
            "{address} {} by {} {} {}",
            named(remote),
            // What stands between several, none has in its name.
            printable(&server.name).replace(';', ","),
            printable(&server.version).replace(';', ","),
            &hash[..16]
        );
        met().insert(key(remote, address), identity.clone());
        Ok(Self {
            url: address.to_string(),
            dialect,
            stream: remote.stream.clone(),
            connection,
            metadata,
            identity,
        })
    }

    fn lost(&self, reason: String) -> EngineError {
        EngineError::Lost { what: format!("the connection to {}", self.url), reason }
    }
}

/// The remote of a worker, with how its tensors travel.
fn reach(backend: &Backend, spec: &ModelSpec) -> Result<(Endpoint, Signature), EngineError> {
    let remote = of(backend)?;
    let address = &remote.addresses[backend.device as usize % remote.addresses.len()];
    let endpoint = Endpoint::open(remote, address)?;
    let signature = Signature::new(spec, &endpoint.metadata).map_err(|differs| {
        let (url, reason) = (endpoint.url.clone(), format!("model {}: {differs}", spec.name));
        EngineError::Remote { url, reason }
    })?;
    Ok((endpoint, signature))
}

fn of(backend: &Backend) -> Result<&Remote, EngineError> {
    let remote = backend.remote.as_ref().filter(|remote| !remote.addresses.is_empty());
    remote.ok_or_else(|| EngineError::Remote {
        url: "engine oip".to_owned(),
        reason: "it is for services that say their `remote` servers".to_owned(),
    })
}

/// What a server answers to a plain question, if it answers well.
fn said(connection: &mut Connection, dialect: &Dialect, question: Question) -> Result<Bytes, String> {
    let path = dialect.path(question);
    let reply = connection.ask(dialect.ask(question, &path))?;
    reply.refused.map_or(Ok(reply.body), |refused| Err(format!("{path}: {refused}")))
}

/// Whether the server has the model ready.
fn ready(connection: &mut Connection, dialect: &Dialect) -> Result<(), String> {
    let body = said(connection, dialect, Question::Ready)?;
    dialect.ready(body).map_err(|refused| told(&refused))
}

/// What is wrong with an answer, without what would steer a terminal.
fn told(refused: &Refused) -> String {
    printable(&refused.to_string())
}

fn named(remote: &Remote) -> String {
    remote
        .version
        .as_ref()
        .map_or_else(|| remote.model.clone(), |version| format!("{}@{version}", remote.model))
}

fn key(remote: &Remote, address: &Address) -> (String, String) {
    (address.to_string(), named(remote))
}

fn met() -> MutexGuard<'static, BTreeMap<(String, String), String>> {
    MET.lock().unwrap_or_else(PoisonError::into_inner)
}
