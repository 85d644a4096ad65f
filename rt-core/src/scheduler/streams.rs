//! Streams come, go, and change hands.

use super::Scheduler;
use super::settle::Past;
use super::types::StreamError;
use crate::stream::{Stream, StreamId, StreamSpec};

impl Scheduler {
    /// Adds a stream whose admission the caller has tested. A shield that does not count it is dropped.
    /// Allocates.
    ///
    /// # Errors
    /// If the configured number of streams is reached, or it is background and none is served.
    pub fn add_stream(&mut self, spec: StreamSpec) -> Result<StreamId, StreamError> {
        // Places may be more than that: they were taken over from a scheduler with a higher limit.
        if self.stream_count() >= self.config.streams {
            return Err(StreamError::Limit { limit: self.config.streams });
        }
        if !self.config.background && spec.arrivals().is_none() {
            return Err(StreamError::Undeclared);
        }
        let free = self.streams.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.streams.len());
        let id = StreamId { slot: slot as u16, generation: self.generation() };
        let places = self.places(&spec);
        let stream = Some(Stream::new(id, spec, places));
        match free {
            Some(slot) => self.streams[slot] = stream,
            None => self.streams.push(stream),
        }
        if self.shield.as_ref().is_some_and(|shield| !self.is_counted(shield, slot)) {
            self.shield = None;
        }
        Ok(id)
    }

    /// Removes a stream: what waits is cancelled, what runs ends unheard. Its load may be given to others
    /// once [`Scheduler::idle_epoch`] has moved on, for only from then on is it out of every busy period; where no
    /// background is served, once [`Scheduler::is_ready_for`] them.
    pub fn remove_stream(&mut self, id: StreamId) {
        if self.stream(id).is_some() {
            if !self.config.background {
                self.uncounted = Past::Open;
            }
            self.cancel(id);
            self.streams[usize::from(id.slot)] = None;
        }
    }

    /// Starts a stream anew for another client of the same declaration: new number, requests from 0,
    /// a clean record. The arrival monitor and the word go on, so the promise to others is untouched.
    /// Allocates.
    pub fn restart_stream(&mut self, id: StreamId) -> Option<StreamId> {
        self.stream(id)?;
        self.cancel(id);
        let generation = self.generation();
        let places = self.places(&self.streams[usize::from(id.slot)].as_ref()?.spec);
        let slot = self.streams[usize::from(id.slot)].as_mut()?;
        let mut fresh = Stream::new(StreamId { generation, ..id }, slot.spec.clone(), places);
        fresh.marks = slot.marks.clone();
        fresh.police = slot.police.clone();
        *slot = fresh;
        Some(slot.id)
    }

    /// How many streams there are.
    pub(super) fn stream_count(&self) -> usize {
        self.streams.iter().flatten().count()
    }
}
