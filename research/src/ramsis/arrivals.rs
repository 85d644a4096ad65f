//! Arrivals at one worker of several: a Poisson clock of which every so many ticks bring a request.

use super::RamsisError;
use super::error::within;

/// The most workers that share a load.
pub const MAX_WORKERS: usize = 4096;
/// The most ticks from one request to the next.
pub const MAX_TICKS: usize = 4096;
/// The highest load, in requests per second.
pub const MAX_RATE: f64 = 1e7;

/// A Poisson clock; every [`Clock::ticks`]-th tick is a request for the worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Ticks from one request of the worker to its next, at least 1, at most [`MAX_TICKS`].
    pub ticks: usize,
    /// Expected ticks per nanosecond, above 0.
    pub per_ns: f64,
}

/// What arrives at one worker while it has `queued` requests (the arrival distribution of section 3.1.1 and the
/// load balancing of section 4.4 and appendix I together).
///
/// The sums over counts in section 4.4.2 ask for independent increments, and a process with those in which
/// requests come one by one is a Poisson process. Others are reached as each so-manieth tick of one, with the
/// phase within a round kept: exact, and what makes policies fast to compute.
pub trait Arrivals {
    /// The clock that runs while a batch taken from a queue of `queued` ≥ 1 requests is served.
    fn clock(&self, queued: usize) -> Clock;

    /// Everything that [`Arrivals::clock`] depends on, in words; part of the inputs' hash.
    fn describe(&self) -> String;
}

/// One load dealt to workers in turn (section 4.4): a worker gets every `workers`-th request.
///
/// Times between requests are gamma distributed. Shape 1 is the Poisson process of the paper's experiments. A
/// shape of `k` makes the coefficient of variation `1/sqrt(k)`: bursts below 1, regular arrivals above (the paper
/// names the gamma distribution; as a renewal process it has no independent increments, see [`Arrivals`]).
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRobin {
    rate: f64,
    workers: usize,
    ticks: usize,
}

impl RoundRobin {
    /// Poisson arrivals, `rate` requests per second, above 0 and at most [`MAX_RATE`], dealt to `workers`, 1 to
    /// [`MAX_WORKERS`].
    ///
    /// # Errors
    /// [`RamsisError::Value`] for a value outside its range.
    pub fn poisson(rate: f64, workers: usize) -> Result<Self, RamsisError> {
        Self::gamma(rate, workers, 1.0)
    }

    /// As [`RoundRobin::poisson`], with times between requests of this `shape`.
    ///
    /// A worker's own times have the shape `shape × workers`. Exact if that is a whole number, else the nearest
    /// one is taken, at least 1; [`RoundRobin::shape`] tells which. The rate is exact.
    ///
    /// # Errors
    /// [`RamsisError::Value`] for a value outside its range, or more than [`MAX_TICKS`] ticks.
    pub fn gamma(rate: f64, workers: usize, shape: f64) -> Result<Self, RamsisError> {
        within("rate", rate, f64::MIN_POSITIVE, MAX_RATE)?;
        within("workers", workers as f64, 1.0, MAX_WORKERS as f64)?;
        within("shape", shape, f64::MIN_POSITIVE, MAX_TICKS as f64)?;
        let ticks = (shape * workers as f64).round().max(1.0);
        within("shape × workers", ticks, 1.0, MAX_TICKS as f64)?;
        Ok(Self { rate, workers, ticks: ticks as usize })
    }

    /// The shape that is used.
    #[must_use]
    pub fn shape(&self) -> f64 {
        self.ticks as f64 / self.workers as f64
    }
}

impl Arrivals for RoundRobin {
    fn clock(&self, _queued: usize) -> Clock {
        Clock { ticks: self.ticks, per_ns: self.rate * self.shape() / 1e9 }
    }

    fn describe(&self) -> String {
        let Self { rate, workers, ticks } = self;
        format!("round robin, {rate} requests/s, {workers} workers, {ticks} ticks")
    }
}

/// Poisson arrivals that each go to the shortest queue, in the approximation of appendix I (from V. Gupta and
/// others, Analysis of join-the-shortest-queue routing for web server farms, 2007): with at most 2 queued a worker
/// gets its even share, with more the rate `(rate / (workers × service))^workers × service`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortestQueue {
    rate: f64,
    workers: usize,
    service: f64,
}

impl ShortestQueue {
    /// `rate` requests per second in all, above 0 and at most [`MAX_RATE`], for `workers`, 1 to [`MAX_WORKERS`],
    /// of which each can serve `service` requests per second.
    ///
    /// # Errors
    /// [`RamsisError::Value`] for a value outside its range, or a load above what the workers can serve, for
    /// which the approximation is none.
    pub fn new(rate: f64, workers: usize, service: f64) -> Result<Self, RamsisError> {
        within("rate", rate, f64::MIN_POSITIVE, MAX_RATE)?;
        within("workers", workers as f64, 1.0, MAX_WORKERS as f64)?;
        within("service", service, f64::MIN_POSITIVE, MAX_RATE)?;
        within("rate", rate, f64::MIN_POSITIVE, service * workers as f64)?;
        Ok(Self { rate, workers, service })
    }
}

impl Arrivals for ShortestQueue {
    fn clock(&self, queued: usize) -> Clock {
        let Self { rate, workers, service } = *self;
        let share = rate / workers as f64;
        let long = (share / service).powi(i32::try_from(workers).unwrap_or(i32::MAX)) * service;
        // Below one request in 30 years nothing comes: a clock must tick.
        Clock { ticks: 1, per_ns: if queued <= 2 { share } else { long.max(1e-9) } / 1e9 }
    }

    fn describe(&self) -> String {
        let Self { rate, workers, service } = self;
        format!("shortest queue, {rate} requests/s, {workers} workers of {service} requests/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gamma_load_is_a_faster_clock_with_more_ticks() {
        let clock = RoundRobin::gamma(2000.0, 60, 0.25).expect("valid").clock(1);
        assert_eq!(clock.ticks, 15);
        assert!((clock.per_ns - 5e-7).abs() < 1e-20);
        let poisson = RoundRobin::poisson(2000.0, 60).expect("valid").clock(9);
        assert_eq!(poisson, Clock { ticks: 60, per_ns: 2e-6 });
        assert!((RoundRobin::gamma(10.0, 3, 0.5).expect("rounded").shape() - 2.0 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn long_queues_get_less() {
        let some = ShortestQueue::new(100.0, 2, 60.0).expect("valid");
        assert_eq!(some.clock(2), Clock { ticks: 1, per_ns: 50e-9 });
        assert!((some.clock(3).per_ns - 2500.0 / 60.0 * 1e-9).abs() < 1e-18);
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let refusal = |made: Result<RoundRobin, RamsisError>| made.expect_err("refused").to_string();
        assert_eq!(refusal(RoundRobin::poisson(0.0, 1)), "rate = 0: must be above 0 and at most 10000000");
        assert_eq!(
            refusal(RoundRobin::poisson(f64::NAN, 1)),
            "rate = NaN: must be above 0 and at most 10000000"
        );
        assert_eq!(refusal(RoundRobin::poisson(1.0, 0)), "workers = 0: must be 1 to 4096");
        assert_eq!(refusal(RoundRobin::gamma(1.0, 4096, 2.0)), "shape × workers = 8192: must be 1 to 4096");
        let crowded = ShortestQueue::new(130.0, 2, 60.0).expect_err("too much").to_string();
        assert_eq!(crowded, "rate = 130: must be above 0 and at most 120");
    }
}
