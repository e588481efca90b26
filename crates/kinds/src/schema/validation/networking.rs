//! Ingresses and network policies.

use std::net::IpAddr;

use serde_json::Value;

use super::metadata::label_selector;
use super::{addresses, empty, items, named, names, one_of, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

static NOTHING: Value = Value::Null;

const LONGEST_CONTROLLER: usize = 250;
/// The protocols of ports.
pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks a port, which may be named.
pub(crate) fn port_or_name(value: &Value, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    match value.get(field) {
        Some(Value::String(name)) => {
            for complaint in names::port_name(name) {
                errors.push(FieldError::invalid(at.child(field), name.as_str(), complaint));
            }
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            if let Some(complaint) = names::port_number(number) {
                errors.push(FieldError::invalid(at.child(field), number, complaint));
            }
        }
        None => {}
    }
}

/// Checks an ingress.
pub(crate) fn ingress(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if empty(spec, "rules") && spec.get("defaultBackend").is_none() {
        errors.push(FieldError::invalid(
            &path,
            Value::Null,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if let Some(backend) = spec.get("defaultBackend") {
        self::backend(backend, &path.child("defaultBackend"), errors);
    }
    for (rule, at) in items(spec, "rules", &path) {
        let host = text(rule, "host");
        if !host.is_empty() {
            if host.parse::<IpAddr>().is_ok() {
                errors.push(FieldError::invalid(
                    at.child("host"),
                    host,
                    "must be a DNS name, not an IP address",
                ));
            }
            self::host(host, &at.child("host"), errors);
        }
        let Some(http) = rule.get("http") else { continue };
        let at = at.child("http");
        if empty(http, "paths") {
            errors.push(FieldError::required(at.child("paths"), ""));
        }
        for (path, at) in items(http, "paths", &at) {
            ingress_path(path, &at, errors);
        }
    }
    for (tls, at) in items(spec, "tls", &path) {
        for (name, at) in items(tls, "hosts", &at) {
            self::host(name.as_str().unwrap_or_default(), &at, errors);
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            for complaint in names::subdomain(secret) {
                errors.push(FieldError::invalid(at.child("secretName"), secret, complaint));
            }
        }
    }
    let class = text(spec, "ingressClassName");
    if spec.get("ingressClassName").is_some() {
        for complaint in names::subdomain(class) {
            errors.push(FieldError::invalid(path.child("ingressClassName"), class, complaint));
        }
    }
}

fn host(host: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if host.contains('*') {
        if !host
            .strip_prefix("*.")
            .is_some_and(|rest| names::subdomain(rest).is_empty())
        {
            let detail = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            errors.push(FieldError::invalid(at, host, detail));
        }
    } else {
        for complaint in names::subdomain(host) {
            errors.push(FieldError::invalid(at, host, complaint));
        }
    }
}

fn ingress_path(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = text(value, "path");
    match value.get("pathType").and_then(Value::as_str) {
        None => {
            errors.push(FieldError::required(at.child("pathType"), "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                errors.push(FieldError::invalid(at.child("path"), path, "must be an absolute path"));
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(part) {
                    errors.push(FieldError::invalid(
                        at.child("path"),
                        path,
                        format!("must not contain '{part}'"),
                    ));
                }
            }
            for end in ["/..", "/."] {
                if path.ends_with(end) {
                    errors.push(FieldError::invalid(
                        at.child("path"),
                        path,
                        format!("cannot end with '{end}'"),
                    ));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !path.starts_with('/') {
                errors.push(FieldError::invalid(at.child("path"), path, "must be an absolute path"));
            }
        }
        Some(other) => {
            errors.push(FieldError::not_supported(
                at.child("pathType"),
                other,
                &["Exact", "ImplementationSpecific", "Prefix"],
            ));
        }
    }
    backend(value.get("backend").unwrap_or(&NOTHING), &at.child("backend"), errors);
}

fn backend(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let service = match (value.get("resource"), value.get("service")) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(
                at,
                "",
                "cannot set both resource and service backends",
            ));
            return;
        }
        (Some(resource), None) => {
            for field in ["kind", "name"] {
                if text(resource, field).is_empty() {
                    errors.push(FieldError::required(at.child("resource").child(field), ""));
                }
            }
            if let Some(group) = resource.get("apiGroup").and_then(Value::as_str) {
                named(names::subdomain, group, &at.child("resource").child("apiGroup"), errors);
            }
            return;
        }
        (None, None) => {
            errors.push(FieldError::invalid(at, "", "resource or service backend is required"));
            return;
        }
        (None, Some(service)) => service,
    };
    let inner = at.child("service");
    let name = text(service, "name");
    if name.is_empty() {
        errors.push(FieldError::required(inner.child("name"), ""));
    } else {
        for complaint in names::label(name) {
            errors.push(FieldError::invalid(inner.child("name"), name, complaint));
        }
    }
    let port = service.get("port").unwrap_or(&NOTHING);
    let number = port.get("number").and_then(Value::as_i64).unwrap_or(0);
    match (text(port, "name"), number) {
        ("", 0) => errors.push(FieldError::required(at, "port name or number is required")),
        ("", number) => {
            if let Some(complaint) = names::port_number(number) {
                errors.push(FieldError::invalid(
                    inner.child("port").child("number"),
                    number,
                    complaint,
                ));
            }
        }
        (name, 0) => {
            for complaint in names::port_name(name) {
                errors.push(FieldError::invalid(inner.child("port").child("name"), name, complaint));
            }
        }
        _ => errors.push(FieldError::invalid(at, "", "cannot set both port name & port number")),
    }
}

/// What is asked of new Ingresses only.
pub(crate) fn ingress_create(value: &Value, errors: &mut Vec<FieldError>) {
    let annotation = "kubernetes.io/ingress.class";
    let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    let class = value.pointer("/spec/ingressClassName").and_then(Value::as_str);
    let older = text(annotations, annotation);
    if class.is_some_and(|class| !older.is_empty() && class != older) {
        let why = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(
            FieldPath::new("annotations").child(annotation),
            older,
            why,
        ));
    }
}

/// Checks a class of Ingresses.
pub(crate) fn ingress_class(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    let controller = text(spec, "controller");
    let at = path.child("controller");
    if controller.len() > LONGEST_CONTROLLER {
        let detail = format!("may not be more than {LONGEST_CONTROLLER} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, &at, "", detail));
    }
    prefixed_path(controller, &at, errors);
    let Some(parameters) = spec.get("parameters") else {
        return;
    };
    let path = path.child("parameters");
    if parameters.get("apiGroup").is_some() {
        named(
            names::subdomain,
            text(parameters, "apiGroup"),
            &path.child("apiGroup"),
            errors,
        );
    }
    for field in ["kind", "name"] {
        let found = text(parameters, field);
        if found.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        } else {
            named(
                |name| names::path_segment(name, false),
                found,
                &path.child(field),
                errors,
            );
        }
    }
    one_of(parameters, "scope", &["Cluster", "Namespace"], true, &path, errors);
    let namespace = parameters.get("namespace").map(|_| text(parameters, "namespace"));
    let path = path.child("namespace");
    match (text(parameters, "scope"), namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(FieldError::required(path, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(namespace)) => named(names::label, namespace, &path, errors),
        ("Cluster", Some(_)) => {
            errors.push(FieldError::forbidden(path, "`parameters.scope` is set to 'Cluster'"));
        }
        _ => {}
    }
}

/// Checks the name of a controller: a domain, a slash, and more.
pub(crate) fn prefixed_path(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    match name.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            named(names::subdomain, domain, at, errors);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(allowed) {
                let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(at, path, why));
            }
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(at, name, why));
        }
    }
}

/// Whose class it is, is fixed.
pub(crate) fn ingress_class_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let controller = |object: &Value| {
        object
            .pointer("/spec/controller")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if controller(value) != controller(old) {
        let detail = "field is immutable";
        errors.push(FieldError::invalid("spec.controller", controller(value), detail));
    }
}

/// Checks a network policy.
pub(crate) fn network_policy(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if let Some(selector) = spec.get("podSelector") {
        label_selector(selector, &path.child("podSelector"), errors);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (rule, at) in items(spec, direction, &path) {
            for (port, at) in items(rule, "ports", &at) {
                one_of(port, "protocol", &["TCP", "UDP", "SCTP"], false, &at, errors);
                port_or_name(port, "port", &at, errors);
                end_port(port, &at, errors);
            }
            for (peer, at) in items(rule, peers, &at) {
                self::peer(peer, &at, errors);
            }
        }
    }
    let kinds = spec.get("policyTypes").and_then(Value::as_array);
    if let Some(kinds) = kinds.filter(|kinds| kinds.len() > 2) {
        let why = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(path.child("policyTypes"), kinds.clone(), why));
        return;
    }
    for (kind, at) in items(spec, "policyTypes", &path) {
        let kind = kind.as_str().unwrap_or_default();
        if !matches!(kind, "Ingress" | "Egress") {
            errors.push(FieldError::not_supported(at, kind, &["Ingress", "Egress"]));
        }
    }
}

fn peer(peer: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
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
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        errors.push(FieldError::required(at.child("cidr"), ""));
        return;
    }
    let Some(range) = addresses::range(cidr, &at.child("cidr"), errors) else {
        return;
    };
    for (except, at) in items(block, "except", at) {
        let except = except.as_str().unwrap_or_default();
        let inner = addresses::range(except, &at, errors);
        if inner.is_some_and(|inner| !range.strictly_contains(inner)) {
            errors.push(FieldError::invalid(at, except, "must be a strict subset of `cidr`"));
        }
    }
}

/// The last port of a range needs a first one, which has a number.
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
