//! Translates changes into tasks. This module is pure and does not act. It keeps small indexes: owners and
//! dependents, terminating namespaces, and token Secrets of ServiceAccounts. Invariant: the caller passes every
//! change once, in the store's order, so the indexes are complete up to the current change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use regex::bytes::Regex;
use serde_json::Value;
use tenure_kinds::{built_in, customresources};

use super::expiry::{ExpiredEvent, Expiry};
use super::garbage::{FOREGROUND, ORPHAN, OwnerIndex, has_finalizer};
use super::namespace;
use super::object_name::{ObjectName, get_text, is_deleting};
use super::policy_types;
use super::service_account::{ROOT_CA, account_of};
use super::workload;

/// Longest duration of a writing request.
const LONGEST_REQUEST: SignedDuration = SignedDuration::from_mins(1);

/// An object that a controller has to check. The action depends on the state that the check finds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Task {
    /// A terminating namespace: delete its objects, then remove it.
    Namespace(String),
    /// A namespace that needs its ServiceAccount and the CA's certificate.
    Furnish(String),
    /// A Secret for a ServiceAccount's token: namespace and name.
    Token(String, String),
    /// An object whose owners changed or were deleted.
    Dependent(ObjectName),
    /// An owner that waits until its dependents are deleted.
    Foreground(ObjectName),
    /// An owner whose dependents are to be released.
    Orphan(ObjectName),
    /// The aggregated ClusterRoles.
    Aggregate,
    /// A workload whose status is to be reported.
    Workload(ObjectName),
    /// An object in a deleted namespace: it was admitted just before the deletion.
    Stray(ObjectName),
    /// An expired Event.
    Expire(ExpiredEvent),
    /// A namespace whose quotas must be recounted.
    Count(String),
    /// An admission policy whose expressions are to be checked against the kinds that it matches.
    CheckTypes(String),
}

/// An object whose every change is checked, because a controller follows its kind; with its namespace where the
/// controller needs that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Followed<'a> {
    Namespace,
    /// The CA's certificate in a namespace.
    RootCertificate(&'a str),
    ServiceAccount(&'a str),
    Secret(&'a str),
    Event,
    Quota(&'a str),
    ClusterRole,
    Policy,
    Definition,
}

impl<'a> Followed<'a> {
    /// Returns the followed kind of an object. Only this function names kinds: each kind belongs to one of the
    /// controllers.
    fn from_name(name: &'a ObjectName) -> Option<Self> {
        match (name.group.as_str(), name.plural.as_str(), name.namespace.as_deref()) {
            ("", "namespaces", None) => Some(Self::Namespace),
            ("", "configmaps", Some(namespace)) if name.name == ROOT_CA => Some(Self::RootCertificate(namespace)),
            ("", "serviceaccounts", Some(namespace)) => Some(Self::ServiceAccount(namespace)),
            ("", "secrets", Some(namespace)) => Some(Self::Secret(namespace)),
            ("", "events", Some(_)) => Some(Self::Event),
            ("", "resourcequotas", Some(namespace)) => Some(Self::Quota(namespace)),
            ("rbac.authorization.k8s.io", "clusterroles", None) => Some(Self::ClusterRole),
            (policy_types::GROUP, policy_types::PLURAL, None) => Some(Self::Policy),
            (customresources::GROUP, customresources::PLURAL, None) => Some(Self::Definition),
            _ => None,
        }
    }
}

/// Turns changes of objects into tasks of the controllers, by its indexes.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    owners: OwnerIndex,
    /// Owners that wait for their dependents, by UID.
    waiting: HashMap<String, ObjectName>,
    /// Objects with owners that could not be resolved.
    unresolved: BTreeSet<ObjectName>,
    /// The existing namespaces.
    namespaces: HashSet<String>,
    /// The namespaces among them that are terminating.
    ending: HashSet<String>,
    /// The token Secrets of each ServiceAccount, by namespace and account.
    tokens: BTreeMap<(String, String), BTreeSet<String>>,
    /// The quotas of each namespace with quotas.
    quotas: BTreeMap<String, BTreeSet<String>>,
    /// When each of these namespaces got its newest quota. An entry stays while a request may still run that began
    /// before the quota.
    newest_quota: BTreeMap<String, Timestamp>,
    events: Expiry,
    workload_status: bool,
    /// Finds the fields `ownerReferences` and `deletionTimestamp` in the bytes of an object: they make any object
    /// relevant. If `None`, every object is relevant.
    telling: Option<Regex>,
}

impl Dispatcher {
    /// Returns a dispatcher with empty indexes.
    #[must_use]
    pub(crate) fn new(workload_status: bool) -> Self {
        Self {
            workload_status,
            telling: Regex::new(r#""(ownerReferences|deletionTimestamp)""#).ok(),
            ..Self::default()
        }
    }

    /// Checks whether a change of this object can be relevant, without decoding it. Most changes are not.
    #[must_use]
    pub(crate) fn cares_about(&self, name: &ObjectName, bytes: &[u8]) -> bool {
        Followed::from_name(name).is_some()
            || (self.workload_status && workload::is_workload(name))
            || self.shrinks_quota(name)
            || name
                .namespace
                .as_ref()
                .is_some_and(|namespace| self.newest_quota.contains_key(namespace))
            || self.owners.contains(name)
            || name
                .namespace
                .as_ref()
                .is_some_and(|namespace| self.ending.contains(namespace) || !self.namespaces.contains(namespace))
            || self.telling.as_ref().is_none_or(|telling| telling.is_match(bytes))
    }

    /// Records that an object was created or changed at `written`.
    pub(crate) fn record_change(&mut self, name: &ObjectName, object: &Value, written: Timestamp) -> Vec<Task> {
        let mut tasks = Vec::new();
        self.update_waiting_owners(name, object, &mut tasks);
        if let Some(namespace) = &name.namespace {
            if self.ending.contains(namespace) {
                tasks.push(Task::Namespace(namespace.clone()));
            } else if !self.namespaces.contains(namespace) {
                tasks.push(Task::Stray(name.clone()));
            }
        }
        if self.workload_status && workload::is_workload(name) {
            tasks.push(Task::Workload(name.clone()));
            tasks.extend(rolled_out_by(name, object));
        }
        if self.shrinks_quota(name) || self.may_be_uncharged(name, written) {
            tasks.extend(name.namespace.clone().map(Task::Count));
        }
        match Followed::from_name(name) {
            Some(Followed::Namespace) => {
                self.namespaces.insert(name.name.clone());
                if namespace::is_ending(object) {
                    self.ending.insert(name.name.clone());
                    tasks.push(Task::Namespace(name.name.clone()));
                } else if !is_deleting(object) {
                    tasks.push(Task::Furnish(name.name.clone()));
                }
            }
            Some(Followed::RootCertificate(namespace)) => {
                tasks.push(Task::Furnish(namespace.to_owned()));
            }
            Some(Followed::ServiceAccount(namespace)) => tasks.extend(self.tokens_of(namespace, &name.name)),
            Some(Followed::Secret(namespace)) => {
                if let Some(account) = account_of(object) {
                    self.tokens
                        .entry((namespace.to_owned(), account.to_owned()))
                        .or_default()
                        .insert(name.name.clone());
                    tasks.push(Task::Token(namespace.to_owned(), name.name.clone()));
                }
            }
            Some(Followed::Event) => self.events.insert(name.clone(), object, written),
            Some(Followed::Quota(namespace)) => {
                let quotas = self.quotas.entry(namespace.to_owned()).or_default();
                let is_new = quotas.insert(name.name.clone());
                if is_new {
                    self.newest_quota.insert(namespace.to_owned(), written);
                }
                if is_new || object.pointer("/spec/hard") != object.pointer("/status/hard") {
                    tasks.push(Task::Count(namespace.to_owned()));
                }
            }
            Some(Followed::ClusterRole) => tasks.push(Task::Aggregate),
            Some(Followed::Policy) if policy_types::is_due(object) => {
                tasks.push(Task::CheckTypes(name.name.clone()));
            }
            Some(Followed::Definition) => tasks.extend(self.unresolved_tasks()),
            _ => {}
        }
        tasks
    }

    /// Records that an object was deleted; `object` is its last state.
    pub(crate) fn record_deletion(&mut self, name: &ObjectName, object: &Value) -> Vec<Task> {
        let mut tasks = Vec::new();
        self.unresolved.remove(name);
        for owner in self.owners.remove(name).unwrap_or_default() {
            if let Some(owner) = self.waiting.get(&owner.uid) {
                tasks.push(Task::Foreground(owner.clone()));
            }
        }
        if self.workload_status {
            tasks.extend(rolled_out_by(name, object));
        }
        let uid = get_text(object, "/metadata/uid");
        self.waiting.remove(uid);
        tasks.extend(self.owners.dependents(uid).cloned().map(Task::Dependent));
        if let Some(namespace) = name
            .namespace
            .as_ref()
            .filter(|namespace| self.ending.contains(*namespace))
        {
            tasks.push(Task::Namespace(namespace.clone()));
        }
        if let Some(namespace) = name
            .namespace
            .as_ref()
            .filter(|namespace| self.quotas.contains_key(*namespace))
        {
            tasks.push(Task::Count(namespace.clone()));
        }
        match Followed::from_name(name) {
            Some(Followed::Quota(namespace)) => {
                if let Some(quotas) = self.quotas.get_mut(namespace) {
                    quotas.remove(&name.name);
                    if quotas.is_empty() {
                        self.quotas.remove(namespace);
                        self.newest_quota.remove(namespace);
                    }
                }
            }
            Some(Followed::Namespace) => {
                self.namespaces.remove(&name.name);
                self.ending.remove(&name.name);
            }
            Some(Followed::RootCertificate(namespace)) => {
                tasks.push(Task::Furnish(namespace.to_owned()));
            }
            Some(Followed::ServiceAccount(namespace)) => {
                if name.name == "default" {
                    tasks.push(Task::Furnish(namespace.to_owned()));
                }
                tasks.extend(self.tokens_of(namespace, &name.name));
            }
            Some(Followed::Secret(namespace)) => {
                if let Some(account) = account_of(object) {
                    let key = (namespace.to_owned(), account.to_owned());
                    if let Some(secrets) = self.tokens.get_mut(&key) {
                        secrets.remove(&name.name);
                        if secrets.is_empty() {
                            self.tokens.remove(&key);
                        }
                    }
                }
            }
            Some(Followed::ClusterRole) => tasks.push(Task::Aggregate),
            _ => {}
        }
        tasks
    }

    /// Checks whether a change of such an object, and not only its deletion, may reduce its use of a quota.
    fn shrinks_quota(&self, name: &ObjectName) -> bool {
        name.namespace
            .as_ref()
            .is_some_and(|namespace| self.quotas.contains_key(namespace))
            && built_in::find_resource(&name.group, &name.plural).usage.is_some()
    }

    /// Checks whether the request that wrote this object at `written` may have begun before the namespace's newest
    /// quota existed, and so was not charged.
    fn may_be_uncharged(&mut self, name: &ObjectName, written: Timestamp) -> bool {
        let Some(namespace) = &name.namespace else { return false };
        let Some(since) = self.newest_quota.get(namespace) else {
            return false;
        };
        if written.duration_since(*since) <= LONGEST_REQUEST {
            return true;
        }
        self.newest_quota.remove(namespace);
        false
    }

    fn update_waiting_owners(&mut self, name: &ObjectName, object: &Value, tasks: &mut Vec<Task>) {
        // An owner may have waited for a reference that was removed or no longer blocks. Other owners than the object's
        // own are not checked: a client can make any number of owners wait.
        if !self.waiting.is_empty() {
            let waiting = self.owners.uids_of(name).filter_map(|uid| self.waiting.get(uid));
            tasks.extend(waiting.cloned().map(Task::Foreground));
        }
        if self.owners.insert(name, object) {
            tasks.push(Task::Dependent(name.clone()));
        }
        if !is_deleting(object) {
            return;
        }
        if has_finalizer(object, ORPHAN) {
            tasks.push(Task::Orphan(name.clone()));
        }
        if has_finalizer(object, FOREGROUND) {
            let uid = get_text(object, "/metadata/uid");
            self.waiting.insert(uid.to_owned(), name.clone());
            tasks.extend(self.owners.dependents(uid).cloned().map(Task::Dependent));
            tasks.push(Task::Foreground(name.clone()));
        }
    }

    fn tokens_of(&self, namespace: &str, account: &str) -> Vec<Task> {
        self.tokens
            .get(&(namespace.to_owned(), account.to_owned()))
            .into_iter()
            .flatten()
            .map(|secret| Task::Token(namespace.to_owned(), secret.clone()))
            .collect()
    }

    /// Returns the objects that name `uid` as an owner.
    #[must_use]
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectName> {
        self.owners.dependents(uid).cloned().collect()
    }

    /// Returns tasks for the objects with unresolved owners.
    pub(crate) fn unresolved_tasks(&self) -> impl Iterator<Item = Task> {
        self.unresolved.iter().cloned().map(Task::Dependent)
    }

    /// Records that an owner of this object could not be resolved. The object is checked again when the kinds change.
    pub(crate) fn record_unresolved(&mut self, name: ObjectName) {
        self.unresolved.insert(name);
    }

    /// Records that all owners of this object were resolved.
    pub(crate) fn record_resolved(&mut self, name: &ObjectName) {
        self.unresolved.remove(name);
    }

    /// Returns the time when the next Event expires.
    #[must_use]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.events.next()
    }

    /// Returns tasks for the Events that have expired at `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<Task> {
        self.events.take_due(now).into_iter().map(Task::Expire).collect()
    }
}

/// Returns the task for the Deployment that owns a ReplicaSet.
fn rolled_out_by(name: &ObjectName, object: &Value) -> Option<Task> {
    if !name.is("apps", "replicasets") {
        return None;
    }
    let deployment = workload::deployment_of(object)?;
    let namespace = name.namespace.as_deref()?;
    Some(Task::Workload(ObjectName::in_namespace(
        "apps",
        "deployments",
        namespace,
        deployment,
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    /// Returns a dispatcher that knows the namespace `shop`.
    fn with_shop(workload_status: bool) -> Dispatcher {
        let mut dispatcher = Dispatcher::new(workload_status);
        dispatcher.record_change(
            &ObjectName::cluster("", "namespaces", "shop"),
            &json!({ "metadata": {} }),
            now(),
        );
        dispatcher
    }

    fn config_map(name: &str) -> ObjectName {
        ObjectName::in_namespace("", "configmaps", "shop", name)
    }

    fn owned_by(uid: &str) -> Value {
        json!({ "metadata": { "uid": "child", "ownerReferences": [{ "uid": uid, "kind": "ConfigMap", "apiVersion": "v1", "name": "o" }] } })
    }

    #[test]
    fn irrelevant_objects_are_not_dispatched() {
        let dispatcher = with_shop(false);
        assert!(!dispatcher.cares_about(&config_map("a"), br#"{"metadata":{"name":"a"}}"#));
        assert!(dispatcher.cares_about(&config_map("a"), br#"{"metadata":{"ownerReferences":[]}}"#));
        assert!(dispatcher.cares_about(&config_map(ROOT_CA), b"{}"));
        let deployment = ObjectName::in_namespace("apps", "deployments", "shop", "web");
        assert!(!dispatcher.cares_about(&deployment, b"{}"));
        assert!(with_shop(true).cares_about(&deployment, b"{}"));
    }

    #[test]
    fn dependents_are_checked_on_creation_and_after_owner_deletion() {
        let mut dispatcher = with_shop(false);
        let child = config_map("child");
        assert_eq!(
            dispatcher.record_change(&child, &owned_by("o1"), now()),
            [Task::Dependent(child.clone())]
        );
        assert_eq!(dispatcher.record_change(&child, &owned_by("o1"), now()), []);
        let owner = json!({ "metadata": { "uid": "o1" } });
        assert_eq!(
            dispatcher.record_deletion(&config_map("o"), &owner),
            [Task::Dependent(child.clone())]
        );
        assert_eq!(dispatcher.record_deletion(&child, &owned_by("o1")), []);
        assert_eq!(dispatcher.record_deletion(&config_map("o"), &owner), []);
    }

    #[test]
    fn waiting_owner_is_checked_after_a_dependent_is_deleted() {
        let mut dispatcher = with_shop(false);
        let (child, owner) = (config_map("child"), config_map("o"));
        dispatcher.record_change(&child, &owned_by("o1"), now());
        let waiting = json!({ "metadata": { "uid": "o1", "deletionTimestamp": "x", "finalizers": [FOREGROUND] } });
        assert_eq!(
            dispatcher.record_change(&owner, &waiting, now()),
            [Task::Dependent(child.clone()), Task::Foreground(owner.clone())]
        );
        assert_eq!(
            dispatcher.record_deletion(&child, &owned_by("o1")),
            [Task::Foreground(owner)]
        );
    }

    #[test]
    fn a_change_wakes_only_owners_of_its_own_object() {
        let mut dispatcher = with_shop(false);
        for number in 0..1_000 {
            let waiting = json!({ "metadata": { "uid": format!("w{number}"), "deletionTimestamp": "x", "finalizers": [FOREGROUND] } });
            dispatcher.record_change(&config_map(&format!("waiting-{number}")), &waiting, now());
        }
        let child = config_map("child");
        dispatcher.record_change(&child, &owned_by("w7"), now());
        // The reference that blocked its owner is removed.
        assert_eq!(
            dispatcher.record_change(&child, &owned_by("other"), now()),
            [
                Task::Foreground(config_map("waiting-7")),
                Task::Dependent(child.clone())
            ]
        );
        assert_eq!(dispatcher.record_change(&child, &owned_by("another"), now()).len(), 1);
    }

    #[test]
    fn namespace_changes_start_furnishing_and_emptying() {
        let mut dispatcher = with_shop(false);
        let name = ObjectName::cluster("", "namespaces", "shop");
        let furnish = [Task::Furnish("shop".to_owned())];
        let empty = [Task::Namespace("shop".to_owned())];
        assert_eq!(
            dispatcher.record_change(&name, &json!({ "metadata": {} }), now()),
            furnish
        );
        let account = ObjectName::in_namespace("", "serviceaccounts", "shop", "default");
        assert_eq!(dispatcher.record_deletion(&account, &json!({})), furnish);
        let ending = json!({ "metadata": { "deletionTimestamp": "x" }, "spec": { "finalizers": ["kubernetes"] } });
        assert_eq!(dispatcher.record_change(&name, &ending, now()), empty);
        assert_eq!(dispatcher.record_deletion(&config_map("a"), &json!({})), empty);
        dispatcher.record_deletion(&name, &ending);
        assert_eq!(dispatcher.record_deletion(&config_map("a"), &json!({})), []);
        // An object that was admitted just before its namespace was deleted is removed.
        assert!(dispatcher.cares_about(&config_map("late"), b"{}"));
        assert_eq!(
            dispatcher.record_change(&config_map("late"), &json!({}), now()),
            [Task::Stray(config_map("late"))]
        );
    }

    #[test]
    fn token_secrets_follow_their_account() {
        let mut dispatcher = with_shop(false);
        let secret = json!({
            "type": "kubernetes.io/service-account-token",
            "metadata": { "annotations": { "kubernetes.io/service-account.name": "bot" } },
        });
        let name = ObjectName::in_namespace("", "secrets", "shop", "t");
        let account = ObjectName::in_namespace("", "serviceaccounts", "shop", "bot");
        let look = [Task::Token("shop".to_owned(), "t".to_owned())];
        assert_eq!(dispatcher.record_change(&name, &secret, now()), look);
        assert_eq!(dispatcher.record_change(&account, &json!({}), now()), look);
        assert_eq!(dispatcher.record_deletion(&account, &json!({})), look);
        dispatcher.record_deletion(&name, &secret);
        assert_eq!(dispatcher.record_deletion(&account, &json!({})), []);
    }

    #[test]
    fn events_expire_an_hour_after_their_last_write() {
        let mut dispatcher = with_shop(false);
        let name = ObjectName::in_namespace("", "events", "shop", "e");
        let event = |version: &str| json!({ "metadata": { "resourceVersion": version } });
        let at = |minutes: i64| {
            now()
                .checked_add(jiff::SignedDuration::from_mins(minutes))
                .unwrap_or_default()
        };
        dispatcher.record_change(&name, &event("1"), now());
        dispatcher.record_change(&name, &event("2"), at(30));
        assert_eq!(dispatcher.next_due(), Some(at(60)));
        assert_eq!(dispatcher.take_due(at(59)), []);
        let due = dispatcher.take_due(at(60));
        assert!(
            matches!(due.as_slice(), [Task::Expire(due)] if due.resource_version == "1"),
            "{due:?}"
        );
        assert_eq!(dispatcher.next_due(), Some(at(90)));
    }
}
