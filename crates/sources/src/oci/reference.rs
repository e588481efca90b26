//! The request for an artifact of a registry: the planner's request, read and complete, before any connection. Pure.
//!
//! Checks addresses, tags and digests. An address that Docker would complete by guessing is refused: `oci://team/app` could mean Docker Hub, or a host called `team`.

use std::fmt;

use go_words::version::Range;
use regex::Regex;
use tenure_api::oci_repository::OciRepositoryRef;
use tenure_remote_requests::oci::FetchRequest;

use super::cosign::PublicKey;
use super::credentials::Keychain;
use super::error::OciError;
use crate::artifact::SourceKey;
use crate::policy::{Endpoint, Scheme};
use crate::proxy::Proxy;
use crate::secret::{self, SecretData, TlsOptions};

/// Bytes that a compiled `semverFilter` may take.
const FILTER_BYTES: usize = 64 << 10;

/// A complete request for an artifact of a registry: the planner's request, with the address, credentials and keys that were read from it and its Secrets. Its `Debug`
/// shows no credential.
#[derive(Debug, Clone)]
pub struct OciRequest {
    /// The source that the artifact belongs to.
    pub source: SourceKey,
    /// The planner's request.
    pub asked: FetchRequest,
    /// The address of the repository.
    pub url: RepositoryUrl,
    /// The artifact in the repository.
    pub reference: ArtifactReference,
    pub(crate) keychain: Keychain,
    pub(crate) tls: TlsOptions,
    /// The proxy, if the request names one.
    pub(crate) proxy: Option<Proxy>,
    /// The trusted keys, of which one must have signed the artifact; `None` if nothing is verified.
    pub(crate) keys: Option<Vec<PublicKey>>,
}

/// The data of the Secrets that a request names.
#[derive(Default)]
pub struct OciSecrets {
    /// Secrets with credentials: the one of `spec.secretRef` first, then the ServiceAccount's.
    pub credentials: Vec<SecretData>,
    /// The Secret of `spec.certSecretRef`.
    pub certificates: Option<SecretData>,
    /// The Secret of `spec.verify.secretRef`.
    pub keys: Option<SecretData>,
    /// The Secret of `spec.proxySecretRef`.
    pub proxy: Option<SecretData>,
}

/// A repository in a registry. `Display` is `host/path`, which is safe in any message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryUrl {
    endpoint: Endpoint,
    path: String,
}

/// How a request selects the artifact of a repository: `spec.ref`, with Flux's precedence digest > semver > tag.
#[derive(Debug, Clone)]
pub enum ArtifactReference {
    /// Exactly this artifact.
    Digest(Digest),
    /// The highest tag in a range of versions.
    Semver {
        /// The range.
        range: Range,
        /// A filter that tags must match.
        filter: Option<Regex>,
    },
    /// The target of a tag.
    Tag(String),
}

/// A digest `sha256:<hex>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

impl Digest {
    /// Reads a digest; other algorithms are not supported.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    /// Makes a digest of a finished hash.
    pub(crate) fn from_hash(hash: impl AsRef<[u8]>) -> Self {
        Self(format!("sha256:{}", hex::encode(hash)))
    }

    /// Returns the digest as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hex digits.
    pub(crate) fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or_default()
    }

    /// Returns the tag of cosign's signatures for this digest.
    pub(crate) fn signature_tag(&self) -> String {
        format!("{}.sig", self.referrers_tag())
    }

    /// Returns the tag of the list of referrers, for a registry without the referrers API (OCI Distribution 1.1, referrers tag schema).
    pub(crate) fn referrers_tag(&self) -> String {
        self.0.replacen(':', "-", 1)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RepositoryUrl {
    /// Reads `oci://host[:port]/path`.
    ///
    /// # Errors
    /// [`OciError::InvalidUrl`] for any other form, a tag or digest at the end, or a first part that is no host.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, OciError> {
        let shown = tenure_api::SourceUrl::new(text).shown();
        let invalid = |problem: &str| OciError::InvalidUrl {
            url: shown.clone(),
            problem: problem.to_owned(),
        };
        let rest = text
            .strip_prefix("oci://")
            .ok_or_else(|| invalid("write oci://host/path"))?;
        let (authority, path) = rest
            .split_once('/')
            .ok_or_else(|| invalid("it names no repository; write oci://host/path"))?;
        if authority.contains('@') {
            return Err(invalid(
                "it holds a user; put credentials into the Secret of spec.secretRef",
            ));
        }
        let scheme = if insecure { Scheme::Http } else { Scheme::Https };
        let endpoint: Endpoint = format!("{}://{authority}", scheme.as_str())
            .parse()
            .map_err(|_| invalid("its host is no host name, or its port no port"))?;
        let is_host = authority.contains(['.', ':']) || authority == "localhost";
        if !is_host {
            return Err(invalid(
                "its first part is no host of a registry; for Docker Hub write oci://docker.io/path",
            ));
        }
        if path.contains('@') {
            return Err(invalid("it holds a digest; put it into spec.ref.digest"));
        }
        if path.contains(':') {
            return Err(invalid("it holds a tag; put it into spec.ref.tag"));
        }
        let is_part = |part: &str| {
            let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
            let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            part.bytes().all(known) && edge(part.bytes().next()) && edge(part.bytes().last())
        };
        if path.len() > 255 || !path.split('/').all(is_part) {
            return Err(invalid(
                "its path is no repository: parts of small letters, digits, dots, dashes and underscores, with slashes between them",
            ));
        }
        // Docker Hub has several names, and its users leave out the folder `library`.
        let mut endpoint = endpoint;
        let is_hub = matches!(
            endpoint.host.as_str(),
            "docker.io" | "index.docker.io" | "registry-1.docker.io"
        );
        let path = if is_hub && !path.contains('/') {
            format!("library/{path}")
        } else {
            path.to_owned()
        };
        if endpoint.host == "docker.io" {
            "index.docker.io".clone_into(&mut endpoint.host);
        }
        Ok(Self { endpoint, path })
    }

    /// Returns scheme, host and port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the path of the repository in the registry.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { scheme, host, port } = &self.endpoint;
        if *port == scheme.default_port() {
            write!(f, "{host}/{}", self.path)
        } else {
            write!(f, "{host}:{port}/{}", self.path)
        }
    }
}

impl OciRequest {
    /// Reads the planner's request, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// An [`OciError`] that names the unusable field, or key of the Secret. The error contains no credential.
    pub fn read(source: SourceKey, asked: FetchRequest, secrets: &OciSecrets) -> Result<Self, OciError> {
        let url = RepositoryUrl::parse(asked.url.reveal(), asked.insecure)?;
        let reference = read_reference(&asked.reference)?;
        let tls = secret::read_tls(secrets.certificates.as_ref())?;
        let keys = secrets.keys.as_ref().map(PublicKey::read_all).transpose()?;
        if asked.keys.is_some() && keys.is_none() {
            return Err(OciError::InvalidSecret {
                field: "spec.verify.secretRef",
                problem: "it was not read".to_owned(),
            });
        }
        Ok(Self {
            source,
            url,
            reference,
            keychain: Keychain::read(&secrets.credentials)?,
            tls,
            proxy: Proxy::read_if_named(asked.proxy.is_some(), secrets.proxy.as_ref())?,
            keys,
            asked,
        })
    }
}

fn read_reference(spec: &OciRepositoryRef) -> Result<ArtifactReference, OciError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let invalid = |field, problem: String| OciError::InvalidField { field, problem };
    if let Some(digest) = given(&spec.digest) {
        let problem = "it must be sha256: and 64 hex digits in small letters";
        let digest = Digest::parse(&digest).ok_or_else(|| invalid("spec.ref.digest", problem.to_owned()))?;
        return Ok(ArtifactReference::Digest(digest));
    }
    if let Some(range) = given(&spec.semver) {
        let range = range
            .parse()
            .map_err(|problem| invalid("spec.ref.semver", format!("{problem}")))?;
        let filter = given(&spec.semver_filter)
            .map(|filter| read_filter(&filter))
            .transpose();
        let filter = filter.map_err(|problem| invalid("spec.ref.semverFilter", problem))?;
        return Ok(ArtifactReference::Semver { range, filter });
    }
    let tag = given(&spec.tag).unwrap_or_else(|| "latest".to_owned());
    if !is_tag(&tag) {
        let problem = "it must have at most 128 letters, digits, dots, dashes and underscores, and begin with none of dot and dash";
        return Err(invalid("spec.ref.tag", problem.to_owned()));
    }
    Ok(ArtifactReference::Tag(tag))
}

/// Checks whether a text may be a tag, so that it can't lead a request elsewhere.
pub(crate) fn is_tag(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(known) && !text.starts_with(['.', '-'])
}

/// Compiles a filter as Go reads it, within a bound, because the time of a match is proportional to the compiled size.
fn read_filter(filter: &str) -> Result<Regex, String> {
    let translated = go_words::pattern::translate(filter).map_err(|error| error.to_string())?;
    regex::RegexBuilder::new(&translated)
        .size_limit(FILTER_BYTES)
        .dfa_size_limit(FILTER_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            _ => "it is no regular expression".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        let read = |text: &str| RepositoryUrl::parse(text, false).map(|url| url.to_string());
        for (text, expected) in [
            ("oci://ghcr.io/a/b", "ghcr.io/a/b"),
            ("oci://Reg.Example:5000/a", "reg.example:5000/a"),
            ("oci://localhost/a", "localhost/a"),
            ("oci://docker.io/a", "index.docker.io/library/a"),
            ("oci://docker.io/a/b", "index.docker.io/a/b"),
            ("oci://registry-1.docker.io/a", "registry-1.docker.io/library/a"),
        ] {
            assert_eq!(read(text).unwrap_or_else(|error| error.to_string()), expected);
        }
        for (text, problem) in [
            ("https://ghcr.io/a", "write oci://host/path"),
            ("oci://ghcr.io", "it names no repository"),
            ("oci://team/app", "oci://docker.io/path"),
            ("oci://ghcr.io/a:v1", "spec.ref.tag"),
            ("oci://ghcr.io/a@sha256:1", "spec.ref.digest"),
            ("oci://user:sesame@ghcr.io/a", "it holds a user"),
            ("oci://ghcr.io/../a", "its path"),
            ("oci://ghcr.io/a/%2e%2e/b", "its path"),
            ("oci://ghcr.io/a?x=y", "its path"),
            ("oci://ghcr.io//a", "its path"),
            ("oci://ghcr.io/", "its path"),
            ("oci://ghcr.io/A", "its path"),
            ("oci://ghcr.io:0/a", "no port"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("sesame"), "{error}");
        }
        let plain = RepositoryUrl::parse("oci://reg.example/a", true).map(|url| url.endpoint().to_string());
        assert_eq!(plain.unwrap_or_default(), "http://reg.example:80");
    }

    #[test]
    fn references_have_fluxs_precedence() {
        let hex = "a".repeat(64);
        let digest = Some(format!("sha256:{hex}"));
        let all = OciRepositoryRef {
            digest: digest.clone(),
            semver: Some(">=1".to_owned()),
            semver_filter: None,
            tag: Some("v1".to_owned()),
        };
        let read = |reference: &OciRepositoryRef| read_reference(reference).map_err(|error| error.to_string());
        assert!(matches!(read(&all), Ok(ArtifactReference::Digest(_))));
        let semver = OciRepositoryRef {
            digest: None,
            ..all.clone()
        };
        assert!(matches!(read(&semver), Ok(ArtifactReference::Semver { .. })));
        let tag = OciRepositoryRef {
            semver: None,
            ..semver.clone()
        };
        assert!(matches!(read(&tag), Ok(ArtifactReference::Tag(tag)) if tag == "v1"));
        assert!(matches!(read(&OciRepositoryRef::default()), Ok(ArtifactReference::Tag(tag)) if tag == "latest"));
        for (reference, field) in [
            (
                OciRepositoryRef {
                    digest: Some("sha512:1".to_owned()),
                    ..all.clone()
                },
                "spec.ref.digest",
            ),
            (
                OciRepositoryRef {
                    semver: Some("><".to_owned()),
                    ..semver.clone()
                },
                "spec.ref.semver",
            ),
            (
                OciRepositoryRef {
                    semver_filter: Some("(".to_owned()),
                    ..semver.clone()
                },
                "spec.ref.semverFilter",
            ),
            (
                OciRepositoryRef {
                    semver_filter: Some("(a{1000}){1000}".to_owned()),
                    ..semver.clone()
                },
                "spec.ref.semverFilter",
            ),
            (
                OciRepositoryRef {
                    tag: Some("../v1".to_owned()),
                    ..tag
                },
                "spec.ref.tag",
            ),
        ] {
            let error = read(&reference).map(|_| ()).unwrap_err();
            assert!(error.contains(field), "{error}");
        }
    }
}
