//! The Plan: what to do next, as whom, what will follow, what the status says, when to look again, and what is not done and why.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::access::{AccessProviderStatus, FluxAccessRequestStatus};
use tenure_api::{Condition, KustomizationStatus, ObjectId, SurfaceStatus, TenantStatus};

use crate::object::{Object, Origin, shown};
use crate::target::Target;

/// A plan. What can be done, and as whom, differs by kind: so no plan for what a repository contains can hold the controller's identity,
/// and none of a Kustomization fetches.
///
/// `S` is a step, `I` who carries the steps out, `T` the kind's status, and `M` what the shell carries from plan to plan for this object
/// besides what can be observed; it may be lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan<S, I, T, M> {
    /// The object that the plan is for, as `Kind/namespace/name`.
    pub subject: String,
    /// Who executes the steps. Nothing is executed without one; a plan without steps may have none.
    pub identity: Option<I>,
    /// The next stage, in order. Steps of one kind next to each other may run at the same time, except [`Request::Apply`] and
    /// [`Request::Delete`], whose order is meant.
    pub steps: Vec<S>,
    /// When the steps have to be done: what is not begun by then is left without an answer, and what is under way is given up, and
    /// answered with a failure of which nobody knows whether it had an effect.
    pub deadline: Option<Timestamp>,
    /// What is expected to follow, for people; nothing executes it.
    pub forecast: Vec<Forecast>,
    /// Change of the object's own finalizer, made by the controller itself **before** the steps. A `Remove` comes in a plan without
    /// steps.
    pub finalizer: Option<FinalizerChange>,
    /// The object's new status, whole; nothing when it is as it should be. Written by the controller itself after the steps, unless
    /// [`Plan::status_first`].
    pub status: Option<T>,
    /// The status is a condition of the steps: it is stored before them, and none of them is carried out, nor is anything remembered
    /// of this plan, unless the API server has acknowledged that.
    pub status_first: bool,
    /// Events about the object, to be emitted after the status was written.
    pub events: Vec<Event>,
    /// What is not done, and why.
    pub withheld: Vec<Withheld>,
    /// What the shell watches with the plan's identity, so that it plans again when one changes: for drift and health.
    pub watch: Vec<Watched>,
    /// The cluster that the steps and the watch are about, if it isn't this one. The plan's identity reads what is here, and there the
    /// target's user acts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_target")]
    pub target: Option<Arc<Target>>,
    /// What is watched here all the same, when the plan is about another cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watch_here: Vec<Watched>,
    /// What happens after the steps.
    pub next: Next,
    /// What to hand to the next plan.
    pub memory: M,
}

fn write_target<S: serde::Serializer>(target: &Option<Arc<Target>>, serializer: S) -> Result<S::Ok, S::Error> {
    target.as_deref().serialize(serializer)
}

/// A status, which says by conditions how its object fares.
pub trait Status: Clone + Default + PartialEq {
    /// The conditions.
    fn conditions(&self) -> &[Condition];

    /// The conditions, to be changed.
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

/// A step of a plan: something to do. Everything is decided: the shell chooses nothing.
pub trait Step: fmt::Display {
    /// Whether it takes nobody's rights.
    fn is_public(&self) -> bool;
}

/// A request to the cluster, as a step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Ask discovery whether these kinds are served, and how. Answers: `kinds`.
    ResolveKinds(Vec<KindReference>),
    /// Read an object. Answer: `live`. From a watch's cache when there is one.
    Read(Watched),
    /// Server-side apply, dry-run. Answer: the attempt's `dry_runs`.
    DryRun(Apply),
    /// Dry-run of the creation of an object that is there already, under another name. Answer: the attempt's `tried`, by the id of the one
    /// that is there.
    Try(Apply),
    /// Server-side apply. Answer: the attempt's `applied`; the object also becomes its `live`.
    Apply(Apply),
    /// JSON patch of managedFields that takes fields over from other managers. Answer: the attempt's `taken_over`.
    TakeOver(TakeOver),
    /// Merge patch that removes ownerReferences. Answer: the attempt's `disowned`; the object also becomes its `live`.
    Disown(Disown),
    /// Merge patch that removes finalizers. Answer: the attempt's `released`; the object also becomes its `live`.
    Release(Release),
    /// List what owns the PersistentVolumeClaims of a namespace. Answer: the attempt's `claims`.
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

/// A kind with its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReference {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// An object, and the version to read or watch it with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct Watched {
    /// Which object.
    pub id: ObjectId,
    /// API version without the group.
    pub version: String,
}

impl Watched {
    /// `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.id.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.id.group, self.version)
        }
    }
}

/// A server-side apply. Printed and serialised without what is confidential.
#[derive(Clone, PartialEq)]
pub struct Apply {
    /// Which object.
    pub id: ObjectId,
    /// What is applied.
    pub object: Object,
    /// Where it came from.
    pub origin: Origin,
    /// Field manager.
    pub manager: String,
    /// Whether conflicts are overruled.
    pub force: bool,
    /// Whether the object holds what may be in no text: what is said about it is built again (see [`crate::confidential`]).
    pub confidential: bool,
}

impl fmt::Debug for Apply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = shown(&self.object, self.confidential);
        write!(formatter, "Apply({object}, {}, {})", self.origin, self.manager)
    }
}

impl Serialize for Apply {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Apply", 6)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("object", &shown(&self.object, self.confidential))?;
        fields.serialize_field("origin", &self.origin)?;
        fields.serialize_field("manager", &self.manager)?;
        fields.serialize_field("force", &self.force)?;
        fields.serialize_field("confidential", &self.confidential)?;
        fields.end()
    }
}

/// A take-over of fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeOver {
    /// Which object, and the version to patch it with.
    pub target: Watched,
    /// Managers whose fields are taken over.
    pub from: Vec<String>,
    /// A JSON patch (RFC 6902): replaces `metadata.managedFields`, and carries the resourceVersion that it was made from.
    pub patch: Value,
}

/// A removal of ownerReferences, by which the garbage collector would delete an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disown {
    /// Which object, and the version to patch it with.
    pub target: Watched,
    /// The merge patch. It carries uid and resourceVersion of the object that was examined.
    pub patch: Value,
}

/// A removal of finalizers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Which object, and the version to patch it with.
    pub target: Watched,
    /// The finalizers that it loses.
    pub finalizers: Vec<String>,
    /// The merge patch. It carries uid and resourceVersion of the object that was examined.
    pub patch: Value,
}

/// A delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delete {
    /// Which object, and the version to delete it with.
    pub target: Watched,
    /// Uid of the object that was examined: a precondition, so that a namesake made since is not deleted.
    pub uid: Option<String>,
    /// Its version then: a precondition, so that what has changed since is looked at again.
    pub resource_version: Option<String>,
    /// What becomes of what it owns.
    pub propagation: Propagation,
    /// Why.
    pub why: String,
}

/// What becomes of what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Propagation {
    /// It is deleted afterwards.
    Background,
    /// It is deleted before.
    Foreground,
    /// It stays.
    Orphan,
}

impl Propagation {
    /// The word in the request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// A stage of what is done for an object. Each of the apply's is complete, and its objects ready, before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// CustomResourceDefinitions, Namespaces and ClusterRoles: others cannot be stored, or not be allowed, without them.
    Definitions,
    /// Kinds that end in `Class`: others refer to them by name.
    Classes,
    /// Roles: unless it may bind anything, an identity can't even dry-run a RoleBinding before the Role is there. (Flux has this
    /// stage for ClusterRoles only.)
    Roles,
    /// Admission policies and what binds them: what comes later is judged by them. Not waited for: what a policy says of its types is no
    /// sign that it is asked.
    Policies,
    /// What keeps others within bounds: bindings of roles, NetworkPolicies, quotas. Only where what is refused is left out; otherwise they
    /// are refused together with what they are for.
    Protections,
    /// Kinds that an administrator wants before everything else. Not waited for, as in Flux.
    Custom,
    /// Everything else.
    Rest,
    /// What is not wanted any more is deleted.
    Prune,
    /// It is waited until everything is healthy.
    Health,
}

impl Stage {
    /// Its name.
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

/// What is expected to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Which stage.
    pub stage: Stage,
    /// What is expected in it, one line each.
    pub actions: Vec<String>,
}

/// A change of the object's own finalizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FinalizerChange {
    /// Add it.
    Add(String),
    /// Remove it: the object goes.
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
    /// Where it is written.
    pub place: EventPlace,
}

/// Where an event is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventPlace {
    /// Beside the object that the plan is for, about it.
    #[default]
    Beside,
    /// In the platform namespace, related to the object: its own namespace may go, and nobody but the platform can act on it.
    Platform,
    /// About another Kustomization, which may know of this one.
    Kustomization {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// Something went as it should.
    Normal,
    /// Something did not.
    Warning,
}

impl EventKind {
    /// The word in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something that is not done, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Withheld {
    /// What: an object, or a phase.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What happens after the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// Plan again at once, with the steps' answers, in the same attempt.
    Again,
    /// Forget the attempt and its answers, and plan again at once: what it was made for has changed.
    Restart,
    /// Keep the attempt; plan again when something watched changes, or at this time.
    Wait(Timestamp),
    /// The attempt is over: forget its answers. Plan again, in a new attempt, at this time if there is one, or when a trigger fires:
    /// the object's generation or `requestedAt` changes, its source has another revision, a dependency changes, something watched changes.
    Done(Option<Timestamp>),
    /// The object is gone or not ours: forget everything about it.
    Forget,
}

impl<S, I, T, M> Plan<S, I, T, M> {
    /// A plan that does nothing.
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
    /// The plan for people: never the contents of an object.
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
            Self::Try(apply) => write!(
                formatter,
                "try to create {} under another name ({})",
                apply.id.subject(),
                apply.origin
            ),
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
