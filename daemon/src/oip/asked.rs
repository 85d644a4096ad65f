//! What a call names beside its tensors: by its parameters, or by the way it came.

use rt_core::Span;
use weir_oip::{ANONYMOUS, Call, Parameter, Refused};

use super::streams::wrong;

/// What a call names beside its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) model: String,
    /// Empty for any.
    pub(super) version: String,
    pub(super) stream: Option<String>,
    /// Of the service's classes.
    pub(super) class: Option<String>,
    /// How soon the answer is wanted.
    pub(super) within: Option<Span>,
    /// Whether outputs that are not named go out as they lie in memory.
    pub(super) binary: bool,
}

impl Asked {
    /// The stream that a call names.
    pub(super) fn stream(&self, call: &Call<'_>) -> Result<String, Refused> {
        match (call.parameters.get("weir_stream"), &self.stream) {
            (Some(Parameter::Text(name)), _) => Ok(name.clone()),
            (Some(other), _) => Err(wrong("weir_stream", other, "must be a text")),
            (None, Some(name)) => Ok(name.clone()),
            (None, None) => match call.parameters.get("sequence_id") {
                None | Some(Parameter::Int(0)) => Ok(ANONYMOUS.to_owned()),
                Some(_) => Err(Refused::Unimplemented(
                    "sequence_id is not supported here: name a stream by weir_stream".to_owned(),
                )),
            },
        }
    }

    /// The class that a call names, if it does.
    pub(super) fn class(&self, call: &Call<'_>) -> Result<Option<String>, Refused> {
        match call.parameters.get("weir_class") {
            Some(Parameter::Text(name)) => Ok(Some(name.clone())),
            Some(other) => Err(wrong("weir_class", other, "must be a text")),
            None => Ok(self.class.clone()),
        }
    }

    /// How soon a call wants its answer: by its own parameter, in microseconds, or by the way it came.
    pub(super) fn within(&self, call: &Call<'_>) -> Result<Option<Span>, Refused> {
        match call.parameters.get("timeout") {
            None | Some(Parameter::Int(0)) => Ok(self.within),
            Some(&Parameter::Int(micros @ 1..)) => {
                let own = Span::from_nanos((micros as u64).saturating_mul(1_000));
                Ok(Some(self.within.map_or(own, |within| within.min(own))))
            }
            Some(other) => Err(wrong("timeout", other, "must be a whole number of microseconds")),
        }
    }
}
