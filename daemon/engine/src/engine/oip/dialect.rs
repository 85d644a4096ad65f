//! How a server is asked, and its answers are read: over HTTP with JSON and binary tensors, or over gRPC.

use hyper::body::Bytes;
use weir_client::TensorInfo;
use weir_oip::Refused;
use weir_oip::grpc::inference::ModelInferResponse;
use weir_oip::remote::{self, Answered, Metadata, Server, grpc};

use super::connection::{Ask, Reply};
use crate::engine::{Protocol, Remote};

/// Bytes that what a server says of itself or of a model may have.
const MAX_SAID: usize = 1 << 20;
/// Bytes of an answer beside the elements of its tensors.
const MAX_HEAD: usize = 64 << 10;
/// Bytes that an element may take in JSON.
const MAX_NUMBER: usize = 32;
/// Bytes that an element may take in a message of gRPC.
const MAX_VARINT: usize = 10;

/// What is asked beside inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Server,
    Ready,
    Metadata,
}

/// How a server is spoken to of one model.
pub(super) struct Dialect {
    protocol: Protocol,
    model: String,
    version: Option<String>,
    /// Of inference.
    path: String,
    /// Whether tensors travel as they lie in memory.
    binary: bool,
}

/// An answer to a call.
pub(super) enum Read {
    Http(Reply),
    Grpc(ModelInferResponse),
}

impl Dialect {
    pub(super) fn new(remote: &Remote, protocol: Protocol) -> Self {
        let (model, version) = (remote.model.clone(), remote.version.clone());
        let mut own =
            Self { protocol, model, version, path: String::new(), binary: protocol == Protocol::Grpc };
        own.path = match protocol {
            Protocol::Http => format!("{}/infer", own.path(Question::Metadata)),
            Protocol::Grpc => grpc::INFER.to_owned(),
        };
        own
    }

    /// Where this is asked.
    pub(super) fn path(&self, question: Question) -> String {
        let model = || match &self.version {
            Some(version) => format!("/v2/models/{}/versions/{version}", self.model),
            None => format!("/v2/models/{}", self.model),
        };
        match (self.protocol, question) {
            (Protocol::Http, Question::Server) => "/v2".to_owned(),
            (Protocol::Http, Question::Ready) => format!("{}/ready", model()),
            (Protocol::Http, Question::Metadata) => model(),
            (Protocol::Grpc, Question::Server) => grpc::SERVER.to_owned(),
            (Protocol::Grpc, Question::Ready) => grpc::READY.to_owned(),
            (Protocol::Grpc, Question::Metadata) => grpc::METADATA.to_owned(),
        }
    }

    pub(super) fn ask<'a>(&self, question: Question, path: &'a str) -> Ask<'a> {
        let (model, version) = (&self.model, self.version.as_deref());
        let body = (self.protocol == Protocol::Grpc).then(|| match question {
            Question::Server => grpc::ask_server(),
            Question::Ready => grpc::ask_ready(model, version),
            Question::Metadata => grpc::ask_metadata(model, version),
        });
        Ask { path, body, limit: MAX_SAID, ..Ask::default() }
    }

    /// What a server says of itself; over HTTP that is also how tensors travel from now on.
    pub(super) fn server(&mut self, body: Bytes) -> Result<Server, Refused> {
        match self.protocol {
            Protocol::Http => {
                let server = remote::server(&body)?;
                self.binary = server.extensions.iter().any(|extension| extension == remote::BINARY);
                Ok(server)
            }
            Protocol::Grpc => grpc::server(body),
        }
    }

    pub(super) fn ready(&self, body: Bytes) -> Result<(), Refused> {
        match self.protocol {
            // By its status.
            Protocol::Http => Ok(()),
            Protocol::Grpc if grpc::ready(body)? => Ok(()),
            Protocol::Grpc => Err(Refused::Invalid(format!("model {} is not ready", self.model))),
        }
    }

    pub(super) fn metadata(&self, body: Bytes) -> Result<Metadata, Refused> {
        match self.protocol {
            Protocol::Http => remote::metadata(&body),
            Protocol::Grpc => grpc::metadata(body),
        }
    }

    /// A call with these tensors, each with its elements, that wants these outputs; of this number, which over gRPC its stream of HTTP/2
    /// stands for.
    pub(super) fn call<'a>(
        &'a self,
        inputs: impl Iterator<Item = (&'a TensorInfo, &'a [u8])> + Clone,
        outputs: &[TensorInfo],
        (number, stream): (u64, Option<&'a str>),
    ) -> Result<Ask<'a>, Refused> {
        let (body, header) = match self.protocol {
            Protocol::Http => remote::call(inputs, outputs, (number, self.binary))?,
            Protocol::Grpc => (grpc::call((&self.model, self.version.as_deref()), inputs, outputs), None),
        };
        let each = |output: &TensorInfo| match (self.protocol, self.binary) {
            (Protocol::Http, true) => output.bytes().unwrap_or(0),
            (Protocol::Http, false) => MAX_NUMBER * output.elements(),
            // Either way, as the server likes.
            (Protocol::Grpc, _) => output.bytes().unwrap_or(0).max(MAX_VARINT * output.elements()),
        };
        let limit = MAX_HEAD + outputs.iter().map(each).sum::<usize>();
        Ok(Ask { path: &self.path, body: Some(body), header, stream, limit })
    }

    pub(super) fn read(&self, reply: Reply) -> Result<Read, Refused> {
        match self.protocol {
            Protocol::Http => Ok(Read::Http(reply)),
            Protocol::Grpc => grpc::answer(reply.body).map(Read::Grpc),
        }
    }
}

impl Read {
    pub(super) fn answered(&self) -> Result<Answered<'_>, Refused> {
        match self {
            Self::Http(reply) => remote::answer(&reply.body, reply.header),
            Self::Grpc(message) => grpc::answered(message),
        }
    }
}
