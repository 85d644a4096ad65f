//! Clients of others: the Open Inference Protocol, version 2, as Triton, KServe and OpenVINO Model Server speak it.
//!
//! One thread answers all of them, without real-time priority: what it reads is checked and packed there, and then waits and runs like
//! what came through the socket.

mod desk;
mod grpc;
mod http;
mod reply;
mod streams;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use crate::local::{Local, pass};
use crate::overview::Overview;
use crate::socket::Debts;
use desk::{Caller, Desk};
use weir_os::clock;
use weir_plan::config::{LocalAddress, OipConfig};

/// How often it is looked for streams that nobody uses any more.
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
    /// If an address is in use or not permitted, or there is no thread to be had.
    pub(crate) fn start(&self, overview: &Arc<Overview>, debts: &Arc<Debts>) -> Result<JoinHandle<()>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("daemon.oip")?;
        let mode = Some(overview.config.daemon.socket_mode);
        let listeners = {
            let _inside = runtime.enter();
            let bind = |field, address: &Option<LocalAddress>| {
                address.as_ref().map(|address| Local::bind(field, address, mode)).transpose()
            };
            let (http, grpc) =
                (bind("daemon.oip.http", &self.config.http)?, bind("daemon.oip.grpc", &self.config.grpc)?);
            [http.map(|listener| (listener, Protocol::Http)), grpc.map(|listener| (listener, Protocol::Grpc))]
        };
        let desk = Arc::new(Desk::new(overview, debts));
        let stop = self.stop.subscribe();
        let run = move || {
            runtime.block_on(async {
                let rounds = {
                    let desk = Arc::clone(&desk);
                    tokio::spawn(async move {
                        loop {
                            pass(ROUND).await;
                            desk.release_unused();
                        }
                    })
                };
                let places = Arc::new(Semaphore::new(desk.config().max_clients));
                let listen = |(listener, protocol)| {
                    tokio::spawn(listen(
                        listener,
                        protocol,
                        Arc::clone(&desk),
                        Arc::clone(&places),
                        stop.clone(),
                    ))
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

/// Accepts clients until it is closed.
async fn listen(
    listener: Local,
    protocol: Protocol,
    desk: Arc<Desk>,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    let (other, standing) = (stop.clone(), Arc::new(Semaphore::new(STANDING)));
    loop {
        let guest = tokio::select! {
            guest = listener.accept(desk.config().allowed.as_ref()) => guest,
            () = closed(&mut stop) => return,
        };
        match guest {
            Ok(guest) if !guest.permitted => {
                warn!("a client of daemon.oip is not on the list of those who may connect");
            }
            Ok(guest) => {
                let place = Arc::clone(&places).try_acquire_owned();
                // Who connects too often is told nothing.
                let Some(debt) = desk.debts.connect(clock::now(), guest.peer) else { continue };
                let (desk, stop) = (Arc::clone(&desk), other.clone());
                let caller = Arc::new(Caller::new(debt));
                match (place, protocol, Arc::clone(&standing).try_acquire_owned()) {
                    (Ok(place), Protocol::Http, _) => drop(tokio::spawn(async move {
                        http::converse(guest, &desk, &caller, stop).await;
                        drop(place);
                    })),
                    (Ok(place), Protocol::Grpc, _) => drop(tokio::spawn(async move {
                        grpc::converse(guest, &desk, &caller, stop).await;
                        drop(place);
                    })),
                    (Err(_), Protocol::Http, Ok(place)) => drop(tokio::spawn(async move {
                        let most = desk.config().max_clients;
                        let text = format!("daemon.max-clients = {most} of this protocol are connected");
                        http::turn_away(guest, &text).await;
                        drop((place, caller));
                    })),
                    // It tries again by itself, or there are too many to be told.
                    (Err(_), ..) => {}
                }
            }
            Err(error) => {
                // Out of descriptors, most likely: say so, and leave the clients in the backlog a while.
                warn!("a client of daemon.oip cannot be accepted: {error}");
                pass(REST).await;
            }
        }
    }
}

/// Waits until it is closed.
async fn closed(stop: &mut watch::Receiver<bool>) {
    // Whoever would close it has gone: that is as good.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
