//! Durations as Go writes them (`1h30m`, `500ms`), kept as the user's text and parsed on use. Refuses negative and overflowing ones.

use std::borrow::Cow;
use std::time::Duration;

use go_words::duration;
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

/// The reason why a text is no valid duration.
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
        let text = &self.0;
        let syntax = || DurationError::Syntax { text: text.clone() };
        // Go knows signs, and a unit with a letter that is not ASCII.
        if !text.is_ascii() || text.starts_with(['+', '-']) {
            return Err(syntax());
        }
        match duration::parse(text) {
            Ok(nanoseconds) => u64::try_from(nanoseconds)
                .map(Duration::from_nanos)
                .map_err(|_| syntax()),
            Err(duration::DurationError::TooLong(text)) => Err(DurationError::TooLong { text }),
            Err(_) => Err(syntax()),
        }
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
