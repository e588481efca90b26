//! The address of an artifact for other clients: the URL in a status, in Flux's layout, and the way back from a request's path to the object. The module writes and
//! reads both forms, and decides which artifacts are served. Every path that it doesn't write itself is refused, so no path ever becomes the name of a file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tenure_api::artifact::Artifact;

use tenure_remote_requests::artifact::StoredArtifact;

/// The longest name of anything in Kubernetes.
const LONGEST_NAME: usize = 253;
/// The file extension of an archive.
const ENDING: &str = ".tar.gz";
/// The group of all kinds of sources.
const GROUP: &str = "source.toolkit.fluxcd.io";
/// The kinds and the resources for their rights. In a path, a kind is in lower case.
const KINDS: [(&str, &str); 6] = [
    ("GitRepository", "gitrepositories"),
    ("OCIRepository", "ocirepositories"),
    ("Bucket", "buckets"),
    ("ExternalArtifact", "externalartifacts"),
    ("HelmRepository", "helmrepositories"),
    ("HelmChart", "helmcharts"),
];

/// The artifact of an object, as an address names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactAddress {
    /// The kind of the object.
    pub kind: &'static str,
    /// The resource for the check of rights on the object.
    pub resource: &'static str,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// Digest of the archive, `sha256:<hex>`.
    pub digest: String,
}

impl ArtifactAddress {
    /// Returns the address of an object's artifact; nothing for an object that has no address.
    #[must_use]
    pub fn new(kind: &str, (namespace, name): (&str, &str), digest: &str) -> Option<Self> {
        let (kind, resource) = KINDS.into_iter().find(|(known, _)| *known == kind)?;
        let is_whole = is_name(namespace) && is_name(name) && is_digest(digest.strip_prefix("sha256:")?);
        is_whole.then(|| Self {
            kind,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            digest: digest.to_owned(),
        })
    }

    /// Reads the path of a request: `/<kind>/<namespace>/<name>/<hex>.tar.gz`, letter by letter, and nothing that merely means the same.
    #[must_use]
    pub fn read(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let (kind, namespace, name, file) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let (known, _) = KINDS
            .into_iter()
            .find(|(known, _)| known.to_ascii_lowercase() == kind)?;
        let hex = file.strip_suffix(ENDING)?;
        Self::new(known, (namespace, name), &format!("sha256:{hex}"))
    }

    /// Returns the group of the object's kind.
    #[must_use]
    pub fn group(&self) -> &'static str {
        GROUP
    }
}

/// Prints the address as it appears in a request.
impl fmt::Display for ArtifactAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.digest.trim_start_matches("sha256:");
        let kind = self.kind.to_ascii_lowercase();
        write!(formatter, "/{kind}/{}/{}/{hex}{ENDING}", self.namespace, self.name)
    }
}

/// Checks the names of namespaces and objects, which become folders.
fn is_name(name: &str) -> bool {
    let known = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    let edge = |letter: Option<u8>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    name.len() <= LONGEST_NAME && name.bytes().all(known) && edge(name.bytes().next()) && edge(name.bytes().last())
}

fn is_digest(hex: &str) -> bool {
    hex.len() == 64
        && hex
            .bytes()
            .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
}

/// The base URL of all artifacts for other clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArtifactBase(String);

/// The reason for which a text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address of artifacts: http:// or https://, a host, and a path if need be, are wanted, such as http://127.0.0.1:9090"
)]
pub struct ArtifactBaseError(String);

impl ArtifactBase {
    /// Writes the address of one artifact.
    #[must_use]
    pub fn write_url(&self, of: &ArtifactAddress) -> String {
        format!("{}{of}", self.0)
    }
}

impl FromStr for ArtifactBase {
    type Err = ArtifactBaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ArtifactBaseError(text.to_owned());
        let whole = text.trim_end_matches('/');
        let rest = whole.strip_prefix("https://").or_else(|| whole.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split('/').next()).ok_or_else(refuse)?;
        // Other clients read a status: the address must have no credentials, and no character that ends it early.
        let is_plain = whole
            .bytes()
            .all(|letter| letter.is_ascii_graphic() && !b"@?#\\%\"<>".contains(&letter));
        if host.is_empty() || !is_plain {
            return Err(refuse());
        }
        Ok(Self(whole.to_owned()))
    }
}

impl TryFrom<String> for ArtifactBase {
    type Error = ArtifactBaseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ArtifactBase> for String {
    fn from(base: ArtifactBase) -> Self {
        base.0
    }
}

impl fmt::Display for ArtifactBase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Checks whether an artifact may be served from the store of its object, which is not being deleted. The last stored artifact may be served. The previous one may be
/// served while the object's status still names it, so that a client with a fresh copy of the status still finds it. A forged status can name only artifacts that were
/// stored for its own object.
#[must_use]
pub fn is_served(
    address: &ArtifactAddress,
    is_deleted: bool,
    published: Option<&Artifact>,
    stored: Option<&StoredArtifact>,
) -> bool {
    let is_stored = stored.is_some_and(|stored| stored.facts.digest == address.digest);
    let is_published = published.is_some_and(|published| published.digest.as_deref() == Some(address.digest.as_str()));
    !is_deleted && (is_stored || is_published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_remote_requests::artifact::ArtifactFacts;

    fn hex() -> String {
        "0a".repeat(32)
    }

    #[test]
    fn only_exact_artifact_path_is_read() {
        let hex = hex();
        for (kind, written) in [
            ("GitRepository", "gitrepository"),
            ("OCIRepository", "ocirepository"),
            ("Bucket", "bucket"),
            ("ExternalArtifact", "externalartifact"),
            ("HelmRepository", "helmrepository"),
            ("HelmChart", "helmchart"),
        ] {
            let address = ArtifactAddress::new(kind, ("web", "app.v1"), &format!("sha256:{hex}")).expect("an address");
            assert_eq!(address.to_string(), format!("/{written}/web/app.v1/{hex}.tar.gz"));
            assert_eq!(ArtifactAddress::read(&address.to_string()), Some(address));
        }
        for path in [
            "",
            "/",
            "/gitrepository",
            "/gitrepository/",
            "/gitrepository/web/app",
            "/gitrepository/web/app/",
            "/gitrepository/web/app/latest.tar.gz",
            &format!("gitrepository/web/app/{hex}.tar.gz"),
            &format!("//gitrepository/web/app/{hex}.tar.gz"),
            &format!("/gitrepository/web/app/{hex}.tar.gz/"),
            &format!("/gitrepository/web/app/./{hex}.tar.gz"),
            &format!("/gitrepository/../web/{hex}.tar.gz"),
            &format!("/gitrepository/web/../{hex}.tar.gz"),
            &format!("/gitrepository/web/.../{hex}.tar.gz"),
            &format!("/gitrepository/web/app/../../{hex}.tar.gz"),
            &format!("/gitrepository/%2e%2e/app/{hex}.tar.gz"),
            &format!("/gitrepository/web%2fapp/x/{hex}.tar.gz"),
            &format!("/gitrepository/web\\app/x/{hex}.tar.gz"),
            &format!("/GitRepository/web/app/{hex}.tar.gz"),
            &format!("/helmrelease/web/app/{hex}.tar.gz"),
            &format!("/gitrepository/web/app/{}.tar.gz", hex.to_uppercase()),
            &format!("/gitrepository/web/app/{hex}0.tar.gz"),
            &format!("/gitrepository/web/app/{hex}.tar.gz.tar.gz"),
            &format!("/gitrepository/web/app/{hex}"),
            &format!("/gitrepository/web/{}/{hex}.tar.gz", "a".repeat(254)),
            &format!("/gitrepository/w\u{e4}b/app/{hex}.tar.gz"),
            &format!("/gitrepository/web\0/app/{hex}.tar.gz"),
        ] {
            assert_eq!(ArtifactAddress::read(path), None, "{path}");
        }
    }

    #[test]
    fn invalid_artifact_base_is_refused() {
        let base: ArtifactBase = "https://artifacts.example:8443/of/web/".parse().expect("an address");
        let address = ArtifactAddress::new("Bucket", ("web", "app"), &format!("sha256:{}", hex())).expect("an address");
        let url = format!("https://artifacts.example:8443/of/web/bucket/web/app/{}.tar.gz", hex());
        assert_eq!(base.write_url(&address), url);
        for text in [
            "",
            "artifacts.example",
            "ftp://artifacts.example",
            "http://",
            "http:///path",
            "http://user:word@artifacts.example",
            "http://artifacts.example?a=b",
            "http://artifacts.example#a",
            "http://artifacts.example/a b",
            "http://artifacts.example/%2e",
        ] {
            assert!(text.parse::<ArtifactBase>().is_err(), "{text}");
        }
    }

    #[test]
    fn stored_and_still_published_artifacts_are_served() {
        let address = ArtifactAddress::new("Bucket", ("web", "app"), &format!("sha256:{}", hex())).expect("an address");
        let publish = |digest: &str| Artifact {
            digest: Some(digest.to_owned()),
            last_update_time: crate::outcome::cut_to_seconds(jiff::Timestamp::UNIX_EPOCH),
            metadata: None,
            path: String::new(),
            revision: String::new(),
            size: None,
            url: String::new(),
        };
        let stored = |digest: &str| StoredArtifact {
            facts: ArtifactFacts {
                digest: digest.to_owned(),
                ..ArtifactFacts::default()
            },
            ..StoredArtifact::default()
        };
        let other = format!("sha256:{}", "0b".repeat(32));
        let this = address.digest.as_str();
        assert!(is_served(&address, false, Some(&publish(this)), Some(&stored(this))));
        // The artifact is stored, and its status is not written yet; another one follows.
        assert!(is_served(&address, false, Some(&publish(&other)), Some(&stored(this))));
        assert!(is_served(&address, false, None, Some(&stored(this))));
        assert!(is_served(&address, false, Some(&publish(this)), Some(&stored(&other))));
        // The previous artifact is not named any more, and the object is gone.
        assert!(!is_served(
            &address,
            false,
            Some(&publish(&other)),
            Some(&stored(&other))
        ));
        assert!(!is_served(&address, false, None, None));
        assert!(!is_served(&address, true, Some(&publish(this)), Some(&stored(this))));
    }
}
