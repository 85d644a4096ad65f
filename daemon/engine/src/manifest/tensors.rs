//! The tensors of a model, as its manifest lists them.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::DeValue;

use super::fields::{Fields, Problems, real, whole};
use crate::engine::{BatchAxis, Constant, DataType, TensorSpec};

/// The most inputs or outputs of a model.
const MAX_TENSORS: usize = 16;
/// The most elements a tensor of one request may hold.
const MAX_ELEMENTS: usize = 1 << 24;
/// The longest name and the most dimensions that a client can be told.
const MAX_NAME: usize = 255;
const MAX_DIMENSIONS: usize = 8;

/// The dynamic dimensions of a model by the names that shapes use, and what the manifest makes of them.
pub(super) struct Dimensions<'a> {
    known: BTreeMap<&'a str, Dimension>,
    used: BTreeSet<&'a str>,
}

#[derive(Clone, Copy)]
enum Dimension {
    Batch,
    Size(usize),
    /// One that was told to be wrong already.
    Wrong,
}

impl<'a> Dimensions<'a> {
    /// None is no table.
    pub(super) fn read(
        model: &str,
        value: Option<&'a Spanned<DeValue<'_>>>,
        problems: &mut Problems<'_>,
    ) -> Self {
        let field = format!("{model}: dimensions");
        let fields = value.and_then(|value| Fields::of(&field, value, problems));
        let mut known = BTreeMap::new();
        for (name, value) in fields.iter().flat_map(Fields::all) {
            let size = whole(value.get_ref()).and_then(|size| usize::try_from(size).ok());
            let dimension = match (value.get_ref().as_str(), size) {
                (Some("batch"), _) => Dimension::Batch,
                (_, Some(size)) if (1..=MAX_ELEMENTS).contains(&size) => Dimension::Size(size),
                _ => {
                    let rule = "1 to 2^24, or \"batch\", is needed";
                    problems.add(value.span().start, format!("{field}.{name}: {rule}"));
                    Dimension::Wrong
                }
            };
            known.insert(name, dimension);
        }
        Self { known, used: BTreeSet::new() }
    }

    /// Notes the names that no shape has.
    pub(super) fn finish(self, model: &str, at: usize, problems: &mut Problems<'_>) {
        for name in self.known.keys().filter(|name| !self.used.contains(*name)) {
            problems.add(at, format!("{model}: dimensions.{name}: no shape has this name"));
        }
    }
}

/// The tensors of a side.
#[derive(Default)]
pub(super) struct Tensors<'a> {
    /// What requests bring, or answers have.
    pub(super) tensors: Vec<TensorSpec>,
    /// What has a value.
    pub(super) constants: Vec<Constant>,
    /// What has an initial value, by name, and where that stands.
    pub(super) initial: BTreeMap<String, (Vec<u8>, usize)>,
    /// What is the state of a stream: by its name that of the tensor that is it for the next request, and where that stands.
    pub(super) state: Vec<(String, (&'a str, usize))>,
}

/// What a table says of a tensor beside what it is.
#[derive(Default)]
struct Marks<'a> {
    value: Option<Vec<u8>>,
    initial: Option<(Vec<u8>, usize)>,
    state: Option<(&'a str, usize)>,
}

/// The tensors of one side: a model of one tensor gives its table, one of several an array of tables.
pub(super) fn read<'a>(
    field: &str,
    value: &'a Spanned<DeValue<'_>>,
    dimensions: &mut Dimensions<'a>,
    problems: &mut Problems<'_>,
) -> Tensors<'a> {
    let one = std::slice::from_ref(value);
    let all: Vec<&'a Spanned<DeValue<'_>>> = match value.get_ref() {
        DeValue::Array(several) => several.iter().collect(),
        _ => one.iter().collect(),
    };
    let at = value.span().start;
    let (mut side, mut names) = (Tensors::default(), BTreeSet::new());
    for value in &all {
        let Some(fields) = Fields::of(field, value, problems) else { continue };
        let Some((tensor, marks)) = tensor(fields, dimensions, problems) else { continue };
        if !names.insert(tensor.name.clone()) {
            let rule = "each tensor needs a name of its own";
            problems.refuse(value.span().start, &format!("{field}.name"), &tensor.name, rule);
        }
        if let Some(initial) = marks.initial {
            side.initial.insert(tensor.name.clone(), initial);
        }
        if let Some(state) = marks.state {
            side.state.push((tensor.name.clone(), state));
        }
        match marks.value {
            Some(bytes) => side.constants.push(Constant { tensor, bytes }),
            None => side.tensors.push(tensor),
        }
    }
    if !(1..=MAX_TENSORS).contains(&all.len()) {
        problems.refuse(at, field, format!("{} tensors", all.len()), "the limits are 1..=16");
    } else if side.tensors.is_empty() && side.constants.len() == all.len() {
        problems.add(at, format!("{field}: all tensors have a value, and nothing is left for requests"));
    }
    side
}

/// One tensor, and what else its table says.
fn tensor<'a>(
    mut fields: Fields<'a, '_>,
    dimensions: &mut Dimensions<'a>,
    problems: &mut Problems<'_>,
) -> Option<(TensorSpec, Marks<'a>)> {
    let field = fields.name.clone();
    let name = fields.text("name", problems);
    let data_type = fields.text("type", problems);
    let shape = fields.required("shape", problems);
    let batch = fields.optional("batch");
    let value = fields.optional("value");
    let initial = fields.optional("initial");
    let state = fields.optional("state").and_then(|_| fields.text("state", problems));
    if let Some((name, at)) = name.filter(|(name, _)| name.len() > MAX_NAME) {
        problems.refuse(at, &format!("{field}.name"), format!("{} bytes", name.len()), "at most 255 bytes");
    }
    let data_type = data_type.and_then(|(text, at)| {
        let found = DataType::ALL.into_iter().find(|data_type| data_type.to_string() == text);
        if found.is_none() {
            let all = DataType::ALL.map(|data_type| data_type.to_string()).join(", ");
            problems.refuse(at, &format!("{field}.type"), text, &format!("only {all} are supported"));
        }
        found
    });
    let without = match batch.map(|batch| (batch, batch.get_ref().as_bool())) {
        None => value.is_some(),
        Some((_, Some(false))) => true,
        Some((batch, _)) => {
            let rule = "only `false` can be said, of a tensor that is the same for a whole batch: name the batch in shape";
            problems.add(batch.span().start, format!("{field}.batch: {rule}"));
            false
        }
    };
    fields.finish(problems);
    let (shape, batch) = self::shape(&field, shape?, without, dimensions, problems)?;
    let tensor = TensorSpec { name: name?.0.to_owned(), data_type: data_type?, shape, batch };
    let mut marks = Marks { state, ..Marks::default() };
    if let Some(value) = value {
        marks.value = Some(elements(&format!("{field}.value"), &tensor, value, problems)?);
    }
    if let Some(initial) = initial {
        let bytes = elements(&format!("{field}.initial"), &tensor, initial, problems)?;
        marks.initial = Some((bytes, initial.span().start));
    }
    Some((tensor, marks))
}

/// Sizes without the batch, and where that stands.
fn shape<'a>(
    field: &str,
    value: &'a Spanned<DeValue<'_>>,
    without: bool,
    dimensions: &mut Dimensions<'a>,
    problems: &mut Problems<'_>,
) -> Option<(Vec<usize>, BatchAxis)> {
    let (at, field) = (value.span().start, format!("{field}.shape"));
    let Some(array) = value.get_ref().as_array() else {
        problems.add(at, format!("{field}: a list of numbers and names is needed"));
        return None;
    };
    let (mut sizes, mut axis, mut has_names, mut fine) = (Vec::new(), None, false, true);
    for (place, size) in array.iter().enumerate() {
        if let Some(name) = size.get_ref().as_str() {
            has_names = true;
            dimensions.used.insert(name);
            match dimensions.known.get(name) {
                Some(Dimension::Size(size)) => sizes.push(*size),
                Some(Dimension::Batch) if axis.is_none() && !without => axis = Some(place),
                Some(Dimension::Batch) => {
                    let rule = "is the batch, which a tensor has once, or not at all with batch = false";
                    problems.add(size.span().start, format!("{field}: dynamic dimension `{name}` {rule}"));
                    fine = false;
                }
                Some(Dimension::Wrong) => fine = false,
                None => {
                    let key = toml_key(name);
                    let rule =
                        format!("has no size: write dimensions = {{ {key} = … }}, a number or \"batch\"");
                    problems.add(size.span().start, format!("{field}: dynamic dimension `{name}` {rule}"));
                    fine = false;
                }
            }
        } else if let Some(size) = whole(size.get_ref()).and_then(|size| usize::try_from(size).ok()) {
            sizes.push(size);
        } else {
            let rule = "a size or the name of a dynamic dimension is needed";
            problems.add(size.span().start, format!("{field}: {rule}"));
            fine = false;
        }
    }
    let elements = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    if fine && !elements.is_some_and(|elements| (1..=MAX_ELEMENTS).contains(&elements)) {
        let rule = "dimensions of at least 1 are needed, 2^24 elements at most";
        problems.refuse(at, &field, format!("{sizes:?}"), rule);
        fine = false;
    }
    if sizes.len() > MAX_DIMENSIONS {
        let count = format!("{} dimensions", sizes.len());
        problems.refuse(at, &field, count, "at most 8 dimensions");
        fine = false;
    }
    let batch = match (without, axis, has_names) {
        (true, _, _) => BatchAxis::Nowhere,
        (false, Some(place), _) => BatchAxis::At(place),
        (false, None, true) => BatchAxis::At(0),
        (false, None, false) => BatchAxis::Front,
    };
    fine.then_some((sizes, batch))
}

/// The bytes of a value: one number or truth value for all its elements, or a list with each.
fn elements(
    field: &str,
    tensor: &TensorSpec,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<Vec<u8>> {
    let (at, count) = (value.span().start, tensor.elements());
    let given: Vec<_> = match value.get_ref() {
        DeValue::Array(list) => list.iter().collect(),
        _ => vec![value; count],
    };
    if given.len() != count {
        problems.refuse(at, field, format!("{} values", given.len()), &format!("{count} are needed"));
        return None;
    }
    let mut bytes = Vec::with_capacity(tensor.bytes());
    for value in given {
        let Some(element) = element(tensor.data_type, value.get_ref()) else {
            problems.refuse_as_written(value.span(), field, &limit(tensor.data_type));
            return None;
        };
        bytes.extend(element);
    }
    Some(bytes)
}

/// What an element of a value may be.
fn limit(data_type: DataType) -> String {
    let whole =
        |least: i64, most: i64| format!("a whole number in {least}..={most} is needed, for {data_type}");
    match data_type {
        DataType::F32 => format!("a number in -{0:e}..={0:e} is needed, for f32", f32::MAX),
        DataType::F64 => "a number is needed, for f64".to_owned(),
        DataType::F16 => "a number that f16 holds as it is is needed, in -65504..=65504".to_owned(),
        DataType::I8 => whole(i8::MIN.into(), i8::MAX.into()),
        DataType::U8 => whole(u8::MIN.into(), u8::MAX.into()),
        DataType::I32 => whole(i32::MIN.into(), i32::MAX.into()),
        DataType::I64 => whole(i64::MIN, i64::MAX),
        DataType::Bool => "true or false is needed, for bool".to_owned(),
    }
}

fn element(data_type: DataType, value: &DeValue<'_>) -> Option<Vec<u8>> {
    Some(match data_type {
        DataType::F32 => {
            let given = real(value)?;
            let held = given as f32;
            // What the file calls infinite is that.
            (held.is_finite() || !given.is_finite()).then_some(held)?.to_le_bytes().to_vec()
        }
        DataType::F64 => real(value)?.to_le_bytes().to_vec(),
        DataType::F16 => half(real(value)?)?.to_le_bytes().to_vec(),
        DataType::I8 => i8::try_from(whole(value)?).ok()?.to_le_bytes().to_vec(),
        DataType::U8 => u8::try_from(whole(value)?).ok()?.to_le_bytes().to_vec(),
        DataType::I32 => i32::try_from(whole(value)?).ok()?.to_le_bytes().to_vec(),
        DataType::I64 => i64::try_from(whole(value)?).ok()?.to_le_bytes().to_vec(),
        DataType::Bool => vec![u8::from(value.as_bool()?)],
    })
}

/// A name as a key of TOML: in quotes where it has to have them.
fn toml_key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { format!("{name:?}") }
}

/// The bits of a number that binary16 holds as it is.
pub(crate) fn half(value: f64) -> Option<u16> {
    let sign = u16::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return Some(sign);
    }
    // Between the smallest normal number and the largest; as many bits as it has.
    let exponent = magnitude.log2().floor().clamp(-14.0, 15.0);
    let units = magnitude * 2f64.powf(10.0 - exponent);
    if units.fract() != 0.0 || units >= 2048.0 {
        return None;
    }
    let units = units as u16;
    match units < 1024 {
        true => Some(sign | units),
        false => Some(sign | ((exponent as i32 + 15) as u16) << 10 | (units - 1024)),
    }
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn halves_are_those_that_binary16_holds() {
        for (value, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (0.5, 0x3800),
            (65504.0, 0x7bff),
            (6.103515625e-5, 0x0400),
            (5.960464477539063e-8, 0x0001),
        ] {
            assert_eq!(half(value), Some(bits), "{value}");
        }
        for value in [0.1, 65520.0, 1e-9, f64::NAN, f64::INFINITY] {
            assert_eq!(half(value), None, "{value}");
        }
    }
}
