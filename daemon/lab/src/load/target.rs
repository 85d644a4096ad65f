//! What a load is aimed at: a service and its promises, as the running daemon tells them.

use anyhow::{Context, Result, bail};
use rt_core::Constraint;
use weir_client::status::{self, Status};
use weir_engine::{TensorSpec, packed_len};

/// A service of a running daemon.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The service's name.
    pub(crate) service: String,
    /// The model that answers, in its base variant.
    pub(crate) model: String,
    /// Every variant and its accuracy, 0..=1, if it is known.
    pub(crate) variants: Vec<(String, Option<f64>)>,
    /// Whether no real engine runs.
    pub(crate) simulated: bool,
    /// Bytes of one request.
    pub(crate) input_bytes: usize,
    /// Nanoseconds from arrival to answer.
    pub(crate) deadline_ns: u64,
    /// Nanoseconds that a periodic request may come late under the promised rate.
    pub(crate) jitter_ns: u64,
    /// Nanoseconds between the requests of the largest rate promised to one stream, or of the rate kept for the
    /// stream that is aimed at; `None` without constraints.
    pub(crate) promised_period_ns: Option<u64>,
    /// What the service promises unless a stream asks for something else.
    pub(crate) constraints: Vec<Constraint>,
    /// Why the service is in safe mode, if it is.
    pub(crate) safe_mode: Option<Breach>,
    /// The classes of its requests, and what came of them so far.
    pub(crate) classes: Vec<status::Class>,
    streams: Vec<Stream>,
}

#[derive(Clone, Debug)]
struct Stream {
    name: String,
    constraints: Vec<Constraint>,
    /// Requests per second that it declared, if it did.
    declared_per_s: Option<f64>,
}

/// Which assumption broke, and the evidence for people.
#[derive(Clone, Debug)]
pub(crate) struct Breach {
    pub(crate) cause: String,
    pub(crate) text: String,
}

impl Target {
    /// Finds `service` in the daemon's status.
    ///
    /// # Errors
    /// If there is no such service, or the status is not of this daemon's version.
    pub(crate) fn find(status: &str, service: &str) -> Result<Self> {
        let status: Status = serde_json::from_str(status).context("the daemon's status")?;
        let names: Vec<_> = status.services.iter().map(|s| s.name.clone()).collect();
        let Some(found) = status.services.into_iter().find(|s| s.name == service) else {
            bail!("no service {service}; there are: {}", names.join(", "));
        };
        let stream = |s: status::Stream| {
            let constraints = parse_all(&s.constraints)?;
            Ok(Stream { name: s.name, constraints, declared_per_s: s.declared_per_s })
        };
        let streams: Result<Vec<_>> = found.streams.into_iter().map(stream).collect();
        let safe_mode = found.safe_mode;
        Ok(Self {
            service: found.name,
            model: found.model,
            classes: found.classes,
            variants: found.variants.into_iter().map(|v| (v.model, v.accuracy)).collect(),
            simulated: found.simulated,
            input_bytes: packed_len(&tensors(&found.inputs)?),
            deadline_ns: found.deadline_ns,
            jitter_ns: found.jitter_ns,
            promised_period_ns: found.promised_period_ns,
            constraints: parse_all(&found.constraints)?,
            safe_mode: safe_mode
                .cause
                .filter(|_| !matches!(safe_mode.state.as_str(), "normal" | "warning"))
                .map(|cause| Breach { cause, text: safe_mode.text.unwrap_or_default() }),
            streams: streams?,
        })
    }

    /// The same, for a reserved stream: what is promised is what it declared.
    pub(crate) fn aimed_at(mut self, reserved: Option<&str>) -> Self {
        if let Some(name) = reserved {
            let rate = self.stream(name).and_then(|stream| stream.declared_per_s);
            self.promised_period_ns = rate.map(|rate| (1e9 / rate).round() as u64);
        }
        self
    }

    /// The largest rate promised to one stream, or kept for the one that is aimed at, in requests per second.
    pub(crate) fn promised_rate(&self) -> Option<f64> {
        self.promised_period_ns.map(|period| 1e9 / period as f64)
    }

    /// The share of the answers by each variant, for people; `None` if there is one alone.
    pub(crate) fn shares(&self, answered: &[u64]) -> Option<String> {
        let all = answered.iter().sum::<u64>().max(1) as f64;
        let share = |(i, (model, _)): (usize, &(String, _))| {
            let count = answered.get(i).copied().unwrap_or(0);
            format!("{:.1}% by {model}", 100.0 * count as f64 / all)
        };
        let shares: Vec<_> = self.variants.iter().enumerate().map(share).collect();
        (shares.len() > 1).then(|| shares.join(", "))
    }

    /// The accuracy that the variants' own promise for these answers, 0..=1; `None` if one is not known.
    pub(crate) fn expected_accuracy(&self, answered: &[u64]) -> Option<f64> {
        let all: u64 = answered.iter().sum();
        let right = |(&count, (_, accuracy)): (&u64, &(String, Option<f64>))| {
            if count == 0 { Some(0.0) } else { accuracy.map(|accuracy| accuracy * count as f64) }
        };
        let right: Option<f64> = answered.iter().zip(&self.variants).map(right).sum();
        right.filter(|_| all > 0).map(|right| right / all as f64)
    }

    /// The constraints of a stream that the daemon knows, reserved or held.
    pub(crate) fn stream_constraints(&self, stream: &str) -> Option<&[Constraint]> {
        self.stream(stream).map(|stream| stream.constraints.as_slice())
    }

    fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name == name)
    }
}

/// Both have the same form in JSON.
fn tensors(told: &[status::Tensor]) -> Result<Vec<TensorSpec>> {
    serde_json::from_value(serde_json::to_value(told)?).context("the service's inputs")
}

fn parse_all(texts: &[String]) -> Result<Vec<Constraint>> {
    texts.iter().map(|text| Ok(text.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{ "version": "0.1.0", "services": [{
        "name": "digits", "model": "digits-l", "simulated": false,
        "variants": [{ "model": "digits-l", "accuracy": 0.8 }, { "model": "digits-xl", "accuracy": 0.9 }],
        "inputs": [{ "name": "image", "type": "f32", "shape": [1, 28, 28] }], "deadline_ns": 100, "jitter_ns": 20,
        "promised_period_ns": 2000000, "constraints": ["row_miss(1)", "any_miss(5,10)"],
        "safe_mode": { "state": "safe-mode", "cause": "operator", "text": "operator: raised by an operator" },
        "streams": [{ "name": "cam", "constraints": ["any_miss(3,10)"], "declared_per_s": 31.25 }]
    }] }"#;

    #[test]
    fn a_service_is_found_with_its_promises() {
        let target = Target::find(STATUS, "digits").unwrap();
        assert_eq!((target.promised_rate(), target.input_bytes), (Some(500.0), 4 * 784));
        assert_eq!(target.constraints[1], Constraint::any_miss(5, 10).unwrap());
        assert_eq!(target.stream_constraints("cam").unwrap()[0].window(), 10);
        assert_eq!(target.stream_constraints("other"), None);
        assert_eq!(target.clone().aimed_at(None).promised_rate(), Some(500.0));
        assert_eq!(target.clone().aimed_at(Some("cam")).promised_rate(), Some(31.25));
        assert_eq!(target.shares(&[1, 3]).unwrap(), "25.0% by digits-l, 75.0% by digits-xl");
        assert_eq!(target.expected_accuracy(&[0, 3]), Some(0.9));
        assert_eq!(target.expected_accuracy(&[]), None);
        assert_eq!(target.safe_mode.unwrap().cause, "operator");
        assert!(
            Target::find(STATUS, "x").unwrap_err().to_string().contains("no service x; there are: digits")
        );
    }
}
