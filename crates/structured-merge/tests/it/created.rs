//! The fields that the creator of an object of each built-in kind owns. The recorded server compares Go structs, in which some fields
//! always exist. The schemas have to describe these fields.

use std::sync::Arc;

use serde_json::Value;
use structured_merge::{FieldManager, ResetFields, Schema, Typing};

use crate::corpus::kind_file;
use crate::managers::time_of_step;

/// Returns the fields that the server sets itself, after the owners are computed.
fn given_later(kind: &str) -> &'static [&'static str] {
    match kind {
        "Namespace" => &["/spec/finalizers"],
        "PersistentVolume" | "PersistentVolumeClaim" => &["/metadata/finalizers"],
        "Job" => &[
            "/spec/selector",
            "/spec/template/metadata/labels/controller-uid",
            "/spec/template/metadata/labels/job-name",
            "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
            "/spec/template/metadata/labels/batch.kubernetes.io~1job-name",
        ],
        _ => &[],
    }
}

#[test]
fn creators_own_what_the_real_server_says() {
    let schema = Arc::new(Schema::from_openapi(kind_file("builtin.json").as_object().unwrap()).unwrap());
    let created = kind_file("created.json");
    let mut failures = Vec::new();
    for case in created.as_array().unwrap() {
        let stored = &case["object"];
        let (api_version, kind) = (stored["apiVersion"].as_str().unwrap(), stored["kind"].as_str().unwrap());
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let manager = FieldManager::new(Typing::of_kind(&schema, api_version, kind).unwrap(), api_version, kind)
            .with_reset_fields(ResetFields::of_builtin(group, kind, None));
        let mut new = stored.clone();
        new["metadata"].as_object_mut().unwrap().remove("managedFields");
        for pointer in given_later(kind) {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let name = &name.replace("~1", "/");
            new.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        }
        let ours = manager.try_update(None, new, "one", time_of_step(0)).unwrap();
        let fields = |object: &Value| object["metadata"]["managedFields"][0]["fieldsV1"].clone();
        let (ours, theirs) = (fields(&ours), fields(stored));
        if ours != theirs {
            failures.push(format!("{api_version} {kind}\n  ours   {ours}\n  theirs {theirs}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} kinds differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
