//! On a request's way: memory that a client and the daemon both see, where large tensors lie.
//!
//! A tensor of a megabyte costs some 200 µs through a socket. In an [`Arena`] only its place is told.

mod memory;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::types::{Element, StreamInfo, TensorError, place};
use crate::wire::ClientFrame;
pub use memory::{Memory, MemoryError};

/// Places begin at multiples of this many bytes, a cache line; the protocol asks for 8.
const LINE: usize = 64;

/// Memory shared with the daemon, given out place by place; see `Client::share`.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<Memory>,
    used: usize,
}

impl Arena {
    pub(crate) fn create(bytes: usize) -> Result<(Self, OwnedFd), Error> {
        let (memory, file) = Memory::create(bytes)?;
        Ok((Self { memory: Arc::new(memory), used: 0 }, file))
    }

    /// Which one it is, for the connection that shares it.
    pub(crate) fn mark(&self) -> Weak<Memory> {
        Arc::downgrade(&self.memory)
    }

    /// Sets room aside for one request of `stream` and its answer, for as long as the arena lasts. A place
    /// serves any number of requests one after the other: a client needs one for each that is in flight.
    ///
    /// # Errors
    /// [`Error::ArenaFull`].
    pub fn place(&mut self, stream: &StreamInfo) -> Result<Place, Error> {
        let (input_bytes, output_bytes) = (stream.input_bytes as usize, stream.output_bytes as usize);
        let input = self.used;
        let output = (input + input_bytes).next_multiple_of(LINE);
        let end = (output + output_bytes).next_multiple_of(LINE);
        let (wanted, left) =
            (output + output_bytes - input, self.memory.length() - self.used.min(self.memory.length()));
        if wanted > left {
            return Err(Error::ArenaFull { wanted, left });
        }
        self.used = end;
        Ok(Place { memory: Arc::clone(&self.memory), stream: stream.clone(), input, output })
    }
}

/// Room for the tensors of one request and its answer.
///
/// Values are copied in and out: the daemon sees the same memory, so nothing here may borrow from it. Whoever stops waiting
/// for an answer leaves the place alone until the stream's deadline has passed: up to then an output may still be written
/// there.
#[derive(Clone, Debug)]
pub struct Place {
    memory: Arc<Memory>,
    stream: StreamInfo,
    input: usize,
    output: usize,
}

impl Place {
    /// The stream whose requests lie here.
    pub fn stream(&self) -> &StreamInfo {
        &self.stream
    }

    /// Writes input `tensor` of the next request.
    ///
    /// # Errors
    /// If there is no such tensor, or its type or number of elements is another.
    pub fn write<T: Element>(&self, tensor: usize, values: &[T]) -> Result<(), TensorError> {
        let inputs = &self.stream.inputs;
        let range = place(inputs, tensor)?;
        inputs[tensor].check(T::TYPE, values.len())?;
        self.within(&inputs[tensor].name, range.end, self.stream.input_bytes)?;
        self.memory.write(self.input + range.start, T::bytes_of(values));
        Ok(())
    }

    /// Reads output `tensor` of the last answer; without meaning before there was one.
    ///
    /// # Errors
    /// If there is no such tensor, or its type is another.
    pub fn read<T: Element>(&self, tensor: usize) -> Result<Vec<T>, TensorError> {
        let outputs = &self.stream.outputs;
        let range = place(outputs, tensor)?;
        outputs[tensor].check(T::TYPE, outputs[tensor].elements())?;
        self.within(&outputs[tensor].name, range.end, self.stream.output_bytes)?;
        let mut bytes = vec![0; range.len()];
        self.memory.read(self.output + range.start, &mut bytes);
        Ok(T::values_of(&bytes))
    }

    /// Where the input lies in this process, for a producer that writes there itself: `input_bytes` of the
    /// stream, aligned to 64, valid as long as this place.
    pub fn input_ptr(&self) -> *mut u8 {
        self.memory.at(self.input)
    }

    /// Where the output lies, likewise.
    pub fn output_ptr(&self) -> *const u8 {
        self.memory.at(self.output)
    }

    /// The request that lies here, on the connection that shares this arena.
    pub(crate) fn submit(&self, shared: &Weak<Memory>) -> Result<ClientFrame<'static>, Error> {
        if Arc::as_ptr(&self.memory) != shared.as_ptr() {
            return Err(Error::OtherArena);
        }
        let (input, output) = (self.input as u64, self.output as u64);
        Ok(ClientFrame::SubmitShared { stream: self.stream.id, input, output })
    }

    fn within(&self, tensor: &str, end: usize, bytes: u32) -> Result<(), TensorError> {
        let bytes = bytes as usize;
        if end <= bytes { Ok(()) } else { Err(TensorError::Output { tensor: tensor.into(), end, bytes }) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::{DataType, TensorInfo};

    fn stream() -> StreamInfo {
        let tensor = |data_type, length| TensorInfo { name: "t".into(), data_type, shape: vec![length] };
        StreamInfo {
            id: 3,
            deadline: Duration::from_millis(10),
            input_bytes: 24,
            output_bytes: 8,
            density_numerator: 0,
            density_denominator: 1,
            variant: "v".into(),
            accuracy: 0.5,
            inputs: vec![tensor(DataType::U8, 3), tensor(DataType::I64, 2)],
            outputs: vec![tensor(DataType::F32, 2)],
            class: 0,
            classes: Vec::new(),
            wanted: None,
            asked: None,
        }
    }

    #[test]
    fn places_do_not_overlap_and_end_with_the_arena() {
        let (mut arena, _file) = Arena::create(4096).unwrap();
        let places: Vec<_> = std::iter::from_fn(|| arena.place(&stream()).ok()).collect();
        assert_eq!(places.len(), 4096 / 128);
        for (n, place) in places.iter().enumerate() {
            let (input, output) = (128 * n as u64, 128 * n as u64 + 64);
            let frame = place.submit(&arena.mark()).unwrap();
            assert_eq!(frame, ClientFrame::SubmitShared { stream: 3, input, output });
        }
        assert!(matches!(arena.place(&stream()), Err(Error::ArenaFull { wanted: 72, left: 0 })));
    }

    #[test]
    fn values_go_in_and_out_typed() {
        let (mut arena, _file) = Arena::create(4096).unwrap();
        let place = arena.place(&stream()).unwrap();
        place.write(1, &[-1i64, 7]).unwrap();
        let mut bytes = [0; 24];
        place.memory.read(place.input, &mut bytes);
        assert_eq!((bytes[8], bytes[16]), (255, 7));
        assert_eq!(place.read::<f32>(0), Ok(vec![0.0, 0.0]));
        assert!(place.write(0, &[1.0f32; 3]).is_err() && place.write(2, &[1u8]).is_err());
        assert!(place.read::<u8>(0).is_err());
    }
}
