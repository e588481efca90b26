//! ServiceAccount tokens as JSON Web Tokens: creation, signature, issuer, audiences. Every algorithm but ES256 is
//! refused, and so are tokens over a size and tokens of other issuers. `claims` checks whether the objects in a token
//! still exist.

use std::collections::HashMap;
use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use parking_lot::RwLock;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_auth::identity::claims::{
    Claims, Kubernetes, LEGACY_ISSUER, intersect_audiences, validate_bound, validate_legacy,
};
use tenure_auth::identity::{ObjectLookup, service_account_user_name};
use thiserror::Error;

use super::Authenticated;
use super::key::{KeyError, SigningKey};

/// A longer token is refused unread: tokens of this server are far shorter.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How many verified signatures are cached.
const REMEMBERED: usize = 4096;

/// The reason why a token can't be created.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The key refused to sign.
    #[error("failed to sign the token")]
    Sign(#[source] KeyError),
    /// The claims are not JSON.
    #[error("failed to encode the token's claims")]
    Encode(#[source] serde_json::Error),
}

/// The JOSE header of a token.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// Creates and verifies the ServiceAccount tokens of one issuer.
#[derive(Debug)]
pub struct ServiceAccountTokens {
    issuer: String,
    audiences: Vec<String>,
    key: SigningKey,
    // A valid signature stays valid: only the claims are checked again for each request. The key of the map is the
    // token's hash, so that no token stays in memory longer than its request.
    verified: RwLock<HashMap<[u8; 32], Arc<Claims>>>,
}

impl ServiceAccountTokens {
    /// Returns the tokens of `issuer` (a URL), signed with `key`. The server's own audience is the issuer.
    #[must_use]
    pub fn new(issuer: &str, key: SigningKey) -> Self {
        Self {
            issuer: issuer.to_owned(),
            audiences: vec![issuer.to_owned()],
            key,
            verified: RwLock::default(),
        }
    }

    /// Returns the issuer in the tokens.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the audiences that this server accepts.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the document of `/.well-known/openid-configuration`. `jwks_url` is the URL of [`Self::json_web_keys`].
    #[must_use]
    pub fn openid_configuration(&self, jwks_url: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Returns the document of `/openid/v1/jwks`: the public keys that verify the tokens.
    #[must_use]
    pub fn json_web_keys(&self) -> Value {
        json!({ "keys": [self.key.public_jwk()] })
    }

    /// Creates a token bound to the objects in `kubernetes`, valid for `seconds` from `now`. Also returns its `jti`.
    pub(super) fn mint(
        &self,
        subject: String,
        audiences: Vec<String>,
        kubernetes: Kubernetes,
        seconds: i64,
        now: Timestamp,
    ) -> Result<(String, String), TokenError> {
        let start = now.as_second();
        let id = self.key.random_id().map_err(TokenError::Sign)?;
        let claims = json!({
            "aud": audiences,
            "exp": start.saturating_add(seconds),
            "iat": start,
            "iss": self.issuer,
            "jti": id,
            "kubernetes.io": kubernetes,
            "nbf": start,
            "sub": subject,
        });
        Ok((self.sign(&claims)?, id))
    }

    /// Creates a token for a Secret of type `kubernetes.io/service-account-token`. The token names the Secret and
    /// never expires.
    pub(super) fn mint_legacy(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        secret: &str,
    ) -> Result<String, TokenError> {
        self.sign(
            &serde_json::to_value(Claims {
                iss: LEGACY_ISSUER.to_owned(),
                sub: service_account_user_name(namespace, name),
                legacy_namespace: namespace.to_owned(),
                legacy_secret: secret.to_owned(),
                legacy_name: name.to_owned(),
                legacy_uid: uid.to_owned(),
                ..Claims::default()
            })
            .map_err(TokenError::Encode)?,
        )
    }

    fn sign(&self, claims: &Value) -> Result<String, TokenError> {
        let header = json!({ "alg": "ES256", "kid": self.key.id() });
        let part = |value: &Value| {
            serde_json::to_vec(value)
                .map(|bytes| URL_SAFE_NO_PAD.encode(bytes))
                .map_err(TokenError::Encode)
        };
        let signed = format!("{}.{}", part(&header)?, part(claims)?);
        let signature = self.key.sign(signed.as_bytes()).map_err(TokenError::Sign)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the user of `token`, if the token is valid for one of the `wanted` audiences at `now`.
    ///
    /// # Errors
    /// The reasons in kube-apiserver's words; for the log and for TokenReview only.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        lookup: &dyn ObjectLookup,
        now: Timestamp,
    ) -> Result<Authenticated, Vec<String>> {
        let invalid = || vec!["invalid bearer token".to_owned()];
        let claims = self.verify(token).ok_or_else(invalid)?;
        self.judge(token, &claims, wanted, lookup, now).map_err(|reason| {
            let mut reasons = invalid();
            reasons.push(reason);
            reasons
        })
    }

    /// Returns the claims of a token with this server's issuer and signature.
    fn verify(&self, token: &str) -> Option<Arc<Claims>> {
        if token.len() > LONGEST_TOKEN {
            return None;
        }
        let mut hash = [0_u8; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(claims) = self.verified.read().get(&hash) {
            return Some(Arc::clone(claims));
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != "ES256" || !(header.kid.is_empty() || header.kid == self.key.id()) {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if !self.key.verify(signed.as_bytes(), &signature) {
            return None;
        }
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        if claims.iss != self.issuer && claims.iss != LEGACY_ISSUER {
            return None;
        }
        let claims = Arc::new(claims);
        let mut verified = self.verified.write();
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(hash, Arc::clone(&claims));
        Some(claims)
    }

    /// Checks the audiences, times and bound objects of a token whose signature is verified. Returns its user.
    fn judge(
        &self,
        token: &str,
        claims: &Claims,
        wanted: &[String],
        lookup: &dyn ObjectLookup,
        now: Timestamp,
    ) -> Result<Authenticated, String> {
        let legacy = claims.iss == LEGACY_ISSUER;
        let held = match claims.aud.to_vec() {
            // Legacy tokens have no audience and are for this server.
            none if none.is_empty() && legacy => self.audiences.clone(),
            some => some,
        };
        let audiences = intersect_audiences(&held, wanted);
        if audiences.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                tenure_auth::authorization::quote_list(&held),
                tenure_auth::authorization::quote_list(wanted)
            ));
        }
        let user = if legacy {
            validate_legacy(token, claims, lookup, now)?
        } else {
            validate_bound(claims, lookup, now)?
        };
        Ok(Authenticated { user, audiences })
    }
}
