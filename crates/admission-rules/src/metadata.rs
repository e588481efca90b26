//! The rule for labels and annotations that a Tenant forbids on its namespaces and its Services. Only keys that a request adds or changes
//! are checked. Existing ones stay, and may be removed.

use serde_json::Value;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::tenant::DeniedNames;

use super::{Case, Refusal, Rule, cordon, tenant_limits};
use tenure_tenancy::bounds::Bounds;
use tenure_tenancy::placement::TenantFacts;

/// The parts of metadata that are checked.
pub(super) const LABELS: &str = "labels";
/// See [`LABELS`].
pub(super) const ANNOTATIONS: &str = "annotations";
/// Labels of a namespace that Kubernetes and the rules of membership control.
pub(super) const FREE: [&str; 2] = [TENANT_LABEL, "kubernetes.io/metadata.name"];

/// Returns the first denied key that a request adds or changes.
pub(super) fn find_denied<'a>(
    case: Case<'a>,
    bounds: &Bounds,
    part: &str,
    denied: Option<&DeniedNames>,
    free: &[&str],
) -> Option<&'a str> {
    let denied = denied?;
    let read = |object: &'a Value| object.get("metadata")?.get(part)?.as_object();
    let old = case.request.old_object.and_then(read);
    let new = case.request.object.and_then(read);
    let mut changed = new
        .into_iter()
        .flatten()
        .filter(|(key, value)| old.and_then(|old| old.get(*key)) != Some(*value));
    let found = changed.find(|(key, _)| !free.contains(&key.as_str()) && bounds.denies(denied, key));
    found.map(|(key, _)| key.as_str())
}

/// Returns the message about such a key.
pub(super) fn write_metadata_message(part: &str, kind: &str, tenant: &str, key: &str) -> (String, String) {
    (
        format!(
            "metadata.{part}: Tenant {tenant} doesn't allow {} on its {kind}",
            tenant_limits::shorten(key)
        ),
        "leave it as it is, or ask an administrator".to_owned(),
    )
}

/// Refuses a label or annotation that an identity of the tenant sets on a namespace although the Tenant forbids it.
pub(super) fn check_namespace(case: Case<'_>, tenant: &TenantFacts) -> Result<(), Refusal> {
    let bounds = tenant.bounds.namespaces();
    if !cordon::is_identity_of(case, tenant) {
        return Ok(());
    }
    for (part, denied, free) in [
        (LABELS, &bounds.forbidden_labels, FREE.as_slice()),
        (ANNOTATIONS, &bounds.forbidden_annotations, &[]),
    ] {
        if let Some(key) = find_denied(case, &tenant.bounds, part, denied.as_ref(), free) {
            let (why, remedy) = write_metadata_message(part, "namespaces", &tenant.name, key);
            return Err(Refusal {
                rule: Rule::NamespaceOptions,
                why,
                remedy,
            });
        }
    }
    Ok(())
}
