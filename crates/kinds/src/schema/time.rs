//! Timestamps as `metav1.Time` and `metav1.MicroTime` read and print them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Go's names of the two layouts in errors.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns a time as RFC 3339 in UTC with whole seconds.
pub(super) fn canonical_time(text: &str) -> Result<String, String> {
    Ok(parse(text, SECONDS)?
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string())
}

/// Returns a time as RFC 3339 in UTC with microseconds.
pub(super) fn canonical_micro_time(text: &str) -> Result<String, String> {
    // Go requires exactly six digits.
    let digits = text
        .get(20..26)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let zone = text.get(26..27).filter(|zone| matches!(*zone, "Z" | "+" | "-"));
    if text.get(19..20) != Some(".") || digits.is_none() || zone.is_none() {
        parse(text, MICROSECONDS)?;
        let rest = text.get(19..).unwrap_or_default();
        return Err(format!(
            "parsing time {text:?} as {MICROSECONDS:?}: cannot parse {rest:?} as \".000000\""
        ));
    }
    Ok(parse(text, MICROSECONDS)?
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string())
}

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    let bytes = text.as_bytes();
    // jiff accepts more than RFC 3339 does; Go wants the `T`, all fields and a zone.
    let shaped = bytes.len() >= 20
        && bytes.get(10) == Some(&b'T')
        && bytes.get(13) == Some(&b':')
        && bytes.get(16) == Some(&b':');
    let refused = || format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"");
    if !shaped {
        return Err(refused());
    }
    text.parse::<Timestamp>().map_err(|_| refused())
}
