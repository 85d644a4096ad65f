//! What the screen shows, as a value: the last state that was told, the rates since the one before, the last events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;

use weir::commands::Line;
use weir_client::status::{self, Status};

/// Events that are kept.
const EVENTS: usize = 100;

/// A reply to STATUS, with what is measured between two of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    told: Status,
    pub(super) services: Vec<Service>,
}

/// A service, and what is measured of it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    told: status::Service,
    pub(super) streams: Vec<Stream>,
    /// Requests a second since the state before; `None` with the first.
    pub(super) rate: Option<f64>,
}

/// A stream, and what is measured of it.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    told: status::Stream,
    /// As the service's.
    pub(super) rate: Option<f64>,
    /// The most misses left that this screen has seen, the scale of the bar: it is not told how many there can be.
    pub(super) most_left: u32,
}

impl From<Status> for Shown {
    fn from(mut told: Status) -> Self {
        let stream = |told| Stream::new(told, 0);
        let service = |mut told: status::Service| {
            let streams = std::mem::take(&mut told.streams).into_iter().map(stream).collect();
            Service { told, streams, rate: None }
        };
        let services = std::mem::take(&mut told.services).into_iter().map(service).collect();
        Self { told, services }
    }
}

impl Stream {
    /// Of which nothing has been measured yet, and at most so many misses left were seen.
    pub(super) fn new(told: status::Stream, most_left: u32) -> Self {
        Self { told, rate: None, most_left }
    }
}

impl Deref for Shown {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.told
    }
}

impl Deref for Service {
    type Target = status::Service;

    fn deref(&self) -> &status::Service {
        &self.told
    }
}

impl Deref for Stream {
    type Target = status::Stream;

    fn deref(&self) -> &status::Stream {
        &self.told
    }
}

/// What the screen shows.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) status: Shown,
    /// Why there is no connection; `None` while there is one.
    pub(super) gone: Option<String>,
    pub(super) paused: bool,
    /// The last first.
    pub(super) events: VecDeque<Line>,
    selected: String,
}

impl State {
    /// Shows a newer state, unless paused.
    pub(super) fn take(&mut self, status: Status) {
        let mut status = Shown::from(status);
        self.gone = None;
        if self.paused {
            return;
        }
        status.measure(&self.status);
        self.status = status;
    }

    /// Shows an event.
    pub(super) fn tell(&mut self, line: Line) {
        self.events.push_front(line);
        self.events.truncate(EVENTS);
    }

    /// Shows that there is no connection.
    pub(super) fn lose(&mut self, why: String) {
        self.gone = Some(why);
    }

    /// Holds what is shown, or goes on.
    pub(super) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    /// Selects the service that many places further down, at most the last.
    pub(super) fn select(&mut self, further: isize) {
        let last = self.status.services.len().saturating_sub(1);
        let place = self.selected().saturating_add_signed(further).min(last);
        if let Some(service) = self.status.services.get(place) {
            self.selected.clone_from(&service.name);
        }
    }

    /// The place of the selected service; the first where it is gone.
    pub(super) fn selected(&self) -> usize {
        self.status.services.iter().position(|service| service.name == self.selected).unwrap_or(0)
    }
}

impl Shown {
    /// Fills in what two states tell together.
    fn measure(&mut self, before: &Self) {
        let same = self.pid == before.pid;
        let passed_s = self.now_ns.saturating_sub(before.now_ns) as f64 / 1e9;
        for service in &mut self.services {
            let Some(old) = before.services.iter().find(|old| same && old.name == service.name) else {
                service.streams.iter_mut().for_each(|s| s.most_left = s.misses_left.unwrap_or(0));
                continue;
            };
            let streams: HashMap<_, _> = old.streams.iter().map(|old| (old.name.as_str(), old)).collect();
            for stream in &mut service.streams {
                let old = streams.get(stream.name.as_str());
                // Fewer than before: another stream of this name.
                let arrived = old.and_then(|old| stream.arrived.checked_sub(old.arrived));
                stream.rate = (passed_s > 0.0).then(|| arrived.unwrap_or(stream.arrived) as f64 / passed_s);
                stream.most_left = old.map_or(0, |old| old.most_left).max(stream.misses_left.unwrap_or(0));
            }
            // Also where there is no stream: nothing arrives.
            let all =
                service.streams.iter().filter_map(|stream| stream.rate).fold(0.0, |all, rate| all + rate);
            service.rate = (passed_s > 0.0).then_some(all);
        }
    }
}

impl Service {
    /// Requests missed by reason, those that happened.
    pub(super) fn missed(&self) -> BTreeMap<&str, u64> {
        let mut missed = BTreeMap::new();
        for (reason, count) in
            self.streams.iter().flat_map(|stream| &stream.told.missed).filter(|(_, n)| **n > 0)
        {
            *missed.entry(reason.as_str()).or_default() += count;
        }
        missed
    }

    /// Each variant's share of the answers, 0 to 1.
    pub(super) fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let all: u64 = self.variants.iter().map(|variant| variant.answered).sum();
        let share = move |n: u64| n as f64 / all.max(1) as f64;
        self.variants.iter().map(move |variant| (variant.model.as_str(), share(variant.answered)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(pid: u64, now_s: u64, streams: &[(&str, u64, Option<u32>)]) -> Status {
        let streams: Vec<_> = streams
            .iter()
            .map(|(name, arrived, left)| json!({"name": name, "arrived": arrived, "misses_left": left}))
            .collect();
        let services = json!([{"name": "lanes", "streams": streams}, {"name": "signs"}]);
        let status = json!({"pid": pid, "now_ns": now_s * 1_000_000_000, "services": services, "later": [1]});
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn the_rate_is_what_came_between_two_states() {
        let mut state = State::default();
        state.take(status(1, 10, &[("a", 100, Some(3)), ("b", 50, None)]));
        assert_eq!(state.status.services[0].rate, None);
        // `b` has been registered anew.
        state.take(status(1, 12, &[("a", 300, Some(1)), ("b", 20, None)]));
        let lanes = &state.status.services[0];
        assert_eq!(
            (lanes.streams[0].rate, lanes.streams[1].rate, lanes.rate),
            (Some(100.0), Some(10.0), Some(110.0))
        );
        assert_eq!((lanes.streams[0].misses_left, lanes.streams[0].most_left), (Some(1), 3));
        assert_eq!(state.status.services[1].rate, Some(0.0));
        // Another daemon counts anew.
        state.take(status(2, 13, &[("a", 400, Some(2))]));
        let lanes = &state.status.services[0];
        assert_eq!((lanes.rate, lanes.streams[0].most_left), (None, 2));
    }

    #[test]
    fn a_pause_holds_the_state_and_the_rate_after_it_covers_it() {
        let mut state = State::default();
        state.take(status(1, 10, &[("a", 0, None)]));
        state.pause();
        state.lose("closed".to_owned());
        state.take(status(1, 11, &[("a", 1000, None)]));
        assert_eq!((state.gone.as_deref(), state.status.services[0].rate), (None, None));
        state.pause();
        state.take(status(1, 14, &[("a", 2000, None)]));
        assert_eq!(state.status.services[0].rate, Some(500.0));
    }

    #[test]
    fn the_selection_stays_with_its_service_and_within_the_list() {
        let mut state = State::default();
        state.select(1);
        state.take(status(1, 10, &[]));
        state.select(5);
        assert_eq!(state.selected(), 1);
        let mut swapped = status(1, 11, &[]);
        swapped.services.swap(0, 1);
        state.take(swapped);
        assert_eq!(state.selected(), 0);
        state.select(-3);
        assert_eq!(state.selected(), 0);
    }
}
