//! `format`: texts with placeholders for values, and the printed form of values.

use go_words::quote::quote;

use crate::failure::Failure;
use crate::meter::Meter;
use crate::time;
use crate::value::{Key, Map, Value};

/// A placeholder for a value in a format, such as `%d`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Clause {
    Text,
    Decimal,
    Fixed(usize),
    Scientific,
    Binary,
    Hexadecimal(bool),
    Octal,
}

/// A part of a format.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Literal(String),
    Place(Clause),
}

/// Splits a format into its parts; the number is that of the first clause that can't be read.
pub(crate) fn split_format(format: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            literal.push(letter);
            continue;
        }
        let Some(next) = letters.peek() else {
            return Err("unexpected end of string".to_owned());
        };
        if *next == '%' {
            letters.next();
            literal.push('%');
            continue;
        }
        let mut precision = None;
        if *next == '.' {
            letters.next();
            let mut digits = String::new();
            while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let parsed = digits.parse::<usize>().map_err(|_| {
                let why = match letters.peek() {
                    None => "could not find end of precision specifier".to_owned(),
                    Some(_) => format!(
                        "error while converting precision to integer: strconv.Atoi: parsing \"{digits}\": invalid syntax"
                    ),
                };
                format!("could not parse formatting clause: error while parsing precision: {why}")
            })?;
            if parsed > 100 {
                return Err("could not parse formatting clause: precision is too large".to_owned());
            }
            precision = Some(parsed);
        }
        let Some(verb) = letters.next() else {
            return Err("could not parse formatting clause: unexpected end of string".to_owned());
        };
        let clause = match verb {
            's' => Clause::Text,
            'd' => Clause::Decimal,
            'f' => Clause::Fixed(precision.unwrap_or(6)),
            'e' => Clause::Scientific,
            'b' => Clause::Binary,
            'x' => Clause::Hexadecimal(false),
            'X' => Clause::Hexadecimal(true),
            'o' => Clause::Octal,
            other => {
                return Err(format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{other}\""
                ));
            }
        };
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Place(clause));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

impl Clause {
    /// Returns the error for a value that does not fit the clause.
    pub(crate) fn refusal(self, name: &str) -> String {
        let (what, only) = match self {
            Clause::Text => (
                "string",
                "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            ),
            Clause::Decimal => ("decimal", "integers"),
            Clause::Fixed(_) => ("fixed-point", "doubles"),
            Clause::Scientific => ("scientific", "doubles"),
            Clause::Binary => {
                return format!(
                    "error during formatting: only integers and bools can be formatted as binary, was given {name}"
                );
            }
            Clause::Hexadecimal(_) => {
                return format!(
                    "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given {name}"
                );
            }
            Clause::Octal => ("octal", "integers"),
        };
        format!("error during formatting: {what} clause can only be used on {only}, was given {name}")
    }
}

/// Implements `format`: fills the placeholders of a format with the values of a list.
pub(crate) fn call<'a>(_: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let [Value::String(format), Value::List(values)] = arguments else {
        return Err(Failure::no_such_overload());
    };
    let mut text = String::new();
    let mut next = 0;
    for part in split_format(format).map_err(Failure::new)? {
        match part {
            Part::Literal(literal) => text.push_str(&literal),
            Part::Place(clause) => {
                let Some(value) = values.get(next) else {
                    return Err(Failure::new(format!("index {next} out of range")));
                };
                let before = text.len();
                format_clause(clause, &value?, &mut text, meter)?;
                meter.spend_effort(text.len() - before)?;
                next += 1;
            }
        }
    }
    Ok(Value::from(text))
}

fn format_clause(clause: Clause, value: &Value<'_>, text: &mut String, meter: &mut Meter) -> Result<(), Failure> {
    let refused = || Err(Failure::new(clause.refusal(value.type_of().name())));
    match (clause, value) {
        (Clause::Text, value) => return write(value, text, meter, false),
        (Clause::Decimal, Value::Int(number)) => text.push_str(&number.to_string()),
        (Clause::Decimal, Value::Uint(number)) => text.push_str(&number.to_string()),
        (Clause::Fixed(precision), Value::Double(number)) => text.push_str(&format_fixed(*number, precision)),
        (Clause::Scientific, Value::Double(number)) => text.push_str(&format_scientific(*number)),
        (Clause::Fixed(_) | Clause::Scientific, Value::String(name))
            if matches!(&**name, "NaN" | "Infinity" | "-Infinity") =>
        {
            text.push_str(match &**name {
                "Infinity" => "∞",
                "-Infinity" => "-∞",
                other => other,
            });
        }
        (Clause::Binary, Value::Bool(value)) => text.push(if *value { '1' } else { '0' }),
        (Clause::Binary | Clause::Octal | Clause::Hexadecimal(_), Value::Int(number)) => {
            if *number < 0 {
                text.push('-');
            }
            text.push_str(&format_radix(clause, number.unsigned_abs()));
        }
        (Clause::Binary | Clause::Octal | Clause::Hexadecimal(_), Value::Uint(number)) => {
            text.push_str(&format_radix(clause, *number));
        }
        (Clause::Hexadecimal(upper), Value::String(content)) => write_hexadecimal(content.as_bytes(), upper, text),
        (Clause::Hexadecimal(upper), Value::Bytes(content)) => write_hexadecimal(content, upper, text),
        _ => return refused(),
    }
    Ok(())
}

fn format_radix(clause: Clause, number: u64) -> String {
    match clause {
        Clause::Binary => format!("{number:b}"),
        Clause::Octal => format!("{number:o}"),
        Clause::Hexadecimal(true) => format!("{number:X}"),
        _ => format!("{number:x}"),
    }
}

fn write_hexadecimal(content: &[u8], upper: bool, text: &mut String) {
    for byte in content {
        text.push_str(&if upper {
            format!("{byte:02X}")
        } else {
            format!("{byte:02x}")
        });
    }
}

/// Formats a number with English thousands separators.
fn format_fixed(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let plain = format!("{:.precision$}", number.abs());
    let (whole, fraction) = plain
        .split_once('.')
        .map_or((plain.as_str(), None), |(whole, fraction)| (whole, Some(fraction)));
    let mut text = String::new();
    if number.is_sign_negative() {
        text.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Formats a value. As in Kubernetes, a precision has no effect.
fn format_scientific(number: f64) -> String {
    if !number.is_finite() {
        return format_fixed(number, 6);
    }
    let plain = format!("{number:.6e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let digits = exponent.trim_start_matches('-');
    let raised: String = format!("{digits:0>2}")
        .chars()
        .map(|digit| match digit {
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        })
        .collect();
    let sign = if exponent.starts_with('-') { "⁻" } else { "" };
    format!("{mantissa}×10{sign}{raised}")
}

/// Writes a value; inside lists and maps texts are quoted.
fn write(value: &Value<'_>, text: &mut String, meter: &mut Meter, inside: bool) -> Result<(), Failure> {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(&value.to_string()),
        Value::Int(value) => text.push_str(&value.to_string()),
        Value::Uint(value) => text.push_str(&value.to_string()),
        Value::Double(value) if inside && value.is_finite() => text.push_str(&format!("{value:.6}")),
        Value::Double(value) if inside => text.push_str(&format!("\"{}\"", show_double(*value))),
        Value::Double(value) => text.push_str(&show_double(*value)),
        Value::String(content) if inside => text.push_str(&quote(content)),
        Value::String(content) => text.push_str(content),
        Value::Bytes(bytes) => {
            let content = String::from_utf8_lossy(bytes);
            if inside {
                text.push('b');
                text.push_str(&quote(&content));
            } else {
                text.push_str(&content);
            }
        }
        Value::Timestamp(at) if inside => text.push_str(&format!("timestamp(\"{at}\")")),
        Value::Timestamp(at) => text.push_str(&at.to_string()),
        Value::Duration(span) if inside => text.push_str(&format!("duration(\"{}\")", time::show_duration(*span))),
        Value::Duration(span) => text.push_str(&time::show_duration(*span)),
        Value::Type(named) => text.push_str(named.name()),
        Value::List(list) => {
            text.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                meter.spend_effort(16)?;
                write(&item?, text, meter, true)?;
            }
            text.push(']');
        }
        Value::Map(map) => write_map(map, text, meter)?,
        other => {
            let name = other.type_of();
            let message = if inside {
                format!("no formatting function for {}", name.name())
            } else {
                Clause::Text.refusal(name.name())
            };
            return Err(Failure::new(message));
        }
    }
    Ok(())
}

fn write_map(map: &Map<'_>, text: &mut String, meter: &mut Meter) -> Result<(), Failure> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let mut shown = String::new();
        if Key::of(&key).is_none() {
            return Err(Failure::new(format!(
                "no formatting function for map key of type {}",
                key.type_of().name()
            )));
        }
        write(&key, &mut shown, meter, true)?;
        shown.push(':');
        if let Some(value) = map.find(&key)? {
            write(&value, &mut shown, meter, true)?;
        }
        meter.spend_effort(shown.len())?;
        entries.push(shown);
    }
    entries.sort();
    text.push('{');
    text.push_str(&entries.join(", "));
    text.push('}');
    Ok(())
}

/// Returns a floating-point number as `string()` writes it: the shortest form, with an exponent where it is very large or small.
pub(crate) fn show_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let exponential = format!("{number:e}");
    let (mantissa, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&power) {
        return format!("{number}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

/// Returns a value as messages print it.
pub(crate) fn show_value(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Double(number) => show_double(*number),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Null => "<nil>".to_owned(),
        other => other.type_of().name().to_owned(),
    }
}
