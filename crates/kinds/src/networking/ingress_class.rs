//! The kind IngressClass.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Generation, Kind};
use crate::schema::validation::names::{self, prefixed_path};
use crate::schema::validation::{get_text, one_of, validate_name};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, defaults};
use crate::table::cells;

/// IngressClasses.
pub(super) static INGRESS_CLASS: Kind = Kind {
    generation: Generation::Counted,
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            if let Some(Value::Object(parameters)) = spec.get_mut("parameters") {
                defaults::set(parameters, "scope", "Cluster");
            }
        });
    },
    validate,
    validate_update,
    cells: show,
    ..Kind::new("networking.k8s.io", "IngressClass", "ingressclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = object
        .pointer("/spec/parameters")
        .filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or(cells::NONE.to_owned(), |parameters| {
        let group = cells::get_text(parameters, "/apiGroup");
        let kind = cells::get_text(parameters, "/kind");
        let kind = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        format!("{kind}/{}", cells::get_text(parameters, "/name"))
    });
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/spec/controller").into(),
        parameters.into(),
        cells::format_age(object, now),
    ]
}

static NOTHING: Value = Value::Null;

const LONGEST_CONTROLLER: usize = 250;

/// Checks a class of Ingresses.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    let controller = get_text(spec, "controller");
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
        validate_name(
            names::find_subdomain_errors,
            get_text(parameters, "apiGroup"),
            &path.child("apiGroup"),
            errors,
        );
    }
    for field in ["kind", "name"] {
        let found = get_text(parameters, field);
        if found.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        } else {
            validate_name(
                |name| names::path_segment(name, false),
                found,
                &path.child(field),
                errors,
            );
        }
    }
    one_of(parameters, "scope", &["Cluster", "Namespace"], true, &path, errors);
    let namespace = parameters.get("namespace").map(|_| get_text(parameters, "namespace"));
    let path = path.child("namespace");
    match (get_text(parameters, "scope"), namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(FieldError::required(path, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(namespace)) => validate_name(names::find_label_errors, namespace, &path, errors),
        ("Cluster", Some(_)) => {
            errors.push(FieldError::forbidden(path, "`parameters.scope` is set to 'Cluster'"));
        }
        _ => {}
    }
}

/// Checks that the controller of a class stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
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
