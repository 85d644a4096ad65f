//! What is worked out ahead: abstract problems, the certificates that answer them, and their checker.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod certify;
pub mod choice;
mod decay;
mod files;
pub mod number;
pub mod problem;
pub mod selection;
mod unique;
pub mod verify;
mod words;

pub use certificate::{Certificate, CertificateError, Claim, PipelineClaim, SharedClaim};
pub use certify::{certify, certify_pipeline, certify_shared};
pub use decay::DecayText;
pub use files::{read_at_most, read_bytes, read_file_at_most, read_text, write_atomically};
pub use number::Number;
pub use problem::{PipelineProblem, Problem, ProblemError, Question, SharedProblem};
pub use unique::Unique;
pub use words::{Tables, from_json, in_words, seed_from_json, table};
