//! The objects that limit the contents of a Tenant's namespaces: LimitRanges, NetworkPolicies and ResourceQuotas. Each namespace has one for each item of the
//! Tenant's spec, with Capsule's names and labels.
//!
//! The module completes each object as the API server stores it. So the controller writes no object that is already right, and detects edits of other writers.
//! Items over the limits for number and size are not written. Objects that were written for them earlier stay.

use std::collections::{BTreeMap, BTreeSet};

use go_words::quantity;
use serde_json::{Map, Value, json};
use tenure_api::metadata::{CAPSULE_CONTROLLER, CAPSULE_MANAGED_BY, CAPSULE_TENANT_LABEL};
use tenure_api::names::NamespaceName;
use tenure_api::{ObjectId, ObjectView};
pub use tenure_tenancy::quotas::{LARGEST_ITEM, MOST_ITEMS};
use tenure_tenancy::quotas::{is_too_large, name_content};

use super::bindings::make_metadata;
use super::namespaces::TenantNamespaces;
use super::{Snapshot, contains, shares};
use crate::answer::Live;
use crate::dependents::{Memory, Wanted};
use tenure_api::digest::digest_value;

/// A kind of objects that limit a tenant's namespaces, and the field of the Tenant's spec that lists them.
struct ContentKind {
    field: &'static str,
    kind: &'static str,
    group: &'static str,
    /// Capsule's label for the item of an object.
    label: &'static str,
    complete: fn(&mut Map<String, Value>),
}

const LIMIT_RANGE: ContentKind = ContentKind {
    field: "spec.limitRanges",
    kind: "LimitRange",
    group: "",
    label: "capsule.clastix.io/limit-range",
    complete: complete_limit_range,
};
const NETWORK_POLICY: ContentKind = ContentKind {
    field: "spec.networkPolicies",
    kind: "NetworkPolicy",
    group: "networking.k8s.io",
    label: "capsule.clastix.io/network-policy",
    complete: complete_network_policy,
};
pub(super) const RESOURCE_QUOTA_KIND: &str = "ResourceQuota";
const RESOURCE_QUOTA: ContentKind = ContentKind {
    field: "spec.resourceQuotas",
    kind: RESOURCE_QUOTA_KIND,
    group: "",
    label: "capsule.clastix.io/resource-quota",
    complete: complete_resource_quota,
};

/// Lists for which empty means the same as absent, in specs of these kinds.
const EMPTY_LISTS: [&str; 7] = ["egress", "from", "ingress", "matchExpressions", "ports", "scopes", "to"];

/// The wanted objects in the namespaces.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) wanted: Vec<Wanted>,
    /// Objects that stay as they are, because the Tenant's item can't be written.
    pub(super) kept: BTreeSet<ObjectId>,
}

/// Lists all wanted objects that limit the tenant's namespaces.
pub(super) fn list_contents(
    snapshot: &Snapshot,
    memory: (&Memory, bool),
    taken: &TenantNamespaces,
    problems: &mut Vec<String>,
) -> Contents {
    let spec = &snapshot.tenant.spec;
    let mut contents = Contents::default();
    let mut add = |kind: &ContentKind, items: &[Map<String, Value>]| {
        contents.add((snapshot, memory), taken, kind, items, problems);
    };
    if let Some(ranges) = &spec.limit_ranges {
        add(&LIMIT_RANGE, &ranges.items);
    }
    if let Some(policies) = &spec.network_policies {
        add(&NETWORK_POLICY, &policies.items);
    }
    // A quota for all namespaces together has the whole limit in each namespace if admission checks the sum, because Kubernetes counts in each namespace. Without that
    // check, each namespace has its share.
    if let Some(quotas) = &spec.resource_quotas {
        add(&RESOURCE_QUOTA, &quotas.items);
    }
    contents
}

impl Contents {
    fn add(
        &mut self,
        (snapshot, memory): (&Snapshot, (&Memory, bool)),
        taken: &TenantNamespaces,
        kind: &ContentKind,
        items: &[Map<String, Value>],
        problems: &mut Vec<String>,
    ) {
        if items.len() > MOST_ITEMS {
            problems.push(format!(
                "{}.items: {} items, of which the first {MOST_ITEMS} are written: leave some out",
                kind.field,
                items.len()
            ));
        }
        for (index, item) in items.iter().enumerate() {
            let is_too_large = is_too_large(item);
            if is_too_large && index < MOST_ITEMS {
                problems.push(format!(
                    "{}.items[{index}]: more than {LARGEST_ITEM} bytes: its previous objects stay",
                    kind.field
                ));
            }
            let mut spec = item.clone();
            (kind.complete)(&mut spec);
            let is_shared = kind.kind == RESOURCE_QUOTA_KIND
                && shares::has_shares(&snapshot.tenant.spec, &snapshot.tenancy.settings);
            let mut shares = match is_shared {
                true => shares::find_hard_limits(snapshot, memory, taken, (index, &spec)),
                false => BTreeMap::new(),
            };
            // Pods may still run in a namespace that is being deleted. Existing objects that limit these Pods are corrected there, and are deleted with the namespace.
            let name = name_content(name_of(snapshot), index);
            let is_there = |namespace: &&NamespaceName| {
                let id = make_content_id(kind, namespace, &name);
                !is_shared && matches!(snapshot.live.get(&id), Some(Live::Present(_)))
            };
            let ending = taken.deleting.keys().filter(is_there);
            for namespace in taken.owned.keys().chain(ending) {
                let id = make_content_id(kind, namespace, &name);
                if is_too_large || index >= MOST_ITEMS {
                    self.kept.insert(id);
                    continue;
                }
                let mut metadata = make_metadata(snapshot, namespace, &name);
                if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                    labels.insert(kind.label.to_owned(), json!(index.to_string()));
                    labels.insert(CAPSULE_TENANT_LABEL.to_owned(), json!(name_of(snapshot)));
                    labels.insert(CAPSULE_MANAGED_BY.to_owned(), json!(CAPSULE_CONTROLLER));
                }
                let api_version = match kind.group {
                    "" => "v1".to_owned(),
                    group => format!("{group}/v1"),
                };
                if let Some(share) = shares.remove(namespace.as_str()) {
                    spec.insert("hard".to_owned(), share);
                }
                self.wanted.push(Wanted {
                    id,
                    version: "v1",
                    object: json!({
                        "apiVersion": api_version, "kind": kind.kind, "metadata": metadata, "spec": spec,
                    }),
                });
            }
        }
    }
}

fn make_content_id(kind: &ContentKind, namespace: &NamespaceName, name: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.to_string(),
        name: name.to_owned(),
        group: kind.group.to_owned(),
        kind: kind.kind.to_owned(),
    }
}

fn name_of(snapshot: &Snapshot) -> &str {
    snapshot.tenant.metadata.name.as_deref().unwrap_or_default()
}

/// Checks whether an object is of a kind that is compared by its whole spec.
pub(super) fn is_content(id: &ObjectId) -> bool {
    [&LIMIT_RANGE, &NETWORK_POLICY, &RESOURCE_QUOTA]
        .iter()
        .any(|kind| kind.kind == id.kind && kind.group == id.group)
}

/// Checks whether a live object is as wanted: its fields are equal, or the server made exactly this object of the last write.
pub(super) fn is_as_wanted(live: &Value, wanted: &Wanted, memory: &Memory) -> bool {
    let parts = ["/metadata/labels", "/metadata/ownerReferences"];
    let has_metadata = parts.iter().all(|path| {
        let wanted = wanted.object.pointer(path).unwrap_or(&Value::Null);
        contains_part(live, path, wanted)
    });
    let normal = |object: &Value| drop_empty_fields(object.get("spec").unwrap_or(&Value::Null));
    has_metadata
        && (normal(live) == normal(&wanted.object)
            || memory.settled.get(&wanted.id) == Some(&digest_write(wanted, live)))
}

/// Checks whether the field at a path of a live object contains all wanted fields.
fn contains_part(live: &Value, path: &str, wanted: &Value) -> bool {
    let (field, _) = (path.rsplit('/').next().unwrap_or_default(), ());
    let live = live.pointer(path).cloned().unwrap_or(Value::Null);
    contains(&json!({ field: live }), &json!({ field: wanted }))
}

/// Returns a digest of a write and its result, for later comparison.
pub(super) fn digest_write(wanted: &Wanted, answered: &Value) -> String {
    let spec = ObjectView::new(answered).find("/spec").cloned().unwrap_or(Value::Null);
    digest_value(&json!([wanted.object, spec]))
}

/// Returns a spec without empty fields that have no meaning.
fn drop_empty_fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let says_nothing = |key: &str, value: &Value| {
                value.is_null()
                    || (EMPTY_LISTS.contains(&key) && value.as_array().is_some_and(Vec::is_empty))
                    || (key == "matchLabels" && value.as_object().is_some_and(Map::is_empty))
            };
            let saying = map.iter().filter(|(key, value)| !says_nothing(key, value));
            Value::Object(
                saying
                    .map(|(key, value)| (key.clone(), drop_empty_fields(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(drop_empty_fields).collect()),
        other => other.clone(),
    }
}

/// Writes quantities in the form that the server stores. An invalid quantity stays as written, and the server rejects it.
fn write_quantities(map: Option<&mut Value>) {
    let entries = map.and_then(Value::as_object_mut).into_iter().flatten();
    for (_, value) in entries {
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => continue,
        };
        if let Ok(canonical) = quantity::canonical(&text) {
            *value = Value::String(canonical);
        }
    }
}

fn complete_resource_quota(spec: &mut Map<String, Value>) {
    write_quantities(spec.get_mut("hard"));
}

/// Fills in the fields as Kubernetes does: `default` from `max`, then `defaultRequest` from `default`, then `defaultRequest` from `min`.
fn complete_limit_range(spec: &mut Map<String, Value>) {
    let limits = spec.get_mut("limits").and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"] {
            write_quantities(limit.get_mut(field));
        }
        if limit.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        for (field, from) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            let Some(Value::Object(from)) = limit.get(from).cloned() else {
                continue;
            };
            let into = limit.entry(field).or_insert_with(|| json!({}));
            if let Some(into) = into.as_object_mut() {
                for (key, value) in from {
                    into.entry(key).or_insert(value);
                }
            }
        }
    }
}

/// Sets every field, so that no other writer owns one.
fn complete_network_policy(spec: &mut Map<String, Value>) {
    let has_egress = spec
        .get("egress")
        .and_then(Value::as_array)
        .is_some_and(|rules| !rules.is_empty());
    let types = match has_egress {
        true => json!(["Ingress", "Egress"]),
        false => json!(["Ingress"]),
    };
    let is_empty = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || *value == json!([]));
    if is_empty(spec.get("policyTypes")) {
        spec.insert("policyTypes".to_owned(), types);
    }
    for (field, nothing) in [
        ("podSelector", json!({})),
        ("ingress", json!([])),
        ("egress", json!([])),
    ] {
        if spec.get(field).is_none_or(Value::is_null) {
            spec.insert(field.to_owned(), nothing);
        }
    }
    for direction in ["ingress", "egress"] {
        let rules = spec.get_mut(direction).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            let ports = rule.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                port.entry("protocol").or_insert_with(|| json!("TCP"));
            }
        }
    }
}
