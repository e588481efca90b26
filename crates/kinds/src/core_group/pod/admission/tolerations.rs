//! The time that a Pod stays on a node that is not ready or not reachable.

use serde_json::{Value, json};

use super::get_text;
use crate::kind::Admitted;
use crate::schema::resources::list;

/// Lets a Pod without its own tolerations stay for five minutes on a node that is not ready or not reachable.
pub(super) fn mutate(admitted: &Admitted<'_>, pod: &mut Value) -> Result<(), String> {
    if !admitted.is_whole() {
        return Ok(());
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(pod, "/spec/tolerations").iter().any(|toleration| {
            let (own, effect) = (get_text(toleration, "/key"), get_text(toleration, "/effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if tolerated {
            continue;
        }
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if !tolerations.is_array() {
            *tolerations = json!([]);
        }
        if let Some(tolerations) = tolerations.as_array_mut() {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    Ok(())
}
