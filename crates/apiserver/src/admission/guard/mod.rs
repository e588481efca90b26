//! Rules of the program around this server about what is written: asked where webhooks are, without a network; in the validating phase, and in the
//! mutating one about what they may change.
//!
//! Owns how a guard learns what is stored (before it is asked, everything that was acknowledged), which requests it is asked about, and
//! what becomes of its answer. Refuses to know what the rules are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Value;
use tenure_access::authorization::{self, Authorizer as _};
use tenure_access::identity::{Lookup as _, UserInfo};
use tenure_store::{Event, EventKind, Snapshot, Store};

use super::{Admission, Attributes};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;
use crate::stored::decode_stored;

/// A resource whose objects a guard learns: group and plural name.
pub type Followed = (&'static str, &'static str);

/// Rules about what is written. It is called by whoever writes, so that it must answer at once: it waits for nothing, and what it does
/// is bounded.
pub trait Guard: fmt::Debug + Send + Sync + 'static {
    /// What it learns.
    fn follows(&self) -> &[Followed];

    /// An object of what it [`follows`](Self::follows) is so from now on; without one, it is no more.
    fn learn(&self, resource: (&str, &str), place: Place<'_>, object: Option<&Value>);

    /// What it has learned is nothing any more: it is told everything again.
    fn forget(&self);

    /// Whether one of those that it [`follows`](Self::follows) is of use to it, by what it has learned of those before that. One that isn't is neither
    /// read nor told, and all of it is told once it is.
    fn needs(&self, _followed: Followed) -> bool {
        true
    }

    /// What it has learned of one of them is nothing any more.
    fn forget_one(&self, _followed: Followed) {}

    /// Whether it ever changes objects of such a resource, by group and plural name. Of others it is asked in the validating phase alone, about the
    /// object as it would be stored: what was said of it before would be said again there.
    fn changes(&self, resource: (&str, &str)) -> bool;

    /// Whether it has something to say about a request, in the phase in which it is.
    fn concerns(&self, asked: &Asked<'_>) -> bool;

    /// What it says about a request.
    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardSurroundings) -> Ruling;

    /// The tenant that somebody belongs to: what is shared is shared by tenants. It is called with each request, for its user and that one's groups.
    fn find_tenant(&self, user: &str, groups: &[String]) -> Membership;
}

/// Whose somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// This tenant's.
    Tenant(String),
    /// No tenant's.
    Nobody,
    /// It isn't known: something that was stored has not been learned yet.
    Unknown,
}

/// Where an object is that a guard learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Namespace; empty where there is none.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

/// What a guard can ask for while it judges.
pub trait GuardSurroundings {
    /// Whether the one who asks may do something.
    fn may(&self, question: &GuardQuestion<'_>) -> bool;

    /// Whether a ServiceAccount, by namespace and name, may do something.
    fn may_account(&self, account: (&str, &str), question: &GuardQuestion<'_>) -> bool;

    /// An object by group, plural name, namespace and name, as it is stored now.
    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

/// What a request is about, before anything of it is read.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who asks.
    pub user: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Its plural name.
    pub resource: &'a str,
    /// Part of the object; empty for the whole.
    pub subresource: &'a str,
    /// Namespace; of a Namespace its own name.
    pub namespace: &'a str,
    /// The object as it is stored, if it is.
    pub old_object: Option<&'a Value>,
    /// Whether the object is as it would be stored: it is too late for changing it.
    pub is_settled: bool,
}

/// A request as a guard sees it: what an AdmissionReview has, as it is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Its plural name.
    pub resource: &'a str,
    /// Part of the object; empty for the whole.
    pub subresource: &'a str,
    /// Namespace; of a Namespace its own name. Empty where there is none.
    pub namespace: &'a str,
    /// Name; empty as long as it is still to be generated.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a str,
    /// The groups of who asks.
    pub groups: &'a [String],
    /// What else the server found out about who asks, by key.
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// Whether nothing is stored whatever is answered.
    pub is_dry_run: bool,
    /// The object as it is to be.
    pub object: Option<&'a Value>,
    /// The object as it is stored.
    pub old_object: Option<&'a Value>,
    /// Whether the object is as it would be stored: nobody changes it any more.
    pub is_settled: bool,
}

/// A question about somebody's rights.
#[derive(Clone, Copy, Debug)]
pub struct GuardQuestion<'a> {
    /// Verb.
    pub verb: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Its plural name, and a subresource behind a slash.
    pub resource: &'a str,
    /// Namespace; empty for what has none.
    pub namespace: &'a str,
    /// Name; empty for all.
    pub name: &'a str,
}

/// What a guard says about a request.
#[derive(Clone, Debug)]
pub enum Ruling {
    /// It goes on.
    Allow {
        /// The object that goes on in its place. Only the mutating phase takes it: later it is too late, and the request is refused.
        object: Option<Value>,
        /// What the one who asks is warned of.
        warnings: Vec<String>,
    },
    /// It ends, with code 403 and reason Forbidden.
    Deny(String),
}

/// The guard of a cluster, if it has one, and how far it has learned what is stored.
#[derive(Debug, Default)]
pub(super) struct Post {
    guard: OnceLock<Arc<dyn Guard>>,
    /// The revision up to which it has learned each of what it follows, if it needs it; nothing, before it has learned anything.
    positions: Mutex<Vec<Option<u64>>>,
    /// The least of them, to look at without waiting for who learns; never ahead of what is learned.
    learned: AtomicU64,
}

impl Post {
    /// Sets the guard; once, before anything is asked.
    pub(super) fn set(&self, guard: Arc<dyn Guard>) {
        let _set_once = self.guard.set(guard);
    }

    /// The guard, if it has something to say about a request; it knows all that has been acknowledged.
    fn find(&self, store: &Store, asked: &Asked<'_>) -> Option<&Arc<dyn Guard>> {
        let guard = self.guard.get()?;
        if !asked.is_settled && !guard.changes((asked.group, asked.resource)) {
            return None;
        }
        self.catch_up(guard.as_ref(), store);
        guard.concerns(asked).then_some(guard)
    }

    /// The tenant that somebody belongs to.
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
            // Nobody passes by who doesn't wait for this: what was known is forgotten first.
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

/// Learns what was changed behind the first of these positions, each of what it follows from its own position on; false if what was changed is
/// forgotten already.
fn learn_since(guard: &dyn Guard, store: &Store, positions: &mut [Option<u64>], first: u64) -> bool {
    // All events, since looking for some of them is looking at all.
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

/// Reads everything that is followed and needed. Returns how far each is learned.
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

fn learn_one(guard: &dyn Guard, snapshot: &Snapshot, (group, plural): Followed) {
    for (key, entry) in snapshot.range(&keys::of_resource(group, plural, None), None) {
        if let (Some(parts), Ok(object)) = (keys::read(key), decode_stored(entry)) {
            guard.learn((group, plural), place_of(&parts), Some(&object));
        }
    }
}

fn learn_event(guard: &dyn Guard, event: &Event, parts: &keys::Parts<'_>) {
    let object = match event.kind {
        EventKind::Put => decode_stored(&event.entry).ok(),
        EventKind::Delete => None,
    };
    guard.learn((parts.group, parts.plural), place_of(parts), object.as_ref());
}

fn place_of<'a>(parts: &keys::Parts<'a>) -> Place<'a> {
    Place {
        namespace: parts.namespace.unwrap_or_default(),
        name: parts.name,
    }
}

/// Asks the guard in the mutating phase. The object goes on as it says.
pub(super) fn mutate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
) -> Result<(), ApiError> {
    let Some(Ruled { object: changed, .. }) = ask(admission, attributes, object.as_deref(), false)? else {
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
    }) = ask(admission, attributes, object, true)?
    else {
        return Ok(());
    };
    if changed.is_some() {
        let why = "somebody took back what was changed of it on the way; send it as it is to be stored";
        return Err(attributes.denied(object, why));
    }
    // Said once, by the last that is asked.
    for warning in warnings {
        attributes.op.warn(warning);
    }
    Ok(())
}

/// What the guard said of a request that goes on.
struct Ruled {
    object: Option<Value>,
    warnings: Vec<String>,
}

fn ask(
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
    let asked = Asked {
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
    match guard.judge(&review, &Asking { contents, user }) {
        Ruling::Allow { object, warnings } => Ok(Some(Ruled { object, warnings })),
        Ruling::Deny(why) => Err(attributes.denied(object, &why)),
    }
}

/// The cluster, for the one who asks.
struct Asking<'a> {
    contents: &'a Contents,
    user: &'a UserInfo,
}

impl Asking<'_> {
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

impl GuardSurroundings for Asking<'_> {
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
