//! The workers in virtual time: batches that requests join and leave, each slower for every one that is there.

use std::collections::VecDeque;

use super::{Coming, Router, Setting, View};

/// An answer that is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// The how many-th request it answers, from 0.
    pub request: usize,
    /// Its class.
    pub class: usize,
    /// Which model answered.
    pub model: usize,
    /// Milliseconds for a token, on average.
    pub token_ms: f64,
}

/// All workers at an instant.
#[derive(Debug)]
pub struct Fleet<'a> {
    /// What they are.
    pub setting: &'a Setting,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// Up to when it is worked out, in seconds.
    at: f64,
    /// How many tokens each request has been given that was there all the time.
    given: f64,
    /// Requests of each model.
    batches: Vec<u32>,
    round_ms: f64,
    /// In the order in which they came, which as all are equally long is that in which they end.
    running: VecDeque<Running>,
}

#[derive(Debug)]
struct Running {
    request: usize,
    class: usize,
    model: usize,
    came: f64,
    /// How many tokens the worker has given when it ends.
    until: f64,
}

impl<'a> Fleet<'a> {
    /// All idle.
    #[must_use]
    pub fn new(setting: &'a Setting) -> Self {
        let worker = || Worker {
            at: 0.0,
            given: 0.0,
            batches: vec![0; setting.models.len()],
            round_ms: 0.0,
            running: VecDeque::new(),
        };
        Self { setting, workers: (0..setting.workers).map(|_| worker()).collect() }
    }

    /// The requests of each model on the worker that a request to `model` goes to: that with the smallest batch of it, and of
    /// several the one that is fastest.
    #[must_use]
    pub fn target(&self, model: usize) -> &[u32] {
        &self.workers[self.place(model)].batches
    }

    fn place(&self, model: usize) -> usize {
        let key = |worker: &Worker| (worker.batches[model], worker.round_ms);
        let mut best = 0;
        for place in 1..self.workers.len() {
            let (this, least) = (key(&self.workers[place]), key(&self.workers[best]));
            if this.0 < least.0 || this.0 == least.0 && this.1 < least.1 {
                best = place;
            }
        }
        best
    }

    /// Requests of `model` on all workers.
    #[must_use]
    pub fn batch(&self, model: usize) -> u32 {
        self.workers.iter().map(|worker| worker.batches[model]).sum()
    }

    /// Milliseconds of a round on the worker that a request to `model` goes to, with that request.
    #[must_use]
    pub fn round_with(&self, model: usize) -> f64 {
        let worker = &self.workers[self.place(model)];
        let step = |more| self.setting.step_ms(model, worker.batches[model] + more);
        worker.round_ms + step(1) - step(0)
    }

    /// Whether a request of `class` and all that are on the worker where `model` would answer it would be in time if nothing
    /// else came and no time had passed.
    pub(super) fn all_in_time(&self, class: usize, model: usize) -> bool {
        let round_ms = self.round_with(model);
        let running = self.workers[self.place(model)].running.iter().map(|running| running.class);
        running.chain([class]).all(|class| round_ms <= self.setting.classes[class].deadline_ms)
    }

    fn join(&mut self, request: usize, class: usize, model: usize, came: f64) {
        let place = self.place(model);
        let worker = &mut self.workers[place];
        worker.batches[model] += 1;
        worker.round_ms = self.setting.round_ms(&worker.batches);
        let until = worker.given + self.setting.tokens;
        worker.running.push_back(Running { request, class, model, came, until });
    }

    /// Works out all that ends up to the instant `to`, in seconds.
    fn advance(&mut self, to: f64, mut ended: impl FnMut(Ended)) {
        for worker in &mut self.workers {
            while let Some(first) = worker.running.front() {
                let end = worker.at + (first.until - worker.given) * worker.round_ms / 1e3;
                if end > to {
                    break;
                }
                let Running { request, class, model, came, until } = *first;
                (worker.at, worker.given) = (end, until);
                worker.running.pop_front();
                worker.batches[model] -= 1;
                worker.round_ms = self.setting.round_ms(&worker.batches);
                ended(Ended { request, class, model, token_ms: (end - came) * 1e3 / self.setting.tokens });
            }
            if !worker.running.is_empty() {
                worker.given += (to - worker.at) * 1e3 / worker.round_ms;
            }
            worker.at = to;
        }
    }
}

/// Has `router` send `requests` of `arrivals`, and tells of every answer, in the order of each worker.
pub fn play(
    setting: &Setting,
    arrivals: impl Iterator<Item = Coming>,
    requests: usize,
    router: &mut dyn Router,
    mut ended: impl FnMut(Ended),
) {
    let mut fleet = Fleet::new(setting);
    for (request, Coming { at, class, rate }) in arrivals.take(requests).enumerate() {
        fleet.advance(at, &mut ended);
        let model = router.route(&View { class, rate, fleet: &fleet }).min(setting.models.len() - 1);
        fleet.join(request, class, model, at);
    }
    fleet.advance(f64::INFINITY, ended);
}
