//! How many mandatory requests of a service can come in a length: reckoned once, however many lines ask.

use std::cell::RefCell;

use super::read::Service;

/// So many rises are remembered.
const MANY: usize = 1 << 16;

pub(super) struct Curve<'a> {
    service: &'a Service,
    /// Each length in which there may be more, and the most in it.
    rises: RefCell<Vec<(i128, i128)>>,
}

impl<'a> Curve<'a> {
    pub(super) fn new(service: &'a Service) -> Self {
        Self { service, rises: RefCell::new(vec![(0, 0)]) }
    }

    /// The most in `length`, and the next length in which there may be more.
    pub(super) fn at(&self, length: i128) -> (i128, Option<i128>) {
        let (length, mut rises) = (length.max(0), self.rises.borrow_mut());
        loop {
            let last = rises[rises.len() - 1].0;
            match self.service.rise(last) {
                Some(next) if last <= length && rises.len() < MANY => {
                    rises.push((next, self.service.mandatory(next)));
                }
                _ => break,
            }
        }
        match rises.partition_point(|rise| rise.0 <= length) {
            after if after < rises.len() => (rises[after - 1].1, Some(rises[after].0)),
            _ => (self.service.mandatory(length), self.service.rise(length)),
        }
    }
}
