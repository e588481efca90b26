//! Placement of a Pod: affinities, tolerations, spread, and scheduling gates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{get_number, named_field, validate_name, validate_required};
use crate::schema::validation::metadata::{label_selector, label_value, qualified_name};
use crate::schema::validation::{get_text, is_empty_field, list_items, names, node_selectors, one_of};
use crate::schema::{FieldError, FieldPath};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks the affinities.
pub(super) fn validate_affinity(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(affinity) = spec.get("affinity") else { return };
    let path = path.child("affinity");
    if let Some(nodes) = affinity.get("nodeAffinity") {
        node_affinity(nodes, &path.child("nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get(kind) else { continue };
        let at = path.child(kind);
        for (term, at) in list_items(pods, REQUIRED, &at) {
            pod_term(term, &at, errors);
        }
        for (weighted, at) in list_items(pods, PREFERRED, &at) {
            validate_weight(weighted, &at, errors);
            pod_term(
                weighted.get("podAffinityTerm").unwrap_or(&Value::Null),
                &at.child("podAffinityTerm"),
                errors,
            );
        }
    }
}

fn validate_weight(weighted: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let weight = get_number(weighted, "weight");
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            at.child("weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn node_affinity(nodes: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(selector) = nodes.get(REQUIRED) {
        node_selectors::validate_terms(selector, &path.child(REQUIRED), errors);
    }
    for (weighted, at) in list_items(nodes, PREFERRED, path) {
        validate_weight(weighted, &at, errors);
        let preference = weighted.get("preference").unwrap_or(&Value::Null);
        node_selectors::validate_term(preference, false, &at.child("preference"), errors);
    }
}

fn pod_term(term: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = term.get(field) {
            label_selector(selector, &at.child(field), errors);
        }
    }
    for (namespace, _) in list_items(term, "namespaces", at) {
        // The real server's path is in the singular and has no index.
        validate_name(
            names::find_label_errors,
            namespace.as_str().unwrap_or_default(),
            &at.child("namespace"),
            errors,
        );
    }
    label_keys(term, at, errors);
    if get_text(term, "topologyKey").is_empty() {
        errors.push(FieldError::required(at.child("topologyKey"), "can not be empty"));
    }
    validate_name(
        qualified_name,
        get_text(term, "topologyKey"),
        &at.child("topologyKey"),
        errors,
    );
}

/// Checks label keys whose values come from the Pod itself.
fn label_keys(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let selector = value.get("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        if is_empty_field(value, field) {
            continue;
        }
        if selector.is_none() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(at.child(field), detail));
            continue;
        }
        for (key, at) in list_items(value, field, at) {
            validate_name(qualified_name, key.as_str().unwrap_or_default(), &at, errors);
        }
    }
    let keys: Vec<&str> = list_items(value, "matchLabelKeys", at)
        .filter_map(|(key, _)| key.as_str())
        .collect();
    // For a duplicate key, the last place counts.
    let places: BTreeMap<&str, usize> = keys.iter().enumerate().map(|(place, key)| (*key, place)).collect();
    let place = |key: &str| places.get(key).copied();
    if let Some(selector) = selector {
        let exact = selector.get("matchLabels").and_then(Value::as_object);
        let mut known: BTreeSet<&str> = exact.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        for (expression, _) in list_items(selector, "matchExpressions", at) {
            let key = get_text(expression, "key");
            if let Some(index) = place(key)
                && known.contains(key)
            {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.push(FieldError::invalid(at.index(index), key, detail));
            }
            known.insert(key);
        }
    }
    let others: BTreeSet<&str> = list_items(value, "mismatchLabelKeys", at)
        .filter_map(|(key, _)| key.as_str())
        .collect();
    for (key, at) in list_items(value, "matchLabelKeys", at) {
        let key = key.as_str().unwrap_or_default();
        if others.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(at, key, detail));
        }
    }
}

/// Checks how pods are spread.
pub(super) fn validate_topology_spread(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = |constraint: &Value| {
        (
            get_text(constraint, "topologyKey").to_owned(),
            get_text(constraint, "whenUnsatisfiable").to_owned(),
        )
    };
    let mut left: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (constraint, _) in list_items(spec, "topologySpreadConstraints", path) {
        *left.entry(kind(constraint)).or_default() += 1;
    }
    for (constraint, at) in list_items(spec, "topologySpreadConstraints", path) {
        validate_positive(constraint, "maxSkew", &at, errors);
        if get_text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(at.child("topologyKey"), "can not be empty"));
        }
        let action = get_text(constraint, "whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(
                at.child("whenUnsatisfiable"),
                action,
                &actions,
            ));
        }
        let later = left.get_mut(&kind(constraint)).map_or(0, |left| {
            *left -= 1;
            *left
        });
        if later > 0 {
            let (key, action) = kind(constraint);
            errors.push(FieldError::duplicate(
                at.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            ));
        }
        if constraint.get("minDomains").is_some() {
            validate_positive(constraint, "minDomains", &at, errors);
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                let least = get_number(constraint, "minDomains");
                errors.push(FieldError::invalid(at.child("minDomains"), least, detail));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of(constraint, field, &["Honor", "Ignore"], false, &at, errors);
        }
        label_keys(constraint, &at, errors);
        if let Some(selector) = constraint.get("labelSelector") {
            label_selector(selector, &at.child("labelSelector"), errors);
        }
    }
}

fn validate_positive(value: &Value, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let found = get_number(value, field);
    if found <= 0 {
        errors.push(FieldError::invalid(at.child(field), found, "must be greater than zero"));
    }
}

/// Checks the tolerations.
pub(crate) fn validate_tolerations(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (toleration, at) in list_items(spec, "tolerations", path) {
        named_field(toleration, "key", qualified_name, &at, errors);
        let operator = get_text(toleration, "operator");
        if get_text(toleration, "key").is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(at.child("operator"), operator, detail));
        }
        let effect = get_text(toleration, "effect");
        if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(at.child("effect"), effect, detail));
        }
        let value = get_text(toleration, "value");
        let at_operator = at.child("operator");
        match operator {
            "" | "Equal" => {
                let complaints = label_value(value);
                if !complaints.is_empty() {
                    errors.push(FieldError::invalid(at_operator, value, complaints.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(at_operator, value, detail));
                }
            }
            // The real server lists these operators as known, and still refuses them.
            "Lt" | "Gt" => {
                let known = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(at_operator, operator, &known));
            }
            other => errors.push(FieldError::not_supported(at_operator, other, &["Equal", "Exists"])),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        one_of(toleration, "effect", &effects, false, &at, errors);
    }
}

/// Checks the readiness gates and the scheduling gates of a Pod.
pub(super) fn validate_gates(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (gate, at) in list_items(spec, "readinessGates", path) {
        validate_name(
            qualified_name,
            get_text(gate, "conditionType"),
            &at.child("conditionType"),
            errors,
        );
    }
    let mut known = BTreeSet::new();
    for (gate, at) in list_items(spec, "schedulingGates", path) {
        let name = get_text(gate, "name");
        validate_name(qualified_name, name, &at, errors);
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at, name));
        }
    }
}

/// Checks the claims of devices for the Pod.
pub(super) fn resource_claims(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (claim, at) in list_items(spec, "resourceClaims", path) {
        let name = get_text(claim, "name");
        validate_required(claim, "name", &at, errors);
        if !name.is_empty() {
            if known.insert(name) {
                validate_name(names::find_label_errors, name, &at.child("name"), errors);
            } else {
                errors.push(FieldError::duplicate(at.child("name"), name));
            }
        }
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        let [direct, template] = fields.map(|field| claim.get(field));
        let detail = match (direct, template) {
            (Some(_), Some(_)) => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            (None, None) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        if let Some(detail) = detail {
            let shown = crate::schema::validation::show_go_struct(&[
                ("Name", &Value::from(name)),
                ("ResourceClaimName", direct.unwrap_or(&Value::Null)),
                ("ResourceClaimTemplateName", template.unwrap_or(&Value::Null)),
            ]);
            errors.push(FieldError::invalid(&at, shown, detail));
        }
        for field in fields {
            if let Some(name) = claim.get(field).and_then(Value::as_str) {
                validate_name(names::find_subdomain_errors, name, &at.child(field), errors);
            }
        }
    }
}
