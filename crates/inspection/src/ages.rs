//! Ages of objects and events, as kubectl prints them: two units at most.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The forms of an age by its length: the end of the range, the unit, and the smaller unit if it is shown. The values are Kubernetes' (`duration.HumanDuration`).
const FORMS: [(i64, Unit, Option<Unit>); 8] = [
    (2 * MINUTE, (1, "s"), None),
    (10 * MINUTE, (MINUTE, "m"), Some((1, "s"))),
    (3 * HOUR, (MINUTE, "m"), None),
    (8 * HOUR, (HOUR, "h"), Some((MINUTE, "m"))),
    (2 * DAY, (HOUR, "h"), None),
    (8 * DAY, (DAY, "d"), Some((HOUR, "h"))),
    (2 * YEAR, (DAY, "d"), None),
    (8 * YEAR, (YEAR, "y"), Some((DAY, "d"))),
];

/// The seconds of a unit, and its letter.
type Unit = (i64, &'static str);

/// Writes a number of seconds as an age: `90s`, `5m30s`, `3d`.
#[must_use]
pub fn write_age(seconds: i64) -> String {
    // Clocks of two machines differ a little.
    let seconds = match seconds {
        ..-1 => return "<invalid>".to_owned(),
        -1 => 0,
        seconds => seconds,
    };
    let form = FORMS.iter().find(|(end, ..)| seconds < *end);
    let ((size, letter), smaller) = form.map_or(((YEAR, "y"), None), |(_, unit, smaller)| (*unit, *smaller));
    let rest = smaller.map_or(0, |(small, _)| (seconds % size) / small);
    match smaller {
        Some((_, small)) if rest > 0 => format!("{}{letter}{rest}{small}", seconds / size),
        _ => format!("{}{letter}", seconds / size),
    }
}

/// Writes the time since an RFC 3339 time; empty without such a time.
#[must_use]
pub fn write_time_since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => write_age((now.as_millisecond() - then.as_millisecond()).div_euclid(1_000)),
        Err(_) => String::new(),
    }
}

/// Writes the distance to a time: `in 3d` or `3d ago`.
#[must_use]
pub fn write_distance(time: Timestamp, now: Timestamp) -> String {
    let seconds = (time.as_millisecond() - now.as_millisecond()).div_euclid(1_000);
    match seconds {
        0.. => format!("in {}", write_age(seconds)),
        _ => format!("{} ago", write_age(seconds.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs are from Kubernetes' own test of `HumanDuration`.
    #[test]
    fn ages_are_kubectls() {
        for (seconds, expected) in [
            (1, "1s"),
            (70, "70s"),
            (190, "3m10s"),
            (70 * MINUTE, "70m"),
            (47 * HOUR, "47h"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (2 * YEAR + 25 * DAY, "2y25d"),
            (8 * YEAR + 2 * DAY, "8y"),
            (5 * HOUR, "5h"),
            (-1, "0s"),
            (-2, "<invalid>"),
        ] {
            assert_eq!(write_age(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_time_becomes_an_age() {
        let now = "2026-01-02T00:00:00Z".parse().expect("a time");
        assert_eq!(write_time_since("2026-01-01T23:55:00Z", now), "5m");
        assert_eq!(write_time_since("2026-01-01T23:55:00.123456Z", now), "4m59s");
        assert_eq!(write_time_since("yesterday", now), "");
    }

    #[test]
    fn a_distance_has_a_direction() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let now = time("2026-01-02T00:00:00Z");
        assert_eq!(write_distance(time("2026-01-04T12:00:00Z"), now), "in 2d12h");
        assert_eq!(write_distance(time("2026-01-01T23:00:00Z"), now), "60m ago");
    }
}
