//! The priority of a Pod: it comes from the class and never changes.

use serde_json::{Value, json};

use super::{get_text, has_value, set};
use crate::kind::Admitted;
use crate::object::ObjectExt as _;
use crate::scheduling::{GROUP, PLURAL, find_default_class};

/// Gives a Pod the priority of its class. An existing Pod keeps its priority.
pub(super) fn mutate(admitted: &Admitted<'_>, pod: &mut Value) -> Result<(), String> {
    if !admitted.is_whole() || !pod.get("spec").is_some_and(Value::is_object) {
        return Ok(());
    }
    if let Some(old) = admitted.old {
        for key in ["priority", "preemptionPolicy"] {
            let kept = old.pointer(&format!("/spec/{key}")).cloned();
            if let Some(kept) = kept.filter(|_| !has_value(pod, &format!("/spec/{key}"))) {
                set(pod, key, kept);
            }
        }
        return Ok(());
    }
    let name = get_text(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() {
        find_default_class(admitted.request.objects)
    } else {
        let found = admitted.request.objects.get(GROUP, PLURAL, None, &name);
        let Some(found) = found else {
            return Err(format!("no PriorityClass with name {name} was found"));
        };
        Some((*found).clone())
    };
    let computed = class
        .as_ref()
        .and_then(|class| class.get("value").and_then(Value::as_i64))
        .unwrap_or_default();
    let policy = match &class {
        Some(class) => get_text(class, "/preemptionPolicy").to_owned(),
        None => "PreemptLowerPriority".to_owned(),
    };
    if let Some(class) = &class {
        set(pod, "priorityClassName", json!(class.name()));
    }
    if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && given != computed
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        ));
    }
    set(pod, "priority", json!(computed));
    if policy.is_empty() {
        return Ok(());
    }
    let given = get_text(pod, "/spec/preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    set(pod, "preemptionPolicy", json!(policy));
    Ok(())
}
