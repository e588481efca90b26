//! HelmRepositories as sources: their fields, and the request of a fetch. The artifact is the index of the repository.
//!
//! A HelmRepository of type `oci` has no index. It is an address with credentials, which HelmCharts use.

use std::sync::LazyLock;

use tenure_api::helm::{HelmRepository, HelmRepositoryStatus};
use tenure_api::{DurationText, ObjectMeta};

pub use tenure_remote_requests::helm::{IndexRequest, RepositoryAccess};

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::source::{
    self, FetchStep, RequestBasis, Source, SourceReference, SourceRefusal, TimingFields, implement_source_status,
    name_secrets,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// The interval if the spec sets none (Flux's).
static INTERVAL: LazyLock<DurationText> = LazyLock::new(|| DurationText("1m".to_owned()));

/// A plan for a HelmRepository.
pub type Plan = source::Plan<HelmRepository>;
/// The input of a plan for a HelmRepository.
pub type Snapshot = source::Snapshot<HelmRepository>;
/// A step of a plan for a HelmRepository: the fetch of its index.
pub type Step = source::Step<IndexRequest>;

impl FetchStep for IndexRequest {
    fn is_public(&self) -> bool {
        is_public(&self.repository)
    }

    fn describe(&self) -> String {
        self.repository.url.shown()
    }
}

/// Checks whether a request to a repository reads nothing in the cluster.
pub(crate) fn is_public(access: &RepositoryAccess) -> bool {
    access.secret.is_none() && access.certificates.is_none()
}

/// Checks whether a HelmRepository is a container registry.
#[must_use]
pub fn is_registry(repository: &HelmRepository) -> bool {
    repository.spec.repository_type.as_deref() == Some("oci")
}

/// Returns the address of a repository, with the names of its Secrets.
#[must_use]
pub fn find_access(repository: &HelmRepository) -> RepositoryAccess {
    let spec = &repository.spec;
    RepositoryAccess {
        url: spec.url.clone(),
        secret: spec.secret_ref.as_ref().map(|named| named.name.clone()),
        certificates: spec.cert_secret_ref.as_ref().map(|named| named.name.clone()),
        passes_credentials: spec.pass_credentials,
        insecure: spec.insecure,
    }
}

implement_source_status!(HelmRepositoryStatus, without ignore);

impl Source for HelmRepository {
    type Status = HelmRepositoryStatus;
    type Request = IndexRequest;
    type RelatedObjects = ();

    const NAME: &'static str = "HelmRepository";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn status(&self) -> Option<&HelmRepositoryStatus> {
        self.status.as_ref()
    }

    fn timing(&self) -> TimingFields<'_> {
        TimingFields {
            suspend: self.spec.suspend,
            interval: self.spec.interval.as_ref().unwrap_or(&INTERVAL),
            timeout: self.spec.timeout.as_ref(),
            ignore: None,
        }
    }

    fn is_static(&self) -> bool {
        is_registry(self)
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        let url = self.spec.url.reveal();
        if url.starts_with("oci://") {
            return Err(SourceRefusal::invalid_url(
                "invalid Helm repository URL: 'oci' URL scheme cannot be used with 'default' HelmRepository type: set spec.type to oci",
            ));
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(SourceRefusal::invalid_url(
                "invalid Helm repository URL: spec.url must begin with http://, https:// or oci://",
            ));
        }
        Ok(())
    }

    fn list_references(&self) -> Vec<SourceReference<'_>> {
        let spec = &self.spec;
        let named = [
            ("spec.secretRef.name", spec.secret_ref.as_ref()),
            ("spec.certSecretRef.name", spec.cert_secret_ref.as_ref()),
        ];
        name_secrets(named).collect()
    }

    fn write_request(&self, basis: RequestBasis, (): &()) -> IndexRequest {
        IndexRequest {
            repository: find_access(self),
            timeout: basis.timeout,
            known: basis.known,
            platform: basis.platform,
        }
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact: revision '{}'", stored.facts.revision)
    }

    fn describe_new(&self, stored: &StoredArtifact, _subject: &str) -> String {
        let (size, url) = (describe_size(stored.size), self.spec.url.shown());
        format!("stored fetched index of size {size} from '{url}'")
    }
}

/// Writes a size with four digits and a decimal unit, as Flux does.
fn describe_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    #[expect(clippy::cast_precision_loss, reason = "four digits are written")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit < UNITS.len() - 1 {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{}", UNITS.get(unit).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::describe_size;

    #[test]
    fn sizes_have_four_digits() {
        for (bytes, expected) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1kB"),
            (2345, "2.345kB"),
            (34_567, "34.57kB"),
            (50 << 20, "52.43MB"),
        ] {
            assert_eq!(describe_size(bytes), expected);
        }
    }
}
