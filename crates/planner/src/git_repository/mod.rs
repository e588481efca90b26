//! GitRepositories as sources: their fields, and the request of a fetch.

mod include;
mod paths;
mod verify;

use tenure_api::artifact::Artifact;
use tenure_api::git_repository::GitRepositoryRef;
use tenure_api::{GitRepository, GitRepositorySpec, GitRepositoryStatus};

pub use self::include::{IncludedRepositories, IncludedRepository, find_included};
pub use tenure_remote_requests::git::{FetchRequest, IncludeRequest, Provider, VerifyMode, VerifyRequest};

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::list_limits::SPARSE_FOLDERS;
use crate::outcome::cut_to_seconds;
use crate::source::{
    self, FetchStep, Obstacle, RequestBasis, Source, SourceReference, SourceRefusal, SourceRefusalReason,
    implement_source_parts, implement_source_status, name_secrets,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// A plan for a GitRepository.
pub type Plan = source::Plan<GitRepository>;
/// The input of a plan for a GitRepository.
pub type Snapshot = source::Snapshot<GitRepository>;
/// A step of a plan for a GitRepository: the fetch of a revision.
pub type Step = source::Step<FetchRequest>;

impl FetchStep for FetchRequest {
    fn is_public(&self) -> bool {
        self.secret.is_none() && self.verify.is_none() && self.proxy.is_none()
    }

    fn describe(&self) -> String {
        self.url.shown()
    }
}

implement_source_status!(GitRepositoryStatus);

impl Source for GitRepository {
    type Status = GitRepositoryStatus;
    type Request = FetchRequest;
    type RelatedObjects = IncludedRepositories;

    const NAME: &'static str = "GitRepository";

    implement_source_parts!();

    fn list_unimplemented(&self) -> Vec<&'static str> {
        let spec = &self.spec;
        let set = [
            ("spec.provider: aws", spec.provider.as_deref() == Some("aws")),
            ("spec.provider: azure", spec.provider.as_deref() == Some("azure")),
            ("spec.serviceAccountName", spec.service_account_name.is_some()),
        ];
        set.into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(field, _)| field)
            .collect()
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        let known_scheme = ["http://", "https://", "ssh://"]
            .iter()
            .any(|scheme| self.spec.url.reveal().starts_with(scheme));
        if !known_scheme {
            return Err(SourceRefusal::invalid_url(
                "spec.url must begin with http://, https:// or ssh://",
            ));
        }
        read_provider(&self.spec)?;
        read_sparse(&self.spec.sparse_checkout)?;
        read_verification(&self.spec)?;
        include::check_includes(&self.spec.include)
    }

    fn list_references(&self) -> Vec<SourceReference<'_>> {
        let spec = &self.spec;
        let keys = spec.verify.as_ref().map(|verify| &verify.secret_ref);
        let named = [
            ("spec.secretRef.name", spec.secret_ref.as_ref()),
            ("spec.verify.secretRef.name", keys),
            ("spec.proxySecretRef.name", spec.proxy_secret_ref.as_ref()),
        ];
        name_secrets(named).collect()
    }

    fn check_beside(&self, beside: &IncludedRepositories) -> Result<(), Obstacle> {
        include::check_beside(&self.spec.include, beside)
    }

    fn mark_beside(beside: &IncludedRepositories) -> String {
        include::write_mark(beside)
    }

    fn write_request(&self, basis: RequestBasis, beside: &IncludedRepositories) -> FetchRequest {
        let spec = &self.spec;
        let reference = spec.reference.clone().unwrap_or_default();
        let nothing_named = GitRepositoryRef::default() == reference;
        FetchRequest {
            url: spec.url.clone(),
            reference: if nothing_named {
                GitRepositoryRef {
                    branch: Some("master".to_owned()),
                    ..GitRepositoryRef::default()
                }
            } else {
                reference
            },
            provider: read_provider(spec).unwrap_or_default(),
            secret: spec.secret_ref.as_ref().map(|secret| secret.name.clone()),
            sparse: read_sparse(&spec.sparse_checkout).unwrap_or_default(),
            submodules: spec.recurse_submodules,
            include: include::write_requests(&spec.include, beside),
            proxy: spec.proxy_secret_ref.as_ref().map(|secret| secret.name.clone()),
            verify: read_verification(&self.spec).unwrap_or_default(),
            ignore: spec.ignore.clone(),
            timeout: basis.timeout,
            known: basis.known,
            platform: basis.platform,
        }
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some()
    }

    fn describe_verified(stored: &StoredArtifact) -> String {
        stored.verified.clone().unwrap_or_default()
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact for revision '{}'", stored.facts.revision)
    }

    fn describe_new(&self, stored: &StoredArtifact, subject: &str) -> String {
        if subject.is_empty() {
            Self::describe_stored(stored)
        } else {
            format!("stored artifact for commit '{subject}'")
        }
    }

    fn note_observed(
        &self,
        status: &mut GitRepositoryStatus,
        stored: &StoredArtifact,
        _included: &IncludedRepositories,
    ) {
        status.observed_include.clone_from(&self.spec.include);
        status.observed_recurse_submodules = self.spec.recurse_submodules;
        status.observed_sparse_checkout.clone_from(&self.spec.sparse_checkout);
        let included = stored.included.iter().map(|included| Artifact {
            digest: Some(included.facts.digest.clone()),
            last_update_time: cut_to_seconds(included.stored_at.unwrap_or_default()),
            metadata: None,
            path: included.path.clone(),
            revision: included.facts.revision.clone(),
            size: i64::try_from(included.size).ok(),
            url: String::new(),
        });
        status.included_artifacts = included.collect();
        let verified = read_verification(&self.spec).ok().flatten();
        status.source_verification_mode = verified.map(|verified| verified.mode.as_str().to_owned());
    }
}

/// Reads `spec.provider`: the kind of credentials for the Git host.
fn read_provider(spec: &GitRepositorySpec) -> Result<Provider, SourceRefusal> {
    match spec.provider.as_deref() {
        None | Some("" | "generic") => Ok(Provider::Generic),
        Some("github") if spec.secret_ref.is_none() => Err(SourceRefusal {
            reason: SourceRefusalReason::InvalidProviderConfiguration,
            message:
                "secretRef with github app data must be specified when provider is set to github: set spec.secretRef"
                    .to_owned(),
        }),
        Some("github") if spec.url.reveal().starts_with("ssh://") => Err(SourceRefusal {
            reason: SourceRefusalReason::InvalidProviderConfiguration,
            message: "spec.provider github needs an https URL: a GitHub App has no ssh key".to_owned(),
        }),
        Some("github") => Ok(Provider::GitHub),
        Some(_) => Err(SourceRefusal::invalid("spec.provider must be generic or github")),
    }
}

/// Reads `spec.verify`: the commit or the tag that must be signed.
fn read_verification(spec: &GitRepositorySpec) -> Result<Option<VerifyRequest>, SourceRefusal> {
    verify::read_verification(spec.verify.as_ref(), spec.reference.as_ref())
}

/// Reads `spec.sparseCheckout`: the folders to fetch. An empty list means all folders.
fn read_sparse(folders: &[String]) -> Result<Vec<String>, SourceRefusal> {
    if folders.len() > SPARSE_FOLDERS {
        return Err(SourceRefusal::invalid(format!(
            "spec.sparseCheckout has {} entries, and may have {SPARSE_FOLDERS}",
            folders.len()
        )));
    }
    let mut read = Vec::with_capacity(folders.len());
    for (index, folder) in folders.iter().enumerate() {
        let path = paths::read_path(&format!("spec.sparseCheckout[{index}]"), folder)?;
        if path.is_empty() {
            // The root of the repository includes all folders.
            return Ok(Vec::new());
        }
        read.push(path);
    }
    Ok(read)
}
