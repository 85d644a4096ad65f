//! The naive account of what became of each source, and what is held against it.

use rt_core::{Event, MissReason, Outcome, Resolution, Span, StreamId};

use crate::harness::end_of;

use super::{Batch, Line, Source, at, ns};

impl Line {
    /// By how much what runs takes longer than it may, in all.
    pub(crate) fn planned(&self) -> u64 {
        let over = |batch: &Batch| (batch.ends - batch.started).saturating_sub(batch.bound);
        self.running.iter().flatten().flatten().map(over).sum()
    }

    /// How many sources were missed that had to be answered, each in safe mode: that had begun by then, and was not over when the source
    /// came. And how often it was over.
    pub(crate) fn missed_in_safe_mode(&self) -> (usize, usize) {
        let told = |breach: bool| {
            let of = |(at, event): &(u64, Event)| match event {
                Event::SafeMode(transition) => (transition.breach().is_some() == breach).then_some(*at),
                _ => None,
            };
            self.events.iter().filter_map(of).collect::<Vec<_>>()
        };
        let (safe, ends) = (told(true), told(false));
        let missed = self.missed();
        for source in &missed {
            let (at, _) = source.ended.expect("ended");
            let began = safe.iter().filter(|&&began| began <= at).max();
            let ended = ends.iter().filter(|&&ended| ended <= source.came).max();
            assert!(began.is_some() && began >= ended, "{source:?} of {:?}: {safe:?} {ends:?}", self.config);
        }
        (missed.len(), ends.len())
    }

    pub(super) fn started(&mut self, stage: usize, worker: usize) {
        assert!(self.running[stage][worker].is_none(), "a busy worker was given a batch");
        let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
        let workers = &self.config.stages[stage].workers;
        assert!((1..=workers.batch).contains(&parts.len()), "a batch of {}", parts.len());
        let least = workers.profile.bound(parts.len()).as_nanos();
        let hoped = least - workers.profile.likely(parts.len()).as_nanos();
        if stage == 0 {
            let mandatory: Vec<bool> =
                self.scheduler.first().batch(worker).iter().map(|request| request.mandatory).collect();
            for (part, mandatory) in parts.iter().zip(mandatory) {
                let token = part.token.expect("it has just begun") as usize;
                self.names.insert(part.source, token);
                self.sources[token].mandatory = mandatory;
            }
        }
        // Mandatory ones first, those whose sources came first of all that wait but for those that end now.
        let tokens: Vec<usize> = parts.iter().map(|part| self.names[&part.source]).collect();
        let key = |token: usize| match self.sources[token].mandatory {
            true => (false, self.sources[token].came, token),
            false => (true, 0, 0),
        };
        let keys: Vec<_> = tokens.iter().map(|&token| key(token)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        let last = *keys.last().expect("a request");
        let waits =
            |s: &Source| s.ended.is_none() && s.waiting[stage].len() > tokens_of(&tokens, &self.sources, s);
        let before = (0..self.sources.len()).filter(|&t| stage > 0 && self.sources[t].mandatory);
        let before = before.filter(|&t| waits(&self.sources[t]) && key(t) < last);
        self.overtaken.extend(before);
        let Self { scheduler, longer, .. } = self;
        let mut most = least;
        let length = scheduler.prolong(at(self.now), (stage, worker), |longest| {
            most = longest.as_nanos();
            match longer {
                Some(longer) if most > least => ns(longer(stage, most)),
                // Neither less nor more than there is can be had.
                _ => Span::ZERO,
            }
        });
        let bound = length.as_nanos();
        assert!((least..=most).contains(&bound));
        self.longs += usize::from(length > self.config.stages[stage].workers.batch_time());
        for part in &parts {
            let source = &mut self.sources[part.token.expect("of an open source") as usize];
            let index = source.waiting[stage].iter().position(|&number| number == part.index);
            source.waiting[stage].swap_remove(index.expect("it waits there"));
            source.running[stage] += 1;
            let takes = if source.mandatory { bound } else { bound.saturating_sub(hoped) };
            let in_time = self.now + takes <= source.deadline;
            assert!(in_time, "begun too late at {}: {source:?}", self.now);
        }
        let (mut ends, planned) = (self.now + (self.time)(stage, bound), self.planned());
        if let Some(over) = &mut self.over {
            let more = over(self.scheduler.overruns_left().as_nanos().saturating_sub(planned));
            ends = if more > 0 { self.now + bound + more } else { ends };
            self.overran += usize::from(more > 0);
        }
        let still = end_of(self.now, ends - self.now, &self.stalls);
        if still > ends && !(self.spared)(stage) {
            ends = still;
            self.stalled += 1;
        }
        self.running[stage][worker] = Some(Batch { started: self.now, bound, ends });
    }

    pub(super) fn resolved(&mut self, resolution: Resolution) {
        let Resolution { request, outcome, .. } = resolution;
        let source = &mut self.sources[request.token as usize];
        assert_eq!(source.ended, None, "ended twice");
        assert_eq!(source.stream, request.stream);
        let due = if request.mandatory { source.deadline } else { source.wanted };
        assert_eq!(request.deadline.as_nanos(), due);
        let left = source.running.iter().sum::<usize>() + source.waiting.iter().map(Vec::len).sum::<usize>();
        if matches!(outcome, Outcome::Served) {
            assert_eq!(left, 0, "served, and not as a whole: {source:?}");
            // What ended in time may be told late.
            assert!(self.now <= source.wanted + self.late, "served later than wanted");
        }
        assert_eq!(request.wanted.as_nanos(), source.wanted);
        source.mandatory = request.mandatory;
        source.ended = Some((self.now, outcome));
    }

    pub(super) fn announced(&mut self, event: Event) {
        let cause = match event {
            Event::SafeMode(transition) => transition.breach(),
            Event::Suspension(told) => told.alarm.map(|alarm| alarm.cause),
            Event::MissesLeft { .. } => None,
        };
        self.causes.extend(cause.map(|cause| (self.now, cause)));
        self.events.push((self.now, event));
    }

    /// The counts of a stream are those of the naive account.
    pub(crate) fn account(&self, stream: StreamId) {
        let (counts, _) = self.scheduler.first().stream_counts(stream).expect("a stream");
        let of = || self.sources.iter().filter(|s| s.stream == stream);
        let ended = |outcome| of().filter(|s| s.ended.is_some_and(|(_, o)| o == outcome)).count() as u64;
        assert_eq!(counts.arrived, of().count() as u64);
        assert_eq!(counts.served, ended(Outcome::Served));
        for reason in MissReason::ALL {
            assert_eq!(counts.missed(reason), ended(Outcome::Missed(reason)), "{reason}");
        }
    }
}

/// How many of the requests of a batch, by the sources that they are of, are of this one.
fn tokens_of(tokens: &[usize], sources: &[Source], of: &Source) -> usize {
    tokens.iter().filter(|&&token| std::ptr::eq(&sources[token], of)).count()
}
