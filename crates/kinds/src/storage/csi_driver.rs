//! The kind CSIDriver.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kind::{Generation, Kind};
use crate::schema::validation::{get_text, is_empty_field, list_items, one_of, validate_immutable};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// CSIDrivers.
pub(super) static CSI_DRIVER: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    generation: Generation::Late,
    defaults: |_, object| defaults::with_spec(object, fill_in),
    validate,
    validate_update,
    warnings: list_warnings,
    cells: show,
    ..Kind::new("storage.k8s.io", "CSIDriver", "csidrivers")
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
    let modes: Vec<&str> = cells::list_items(object, "/spec/volumeLifecycleModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let audiences: Vec<&str> = cells::list_items(object, "/spec/tokenRequests")
        .iter()
        .map(|one| cells::get_text(one, "/audience"))
        .collect();
    vec![
        cells::name_cell(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        cells::non_empty_or(&audiences.join(","), "<unset>").into(),
        flag("requiresRepublish", false),
        cells::non_empty_or(&modes.join(","), "<none>").into(),
        cells::format_age(object, now),
    ]
}

static NOTHING: Value = Value::Null;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    validate_driver(value.get("spec").unwrap_or(&NOTHING), errors);
}

fn validate_driver(spec: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(spec, "fsGroupPolicy", &policies, false, &at, errors);
    let mut audiences = BTreeSet::new();
    for (request, at) in list_items(spec, "tokenRequests", &at) {
        let audience = get_text(request, "audience");
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(at.child("audience"), audience));
            continue;
        }
        let at = at.child("expirationSeconds");
        match request.get("expirationSeconds").and_then(Value::as_i64) {
            Some(seconds) if seconds < 600 => {
                let why = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(at, seconds, why));
            }
            Some(seconds) if seconds > 1 << 32 => {
                let why = "may not specify a duration larger than 2^32 seconds";
                errors.push(FieldError::invalid(at, seconds, why));
            }
            _ => {}
        }
    }
    for (mode, _) in list_items(spec, "volumeLifecycleModes", &at) {
        let modes = ["Persistent", "Ephemeral"];
        let mode = mode.as_str().unwrap_or_default();
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported(
                at.child("volumeLifecycleModes"),
                mode,
                &modes,
            ));
        }
    }
    let field = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.get(field).and_then(Value::as_i64).filter(|seconds| *seconds < 10) {
        let why = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid(at.child(field), seconds, why));
    }
    let field = "serviceAccountTokenInSecrets";
    if let Some(set) = spec.get(field).and_then(Value::as_bool)
        && is_empty_field(spec, "tokenRequests")
    {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid(at.child(field), set, why));
    }
}

fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    let at = FieldPath::new("spec");
    let field = "attachRequired";
    if spec.get(field) != before.get(field) {
        // The real server's own name for it.
        let shown = spec.get(field).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            at.child("attachedRequired"),
            shown,
            "field is immutable",
        ));
    }
    validate_immutable(spec, before, "volumeLifecycleModes", &at, errors);
}

/// Returns the warnings about a driver that gets tokens outside of Secrets.
fn list_warnings(driver: &Value, live: Option<&Value>) -> Vec<String> {
    let requests = |driver: &Value| driver.pointer("/spec/tokenRequests").cloned();
    let asked = requests(driver);
    let some = asked
        .as_ref()
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty());
    let unsaid = driver.pointer("/spec/serviceAccountTokenInSecrets").is_none();
    if !some || !unsaid || live.is_some_and(|live| requests(live) == asked) {
        return Vec::new();
    }
    vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()]
}
