//! On a request's way: the stream it belongs to, which knows its promise and its tensors.

use std::time::Duration;

use super::Inference;
use super::tensor::{Element, TensorError, TensorInfo, place};
use crate::clock;
use crate::error::Error;
use crate::wire::{ClientFrame, SENT_VERSION, WITHIN_VERSION};

/// A registered stream, the promise the daemon gave for it, and what its requests and answers consist of.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// Number of the stream on this connection.
    pub id: u32,
    /// Time from arrival to answer.
    pub deadline: Duration,
    /// Length of a request's payload in bytes.
    pub input_bytes: u32,
    /// Length of a result's output in bytes.
    pub output_bytes: u32,
    /// Requests guaranteed, out of `density_denominator`; 0 for best effort.
    pub density_numerator: u32,
    /// Not 0.
    pub density_denominator: u32,
    /// The variant the promise is computed with; a request may be answered by another one.
    pub variant: String,
    /// Accuracy of that variant, 0 to 1; NaN where unknown.
    pub accuracy: f32,
    /// What a request consists of, in the order of its bytes; at most 16.
    pub inputs: Vec<TensorInfo>,
    /// What a result consists of, likewise.
    pub outputs: Vec<TensorInfo>,
    /// The class of its requests that name none, by its place among `classes`.
    pub class: u8,
    /// The classes of requests that the service has; none if they are all alike.
    pub classes: Vec<ClassInfo>,
    /// How soon after its sending the answer of a request is wanted, if sooner than the deadline.
    pub wanted: Option<Duration>,
    /// The class of requests, by its place among `classes`, if it is not the stream's own.
    pub asked: Option<u8>,
}

/// A class of requests of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// In the configuration.
    pub name: String,
    /// From arrival to answer; a later one is late.
    pub deadline: Duration,
    /// How long an answer takes at most that is delivered: the same, unless late answers are worth something.
    pub reach: Duration,
}

impl StreamInfo {
    /// The same stream for requests whose answers are wanted within less than its deadline: what comes later is missed. The
    /// promise stays that of the deadline; see `docs/guarantee.md`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn ask(client: &mut weir_client::blocking::Client, stream: &weir_client::StreamInfo) {
    /// let soon = stream.within(Duration::from_millis(5));
    /// let outcome = client.infer(&soon, &[0.5f32; 784]);
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        Self { wanted: Some(time), ..self.clone() }
    }

    /// The same stream for requests of this class.
    ///
    /// # Errors
    /// If the service has no such class.
    pub fn of_class(&self, name: &str) -> Result<Self, Error> {
        match self.classes.iter().position(|class| class.name == name) {
            Some(class) => Ok(Self { asked: Some(class as u8), ..self.clone() }),
            None => {
                let known = self.classes.iter().map(|class| class.name.clone()).collect();
                Err(Error::Class { name: name.to_owned(), known })
            }
        }
    }

    /// A request with what the daemon reads of it in that version of the protocol: that it is sent now, and how soon its answer
    /// is wanted.
    pub(crate) fn stamped<'p>(&self, frame: ClientFrame<'p>, version: u16) -> Result<ClientFrame<'p>, Error> {
        match self.within_us() {
            1.. if version < WITHIN_VERSION => Err(Error::Within { version }),
            _ if version < SENT_VERSION => Ok(frame),
            within_us => Ok(frame.sent_at(clock::now_ns(), within_us, self.asked)),
        }
    }

    /// What requests say of that, in microseconds; 0 for nothing.
    fn within_us(&self) -> u32 {
        let whole = |time: Duration| u32::try_from(time.as_micros().max(1)).unwrap_or(u32::MAX);
        self.wanted.map_or(0, whole)
    }

    /// Share of requests guaranteed, 0 (best effort) to 1.
    pub fn density(&self) -> f64 {
        f64::from(self.density_numerator) / f64::from(self.density_denominator.max(1))
    }

    /// Begins a request of several tensors; `client.submit_bytes` sends what [`Packer::finish`] returns.
    ///
    /// ```
    /// # fn pack(stream: &weir_client::StreamInfo) -> Result<Vec<u8>, weir_client::TensorError> {
    /// stream.pack().push(&[0.5f32; 784])?.push(&[3i64])?.finish()
    /// # }
    /// ```
    pub fn pack(&self) -> Packer<'_> {
        Packer { tensors: &self.inputs, bytes: Vec::with_capacity(self.input_bytes as usize), pushed: 0 }
    }

    /// The elements of the only output of a result of this stream.
    ///
    /// # Errors
    /// If the stream has several outputs, or one of another type.
    pub fn output<T: Element>(&self, inference: &Inference) -> Result<Vec<T>, TensorError> {
        let expected = self.outputs.len();
        if expected != 1 {
            return Err(TensorError::Count { side: "outputs", given: 1, expected });
        }
        self.output_at(inference, 0)
    }

    /// The elements of output `index` of a result of this stream.
    ///
    /// # Errors
    /// If there is no such output, or it is of another type.
    pub fn output_at<T: Element>(&self, inference: &Inference, index: usize) -> Result<Vec<T>, TensorError> {
        let place = place(&self.outputs, index)?;
        let tensor = &self.outputs[index];
        tensor.check(T::TYPE, tensor.elements())?;
        let (end, bytes) = (place.end, inference.output.len());
        let short = || TensorError::Output { tensor: tensor.name.clone(), end, bytes };
        inference.output.get(place).map(T::values_of).ok_or_else(short)
    }

    /// The payload of a request of the only input.
    pub(crate) fn payload<'v, T: Element>(&self, values: &'v [T]) -> Result<&'v [u8], TensorError> {
        let [input] = self.inputs.as_slice() else {
            return Err(TensorError::Count { side: "inputs", given: 1, expected: self.inputs.len() });
        };
        input.check(T::TYPE, values.len())?;
        Ok(T::bytes_of(values))
    }

    pub(crate) fn check_input(&self, bytes: usize) -> Result<(), Error> {
        let (stream, expected) = (self.id, self.input_bytes);
        if bytes == expected as usize { Ok(()) } else { Err(Error::InputLength { stream, bytes, expected }) }
    }
}

/// Packs the tensors of one request in order; see [`StreamInfo::pack`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Packer<'s> {
    tensors: &'s [TensorInfo],
    bytes: Vec<u8>,
    pushed: usize,
}

impl Packer<'_> {
    /// Adds the next tensor.
    ///
    /// # Errors
    /// If its type or number of elements is not that of the model, or the model has no further input.
    pub fn push<T: Element>(mut self, values: &[T]) -> Result<Self, TensorError> {
        let place = place(self.tensors, self.pushed)?;
        self.tensors[self.pushed].check(T::TYPE, values.len())?;
        self.bytes.resize(place.start, 0);
        self.bytes.extend_from_slice(T::bytes_of(values));
        self.pushed += 1;
        Ok(self)
    }

    /// As [`push`](Self::push), of values that lie in a certain shape: the same number in another layout is no input. Dimensions
    /// of 1 do not matter.
    ///
    /// # Errors
    /// As for [`push`](Self::push), and if that shape is not the tensor's.
    pub fn push_shaped<T: Element>(self, values: &[T], shape: &[usize]) -> Result<Self, TensorError> {
        let long = |shape: &[usize]| shape.iter().copied().filter(|&length| length != 1).collect::<Vec<_>>();
        if let Some(TensorInfo { name, shape: own, .. }) = self.tensors.get(self.pushed) {
            let expected: Vec<_> = own.iter().map(|&length| length as usize).collect();
            if long(shape) != long(&expected) {
                let (tensor, given, expected) = (name.clone(), shape.to_vec(), own.clone());
                return Err(TensorError::Shape { tensor, given, expected });
            }
        }
        self.push(values)
    }

    /// The payload.
    ///
    /// # Errors
    /// If inputs are missing.
    pub fn finish(self) -> Result<Vec<u8>, TensorError> {
        let (given, expected) = (self.pushed, self.tensors.len());
        if given == expected {
            Ok(self.bytes)
        } else {
            Err(TensorError::Count { side: "inputs", given, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DataType;

    fn stream(inputs: &[(DataType, &[u32])]) -> StreamInfo {
        let tensor = |(n, (data_type, shape)): (usize, &(DataType, &[u32]))| TensorInfo {
            name: format!("t{n}"),
            data_type: *data_type,
            shape: shape.to_vec(),
        };
        let tensors: Vec<_> = inputs.iter().enumerate().map(tensor).collect();
        StreamInfo {
            id: 1,
            deadline: Duration::from_millis(10),
            input_bytes: 16,
            output_bytes: 16,
            density_numerator: 7,
            density_denominator: 10,
            variant: "small".into(),
            accuracy: 0.9,
            inputs: tensors.clone(),
            outputs: tensors,
            class: 0,
            classes: Vec::new(),
            wanted: None,
            asked: None,
        }
    }

    fn inference(output: &[u8]) -> Inference {
        let (queued, run) = (Duration::ZERO, Duration::ZERO);
        let (stream, sequence, misses_left, batch, variant, skipped, late) = (1, 0, None, 1, 0, 0, false);
        let output = output.into();
        Inference { stream, sequence, misses_left, queued, run, batch, variant, skipped, late, output }
    }

    #[test]
    fn density_is_a_share() {
        let mut info = stream(&[]);
        assert_eq!(info.density(), 0.7);
        (info.density_numerator, info.density_denominator) = (0, 0);
        assert_eq!(info.density(), 0.0);
    }

    #[test]
    fn several_tensors_are_packed_and_unpacked() {
        let stream = stream(&[(DataType::U8, &[3]), (DataType::I64, &[])]);
        let packed = stream.pack().push(&[1u8, 2, 3]).unwrap().push(&[-1i64]).unwrap().finish().unwrap();
        assert_eq!(packed, [1, 2, 3, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        let inference = inference(&packed);
        assert_eq!(stream.output_at::<u8>(&inference, 0), Ok(vec![1, 2, 3]));
        assert_eq!(stream.output_at::<i64>(&inference, 1), Ok(vec![-1]));
    }

    #[test]
    fn what_does_not_fit_the_tensors_is_told() {
        let two = stream(&[(DataType::U8, &[3]), (DataType::I64, &[])]);
        let told = |error: TensorError| error.to_string();
        assert_eq!(told(two.payload(&[1u8]).unwrap_err()), "the stream has 2 inputs, 1 were given");
        assert_eq!(told(two.pack().push(&[1.0f32]).unwrap_err()), "tensor `t0` consists of u8, not f32");
        let one_of_two = two.pack().push(&[1u8; 3]).unwrap();
        assert_eq!(told(one_of_two.clone().finish().unwrap_err()), "the stream has 2 inputs, 1 were given");
        let both = one_of_two.push(&[1i64]).unwrap();
        assert_eq!(
            told(both.push(&[1i64]).unwrap_err()),
            "there is no tensor 2, only 2 of them, counted from 0"
        );
        let wide = stream(&[(DataType::U8, &[1, 3, 2])]);
        let shaped = |shape| wide.pack().push_shaped(&[0u8; 6], shape).map(drop);
        assert_eq!(told(shaped(&[2, 3]).unwrap_err()), "tensor `t0` has shape [1, 3, 2], [2, 3] was given");
        assert_eq!([shaped(&[3, 2]), shaped(&[1, 3, 2])], [Ok(()), Ok(())]);
        let one = stream(&[(DataType::F32, &[2, 2])]);
        assert_eq!(told(one.payload(&[1.0f32; 3]).unwrap_err()), "tensor `t0` has 4 elements, 3 were given");
        assert_eq!(
            told(one.output::<i64>(&inference(&[])).unwrap_err()),
            "tensor `t0` consists of f32, not i64"
        );
        assert_eq!(
            told(one.output::<f32>(&inference(&[0; 15])).unwrap_err()),
            "the output is 15 bytes, tensor `t0` ends at 16"
        );
    }
}
