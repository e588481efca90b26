//! HorizontalPodAutoscalers, in both versions of their group.

mod cells;
mod validation;
mod versions;

use serde_json::{Map, Value, json};

use crate::kind::{Kind, OwnersFirst, Request, Resource};
use crate::object::set_status;
use crate::schema::validation::non_negative;
use crate::schema::{FieldPath, defaults};

use versions::{OLD, STORED, convert, round_trip};

/// HorizontalPodAutoscalers.
pub(super) static HORIZONTAL_POD_AUTOSCALER: Kind = Kind {
    stored_version: Some(STORED),
    versions: &[OLD, STORED],
    convert: Some(convert),
    owners_first: OwnersFirst::Always,
    normalize: normalize_autoscaler,
    unify: round_trip_in_place,
    write_nulls: |resource, object, stored| {
        if resource.is_storage_version()
            && let Some(status) = object.get_mut("status")
        {
            defaults::null_unless_set(status, "currentMetrics", stored);
        }
    },
    prepare_create,
    defaults: |version, object| defaults::with_spec(object, |spec| fill_in(version, spec)),
    validate: validation::validate_autoscaler,
    validate_status: |value, _, errors| {
        let status = value.get("status").unwrap_or(&Value::Null);
        for field in ["currentReplicas", "desiredReplicas"] {
            non_negative(status, field, &FieldPath::new("status"), errors);
        }
    },
    cells: cells::show,
    ..Kind::new("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
};

/// Converts between fields and the annotations that represent fields.
fn round_trip_in_place(object: &mut Value) {
    *object = round_trip(std::mem::take(object));
}

fn normalize_autoscaler(resource: &Resource, object: &mut Value) {
    round_trip_in_place(object);
    if resource.is_storage_version()
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        spec.insert("metrics".to_owned(), json!([{
            "type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]));
    }
}

fn prepare_create(request: &Request<'_>, object: &mut Value) {
    // In the other version, annotations contain parts of the status.
    let mut stored = convert(std::mem::take(object), STORED);
    set_status(&mut stored, json!({"currentMetrics": null, "desiredReplicas": 0}));
    *object = convert(stored, &request.resource.api_version());
}

fn fill_in(version: &str, spec: &mut Map<String, Value>) {
    defaults::set(spec, "minReplicas", 1);
    // autoscaling/v1 has no field metrics, only targetCPUUtilizationPercentage. The conversion to v2 adds the default
    // metric.
    if version == "v2" && defaults::is_empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
        if let Some(up) = defaults::object_at(behavior, "scaleUp") {
            defaults::set(up, "stabilizationWindowSeconds", 0);
            defaults::set(up, "selectPolicy", "Max");
            let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
            defaults::set(up, "policies", policies);
        }
        if let Some(down) = defaults::object_at(behavior, "scaleDown") {
            defaults::set(down, "selectPolicy", "Max");
            defaults::set(
                down,
                "policies",
                json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
            );
        }
    }
}
