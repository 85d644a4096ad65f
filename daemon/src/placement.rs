//! What STATUS tells of the controller that looks for better placements.

use std::sync::Mutex;

use weir_client::status;
use weir_os::locks::lock;

/// What STATUS tells of it.
#[derive(Default)]
pub(crate) struct Told(Mutex<Option<status::Placement>>);

impl Told {
    /// What was looked at, and what came of it; none while nothing is placed.
    pub(crate) fn status(&self) -> Option<status::Placement> {
        lock(&self.0).clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut status::Placement)) {
        change(lock(&self.0).get_or_insert_default());
    }

    pub(crate) fn clear(&self) {
        *lock(&self.0) = None;
    }
}
