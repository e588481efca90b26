//! The rule for labels and annotations of namespaces that Tenure or a Tenant sets, and that other controllers obey: no request changes them without the
//! verb `adopt`, whatever RBAC allows.
//!
//! A Pod Security level may become stricter than the Tenant's, and never weaker. The levels `warn` and `audit` refuse no Pod, and are free unless the
//! Tenant sets them.

use std::collections::BTreeMap;

use tenure_api::metadata::{
    BOUNDED_LABEL, CORDONED_LABEL, COUNTED_LABEL, LEFT_CLAIMS_LABEL, LEFT_INGRESSES_LABEL, LEFT_PODS_LABEL,
    POD_SECURITY_ENFORCE, POD_SECURITY_VERSION,
};

use super::metadata::{ANNOTATIONS, LABELS};
use super::request::read_metadata;
use super::{Case, Question, Refusal, Rule};
use tenure_tenancy::namespace_metadata::MetadataValue;
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::pod_security::PodSecurityLevel;
use tenure_tenancy::rights::ADOPT;

/// Labels by which webhooks and users see which rules are in force in a namespace. Only Tenure sets
/// them.
pub(super) const RESERVED: [&str; 6] = [
    BOUNDED_LABEL,
    CORDONED_LABEL,
    COUNTED_LABEL,
    LEFT_PODS_LABEL,
    LEFT_CLAIMS_LABEL,
    LEFT_INGRESSES_LABEL,
];
/// The version of a Pod Security level that weakens nothing.
pub(super) const LATEST: &str = "latest";

/// Labels or annotations, by key.
type Metadata = BTreeMap<String, String>;

/// Denies a change of a value that the namespace's Tenant sets.
pub(super) fn check(case: Case<'_>, tenant: &TenantFacts, name: &str) -> Result<(), Refusal> {
    let read = |object: Option<&serde_json::Value>| {
        let metadata = object.map(read_metadata).unwrap_or_default();
        (
            metadata.labels.unwrap_or_default(),
            metadata.annotations.unwrap_or_default(),
        )
    };
    let (old_labels, old_annotations) = read(case.request.old_object);
    let (new_labels, new_annotations) = read(case.request.object);
    let found = find_broken(
        case,
        (tenant, name),
        (&old_labels, &new_labels),
        (&old_annotations, &new_annotations),
    );
    let Some((why, remedy)) = found else { return Ok(()) };
    if case.is_allowed(&Question::about_tenant(ADOPT, &tenant.name)) {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::NamespaceOptions,
        why,
        remedy,
    })
}

/// Returns the message about the first change that isn't free.
fn find_broken(
    case: Case<'_>,
    (tenant, name): (&TenantFacts, &str),
    labels: (&Metadata, &Metadata),
    annotations: (&Metadata, &Metadata),
) -> Option<(String, String)> {
    if let Some(key) = list_changed(labels).find(|key| RESERVED.contains(key)) {
        return Some(write_reserved_message(key));
    }
    let names = (tenant.name.as_str(), name);
    let is_kept = |mark: Option<MetadataValue>, value: Option<&String>| match mark {
        None => false,
        Some(MetadataValue::Chosen) => true,
        Some(MetadataValue::Fixed(wanted)) => value != Some(&wanted),
    };
    let label = |key: &&str| is_kept(tenant.marks.find_label(key, names), labels.1.get(*key));
    if let Some(key) = list_changed(labels).find(label) {
        return Some(write_tenant_key_message(LABELS, &tenant.name, key));
    }
    let annotation = |key: &&str| is_kept(tenant.marks.find_annotation(key, names), annotations.1.get(*key));
    if let Some(key) = list_changed(annotations).find(annotation) {
        return Some(write_tenant_key_message(ANNOTATIONS, &tenant.name, key));
    }
    check_level(case, (tenant, name), labels)
}

/// Returns the message about a Pod Security level that becomes weaker.
fn check_level(
    case: Case<'_>,
    (tenant, name): (&TenantFacts, &str),
    (old, new): (&Metadata, &Metadata),
) -> Option<(String, String)> {
    let level = tenant.find_pod_security(case.facts.settings(), name);
    let read = |labels: &Metadata| labels.get(POD_SECURITY_ENFORCE).cloned();
    let (before, after) = (read(old), read(new));
    if before != after {
        let before = before.as_deref().and_then(PodSecurityLevel::parse);
        // If the Tenant sets no level, the label may only become stricter.
        let least = level.unwrap_or_else(|| before.unwrap_or_default().max(PodSecurityLevel::Baseline));
        let is_free = match &after {
            Some(after) => PodSecurityLevel::parse(after).is_some_and(|after| after >= least),
            None => level.or(before).unwrap_or_default() == PodSecurityLevel::Privileged,
        };
        if !is_free {
            return Some(write_level_message(&tenant.name, least.as_str()));
        }
    }
    let (before, after) = (old.get(POD_SECURITY_VERSION), new.get(POD_SECURITY_VERSION));
    let is_another = before != after && after.is_some_and(|after| after != LATEST);
    let is_kept = tenant
        .marks
        .find_label(POD_SECURITY_VERSION, (&tenant.name, name))
        .is_some();
    (is_another && !is_kept && level != Some(PodSecurityLevel::Privileged)).then(|| write_version_message(&tenant.name))
}

/// Lists the keys whose values a request changes.
fn list_changed<'a>((old, new): (&'a Metadata, &'a Metadata)) -> impl Iterator<Item = &'a str> {
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    keys.filter(|key| old.get(*key) != new.get(*key)).map(String::as_str)
}

/// Returns the message about a label that only Tenure sets.
pub(super) fn write_reserved_message(key: &str) -> (String, String) {
    (
        format!("metadata.labels: only Tenure sets {key} on its namespaces"),
        "leave it as it is".to_owned(),
    )
}

/// Returns the message about a key that the Tenant sets.
pub(super) fn write_tenant_key_message(part: &str, tenant: &str, key: &str) -> (String, String) {
    (
        format!("metadata.{part}: Tenant {tenant} sets {key} on its namespaces"),
        "leave it as it is, or ask an administrator".to_owned(),
    )
}

/// Returns the message about a Pod Security level that is too weak.
pub(super) fn write_level_message(tenant: &str, least: &str) -> (String, String) {
    (
        format!(
            "metadata.labels: Tenant {tenant} allows no weaker {POD_SECURITY_ENFORCE} than {least} on its namespaces"
        ),
        "choose that level or a stricter one, or ask an administrator".to_owned(),
    )
}

/// Returns the message about a version of a Pod Security level.
pub(super) fn write_version_message(tenant: &str) -> (String, String) {
    (
        format!("metadata.labels: Tenant {tenant} allows no {POD_SECURITY_VERSION} but {LATEST} on its namespaces"),
        "remove it, or ask an administrator".to_owned(),
    )
}
