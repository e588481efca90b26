//! Tokens: their lifetime, and the rule that they are never printed.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_tenancy::TokenClaims;

/// The most time before its end when a token is replaced, so that no request arrives with a token that has ended.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// The part of its lifetime before its end when a short token is replaced. Else a token of five minutes would be replaced at each request.
const MARGIN_PART: u32 = 5;

/// A bearer token and its end. The text leaves this crate only in an `Authorization` header, and on its way to the process of its lane ([`HandedToken`]).
#[derive(Clone)]
pub struct Token {
    text: String,
    expires: Option<SystemTime>,
    /// The time before the end when the token is replaced.
    margin: Duration,
}

impl Token {
    /// Wraps a token. Without a given end, its own `exp` claim counts. A token without either is used until the API server refuses it.
    #[must_use]
    pub fn new(text: impl Into<String>, expires: Option<SystemTime>) -> Self {
        let text = text.into();
        let expires = expires.or_else(|| claimed_time(&text, "exp"));
        let begins = claimed_time(&text, "iat").unwrap_or_else(SystemTime::now);
        let lifetime = expires.and_then(|expires| expires.duration_since(begins).ok());
        let margin = lifetime.map_or(Duration::ZERO, |lifetime| MARGIN.min(lifetime / MARGIN_PART));
        Self { text, expires, margin }
    }

    /// Returns the token for the process of its lane.
    #[must_use]
    pub fn hand_over(&self) -> HandedToken {
        let seconds = |expires: SystemTime| expires.duration_since(SystemTime::UNIX_EPOCH).ok();
        HandedToken {
            text: self.text.clone(),
            expires: self.expires.and_then(seconds).map(|since| since.as_secs()),
        }
    }

    /// Whether the token should be replaced, because it ends soon: in five minutes, or within the last fifth of its lifetime if that is shorter.
    pub(crate) fn stale(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| now + self.margin >= expires)
    }

    /// Whether the token has ended, if its end is known.
    pub(crate) fn has_ended(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }

    /// Whether both tokens are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Whether a text contains the token.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.text)
    }

    /// Returns the audiences and the issuer of the token; `None` if it isn't a JWT. The claims are not verified.
    pub(crate) fn claims(&self) -> Option<TokenClaims> {
        let claims = read_claims(&self.text)?;
        let audiences = match claims.get("aud")? {
            Value::String(one) => vec![one.clone()],
            Value::Array(many) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => return None,
        };
        let issuer = claims.get("iss").and_then(Value::as_str).map(str::to_owned);
        Some(TokenClaims { audiences, issuer })
    }

    pub(crate) fn header(&self) -> Option<http::HeaderValue> {
        let mut value = http::HeaderValue::from_str(&format!("Bearer {}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// A token on its way from the hub to the process of a lane. The type has no `Debug` that would show the token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedToken {
    text: String,
    /// The end in seconds since the epoch.
    expires: Option<u64>,
}

impl HandedToken {
    /// Returns the token at its destination.
    #[must_use]
    pub fn into_token(self) -> Token {
        let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        Token::new(self.text, self.expires.and_then(time))
    }
}

impl fmt::Debug for HandedToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HandedToken(<hidden>)")
    }
}

/// Reads a time that a JWT claims, `exp` or `iat` (RFC 7519 §4.1.4, §4.1.6), without verification: it only says when to request another token.
fn claimed_time(text: &str, claim: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(read_claims(text)?.get(claim)?.as_u64()?))
}

fn read_claims(text: &str) -> Option<Value> {
    let payload = text.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&payload).ok()
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::Token;

    #[test]
    fn a_token_knows_its_end_and_hides_its_text() {
        let claims = URL_SAFE_NO_PAD.encode(br#"{"exp": 1000}"#);
        let token = Token::new(format!("secret.{claims}.signature"), None);
        assert!(token.stale(SystemTime::UNIX_EPOCH + Duration::from_secs(1000)));
        assert!(!token.stale(SystemTime::UNIX_EPOCH));
        assert!(!format!("{token:?}").contains("secret"));
        let handed = Token::new("secret", Some(SystemTime::UNIX_EPOCH + Duration::from_secs(7))).hand_over();
        assert!(!format!("{handed:?}").contains("secret"));
        let arrived: super::HandedToken = serde_json::from_str(&serde_json::to_string(&handed).unwrap()).unwrap();
        assert!(arrived.into_token().is(&Token::new("secret", None)));
        assert!(!Token::new("no claims in here", None).stale(SystemTime::now()));
        let claimed =
            |text: &[u8]| Token::new(format!("secret.{}.signature", URL_SAFE_NO_PAD.encode(text)), None).claims();
        assert_eq!(claimed(br#"{"aud": "one"}"#).unwrap().audiences, ["one"]);
        let many = claimed(br#"{"aud": ["one", "two"], "iss": "maker"}"#).unwrap();
        assert_eq!((many.audiences.len(), many.issuer.as_deref()), (2, Some("maker")));
        assert!(claimed(br#"{"iss": "maker"}"#).is_none() && Token::new("opaque", None).claims().is_none());
    }

    /// A token is stale five minutes before its end. A short token is stale in the last fifth of its life.
    #[test]
    fn token_is_stale_shortly_before_expiry() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let issued = |issued: u64, end: u64| {
            let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"iat": {issued}, "exp": {end}}}"#));
            Token::new(format!("secret.{claims}.signature"), None)
        };
        let hour = issued(1_000, 4_600);
        assert!(!hour.stale(at(4_299)) && hour.stale(at(4_300)));
        let short = issued(1_000, 1_300);
        assert!(!short.stale(at(1_000)) && !short.stale(at(1_239)) && short.stale(at(1_240)));
        // Without a claimed beginning, a token begins when it is received.
        let opaque = Token::new("opaque", Some(SystemTime::now() + Duration::from_secs(200)));
        assert!(!opaque.stale(SystemTime::now()));
    }
}
