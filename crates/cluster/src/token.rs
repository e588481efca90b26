//! Tokens: how long they are used, and that they are never printed.

use std::fmt;
use std::time::{Duration, SystemTime};

/// How long before its end a token is replaced. A request that starts now must not arrive with a token that has ended.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// A bearer token and when it ends. Its text leaves this crate only in an `Authorization` header.
#[derive(Clone)]
pub struct Token {
    text: String,
    expires: Option<SystemTime>,
}

impl Token {
    /// Wraps a token. One without an end is used until the API server refuses it.
    #[must_use]
    pub fn new(text: impl Into<String>, expires: Option<SystemTime>) -> Self {
        Self {
            text: text.into(),
            expires,
        }
    }

    /// Whether it should be replaced: less than five minutes, or a fifth of what an hour is cut down to by a server, are left.
    pub(crate) fn stale(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| now + MARGIN >= expires)
    }

    pub(crate) fn header(&self) -> Option<http::HeaderValue> {
        let mut value = http::HeaderValue::from_str(&format!("Bearer {}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Token")
            .field("text", &"<hidden>")
            .field("expires", &self.expires)
            .finish()
    }
}
