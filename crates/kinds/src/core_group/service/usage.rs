//! The amounts of a Service that quotas count.

use serde_json::Value;

use crate::kind::Usage;
use crate::schema::quantity::Quantity;
use crate::schema::resources::{Resources, list};

/// The rules of quotas for Services.
pub(super) const USAGE: Usage = Usage {
    is_charged: |subresource| subresource.is_none(),
    is_charged_anew: |_, _, _| true,
    counts: |name| matches!(name, "services.nodeports" | "services.loadbalancers"),
    add: add_usage,
    check: |_, _| Ok(()),
    is_in_scope: |_, _, _| false,
};

fn add_usage(object: &Value, used: &mut Resources) {
    used.set("services", Quantity::whole(1));
    let ports = list(object, "/spec/ports");
    let (mut node_ports, mut balancers) = (0, 0);
    match object.pointer("/spec/type").and_then(Value::as_str) {
        Some("NodePort") => node_ports = ports.len(),
        Some("LoadBalancer") => {
            balancers = 1;
            let allocates = object
                .pointer("/spec/allocateLoadBalancerNodePorts")
                .and_then(Value::as_bool);
            let given = ports
                .iter()
                .filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0);
            node_ports = if allocates == Some(false) {
                given.count()
            } else {
                ports.len()
            };
        }
        _ => {}
    }
    used.set("services.nodeports", Quantity::whole(node_ports));
    used.set("services.loadbalancers", Quantity::whole(balancers));
}
