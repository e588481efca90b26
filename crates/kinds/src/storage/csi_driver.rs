//! CSIDrivers.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::storage_plugins;
use crate::schema::warnings;
use crate::table::cells;

/// CSIDrivers.
pub(super) static CSI_DRIVER: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    generation: Generation::Late,
    defaults: |_, object| defaults::with_spec(object, fill_in),
    validate: |value, errors| storage_plugins::object("CSIDriver", value, errors),
    validate_update: |value, old, errors| storage_plugins::update("CSIDriver", value, old, errors),
    warnings: warnings::driver,
    cells: show,
    ..Kind::named("storage.k8s.io", "CSIDriver", "csidrivers")
};

fn fill_in(spec: &mut Map<String, Value>) {
    defaults::set(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        defaults::set(spec, field, false);
    }
    defaults::set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if defaults::is_empty(spec, "volumeLifecycleModes") {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let flag = |field: &str, absent: bool| {
        let found = object.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        Value::from(found.unwrap_or(absent))
    };
    let modes: Vec<&str> = cells::list(object, "/spec/volumeLifecycleModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let audiences: Vec<&str> = cells::list(object, "/spec/tokenRequests")
        .iter()
        .map(|one| cells::text(one, "/audience"))
        .collect();
    vec![
        cells::name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        cells::or(&audiences.join(","), "<unset>").into(),
        flag("requiresRepublish", false),
        cells::or(&modes.join(","), "<none>").into(),
        cells::age(object, now),
    ]
}
