//! The Open Inference Protocol as clients seldom speak it over HTTP: calls cut, joined, compressed and wrong; and calls while the
//! configuration changes.

mod grpc;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::oip::{Answer, Caller, call, place};
use crate::harness::pause;
use serde_json::{Value, json};

const INFER: &str = "POST /v2/models/null/infer HTTP/1.1\r\nHost: weir\r\n";

fn good() -> Vec<u8> {
    call(&[1.0, 2.0, 3.0], json!({})).to_string().into_bytes()
}

/// A body in pieces of so many bytes.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let piece = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let mut all: Vec<u8> = body.chunks(size).flat_map(piece).collect();
    all.extend(b"0\r\n\r\n");
    all
}

#[test]
fn a_call_over_http_is_answered_however_its_bytes_are_cut_and_joined() {
    let place = place("");
    let _daemon = place.serve();
    let mut caller = Caller::of(&place);
    // Several at once, each answered in its turn.
    let length = format!("Content-Length: {}\r\n", good().len());
    let whole =
        |more: &str| [INFER.as_bytes(), length.as_bytes(), more.as_bytes(), b"\r\n", &good()].concat();
    let stream = "weir-stream: piped\r\n";
    caller.0.write_all(&whole(stream).repeat(40)).expect("sent");
    for number in 0..40 {
        let answer = caller.answer();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["parameters"]["weir_sequence"], json!(number));
    }
    for pieces in [1, 7, 4096] {
        let head = [INFER.as_bytes(), b"Transfer-Encoding: Chunked\r\n\r\n"].concat();
        caller.0.write_all(&[head, chunked(&good(), pieces)].concat()).expect("sent");
        assert_eq!(caller.answer().status, 200, "in pieces of {pieces}");
    }
    // Whoever asks first, and may.
    let asks = [INFER.as_bytes(), length.as_bytes(), b"Expect: 100-continue\r\n\r\n"].concat();
    caller.0.write_all(&asks).expect("sent");
    assert_eq!(caller.answer().status, 100);
    caller.0.write_all(&good()).expect("sent");
    assert_eq!(caller.answer().status, 200);
    // Nonsense behind a call ends the connection, and takes nothing from the call.
    caller.0.write_all(&[whole(""), b"nonsense\r\n\r\n".to_vec()].concat()).expect("sent");
    assert_eq!(caller.answer().status, 200);
    assert_eq!(caller.answer().status, 400);
    assert_eq!(caller.0.read(&mut [0]).expect("closed"), 0);
}

#[test]
fn a_call_over_http_that_is_not_what_it_says_is_refused_by_name() {
    let place = place("");
    let daemon = place.serve();
    let mut caller = Caller::of(&place);
    let mut refused = |headers: &str, body: &[u8], status: u16, words: &str| {
        caller.send("POST /v2/models/null/infer", headers, body);
        let answer = caller.answer();
        assert_eq!(answer.status, status, "{headers}");
        assert!(answer.error().contains(words), "{headers}: {}", answer.error());
    };
    refused("Content-Encoding: gzip\r\n", b"\x1f\x8b", 501, "content-encoding gzip is not supported");
    refused("", b"\x1f\x8b\x08", 400, "invalid utf-8");
    let twice = "must be said once, not \"a\" and \"b\"";
    refused("weir-stream: a\r\nweir-stream: b\r\n", &good(), 400, twice);
    refused("weir-stream: a\r\nweir_stream: b\r\n", &good(), 400, twice);
    refused("weir-class: a\r\nweir_class: b\r\n", &good(), 400, twice);
    refused(&format!("weir-stream: {}\r\n", "s".repeat(65)), &good(), 400, "1..=64 bytes");
    refused(&format!("weir-stream: {}\r\n", "s".repeat(50_000)), &good(), 400, "limit 255");
    refused("weir-stream: \r\n", &good(), 400, "1..=64 bytes");
    let mut tensors = |inputs: Value, outputs: Value, words: &str| {
        refused("", json!({ "inputs": inputs, "outputs": outputs }).to_string().as_bytes(), 400, words);
    };
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({ "name": name, "datatype": datatype, "shape": shape, "data": data });
    let fits = input("input", "FP32", json!([3]), json!([1, 2, 3]));
    tensors(json!([fits, fits]), json!([]), "input \"input\" is there twice");
    tensors(json!([fits]), json!([{ "name": "other" }]), "output \"other\" of model null is none of: output");
    tensors(json!([fits]), json!([{ "name": "output" }, { "name": "output" }]), "is wanted twice");
    tensors(
        json!([input("input", "BYTES", json!([3]), json!(["a", "b", "c"]))]),
        json!([]),
        "is of type BYTES",
    );
    tensors(json!([input("input", "FP32", json!([0]), json!([]))]), json!([]), "is of shape [0]");
    tensors(json!([input("input", "FP32", json!([]), json!([]))]), json!([]), "is of shape []");
    tensors(json!([input("input", "FP32", json!([3]), json!([1, "2", 3]))]), json!([]), "data[1]");
    // Compressed on the way, which a client is not asked for.
    let mut caller = Caller::of(&place);
    let head = [INFER.as_bytes(), b"Transfer-Encoding: gzip, chunked\r\n\r\n"].concat();
    caller.0.write_all(&[head, chunked(b"\x1f\x8b", 2)].concat()).expect("sent");
    let answer = caller.answer();
    assert_eq!((answer.status, answer.error().contains("transfer-encoding gzip")), (501, true));
    for what in ["OPTIONS /v2", "HEAD /v2/models/null/infer", "PUT /v2/models/null/infer", "TRACE /v2"] {
        let mut caller = Caller::of(&place);
        caller.send(what, "", b"");
        assert_eq!(head_of(&mut caller), 404, "{what}");
    }
    assert_eq!(daemon.status()["services"][0]["served"], json!(0), "nothing of it was run");
}

/// The status of an answer that may have no body, whatever it says.
fn head_of(caller: &mut Caller) -> u16 {
    let mut head = [0; 12];
    caller.0.read_exact(&mut head).expect("an answer");
    str::from_utf8(&head[9..]).ok().and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn each_call_is_answered_once_while_the_configuration_changes() {
    let place = place("");
    let daemon = place.serve();
    let going = AtomicBool::new(true);
    let text = std::fs::read_to_string(place.config()).expect("there");
    let answered = std::thread::scope(|scope| {
        let sending = ["front", "own", "open-inference"].map(|stream| {
            let (place, going) = (&place, &going);
            scope.spawn(move || {
                let (mut caller, mut count) = (Caller::of(place), 0);
                while going.load(Ordering::Relaxed) {
                    let answer =
                        caller.call("null", &call(&[1.0, 2.0, 3.0], json!({ "weir_stream": stream })));
                    // What nothing is promised for, and waits just then, is told so.
                    let cancelled = |answer: &Answer| {
                        let told = format!("no answer in time to request {count}: cancelled");
                        stream != "front" && answer.status == 503 && answer.error() == told
                    };
                    let sequence = || answer.json()["parameters"]["weir_sequence"] == json!(count);
                    assert!(cancelled(&answer) || answer.status == 200 && sequence(), "{stream}: {answer:?}");
                    count += 1;
                    pause(Duration::from_millis(15));
                }
                count
            })
        });
        for deadline in ["19s", "18s", "17s", "20s"] {
            place.configure(text.replace("\"20s\"", &format!("\"{deadline}\"")));
            assert!(daemon.reload_accepted().contains("deadline"));
            pause(Duration::from_millis(100));
        }
        going.store(false, Ordering::Relaxed);
        sending.map(|sent| sent.join().expect("each is answered"))
    });
    assert!(answered.iter().all(|&count: &i32| count > 3), "{answered:?}");
}
