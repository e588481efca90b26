//! The kind NetworkPolicy.

use serde_json::{Value, json};

use crate::kind::{Generation, Kind};
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::ports::port_or_name;
use crate::schema::validation::{addresses, get_text, list_items, names, one_of};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// NetworkPolicies.
pub(super) static NETWORK_POLICY: Kind = Kind {
    generation: Generation::Counted,
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            if defaults::is_empty(spec, "policyTypes") {
                let types = match defaults::is_empty(spec, "egress") {
                    true => json!(["Ingress"]),
                    false => json!(["Ingress", "Egress"]),
                };
                spec.insert("policyTypes".into(), types);
            }
        });
    },
    validate,
    cells: |object, now| {
        let selected = cells::format_selector(object, "/spec/podSelector");
        vec![
            cells::name_cell(object),
            selected.into(),
            cells::format_age(object, now),
        ]
    },
    ..Kind::new("networking.k8s.io", "NetworkPolicy", "networkpolicies")
};

static NOTHING: Value = Value::Null;

/// Checks a network policy.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if let Some(selector) = spec.get("podSelector") {
        label_selector(selector, &path.child("podSelector"), errors);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (rule, at) in list_items(spec, direction, &path) {
            for (port, at) in list_items(rule, "ports", &at) {
                one_of(port, "protocol", &["TCP", "UDP", "SCTP"], false, &at, errors);
                port_or_name(port, "port", &at, errors);
                end_port(port, &at, errors);
            }
            for (peer, at) in list_items(rule, peers, &at) {
                self::validate_peer(peer, &at, errors);
            }
        }
    }
    let kinds = spec.get("policyTypes").and_then(Value::as_array);
    if let Some(kinds) = kinds.filter(|kinds| kinds.len() > 2) {
        let why = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(path.child("policyTypes"), kinds.clone(), why));
        return;
    }
    for (kind, at) in list_items(spec, "policyTypes", &path) {
        let kind = kind.as_str().unwrap_or_default();
        if !matches!(kind, "Ingress" | "Egress") {
            errors.push(FieldError::not_supported(at, kind, &["Ingress", "Egress"]));
        }
    }
}

fn validate_peer(peer: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut selectors = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.get(field) {
            selectors += 1;
            label_selector(selector, &at.child(field), errors);
        }
    }
    let block = peer.get("ipBlock");
    if block.is_some() && selectors > 0 {
        errors.push(FieldError::forbidden(
            at,
            "may not specify both ipBlock and another peer",
        ));
    } else if block.is_none() && selectors == 0 {
        errors.push(FieldError::required(at, "must specify a peer"));
    }
    if let Some(block) = block {
        ip_block(block, &at.child("ipBlock"), errors);
    }
}

fn ip_block(block: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let cidr = get_text(block, "cidr");
    if cidr.is_empty() {
        errors.push(FieldError::required(at.child("cidr"), ""));
        return;
    }
    let Some(range) = addresses::parse_range(cidr, &at.child("cidr"), errors) else {
        return;
    };
    for (except, at) in list_items(block, "except", at) {
        let except = except.as_str().unwrap_or_default();
        let inner = addresses::parse_range(except, &at, errors);
        if inner.is_some_and(|inner| !range.strictly_contains(inner)) {
            errors.push(FieldError::invalid(at, except, "must be a strict subset of `cidr`"));
        }
    }
}

/// Checks the last port of a range, which needs a first port with a number.
fn end_port(port: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(last) = port.get("endPort").and_then(Value::as_i64) else {
        return;
    };
    let at = at.child("endPort");
    match port.get("port") {
        None => {
            let why = "may not be specified when `port` is not specified";
            errors.push(FieldError::invalid(at, last, why));
        }
        Some(Value::String(_)) => {
            let why = "may not be specified when `port` is non-numeric";
            errors.push(FieldError::invalid(at, last, why));
        }
        Some(first) => {
            if first.as_i64().is_some_and(|first| last < first) {
                let why = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&at, first.clone(), why));
            }
            if let Some(complaint) = names::port_number(last) {
                errors.push(FieldError::invalid(at, last, complaint));
            }
        }
    }
}
