//! On a request's way: what a client asks for before its first request, and what it declares in return.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::wire::{CLASS_VERSION, MAX_ARRIVALS, MAX_CONSTRAINTS, MAX_NAME};

/// A demand for a stream: a service, a name, the misses it can live with and the arrivals it declares.
///
/// Every value fits a REGISTER frame; whether its constraints can be kept is for the daemon to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    service: String,
    stream: String,
    constraints: Vec<Constraint>,
    arrivals: Vec<ArrivalBound>,
    class: Option<String>,
}

impl Registration {
    /// Begins a registration of the stream named `stream` with the service named `service`.
    ///
    /// Without constraints the stream is served best effort, unless the daemon's configuration reserves its
    /// name: then what the configuration says holds, and both lists must stay empty.
    pub fn builder(service: impl Into<String>, stream: impl Into<String>) -> RegistrationBuilder {
        RegistrationBuilder(Self {
            service: service.into(),
            stream: stream.into(),
            constraints: Vec::new(),
            arrivals: Vec::new(),
            class: None,
        })
    }

    /// The service asked for; at most 255 bytes.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The name of the stream, unique in its service; at most 255 bytes.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// What must hold of the stream's outcomes; at most 8.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The class of its requests that name none; at most 255 bytes. The service's first, or what the configuration says, if absent.
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// Whether a daemon that speaks `version` knows all of it.
    pub(crate) fn is_of(&self, version: u16) -> Result<(), Error> {
        if self.class.is_some() && version < CLASS_VERSION { Err(Error::Classes { version }) } else { Ok(()) }
    }

    /// What the stream declares about its arrivals; at most 4, all of which hold together.
    pub fn arrivals(&self) -> &[ArrivalBound] {
        &self.arrivals
    }
}

/// Collects a [`Registration`]; see [`Registration::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RegistrationBuilder(Registration);

impl RegistrationBuilder {
    /// Adds one constraint.
    pub fn constraint(mut self, constraint: Constraint) -> Self {
        self.0.constraints.push(constraint);
        self
    }

    /// Adds one arrival bound.
    pub fn arrivals(mut self, bound: ArrivalBound) -> Self {
        self.0.arrivals.push(bound);
        self
    }

    /// Has requests that name no class be of this one; from version 5 of the protocol on.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.0.class = Some(class.into());
        self
    }

    /// Checks the limits of the frame.
    ///
    /// # Errors
    /// A name above 255 bytes, more than 8 constraints or 4 arrival bounds.
    pub fn build(self) -> Result<Registration, RegistrationError> {
        let within = |field, value, limit| {
            if value <= limit { Ok(()) } else { Err(RegistrationError { field, value, limit }) }
        };
        within("service (bytes)", self.0.service.len(), MAX_NAME)?;
        within("stream (bytes)", self.0.stream.len(), MAX_NAME)?;
        within("class (bytes)", self.0.class.as_ref().map_or(0, String::len), MAX_NAME)?;
        within("constraints", self.0.constraints.len(), MAX_CONSTRAINTS)?;
        within("arrivals", self.0.arrivals.len(), MAX_ARRIVALS)?;
        Ok(self.0)
    }

    /// The registration as it stands, for a caller that has checked the limits.
    pub(crate) fn fits(self) -> Registration {
        self.0
    }
}

/// A registration that does not fit its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("registration: {field} is {value}, limit {limit}")]
pub struct RegistrationError {
    /// What is too long.
    pub field: &'static str,
    /// Its length.
    pub value: usize,
    /// Largest allowed.
    pub limit: usize,
}

/// What must hold of every stretch of consecutive requests of a stream.
///
/// A *hit* is a request answered by its deadline, anything else is a *miss*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// At most `misses` misses in any `window` consecutive requests.
    AnyMiss {
        /// Misses allowed, below `window`.
        misses: u32,
        /// Consecutive requests looked at, at least 1.
        window: u32,
    },
    /// At least `hits` hits in any `window` consecutive requests.
    AnyHit {
        /// Hits required, at most `window`.
        hits: u32,
        /// Consecutive requests looked at, at least 1.
        window: u32,
    },
    /// At most `misses` misses in a row.
    RowMiss {
        /// Consecutive misses allowed.
        misses: u32,
    },
    /// At least `hits` hits in a row within any `window` consecutive requests.
    RowHit {
        /// Consecutive hits required, at most `window`.
        hits: u32,
        /// Consecutive requests looked at, at least 1.
        window: u32,
    },
    /// A form this version has no name for; the daemon refuses it.
    Unknown {
        /// Number of the form.
        form: u8,
        /// First number.
        a: u32,
        /// Second number.
        k: u32,
    },
}

impl Constraint {
    /// At most `misses` misses in any `window` consecutive requests: "(m,K)".
    pub const fn any_miss(misses: u32, window: u32) -> Self {
        Self::AnyMiss { misses, window }
    }

    /// Form, `a` and `k` as they stand in a frame.
    pub const fn fields(self) -> (u8, u32, u32) {
        match self {
            Self::AnyMiss { misses, window } => (1, misses, window),
            Self::AnyHit { hits, window } => (2, hits, window),
            Self::RowMiss { misses } => (3, misses, 0),
            Self::RowHit { hits, window } => (4, hits, window),
            Self::Unknown { form, a, k } => (form, a, k),
        }
    }

    /// The constraint of these fields; `k` is not looked at where the form has none.
    pub const fn from_fields(form: u8, a: u32, k: u32) -> Self {
        match form {
            1 => Self::AnyMiss { misses: a, window: k },
            2 => Self::AnyHit { hits: a, window: k },
            3 => Self::RowMiss { misses: a },
            4 => Self::RowHit { hits: a, window: k },
            _ => Self::Unknown { form, a, k },
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AnyMiss { misses, window } => write!(f, "at most {misses} of any {window} missed"),
            Self::AnyHit { hits, window } => write!(f, "at least {hits} of any {window} met"),
            Self::RowMiss { misses } => write!(f, "at most {misses} missed in a row"),
            Self::RowHit { hits, window } => write!(f, "at least {hits} met in a row in any {window}"),
            Self::Unknown { form, a, k } => write!(f, "unknown form {form} ({a}, {k})"),
        }
    }
}

/// A bound on how many requests a stream sends; the promise holds only while the stream keeps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrivalBound {
    /// At most `count` requests in any stretch of `length_ns`.
    Window {
        /// Requests, at least 1.
        count: u64,
        /// Length of the stretch in nanoseconds, at least 1.
        length_ns: u64,
    },
    /// One request every `period_ns`, each up to `jitter_ns` late.
    Periodic {
        /// Nanoseconds between nominal arrivals, at least 1.
        period_ns: u64,
        /// Largest lateness of an arrival in nanoseconds.
        jitter_ns: u64,
    },
    /// At most `burst` requests at once, and one more for each `period_ns` that passes.
    TokenBucket {
        /// Size of the bucket in requests, at least 1.
        burst: u64,
        /// Nanoseconds until the bucket gains a token, at least 1.
        period_ns: u64,
    },
    /// A form this version has no name for; the daemon refuses it.
    Unknown {
        /// Number of the form.
        form: u8,
        /// First number.
        a: u64,
        /// Second number.
        b: u64,
    },
}

impl ArrivalBound {
    /// At most `count` requests in any stretch of `length`.
    pub fn window(count: u64, length: Duration) -> Self {
        Self::Window { count, length_ns: nanos(length) }
    }

    /// One request every `period`, each up to `jitter` late.
    pub fn periodic(period: Duration, jitter: Duration) -> Self {
        Self::Periodic { period_ns: nanos(period), jitter_ns: nanos(jitter) }
    }

    /// At most `burst` requests at once, and one more for each `period` that passes.
    pub fn token_bucket(burst: u64, period: Duration) -> Self {
        Self::TokenBucket { burst, period_ns: nanos(period) }
    }

    /// Form and its two numbers as they stand in a frame.
    pub const fn fields(self) -> (u8, u64, u64) {
        match self {
            Self::Window { count, length_ns } => (1, count, length_ns),
            Self::Periodic { period_ns, jitter_ns } => (2, period_ns, jitter_ns),
            Self::TokenBucket { burst, period_ns } => (3, burst, period_ns),
            Self::Unknown { form, a, b } => (form, a, b),
        }
    }

    /// The bound of these fields.
    pub const fn from_fields(form: u8, a: u64, b: u64) -> Self {
        match form {
            1 => Self::Window { count: a, length_ns: b },
            2 => Self::Periodic { period_ns: a, jitter_ns: b },
            3 => Self::TokenBucket { burst: a, period_ns: b },
            _ => Self::Unknown { form, a, b },
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_the_frame_are_checked() {
        let build = |name: usize, constraints: usize, arrivals: usize| {
            let mut builder = Registration::builder("s".repeat(name), "t");
            for _ in 0..constraints {
                builder = builder.constraint(Constraint::any_miss(1, 2));
            }
            for _ in 0..arrivals {
                builder = builder.arrivals(ArrivalBound::window(1, Duration::from_secs(1)));
            }
            builder.build().map_err(|e| e.to_string())
        };
        assert!(build(255, 8, 4).is_ok());
        assert_eq!(build(256, 0, 0), Err("registration: service (bytes) is 256, limit 255".into()));
        assert_eq!(build(1, 9, 0), Err("registration: constraints is 9, limit 8".into()));
        assert_eq!(build(1, 0, 5), Err("registration: arrivals is 5, limit 4".into()));
    }

    #[test]
    fn constraints_read_as_sentences() {
        assert_eq!(Constraint::any_miss(3, 10).to_string(), "at most 3 of any 10 missed");
        assert_eq!(Constraint::RowMiss { misses: 1 }.to_string(), "at most 1 missed in a row");
    }
}
