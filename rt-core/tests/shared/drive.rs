//! What the caller of a device does and follows: requests that come, batches that end, the rule beside it.

use std::collections::VecDeque;

use rt_core::sharing::{Device, DeviceAction, Rule};
use rt_core::{Arrival, Cause, Event, Instant, Outcome, Ran, Span, StreamError, StreamId, StreamSpec};

use super::{Run, Waits};
use crate::harness::classes::class_of;
use crate::harness::end_of;

impl Run {
    pub(crate) fn add(&mut self, service: usize, spec: StreamSpec) -> StreamId {
        self.try_add(service, spec).expect("room for a stream")
    }

    /// The same; nothing if it would have to wait.
    pub(crate) fn try_add(&mut self, service: usize, spec: StreamSpec) -> Option<StreamId> {
        let now = Instant::from_nanos(self.now);
        let added = self.device.service_mut(service).add_stream(now, spec);
        self.settle();
        match added {
            Err(StreamError::Wait) => None,
            added => Some(added.expect("room for a stream")),
        }
    }

    /// A stream goes: what it has waiting is cancelled.
    pub(crate) fn remove(&mut self, service: usize, stream: StreamId) {
        drop(self.device.service_mut(service).remove_stream(stream));
        self.settle();
    }

    /// Another client has the stream: its number from now on.
    pub(crate) fn restart(&mut self, service: usize, stream: StreamId) -> StreamId {
        let fresh = self.device.service_mut(service).restart_stream(stream).expect("a known stream");
        self.settle();
        fresh
    }

    /// A request comes now.
    pub(crate) fn arrive(&mut self, service: usize, stream: StreamId) {
        self.arrive_sent(service, stream, self.now);
    }

    /// A request that was sent then is read now.
    pub(crate) fn arrive_sent(&mut self, service: usize, stream: StreamId, sent: u64) {
        self.arrive_at(service, stream, sent, self.now);
    }

    /// A request comes now that the caller has no room for.
    pub(crate) fn refuse(&mut self, service: usize, stream: StreamId) {
        let now = Instant::from_nanos(self.now);
        let wanted = (now, self.device.service(service).config().deadline);
        let arrival = Arrival::new(stream, u64::MAX, now);
        assert!(
            self.device.handle_wanted(now, service, arrival, wanted, false).is_some(),
            "resolved at once"
        );
        self.settle();
    }

    /// A request that was sent then, and had come when it says so, is taken in now.
    pub(crate) fn arrive_at(&mut self, service: usize, stream: StreamId, sent: u64, at: u64) {
        let (token, now) = (self.tokens, Instant::from_nanos(self.now));
        self.tokens += 1;
        let mandatory = |device: &Device| device.service(service).waiting_mandatory();
        let before = mandatory(&self.device);
        let arrival = Arrival::new(stream, token, Instant::from_nanos(at)).of_class(class_of(token));
        let wanted = (Instant::from_nanos(sent), self.device.service(service).config().deadline);
        let refused = self.device.handle_wanted(now, service, arrival, wanted, true);
        if let Some(resolution) = refused {
            if resolution.request.mandatory {
                self.missed.push((self.now, service, self.warned[service]));
            }
        } else if mandatory(&self.device) > before {
            let deadline = sent + self.device.service(service).config().deadline.as_nanos();
            if self.waiting[service].is_empty() {
                self.line.push_back((service, 0));
            }
            self.waiting[service].push_back(Waits { token, deadline });
        }
    }

    /// The service that the rule serves next may be one of these; any, if nothing mandatory waits.
    fn next(&self) -> Option<Vec<usize>> {
        match self.rule {
            Rule::Turns => self.line.front().map(|&(service, _)| vec![service]),
            Rule::Earliest => {
                // Not in the order in which they are read, if some are late.
                let first = |s: usize| self.waiting[s].iter().map(|waits| waits.deadline).min();
                let due = |s: usize| Some(first(s)? - self.guards[s]);
                let all = 0..self.waiting.len();
                let least = all.clone().filter_map(due).min()?;
                Some(all.filter(|&s| due(s) == Some(least)).collect())
            }
        }
    }

    /// Polls until there is nothing more to do now.
    pub(crate) fn settle(&mut self) {
        let (missed, told) = (self.missed.len(), self.causes.len());
        self.settle_all();
        // Resolutions are told before events: what was announced with them counts, other than the miss itself.
        let Self { missed: all, causes, .. } = self;
        for (_, service, warned) in &mut all[missed..] {
            let other =
                |&(_, s, cause): &(u64, usize, Cause)| s == *service && cause != Cause::ConstraintViolated;
            *warned |= causes[told..].iter().any(other);
        }
    }

    fn settle_all(&mut self) {
        loop {
            let now = Instant::from_nanos(self.now);
            let action = self.device.poll(now);
            self.look_for_demotions();
            match action {
                DeviceAction::Start { service, worker } => self.started(service, worker),
                DeviceAction::Resolve(service, resolution) => {
                    let request = resolution.request;
                    self.forget(service, request.token);
                    match resolution.outcome {
                        Outcome::Served => {
                            assert!(now <= request.deadline, "served after its deadline");
                            self.served[service] += 1;
                        }
                        Outcome::Missed(rt_core::MissReason::Cancelled) => {
                            assert!(!(self.leaving && request.mandatory), "cancelled for a takeover");
                        }
                        Outcome::Missed(_) if request.mandatory => {
                            // What came before safe mode was left is promised nothing.
                            let before = self.left[service].is_some_and(|left| request.arrival <= left);
                            self.missed.push((self.now, service, self.warned[service] || before));
                        }
                        Outcome::Missed(_) => {}
                    }
                }
                DeviceAction::Event(service, Event::SafeMode(transition)) => {
                    let cause = transition.state.alarm.map(|alarm| alarm.cause);
                    let breach = cause.filter(|cause| cause.severity().is_suspended());
                    self.causes.extend(breach.map(|cause| (self.now, service, cause)));
                    // How long batches take of one that is demoted is its own matter.
                    if breach == Some(Cause::ServiceOverrun) && !self.demoted.contains(&true) {
                        let seen = self.seen_over();
                        assert!(
                            self.allowed.is_none_or(|allowed| seen > allowed),
                            "{service} is told of {seen}"
                        );
                    }
                    let by_other = breach == Some(Cause::ServiceOverrun)
                        && transition.state.alarm.is_some_and(|alarm| {
                            alarm.evidence.window > 0 && alarm.evidence.window != service as u64 + 1
                        });
                    let told = self.steady && by_other;
                    assert!(!told || self.harms.contains(&true), "harmed by a service that is demoted");
                    if self.warned[service] && !transition.state.severity.is_suspended() {
                        self.left[service] = Some(now);
                    }
                    self.warned[service] = match transition.state.severity.is_suspended() {
                        true => {
                            self.warned[service] || breach.is_some_and(|c| c != Cause::ConstraintViolated)
                        }
                        false => false,
                    };
                }
                DeviceAction::Event(..) => {}
                DeviceAction::WakeAt(at) => {
                    self.look_for_calm();
                    self.wake = at.map(Instant::as_nanos);
                    assert!(self.wake.is_none_or(|at| at > self.now), "a wake-up that is due already");
                    let free = |worker: &usize| {
                        self.running[*worker].is_none() && self.device.service(0).is_alive(*worker)
                    };
                    let free = (0..self.running.len()).any(|worker| free(&worker));
                    let waits = |s: usize| match self.quiet {
                        true => self.device.service(s).waiting_mandatory() > 0,
                        // What is demoted may have to wait for nobody to come.
                        false => self.device.service(s).waiting() > 0 && !self.demoted[s],
                    };
                    let any = (0..self.waiting.len()).any(waits);
                    assert!(!(free && any), "a worker idles while something waits");
                    return;
                }
            }
        }
    }

    /// What waits of a service that is demoted is mandatory no longer.
    fn look_for_demotions(&mut self) {
        for service in 0..self.demoted.len() {
            let demoted = self.device.service(service).is_demoted();
            if demoted && !self.demoted[service] {
                self.waiting[service].clear();
                self.line.retain(|&(other, _)| other != service);
            }
            self.demoted[service] = demoted;
        }
    }

    /// By how much batches have run over by now of which that is not forgotten.
    fn seen_over(&self) -> u64 {
        let running = self.running.iter().zip(&self.due);
        let yet = |(run, &due): (&Option<(u64, u64)>, &u64)| {
            run.map_or(0, |(_, end)| end.saturating_sub(due.max(self.now)))
        };
        self.over.saturating_sub(running.map(yet).sum())
    }

    /// Where nothing mandatory waits, and every worker is free within the longest batch, what ran over is forgotten once all that runs
    /// has ended, unless that runs over.
    fn look_for_calm(&mut self) {
        let running = || self.running.iter().zip(&self.due).filter_map(|(run, &due)| Some(((*run)?.1, due)));
        let prompt = running().all(|(_, due)| self.now <= due && due - self.now <= self.longest);
        if self.calm.is_none() && prompt && self.waiting.iter().all(VecDeque::is_empty) {
            self.calm = Some(self.running.iter().map(Option::is_some).collect());
            self.look_for_end();
        }
    }

    fn look_for_end(&mut self) {
        if self.calm.as_ref().is_some_and(|busy| !busy.contains(&true)) {
            let running = self.running.iter().zip(&self.due);
            self.over = running.filter_map(|(run, &due)| Some((*run)?.1.saturating_sub(due))).sum();
            self.calm = None;
        }
    }

    /// The batch of a worker has ended, or is lost.
    fn ended(&mut self, worker: usize, over: bool) {
        match &mut self.calm {
            Some(_) if over => self.calm = None,
            Some(busy) => busy[worker] = false,
            None => {}
        }
        self.look_for_end();
    }

    /// What waited under this number waits no longer.
    fn forget(&mut self, service: usize, token: u64) {
        let queue = &mut self.waiting[service];
        let before = queue.len();
        queue.retain(|waits| waits.token != token);
        if before > 0 && queue.is_empty() {
            self.line.retain(|&(other, _)| other != service);
        }
    }

    fn started(&mut self, service: usize, worker: usize) {
        assert!(self.running[worker].is_none(), "a busy worker was given a batch");
        assert!(self.device.service(0).is_alive(worker), "a lost worker was given a batch");
        assert_eq!(self.device.owner(worker), Some(service));
        let batch: Vec<_> = self.device.service(service).batch(worker).to_vec();
        let kind = self.device.service(service).config().workers[0].clone();
        let mandatory = batch.iter().filter(|request| request.mandatory).count();
        let ahead = self.device.gone_ahead() > self.ahead;
        self.ahead = self.device.gone_ahead();
        if ahead {
            // It counts on what is left of the margin: a calm instant before it is none.
            self.calm = None;
        }
        match self.next() {
            // Which of its own a stream has worked off in place of which, where it sends too much, is not followed.
            _ if self.wild => self.gone_ahead += usize::from(ahead),
            None => assert!(mandatory == 0 && !ahead),
            Some(_) if ahead => {
                self.gone_ahead += 1;
            }
            Some(next) => {
                assert!(next.contains(&service), "{service} goes before {next:?}");
                assert!(batch.len() <= kind.batch, "a batch of {}", batch.len());
                let due = self.waiting[service].len().min(kind.batch);
                assert!(mandatory == due || !self.causes.is_empty(), "{mandatory} of {due} were taken");
            }
        }
        let turn = self.line.front().filter(|&&(first, _)| first == service).copied();
        for request in &batch {
            self.waiting[service].retain(|waits| waits.token != request.token);
        }
        if let Some((_, used)) = turn.filter(|_| mandatory > 0 && !ahead) {
            self.line.pop_front();
            match (self.waiting[service].is_empty(), used + 1 >= self.turns[service]) {
                (true, _) => {}
                (false, true) => self.line.push_back((service, 0)),
                (false, false) => self.line.push_front((service, used + 1)),
            }
        } else if self.waiting[service].is_empty() {
            self.line.retain(|&(other, _)| other != service);
        }
        let base = kind.profile.bound(batch.len()).as_nanos();
        let bound = self.device.service(service).granted(worker).as_nanos();
        if self.device.service(service).variant(worker) > 0 {
            assert!(base <= bound && bound <= self.longest && !ahead, "{bound} of {}", self.longest);
            self.varied[0] += 1;
            self.varied[1] += usize::from(mandatory > 0);
        } else {
            assert_eq!(bound, base);
        }
        let wanted = (self.time)(service, bound);
        let most = self.margin.map_or(wanted, |margin| bound + margin.saturating_sub(self.over));
        let time = wanted.min(most);
        // The others count on a batch of one that is demoted to take longer than by its profile.
        let due = self.device.due(worker).expect("it runs").as_nanos();
        assert!(if self.demoted[service] { due >= self.now + bound } else { due == self.now + bound });
        self.over += (self.now + time).saturating_sub(due);
        self.overran[service] |= time > bound;
        self.harms[worker] = time > bound && !self.demoted[service];
        self.alone += usize::from(self.demoted[service] && time > self.longest);
        self.due[worker] = due;
        let (ends, still) = (self.now + time, end_of(self.now, time, &self.stalls));
        let stands = still > ends && !(self.spared)();
        self.stalled += usize::from(stands);
        self.running[worker] = Some((self.now, if stands { still } else { ends }));
    }

    /// A worker is lost, and what it runs with it; that this has ended is heard of later.
    pub(crate) fn lose(&mut self, worker: usize) {
        let now = Instant::from_nanos(self.now);
        self.device.handle_worker_lost(now, worker);
        self.settle();
        if self.running[worker].take().is_some() {
            self.ended(worker, false);
            self.device.handle_completion(now, worker, Ran::Done(Span::ZERO));
            self.settle();
        }
    }

    /// It is back.
    pub(crate) fn ready(&mut self, worker: usize) {
        self.device.handle_worker_ready(Instant::from_nanos(self.now), worker);
        self.settle();
    }

    /// When the next thing happens by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.running.iter().flatten().map(|&(_, end)| end).chain(self.wake).min()
    }

    /// Lets time pass up to `to`, with all that ends before it, and at it if `through`.
    pub(crate) fn advance(&mut self, to: u64, through: bool) {
        while let Some(next) = self.next_event().filter(|&at| at < to || through && at == to) {
            self.now = self.now.max(next);
            let ended = self.running.iter().position(|run| run.is_some_and(|(_, end)| end <= next));
            match ended.and_then(|worker| Some((worker, self.running[worker].take()?))) {
                Some((worker, (start, end))) => {
                    self.ended(worker, end > self.due[worker]);
                    let ran = Ran::Done(Span::from_nanos(end - start));
                    self.device.handle_completion(Instant::from_nanos(self.now), worker, ran);
                }
                None => self.wake = None,
            }
            self.settle();
        }
        self.now = self.now.max(to);
    }

    /// Lets time pass until nothing waits or runs.
    pub(crate) fn drain(&mut self) {
        let open = |run: &Self| {
            let busy = |s: usize| run.device.service(s).waiting() + run.device.service(s).running() > 0;
            (0..run.waiting.len()).any(busy)
        };
        while open(self) {
            let next = self.next_event().expect("what waits or runs ends some time");
            self.advance(next, true);
        }
    }
}
