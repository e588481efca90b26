//! An index of the objects that name a namespace, whether that namespace exists or not.
//!
//! A right outlives the namespace that it names: a binding still names the ServiceAccount of a removed add-on, a webhook the Service. An owner who
//! creates that namespace has the right. So this index answers one question, before an owner creates a namespace: does an object outside the
//! tenant name it?
//!
//! # Which objects count
//!
//! | object | counts for |
//! |---|---|
//! | without a namespace, or in a namespace without a tenant | every Tenant |
//! | of the Tenant itself: in its namespaces, its own Tenant, bindings that are labelled for it | no one |
//! | in a namespace of another Tenant | names that do not begin with the Tenant's own name and a hyphen, and are not its home |
//!
//! The last row is a choice between two harms. A binding in a namespace of Tenant `blue` that names namespace `ci` gives rights in `blue`, so no
//! other owner may create `ci`. But an owner of `blue` could write bindings for every name that others want. So each Tenant keeps the names that
//! begin with its own: a binding for `red-ci` means Tenant `red`.
//!
//! # Bounds
//!
//! Memory grows with the names that one object has of *other* namespaces, which are few. A tenant could write many. So for each namespace that is
//! not protected, at most [`MOST_NAMED`] pairs of object and name are stored. Names beyond that are not found, which harms only that namespace: an
//! object gives no right outside its own.

mod extract;
mod kinds;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, TENANT_LABEL};

use crate::facts::FactIndex;
use crate::placement::TenantFacts;
use crate::settings::Settings;

pub use extract::list_named_namespaces;
pub use kinds::{MENTIONING_KINDS, MentioningKind};

/// The greatest number of pairs of an object and a namespace that it names, for each namespace that is not
/// protected.
pub const MOST_NAMED: usize = 1_000;

/// An object that names a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace and its name. None if they belong to another tenant and must not be shown.
    pub place: Option<(String, String)>,
}

impl fmt::Display for Mention {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None if self.kind == "Tenant" => formatter.write_str("another Tenant"),
            None => write!(formatter, "a {} of another Tenant", self.kind),
            Some((namespace, name)) if namespace.is_empty() => write!(formatter, "{} {name}", self.kind),
            Some((namespace, name)) => write!(formatter, "{} {namespace}/{name}", self.kind),
        }
    }
}

/// An object in a known namespace: the position of its kind in [`MENTIONING_KINDS`], and its name.
type Named = (usize, Arc<str>);
/// An object: the position of its kind in [`MENTIONING_KINDS`], its namespace and its name.
type Placed = (usize, Arc<str>, Arc<str>);

/// The namespaces that an object names, and its Tenant.
#[derive(Clone, Debug, Default)]
struct IndexedObject {
    named: Vec<Arc<str>>,
    /// The Tenant that an object without a namespace belongs to.
    tenant: Option<Arc<str>>,
}

/// The objects that name namespaces other than their own, by the namespace that they name.
#[derive(Clone, Debug, Default)]
pub struct MentionIndex {
    /// By the named namespace, then by the namespace of the object, which is empty for an object without one.
    by_named: HashMap<Arc<str>, BTreeMap<Arc<str>, BTreeSet<Named>>>,
    objects: HashMap<Placed, IndexedObject>,
    /// The number of stored pairs of object and name, by the namespace of the object.
    counts: HashMap<Arc<str>, usize>,
}

impl MentionIndex {
    /// Records the current state of an object. `None` means that the object is deleted.
    pub fn set_object(
        &mut self,
        settings: &Settings,
        kind: &MentioningKind,
        (namespace, name): (&str, &str),
        object: Option<&Value>,
    ) {
        let Some(position) = kind.position() else { return };
        self.forget(position, namespace, name);
        let Some(object) = object else { return };
        let mut named = list_named_namespaces(kind, object);
        named.remove(namespace);
        if named.is_empty() {
            return;
        }
        let (namespace, name): (Arc<str>, Arc<str>) = (namespace.into(), name.into());
        let count = self.counts.entry(Arc::clone(&namespace)).or_default();
        if !namespace.is_empty() && !settings.is_protected(&namespace) {
            let capacity = MOST_NAMED.saturating_sub(*count);
            named = named.into_iter().take(capacity).collect();
        }
        *count += named.len();
        let mut kept = IndexedObject {
            tenant: read_tenant(kind, &name, object),
            named: Vec::with_capacity(named.len()),
        };
        for other in named {
            let other = match self.by_named.get_key_value(other) {
                Some((known, _)) => Arc::clone(known),
                None => Arc::from(other),
            };
            let by_namespace = self.by_named.entry(Arc::clone(&other)).or_default();
            let objects = by_namespace.entry(Arc::clone(&namespace)).or_default();
            objects.insert((position, Arc::clone(&name)));
            kept.named.push(other);
        }
        self.objects.insert((position, namespace, name), kept);
    }

    /// Removes an object from all three maps.
    fn forget(&mut self, position: usize, namespace: &str, name: &str) {
        let place: Placed = (position, namespace.into(), name.into());
        let Some(kept) = self.objects.remove(&place) else {
            return;
        };
        let object: Named = (position, place.2);
        for named in &kept.named {
            let Some(by_namespace) = self.by_named.get_mut(named) else {
                continue;
            };
            if let Some(objects) = by_namespace.get_mut(namespace) {
                objects.remove(&object);
                if objects.is_empty() {
                    by_namespace.remove(namespace);
                }
            }
            if by_namespace.is_empty() {
                self.by_named.remove(named);
            }
        }
        if let Some(count) = self.counts.get_mut(namespace) {
            *count = count.saturating_sub(kept.named.len());
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
    }

    /// Removes all objects of a kind.
    pub fn forget_kind(&mut self, kind: &MentioningKind) {
        let Some(position) = kind.position() else { return };
        let of_kind = self.objects.keys().filter(|(known, _, _)| *known == position);
        let places: Vec<Placed> = of_kind.cloned().collect();
        for (_, namespace, name) in places {
            self.forget(position, &namespace, &name);
        }
    }

    /// Returns an object outside the Tenant that names a namespace, if one does. The module comment
    /// says which objects count.
    #[must_use]
    pub fn find_outside(&self, facts: &FactIndex, tenant: &TenantFacts, namespace: &str) -> Option<Mention> {
        let is_namesake = |found: &TenantFacts| found.uid == tenant.uid;
        let is_own_name = tenant.home() == namespace || facts.find_namesake(namespace).is_some_and(is_namesake);
        let by_namespace = self.by_named.get(namespace)?;
        for (from, objects) in by_namespace {
            let holder = facts.tenant_of(from);
            if holder.is_some_and(|holder| holder.uid == tenant.uid || is_own_name) {
                continue;
            }
            for (position, name) in objects {
                let place = (*position, Arc::clone(from), Arc::clone(name));
                let part_of = self.objects.get(&place).and_then(|kept| kept.tenant.as_deref());
                if part_of == Some(tenant.name.as_str()) {
                    continue;
                }
                let is_of_another = holder.is_some() || part_of.is_some();
                return Some(Mention {
                    kind: MENTIONING_KINDS.get(*position).map_or("object", |kind| kind.kind),
                    place: (!is_of_another).then(|| (from.to_string(), name.to_string())),
                });
            }
        }
        None
    }
}

/// Returns the Tenant that an object without a namespace belongs to: its own, or that of a binding of Tenure or Capsule. A tenant can write
/// neither, so the label is an administrator's.
fn read_tenant(kind: &MentioningKind, name: &str, object: &Value) -> Option<Arc<str>> {
    let label = |key: &str| {
        let labels = object.pointer("/metadata/labels")?;
        labels.get(key)?.as_str()
    };
    match kind.kind {
        "Tenant" => Some(Arc::from(name)),
        "ClusterRoleBinding" => label(TENANT_LABEL)
            .filter(|_| label(MANAGED_BY) == Some(MANAGED_BY_TENURE) || name.starts_with("capsule"))
            .map(Arc::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
