//! Reads and prints durations as Go does: `1h30m`, in nanoseconds, at most about 292 years. Errors have the same conditions and words as
//! `time.ParseDuration`.

use std::fmt::Write as _;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the most negative duration; no other is as large.
const LARGEST: u64 = 1 << 63;

/// The reason why a text is no duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not follow the grammar.
    #[error("time: invalid duration {}", quote_bytes(.0))]
    Invalid(String),
    /// The duration does not fit in 64 bits of nanoseconds. Go has no separate message for this case.
    #[error("time: invalid duration {}", quote_bytes(.0))]
    TooLong(String),
    /// A number is not followed by a unit.
    #[error("time: missing unit in duration {}", quote_bytes(.0))]
    MissingUnit(String),
    /// A number is followed by an unknown unit.
    #[error("time: unknown unit {} in duration {}", quote_bytes(.unit), quote_bytes(.text))]
    UnknownUnit {
        /// The text in place of the unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Reads a duration in nanoseconds, as `time.ParseDuration` does: `1h30m`, `-1.5s`, `0`.
///
/// # Errors
/// If Go refuses the text. The error prints Go's message.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| too_long())?
        };
        let end = after
            .find(|letter: char| letter == '.' || letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let nanoseconds = match unit {
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            "ns" => 1,
            // The micro sign, and the Greek letter that looks like it.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            unit => {
                return Err(DurationError::UnknownUnit {
                    unit: unit.to_owned(),
                    text: text.to_owned(),
                });
            }
        };
        let part = whole
            .checked_mul(nanoseconds)
            .and_then(|part| part.checked_add(fraction_of_unit(fraction, nanoseconds)))
            .ok_or_else(too_long)?;
        total = total
            .checked_add(part)
            .filter(|total| *total <= LARGEST)
            .ok_or_else(too_long)?;
        rest = after;
    }
    if negative {
        Ok(0i64.wrapping_sub_unsigned(total))
    } else {
        i64::try_from(total).map_err(|_| too_long())
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns a decimal fraction of a unit, calculated with a float as in Go. Digits that do not fit in 63 bits are ignored.
fn fraction_of_unit(fraction: &str, unit: u64) -> u64 {
    let mut number: u64 = 0;
    let mut scale = 1.0;
    for digit in fraction.bytes() {
        if number > (LARGEST - 1) / 10 {
            break;
        }
        let longer = number * 10 + u64::from(digit - b'0');
        if longer > LARGEST {
            break;
        }
        number = longer;
        scale *= 10.0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// Reads a duration in OpenAPI's format `duration`, as Kubernetes allows it. Valid are Go's durations, and whole numbers with units
/// anywhere in the text, also days and weeks: `3 days`, `2w`.
#[must_use]
pub fn parse_loose(text: &str) -> Option<i64> {
    if let Ok(found) = parse(text) {
        return Some(found);
    }
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (number, after) = split_digits(rest.get(start..)?);
        let unit = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let end = unit
            .find(|letter: char| !(letter.is_ascii_alphabetic() || letter == '\u{b5}'))
            .unwrap_or(unit.len());
        if end == 0 {
            rest = after;
            continue;
        }
        let (unit, after) = unit.split_at(end);
        rest = after;
        let number: i64 = number.parse().ok()?;
        if let Some(nanoseconds) = loose_unit(&unit.to_lowercase()) {
            // Go's integers wrap around.
            total = Some(total.unwrap_or(0).wrapping_add(number.wrapping_mul(nanoseconds)));
        }
    }
    total
}

/// Returns the unit that a word means. The last spelling of each is also the beginning of longer ones.
fn loose_unit(word: &str) -> Option<i64> {
    const UNITS: [(&[&str], &str, u64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "\u{b5}s", "\u{3bc}s"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", MINUTE),
        (&["h", "hr"], "hour", HOUR),
        (&["d"], "day", 24 * HOUR),
        (&["w", "wk"], "week", 7 * 24 * HOUR),
    ];
    UNITS
        .iter()
        .find(|(short, long, _)| short.contains(&word) || word.starts_with(long))
        .and_then(|(.., nanoseconds)| i64::try_from(*nanoseconds).ok())
}

/// Prints a duration of so many nanoseconds, as `time.Duration` does: `1h30m0s`, `1.5ms`, `0s`.
#[must_use]
pub fn print(nanoseconds: i64) -> String {
    let all = nanoseconds.unsigned_abs();
    let mut out = String::from(if nanoseconds < 0 { "-" } else { "" });
    let (unit, name) = match all {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "\u{b5}s"),
        1_000_000..SECOND => (1_000_000, "ms"),
        _ => (SECOND, "s"),
    };
    if all >= HOUR {
        // Writing to a String can't fail.
        let _ = write!(out, "{}h", all / HOUR);
    }
    if all >= MINUTE {
        let _ = write!(out, "{}m", all / MINUTE % 60);
    }
    let below_a_minute = all % MINUTE;
    let _ = write!(out, "{}", below_a_minute / unit);
    let fraction = below_a_minute % unit;
    if fraction > 0 {
        let digits = unit.ilog10() as usize;
        let _ = write!(out, ".{}", format!("{fraction:0digits$}").trim_end_matches('0'));
    }
    out.push_str(name);
    out
}

/// Quotes a text as package `time` does. Unlike [`crate::quote::quote`], the function escapes each byte that is not ASCII.
fn quote_bytes(text: &str) -> String {
    let mut out = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7f => out.push(char::from(byte)),
            _ => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}
