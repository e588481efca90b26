//! Amounts on the command line, such as `64MiB` and `5m`.

use std::time::Duration;

use tenure_api::duration::DurationText;

/// Reads a number of bytes: digits alone, or with `KiB`, `MiB`, `GiB` or `TiB` after them; `Mi` is the same as `MiB`.
///
/// # Errors
/// When the text is no number, has another unit, or is too large.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no number of bytes; write it like 65536, 512KiB, 64MiB or 2GiB");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or_else(wrong)?;
    let shift = match unit {
        "" => 0,
        "KiB" | "Ki" => 10,
        "MiB" | "Mi" => 20,
        "GiB" | "Gi" => 30,
        "TiB" | "Ti" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Reads a length of time: seconds alone, or Go's form of a duration.
///
/// # Errors
/// When the text is neither.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => DurationText::new(text).parse().map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_or_a_duration() {
        for (text, seconds) in [("0", 0), ("90", 90), ("5m0s", 300), ("1h", 3600)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-1", "1.5", "5 minutes", "5d"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_have_units() {
        for (text, wanted) in [
            ("0", 0),
            ("65536", 65_536),
            ("512KiB", 512 << 10),
            ("64MiB", 64 << 20),
            ("2Gi", 2 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "MiB", "-1", "64MB", "1.5GiB", "64 MiB", "99999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
