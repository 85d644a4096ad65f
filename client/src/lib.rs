//! On a request's way: its first and last step, in the program that asks.
//!
//! A client registers a *stream* with a service of the daemon and says what it can live with ("at most 3 of
//! any 10 missed") and how often it will ask. It is told the promise, or why there is none. From then on every
//! request gets exactly one answer: a result in time, or a miss with its reason.
//!
//! [`blocking`] needs nothing but the standard library; [`asynchronous`] runs on tokio (feature `async`). Both
//! speak [`wire`], which the daemon shares; `docs/protocol.md` specifies it for other languages.
//!
//! ```no_run
//! use std::time::Duration;
//! use weir_client::{ArrivalBound, Constraint, Outcome, Registration, blocking::Client};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect(weir_client::DEFAULT_SOCKET)?;
//! let stream = client.register(
//!     &Registration::builder("obstacles", "front-camera")
//!         .constraint(Constraint::any_miss(3, 10))
//!         .arrivals(ArrivalBound::periodic(Duration::from_millis(20), Duration::from_millis(2)))
//!         .build()?,
//! )?;
//! match client.infer(&stream, &[0.0f32; 784])? {
//!     Outcome::Result(result) => println!("{:?}", stream.output::<f32>(&result)?),
//!     Outcome::Miss(miss) => println!("missed: {}", miss.reason.meaning()),
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod alarm;
#[cfg(feature = "async")]
pub mod asynchronous;
pub mod blocking;
mod clock;
pub mod dealing;
mod descriptor;
mod error;
mod incoming;
mod options;
pub mod shared;
#[cfg(feature = "status")]
pub mod status;
mod steady;
pub mod types;
pub mod wire;

pub use alarm::Alarm;
pub use error::Error;
pub use half::f16;
pub use options::{DEFAULT_SOCKET, Options};
pub use shared::{Arena, Place};
pub use steady::Held;
pub use types::*;
