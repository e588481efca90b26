//! The content of a Provider's Secret (Flux's keys): the address, the credentials, and the proxy. No part of it is ever printed, also not in an error message.

use std::fmt;

use tenure_remote_requests::notification::SecretData;

use crate::kubeconfig::read_yaml;

/// Headers that a Secret may not set: they decide the end of a request, and its receiver.
const REFUSED_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "user-agent",
];
/// The most headers in a Secret, and the most bytes of all headers.
const HEADERS: usize = 32;
const HEADER_BYTES: usize = 16 << 10;

/// The parsed data of a Provider's Secret: address, credentials, headers and proxy.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    pub(super) address: Option<String>,
    pub(super) token: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) proxy: Option<String>,
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretContent(hidden)")
    }
}

impl SecretContent {
    /// Reads the data of a Secret.
    ///
    /// # Errors
    /// The key that can't be used, and the reason, without any part of a value.
    pub fn read(data: &SecretData) -> Result<Self, String> {
        let text = |key: &str| match data.get(key).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match std::str::from_utf8(value) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(format!("{key} is not text")),
            },
        };
        let trimmed = |key: &str| Ok::<_, String>(text(key)?.map(|text| text.trim().to_owned()));
        if data.contains_key("githubAppID") && !data.contains_key("token") {
            return Err("githubAppID: a GitHub App is not supported here yet: use the key token".to_owned());
        }
        let (username, password) = (text("username")?, text("password")?);
        if username.is_some() != password.is_some() {
            return Err("username and password belong together, and one is missing".to_owned());
        }
        Ok(Self {
            address: trimmed("address")?,
            // The token is stored with its line breaks, because the key of an HMAC includes them, as in Flux.
            token: text("token")?,
            username,
            password,
            headers: match data.get("headers") {
                Some(headers) => read_headers(headers).map_err(|problem| format!("headers: {problem}"))?,
                None => Vec::new(),
            },
            proxy: trimmed("proxy")?,
        })
    }

    /// Returns the token without white space around it.
    pub(super) fn find_token(&self) -> Option<&str> {
        self.token.as_deref().map(str::trim).filter(|token| !token.is_empty())
    }

    /// Returns the address of the proxy in the Secret, which is Flux's older alternative to `spec.proxySecretRef`.
    #[must_use]
    pub fn find_proxy(&self) -> Option<&str> {
        self.proxy.as_deref().filter(|proxy| !proxy.is_empty())
    }
}

fn read_headers(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let Some(value) = read_yaml(text)? else {
        return Ok(Vec::new());
    };
    let map = value.as_object().ok_or("it is not a map of names to values")?;
    if map.len() > HEADERS {
        return Err(format!("it has more than {HEADERS} entries"));
    }
    let mut headers = Vec::new();
    let mut bytes = 0;
    for (name, value) in map {
        let value = value.as_str().ok_or("a value is not a string: quote it")?;
        bytes += name.len() + value.len();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("a name is not valid for a header".to_owned());
        }
        let lower = name.to_ascii_lowercase();
        if REFUSED_HEADERS.contains(&lower.as_str()) {
            return Err(format!("{lower} can't be set"));
        }
        // A line break in a value would begin another header.
        if !value
            .bytes()
            .all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7f))
        {
            return Err(format!("the value of {lower} holds what no header can"));
        }
        headers.push((lower, value.to_owned()));
    }
    if bytes > HEADER_BYTES {
        return Err(format!("it holds more than {HEADER_BYTES} bytes"));
    }
    Ok(headers)
}
