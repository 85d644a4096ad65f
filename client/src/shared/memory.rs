//! On a request's way: the mapping itself, the one place that touches memory another process may change.
#![allow(unsafe_code, reason = "memory shared with another process can only be reached by its address")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::fs::{fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `TMPFS_MAGIC` of `linux/magic.h`: where ordinary memory files live. Those of huge pages live elsewhere, and
/// a page of them may be missing when it is touched.
const TMPFS: u64 = 0x0102_1994;

/// A mapping of a sealed memory file, readable and writable, in place until it is dropped.
///
/// The other process may write at any time. So bytes are only copied in and out, never borrowed, and whoever
/// reads twice may read two different things. The seal keeps the file from shrinking, so every page is there or can be
/// had anew: an access faults only where the other process gave pages back and the machine has none left to give.
#[derive(Debug)]
pub struct Memory {
    address: NonNull<u8>,
    length: usize,
}

/// Why memory cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Not a file of `memfd_create`.
    #[error("the descriptor is not a memfd of ordinary pages")]
    NotMemory,
    /// A file that may become shorter than its mapping.
    #[error("the memfd may shrink: add F_SEAL_SHRINK before it is handed over")]
    Unsealed,
    /// A file shorter than was said.
    #[error("the memfd is {size} bytes, {length} were announced")]
    Short {
        /// Its size.
        size: u64,
        /// The length announced.
        length: usize,
    },
    /// No memory at all.
    #[error("the length of a shared memory must be above 0")]
    Empty,
    /// The system failed in some other way, as for a file sealed against writing.
    #[error("the memory cannot be mapped for reading and writing: {0}")]
    System(#[from] io::Error),
}

impl Memory {
    /// New memory of `length` bytes, all 0, sealed against shrinking, and the file to be handed over.
    ///
    /// # Errors
    /// A length of 0, and if the system has no memory or descriptors left.
    pub fn create(length: usize) -> Result<(Self, OwnedFd), MemoryError> {
        let file =
            memfd_create("weir-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
        ftruncate(&file, length as u64).map_err(system)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(system)?;
        Ok((Self::map(file.as_fd(), length)?, file))
    }

    /// Maps the first `length` bytes of a memory file from anywhere, and brings its pages in.
    ///
    /// # Errors
    /// Whatever could make an access fail later: no memory file, none sealed against shrinking, one that is too
    /// short, one that cannot be written.
    pub fn map(file: BorrowedFd<'_>, length: usize) -> Result<Self, MemoryError> {
        if length == 0 {
            return Err(MemoryError::Empty);
        }
        // Only files of `memfd_create` can have this seal, and it cannot be taken off again.
        let seals = fcntl_get_seals(file).map_err(|_| MemoryError::NotMemory)?;
        if fstatfs(file).map_err(system)?.f_type as u64 != TMPFS {
            return Err(MemoryError::NotMemory);
        }
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::Unsealed);
        }
        // Looked at after the seal: the file is never shorter than this.
        let size = u64::try_from(fstat(file).map_err(system)?.st_size).unwrap_or(0);
        if size < length as u64 {
            return Err(MemoryError::Short { size, length });
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an address where nothing is mapped yet; nothing refers to it.
        let address = unsafe { mmap(null_mut(), length, protection, flags, file, 0) }.map_err(system)?;
        let address = NonNull::new(address.cast()).ok_or(MemoryError::NotMemory)?;
        Ok(Self { address, length })
    }

    /// Bytes mapped.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Copies the bytes from `at` on.
    ///
    /// # Panics
    /// If they reach beyond the mapping.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.range(at, into.len());
        // SAFETY: `range` has checked that all bytes are within the mapping, which lasts as long as `self`;
        // `into` is memory of our own, so the two do not overlap. Whatever mixture of old and new another process
        // leaves to be copied are valid bytes, and nothing here assumes that they would be the same the next time.
        // A page that the machine cannot give ends the process; it does not go on with something else.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes to `at`.
    ///
    /// # Panics
    /// If they reach beyond the mapping.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.range(at, bytes.len());
        // SAFETY: as for `read`, with the directions exchanged. Two threads of this process that write the same
        // bytes were told to by whoever shares the memory, and nobody here relies on what they leave.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(super) fn at(&self, at: usize) -> *mut u8 {
        self.range(at, 0)
    }

    fn range(&self, at: usize, length: usize) -> *mut u8 {
        let end = at.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{length} bytes at {at} of {}", self.length);
        self.address.as_ptr().wrapping_add(at)
    }
}

// SAFETY: the address is that of a mapping, which belongs to the whole process; nothing is borrowed from it.
unsafe impl Send for Memory {}
// SAFETY: as above; all access is by copies.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this address and length, and every access goes through `self`.
        // That it cannot be unmapped would leave it in place, which harms nobody.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
    }
}

fn system(errno: Errno) -> MemoryError {
    MemoryError::System(errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let (ours, file) = Memory::create(5000).unwrap();
        let theirs = Memory::map(file.as_fd(), 5000).unwrap();
        ours.write(4990, b"0123456789");
        let mut read = [0; 10];
        theirs.read(4990, &mut read);
        assert_eq!(&read, b"0123456789");
    }

    #[test]
    fn only_sealed_memory_of_that_size_is_mapped() {
        let told = |file: BorrowedFd<'_>, length| Memory::map(file, length).unwrap_err().to_string();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("t", flags).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert!(told(file.as_fd(), 4096).contains("may shrink"));
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(told(file.as_fd(), 4097), "the memfd is 4096 bytes, 4097 were announced");
        assert!(told(file.as_fd(), 0).contains("above 0"));
        fcntl_add_seals(&file, SealFlags::WRITE).unwrap();
        assert!(told(file.as_fd(), 4096).contains("cannot be mapped"));
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(told(other.as_fd(), 1).contains("not a memfd"));
        let plain = tempfile_of_tmpfs();
        assert!(plain.is_none_or(|plain| told(plain.as_fd(), 1).contains("may shrink")));
    }

    /// A file of an ordinary tmpfs, which is none of `memfd_create` but can be asked for its seals.
    fn tempfile_of_tmpfs() -> Option<OwnedFd> {
        let path = format!("/dev/shm/weir-client-{}", std::process::id());
        let file =
            std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).ok()?;
        std::fs::remove_file(&path).ok()?;
        Some(file.into())
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4095 of 4096")]
    fn nothing_beyond_the_mapping_is_reached() {
        Memory::create(4096).unwrap().0.write(4095, &[0; 2]);
    }
}
