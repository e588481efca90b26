//! Rendering: kustomize over an artifact's files, on a thread of its own, with limits for time, output and steps, and within memory shared with other
//! renderings. This module has the limits, and kustomize builds the objects. Rendering fetches nothing, and reads nothing outside the artifact.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kustomize::{
    Budget, Build, BuiltResource, Error, FileTree, ImageOverride, Options, Overrides, PatchOverride, Stop, Substitution,
};
use serde::{Deserialize, Serialize};
use tenure_api::metadata::SUBSTITUTE;
use tenure_api::text::visible_line;
use tenure_planner::kustomization::{RenderFailure, RenderRequest, Rendered};
use tenure_planner::overlay::make_patch_target;
use tenure_planner::render_inputs::Variable;
use tenure_planner::{Object, Origin, Overlay, RenderInputs, RenderedObject};
use tenure_sources::{BudgetLimits, ByteBudget, HeldBytes, SourceKey, StorageError, Tree};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::artifacts::storage::ArtifactRecords;
use crate::artifacts::tree_cache::TreeInUse;
use crate::limits::lane_limits::LaneLimits;
use crate::limits::object_memory::estimate_memory;
use crate::rendering::decryption::{self, DecryptedFiles};
use crate::rendering::lfs_pointers::PointerCheckedFiles;
use crate::rendering::read_files::{ReadFiles, RecordingTree};

/// Limits of renderings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderLimits {
    /// The time limit of one rendering, without the time that it waits for memory.
    pub timeout: Duration,
    /// The output limit of one rendering in bytes, as [`Budget::bytes`] counts them.
    pub bytes: u64,
    /// The limit of steps of one rendering, as [`Budget::steps`] counts them.
    pub steps: u64,
    /// The output limit in bytes of all concurrent renderings together.
    pub all_bytes: u64,
}

impl Default for RenderLimits {
    /// Returns a minute, 64 MiB, 500 million steps, and 256 MiB for all.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bytes: 64 << 20,
            steps: 500_000_000,
            all_bytes: 256 << 20,
        }
    }
}

/// A size that most renderings stay far below. Small renderings have memory of their own, so they never wait for large ones.
const SMALL: u64 = 4 << 20;
/// Bytes of rendered objects, as [`estimate_memory`] counts them, that one lane and all lanes may keep for the next reconciliation. Other
/// objects are rendered again.
const KEPT: (u64, u64) = (24 << 20, 96 << 20);
/// How long a comparison with the previously rendered files waits for memory for an artifact's files.
const COMPARING: Duration = Duration::from_secs(10);
const WHAT: &str = "renderings";
const ONE_SETTING: &str = "--rendering-bytes";
const STEPS_SETTING: &str = "--rendering-steps";
const ALL_SETTING: &str = "--renderings-bytes";

/// Runs renderings within their limits, and has the memory budgets that all renderings share.
#[derive(Debug)]
pub(crate) struct Renderer {
    limits: RenderLimits,
    small: ByteBudget,
    large: ByteBudget,
    kept: ByteBudget,
}

/// The answer to a request for a rendering, with the reserved memory of its objects.
#[derive(Debug)]
pub(crate) struct RenderedWithMemory {
    pub(crate) rendered: Rendered,
    pub(crate) room: Option<HeldBytes>,
    /// The files that were read. Absent after a failure.
    pub(crate) seen: Option<Arc<ReadFiles>>,
}

/// The output of a successful rendering.
struct RenderOutput {
    objects: Vec<RenderedObject>,
    /// Encrypted files with a wrong MAC.
    changed_files: Vec<String>,
    /// The files that the rendering read, to compare them with those of the next artifact.
    seen: Arc<ReadFiles>,
}

impl Renderer {
    pub(crate) fn new(limits: RenderLimits) -> Self {
        let room = |lane: u64, all: u64| {
            ByteBudget::new(BudgetLimits {
                what: WHAT,
                lane,
                all,
                lane_setting: ONE_SETTING,
                all_setting: ALL_SETTING,
                is_half: false,
            })
        };
        // A quarter is for small renderings. The rest is for large ones, and at least enough for one.
        let all_small = (limits.all_bytes / 4).max(SMALL);
        let all_large = limits.all_bytes.saturating_sub(all_small).max(limits.bytes);
        Self {
            limits,
            small: room((all_small / 2).max(SMALL), all_small),
            large: room(limits.bytes, all_large),
            kept: room(KEPT.0, KEPT.1),
        }
    }

    /// Returns the memory for small renderings, for large ones, and for kept objects.
    pub(crate) fn rooms(&self) -> [&ByteBudget; 3] {
        [&self.small, &self.large, &self.kept]
    }

    /// Returns the request of one rendering in the memory for small renderings, and in the memory for large ones.
    pub(crate) fn list_asks(&self) -> [u64; 2] {
        [SMALL.min(self.limits.bytes), self.limits.bytes]
    }

    /// Renders as a plan requests. A failure is part of the answer: it becomes a status.
    pub(crate) async fn render(
        &self,
        artifacts: &ArtifactRecords,
        source: &SourceKey,
        request: &RenderRequest,
        lane: &LaneLimits,
    ) -> RenderedWithMemory {
        let outcome = self.objects(artifacts, source, request, lane).await;
        let (outcome, changed_files, room, seen) = match outcome {
            Ok((made, room)) => (Ok(made.objects), made.changed_files, Some(room), Some(made.seen)),
            Err(failure) => (Err(failure), Vec::new(), None, None),
        };
        RenderedWithMemory {
            rendered: Rendered::new(request, outcome, changed_files),
            room,
            seen,
        }
    }

    /// Checks whether another artifact has the same files, as far as a rendering read them. False if that is unknown.
    pub(crate) async fn are_same(
        artifacts: &ArtifactRecords,
        artifact: (&SourceKey, &str),
        seen: &ReadFiles,
        lane: &LaneLimits,
    ) -> bool {
        let deadline = Instant::now() + COMPARING;
        let Ok(tree) = artifacts.tree(artifact, &lane.name, deadline).await else {
            return false;
        };
        let same = || seen.are_same_in(&TreeFiles(&tree));
        lane.turns.run(seen.content_bytes(), same).await
    }

    /// Takes memory for objects that are kept while no attempt works; `None` if it is full, and the objects have to be rendered again.
    pub(crate) fn reserve_kept(&self, lane: &LaneLimits, room: Option<HeldBytes>) -> Option<HeldBytes> {
        // Returned first, because it may be the same memory.
        let bytes = room?.bytes();
        self.kept.try_acquire(&lane.name, bytes).ok()
    }

    async fn objects(
        &self,
        artifacts: &ArtifactRecords,
        source: &SourceKey,
        request: &RenderRequest,
        lane: &LaneLimits,
    ) -> Result<(RenderOutput, HeldBytes), RenderFailure> {
        let failure = |message: String| RenderFailure {
            message,
            artifact_missing: false,
        };
        let timeout = self.limits.timeout;
        let deadline = Instant::now() + timeout;
        let waiting = tokio::time::timeout_at(deadline, Arc::clone(&lane.renderer).acquire_owned());
        let Ok(Ok(permit)) = waiting.await else {
            return Err(failure(format!(
                "rendering {} had to wait longer than {} s for others of the same tenant",
                request.path,
                timeout.as_secs()
            )));
        };
        // The tree is loaded only after the wait for memory.
        let tree = artifacts
            .tree((source, &request.artifact_digest), &lane.name, deadline)
            .await
            .map_err(|error| RenderFailure {
                artifact_missing: matches!(
                    error,
                    StorageError::Missing { .. } | StorageError::DigestMismatch { .. }
                ),
                message: error.to_string(),
            })?;
        let held = Arc::new((tree, permit));
        self.within_room(&held, request, lane).await.map_err(failure)
    }

    /// Renders in the memory for small renderings, and in the full limit if that is too little.
    async fn within_room(
        &self,
        held: &Arc<(TreeInUse, OwnedSemaphorePermit)>,
        request: &RenderRequest,
        lane: &LaneLimits,
    ) -> Result<(RenderOutput, HeldBytes), String> {
        let timeout = self.limits.timeout;
        let [little, all] = self.list_asks();
        for (room, bytes) in [(&self.small, little), (&self.large, all)] {
            let room = room.acquire(&lane.name, bytes, Instant::now() + timeout).await;
            let mut room = room.map_err(|over| format!("rendering {} has to wait: {over}", request.path))?;
            match self.on_a_thread(Arc::clone(held), request, bytes).await {
                Ok((made, bytes)) => {
                    room.shrink_to(bytes);
                    return Ok((made, room));
                }
                Err(BuildFailure { is_too_large, .. }) if is_too_large && bytes < self.limits.bytes => {}
                Err(BuildFailure { message, .. }) => return Err(message),
            }
        }
        Err(format!("rendering {} needs more memory than the limit", request.path))
    }

    /// Renders on a thread of its own. The thread ends at the time limit, or when no caller waits for it any more.
    async fn on_a_thread(
        &self,
        held: Arc<(TreeInUse, OwnedSemaphorePermit)>,
        request: &RenderRequest,
        bytes: u64,
    ) -> Result<(RenderOutput, u64), BuildFailure> {
        let stopping = StopOnDrop(Stop::new());
        let bounds = RunLimits {
            budget: Budget {
                bytes,
                steps: self.limits.steps,
            },
            stop: stopping.0.clone(),
        };
        let (path, overlay, inputs) = (request.path.clone(), request.overlay.clone(), request.inputs.clone());
        let rendering = tokio::task::spawn_blocking(move || {
            let files = TreeFiles(&held.0);
            let noted = RecordingTree::new(&files);
            let outcome = build_tree(&noted, &path, (&overlay, &inputs), bounds).map(|(built, changed_files)| {
                let objects = list_rendered_objects(built);
                let bytes: u64 = objects.iter().map(|object| estimate_memory(&object.object.0)).sum();
                let seen = Arc::new(noted.into_seen());
                let bytes = bytes.saturating_add(seen.held_bytes());
                let made = RenderOutput {
                    objects,
                    changed_files,
                    seen,
                };
                (made, bytes)
            });
            // Held until here, even if no caller waits for the result any more.
            drop(held);
            outcome
        });
        let failure = |what: String| BuildFailure {
            message: format!("rendering {} {what}", request.path),
            is_too_large: false,
        };
        let timeout = self.limits.timeout;
        match tokio::time::timeout(timeout, rendering).await {
            Err(_) => Err(failure(format!(
                "took longer than {} s and was stopped",
                timeout.as_secs()
            ))),
            Ok(Err(problem)) => Err(failure(format!("ended early: {problem}"))),
            Ok(Ok(outcome)) => outcome,
        }
    }
}

/// Renders the files of a loaded tree within the default limits, without waiting for other renderings.
pub(crate) fn render_files(files: &dyn FileTree, request: &RenderRequest) -> (Rendered, Vec<BuiltResource>) {
    let inputs = (&request.overlay, &request.inputs);
    let (outcome, changed_files, resources) = match build_tree(files, &request.path, inputs, RunLimits::default()) {
        Ok((built, changed_files)) => {
            let resources = built.resources.clone();
            (Ok(list_rendered_objects(built)), changed_files, resources)
        }
        Err(BuildFailure { message, .. }) => {
            let failure = RenderFailure {
                message,
                artifact_missing: false,
            };
            (Err(failure), Vec::new(), Vec::new())
        }
    };
    (Rendered::new(request, outcome, changed_files), resources)
}

/// Stops a rendering when it is dropped: the caller has given up, or the rendering has ended.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The limits of a rendering, and its stop signal.
#[derive(Default)]
pub(crate) struct RunLimits {
    budget: Budget,
    stop: Stop,
}

/// Why a build failed.
pub(crate) struct BuildFailure {
    pub(crate) message: String,
    /// The output would exceed its limit.
    is_too_large: bool,
}

impl BuildFailure {
    fn new(message: String) -> Self {
        Self {
            message,
            is_too_large: false,
        }
    }
}

impl From<Error> for BuildFailure {
    fn from(error: Error) -> Self {
        let hint = match error {
            Error::Budget { .. } => format!(" (an administrator sets it with {ONE_SETTING} and {STEPS_SETTING})"),
            _ => String::new(),
        };
        Self {
            is_too_large: matches!(error, Error::Budget { .. }),
            message: list_problems(&error).join("\n") + &hint,
        }
    }
}

/// Renders a folder of a tree, as kustomize-controller would: a folder without a kustomization file is built as if one named every YAML file below
/// it.
///
/// # Errors
/// [`BuildFailure`], with the file and the line in the message if they are known.
pub(crate) fn build_tree(
    files: &dyn FileTree,
    path: &str,
    (overlay, inputs): (&Overlay, &RenderInputs),
    bounds: RunLimits,
) -> Result<(Build, Vec<String>), BuildFailure> {
    let whole = PointerCheckedFiles::new(files);
    let built = build_whole_tree(&whole, path, (overlay, inputs), bounds);
    match (built, whole.describe_pointer()) {
        (Err(error), _) if error.is_too_large => Err(error),
        (_, Some(pointer)) => Err(BuildFailure::new(pointer)),
        (built, None) => built,
    }
}

fn build_whole_tree(
    files: &dyn FileTree,
    path: &str,
    (overlay, inputs): (&Overlay, &RenderInputs),
    bounds: RunLimits,
) -> Result<(Build, Vec<String>), BuildFailure> {
    let folder = path.trim_matches('/');
    let folder = if folder == "." { "" } else { folder };
    match files.entry(folder) {
        Some(kustomize::Entry::Directory) => {}
        Some(_) => {
            return Err(BuildFailure::new(format!(
                "kustomization path {path:?} is not a folder of the source"
            )));
        }
        None => {
            return Err(BuildFailure::new(format!(
                "kustomization path not found: {path:?} is not in the source"
            )));
        }
    }
    let options = Options {
        substitution: inputs.variables().map(make_substitution),
        ..make_options(overlay, bounds)
    };
    let Some(keys) = inputs.keys() else {
        return Ok((kustomize::build(files, folder, &options)?, Vec::new()));
    };
    let keys = decryption::read_keys(keys).map_err(BuildFailure::new)?;
    let clear = DecryptedFiles::new(files, &keys);
    let outcome = kustomize::build(&clear, folder, &options);
    let mut built = match (outcome, clear.failure()) {
        (Err(error @ Error::Budget { .. }), _) => return Err(error.into()),
        (_, Some(failure)) => return Err(BuildFailure::new(failure)),
        (Err(error), None) => return Err(redact_failure(error, &clear, files, (folder, &options))),
        (Ok(built), None) => built,
    };
    let budget = (options.budget.bytes, options.budget.steps);
    sops::decrypt_within(budget, || clear.open_values(&mut built.resources)).map_err(BuildFailure::new)?;
    Ok((built, clear.into_changed()))
}

/// Returns the message of a build that failed after files were decrypted. The message names the problems of the encrypted files, or contains nothing
/// that could quote clear text.
fn redact_failure(
    error: Error,
    clear: &DecryptedFiles<'_>,
    files: &dyn FileTree,
    (folder, options): (&str, &Options),
) -> BuildFailure {
    let Some(problem) = clear.describe_problem() else {
        return error.into();
    };
    match kustomize::build(files, folder, options) {
        Err(error) => error.into(),
        Ok(_) => BuildFailure::new(problem),
    }
}

/// Returns the problems, one line each. A name or a text of the repository can't add a line.
fn list_problems(error: &kustomize::Error) -> Vec<String> {
    match error {
        kustomize::Error::Several(errors) => errors.iter().flat_map(list_problems).collect(),
        kustomize::Error::InBase { chain, source } => {
            let chain = visible_line(&chain.join(" -> ")).into_owned();
            let through = |line| format!("{line} (reached through {chain})");
            list_problems(source).into_iter().map(through).collect()
        }
        other => vec![visible_line(&other.to_string()).into_owned()],
    }
}

fn list_rendered_objects(built: Build) -> Vec<RenderedObject> {
    let resources = built.resources.into_iter();
    resources
        .map(|resource| RenderedObject {
            confidential: resource.is_confidential(),
            object: Object(resource.object),
            origin: Origin {
                path: resource.origin.location.path,
                line: resource.origin.location.line,
            },
        })
        .collect()
}

/// Substitutes variables, except in objects that disable substitution.
fn make_substitution(variables: &BTreeMap<String, Variable>) -> Substitution {
    let variables = variables.iter().map(|(name, variable)| {
        let variable = kustomize::Variable {
            value: variable.value.clone(),
            is_secret: variable.is_secret,
        };
        (name.clone(), variable)
    });
    let mut substitution = Substitution::new(variables.collect());
    substitution.unless = Some((SUBSTITUTE.to_owned(), "disabled".to_owned()));
    substitution
}

fn make_options(overlay: &Overlay, bounds: RunLimits) -> Options {
    let common = overlay.common_metadata.clone().unwrap_or_default();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let patches = overlay.patches.iter().map(|patch| PatchOverride {
        patch: patch.patch.clone(),
        target: patch.target.as_ref().map(make_patch_target),
    });
    let images = overlay.images.iter().map(|image| ImageOverride {
        name: image.name.clone(),
        new_name: text(&image.new_name),
        new_tag: text(&image.new_tag),
        digest: text(&image.digest),
    });
    Options {
        generate_missing: true,
        budget: bounds.budget,
        stop: bounds.stop,
        overrides: Overrides {
            namespace: overlay.target_namespace.clone(),
            name_prefix: overlay.name_prefix.clone(),
            name_suffix: overlay.name_suffix.clone(),
            patches: patches.collect(),
            images: images.collect(),
            components: overlay.components.clone(),
            ignore_missing_components: overlay.ignore_missing_components,
            build_metadata: overlay.build_metadata.clone(),
            labels: common.labels.unwrap_or_default(),
            annotations: common.annotations.unwrap_or_default(),
        },
        ..Options::default()
    }
}

/// An artifact's files, as kustomize reads them.
pub(crate) struct TreeFiles<'a>(pub(crate) &'a Tree);

impl FileTree for TreeFiles<'_> {
    fn entry(&self, path: &str) -> Option<kustomize::Entry<'_>> {
        if path.is_empty() {
            return Some(kustomize::Entry::Directory);
        }
        match self.0.entry(path)? {
            tenure_sources::Entry::File(content) => Some(kustomize::Entry::File(content)),
            tenure_sources::Entry::Directory => Some(kustomize::Entry::Directory),
            tenure_sources::Entry::Link(target) => Some(kustomize::Entry::Link(target)),
        }
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.0.list(directory).into_iter().map(Into::into).collect()
    }
}
