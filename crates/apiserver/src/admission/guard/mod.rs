//! The guard: admission rules of the program that embeds this server. Unlike a webhook, a guard is called in the
//! process, without a network. It validates in the validating phase, and may change some resources in the mutating
//! phase.
//!
//! Invariant: before a guard is asked, it has learned every acknowledged write of the resources that it follows. The
//! rules themselves belong to the guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Value;
use tenure_auth::authorization::{self, Authorizer as _};
use tenure_auth::identity::{ObjectLookup as _, UserInfo};
use tenure_store::{Event, EventKind, Snapshot, Store};

use super::{Admission, Attributes};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;
use crate::stored::decode_stored;

/// A resource whose objects a guard learns: group and plural name.
pub type FollowedResource = (&'static str, &'static str);

/// Admission rules in this process. The writing thread calls the guard directly, so the guard must answer at once: it
/// waits for nothing, and its work is bounded.
pub trait Guard: fmt::Debug + Send + Sync + 'static {
    /// Lists the resources that the guard learns.
    fn follows(&self) -> &[FollowedResource];

    /// Records the current state of an object of a [followed](Self::follows) resource. `None` means that the object
    /// was deleted.
    fn record_object(&self, resource: (&str, &str), place: ObjectLocation<'_>, object: Option<&Value>);

    /// Drops everything that the guard learned. The server then sends all objects again.
    fn forget(&self);

    /// Checks whether the guard needs a resource that it [`follows`](Self::follows), judged by the resources earlier in
    /// that list. The server neither reads nor sends the objects of a resource that is not needed. It sends all of them
    /// once the resource is needed.
    fn needs(&self, _followed: FollowedResource) -> bool {
        true
    }

    /// Drops everything that the guard learned about one resource.
    fn forget_one(&self, _followed: FollowedResource) {}

    /// Checks whether the guard ever changes objects of this resource (group and plural name). For all other resources
    /// the server asks only in the validating phase, about the object as it would be stored: a call in the mutating
    /// phase would only give the same answer.
    fn changes(&self, resource: (&str, &str)) -> bool;

    /// Checks whether the guard has a rule about a request in the current phase.
    fn concerns(&self, asked: &GuardTarget<'_>) -> bool;

    /// Decides about a request.
    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardQueries) -> Ruling;

    /// Returns the tenant of a user. Shared capacity is divided by tenant. The server calls this for each request,
    /// with its user and the user's groups.
    fn find_tenant(&self, user: &str, groups: &[String]) -> Membership;
}

/// The tenant to which a user belongs, as far as the guard knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The user belongs to this tenant.
    Tenant(String),
    /// The user belongs to no tenant.
    Nobody,
    /// Unknown: the guard has not yet learned a stored object.
    Unknown,
}

/// The namespace and name of an object that a guard learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLocation<'a> {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

/// Questions that a guard can ask while it decides.
pub trait GuardQueries {
    /// Checks whether the requesting user may do something.
    fn may(&self, question: &GuardQuestion<'_>) -> bool;

    /// Checks whether a ServiceAccount, by namespace and name, may do something.
    fn may_account(&self, account: (&str, &str), question: &GuardQuestion<'_>) -> bool;

    /// Returns the stored object with this group, plural name, namespace and name.
    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

/// The user and the target of a request: enough to decide whether the guard has a rule about it.
#[derive(Clone, Copy, Debug)]
pub struct GuardTarget<'a> {
    /// The requesting user.
    pub user: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource; empty for the whole object.
    pub subresource: &'a str,
    /// Namespace; for a Namespace its own name.
    pub namespace: &'a str,
    /// The stored object, if it exists.
    pub old_object: Option<&'a Value>,
    /// Whether the object is in its final form, as it would be stored, so that the guard can't change it.
    pub is_settled: bool,
}

/// A request as a guard sees it: the content of an AdmissionReview, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource; empty for the whole object.
    pub subresource: &'a str,
    /// Namespace; for a Namespace its own name. Empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name; empty while the name is still to be generated.
    pub name: &'a str,
    /// The requesting user.
    pub user: &'a str,
    /// The groups of the requesting user.
    pub groups: &'a [String],
    /// Further attributes of the requesting user, by key.
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// Whether the request is a dry run, which stores nothing.
    pub is_dry_run: bool,
    /// The new object.
    pub object: Option<&'a Value>,
    /// The stored object.
    pub old_object: Option<&'a Value>,
    /// Whether the object is in its final form, as it would be stored: no admission step changes it after this.
    pub is_settled: bool,
}

/// A question about the rights of a user or an account.
#[derive(Clone, Copy, Debug)]
pub struct GuardQuestion<'a> {
    /// Verb.
    pub verb: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource, and a subresource behind a slash.
    pub resource: &'a str,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// Name; empty for all.
    pub name: &'a str,
}

/// The decision of a guard about a request.
#[derive(Clone, Debug)]
pub enum Ruling {
    /// The request continues.
    Allow {
        /// The object that replaces the sent one. Only the mutating phase accepts it. In the validating phase the
        /// server refuses the request instead.
        object: Option<Value>,
        /// Warnings for the requesting user.
        warnings: Vec<String>,
    },
    /// The request is refused with code 403 and reason Forbidden.
    Deny(String),
}

/// The guard of a cluster, if it has one, and the revisions up to which it has learned the store.
#[derive(Debug, Default)]
pub(super) struct GuardState {
    guard: OnceLock<Arc<dyn Guard>>,
    /// For each followed resource, the revision up to which the guard has learned it. `None` if the guard doesn't
    /// need the resource or has learned nothing yet.
    positions: Mutex<Vec<Option<u64>>>,
    /// The least of the positions, readable without the lock that a learning thread holds. Never ahead of the learned
    /// state.
    learned: AtomicU64,
}

impl GuardState {
    /// Sets the guard, once, before any request.
    pub(super) fn set(&self, guard: Arc<dyn Guard>) {
        let _set_once = self.guard.set(guard);
    }

    /// Returns the guard if it has a rule about a request. The guard then knows every acknowledged write.
    fn find(&self, store: &Store, asked: &GuardTarget<'_>) -> Option<&Arc<dyn Guard>> {
        let guard = self.guard.get()?;
        if !asked.is_settled && !guard.changes((asked.group, asked.resource)) {
            return None;
        }
        self.catch_up(guard.as_ref(), store);
        guard.concerns(asked).then_some(guard)
    }

    /// Returns the tenant of a user.
    pub(super) fn find_tenant(&self, store: &Store, user: &UserInfo) -> Option<String> {
        let guard = self.guard.get()?;
        let mut membership = guard.find_tenant(&user.name, &user.groups);
        if membership == Membership::Unknown {
            self.catch_up(guard.as_ref(), store);
            membership = guard.find_tenant(&user.name, &user.groups);
        }
        match membership {
            Membership::Tenant(name) => Some(name),
            Membership::Nobody | Membership::Unknown => None,
        }
    }

    /// Lets the guard learn every acknowledged write that it has not learned yet.
    fn catch_up(&self, guard: &dyn Guard, store: &Store) {
        let revision = store.revision();
        if self.learned.load(Ordering::Acquire) >= revision.max(1) {
            return;
        }
        let mut positions = self.positions.lock();
        let first = positions.iter().flatten().copied().min();
        if first.is_some_and(|position| position >= revision) {
            return;
        }
        if first.is_none_or(|first| !learn_since(guard, store, &mut positions, first)) {
            // Resets the revision first, so that every request waits for the lock: until `learn_all` ends, the guard
            // has forgotten everything.
            self.learned.store(0, Ordering::Release);
            *positions = learn_all(guard, store);
        }
        for (followed, position) in guard.follows().iter().zip(positions.iter_mut()) {
            match (guard.needs(*followed), &position) {
                (true, None) => {
                    let snapshot = store.snapshot();
                    learn_one(guard, &snapshot, *followed);
                    *position = Some(snapshot.revision());
                }
                (false, Some(_)) => {
                    guard.forget_one(*followed);
                    *position = None;
                }
                _ => {}
            }
        }
        let learned = positions.iter().flatten().copied().min();
        self.learned.store(learned.unwrap_or_default(), Ordering::Release);
    }
}

/// Learns the changes after revision `first`, for each followed resource from its own position. Returns false if the
/// store no longer has those changes.
fn learn_since(guard: &dyn Guard, store: &Store, positions: &mut [Option<u64>], first: u64) -> bool {
    // Reads the events of all resources, because a filter by resource would also visit each event.
    let Ok((reached, events)) = store.events_after("", first, usize::MAX) else {
        return false;
    };
    let follows = guard.follows();
    for event in &events {
        let Some(parts) = keys::read(&event.key) else { continue };
        let followed = follows
            .iter()
            .position(|followed| *followed == (parts.group, parts.plural));
        let position = followed.and_then(|index| positions.get(index).copied().flatten());
        if position.is_some_and(|position| position < event.revision) {
            learn_event(guard, event, &parts);
        }
    }
    for position in positions.iter_mut().flatten() {
        *position = reached.max(*position);
    }
    true
}

/// Reads all objects of the followed resources that are needed. Returns the position of each resource.
fn learn_all(guard: &dyn Guard, store: &Store) -> Vec<Option<u64>> {
    let snapshot = store.snapshot();
    guard.forget();
    let learned = guard.follows().iter().map(|followed| {
        guard.needs(*followed).then(|| {
            learn_one(guard, &snapshot, *followed);
            snapshot.revision()
        })
    });
    learned.collect()
}

fn learn_one(guard: &dyn Guard, snapshot: &Snapshot, (group, plural): FollowedResource) {
    for (key, entry) in snapshot.range(&keys::resource_prefix(group, plural, None), None) {
        if let (Some(parts), Ok(object)) = (keys::read(key), decode_stored(entry)) {
            guard.record_object((group, plural), place_of(&parts), Some(&object));
        }
    }
}

fn learn_event(guard: &dyn Guard, event: &Event, parts: &keys::Parts<'_>) {
    let object = match event.kind {
        EventKind::Put => decode_stored(&event.entry).ok(),
        EventKind::Delete => None,
    };
    guard.record_object((parts.group, parts.plural), place_of(parts), object.as_ref());
}

fn place_of<'a>(parts: &keys::Parts<'a>) -> ObjectLocation<'a> {
    ObjectLocation {
        namespace: parts.namespace.unwrap_or_default(),
        name: parts.name,
    }
}

/// Asks the guard in the mutating phase. The object continues as the guard returned it.
pub(super) fn mutate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
) -> Result<(), ApiError> {
    let Some(Ruled { object: changed, .. }) = ask_guard(admission, attributes, object.as_deref(), false)? else {
        return Ok(());
    };
    if let (Some(object), Some(changed)) = (object, changed) {
        *object = changed;
    }
    Ok(())
}

/// Asks the guard in the validating phase, about the object as it would be stored.
pub(super) fn validate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(Ruled {
        object: changed,
        warnings,
    }) = ask_guard(admission, attributes, object, true)?
    else {
        return Ok(());
    };
    if changed.is_some() {
        let why = "another admission step undid a change of the guard; send the object in the form in which it is to be stored";
        return Err(attributes.denied_error(object, why));
    }
    // Only the last call adds the warnings, so that each appears once.
    for warning in warnings {
        attributes.op.warn(warning);
    }
    Ok(())
}

/// The changes and warnings of a guard that allowed the request.
struct Ruled {
    object: Option<Value>,
    warnings: Vec<String>,
}

/// Asks the guard about a request; `None` if it has no rule. A denial becomes the error.
fn ask_guard(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    is_settled: bool,
) -> Result<Option<Ruled>, ApiError> {
    if !admission.is_open() {
        return Ok(None);
    }
    let contents = &admission.contents;
    let resource = attributes.resource();
    let user = &attributes.op.user;
    let asked = GuardTarget {
        user: &user.name,
        group: &resource.group,
        resource: &resource.plural,
        subresource: attributes.subresource(),
        namespace: attributes.namespace(),
        old_object: attributes.old,
        is_settled,
    };
    let Some(guard) = admission.post.find(contents.store(), &asked) else {
        return Ok(None);
    };
    let review = Review {
        operation: attributes.action.as_str(),
        group: asked.group,
        resource: asked.resource,
        subresource: asked.subresource,
        namespace: asked.namespace,
        name: attributes.name,
        user: asked.user,
        groups: &user.groups,
        extra: &user.extra,
        is_dry_run: attributes.dry_run(),
        object,
        old_object: asked.old_object,
        is_settled,
    };
    match guard.judge(&review, &ClusterForUser { contents, user }) {
        Ruling::Allow { object, warnings } => Ok(Some(Ruled { object, warnings })),
        Ruling::Deny(why) => Err(attributes.denied_error(object, &why)),
    }
}

/// The stored objects and rights, for the questions that a guard asks during a decision.
struct ClusterForUser<'a> {
    contents: &'a Contents,
    user: &'a UserInfo,
}

impl ClusterForUser<'_> {
    fn authorize(&self, user: &UserInfo, question: &GuardQuestion<'_>) -> bool {
        let (resource, subresource) = question.resource.split_once('/').unwrap_or((question.resource, ""));
        let wanted = authorization::Attributes {
            verb: question.verb.to_owned(),
            group: question.group.to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: question.namespace.to_owned(),
            name: question.name.to_owned(),
            path: None,
        };
        self.contents.rights().authorize(user, &wanted).allowed
    }
}

impl GuardQueries for ClusterForUser<'_> {
    fn may(&self, question: &GuardQuestion<'_>) -> bool {
        self.authorize(self.user, question)
    }

    fn may_account(&self, (namespace, name): (&str, &str), question: &GuardQuestion<'_>) -> bool {
        self.authorize(&UserInfo::service_account(namespace, name, ""), question)
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        self.contents.view().get(group, plural, namespace, name)
    }
}
