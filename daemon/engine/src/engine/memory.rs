//! Where the tensors of a batch lie: on the heap, or in a file in memory that two processes share.
#![allow(unsafe_code, reason = "memory shared with another process can only be reached by its address")]

use std::os::fd::AsFd;

use memmap2::{MmapOptions, MmapRaw};

/// Each tensor of a batch begins at a multiple of this many bytes, a cache line.
pub(super) const LINE: usize = 64;

/// Bytes that begin on a cache line and stay in place.
///
/// They are copied in and out and never borrowed: a worker process may write those it shares at any time, whatever it
/// was told, while a reference would promise the compiler that they stay as they are.
#[derive(Debug)]
pub(super) enum Memory {
    /// This process's own.
    Heap(Vec<Line>),
    /// Seen by a worker process too.
    Shared(MmapRaw),
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; LINE]);

impl Memory {
    pub(super) fn zeros(bytes: usize) -> Self {
        Self::Heap(vec![Line([0; LINE]); bytes.div_ceil(LINE)])
    }

    /// Maps `bytes` of `file` from `offset` on, a multiple of [`LINE`]; `file` holds that much and can never
    /// shrink, or an access ends the process.
    ///
    /// # Errors
    /// If the system has no room for it.
    pub(super) fn shared(file: impl AsFd, offset: u64, bytes: usize) -> std::io::Result<Self> {
        MmapOptions::new().offset(offset).len(bytes).populate().map_raw(&file.as_fd()).map(Self::Shared)
    }

    /// Copies the bytes from `at` on.
    ///
    /// # Panics
    /// If they reach beyond the memory.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.range(at, into.len());
        // SAFETY: `range` has checked that all bytes are within memory that lasts as long as `self`, and `into` is
        // other memory. Whatever mixture of old and new another process leaves to be copied are valid bytes, and
        // nothing here assumes that they would be the same the next time.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `length` bytes from `at` on to the end of `to`.
    ///
    /// # Panics
    /// If they reach beyond the memory.
    pub(super) fn append(&self, at: usize, length: usize, to: &mut Vec<u8>) {
        let from = self.range(at, length);
        to.reserve(length);
        // SAFETY: as for `read`; the bytes behind the end of `to` are its own, as many as were reserved, and all of
        // them are written before they count.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().add(to.len()), length);
            to.set_len(to.len() + length);
        }
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Panics
    /// If they reach beyond the memory.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let to = self.range_mut(at, bytes.len());
        // SAFETY: as for `read`, with the directions exchanged; what another process makes of it is its own affair.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Writes `length` zeros.
    ///
    /// # Panics
    /// If they reach beyond the memory.
    pub(super) fn clear(&mut self, at: usize, length: usize) {
        let to = self.range_mut(at, length);
        // SAFETY: as for `write`.
        unsafe { std::ptr::write_bytes(to, 0, length) };
    }

    /// Copies `length` bytes within the memory.
    ///
    /// # Panics
    /// If they reach beyond it.
    pub(super) fn copy(&mut self, from: usize, to: usize, length: usize) {
        let from = self.range(from, length);
        let to = self.range_mut(to, length);
        // SAFETY: as for `read`; they may overlap.
        unsafe { std::ptr::copy(from, to, length) };
    }

    /// Whether it has so many bytes.
    pub(super) fn holds(&self, bytes: usize) -> bool {
        match self {
            Self::Heap(lines) => bytes <= lines.len() * LINE,
            Self::Shared(map) => bytes <= map.len(),
        }
    }

    /// Where it begins.
    pub(super) fn base(&mut self) -> *mut u8 {
        match self {
            Self::Heap(lines) => lines.as_mut_ptr().cast(),
            Self::Shared(map) => map.as_mut_ptr(),
        }
    }

    fn range(&self, at: usize, length: usize) -> *const u8 {
        let (base, size) = match self {
            Self::Heap(lines) => (lines.as_ptr().cast(), lines.len() * LINE),
            Self::Shared(map) => (map.as_ptr(), map.len()),
        };
        let end = at.checked_add(length);
        assert!(end.is_some_and(|end| end <= size), "{length} bytes at {at} of {size}");
        base.wrapping_add(at)
    }

    fn range_mut(&mut self, at: usize, length: usize) -> *mut u8 {
        // Checked there; only what begins with `base` may be written.
        let _ = self.range(at, length);
        self.base().wrapping_add(at)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn what_one_mapping_writes_the_other_reads() {
        let file = memfd_create("t", MFdFlags::MFD_CLOEXEC).unwrap();
        ftruncate(&file, 256).unwrap();
        let mut ours = Memory::shared(&file, 64, 192).unwrap();
        let theirs = Memory::shared(&file, 0, 256).unwrap();
        ours.write(3, b"0123456789");
        ours.copy(5, 180, 4);
        let mut read = [0; 10];
        theirs.read(64 + 3, &mut read);
        assert_eq!(&read, b"0123456789");
        let mut all = vec![b'a'];
        theirs.append(64 + 179, 6, &mut all);
        assert_eq!(all, b"a\x002345\x00");
    }

    #[test]
    fn its_own_memory_begins_as_zeros_on_a_cache_line() {
        let mut memory = Memory::zeros(65);
        assert_eq!(memory.base().addr() % LINE, 0);
        let mut read = [7; 128];
        memory.read(0, &mut read);
        assert_eq!(read, [0; 128]);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 127 of 128")]
    fn nothing_beyond_it_is_read() {
        Memory::zeros(65).read(127, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 18446744073709551615 of 128")]
    fn nothing_beyond_it_is_written() {
        Memory::zeros(65).write(usize::MAX, &[0; 2]);
    }
}
