//! Workers that are servers of gRPC: a bare one that doubles numbers, well or in a way that nobody should, and another Weir.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::liar::Behaviour;
use super::{PATIENT, alive, answered, back, front, infer, profiled, says, told};
use crate::harness::{Listener, eventually, pause};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tonic::codegen::Service as _;
use tonic::codegen::tokio_stream::Empty;
use tonic::{Request, Response, Status};
use weir_client::{MissReason, SafeModeCause};
use weir_oip::grpc::inference::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use weir_oip::grpc::inference::model_infer_response::InferOutputTensor;
use weir_oip::grpc::inference::model_metadata_response::TensorMetadata;
use weir_oip::grpc::inference::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest,
    ModelStatisticsResponse, ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest,
    ServerReadyResponse,
};

/// A server, which ends when dropped, with its connections.
struct Bare {
    runtime: Option<Runtime>,
    address: SocketAddr,
    service: Doubles,
}

#[derive(Clone)]
struct Doubles {
    behaviour: Arc<Mutex<Behaviour>>,
    /// A call that nobody waits for any more was given up.
    cancelled: Arc<AtomicBool>,
    /// How long the caller waits, as it says.
    within: Arc<Mutex<Option<String>>>,
}

impl Bare {
    fn new() -> Self {
        let (behaviour, cancelled, within) = (Behaviour::Well, Arc::default(), Arc::default());
        let service = Doubles { behaviour: Arc::new(Mutex::new(behaviour)), cancelled, within };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        drop(listener);
        let mut own = Self { runtime: None, address, service };
        own.start();
        own
    }

    /// Listens, at its own address.
    fn start(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (service, address) = (GrpcInferenceServiceServer::new(self.service.clone()), self.address);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::bind(address).await.expect("its own address");
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let service = service.clone();
                let answer =
                    service_fn(move |request: hyper::Request<Incoming>| service.clone().call(request));
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        eventually("the server", || std::net::TcpStream::connect(address).ok());
        self.runtime = Some(runtime);
    }

    /// Hangs up, and is gone.
    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(60));
        }
    }

    fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.service.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_asked_over_grpc_says_how_long_it_waits_and_is_cancelled_when_it_no_longer_does() {
    let mut bare = Bare::new();
    let place = front("toy", &bare.url(), ", timeout = \"10s\"");
    profiled(&place, [100, 100]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    assert_eq!(answered(&daemon, "far", &[1.0, -2.0]), [2.0, -4.0]);
    assert_eq!(bare.service.within.lock().expect("no panic").as_deref(), Some("10000000u"));

    bare.behave(Behaviour::Late);
    assert_eq!(answered(&daemon, "far", &[1.0, 0.5]), [2.0, 1.0], "late is better than never");
    told(&mut listener, SafeModeCause::ServiceOverrun);

    bare.behave(Behaviour::Silent);
    assert!(!bare.service.cancelled.load(Ordering::Relaxed));
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::WorkerLost));
    eventually("the call's end", || bare.service.cancelled.load(Ordering::Relaxed).then_some(()));
    told(&mut listener, SafeModeCause::WorkerLost);
    bare.behave(Behaviour::Well);
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &[3.0, 0.5]), [6.0, 1.0]);

    // Idle: nobody has to ask to see that it has gone.
    bare.stop();
    alive(&daemon, 0);
    says(&daemon, "hung up while idle");
    assert_eq!(infer(&daemon, "near", &[1.0, 2.0]), Ok(vec![1.0, 2.0]), "who is beside it does not notice");
    bare.start();
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &[3.0, 0.5]), [6.0, 1.0]);
}

#[test]
fn whatever_a_server_says_over_grpc_is_bounded_and_told() {
    let bare = Bare::new();
    let place = front("toy", &bare.url(), PATIENT);
    profiled(&place, [2_000, 2_000]);
    let daemon = place.serve();
    for (behaviour, reason, words) in [
        (Behaviour::Endless, MissReason::WorkerLost, "its answer has more than the"),
        (Behaviour::OtherShape, MissReason::WorkerLost, "output \"out\" is of shape"),
        (Behaviour::TooFew, MissReason::WorkerLost, "has 4 bytes, 8 are expected"),
        (Behaviour::HangsUp, MissReason::WorkerLost, "the connection to grpc://"),
        (Behaviour::Refuses, MissReason::EngineFailed, "it answered RESOURCE_EXHAUSTED: not  now"),
    ] {
        answered(&daemon, "far", &[1.0, 0.5]);
        bare.behave(behaviour);
        assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(reason), "{behaviour:?}: {}", daemon.stderr());
        says(&daemon, words);
        bare.behave(Behaviour::Well);
        alive(&daemon, 1);
    }
    // Of one that refuses anything the worker is lost, and comes back with it.
    answered(&daemon, "far", &[1.0, 0.5]);
    for (behaviour, words) in [
        (Behaviour::RefusesAll, "running a batch of 1 failed: it answered UNAVAILABLE"),
        (Behaviour::Unready, "model toy is not ready"),
    ] {
        bare.behave(behaviour);
        let reasons = [(); 2].map(|()| infer(&daemon, "far", &[1.0, 0.5]).expect_err("a miss"));
        assert_eq!(reasons, [MissReason::EngineFailed, MissReason::WorkerLost], "{behaviour:?}");
        says(&daemon, "it refuses a request of zeros as well: it answered UNAVAILABLE: not ready");
        says(&daemon, words);
        alive(&daemon, 0);
        bare.behave(Behaviour::Well);
        alive(&daemon, 1);
        answered(&daemon, "far", &[1.0, 0.5]);
    }
    // As another version than before.
    bare.behave(Behaviour::NewVersion);
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::WorkerLost));
    says(&daemon, "version 2 of the model answers, version 1 did before");
    says(&daemon, "run `weir profile`");
    alive(&daemon, 0);
}

#[test]
fn a_weir_serves_over_grpc_what_another_computes() {
    let (back_place, picture) = (back(), vec![0.25; 28 * 28]);
    let text = std::fs::read_to_string(back_place.config()).expect("there");
    back_place.configure(text.replace("http = \"unix:h\"", "grpc = \"unix:g\""));
    let mut back = back_place.serve();
    let expected = answered(&back, "digits", &picture);
    let url = format!("grpc+unix:{}", back_place.path("g").display());
    let more = ", model = \"digits\", stream = \"front\", timeout = \"60s\"";
    let place = front("digits-s", &url, more);
    place.succeed(&["check"]);
    profiled(&place, [2_000, 4_000]);
    let profile = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    assert!(profile.contains(&format!("{url} digits by weir")), "{profile}");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    assert_eq!(answered(&daemon, "far", &picture), expected, "bit for bit");
    let served = back.stream_status("front")["served"].as_u64();
    assert!(served.is_some_and(|served| served > 0), "its calls belong to its stream: {served:?}");
    back.signal(Signal::KILL);
    back.wait();
    told(&mut listener, SafeModeCause::WorkerLost);
    alive(&daemon, 0);
    let _back = back_place.serve();
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &picture), expected);
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Doubles {
    type ModelStreamInferStream = Empty<Result<ModelStreamInferResponse, Status>>;

    async fn server_metadata(&self, _: Request<ServerMetadataRequest>) -> Answer<ServerMetadataResponse> {
        let (name, version) = ("bare".to_owned(), "1".to_owned());
        Ok(Response::new(ServerMetadataResponse { name, version, extensions: Vec::new() }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ready = self.behaviour() != Behaviour::Unready;
        Ok(Response::new(ModelReadyResponse { ready: ready && request.into_inner().name == "toy" }))
    }

    async fn model_metadata(&self, _: Request<ModelMetadataRequest>) -> Answer<ModelMetadataResponse> {
        let tensor = |name: &str| {
            vec![TensorMetadata { name: name.to_owned(), datatype: "FP32".to_owned(), shape: vec![-1, 2] }]
        };
        Ok(Response::new(ModelMetadataResponse {
            name: "toy".to_owned(),
            versions: vec![self.version()],
            platform: String::new(),
            inputs: tensor("in"),
            outputs: tensor("out"),
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let within = request.metadata().get("grpc-timeout").and_then(|within| within.to_str().ok());
        *self.within.lock().unwrap_or_else(PoisonError::into_inner) = within.map(str::to_owned);
        let call = request.into_inner();
        let (mut shape, behaviour) = (call.inputs[0].shape.clone(), self.behaviour());
        let values = call.raw_input_contents[0].as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let mut doubled: Vec<u8> = values.flat_map(|value| (2.0 * value).to_le_bytes()).collect();
        match behaviour {
            Behaviour::Late => pause(Duration::from_millis(500)),
            Behaviour::Silent => {
                let _dropped = Dropped(Arc::clone(&self.cancelled));
                std::future::pending::<()>().await;
            }
            Behaviour::Endless => doubled = vec![0; 1 << 20],
            Behaviour::OtherShape => shape[1] = 3,
            Behaviour::TooFew => doubled.truncate(4),
            Behaviour::Refuses => return Err(Status::resource_exhausted("not\n\tnow")),
            Behaviour::RefusesAll | Behaviour::Unready => return Err(Status::unavailable("not ready")),
            Behaviour::HangsUp => panic!("as it was told"),
            _ => {}
        }
        let output = InferOutputTensor {
            name: "out".to_owned(),
            datatype: "FP32".to_owned(),
            shape,
            ..InferOutputTensor::default()
        };
        Ok(Response::new(ModelInferResponse {
            model_name: "toy".to_owned(),
            model_version: self.version(),
            outputs: vec![output],
            raw_output_contents: vec![doubled.into()],
            ..ModelInferResponse::default()
        }))
    }

    // Of what follows nothing is asked.

    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Err(Status::unimplemented("live"))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        Err(Status::unimplemented("ready"))
    }

    async fn model_stream_infer(
        &self,
        _: Request<tonic::Streaming<ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        Err(Status::unimplemented("stream"))
    }

    async fn model_config(&self, _: Request<ModelConfigRequest>) -> Answer<ModelConfigResponse> {
        Err(Status::unimplemented("config"))
    }

    async fn model_statistics(&self, _: Request<ModelStatisticsRequest>) -> Answer<ModelStatisticsResponse> {
        Err(Status::unimplemented("statistics"))
    }

    async fn repository_index(&self, _: Request<RepositoryIndexRequest>) -> Answer<RepositoryIndexResponse> {
        Err(Status::unimplemented("index"))
    }
}

impl Doubles {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self) -> String {
        if self.behaviour() == Behaviour::NewVersion { "2" } else { "1" }.to_owned()
    }
}
