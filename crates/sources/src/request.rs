//! The request for a Git repository: the planner's request, read and complete, before any connection.
//!
//! Applies the precedence of references, and refuses names that git, or a server, could read as something else. The planner decides which fields may be set.

use go_words::version::Range;
use tenure_api::git_repository::GitRepositoryRef;
use tenure_remote_requests::git::{FetchRequest, IncludeRequest, Provider};

use crate::artifact::SourceKey;
use crate::error::FetchError;
use crate::github_app::{self, AppTokens, GitHubApp};
use crate::proxy::Proxy;
use crate::secret::{self, Credentials, SecretData, TlsOptions};

use crate::url::RemoteUrl;
use crate::verify::TrustedSigners;

/// A complete request for a Git repository: the planner's request, with the address, credentials and keys that were read from it and its Secrets. Its `Debug` shows no
/// credential.
#[derive(Debug, Clone)]
pub struct GitRequest {
    /// The source that the artifact belongs to.
    pub source: SourceKey,
    /// The planner's request.
    pub asked: FetchRequest,
    /// The address of the repository.
    pub url: RemoteUrl,
    /// The commit of the repository.
    pub reference: Reference,
    /// The credentials for the server.
    pub credentials: Credentials,
    /// The certificates for TLS.
    pub tls: TlsOptions,
    /// The GitHub App that gets the credentials.
    pub(crate) app: Option<GitHubApp>,
    /// The existing tokens, only of sources of the same namespace.
    pub tokens: AppTokens,
    /// The proxy, if the request names one.
    pub proxy: Option<Proxy>,
    /// The trusted keys, if signatures are required.
    pub(crate) trusted: Option<TrustedSigners>,
    /// The sources of `asked.include`, in that order.
    pub included: Vec<SourceKey>,
}

/// The data of the Secrets that a request names.
#[derive(Debug, Clone, Default)]
pub struct GitSecrets {
    /// `spec.secretRef`.
    pub credentials: Option<SecretData>,
    /// `spec.verify.secretRef`.
    pub keys: Option<SecretData>,
    /// `spec.proxySecretRef`.
    pub proxy: Option<SecretData>,
}

/// How a request selects the commit of a repository: `spec.ref`, with Flux's precedence commit > name > semver > tag > branch.
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
    /// A commit, and its branch if one is given.
    Commit {
        /// The full commit id in hex.
        id: String,
        /// `spec.ref.branch`; part of the revision then.
        branch: Option<String>,
    },
}

impl GitRequest {
    /// Reads the planner's request, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// A [`FetchError`] that names the unusable field, or key of the Secret. The error contains no credential.
    pub fn read(source: SourceKey, asked: FetchRequest, secrets: &GitSecrets) -> Result<Self, FetchError> {
        let url = RemoteUrl::parse(asked.url.reveal())?;
        let (credentials, tls, app) = read_credentials(&url, asked.provider, secrets.credentials.as_ref())?;
        let proxy = Proxy::read_if_named(asked.proxy.is_some(), secrets.proxy.as_ref())?;
        let trusted = match (&asked.verify, &secrets.keys) {
            (None, _) => None,
            (Some(verify), keys) => Some(TrustedSigners::read(verify.mode, keys.as_ref())?),
        };
        // Included sources are always looked up in the namespace of the including source.
        let find = |include: &IncludeRequest| {
            SourceKey::new(source.kind(), source.namespace(), &include.name, &include.uid).map_err(FetchError::from)
        };
        let included = asked.include.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self {
            source,
            url,
            reference: read_reference(&asked.reference)?,
            asked,
            credentials,
            tls,
            app,
            tokens: AppTokens::default(),
            proxy,
            trusted,
            included,
        })
    }
}

/// Reads the credentials for the server; for a GitHub App there are none yet.
fn read_credentials(
    url: &RemoteUrl,
    provider: Provider,
    secret: Option<&SecretData>,
) -> Result<(Credentials, TlsOptions, Option<GitHubApp>), FetchError> {
    if provider == Provider::GitHub {
        let app = GitHubApp::read(secret)?;
        return Ok((Credentials::Anonymous, secret::read_tls(secret)?, Some(app)));
    }
    if secret.is_some_and(github_app::is_app) {
        return Err(FetchError::InvalidProvider {
            problem: "spec.secretRef has github app data but provider is not set to github".to_owned(),
        });
    }
    let (credentials, tls) = secret::read_secret(url, secret)?;
    Ok((credentials, tls, None))
}

fn read_reference(spec: &GitRepositoryRef) -> Result<Reference, FetchError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let branch = given(&spec.branch);
    if let Some(branch) = &branch {
        check_name("spec.ref.branch", branch)?;
    }
    if let Some(id) = given(&spec.commit) {
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
    if let Some(name) = given(&spec.name) {
        check_name("spec.ref.name", &name)?;
        if !name.starts_with("refs/") && name != "HEAD" {
            return Err(FetchError::InvalidField {
                field: "spec.ref.name",
                problem: "it must be HEAD or start with refs/, as refs/heads/main".to_owned(),
            });
        }
        return Ok(Reference::Name(name));
    }
    if let Some(range) = given(&spec.semver) {
        let range = range.parse().map_err(|problem| FetchError::InvalidField {
            field: "spec.ref.semver",
            problem: format!("{problem}"),
        })?;
        return Ok(Reference::Semver(range));
    }
    if let Some(tag) = given(&spec.tag) {
        check_name("spec.ref.tag", &tag)?;
        return Ok(Reference::Tag(tag));
    }
    // Flux's default, git's older one.
    Ok(Reference::Branch(branch.unwrap_or_else(|| "master".to_owned())))
}

/// Checks the rules of `git check-ref-format`, and refuses a leading dash, so that no name can be read as an option or an expression.
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
