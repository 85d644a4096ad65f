//! The collecting half of a load: takes every answer as it comes, and puts the outcomes back into order.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rt_core::{Instant, Span};
use weir_client::blocking::{Client, Receiver};
use weir_client::{Answer, Event, EventMask, RequestId, SafeModeState, StreamInfo, SuspensionEvent};

use super::classes::Mix;
use super::pace::{self, Issued, Signals};
use super::report::{Change, Ended, Measures, Report};
use super::{Plan, Progress, Target};
use weir_os::clock;
use weir_os::realtime::{self, Role};

/// How often the display is renewed and the clock looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long after its deadline an answer may still come before it counts as none.
const GRACE: Span = Span::from_millis(2_000);
/// Until the first request is due.
const RUN_UP: Span = Span::from_millis(20);

/// Registers the stream of `plan`, sends what it schedules, and reports what became of it. Ends early, with
/// what there is, once `stop` is set. `observe` is called about ten times a second.
///
/// A connection that breaks ends it too; the report says so.
///
/// # Errors
/// If the daemon refuses the stream or the inputs do not fit.
pub(crate) fn run(
    mut client: Client,
    plan: &Plan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report> {
    let service = plan.registration.service();
    // In this order no change is missed between the two.
    client.subscribe(EventMask::CHANGES)?;
    let target = Target::find(&client.status()?, service)?;
    let stream = client.register(&plan.registration)?;
    plan.inputs.check(&stream)?;
    let mix = Mix::new(&stream, &plan.classes, &target.classes)?;
    let (sender, receiver) = client.split();
    let start = clock::now() + RUN_UP;
    let (log, issued) = mpsc::channel();
    let safe_mode = AtomicBool::new(target.safe_mode.is_some());
    let (over, suspended) = Default::default();
    let signals = Signals { stop, over, safe_mode, suspended };
    let mut collector = Collector::new(plan, (&target, &stream, &mix), start, &signals, receiver, issued)?;
    let (sent, collected) = std::thread::scope(|scope| {
        let (mix, signals) = (&mix, &signals);
        let send = move || pace::send(sender, mix, &plan.inputs, &plan.phases, start, signals, &log);
        let sending = scope.spawn(send);
        realtime::enter(Role::Dispatch, None, pace::may_be_realtime());
        let collected = collector.collect(observe);
        signals.over.store(true, Ordering::Relaxed);
        (sending.join(), collected)
    });
    let sent = sent.map_err(|_| anyhow!("the sending thread panicked"))?;
    collector.close(observe);
    // What the daemon said last tells more than that nothing could be sent any more.
    let broken = collected.and(sent).err().map(|error| format!("{error:#}"));
    Ok(Report { broken, ..collector.report() })
}

/// A request from when it was due until all before it have ended.
struct Entry {
    phase: usize,
    due: Instant,
    sequence: u64,
    hit: Option<bool>,
}

struct Collector<'a> {
    plan: &'a Plan,
    stream: &'a StreamInfo,
    mix: &'a Mix,
    deadline: Span,
    start: Instant,
    signals: &'a Signals<'a>,
    receiver: Receiver,
    issued: mpsc::Receiver<Issued>,
    /// Requests in order, from number `first` on.
    entries: VecDeque<Entry>,
    first: u64,
    /// The number of each request that waits for its answer.
    waiting: HashMap<RequestId, u64>,
    /// When each phase began, then when the last one ended.
    began: Vec<Instant>,
    ended: Option<Instant>,
    last_due: Instant,
    measures: Vec<Measures>,
    sent: u64,
    refused: u64,
    misnumbered: u64,
    misses_left: Option<u32>,
    safe_mode: Vec<Change>,
    suspension: Vec<Change>,
}

impl<'a> Collector<'a> {
    fn new(
        plan: &'a Plan,
        (target, stream, mix): (&Target, &'a StreamInfo, &'a Mix),
        start: Instant,
        signals: &'a Signals<'a>,
        receiver: Receiver,
        issued: mpsc::Receiver<Issued>,
    ) -> Result<Self> {
        let measures = || Measures::new(&plan.constraints, target.deadline_ns, &target.classes);
        let before = target.safe_mode.iter();
        let before = before.map(|b| Change {
            at_s: 0.0,
            entered: true,
            cause: b.cause.clone(),
            text: format!("{} (before the start)", b.text),
        });
        Ok(Self {
            plan,
            stream,
            mix,
            deadline: Span::from_nanos(target.deadline_ns),
            start,
            signals,
            receiver,
            issued,
            entries: VecDeque::new(),
            first: 0,
            waiting: HashMap::new(),
            began: Vec::new(),
            ended: None,
            last_due: start,
            measures: plan.phases.iter().map(|_| measures()).collect::<Result<_>>()?,
            sent: 0,
            refused: 0,
            misnumbered: 0,
            misses_left: None,
            safe_mode: before.collect(),
            suspension: Vec::new(),
        })
    }

    /// Takes answers until all have come, or none will any more.
    fn collect(&mut self, observe: &mut dyn FnMut(&Progress<'_>)) -> Result<()> {
        let mut shown = self.start;
        loop {
            let all_sent = self.take_issued();
            let now = clock::now();
            if all_sent && (self.waiting.is_empty() || now > self.last_due + self.deadline + GRACE) {
                break;
            }
            if now.since(shown) >= Span::from_nanos(TICK.as_nanos() as u64) {
                shown = now;
                self.show(now, observe);
            }
            let received = self.receiver.recv_timeout(TICK);
            if let Some(answer) = received.with_context(|| format!("after {} requests", self.sent))? {
                self.take(clock::now(), answer);
            }
        }
        Ok(())
    }

    /// Counts as missed what has no answer, once the sending half has ended.
    fn close(&mut self, observe: &mut dyn FnMut(&Progress<'_>)) {
        self.take_issued();
        let unanswered: Vec<_> = self.waiting.drain().map(|(_, number)| number).collect();
        unanswered.into_iter().for_each(|number| self.end(number, Ended::Missed("unanswered")));
        self.show(clock::now(), observe);
    }

    /// Takes in what the sending half has told; true once it will tell nothing more.
    fn take_issued(&mut self) -> bool {
        loop {
            match self.issued.try_recv() {
                Ok(issued) => self.note(issued),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn note(&mut self, issued: Issued) {
        match issued {
            Issued::Phase(began) => self.began.push(began),
            Issued::End(ended) => self.ended = Some(ended),
            Issued::Request { due, lateness_ns, id } => {
                let number = self.first + self.entries.len() as u64;
                let phase = self.began.len().saturating_sub(1);
                self.entries.push_back(Entry { phase, due, sequence: self.sent, hit: None });
                self.last_due = due;
                self.measures[phase].issue(lateness_ns, id.is_some());
                match id {
                    Some(id) => {
                        self.sent += 1;
                        self.waiting.insert(id, number);
                    }
                    None => self.end(number, Ended::Missed("not-sent")),
                }
            }
        }
    }

    fn take(&mut self, now: Instant, answer: Answer) {
        match answer {
            Answer::Result(id, result) => {
                let Some(number) = self.number_of(id) else { return };
                self.check_sequence(number, result.sequence);
                self.misses_left = result.misses_left;
                let latency_ns = now.since(self.entry(number).due).as_nanos();
                let (inputs, phase) = (&self.plan.inputs, self.entry(number).phase);
                let place = self.plan.phases[phase].place(number, inputs.count());
                let right = inputs.is_right(place, self.stream, &result);
                let (batch, variant, late) = (result.batch, result.variant, result.late);
                self.end(number, Ended::Answered { latency_ns, batch, variant, right, late });
            }
            Answer::Miss(id, miss) => {
                let Some(number) = self.number_of(id) else { return };
                self.check_sequence(number, miss.sequence);
                self.misses_left = miss.misses_left;
                self.end(number, Ended::Missed(miss.reason.word()));
            }
            Answer::Refused(id, _) => {
                let Some(number) = self.number_of(id) else { return };
                self.refused += 1;
                self.end(number, Ended::Missed("refused"));
            }
            Answer::Event(Event::SafeMode(event)) if event.service == self.plan.registration.service() => {
                let entered = event.state.is_suspended();
                // Warnings come and go without a change of the promise.
                if !entered && !self.signals.safe_mode.load(Ordering::Relaxed) {
                    return;
                }
                self.signals.safe_mode.store(entered, Ordering::Relaxed);
                let entered_ns = u64::try_from(event.entered.as_nanos()).unwrap_or(u64::MAX);
                // A warning that goes on after safe mode was entered before it.
                let at = if entered { Instant::from_nanos(entered_ns) } else { now };
                let at_s = at.since(self.start).as_secs_f64();
                let (cause, text) = match event.state {
                    _ if entered => (event.cause.word(), event.text),
                    SafeModeState::Warning => ("", format!("the promise holds again, but {}", event.text)),
                    _ => ("", event.text),
                };
                self.safe_mode.push(Change { at_s, entered, cause: cause.to_owned(), text });
            }
            Answer::Event(Event::Suspension(event)) if self.is_own(&event) => {
                let entered = event.state.is_suspended();
                self.signals.suspended.store(entered, Ordering::Relaxed);
                let at = Instant::from_nanos(u64::try_from(event.entered.as_nanos()).unwrap_or(u64::MAX));
                let cause = if entered { event.cause.word() } else { "" };
                let (at_s, cause) = (at.since(self.start).as_secs_f64(), cause.to_owned());
                self.suspension.push(Change { at_s, entered, cause, text: event.text });
            }
            Answer::Event(_) => {}
        }
    }

    fn is_own(&self, event: &SuspensionEvent) -> bool {
        let own = &self.plan.registration;
        event.service == own.service() && event.stream == own.stream()
    }

    /// The number of the request with this id; an answer may come before the sending half has told of it.
    fn number_of(&mut self, id: RequestId) -> Option<u64> {
        loop {
            if let Some(number) = self.waiting.remove(&id) {
                return Some(number);
            }
            let issued = self.issued.recv().ok()?;
            self.note(issued);
        }
    }

    /// The daemon must number requests as they were sent; a refused one gets no number.
    fn check_sequence(&mut self, number: u64, sequence: u64) {
        let differs = self.refused == 0 && self.entry(number).sequence != sequence;
        self.misnumbered += u64::from(differs);
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        &mut self.entries[(number - self.first) as usize]
    }

    fn end(&mut self, number: u64, ended: Ended) {
        let entry = self.entry(number);
        entry.hit = Some(matches!(ended, Ended::Answered { .. }));
        let phase = entry.phase;
        let class = self.mix.class(number);
        self.measures[phase].end(class, ended);
        while let Some(Entry { phase, hit: Some(hit), .. }) = self.entries.front() {
            self.measures[*phase].judge(*hit);
            self.entries.pop_front();
            self.first += 1;
        }
    }

    fn show(&self, now: Instant, observe: &mut dyn FnMut(&Progress<'_>)) {
        let Some(number) = self.began.len().checked_sub(1) else { return };
        observe(&Progress {
            phase: &self.plan.phases[number],
            number,
            elapsed: clock::duration(now.since(self.began[number])),
            measures: &self.measures[number],
            misses_left: self.misses_left,
            safe_mode: &self.safe_mode,
            suspension: &self.suspension,
        });
    }

    fn report(&self) -> Report {
        let seconds = |at: Instant| at.since(self.start).as_secs_f64();
        let ends = self.began.iter().skip(1).copied().chain([self.ended.unwrap_or(self.last_due)]);
        let phases = self.plan.phases.iter().zip(&self.measures).zip(self.began.iter().zip(ends));
        Report {
            service: self.plan.registration.service().to_owned(),
            stream: self.plan.registration.stream().to_owned(),
            phases: phases
                .map(|((phase, measures), (&began, end))| {
                    let (began, end) = (seconds(began), seconds(end));
                    measures.report(phase.name, phase.schedule.rate(), began, end - began)
                })
                .collect(),
            safe_mode: self.safe_mode.clone(),
            suspension: self.suspension.clone(),
            misnumbered: self.misnumbered,
            broken: None,
        }
    }
}
