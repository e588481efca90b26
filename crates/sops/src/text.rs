//! Scalars as texts: numbers as Go's `strconv` prints them, and JSON strings as `encoding/json` writes them.

use std::fmt::Write as _;

/// Prints a float as `strconv.FormatFloat(value, 'f', -1, 64)`: without exponent. SOPS hashes and encrypts this form.
pub(crate) fn plain_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        format!("{value}")
    }
}

/// Prints a float as `strconv.FormatFloat(value, 'g', -1, 64)`, the form of yaml.v3.
pub(crate) fn general_float(value: f64) -> String {
    if !value.is_finite() {
        return plain_float(value);
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // With the shortest digits, Go decides by a precision of 6.
    if (-4..6).contains(&exponent) {
        return plain_float(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// Prints a float as `stores.ValToString` of SOPS: in general notation, and never like an integer.
pub(crate) fn float_of_value(value: f64) -> String {
    let general = general_float(value).replace('e', "E");
    if general.contains(['.', 'E', 'I', 'N']) {
        general
    } else {
        format!("{general}.0")
    }
}

/// Writes an escape that JSON and YAML share; returns whether the character has one.
fn write_usual_escape(into: &mut String, character: char) -> bool {
    let escape = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        _ => return false,
    };
    into.push_str(escape);
    true
}

/// Writes a string as `encoding/json` does.
pub(crate) fn write_json_string(into: &mut String, text: &str) {
    into.push('"');
    for character in text.chars() {
        match character {
            _ if write_usual_escape(into, character) => {}
            '\u{8}' => into.push_str("\\b"),
            '\u{c}' => into.push_str("\\f"),
            '\u{0}'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _written = write!(into, "\\u{:04x}", character as u32);
            }
            other => into.push(other),
        }
    }
    into.push('"');
}

/// Writes a string in double quotes on one line, which every YAML reader accepts.
pub(crate) fn write_yaml_string(into: &mut String, text: &str) {
    into.push('"');
    for character in text.chars() {
        match character {
            _ if write_usual_escape(into, character) => {}
            '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{a0}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _written = write!(into, "\\u{:04x}", character as u32);
            }
            other => into.push(other),
        }
    }
    into.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_go_does() {
        for (value, plain, general, of_value) in [
            (1.0, "1", "1", "1.0"),
            (1234.56789, "1234.56789", "1234.56789", "1234.56789"),
            (1_234_567.0, "1234567", "1.234567e+06", "1.234567E+06"),
            (1e21, "1000000000000000000000", "1e+21", "1E+21"),
            (1e-7, "0.0000001", "1e-07", "1E-07"),
            (-0.0, "-0", "-0", "-0.0"),
            (0.0001, "0.0001", "0.0001", "0.0001"),
        ] {
            assert_eq!(plain_float(value), plain);
            assert_eq!(general_float(value), general);
            assert_eq!(float_of_value(value), of_value);
        }
    }
}
