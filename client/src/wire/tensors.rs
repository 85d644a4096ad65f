//! On a request's way: how the daemon tells what a stream's tensors are and what is promised for them.

use std::time::Duration;

use super::codec::{Reader, Writer};
use super::{DataType, Kind, MAX_CLASSES, MAX_DIMENSIONS, MAX_NAME, MAX_TENSORS, WireError};
use crate::types::{ClassInfo, StreamInfo, TensorInfo};

/// Lists above their limit are cut.
pub(super) fn write_stream<'o>(writer: Writer<'o>, info: &StreamInfo) -> Writer<'o> {
    let deadline_ns = u64::try_from(info.deadline.as_nanos()).unwrap_or(u64::MAX);
    let lengths = writer.u32(info.id).u32(info.input_bytes).u64(deadline_ns).u32(info.output_bytes);
    let density = lengths.u32(info.density_numerator).u32(info.density_denominator);
    let variant = density.f32(info.accuracy).string(&info.variant, MAX_NAME);
    write_classes(write_tensors(write_tensors(variant, &info.inputs), &info.outputs), info)
}

/// Where there are any.
fn write_classes<'o>(writer: Writer<'o>, info: &StreamInfo) -> Writer<'o> {
    let classes = &info.classes[..info.classes.len().min(MAX_CLASSES)];
    if classes.is_empty() {
        return writer;
    }
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let head = writer.u8(info.class).u8(classes.len() as u8);
    classes.iter().fold(head, |writer, class| {
        writer.u64(ns(class.deadline)).u64(ns(class.reach)).string(&class.name, MAX_NAME)
    })
}

fn read_classes(fields: &mut Reader<'_>) -> Result<(u8, Vec<ClassInfo>), WireError> {
    if !fields.goes_on() {
        return Ok((0, Vec::new()));
    }
    let (own, count) = (fields.u8("class")?, fields.count("classes", MAX_CLASSES)?);
    if usize::from(own) >= count {
        return Err(WireError::Class { kind: Kind::Registered, class: own, classes: count });
    }
    let classes: Result<_, _> = (0..count)
        .map(|_| {
            let deadline = Duration::from_nanos(fields.u64("class deadline_ns")?);
            let reach = Duration::from_nanos(fields.u64("class reach_ns")?);
            Ok(ClassInfo { name: fields.string("class name", MAX_NAME)?.into(), deadline, reach })
        })
        .collect();
    Ok((own, classes?))
}

pub(super) fn read_stream(fields: &mut Reader<'_>) -> Result<StreamInfo, WireError> {
    let mut info = StreamInfo {
        id: fields.u32("stream")?,
        input_bytes: fields.u32("input_bytes")?,
        deadline: Duration::from_nanos(fields.u64("deadline_ns")?),
        output_bytes: fields.u32("output_bytes")?,
        density_numerator: fields.u32("density numerator")?,
        density_denominator: fields.u32("density denominator")?,
        accuracy: fields.f32("accuracy")?,
        variant: fields.string("variant", MAX_NAME)?.into(),
        inputs: read_tensors(fields, "inputs")?,
        outputs: read_tensors(fields, "outputs")?,
        class: 0,
        classes: Vec::new(),
        wanted: None,
        asked: None,
    };
    (info.class, info.classes) = read_classes(fields)?;
    Ok(info)
}

fn write_tensors<'o>(writer: Writer<'o>, tensors: &[TensorInfo]) -> Writer<'o> {
    let tensors = &tensors[..tensors.len().min(MAX_TENSORS)];
    tensors.iter().fold(writer.u8(tensors.len() as u8), |writer, tensor| {
        let shape = &tensor.shape[..tensor.shape.len().min(MAX_DIMENSIONS)];
        let head = writer.u16(tensor.data_type.code()).u8(shape.len() as u8);
        shape.iter().fold(head, |writer, dimension| writer.u32(*dimension)).string(&tensor.name, MAX_NAME)
    })
}

fn read_tensors(fields: &mut Reader<'_>, side: &'static str) -> Result<Vec<TensorInfo>, WireError> {
    let count = fields.count(side, MAX_TENSORS)?;
    (0..count)
        .map(|_| {
            let data_type = DataType::from_code(fields.u16("tensor type")?);
            let dimensions = fields.count("dimensions", MAX_DIMENSIONS)?;
            let shape: Result<_, _> = (0..dimensions).map(|_| fields.u32("dimension")).collect();
            Ok(TensorInfo { data_type, shape: shape?, name: fields.string("tensor name", MAX_NAME)?.into() })
        })
        .collect()
}
