//! Webhook configurations, and the matching of requests that admission policies share with them.

use std::collections::BTreeSet;

use kubernetes_cel::Type;
use serde_json::Value;

use crate::expressions::{Compiler, Problem, Scope};
use crate::schema::validation::metadata::{label_selector, qualified_name};
use crate::schema::validation::{get_text, is_empty_field, list_items, names, one_of, webhook_service, webhook_url};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The maximum number of match conditions.
const CONDITIONS: usize = 64;

/// Checks a ValidatingWebhookConfiguration or MutatingWebhookConfiguration. Match conditions are checked only if one of them differs from the stored object.
pub(crate) fn validate(
    of_kind: fn(&Value, &FieldPath, &mut Vec<FieldError>),
    value: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let mut seen = BTreeSet::new();
    let conditions = |value: &Value| -> Vec<Option<Value>> {
        let hooks = value.get("webhooks").and_then(Value::as_array);
        let hooks = hooks.into_iter().flatten();
        hooks.map(|hook| hook.get("matchConditions").cloned()).collect()
    };
    let unchanged = old.is_some_and(|old| conditions(old) == conditions(value));
    for (hook, path) in list_items(value, "webhooks", &FieldPath::default()) {
        validate_webhook(hook, &path, errors);
        of_kind(hook, &path, errors);
        validate_client_config(hook, &path.child("clientConfig"), errors);
        if !unchanged {
            match_conditions(hook, false, &path, errors);
        }
        review_versions(hook, &path.child("admissionReviewVersions"), errors);
        let name = get_text(hook, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
}

fn validate_webhook(hook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    full_name(get_text(hook, "name"), &path.child("name"), errors);
    for (rule, path) in list_items(hook, "rules", path) {
        validate_operations(rule, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"], &path, errors);
        self::validate_rule(rule, true, &path, errors);
    }
    one_of(hook, "failurePolicy", &["Fail", "Ignore"], false, path, errors);
    one_of(hook, "matchPolicy", &["Equivalent", "Exact"], false, path, errors);
    if is_empty_field(hook, "sideEffects") {
        errors.push(FieldError::required(
            path.child("sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    one_of(hook, "sideEffects", &["None", "NoneOnDryRun"], false, path, errors);
    if let Some(seconds) = hook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            path.child("timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    validate_selectors(hook, path, errors);
}

/// Checks the selectors of namespaces and objects.
pub(crate) fn validate_selectors(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = value.get(field) {
            label_selector(selector, &path.child(field), errors);
        }
    }
}

fn full_name(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let faults = names::find_subdomain_errors(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid(path, name, faults.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

fn review_versions(hook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let versions = list_texts(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(
            path,
            format!("must specify one of {}", REVIEW_VERSIONS.join(", ")),
        ));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path.index(index), *version, "duplicate version"));
            continue;
        }
        for fault in names::service_label(version) {
            errors.push(FieldError::invalid(path.index(index), *version, fault));
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.push(FieldError::invalid(
            path,
            versions,
            format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")),
        ));
    }
}

fn list_texts<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Checks the operations of a rule.
pub(crate) fn validate_operations(rule: &Value, allowed: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = path.child("operations");
    let found = list_texts(rule, "operations");
    if found.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    validate_wildcard(
        &found,
        "if '*' is present, must not specify other operations",
        &path,
        errors,
    );
    for (index, operation) in found.iter().enumerate() {
        if !allowed.contains(operation) {
            errors.push(FieldError::not_supported(path.index(index), *operation, allowed));
        }
    }
}

fn validate_wildcard(found: &[&str], why: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if found.len() > 1 && found.contains(&"*") {
        errors.push(FieldError::invalid(path, found.to_vec(), why));
    }
}

/// Checks the resources of a rule.
pub(crate) fn validate_rule(rule: &Value, subresources: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let groups = list_texts(rule, "apiGroups");
    let own = path.child("apiGroups");
    if groups.is_empty() {
        errors.push(FieldError::required(&own, ""));
    }
    validate_wildcard(
        &groups,
        "if '*' is present, must not specify other API groups",
        &own,
        errors,
    );
    let versions = list_texts(rule, "apiVersions");
    let own = path.child("apiVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(&own, ""));
    }
    validate_wildcard(
        &versions,
        "if '*' is present, must not specify other API versions",
        &own,
        errors,
    );
    for (index, version) in versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(own.index(index), ""));
        }
    }
    let resources = list_texts(rule, "resources");
    let own = path.child("resources");
    if resources.is_empty() {
        errors.push(FieldError::required(&own, ""));
    }
    if subresources {
        with_subresources(&resources, &own, errors);
    } else {
        for (index, resource) in resources.iter().enumerate() {
            if resource.is_empty() {
                errors.push(FieldError::required(own.index(index), ""));
            }
            if resource.contains('/') {
                errors.push(FieldError::invalid(
                    own.index(index),
                    *resource,
                    "must not specify subresources",
                ));
            }
        }
        validate_wildcard(
            &resources,
            "if '*' is present, must not specify other resources",
            &own,
            errors,
        );
    }
    one_of(rule, "scope", &["*", "Cluster", "Namespaced"], false, path, errors);
}

fn with_subresources(resources: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (mut whole, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (index, found) in resources.iter().enumerate() {
        if found.is_empty() {
            errors.push(FieldError::required(path.index(index), ""));
            continue;
        }
        let Some((resource, subresource)) = found.split_once('/') else {
            plain = *found != "*";
            continue;
        };
        let mut covered = |by: String| {
            let why = format!("if '{by}' is present, must not specify {found}");
            errors.push(FieldError::invalid(path.index(index), *found, why));
        };
        if whole.contains(resource) {
            covered(format!("{resource}/*"));
        }
        if everywhere.contains(subresource) {
            covered(format!("*/{subresource}"));
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.push(FieldError::invalid(
            path,
            resources.to_vec(),
            "if '*/*' is present, must not specify other resources",
        ));
    }
    if plain && resources.contains(&"*") {
        errors.push(FieldError::invalid(
            path,
            resources.to_vec(),
            "if '*' is present, must not specify other resources without subresources",
        ));
    }
}

fn validate_client_config(hook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let config = hook.get("clientConfig").unwrap_or(&NOTHING);
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|service| service.is_object());
    match (url, service) {
        (Some(url), None) => webhook_url(url, &path.child("url"), errors),
        (None, Some(service)) => webhook_service(service, &path.child("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// Checks match conditions, which may name `params` if their holder has some.
pub(crate) fn match_conditions(value: &Value, params: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let count = value
        .get("matchConditions")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    if count > CONDITIONS {
        errors.push(FieldError::new(
            FieldErrorKind::TooMany,
            path.child("matchConditions"),
            count,
            format!("must have at most {CONDITIONS} items"),
        ));
    }
    let mut seen = BTreeSet::new();
    for (condition, path) in list_items(value, "matchConditions", path) {
        let name = get_text(condition, "name");
        let source = get_text(condition, "expression").trim();
        let own = path.child("expression");
        if source.is_empty() {
            errors.push(FieldError::required(own, ""));
        } else if let Err(problem) = Compiler::default().check(source, Scope::with_authorizer(params), &[Type::Bool]) {
            errors.push(expression_error(&own, source, problem));
        }
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
            continue;
        }
        for fault in qualified_name(name) {
            errors.push(FieldError::invalid(path.child("name"), name, fault));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
}

/// Returns the error in an expression.
pub(crate) fn expression_error(path: &FieldPath, source: &str, problem: Problem) -> FieldError {
    match problem {
        Problem::Invalid(detail) => FieldError::invalid(path, source, detail),
        Problem::Internal(detail) => FieldError::new(FieldErrorKind::Internal, path, Value::Null, detail),
    }
}
