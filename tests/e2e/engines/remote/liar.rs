//! A server of the Open Inference Protocol that doubles numbers, well or in a way that nobody should.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::harness::pause;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What it does with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behaviour {
    Well,
    /// Well, after longer than its bound.
    Late,
    Silent,
    /// Hangs up within its answer, or says no more.
    Half,
    Stalls,
    NoHttp,
    /// Sends without end what it says is endless.
    Endless,
    OtherShape,
    /// Less binary data than it says.
    TooFew,
    NoJson,
    /// Once more what it answered before.
    Again,
    HangsUp,
    /// Refuses what is not all zeros.
    Refuses,
    /// Is not ready, whatever is asked.
    Unready,
    /// Says that it is ready, and refuses all that it is to compute.
    RefusesAll,
    /// Says that its model has another shape, and hangs up on calls.
    OtherModel,
    /// Well, as another version of the model than before.
    NewVersion,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    /// Somebody who waited has gone.
    abandoned: AtomicBool,
    calls: AtomicUsize,
    /// The answer to the call before.
    before: Mutex<Vec<u8>>,
}

/// A server, which ends with the test.
pub(super) struct Liar {
    folder: TempDir,
    shared: Arc<Shared>,
}

impl Liar {
    /// One that behaves well, in two threads for each connection.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("h")).expect("a socket");
        let behaviour = Mutex::new(Behaviour::Well);
        let (abandoned, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Arc::new(Shared { behaviour, abandoned, calls, before: Mutex::default() });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&all);
                std::thread::spawn(move || converse(&stream, &shared));
            }
        });
        Self { folder, shared }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("h")
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
    }

    /// Whether somebody who waited for it has hung up.
    pub(super) fn abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::Relaxed)
    }
}

fn converse(mut stream: &UnixStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (path, header, body) = request(&mut reader)?;
        let behaviour = *shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner);
        let version = if behaviour == Behaviour::NewVersion { "2" } else { "1" };
        let elements = if behaviour == Behaviour::OtherModel { 3 } else { 2 };
        let tensor = |name: &str| json!([{ "name": name, "datatype": "FP32", "shape": [-1, elements] }]);
        if behaviour == Behaviour::Unready {
            stream.write_all(&answer(503, None, b"{\"error\":\"it still loads\"}")).ok()?;
            continue;
        }
        let said = match path.as_str() {
            "/v2" => json!({ "name": "liar", "version": "1", "extensions": ["binary_tensor_data"] }),
            "/v2/models/toy/ready" => json!({}),
            "/v2/models/toy" => {
                json!({ "name": "toy", "versions": [version], "inputs": tensor("in"), "outputs": tensor("out") })
            }
            "/v2/models/toy/infer" => {
                shared.calls.fetch_add(1, Ordering::Relaxed);
                let json: Value = serde_json::from_slice(&body[..header?]).ok()?;
                call(stream, shared, behaviour, (&json, &body[header?..]), version)?;
                continue;
            }
            _ => return None,
        };
        stream.write_all(&answer(200, None, said.to_string().as_bytes())).ok()?;
        stream.flush().ok()?;
    }
}

/// Answers a call, or does not.
fn call(
    mut stream: &UnixStream,
    shared: &Shared,
    behaviour: Behaviour,
    (json, binary): (&Value, &[u8]),
    version: &str,
) -> Option<()> {
    let mut shape = json["inputs"][0]["shape"].clone();
    let doubled =
        binary.as_chunks().0.iter().flat_map(|&bytes| (2.0 * f32::from_le_bytes(bytes)).to_le_bytes());
    let mut doubled: Vec<u8> = doubled.collect();
    let size = doubled.len();
    match behaviour {
        Behaviour::Late => pause(Duration::from_millis(500)),
        Behaviour::Silent => {
            let ended = stream.read(&mut [0]).is_ok_and(|read| read == 0);
            shared.abandoned.store(ended, Ordering::Relaxed);
            return None;
        }
        Behaviour::NoHttp => return stream.write_all(b"220 mail.example.org ESMTP\r\n\r\n").ok(),
        Behaviour::Endless => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            // Until the other end has had enough.
            while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
            return None;
        }
        Behaviour::OtherShape => shape[1] = json!(3),
        Behaviour::TooFew => doubled.truncate(4),
        Behaviour::NoJson => return stream.write_all(&answer(200, None, b"<html>")).ok(),
        Behaviour::HangsUp | Behaviour::OtherModel => return None,
        Behaviour::Refuses if doubled.iter().all(|&byte| byte == 0) => {}
        Behaviour::Refuses | Behaviour::RefusesAll | Behaviour::Unready => {
            return stream.write_all(&answer(429, None, b"{\"error\":\"not\\n\\tnow\"}")).ok();
        }
        Behaviour::Well | Behaviour::NewVersion | Behaviour::Again | Behaviour::Half | Behaviour::Stalls => {}
    }
    let output = json!({ "name": "out", "datatype": "FP32", "shape": shape,
        "parameters": { "binary_data_size": size } });
    let head =
        json!({ "model_name": "toy", "model_version": version, "id": json["id"], "outputs": [output] });
    let fresh = answer(200, Some(head.to_string()), &doubled);
    let before =
        std::mem::replace(&mut *shared.before.lock().unwrap_or_else(PoisonError::into_inner), fresh.clone());
    if matches!(behaviour, Behaviour::Half | Behaviour::Stalls) {
        stream.write_all(&fresh[..fresh.len() - 4]).ok()?;
        if behaviour == Behaviour::Stalls {
            let _ = stream.read(&mut [0]);
        }
        return None;
    }
    stream.write_all(if behaviour == Behaviour::Again { &before } else { &fresh }).ok()
}

/// The path, the length of the JSON, and the body; `None` once the other end has gone.
fn request(reader: &mut BufReader<UnixStream>) -> Option<(String, Option<usize>, Vec<u8>)> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_lowercase());
    }
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let number = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let mut body = vec![0; number("content-length:").unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((path, number("inference-header-content-length:"), body))
}

fn answer(status: u16, json: Option<String>, rest: &[u8]) -> Vec<u8> {
    let length = json.as_ref().map(|json| format!("Inference-Header-Content-Length: {}\r\n", json.len()));
    let (length, json) = (length.unwrap_or_default(), json.unwrap_or_default());
    let bytes = json.len() + rest.len();
    let head = format!("HTTP/1.1 {status} x\r\n{length}Content-Length: {bytes}\r\n\r\n{json}");
    [head.as_bytes(), rest].concat()
}
