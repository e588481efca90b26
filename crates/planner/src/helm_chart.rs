//! HelmCharts as sources: a chart of a HelmRepository, or in the files of a GitRepository or Bucket, with other default values if the spec names files of values.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::helm::{HelmChart, HelmChartStatus, HelmRepository};
use tenure_api::{DurationText, reason};
use tenure_remote_requests::composition::{FoundSource, SourceState};

pub use tenure_remote_requests::helm::{ChartOrigin, ChartRequest, RepositoryAccess};

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::helm_repository::{find_access, is_public, is_registry};
use crate::source::{
    self, FetchStep, Obstacle, RequestBasis, Source, SourceReference, SourceRefusal, SourceRefusalReason,
    SuccessReasons, TimingFields, implement_source_status, name_secrets,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// The longest time limit that a HelmRepository can set.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Digits of a revision in a version.
const REVISION_DIGITS: usize = 12;
/// The file of a chart's default values.
const VALUES_FILE: &str = "values.yaml";

/// A plan for a HelmChart.
pub type Plan = source::Plan<HelmChart>;
/// The input of a plan for a HelmChart.
pub type Snapshot = source::Snapshot<HelmChart>;
/// A step of a plan for a HelmChart: the fetch of the chart.
pub type Step = source::Step<ChartRequest>;

/// The source of a HelmChart, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChartSource {
    /// No source has this name.
    #[default]
    NotFound,
    /// A HelmRepository.
    Repository(Box<FoundRepository>),
    /// A source whose files may have a chart.
    Files(Box<FoundSource>),
}

/// A HelmRepository, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FoundRepository {
    /// The address, with the names of the Secrets.
    pub access: RepositoryAccess,
    /// Whether it is a container registry.
    pub is_registry: bool,
    /// `spec.provider`.
    pub provider: Option<String>,
    /// `spec.timeout`.
    pub timeout: Option<DurationText>,
    /// The HelmRepository as a source. Its artifact is the index.
    pub index: FoundSource,
}

/// Finds the source that a HelmChart names. `find_repository` returns a HelmRepository of the namespace, and `find_state` whether a source of the namespace exists and has
/// an artifact.
pub fn find_chart_source<R: std::ops::Deref<Target = HelmRepository>>(
    chart: &HelmChart,
    find_repository: impl Fn(&str) -> Option<R>,
    find_state: impl Fn(&str, &str) -> SourceState,
) -> ChartSource {
    let named = &chart.spec.source_ref;
    let found = FoundSource {
        kind: named.kind.clone(),
        namespace: chart.metadata.namespace.clone().unwrap_or_default(),
        name: named.name.clone(),
        state: find_state(&named.kind, &named.name),
    };
    if named.kind != "HelmRepository" {
        return match found.state {
            SourceState::NotFound => ChartSource::NotFound,
            _ => ChartSource::Files(Box::new(found)),
        };
    }
    let Some(repository) = find_repository(&named.name) else {
        return ChartSource::NotFound;
    };
    ChartSource::Repository(Box::new(FoundRepository {
        access: find_access(&repository),
        is_registry: is_registry(&repository),
        provider: repository.spec.provider.clone(),
        timeout: repository.spec.timeout.clone(),
        index: found,
    }))
}

impl ChartSource {
    /// Returns the source as one with an artifact; `None` for a registry.
    fn find_source(&self) -> Option<&FoundSource> {
        match self {
            Self::NotFound => None,
            Self::Repository(found) => (!found.is_registry).then_some(&found.index),
            Self::Files(found) => Some(found),
        }
    }

    /// Returns the revision of the source's artifact, if it has one.
    fn find_revision(&self) -> Option<&str> {
        let (_, artifact) = self.find_source()?.stored()?;
        Some(&artifact.facts.revision)
    }
}

impl FetchStep for ChartRequest {
    fn is_public(&self) -> bool {
        match &self.origin {
            ChartOrigin::Index { repository, .. } => is_public(repository),
            ChartOrigin::Registry { repository, keys, .. } => keys.is_none() && is_public(repository),
            ChartOrigin::Files(_) => true,
        }
    }

    fn describe(&self) -> String {
        let place = match &self.origin {
            ChartOrigin::Index { repository, .. } | ChartOrigin::Registry { repository, .. } => repository.url.shown(),
            ChartOrigin::Files(found) => found.describe(),
        };
        format!("{} of {place}", self.chart)
    }
}

implement_source_status!(HelmChartStatus, without ignore);

impl Source for HelmChart {
    type Status = HelmChartStatus;
    type Request = ChartRequest;
    type RelatedObjects = ChartSource;

    const NAME: &'static str = "HelmChart";
    const UNAVAILABLE: &'static str = tenure_api::condition::FETCH_FAILED;

    fn metadata(&self) -> &tenure_api::ObjectMeta {
        &self.metadata
    }

    fn status(&self) -> Option<&HelmChartStatus> {
        self.status.as_ref()
    }

    fn timing(&self) -> TimingFields<'_> {
        TimingFields {
            suspend: self.spec.suspend,
            interval: &self.spec.interval,
            timeout: None,
            ignore: None,
        }
    }

    fn list_unimplemented(&self) -> Vec<&'static str> {
        let mut fields = Vec::new();
        if let Some(verify) = &self.spec.verify {
            match verify.provider.as_str() {
                "" | "cosign" => {}
                "notation" => fields.push("spec.verify.provider: notation"),
                _ => fields.push("spec.verify.provider"),
            }
            if !verify.match_oidc_identity.is_empty() {
                fields.push("spec.verify.matchOIDCIdentity");
            }
        }
        fields
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        let spec = &self.spec;
        let kind = spec.source_ref.kind.as_str();
        if !matches!(kind, "HelmRepository" | "GitRepository" | "Bucket") {
            return Err(SourceRefusal {
                reason: SourceRefusalReason::UnsupportedSourceKind,
                message: format!(
                    "spec.sourceRef.kind: {kind:?} has no charts; use HelmRepository, GitRepository or Bucket"
                ),
            });
        }
        let refuse = |message: &str| {
            Err(SourceRefusal {
                reason: SourceRefusalReason::InvalidChartReference,
                message: format!("invalid chart reference: {message}"),
            })
        };
        if spec.chart.is_empty() {
            return refuse("spec.chart is empty; write the name of the chart, or its path in the source");
        }
        if kind == "HelmRepository" && !is_chart_name(&spec.chart) {
            return refuse("spec.chart must be small letters and digits, with dashes, dots and slashes between them");
        }
        if spec.verify.as_ref().is_some_and(|verify| verify.secret_ref.is_none()) {
            return Err(SourceRefusal::unsupported(
                "spec.verify.secretRef is missing, and signatures without keys are not supported yet: name a Secret with the public keys of \
                 trusted authors, under names that end in .pub",
            ));
        }
        Ok(())
    }

    fn list_references(&self) -> Vec<SourceReference<'_>> {
        let keys = self.spec.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
        name_secrets([("spec.verify.secretRef.name", keys)]).collect()
    }

    fn list_references_beside(beside: &ChartSource) -> Vec<SourceReference<'_>> {
        let ChartSource::Repository(found) = beside else {
            return Vec::new();
        };
        let named = [
            ("spec.secretRef.name of the HelmRepository", &found.access.secret),
            (
                "spec.certSecretRef.name of the HelmRepository",
                &found.access.certificates,
            ),
        ];
        named
            .into_iter()
            .filter_map(|(field, name)| {
                Some(SourceReference {
                    field,
                    kind: "Secret",
                    name: name.as_deref()?,
                })
            })
            .collect()
    }

    fn check_beside(&self, beside: &ChartSource) -> Result<(), Obstacle> {
        let named = &self.spec.source_ref;
        if let ChartSource::Repository(found) = beside {
            check_repository(found, self.spec.verify.is_some())?;
        }
        if *beside == ChartSource::NotFound {
            return Err(Obstacle::Unavailable {
                reason: reason::SOURCE_UNAVAILABLE,
                message: format!("failed to get source: {} '{}' not found", named.kind, named.name),
            });
        }
        match beside.find_source() {
            Some(source) if source.stored().is_none() => Err(Obstacle::Unavailable {
                reason: reason::NO_SOURCE_ARTIFACT,
                message: format!("no artifact available for {} source '{}'", named.kind, named.name),
            }),
            _ => Ok(()),
        }
    }

    fn mark_beside(beside: &ChartSource) -> String {
        let access = match beside {
            ChartSource::Repository(found) => found.access.url.reveal(),
            ChartSource::NotFound | ChartSource::Files(_) => "",
        };
        // The printed form of an address has no password.
        tenure_api::digest::digest_value(&serde_json::json!({ "source": beside, "url": access }))
    }

    fn write_request(&self, basis: RequestBasis, beside: &ChartSource) -> ChartRequest {
        let spec = &self.spec;
        let version = spec.version.clone().unwrap_or_default();
        let (origin, timeout) = match beside {
            ChartSource::Repository(found) => {
                let repository = found.access.clone();
                let keys = spec.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
                let origin = if found.is_registry {
                    ChartOrigin::Registry {
                        repository,
                        version,
                        keys: keys.map(|named| named.name.clone()),
                    }
                } else {
                    ChartOrigin::Index {
                        repository,
                        index: found.index.clone(),
                        version,
                    }
                };
                (origin, found.timeout.as_ref())
            }
            ChartSource::Files(found) => (ChartOrigin::Files(found.as_ref().clone()), None),
            // This request is never sent: `check_beside` has returned an obstacle.
            ChartSource::NotFound => (ChartOrigin::Files(FoundSource::default()), None),
        };
        let timeout = timeout.and_then(|timeout| timeout.parse().ok());
        let values_files = list_values_files(&spec.values_files);
        ChartRequest {
            chart: spec.chart.clone(),
            version_metadata: find_version_metadata(self, beside, !values_files.is_empty()),
            values_files: values_files.to_vec(),
            origin,
            ignores_missing_values_files: spec.ignore_missing_values_files,
            generation: self.metadata.generation,
            timeout: timeout.map_or(basis.timeout, |timeout: Duration| timeout.min(LONGEST_TIMEOUT)),
            known: basis.known,
            platform: basis.platform,
        }
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some()
    }

    fn describe_verified(stored: &StoredArtifact) -> String {
        format!("verified signature of version {}", stored.facts.revision)
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        let chart = stored.chart.clone().unwrap_or_default();
        chart.describe(&stored.facts.revision)
    }

    fn name_success(stored: &StoredArtifact) -> SuccessReasons {
        let is_packaged = stored.chart.as_ref().is_some_and(|chart| chart.is_packaged);
        let name = if is_packaged {
            reason::CHART_PACKAGE_SUCCEEDED
        } else {
            reason::CHART_PULL_SUCCEEDED
        };
        SuccessReasons {
            ready: name,
            event: name,
        }
    }

    fn describe_new(&self, stored: &StoredArtifact, _subject: &str) -> String {
        Self::describe_stored(stored)
    }

    fn note_observed(&self, status: &mut HelmChartStatus, stored: &StoredArtifact, beside: &ChartSource) {
        let chart = stored.chart.clone().unwrap_or_default();
        status.observed_chart_name = Some(chart.name);
        status.observed_source_artifact_revision = beside.find_revision().map(str::to_owned);
        status.observed_values_files = if self.spec.ignore_missing_values_files {
            chart.values_files
        } else {
            Vec::new()
        };
    }
}

/// Returns the build metadata of the chart's version, so that readers notice a change that the version itself doesn't show.
fn find_version_metadata(chart: &HelmChart, beside: &ChartSource, has_values_files: bool) -> Option<String> {
    let mut parts = Vec::new();
    if let ChartSource::Files(_) = beside
        && chart.spec.reconcile_strategy.as_deref() == Some("Revision")
        && let Some(revision) = beside.find_revision()
    {
        // A revision is `branch@sha1:<commit>`, or `sha256:<digest>` of a bucket.
        let hash = revision.rsplit(':').next().unwrap_or_default();
        parts.push(hash.chars().take(REVISION_DIGITS).collect::<String>());
    }
    if has_values_files {
        parts.push(chart.metadata.generation.unwrap_or_default().to_string());
    }
    (!parts.is_empty()).then(|| parts.join("."))
}

/// Returns the files of values. A list of `values.yaml` alone changes nothing, so it counts as none.
fn list_values_files(named: &[String]) -> &[String] {
    match named {
        [only]
            if only
                .split('/')
                .filter(|part| !matches!(*part, "" | "."))
                .eq([VALUES_FILE]) =>
        {
            &[]
        }
        named => named,
    }
}

/// Checks the form of a chart's name in a repository, as Flux does.
fn is_chart_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-./".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && part != "." && !part.contains("..");
    name.len() <= 255 && name.bytes().all(known) && name.split('/').all(is_part) && !name.starts_with('.')
}

/// Checks whether charts of a HelmRepository can be fetched.
fn check_repository(found: &FoundRepository, is_verified: bool) -> Result<(), Obstacle> {
    let name = &found.index.name;
    if !found.is_registry {
        if is_verified {
            return Err(Obstacle::Refused(SourceRefusal::unsupported(format!(
                "spec.verify: signatures are checked for a HelmRepository of type oci only, and {name} has an index: remove the field, or use a registry"
            ))));
        }
        return Ok(());
    }
    if !found.access.url.reveal().starts_with("oci://") {
        return Err(Obstacle::Refused(SourceRefusal::invalid_url(format!(
            "invalid OCI registry URL: spec.url of the HelmRepository {name} must begin with oci://"
        ))));
    }
    match found.provider.as_deref() {
        None | Some("" | "generic") => Ok(()),
        Some(provider) => Err(Obstacle::Refused(SourceRefusal::unsupported(format!(
            "spec.provider: {provider} of the HelmRepository {name} is set, which is not supported yet: name a Secret in its spec.secretRef"
        )))),
    }
}
