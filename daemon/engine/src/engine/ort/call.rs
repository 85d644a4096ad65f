//! The calls into ONNX Runtime's C interface that the safe one does not offer: a run on the buffers in place, and
//! what runs where.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::ops::Range;
use std::ptr::{NonNull, null, null_mut};

use ::ort::memory::MemoryInfo;
use ::ort::session::Session;
use ::ort::sys::{ONNXTensorElementDataType as ElementType, OrtValue};
use ::ort::{AsPointer, Error, ortsys};

use crate::engine::layout::Layout;
use crate::engine::memory::Memory;
use crate::engine::{Buffers, Constant, DataType, EngineError, ModelSpec, Side, TensorSpec};

/// A session with what each run of it needs.
pub(super) struct Call {
    session: Session,
    memory: MemoryInfo<'static>,
    inputs: Ports,
    outputs: Ports,
}

/// The tensors of a side, in the manifest's order.
struct Ports {
    side: Side,
    names: Vec<CString>,
    /// Into `names`, whose texts stay in place.
    name_pointers: Vec<*const c_char>,
    tensors: Vec<Port>,
    /// Those of the run in progress; empty between runs.
    values: Vec<*mut OrtValue>,
}

struct Port {
    data_type: ElementType,
    shape: Vec<i64>,
    /// Which dimension of it is that of the batch.
    batch: Option<usize>,
    /// Bytes of one request.
    each: usize,
    layout: Layout,
    /// Of the port's own: what is the same in every run, or the tensor of a batch whose requests take turns in it.
    own: Memory,
    /// Whether no request brings it.
    constant: bool,
    /// Of an output: whether its file declares another number of dimensions than there are, or it is an input or a constant of the
    /// graph, which no node computes. ONNX Runtime puts it nowhere but where it wants then.
    elsewhere: bool,
    /// Requests one after the other, on their way to `own` or from it.
    scratch: Vec<u8>,
}

// SAFETY: the pointers lead into memory that moves along, and values exist only during a run; ONNX Runtime's
// sessions may be used from any thread, one at a time.
unsafe impl Send for Call {}

impl Call {
    /// Of a session of a graph whose nodes have computed these.
    pub(super) fn new(
        session: Session,
        spec: &ModelSpec,
        computed: &BTreeSet<String>,
    ) -> Result<Self, EngineError> {
        let failed = |reason| EngineError::Compile { model: spec.name.clone(), batch: 1, reason };
        let inputs = Ports::new(Side::Input, &spec.inputs, &spec.constants).map_err(failed)?;
        let mut outputs = Ports::new(Side::Output, &spec.outputs, &[]).map_err(failed)?;
        for (port, tensor) in outputs.tensors.iter_mut().zip(&spec.outputs) {
            let declared = session.outputs().iter().find(|outlet| outlet.name() == tensor.name);
            let dimensions =
                declared.and_then(|outlet| outlet.dtype().tensor_shape()).map_or(0, |shape| shape.len());
            // 0 is also what is told where nothing is declared.
            let other = dimensions != 0 && dimensions != port.shape.len();
            port.elsewhere = other || !computed.contains(&tensor.name);
        }
        Ok(Self { session, memory: MemoryInfo::default(), inputs, outputs })
    }

    /// Runs `requests` of the buffers as one batch.
    ///
    /// # Errors
    /// Whatever ONNX Runtime reports.
    pub(super) fn run(&mut self, buffers: &mut Buffers, requests: Range<usize>) -> ::ort::Result<()> {
        let base = buffers.base();
        let bound = self.outputs.bind(&self.memory, (buffers, base), &requests);
        let ran = bound.and_then(|()| self.run_inputs((buffers, base), &requests));
        let result = ran.and_then(|()| self.outputs.fetch(buffers, &requests));
        self.outputs.release();
        if result.is_ok() {
            self.outputs.gather(buffers, &requests);
        }
        result
    }

    /// Runs the first `batch` requests of the buffers and tells the types and shapes of the outputs, wherever
    /// ONNX Runtime put them.
    ///
    /// # Errors
    /// Whatever ONNX Runtime reports.
    pub(super) fn output_types(
        &mut self,
        buffers: &mut Buffers,
        batch: usize,
    ) -> ::ort::Result<Vec<(ElementType, Vec<usize>)>> {
        self.outputs.values.resize(self.outputs.names.len(), null_mut());
        let base = buffers.base();
        let result = self.run_inputs((buffers, base), &(0..batch));
        let types = result.and_then(|()| self.outputs.values.iter().map(|value| type_of(*value)).collect());
        self.outputs.release();
        types
    }

    fn run_inputs(&mut self, buffers: (&Buffers, *mut u8), requests: &Range<usize>) -> ::ort::Result<()> {
        let bound = self.inputs.bind(&self.memory, buffers, requests);
        let result = bound.and_then(|()| self.run_bound());
        self.inputs.release();
        result
    }

    fn run_bound(&mut self) -> ::ort::Result<()> {
        let (inputs, outputs) = (&self.inputs, &mut self.outputs);
        // SAFETY: all arrays are as long as is said and outlive the call; the names are those of the session, as
        // it was checked against the manifest; `&mut self` keeps other threads away.
        ortsys![unsafe Run(
            self.session.ptr().cast_mut(),
            null(),
            inputs.name_pointers.as_ptr(),
            inputs.values.as_ptr().cast(),
            inputs.values.len(),
            outputs.name_pointers.as_ptr(),
            outputs.values.len(),
            outputs.values.as_mut_ptr()
        )?];
        Ok(())
    }
}

impl Ports {
    /// The tensors of requests, then those of no request.
    fn new(side: Side, specs: &[TensorSpec], constants: &[Constant]) -> Result<Self, String> {
        let all = || specs.iter().chain(constants.iter().map(|constant| &constant.tensor));
        let name = |spec: &TensorSpec| CString::new(spec.name.as_str()).map_err(|error| error.to_string());
        let names: Vec<_> = all().map(name).collect::<Result<_, _>>()?;
        let mut tensors: Vec<_> = all().map(Port::new).collect();
        for (port, constant) in tensors[specs.len()..].iter_mut().zip(constants) {
            port.constant = true;
            port.own = Memory::zeros(constant.bytes.len());
            port.own.write(0, &constant.bytes);
        }
        Ok(Self {
            side,
            name_pointers: names.iter().map(|name| name.as_ptr()).collect(),
            tensors,
            values: Vec::with_capacity(names.len()),
            names,
        })
    }

    /// Makes values of the tensors of `requests`, where they lie in the buffers, whose memory begins at `base`.
    fn bind(
        &mut self,
        memory: &MemoryInfo<'_>,
        (buffers, base): (&Buffers, *mut u8),
        requests: &Range<usize>,
    ) -> ::ort::Result<()> {
        for (tensor, port) in self.tensors.iter_mut().enumerate() {
            let count = if port.constant { 1 } else { requests.len() };
            if let Some(batch) = port.batch {
                port.shape[batch] = count as i64;
            }
            if port.elsewhere {
                self.values.push(null_mut());
                continue;
            }
            let address = if port.constant {
                port.own.base()
            } else if port.layout.is_plain(count) {
                base.wrapping_add(buffers.offset(self.side, tensor, requests.start))
            } else {
                port.spread(buffers, (self.side, tensor), requests)
            };
            let mut value = null_mut();
            // SAFETY: the address is that of `requests` in memory that outlives the value, or of the port's own, which
            // is as long; `release` ends the value before the run's borrow of either does. Length, shape and type are
            // those it was made for.
            ortsys![unsafe CreateTensorWithDataAsOrtValue(
                memory.ptr(),
                address.cast(),
                port.each * count,
                port.shape.as_ptr(),
                port.shape.len(),
                port.data_type,
                &mut value
            )?];
            self.values.push(value);
        }
        Ok(())
    }

    /// Puts outputs that are elsewhere where the buffers have them.
    fn fetch(&mut self, buffers: &mut Buffers, requests: &Range<usize>) -> ::ort::Result<()> {
        let all = self.tensors.iter_mut().zip(&self.values).enumerate();
        for (tensor, (port, value)) in all.filter(|(_, (port, _))| port.elsewhere) {
            let found = type_of(*value)?;
            let wanted = (port.data_type, port.shape.iter().map(|size| *size as usize).collect());
            if found != wanted {
                return Err(Error::new(format!("output {tensor} is {found:?}, not {wanted:?}")));
            }
            let mut data = null_mut();
            // SAFETY: the run has just made the value, on the CPU as nothing else was asked for, and it lives until `release`.
            ortsys![unsafe GetTensorMutableData(*value, &mut data)?];
            // SAFETY: type and shape are those that so many bytes stand for, as compared above.
            let bytes = unsafe { slice(data.cast_const().cast::<u8>(), port.each * requests.len()) };
            port.scratch.resize(bytes.len(), 0);
            port.layout.gather(requests.len(), bytes, &mut port.scratch);
            buffers.write(self.side, tensor, requests.start, &port.scratch);
        }
        Ok(())
    }

    /// Puts outputs whose requests take turns where the buffers have them.
    fn gather(&mut self, buffers: &mut Buffers, requests: &Range<usize>) {
        for (tensor, port) in self.tensors.iter_mut().enumerate() {
            if !port.layout.is_plain(requests.len()) && !port.elsewhere {
                let bytes = port.each * requests.len();
                let (mut batch, mut one_by_one) = (vec![0; bytes], std::mem::take(&mut port.scratch));
                port.own.read(0, &mut batch);
                one_by_one.resize(bytes, 0);
                port.layout.gather(requests.len(), &batch, &mut one_by_one);
                buffers.write(self.side, tensor, requests.start, &one_by_one);
                port.scratch = one_by_one;
            }
        }
    }

    fn release(&mut self) {
        for value in self.values.drain(..).filter(|value| !value.is_null()) {
            // SAFETY: each value was created here or by the run, and is released once.
            ortsys![unsafe ReleaseValue(value)];
        }
    }
}

impl Port {
    fn new(spec: &TensorSpec) -> Self {
        Self {
            data_type: element_type(spec.data_type),
            shape: spec.file_shape(1).into_iter().map(|dim| dim as i64).collect(),
            batch: spec.batch.place(),
            each: spec.bytes(),
            layout: Layout::of(spec),
            own: Memory::zeros(0),
            constant: false,
            elsewhere: false,
            scratch: Vec::new(),
        }
    }

    /// Room of the port's own for the tensor of a batch, with its requests in turns if it is an input; where it begins.
    fn spread(
        &mut self,
        buffers: &Buffers,
        (side, tensor): (Side, usize),
        requests: &Range<usize>,
    ) -> *mut u8 {
        let bytes = self.each * requests.len();
        let mut batch = vec![0; bytes];
        if side == Side::Input {
            self.scratch.resize(bytes, 0);
            buffers.read(side, tensor, requests.start, &mut self.scratch);
            self.layout.spread(requests.len(), &self.scratch, &mut batch);
        }
        if !self.own.holds(bytes) {
            self.own = Memory::zeros(bytes);
        }
        self.own.write(0, &batch);
        self.own.base()
    }
}

/// The same type by ONNX Runtime's name.
pub(super) fn element_type(data_type: DataType) -> ElementType {
    match data_type {
        DataType::F32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::F16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::F64 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DataType::I8 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::U8 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::I32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::I64 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::Bool => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
    }
}

fn type_of(value: *mut OrtValue) -> ::ort::Result<(ElementType, Vec<usize>)> {
    let mut info = null_mut();
    // SAFETY: the value is one that a run has just made; the info is released below on every path.
    ortsys![unsafe GetTensorTypeAndShape(value, &mut info)?];
    let read = || {
        let (mut data_type, mut dims) = (ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, 0);
        // SAFETY: as above; the shape has room for all dimensions.
        ortsys![unsafe GetTensorElementType(info, &mut data_type)?];
        ortsys![unsafe GetDimensionsCount(info, &mut dims)?];
        let mut shape = vec![0; dims];
        ortsys![unsafe GetDimensions(info, shape.as_mut_ptr(), dims)?];
        Ok((data_type, shape.into_iter().map(|dim: i64| dim as usize).collect()))
    };
    let result = read();
    // SAFETY: made above, released once.
    ortsys![unsafe ReleaseTensorTypeAndShapeInfo(info)];
    result
}

/// The provider and the operator of each node of the graph, after it was divided among the providers.
///
/// # Errors
/// Whatever ONNX Runtime reports; a session must be made with `session.record_ep_graph_assignment_info`.
pub(super) fn assigned_nodes(session: &Session) -> ::ort::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let (mut parts, mut part_count) = (null(), 0);
    // SAFETY: the arrays, their elements and the texts belong to the session, which is borrowed meanwhile.
    ortsys![unsafe Session_GetEpGraphAssignmentInfo(session.ptr(), &mut parts, &mut part_count)?];
    for part in unsafe { slice(parts, part_count) } {
        let (mut provider, mut nodes, mut count) = (null(), null(), 0);
        ortsys![unsafe EpAssignedSubgraph_GetEpName(*part, &mut provider)?];
        ortsys![unsafe EpAssignedSubgraph_GetNodes(*part, &mut nodes, &mut count)?];
        for node in unsafe { slice(nodes, count) } {
            let mut operator = null();
            ortsys![unsafe EpAssignedNode_GetOperatorType(*node, &mut operator)?];
            all.push(unsafe { (text(provider), text(operator)) });
        }
    }
    Ok(all)
}

/// The providers that the library was built with.
pub(super) fn available_providers() -> Result<Vec<String>, Error> {
    let (mut names, mut count) = (null_mut(), 0);
    // SAFETY: the array has `count` texts and is released once, after they are copied.
    ortsys![unsafe GetAvailableProviders(&mut names, &mut count)?];
    let names_read = unsafe { slice(names.cast_const(), count as usize) };
    let list = names_read.iter().map(|name| unsafe { text(*name) }).collect();
    ortsys![unsafe ReleaseAvailableProviders(names, count)?];
    Ok(list)
}

/// # Safety
/// `pointer` leads to `count` elements that stay for `'a`, or is null.
unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    match NonNull::new(pointer.cast_mut()) {
        // SAFETY: as the caller promises.
        Some(pointer) => unsafe { std::slice::from_raw_parts(pointer.as_ptr(), count) },
        None => &[],
    }
}

/// # Safety
/// `pointer` leads to a text that ends with zero, or is null.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
