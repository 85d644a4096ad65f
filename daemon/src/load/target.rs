//! What a load is aimed at: a service and its promises, as the running daemon tells them.

use anyhow::{Context, Result, bail};
use rt_core::Constraint;
use serde::Deserialize;

/// A service of a running daemon.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The service's name.
    pub(crate) service: String,
    /// The model that answers.
    pub(crate) model: String,
    /// Whether no real engine runs.
    pub(crate) simulated: bool,
    /// Values of one input tensor.
    pub(crate) input_len: usize,
    /// Nanoseconds from arrival to answer.
    pub(crate) deadline_ns: u64,
    /// Nanoseconds that a periodic request may come late under the promised rate.
    pub(crate) jitter_ns: u64,
    /// Nanoseconds between the requests of the largest rate promised to one stream; `None` without
    /// constraints.
    pub(crate) promised_period_ns: Option<u64>,
    /// What the service promises unless a stream asks for something else.
    pub(crate) constraints: Vec<Constraint>,
    /// Why the service is in safe mode, if it is.
    pub(crate) safe_mode: Option<Breach>,
    streams: Vec<(String, Vec<Constraint>)>,
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
        let streams: Result<Vec<_>> =
            found.streams.into_iter().map(|s| Ok((s.name, parse_all(&s.constraints)?))).collect();
        let safe_mode = found.safe_mode;
        Ok(Self {
            service: found.name,
            model: found.model,
            simulated: found.simulated,
            input_len: found.input.shape.iter().product(),
            deadline_ns: found.deadline_ns,
            jitter_ns: found.jitter_ns,
            promised_period_ns: found.promised_period_ns,
            constraints: parse_all(&found.constraints)?,
            safe_mode: safe_mode
                .cause
                .map(|cause| Breach { cause, text: safe_mode.text.unwrap_or_default() }),
            streams: streams?,
        })
    }

    /// The largest rate promised to one stream, in requests per second.
    pub(crate) fn promised_rate(&self) -> Option<f64> {
        self.promised_period_ns.map(|period| 1e9 / period as f64)
    }

    /// The constraints of a stream that the daemon knows, reserved or held.
    pub(crate) fn stream_constraints(&self, stream: &str) -> Option<&[Constraint]> {
        self.streams.iter().find(|(name, _)| name == stream).map(|(_, constraints)| constraints.as_slice())
    }
}

/// Reads a constraint as people and the daemon write it: `any-miss(1,2)`, `any_hit(3,5)`, `row-miss(2)`,
/// `row-hit(2,6)`.
///
/// # Errors
/// If it is none, or its numbers promise nothing.
pub(crate) fn parse_constraint(text: &str) -> Result<Constraint> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let parts = compact.strip_suffix(')').and_then(|rest| rest.split_once('('));
    let (name, inside) = parts.unwrap_or((compact.as_str(), ""));
    let numbers: Result<Vec<u32>, _> = inside.split(',').map(str::parse).collect();
    let constraint = match (name.replace('_', "-").as_str(), numbers.unwrap_or_default().as_slice()) {
        ("any-miss", &[m, k]) => Constraint::any_miss(m, k),
        ("any-hit", &[h, k]) => Constraint::any_hit(h, k),
        ("row-miss", &[m]) => Constraint::row_miss(m),
        ("row-hit", &[h, k]) => Constraint::row_hit(h, k),
        _ => bail!(
            "constraint {text:?} is none of any-miss(M,K), any-hit(H,K), row-miss(M), row-hit(H,K), e.g. any-miss(3,10)"
        ),
    };
    constraint.with_context(|| format!("constraint {text:?}"))
}

fn parse_all(texts: &[String]) -> Result<Vec<Constraint>> {
    texts.iter().map(|text| parse_constraint(text)).collect()
}

/// The part of the status that matters here.
#[derive(Deserialize)]
struct Status {
    services: Vec<ServiceStatus>,
}

#[derive(Deserialize)]
struct ServiceStatus {
    name: String,
    model: String,
    simulated: bool,
    input: TensorStatus,
    deadline_ns: u64,
    jitter_ns: u64,
    promised_period_ns: Option<u64>,
    constraints: Vec<String>,
    safe_mode: SafeModeStatus,
    streams: Vec<StreamStatus>,
}

#[derive(Deserialize)]
struct TensorStatus {
    shape: Vec<usize>,
}

#[derive(Deserialize)]
struct SafeModeStatus {
    cause: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
struct StreamStatus {
    name: String,
    constraints: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{ "version": "0.1.0", "services": [{
        "name": "digits", "model": "digits-l", "simulated": false,
        "input": { "name": "image", "shape": [1, 28, 28] }, "deadline_ns": 100, "jitter_ns": 20,
        "promised_period_ns": 2000000, "constraints": ["row_miss(1)", "any_miss(5,10)"],
        "safe_mode": { "state": "safe-mode", "cause": "operator", "text": "operator: raised by an operator" },
        "streams": [{ "name": "cam", "constraints": ["any_miss(3,10)"] }]
    }] }"#;

    #[test]
    fn a_service_is_found_with_its_promises() {
        let target = Target::find(STATUS, "digits").unwrap();
        assert_eq!((target.promised_rate(), target.input_len), (Some(500.0), 784));
        assert_eq!(target.constraints[1], Constraint::any_miss(5, 10).unwrap());
        assert_eq!(target.stream_constraints("cam").unwrap()[0].window(), 10);
        assert_eq!(target.stream_constraints("other"), None);
        assert_eq!(target.safe_mode.unwrap().cause, "operator");
        assert!(
            Target::find(STATUS, "x").unwrap_err().to_string().contains("no service x; there are: digits")
        );
    }

    #[test]
    fn constraints_are_read_in_every_spelling() {
        let read = |text: &str| parse_constraint(text).unwrap();
        assert_eq!(read("any-miss(1,2)"), Constraint::any_miss(1, 2).unwrap());
        assert_eq!(read(" any_hit( 3 , 5 ) "), Constraint::any_hit(3, 5).unwrap());
        assert_eq!(read("row_miss(2)"), Constraint::row_miss(2).unwrap());
        assert_eq!(read("row-hit(2,6)"), Constraint::row_hit(2, 6).unwrap());
        // As the daemon writes them.
        for constraint in [Constraint::any_miss(3, 10).unwrap(), Constraint::row_miss(0).unwrap()] {
            assert_eq!(read(&constraint.to_string()), constraint);
        }
    }

    #[test]
    fn what_is_no_constraint_is_refused_with_an_example() {
        let told = |text: &str| format!("{:#}", parse_constraint(text).unwrap_err());
        for text in
            ["", "any-miss", "any-miss(1)", "row-miss(1,2)", "any-miss(1,2", "miss(1,2)", "any-miss(-1,2)"]
        {
            assert!(told(text).contains("e.g. any-miss(3,10)"), "{text}");
        }
        assert!(told("any-miss(5,5)").contains("m must be below K"));
    }
}
