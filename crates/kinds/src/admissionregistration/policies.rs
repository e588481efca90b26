//! ValidatingAdmissionPolicies and their bindings: required fields, valid values, and the compilation of expressions.

use std::collections::BTreeSet;

use kubernetes_cel::{Program, Type};
use serde_json::Value;

use super::webhooks::{expression_error, match_conditions, validate_operations, validate_rule, validate_selectors};
use crate::expressions::{Compiler, Scope};
use crate::schema::validation::conditions::validate_conditions;
use crate::schema::validation::metadata::{label_selector, qualified_name};
use crate::schema::validation::{get_text, is_empty_field, list_items, names, one_of, show_go_struct};
use crate::schema::{FieldError, FieldPath, Shown};

const NOTES: usize = 20;
const NOTE_EXPRESSION: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Checks a ValidatingAdmissionPolicy. Unchanged match conditions are not checked again.
pub(crate) fn validate_policy(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let nothing = Value::Null;
    let spec = value.get("spec").unwrap_or(&nothing);
    let path = FieldPath::new("spec");
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], true, &path, errors);
    let kind = spec.get("paramKind").filter(|kind| kind.is_object());
    if let Some(kind) = kind {
        param_kind(kind, &path.child("paramKind"), errors);
    }
    match spec
        .get("matchConstraints")
        .filter(|constraints| constraints.is_object())
    {
        None => errors.push(FieldError::required(path.child("matchConstraints"), "")),
        Some(constraints) => {
            let path = path.child("matchConstraints");
            match_resources(constraints, &path, errors);
            if is_empty_field(constraints, "resourceRules") {
                errors.push(FieldError::required(path.child("resourceRules"), ""));
            }
        }
    }
    let part = |of: &Value, field: &str| of.pointer("/spec").and_then(|spec| spec.get(field)).cloned();
    let unchanged = old.is_some_and(|old| {
        ["paramKind", "matchConditions"]
            .iter()
            .all(|field| part(old, field) == part(value, field))
    });
    if !unchanged {
        match_conditions(spec, kind.is_some(), &path, errors);
    }
    let scope = Scope::with_authorizer(kind.is_some());
    let mut compiler = if is_empty_field(spec, "variables") {
        Compiler::default()
    } else {
        Compiler::composing()
    };
    for (variable, path) in list_items(spec, "variables", &path) {
        self::validate_variable(&mut compiler, variable, scope, &path, errors);
    }
    if is_empty_field(spec, "validations") && is_empty_field(spec, "auditAnnotations") {
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(
                path.child(field),
                "validations or auditAnnotations must contain at least one item",
            ));
        }
        return;
    }
    for (validation, path) in list_items(spec, "validations", &path) {
        self::validate_validation_rule(&compiler, validation, scope, &path, errors);
    }
    validate_audit_annotations(&compiler, value, spec, scope, &path, errors);
}

fn param_kind(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let api_version = get_text(value, "apiVersion");
    let own = path.child("apiVersion");
    match api_version.matches('/').count() {
        _ if api_version.is_empty() => errors.push(FieldError::required(own, "")),
        0 | 1 => {
            let (group, version) = match api_version {
                "/" => ("", ""),
                other => other.split_once('/').unwrap_or(("", other)),
            };
            if !group.is_empty() {
                let faults = names::find_subdomain_errors(group);
                if !faults.is_empty() {
                    errors.push(FieldError::invalid(&own, group, faults.join(",")));
                }
            }
            let faults = names::service_label(version);
            if version.is_empty() {
                errors.push(FieldError::invalid(own, api_version, "version must be specified"));
            } else if !faults.is_empty() {
                errors.push(FieldError::invalid(own, version, faults.join(",")));
            }
        }
        _ => {
            let why = format!("unexpected GroupVersion string: {api_version}");
            errors.push(FieldError::invalid(own, api_version, why));
        }
    }
    let kind = get_text(value, "kind");
    let faults = names::service_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("kind"), ""));
    } else if !faults.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.push(FieldError::invalid(path.child("kind"), kind, why));
    }
}

fn match_resources(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    one_of(value, "matchPolicy", &["Equivalent", "Exact"], true, path, errors);
    validate_selectors(value, path, errors);
    for field in ["resourceRules", "excludeResourceRules"] {
        for (named, path) in list_items(value, field, path) {
            named_rule(named, &path, errors);
        }
    }
}

fn named_rule(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (name, path) in list_items(value, "resourceNames", path) {
        let name = name.as_str().unwrap_or_default();
        for fault in names::path_segment(name, false) {
            errors.push(FieldError::invalid(&path, name, fault));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    validate_operations(value, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"], path, errors);
    validate_rule(value, true, path, errors);
}

fn validate_variable(
    compiler: &mut Compiler,
    value: &Value,
    scope: Scope,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let name = get_text(value, "name");
    if name.trim().is_empty() {
        errors.push(FieldError::required(path.child("name"), "name is not specified"));
    } else if !is_identifier(name) {
        errors.push(FieldError::invalid(
            path.child("name"),
            name,
            "must be a valid CEL identifier",
        ));
    }
    let source = get_text(value, "expression");
    let own = path.child("expression");
    if source.trim().is_empty() {
        errors.push(FieldError::required(own, "expression is not specified"));
        return;
    }
    let program = compiler.check(source, scope, &[]);
    compiler.declare(name, program.as_ref().ok().map(Program::output_type));
    if let Err(problem) = program {
        errors.push(expression_error(&own, source, problem));
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && letters.all(|letter| letter == '_' || letter.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn validate_validation_rule(
    compiler: &Compiler,
    value: &Value,
    scope: Scope,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let source = get_text(value, "expression");
    let own = path.child("expression");
    if source.trim().is_empty() {
        errors.push(FieldError::required(own, "expression is not specified"));
    } else if let Err(problem) = compiler.check(source, scope, &[Type::Bool]) {
        errors.push(expression_error(&own, source, problem));
    }
    let source = get_text(value, "messageExpression");
    let own = path.child("messageExpression");
    if source.trim().is_empty() {
        if !source.is_empty() {
            errors.push(FieldError::invalid(own, source, "must be non-empty if specified"));
        }
    } else if let Err(problem) = compiler.check(source, Scope::of_messages(scope.params), &[Type::String]) {
        errors.push(expression_error(&own, source, problem));
    }
    let message = get_text(value, "message");
    let own = path.child("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(own, message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(own, message, "must not contain line breaks"));
    }
    one_of(value, "reason", &REASONS, false, path, errors);
}

fn validate_audit_annotations(
    compiler: &Compiler,
    value: &Value,
    spec: &Value,
    scope: Scope,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let count = spec
        .get("auditAnnotations")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    if count > NOTES {
        let shown: Vec<String> = list_items(spec, "auditAnnotations", path)
            .map(|(note, _)| {
                let fields = [
                    ("Key", &Value::from(get_text(note, "key"))),
                    ("ValueExpression", &Value::from(get_text(note, "valueExpression"))),
                ];
                show_go_struct(&fields).to_string()
            })
            .collect();
        let shown = Shown::Verbatim(format!("[{}]", shown.join(",")));
        let why = format!("must not have more than {NOTES} auditAnnotations");
        errors.push(FieldError::invalid(path.child("auditAnnotations"), shown, why));
    }
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (note, path) in list_items(spec, "auditAnnotations", path) {
        let key = get_text(note, "key");
        if name.is_empty() {
            errors.push(FieldError::invalid(
                path.child("key"),
                key,
                "requires metadata.name be non-empty",
            ));
        } else {
            let full = format!("{name}/{key}");
            for fault in qualified_name(&full) {
                errors.push(FieldError::invalid(path.child("key"), full.as_str(), fault));
            }
        }
        let source = get_text(note, "valueExpression");
        let (own, trimmed) = (path.child("valueExpression"), source.trim());
        if trimmed.is_empty() {
            errors.push(FieldError::required(own, "valueExpression is not specified"));
        } else if trimmed.len() > NOTE_EXPRESSION {
            let why = format!("must not exceed {NOTE_EXPRESSION} bytes in length");
            errors.push(FieldError::required(own, why));
        } else if let Err(problem) = compiler.check(trimmed, scope, &[Type::String, Type::Null]) {
            errors.push(expression_error(&own, source, problem));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(path.child("key"), key));
        }
    }
}

/// Checks a ValidatingAdmissionPolicyBinding.
pub(crate) fn validate_binding(value: &Value, errors: &mut Vec<FieldError>) {
    let nothing = Value::Null;
    let spec = value.get("spec").unwrap_or(&nothing);
    let path = FieldPath::new("spec");
    let policy = get_text(spec, "policyName");
    if policy.is_empty() {
        errors.push(FieldError::required(path.child("policyName"), ""));
    } else {
        for fault in names::find_subdomain_errors(policy) {
            errors.push(FieldError::invalid(path.child("policyName"), policy, fault));
        }
    }
    if let Some(reference) = spec.get("paramRef").filter(|reference| reference.is_object()) {
        param_ref(reference, &path.child("paramRef"), errors);
    }
    if let Some(resources) = spec.get("matchResources").filter(|resources| resources.is_object()) {
        match_resources(resources, &path.child("matchResources"), errors);
    }
    validate_actions(spec, &path, errors);
}

fn param_ref(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = get_text(value, "name");
    let selector = value.get("selector").filter(|selector| selector.is_object());
    if !name.is_empty() {
        for fault in names::path_segment(name, false) {
            errors.push(FieldError::invalid(path.child("name"), name, fault));
        }
        if selector.is_some() {
            errors.push(FieldError::forbidden(path.child("name"), EXCLUSIVE));
        }
    }
    if let Some(selector) = selector {
        label_selector(selector, &path.child("selector"), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(path.child("selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && selector.is_none() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    one_of(value, "parameterNotFoundAction", &["Deny", "Allow"], true, path, errors);
}

fn validate_actions(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    let own = path.child("validationActions");
    for (action, path) in list_items(spec, "validationActions", path) {
        let action = action.as_str().unwrap_or_default();
        if !["Audit", "Deny", "Warn"].contains(&action) {
            errors.push(FieldError::not_supported(&path, action, &["Audit", "Deny", "Warn"]));
        }
        if !seen.insert(action) {
            errors.push(FieldError::duplicate(&path, action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let all = spec.get("validationActions").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &own,
            all,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
             and headers serves no purpose)",
        ));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(own, "at least one validation action is required"));
    }
}

/// Checks the status of a ValidatingAdmissionPolicy.
pub(crate) fn policy_status(value: &Value, errors: &mut Vec<FieldError>) {
    let nothing = Value::Null;
    let checking = value.pointer("/status/typeChecking").unwrap_or(&nothing);
    let path = FieldPath::new("status")
        .child("typeChecking")
        .child("expressionWarnings");
    let warnings = checking.get("expressionWarnings").and_then(Value::as_array);
    for (index, warning) in warnings.into_iter().flatten().enumerate() {
        let path = path.index(index);
        if is_empty_field(warning, "warning") {
            errors.push(FieldError::required(path.child("warning"), ""));
        }
        if get_text(warning, "fieldRef").trim().is_empty() {
            errors.push(FieldError::required(path.child("fieldRef"), ""));
        }
    }
    let status = value.get("status").unwrap_or(&nothing);
    validate_conditions(status, &FieldPath::new("status"), errors);
}
