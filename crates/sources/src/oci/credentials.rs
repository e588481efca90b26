//! Finds the credentials for a repository in a Secret of type `kubernetes.io/dockerconfigjson`. Pure.
//!
//! Reads the forms that Docker writes: `auth`, `username` and `password`, `identitytoken`, `registrytoken`. Kubernetes' rules choose an entry: an entry names a host,
//! with `*` and `?` within a label, and the beginning of a path. The longest matching path wins. An unreadable entry is an error only for its own repositories.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::Value;

use super::error::OciError;
use crate::policy::Endpoint;
use crate::secret::{SecretBytes, SecretData};

/// The key of such a Secret.
const CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of the older form.
const OLD_CONFIG_KEY: &str = ".dockercfg";
/// Base64 with and without padding, as Kubernetes reads it.
const UNPADDED_TOO: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Docker's name for Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// A credential for the registry of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A user and a password.
    Basic { username: String, password: SecretBytes },
    /// A token to get other tokens: OAuth 2's `refresh_token`.
    Identity(SecretBytes),
    /// A token for the registry itself.
    Registry(SecretBytes),
}

/// The registry credentials of all Secrets of a request, in the order in which they are tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keychain {
    entries: Vec<Entry>,
}

/// A credential, and the repositories that it is for.
#[derive(Debug, Clone)]
struct Entry {
    pattern: Pattern,
    /// The credential, or the problem of the entry.
    credential: Result<Credential, String>,
}

/// The host and the path of the repositories for which an entry's credential is used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    /// The name of a host; labels may contain `*` and `?`.
    host: String,
    /// Port, if one is named.
    port: Option<String>,
    /// The beginning of the repository's path, with a slash in front; empty for all.
    path: String,
}

/// The content of a Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Value>,
}

/// The credential of one host in a [`Config`], in any of Docker's forms.
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
            // The parser's error could quote the text, so it is left out.
            let config: Config = serde_json::from_slice(text).map_err(|_| {
                problem_of(".dockerconfigjson is not the configuration of Docker: an object with auths")
            })?;
            let mut own = Vec::new();
            for (name, auth) in config.auths {
                let credential = match serde_json::from_value::<Option<Auth>>(auth) {
                    Ok(None) => continue,
                    Ok(Some(auth)) => match read_auth(&name, auth).transpose() {
                        Some(credential) => credential,
                        None => continue,
                    },
                    Err(_) => Err(describe_entry(&name, "is not an object with texts")),
                };
                let pattern = Pattern::read(&name);
                own.push(Entry { pattern, credential });
            }
            // As in Kubernetes: in the reverse order of their names, so that a longer path comes first, and a wildcard last.
            own.sort_by(|one, other| other.pattern.cmp(&one.pattern));
            entries.append(&mut own);
        }
        Ok(Self { entries })
    }

    /// Returns the first entry for a path at a host.
    ///
    /// # Errors
    /// [`OciError::InvalidSecret`] when this entry can't be read.
    pub(crate) fn find(&self, endpoint: &Endpoint, path: &str) -> Result<Option<&Credential>, OciError> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.pattern.is_for(endpoint, path));
        match entry.map(|entry| &entry.credential) {
            None => Ok(None),
            Some(Ok(credential)) => Ok(Some(credential)),
            Some(Err(problem)) => Err(problem_of(problem)),
        }
    }
}

impl Pattern {
    /// Reads the name of an entry, for instance `https://index.docker.io/v1/` as `index.docker.io`.
    fn read(entry: &str) -> Self {
        let rest = entry.split_once("://").map_or(entry, |(_, rest)| rest);
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match host.split_once(':') {
            Some((host, port)) => (host, Some(port.to_owned())),
            None => (host, None),
        };
        // The version of the registry API is not part of a repository's path.
        let interface = ["/v1/", "/v2/"].iter().any(|prefix| path.starts_with(prefix));
        let path = if interface {
            path.get(3..).unwrap_or_default()
        } else {
            path
        };
        Self {
            host: unify_hub(&host.to_ascii_lowercase()).to_owned(),
            port,
            path: if path == "/" { String::new() } else { path.to_owned() },
        }
    }

    /// Checks whether the pattern matches a repository.
    fn is_for(&self, endpoint: &Endpoint, path: &str) -> bool {
        let is_port = match &self.port {
            Some(port) => *port == endpoint.port.to_string(),
            None => endpoint.port == endpoint.scheme.default_port(),
        };
        let host = unify_hub(&endpoint.host);
        let (wanted, has) = (self.host.split('.'), host.split('.'));
        let is_host = wanted.clone().count() == has.clone().count()
            && wanted.zip(has).all(|(one, label)| matches_label(one, label));
        is_port && is_host && format!("/{path}").starts_with(&self.path)
    }
}

/// Checks whether a label of a host matches a pattern with `*` and `?`.
fn matches_label(pattern: &str, label: &str) -> bool {
    let (pattern, label) = (pattern.as_bytes(), label.as_bytes());
    let (mut at, mut from) = (0, 0);
    // The position of the last star, and the length of the label before its end.
    let mut star: Option<(usize, usize)> = None;
    while from < label.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(letter) if *letter == b'?' || Some(letter) == label.get(from) => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                from = taken + 1;
            }
        }
    }
    pattern
        .get(at..)
        .unwrap_or_default()
        .iter()
        .all(|letter| *letter == b'*')
}

/// Reads the credential of an entry; `None` if it has none.
fn read_auth(name: &str, auth: Auth) -> Result<Option<Credential>, String> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let invalid = |what: &str| describe_entry(name, what);
    if let Some(token) = given(auth.registrytoken) {
        return Ok(Some(Credential::Registry(SecretBytes::new(token))));
    }
    if let Some(token) = given(auth.identitytoken) {
        return Ok(Some(Credential::Identity(SecretBytes::new(token))));
    }
    let (username, password) = match given(auth.auth) {
        Some(auth) => {
            let decoded = UNPADDED_TOO.decode(auth.trim()).ok();
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
    let password = SecretBytes::new(password);
    Ok(Some(Credential::Basic { username, password }))
}

/// Replaces any name of Docker Hub by [`DOCKER_HUB`].
fn unify_hub(host: &str) -> &str {
    match host {
        "docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => DOCKER_HUB,
        other => other,
    }
}

fn describe_entry(name: &str, what: &str) -> String {
    format!("the entry for {:?} in .dockerconfigjson {what}", shorten_name(name))
}

fn shorten_name(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Returns the error for a Secret with credentials that can't be read.
fn problem_of(problem: &str) -> OciError {
    OciError::InvalidSecret {
        field: "spec.secretRef, or one that the ServiceAccount names,",
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<Keychain, String> {
        let data = SecretData::from([(CONFIG_KEY.to_owned(), config.to_string().into_bytes())]);
        Keychain::read(&[data]).map_err(|error| error.to_string())
    }

    fn find(keychain: &Keychain, endpoint: &str) -> Option<String> {
        find_for(keychain, endpoint, "team/app")
    }

    fn find_for(keychain: &Keychain, endpoint: &str, path: &str) -> Option<String> {
        let endpoint = endpoint.parse().ok()?;
        let found = match keychain.find(&endpoint, path) {
            Ok(found) => found?,
            Err(error) => return Some(error.to_string()),
        };
        Some(match found {
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
    fn the_longest_path_wins_and_labels_may_have_wildcards() {
        let password = |name: &str| json!({ "username": name, "password": "x" });
        let keychain = read(&json!({ "auths": {
            "reg.example": password("all"), "reg.example/team-a": password("a"), "https://reg.example/v2/team-b/": password("b"),
            "reg.example/team-a/deep": password("deep"), "*.wild.example": password("wild"), "x?.wild.example": password("two"),
            "*.example:5000": password("port"), "unpadded.example": { "auth": STANDARD_NO_PAD.encode("user:pass1") },
        } }))
        .unwrap_or_default();
        for (endpoint, path, expected) in [
            ("https://reg.example", "team-a/app", Some("a:x")),
            ("https://reg.example", "team-a/deep/app", Some("deep:x")),
            ("https://reg.example", "team-b/app", Some("b:x")),
            ("https://reg.example", "team-c/app", Some("all:x")),
            ("https://a.wild.example", "app", Some("wild:x")),
            ("https://xy.wild.example", "app", Some("two:x")),
            ("https://wild.example", "app", None),
            ("https://a.b.wild.example", "app", None),
            ("https://any.example:5000", "app", Some("port:x")),
            ("https://any.example", "app", None),
            ("https://unpadded.example", "app", Some("user:pass1")),
        ] {
            assert_eq!(
                find_for(&keychain, endpoint, path).as_deref(),
                expected,
                "{endpoint} {path}"
            );
        }
        for (pattern, label, expected) in [
            ("*", "", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("?", "", false),
            ("", "", true),
        ] {
            assert_eq!(matches_label(pattern, label), expected, "{pattern} {label}");
        }
    }

    #[test]
    fn invalid_credentials_are_reported_without_the_secret() {
        let keychain = read(&json!({ "auths": {
            "a.example": { "auth": "sesame" }, "b.example": { "username": "sesame" }, "c.example": { "password": "sesame" },
            "d.example": "sesame", "e.example": { "username": "u", "password": "x" }, "a.example/team/good": { "username": "v", "password": "x" },
        } }))
        .unwrap_or_default();
        for (host, problem) in [
            ("a.example", "is not user:password in base64"),
            ("b.example", "username without password"),
            ("c.example", "password without username"),
            ("d.example", "is not an object with texts"),
        ] {
            let error = find(&keychain, &format!("https://{host}")).unwrap_or_default();
            assert!(error.contains(problem) && !error.contains("sesame"), "{error}");
        }
        // The other entries stay usable.
        assert_eq!(find(&keychain, "https://e.example").as_deref(), Some("u:x"));
        assert_eq!(
            find_for(&keychain, "https://a.example", "team/good/app").as_deref(),
            Some("v:x")
        );
        let error = read(&json!({ "auths": "sesame" })).map(|_| ()).unwrap_err();
        assert!(
            error.contains("not the configuration of Docker") && !error.contains("sesame"),
            "{error}"
        );
        let other = SecretData::from([("username".to_owned(), b"sesame".to_vec())]);
        let error = Keychain::read(&[other]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("it has no .dockerconfigjson"), "{error}");
        let keychain = read(&json!({ "auths": { "a.example": { "username": "u", "password": "sesame" } } }));
        assert!(!format!("{keychain:?}").contains("sesame"));
    }
}
