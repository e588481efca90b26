//! PriorityClasses.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::quotas;
use crate::table::cells;

/// PriorityClasses.
pub(super) static PRIORITY_CLASS: Kind = Kind {
    generation: Generation::Fixed,
    defaults: |_, object| defaults::set(object, "preemptionPolicy", "PreemptLowerPriority"),
    validate_create: quotas::priority_class,
    validate_update: quotas::priority_class_update,
    cells: show,
    ..Kind::named("scheduling.k8s.io", "PriorityClass", "priorityclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = object.get("globalDefault") == Some(&Value::Bool(true));
    vec![
        cells::name(object),
        cells::number(object, "/value").into(),
        is_default.into(),
        cells::age(object, now),
        cells::text(object, "/preemptionPolicy").into(),
    ]
}
