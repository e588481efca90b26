//! Values with exact numbers. `serde_json` keeps integers of 64 bits and the nearest floating-point number, so a number here is its decimal text.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Number, Value};

use super::{Path, ValuesError};

/// A value of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExactValue {
    /// Null. Helm removes a default where it meets null.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(ExactNumber),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<ExactValue>),
    /// A map.
    Map(BTreeMap<String, ExactValue>),
}

/// A number in JSON's form. Two numbers are equal if their values are: `1e1` and `10`.
#[derive(Clone, Debug)]
pub struct ExactNumber(String);

impl ExactNumber {
    /// Reads a number in JSON's form.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        is_json_number(text).then(|| Self(text.to_owned()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number as Kubernetes stores it, if that is the same number: an integer of 64 bits, or the decimal text of a floating-point number.
    #[must_use]
    pub fn to_number(&self) -> Option<Number> {
        let is_integer = !self.0.contains(['.', 'e', 'E']);
        let integer = || {
            let signed = self.0.parse::<i64>().map(Number::from);
            signed.or_else(|_| self.0.parse::<u64>().map(Number::from)).ok()
        };
        if is_integer
            && self.0 != "-0"
            && let Some(number) = integer()
        {
            return Some(number);
        }
        let number = Number::from_f64(self.0.parse::<f64>().ok().filter(|number| number.is_finite())?)?;
        (split_decimal(&number.to_string()) == split_decimal(&self.0)).then_some(number)
    }
}

impl PartialEq for ExactNumber {
    fn eq(&self, other: &Self) -> bool {
        split_decimal(&self.0) == split_decimal(&other.0)
    }
}

impl Eq for ExactNumber {}

impl fmt::Display for ExactNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&Number> for ExactNumber {
    fn from(number: &Number) -> Self {
        Self(number.to_string())
    }
}

impl From<i128> for ExactNumber {
    fn from(number: i128) -> Self {
        Self(number.to_string())
    }
}

/// The digits of a decimal number without zeros at the ends, and its power of ten. Every text of one value has the same parts.
#[derive(Debug, PartialEq, Eq)]
struct Decimal<'a> {
    is_negative: bool,
    digits: std::borrow::Cow<'a, str>,
    exponent: Exponent,
}

/// The exponent of a number. One that no integer holds is kept as text.
#[derive(Debug, PartialEq, Eq)]
enum Exponent {
    Power(i128),
    Text(String),
}

fn split_decimal(text: &str) -> Decimal<'static> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.trim_start_matches('0');
    let digits = leading.trim_end_matches('0');
    if digits.is_empty() {
        return Decimal {
            is_negative,
            digits: "".into(),
            exponent: Exponent::Power(0),
        };
    }
    let shift = |length: usize| i128::try_from(length).unwrap_or(i128::MAX);
    let power = exponent.strip_prefix('+').unwrap_or(exponent).parse::<i128>();
    let power = power.ok().and_then(|power| {
        let power = power.checked_sub(shift(fraction.len()))?;
        power.checked_add(shift(leading.len() - digits.len()))
    });
    Decimal {
        is_negative,
        digits: digits.to_owned().into(),
        exponent: match power {
            Some(power) => Exponent::Power(power),
            None => Exponent::Text(format!("{} {exponent}", fraction.len())),
        },
    }
}

fn is_json_number(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

impl ExactValue {
    /// Reads a value of an object.
    ///
    /// # Errors
    /// If the value has too many levels.
    pub fn of(value: &Value) -> Result<Self, ValuesError> {
        read_value(value, &Path::Root, 0)
    }

    /// Returns the value as Kubernetes stores it.
    ///
    /// # Errors
    /// If a number can't be stored exactly.
    pub fn to_value(&self) -> Result<Value, ValuesError> {
        write_value(self, &Path::Root)
    }
}

pub(super) fn read_value(value: &Value, path: &Path<'_>, levels: usize) -> Result<ExactValue, ValuesError> {
    path.check_depth(levels)?;
    Ok(match value {
        Value::Null => ExactValue::Null,
        Value::Bool(truth) => ExactValue::Bool(*truth),
        Value::Number(number) => ExactValue::Number(number.into()),
        Value::String(text) => ExactValue::Text(text.clone()),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| read_value(item, &Path::Index(path, index), levels + 1));
            ExactValue::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => ExactValue::Map(read_entries(entries, path, levels)?),
    })
}

pub(super) fn read_entries(
    entries: &Map<String, Value>,
    path: &Path<'_>,
    levels: usize,
) -> Result<BTreeMap<String, ExactValue>, ValuesError> {
    let read = |(key, value): (&String, &Value)| {
        path.check_key(key)?;
        let value = read_value(value, &Path::Key(path, key), levels + 1)?;
        Ok((key.clone(), value))
    };
    entries.iter().map(read).collect()
}

pub(super) fn write_value(value: &ExactValue, path: &Path<'_>) -> Result<Value, ValuesError> {
    Ok(match value {
        ExactValue::Null => Value::Null,
        ExactValue::Bool(truth) => Value::Bool(*truth),
        ExactValue::Number(number) => Value::Number(number.to_number().ok_or_else(|| {
            let shown: String = number.as_str().chars().take(40).collect();
            ValuesError::new(
                path,
                format!("Kubernetes can't store the number {shown} exactly: write it as a text, in quotes"),
            )
        })?),
        ExactValue::Text(text) => Value::String(text.clone()),
        ExactValue::List(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| write_value(item, &Path::Index(path, index)));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        ExactValue::Map(entries) => {
            let write = |(key, value): (&String, &ExactValue)| {
                let value = write_value(value, &Path::Key(path, key))?;
                Ok((key.clone(), value))
            };
            Value::Object(entries.iter().map(write).collect::<Result<_, _>>()?)
        }
    })
}

impl fmt::Display for ExactValue {
    /// Writes the value as JSON, with every digit of its numbers.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Bool(truth) => write!(formatter, "{truth}"),
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => write!(formatter, "{}", Value::from(text.as_str())),
            Self::List(items) => {
                formatter.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(formatter, "{comma}{item}")?;
                }
                formatter.write_str("]")
            }
            Self::Map(entries) => {
                formatter.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(formatter, "{comma}{}:{value}", Value::from(key.as_str()))?;
                }
                formatter.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_stored_exactly_or_not_at_all() {
        let check = |text: &str, expected: Option<&str>| {
            let number = ExactNumber::read(text).unwrap_or_else(|| panic!("{text}"));
            let stored = number.to_number().map(|number| number.to_string());
            assert_eq!(stored.as_deref(), expected, "{text}");
        };
        check("9007199254740993", Some("9007199254740993"));
        check("9223372036854775807", Some("9223372036854775807"));
        check("-9223372036854775808", Some("-9223372036854775808"));
        check("18446744073709551615", Some("18446744073709551615"));
        check("18446744073709551616", None);
        check("0.1", Some("0.1"));
        check("0.10", Some("0.1"));
        check("1e2", Some("100.0"));
        check("1e400", None);
        check("1e-400", None);
        check("0.1000000000000000055", None);
        check("9007199254740993.0", None);
        check("-0", Some("-0.0"));
        check("1e99999999999999999999999999999999999999999", None);
    }

    #[test]
    fn only_numbers_of_json_are_numbers() {
        for text in ["", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1_0", "NaN", "1 "] {
            assert!(ExactNumber::read(text).is_none(), "{text}");
        }
        for (one, other) in [("10", "1e1"), ("0.50", "5e-1"), ("1e400", "10e399"), ("0", "0.0e7")] {
            assert_eq!(ExactNumber::read(one), ExactNumber::read(other));
        }
        assert_ne!(ExactNumber::read("1e400"), ExactNumber::read("1e401"));
        assert_ne!(
            ExactNumber::read("9007199254740993"),
            ExactNumber::read("9007199254740992")
        );
    }
}
