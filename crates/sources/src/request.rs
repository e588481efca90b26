//! What to fetch: a GitRepository's specification, checked and complete, before anything is connected to.
//!
//! Owns the reading of `spec` and the precedence of its references. Refuses fields that are not implemented.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::artifact::SourceKey;
use crate::error::FetchError;
use crate::secret::{self, Credentials, SecretData, TlsOptions};
use crate::semver_range::Range;
use crate::url::RemoteUrl;

/// `spec.timeout` of a GitRepository that names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest `spec.timeout` accepted; a larger one would hold a worker for hours.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Everything that decides a fetch. Its `Debug` shows no credential.
#[derive(Debug, Clone)]
pub struct GitRequest {
    /// The object that the artifact belongs to.
    pub source: SourceKey,
    /// Where the repository is.
    pub url: RemoteUrl,
    /// Which commit of it.
    pub reference: Reference,
    /// How to prove who we are.
    pub credentials: Credentials,
    /// What TLS believes and shows.
    pub tls: TlsOptions,
    /// `spec.ignore`: patterns in `.gitignore` form, applied after those of `.sourceignore` files.
    pub ignore: Option<String>,
    /// How long the whole fetch may take.
    pub timeout: Duration,
}

/// Which commit of a repository is meant: `spec.ref`, with Flux's precedence commit > name > semver > tag > branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The tip of a branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The highest tag in a range of versions.
    Semver(Range),
    /// A reference by its full name, as `refs/pull/1/head`.
    Name(String),
    /// A commit, and the branch it is said to be on, if one is given.
    Commit {
        /// The full commit id in hex.
        id: String,
        /// `spec.ref.branch`; part of the revision then.
        branch: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    url: String,
    timeout: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<SpecReference>,
    ignore: Option<String>,
    secret_ref: Option<Value>,
    provider: Option<String>,
    verify: Option<Value>,
    proxy_secret_ref: Option<Value>,
    service_account_name: Option<String>,
    #[serde(default)]
    recurse_submodules: bool,
    #[serde(default)]
    include: Vec<Value>,
    #[serde(default)]
    sparse_checkout: Vec<Value>,
}

#[derive(Deserialize, Default)]
struct SpecReference {
    branch: Option<String>,
    tag: Option<String>,
    semver: Option<String>,
    name: Option<String>,
    commit: Option<String>,
}

impl GitRequest {
    /// Builds the request from the `spec` of a GitRepository and the data of the Secret that it names.
    ///
    /// # Errors
    /// A [`FetchError`] that names the field, or the key of the Secret, that can't be used. No credential is in it.
    pub fn from_spec(source: SourceKey, spec: &Value, secret: Option<&SecretData>) -> Result<Self, FetchError> {
        let spec = Spec::deserialize(spec).map_err(|problem| FetchError::InvalidField {
            field: "spec",
            problem: problem.to_string(),
        })?;
        spec.refuse_unsupported()?;
        if spec.secret_ref.is_some() && secret.is_none() {
            return Err(FetchError::InvalidSecret {
                problem: "it was not found or could not be read".to_owned(),
            });
        }
        let url = RemoteUrl::parse(&spec.url)?;
        let (credentials, tls) = secret::read(&url, secret)?;
        let timeout = match &spec.timeout {
            None => DEFAULT_TIMEOUT,
            Some(text) => duration(text)?,
        };
        let reference = reference(spec.reference.unwrap_or_default())?;
        Ok(Self {
            source,
            url,
            reference,
            credentials,
            tls,
            ignore: spec.ignore,
            timeout,
        })
    }
}

impl Spec {
    fn refuse_unsupported(&self) -> Result<(), FetchError> {
        let set = [
            ("spec.verify", self.verify.is_some()),
            ("spec.proxySecretRef", self.proxy_secret_ref.is_some()),
            ("spec.serviceAccountName", self.service_account_name.is_some()),
            ("spec.recurseSubmodules", self.recurse_submodules),
            ("spec.include", !self.include.is_empty()),
            ("spec.sparseCheckout", !self.sparse_checkout.is_empty()),
            (
                "spec.provider",
                self.provider.as_deref().is_some_and(|provider| provider != "generic"),
            ),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(FetchError::UnsupportedField { field }),
            None => Ok(()),
        }
    }
}

fn reference(spec: SpecReference) -> Result<Reference, FetchError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let branch = given(spec.branch);
    if let Some(branch) = &branch {
        check_name("spec.ref.branch", branch)?;
    }
    if let Some(id) = given(spec.commit) {
        if !matches!(id.len(), 40 | 64) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FetchError::InvalidField {
                field: "spec.ref.commit",
                problem: "it must be a full commit id of 40 (or 64) hex digits".to_owned(),
            });
        }
        return Ok(Reference::Commit {
            id: id.to_ascii_lowercase(),
            branch,
        });
    }
    if let Some(name) = given(spec.name) {
        check_name("spec.ref.name", &name)?;
        if !name.starts_with("refs/") && name != "HEAD" {
            return Err(FetchError::InvalidField {
                field: "spec.ref.name",
                problem: "it must be HEAD or start with refs/, as refs/heads/main".to_owned(),
            });
        }
        return Ok(Reference::Name(name));
    }
    if let Some(range) = given(spec.semver) {
        let range = range.parse().map_err(|problem| FetchError::InvalidField {
            field: "spec.ref.semver",
            problem: format!("{problem}"),
        })?;
        return Ok(Reference::Semver(range));
    }
    if let Some(tag) = given(spec.tag) {
        check_name("spec.ref.tag", &tag)?;
        return Ok(Reference::Tag(tag));
    }
    // Flux's default, which is git's old one.
    Ok(Reference::Branch(branch.unwrap_or_else(|| "master".to_owned())))
}

/// The rules of `git check-ref-format`, and no leading dash: nothing here may be read as an option or as an expression.
fn check_name(field: &'static str, name: &str) -> Result<(), FetchError> {
    let refuse = |problem: &str| {
        Err(FetchError::InvalidField {
            field,
            problem: format!("{problem} in a reference name"),
        })
    };
    if name.starts_with('-') {
        return refuse("a leading dash is not allowed");
    }
    if name
        .chars()
        .any(|c| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\'))
    {
        return refuse("spaces, control characters and any of ~^:?*[\\ are not allowed");
    }
    if name.contains("..") || name.contains("@{") || name == "@" || name.ends_with('.') {
        return refuse("\"..\", \"@{\" and a final dot are not allowed");
    }
    if name
        .split('/')
        .any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock"))
    {
        return refuse("parts that are empty, start with a dot or end with .lock are not allowed");
    }
    if name.len() > 512 {
        return refuse("more than 512 bytes are not allowed");
    }
    Ok(())
}

/// Reads a Go duration such as `1m30s`: units `ms`, `s`, `m`, `h`; greater than zero, at most an hour.
fn duration(text: &str) -> Result<Duration, FetchError> {
    let invalid = |problem: &str| FetchError::InvalidField {
        field: "spec.timeout",
        problem: format!("{problem}; write a duration such as 60s or 1m30s"),
    };
    let mut rest = text;
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(|| invalid("a unit is missing"))?;
        let (number, unit_and_rest) = rest.split_at(digits);
        let unit_end = unit_and_rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit_and_rest.len());
        let (unit, tail) = unit_and_rest.split_at(unit_end);
        let number: f64 = number.parse().map_err(|_| invalid("it is not a duration"))?;
        let factor = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid("it has an unknown unit")),
        };
        seconds += number * factor;
        rest = tail;
    }
    if seconds <= 0.0 {
        return Err(invalid("it is not greater than zero"));
    }
    if seconds > LONGEST_TIMEOUT.as_secs_f64() {
        return Err(invalid("it is longer than an hour"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid("it is not a duration"))
}
