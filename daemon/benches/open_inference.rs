//! What the daemon adds to a call of the Open Inference Protocol over gRPC: its whole round trip on a null service against an echo of
//! tonic's own server with the same messages, in one run, each server a process of its own with one thread.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Server, serve};
use tonic::codegen::tokio_stream::Empty;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use weir_oip::grpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use weir_oip::grpc::inference::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use weir_oip::grpc::inference::model_infer_request::InferInputTensor;
use weir_oip::grpc::inference::model_infer_response::InferOutputTensor;
use weir_oip::grpc::inference::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest,
    ModelStatisticsResponse, ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest,
    ServerReadyResponse,
};

/// Values of a request and of its answer: 256 bytes each way.
const VALUES: usize = 64;
/// The two take turns in blocks, so that a disturbance of the machine falls on both.
const BLOCKS: usize = 40;
const PER_BLOCK: usize = 500;
const LIMIT: f64 = 1.3;

type Client = GrpcInferenceServiceClient<Channel>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let [_, role, address] = &arguments[..]
        && role == "echo"
    {
        return runtime.block_on(echo(address.parse().expect("an address")));
    }
    let (echo, ours) = (free(), free());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = std::env::current_exe().expect("own path");
    let command = Command::new(own).arg("echo").arg(echo.to_string()).spawn();
    let _echo = Server(command.expect("the echo starts"));
    let text = format!(
        "[daemon]\nsocket = \"weir.sock\"\nprofile = \"null.profile.json\"\nrealtime = false\nbus = \"off\"\noip.grpc = \"{ours}\"\n\
         [[service]]\nname = \"null\"\nengine = \"simulated\"\ndeadline = \"1s\"\nguard = \"500ms\"\nhandover = \"1us\"\nqueue = 65536\n\
         max-batch = 1\nsimulated = {{ times = [\"0ms\"], input = {VALUES}, output = {VALUES} }}\n"
    );
    let _daemon = serve(folder.path(), &text);
    let (bare, ours) = runtime.block_on(measure(echo, ours));
    println!("round trip of {} bytes over gRPC, {} calls a server\n", 4 * VALUES, BLOCKS * PER_BLOCK);
    println!("| | echo of tonic | weir, null service | ratio | limit |\n|---|---|---|---|---|");
    for (name, share) in [("p50", 0.50), ("p90", 0.90), ("p99", 0.99)] {
        let at = |times: &[Duration]| times[(times.len() as f64 * share) as usize];
        let ratio = at(&ours).as_secs_f64() / at(&bare).as_secs_f64();
        let verdict = if ratio <= LIMIT { "kept" } else { "MISSED" };
        println!("| {name} | {:.1?} | {:.1?} | {ratio:.2} | {LIMIT} {verdict} |", at(&bare), at(&ours));
    }
}

/// Sorted round trips of both.
async fn measure(echo: SocketAddr, ours: SocketAddr) -> (Vec<Duration>, Vec<Duration>) {
    let mut clients = [connect(echo).await, connect(ours).await];
    let mut times: [Vec<Duration>; 2] = Default::default();
    for block in 0..=BLOCKS {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            for _ in 0..PER_BLOCK {
                let call = call();
                let began = now();
                let answer = client.model_infer(call).await.expect("an answer").into_inner();
                times.push(began.elapsed());
                assert_eq!(answer.raw_output_contents[0].len(), 4 * VALUES);
            }
        }
        if block == 0 {
            // The first block warms both up.
            times = Default::default();
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let [bare, ours] = times;
    (bare, ours)
}

fn call() -> ModelInferRequest {
    let input = InferInputTensor {
        name: "input".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![VALUES as i64],
        ..InferInputTensor::default()
    };
    ModelInferRequest {
        model_name: "null".to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![vec![0; 4 * VALUES].into()],
        ..ModelInferRequest::default()
    }
}

/// Once it answers.
async fn connect(address: SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    for _ in 0..500 {
        if let Ok(channel) = endpoint.connect().await {
            return Client::new(channel);
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("the server did not come up within 5 s");
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

async fn echo(address: SocketAddr) {
    let server = tonic::transport::Server::builder().tcp_nodelay(true);
    let service = GrpcInferenceServiceServer::new(Echo);
    server.serve(address, service).await.expect("it serves");
}

/// Sends the tensor back.
struct Echo;

/// What the bench does not call.
fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("an echo"))
}

#[tonic::async_trait]
impl GrpcInferenceService for Echo {
    type ModelStreamInferStream = Empty<Result<ModelStreamInferResponse, Status>>;

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let request = request.into_inner();
        let output = InferOutputTensor {
            name: "output".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![VALUES as i64],
            ..InferOutputTensor::default()
        };
        Ok(Response::new(ModelInferResponse {
            model_name: request.model_name,
            model_version: "1".to_owned(),
            outputs: vec![output],
            raw_output_contents: request.raw_input_contents,
            ..ModelInferResponse::default()
        }))
    }

    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        none()
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        none()
    }

    async fn model_ready(
        &self,
        _: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        none()
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        none()
    }

    async fn model_metadata(
        &self,
        _: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        none()
    }

    async fn model_stream_infer(
        &self,
        _: Request<tonic::Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        none()
    }

    async fn model_config(
        &self,
        _: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        none()
    }

    async fn model_statistics(
        &self,
        _: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        none()
    }

    async fn repository_index(
        &self,
        _: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        none()
    }
}

/// A bench measures with the clock of the standard library.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
