//! A server of the Open Inference Protocol beside the tests, which runs models on tract: what the oip engine is held to the other
//! engines by. It speaks HTTP by hand, so that two ends of one library do not agree on what is wrong; gRPC below.

mod grpc;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::{Value, json};
use weir_client::TensorInfo;
use weir_oip::{Call, Model, name_of, pack};

use super::*;

/// Has a server of its own load the model on tract, for as long as the runner is connected, and calls it over HTTP.
pub(super) fn remotely(
    spec: &ModelSpec,
    max_batch: usize,
    modes: Option<&[RunMode]>,
) -> Result<Box<dyn Runner>, EngineError> {
    called("http", Server::serve, (spec, max_batch, modes))
}

/// The same over gRPC.
pub(super) fn by_grpc(
    spec: &ModelSpec,
    max_batch: usize,
    modes: Option<&[RunMode]>,
) -> Result<Box<dyn Runner>, EngineError> {
    called("grpc", grpc::serve, (spec, max_batch, modes))
}

fn called(
    scheme: &str,
    serve: fn(Server, &TcpListener),
    (spec, max_batch, modes): (&ModelSpec, usize, Option<&[RunMode]>),
) -> Result<Box<dyn Runner>, EngineError> {
    // What is wrong with the file, the server finds; what is wrong with the question, whoever asks.
    let largest = max_batch.clamp(1, MAX_BATCH);
    let batched = has_batches(&Backend::TRACT, spec)?;
    let how = vec![RunMode::Batched; largest];
    let engine = Engine::Real { backend: &Backend::TRACT, modes: Some(&how) };
    let runner = load(engine, spec, largest)?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = Server { runner, spec: spec.clone(), batched };
    std::thread::spawn(move || serve(server, &listener));
    let remote = Remote {
        addresses: vec![address],
        model: "there".to_owned(),
        version: None,
        stream: None,
        timeout: Duration::from_secs(60),
        tls: None,
    };
    let backend = Backend { kind: EngineKind::Oip, remote: Some(remote), ..Backend::TRACT };
    load(Engine::Real { backend: &backend, modes }, spec, max_batch)
}

struct Server {
    runner: Box<dyn Runner>,
    spec: ModelSpec,
    batched: bool,
}

impl Server {
    fn serve(mut self, listener: &TcpListener) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some((path, header, body)) = request(&mut reader) {
            let (status, body) = match path.as_str() {
                "/v2" => {
                    (200, json!({ "name": "tract", "version": "1", "extensions": ["binary_tensor_data"] }))
                }
                "/v2/models/there/ready" => (200, json!({})),
                "/v2/models/there" => (200, self.metadata()),
                path if path.ends_with("/infer") => match self.infer_json(&body, header) {
                    Ok((json, binary)) => {
                        answer(&stream, 200, Some(json.to_string()), &binary);
                        continue;
                    }
                    Err(error) => (400, json!({ "error": error })),
                },
                _ => (404, json!({ "error": "nothing is there" })),
            };
            answer(&stream, status, None, body.to_string().as_bytes());
        }
    }

    fn metadata(&self) -> Value {
        let one = |tensor: &TensorSpec, counts: bool| {
            let mut shape: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
            if let Some(place) = tensor.batch.place().filter(|_| counts) {
                shape.insert(place, if self.batched { -1 } else { 1 });
            }
            json!({ "name": tensor.name, "datatype": name_of(tensor.info().data_type), "shape": shape })
        };
        let constants = self.spec.constants.iter().map(|constant| one(&constant.tensor, false));
        let inputs: Vec<_> =
            self.spec.inputs.iter().map(|tensor| one(tensor, true)).chain(constants).collect();
        let outputs: Vec<_> = self.spec.outputs.iter().map(|tensor| one(tensor, true)).collect();
        json!({ "name": "there", "versions": ["7"], "platform": "tract", "inputs": inputs, "outputs": outputs })
    }

    /// The JSON of the answer and what follows it.
    fn infer_json(&mut self, body: &[u8], header: Option<usize>) -> Result<(Value, Vec<u8>), String> {
        let call = weir_oip::http::call(body, header).map_err(|error| error.to_string())?;
        let (mut listed, mut binary) = (Vec::new(), Vec::new());
        for (tensor, bytes) in self.infer(&call)? {
            listed.push(
                json!({ "name": tensor.name, "datatype": name_of(tensor.data_type), "shape": tensor.shape,
                "parameters": { "binary_data_size": bytes.len() } }),
            );
            binary.extend(bytes);
        }
        Ok((json!({ "model_name": "there", "model_version": "7", "outputs": listed }), binary))
    }

    /// The outputs of a call, as they lie in memory.
    fn infer(&mut self, call: &Call<'_>) -> Result<Vec<(TensorInfo, Vec<u8>)>, String> {
        let first = &self.spec.inputs[0];
        let shape = &call.inputs.iter().find(|input| input.name == first.name).ok_or("no input")?.shape;
        let batch = first.batch.place().map_or(1, |place| shape[place] as usize);
        let of = |tensor: &TensorSpec| {
            let mut info = tensor.info();
            info.shape = tensor.file_shape(batch).iter().map(|&size| size as u32).collect();
            info
        };
        let constants = self.spec.constants.iter().map(|constant| constant.tensor.info());
        let inputs: Vec<_> = self.spec.inputs.iter().map(of).chain(constants).collect();
        let outputs: Vec<_> = self.spec.outputs.iter().map(of).collect();
        let mut packed = Vec::new();
        let model = Model { name: "there", inputs: &inputs, outputs: &outputs };
        pack(&model, call, &mut packed).map_err(|error| error.to_string())?;
        let mut at = 0;
        for (number, tensor) in inputs.iter().enumerate() {
            at = usize::next_multiple_of(at, 8);
            let bytes = &packed[at..][..tensor.bytes().unwrap()];
            at += bytes.len();
            if let Some(spec) = self.spec.inputs.get(number) {
                let mut requests = vec![0; bytes.len()];
                layout::Layout::of(spec).gather(batch, bytes, &mut requests);
                self.runner.buffers().write(Side::Input, number, 0, &requests);
            }
        }
        // What panics here, a server of its own would have survived.
        let ran = catch_unwind(AssertUnwindSafe(|| self.runner.run(batch)));
        ran.map_err(|_| "it panicked".to_owned())?.map_err(|error| error.to_string())?;
        let output = |(number, (tensor, spec)): (usize, (&TensorInfo, &TensorSpec))| {
            let mut requests = vec![0; tensor.bytes().unwrap()];
            self.runner.buffers().read(Side::Output, number, 0, &mut requests);
            let mut bytes = requests.clone();
            layout::Layout::of(spec).spread(batch, &requests, &mut bytes);
            (tensor.clone(), bytes)
        };
        Ok(outputs.iter().zip(&self.spec.outputs).enumerate().map(output).collect())
    }
}

/// The path, the length of the JSON, and the body; `None` once the other end has gone.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Option<usize>, Vec<u8>)> {
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

/// Answers with `json`, if there is any, and behind it what is binary.
fn answer(mut stream: &TcpStream, status: u16, json: Option<String>, rest: &[u8]) {
    let mut head = format!("HTTP/1.1 {status} x\r\n");
    if let Some(json) = &json {
        write!(head, "Inference-Header-Content-Length: {}\r\n", json.len()).unwrap();
    }
    let json = json.unwrap_or_default();
    write!(head, "Content-Length: {}\r\n\r\n{json}", json.len() + rest.len()).unwrap();
    // Who asked may have gone.
    let _ = stream.write_all(&[head.as_bytes(), rest].concat());
}
