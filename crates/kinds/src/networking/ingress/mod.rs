//! The kind Ingress.

mod admission;
mod validation;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::{Generation, Kind};
use crate::table::cells;

/// Ingresses.
pub(super) static INGRESS: Kind = Kind {
    etcd_folder: Some("ingress"),
    generation: Generation::Counted,
    initial_status: Some(|| json!({"loadBalancer": {}})),
    validate: validation::ingress,
    validate_create: validation::ingress_create,
    validate_status: validation::validate_status,
    warnings,
    admission: admission::RULES,
    cells: show,
    ..Kind::named("networking.k8s.io", "Ingress", "ingresses")
};

fn warnings(ingress: &Value, live: Option<&Value>) -> Vec<String> {
    let text = |pointer: &str| ingress.pointer(pointer).and_then(Value::as_str);
    let named_twice = text("/spec/ingressClassName").is_some()
        || text("/metadata/annotations/kubernetes.io~1ingress.class").is_none();
    if live.is_some() || named_twice {
        return Vec::new();
    }
    let why = r#"annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead"#;
    vec![why.to_owned()]
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let rules = cells::list(object, "/spec/rules");
    let hosts: Vec<String> = rules
        .iter()
        .map(|rule| cells::text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        cells::shortened(&hosts, 3)
    };
    let ports = if cells::list(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    let class = object.pointer("/spec/ingressClassName").and_then(Value::as_str);
    vec![
        cells::name(object),
        class.unwrap_or(cells::NONE).into(),
        hosts.into(),
        cells::balancer(object).into(),
        ports.into(),
        cells::age(object, now),
    ]
}
