//! What waits for a service: mandatory, demoted and optional requests, each class in the order of deadlines.

use alloc::vec::Vec;

use super::ordered::Ordered;
use super::types::Request;
use crate::time::Instant;
use crate::word::Class;

/// The queue of mandatory requests.
pub(crate) const MANDATORY: usize = Class::Mandatory as usize;
/// Of those that would be mandatory if their stream kept to its declaration.
pub(crate) const DEMOTED: usize = Class::Demoted as usize;
/// Of all others.
pub(crate) const OPTIONAL: usize = Class::Optional as usize;

/// By class.
pub(crate) type Classes<T> = [T; 3];

/// Requests that wait, at most as many as there is room for.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    classes: Classes<Ordered>,
    len: usize,
    room: usize,
    /// By the place of a stream: its demoted requests.
    demoted: Vec<u32>,
}

impl Waiting {
    /// Empty, with room for so many, of so many streams. Allocates.
    pub(crate) fn new(room: usize, streams: usize) -> Self {
        let classes = [(); 3].map(|()| Ordered::new(room));
        Self { classes, len: 0, room, demoted: alloc::vec![0; streams] }
    }

    /// For so many streams. Allocates.
    pub(crate) fn resize(&mut self, streams: usize) {
        self.demoted.resize(streams, 0);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.room
    }

    /// How many quarters of the room are taken.
    pub(crate) fn quarters(&self) -> usize {
        4 * self.len / self.room.max(1)
    }

    pub(crate) fn class(&self, class: usize) -> &Ordered {
        &self.classes[class]
    }

    /// Whether no mandatory request waits.
    pub(crate) fn is_clear(&self) -> bool {
        self.classes[MANDATORY].is_empty()
    }

    /// Whether none waits that is not mandatory.
    pub(crate) fn is_mandatory_only(&self) -> bool {
        self.len == self.classes[MANDATORY].len()
    }

    /// The class of all that wait, if it is one.
    pub(crate) fn only_class(&self) -> Option<usize> {
        (MANDATORY..=OPTIONAL).find(|&class| self.len == self.classes[class].len())
    }

    /// How many requests of a class have a deadline before `reach`: an answer then would be too late for them.
    #[inline]
    pub(crate) fn before(&self, class: usize, reach: Instant) -> usize {
        self.classes[class].before(reach)
    }

    /// The earliest deadline of a class.
    pub(crate) fn first_deadline(&self, class: usize) -> Option<Instant> {
        self.classes[class].first().map(|request| request.deadline)
    }

    /// Whether demoted requests of the stream in this place wait.
    pub(crate) fn has_demoted(&self, slot: u16) -> bool {
        self.demoted[usize::from(slot)] > 0
    }

    /// Takes in a request; there is room. Whether it is the first of its class now.
    #[inline(always)]
    pub(crate) fn push(&mut self, class: usize, request: Request) -> bool {
        self.came(class, &request);
        self.classes[class].push(request)
    }

    /// Takes in one that waited before, in whichever class; there is room.
    pub(crate) fn put(&mut self, class: usize, request: Request) {
        self.came(class, &request);
        self.classes[class].insert(request);
    }

    /// Takes in a request of a stage behind the first, see [`Ordered::push_by_place`]; there is room.
    pub(crate) fn push_by_place(&mut self, class: usize, request: Request) {
        self.len += 1;
        self.classes[class].push_by_place(request);
    }

    /// Takes the first request of a class.
    #[inline]
    pub(crate) fn pop(&mut self, class: usize) -> Option<Request> {
        let request = self.classes[class].pop_first()?;
        self.taken(class, &request);
        Some(request)
    }

    /// Takes the first request of a class if an answer at `reach` would be too late for it.
    pub(crate) fn pop_before(&mut self, class: usize, reach: Instant) -> Option<Request> {
        if self.classes[class].first()?.deadline < reach { self.pop(class) } else { None }
    }

    /// Takes the first `count` requests of a class.
    #[inline]
    pub(crate) fn take_first(&mut self, class: usize, count: usize, mut take: impl FnMut(&Request)) {
        let queue = &mut self.classes[class];
        for _ in 0..count {
            let Some(request) = queue.first() else { break };
            take(request);
            self.len -= 1;
            if class == DEMOTED {
                self.demoted[usize::from(request.stream.slot)] -= 1;
            }
            queue.drop_first();
        }
    }

    /// Takes the request at `index` of a class: near the first in little time.
    pub(crate) fn remove(&mut self, class: usize, index: usize) -> Option<Request> {
        let request = self.classes[class].remove(index)?;
        self.taken(class, &request);
        Some(request)
    }

    #[inline(always)]
    fn came(&mut self, class: usize, request: &Request) {
        self.len += 1;
        if class == DEMOTED {
            self.demoted[usize::from(request.stream.slot)] += 1;
        }
    }

    fn taken(&mut self, class: usize, request: &Request) {
        self.len -= 1;
        if class == DEMOTED {
            self.demoted[usize::from(request.stream.slot)] -= 1;
        }
    }

    /// The oldest of the lowest class gives way to one of `class`, unless all that wait are above it.
    pub(crate) fn give_way(&mut self, class: usize) -> Option<Request> {
        (class.max(DEMOTED)..self.classes.len()).rev().find_map(|lower| self.pop(lower))
    }

    /// Whether [`Waiting::give_way`] finds one.
    pub(crate) fn gives_way(&self, class: usize) -> bool {
        (class.max(DEMOTED)..self.classes.len()).any(|lower| !self.classes[lower].is_empty())
    }

    /// Takes a request back that must be answered by `deadline` and `is` it, if it waits.
    pub(crate) fn take_back(&mut self, deadline: Instant, is: impl Fn(&Request) -> bool) -> Option<Request> {
        let find = |class: usize| Some((class, self.classes[class].take_back(deadline, &is)?));
        let (class, request) = (MANDATORY..=OPTIONAL).find_map(find)?;
        self.taken(class, &request);
        Some(request)
    }
}
