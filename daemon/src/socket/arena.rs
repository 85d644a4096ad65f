//! Memory that a client shares: requests are read from it, answers are written to it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_client::shared::Memory;
use weir_client::wire::PACKING;
use weir_serve::service::Region;

/// The shared memory of one connection. It stays mapped until the last answer that goes there is written.
pub(super) struct Arena(Arc<Memory>);

impl Arena {
    /// Maps what a client hands over, at most `limit` bytes of it.
    ///
    /// # Errors
    /// In words, what makes it no memory to rely on.
    pub(super) fn map(file: &OwnedFd, length: u64, limit: u64) -> Result<Self, String> {
        if length > limit {
            return Err(format!("{length} bytes, daemon.max-arena = {limit}"));
        }
        let length = usize::try_from(length).map_err(|error| error.to_string())?;
        let memory = Memory::map(file.as_fd(), length).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(memory)))
    }

    /// The place of a request's `what`: `length` bytes at `at`.
    ///
    /// # Errors
    /// In words, if it is not aligned or reaches beyond the arena.
    pub(super) fn place(&self, what: &str, at: u64, length: usize) -> Result<Region, String> {
        if !at.is_multiple_of(PACKING as u64) {
            return Err(format!("{what} at {at}, must be a multiple of {PACKING}"));
        }
        let room = self.0.length();
        let start =
            usize::try_from(at).ok().filter(|at| room.checked_sub(*at).is_some_and(|left| left >= length));
        let start = start.ok_or_else(|| format!("{what} of {length} bytes at {at}, the arena has {room}"))?;
        Ok(Region::new(Arc::clone(&self.0), start, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_within_the_arena_and_are_aligned() {
        let (_memory, file) = Memory::create(4096).unwrap();
        let arena = Arena::map(&file, 4096, 4096).unwrap();
        for (at, length, fits) in [
            (0, 4096, true),
            (4088, 8, true),
            (4096, 0, true),
            (0, 4097, false),
            (4088, 9, false),
            (4104, 0, false),
            (4, 8, false),
            (u64::MAX - 7, 8, false),
            (u64::MAX - 7, usize::MAX, false),
            (8, usize::MAX, false),
        ] {
            assert_eq!(arena.place("input", at, length).is_ok(), fits, "{length} at {at}");
        }
        let place = arena.place("output", 8, 2).unwrap();
        assert_eq!(place.write(&[1, 2, 3]), [3]);
        let mut read = vec![9; 7];
        arena.place("input", 0, 12).unwrap().read(&mut read);
        assert_eq!(read, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(Arena::map(&file, 4096, 4095).err().unwrap(), "4096 bytes, daemon.max-arena = 4095");
    }
}
