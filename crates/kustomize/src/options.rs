//! The options of a build besides the tree: limits, the budget, the load restriction, and the overrides with which a reconciler changes the
//! root kustomization.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::substitution::Substitution;

/// The allowed locations for files of a kustomization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadRestrictor {
    /// Files in or below the directory of the kustomization that names them: kustomize's default.
    #[default]
    RootOnly,
    /// Anywhere in the tree.
    None,
}

/// The order in which resources are written if the kustomization's `sortOptions` don't set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reorder {
    /// The caller sets no order: as [`Reorder::Legacy`].
    #[default]
    Unspecified,
    /// Namespaces first, webhooks last, by kind and name.
    Legacy,
    /// The order in which resources were loaded.
    None,
}

/// The limits for the input of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together. A file counts each time it is read.
    pub bytes: usize,
    /// Documents of all files together.
    pub documents: usize,
    /// YAML nodes of all files together, aliases expanded.
    pub nodes: usize,
    /// Directories on one way from the root kustomization to a base.
    pub depth: usize,
    /// Kustomizations in the whole build. A kustomization counts each time it is reached.
    pub kustomizations: usize,
    /// Resources at any time.
    pub resources: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes: 512 << 20,
            documents: 200_000,
            nodes: 20_000_000,
            depth: 64,
            kustomizations: 10_000,
            resources: 100_000,
        }
    }
}

/// The limit of a build's work, independent of its input. A few lines of input can copy a large text into thousands of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that are made in total: nodes as stored (40 bytes, plus the text if it is longer than 23 bytes), the JSON objects made from
    /// them, and notes about them. Dropped data counts too, except data that was only inspected. So a build never holds more than this
    /// beside the files, plus at most one copy.
    pub bytes: u64,
    /// Units of work: a visited node, resource or name, or sixteen bytes of written text. A step takes about five nanoseconds.
    pub steps: u64,
}

impl Budget {
    /// No limit at all.
    pub const UNLIMITED: Budget = Budget {
        bytes: u64::MAX,
        steps: u64::MAX,
    };
}

impl Default for Budget {
    /// Returns 4 GiB and 100,000 million steps, for trees that the caller trusts.
    fn default() -> Self {
        Budget {
            bytes: 4 << 30,
            steps: 100_000_000_000,
        }
    }
}

/// Ends a build from another thread. The build notices it within some thousand steps, returns [`crate::Error::Stopped`] and leaves its
/// thread free. A build has no clock, so a caller with a deadline uses this type.
///
/// ```
/// use kustomize::{Error, MapTree, Options, Stop, build};
///
/// let stop = Stop::new();
/// let options = Options { stop: stop.clone(), ..Options::default() };
/// stop.stop();
/// let mut tree = MapTree::new();
/// tree.insert("kustomization.yaml", "resources: [account.yaml]\n");
/// tree.insert("account.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n");
/// assert!(matches!(build(&tree, "", &options), Err(Error::Stopped { .. })));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    /// A stop that never ends a build.
    pub const NEVER: Stop = Stop(None);

    /// Creates a stop for the builds that get it or a clone of it.
    #[must_use]
    pub fn new() -> Self {
        Stop(Some(Arc::default()))
    }

    /// Ends all builds that have this stop or a clone of it.
    pub fn stop(&self) {
        if let Some(stopped) = &self.0 {
            stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the flag that the stop sets.
    pub(crate) fn flag(&self) -> Option<Arc<AtomicBool>> {
        self.0.clone()
    }

    /// Checks whether the stop was used.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.as_ref().is_some_and(|stopped| stopped.load(Ordering::Relaxed))
    }
}

/// Two stops are equal if they end the same builds.
impl PartialEq for Stop {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Stop {}

/// A patch that a caller adds: inline text, strategic merge or JSON 6902, with an optional target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchOverride {
    /// The text of the patch, YAML or JSON.
    pub patch: String,
    /// The target resources. A strategic merge patch may instead name its own target.
    pub target: Option<PatchTarget>,
}

/// Selects resources for a patch; an empty part selects any, others are regular expressions that must match as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchTarget {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// A label selector, as kubectl takes it.
    pub label_selector: String,
    /// A selector of annotations, written as a label selector.
    pub annotation_selector: String,
}

/// An image that a caller changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageOverride {
    /// The image's name as the resources have it.
    pub name: String,
    /// The name to put instead; empty keeps it.
    pub new_name: String,
    /// The tag to put instead; empty keeps it.
    pub new_tag: String,
    /// The digest that replaces the tag; empty for none.
    pub digest: String,
}

/// The changes of a reconciler to the root kustomization, as in Flux's kustomize-controller: scalar fields are overwritten, patches and
/// components appended, images merged by name or appended.
///
/// ```
/// use kustomize::{MapTree, Options, Overrides, build};
///
/// let mut tree = MapTree::new();
/// tree.insert("kustomization.yaml", "namespace: staging\nresources: [account.yaml]\n");
/// tree.insert("account.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n");
/// let mut options = Options::default();
/// options.overrides.namespace = Some("production".to_owned());
/// let built = build(&tree, "", &options)?;
/// assert_eq!(built.resources[0].object["metadata"]["namespace"], "production");
/// # Ok::<(), kustomize::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `namespace`; Flux calls it targetNamespace.
    pub namespace: Option<String>,
    /// `namePrefix`.
    pub name_prefix: Option<String>,
    /// `nameSuffix`.
    pub name_suffix: Option<String>,
    /// Appended to `patches`.
    pub patches: Vec<PatchOverride>,
    /// Merged into `images` by name.
    pub images: Vec<ImageOverride>,
    /// Appended to `components`, relative to the directory that is built.
    pub components: Vec<String>,
    /// Leaves out components whose directory doesn't exist.
    pub ignore_missing_components: bool,
    /// Replaces `buildMetadata`, unless empty.
    pub build_metadata: Vec<String>,
    /// Labels put on every resource after the build; they win over others.
    pub labels: BTreeMap<String, String>,
    /// Annotations put on every resource after the build; they win over others.
    pub annotations: BTreeMap<String, String>,
}

/// Options of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The allowed locations of files.
    pub load_restrictor: LoadRestrictor,
    /// The limits for the input.
    pub limits: Limits,
    /// The limits for the work.
    pub budget: Budget,
    /// Ends the build early.
    pub stop: Stop,
    /// The caller's changes to the root kustomization.
    pub overrides: Overrides,
    /// Substitutes variables in the built resources, before the labels and annotations of the overrides.
    pub substitution: Option<Substitution>,
    /// Builds a directory without a kustomization as if [`crate::generate`] had written one.
    pub generate_missing: bool,
    /// Adds the label that `--enable-managedby-label` adds.
    pub managed_by_label: bool,
    /// The order from `--reorder`.
    pub reorder: Reorder,
}
