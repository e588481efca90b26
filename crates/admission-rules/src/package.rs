//! The rules for fields of a platform's Packages, by their owner: some are the platform chart's, and the rest is an administrator's.
//!
//! The chart owns `spec.variant`, the metadata that Helm and Flux write, and all other fields of the chart's managers in managedFields (Cozystack's
//! page on field ownership). RBAC identifies the chart ([`RENDER`]). A manager's name proves nothing, so no other user may take such a name, add to its
//! fields, or take fields from it. A field that is the chart's by definition can't be claimed ahead either, even while no manager has it. The Package
//! with which an administrator bootstraps the platform ([`BOOTSTRAP`]) is free. The sources of the charts, PackageSources and one source object, are
//! the platform's as a whole.
//!
//! Deletions of Packages are left to RBAC. Values are read no deeper than the chart's own fields.

use serde_json::{Map, Value};
use structured_merge::FieldSet;
use tenure_api::package::{BOOTSTRAP, SUPPLY_NAME, SUPPLY_NAMESPACE};

use super::kubernetes::{is_api_server_or_tenure, may_change, may_delete};
use super::managed::difference::{self, MapOwnership};
use super::managed::shorten_object_text;
use super::{Case, Findings, Operation, Question, Refusal, Request, Rule};
use tenure_tenancy::rights::{OVERRIDE, RENDER, REPORT};

/// The group of Packages.
pub(super) const GROUP: &str = "cozystack.io";
/// The group of Flux's sources.
pub(super) const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
/// The prefix of the platform's own PackageSources.
pub(super) const PLATFORM_PREFIX: &str = "cozystack.";
/// The source of the platform's charts: namespace and name.
pub(super) const SUPPLY: (&str, &str) = (SUPPLY_NAMESPACE, SUPPLY_NAME);
/// The managers under which charts are applied: Flux's, and Helm's itself. Older releases use `Update`.
pub const CHART_MANAGERS: [&str; 2] = ["helm-controller", "helm"];
/// The annotation that keeps an object when its chart is uninstalled.
pub(super) const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// Annotations that only a chart's objects have.
pub const CHART_ANNOTATIONS: [&str; 3] = [
    RESOURCE_POLICY,
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
];
/// Labels that only a chart's objects have.
pub const CHART_LABELS: [&str; 2] = ["helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace"];
/// The field by which the garbage collector finds objects to delete.
pub(super) const OWNERS: &str = "/metadata/ownerReferences";
/// Annotations of the sources that every user may set: a request for reconciliation changes nothing
/// else.
pub(super) const FREE_ANNOTATIONS: [&str; 2] = [
    "reconcile.fluxcd.io/requestedAt",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// The kinds whose fields this rule protects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuardedKind {
    Package,
    PackageSource,
    Source,
}

/// A field that a request would change although another writer owns it.
struct OwnershipConflict {
    /// The field and its owner, for the message.
    what: String,
    remedy: String,
    /// A verb with which the user may still write.
    verb: &'static str,
    /// True if the owner would lose the field without noticing.
    is_taken: bool,
}

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let Some(guarded) = find_guarded(request) else {
        return Ok(());
    };
    let claim = match guarded {
        GuardedKind::Package => find_claim(request),
        GuardedKind::PackageSource | GuardedKind::Source
            if is_api_server_or_tenure(case) || may_delete(case, Rule::FieldOwnership) =>
        {
            None
        }
        GuardedKind::PackageSource | GuardedKind::Source => find_break(guarded, case),
    };
    let Some(claim) = claim else { return Ok(()) };
    let is_allowed = |verb| case.is_allowed(&Question::about_package(verb, request.name));
    if is_allowed(claim.verb) && !claim.is_taken {
        return Ok(());
    }
    if is_allowed(claim.verb) || is_allowed(OVERRIDE) {
        let rule = Rule::FieldOwnership;
        findings.warnings.push(format!(
            "{}, and you override that: {} ({rule})",
            claim.what, claim.remedy
        ));
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::FieldOwnership,
        why: format!("{}, and {} may not change it", claim.what, request.actor.user),
        remedy: claim.remedy,
    })
}

/// Checks whether this rule covers a resource in a namespace.
pub(super) fn is_judged(group: &str, resource: &str, namespace: &str) -> bool {
    match group {
        GROUP => matches!(resource, "packages" | "packagesources"),
        SOURCE_GROUP => namespace == SUPPLY.0,
        _ => false,
    }
}

/// Returns the protected kind of a request's object, if it has one.
fn find_guarded(request: &Request<'_>) -> Option<GuardedKind> {
    let resource = request.resource;
    if !matches!(resource.subresource, "" | "status") {
        return None;
    }
    match (resource.group, resource.name) {
        (GROUP, "packages") => Some(GuardedKind::Package),
        (GROUP, "packagesources") => Some(GuardedKind::PackageSource),
        (SOURCE_GROUP, _) if (request.namespace, request.name) == SUPPLY => Some(GuardedKind::Source),
        _ => None,
    }
}

/// Returns the field that a request takes from a Package's owner.
fn find_claim(request: &Request<'_>) -> Option<OwnershipConflict> {
    let new = request.object.filter(|_| request.writes())?;
    let old = request.old_object;
    let name = request.name;
    let claim = |field: &str, remedy: String| OwnershipConflict {
        what: format!("{field} of Package {name} belongs to the platform's chart"),
        remedy,
        verb: RENDER,
        is_taken: false,
    };
    if !request.resource.subresource.is_empty() && old.and_then(|old| old.get("status")) != new.get("status") {
        return Some(OwnershipConflict {
            what: format!("status of Package {name} belongs to the operator"),
            remedy: format!("leave it to the platform's operator (verb {REPORT} on packages/{name})"),
            verb: REPORT,
            is_taken: false,
        });
    }
    if name == BOOTSTRAP {
        return None;
    }
    if request.resource.subresource.is_empty() {
        if read_variant(Some(new)) != read_variant(old) {
            return Some(claim("spec.variant", write_disabling_message()));
        }
        for (part, keys) in [("annotations", &CHART_ANNOTATIONS[..]), ("labels", &CHART_LABELS[..])] {
            let (before, after) = (old.and_then(|old| read_part(old, part)), read_part(new, part));
            let of = |map: Option<&Map<String, Value>>, key: &str| map.and_then(|map| map.get(key)).cloned();
            let mut keys = keys.iter();
            if let Some(key) = keys.find(|key| of(before, key) != of(after, key)) {
                return Some(claim(&format!("metadata.{part}[{key}]"), write_disabling_message()));
            }
        }
        if let Some(field) = find_new_owner(old, new) {
            return Some(OwnershipConflict {
                is_taken: true,
                ..claim(field, "remove the field".to_owned())
            });
        }
    }
    let (had, has) = (collect_chart(old), collect_chart(Some(new)));
    // A subresource writes only itself and managedFields of an object.
    let whole = old.filter(|_| request.resource.subresource.is_empty());
    if let Some(field) = whole.and_then(|old| difference::find_first(&had, old, new, MapOwnership::Granular)) {
        return Some(claim(&shorten_object_text(&field), tell_values(name)));
    }
    let difference = [had.difference(&has), has.difference(&had)];
    let path = difference.iter().find_map(|set| set.paths().into_iter().next())?;
    let field = shorten_object_text(path.to_string().trim_start_matches('.'));
    Some(OwnershipConflict {
        what: format!(
            "the entries of managedFields for {field} under {} in Package {name} belong to the platform's chart",
            CHART_MANAGERS.join(" or ")
        ),
        ..claim("", write_managers_message())
    })
}

/// Returns the change that a request makes to the sources of charts.
fn find_break(guarded: GuardedKind, case: Case<'_>) -> Option<OwnershipConflict> {
    let request = case.request;
    let (old, new, name) = (request.old_object, request.object, request.name);
    let is_chart = |object: Option<&Value>| list_chart_entries(object).next().is_some();
    let kind = match guarded {
        GuardedKind::Source => request.resource.name,
        _ if name.starts_with(PLATFORM_PREFIX) || is_chart(old) => request.resource.name,
        // An object with a chart's name would be guarded against other users.
        _ if is_chart(new) => request.resource.name,
        _ => return None,
    };
    let claim = |verb| OwnershipConflict {
        what: format!("{kind}/{name} is the source of the platform's charts"),
        remedy: format!("create one of your own under another name (verb {verb} on packages/{name})"),
        verb,
        is_taken: false,
    };
    if !request.resource.subresource.is_empty() {
        let is_same = old.and_then(|old| old.get("status")) == new.and_then(|new| new.get("status"));
        return (!is_same).then(|| claim(REPORT));
    }
    let is_same = match (request.operation, old, new) {
        (Operation::Update, Some(old), Some(new)) => {
            old.get("spec") == new.get("spec")
                && read_part(old, "labels").filter(|map| !map.is_empty())
                    == read_part(new, "labels").filter(|map| !map.is_empty())
                && has_annotations_of(old, new)
                && has_annotations_of(new, old)
                && list_chart_entries(Some(old)).eq(list_chart_entries(Some(new)))
                // With an owner that doesn't exist, the garbage collector would delete the object.
                && (read_owners(old) == read_owners(new) || may_change(case, Rule::FieldOwnership, OWNERS))
        }
        _ => false,
    };
    (!is_same).then(|| claim(RENDER))
}

/// Checks whether an object has the annotations of another one. Annotations that every user may set don't count.
fn has_annotations_of(one: &Value, other: &Value) -> bool {
    let others = read_part(other, "annotations");
    let mut own = read_part(one, "annotations").into_iter().flatten();
    own.all(|(key, value)| {
        FREE_ANNOTATIONS.contains(&key.as_str()) || others.and_then(|others| others.get(key)) == Some(value)
    })
}

fn read_part<'a>(object: &'a Value, part: &str) -> Option<&'a Map<String, Value>> {
    object.get("metadata")?.get(part)?.as_object()
}

/// Returns the ownerReferences. None and an empty list count as equal.
fn read_owners(object: &Value) -> Option<&Vec<Value>> {
    let owners = object.pointer(OWNERS)?.as_array()?;
    Some(owners).filter(|owners| !owners.is_empty())
}

/// Returns the variant. None and an empty one mean the default.
fn read_variant(object: Option<&Value>) -> Option<&Value> {
    let variant = object?.pointer("/spec/variant")?;
    Some(variant).filter(|variant| !variant.is_null() && variant.as_str() != Some(""))
}

/// Returns the entries of managedFields about the object itself: those of a chart, or all others.
fn list_entries(object: Option<&Value>, of_chart: bool) -> impl Iterator<Item = &Value> {
    let managed = object.and_then(|object| object.pointer("/metadata/managedFields"));
    let entries = managed.and_then(Value::as_array).into_iter().flatten();
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries.filter(move |entry| {
        CHART_MANAGERS.contains(&text(entry, "manager").as_str()) == of_chart && text(entry, "subresource").is_empty()
    })
}

fn list_chart_entries(object: Option<&Value>) -> impl Iterator<Item = &Value> {
    list_entries(object, true)
}

/// Checks whether an update under a chart's manager leaves the chart's entries of managedFields unchanged, with the second of their time. Only
/// entries of an older release can, since it writes with `Update` as other users do.
pub(super) fn is_hidden_from_policies(request: &Request<'_>) -> bool {
    let is_update = |entry: &Value| entry.get("operation").and_then(Value::as_str) == Some("Update");
    request.operation == Operation::Update
        && list_chart_entries(request.old_object).any(is_update)
        && list_chart_entries(request.old_object).eq(list_chart_entries(request.object))
}

/// Returns all fields of the chart's managers. An invalid field set counts as empty.
fn collect_chart(object: Option<&Value>) -> FieldSet {
    let entries = list_chart_entries(object);
    let sets: Vec<FieldSet> = entries
        .filter_map(|entry| FieldSet::from_fields_v1(entry.get("fieldsV1")?).ok())
        .collect();
    FieldSet::union_of(&sets)
}

/// Returns the first field that only a chart may have, and which now has another owner too.
fn find_new_owner(old: Option<&Value>, new: &Value) -> Option<&'static str> {
    let policy = format!("f:{RESOURCE_POLICY}");
    let owned = |object: Option<&Value>, path: &[&str]| {
        list_entries(object, false).any(|entry| {
            let mut steps = path.iter();
            let fields = entry.get("fieldsV1");
            fields.is_some_and(|fields| steps.try_fold(fields, |fields, step| fields.get(*step)).is_some())
        })
    };
    let fields: [(&[&str], &str); 2] = [
        (&["f:spec", "f:variant"], "spec.variant"),
        (
            &["f:metadata", "f:annotations", &policy],
            "metadata.annotations[helm.sh/resource-policy]",
        ),
    ];
    let mut fields = fields.into_iter();
    fields
        .find(|(path, _)| owned(Some(new), path) && !owned(old, path))
        .map(|(_, field)| field)
}

pub(super) fn write_disabling_message() -> String {
    format!(
        "leave it as the chart has it; a Package is taken out of the platform by bundles.disabledPackages of Package {BOOTSTRAP}"
    )
}

fn tell_values(name: &str) -> String {
    format!("write it into PackageValues {name}")
}

pub(super) fn write_managers_message() -> String {
    "name a field manager of your own, and leave metadata.managedFields to the API server".to_owned()
}
