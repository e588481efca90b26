//! ExternalArtifacts as sources: the files are composed, or taken from another controller, instead of fetched from an upstream.
//!
//! If `spec.sourceRef` names an ArtifactGenerator of the same namespace, the lane composes the artifact from the generator's recipe. The lane's own store says which
//! artifact exists, and never the status, which can be forged. The artifact of another controller is used only if an administrator has named the controller and the
//! allowed address. Any writer of its status chooses the rest, so the digest is what counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::condition::{self, Condition};
use tenure_api::{DurationText, ExternalArtifact, ExternalArtifactStatus, ObjectMeta, reason};
use tenure_tenancy::ExternalGrant;

pub use tenure_remote_requests::composition::ComposeRequest;
pub use tenure_remote_requests::download::DownloadRequest;

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::artifact_generator::{FoundSource, Recipe, SourceState, StoredRecipes};
use crate::oci_repository::ORIGIN_REVISION;
use crate::plan::Status;
use crate::source::{
    self, FetchStep, Obstacle, RequestBasis, Source, SourceRefusal, SourceStatus, StatusParts, TimingFields,
};
use tenure_remote_requests::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};

/// The interval of the check whether the stored artifact still exists (Flux's).
static INTERVAL: LazyLock<DurationText> = LazyLock::new(|| DurationText("1h".to_owned()));
/// The time limit of a composition, including the wait for capacity.
static TIMEOUT: LazyLock<DurationText> = LazyLock::new(|| DurationText("5m".to_owned()));
/// The pause between two changes. Generators of several namespaces may feed each other in a cycle that no lane sees; then each turn takes this long.
const PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of a revision.
const LONGEST_REVISION: usize = 512;

/// A plan for an ExternalArtifact.
pub type Plan = source::Plan<ExternalArtifact>;
/// The input of a plan for an ExternalArtifact.
pub type Snapshot = source::Snapshot<ExternalArtifact>;
/// A step of a plan for an ExternalArtifact: a composition or a download.
pub type Step = source::Step<FetchRequest>;

/// The maker of an ExternalArtifact's files, an ArtifactGenerator or another controller, and what it offers now. A text is the ArtifactGenerator's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArtifactMaker {
    /// The maker is not an ArtifactGenerator of the same namespace. The status holds its artifact.
    Elsewhere(StatusArtifact),
    /// `spec.sourceRef` names an ArtifactGenerator that doesn't exist.
    Missing(String),
    /// The ArtifactGenerator has not passed a recipe yet.
    #[serde(rename = "untold")]
    WithoutRecipe(String),
    /// The ArtifactGenerator is suspended.
    Suspended(String),
    /// The ArtifactGenerator can make no artifact; the second text is the reason.
    Failing(String, String),
    /// The ArtifactGenerator makes no artifact of this name.
    NotOf(String),
    /// The ArtifactGenerator has passed the recipe.
    #[serde(rename = "told")]
    WithRecipe(Box<Composition>),
}

impl Default for ArtifactMaker {
    fn default() -> Self {
        Self::Elsewhere(StatusArtifact::NotAllowed)
    }
}

/// The artifact in the status of an ExternalArtifact that another controller makes. Any writer of the status can have set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusArtifact {
    /// No administrator has named the controller: the status is not read.
    #[default]
    NotAllowed,
    /// The status has no artifact yet.
    Nothing,
    /// The status can't be used; the text is the reason.
    Unusable(String),
    /// The artifact, and its address below an allowed address.
    At {
        /// The address.
        url: String,
        /// The identity of the content.
        facts: ArtifactFacts,
    },
}

/// The recipe of an artifact, and the sources from which its files are copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Composition {
    /// The recipe.
    pub recipe: Recipe,
    /// The sources that the recipe names, by alias.
    pub sources: BTreeMap<String, FoundSource>,
}

/// Returns the name of the ArtifactGenerator that makes an ExternalArtifact, if `spec.sourceRef` names one of the same namespace.
#[must_use]
pub fn find_generator(artifact: &ExternalArtifact) -> Option<&str> {
    let named = artifact.spec.source_ref.as_ref()?;
    let group = named.api_version.as_deref().and_then(|version| version.split_once('/'));
    let is_ours =
        named.kind == "ArtifactGenerator" && group.is_none_or(|(group, _)| group == "source.extensions.fluxcd.io");
    let is_beside = named.namespace.is_none() || named.namespace == artifact.metadata.namespace;
    (is_ours && is_beside).then_some(named.name.as_str())
}

/// Finds the maker of an ExternalArtifact. `exists` checks whether an ArtifactGenerator exists. `find_recipes` returns the last recipes that an ArtifactGenerator
/// has passed.
pub fn find_maker<T: std::ops::Deref<Target = StoredRecipes>>(
    artifact: &ExternalArtifact,
    grants: &[ExternalGrant],
    exists: impl Fn(&str) -> bool,
    find_recipes: impl Fn(&str) -> Option<T>,
) -> ArtifactMaker {
    let Some(generator) = find_generator(artifact) else {
        return ArtifactMaker::Elsewhere(read_written(artifact, grants));
    };
    if !exists(generator) {
        return ArtifactMaker::Missing(generator.to_owned());
    }
    let Some(stored) = find_recipes(generator) else {
        return ArtifactMaker::WithoutRecipe(generator.to_owned());
    };
    if stored.is_suspended {
        return ArtifactMaker::Suspended(generator.to_owned());
    }
    if let Some(problem) = &stored.problem {
        return ArtifactMaker::Failing(generator.to_owned(), problem.clone());
    }
    let name = artifact.metadata.name.as_deref().unwrap_or_default();
    let Some(recipe) = stored.recipes.get(name) else {
        return ArtifactMaker::NotOf(generator.to_owned());
    };
    let find = |alias: &str| Some((alias.to_owned(), stored.sources.get(alias)?.clone()));
    ArtifactMaker::WithRecipe(Box::new(Composition {
        recipe: recipe.clone(),
        sources: recipe.list_aliases().filter_map(find).collect(),
    }))
}

/// Reads the artifact in a status, if an administrator has named the object.
fn read_written(artifact: &ExternalArtifact, grants: &[ExternalGrant]) -> StatusArtifact {
    let metadata = &artifact.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let named = grants
        .iter()
        .filter(|grant| grant.names(namespace.unwrap_or_default(), name.unwrap_or_default()));
    let named: Vec<&ExternalGrant> = named.collect();
    if named.is_empty() {
        return StatusArtifact::NotAllowed;
    }
    let Some(published) = artifact.status.as_ref().and_then(|status| status.artifact.as_ref()) else {
        return StatusArtifact::Nothing;
    };
    let unusable = |problem: &str| StatusArtifact::Unusable(format!("status.artifact.{problem}"));
    if !named.iter().any(|grant| grant.covers(&published.url)) {
        return unusable("url is not below an address that --allow-external-artifact names for it");
    }
    let is_hex = |hex: &str| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let digest = published.digest.as_deref().unwrap_or_default();
    if !digest.strip_prefix("sha256:").is_some_and(is_hex) {
        return unusable("digest must be sha256: and 64 digits: nothing else identifies the fetched artifact");
    }
    let is_text = |text: &str| text.len() <= LONGEST_REVISION && !text.chars().any(char::is_control);
    if published.revision.is_empty() || !is_text(&published.revision) {
        return unusable("revision is empty, too long, or no text");
    }
    let origin = published
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get(ORIGIN_REVISION));
    StatusArtifact::At {
        url: published.url.clone(),
        facts: ArtifactFacts {
            revision: published.revision.clone(),
            digest: digest.to_owned(),
            origin_revision: origin.filter(|origin| is_text(origin)).cloned(),
        },
    }
}

impl Composition {
    /// Lists the stored artifacts of the sources, by alias.
    fn list_artifacts(&self) -> BTreeMap<String, IncludedArtifact> {
        let stored =
            |(alias, source): (&String, &FoundSource)| Some((alias.clone(), source.find_artifact().ok()?.clone()));
        self.sources.iter().filter_map(stored).collect()
    }
}

/// The request of a fetch: a composition here, or a download of another controller's artifact.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FetchRequest {
    /// Compose the artifact here.
    Compose(ComposeRequest),
    /// Download the artifact of another controller.
    Download(DownloadRequest),
}

impl FetchStep for FetchRequest {
    fn is_public(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        match self {
            Self::Compose(request) => {
                let sources: Vec<String> = request.sources.values().map(FoundSource::describe).collect();
                crate::outcome::join_names(&sources, 200)
            }
            Self::Download(request) => request.url.clone(),
        }
    }
}

impl Status for ExternalArtifactStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl SourceStatus for ExternalArtifactStatus {
    fn parts(&mut self) -> StatusParts<'_> {
        StatusParts {
            artifact: &mut self.artifact,
            observed: None,
        }
    }

    fn observed_generation(&self) -> Option<i64> {
        condition::find(&self.conditions, condition::READY)?.observed_generation
    }

    fn last_handled(&self) -> Option<&str> {
        None
    }
}

impl Source for ExternalArtifact {
    type Status = ExternalArtifactStatus;
    type Request = FetchRequest;
    type RelatedObjects = ArtifactMaker;

    const NAME: &'static str = "ExternalArtifact";
    const UNAVAILABLE: &'static str = condition::FETCH_FAILED;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn status(&self) -> Option<&ExternalArtifactStatus> {
        self.status.as_ref()
    }

    fn timing(&self) -> TimingFields<'_> {
        TimingFields {
            suspend: false,
            interval: &INTERVAL,
            timeout: Some(&TIMEOUT),
            ignore: None,
        }
    }

    /// Users request a reconciliation of the generator instead.
    fn requested_at(&self) -> Option<String> {
        None
    }

    /// Checks whether Tenure writes the status: not if another controller makes the artifact.
    fn has_own_status(&self, beside: &ArtifactMaker) -> bool {
        !matches!(beside, ArtifactMaker::Elsewhere(_))
    }

    fn find_suspension(&self, beside: &ArtifactMaker) -> Option<String> {
        match beside {
            ArtifactMaker::Suspended(generator) => Some(format!("ArtifactGenerator {generator} is disabled")),
            // The stored artifact stays valid. The generator reports its problem, also soon after the controllers have started.
            ArtifactMaker::Failing(generator, problem) => {
                Some(format!("ArtifactGenerator {generator} makes nothing: {problem}"))
            }
            ArtifactMaker::WithoutRecipe(generator) => Some(format!(
                "ArtifactGenerator {generator} has not reported its sources yet"
            )),
            _ => None,
        }
    }

    fn pause_beside(&self) -> Duration {
        PAUSE
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        Ok(())
    }

    fn check_beside(&self, beside: &ArtifactMaker) -> Result<(), Obstacle> {
        let wait = |reason, message| Err(Obstacle::Unavailable { reason, message });
        match beside {
            ArtifactMaker::Elsewhere(StatusArtifact::NotAllowed) => Err(Obstacle::Refused(SourceRefusal::unsupported(
                "nothing is fetched: no ArtifactGenerator of its namespace makes it, and no administrator has named it with --allow-external-artifact: a writer of its status could name any address there",
            ))),
            ArtifactMaker::Elsewhere(StatusArtifact::Nothing) => {
                wait(reason::SOURCE_FETCH_FAILED, "its status has no artifact yet".to_owned())
            }
            ArtifactMaker::Elsewhere(StatusArtifact::Unusable(problem)) => {
                wait(reason::SOURCE_FETCH_FAILED, problem.clone())
            }
            ArtifactMaker::Elsewhere(StatusArtifact::At { .. }) => Ok(()),
            ArtifactMaker::Missing(generator) => wait(
                reason::SOURCE_FETCH_FAILED,
                format!("its ArtifactGenerator {generator} does not exist"),
            ),
            // A waiting source is not checked further: `find_suspension` reports these states.
            ArtifactMaker::WithoutRecipe(_) | ArtifactMaker::Suspended(_) | ArtifactMaker::Failing(..) => Ok(()),
            ArtifactMaker::NotOf(generator) => wait(
                reason::SOURCE_FETCH_FAILED,
                format!("ArtifactGenerator {generator} makes no artifact of this name"),
            ),
            ArtifactMaker::WithRecipe(composition) => {
                for alias in composition.recipe.list_aliases() {
                    let source = composition.sources.get(alias);
                    let found = source.ok_or_else(|| format!("source alias '{alias}' not found"));
                    if let Err(problem) = found.and_then(FoundSource::find_artifact) {
                        return wait(reason::SOURCE_FETCH_FAILED, format!("get sources failed: {problem}"));
                    }
                }
                Ok(())
            }
        }
    }

    fn mark_beside(beside: &ArtifactMaker) -> String {
        let mut mark = String::new();
        match beside {
            ArtifactMaker::WithRecipe(composition) => {
                let _ = write!(
                    mark,
                    "{}",
                    composition.recipe.fingerprint(&composition.list_artifacts())
                );
                for (alias, source) in &composition.sources {
                    let stored = matches!(source.state, SourceState::Stored { .. });
                    // A missing source adds its own state; the fingerprint has the stored ones.
                    let state = if stored { None } else { Some(&source.state) };
                    let _ = write!(mark, " {alias} {} {state:?}", source.describe());
                }
            }
            other => {
                let _ = write!(mark, "{other:?}");
            }
        }
        mark
    }

    fn write_request(&self, basis: RequestBasis, beside: &ArtifactMaker) -> FetchRequest {
        match beside {
            ArtifactMaker::Elsewhere(StatusArtifact::At { url, facts }) => FetchRequest::Download(DownloadRequest {
                url: url.clone(),
                digest: facts.digest.clone(),
                revision: facts.revision.clone(),
                origin: facts.origin_revision.clone(),
                timeout: basis.timeout,
                known: basis.known,
                platform: basis.platform,
            }),
            ArtifactMaker::WithRecipe(composition) => FetchRequest::Compose(ComposeRequest {
                recipe: composition.recipe.clone(),
                sources: composition.sources.clone(),
                fingerprint: composition.recipe.fingerprint(&composition.list_artifacts()),
                timeout: basis.timeout,
                known: basis.known,
            }),
            // This request is never sent: `check_beside` has returned an obstacle.
            _ => FetchRequest::Compose(ComposeRequest::default()),
        }
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact for revision '{}'", stored.facts.revision)
    }

    fn describe_new(&self, stored: &StoredArtifact, _subject: &str) -> String {
        Self::describe_stored(stored)
    }
}
