//! The continue token of a paged list: the listed revision, and the first key of the next page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tenure_kinds::schema::{base64_fault, json_syntax};

use crate::http::ApiError;

/// The content of a continue token: the listed revision, and the first key of the next page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContinueToken {
    v: String,
    /// The revision of the first page.
    pub(crate) rv: u64,
    /// The first key of the next page, below the list's own prefix.
    pub(crate) start: String,
}

impl ContinueToken {
    /// Returns a token for the page after `last`, a key below the list's prefix.
    pub(crate) fn after(revision: u64, last: &str) -> Self {
        Self {
            v: "meta.k8s.io/v1".to_owned(),
            rv: revision,
            start: format!("{last}\0"),
        }
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn decode(text: &str) -> Result<Self, ApiError> {
        let broken = |detail: String| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {detail}"))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| broken(base64_fault(text, &error)))?;
        let token: Self = serde_json::from_slice(&bytes)
            .map_err(|error| broken(json_syntax::find_syntax_error(&bytes).unwrap_or_else(|| error.to_string())))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(broken(format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.start.is_empty() || token.start.starts_with('/') || token.start.contains("..") {
            return Err(broken("encoded start key is not valid".to_owned()));
        }
        Ok(token)
    }
}
