//! The protocol over HTTP/1.1: its paths, and JSON with binary tensors.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::watch;
use weir_oip::{Refused, http};

use super::asked::Asked;
use super::caller::{Caller, Unanswered};
use super::desk::{Desk, Fared};
use super::streams::wrong;
use super::{CLASS, EXTENSIONS, PATIENCE, STREAM, closed, text_beside};
use crate::local::Guest;

/// So long it may take until a whole head is there, from the call before or the beginning on.
const QUIET: Duration = Duration::from_secs(30);
/// Misses that the promise of the stream still allows, where a request was missed.
const MISSES_LEFT: &str = "weir-misses-left";

type Reply = Response<Full<Bytes>>;

/// Answers the calls of one connection until it ends, or nothing more is to be answered.
pub(super) async fn converse(
    guest: Guest,
    desk: &Arc<Desk>,
    caller: &Arc<Caller>,
    mut stop: watch::Receiver<bool>,
) {
    let answer = service_fn(|request| async { Ok::<_, Infallible>(answer(desk, caller, request).await) });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(QUIET)
        // One that has said all that it wants to say may still listen.
        .half_close(true)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(guest.stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closed(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that goes, or talks nonsense, has been told what there was to tell.
    drop(ended);
}

/// Tells whoever there is no place for, once asked something.
pub(super) async fn turn_away(guest: Guest, text: &str) {
    let answer = service_fn(|_| async {
        let refused = Refused::Unavailable { text: text.to_owned(), misses_left: None };
        Ok::<_, Infallible>(refuse(&refused))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(guest.stream), answer);
    let _ = tokio::time::timeout(PATIENCE, connection).await;
}

async fn answer(desk: &Desk, caller: &Caller, request: Request<Incoming>) -> Reply {
    let unanswered = Unanswered::new(desk, caller);
    let uri = request.uri().clone();
    let path = uri.path().trim_end_matches('/').split('/').skip(1);
    let path: Vec<_> = path.map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let outcome = match (of_model(&path), request.method()) {
        (Some((model, version, "infer")), &Method::POST) => {
            infer(desk, caller, (model, version), request).await
        }
        (_, method) => {
            // What is answered to `HEAD` is sent without its body.
            let method = if method == Method::HEAD { &Method::GET } else { method };
            let outcome = look(desk, &path, method);
            desk.charge(caller, 0, false).await;
            outcome
        }
    };
    unanswered.end();
    outcome.unwrap_or_else(|refused| refuse(&refused))
}

/// The model that a path is about, its version or nothing, and what is asked of it or nothing. In the name of a model there may be
/// slashes, as they are or encoded.
fn of_model<'a>(path: &[&'a str]) -> Option<(String, &'a str, &'a str)> {
    let ["v2", "models", path @ ..] = path else { return None };
    let (path, asked) = match path {
        [path @ .., asked @ ("infer" | "config" | "ready" | "stats")] if !path.is_empty() => (path, *asked),
        _ => (path, ""),
    };
    let (name, version) = match path {
        [name @ .., "versions", version] if !name.is_empty() => (name, *version),
        _ => (path, ""),
    };
    (!name.is_empty()).then(|| (name.join("/"), version, asked))
}

/// What is no inference.
fn look(desk: &Desk, path: &[&str], method: &Method) -> Result<Reply, Refused> {
    let standing = |ready: bool, told: Value| {
        let mut reply = json_of(&told);
        *reply.status_mut() = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Ok(reply)
    };
    match (path, method) {
        (["v2"], &Method::GET) => Ok(json_of(&json!({
            "name": "weir", "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS,
        }))),
        (["v2", "health", "live"], &Method::GET) => standing(true, json!({ "live": true })),
        (["v2", "health", "ready"], &Method::GET) => {
            standing(desk.is_ready(), json!({ "ready": desk.is_ready() }))
        }
        (["v2", "repository", "index"], &Method::POST) => {
            let one = |name: String| {
                let state = desk.state(&name);
                json!({ "name": name, "version": http::VERSION, "state": state })
            };
            Ok(json_of(&desk.models().into_iter().map(one).collect()))
        }
        (["v2", "models", "stats"], &Method::GET) => {
            let all: Result<Vec<_>, _> = desk.models().iter().map(|name| desk.fared(name, "")).collect();
            Ok(json_of(&statistics(&all?)))
        }
        (["v2", "models", ..], &Method::GET) => match of_model(path) {
            Some((model, version, "")) => {
                Ok(json_of(&http::metadata(&desk.describe(&model, version)?.model())))
            }
            Some((model, version, "config")) => {
                Ok(json_of(&http::config(&desk.describe(&model, version)?.model())))
            }
            Some((model, version, "ready")) => {
                let ready = desk.is_model_ready(&model, version)?;
                standing(ready, json!({ "name": model, "ready": ready }))
            }
            Some((model, version, "stats")) => Ok(json_of(&statistics(&[desk.fared(&model, version)?]))),
            _ => Err(Refused::NotFound(format!("nothing is at GET /{}", path.join("/")))),
        },
        (["v2", "systemsharedmemory" | "cudasharedmemory" | "repository" | "trace" | "logging", ..], _) => {
            Err(Refused::Unimplemented(format!("/{} is not supported here", path.join("/"))))
        }
        _ => Err(Refused::NotFound(format!("nothing is at {method} /{}", path.join("/")))),
    }
}

async fn infer(
    desk: &Desk,
    caller: &Caller,
    (model, version): (String, &str),
    request: Request<Incoming>,
) -> Result<Reply, Refused> {
    let read = read(desk, request).await;
    let called = read.as_ref().map_err(Clone::clone);
    let called = called.and_then(|((length, named), body)| Ok((named, http::call(body, *length)?)));
    let (named, call) = match called {
        Ok(called) => called,
        Err(refused) => {
            desk.charge(caller, 0, false).await;
            return Err(refused);
        }
    };
    let (version, (stream, class)) = (version.to_owned(), named.clone());
    let asked = Asked { model, version, stream, class, within: None, binary: http::wishes_binary(&call) };
    let given = desk.infer(caller, asked, &call).await?;
    let (body, length) = http::body(&given.answer())?;
    let kind = if length.is_some() { "application/octet-stream" } else { "application/json" };
    let mut reply = reply(StatusCode::OK, body, kind);
    if let Some(length) = length {
        reply.headers_mut().insert(http::LENGTH_HEADER, length.into());
    }
    Ok(reply)
}

/// What the head says, and the body.
async fn read(desk: &Desk, request: Request<Incoming>) -> Result<(Head, Bytes), Refused> {
    let head = head_of(request.headers())?;
    let asks = request.headers().contains_key(EXPECT);
    Ok((head, body_of(request.into_body(), desk.config().max_frame as usize, asks).await?))
}

/// How long the JSON of a body is, if not all of it, and the stream and the class that are named.
type Head = (Option<usize>, (Option<String>, Option<String>));

fn head_of(headers: &HeaderMap) -> Result<Head, Refused> {
    // Of what is compressed nothing is read.
    for (name, plain) in [(CONTENT_ENCODING, "identity"), (TRANSFER_ENCODING, "chunked")] {
        let mut all = headers.get_all(&name).iter();
        if let Some(encoding) =
            all.find(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
        {
            let text = format!("{name} {} is not supported here", text_of(encoding));
            return Err(Refused::Unimplemented(text));
        }
    }
    let length = headers.get(http::LENGTH_HEADER).map(|value| {
        let text = text_of(value);
        text.parse().map_err(|_| wrong(http::LENGTH_HEADER, text, "must be a number of bytes"))
    });
    Ok((length.transpose()?, (text_beside(headers, STREAM)?, text_beside(headers, CLASS)?)))
}

/// The whole body, of so many bytes at most, of a client that sends it, or `asks` whether it may.
async fn body_of(body: Incoming, limit: usize, asks: bool) -> Result<Bytes, Refused> {
    let too_large = || Refused::TooLarge(format!("the body has more than daemon.max-frame = {limit} bytes"));
    // One that is still on its way would find the connection closed, and not the answer.
    if asks && body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| Refused::Invalid(format!("the body did not come within {PATIENCE:?}")))?;
    read.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
        true => too_large(),
        false => Refused::Invalid(format!("the body: {error}")),
    })
}

/// How calls have fared, as Triton tells it. What was not measured is left out; what is not told apart is with `compute_infer`.
fn statistics(models: &[Fared]) -> Value {
    let one = |fared: &Fared| {
        let served = |ns: u64| json!({ "count": fared.served, "ns": ns });
        json!({
            "name": fared.name,
            "version": http::VERSION,
            "inference_count": fared.served,
            "execution_count": fared.batches,
            "inference_stats": {
                "success": served(fared.served_ns),
                "queue": served(fared.waited_ns),
                "compute_input": served(0),
                "compute_infer": served(fared.served_ns.saturating_sub(fared.waited_ns)),
                "compute_output": served(0),
                "fail": { "count": fared.missed, "ns": 0 },
            },
        })
    };
    json!({ "model_stats": models.iter().map(one).collect::<Value>() })
}

fn refuse(refused: &Refused) -> Reply {
    let status = match refused {
        Refused::Invalid(_) => StatusCode::BAD_REQUEST,
        Refused::NotFound(_) => StatusCode::NOT_FOUND,
        Refused::Conflict(_) => StatusCode::CONFLICT,
        Refused::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refused::Unimplemented(_) => StatusCode::NOT_IMPLEMENTED,
        Refused::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut reply = json_of(&json!({ "error": refused.to_string() }));
    *reply.status_mut() = status;
    if let Refused::Unavailable { misses_left: Some(left), .. } = refused {
        reply.headers_mut().insert(MISSES_LEFT, (*left).into());
    }
    reply
}

fn json_of(value: &Value) -> Reply {
    reply(StatusCode::OK, value.to_string().into_bytes(), "application/json")
}

fn reply(status: StatusCode, body: Vec<u8>, kind: &'static str) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

fn text_of(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::of_model;

    #[test]
    fn a_path_names_a_model_with_slashes_or_without_its_version_and_what_is_asked() {
        let of = |path: &'static str| of_model(&path.split('/').collect::<Vec<_>>());
        let is = |model: &str, version, asked| Some((model.to_owned(), version, asked));
        assert_eq!(of("v2/models/digits/infer"), is("digits", "", "infer"));
        assert_eq!(of("v2/models/digits/versions/1/infer"), is("digits", "1", "infer"));
        assert_eq!(of("v2/models/cam/one/ready"), is("cam/one", "", "ready"));
        assert_eq!(of("v2/models/cam/one/versions/1/stats"), is("cam/one", "1", "stats"));
        assert_eq!(of("v2/models/cam/one"), is("cam/one", "", ""));
        // A service may be called so, too.
        assert_eq!(of("v2/models/infer"), is("infer", "", ""));
        assert_eq!(of("v2/models/ready/ready"), is("ready", "", "ready"));
        assert_eq!([of("v2/models"), of("v2"), of("v2/health/live")], [None, None, None]);
    }
}
