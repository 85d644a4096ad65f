//! The devices of a cluster at work: requests go where the allocation sends them, and wait there for a batch.

use std::collections::VecDeque;

use planner::problem::raw as written;
use planner::{Number, Problem};
use rt_core::{Instant, MissReason, Outcome, Span, WorkerId};
use virtual_time::{End, Policy, Step};

use super::allocate::{Allocator, Seat};
use super::{Cluster, batches};
use crate::policy::{Alone, PolicyKind};

/// Demand is looked at so often, and whether more comes than is allocated for.
const LOOK: Span = Span::from_millis(1000);
/// What is left of the weight of an observation after each further one, as the authors' programs weigh demand
/// (`ewma_decay` of 1.6, a centre of mass).
const DECAY: f64 = 1.6 / 2.6;

/// A device.
struct Device {
    class: usize,
    seat: Option<Seat>,
    /// Batches what waits here.
    alone: Option<Box<dyn Alone>>,
    /// What was sent here and has not begun: request, arrival.
    waiting: VecDeque<(u64, Instant)>,
    running: Vec<(u64, Instant)>,
    /// With which variant of all, and for how long.
    runs: (usize, Span),
    /// Until then it loads.
    ready: Instant,
    /// When it asks to be asked again.
    wake: Option<Instant>,
    /// Whether it is to be asked now.
    ask: bool,
    /// Whether what runs was begun by another seat.
    orphan: bool,
    /// How many requests of its service came since it was last sent one, in parts of one for it.
    credit: f64,
}

/// The policy.
pub(super) struct Hosting<'a> {
    cluster: &'a Cluster,
    allocator: Allocator,
    batching: PolicyKind,
    devices: Vec<Device>,
    ended: VecDeque<End>,
    /// Where the variants of each service begin among all.
    first: Vec<usize>,
    /// Of each service, what came since the last look, and the weighted observations with their weight.
    came: Vec<u64>,
    seen: Vec<f64>,
    weight: f64,
    look: Instant,
    /// When it was last decided.
    decided: Instant,
    /// Sum of the shares of devices that hold something, and how often it was decided.
    held: (f64, u64),
}

impl<'a> Hosting<'a> {
    /// `demand` requests a second are known at the beginning.
    pub(super) fn new(
        cluster: &'a Cluster,
        allocator: Allocator,
        batching: PolicyKind,
        demand: &[f64],
    ) -> Self {
        let classes = cluster.problem.classes.iter().enumerate();
        let class = classes.flat_map(|(class, &(_, count))| std::iter::repeat_n(class, count as usize));
        let device = |class| Device {
            class,
            seat: None,
            alone: None,
            waiting: VecDeque::new(),
            running: Vec::new(),
            runs: (0, Span::ZERO),
            ready: Instant::ZERO,
            wake: None,
            ask: false,
            orphan: false,
            credit: 0.0,
        };
        let variants = cluster.problem.services.iter().map(|service| service.variants.len());
        let first = variants.scan(0, |next, count| Some(std::mem::replace(next, *next + count)));
        let mut hosting = Self {
            devices: class.map(device).collect(),
            ended: VecDeque::new(),
            first: first.collect(),
            came: vec![0; demand.len()],
            seen: demand.to_vec(),
            weight: 1.0,
            look: Instant::ZERO + LOOK,
            decided: Instant::ZERO,
            held: (0.0, 0),
            cluster,
            allocator,
            batching,
        };
        hosting.settle(Instant::ZERO);
        // What is there at the beginning was loaded before.
        hosting.devices.iter_mut().for_each(|device| device.ready = Instant::ZERO);
        hosting
    }

    /// The share of the devices that hold something, on average over all decisions.
    pub(super) fn in_use(&self) -> f64 {
        self.held.0 / self.held.1 as f64
    }

    /// Devices take their seats, as many as can the one they have; what waits elsewhere moves.
    fn settle(&mut self, now: Instant) {
        let mut wanted: Vec<Option<Seat>> = self.allocator.seats.iter().copied().map(Some).collect();
        let same = |a: &Seat, b: &Seat| {
            (a.class, a.service, a.variant, a.batch) == (b.class, b.service, b.variant, b.batch)
        };
        let mut given: Vec<Option<Seat>> = vec![None; self.devices.len()];
        for (device, given) in self.devices.iter().zip(&mut given) {
            let Some(old) = &device.seat else { continue };
            let kept = wanted.iter_mut().find(|seat| seat.as_ref().is_some_and(|seat| same(seat, old)));
            *given = kept.and_then(Option::take);
        }
        for (device, given) in self.devices.iter().zip(&mut given).filter(|(_, given)| given.is_none()) {
            let next = wanted.iter_mut().find(|seat| seat.is_some_and(|seat| seat.class == device.class));
            *given = next.and_then(Option::take);
        }
        let mut moving: Vec<(u64, Instant, usize)> = Vec::new();
        for (device, given) in self.devices.iter_mut().zip(given) {
            if let (Some(old), Some(new)) = (&device.seat, &given)
                && same(old, new)
            {
                device.seat = given;
                continue;
            }
            if let Some(old) = device.seat {
                moving.extend(device.waiting.drain(..).map(|(token, came)| (token, came, old.service)));
            }
            device.wake = None;
            device.orphan |= !device.running.is_empty();
            (device.seat, device.credit) = (given, 0.0);
            device.ready = now + self.cluster.load;
            device.alone = given.and_then(|seat| host(self.cluster, &seat, self.batching));
        }
        moving.sort_unstable();
        moving.into_iter().for_each(|(token, came, service)| self.send(now, came, service, token));
        let held = self.devices.iter().filter(|device| device.seat.is_some()).count();
        self.held = (self.held.0 + held as f64 / self.devices.len() as f64, self.held.1 + 1);
    }

    /// A request goes to the device that has been sent least for its part of what comes.
    fn send(&mut self, now: Instant, came: Instant, service: usize, token: u64) {
        let even = self.allocator.is_even();
        let part = |device: &Device| match device.seat {
            Some(seat) if seat.service == service && device.alone.is_some() => {
                if even {
                    1.0
                } else {
                    seat.rate
                }
            }
            _ => 0.0,
        };
        let total: f64 = self.devices.iter().map(part).sum();
        let mut next: Option<usize> = None;
        for i in 0..self.devices.len() {
            let share = part(&self.devices[i]);
            if share > 0.0 {
                self.devices[i].credit += share / total;
                if next.is_none_or(|best| self.devices[i].credit > self.devices[best].credit) {
                    next = Some(i);
                }
            }
        }
        let Some(next) = next else {
            return self.end(token, Outcome::Missed(MissReason::QueueFull));
        };
        let device = &mut self.devices[next];
        device.credit -= 1.0;
        let Some(alone) = &mut device.alone else { return };
        // The daemon's scheduler has its own clock; what is too late by then is told so below.
        let at = if self.batching.is_own() { now } else { came };
        device.ask = true;
        match alone.arrive(at, token) {
            Some(end) => self.ended.push_back(end),
            None => device.waiting.push_back((token, came)),
        }
    }

    fn end(&mut self, token: u64, outcome: Outcome) {
        self.ended.push_back(End { token, mandatory: false, outcome });
    }

    /// Looks at the demand, and decides anew if it is time or more comes than the devices are there for.
    fn look_at(&mut self, now: Instant) {
        self.look = now + LOOK;
        self.weight = self.weight * DECAY + 1.0;
        for (seen, came) in self.seen.iter_mut().zip(&mut self.came) {
            *seen = *seen * DECAY + std::mem::take(came) as f64 / LOOK.as_secs_f64();
        }
        let demand: Vec<f64> = self.seen.iter().map(|seen| seen / self.weight).collect();
        let since = now.since(self.decided);
        let capacity = |s: usize| {
            let own = self.devices.iter().filter_map(|device| device.seat.filter(|seat| seat.service == s));
            own.map(|seat| seat.peak).sum::<f64>()
        };
        let more = || demand.iter().enumerate().any(|(s, &demand)| demand > capacity(s));
        let quick = self.allocator.is_quick();
        if quick || since >= self.cluster.period || (since >= self.cluster.soonest && more()) {
            self.decided = now;
            let wanted: Vec<f64> = demand.iter().map(|demand| demand * self.cluster.margin).collect();
            if self.allocator.decide(&wanted) {
                self.settle(now);
            }
        }
    }
}

/// The policy of a device that holds `seat`; `None` if it cannot be had.
fn host(cluster: &Cluster, seat: &Seat, batching: PolicyKind) -> Option<Box<dyn Alone>> {
    let (number, deadline) =
        (|span: Span| Number::whole(span.as_nanos()), cluster.problem.services[seat.service].deadline);
    let measured = batches(&cluster.problem, seat.service, seat.variant, seat.class);
    // A size between two is filled up; a larger batch never counts as faster.
    let mut times: Vec<Number> = Vec::new();
    let mut longest = Span::ZERO;
    for &(size, time) in measured.iter().take_while(|(size, _)| *size <= seat.batch) {
        longest = longest.max(time);
        times.resize(size as usize, number(longest));
    }
    let workers = written::Workers { count: 1, batch: seat.batch as usize, time: None, times: Some(times) };
    let problem = written::Problem {
        unit: written::Unit::Ns,
        deadline: number(deadline),
        guard: Number::default(),
        stalls: None,
        dispatch: written::Dispatch::Eager,
        background: true,
        workers: vec![workers],
        streams: vec![written::Stream { name: "s".to_owned(), ..written::Stream::default() }],
    };
    batching.alone(&Problem::from_raw(problem).ok()?).ok()
}

impl Policy for Hosting<'_> {
    fn workers(&self) -> usize {
        self.devices.len()
    }

    fn arrive(&mut self, now: Instant, service: usize, token: u64) -> Option<End> {
        self.came[service] += 1;
        self.send(now, now, service, token);
        None
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        let device = &mut self.devices[worker];
        device.ask = true;
        if !std::mem::take(&mut device.orphan) {
            if let Some(alone) = &mut device.alone {
                alone.complete(now, time);
            }
            return;
        }
        let variant = device.runs.0;
        let service = self.first.partition_point(|&first| first <= variant) - 1;
        let deadline = self.cluster.problem.services[service].deadline;
        for (token, came) in std::mem::take(&mut device.running) {
            let late = now > came + deadline;
            self.end(token, if late { Outcome::Missed(MissReason::Late) } else { Outcome::Served });
        }
    }

    fn poll(&mut self, now: Instant) -> Step {
        let Self { devices, ended, cluster, first, .. } = self;
        for (worker, device) in devices.iter_mut().enumerate() {
            while ended.is_empty() && (device.ask || device.wake.is_some_and(|wake| wake <= now)) {
                let (Some(alone), Some(seat)) = (&mut device.alone, device.seat) else {
                    (device.ask, device.wake) = (false, None);
                    break;
                };
                if now < device.ready || device.orphan {
                    (device.ask, device.wake) = (false, (now < device.ready).then_some(device.ready));
                    break;
                }
                match alone.poll(now) {
                    Step::Start { .. } => {
                        let tokens = alone.running();
                        let began = |&&(token, _): &&(u64, Instant)| tokens.contains(&token);
                        device.running = device.waiting.iter().filter(began).copied().collect();
                        device.waiting.retain(|(token, _)| !tokens.contains(token));
                        device.runs = (first[seat.service] + seat.variant, alone.lasts());
                        return Step::Start { worker };
                    }
                    Step::End(end) => {
                        let mut own = device.running.iter().chain(&device.waiting);
                        let came = own.find(|(token, _)| *token == end.token).map(|&(_, came)| came);
                        device.running.retain(|(token, _)| *token != end.token);
                        device.waiting.retain(|(token, _)| *token != end.token);
                        let deadline = cluster.problem.services[seat.service].deadline;
                        let late = came.is_some_and(|came| now > came + deadline);
                        let outcome = match end.outcome {
                            Outcome::Served if late => Outcome::Missed(MissReason::Late),
                            other => other,
                        };
                        ended.push_back(End { token: end.token, mandatory: false, outcome });
                    }
                    Step::SafeMode(_) | Step::Suspension { .. } => {}
                    // A request that came elsewhere first may have a latest start that is past.
                    Step::Wait { until } => {
                        (device.ask, device.wake) = (false, until.filter(|&until| until > now));
                    }
                }
            }
            if let Some(end) = ended.pop_front() {
                return Step::End(end);
            }
        }
        if let Some(end) = ended.pop_front() {
            return Step::End(end);
        }
        // After all that ended, so that no device loses what it has not told yet.
        if now >= self.look {
            self.look_at(now);
            return Policy::poll(self, now);
        }
        let wake = self.devices.iter().filter_map(|device| device.wake).min();
        Step::Wait { until: Some(wake.map_or(self.look, |wake| wake.min(self.look))) }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.devices[worker].running.iter().map(|&(token, _)| token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        self.devices[worker].runs.1
    }

    fn variant(&self, worker: WorkerId) -> usize {
        self.devices[worker].runs.0
    }
}
