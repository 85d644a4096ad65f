//! Monitoring: `GET /metrics` over HTTP, on a Unix socket or a port of this machine.

mod text;

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, Semaphore};

use crate::local::{Duplex, Local, pass};
use crate::overview::Overview;
use crate::socket::Hub;
use tracing::warn;
use weir_plan::config::ListenAddress;

/// Readers at a time: more wait in the system's backlog.
const CONNECTIONS: usize = 4;
/// How long a connection may last: a reader asks, is answered, and goes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to the thread that answers.
pub(crate) struct Metrics {
    config: ListenAddress,
    stop: Arc<Notify>,
}

/// What is answered with.
type Figures = Arc<dyn Fn() -> String + Send + Sync>;

impl Metrics {
    /// Not listening yet.
    pub(super) fn new(config: ListenAddress) -> Self {
        Self { config, stop: Arc::default() }
    }

    /// Binds the address, and starts the thread that answers with the figures of `overview`, and how many clients `hub` has.
    ///
    /// # Errors
    /// If the address is in use or not permitted, or there is no thread to be had.
    pub(super) fn start(&self, overview: &Arc<Overview>, hub: &Arc<Hub>) -> Result<JoinHandle<()>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("metrics")?;
        let listener = {
            let _inside = runtime.enter();
            Local::bind("daemon.metrics", &self.config, None)?
        };
        let (overview, hub, stop) = (Arc::clone(overview), Arc::clone(hub), Arc::clone(&self.stop));
        let figures: Figures = Arc::new(move || {
            let status = serde_json::to_value(overview.status(hub.count()));
            text::render(&status.unwrap_or_default())
        });
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stop.notified() => {}
                    () = serve(listener, figures) => {}
                }
            });
        };
        Ok(std::thread::Builder::new().name("metrics".to_owned()).spawn(run)?)
    }

    /// Answers no more; the thread ends.
    pub(super) fn close(&self) {
        self.stop.notify_one();
    }
}

async fn serve(listener: Local, figures: Figures) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let figures = Arc::clone(&figures);
        // Metrics are for everybody whom the address lets in.
        match listener.accept(None).await {
            Ok(guest) => drop(tokio::spawn(async move { (converse(guest.stream, figures).await, place).1 })),
            Err(error) => {
                // Out of descriptors, most likely: say so, and leave the readers in the backlog a while.
                warn!("a reader of metrics cannot be accepted: {error}");
                pass(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the requests of one connection; one that takes too long, or talks nonsense, is closed.
async fn converse(stream: Box<dyn Duplex>, figures: Figures) {
    let answer = service_fn(|request| {
        let response = answer(&request, &figures);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), answer);
    let _ = tokio::time::timeout(PATIENCE, connection).await;
}

fn answer(request: &Request<Incoming>, figures: &Figures) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, figures()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "GET alone\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
