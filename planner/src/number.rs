//! Numbers as people write them in JSON: exact decimals, so that no time is rounded on its way in or out.

use std::fmt;
use std::str::FromStr;

use rt_core::Span;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::problem::raw::Unit;

/// The most digits of a number, leading and trailing zeros aside.
pub const MAX_DIGITS: usize = 30;

/// A decimal number, exact: `digits · 10^exponent`. Written as a whole number where it is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// Not a multiple of ten, unless zero.
    digits: i128,
    /// 0 if `digits` is.
    exponent: i32,
}

/// Why a text is no number, or a number no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// Not a JSON number.
    #[error("is no number")]
    Form,
    /// Longer than [`MAX_DIGITS`], or with an exponent of more than nine digits.
    #[error("has more than {MAX_DIGITS} digits, or too large an exponent")]
    Length,
    /// Below zero.
    #[error("must not be negative")]
    Negative,
    /// Between two nanoseconds.
    #[error("must be a whole number of nanoseconds")]
    Fraction,
    /// Beyond 64 bits of nanoseconds, about 584 years.
    #[error("is too large")]
    Large,
}

impl Number {
    /// `value` itself.
    #[must_use]
    pub fn whole(value: u64) -> Self {
        Self::new(i128::from(value), 0)
    }

    /// `count / 1000`.
    #[must_use]
    pub fn thousandths(count: u64) -> Self {
        Self::new(i128::from(count), -3)
    }

    /// `span` in `unit`.
    #[must_use]
    pub fn of_span(span: Span, unit: Unit) -> Self {
        Self::of_nanos(i128::from(span.as_nanos()), unit)
    }

    /// So many nanoseconds in `unit`, perhaps below zero.
    #[must_use]
    pub fn of_nanos(nanos: i128, unit: Unit) -> Self {
        Self::new(nanos, -unit.exponent())
    }

    /// The time that this many `unit`s are.
    ///
    /// # Errors
    /// If it is negative, no whole number of nanoseconds, or more than 64 bits of them.
    pub fn to_span(self, unit: Unit) -> Result<Span, NumberError> {
        if self.digits < 0 {
            return Err(NumberError::Negative);
        }
        let exponent = self.exponent.saturating_add(unit.exponent());
        if exponent < 0 {
            return Err(NumberError::Fraction);
        }
        let nanos = 10i128.checked_pow(exponent as u32).and_then(|power| self.digits.checked_mul(power));
        match nanos.map(u64::try_from) {
            Some(Ok(nanos)) => Ok(Span::from_nanos(nanos)),
            _ => Err(NumberError::Large),
        }
    }

    /// The nearest floating-point number, for people.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    fn new(mut digits: i128, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self::default();
        }
        while digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        Self { digits, exponent }
    }
}

impl FromStr for Number {
    type Err = NumberError;

    /// Reads a JSON number.
    fn from_str(text: &str) -> Result<Self, NumberError> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return Err(NumberError::Form),
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || (whole.len() > 1 && whole.starts_with('0'))
            || !plain(whole)
            || !plain(fraction)
        {
            return Err(NumberError::Form);
        }
        let all = format!("{whole}{fraction}");
        let kept = all.trim_end_matches('0');
        let digits = kept.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self::default());
        }
        if digits.len() > MAX_DIGITS {
            return Err(NumberError::Length);
        }
        let digits: i128 = digits.parse().map_err(|_| NumberError::Form)?;
        let shift = i64::try_from(kept.len()).and_then(|kept| i64::try_from(whole.len()).map(|w| w - kept));
        let exponent = shift.ok().map(|shift| exponent + shift).and_then(|e| i32::try_from(e).ok());
        let exponent = exponent.ok_or(NumberError::Length)?;
        Ok(Self { digits: if negative { -digits } else { digits }, exponent })
    }
}

fn read_exponent(text: &str) -> Result<i64, NumberError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberError::Form);
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() > 9 {
        return Err(NumberError::Length);
    }
    let size = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| NumberError::Form)? };
    Ok(if text.starts_with('-') { -size } else { size })
}

/// In plain digits where these are few, otherwise with an exponent; always a JSON number.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digits, exponent } = *self;
        let sign = if digits < 0 { "-" } else { "" };
        let text = digits.unsigned_abs().to_string();
        let point = text.len() as i64 + i64::from(exponent);
        match exponent {
            0 => write!(f, "{sign}{text}"),
            1.. if point <= 24 => write!(f, "{sign}{text}{:0<1$}", "", exponent as usize),
            ..0 if point > 0 => {
                let (whole, fraction) = text.split_at(point as usize);
                write!(f, "{sign}{whole}.{fraction}")
            }
            ..0 if point > -24 => write!(f, "{sign}0.{:0<1$}{text}", "", point.unsigned_abs() as usize),
            _ => write!(f, "{sign}{text}e{exponent}"),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_string()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        raw.get().parse().map_err(|e| {
            let shown: String = raw.get().chars().take(40).collect();
            D::Error::custom(format_args!("{shown} {e}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap_or_else(|e| panic!("{text} {e}"))
    }

    #[test]
    fn times_are_exact_or_refused() {
        let nanos = |text: &str, unit| number(text).to_span(unit).map(Span::as_nanos);
        assert_eq!(nanos("0.1", Unit::Us), Ok(100));
        assert_eq!(nanos("0.3", Unit::Us), Ok(300));
        assert_eq!(nanos("1.005", Unit::Ms), Ok(1_005_000));
        assert_eq!(nanos("3599.999999999", Unit::S), Ok(3_599_999_999_999));
        assert_eq!(nanos("2e3", Unit::Us), Ok(2_000_000));
        assert_eq!(nanos("2.50e-1", Unit::Us), Ok(250));
        assert_eq!(nanos("-0.0", Unit::S), Ok(0));
        assert_eq!(nanos("18446744073709551615", Unit::Ns), Ok(u64::MAX));
        assert_eq!(nanos("0.0001", Unit::Us), Err(NumberError::Fraction));
        assert_eq!(nanos("0.5", Unit::Ns), Err(NumberError::Fraction));
        assert_eq!(nanos("2000.00000000000000000001", Unit::Us), Err(NumberError::Fraction));
        assert_eq!(nanos("1e-999999999", Unit::S), Err(NumberError::Fraction));
        assert_eq!(nanos("18446744073709551616", Unit::Ns), Err(NumberError::Large));
        assert_eq!(nanos("1e999999999", Unit::S), Err(NumberError::Large));
        assert_eq!(nanos("-1", Unit::S), Err(NumberError::Negative));
    }

    #[test]
    fn what_json_does_not_allow_is_no_number() {
        for text in
            ["", "-", "+1", ".5", "1.", "01", "1e", "1e+", "1e1.5", "NaN", "inf", "0x1", "1 ", "١", "--1"]
        {
            assert_eq!(text.parse::<Number>(), Err(NumberError::Form), "{text:?}");
        }
        assert_eq!("1e1234567890".parse::<Number>(), Err(NumberError::Length));
        assert_eq!("1234567890123456789012345678901".parse::<Number>(), Err(NumberError::Length));
        let strings = serde_json::from_str::<Number>("\"5\"").expect_err("a string").to_string();
        assert!(strings.contains("\"5\" is no number"), "{strings}");
    }

    #[test]
    fn numbers_are_written_as_people_would() {
        for (given, written) in [
            ("2000.0", "2000"),
            ("2e3", "2000"),
            ("0.10", "0.1"),
            ("-1.25", "-1.25"),
            ("0.0025", "0.0025"),
            ("0e9", "0"),
            ("1e400", "1e400"),
            ("1.5e-40", "15e-41"),
        ] {
            assert_eq!(number(given).to_string(), written);
            assert_eq!(serde_json::to_string(&number(given)).expect("a number"), written);
        }
        assert_eq!(Number::thousandths(1500).to_string(), "1.5");
        assert_eq!(Number::of_span(Span::from_nanos(100), Unit::Us).to_string(), "0.1");
        assert_eq!(Number::thousandths(1500).as_f64().to_bits(), 1.5f64.to_bits());
    }

    proptest! {
        #[test]
        fn writing_and_reading_is_the_identity(digits in -(1i128 << 96)..1i128 << 96, exponent in -60i32..60) {
            let made = Number::new(digits, exponent);
            prop_assert_eq!(number(&made.to_string()), made);
            prop_assert_eq!(serde_json::from_str::<Number>(&made.to_string()).expect("a number"), made);
        }

        #[test]
        fn any_span_survives_in_any_unit(nanos in any::<u64>()) {
            for unit in [Unit::Ns, Unit::Us, Unit::Ms, Unit::S] {
                let span = Span::from_nanos(nanos);
                prop_assert_eq!(Number::of_span(span, unit).to_span(unit), Ok(span));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+.eE0-9]{0,12}") {
            let json = serde_json::from_str::<&RawValue>(&text).is_ok();
            prop_assert!(json || text.parse::<Number>().is_err());
        }
    }
}
