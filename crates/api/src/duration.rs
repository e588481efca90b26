//! Durations as Go writes them (`1h30m`, `500ms`), kept as the user's text and parsed on use. Refuses negative and overflowing ones.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern that Flux's CRDs demand of a duration.
pub const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

/// The longest duration accepted, in seconds: what Go's `time.Duration` (64 bits of nanoseconds) can hold, about 292 years.
pub const LONGEST_SECONDS: u64 = (i64::MAX as u64) / 1_000_000_000;

/// A duration in the text form that the user wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

/// Why a duration was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not follow Go's grammar for non-negative durations.
    #[error("{text:?} is not a duration: write a number with a unit ms, s, m or h, as in 10m or 1h30m")]
    Syntax {
        /// The text as written.
        text: String,
    },
    /// The text is longer than any clock can count.
    #[error("{text:?} is longer than the longest duration, 292 years")]
    TooLong {
        /// The text as written.
        text: String,
    },
}

impl DurationText {
    /// Wraps a text without parsing it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Parses the text by Go's grammar, restricted to the units that Flux's CRDs allow plus `us` and `ns`.
    ///
    /// # Errors
    /// [`DurationError::Syntax`] when the text is not a non-negative duration, [`DurationError::TooLong`] when it overflows.
    pub fn parse(&self) -> Result<Duration, DurationError> {
        parse_go_duration(&self.0)
    }
}

impl std::fmt::Display for DurationText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

fn parse_go_duration(text: &str) -> Result<Duration, DurationError> {
    let syntax = || DurationError::Syntax { text: text.to_owned() };
    let too_long = || DurationError::TooLong { text: text.to_owned() };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() || !text.is_ascii() {
        return Err(syntax());
    }
    let mut rest = text;
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                after.split_at(digits)
            }
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(syntax());
        }
        let (unit, after): (u128, &str) = if let Some(after) = after.strip_prefix("ms") {
            (1_000_000, after)
        } else if let Some(after) = after.strip_prefix("us") {
            (1_000, after)
        } else if let Some(after) = after.strip_prefix("ns") {
            (1, after)
        } else if let Some(after) = after.strip_prefix('s') {
            (1_000_000_000, after)
        } else if let Some(after) = after.strip_prefix('m') {
            (60_000_000_000, after)
        } else if let Some(after) = after.strip_prefix('h') {
            (3_600_000_000_000, after)
        } else {
            return Err(syntax());
        };
        if whole.len() > 19 {
            return Err(too_long());
        }
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| too_long())?
        };
        nanoseconds = nanoseconds.saturating_add(whole.saturating_mul(unit));
        let mut weight = unit;
        for digit in fraction.bytes().take(18) {
            weight /= 10;
            nanoseconds = nanoseconds.saturating_add(u128::from(digit - b'0') * weight);
        }
        if nanoseconds > i64::MAX as u128 {
            return Err(too_long());
        }
        rest = after;
    }
    u64::try_from(nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|_| too_long())
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": DURATION_PATTERN })
    }
}
