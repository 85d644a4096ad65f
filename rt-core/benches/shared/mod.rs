//! A device in a steady state: sixteen services with four streams each on as many workers as asked for, one request in and
//! one out at each step.

use rt_core::sharing::{Device, DeviceAction, DeviceConfig, Rule};
use rt_core::{
    Arrival, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, LatencyProfile, Ran,
    SafeModeConfig, SchedulerConfig, Span, StreamId, StreamSpec, Workers,
};

const SERVICES: usize = 16;
const STREAMS: usize = 4;
/// Time between two requests.
const P: u64 = 1_000;

/// Workers that end one after the other, and a mandatory request that comes when one ends.
pub(crate) struct Shared {
    device: Device,
    streams: Vec<(usize, StreamId)>,
    workers: usize,
    now: u64,
    token: u64,
}

impl Shared {
    /// With `length` requests waiting.
    pub(crate) fn new(rule: Rule, workers: usize, length: usize) -> Self {
        let time = workers as u64 * P;
        let profile = LatencyProfile::new(&[Span::from_nanos(time)]).expect("a profile");
        let span = Span::from_millis(1);
        let config = |s: usize| SchedulerConfig {
            // No two deadlines alike.
            deadline: Span::from_nanos((4 * length as u64 + 64) * P + time + s as u64),
            guard: Span::ZERO,
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![Workers { count: workers, batch: 1, profile: profile.clone() }],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: 2 * length + 64,
            streams: STREAMS,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        };
        let services = (0..SERVICES).map(config).collect();
        let (turns, longest) = (vec![1; SERVICES], Span::from_nanos(time));
        let config = DeviceConfig { rule, turns, longest, overrun_margin: Span::ZERO, services };
        let mut device = Device::new(config).expect("a device");
        let window = ArrivalBound::window(2 * length as u64 + 64, Span::from_nanos(P)).expect("valid");
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let spec = StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"));
        let mut add = |stream: usize| {
            let service = stream % SERVICES;
            let id = device.service_mut(service).add_stream(Instant::ZERO, spec.clone());
            (service, id.expect("room"))
        };
        let streams = (0..SERVICES * STREAMS).map(&mut add).collect();
        let mut shared = Self { device, streams, workers, now: 0, token: 0 };
        for start in 0..length + workers {
            shared.now += if start < workers { P } else { 0 };
            shared.arrive();
        }
        shared
    }

    /// The end of a batch, an arrival, and all that the device decides.
    pub(crate) fn step(&mut self) {
        self.now += P;
        let worker = (self.token as usize) % self.workers;
        let worker =
            (0..self.workers).map(|w| (worker + w) % self.workers).find(|&w| self.device.owner(w).is_some());
        let ran = Ran::Done(Span::from_nanos(self.workers as u64 * P));
        self.device.handle_completion(Instant::from_nanos(self.now), worker.expect("all are busy"), ran);
        self.poll();
        self.arrive();
    }

    fn arrive(&mut self) {
        let (service, stream) = self.streams[self.token as usize % self.streams.len()];
        let at = Instant::from_nanos(self.now);
        let refused = self.device.handle_arrival(at, service, Arrival::new(stream, self.token, at));
        assert!(refused.is_none(), "it is refused");
        self.token += 1;
        self.poll();
    }

    fn poll(&mut self) {
        let now = Instant::from_nanos(self.now);
        while !matches!(self.device.poll(now), DeviceAction::WakeAt(_)) {}
    }
}
