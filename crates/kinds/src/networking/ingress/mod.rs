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
    validate: validation::validate_ingress,
    validate_create: validation::ingress_create,
    validate_status: validation::validate_status,
    warnings: list_warnings,
    admission: admission::RULES,
    cells: show,
    ..Kind::new("networking.k8s.io", "Ingress", "ingresses")
};

fn list_warnings(ingress: &Value, live: Option<&Value>) -> Vec<String> {
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
    let rules = cells::list_items(object, "/spec/rules");
    let hosts: Vec<String> = rules
        .iter()
        .map(|rule| cells::get_text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        cells::join_first(&hosts, 3)
    };
    let ports = if cells::list_items(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    let class = object.pointer("/spec/ingressClassName").and_then(Value::as_str);
    vec![
        cells::name_cell(object),
        class.unwrap_or(cells::NONE).into(),
        hosts.into(),
        cells::format_load_balancer(object).into(),
        ports.into(),
        cells::format_age(object, now),
    ]
}
