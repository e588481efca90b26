//! Cells of services, endpoints and ingresses.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{NONE, age, labels, list, number, or, shortened, text};

fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

fn joined(object: &Value, pointer: &str) -> String {
    list(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

fn balancer(object: &Value) -> String {
    let addresses: BTreeSet<&str> = list(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|one| or(text(one, "/ip"), text(one, "/hostname")))
        .collect();
    addresses
        .into_iter()
        .filter(|address| !address.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let external = joined(object, "/spec/externalIPs");
    let external = match kind {
        "ClusterIP" | "NodePort" => or(&external, NONE).to_owned(),
        "LoadBalancer" => {
            let both: Vec<String> = [balancer(object), external]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            or(&both.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = list(object, "/spec/ports")
        .iter()
        .map(|port| match number(port, "/nodePort") {
            0 => format!("{}/{}", number(port, "/port"), text(port, "/protocol")),
            node => format!("{}:{node}/{}", number(port, "/port"), text(port, "/protocol")),
        })
        .collect();
    let internal = list(object, "/spec/clusterIPs").first().and_then(Value::as_str);
    vec![
        name(object),
        kind.into(),
        internal.unwrap_or(NONE).into(),
        external.into(),
        or(&ports.join(","), NONE).into(),
        age(object, now),
        labels(object, "/spec/selector").into(),
    ]
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut parts = Vec::new();
    for subset in list(object, "/subsets") {
        let ports = list(subset, "/ports");
        let addresses = list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        if ports.is_empty() {
            parts.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            parts.extend(addresses.clone().map(|ip| format!("{ip}:{}", number(port, "/port"))));
        }
    }
    vec![name(object), shortened(&parts, 3).into(), age(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let shown = |parts: Vec<String>| {
        if parts.is_empty() {
            "<unset>".to_owned()
        } else {
            shortened(&parts, 3)
        }
    };
    let ports = list(object, "/ports")
        .iter()
        .map(|port| match port.get("port").and_then(Value::as_i64) {
            Some(number) => number.to_string(),
            None => port.get("name").and_then(Value::as_str).unwrap_or("*").to_owned(),
        });
    let addresses = list(object, "/endpoints")
        .iter()
        .flat_map(|one| list(one, "/addresses"))
        .filter_map(Value::as_str);
    vec![
        name(object),
        text(object, "/addressType").into(),
        shown(ports.collect()).into(),
        shown(addresses.map(str::to_owned).collect()).into(),
        age(object, now),
    ]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let rules = list(object, "/spec/rules");
    let hosts: Vec<String> = rules
        .iter()
        .map(|rule| text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        shortened(&hosts, 3)
    };
    let ports = if list(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    let class = object.pointer("/spec/ingressClassName").and_then(Value::as_str);
    vec![
        name(object),
        class.unwrap_or(NONE).into(),
        hosts.into(),
        balancer(object).into(),
        ports.into(),
        age(object, now),
    ]
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = object
        .pointer("/spec/parameters")
        .filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or(NONE.to_owned(), |parameters| {
        let group = text(parameters, "/apiGroup");
        let kind = text(parameters, "/kind");
        let kind = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        format!("{kind}/{}", text(parameters, "/name"))
    });
    vec![
        name(object),
        text(object, "/spec/controller").into(),
        parameters.into(),
        age(object, now),
    ]
}

pub(super) fn ip_address(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = object.pointer("/spec/parentRef").filter(|parent| !parent.is_null());
    let parent = parent.map_or(NONE.to_owned(), |parent| {
        let parts = ["/group", "/resource", "/namespace", "/name"].map(|pointer| text(parent, pointer));
        let [group, resource, namespace, name] = parts;
        let resource = if group.is_empty() {
            resource.to_owned()
        } else {
            format!("{resource}.{group}")
        };
        if namespace.is_empty() {
            format!("{resource}/{name}")
        } else {
            format!("{resource}/{namespace}/{name}")
        }
    });
    // The real server has no column for the age, and sends it all the same.
    vec![name(object), parent.into(), age(object, now)]
}
