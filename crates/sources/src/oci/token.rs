//! Gets a token from the token server that a registry names. Redirects are refused.

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::challenge::Realm;
use super::credentials::Credential;
use super::error::OciError;
use super::registry::read_small;
use crate::dialer::Dialer;
use crate::http::{HttpClient, HttpRequest};
use crate::secret::{Credentials, SecretBytes, TlsOptions};

/// The largest answer with a token, in bytes.
const ANSWER_BYTES: u64 = 256 << 10;
/// The client name in requests.
pub(super) const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// A request to a token server for a token that may pull from one repository.
pub(super) struct TokenRequest<'a> {
    pub(super) realm: &'a Realm,
    pub(super) service: Option<&'a str>,
    /// `repository:<path>:pull`.
    pub(super) scope: &'a str,
    /// The credential for the token server, if any.
    pub(super) credential: Option<&'a Credential>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// Requests a token from the token server, and returns it.
pub(super) async fn fetch_token(
    dialer: &Dialer,
    tls: &TlsOptions,
    request: TokenRequest<'_>,
) -> Result<SecretBytes, OciError> {
    let TokenRequest { realm, credential, .. } = request;
    let shown = realm.endpoint.to_string();
    let credentials = match credential {
        Some(Credential::Basic { username, password }) => Credentials::Basic {
            username: username.clone(),
            password: password.clone(),
        },
        _ => Credentials::Anonymous,
    };
    let mut client = HttpClient::new(dialer.clone(), &realm.endpoint, &credentials, tls, AGENT);
    let message = match credential {
        Some(Credential::Identity(token)) => write_exchange(&request, token),
        _ => write_question(&request),
    };
    let answer = client.send(&message).await?;
    let status = answer.status();
    let code = status.as_u16();
    // A 403 that is no JSON comes from another program than the API: it blocks the address, and is no answer about the credential.
    let is_kept_out = code == 403 && !answer.content_type().contains("json");
    if matches!(code, 400 | 401 | 403) && !is_kept_out {
        let problem = if credential.is_some() {
            format!("HTTP {code}: the credentials of the Secret are not accepted for the right to pull")
        } else {
            format!(
                "HTTP {code} without credentials: name a Secret with credentials for the registry in spec.secretRef"
            )
        };
        return Err(OciError::Unauthorized { host: shown, problem });
    }
    let protocol = |problem: &str| OciError::Protocol {
        url: shown.clone(),
        problem: problem.to_owned(),
    };
    if !status.is_success() {
        let what = match is_kept_out {
            true => "a token, in words that are no API's: it may keep this address out for a while",
            false => "a token",
        };
        return Err(OciError::HttpStatus {
            url: shown,
            what: what.to_owned(),
            status: code,
            retry_after: answer.retry_after(),
        });
    }
    answer.refuse_encoding()?;
    let body = read_small(answer.into_body(), ANSWER_BYTES, "bytes of a token", &shown).await?;
    let TokenAnswer { token, access_token } =
        serde_json::from_slice(&body).map_err(|_| protocol("its answer to a request for a token is no token"))?;
    let token = if token.is_empty() { access_token } else { token };
    let is_writable = token.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if token.is_empty() || !is_writable {
        return Err(protocol("its answer to a request for a token holds none"));
    }
    Ok(SecretBytes::new(token))
}

/// Writes a `GET` request, as in the registry's own protocol.
fn write_question(request: &TokenRequest<'_>) -> HttpRequest {
    let mut query = Serializer::new(String::new());
    if let Some(service) = request.service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", request.scope);
    let separator = if request.realm.target.contains('?') { '&' } else { '?' };
    let target = format!("{}{separator}{}", request.realm.target, query.finish());
    write_request(request, Method::GET, target, Bytes::new())
}

/// Writes a `POST` request, as in OAuth 2, with a token to get tokens.
fn write_exchange(request: &TokenRequest<'_>, token: &SecretBytes) -> HttpRequest {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "refresh_token");
    form.append_pair("service", request.service.unwrap_or(&request.realm.endpoint.host));
    form.append_pair("client_id", "tenure");
    form.append_pair("scope", request.scope);
    form.append_pair("refresh_token", token.reveal());
    let mut message = write_request(
        request,
        Method::POST,
        request.realm.target.clone(),
        form.finish().into(),
    );
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    message.headers.insert(CONTENT_TYPE, form);
    message
}

fn write_request(request: &TokenRequest<'_>, method: Method, target: String, body: Bytes) -> HttpRequest {
    HttpRequest {
        method,
        endpoint: request.realm.endpoint.clone(),
        target,
        headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]),
        body,
        shown: request.realm.endpoint.to_string(),
    }
}
