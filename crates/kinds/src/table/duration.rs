//! Durations as kubectl shows ages: two units at most.

use jiff::Timestamp;

/// Returns a duration in whole seconds, as `kubectl get` prints ages.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        two(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

/// Shows the time since a timestamp; `<unknown>` if it is missing.
pub(crate) fn format_since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => human_duration((now.as_millisecond() - then.as_millisecond()).div_euclid(1000)),
        Err(_) => "<unknown>".to_owned(),
    }
}
