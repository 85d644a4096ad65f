//! Calls over gRPC by hand: what says how long they are waited for, how they come, and that they are given up without end.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::harness::{Deployment, eventually, now, pause};
use crate::protocol::oip::{Answer, Caller, call, place};
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustix::process::Signal;
use serde_json::json;
use weir_oip::grpc::inference::ModelInferRequest;
use weir_oip::grpc::inference::model_infer_request::InferInputTensor;

/// A body that says these bytes, and then that it has ended, or nothing more.
struct Said {
    bytes: Option<Bytes>,
    ends: bool,
}

impl Body for Said {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The bytes of a call to this model, as they lie on the wire.
fn message(model: &str, values: &[f32]) -> Vec<u8> {
    let input = InferInputTensor {
        name: "input".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![values.len() as i64],
        ..InferInputTensor::default()
    };
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let message = ModelInferRequest {
        model_name: model.to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![raw.into()],
        ..ModelInferRequest::default()
    };
    let message = message.encode_to_vec();
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()
}

type Sender = http2::SendRequest<Said>;

async fn connect(socket: &Path) -> Sender {
    let stream = tokio::net::UnixStream::connect(socket).await.expect("the socket");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn asked(headers: &[(&str, &str)], bytes: Vec<u8>, ends: bool) -> Request<Said> {
    let mut request = Request::post("http://weir/inference.GRPCInferenceService/ModelInfer")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Said { bytes: Some(bytes.into()), ends }).expect("a request")
}

/// The status of gRPC, and what it says.
async fn status(sender: &mut Sender, request: Request<Said>) -> (String, String) {
    use http_body_util::BodyExt;
    let answer = sender.send_request(request).await.expect("an answer");
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.expect("its body").trailers().cloned();
    let told = |from: &HeaderMap, name: &str| {
        from.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).replace("%20", " "))
    };
    let of =
        |name: &str| told(&head.headers, name).or_else(|| told(trailers.as_ref()?, name)).unwrap_or_default();
    (of("grpc-status"), of("grpc-message"))
}

/// A daemon that is called over gRPC as well.
fn both() -> Deployment {
    place("grpc = \"unix:g\"\n")
}

#[test]
fn a_call_over_grpc_is_bounded_in_time_by_what_it_says_and_by_how_it_comes() {
    let place = both();
    let daemon = place.serve();
    let socket = place.path("g");
    eventually("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut sender = connect(&socket).await;
        let null = || message("null", &[1.0, 2.0, 3.0]);
        for (timeout, code, words) in [
            ("0n", "14", "no answer in time"),
            ("99999999H", "0", ""),
            ("99999999999999999999H", "0", ""),
            ("1x", "3", "grpc-timeout = 1x: must be digits"),
            ("-1S", "3", "grpc-timeout = -1S: must be digits"),
            ("1.5S", "3", "must be digits"),
            ("S", "3", "must be digits"),
            ("", "3", "must be digits"),
        ] {
            let (told, text) = status(&mut sender, asked(&[("grpc-timeout", timeout)], null(), true)).await;
            assert!(told == code && text.contains(words), "{timeout}: {told}: {text}");
        }
        let twice = asked(&[("weir-stream", "a"), ("weir-stream", "b")], null(), true);
        assert_eq!(status(&mut sender, twice).await.0, "3");
        // One whose end does not come is not waited for for ever, and all else goes on.
        let began = now();
        let mut half = sender.clone();
        let half = tokio::spawn(async move {
            status(&mut half, asked(&[], message("null", &[1.0; 3])[..9].to_vec(), false)).await
        });
        while !half.is_finished() {
            assert_eq!(status(&mut sender, asked(&[], null(), true)).await.0, "0");
            tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.ok();
        }
        let (told, text) = half.await.expect("it is told");
        assert!(told == "3" && text.contains("the body did not come within 10s"), "{told}: {text}");
        assert!(began.elapsed() >= Duration::from_secs(10));
    });
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

/// As a client does that opens calls only to give them up.
#[test]
fn calls_that_are_given_up_without_end_take_nothing_from_a_promised_stream() {
    let place = both();
    let daemon = place.serve();
    let socket = place.path("g");
    eventually("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let (descriptors, going) = (daemon.count("fd"), AtomicBool::new(true));
    let given_up = std::thread::scope(|scope| {
        let flood = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut given_up = 0;
            runtime.block_on(async {
                while going.load(Ordering::Relaxed) {
                    let mut sender = connect(&socket).await;
                    for number in 0..1000 {
                        // Half of them before they are all there.
                        let bytes = message("slow", &[0.0]);
                        let (bytes, ends) =
                            if number % 2 == 0 { (bytes, true) } else { (bytes[..7].to_vec(), false) };
                        if sender.ready().await.is_err() {
                            break;
                        }
                        let asked = sender.send_request(asked(&[], bytes, ends));
                        // Long enough for it to be sent.
                        let _ = tokio::time::timeout(Duration::from_micros(50), asked).await;
                        given_up += 1;
                    }
                }
            });
            given_up
        };
        let flood = scope.spawn(flood);
        let mut caller = Caller::of(&place);
        let mut answers = Vec::new();
        let began = now();
        while began.elapsed() < Duration::from_secs(3) {
            answers.push(caller.call("null", &call(&[1.0, 2.0, 3.0], json!({ "weir_stream": "front" }))));
            pause(Duration::from_millis(20));
        }
        going.store(false, Ordering::Relaxed);
        let answered = |answer: &Answer| answer.status == 200;
        assert!(answers.len() > 5 && answers.iter().all(answered), "of {}", answers.len());
        flood.join().expect("it floods")
    });
    assert!(given_up > 100, "{given_up}");
    assert_eq!(daemon.stream_status("front")["missed"]["late"], json!(0));
    eventually("no more than before", || (daemon.count("fd") <= descriptors + 2).then_some(()));
    assert!(daemon.resident_kib() < 1 << 20, "{} KiB", daemon.resident_kib());
}

#[test]
fn a_call_in_flight_is_answered_when_the_daemon_is_told_to_stop_and_half_a_call_does_not_hold_it() {
    let place = both();
    let mut daemon = place.serve();
    let socket = place.path("g");
    eventually("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (mut sender, mut other) = (connect(&socket).await, connect(&socket).await);
        let half = asked(&[], message("null", &[1.0; 3])[..9].to_vec(), false);
        let half = tokio::spawn(async move { other.send_request(half).await.map(drop) });
        // It is there, and read, before the other one.
        assert_eq!(status(&mut sender, asked(&[], message("null", &[1.0; 3]), true)).await.0, "0");
        let slow = asked(&[], message("slow", &[0.0]), true);
        let slow = tokio::spawn(async move { status(&mut sender, slow).await });
        while daemon.status()["services"][1]["running"] != json!(1) {
            tokio::task::yield_now().await;
        }
        daemon.signal(Signal::TERM);
        assert_eq!(slow.await.expect("it is answered").0, "0");
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
        half.abort();
    });
}

/// Streams of calls, each with the beginning of a message of `max-frame` bytes.
#[test]
fn messages_that_are_not_all_there_have_little_room_and_little_time_and_what_is_small_has_both() {
    const LARGE: usize = 4 << 20;
    let place = both();
    let text = std::fs::read_to_string(place.config()).expect("there");
    place.configure(text.replace("max-frame = 16384", &format!("max-frame = {LARGE}")));
    let daemon = place.serve();
    let socket = place.path("g");
    eventually("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let before = daemon.resident_kib();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut sender = connect(&socket).await;
        let of_stream = |bytes: Vec<u8>| {
            let mut request = asked(&[], bytes, false);
            *request.uri_mut() =
                "http://weir/inference.GRPCInferenceService/ModelStreamInfer".parse().expect("a path");
            request
        };
        // One that has said nothing yet, and one that has been answered, may last.
        let quiet: Vec<_> = [vec![], message("null", &[1.0; 3])]
            .into_iter()
            .map(|bytes| {
                let (mut sender, request) = (sender.clone(), of_stream(bytes));
                tokio::spawn(async move { status(&mut sender, request).await })
            })
            .collect();
        // Large ones that come have their turns.
        let whole: Vec<_> = (0..16)
            .map(|_| {
                let (mut sender, bytes) = (sender.clone(), message("null", &vec![1.0; LARGE / 6]));
                tokio::spawn(async move { status(&mut sender, asked(&[], bytes, true)).await })
            })
            .collect();
        for one in whole {
            let (code, text) = one.await.expect("it is told");
            assert!(code == "3" && text.contains("shape"), "{code}: {text}");
        }
        let halves: Vec<_> = (0..24)
            .map(|_| {
                let head = [&[0][..], &(LARGE as u32).to_be_bytes()].concat();
                let request = of_stream([head, vec![0; LARGE - 1]].concat());
                let mut sender = sender.clone();
                tokio::spawn(async move { status(&mut sender, request).await })
            })
            .collect();
        let began = now();
        let mut most = 0;
        while halves.iter().any(|half| !half.is_finished()) {
            assert!(began.elapsed() < Duration::from_secs(40), "they end");
            let small = asked(&[], message("null", &[1.0, 2.0, 3.0]), true);
            assert_eq!(status(&mut sender, small).await.0, "0");
            most = most.max(daemon.resident_kib());
            tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.ok();
        }
        let mut told = Vec::new();
        for half in halves {
            told.push(half.await.expect("it is told"));
        }
        println!("{told:?} with {} KiB more", most.saturating_sub(before));
        // Those that waited for room may have found it in the last instant.
        let late = |(code, text): &(String, String)| {
            code == "3" && text.contains("the body did not come within 10s")
                || code == "8" && text.contains("there was no room for a message")
        };
        assert!(told.iter().all(late), "{told:?}");
        // All of them would be 96 MiB. Two, what each may have on its way, and what the allocator keeps of those before.
        assert!(most - before < 64 << 10, "{} KiB more", most - before);
        assert!(quiet.iter().all(|stream| !stream.is_finished()), "those that say nothing last");
    });
}
