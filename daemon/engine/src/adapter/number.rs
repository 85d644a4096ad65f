//! Numbers of every type of tensor: read, written, and from which type to which without a loss.

use crate::engine::DataType;
use crate::manifest::half;

/// One element as a number; of `i64` the nearest that there is.
pub(crate) fn load(data_type: DataType, element: &[u8]) -> f64 {
    let mut bytes = [0; 8];
    let length = element.len().min(data_type.size());
    bytes[..length].copy_from_slice(&element[..length]);
    let [a, b, c, d, ..] = bytes;
    match data_type {
        DataType::F32 => f32::from_le_bytes([a, b, c, d]).into(),
        DataType::F16 => from_half(u16::from_le_bytes([a, b])),
        DataType::F64 => f64::from_le_bytes(bytes),
        DataType::I8 => (a as i8).into(),
        DataType::U8 => a.into(),
        DataType::I32 => i32::from_le_bytes([a, b, c, d]).into(),
        DataType::I64 => i64::from_le_bytes(bytes) as f64,
        DataType::Bool => u8::from(a != 0).into(),
    }
}

/// Writes a number that the type can hold; of any other the nearest, and of a half NaN.
pub(crate) fn store(data_type: DataType, value: f64, element: &mut [u8]) {
    match data_type {
        DataType::F32 => element.copy_from_slice(&(value as f32).to_le_bytes()),
        DataType::F16 => element.copy_from_slice(&half(value).unwrap_or(0x7e00).to_le_bytes()),
        DataType::F64 => element.copy_from_slice(&value.to_le_bytes()),
        DataType::I8 => element.copy_from_slice(&(value as i8).to_le_bytes()),
        DataType::U8 => element.copy_from_slice(&(value as u8).to_le_bytes()),
        DataType::I32 => element.copy_from_slice(&(value as i32).to_le_bytes()),
        DataType::I64 => element.copy_from_slice(&(value as i64).to_le_bytes()),
        DataType::Bool => element[0] = u8::from(value != 0.0),
    }
}

/// Whether every number of the one type is one of the other.
pub(super) fn holds(into: DataType, from: DataType) -> bool {
    use DataType::{Bool, F16, F32, F64, I8, I32, I64, U8};
    into == from
        || match from {
            Bool => true,
            U8 => matches!(into, F16 | F32 | F64 | I32 | I64),
            I8 => matches!(into, F16 | F32 | F64 | I32 | I64),
            I32 => matches!(into, F64 | I64),
            F16 => matches!(into, F32 | F64),
            F32 => into == F64,
            I64 | F64 => false,
        }
}

/// The largest whole number up to which the type has all; none of what has no numbers.
pub(super) fn counts_to(data_type: DataType) -> u64 {
    match data_type {
        DataType::F16 => 1 << 11,
        DataType::F32 => 1 << 24,
        DataType::F64 => 1 << 53,
        DataType::I8 => i8::MAX as u64,
        DataType::U8 => u8::MAX.into(),
        DataType::I32 => i32::MAX as u64,
        DataType::I64 => i64::MAX as u64,
        DataType::Bool => 0,
    }
}

fn from_half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_come_back_as_they_were() {
        for bits in 0..=u16::MAX {
            let value = load(DataType::F16, &bits.to_le_bytes());
            match half(value) {
                Some(back) => assert_eq!(back, bits),
                None => assert!(!value.is_finite() && bits >> 10 & 0x1f == 0x1f, "{bits:x}"),
            }
        }
    }

    /// For each pair of types that is allowed, the extremes and all small numbers survive.
    #[test]
    fn what_one_type_holds_of_another_is_not_changed() {
        for from in DataType::ALL {
            for into in DataType::ALL.into_iter().filter(|into| holds(*into, from) && from != *into) {
                let (mut first, mut second) = ([0; 8], [0; 8]);
                let least = if matches!(from, DataType::U8 | DataType::Bool) { 0 } else { -128i64 };
                let most = if from == DataType::Bool { 1 } else { counts_to(from).min(1 << 40) as i64 };
                for value in (least..=most.min(300)).chain([most]) {
                    let (first, second) = (&mut first[..from.size()], &mut second[..into.size()]);
                    store(from, value as f64, first);
                    assert_eq!(load(from, first), value as f64, "{from}");
                    store(into, load(from, first), second);
                    assert_eq!(load(into, second), value as f64, "{from} in {into}");
                }
            }
        }
    }
}
