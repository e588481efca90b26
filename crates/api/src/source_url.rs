//! The address of a source, which may contain a password. It is complete in data, and never in text.
//!
//! Neither `Debug` nor `Display` prints the secret parts. If the secret part can't be identified, nothing is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The replacement for an address that can't be shown.
const NOT_SHOWN: &str = "(a URL that can't be shown)";

/// An address in an object. It is serialized whole; [`SourceUrl::shown`], `Display` and `Debug` leave out user, password, query
/// and fragment.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceUrl(String);

impl SourceUrl {
    /// Wraps an address.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the whole address, for a connection.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the part that may be in a plan, a log or a message.
    #[must_use]
    pub fn shown(&self) -> String {
        shown(&self.0).unwrap_or_else(|| NOT_SHOWN.to_owned())
    }

    /// Serializes the visible part, for data that is printed.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize_shown<S: serde::Serializer>(url: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&url.shown())
    }
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown())
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SourceUrl({self})")
    }
}

fn shown(url: &str) -> Option<String> {
    // Readers of URLs differ in the meaning of these characters: one may see a password where another sees a path.
    if url.chars().any(|c| c == '\\' || c.is_whitespace() || c.is_control()) || !url.is_ascii() {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split(['?', '#']).next()?;
    let (authority, path) = rest
        .split_once('/')
        .map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.rsplit_once(']') {
        Some((_, port)) => port.strip_prefix(':'),
        None => host.split_once(':').map(|(_, port)| port),
    };
    // In `https://user:pass/word@host/`, the text after the colon is no port but the beginning of a
    // password.
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    if !scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    {
        return None;
    }
    // A password of digits before a slash looks like a port: the rest is shown only without an `@`.
    let path = path.filter(|path| port.is_none() || !path.contains('@'));
    Some(match path {
        Some(path) => format!("{scheme}://{host}/{path}"),
        None if rest.len() == authority.len() => format!("{scheme}://{host}"),
        None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_may_be_a_secret_is_shown() {
        for (url, expected) in [
            ("https://git.example/a.git", "https://git.example/a.git"),
            ("https://git.example:8443/a@b", NOT_SHOWN),
            ("https://git.example/a@b", "https://git.example/a@b"),
            ("https://user:sesame@git.example/a", "https://git.example/a"),
            ("https://user:ses@me@git.example:80/a", "https://git.example:80/a"),
            ("https://sesame@git.example/a", "https://git.example/a"),
            ("ssh://git:sesame@[::1]:22/a", "ssh://[::1]:22/a"),
            ("https://git.example/a?token=sesame#sesame", "https://git.example/a"),
            ("https://git.example", "https://git.example"),
            ("https://user:sesame/x@git.example/a", NOT_SHOWN),
            ("https://user:1234/sesame@git.example/a", NOT_SHOWN),
            ("https:\\\\user:sesame@git.example/a", NOT_SHOWN),
            ("https://user:sesame@git.example\n/a", NOT_SHOWN),
            ("user:sesame@git.example:a", NOT_SHOWN),
            ("sesame", NOT_SHOWN),
            ("", NOT_SHOWN),
        ] {
            let url = SourceUrl::new(url);
            assert_eq!(url.shown(), expected);
            assert_eq!(url.to_string(), expected);
            assert!(!format!("{url:?}").contains("sesame"));
            assert_eq!(
                serde_json::to_value(&url).ok(),
                Some(url.reveal().into()),
                "data is whole"
            );
        }
    }
}
