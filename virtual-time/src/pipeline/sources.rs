//! Sources that are open: what each became, what of it is answered, and when it ends.

use std::collections::VecDeque;

use rt_core::{Instant, MissReason, Outcome, Span};

use super::{Child, PipelineObserver, SourceEnd};

/// Sources in the order in which they came, from the first that is not told yet.
#[derive(Debug, Default)]
pub(super) struct Sources {
    open: VecDeque<Source>,
    /// Sources told.
    settled: u64,
    /// Of each stream, the number of its next source.
    sequence: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Source {
    end: SourceEnd,
    /// All requests that it became, and how many of them are neither answered nor given up.
    names: Vec<u64>,
    requests: u64,
    /// The sum of the accuracies of the paths that ended, and how many did.
    accuracy: (f64, u64),
    missed: Option<MissReason>,
    /// Whether nothing of it is looked at any more.
    over: bool,
}

impl Sources {
    /// A source comes, as the request `name`; its number.
    pub(super) fn arrive(&mut self, now: Instant, stream: usize, name: u64) -> u64 {
        if stream >= self.sequence.len() {
            self.sequence.resize(stream + 1, 0);
        }
        let seq = self.sequence[stream];
        self.sequence[stream] += 1;
        let end = SourceEnd {
            stream,
            seq,
            arrival: now,
            outcome: Outcome::Served,
            ended: now,
            accuracy: 0.0,
            requests: 1,
            lost: 0,
        };
        let names = vec![name];
        self.open.push_back(Source {
            end,
            names,
            requests: 1,
            accuracy: (0.0, 0),
            missed: None,
            over: false,
        });
        self.settled + self.open.len() as u64 - 1
    }

    /// Whether something is still looked at of a source.
    pub(super) fn is_open(&self, source: u64) -> bool {
        source.checked_sub(self.settled).is_some_and(|i| !self.open[i as usize].over)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many came before the next one.
    pub(super) fn count(&self) -> u64 {
        self.settled + self.open.len() as u64
    }

    /// A request of an open source was answered and became `children`, or ended a path of that accuracy.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        source: u64,
        children: &[Child],
        accuracy: f64,
        deadline: Span,
    ) {
        let of = &mut self.open[(source - self.settled) as usize];
        of.names.extend(children.iter().map(|child| child.token));
        if children.is_empty() {
            of.accuracy.0 += accuracy;
            of.accuracy.1 += 1;
        }
        if now > of.end.arrival + deadline {
            of.missed.get_or_insert(MissReason::Late);
            of.end.lost += 1;
        }
        of.end.requests += children.len() as u64;
        of.requests += children.len() as u64;
        Self::less(of, now);
    }

    /// A request of an open source was given up.
    pub(super) fn given_up(&mut self, now: Instant, source: u64) {
        let of = &mut self.open[(source - self.settled) as usize];
        of.missed.get_or_insert(MissReason::Expired);
        of.end.lost += 1;
        Self::less(of, now);
    }

    /// A source was given up as a whole: all requests that it became, of which nobody wants to know any more.
    pub(super) fn ended(&mut self, now: Instant, source: u64) -> Vec<u64> {
        if !self.is_open(source) {
            return Vec::new();
        }
        let of = &mut self.open[(source - self.settled) as usize];
        of.missed.get_or_insert(MissReason::Expired);
        of.end.lost += of.requests;
        of.requests = 1;
        Self::less(of, now);
        std::mem::take(&mut of.names)
    }

    /// Gives up all that is open: nothing can happen any more.
    pub(super) fn close(&mut self, now: Instant) {
        for source in self.settled..self.count() {
            self.ended(now, source);
        }
    }

    /// Tells the first ones, as far as they are over.
    pub(super) fn tell(&mut self, observer: &mut impl PipelineObserver) {
        while let Some(of) = self.open.front().filter(|of| of.over) {
            observer.source(&of.end);
            self.settled += 1;
            self.open.pop_front();
        }
    }

    fn less(of: &mut Source, now: Instant) {
        of.requests -= 1;
        if of.requests > 0 {
            return;
        }
        (of.over, of.end.ended) = (true, now);
        match of.missed {
            Some(reason) => of.end.outcome = Outcome::Missed(reason),
            None => of.end.accuracy = of.accuracy.0 / of.accuracy.1.max(1) as f64,
        }
    }
}
