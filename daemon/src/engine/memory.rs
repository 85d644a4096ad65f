//! Where the tensors of a batch lie: on the heap, or in a file in memory that two processes share.

use std::os::fd::AsFd;

use memmap2::{MmapMut, MmapOptions};

/// Each tensor of a batch begins at a multiple of this many bytes, a cache line.
pub(super) const LINE: usize = 64;

/// Bytes that begin on a cache line and stay in place.
#[derive(Debug)]
pub(super) enum Memory {
    /// This process's own.
    Heap(Vec<Line>),
    /// Seen by a worker process too.
    Shared(MmapMut),
}

#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u8; LINE]);

impl Memory {
    pub(super) fn zeros(bytes: usize) -> Self {
        Self::Heap(vec![Line([0; LINE]); bytes.div_ceil(LINE)])
    }

    /// Maps `bytes` of `file` from `offset` on, a multiple of [`LINE`]; `file` holds that much and can never
    /// shrink.
    ///
    /// # Errors
    /// If the system has no room for it.
    #[allow(unsafe_code)]
    pub(super) fn shared(file: impl AsFd, offset: u64, bytes: usize) -> std::io::Result<Self> {
        let file = file.as_fd();
        let mut options = MmapOptions::new();
        options.offset(offset).len(bytes).populate();
        // SAFETY: the file is a memfd sealed against shrinking, so no access can fault. The two processes take
        // turns: the parent touches the bytes only while no batch runs, the child only while one does, and the
        // messages between are what orders them. A child that breaks this can at worst make the parent copy
        // bytes that change meanwhile: every bit pattern is a valid `u8`, and the parent derives nothing from them.
        unsafe { options.map_mut(&file) }.map(Self::Shared)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(lines) => bytemuck::cast_slice(lines),
            Self::Shared(map) => map,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(lines) => bytemuck::cast_slice_mut(lines),
            Self::Shared(map) => map,
        }
    }
}
