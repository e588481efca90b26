//! The string formats of custom resources' values.
//!
//! Some formats of the real server are not checked, because no known schema uses them: ISBNs, credit cards, colours, social security
//! numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use go_words::duration;

/// Formats that are understood, whether they constrain a value or not.
pub(super) const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "int32",
];

/// Returns whether text has a format; unknown formats constrain nothing.
pub(super) fn matches_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok() && text.contains(['T', 't']),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration::parse_loose(text).is_some(),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uri" => text.starts_with('/') || url::Url::parse(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "byte" => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        _ => true,
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    !local.is_empty() && !domain.is_empty() && !text.contains(char::is_whitespace) && !local.contains('@')
}

/// Checks for a name with a top-level domain of at least two letters, as the real server's expression requires.
fn is_hostname(text: &str) -> bool {
    if text.is_empty() || text.len() > 255 {
        return false;
    }
    let labels: Vec<&str> = text.split('.').collect();
    let fine = labels.iter().all(|label| {
        let edge = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        !label.is_empty()
            && label.len() <= 63
            && edge(label.chars().next())
            && edge(label.chars().last())
            && label.chars().all(|letter| letter.is_alphanumeric() || letter == '-')
    });
    let top = labels.last().map_or(0, |label| label.chars().count());
    fine && (labels.len() == 1 || top > 1)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    match (address.parse::<IpAddr>(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let shaped = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    shaped && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
}
