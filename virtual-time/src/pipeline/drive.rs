//! The way of a pipeline through virtual time: sources come, batches end, results become requests, sources end.

use std::collections::HashMap;

use rt_core::{Instant, Span, WorkerId};

use super::content::{Content, Place};
use super::sources::Sources;
use super::{Arriving, Child, Model, PipelineObserver, PipelinePolicy, PipelineStep, StageBatch, Tree};
use crate::Backwards;

/// Plays `arrivals` of sources, instants in order with the stream of each, to `policy` until all is answered or given up.
/// A batch takes `service(model, size, bound)`, where `bound` is the profile's; what a source holds is drawn from the
/// seed `content`, the same for all policies.
///
/// Of one instant, batches end first, then sources come, and then the policy decides. Memory is bounded by what is open
/// at once. What a policy never decides is missed when nothing else can happen any more.
///
/// # Errors
/// If the arrivals go back; the observer has then heard what became of those before.
///
/// # Panics
/// If the policy starts a worker that is busy, or a batch that is empty, too large, or of requests that do not wait for
/// its stage.
pub fn drive_pipeline(
    policy: &mut impl PipelinePolicy,
    tree: &Tree,
    content: u64,
    arrivals: impl IntoIterator<Item = (Instant, usize)>,
    service: impl FnMut(Model, usize, Span) -> Span,
    observer: &mut impl PipelineObserver,
) -> Result<(), Backwards> {
    let busy = policy.workers();
    let children = (0..tree.stages.len()).map(|stage| tree.children(stage).collect()).collect();
    Driver {
        policy,
        tree,
        content: Content(content),
        children,
        service,
        observer,
        now: Instant::ZERO,
        wake: None,
        busy: (0..busy).map(|_| None).collect(),
        requests: HashMap::new(),
        next: 0,
        sources: Sources::default(),
        born: Vec::new(),
        in_use: None,
    }
    .drive(arrivals.into_iter())
}

/// A request that waits or runs.
#[derive(Clone, Copy, Debug)]
struct Request {
    source: u64,
    stage: usize,
    place: Place,
    /// The product of the accuracies of the answers on the way here.
    accuracy: f64,
}

/// A worker at work.
#[derive(Clone, Debug)]
struct Busy {
    start: Instant,
    finish: Instant,
    model: Model,
    batch: Vec<u64>,
}

struct Driver<'a, P, S, O> {
    policy: &'a mut P,
    tree: &'a Tree,
    content: Content,
    /// Of each stage.
    children: Vec<Vec<usize>>,
    service: S,
    observer: &'a mut O,
    now: Instant,
    wake: Option<Instant>,
    busy: Vec<Option<Busy>>,
    requests: HashMap<u64, Request>,
    /// The name of the next request.
    next: u64,
    sources: Sources,
    /// What the results of a batch became; kept for its memory.
    born: Vec<Child>,
    in_use: Option<usize>,
}

impl<P: PipelinePolicy, S: FnMut(Model, usize, Span) -> Span, O: PipelineObserver> Driver<'_, P, S, O> {
    fn drive(&mut self, mut arrivals: impl Iterator<Item = (Instant, usize)>) -> Result<(), Backwards> {
        let mut arrival = arrivals.next();
        let mut latest = Instant::ZERO;
        loop {
            let finish = self.busy.iter().flatten().map(|busy| busy.finish).min();
            let wake = self.wake.filter(|_| arrival.is_some() || !self.sources.is_empty());
            let next = [finish, wake, arrival.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(now) = next else { break };
            self.now = now.max(self.now);
            self.complete();
            while let Some((at, stream)) = arrival.filter(|&(at, _)| at <= self.now) {
                if at < latest {
                    return Err(Backwards { index: self.sources.count(), at, before: latest });
                }
                latest = at;
                self.arrive(stream);
                arrival = arrivals.next();
            }
            self.poll();
            self.sources.tell(self.observer);
        }
        self.sources.close(self.now);
        self.sources.tell(self.observer);
        Ok(())
    }

    fn arrive(&mut self, stream: usize) {
        let source = self.sources.arrive(self.now, stream, self.next);
        let token =
            self.born(Request { source, stage: 0, place: self.content.source(source), accuracy: 1.0 });
        self.policy.arrive(self.now, Arriving { stream, source, token });
    }

    fn born(&mut self, request: Request) -> u64 {
        self.requests.insert(self.next, request);
        self.next += 1;
        self.next - 1
    }

    /// Ends all batches that are due by now.
    fn complete(&mut self) {
        for worker in 0..self.busy.len() {
            if let Some(Busy { start, model, batch, .. }) =
                self.busy[worker].take_if(|busy| busy.finish <= self.now)
            {
                self.born.clear();
                for token in batch {
                    self.answer(token, model);
                }
                self.policy.complete(self.now, worker, self.now.since(start), &self.born);
            }
        }
    }

    /// What a request became that was answered by `model`.
    fn answer(&mut self, parent: u64, model: Model) {
        // Of a source that was given up nothing is known any more.
        let Some(of) = self.requests.remove(&parent) else { return };
        let accuracy = of.accuracy * self.tree.variant(model).accuracy;
        let before = self.born.len();
        for i in 0..self.children[of.stage].len() {
            let stage = self.children[of.stage][i];
            let below = &self.tree.stages[stage];
            for place in of.place.found(stage, below.fan_out, below.means[model.variant]) {
                let token = self.born(Request { source: of.source, stage, place, accuracy });
                self.born.push(Child { parent, stage, token });
            }
        }
        self.sources.answered(self.now, of.source, &self.born[before..], accuracy, self.tree.deadline);
    }

    /// Carries out all that is to be done now.
    fn poll(&mut self) {
        loop {
            match self.policy.poll(self.now) {
                PipelineStep::Start { worker, model } => self.start(worker, model),
                PipelineStep::DropRequest(token) => {
                    if let Some(request) = self.requests.remove(&token) {
                        self.sources.given_up(self.now, request.source);
                    }
                }
                PipelineStep::DropSource(source) => {
                    for name in self.sources.ended(self.now, source) {
                        self.requests.remove(&name);
                    }
                }
                PipelineStep::Wait { until } => {
                    debug_assert!(until.is_none_or(|wake| wake > self.now), "a wake-up that is due already");
                    self.wake = until;
                    break;
                }
            }
        }
        let in_use = self.policy.in_use();
        if self.in_use.replace(in_use) != Some(in_use) {
            self.observer.in_use(self.now, in_use);
        }
    }

    fn start(&mut self, worker: WorkerId, model: Model) {
        let batch: Vec<u64> = self.policy.batch(worker).collect();
        let size = batch.len();
        let of_stage = |token| self.requests.get(token).is_some_and(|of: &Request| of.stage == model.stage);
        assert!(batch.iter().all(of_stage), "a request that does not wait for stage {}", model.stage);
        assert!(self.busy[worker].is_none(), "worker {worker} is busy");
        assert!((1..=self.tree.variant(model).profile.max_batch()).contains(&size), "a batch of {size}");
        let start = self.now;
        let finish = start + (self.service)(model, size, self.tree.bound(model, size));
        self.observer.batch(&StageBatch { worker, model, size, start, finish });
        self.busy[worker] = Some(Busy { start, finish, model, batch });
    }
}
