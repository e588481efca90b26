//! The time after which a credential is replaced: a number with a unit `h`, `d` or `w`, as in `90d`. It is not a duration of Go's,
//! which knows no days.
//!
//! The shortest period is a day, and the longest a year.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::text;

/// The shortest period, in hours.
const SHORTEST: u64 = 24;
/// The longest, in hours: 365 days. After more than a year, the purpose of a credential tends to be forgotten.
const LONGEST: u64 = 365 * 24;
/// The greatest number of characters of a wrong text in a message.
const SHOWN: usize = 32;

/// The time after which a credential is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    hours: u64,
}

/// The reason why a text is no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// The text is not a number with a unit.
    #[error("{0:?} is not a period: write a whole number with the unit h, d or w, as in 90d")]
    Syntax(String),
    /// The period is less than a day.
    #[error("{0:?} is less than a day: a credential is replaced once a day at the most; write 1d or more")]
    TooShort(String),
    /// The period is more than a year.
    #[error("{0:?} is more than a year: write 365d or less")]
    TooLong(String),
}

impl Period {
    /// Returns the period as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.hours.saturating_mul(3_600))
    }
}

impl Default for Period {
    /// Returns the default period ([`super::DEFAULT_ROTATE`]).
    fn default() -> Self {
        Self { hours: 90 * 24 }
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let shown = || {
            let start: String = text.chars().take(SHOWN).collect();
            text::visible_line(&start).into_owned()
        };
        let syntax = || PeriodError::Syntax(shown());
        let unit = match text.as_bytes().last() {
            Some(b'h') => 1,
            Some(b'd') => 24,
            Some(b'w') => 7 * 24,
            _ => return Err(syntax()),
        };
        // The unit is one byte of ASCII.
        let number = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(syntax());
        }
        // Digits only. A number that is too large to read counts as too long.
        let hours = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        match hours {
            Some(hours) if hours < SHORTEST => Err(PeriodError::TooShort(shown())),
            Some(hours) if hours <= LONGEST => Ok(Self { hours }),
            _ => Err(PeriodError::TooLong(shown())),
        }
    }
}

impl fmt::Display for Period {
    /// Writes whole days as days, so each period has one text.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hours % 24 {
            0 => write!(formatter, "{}d", self.hours / 24),
            _ => write!(formatter, "{}h", self.hours),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_and_one_unit() {
        assert_eq!(Period::default().to_string(), super::super::DEFAULT_ROTATE);
        for (text, hours, shown) in [
            ("90d", 90 * 24, "90d"),
            ("24h", 24, "1d"),
            ("36h", 36, "36h"),
            ("1w", 168, "7d"),
            ("0090d", 90 * 24, "90d"),
            ("365d", 365 * 24, "365d"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(
                (period.duration().as_secs(), period.to_string().as_str()),
                (hours * 3_600, shown)
            );
        }
        for text in [
            "",
            "d",
            "0",
            "90",
            "-1d",
            "+1d",
            "1.5d",
            "90x",
            "90D",
            "90 d",
            "1d12h",
            "90m",
            "1e3d",
            "٣d",
            "90\u{202e}d",
            "1y",
        ] {
            let error = text.parse::<Period>().unwrap_err();
            assert!(matches!(error, PeriodError::Syntax(_)), "{text}: {error}");
            assert!(!error.to_string().contains('\u{202e}'));
        }
        for text in ["0d", "0h", "23h", "0w"] {
            assert!(
                matches!(text.parse::<Period>(), Err(PeriodError::TooShort(_))),
                "{text}"
            );
        }
        for text in [
            "366d",
            "53w",
            "18446744073709551615w",
            "99999999999999999999999999999999999d",
        ] {
            assert!(matches!(text.parse::<Period>(), Err(PeriodError::TooLong(_))), "{text}");
        }
        let long = "9".repeat(100_000) + "d";
        assert!(long.parse::<Period>().unwrap_err().to_string().len() < 200);
    }
}
