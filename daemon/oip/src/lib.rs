//! The Open Inference Protocol, version 2, apart from any network: calls are checked against a model's tensors and packed as
//! Weir's workers take them, and answers are written as the protocol has them, over HTTP with JSON and binary tensors.
//!
//! The protocol is KServe's "Open Inference Protocol" with Triton's extension for binary tensors; clients of both work unchanged.

mod call;
mod datatype;
mod elements;
pub mod grpc;
pub mod http;
mod pack;
pub mod remote;
pub mod text;
pub mod tls;

pub use call::{Answer, Call, Data, Input, Model, Parameter, Parameters, Wanted};
pub use datatype::{data_type, name_of};
pub use pack::{check_outputs, pack};

/// The stream of all calls that name none: nothing is promised to it.
pub const ANONYMOUS: &str = "open-inference";

/// Why a call is not served, as its caller is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The call itself is wrong: 400, `INVALID_ARGUMENT`.
    #[error("{0}")]
    Invalid(String),
    /// There is no such model, version or path: 404, `NOT_FOUND`.
    #[error("{0}")]
    NotFound(String),
    /// What is asked for is not there for this caller now, and asking again is no help: 409, `FAILED_PRECONDITION`.
    #[error("{0}")]
    Conflict(String),
    /// More than is taken here: 413, `RESOURCE_EXHAUSTED`.
    #[error("{0}")]
    TooLarge(String),
    /// A part of the protocol that is not spoken: 501, `UNIMPLEMENTED`.
    #[error("{0}")]
    Unimplemented(String),
    /// No answer in time, or the daemon is stopping: 503, `UNAVAILABLE`.
    #[error("{text}")]
    Unavailable {
        /// Why.
        text: String,
        /// How many more misses the promise of the stream allows, where there is one.
        misses_left: Option<u32>,
    },
}

/// A call that is wrong in itself.
pub(crate) fn invalid<T>(text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Invalid(text.into()))
}
