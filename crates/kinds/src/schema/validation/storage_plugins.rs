//! What drivers of volumes and the nodes they run on say of themselves: CSIDrivers, CSINodes, how much room there is, which
//! volume is attached where, and classes of attributes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::{label_selector, qualified_name};
use super::{empty, immutable, internal, items, named, names, non_negative, text};
use crate::schema::quantity::Quantity;
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

static NOTHING: Value = Value::Null;
/// How long the names of drivers and the identifiers that they give nodes may be.
const DRIVER_NAME: usize = 63;
const NODE_ID: usize = 256;
/// How much may be said about a volume that was attached, or that was not.
const ATTACHED: usize = 256 * 1024;
const FAILURE: usize = 1024;

/// Checks an object of one of these kinds.
pub(crate) fn object(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    match kind {
        "CSIDriver" => driver(spec, errors),
        "CSINode" => node(spec, errors),
        "CSIStorageCapacity" => capacity(value, errors),
        "VolumeAttachment" => {
            attachment(spec, errors);
            attachment_status(value, errors);
            if let Some(volume) = spec.pointer("/source/persistentVolumeName").and_then(Value::as_str) {
                named(
                    names::subdomain,
                    volume,
                    &FieldPath::new("spec.source.persistentVolumeName"),
                    errors,
                );
            }
        }
        "VolumeAttributesClass" => attributes(value, errors),
        _ => {}
    }
}

/// Checks what may not change. The real server looks at most of an attributes class only after this.
pub(crate) fn update(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    let root = FieldPath::default();
    match kind {
        "CSIDriver" => {
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
            immutable(spec, before, "volumeLifecycleModes", &at, errors);
        }
        "CSINode" => node_update(spec, before, errors),
        "CSIStorageCapacity" => {
            if value.get("nodeTopology") != old.get("nodeTopology") {
                let topology = value.get("nodeTopology").unwrap_or(&NOTHING);
                errors.push(FieldError::invalid(
                    "nodeTopology",
                    selector(topology),
                    "field is immutable",
                ));
            }
            immutable(value, old, "storageClassName", &root, errors);
        }
        "VolumeAttachment" if spec != before => {
            let source = spec.get("source").unwrap_or(&NOTHING);
            let part = |of: &Value, field: &str| of.get(field).cloned().unwrap_or_default();
            let shown = internal(&[
                ("PersistentVolumeName", &part(source, "persistentVolumeName")),
                ("InlineVolumeSpec", &part(source, "inlineVolumeSpec")),
            ]);
            let text = |field: &str| json!(text(spec, field)).to_string();
            let shown = format!(
                "{{\"Attacher\":{},\"Source\":{shown},\"NodeName\":{}}}",
                text("attacher"),
                text("nodeName")
            );
            errors.push(FieldError::invalid(
                "spec",
                Shown::Verbatim(shown),
                "field is immutable",
            ));
        }
        "VolumeAttributesClass" => {
            for field in ["driverName", "parameters"] {
                if value.get(field) != old.get(field) {
                    let why = format!("updates to {field} are forbidden.");
                    errors.push(FieldError::forbidden(field, why));
                }
            }
        }
        _ => {}
    }
}

/// A selector with its fields in the real server's order.
fn selector(selector: &Value) -> Shown {
    let fields = ["matchLabels", "matchExpressions"];
    let parts = fields.iter().filter_map(|field| Some((*field, selector.get(field)?)));
    let parts: Vec<(&str, &Value)> = parts.collect();
    if selector.is_null() {
        Shown::Json(Value::Null)
    } else {
        internal(&parts)
    }
}

fn too_long(at: &FieldPath, most: usize) -> FieldError {
    FieldError::new(
        FieldErrorKind::TooLong,
        at,
        "",
        format!("may not be more than {most} bytes"),
    )
}

fn driver_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    if name.len() > DRIVER_NAME {
        errors.push(too_long(at, DRIVER_NAME));
    }
    for why in names::subdomain(&name.to_lowercase()) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

fn driver(spec: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    super::one_of(spec, "fsGroupPolicy", &policies, false, &at, errors);
    let mut audiences = BTreeSet::new();
    for (request, at) in items(spec, "tokenRequests", &at) {
        let audience = text(request, "audience");
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
    for (mode, _) in items(spec, "volumeLifecycleModes", &at) {
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
        && empty(spec, "tokenRequests")
    {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid(at.child(field), set, why));
    }
}

fn node(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (driver, at) in items(spec, "drivers", &FieldPath::new("spec")) {
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        driver_name(name, &at.child("name"), errors);
        if id.is_empty() {
            errors.push(FieldError::required(at.child("nodeID"), ""));
        }
        if id.len() > NODE_ID {
            let why = format!("must be {NODE_ID} characters or less");
            errors.push(FieldError::invalid(at.child("nodeID"), id, why));
        }
        if let Some(allocatable) = driver.get("allocatable") {
            non_negative(allocatable, "count", &at.child("allocatable"), errors);
        }
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for (key, _) in items(driver, "topologyKeys", &at) {
            let key = key.as_str().unwrap_or_default();
            if key.is_empty() {
                errors.push(FieldError::required(&at, ""));
            }
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(&at, key));
            }
            named(qualified_name, key, &at, errors);
        }
    }
}

/// What a driver says of a node stays, but for how many volumes it takes.
fn node_update(spec: &Value, before: &Value, errors: &mut Vec<FieldError>) {
    let root = FieldPath::new("spec");
    let counted = |driver: &Value| {
        let mut driver = driver.clone();
        if let Some(map) = driver.as_object_mut() {
            map.remove("allocatable");
        }
        driver
    };
    for (was, _) in items(before, "drivers", &root) {
        for (is, _) in items(spec, "drivers", &root) {
            if text(is, "name") != text(was, "name") || counted(is) == counted(was) {
                continue;
            }
            let keys = is.get("topologyKeys").unwrap_or(&NOTHING);
            let shown = internal(&[
                ("Name", &json!(text(is, "name"))),
                ("NodeID", &json!(text(is, "nodeID"))),
                ("TopologyKeys", keys),
                ("Allocatable", &NOTHING),
            ]);
            errors.push(FieldError::invalid(root.child("drivers"), shown, "field is immutable"));
        }
    }
}

fn capacity(value: &Value, errors: &mut Vec<FieldError>) {
    if let Some(topology) = value.get("nodeTopology") {
        label_selector(topology, &FieldPath::new("nodeTopology"), errors);
    }
    let class = text(value, "storageClassName");
    named(names::subdomain, class, &FieldPath::new("storageClassName"), errors);
    let amount = text(value, "capacity");
    if Quantity::parse(amount).is_ok_and(|amount| amount.is_negative()) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("capacity", amount, why));
    }
}

fn attachment(spec: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec");
    driver_name(text(spec, "attacher"), &at.child("attacher"), errors);
    let source = spec.get("source").unwrap_or(&NOTHING);
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = source.get("inlineVolumeSpec").is_some_and(|inline| !inline.is_null());
    match (source.get("persistentVolumeName").and_then(Value::as_str), inline) {
        (None, false) => errors.push(FieldError::required(at.child("source"), one)),
        (Some(_), true) => errors.push(FieldError::forbidden(at.child("source"), one)),
        (Some(""), false) => {
            let why = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required(
                at.child("source").child("persistentVolumeName"),
                why,
            ));
        }
        _ => {}
    }
    named(names::subdomain, text(spec, "nodeName"), &at.child("nodeName"), errors);
}

/// Checks what is said of a volume that was attached.
pub(crate) fn attachment_status(value: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status");
    let status = value.get("status").unwrap_or(&NOTHING);
    let said = status.get("attachmentMetadata").and_then(Value::as_object);
    let size: usize = said
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ATTACHED {
        errors.push(too_long(&at.child("attachmentMetadata"), ATTACHED));
    }
    for field in ["attachError", "detachError"] {
        let Some(error) = status.get(field) else { continue };
        let at = at.child(field);
        if text(error, "message").len() > FAILURE {
            // The real server names the other limit here.
            errors.push(too_long(&at.child("message"), ATTACHED));
        }
        let code = error.get("errorCode").and_then(Value::as_i64);
        if let Some(code) = code.filter(|code| *code < 0) {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(at.child("errorCode"), code, why));
        }
    }
}

fn attributes(value: &Value, errors: &mut Vec<FieldError>) {
    let name = text(value, "driverName").to_lowercase();
    if name.is_empty() {
        errors.push(FieldError::required("driverName", ""));
    } else {
        named(qualified_name, &name, &FieldPath::new("driverName"), errors);
    }
    let parameters = value.get("parameters").and_then(Value::as_object);
    let count = parameters.map_or(0, serde_json::Map::len);
    if count > 512 {
        errors.push(too_long(&FieldPath::new("parameters"), 512));
        return;
    }
    if parameters.is_some_and(|parameters| parameters.contains_key("")) {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    let size: usize = parameters
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ATTACHED {
        errors.push(too_long(&FieldPath::new("parameters"), ATTACHED));
    }
    if count == 0 {
        let why = "must contain at least one key/value pair";
        errors.push(FieldError::required("parameters", why));
    }
}
