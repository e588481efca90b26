//! Rendering: kustomize over an artifact's files, on a thread of its own, within a time, a budget of what it may make and do, and room
//! for it among others. Owns the bounds; what is built is kustomize's. Nothing is fetched while rendering, and nothing outside the
//! artifact is read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kustomize::{Budget, Build, Error, FileTree, ImageOverride, Options, Overrides, PatchOverride, Stop, Substitution};
use serde::{Deserialize, Serialize};
use tenure_api::metadata::SUBSTITUTE;
use tenure_api::text::visible_line;
use tenure_planner::inputs::Variable;
use tenure_planner::kustomization::{RenderFailure, RenderRequest, Rendered};
use tenure_planner::overlay::make_patch_target;
use tenure_planner::{Object, Origin, Overlay, RenderInputs, RenderedObject};
use tenure_sources::{ByteBudget, Held, Room, SourceKey, StorageError, Tree};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::artifacts::ArtifactRecords;
use crate::bounds::LaneBounds;
use crate::decryption::{self, ClearFiles};
use crate::lfs::WholeFiles;
use crate::looking::weigh;
use crate::seen_files::{NotedTree, SeenFiles};
use crate::trees::TreeInUse;

/// How much renderings may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderLimits {
    /// How long one may take, waiting for room not counted.
    pub timeout: Duration,
    /// Bytes that one may make, as [`Budget::bytes`] counts them.
    pub bytes: u64,
    /// Steps that one may do, as [`Budget::steps`] counts them.
    pub steps: u64,
    /// Bytes that all renderings which run at the same time may make together.
    pub all_bytes: u64,
}

impl Default for RenderLimits {
    /// A minute, 64 MiB, 500 million steps; 256 MiB for all.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bytes: 64 << 20,
            steps: 500_000_000,
            all_bytes: 256 << 20,
        }
    }
}

/// What most renderings stay far below: they share room of their own, so that large ones never keep them waiting.
const SMALL: u64 = 4 << 20;
/// Bytes of rendered objects, as [`weigh`] counts them, that a lane, and all lanes, may keep for the next reconciliation; others are
/// rendered again.
const KEPT: (u64, u64) = (24 << 20, 96 << 20);
/// How long is waited for room for the files of an artifact, to compare them with those that were rendered before.
const COMPARING: Duration = Duration::from_secs(10);
const WHAT: &str = "renderings";
const ONE_SETTING: &str = "--rendering-bytes";
const STEPS_SETTING: &str = "--rendering-steps";
const ALL_SETTING: &str = "--renderings-bytes";

/// The room that renderings share.
#[derive(Debug)]
pub(crate) struct Renderings {
    limits: RenderLimits,
    small: ByteBudget,
    large: ByteBudget,
    kept: ByteBudget,
}

/// A rendering, and the room that its objects take.
#[derive(Debug)]
pub(crate) struct Roomy {
    pub(crate) rendered: Rendered,
    pub(crate) room: Option<Held>,
    /// The files that it looked at; nothing when it came to nothing.
    pub(crate) seen: Option<Arc<SeenFiles>>,
}

/// What a rendering made.
struct Objects {
    objects: Vec<RenderedObject>,
    /// Encrypted files whose MAC isn't right.
    changed_files: Vec<String>,
    /// The files that were looked at.
    seen: Arc<SeenFiles>,
}

impl Renderings {
    pub(crate) fn new(limits: RenderLimits) -> Self {
        let room = |lane: u64, all: u64| {
            ByteBudget::new(Room {
                what: WHAT,
                lane,
                all,
                lane_setting: ONE_SETTING,
                all_setting: ALL_SETTING,
                is_half: false,
            })
        };
        // A quarter is for the small ones; with less than one large rendering needs, there is room for one.
        let all_small = (limits.all_bytes / 4).max(SMALL);
        let all_large = limits.all_bytes.saturating_sub(all_small).max(limits.bytes);
        Self {
            limits,
            small: room((all_small / 2).max(SMALL), all_small),
            large: room(limits.bytes, all_large),
            kept: room(KEPT.0, KEPT.1),
        }
    }

    /// The room of small renderings, of large ones, and of what is kept of them.
    pub(crate) fn rooms(&self) -> [&ByteBudget; 3] {
        [&self.small, &self.large, &self.kept]
    }

    /// What one rendering asks for of the room of small ones, and of that of large ones.
    pub(crate) fn list_asks(&self) -> [u64; 2] {
        [SMALL.min(self.limits.bytes), self.limits.bytes]
    }

    /// Renders what a plan asks for. A failure is part of the answer: it becomes a status.
    pub(crate) async fn render(
        &self,
        artifacts: &ArtifactRecords,
        source: &SourceKey,
        request: &RenderRequest,
        lane: &LaneBounds,
    ) -> Roomy {
        let outcome = self.objects(artifacts, source, request, lane).await;
        let (outcome, changed_files, room, seen) = match outcome {
            Ok((made, room)) => (Ok(made.objects), made.changed_files, Some(room), Some(made.seen)),
            Err(failure) => (Err(failure), Vec::new(), None, None),
        };
        Roomy {
            rendered: Rendered::of(request, outcome, changed_files),
            room,
            seen,
        }
    }

    /// Whether another artifact holds the same files, as far as a rendering looked at them; not when that can't be told.
    pub(crate) async fn are_same(
        artifacts: &ArtifactRecords,
        artifact: (&SourceKey, &str),
        seen: &SeenFiles,
        lane: &LaneBounds,
    ) -> bool {
        let deadline = Instant::now() + COMPARING;
        let Ok(tree) = artifacts.tree(artifact, &lane.name, deadline).await else {
            return false;
        };
        let same = || seen.are_same_in(&Files(&tree));
        lane.turns.run(seen.content_bytes(), same).await
    }

    /// Room for objects that are kept while nobody works with them; nothing when there is none, and they are to be rendered again.
    pub(crate) fn keep(&self, lane: &LaneBounds, room: Option<Held>) -> Option<Held> {
        // Given back first: it may be the same room.
        let bytes = room?.bytes();
        self.kept.try_acquire(&lane.name, bytes).ok()
    }

    async fn objects(
        &self,
        artifacts: &ArtifactRecords,
        source: &SourceKey,
        request: &RenderRequest,
        lane: &LaneBounds,
    ) -> Result<(Objects, Held), RenderFailure> {
        let failure = |message: String| RenderFailure {
            message,
            artifact_missing: false,
        };
        let timeout = self.limits.timeout;
        let deadline = Instant::now() + timeout;
        let waiting = tokio::time::timeout_at(deadline, Arc::clone(&lane.renderings).acquire_owned());
        let Ok(Ok(permit)) = waiting.await else {
            return Err(failure(format!(
                "rendering {} had to wait longer than {} s for others of the same tenant",
                request.path,
                timeout.as_secs()
            )));
        };
        // Nothing is loaded for who still waits.
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

    /// Renders in little room, and in all that one may have when that is too little.
    async fn within_room(
        &self,
        held: &Arc<(TreeInUse, OwnedSemaphorePermit)>,
        request: &RenderRequest,
        lane: &LaneBounds,
    ) -> Result<(Objects, Held), String> {
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
                Err(Unbuilt { is_too_large, .. }) if is_too_large && bytes < self.limits.bytes => {}
                Err(Unbuilt { message, .. }) => return Err(message),
            }
        }
        Err(format!("rendering {} needs more room than there is", request.path))
    }

    /// Renders on a thread of its own, which ends when the time is over or nobody waits for it any more.
    async fn on_a_thread(
        &self,
        held: Arc<(TreeInUse, OwnedSemaphorePermit)>,
        request: &RenderRequest,
        bytes: u64,
    ) -> Result<(Objects, u64), Unbuilt> {
        let stopping = Stopping(Stop::new());
        let bounds = Bounds {
            budget: Budget {
                bytes,
                steps: self.limits.steps,
            },
            stop: stopping.0.clone(),
        };
        let (path, overlay, inputs) = (request.path.clone(), request.overlay.clone(), request.inputs.clone());
        let rendering = tokio::task::spawn_blocking(move || {
            let files = Files(&held.0);
            let noted = NotedTree::new(&files);
            let outcome = build_tree(&noted, &path, (&overlay, &inputs), bounds).map(|(built, changed_files)| {
                let objects = rendered(built);
                let bytes: u64 = objects.iter().map(|object| weigh(&object.object.0)).sum();
                let seen = Arc::new(noted.into_seen());
                let bytes = bytes.saturating_add(seen.held_bytes());
                let made = Objects {
                    objects,
                    changed_files,
                    seen,
                };
                (made, bytes)
            });
            // Held until here, also when nobody waits for the outcome any more.
            drop(held);
            outcome
        });
        let failure = |what: String| Unbuilt {
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

/// Renders the files of a tree that is at hand, within the usual bounds, where nobody else waits.
pub(crate) fn render_files(files: &dyn FileTree, request: &RenderRequest) -> Rendered {
    let inputs = (&request.overlay, &request.inputs);
    let (outcome, changed_files) = match build_tree(files, &request.path, inputs, Bounds::default()) {
        Ok((built, changed_files)) => (Ok(rendered(built)), changed_files),
        Err(Unbuilt { message, .. }) => {
            let failure = RenderFailure {
                message,
                artifact_missing: false,
            };
            (Err(failure), Vec::new())
        }
    };
    Rendered::of(request, outcome, changed_files)
}

/// Stops a rendering when it is dropped: nobody waits for it then, or it has ended.
struct Stopping(Stop);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What a rendering may make and do, and what stops it.
#[derive(Default)]
pub(crate) struct Bounds {
    budget: Budget,
    stop: Stop,
}

/// Why nothing was built.
pub(crate) struct Unbuilt {
    pub(crate) message: String,
    /// It would have made more than its budget.
    is_too_large: bool,
}

impl Unbuilt {
    fn of(message: String) -> Self {
        Self {
            message,
            is_too_large: false,
        }
    }
}

impl From<Error> for Unbuilt {
    fn from(error: Error) -> Self {
        let hint = match error {
            Error::Budget { .. } => format!(" (an administrator sets it with {ONE_SETTING} and {STEPS_SETTING})"),
            _ => String::new(),
        };
        Self {
            is_too_large: matches!(error, Error::Budget { .. }),
            message: lines(&error).join("\n") + &hint,
        }
    }
}

/// Renders a folder of a tree, as kustomize-controller would: a folder without a kustomization file is built as if one named every
/// YAML file below it.
///
/// # Errors
/// [`Unbuilt`], its message with file and line where there is one.
pub(crate) fn build_tree(
    files: &dyn FileTree,
    path: &str,
    (overlay, inputs): (&Overlay, &RenderInputs),
    bounds: Bounds,
) -> Result<(Build, Vec<String>), Unbuilt> {
    let whole = WholeFiles::new(files);
    let built = build_whole_tree(&whole, path, (overlay, inputs), bounds);
    match (built, whole.describe_pointer()) {
        (Err(error), _) if error.is_too_large => Err(error),
        (_, Some(pointer)) => Err(Unbuilt::of(pointer)),
        (built, None) => built,
    }
}

fn build_whole_tree(
    files: &dyn FileTree,
    path: &str,
    (overlay, inputs): (&Overlay, &RenderInputs),
    bounds: Bounds,
) -> Result<(Build, Vec<String>), Unbuilt> {
    let folder = path.trim_matches('/');
    let folder = if folder == "." { "" } else { folder };
    match files.entry(folder) {
        Some(kustomize::Entry::Directory) => {}
        Some(_) => {
            return Err(Unbuilt::of(format!(
                "kustomization path {path:?} is not a folder of the source"
            )));
        }
        None => {
            return Err(Unbuilt::of(format!(
                "kustomization path not found: {path:?} is not in the source"
            )));
        }
    }
    let options = Options {
        substitution: inputs.variables().map(substitution),
        ..options(overlay, bounds)
    };
    let Some(keys) = inputs.keys() else {
        return Ok((kustomize::build(files, folder, &options)?, Vec::new()));
    };
    let keys = decryption::read_keys(keys).map_err(Unbuilt::of)?;
    let clear = ClearFiles::new(files, &keys);
    let outcome = kustomize::build(&clear, folder, &options);
    let mut built = match (outcome, clear.failure()) {
        (Err(error @ Error::Budget { .. }), _) => return Err(error.into()),
        (_, Some(failure)) => return Err(Unbuilt::of(failure)),
        (Err(error), None) => return Err(say(error, &clear, files, (folder, &options))),
        (Ok(built), None) => built,
    };
    let budget = (options.budget.bytes, options.budget.steps);
    sops::within(budget, || clear.open_values(&mut built.resources)).map_err(Unbuilt::of)?;
    Ok((built, clear.into_changed()))
}

/// What is said of a build that failed after files were decrypted: what is wrong with the encrypted ones, too, or else nothing that could
/// quote a clear text.
fn say(error: Error, clear: &ClearFiles<'_>, files: &dyn FileTree, (folder, options): (&str, &Options)) -> Unbuilt {
    let Some(unsaid) = clear.unsaid() else {
        return error.into();
    };
    match kustomize::build(files, folder, options) {
        Err(error) => error.into(),
        Ok(_) => Unbuilt::of(unsaid),
    }
}

/// What went wrong, one line each: a name or a text of the repository can't make another.
fn lines(error: &kustomize::Error) -> Vec<String> {
    match error {
        kustomize::Error::Several(errors) => errors.iter().flat_map(lines).collect(),
        kustomize::Error::InBase { chain, source } => {
            let chain = visible_line(&chain.join(" -> ")).into_owned();
            let through = |line| format!("{line} (reached through {chain})");
            lines(source).into_iter().map(through).collect()
        }
        other => vec![visible_line(&other.to_string()).into_owned()],
    }
}

fn rendered(built: Build) -> Vec<RenderedObject> {
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

/// Substitutes, but in what says that it wants to be left alone.
fn substitution(variables: &BTreeMap<String, Variable>) -> Substitution {
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

fn options(overlay: &Overlay, bounds: Bounds) -> Options {
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
pub(crate) struct Files<'a>(pub(crate) &'a Tree);

impl FileTree for Files<'_> {
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
