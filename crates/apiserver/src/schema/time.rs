//! Timestamps as `metav1.Time` and `metav1.MicroTime` read and print them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// RFC 3339 in UTC with whole seconds.
pub(super) fn canonical_time(text: &str) -> Result<String, String> {
    Ok(parse(text)?
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string())
}

/// RFC 3339 in UTC with microseconds.
pub(super) fn canonical_micro_time(text: &str) -> Result<String, String> {
    Ok(parse(text)?
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string())
}

fn parse(text: &str) -> Result<Timestamp, String> {
    let bytes = text.as_bytes();
    // jiff accepts more than RFC 3339 does; Go wants the `T`, all fields and a zone.
    let shaped = bytes.len() >= 20
        && bytes.get(10) == Some(&b'T')
        && bytes.get(13) == Some(&b':')
        && bytes.get(16) == Some(&b':');
    let refused =
        || format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"");
    if !shaped {
        return Err(refused());
    }
    text.parse::<Timestamp>().map_err(|_| refused())
}
