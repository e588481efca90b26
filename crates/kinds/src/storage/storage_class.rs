//! StorageClasses.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::defaults;
use crate::schema::validation::storage;
use crate::table::cells;

/// StorageClasses.
pub(super) static STORAGE_CLASS: Kind = Kind {
    is_answered_when_deleted: true,
    defaults: |_, object| {
        defaults::set(object, "reclaimPolicy", "Delete");
        defaults::set(object, "volumeBindingMode", "Immediate");
    },
    validate: storage::storage_class,
    validate_update: storage::storage_class_update,
    cells: show,
    ..Kind::named("storage.k8s.io", "StorageClass", "storageclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
        .iter()
        .any(|prefix| cells::text(object, &format!("/metadata/annotations/{prefix}~1is-default-class")) == "true");
    let mut shown = cells::text(object, "/metadata/name").to_owned();
    if default {
        shown.push_str(" (default)");
    }
    vec![
        shown.into(),
        cells::text(object, "/provisioner").into(),
        cells::or(cells::text(object, "/reclaimPolicy"), "Delete").into(),
        cells::or(cells::text(object, "/volumeBindingMode"), "Immediate").into(),
        (object.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
        cells::age(object, now),
    ]
}
