//! The fields that a RuntimeClass adds to its Pods: the overhead of the runtime, and the nodes that have it.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_checkpoint::checkpoint;

use crate::kind::Admitted;

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const UNFOUNDED: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// Returns the class that a pod names.
fn find_class(admitted: &Admitted<'_>, pod: &Value) -> Result<Option<Arc<Value>>, String> {
    let Some(name) = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) else {
        return Ok(None);
    };
    let found = admitted
        .request
        .objects
        .get("node.k8s.io", "runtimeclasses", None, name);
    match found {
        Some(class) => Ok(Some(class)),
        None => Err(format!("pod rejected: RuntimeClass {name:?} not found")),
    }
}

/// Adds the fields of the RuntimeClass to a new Pod.
pub(super) fn mutate(admitted: &Admitted<'_>, pod: &mut Value) -> Result<(), String> {
    if !admitted.is_creation() {
        return Ok(());
    }
    let Some(class) = find_class(admitted, pod)? else {
        return Ok(());
    };
    if let Some(overhead) = class.get("overhead") {
        let fixed = overhead.get("podFixed");
        let own = pod.pointer("/spec/overhead").and_then(Value::as_object);
        if own.is_some_and(|own| !own.is_empty() && Some(own) != fixed.and_then(Value::as_object)) {
            return Err(MISMATCH.to_owned());
        }
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            match fixed {
                Some(fixed) => spec.insert("overhead".to_owned(), fixed.clone()),
                None => spec.remove("overhead"),
            };
        }
    }
    let Some(scheduling) = class.get("scheduling") else {
        return Ok(());
    };
    for (key, value) in scheduling
        .get("nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let own = pod.pointer("/spec/nodeSelector").and_then(|selector| selector.get(key));
        if let Some(own) = own.filter(|own| *own != value) {
            let shown = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                shown(value),
                shown(own)
            ));
        }
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(selector) = spec.entry("nodeSelector").or_insert_with(|| json!({})).as_object_mut()
        {
            selector.insert(key.clone(), value.clone());
        }
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = list(pod.pointer("/spec/tolerations"));
    all.extend(list(scheduling.get("tolerations")));
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && !all.is_empty()
    {
        spec.insert("tolerations".to_owned(), Value::Array(merge_tolerations(&all)));
    }
    Ok(())
}

/// Refuses a new Pod whose overhead differs from that of its class.
pub(super) fn validate(admitted: &Admitted<'_>, pod: &Value) -> Result<(), String> {
    if !admitted.is_creation() {
        return Ok(());
    }
    let class = find_class(admitted, pod)?;
    let own = pod.pointer("/spec/overhead");
    match class.as_ref().and_then(|class| class.get("overhead")) {
        Some(overhead) if overhead.get("podFixed") != own => Err(MISMATCH.to_owned()),
        None if own.is_some() => Err(UNFOUNDED.to_owned()),
        _ => Ok(()),
    }
}

/// Merges tolerations: drops each one that another toleration covers. Of equal tolerations, the first stays.
fn merge_tolerations(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        checkpoint();
        let is_covered = merged.iter().any(|other| covers_toleration(other, one));
        let mut later = all.iter().skip(index + 1);
        if !is_covered && !later.any(|other| other != one && covers_toleration(other, one)) {
            merged.push(one.clone());
        }
    }
    merged
}

/// Checks whether each taint that `narrow` tolerates is also tolerated by `wide`.
fn covers_toleration(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    fn get_text<'a>(value: &'a Value, field: &str) -> &'a str {
        value.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    let same = |field: &str| get_text(wide, field) == get_text(narrow, field);
    let everything = get_text(wide, "key").is_empty() && get_text(wide, "operator") == "Exists";
    if (!same("key") && !everything) || (!same("effect") && !get_text(wide, "effect").is_empty()) {
        return false;
    }
    let seconds = |value: &Value| value.get("tolerationSeconds").and_then(Value::as_i64);
    if get_text(wide, "effect") == "NoExecute"
        && let Some(most) = seconds(wide)
        && seconds(narrow).is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match get_text(wide, "operator") {
        "Equal" | "" => get_text(narrow, "operator") == "Equal" && same("value"),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_tolerations_are_left_out() {
        let narrow = json!({"key": "a", "operator": "Equal", "value": "v", "effect": "NoSchedule"});
        let wide = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let longer = json!({"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 6});
        let merge = |all: [&Value; 2]| merge_tolerations(&all.map(Value::clone));
        assert_eq!(merge([&narrow, &wide]), vec![wide.clone()]);
        assert_eq!(merge([&wide, &narrow]), vec![wide.clone()]);
        assert_eq!(merge([&other, &longer]), vec![longer]);
        assert_eq!(merge([&wide, &wide]), vec![wide]);
    }
}
