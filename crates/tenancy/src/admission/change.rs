//! What a decision changes of an object.

use serde_json::{Map, Value, json};
use tenure_api::metadata::TENANT_LABEL;

/// One change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It bears a tenant's label.
    LabelForTenant(String),
    /// A Tenant owns it.
    AddTenantOwner {
        /// Name of the Tenant.
        name: String,
        /// Uid of the Tenant.
        uid: String,
    },
}

impl Change {
    /// Changes the object.
    pub fn make(&self, object: &mut Value) {
        let Some(object) = object.as_object_mut() else { return };
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        match self {
            Self::LabelForTenant(tenant) => {
                let labels = metadata.entry("labels").or_insert(Value::Null);
                if !labels.is_object() {
                    *labels = Value::Object(Map::new());
                }
                if let Some(labels) = labels.as_object_mut() {
                    labels.insert(TENANT_LABEL.to_owned(), Value::from(tenant.as_str()));
                }
            }
            Self::AddTenantOwner { name, uid } => {
                let owners = metadata.entry("ownerReferences").or_insert(Value::Null);
                if !owners.is_array() {
                    *owners = Value::Array(Vec::new());
                }
                if let Some(owners) = owners.as_array_mut() {
                    owners.push(make_owner_reference(name, uid));
                }
            }
        }
    }
}

/// The ownerReference by which a namespace is a Tenant's.
#[must_use]
pub fn make_owner_reference(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2",
        "kind": "Tenant",
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
