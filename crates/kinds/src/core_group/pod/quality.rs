//! The quality-of-service class of Pods.

use serde_json::Value;

use crate::schema::quantity::Quantity;

/// Returns the QoS class of a Pod. `Guaranteed`: each container's limits equal its requests. `BestEffort`: no container has requests.
/// `Burstable`: all other Pods. Resources of the Pod as a whole take precedence.
pub(super) fn quality_of_service(pod: &Value) -> &'static str {
    // An empty object counts too.
    let whole = pod
        .pointer("/spec")
        .filter(|spec| spec.get("resources").is_some_and(Value::is_object));
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let parts: Vec<&Value> = match whole {
        Some(whole) => vec![whole],
        None => list("/spec/containers").chain(list("/spec/initContainers")).collect(),
    };
    let amount = |part: &Value, side: &str, name: &str| {
        let text = part.pointer(&format!("/resources/{side}/{name}"))?.as_str()?;
        Quantity::parse(text).ok().filter(|amount| !amount.is_zero())
    };
    let mut anything = false;
    let mut guaranteed = true;
    for part in parts {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(part, "requests", name), amount(part, "limits", name));
            anything |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.or(limit) == limit;
        }
    }
    match (anything, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::quality_of_service;

    #[test]
    fn classes() {
        let of = |resources: serde_json::Value| {
            quality_of_service(&json!({"spec": {"containers": [{"resources": resources}]}}))
        };
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"requests": {"cpu": "0"}})), "BestEffort");
        assert_eq!(of(json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(of(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
        let less = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(of(less), "Burstable");
    }
}
