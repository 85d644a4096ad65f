//! How what a stream asks for and declares lies in a frame.

use super::codec::{Reader, Writer};
use super::{MAX_ARRIVALS, MAX_CONSTRAINTS, MAX_NAME, WireError};
use crate::types::{ArrivalBound, Constraint, Registration};

pub(super) fn write_constraint(writer: Writer<'_>, constraint: Constraint) -> Writer<'_> {
    let (form, a, k) = constraint.fields();
    writer.u8(form).u32(a).u32(k)
}

pub(super) fn read_constraint(fields: &mut Reader<'_>) -> Result<Constraint, WireError> {
    let (form, a, k) =
        (fields.u8("constraint form")?, fields.u32("constraint a")?, fields.u32("constraint k")?);
    let constraint = Constraint::from_fields(form, a, k);
    if matches!(constraint, Constraint::RowMiss { .. }) {
        fields.must_be_zero("constraint k", k)?;
    }
    Ok(constraint)
}

pub(super) fn write_registration<'o>(writer: Writer<'o>, registration: &Registration) -> Writer<'o> {
    let (constraints, arrivals) = (registration.constraints(), registration.arrivals());
    let names = writer.string(registration.service(), MAX_NAME).string(registration.stream(), MAX_NAME);
    let constrained = constraints.iter().copied().fold(names.u8(constraints.len() as u8), write_constraint);
    let declared = arrivals.iter().fold(constrained.u8(arrivals.len() as u8), |writer, bound| {
        let (form, a, b) = bound.fields();
        writer.u8(form).u64(a).u64(b)
    });
    match registration.class() {
        Some(class) => declared.string(class, MAX_NAME),
        None => declared,
    }
}

pub(super) fn read_registration(fields: &mut Reader<'_>) -> Result<Registration, WireError> {
    let service = fields.string("service", MAX_NAME)?;
    let mut builder = Registration::builder(service, fields.string("stream", MAX_NAME)?);
    for _ in 0..fields.count("constraints", MAX_CONSTRAINTS)? {
        builder = builder.constraint(read_constraint(fields)?);
    }
    for _ in 0..fields.count("arrivals", MAX_ARRIVALS)? {
        let form = fields.u8("arrivals form")?;
        let bound = ArrivalBound::from_fields(form, fields.u64("arrivals a")?, fields.u64("arrivals b")?);
        builder = builder.arrivals(bound);
    }
    if fields.goes_on() {
        builder = builder.class(fields.string("class", MAX_NAME)?);
    }
    Ok(builder.fits())
}
