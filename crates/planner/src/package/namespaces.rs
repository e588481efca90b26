//! The namespaces of a Package's releases: they exist, Helm leaves them, and Pods of privileged components may run there.
//!
//! Several Packages share a namespace, and each applies the same fields. So the level of a namespace follows from all Packages. A namespace is never deleted.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_api::metadata::POD_SECURITY_ENFORCE;
use tenure_api::package::{KEEP, PACKAGE_CONTROLLER, RESOURCE_POLICY, SYSTEM_LABEL, TENANT_NAMESPACE_PREFIX};
use tenure_api::{ObjectId, ObjectView};

use crate::plan::Watched;

/// The level of a namespace with a privileged component.
const PRIVILEGED: &str = "privileged";

/// Returns the id of a namespace.
pub(super) fn make_namespace_id(name: &str) -> ObjectId {
    ObjectId {
        namespace: String::new(),
        name: name.to_owned(),
        group: String::new(),
        kind: "Namespace".to_owned(),
    }
}

/// Returns a namespace to read and watch.
pub(super) fn watch_namespace(name: &str) -> Watched {
    Watched {
        id: make_namespace_id(name),
        version: "v1".to_owned(),
    }
}

/// Returns the applied form of a namespace.
pub(super) fn make_namespace(name: &str, is_privileged: bool) -> Value {
    let mut labels = Map::new();
    if !name.starts_with(TENANT_NAMESPACE_PREFIX) {
        labels.insert(SYSTEM_LABEL.to_owned(), json!("true"));
    }
    if is_privileged {
        labels.insert(POD_SECURITY_ENFORCE.to_owned(), json!(PRIVILEGED));
    }
    let mut metadata = json!({ "name": name, "annotations": { RESOURCE_POLICY: KEEP } });
    if let Some(metadata) = metadata.as_object_mut().filter(|_| !labels.is_empty()) {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
}

/// Checks whether a live namespace has the applied labels and annotations, and this manager owns no others.
pub(super) fn is_as_applied(live: &Value, applied: &Value) -> bool {
    let (live, applied) = (ObjectView::new(live), ObjectView::new(applied));
    let empty = Map::new();
    ["labels", "annotations"].into_iter().all(|field| {
        let path = format!("/metadata/{field}");
        let (has, wants) = (
            live.find_map(&path).unwrap_or(&empty),
            applied.find_map(&path).unwrap_or(&empty),
        );
        let owned = format!("/fieldsV1/f:metadata/f:{field}");
        let mut own = live
            .list_views("/metadata/managedFields")
            .filter(|entry| entry.read_text("/manager") == PACKAGE_CONTROLLER)
            .filter_map(|entry| entry.find_map(&owned))
            .flat_map(Map::keys)
            .filter_map(|key| key.strip_prefix("f:"));
        wants.iter().all(|(key, value)| has.get(key) == Some(value)) && own.all(|key| wants.contains_key(key))
    })
}

/// Returns the namespaces of enabled components, and whether one of these components is privileged.
pub(super) fn list_namespaces<'a>(components: impl Iterator<Item = (&'a str, bool)>) -> BTreeMap<&'a str, bool> {
    let mut namespaces: BTreeMap<&str, bool> = BTreeMap::new();
    for (namespace, privileged) in components {
        *namespaces.entry(namespace).or_default() |= privileged;
    }
    namespaces
}
