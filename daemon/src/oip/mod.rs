//! Clients of others: the Open Inference Protocol, version 2, as Triton, KServe and OpenVINO Model Server speak it.
//!
//! One thread answers all of them, without real-time priority: what it reads is checked and packed there, and then waits and runs like
//! what came through the socket.

mod asked;
mod caller;
mod desk;
mod grpc;
mod http;
mod reply;
mod streams;
mod timed;
mod tls;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::HeaderMap;
use tokio::sync::{Semaphore, watch};

use crate::local::{Guest, Local, pass};
use crate::overview::Overview;
use crate::socket::{Debts, Unserved};
use caller::{Caller, Paced};
use desk::Desk;
use tls::Tls;
use weir_oip::Refused;
use weir_os::clock;
use weir_plan::config::{ListenAddress, OipConfig};

/// How often it is looked for streams that nobody uses any more, and at the files of TLS.
const ROUND: Duration = Duration::from_secs(10);
/// How long clients have to take their last answers.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Clients at a time that are told that there is no place for them.
const STANDING: usize = 16;
/// After an accept that failed.
const REST: Duration = Duration::from_millis(100);

/// The extensions of the protocol that are there.
const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics"];
/// The stream of a call, in what stands beside it.
const STREAM: [&str; 2] = ["weir-stream", "weir_stream"];

/// The class of a call, likewise.
const CLASS: [&str; 2] = ["weir-class", "weir_class"];

/// So long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands beside a call under one of these names, in headers or in metadata.
fn text_beside(headers: &HeaderMap, names: [&str; 2]) -> Result<Option<String>, Refused> {
    let mut told: Option<&str> = None;
    for (name, value) in names.iter().flat_map(|name| headers.get_all(*name).iter().map(move |v| (name, v))) {
        // Whoever names a stream must not have another one.
        let text = str::from_utf8(value.as_bytes())
            .map_err(|error| Refused::Invalid(format!("{name}: must be UTF-8: {error}")))?;
        if let Some(other) = told.filter(|other| *other != text) {
            return Err(Refused::Invalid(format!("{name}: must be said once, not {other:?} and {text:?}")));
        }
        told = Some(text);
    }
    Ok(told.map(str::to_owned))
}

/// How a listener's clients speak it.
#[derive(Clone, Copy)]
enum Protocol {
    Http,
    Grpc,
}

/// The way to the thread that answers.
pub(crate) struct Oip {
    config: OipConfig,
    stop: watch::Sender<bool>,
}

impl Oip {
    /// Not listening yet; `None` if the configuration has no address for it.
    pub(crate) fn new(config: &OipConfig) -> Option<Self> {
        let any = config.http.is_some() || config.grpc.is_some();
        any.then(|| Self { config: config.clone(), stop: watch::channel(false).0 })
    }

    /// Binds the addresses, and starts the thread that answers.
    ///
    /// # Errors
    /// If an address is in use or not permitted, a file of TLS is of no use, or there is no thread to be had.
    pub(crate) fn start(&self, overview: &Arc<Overview>, debts: &Arc<Debts>) -> Result<JoinHandle<()>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("daemon.oip")?;
        let mode = Some(overview.config.daemon.socket_mode);
        let listeners = {
            let _inside = runtime.enter();
            let bind = |field, address: &Option<ListenAddress>| {
                address.as_ref().map(|address| Local::bind(field, address, mode)).transpose()
            };
            let (http, grpc) =
                (bind("daemon.oip.http", &self.config.http)?, bind("daemon.oip.grpc", &self.config.grpc)?);
            [http.map(|listener| (listener, Protocol::Http)), grpc.map(|listener| (listener, Protocol::Grpc))]
        };
        let tls =
            self.config.tls.as_ref().map(Tls::open).transpose().context("daemon.oip.tls")?.map(Arc::new);
        let desk = Arc::new(Desk::new(overview, debts));
        let stop = self.stop.subscribe();
        let run = move || {
            runtime.block_on(async {
                let rounds = {
                    let (desk, tls) = (Arc::clone(&desk), tls.clone());
                    tokio::spawn(async move {
                        loop {
                            pass(ROUND).await;
                            desk.release_unused();
                            if let Some(tls) = &tls {
                                tls.refresh();
                            }
                        }
                    })
                };
                let places = Arc::new(Semaphore::new(desk.config().max_clients));
                let listen = |(listener, protocol): (Local, Protocol)| {
                    let door = Arc::new(Door {
                        protocol,
                        tls: tls.clone().filter(|_| listener.is_port()),
                        desk: Arc::clone(&desk),
                        places: Arc::clone(&places),
                        standing: Semaphore::new(STANDING),
                        stop: stop.clone(),
                    });
                    tokio::spawn(listen(listener, door))
                };
                let listening: Vec<_> = listeners.into_iter().flatten().map(listen).collect();
                for ended in listening {
                    // A panic there has told its message.
                    let _ = ended.await;
                }
                rounds.abort();
                // Whoever has taken its last answer has given its place back.
                let all = places.acquire_many(desk.config().max_clients as u32);
                let _ = tokio::time::timeout(LAST_WORDS, all).await;
                desk.release_all();
            });
        };
        Ok(Builder::new().name("oip".to_owned()).spawn(run)?)
    }

    /// Answers what has been asked, and nothing more; the thread ends.
    pub(crate) fn close(&self) {
        self.stop.send_replace(true);
    }
}

/// What is behind an address.
struct Door {
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    desk: Arc<Desk>,
    /// For clients, of all doors.
    places: Arc<Semaphore>,
    /// For those who are told that there is none.
    standing: Semaphore,
    stop: watch::Receiver<bool>,
}

/// Accepts clients until it is closed.
async fn listen(listener: Local, door: Arc<Door>) {
    let mut stop = door.stop.clone();
    let (mut strangers, mut failed) = (Unserved::default(), Unserved::default());
    loop {
        let guest = tokio::select! {
            guest = listener.accept(door.desk.config().allowed.as_ref()) => guest,
            () = closed(&mut stop) => return,
        };
        match guest {
            Ok(guest) if !guest.permitted => {
                strangers
                    .note(clock::now(), "a client of daemon.oip is not on the list of those who may connect");
            }
            Ok(guest) => {
                // Who connects too often is told nothing.
                let Some(debt) = door.desk.debts.connect(clock::now(), guest.peer) else { continue };
                let door = Arc::clone(&door);
                tokio::spawn(async move { door.greet(guest, Arc::new(Caller::new(debt))).await });
            }
            Err(error) => {
                // Out of descriptors, most likely: say so, and leave the clients in the backlog a while.
                failed.note(clock::now(), format_args!("a client of daemon.oip cannot be accepted: {error}"));
                pass(REST).await;
            }
        }
    }
}

impl Door {
    /// Answers whoever has connected, until that ends.
    async fn greet(&self, mut guest: Guest, caller: Arc<Caller>) {
        let (desk, stop) = (&self.desk, self.stop.clone());
        let wait = desk.wait(&caller).unwrap_or_default();
        if let Some(tls) = &self.tls {
            let who = (guest.peer, self.protocol);
            let secured = tls.secure(guest.stream, who, clock::duration(wait)).await;
            // Come of it what may.
            desk.bill(&caller, 0, false);
            let Some(secured) = secured else { return };
            guest.stream = secured;
        } else {
            // Others of its process may not have waited for it.
            caller.hold(clock::now() + wait);
        }
        guest.stream = Box::new(Paced::new(guest.stream, &caller));
        match (self.places.try_acquire(), self.protocol) {
            (Ok(_place), Protocol::Http) => http::converse(guest, desk, &caller, stop).await,
            (Ok(_place), Protocol::Grpc) => grpc::converse(guest, desk, &caller, stop).await,
            (Err(_), Protocol::Http) => {
                // There are too many to be told.
                let Ok(_standing) = self.standing.try_acquire() else { return };
                let most = desk.config().max_clients;
                let text = format!("daemon.max-clients = {most} of this protocol are connected");
                http::turn_away(guest, &text).await;
            }
            // It tries again by itself.
            (Err(_), Protocol::Grpc) => {}
        }
    }
}

/// Waits until it is closed.
async fn closed(stop: &mut watch::Receiver<bool>) {
    // Whoever would close it has gone: that is as good.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
