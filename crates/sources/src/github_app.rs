//! Credentials of a GitHub App: a token for one installation, which GitHub issues for a request that is signed with the App's key.
//!
//! A Secret of `provider: github` has Flux's keys. Every connection uses the dialer. The key is only used for signatures. A token goes only to the source's own host.
//! Errors never quote an answer of the API.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use crate::artifact::SourceKey;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::host_client::BaseUrl;
use crate::http::{HttpClient, HttpRequest};
use crate::secret::{Credentials, Reader, SecretBytes, SecretData, TlsOptions};

const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));
/// The address of GitHub's own API.
const API: &str = "https://api.github.com";
/// The user name for a token as password.
const USERNAME: &str = "x-access-token";
/// The largest answer in bytes.
const ANSWER_BYTES: u64 = 256 << 10;
/// A token is not used in this time before its end. A fetch is authenticated by its first requests, which take less.
const SPARE: SignedDuration = SignedDuration::from_mins(5);
/// The longest time that a token is cached, whatever the API says: GitHub issues them for an hour.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// How long a signed claim is valid, and how far clocks may differ.
const CLAIM_SECONDS: i64 = 120;
const SKEW_SECONDS: i64 = 30;

/// A GitHub App with its private key, and the installation of it for which tokens are requested.
#[derive(Clone)]
pub struct GitHubApp {
    id: u64,
    installation: Installation,
    key: Arc<RsaKeyPair>,
    api: BaseUrl,
    /// The digest of all fields: another Secret has other tokens.
    digest: [u8; 32],
}

/// How a Secret names the installation of a GitHub App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installation {
    /// The one with this number.
    Id(u64),
    /// An organization or a user.
    Owner(String),
}

impl fmt::Debug for GitHubApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubApp({}, {:?}, {})", self.id, self.installation, self.api)
    }
}

/// The cached GitHub App tokens of one namespace's sources. A token is used for its own source only. Cheap to clone.
#[derive(Clone, Default)]
pub struct AppTokens(Arc<Mutex<HashMap<SourceKey, Token>>>);

/// A cached token, with its end and the digest of the App whose installation it belongs to.
#[derive(Clone)]
struct Token {
    of: [u8; 32],
    token: SecretBytes,
    expires: Timestamp,
}

impl fmt::Debug for AppTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppTokens(hidden)")
    }
}

impl AppTokens {
    fn lock_tokens(&self) -> MutexGuard<'_, HashMap<SourceKey, Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the token of a source after the source was deleted, or the token was rejected.
    pub fn forget(&self, source: &SourceKey) {
        self.lock_tokens().remove(source);
    }

    /// Returns the cached token of a source, if the same App made it and it does not end soon.
    fn find(&self, source: &SourceKey, app: &GitHubApp, now: Timestamp) -> Option<SecretBytes> {
        let tokens = self.lock_tokens();
        let token = tokens.get(source)?;
        let is_good = token.of == app.digest && now + SPARE < token.expires;
        is_good.then(|| token.token.clone())
    }
}

/// Checks whether a Secret is one of a GitHub App.
pub(crate) fn is_app(secret: &SecretData) -> bool {
    secret.get("githubAppID").is_some_and(|id| !id.is_empty())
}

impl GitHubApp {
    /// Reads an App from the data of a Secret.
    ///
    /// # Errors
    /// [`FetchError::InvalidProvider`] when the Secret is not one of an App, [`FetchError::InvalidSecret`] when an entry can't be used.
    pub fn read(secret: Option<&SecretData>) -> Result<Self, FetchError> {
        let secret = secret.filter(|secret| is_app(secret)).ok_or_else(|| FetchError::InvalidProvider {
            problem: "secretRef with github app data must be specified when provider is set to github: githubAppID, githubAppPrivateKey, and \
                      githubAppInstallationID or githubAppInstallationOwner"
                .to_owned(),
        })?;
        let invalid = |problem: &str| FetchError::InvalidSecret {
            problem: problem.to_owned(),
        };
        let reader = Reader::new(secret);
        let text = |key: &'static str| Ok::<_, FetchError>(reader.text(key)?.map(str::trim));
        let number = |key: &'static str| match text(key)? {
            None => Ok(None),
            Some(digits) => match digits.parse::<u64>() {
                Ok(number) if number > 0 => Ok(Some(number)),
                _ => Err(invalid(&format!("{key} is not a number"))),
            },
        };
        let id = number("githubAppID")?.ok_or_else(|| invalid("githubAppID is missing"))?;
        let installation = match (number("githubAppInstallationID")?, text("githubAppInstallationOwner")?) {
            (Some(id), None) => Installation::Id(id),
            (None, Some(owner)) if is_owner(owner) => Installation::Owner(owner.to_owned()),
            (None, Some(_)) => {
                return Err(invalid(
                    "githubAppInstallationOwner is not the name of an organization or user",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "githubAppInstallationID and githubAppInstallationOwner can't be used together",
                ));
            }
            (None, None) => {
                return Err(invalid(
                    "githubAppInstallationID or githubAppInstallationOwner is missing",
                ));
            }
        };
        let pem = reader
            .bytes("githubAppPrivateKey")
            .ok_or_else(|| invalid("githubAppPrivateKey is missing"))?;
        let key = read_key(pem).ok_or_else(|| {
            invalid("githubAppPrivateKey is no private key of RSA with 2048 bits or more in PEM, as GitHub gives it")
        })?;
        let base = text("githubAppBaseURL")?.unwrap_or(API);
        let api = BaseUrl::parse(base).ok_or_else(|| {
            invalid("githubAppBaseURL is no http or https URL without query and user, such as https://github.example.com/api/v3")
        })?;
        let mut hash = Sha256::new();
        for part in [format!("{id} {installation:?} {api}").as_bytes(), pem] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Ok(Self {
            id,
            installation,
            key: Arc::new(key),
            api,
            digest: hash.finalize().into(),
        })
    }

    /// Returns the credentials for the repository's server, with a cached token or a new one.
    pub(crate) async fn log_in(
        &self,
        source: &SourceKey,
        tokens: &AppTokens,
        dialer: &Dialer,
        tls: &TlsOptions,
    ) -> Result<Credentials, FetchError> {
        let now = Timestamp::now();
        let token = match tokens.find(source, self, now) {
            Some(token) => token,
            None => {
                let token = self.fetch_token(dialer, tls, now).await?;
                tokens.lock_tokens().insert(source.clone(), token.clone());
                token.token
            }
        };
        Ok(Credentials::Basic {
            username: USERNAME.to_owned(),
            password: token,
        })
    }

    /// Requests a new token for the installation from GitHub's API.
    async fn fetch_token(&self, dialer: &Dialer, tls: &TlsOptions, now: Timestamp) -> Result<Token, FetchError> {
        let credentials = self.sign_in(now)?;
        let mut api = Api {
            client: HttpClient::new(dialer.clone(), self.api.endpoint(), &credentials, tls, AGENT),
            app: self,
        };
        let installation = match &self.installation {
            Installation::Id(id) => *id,
            Installation::Owner(owner) => api.find_installation(owner).await?,
        };
        let below = format!("/app/installations/{installation}/access_tokens");
        let answer: Option<TokenAnswer> = api.send_request(Method::POST, &below).await?;
        let answer = answer
            .ok_or_else(|| self.unauthorized_error(format!("HTTP 404: the App has no installation {installation}")))?;
        let is_writable = answer.token.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        let expires: Option<Timestamp> = answer.expires_at.parse().ok();
        match expires {
            Some(expires) if is_writable && !answer.token.is_empty() => Ok(Token {
                of: self.digest,
                token: SecretBytes::new(answer.token),
                expires: expires.min(now + LONGEST),
            }),
            _ => Err(self.api_error("its answer holds no token with an end")),
        }
    }

    /// Returns the App's own credentials for the API, valid for two minutes.
    ///
    /// # Errors
    /// [`FetchError::InvalidSecret`] when the App's key can't sign.
    pub fn sign_in(&self, now: Timestamp) -> Result<Credentials, FetchError> {
        let claim = self.write_claim(now.as_second())?;
        Ok(Credentials::Bearer(SecretBytes::new(claim)))
    }

    /// Returns the installation.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Returns the address of the API.
    #[must_use]
    pub fn api(&self) -> &BaseUrl {
        &self.api
    }

    /// Writes and signs the claim: the App, and the time until which the claim is valid.
    fn write_claim(&self, now: i64) -> Result<String, FetchError> {
        let issued = now.saturating_sub(SKEW_SECONDS);
        let claims = json!({ "iat": issued, "exp": issued + CLAIM_SECONDS, "iss": self.id.to_string() });
        let header = json!({ "alg": "RS256", "typ": "JWT" });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let message = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                message.as_bytes(),
                &mut signature,
            )
            .map_err(|_| FetchError::InvalidSecret {
                problem: "githubAppPrivateKey can't sign".to_owned(),
            })?;
        Ok(format!("{message}.{}", encode(&signature)))
    }

    fn display_address(&self) -> String {
        self.api.to_string()
    }

    fn unauthorized_error(&self, problem: String) -> FetchError {
        FetchError::Unauthorized {
            url: self.display_address(),
            problem,
        }
    }

    fn api_error(&self, problem: &str) -> FetchError {
        FetchError::HttpApi {
            url: self.display_address(),
            problem: problem.to_owned(),
        }
    }
}

/// A client of GitHub's API, with the App's signature.
struct Api<'a> {
    client: HttpClient,
    app: &'a GitHubApp,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
    expires_at: String,
}

#[derive(Deserialize)]
struct InstallationAnswer {
    id: u64,
}

impl Api<'_> {
    /// Finds the installation of an organization, or of a user of that name.
    async fn find_installation(&mut self, owner: &str) -> Result<u64, FetchError> {
        for kind in ["orgs", "users"] {
            let found: Option<InstallationAnswer> = self
                .send_request(Method::GET, &format!("/{kind}/{owner}/installation"))
                .await?;
            if let Some(found) = found {
                return Ok(found.id);
            }
        }
        let problem = "HTTP 404: the App is not installed for the organization or user of githubAppInstallationOwner";
        Err(self.app.unauthorized_error(problem.to_owned()))
    }

    /// Sends a request; `None` if the object does not exist.
    async fn send_request<T: DeserializeOwned>(
        &mut self,
        method: Method,
        below: &str,
    ) -> Result<Option<T>, FetchError> {
        let headers = [
            (ACCEPT, "application/vnd.github+json"),
            (HeaderName::from_static("x-github-api-version"), "2022-11-28"),
        ];
        let request = HttpRequest {
            method,
            endpoint: self.app.api.endpoint().clone(),
            target: format!("{}{below}", self.app.api.path()),
            headers: HeaderMap::from_iter(headers.map(|(name, value)| (name, HeaderValue::from_static(value)))),
            body: Bytes::new(),
            shown: self.app.display_address(),
        };
        let answer = self.client.send(&request).await?;
        let status = answer.status();
        let code = status.as_u16();
        match status {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::UNAUTHORIZED => {
                let problem = "the App is not known, or githubAppPrivateKey is not its key";
                return Err(self.app.unauthorized_error(format!("HTTP {code}: {problem}")));
            }
            StatusCode::FORBIDDEN => {
                let problem = "the App may not do that, or has asked too often";
                return Err(self.app.unauthorized_error(format!("HTTP {code}: {problem}")));
            }
            status if !status.is_success() => {
                return Err(FetchError::HttpStatus {
                    url: self.app.display_address(),
                    status: code,
                    problem: "GitHub gives no token",
                    retry_after: answer.retry_after(),
                });
            }
            _ => {}
        }
        answer.refuse_encoding()?;
        let mut body = Vec::new();
        let mut reader = answer.into_body().take(ANSWER_BYTES + 1);
        let read = reader.read_to_end(&mut body).await;
        read.map_err(|_| self.app.api_error("the connection broke in the middle of its answer"))?;
        if body.len() as u64 > ANSWER_BYTES {
            return Err(self.app.api_error("its answer is longer than 256 KiB"));
        }
        // The parser's error could quote a token, so it is left out.
        serde_json::from_slice(&body).map(Some).map_err(|_| {
            self.app
                .api_error("its answer is not one of GitHub's API: check githubAppBaseURL")
        })
    }
}

/// Checks whether a name can be an owner, since it becomes part of a path.
fn is_owner(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.len() <= 100 && name.chars().all(is_known)
}

fn read_key(pem: &[u8]) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem).ok()? {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(PrivatePkcs1KeyDer::secret_pkcs1_der(&key)).ok(),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(PrivatePkcs8KeyDer::secret_pkcs8_der(&key)).ok(),
        _ => None,
    }
}
