//! The defaults of a Service beyond those of its structs.

use serde_json::{Map, Value, json};

use crate::schema::defaults;

pub(super) fn fill_in(spec: &mut Map<String, Value>) {
    defaults::set(spec, "sessionAffinity", "None");
    if defaults::get_text(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    } else if defaults::get_text(spec, "sessionAffinity") == "ClientIP"
        && spec
            .get("sessionAffinityConfig")
            .and_then(|config| config.pointer("/clientIP/timeoutSeconds"))
            .is_none()
    {
        spec.insert(
            "sessionAffinityConfig".into(),
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        );
    }
    defaults::set(spec, "type", "ClusterIP");
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Value::Object(port) = port else { continue };
        defaults::set(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if unset {
            let number = port.get("port").cloned().unwrap_or(Value::from(0));
            port.insert("targetPort".into(), number);
        }
    }
    let kind = defaults::get_text(spec, "type").to_owned();
    let external_ips = !defaults::is_empty(spec, "externalIPs") && kind == "ClusterIP";
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || external_ips {
        defaults::set(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        defaults::set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        defaults::set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// Sets the default mode of a load balancer's addresses: an address belongs to the load balancer itself.
pub(super) fn balancer_modes(service: &mut Map<String, Value>) {
    let balanced = service.get("spec").and_then(|spec| spec.get("type")) == Some(&Value::from("LoadBalancer"));
    let entries = service
        .get_mut("status")
        .and_then(|status| status.pointer_mut("/loadBalancer/ingress")?.as_array_mut());
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        if balanced && !defaults::get_text(entry, "ip").is_empty() {
            defaults::set(entry, "ipMode", "VIP");
        }
    }
}
