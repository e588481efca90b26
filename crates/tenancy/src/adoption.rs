//! Decides how an administrator adopts namespaces into a Tenant (`tenure adopt`). It makes the patches of the namespace and of the Tenant's record, which are
//! sent with the administrator's rights.
//!
//! The checks here hold for every user. They deny namespaces of Kubernetes or the platform, namespaces that another Tenant has recorded or has its home in, and
//! namespaces in deletion. The API server and admission decide whether the user may adopt at all ([`crate::rights::ADOPT`]).

use serde_json::{Map, Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::{OwnerReference, Tenant, condition, reason};

use crate::denial::Denial;
use crate::placement::{NamespaceFacts, TenancyFacts, TenantFacts};
use crate::record::RecordState;

/// The writes by which a Tenant adopts one namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Adoption {
    /// The namespace.
    pub namespace: String,
    /// The merge patch of the namespace, which is valid only for the version that was read. None if the namespace names
    /// the Tenant already.
    pub patch: Option<Value>,
    /// True if the Tenant's record has the namespace already.
    pub is_recorded: bool,
    /// A description of the steps.
    pub summary: String,
}

/// Decides how a Tenant adopts one namespace. `tenancy` contains all Tenants. `object` is the stored namespace.
///
/// # Errors
/// The reason why the Tenant can't get the namespace.
pub fn plan_adoption(tenancy: &TenancyFacts, tenant: &TenantFacts, object: &Value) -> Result<Adoption, Denial> {
    let metadata = ObjectView::new(object).read_metadata();
    let facts = NamespaceFacts::from(&metadata);
    let name = facts.name.as_str();
    let refuse = |why: String| {
        Err(Denial::access(format!(
            "namespace {name} can't become tenant {}'s: {why}",
            tenant.name
        )))
    };
    if tenant.uid.is_empty() || facts.uid.is_empty() {
        return refuse("it, or the Tenant, has no uid: it isn't stored".to_owned());
    }
    if tenant.deleting {
        return refuse("the Tenant is being deleted".to_owned());
    }
    if tenancy.settings.is_protected(name) {
        return refuse("it belongs to Kubernetes or the platform, and can't belong to a tenant".to_owned());
    }
    if facts.deleting {
        return refuse("it is being deleted".to_owned());
    }
    let others = || tenancy.tenants.iter().filter(|other| other.uid != tenant.uid);
    if let Some(rival) = others().find(|other| !other.deleting && other.home() == name) {
        return refuse(format!("it is the home namespace of tenant {}", rival.name));
    }
    let owns = |other: &&TenantFacts| facts.tenant_owners.iter().any(|owner| owner.uid == other.uid);
    let is_named = |other: &&TenantFacts| facts.tenant_label.as_ref() == Some(&other.name);
    if let Some(other) = others().find(|other| owns(other) || is_named(other)) {
        return refuse(format!(
            "it names tenant {}: if it no longer belongs to that tenant, remove its label {TENANT_LABEL} and its ownerReference first",
            other.name
        ));
    }
    let owners = facts.tenant_owners.as_slice();
    let is_labelled = facts.tenant_label.as_ref() == Some(&tenant.name);
    let mut changes = Vec::new();
    if !is_labelled {
        changes.push(match &facts.tenant_label {
            Some(label) => format!("labelled for it instead of {label}, which is no Tenant"),
            None => "labelled for it".to_owned(),
        });
    }
    if !owners.is_empty() {
        changes.push("freed of its ownerReference, by which the garbage collector would delete it".to_owned());
    }
    let is_recorded = tenant.has_recorded(&facts);
    if !is_recorded {
        changes.push("recorded".to_owned());
    }
    let references = metadata.owner_references.unwrap_or_default();
    Ok(Adoption {
        namespace: name.to_owned(),
        patch: (!is_labelled || !owners.is_empty()).then(|| {
            write_patch(
                (&facts.uid, metadata.resource_version.as_deref().unwrap_or_default()),
                &references,
                tenant,
            )
        }),
        is_recorded,
        summary: match changes.is_empty() {
            true => format!("is tenant {}'s already", tenant.name),
            false => changes.join(", "),
        },
    })
}

/// Returns the patch of a namespace. Owner references to other objects stay.
fn write_patch((uid, version): (&str, &str), references: &[OwnerReference], tenant: &TenantFacts) -> Value {
    let is_tenants = |owner: &&OwnerReference| {
        owner.kind == "Tenant"
            && owner
                .api_version
                .split_once('/')
                .is_some_and(|(group, _)| group == "capsule.clastix.io")
    };
    let others = references.iter().filter(|owner| !is_tenants(owner));
    let owners: Vec<Value> = others.filter_map(|owner| serde_json::to_value(owner).ok()).collect();
    json!({ "metadata": {
        "uid": uid, "resourceVersion": version, "labels": { TENANT_LABEL: tenant.name }, "ownerReferences": owners
    }})
}

/// Adds these namespaces, names and uids, to the Tenant's record. Returns a merge patch of its status that is valid only for the version that was read,
/// or none if the record has them all. `now` is the transition time of the condition.
#[must_use]
pub fn write_record(tenant: &Tenant, namespaces: &[(String, String)], now: &str) -> Option<Value> {
    let facts = TenantFacts::from(tenant);
    let is_missing = |(name, uid): &&(String, String)| facts.recorded.get(name) != Some(uid);
    let missing: Vec<&(String, String)> = namespaces.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return None;
    }
    let status = tenant.status.clone().unwrap_or_default();
    let is_another = |name: &str| missing.iter().all(|(missing, _)| missing != name);
    let kept = status.spaces.iter().filter(|space| is_another(&space.name));
    let mut spaces: Vec<Value> = kept.filter_map(|space| serde_json::to_value(space).ok()).collect();
    spaces.extend(missing.iter().map(|(name, uid)| json!({ "name": name, "uid": uid })));
    spaces.sort_by(|one, other| read_name(one).cmp(read_name(other)));
    let mut fields = Map::new();
    fields.insert("spaces".to_owned(), Value::Array(spaces));
    if RecordState::read(tenant) == RecordState::New {
        // This condition begins the record. Without it, the controllers would also record every other namespace
        // that claims the Tenant.
        let mut conditions: Vec<Value> = status
            .conditions
            .iter()
            .filter_map(|condition| serde_json::to_value(condition).ok())
            .collect();
        conditions.push(json!({
            "type": condition::NAMESPACES_RECORDED, "status": "True", "reason": reason::RECORDED, "lastTransitionTime": now,
            "message": "the namespaces in status.spaces are the Tenant's"
        }));
        fields.insert("conditions".to_owned(), Value::Array(conditions));
        // A required field. The controllers set its real value.
        fields.insert("size".to_owned(), json!(status.size));
        fields.insert(
            "state".to_owned(),
            match status.state.as_str() {
                "" => json!("Active"),
                state => json!(state),
            },
        );
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(json!({
        "metadata": { "uid": text(&tenant.metadata.uid), "resourceVersion": text(&tenant.metadata.resource_version) },
        "status": fields
    }))
}

fn read_name(space: &Value) -> &str {
    space.get("name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner_reference::make_owner_reference;
    use crate::settings::Settings;

    fn tenant(status: Value) -> Tenant {
        let object = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": "blue", "uid": "t", "resourceVersion": "7" }, "spec": {}, "status": status
        });
        serde_json::from_value(object).unwrap()
    }

    fn make_tenancy(tenant: &Tenant) -> TenancyFacts {
        let red = TenantFacts {
            name: "red".to_owned(),
            uid: "r".to_owned(),
            ..TenantFacts::default()
        };
        TenancyFacts {
            settings: Settings::default(),
            tenants: vec![TenantFacts::from(tenant), red],
            namespaces: Vec::new(),
        }
    }

    fn owner(name: &str, uid: &str) -> Value {
        make_owner_reference(name, uid)
    }

    /// A namespace that is being deleted or is not stored is refused, too.
    #[test]
    fn adoption_of_protected_or_foreign_namespace_is_refused() {
        let tenant = tenant(Value::Null);
        let tenancy = make_tenancy(&tenant);
        let refused = |metadata: Value| {
            let object = json!({ "metadata": metadata });
            plan_adoption(&tenancy, &TenantFacts::from(&tenant), &object)
                .unwrap_err()
                .message
        };
        for name in ["kube-system", "default", "kube-anything", "tenure-system"] {
            let message = refused(json!({ "name": name, "uid": "n" }));
            assert!(message.contains("can't belong to a tenant"), "{name}: {message}");
        }
        for (metadata, part) in [
            (json!({ "name": "red", "uid": "n" }), "home namespace of tenant red"),
            (
                json!({ "name": "shop", "uid": "n", "labels": { TENANT_LABEL: "red" } }),
                "it names tenant red",
            ),
            (
                json!({ "name": "shop", "uid": "n", "ownerReferences": [owner("red", "r")] }),
                "it names tenant red",
            ),
            (
                json!({ "name": "shop", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z" }),
                "being deleted",
            ),
            (json!({ "name": "shop" }), "isn't stored"),
            (Value::Null, "isn't stored"),
        ] {
            let message = refused(metadata.clone());
            assert!(message.contains(part), "{metadata}: {message}");
        }
    }

    /// The patch sets the Tenant's label.
    #[test]
    fn adoption_patch_keeps_other_owner_references() {
        let tenant = tenant(Value::Null);
        let tenancy = make_tenancy(&tenant);
        let facts = TenantFacts::from(&tenant);
        let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" });
        let object = json!({ "metadata": {
            "name": "shop", "uid": "n", "resourceVersion": "3", "labels": { TENANT_LABEL: "former", "a": "b" },
            "ownerReferences": [other, owner("blue", "older")]
        }});
        let adoption = plan_adoption(&tenancy, &facts, &object).unwrap();
        let expected = json!({ "metadata": {
            "uid": "n", "resourceVersion": "3", "labels": { TENANT_LABEL: "blue" }, "ownerReferences": [other]
        }});
        assert_eq!(adoption.patch, Some(expected));
        assert!(
            adoption.summary.contains("instead of former") && adoption.summary.ends_with("recorded"),
            "{}",
            adoption.summary
        );
    }

    #[test]
    fn adoption_extends_or_begins_tenant_record() {
        let shop = [("shop".to_owned(), "n".to_owned())];
        // The entry of a re-created namespace is replaced, and other entries stay.
        let status = json!({ "size": 2, "state": "Active", "spaces": [
            { "name": "blue", "uid": "b", "metadata": { "labels": { "a": "b" } } }, { "name": "shop", "uid": "older" }
        ]});
        let written = write_record(&tenant(status), &shop, "2026-01-01T00:00:00Z").unwrap();
        let spaces = json!([{ "name": "blue", "uid": "b", "metadata": { "labels": { "a": "b" } } }, { "name": "shop", "uid": "n" }]);
        assert_eq!(written["status"], json!({ "spaces": spaces }));
        assert_eq!(written["metadata"], json!({ "uid": "t", "resourceVersion": "7" }));
        assert_eq!(
            write_record(
                &tenant(json!({ "size": 1, "state": "Active", "spaces": spaces })),
                &shop,
                ""
            ),
            None
        );
        let mut lost = tenant(Value::Null);
        let written = write_record(&lost, &shop, "2026-01-01T00:00:00Z").unwrap();
        lost.status = serde_json::from_value(written["status"].clone()).unwrap();
        assert_eq!(RecordState::read(&lost), RecordState::Begun);
        assert_eq!(TenantFacts::from(&lost).recorded.len(), 1);
    }
}
