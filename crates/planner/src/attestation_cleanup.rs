//! Removes Tenants that an attestation (`tenure attest`) made, after their time is over, even if its process was killed.
//!
//! Three signs together mark such a Tenant: the beginning of its name, a label and an annotation. No tenant can write one of them, because a Tenant is a cluster-wide
//! object. A Tenant without all three signs is never removed, and neither is a Tenant whose end can't be parsed.

use jiff::Timestamp;
use serde_json::json;
use tenure_api::metadata::{ATTEST_EXPIRES, ATTEST_LABEL, ATTEST_PREFIX};
use tenure_api::{ObjectId, ObjectMeta, Tenant};

use crate::object::{Object, Origin};
use crate::plan::{Apply, Delete, Propagation, Request, Watched};

/// The field manager of the writes, as managedFields show it.
const MANAGER: &str = "tenure-attest";
const GROUP: &str = "capsule.clastix.io";

/// Returns the time after which a Tenant is removed. Returns nothing for a Tenant that no attestation made.
#[must_use]
pub fn find_end(metadata: &ObjectMeta) -> Option<Timestamp> {
    let name = metadata.name.as_deref()?.strip_prefix(ATTEST_PREFIX)?;
    let is_labelled = metadata.labels.as_ref()?.get(ATTEST_LABEL)? == "true";
    let end = metadata.annotations.as_ref()?.get(ATTEST_EXPIRES)?;
    (is_labelled && !name.is_empty()).then(|| end.parse().ok())?
}

/// Returns the request that deletes a Tenant whose time is over. For a Tenant with `preventDeletion`, the first request unsets this field.
#[must_use]
pub fn end_tenant(tenant: &Tenant) -> Request {
    let metadata = &tenant.metadata;
    let id = make_tenant_id(metadata);
    if tenant.spec.prevent_deletion.unwrap_or_default() {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "Tenant",
            // The patch names the uid, so that it applies to no other Tenant of the same name.
            "metadata": { "name": id.name, "uid": metadata.uid },
            "spec": { "preventDeletion": false },
        });
        return Request::Apply(Apply {
            id,
            object: Object(object),
            origin: Origin::default(),
            manager: MANAGER.to_owned(),
            force: true,
            confidential: false,
        });
    }
    Request::Delete(Delete {
        target: Watched {
            id,
            version: "v1beta2".to_owned(),
        },
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        propagation: Propagation::Background,
        why: "an attestation made it, and its time is over".to_owned(),
    })
}

/// Returns the id of a Tenant.
pub(crate) fn make_tenant_id(metadata: &ObjectMeta) -> ObjectId {
    ObjectId {
        namespace: String::new(),
        name: metadata.name.clone().unwrap_or_default(),
        group: GROUP.to_owned(),
        kind: "Tenant".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str, label: Option<&str>, end: Option<&str>) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": name, "uid": "u",
            "labels": label.map(|label| json!({ ATTEST_LABEL: label })),
            "annotations": end.map(|end| json!({ ATTEST_EXPIRES: end })),
        }))
        .unwrap()
    }

    #[test]
    fn only_what_an_attestation_made_has_an_end() {
        let end = "2026-01-01T00:00:00Z";
        let is_found = |name, label, end| find_end(&metadata(name, label, end)).is_some();
        assert!(is_found("attest-0a1b", Some("true"), Some(end)));
        assert!(!is_found("team-a", Some("true"), Some(end)), "another name");
        assert!(!is_found("attest-", Some("true"), Some(end)));
        assert!(!is_found("attest-0a1b", None, Some(end)), "no label");
        assert!(!is_found("attest-0a1b", Some("yes"), Some(end)));
        assert!(!is_found("attest-0a1b", Some("true"), None), "no end");
        assert!(!is_found("attest-0a1b", Some("true"), Some("soon")));
    }

    #[test]
    fn deletion_protection_is_removed_before_deletion() {
        let mut tenant = Tenant::new("attest-0a1b", tenure_api::TenantSpec::default());
        tenant.metadata.uid = Some("u".to_owned());
        assert!(matches!(end_tenant(&tenant), Request::Delete(Delete { uid: Some(uid), .. }) if uid == "u"));
        tenant.spec.prevent_deletion = Some(true);
        assert!(
            matches!(end_tenant(&tenant), Request::Apply(Apply { object, .. }) if object.0["spec"]["preventDeletion"] == false)
        );
    }
}
