//! The protocol over gRPC: its calls, the stream of calls, and reflection.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rt_core::Span;
use tokio::sync::{mpsc, watch};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Response, Status};
use tonic_reflection::server::Builder;
use weir_oip::Refused;
use weir_oip::grpc::inference::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use weir_oip::grpc::inference::repository_index_response::ModelIndex;
use weir_oip::grpc::inference::{
    InferStatistics, ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatistics,
    ModelStatisticsRequest, ModelStatisticsResponse, ModelStreamInferResponse, RepositoryIndexRequest,
    RepositoryIndexResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest,
    ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse, StatisticDuration,
};
use weir_oip::grpc::{self, DESCRIPTORS};
use weir_oip::http::VERSION;

use super::asked::Asked;
use super::caller::{Caller, Unanswered};
use super::desk::{Desk, Fared};
use super::streams::wrong;
use super::timed::{Room, Timed};
use super::{CLASS, EXTENSIONS, STREAM, closed, text_beside};
use crate::local::Guest;

/// Where calls come one after the other, for as long as the client likes.
const CALLS_IN_A_STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
/// What the service is made of, likewise.
const REFLECTION: &str = "/grpc.reflection.";
/// Calls of a connection at a time; more wait at the client.
const CALLS: u32 = 32;
/// So much of a call is received before it is looked at: all of a connection have room for that, and none keeps another from coming.
const WINDOW: u32 = 256 << 10;

/// Answers the calls of one connection until it ends, or nothing more is to be answered.
pub(super) async fn converse(
    guest: Guest,
    desk: &Arc<Desk>,
    caller: &Arc<Caller>,
    mut stop: watch::Receiver<bool>,
) {
    let most = desk.config().max_frame;
    let room = Room::new(most);
    let own = Inference { desk: Arc::clone(desk), caller: Arc::clone(caller) };
    let inference = GrpcInferenceServiceServer::new(own.clone()).max_decoding_message_size(most as usize);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (own, mut inference, room) = (own.clone(), inference.clone(), room.clone());
        async move {
            let unanswered = Unanswered::new(&own.desk, &own.caller);
            let uri = request.uri().clone();
            let reflects = uri.path().starts_with(REFLECTION);
            let lasts = reflects || uri.path() == CALLS_IN_A_STREAM;
            let request = request.map(|body| Timed::new(body, lasts, room));
            let answer = if reflects {
                reflect(&own.desk, &own.caller, request).await
            } else {
                let answer = inference.call(request).await;
                // Of what it does not have it says so without a word.
                answer.map(|answer| match Status::from_header_map(answer.headers()) {
                    Some(told) if told.code() == Code::Unimplemented && told.message().is_empty() => {
                        Status::unimplemented(format!("{} is not supported here", uri.path())).into_http()
                    }
                    _ => answer,
                })
            };
            unanswered.end();
            answer
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CALLS * WINDOW)
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

/// What the service is made of, in both versions of that protocol. It is seldom asked for, so nothing is kept for it.
async fn reflect(
    desk: &Desk,
    caller: &Caller,
    request: Request<Timed>,
) -> Result<hyper::Response<Body>, Infallible> {
    let described = Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let failed = |error: tonic_reflection::server::Error| Ok(Status::internal(error.to_string()).into_http());
    let answer = if request.uri().path().starts_with("/grpc.reflection.v1.") {
        match described.build_v1() {
            Ok(mut service) => service.call(request).await,
            Err(error) => failed(error),
        }
    } else {
        match described.build_v1alpha() {
            Ok(mut service) => service.call(request).await,
            Err(error) => failed(error),
        }
    };
    desk.charge(caller, 0, false).await;
    answer
}

/// The service for one connection.
#[derive(Clone)]
struct Inference {
    desk: Arc<Desk>,
    caller: Arc<Caller>,
}

/// What is answered to a call.
type Answer<T> = Result<Response<T>, Status>;

impl Inference {
    /// An answer to what is no inference.
    async fn look<T>(&self, look: impl FnOnce(&Desk) -> Result<T, Refused> + Send) -> Answer<T> {
        let outcome = look(&self.desk);
        self.desk.charge(&self.caller, 0, false).await;
        outcome.map(Response::new).map_err(|refused| grpc::status(&refused))
    }

    async fn infer(&self, message: ModelInferRequest, beside: Beside) -> Result<ModelInferResponse, Refused> {
        let call = match grpc::call(&message) {
            Ok(call) => call,
            Err(refused) => {
                self.desk.charge(&self.caller, 0, false).await;
                return Err(refused);
            }
        };
        let Beside { stream, class, within } = beside;
        let (model, version) = (message.model_name.clone(), message.model_version.clone());
        let asked = Asked { model, version, stream, class, within, binary: true };
        let given = self.desk.infer(&self.caller, asked, &call).await?;
        Ok(grpc::response(&given.answer()))
    }
}

/// What stands beside a message.
#[derive(Clone, Default)]
struct Beside {
    stream: Option<String>,
    class: Option<String>,
    /// How soon the client wants the answer.
    within: Option<Span>,
}

impl Beside {
    fn of(metadata: &MetadataMap) -> Result<Self, Refused> {
        let headers = metadata.as_ref();
        let within = headers.get("grpc-timeout").map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let units = "must be digits and one of H, M, S, m, u and n";
            timeout(&text).ok_or_else(|| wrong("grpc-timeout", text, units))
        });
        let (stream, class) = (text_beside(headers, STREAM)?, text_beside(headers, CLASS)?);
        Ok(Self { stream, class, within: within.transpose()? })
    }
}

/// A timeout as gRPC writes it: digits and a unit; `None` for anything else.
fn timeout(text: &str) -> Option<Span> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let nanos = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More than can be counted is as good as none.
    Some(Span::from_nanos(digits.parse().unwrap_or(u64::MAX).saturating_mul(nanos)))
}

#[tonic::async_trait]
impl GrpcInferenceService for Inference {
    type ModelStreamInferStream = ReceiverStream<Result<ModelStreamInferResponse, Status>>;

    async fn server_live(&self, _: tonic::Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        self.look(|_| Ok(ServerLiveResponse { live: true })).await
    }

    async fn server_ready(&self, _: tonic::Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        self.look(|desk| Ok(ServerReadyResponse { ready: desk.is_ready() })).await
    }

    async fn model_ready(&self, request: tonic::Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        self.look(|desk| Ok(ModelReadyResponse { ready: desk.is_model_ready(&name, &version)? })).await
    }

    async fn server_metadata(
        &self,
        _: tonic::Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        let told = ServerMetadataResponse {
            name: "weir".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        };
        self.look(|_| Ok(told)).await
    }

    async fn model_metadata(
        &self,
        request: tonic::Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        self.look(|desk| Ok(grpc::metadata(&desk.describe(&name, &version)?.model()))).await
    }

    async fn model_infer(&self, request: tonic::Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let answer = match Beside::of(request.metadata()) {
            Ok(beside) => self.infer(request.into_inner(), beside).await,
            Err(refused) => {
                self.desk.charge(&self.caller, 0, false).await;
                Err(refused)
            }
        };
        answer.map(Response::new).map_err(|refused| grpc::status(&refused))
    }

    /// Answers each call of a stream as it is done; what is wrong with one is told in its place.
    async fn model_stream_infer(
        &self,
        request: tonic::Request<tonic::Streaming<ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        // How long the stream may last says nothing of one of its calls.
        let beside = match Beside::of(request.metadata()) {
            Ok(beside) => Beside { within: None, ..beside },
            Err(refused) => {
                self.desk.charge(&self.caller, 0, false).await;
                return Err(grpc::status(&refused));
            }
        };
        let (answers, stream) = mpsc::channel(CALLS as usize);
        let (own, mut calls) = (self.clone(), request.into_inner());
        tokio::spawn(async move {
            loop {
                // A place for the answer first, so that no more are at work than may be.
                let Ok(place) = answers.clone().reserve_owned().await else { return };
                let message = match calls.message().await {
                    Ok(Some(message)) => message,
                    Ok(None) => return,
                    Err(status) => {
                        place.send(Err(status));
                        return;
                    }
                };
                let (own, beside) = (own.clone(), beside.clone());
                tokio::spawn(async move {
                    let id = message.id.clone();
                    let answer = match own.infer(message, beside).await {
                        Ok(answer) => ModelStreamInferResponse {
                            infer_response: Some(answer),
                            ..ModelStreamInferResponse::default()
                        },
                        Err(refused) => ModelStreamInferResponse {
                            error_message: refused.to_string(),
                            infer_response: Some(ModelInferResponse { id, ..ModelInferResponse::default() }),
                        },
                    };
                    place.send(Ok(answer));
                });
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn model_config(&self, request: tonic::Request<ModelConfigRequest>) -> Answer<ModelConfigResponse> {
        let ModelConfigRequest { name, version } = request.into_inner();
        self.look(|desk| Ok(grpc::config(&desk.describe(&name, &version)?.model()))).await
    }

    async fn model_statistics(
        &self,
        request: tonic::Request<ModelStatisticsRequest>,
    ) -> Answer<ModelStatisticsResponse> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let look = |desk: &Desk| {
            let names = if name.is_empty() { desk.models() } else { vec![name] };
            let all: Result<_, _> =
                names.iter().map(|name| Ok(statistics(desk.fared(name, &version)?))).collect();
            Ok(ModelStatisticsResponse { model_stats: all? })
        };
        self.look(look).await
    }

    async fn repository_index(
        &self,
        _: tonic::Request<RepositoryIndexRequest>,
    ) -> Answer<RepositoryIndexResponse> {
        let look = |desk: &Desk| {
            let one = |name: String| {
                let state = desk.state(&name).to_owned();
                ModelIndex { name, version: VERSION.to_owned(), state, reason: String::new() }
            };
            Ok(RepositoryIndexResponse { models: desk.models().into_iter().map(one).collect() })
        };
        self.look(look).await
    }
}

/// How the calls of a model have fared. What was not measured is left out; what is not told apart is with `compute_infer`.
fn statistics(fared: Fared) -> ModelStatistics {
    let served = |ns| Some(StatisticDuration { count: fared.served, ns });
    let inference_stats = InferStatistics {
        success: served(fared.served_ns),
        queue: served(fared.waited_ns),
        compute_input: served(0),
        compute_infer: served(fared.served_ns.saturating_sub(fared.waited_ns)),
        compute_output: served(0),
        fail: Some(StatisticDuration { count: fared.missed, ns: 0 }),
    };
    ModelStatistics {
        name: fared.name,
        version: VERSION.to_owned(),
        inference_count: fared.served,
        execution_count: fared.batches,
        inference_stats: Some(inference_stats),
        ..ModelStatistics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_digits_and_a_unit() {
        let read = |text| timeout(text).map(Span::as_nanos);
        assert_eq!([read("1H"), read("2M"), read("3S")], [3_600, 120, 3].map(|s| Some(s * 1_000_000_000)));
        assert_eq!([read("4m"), read("5u"), read("6n")], [Some(4_000_000), Some(5_000), Some(6)]);
        assert_eq!([read(""), read("7"), read("m"), read("-1S"), read("1s"), read("1µ")], [None; 6]);
        assert_eq!(
            [read("+1S"), read(" 1S"), read("1 S"), read("1.5S"), read("٣S"), read("0x1S")],
            [None; 6]
        );
        assert_eq!([read("0n"), read("99999999999999999999999H")], [Some(0), Some(u64::MAX)]);
    }
}
