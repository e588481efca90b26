//! The query string: parsed once, queried by name.

use std::num::{IntErrorKind, ParseIntError};

use super::ApiError;

/// The decoded parameters of a URL, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(
            pairs
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// Returns the first value of a parameter, if it is present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns all values of a parameter, including empty ones.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads a flag as Kubernetes does: any present value except `0` and `false` means yes.
    pub(crate) fn is_flag_set(&self, name: &str) -> bool {
        Self::is_set(&self.0, name)
    }

    /// Reads a flag of raw parameters, before a [`Query`] exists.
    pub(crate) fn is_set(query: &[(String, String)], name: &str) -> bool {
        query
            .iter()
            .find(|(key, _)| key == name)
            .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Reads a number.
    pub(crate) fn parse_number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let parsed = value.parse::<i64>();
        parsed
            .map(Some)
            .map_err(|error| ApiError::bad_request(not_a_number("ParseInt", value, &error)))
    }
}

/// Returns Go's error for an invalid number; `function` is the one of `strconv` that reports it.
pub(crate) fn not_a_number(function: &str, text: &str, error: &ParseIntError) -> String {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}
