//! What an ExternalArtifact is among the sources: what it is made of, instead of where it is fetched from.
//!
//! One whose `spec.sourceRef` is an ArtifactGenerator beside it is made here, of what that tells; what is made is known by what the lane
//! stored, never by its status, which can be forged. One that is made elsewhere is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::condition::{self, Condition};
use tenure_api::{DurationText, ExternalArtifact, ExternalArtifactStatus, ObjectMeta, reason};

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::artifact::{IncludedArtifact, StoredArtifact};
use crate::artifact_generator::{FoundSource, Recipe, SourceState, Told};
use crate::plan::Status;
use crate::source::{
    self, FetchStep, Obstacle, Refusal, RequestBasis, Source, SourceStatus, StatusParts, TimingFields,
};

/// How often it is looked whether what is stored is still there (Flux's).
static INTERVAL: LazyLock<DurationText> = LazyLock::new(|| DurationText("1h".to_owned()));
/// How long making one may take, with the wait for room.
static TIMEOUT: LazyLock<DurationText> = LazyLock::new(|| DurationText("5m".to_owned()));
/// Generators may feed each other over namespaces where nobody sees the circle: then each turn takes this long.
const PAUSE: Duration = Duration::from_secs(1);

/// A plan for an ExternalArtifact.
pub type Plan = source::Plan<ExternalArtifact>;
/// What is known of one when a plan is made.
pub type Snapshot = source::Snapshot<ExternalArtifact>;
/// Something to do for one.
pub type Step = source::Step<ComposeRequest>;

/// What is known of who makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Beside {
    /// No ArtifactGenerator of its namespace.
    #[default]
    Elsewhere,
    /// An ArtifactGenerator that is not there.
    Missing(String),
    /// An ArtifactGenerator that has not told anything yet.
    Untold(String),
    /// An ArtifactGenerator that makes nothing for now.
    Suspended(String),
    /// An ArtifactGenerator that can make nothing, and why.
    Failing(String, String),
    /// An ArtifactGenerator that makes no artifact of this name.
    NotOf(String),
    /// An ArtifactGenerator has told what it is made of.
    Told(Box<Composition>),
}

/// What an artifact is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Composition {
    /// What is copied.
    pub recipe: Recipe,
    /// From where, by alias: the sources that the recipe names.
    pub sources: BTreeMap<String, FoundSource>,
}

/// The ArtifactGenerator that makes one: its name, in the same namespace.
#[must_use]
pub fn find_generator(artifact: &ExternalArtifact) -> Option<&str> {
    let named = artifact.spec.source_ref.as_ref()?;
    let group = named.api_version.as_deref().and_then(|version| version.split_once('/'));
    let is_ours =
        named.kind == "ArtifactGenerator" && group.is_none_or(|(group, _)| group == "source.extensions.fluxcd.io");
    let is_beside = named.namespace.is_none() || named.namespace == artifact.metadata.namespace;
    (is_ours && is_beside).then_some(named.name.as_str())
}

/// Looks at who makes one: `exists` says whether an ArtifactGenerator is there, `told` what it told.
pub fn find_maker<T: std::ops::Deref<Target = Told>>(
    artifact: &ExternalArtifact,
    exists: impl Fn(&str) -> bool,
    told: impl Fn(&str) -> Option<T>,
) -> Beside {
    let Some(generator) = find_generator(artifact) else {
        return Beside::Elsewhere;
    };
    if !exists(generator) {
        return Beside::Missing(generator.to_owned());
    }
    let Some(told) = told(generator) else {
        return Beside::Untold(generator.to_owned());
    };
    if told.is_suspended {
        return Beside::Suspended(generator.to_owned());
    }
    if let Some(problem) = &told.problem {
        return Beside::Failing(generator.to_owned(), problem.clone());
    }
    let name = artifact.metadata.name.as_deref().unwrap_or_default();
    let Some(recipe) = told.recipes.get(name) else {
        return Beside::NotOf(generator.to_owned());
    };
    let find = |alias: &str| Some((alias.to_owned(), told.sources.get(alias)?.clone()));
    Beside::Told(Box::new(Composition {
        recipe: recipe.clone(),
        sources: recipe.list_aliases().filter_map(find).collect(),
    }))
}

impl Composition {
    /// What is stored of its sources, by alias.
    fn list_artifacts(&self) -> BTreeMap<String, IncludedArtifact> {
        let stored =
            |(alias, source): (&String, &FoundSource)| Some((alias.clone(), source.find_artifact().ok()?.clone()));
        self.sources.iter().filter_map(stored).collect()
    }
}

/// An artifact that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComposeRequest {
    /// What is copied.
    pub recipe: Recipe,
    /// From where, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// Digest of everything that decides what is made.
    pub fingerprint: String,
    /// How long it may take.
    pub timeout: Duration,
    /// What is stored already.
    pub known: Option<StoredArtifact>,
}

impl ComposeRequest {
    /// What is stored of its sources, by alias.
    pub fn list_artifacts(&self) -> impl Iterator<Item = (&str, &FoundSource, &str, &IncludedArtifact)> {
        self.sources.iter().filter_map(|(alias, source)| match &source.state {
            SourceState::Stored { uid, artifact } => Some((alias.as_str(), source, uid.as_str(), artifact)),
            SourceState::NotFound | SourceState::Apart | SourceState::Empty => None,
        })
    }
}

impl FetchStep for ComposeRequest {
    fn is_public(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let sources: Vec<String> = self.sources.values().map(FoundSource::describe).collect();
        crate::ending::name_some(&sources, 200)
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
    type Request = ComposeRequest;
    type Beside = Beside;

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

    /// Who asks, asks the generator.
    fn requested_at(&self) -> Option<String> {
        None
    }

    /// What is made elsewhere is told by who makes it.
    fn has_own_status(&self, beside: &Beside) -> bool {
        *beside != Beside::Elsewhere
    }

    fn find_suspension(&self, beside: &Beside) -> Option<String> {
        match beside {
            Beside::Suspended(generator) => Some(format!("ArtifactGenerator {generator} is disabled")),
            // Soon after the controllers have started: what is stored is as good as it was.
            // What is stored is as good as it was; what is wrong, the generator says.
            Beside::Failing(generator, problem) => {
                Some(format!("ArtifactGenerator {generator} makes nothing: {problem}"))
            }
            Beside::Untold(generator) => Some(format!(
                "ArtifactGenerator {generator} has not told yet what it is made of"
            )),
            _ => None,
        }
    }

    fn pause_beside(&self) -> Duration {
        PAUSE
    }

    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn check_beside(&self, beside: &Beside) -> Result<(), Obstacle> {
        let wait = |reason, message| Err(Obstacle::Unavailable { reason, message });
        match beside {
            Beside::Elsewhere => Err(Obstacle::Refused(Refusal::unsupported(
                "nothing is fetched: no ArtifactGenerator of its namespace makes it, and artifacts that other controllers make are not \
                 supported yet: whoever may write its status could name any address there",
            ))),
            Beside::Missing(generator) => wait(
                reason::SOURCE_FETCH_FAILED,
                format!("ArtifactGenerator {generator}, which makes it, is not there"),
            ),
            // Nothing is asked for meanwhile.
            Beside::Untold(_) | Beside::Suspended(_) | Beside::Failing(..) => Ok(()),
            Beside::NotOf(generator) => wait(
                reason::SOURCE_FETCH_FAILED,
                format!("ArtifactGenerator {generator} makes no artifact of this name"),
            ),
            Beside::Told(composition) => {
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

    fn mark_beside(beside: &Beside) -> String {
        let mut mark = String::new();
        match beside {
            Beside::Told(composition) => {
                let _ = write!(
                    mark,
                    "{}",
                    composition.recipe.fingerprint(&composition.list_artifacts())
                );
                for (alias, source) in &composition.sources {
                    let stored = matches!(source.state, SourceState::Stored { .. });
                    // What is missing says its own; what is stored is in the fingerprint.
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

    fn write_request(&self, basis: RequestBasis, beside: &Beside) -> ComposeRequest {
        let Beside::Told(composition) = beside else {
            return ComposeRequest::default();
        };
        ComposeRequest {
            recipe: composition.recipe.clone(),
            sources: composition.sources.clone(),
            fingerprint: composition.recipe.fingerprint(&composition.list_artifacts()),
            timeout: basis.timeout,
            known: basis.known,
        }
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact for revision '{}'", stored.facts.revision)
    }

    fn describe_new(&self, stored: &StoredArtifact, _subject: &str) -> String {
        Self::describe_stored(stored)
    }
}
