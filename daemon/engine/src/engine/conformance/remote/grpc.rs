//! The server beside the tests over gRPC: hyper's HTTP/2 and the generated messages, and by hand what is between the two.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use weir_oip::grpc::inference::model_infer_response::InferOutputTensor;
use weir_oip::grpc::inference::model_metadata_response::TensorMetadata;
use weir_oip::grpc::inference::{
    ModelInferRequest, ModelInferResponse, ModelMetadataResponse, ModelReadyResponse, ServerMetadataResponse,
};

use super::Server;
use weir_oip::name_of;

/// Answers the calls of one connection until it ends.
pub(super) fn serve(server: Server, listener: &TcpListener) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let server = Arc::new(Mutex::new(server));
    runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap());
        let answer = service_fn(move |request| answer(Arc::clone(&server), request));
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // Windows of the least size there is, so that tensors take several.
        builder.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
        // Who asked may have gone.
        drop(builder.serve_connection(stream, answer).await);
    });
}

async fn answer(
    server: Arc<Mutex<Server>>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(
        (&request.headers()["te"], &request.headers()["grpc-timeout"]),
        (&"trailers".parse().unwrap(), &"60000000u".parse().unwrap())
    );
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!((body[0], u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize), (0, body.len() - 5));
    let said = match head.uri.path() {
        "/inference.GRPCInferenceService/ServerMetadata" => {
            let (name, version) = ("tract".to_owned(), "1".to_owned());
            Ok(ServerMetadataResponse { name, version, extensions: Vec::new() }.encode_to_vec())
        }
        "/inference.GRPCInferenceService/ModelReady" => {
            Ok(ModelReadyResponse { ready: true }.encode_to_vec())
        }
        "/inference.GRPCInferenceService/ModelMetadata" => Ok(metadata(&server.lock().unwrap())),
        "/inference.GRPCInferenceService/ModelInfer" => infer(&mut server.lock().unwrap(), &body[5..]),
        _ => Err("nothing is there".to_owned()),
    };
    let mut trailers = HeaderMap::new();
    let (status, said) = match said {
        Ok(said) => ("0", [&[0][..], &(said.len() as u32).to_be_bytes(), &said].concat()),
        Err(error) => {
            let plain: String = error.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect();
            trailers.insert("grpc-message", plain.replace('%', " ").parse().unwrap());
            ("3", Vec::new())
        }
    };
    trailers.insert("grpc-status", status.parse().unwrap());
    let body = Full::new(Bytes::from(said)).with_trailers(async { Some(Ok(trailers)) });
    Ok(Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap())
}

fn metadata(server: &Server) -> Vec<u8> {
    let told = server.metadata();
    let list = |side: &str| {
        let one = |tensor: &serde_json::Value| TensorMetadata {
            name: tensor["name"].as_str().unwrap().to_owned(),
            datatype: tensor["datatype"].as_str().unwrap().to_owned(),
            shape: tensor["shape"].as_array().unwrap().iter().map(|size| size.as_i64().unwrap()).collect(),
        };
        told[side].as_array().unwrap().iter().map(one).collect()
    };
    let (name, versions, platform) = ("there".to_owned(), vec!["7".to_owned()], "tract".to_owned());
    let (inputs, outputs) = (list("inputs"), list("outputs"));
    ModelMetadataResponse { name, versions, platform, inputs, outputs }.encode_to_vec()
}

fn infer(server: &mut Server, body: &[u8]) -> Result<Vec<u8>, String> {
    let message = ModelInferRequest::decode(body).map_err(|error| error.to_string())?;
    let call = weir_oip::grpc::call(&message).map_err(|error| error.to_string())?;
    let mut response = ModelInferResponse { model_version: "7".to_owned(), ..ModelInferResponse::default() };
    for (tensor, bytes) in server.infer(&call)? {
        response.outputs.push(InferOutputTensor {
            name: tensor.name,
            datatype: name_of(tensor.data_type).to_owned(),
            shape: tensor.shape.iter().copied().map(i64::from).collect(),
            ..InferOutputTensor::default()
        });
        response.raw_output_contents.push(bytes.into());
    }
    Ok(response.encode_to_vec())
}
