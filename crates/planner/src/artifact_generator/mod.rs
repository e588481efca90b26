//! The reconciliation of an ArtifactGenerator: it generates ExternalArtifacts in its namespace, and passes a recipe to each of them.
//!
//! Only the generator looks up its sources, by the rules for references, and passes them on. An ExternalArtifact is a source like any other
//! ([`crate::external_artifact`]), with files of those sources instead of an upstream. The account of the lane writes the objects; the generator owns them, and they
//! are collected with it. Cycles of generators that feed each other are refused by name.

mod children;
mod status;
mod stored_recipes;
mod template;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tenure_api::metadata::{GENERATOR_FINALIZER, GENERATOR_SWITCH};
use tenure_api::{ArtifactGenerator, ArtifactGeneratorStatus, ObjectId, reason};
use tenure_tenancy::{LaneAccount, Placement, ReferenceGrant, Referrer, identity, reference};

pub use self::stored_recipes::StoredRecipes;
pub use self::template::PathPattern;
pub use tenure_remote_requests::composition::{Copy, FoundSource, Recipe, SourceState, Strategy};

use crate::answer::Live;
use crate::cycle;
use crate::dependents::{self, Dependents, FinalizerRule, NextWrites, Verdict, Wanted};
use crate::list_limits::{GENERATOR_ENTRIES, TENANT_RECIPES};
use crate::plan::{FinalizerChange, Next, Request, Withheld};
use tenure_remote_requests::artifact::{IncludedArtifact, StoredArtifact};

const KIND: &str = "ArtifactGenerator";
const GENERATOR_API: &str = "source.extensions.fluxcd.io/v1beta1";
/// The time until a failure, or a state that no watch reports, is checked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// A plan for an ArtifactGenerator, carried out by the account of its lane.
pub type Plan = crate::plan::Plan<Step, LaneAccount, ArtifactGeneratorStatus, Memory>;

/// A step of a plan for an ArtifactGenerator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// A request to the cluster.
    Request(Request),
    /// Find the folders of an artifact that match a pattern. Answer: the memory's `folders`.
    FindFolders(FolderRequest),
}

impl crate::plan::Step for Step {
    fn is_public(&self) -> bool {
        match self {
            Self::Request(request) => request.is_public(),
            Self::FindFolders(_) => true,
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(request) => request.fmt(formatter),
            Self::FindFolders(request) => write!(formatter, "find folders in {}", request.source.describe()),
        }
    }
}

/// A search for folders: the artifact to search, and the pattern that a folder must match.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FolderRequest {
    /// The source of the folders.
    pub source: FoundSource,
    /// `spec.pathPattern` as text.
    pub text: String,
    /// `spec.pathPattern` in parsed form.
    #[serde(skip)]
    pub pattern: PathPattern,
}

impl FolderRequest {
    /// Writes the key of the request, which differs for each artifact and each pattern. An answer counts only for its own key.
    fn write_mark(&self) -> String {
        let digest = self
            .source
            .find_artifact()
            .map(|artifact| artifact.facts.digest.as_str());
        format!(
            "{} {} {}",
            self.source.describe(),
            digest.unwrap_or_default(),
            self.text
        )
    }
}

/// Folders that match a pattern, and the values of the pattern's names in each.
pub type MatchedFolders = Vec<(String, BTreeMap<String, String>)>;

/// The answer to a [`FolderRequest`], stored with the key of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderAnswer {
    about: String,
    found: Result<MatchedFolders, String>,
}

/// The input of a plan for an ArtifactGenerator.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The generator as last read, status included.
    pub generator: ArtifactGenerator,
    /// The owner of the generator's namespace.
    pub placement: Placement,
    /// The references that an administrator grants.
    pub grants: Vec<ReferenceGrant>,
    /// The bytes that the recipes of this generator may take: the namespace's budget without the recipes of its other generators.
    pub room: usize,
    /// The sources that the generator may read, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// The cycle of generators that feed each other, if this generator is part of one.
    pub cycle: Option<Vec<String>>,
    /// The ExternalArtifacts of the namespace with the generator's label. A wanted one that is missing here is requested with [`Request::Read`].
    pub live: BTreeMap<ObjectId, Live>,
    /// The stored artifacts of the ExternalArtifacts, by name. Their statuses are no evidence.
    pub stored: BTreeMap<String, StoredArtifact>,
    /// Whether admission checks writes in the cluster: then no identity of a tenant has set a finalizer on a managed object.
    pub judges_writes: bool,
    /// The current attempt, and the answers to its steps.
    pub attempt: dependents::Attempt,
    /// The state that the last plan left.
    pub memory: Memory,
}

/// The state that the shell carries from plan to plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    refused: dependents::Memory,
    /// The last answer about folders.
    folders: Option<FolderAnswer>,
    /// The recipes for the generated ExternalArtifacts, once they are known.
    pub recipes: Option<Arc<StoredRecipes>>,
}

impl Memory {
    /// Takes the answer about folders.
    pub fn take_folders(&mut self, request: &FolderRequest, found: Result<MatchedFolders, String>) {
        self.folders = Some(FolderAnswer {
            about: request.write_mark(),
            found,
        });
    }
}

impl Snapshot {
    /// Checks whether a fact other than the generated objects has changed since the last plan, so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(
        &self,
        generator: &ArtifactGenerator,
        placement: &Placement,
        sources: &BTreeMap<String, FoundSource>,
        cycle: Option<&[String]>,
        stored: &BTreeMap<String, StoredArtifact>,
    ) -> bool {
        let (known, metadata) = (&self.generator.metadata, &generator.metadata);
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::read_requested_at(metadata)
            || known.uid != metadata.uid
            || known.deletion_timestamp != metadata.deletion_timestamp
            || is_disabled(&self.generator) != is_disabled(generator)
            || self.placement != *placement
            || self.sources != *sources
            || self.cycle.as_deref() != cycle
            || self.stored != *stored
    }
}

/// Lists the sources in `spec.sources` that tenancy lets the generator reference. No source is looked up before this check.
pub fn list_visible<'a>(
    generator: &'a ArtifactGenerator,
    referrer: Referrer<'a>,
) -> impl Iterator<Item = &'a tenure_api::artifact_generator::ArtifactSource> {
    let sources = generator.spec.sources.iter().take(GENERATOR_ENTRIES);
    sources.filter(move |source| {
        reference::check_source(referrer, &source.kind, source.namespace.as_deref(), &source.name).is_ok()
    })
}

/// Finds the shortest cycle of generators that feed each other, as `namespace/name`, through this generator. `feeds` returns the generators that make the sources of
/// a generator.
pub fn find_generator_cycle(
    generator: &ArtifactGenerator,
    feeds: impl Fn(&str) -> Option<Vec<String>>,
) -> Option<Vec<String>> {
    let metadata = &generator.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let start = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    let own = feeds(&start).unwrap_or_default();
    cycle::find_cycle(&start, own, feeds)
}

/// Checks whether an annotation disables the generator.
fn is_disabled(generator: &ArtifactGenerator) -> bool {
    let annotations = generator.metadata.annotations.as_ref();
    let value = annotations.and_then(|annotations| annotations.get(GENERATOR_SWITCH));
    value.is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
}

/// Plans the next steps for an ArtifactGenerator.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.generator.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut plan = Plan::idle(status::name_subject(snapshot), snapshot.memory.clone());
    plan.memory.refused.forget_old(now);
    if metadata.deletion_timestamp.is_some() {
        // Flux may have set this finalizer. The generator owns its objects, and they are collected without it.
        if metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == GENERATOR_FINALIZER)
        {
            plan.finalizer = Some(FinalizerChange::Remove(GENERATOR_FINALIZER.to_owned()));
        }
        plan.next = Next::Forget;
        return plan;
    }
    if is_disabled(&snapshot.generator) {
        Arc::make_mut(plan.memory.recipes.get_or_insert_default()).is_suspended = true;
        plan.withheld.push(Withheld {
            what: "everything".to_owned(),
            why: format!("the annotation {GENERATOR_SWITCH} is disabled"),
        });
        return plan;
    }
    let folders = match admit_generator(snapshot) {
        Ok(folders) => folders,
        Err((reason, message)) => return status::plan_stalled(snapshot, now, plan, reason, message),
    };
    if snapshot.attempt.generation != metadata.generation
        || snapshot.attempt.requested_at != crate::read_requested_at(metadata)
    {
        plan.next = Next::Restart;
        return plan;
    }
    let matched = match &folders {
        None => None,
        Some(folders) => match find_folders(snapshot, folders, &mut plan) {
            Ok(Some(matched)) => Some(matched),
            Ok(None) => return plan,
            Err((reason, message)) => return status::plan_waiting(snapshot, now, plan, reason, message),
        },
    };
    let (recipes, bytes) = match validate::list_recipes(&snapshot.generator.spec, matched.as_deref(), snapshot.room) {
        Ok(recipes) => recipes,
        Err(validate::GeneratorProblem::NoRoom) => {
            let message = format!(
                "all ArtifactGenerators of this tenant together make more than {TENANT_RECIPES} bytes of recipes, about: make \
                 spec.pathPattern match less"
            );
            return status::plan_waiting(snapshot, now, plan, reason::BUILD_FAILED, message);
        }
        Err(mistake) => {
            let (reason, message) = describe_problem(mistake);
            let reason = if matched.is_some() {
                reason::BUILD_FAILED
            } else {
                reason
            };
            return status::plan_stalled(snapshot, now, plan, reason, message);
        }
    };
    let wanted = recipes
        .values()
        .map(|recipe| children::make_wanted(&snapshot.generator, recipe));
    let wanted: Vec<Wanted> = wanted.collect();
    plan.memory.recipes = Some(Arc::new(StoredRecipes {
        is_suspended: false,
        problem: None,
        recipes,
        sources: snapshot.sources.clone(),
        bytes,
    }));
    plan.identity = Some(identity::decide_for_lane(&snapshot.placement, namespace));
    plan.watch = wanted.iter().map(Wanted::make_watched).collect();
    match write(snapshot, now, &wanted, &mut plan) {
        Err(problems) => status::not_written(snapshot, now, plan, &problems),
        Ok(()) if !plan.steps.is_empty() => {
            plan.next = Next::Again;
            plan
        }
        Ok(()) => status::end_written(snapshot, now, plan),
    }
}

/// Returns the reason and message for the status.
fn describe_problem(mistake: validate::GeneratorProblem) -> (&'static str, String) {
    match mistake {
        validate::GeneratorProblem::Invalid(message) => (reason::VALIDATION_FAILED, message),
        // This variant comes from `list_recipes`, whose caller reports the bound. `check` counts no memory.
        validate::GeneratorProblem::NoRoom => (reason::BUILD_FAILED, "the budget has no capacity for it".to_owned()),
    }
}

/// Checks that the generator's spec is valid, that it may reference its sources, and that no generators form a cycle. Returns the parsed `spec.pathPattern`.
fn admit_generator(snapshot: &Snapshot) -> Result<Option<validate::FolderPattern>, (&'static str, String)> {
    let generator = &snapshot.generator;
    let folders = validate::check(generator).map_err(describe_problem)?;
    let referrer = Referrer {
        namespace: generator.metadata.namespace.as_deref().unwrap_or_default(),
        placement: &snapshot.placement,
        grants: &snapshot.grants,
    };
    for source in &generator.spec.sources {
        reference::check_source(referrer, &source.kind, source.namespace.as_deref(), &source.name)
            .map_err(|denial| (denial.reason.as_str(), denial.message))?;
    }
    if let Some(cycle) = &snapshot.cycle {
        let way = cycle::describe_cycle(cycle);
        return Err((
            reason::VALIDATION_FAILED,
            format!("spec.sources: generators form a cycle: {way}; remove one of these sources"),
        ));
    }
    Ok(folders)
}

/// Returns the folders that match the pattern. If they are unknown, adds the step that finds them to the plan, and returns nothing.
fn find_folders(
    snapshot: &Snapshot,
    folders: &validate::FolderPattern,
    plan: &mut Plan,
) -> Result<Option<MatchedFolders>, (&'static str, String)> {
    let source = snapshot.sources.get(&folders.alias).cloned().unwrap_or_default();
    source
        .find_artifact()
        .map_err(|problem| (reason::SOURCE_FETCH_FAILED, problem))?;
    let request = FolderRequest {
        source,
        text: snapshot.generator.spec.path_pattern.clone().unwrap_or_default(),
        pattern: folders.pattern.clone(),
    };
    let answer = snapshot.memory.folders.as_ref();
    match answer.filter(|answer| answer.about == request.write_mark()) {
        Some(FolderAnswer { found: Ok(found), .. }) => Ok(Some(found.clone())),
        Some(FolderAnswer {
            found: Err(problem), ..
        }) => {
            // The folders are looked up again at the next try.
            plan.memory.folders = None;
            Err((reason::BUILD_FAILED, format!("spec.pathPattern: {problem}")))
        }
        None => {
            plan.steps = vec![Step::FindFolders(request)];
            plan.next = Next::Again;
            Ok(None)
        }
    }
}

/// Writes and deletes the generator's objects; an error names the objects that failed.
fn write(snapshot: &Snapshot, now: Timestamp, wanted: &[Wanted], plan: &mut Plan) -> Result<(), Vec<String>> {
    let generator = &snapshot.generator;
    let mut problems = Vec::new();
    let mut dependents = Dependents {
        owner: KIND,
        live: &snapshot.live,
        attempt: &snapshot.attempt,
        memory: &mut plan.memory.refused,
        now,
        finalizers: FinalizerRule {
            // Admission checks finalizers only in tenants' namespaces.
            judges_writes: snapshot.judges_writes && matches!(snapshot.placement, Placement::Tenant(_)),
            listed: "",
        },
        lingering: BTreeMap::new(),
    };
    let judge = |live: &Value, wanted: &Wanted| {
        if !children::bears_label(generator, live) {
            Verdict::Foreign("was not made by this generator: rename the artifact, or delete it")
        } else if children::is_as_wanted(generator, live, wanted) {
            Verdict::AsWanted
        } else {
            Verdict::Differs
        }
    };
    let applies = match dependents.plan_writes(wanted.iter(), judge, &mut plan.withheld, &mut problems) {
        NextWrites::ReadFirst(reads) => {
            plan.steps = reads.into_iter().map(Step::Request).collect();
            return Ok(());
        }
        // Nothing is deleted while a write has failed.
        NextWrites::Apply(_) if !problems.is_empty() => return Err(problems),
        NextWrites::Apply(applies) => applies,
    };
    let stale = dependents.plan_deletions(
        |id| wanted.iter().any(|wanted| wanted.id == *id),
        |live| children::is_ours(generator, live),
        "the generator no longer makes it",
        &mut problems,
    );
    let mut lingering = Vec::new();
    let held = dependents.neutralize_lingering(
        |id| wanted.iter().any(|wanted| wanted.id == *id),
        |live| children::is_ours(generator, live),
        &mut lingering,
    );
    lingering.extend(dependents.list_lingering());
    plan.steps = applies
        .into_iter()
        .chain(held)
        .chain(stale.into_iter().map(Request::Delete))
        .map(Step::Request)
        .collect();
    if plan.steps.is_empty() {
        problems.extend(lingering);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Lists the stored artifacts of the sources, by alias.
fn list_artifacts(sources: &BTreeMap<String, FoundSource>) -> BTreeMap<String, IncludedArtifact> {
    let stored = |(alias, source): (&String, &FoundSource)| Some((alias.clone(), source.find_artifact().ok()?.clone()));
    sources.iter().filter_map(stored).collect()
}
