//! Validation of Ingresses and of their status.

use std::net::IpAddr;

use serde_json::Value;

use crate::schema::validation::balancers::{known_addresses, reached_at};
use crate::schema::validation::{get_text, is_empty_field, list_items, names, validate_name};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks an ingress.
pub(super) fn validate_ingress(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if is_empty_field(spec, "rules") && spec.get("defaultBackend").is_none() {
        errors.push(FieldError::invalid(
            &path,
            Value::Null,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if let Some(backend) = spec.get("defaultBackend") {
        self::validate_backend(backend, &path.child("defaultBackend"), errors);
    }
    for (rule, at) in list_items(spec, "rules", &path) {
        let host = get_text(rule, "host");
        if !host.is_empty() {
            if host.parse::<IpAddr>().is_ok() {
                errors.push(FieldError::invalid(
                    at.child("host"),
                    host,
                    "must be a DNS name, not an IP address",
                ));
            }
            self::validate_host(host, &at.child("host"), errors);
        }
        let Some(http) = rule.get("http") else { continue };
        let at = at.child("http");
        if is_empty_field(http, "paths") {
            errors.push(FieldError::required(at.child("paths"), ""));
        }
        for (path, at) in list_items(http, "paths", &at) {
            ingress_path(path, &at, errors);
        }
    }
    for (tls, at) in list_items(spec, "tls", &path) {
        for (name, at) in list_items(tls, "hosts", &at) {
            self::validate_host(name.as_str().unwrap_or_default(), &at, errors);
        }
        let secret = get_text(tls, "secretName");
        if !secret.is_empty() {
            for complaint in names::find_subdomain_errors(secret) {
                errors.push(FieldError::invalid(at.child("secretName"), secret, complaint));
            }
        }
    }
    let class = get_text(spec, "ingressClassName");
    if spec.get("ingressClassName").is_some() {
        for complaint in names::find_subdomain_errors(class) {
            errors.push(FieldError::invalid(path.child("ingressClassName"), class, complaint));
        }
    }
}

/// Checks rules that apply only to new Ingresses.
pub(super) fn ingress_create(value: &Value, errors: &mut Vec<FieldError>) {
    let annotation = "kubernetes.io/ingress.class";
    let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    let class = value.pointer("/spec/ingressClassName").and_then(Value::as_str);
    let older = get_text(annotations, annotation);
    if class.is_some_and(|class| !older.is_empty() && class != older) {
        let why = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(
            FieldPath::new("annotations").child(annotation),
            older,
            why,
        ));
    }
}

fn validate_host(host: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if host.contains('*') {
        if !host
            .strip_prefix("*.")
            .is_some_and(|rest| names::find_subdomain_errors(rest).is_empty())
        {
            let detail = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            errors.push(FieldError::invalid(at, host, detail));
        }
    } else {
        for complaint in names::find_subdomain_errors(host) {
            errors.push(FieldError::invalid(at, host, complaint));
        }
    }
}

fn ingress_path(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = get_text(value, "path");
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
    validate_backend(value.get("backend").unwrap_or(&NOTHING), &at.child("backend"), errors);
}

fn validate_backend(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
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
                if get_text(resource, field).is_empty() {
                    errors.push(FieldError::required(at.child("resource").child(field), ""));
                }
            }
            if let Some(group) = resource.get("apiGroup").and_then(Value::as_str) {
                validate_name(
                    names::find_subdomain_errors,
                    group,
                    &at.child("resource").child("apiGroup"),
                    errors,
                );
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
    let name = get_text(service, "name");
    if name.is_empty() {
        errors.push(FieldError::required(inner.child("name"), ""));
    } else {
        for complaint in names::find_label_errors(name) {
            errors.push(FieldError::invalid(inner.child("name"), name, complaint));
        }
    }
    let port = service.get("port").unwrap_or(&NOTHING);
    let number = port.get("number").and_then(Value::as_i64).unwrap_or(0);
    match (get_text(port, "name"), number) {
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

/// Checks the load balancer status of an Ingress.
pub(super) fn validate_status(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, before) = (
        value.get("status").unwrap_or(&NOTHING),
        old.get("status").unwrap_or(&NOTHING),
    );
    let path = FieldPath::new("status").child("loadBalancer");
    let known = known_addresses(before);
    let entries = status.get("loadBalancer").unwrap_or(&NOTHING);
    for (entry, at) in list_items(entries, "ingress", &path) {
        reached_at(entry, &known, &at, errors);
    }
}
