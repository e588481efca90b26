//! Authentication: client certificates, ServiceAccount tokens, and the few paths that need neither. Basic
//! authentication, static tokens and every unverifiable credential are refused. `authorization` decides which
//! requests the caller may make.

mod client_certificate;
mod key;
mod review;
mod token;
mod token_request;

use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use thiserror::Error;

pub use client_certificate::{CertificateError, ClientCertificates};
pub use key::{KeyError, SigningKey};
pub(crate) use review::api_time;
pub use review::{self_subject_review, token_review};
use tenure_auth::identity::{AUTHENTICATED, ObjectLookup, UserInfo};
pub use token::{ServiceAccountTokens, TokenError};
pub(crate) use token_request::default_lifetime;
pub use token_request::{TokenRequested, request_token, secret_token};

/// The user of valid credentials, and the audiences for which they are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// The user, with the group `system:authenticated`.
    pub user: UserInfo,
    /// The requested audiences for which the credential is valid.
    pub audiences: Vec<String>,
}

/// The caller's credentials are missing or invalid.
///
/// Clients get only `Unauthorized`, as from kube-apiserver; the reasons are for the log.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unauthorized {
    /// No credential was sent, and the path needs one.
    #[error("no credential was sent")]
    Missing,
    /// A credential was sent and refused.
    #[error("{}", join_reasons(.0))]
    Refused(Vec<String>),
}

/// Joins reasons in kube-apiserver's form for a TokenReview: a single reason unchanged, several as a list.
fn join_reasons(reasons: &[String]) -> String {
    match reasons {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Identifies the sender of a request.
#[derive(Debug)]
pub struct Authenticator {
    certificates: ClientCertificates,
    tokens: Arc<ServiceAccountTokens>,
}

impl Authenticator {
    /// Returns an authenticator for client certificates of one CA and the tokens of one issuer.
    #[must_use]
    pub fn new(certificates: ClientCertificates, tokens: Arc<ServiceAccountTokens>) -> Self {
        Self { certificates, tokens }
    }

    /// Identifies the sender of a request for `path` with these certificates (leaf first, as the TLS layer received
    /// them) and headers.
    ///
    /// A certificate has precedence over a token. Without either, the caller is anonymous on the paths of
    /// [`is_anonymous_path`] and refused elsewhere. An invalid credential is refused everywhere.
    ///
    /// # Errors
    /// [`Unauthorized`], to be answered as 401 with the message `Unauthorized`.
    pub fn authenticate(
        &self,
        peer_certificates: &[CertificateDer<'_>],
        headers: &HeaderMap,
        path: &str,
        lookup: &dyn ObjectLookup,
        now: Timestamp,
    ) -> Result<Authenticated, Unauthorized> {
        let mut reasons = Vec::new();
        match self.certificates.identify(peer_certificates, now) {
            Ok(Some(mut user)) => {
                user.ensure_group(AUTHENTICATED);
                return Ok(Authenticated {
                    user,
                    audiences: self.tokens.audiences().to_vec(),
                });
            }
            Ok(None) => {}
            Err(error) => reasons.push(error.to_string()),
        }
        if let Some(token) = bearer_token(headers) {
            match self.tokens.authenticate(token, self.tokens.audiences(), lookup, now) {
                Ok(authenticated) => return Ok(authenticated),
                Err(more) => reasons.extend(more),
            }
        }
        if !reasons.is_empty() {
            return Err(Unauthorized::Refused(reasons));
        }
        if is_anonymous_path(path) {
            return Ok(Authenticated {
                user: UserInfo::anonymous(),
                audiences: Vec::new(),
            });
        }
        Err(Unauthorized::Missing)
    }

    /// Returns the issuer's side of the tokens: creation, verification, audiences.
    #[must_use]
    pub fn tokens(&self) -> &ServiceAccountTokens {
        &self.tokens
    }
}

/// Checks whether `path` is open to callers without credentials: health and version, as `system:public-info-viewer`
/// lists them.
#[must_use]
pub fn is_anonymous_path(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    path == "/version"
        || ["/healthz", "/livez", "/readyz"].iter().any(|health| {
            path.strip_prefix(health)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

/// Returns the token of an `Authorization: Bearer` header; this server knows no other scheme.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
