//! What to fetch: what the planner asks for, read and complete, before anything is connected to.
//!
//! Owns the precedence of references, and refuses names that git, or a server, could read as something else. Which fields may be set is
//! the planner's.

use go_words::version::Range;
use tenure_api::git_repository::GitRepositoryRef;
use tenure_planner::git_repository::{FetchRequest, IncludeRequest, Provider};

use crate::artifact::SourceKey;
use crate::error::FetchError;
use crate::github_app::{self, AppTokens, GitHubApp};
use crate::proxy::Proxy;
use crate::secret::{self, Credentials, SecretData, TlsOptions};

use crate::url::RemoteUrl;
use crate::verify::Trusted;

/// What the planner asks for, and what was read of it and of its Secret: everything that decides a fetch. It is not the planner's, since it
/// holds credentials. Its `Debug` shows none.
#[derive(Debug, Clone)]
pub struct GitRequest {
    /// The object that the artifact belongs to.
    pub source: SourceKey,
    /// What is asked for.
    pub asked: FetchRequest,
    /// Where the repository is.
    pub url: RemoteUrl,
    /// Which commit of it.
    pub reference: Reference,
    /// How to prove who we are.
    pub credentials: Credentials,
    /// What TLS believes and shows.
    pub tls: TlsOptions,
    /// The GitHub App that gets the credentials.
    pub(crate) app: Option<GitHubApp>,
    /// The tokens that there are already, those of sources of the same namespace only.
    pub tokens: AppTokens,
    /// What stands between, if anything does.
    pub proxy: Option<Proxy>,
    /// Whose signatures are good, if any is needed.
    pub(crate) trusted: Option<Trusted>,
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

impl GitRequest {
    /// Reads what is asked for, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// A [`FetchError`] that names the field, or the key of the Secret, that can't be used. No credential is in it.
    pub fn read(source: SourceKey, asked: FetchRequest, secrets: &GitSecrets) -> Result<Self, FetchError> {
        let url = RemoteUrl::parse(asked.url.reveal())?;
        let (credentials, tls, app) = read_credentials(&url, asked.provider, secrets.credentials.as_ref())?;
        let proxy = Proxy::read_if_named(asked.proxy.is_some(), secrets.proxy.as_ref())?;
        let trusted = match (&asked.verify, &secrets.keys) {
            (None, _) => None,
            (Some(verify), keys) => Some(Trusted::read(verify.mode, keys.as_ref())?),
        };
        // Of the namespace of the source that includes them, whatever they are called.
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

/// What is shown to the server; nothing yet for a GitHub App.
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
