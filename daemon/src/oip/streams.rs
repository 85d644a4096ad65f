//! The streams that calls belong to: the daemon holds each that a call has named, for all of its clients, for as long as it is used.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

use rt_core::{Constraint, Instant, Span};
use weir_client::{ArrivalBound, RefusalCode, Registration};
use weir_oip::{ANONYMOUS, Parameter, Parameters, Refused};
use weir_os::clock;
use weir_os::locks::lock;
use weir_serve::service::{Effects, Lease, Refusal, Registry, Service};

use crate::overview::Overview;
use crate::socket;

/// A stream that is promised nothing is given back once it has not been used for so long, …
const UNUSED: Span = Span::from_millis(60_000);
/// … and one that is after this: given out anew, what it missed before counts no more.
const PROMISED_UNUSED: Span = Span::from_millis(3_600_000);

/// What calls may say of streams.
const PARAMETERS: [&str; 7] = [
    "weir_stream",
    "weir_constraints",
    "weir_period",
    "weir_jitter",
    "weir_burst",
    "weir_class",
    "weir_last",
];

/// A stream that is held for calls.
pub(super) struct Held {
    pub(super) lease: Mutex<(Lease, Effects)>,
    /// What it was declared to be; nothing where it is the configuration's, or best effort.
    declared: Declared,
    used: Mutex<Instant>,
}

/// What a call declares of its stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Declared {
    constraints: Vec<Constraint>,
    arrivals: Option<ArrivalBound>,
}

/// A service and a stream of it.
type Name = (String, String);

/// All that are held.
#[derive(Clone, Default)]
pub(super) struct Streams {
    held: Arc<Mutex<HashMap<Name, Arc<Held>>>>,
    /// One is registered at a time.
    registering: Arc<tokio::sync::Mutex<()>>,
}

impl Streams {
    /// The stream of that name, which is registered if it is not held; `most` may be.
    ///
    /// # Errors
    /// If it cannot be had, or is held with another declaration.
    pub(super) async fn get(
        &self,
        overview: &Arc<Overview>,
        (service, name): (&Service, &str),
        declared: Declared,
        most: usize,
    ) -> Result<Arc<Held>, Refused> {
        let key = (service.name().to_owned(), name.to_owned());
        if let Some(held) = self.find(&key) {
            return held.as_declared(&key.1, declared);
        }
        let turn = Arc::clone(&self.registering).lock_owned().await;
        if let Some(held) = self.find(&key) {
            return held.as_declared(&key.1, declared);
        }
        if lock(&self.held).len() >= most {
            let text = format!("daemon.client-streams = {most} are held by calls of this protocol");
            return Err(Refused::Conflict(text));
        }
        let registration = declared.registration(&key)?;
        let (own, overview) = (self.clone(), Arc::clone(overview));
        // It may wait for a long batch, and take long to be worked out. Once begun it ends, be whoever asked for it gone.
        let registering = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut effects = Effects::default();
            let outcome = socket::register(&overview, &registration, &mut effects, true);
            // With patience there always is an outcome.
            let lease = outcome.unwrap_or_else(|| Err(none())).map_err(|refusal| refused(&key.1, refusal))?;
            let (lease, used) = (Mutex::new((lease, effects)), Mutex::new(clock::now()));
            let held = Arc::new(Held { lease, declared, used });
            lock(&own.held).insert(key, Arc::clone(&held));
            Ok(held)
        });
        let ended = |_| Refused::Unavailable { text: "registering has failed".to_owned(), misses_left: None };
        registering.await.map_err(ended)?
    }

    /// Gives a stream back.
    pub(super) fn release(&self, service: &str, stream: &str) {
        if let Some(held) = lock(&self.held).remove(&(service.to_owned(), stream.to_owned())) {
            held.release();
        }
    }

    /// Forgets a stream whose service has ended.
    pub(super) fn forget(&self, service: &str, stream: &str) {
        lock(&self.held).remove(&(service.to_owned(), stream.to_owned()));
    }

    /// Gives back what has not been used for a while, or all.
    pub(super) fn release_unused(&self, all: bool) {
        let now = clock::now();
        let gone: Vec<_> = lock(&self.held).extract_if(|_, held| all || held.is_unused(now)).collect();
        gone.iter().for_each(|(_, held)| held.release());
    }

    fn find(&self, name: &Name) -> Option<Arc<Held>> {
        let held = lock(&self.held).get(name).cloned()?;
        *lock(&held.used) = clock::now();
        Some(held)
    }
}

impl Held {
    fn is_unused(&self, now: Instant) -> bool {
        let promised = lock(&self.lease).0.spec.demand().is_some();
        *lock(&self.used) + if promised { PROMISED_UNUSED } else { UNUSED } < now
    }

    fn release(&self) {
        let (lease, effects) = &mut *lock(&self.lease);
        Registry::release(lease, effects);
    }

    /// A call that declares nothing takes it as it is.
    fn as_declared(self: Arc<Self>, name: &str, declared: Declared) -> Result<Arc<Self>, Refused> {
        if declared == Declared::default() || declared == self.declared {
            return Ok(self);
        }
        Err(Refused::Conflict(format!("stream {name} is held with another declaration")))
    }
}

impl Declared {
    /// What the parameters of a call of `stream` declare.
    ///
    /// # Errors
    /// If one means nothing, or something is declared of the stream that all share who name none.
    pub(super) fn of(stream: &str, parameters: &Parameters) -> Result<Self, Refused> {
        // Whoever misspells a promise must not believe to have it.
        let unknown = |key: &&String| key.starts_with("weir_") && !PARAMETERS.contains(&key.as_str());
        if let Some(key) = parameters.keys().find(unknown) {
            return Err(Refused::Invalid(format!(
                "{key}: no such parameter; there are: {}",
                PARAMETERS.join(", ")
            )));
        }
        let text = |key: &str| match parameters.get(key) {
            None => Ok(None),
            Some(Parameter::Text(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(wrong(key, other, "must be a text")),
        };
        let span = |key: &str| {
            let parse = |text: &str| {
                let parsed = text.parse::<humantime::Duration>();
                parsed
                    .map(Into::into)
                    .map_err(|error| wrong(key, text, &format!("no duration such as \"33ms\" ({error})")))
            };
            text(key)?.map(parse).transpose()
        };
        let constraints = text("weir_constraints")?.unwrap_or_default();
        let constraints = constraints.split(';').filter(|one| !one.trim().is_empty());
        let constraints: Result<Vec<Constraint>, _> = constraints.map(|one| one.trim().parse()).collect();
        let constraints =
            constraints.map_err(|error| Refused::Invalid(format!("weir_constraints: {error}")))?;
        let (period, jitter) = (span("weir_period")?, span("weir_jitter")?);
        let burst = match parameters.get("weir_burst") {
            None => None,
            Some(&Parameter::Int(burst @ 1..)) => Some(burst as u64),
            Some(other) => return Err(wrong("weir_burst", other, "must be a whole number above 0")),
        };
        let arrivals = match (period, jitter, burst) {
            (None, None, None) => None,
            (None, ..) => {
                return Err(Refused::Invalid("weir_jitter and weir_burst need a weir_period".to_owned()));
            }
            (Some(_), Some(_), Some(_)) => {
                return Err(Refused::Invalid("weir_jitter and weir_burst do not go together".to_owned()));
            }
            (Some(period), None, Some(burst)) => Some(ArrivalBound::token_bucket(burst, period)),
            (Some(period), jitter, None) => Some(ArrivalBound::periodic(period, jitter.unwrap_or_default())),
        };
        let declared = Self { constraints, arrivals };
        if stream == ANONYMOUS && declared != Self::default() {
            return Err(Refused::Invalid(format!(
                "nothing can be declared of stream {ANONYMOUS}, which all calls share that name none: name one by weir_stream"
            )));
        }
        Ok(declared)
    }

    fn registration(&self, (service, stream): &Name) -> Result<Registration, Refused> {
        let mut builder = Registration::builder(service, stream);
        for constraint in &self.constraints {
            let (misses, window) = (constraint.misses(), constraint.window());
            builder = builder.constraint(weir_client::Constraint::any_miss(misses, window));
        }
        for bound in self.arrivals.iter() {
            builder = builder.arrivals(*bound);
        }
        builder.build().map_err(|error| Refused::Invalid(error.to_string()))
    }
}

fn none() -> Refusal {
    Refusal { code: RefusalCode::TooManyStreams, text: "it cannot be had now".to_owned() }
}

/// A stream that is not given out, in the protocol's words.
fn refused(stream: &str, Refusal { code, text }: Refusal) -> Refused {
    let text = format!("stream {stream}: {text}");
    match code {
        RefusalCode::Draining => Refused::Unavailable { text, misses_left: None },
        RefusalCode::UnknownService => Refused::NotFound(text),
        RefusalCode::InvalidConstraint | RefusalCode::InvalidArrivals => Refused::Invalid(text),
        _ => Refused::Conflict(text),
    }
}

pub(super) fn wrong(key: &str, value: impl Display, reason: &str) -> Refused {
    Refused::Invalid(format!("{key} = {value}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_says_nothing_is_refused_with_its_value() {
        let refusal = |key: &str, value: Parameter| {
            let period = ("weir_period".to_owned(), Parameter::Text("33ms".to_owned()));
            let parameters = Parameters::from([period, (key.to_owned(), value)]);
            match Declared::of("front", &parameters) {
                Err(Refused::Invalid(text)) => text,
                other => panic!("{other:?}"),
            }
        };
        let burst = "must be a whole number above 0";
        assert_eq!(refusal("weir_burst", Parameter::Int(-4)), format!("weir_burst = -4: {burst}"));
        assert_eq!(refusal("weir_burst", Parameter::Double(0.5)), format!("weir_burst = 0.5: {burst}"));
        assert_eq!(refusal("weir_jitter", Parameter::Bool(true)), "weir_jitter = true: must be a text");
        let misspelt = refusal("weir_constrains", Parameter::Text("row_miss(1)".to_owned()));
        assert!(
            misspelt
                .starts_with("weir_constrains: no such parameter; there are: weir_stream, weir_constraints")
        );
        // What others than Weir may mean is left to them.
        let foreign = Parameters::from([("priority".to_owned(), Parameter::Int(1))]);
        assert!(Declared::of("front", &foreign).is_ok_and(|declared| declared == Declared::default()));
    }

    #[test]
    fn nothing_is_declared_of_the_stream_that_all_share_who_name_none() {
        let period = ("weir_period".to_owned(), Parameter::Text("33ms".to_owned()));
        let constraints = ("weir_constraints".to_owned(), Parameter::Text("row_miss(1)".to_owned()));
        for parameters in [Parameters::from([period.clone()]), Parameters::from([period, constraints])] {
            assert!(Declared::of("front", &parameters).is_ok());
            let refused = Declared::of(ANONYMOUS, &parameters).expect_err("it is shared").to_string();
            assert!(
                refused.contains("stream open-inference") && refused.contains("weir_stream"),
                "{refused}"
            );
        }
        assert!(Declared::of(ANONYMOUS, &Parameters::new()).is_ok());
    }
}
