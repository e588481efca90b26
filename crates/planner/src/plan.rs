//! The Plan: the next steps, their identity, the expected steps after them, the status, the next time, and each omitted action with its reason.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::access::{AccessProviderStatus, FluxAccessRequestStatus};
use tenure_api::{Condition, KustomizationStatus, ObjectId, SurfaceStatus, TenantStatus};

use crate::object::{Object, Origin, describe_for_message};
use crate::target::Target;

/// A plan. The possible steps and identities differ by kind: so no plan for the content of a repository can hold the controller's identity, and no plan of a
/// Kustomization fetches.
///
/// `S` is a step, `I` the identity that carries the steps out, `T` the kind's status, and `M` the state that the shell carries from plan to plan for this object
/// besides observable facts. This state may be lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan<S, I, T, M> {
    /// The object that the plan is for, as `Kind/namespace/name`.
    pub subject: String,
    /// The identity that executes the steps. Without an identity nothing is executed; a plan without steps may have none.
    pub identity: Option<I>,
    /// The next stage, in order. Steps of one kind next to each other may run at the same time, except [`Request::Create`], [`Request::Apply`] and [`Request::Delete`], whose order counts.
    pub steps: Vec<S>,
    /// The deadline of the steps. A step that has not begun by then gets no answer. A running step is given up and answered with a failure, and its effect is unknown.
    pub deadline: Option<Timestamp>,
    /// The expected further steps, for people; nothing executes them.
    pub forecast: Vec<Forecast>,
    /// A change of the object's own finalizer, which the controller itself makes **before** the steps. A `Remove` comes in a plan without steps.
    pub finalizer: Option<FinalizerChange>,
    /// The object's new status as a whole, or nothing if the status is right already. The controller itself writes it after the steps, unless [`Plan::status_first`] is
    /// set.
    pub status: Option<T>,
    /// Whether the status is a condition of the steps. Then it is stored before them. Without an acknowledgement of the API server, no step is executed and nothing of
    /// this plan is remembered.
    pub status_first: bool,
    /// Events about the object, which are emitted after the status was written.
    pub events: Vec<Event>,
    /// Actions that the plan omits, each with its reason.
    pub withheld: Vec<Withheld>,
    /// The objects that the shell watches with the plan's identity, for drift and health. A change of one causes a new plan.
    pub watch: Vec<Watched>,
    /// The cluster of the steps and the watches, if it isn't this one. The plan's identity reads in this cluster, and the target's user acts in the other one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_target")]
    pub target: Option<Arc<Target>>,
    /// The objects to watch in this cluster if the plan is about another one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watch_here: Vec<Watched>,
    /// The action after the steps.
    pub next: Next,
    /// The state for the next plan.
    pub memory: M,
}

fn write_target<S: serde::Serializer>(target: &Option<Arc<Target>>, serializer: S) -> Result<S::Ok, S::Error> {
    target.as_deref().serialize(serializer)
}

/// The status of a kind, with conditions.
pub trait Status: Clone + Default + PartialEq {
    /// Returns the conditions.
    fn conditions(&self) -> &[Condition];

    /// Returns the conditions for changes.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
}

impl Status for KustomizationStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for AccessProviderStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for FluxAccessRequestStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for SurfaceStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for TenantStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

/// A step of a plan. It contains all decisions, so the shell only executes it.
pub trait Step: fmt::Display {
    /// Checks whether the step can run without an identity, because it needs no rights in the cluster.
    fn is_public(&self) -> bool;
}

/// A request to the cluster, as a step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Ask discovery whether these kinds are served, and in which form. Answers: `kinds`.
    ResolveKinds(Vec<KindReference>),
    /// Read an object, from a watch's cache if there is one. Answer: `live`.
    Read(Watched),
    /// Server-side apply, dry-run. Answer: the attempt's `dry_runs`.
    DryRun(Apply),
    /// Dry-run of a creation: of a new object, or of an existing one under another name. Answer: the attempt's `tried`, by the id of the object.
    Try(Apply),
    /// Creation of an object that doesn't exist (POST). Answer: the attempt's `created`.
    Create(Apply),
    /// Server-side apply. Answer: the attempt's `applied`; the object also becomes its `live`.
    Apply(Apply),
    /// JSON patch of managedFields that takes fields over from other managers. Answer: the attempt's `taken_over`.
    TakeOver(TakeOver),
    /// Merge patch that removes ownerReferences. Answer: the attempt's `disowned`; the object also becomes its `live`.
    Disown(Disown),
    /// Merge patch that removes finalizers. Answer: the attempt's `released`; the object also becomes its `live`.
    Release(Release),
    /// List the owners of the PersistentVolumeClaims of a namespace. Answer: the attempt's `claims`.
    FindClaims(String),
    /// Dry-run of a delete. Answer: the attempt's `tried_deletes`.
    TryDelete(Delete),
    /// Delete. Answer: the attempt's `deleted`.
    Delete(Delete),
}

impl Step for Request {
    fn is_public(&self) -> bool {
        matches!(self, Self::ResolveKinds(_))
    }
}

/// A kind with its API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReference {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// An object, and the API version for requests about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct Watched {
    /// The object.
    pub id: ObjectId,
    /// API version without the group.
    pub version: String,
}

impl Watched {
    /// Returns `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.id.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.id.group, self.version)
        }
    }
}

/// The content of a server-side apply, or of a creation. Its printed and serialised forms leave out confidential content.
#[derive(Clone, PartialEq)]
pub struct Apply {
    /// The object's id.
    pub id: ObjectId,
    /// The applied content.
    pub object: Object,
    /// The place in the repository that the object came from.
    pub origin: Origin,
    /// Field manager.
    pub manager: String,
    /// Whether the apply overrules conflicts.
    pub force: bool,
    /// Whether the object has confidential content: then each message about it is built again (see [`crate::confidential`]).
    pub confidential: bool,
}

impl fmt::Debug for Apply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = describe_for_message(&self.object, self.confidential);
        write!(formatter, "Apply({object}, {}, {})", self.origin, self.manager)
    }
}

impl Serialize for Apply {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Apply", 6)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("object", &describe_for_message(&self.object, self.confidential))?;
        fields.serialize_field("origin", &self.origin)?;
        fields.serialize_field("manager", &self.manager)?;
        fields.serialize_field("force", &self.force)?;
        fields.serialize_field("confidential", &self.confidential)?;
        fields.end()
    }
}

/// A take-over of fields from other field managers, by a patch of managedFields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeOver {
    /// The object, and the version to patch it with.
    pub target: Watched,
    /// Managers whose fields are taken over.
    pub from: Vec<String>,
    /// A JSON patch (RFC 6902): replaces `metadata.managedFields`, and carries the resourceVersion that it was made from.
    pub patch: Value,
}

/// A removal of ownerReferences, because of which the garbage collector would delete the object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disown {
    /// The object, and the version to patch it with.
    pub target: Watched,
    /// The merge patch. It carries uid and resourceVersion of the object that was examined.
    pub patch: Value,
}

/// A removal of finalizers from an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The object, and the version to patch it with.
    pub target: Watched,
    /// The finalizers to remove.
    pub finalizers: Vec<String>,
    /// The merge patch. It carries uid and resourceVersion of the object that was examined.
    pub patch: Value,
}

/// The deletion of an object, with its preconditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delete {
    /// The object, and the version to delete it with.
    pub target: Watched,
    /// Uid of the examined object: a precondition, so that a newer object of the same name is not deleted.
    pub uid: Option<String>,
    /// Version of the examined object: a precondition, so that a changed object is examined again.
    pub resource_version: Option<String>,
    /// The propagation to the object's dependents.
    pub propagation: Propagation,
    /// The reason for the deletion.
    pub why: String,
}

/// The deletion propagation to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Propagation {
    /// The dependents are deleted afterwards.
    Background,
    /// The dependents are deleted first.
    Foreground,
    /// The dependents stay.
    Orphan,
}

impl Propagation {
    /// Returns the value of `propagationPolicy`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// A stage of a plan. Each stage of an apply is complete, and its objects are ready, before the next stage begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// CustomResourceDefinitions, Namespaces and ClusterRoles: other objects need them to be stored or allowed.
    Definitions,
    /// Kinds that end in `Class`: others refer to them by name.
    Classes,
    /// Roles: unless an identity may bind anything, it can't even dry-run a RoleBinding before the Role exists. (Flux has this stage for ClusterRoles only.)
    Roles,
    /// Admission policies and their bindings, which check the later objects. The stage waits for no health: a policy's report about its types is no sign that the API
    /// server evaluates it.
    Policies,
    /// Objects that set bounds for others: bindings of roles, NetworkPolicies, quotas. The stage exists only if refused objects are left out; otherwise these objects
    /// are refused together with the ones that they protect.
    Protections,
    /// Kinds that an administrator wants before everything else. The stage waits for no health, as in Flux.
    Custom,
    /// Everything else.
    Rest,
    /// Deletion of objects that are not wanted any more.
    Prune,
    /// Wait until everything is healthy.
    Health,
}

impl Stage {
    /// Returns the name of the stage.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Definitions => "definitions",
            Self::Classes => "classes",
            Self::Roles => "roles",
            Self::Policies => "policies",
            Self::Protections => "protections",
            Self::Custom => "custom",
            Self::Rest => "rest",
            Self::Prune => "prune",
            Self::Health => "health",
        }
    }
}

/// The actions that a plan expects in a later stage, for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The stage.
    pub stage: Stage,
    /// The expected actions, one line each.
    pub actions: Vec<String>,
}

/// A change of the object's own finalizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FinalizerChange {
    /// Add the finalizer.
    Add(String),
    /// Remove the finalizer: the object disappears.
    Remove(String),
}

/// An event about the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Normal or Warning.
    pub kind: EventKind,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Annotations, such as Flux's revision.
    pub annotations: std::collections::BTreeMap<String, String>,
    /// The place where the event is written.
    pub place: EventPlace,
}

/// The namespace and the object of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventPlace {
    /// In the namespace of the plan's object, about this object.
    #[default]
    Beside,
    /// In the platform namespace, related to the object: the object's own namespace may be deleted, and only the platform can act on the event.
    Platform,
    /// About another Kustomization, whose users may know the plan's Kustomization.
    Kustomization {
        /// The namespace of that Kustomization.
        namespace: String,
        /// The name of that Kustomization.
        name: String,
        /// The uid of that Kustomization.
        uid: String,
    },
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The event reports no problem.
    Normal,
    /// The event reports a problem.
    Warning,
}

impl EventKind {
    /// Returns the value of the Event's field `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An action that a plan omits, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Withheld {
    /// The omitted action: an object, or a phase.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// The action after the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// Plan again at once, with the steps' answers, in the same attempt.
    Again,
    /// Forget the attempt and its answers, and plan again at once: the input of the attempt has changed.
    Restart,
    /// Keep the attempt. Plan again when a watched object changes, or at this time.
    Wait(Timestamp),
    /// The attempt is over: forget its answers. Plan again in a new attempt, at this time if there is one, or when a trigger fires. Triggers are: the object's
    /// generation or `requestedAt` changes, its source has another revision, a dependency changes, or a watched object changes.
    Done(Option<Timestamp>),
    /// The object is gone or not Tenure's: forget everything about it.
    Forget,
}

impl<S, I, T, M> Plan<S, I, T, M> {
    /// Creates a plan that does nothing.
    pub fn idle(subject: impl Into<String>, memory: M) -> Self {
        Self {
            subject: subject.into(),
            identity: None,
            steps: Vec::new(),
            deadline: None,
            forecast: Vec::new(),
            finalizer: None,
            status: None,
            status_first: false,
            events: Vec::new(),
            withheld: Vec::new(),
            watch: Vec::new(),
            target: None,
            watch_here: Vec::new(),
            next: Next::Done(None),
            memory,
        }
    }
}

impl<S: fmt::Display, I: fmt::Display, T: Status, M> fmt::Display for Plan<S, I, T, M> {
    /// Prints the plan for people, without the contents of any object.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Some(identity) => writeln!(formatter, "{} as {identity}", self.subject)?,
            None => writeln!(formatter, "{}", self.subject)?,
        }
        if let Some(target) = &self.target {
            writeln!(formatter, "  in the cluster at {target}")?;
        }
        if let Some(change) = &self.finalizer {
            match change {
                FinalizerChange::Add(name) => writeln!(formatter, "  add finalizer {name}")?,
                FinalizerChange::Remove(name) => writeln!(formatter, "  remove finalizer {name}")?,
            }
        }
        if self.status_first {
            writeln!(formatter, "  first store the status")?;
        }
        for step in &self.steps {
            writeln!(formatter, "  {step}")?;
        }
        for forecast in &self.forecast {
            for action in &forecast.actions {
                writeln!(formatter, "  then ({}) {action}", forecast.stage.as_str())?;
            }
        }
        for withheld in &self.withheld {
            writeln!(formatter, "  not {}: {}", withheld.what, withheld.why)?;
        }
        if let Some(status) = &self.status {
            for condition in status.conditions() {
                writeln!(
                    formatter,
                    "  {}={} {}: {}",
                    condition.type_,
                    condition.status.as_str(),
                    condition.reason,
                    condition.message
                )?;
            }
        }
        for event in &self.events {
            let place = match &event.place {
                EventPlace::Beside => String::new(),
                EventPlace::Platform => " for the platform".to_owned(),
                EventPlace::Kustomization { namespace, name, .. } => format!(" for Kustomization/{namespace}/{name}"),
            };
            writeln!(
                formatter,
                "  event{place} {} {}: {}",
                event.kind.as_str(),
                event.reason,
                event.message
            )?;
        }
        match &self.next {
            Next::Again => writeln!(formatter, "  next: plan again"),
            Next::Restart => writeln!(formatter, "  next: start over"),
            Next::Wait(until) => writeln!(formatter, "  next: wait for a change, until {until}"),
            Next::Done(Some(at)) => writeln!(formatter, "  next: at {at}"),
            Next::Done(None) => writeln!(formatter, "  next: when something changes"),
            Next::Forget => writeln!(formatter, "  next: nothing"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ResolveKinds(kinds) => {
                write!(formatter, "look up ")?;
                for (index, kind) in kinds.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{} ({})", kind.kind, kind.api_version)?;
                }
                Ok(())
            }
            Self::Read(target) => write!(formatter, "read {}", target.id.subject()),
            Self::DryRun(apply) => write!(formatter, "dry-run {} ({})", apply.id.subject(), apply.origin),
            Self::Try(apply) => {
                let is_new = apply.object.view().find_text("/metadata/name") == Some(apply.id.name.as_str());
                let name = if is_new { "" } else { " under another name" };
                write!(
                    formatter,
                    "try to create {}{name} ({})",
                    apply.id.subject(),
                    apply.origin
                )
            }
            Self::Create(apply) => write!(formatter, "create {} ({})", apply.id.subject(), apply.origin),
            Self::Apply(apply) => write!(formatter, "apply {} ({})", apply.id.subject(), apply.origin),
            Self::TakeOver(take_over) => {
                write!(
                    formatter,
                    "take over {} from {}",
                    take_over.target.id.subject(),
                    take_over.from.join(", ")
                )
            }
            Self::Disown(disown) => write!(
                formatter,
                "remove ownerReferences to Tenants from {}",
                disown.target.id.subject()
            ),
            Self::Release(release) => write!(
                formatter,
                "remove finalizers {} from {}",
                release.finalizers.join(", "),
                release.target.id.subject()
            ),
            Self::FindClaims(namespace) => write!(formatter, "list who owns claims in namespace {namespace}"),
            Self::TryDelete(delete) => write!(formatter, "try to delete {}", delete.target.id.subject()),
            Self::Delete(delete) => write!(formatter, "delete {}: {}", delete.target.id.subject(), delete.why),
        }
    }
}
