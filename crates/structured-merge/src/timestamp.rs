//! The time of a managedFields entry: whole seconds of UTC, as Kubernetes' `metav1.Time` writes it. Callers pass `now`; this module reads
//! no clock.

use std::fmt;
use std::str::FromStr;

/// A moment in whole seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is not an RFC 3339 time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time of the form 2006-01-02T15:04:05Z")]
pub struct TimestampError(String);

impl Timestamp {
    /// Returns the moment `seconds` after the Unix epoch.
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the seconds after the Unix epoch.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400);
        let second = self.0.rem_euclid(86_400);
        let (year, month, day) = date_of(days);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Reads RFC 3339 with any offset; fractions of a second are dropped, as `metav1.Time` does when
    /// it writes the time again.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or_else(|| TimestampError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let is = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|byte| wanted.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month)
        || day < 1
        || day > days_in_month(year, month)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        rest = fraction.get(digits..)?;
    }
    let offset = match rest.as_bytes() {
        b"Z" | b"z" => 0,
        [
            sign @ (b'+' | b'-'),
            tens_of_hours,
            hours,
            b':',
            tens_of_minutes,
            minutes,
        ] => {
            let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
            let hours = digit(tens_of_hours)? * 10 + digit(hours)?;
            let minutes = digit(tens_of_minutes)? * 10 + digit(minutes)?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    Some(days_until(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a date of the proleptic Gregorian calendar. Years are counted from March,
/// so that the leap day is a year's last.
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = if month <= 2 { month + 9 } else { month - 3 };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns the date that lies `days` after the epoch.
fn date_of(days: i64) -> (i64, i64, i64) {
    // A first guess by the mean length of a year, corrected by at most one.
    let mut year = 1970 + (days * 400).div_euclid(146_097);
    while days_until(year, 1, 1) > days {
        year -= 1;
    }
    while days_until(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut left = days - days_until(year, 1, 1);
    let mut month = 1;
    while left >= days_in_month(year, month) && month < 12 {
        left -= days_in_month(year, month);
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, written: Option<&str>) {
        assert_eq!(
            text.parse::<Timestamp>().ok().map(|time| time.to_string()).as_deref(),
            written,
            "{text}"
        );
    }

    #[test]
    fn reads_and_writes_rfc3339() {
        check("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00Z"));
        check("2024-02-29T23:59:59Z", Some("2024-02-29T23:59:59Z"));
        check("2026-11-21T07:15:00.123456Z", Some("2026-11-21T07:15:00Z"));
        check("2026-11-21T00:15:00+02:00", Some("2026-11-20T22:15:00Z"));
        check("1969-12-31T23:59:59-00:30", Some("1970-01-01T00:29:59Z"));
        check("2023-02-29T00:00:00Z", None);
        check("2026-11-21 07:15:00Z", None);
        check("2026-11-21T07:15:00", None);
        check("", None);
    }

    #[test]
    fn timestamps_of_four_centuries_read_back() {
        for day in -200 * 365..200 * 365 {
            let time = Timestamp::from_unix_seconds(day * 86_400 + 61);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
