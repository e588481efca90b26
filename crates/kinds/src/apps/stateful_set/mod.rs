//! The kind StatefulSet.

mod validation;
mod warnings;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core_group::pod::counts::{Counts, validate_counts};
use crate::core_group::pod::template::{self, TEMPLATE};
use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::names::NameRule;
use crate::table::cells;

/// The counts in a status.
const COUNTS: Counts = Counts {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    parts: &[
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ],
    ready: "cannot be greater than status.readyReplicas",
};

/// StatefulSets.
pub(super) static STATEFUL_SET: Kind = Kind {
    names: NameRule::Label,
    generation: Generation::Counted,
    initial_status: Some(|| json!({"availableReplicas": 0, "replicas": 0})),
    pod_spec: Some(TEMPLATE),
    drop_disabled,
    defaults: |_, object| defaults::with_spec(object, fill_in),
    validate_create: |value, errors| validation::validate(value, None, errors),
    validate_update: |value, old, errors| validation::validate(value, Some(old), errors),
    validate_status: |value, old, errors| validate_counts(&COUNTS, value, old, errors),
    warnings: |object, live| {
        let mut found = template::warnings_of_changed_generation(object, live);
        found.extend(warnings::list_warnings(object, live.is_none()));
        found
    },
    cells: show,
    ..Kind::new("apps", "StatefulSet", "statefulsets")
};

/// Drops the field `maxUnavailable` of a rolling update, because that feature is disabled.
fn drop_disabled(object: &mut Value, live: Option<&Value>) {
    template::drop_disabled_of_template(object, live);
    const AT: &str = "/spec/updateStrategy/rollingUpdate";
    let has_it = |live: &Value| {
        live.pointer(AT)
            .is_some_and(|rolling| rolling.get("maxUnavailable").is_some())
    };
    if !live.is_some_and(has_it)
        && let Some(rolling) = object.pointer_mut(AT).and_then(Value::as_object_mut)
    {
        rolling.remove("maxUnavailable");
    }
}

fn fill_in(spec: &mut Map<String, Value>) {
    defaults::set(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = defaults::object_at(spec, "updateStrategy") {
        if defaults::get_text(strategy, "type").is_empty() {
            strategy.insert("type".into(), "RollingUpdate".into());
            defaults::object_at(strategy, "rollingUpdate");
        }
        if defaults::get_text(strategy, "type") == "RollingUpdate"
            && let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate")
        {
            defaults::set(rolling, "partition", 0);
        }
    }
    if let Some(retention) = defaults::object_at(spec, "persistentVolumeClaimRetentionPolicy") {
        defaults::set(retention, "whenDeleted", "Retain");
        defaults::set(retention, "whenScaled", "Retain");
    }
    defaults::set(spec, "replicas", 1);
    defaults::set(spec, "revisionHistoryLimit", 10);
    // Templates are whole objects with their own `apiVersion` and `kind`.
    for claim in spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(claim) = claim {
            defaults::set(claim, "apiVersion", "v1");
            defaults::set(claim, "kind", "PersistentVolumeClaim");
        }
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cells::format_containers(object, cells::CONTAINERS);
    let ready = format!(
        "{}/{}",
        cells::get_number(object, "/status/readyReplicas"),
        cells::get_number(object, "/spec/replicas")
    );
    vec![
        cells::name_cell(object),
        ready.into(),
        cells::format_age(object, now),
        names,
        images,
    ]
}
