//! Cells of volumes, claims and storage classes.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{age, list, or, text};

fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let given: Vec<&str> = list(object, pointer).iter().filter_map(Value::as_str).collect();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = short
        .iter()
        .filter(|(mode, _)| given.contains(mode))
        .map(|(_, short)| *short)
        .collect();
    shown.join(",")
}

fn class_of(object: &Value) -> String {
    const ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    or(text(object, ANNOTATION), text(object, "/spec/storageClassName")).to_owned()
}

fn unset(object: &Value, pointer: &str) -> Value {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("<unset>")
        .into()
}

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = !text(object, "/metadata/deletionTimestamp").is_empty();
    let volume = text(object, "/spec/volumeName");
    let bound = !volume.is_empty();
    vec![
        name(object),
        if deleted {
            "Terminating"
        } else {
            text(object, "/status/phase")
        }
        .into(),
        volume.into(),
        if bound {
            or(text(object, "/status/capacity/storage"), "0")
        } else {
            ""
        }
        .into(),
        if bound {
            access_modes(object, "/status/accessModes")
        } else {
            String::new()
        }
        .into(),
        class_of(object).into(),
        unset(object, "/spec/volumeAttributesClassName"),
        age(object, now),
        unset(object, "/spec/volumeMode"),
    ]
}

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = !text(object, "/metadata/deletionTimestamp").is_empty();
    let claim = object.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    let claim = claim.map_or(String::new(), |claim| {
        format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
    });
    vec![
        name(object),
        text(object, "/spec/capacity/storage").into(),
        access_modes(object, "/spec/accessModes").into(),
        text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        if deleted {
            "Terminating"
        } else {
            text(object, "/status/phase")
        }
        .into(),
        claim.into(),
        class_of(object).into(),
        unset(object, "/spec/volumeAttributesClassName"),
        text(object, "/status/reason").into(),
        age(object, now),
        unset(object, "/spec/volumeMode"),
    ]
}

pub(super) fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
        .iter()
        .any(|prefix| text(object, &format!("/metadata/annotations/{prefix}~1is-default-class")) == "true");
    let mut shown = text(object, "/metadata/name").to_owned();
    if default {
        shown.push_str(" (default)");
    }
    vec![
        shown.into(),
        text(object, "/provisioner").into(),
        or(text(object, "/reclaimPolicy"), "Delete").into(),
        or(text(object, "/volumeBindingMode"), "Immediate").into(),
        (object.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
        age(object, now),
    ]
}

pub(super) fn driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let flag = |field: &str, absent: bool| {
        let found = object.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        Value::from(found.unwrap_or(absent))
    };
    let modes: Vec<&str> = list(object, "/spec/volumeLifecycleModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let audiences: Vec<&str> = list(object, "/spec/tokenRequests")
        .iter()
        .map(|one| text(one, "/audience"))
        .collect();
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        or(&audiences.join(","), "<unset>").into(),
        flag("requiresRepublish", false),
        or(&modes.join(","), "<none>").into(),
        age(object, now),
    ]
}

pub(super) fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    let attached = object.pointer("/status/attached") == Some(&Value::Bool(true));
    vec![
        name(object),
        text(object, "/spec/attacher").into(),
        text(object, "/spec/source/persistentVolumeName").into(),
        text(object, "/spec/nodeName").into(),
        attached.into(),
        age(object, now),
    ]
}
