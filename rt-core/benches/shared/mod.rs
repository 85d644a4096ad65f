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

/// Of as many batches in a row it is known which worker ran them: more than run at once.
const KNOWN: usize = 128;

/// Workers that end one after the other, and a mandatory request that comes when one ends.
pub(crate) struct Shared {
    device: Device,
    streams: Vec<(usize, StreamId)>,
    /// How long a batch of each service takes; of as many that began one after the other the last ends first, a power of two.
    times: [Span; SERVICES],
    row: usize,
    /// The workers of the last batches, and how many have begun and have ended.
    ran_by: [usize; KNOWN],
    begun: usize,
    ended: usize,
    now: u64,
    token: u64,
}

impl Shared {
    /// With `length` requests waiting. All batches take as long, and end in the order in which they began; or, if `mixed`, those of each
    /// service take two steps less than those of the one before, so that of each sixteen in a row the last ends first.
    pub(crate) fn new(rule: Rule, workers: usize, length: usize, mixed: bool) -> Self {
        let row = if mixed { SERVICES } else { 1 };
        assert!(workers + row <= KNOWN && (row == 1 || workers > row), "too many workers, or too few");
        // Those that wait at first come a bit later than a step.
        let time = |s: usize| (workers + row - 1 - 2 * (s % row)) as u64 * P + length as u64;
        let times = std::array::from_fn(|s| Span::from_nanos(time(s)));
        let profile = |s: usize| LatencyProfile::new(&times[s..=s]).expect("a profile");
        let span = Span::from_millis(1);
        let config = |s: usize| SchedulerConfig {
            deadline: Span::from_nanos((4 * length as u64 + 64) * P + time(0)),
            guard: Span::ZERO,
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![Workers { count: workers, batch: 1, profile: profile(s) }],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: 2 * length + 64,
            streams: STREAMS,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        };
        let services = (0..SERVICES).map(config).collect();
        let (turns, longest) = (vec![1; SERVICES], times[0]);
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
        // They begin in order, and from then on whoever ends begins anew.
        let (ran_by, begun) = (std::array::from_fn(|batch| batch), workers);
        let mut shared = Self { device, streams, times, row, ran_by, begun, ended: 0, now: 0, token: 0 };
        for start in 0..length + workers {
            // No two come at once.
            shared.now += if start < workers { P } else { 1 };
            shared.arrive();
        }
        shared
    }

    /// The end of a batch, an arrival, and all that the device decides.
    pub(crate) fn step(&mut self) {
        self.now += P;
        let batch = self.ended ^ (self.row - 1);
        let worker = self.ran_by[batch % KNOWN];
        self.ran_by[self.begun % KNOWN] = worker;
        (self.begun, self.ended) = (self.begun + 1, self.ended + 1);
        let ran = Ran::Done(self.times[batch % SERVICES]);
        self.device.handle_completion(Instant::from_nanos(self.now), worker, ran);
        self.poll();
        self.arrive();
    }

    /// No batch has run over, so each has ended when it was meant to.
    pub(crate) fn check(&self) {
        let late = (0..SERVICES).map(|s| self.device.service(s).overruns()).sum::<u64>();
        assert_eq!(late, 0, "batches have run over");
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
