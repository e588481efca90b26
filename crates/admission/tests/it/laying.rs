//! The changes that a case makes to an existing object, and the rights of its actors.

use serde_json::{Value, json};

/// Merges one value into another: field by field, and lists of equal length entry by entry.
pub(crate) fn merge(onto: &mut Value, over: &Value) {
    match (onto, over) {
        (Value::Object(onto), Value::Object(over)) => {
            for (key, value) in over {
                merge(onto.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(onto), Value::Array(over)) if onto.len() == over.len() => {
            onto.iter_mut().zip(over).for_each(|(onto, over)| merge(onto, over));
        }
        (onto, over) => *onto = over.clone(),
    }
}

/// Returns the stored object with the changes of a case: label, ownerReferences, finalizers,
/// annotations.
pub(crate) fn lay_over(mut stored: Value, wanted: &Value) -> Value {
    let metadata = stored["metadata"].as_object_mut().unwrap();
    let labels = metadata.get_mut("labels").and_then(Value::as_object_mut).unwrap();
    labels.remove("capsule.clastix.io/tenant");
    if let Some(label) = wanted.pointer("/metadata/labels/capsule.clastix.io~1tenant") {
        labels.insert("capsule.clastix.io/tenant".to_owned(), label.clone());
    }
    let added = wanted.pointer("/metadata/labels").and_then(Value::as_object);
    labels.extend(added.cloned().unwrap_or_default());
    metadata.remove("ownerReferences");
    if let Some(owners) = wanted["metadata"].get("ownerReferences") {
        metadata.insert("ownerReferences".to_owned(), owners.clone());
    }
    if let Some(finalizers) = wanted["metadata"].get("finalizers") {
        metadata.insert("finalizers".to_owned(), finalizers.clone());
    }
    if let Some(added) = wanted["metadata"].get("annotations").and_then(Value::as_object) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations.as_object_mut().unwrap().extend(added.clone());
    }
    stored
}

/// Writes into a Tenant's spec the marks that it sets on its namespaces.
pub(crate) fn write_marks(spec: &mut Value, marks: &Value) {
    let part = |key: &str| marks.get(key).cloned().unwrap_or_else(|| json!({}));
    if *marks == json!({}) {
        return;
    }
    // The values of the list alone have placeholders.
    let all = json!({ "labels": part("labels"), "annotations": part("annotations") });
    let chosen = marks["chosenLabels"].as_array().into_iter().flatten();
    let chosen = chosen.map(|key| {
        let selector = json!({ "matchLabels": { "example.org/chosen": "yes" } });
        json!({ "namespaceSelector": selector, "labels": { key.as_str().unwrap(): "x" } })
    });
    spec["namespaceOptions"]["additionalMetadataList"] = std::iter::once(all).chain(chosen).collect();
}
