//! Answers to users about existing objects: the results of an object ([`tree`](crate::tree)), the origin of an object ([`trace`](crate::trace)), and its form as a manifest ([`portable`](crate::portable)).
//!
//! These are functions of the findings so far. Each returns what it has to know next, until it knows enough ([`MissingFacts`]). A label alone proves nothing, because any
//! editor of the object writes it. A status alone proves nothing, because any account with rights on the status writes it. Only both together are a proof. An object
//! that may not be read is never reported as missing. Every walk has an end: cycles are named, and depth and numbers have a bound.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tenure_api::reason::{NO_CONTROLLER, PROGRESSING_WITH_RETRY};
use tenure_api::{ObjectId, ObjectView, SourceUrl, condition};
use tenure_tenancy::{Placement, identity};

use tenure_planner::answer::Live;
use tenure_planner::health::{Health, assess_object};
use tenure_planner::refusal::Reason;

pub(crate) const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";
pub(crate) const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
pub(crate) const TENURE_GROUP: &str = "tenure.dev";
/// The groups whose objects a reconciler handles and whose condition Ready reports the result.
pub(crate) const RECONCILED_GROUPS: [&str; 8] = [
    KUSTOMIZE_GROUP,
    SOURCE_GROUP,
    "source.extensions.fluxcd.io",
    "notification.toolkit.fluxcd.io",
    TENURE_GROUP,
    "capsule.clastix.io",
    HELM_GROUP,
    PACKAGE_GROUP,
];
/// The group of Packages.
pub(crate) const PACKAGE_GROUP: &str = "cozystack.io";
/// The group of HelmReleases.
pub(crate) const HELM_GROUP: &str = "helm.toolkit.fluxcd.io";

/// A fact that has to be read before the answer can be computed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingFacts {
    /// An object.
    Object(ObjectId),
    /// The owner of a namespace, and its relation to another namespace, if there is one.
    Placement(RelatedNamespaces),
}

/// A namespace whose owner is needed, and optionally a second namespace that may belong to the same tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelatedNamespaces {
    /// The namespace.
    pub namespace: String,
    /// The other namespace; empty if there is none.
    pub other: String,
}

/// The objects and the owners of namespaces that were read so far.
#[derive(Debug, Default)]
pub struct Findings {
    /// The read objects. For a Secret or a ConfigMap, the metadata are enough.
    pub objects: BTreeMap<ObjectId, Live>,
    /// The owners of namespaces, or the reason for which an owner is unknown.
    pub placements: BTreeMap<RelatedNamespaces, Result<Placement, String>>,
}

/// The state of an object, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The object is as its spec wants it.
    Ready,
    /// A reconciler still works on the object.
    InProgress,
    /// The object will not become ready by itself.
    Failed,
    /// The object is being deleted.
    Terminating,
    /// The object doesn't exist.
    Absent,
    /// The cluster doesn't serve the object's kind.
    Unserved,
    /// The user may not read the object.
    Forbidden,
    /// The object was not read, or could not be read.
    Unknown,
    /// The object is in another cluster.
    Elsewhere,
}

impl State {
    /// Returns the word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::Absent => "Absent",
            Self::Unserved => "Unserved",
            Self::Forbidden => "Forbidden",
            Self::Unknown => "Unknown",
            Self::Elsewhere => "Elsewhere",
        }
    }
}

/// The state of an object, with its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DescribedState {
    /// The state in a word.
    pub state: State,
    /// The reason that its condition Ready gives; empty when it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the object is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

impl DescribedState {
    pub(crate) fn new(state: State, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: String::new(),
            message: message.into(),
            suspended: false,
        }
    }

    /// Describes an object from the answer to its read.
    #[must_use]
    pub fn describe(live: &Live) -> Self {
        match live {
            Live::Absent => Self::new(State::Absent, "not found"),
            Live::Unserved => Self::new(State::Unserved, "the cluster does not serve its kind"),
            Live::Failed(failure) if failure.reason == Reason::Forbidden => {
                Self::new(State::Forbidden, failure.message.clone())
            }
            Live::Failed(failure) => Self::new(State::Unknown, failure.message.clone()),
            Live::Present(object) => Self::of_object(&object.0),
        }
    }

    fn of_object(object: &Value) -> Self {
        let view = ObjectView::new(object);
        let health = assess_object(object);
        let ready = view.find_condition(condition::READY).unwrap_or_default();
        // A failed attempt that is repeated later has ended.
        let is_reconciling = view
            .find_condition(condition::RECONCILING)
            .is_some_and(|reconciling| reconciling.status == "True" && reconciling.reason != PROGRESSING_WITH_RETRY);
        let (group, _) = tenure_api::inventory::split_api_version(view.read_text("/apiVersion"));
        let is_reconciled = RECONCILED_GROUPS.contains(&group);
        // Ready can be about an earlier generation, which the reconciler has not looked at again yet.
        let generation = view.find_number("/metadata/generation");
        let is_current = ready
            .observed_generation
            .is_none_or(|observed| Some(observed) == generation);
        let state = match &health {
            // The reconciler of the object reports the end and the result of this attempt.
            Health::InProgress(_) if is_reconciled && ready.status == "False" && is_current && !is_reconciling => {
                State::Failed
            }
            Health::Current if is_reconciled && ready.status.is_empty() => State::Unknown,
            Health::Current => State::Ready,
            Health::InProgress(_) => State::InProgress,
            Health::Failed(_) => State::Failed,
            Health::Terminating => State::Terminating,
            Health::NotFound => State::Absent,
            Health::Unknown(_) => State::Unknown,
        };
        let message = match (health.message(), ready.message) {
            ("", "") if state == State::Unknown => "no controller has reconciled it yet",
            // The reconciler's own words about the failure.
            (_, message) if state == State::Failed && !message.is_empty() && !matches!(health, Health::Failed(_)) => {
                message
            }
            ("", message) | (message, _) => message,
        };
        let reason = match (ready.reason, &health) {
            ("", Health::Unknown(_)) => NO_CONTROLLER,
            (reason, _) => reason,
        };
        Self {
            state,
            reason: reason.to_owned(),
            message: message.to_owned(),
            suspended: is_reconciled && view.is_true("/spec/suspend"),
        }
    }
}

/// Describes the identity of a Kustomization, as tenancy decides it. The default identity of a namespace is a setting of the controllers, which is unknown here. Not
/// every user may read the owner of a namespace.
#[must_use]
pub fn describe_identity(placement: Result<&Placement, &str>, kustomization: &Value, namespace: &str) -> String {
    let named =
        Some(ObjectView::new(kustomization).read_text("/spec/serviceAccountName")).filter(|name| !name.is_empty());
    let placement = match (placement, named) {
        (Ok(placement), _) => placement,
        (Err(why), Some(name)) => {
            return format!(
                "ServiceAccount {name} of its namespace, by spec.serviceAccountName (the tenant of {namespace} is unknown: {why})"
            );
        }
        (Err(why), None) => {
            return format!(
                "the ServiceAccount that acts by default in {namespace} (the tenant of {namespace} is unknown: {why})"
            );
        }
    };
    match identity::decide_for_kustomization(placement, namespace, named) {
        Ok(account) if named.is_some() => account.to_string(),
        Ok(account) => format!("{account}, unless an administrator has set another default for {namespace}"),
        Err(denial) => format!("nobody: {denial}"),
    }
}

/// Finds the object that a Kustomization's `sourceRef` names.
#[must_use]
pub fn find_source(kustomization: &Value) -> Option<ObjectId> {
    let view = ObjectView::new(kustomization);
    let own = view.read_text("/metadata/namespace");
    let id = ObjectId {
        namespace: view
            .find_text("/spec/sourceRef/namespace")
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or(own)
            .to_owned(),
        name: view.find_text("/spec/sourceRef/name")?.to_owned(),
        group: SOURCE_GROUP.to_owned(),
        kind: view.find_text("/spec/sourceRef/kind")?.to_owned(),
    };
    // Any user writes this name: it is looked up only if it could be an object's name.
    id.to_string().parse().ok()
}

fn is_kind(id: &ObjectId, group: &str, kind: &str) -> bool {
    (id.group.as_str(), id.kind.as_str()) == (group, kind)
}

pub(crate) fn is_kustomization(id: &ObjectId) -> bool {
    is_kind(id, KUSTOMIZE_GROUP, "Kustomization")
}

pub(crate) fn is_surface(id: &ObjectId) -> bool {
    is_kind(id, TENURE_GROUP, "Surface")
}

pub(crate) fn is_helm_release(id: &ObjectId) -> bool {
    is_kind(id, HELM_GROUP, "HelmRelease")
}

pub(crate) fn is_package(id: &ObjectId) -> bool {
    is_kind(id, PACKAGE_GROUP, "Package")
}

pub(crate) fn is_source(id: &ObjectId) -> bool {
    id.group == SOURCE_GROUP
}

/// Finds the other cluster of a Kustomization's inventory; nothing if the inventory is of this cluster.
pub(crate) fn find_other_cluster(kustomization: ObjectView<'_>) -> Option<String> {
    let elsewhere = kustomization.find_condition(condition::APPLIED_ELSEWHERE);
    let named = elsewhere.and_then(|condition| condition.message.split_whitespace().next());
    match named {
        Some(cluster) => Some(format!("in another cluster, {cluster}: not looked at here")),
        None if kustomization.has("/spec/kubeConfig") => {
            Some("in another cluster (spec.kubeConfig): not looked at here".to_owned())
        }
        None => None,
    }
}

/// Returns a source's address as it may be shown.
pub(crate) fn show_url(source: ObjectView<'_>) -> Option<String> {
    let url = source.find_text("/spec/url").filter(|url| !url.is_empty());
    url.map(|url| SourceUrl::new(url).shown())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use tenure_planner::object::Object;
    use tenure_planner::refusal::Failure;

    #[test]
    fn a_state_repeats_the_reconcilers_report() {
        let kustomization = |conditions: Value| {
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "a", "generation": 1}, "status": {"observedGeneration": 1, "conditions": conditions}})
        };
        let ready =
            |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason, "message": "m"});
        let stalled = json!({"type": "Stalled", "status": "True", "message": "s"});
        let reconciling = json!({"type": "Reconciling", "status": "True", "message": "r"});
        let retrying =
            json!({"type": "Reconciling", "status": "True", "reason": "ProgressingWithRetry", "message": "r"});
        for (conditions, state, message) in [
            (json!([ready("True", "R")]), State::Ready, "m"),
            (json!([ready("False", "BuildFailed")]), State::Failed, "m"),
            (json!([ready("False", "BuildFailed"), stalled]), State::Failed, "s"),
            (
                json!([ready("Unknown", "Progressing"), reconciling]),
                State::InProgress,
                "r",
            ),
            (
                json!([ready("False", "Progressing"), reconciling]),
                State::InProgress,
                "r",
            ),
            (json!([ready("False", "BuildFailed"), retrying]), State::Failed, "m"),
            (json!([]), State::Unknown, "no controller has reconciled it yet"),
        ] {
            let object = kustomization(conditions);
            let described = DescribedState::describe(&Live::Present(Object(object.clone())));
            assert_eq!(
                (described.state, described.message.as_str()),
                (state, message),
                "{object}"
            );
        }
        // A failed attempt ends without an observed generation. Ready says which generation it is about.
        let failed_at = |generation: i64, observed: i64| {
            let mut conditions = json!([ready("False", "ReconciliationFailed"), retrying]);
            conditions[0]["observedGeneration"] = json!(generation);
            let mut object = kustomization(conditions);
            object["metadata"]["generation"] = json!(2);
            object["status"]["observedGeneration"] = json!(observed);
            let described = DescribedState::describe(&Live::Present(Object(object)));
            (described.state, described.message)
        };
        assert_eq!(failed_at(2, -1), (State::Failed, "m".to_owned()));
        assert_eq!(failed_at(2, 1), (State::Failed, "m".to_owned()));
        let not_yet = "its controller has not processed generation 2 yet (the last one is 1)".to_owned();
        assert_eq!(failed_at(1, 1), (State::InProgress, not_yet));
        let foreign = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
            "status": {"conditions": [ready("False", "Waiting")]}});
        assert_eq!(
            DescribedState::describe(&Live::Present(Object(foreign))).state,
            State::InProgress
        );
        let forbidden = Failure {
            code: 403,
            reason: Reason::Forbidden,
            message: "no".to_owned(),
            ..Failure::default()
        };
        assert_eq!(
            DescribedState::describe(&Live::Failed(forbidden)).state,
            State::Forbidden
        );
        assert_eq!(
            DescribedState::describe(&Live::Failed(Failure::default())).state,
            State::Unknown
        );
    }

    #[test]
    fn identity_of_kustomization_follows_tenancy() {
        let named = json!({"spec": {"serviceAccountName": "deployer"}});
        let unnamed = json!({"spec": {}});
        let placement = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        assert_eq!(
            describe_identity(Ok(&placement), &named, "shop"),
            "system:serviceaccount:shop:deployer"
        );
        let description = describe_identity(Ok(&placement), &unnamed, "shop");
        assert!(
            description.starts_with("system:serviceaccount:shop:default, unless"),
            "{description}"
        );
        let disputed = Placement::Disputed {
            message: "two tenants claim it".to_owned(),
        };
        let description = describe_identity(Ok(&disputed), &named, "shop");
        assert!(
            description.starts_with("nobody: ") && description.contains("two tenants claim it"),
            "{description}"
        );
        // A user who may not read Tenants, as most owners of Tenants, gets the Kustomization's own report.
        let description = describe_identity(Err("tenants is forbidden"), &named, "shop");
        assert!(
            description.contains("deployer") && description.contains("tenants is forbidden"),
            "{description}"
        );
        let description = describe_identity(Err("tenants is forbidden"), &unnamed, "shop");
        assert!(
            description.contains("by default in shop") && description.contains("tenants is forbidden"),
            "{description}"
        );
    }

    #[test]
    fn source_reference_with_invalid_name_is_ignored() {
        let named = |name: &str| json!({"metadata": {"namespace": "a"}, "spec": {"sourceRef": {"kind": "GitRepository", "name": name}}});
        let found = find_source(&named("web")).map(|id| id.subject());
        assert_eq!(found.as_deref(), Some("GitRepository/a/web"));
        for name in ["../../secrets/x", "a%2fb", ""] {
            assert_eq!(find_source(&named(name)), None, "{name}");
        }
    }
}
