//! Which credentials a Secret of type `kubernetes.io/dockerconfigjson` has for a host. Pure.
//!
//! Owns the forms that Docker writes: `auth`, `username` and `password`, `identitytoken`, `registrytoken`; and which entry is for which
//! host. Refuses to guess: an entry is for the one host, and port, that it names, except for the names that Docker Hub has.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::OciError;
use crate::policy::Endpoint;
use crate::secret::{Hidden, SecretData};

/// The key of such a Secret.
const CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of the form before it.
const OLD_CONFIG_KEY: &str = ".dockercfg";
/// What Docker calls its Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// How to prove who we are to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A user and a password.
    Basic { username: String, password: Hidden },
    /// A token that others are given for: OAuth 2's `refresh_token`.
    Identity(Hidden),
    /// A token for the registry itself.
    Registry(Hidden),
}

/// The entries of all Secrets, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keychain {
    entries: Vec<(String, Credential)>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Option<Auth>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Keychain {
    /// Reads the Secrets with credentials.
    pub(crate) fn read(secrets: &[SecretData]) -> Result<Self, OciError> {
        let mut entries = Vec::new();
        for secret in secrets {
            let Some(text) = secret.get(CONFIG_KEY) else {
                let problem = if secret.contains_key(OLD_CONFIG_KEY) {
                    ".dockercfg is not supported; make it of type kubernetes.io/dockerconfigjson"
                } else {
                    "it has no .dockerconfigjson; make it with kubectl create secret docker-registry"
                };
                return Err(problem_of(problem));
            };
            // What a parser says could quote the text; it is left out.
            let config: Config = serde_json::from_slice(text).map_err(|_| {
                problem_of(".dockerconfigjson is not the configuration of Docker: an object with auths")
            })?;
            for (host, auth) in config.auths {
                if let Some(credential) = auth.map(|auth| read_auth(&host, auth)).transpose()?.flatten() {
                    entries.push((normalize(&host), credential));
                }
            }
        }
        Ok(Self { entries })
    }

    /// The first entry for a host.
    pub(crate) fn find(&self, endpoint: &Endpoint) -> Option<&Credential> {
        let wanted = [
            format!("{}:{}", unify_hub(&endpoint.host), endpoint.port),
            unify_hub(&endpoint.host).to_owned(),
        ];
        let is_default = endpoint.port == endpoint.scheme.default_port();
        let candidates = if is_default {
            &wanted[..]
        } else {
            wanted.get(..1).unwrap_or_default()
        };
        let mut entries = self.entries.iter();
        entries
            .find(|(host, _)| candidates.contains(host))
            .map(|(_, credential)| credential)
    }
}

/// An entry; none if it says nothing.
fn read_auth(host: &str, auth: Auth) -> Result<Option<Credential>, OciError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let invalid = |what: &str| {
        problem_of(&format!(
            "the entry for {:?} in .dockerconfigjson {what}",
            shorten(host)
        ))
    };
    if let Some(token) = given(auth.registrytoken) {
        return Ok(Some(Credential::Registry(Hidden::new(token))));
    }
    if let Some(token) = given(auth.identitytoken) {
        return Ok(Some(Credential::Identity(Hidden::new(token))));
    }
    let (username, password) = match given(auth.auth) {
        Some(auth) => {
            let decoded = STANDARD.decode(auth.trim()).ok();
            let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = text.as_deref().and_then(|text| text.split_once(':'));
            let (username, password) =
                pair.ok_or_else(|| invalid("has an auth that is not user:password in base64"))?;
            (username.to_owned(), password.trim_matches('\0').to_owned())
        }
        None => match (given(auth.username), given(auth.password)) {
            (Some(username), Some(password)) => (username, password),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(invalid("has a username without password")),
            (None, Some(_)) => return Err(invalid("has a password without username")),
        },
    };
    if username.contains(':') {
        return Err(invalid("has a username with a colon"));
    }
    let password = Hidden::new(password);
    Ok(Some(Credential::Basic { username, password }))
}

/// `https://index.docker.io/v1/` as `index.docker.io`.
fn normalize(entry: &str) -> String {
    let rest = entry.split_once("://").map_or(entry, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default().to_ascii_lowercase();
    match host.split_once(':') {
        Some((name, port)) => format!("{}:{port}", unify_hub(name)),
        None => unify_hub(&host).to_owned(),
    }
}

fn unify_hub(host: &str) -> &str {
    match host {
        "docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => DOCKER_HUB,
        other => other,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

fn problem_of(problem: &str) -> OciError {
    OciError::InvalidSecret {
        field: "spec.secretRef, or one that the ServiceAccount names,",
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: &Value) -> Result<Keychain, String> {
        let data = SecretData::from([(CONFIG_KEY.to_owned(), config.to_string().into_bytes())]);
        Keychain::read(&[data]).map_err(|error| error.to_string())
    }

    fn find(keychain: &Keychain, endpoint: &str) -> Option<String> {
        let endpoint = endpoint.parse().ok()?;
        Some(match keychain.find(&endpoint)? {
            Credential::Basic { username, password } => format!("{username}:{}", password.reveal()),
            Credential::Identity(token) => format!("identity {}", token.reveal()),
            Credential::Registry(token) => format!("registry {}", token.reveal()),
        })
    }

    #[test]
    fn entries_are_for_the_host_that_they_name() {
        let keychain = read(&json!({ "auths": {
            "https://index.docker.io/v1/": { "auth": STANDARD.encode("hub:p:w") },
            "ghcr.io": { "username": "gh", "password": "x", "auth": "" },
            "reg.example:5000": { "username": "port", "password": "x" },
            "http://plain.example/v2/": { "username": "plain", "password": "x" },
            "azure.example": { "username": "00", "password": "", "identitytoken": "t" },
            "token.example": { "registrytoken": "t" },
            "empty.example": {}, "null.example": null,
        }}))
        .unwrap_or_default();
        for (endpoint, expected) in [
            ("https://index.docker.io", Some("hub:p:w")),
            ("https://registry-1.docker.io", Some("hub:p:w")),
            ("https://docker.io.evil.example", None),
            ("https://ghcr.io", Some("gh:x")),
            ("https://ghcr.io:444", None),
            ("https://a.ghcr.io", None),
            ("https://reg.example:5000", Some("port:x")),
            ("https://reg.example", None),
            ("http://plain.example", Some("plain:x")),
            ("https://azure.example", Some("identity t")),
            ("https://token.example", Some("registry t")),
            ("https://empty.example", None),
            ("https://null.example", None),
        ] {
            assert_eq!(find(&keychain, endpoint).as_deref(), expected, "{endpoint}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for (config, problem) in [
            (
                json!({ "auths": { "a.example": { "auth": "sesame" } } }),
                "is not user:password in base64",
            ),
            (
                json!({ "auths": { "a.example": { "username": "sesame" } } }),
                "username without password",
            ),
            (
                json!({ "auths": { "a.example": { "password": "sesame" } } }),
                "password without username",
            ),
            (json!({ "auths": "sesame" }), "not the configuration of Docker"),
        ] {
            let error = read(&config).map(|_| ()).unwrap_err();
            assert!(error.contains(problem) && !error.contains("sesame"), "{error}");
        }
        let other = SecretData::from([("username".to_owned(), b"sesame".to_vec())]);
        let error = Keychain::read(&[other]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("it has no .dockerconfigjson"), "{error}");
        let keychain = read(&json!({ "auths": { "a.example": { "username": "u", "password": "sesame" } } }));
        assert!(!format!("{keychain:?}").contains("sesame"));
    }
}
