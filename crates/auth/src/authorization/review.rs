//! The access reviews: SubjectAccessReview with its local and self forms, and SelfSubjectRulesReview, as functions
//! from the request's object to the response's. Invalid reviews are refused in kube-apiserver's words. The right to
//! create a review is checked earlier, as for every request.

use serde_json::{Map, Value, json};

use super::refusal::FieldError;
use super::{Attributes, Authorizer, Rbac, Refusal, quote};
use crate::identity::UserInfo;

const GROUP: &str = "authorization.k8s.io";

/// The fields of ObjectMeta in the order in which Go prints them.
const METADATA_FIELDS: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// Answers `POST subjectaccessreviews`: whether the user in the object may make the request in the object.
///
/// # Errors
/// A 422 for a review without a question.
pub fn subject_access_review(review: &Value, authorizer: &dyn Authorizer) -> Result<Value, Refusal> {
    let mut errors = validate_spec(review, true);
    errors.extend(validate_metadata(review, &[]));
    refuse_invalid(&errors)?;
    Ok(answer_review(review, &named_user(review), authorizer))
}

/// Answers `POST selfsubjectaccessreviews`: whether `user` may make the request in the object.
///
/// # Errors
/// A 422 for a review without a question.
pub fn self_subject_access_review(
    user: &UserInfo,
    review: &Value,
    authorizer: &dyn Authorizer,
) -> Result<Value, Refusal> {
    let mut errors = validate_spec(review, false);
    errors.extend(validate_metadata(review, &[]));
    refuse_invalid(&errors)?;
    Ok(answer_review(review, user, authorizer))
}

/// Answers `POST namespaces/NAMESPACE/localsubjectaccessreviews` as [`subject_access_review`] does, for one namespace
/// only.
///
/// # Errors
/// A 404 without a namespace, a 400 or 422 for a review about anything outside of this namespace.
pub fn local_subject_access_review(
    namespace: &str,
    review: &Value,
    authorizer: &dyn Authorizer,
) -> Result<Value, Refusal> {
    if namespace.is_empty() {
        return Err(Refusal::no_such_route());
    }
    let mut review = review.clone();
    let own = get_text(&review, "/metadata/namespace").to_owned();
    if own.is_empty() {
        set_namespace(&mut review, namespace);
    } else if own != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ));
    }
    let mut errors = validate_spec(&review, true);
    errors.extend(validate_metadata(&review, &["namespace"]));
    if find_attributes(&review, "resourceAttributes").is_some() {
        let asked = get_text(&review, "/spec/resourceAttributes/namespace");
        if asked != namespace {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes.namespace",
                &quote(asked),
                "must match metadata.namespace",
            ));
        }
    }
    if let Some(attributes) = find_attributes(&review, "nonResourceAttributes") {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            &show_path_attributes(attributes),
            "disallowed on this kind of request",
        ));
    }
    refuse_invalid(&errors)?;
    Ok(answer_review(&review, &named_user(&review), authorizer))
}

/// Answers `POST selfsubjectrulesreviews`: all rights of `user` in the namespace that the object names.
///
/// # Errors
/// A 400 if the object names no namespace.
pub fn self_subject_rules_review(user: &UserInfo, review: &Value, rbac: &Rbac) -> Result<Value, Refusal> {
    let namespace = get_text(review, "/spec/namespace");
    if namespace.is_empty() {
        return Err(Refusal::bad_request("no namespace on request".to_owned()));
    }
    let (rules, errors) = rbac.rules_for(user, namespace);
    let mut resource_rules = Vec::new();
    let mut path_rules = Vec::new();
    for rule in &rules {
        if !rule.resources.is_empty() {
            let mut value = json!({ "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources });
            if !rule.resource_names.is_empty()
                && let Some(fields) = value.as_object_mut()
            {
                fields.insert("resourceNames".to_owned(), json!(rule.resource_names));
            }
            resource_rules.push(value);
        }
        if !rule.non_resource_urls.is_empty() {
            path_rules.push(json!({ "verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls }));
        }
    }
    let mut status = json!({
        "resourceRules": resource_rules,
        "nonResourceRules": path_rules,
        "incomplete": false,
    });
    if let (false, Some(fields)) = (errors.is_empty(), status.as_object_mut()) {
        let all = match errors.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        fields.insert("evaluationError".to_owned(), json!(all));
    }
    Ok(json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

fn get_text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the field `spec.NAME` of a review with attributes; `None` if it is missing or null.
fn find_attributes<'a>(review: &'a Value, name: &str) -> Option<&'a Value> {
    review
        .get("spec")
        .and_then(|spec| spec.get(name))
        .filter(|value| !value.is_null())
}

fn set_namespace(review: &mut Value, namespace: &str) {
    if let Some(fields) = review.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    }
}

fn refuse_invalid(errors: &[FieldError]) -> Result<(), Refusal> {
    if errors.is_empty() {
        return Ok(());
    }
    // kube-apiserver's Status names no kind here: the decoded object has lost it.
    Err(Refusal::invalid(GROUP, "", "", errors))
}

/// Returns the faults of a review's spec. With `names_user`, the spec must name a user or a group.
fn validate_spec(review: &Value, names_user: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let resource = find_attributes(review, "resourceAttributes");
    let path = find_attributes(review, "nonResourceAttributes");
    match (resource, path) {
        (Some(_), Some(path)) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            &show_path_attributes(path),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    if names_user {
        let user = named_user(review);
        if user.name.is_empty() && user.groups.is_empty() {
            errors.push(FieldError::invalid(
                "spec.user",
                "\"\"",
                "at least one of user or group must be specified",
            ));
        }
    }
    for selector in ["fieldSelector", "labelSelector"] {
        if let Some(value) = resource
            .and_then(|attributes| attributes.get(selector))
            .filter(|value| !value.is_null())
        {
            validate_selector(selector, value, &mut errors);
        }
    }
    errors
}

/// Adds the faults of a field or label selector: a raw selector and requirements exclude each other, and one must be
/// set.
fn validate_selector(name: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    let path = format!("spec.resourceAttributes.{name}");
    let raw = selector.get("rawSelector").and_then(Value::as_str).unwrap_or_default();
    let requirements = selector
        .get("requirements")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    if !raw.is_empty() && requirements {
        errors.push(FieldError::invalid(
            &format!("{path}.rawSelector"),
            &quote(raw),
            "may not specified at the same time as requirements",
        ));
    }
    if raw.is_empty() && !requirements {
        errors.push(FieldError::required(
            &format!("{path}.requirements"),
            &format!("when {path} is specified, requirements or rawSelector is required"),
        ));
    }
}

/// Checks that a review has no metadata except the fields in `allowed` and the managed fields that the server adds.
fn validate_metadata(review: &Value, allowed: &[&str]) -> Option<FieldError> {
    let metadata = review.get("metadata")?.as_object()?;
    let is_set = |field: &str| {
        metadata.get(field).is_some_and(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Number(number) => number.as_i64() != Some(0),
            Value::Bool(_) => true,
        })
    };
    if !METADATA_FIELDS
        .iter()
        .any(|field| !allowed.contains(field) && is_set(field))
    {
        return None;
    }
    let shown: Vec<String> = METADATA_FIELDS
        .iter()
        .filter(|field| is_set(field))
        .filter_map(|field| Some(format!("{}:{}", json!(field), metadata.get(*field)?)))
        .collect();
    let why = if allowed.is_empty() {
        "must be empty"
    } else {
        "must be empty except for namespace"
    };
    Some(FieldError::invalid(
        "metadata",
        &format!("{{{}}}", shown.join(",")),
        why,
    ))
}

/// Returns path attributes as Go prints the internal type.
fn show_path_attributes(attributes: &Value) -> String {
    let field = |name: &str| attributes.get(name).and_then(Value::as_str).unwrap_or_default();
    json!({ "Path": field("path"), "Verb": field("verb") }).to_string()
}

/// Returns the user in a SubjectAccessReview: name, UID, groups and extras.
fn named_user(review: &Value) -> UserInfo {
    let list = |value: Option<&Value>| -> Vec<String> {
        value
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let extra = review
        .pointer("/spec/extra")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.clone(), list(Some(values))))
        .collect();
    UserInfo {
        name: get_text(review, "/spec/user").to_owned(),
        uid: get_text(review, "/spec/uid").to_owned(),
        groups: list(review.pointer("/spec/groups")),
        extra,
    }
}

/// Returns the request that a review asks about.
fn attributes_of(review: &Value) -> Attributes {
    if let Some(path) = find_attributes(review, "nonResourceAttributes") {
        let field = |name: &str| path.get(name).and_then(Value::as_str).unwrap_or_default();
        return Attributes::path(field("verb"), field("path"));
    }
    let attributes = find_attributes(review, "resourceAttributes").unwrap_or(&Value::Null);
    let field = |name: &str| attributes.get(name).and_then(Value::as_str).unwrap_or_default();
    let version = if field("version").is_empty() {
        "*"
    } else {
        field("version")
    };
    Attributes {
        subresource: field("subresource").to_owned(),
        ..Attributes::resource(field("verb"), field("group"), version, field("resource"))
            .in_namespace(field("namespace"))
            .with_name(field("name"))
    }
}

/// Returns the review with its status: the decision about the request of `user`.
fn answer_review(review: &Value, user: &UserInfo, authorizer: &dyn Authorizer) -> Value {
    let decision = authorizer.authorize(user, &attributes_of(review));
    let mut status = Map::new();
    status.insert("allowed".to_owned(), json!(decision.allowed));
    if !decision.reason.is_empty() {
        status.insert("reason".to_owned(), json!(decision.reason));
    }
    let mut answer = review.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("status".to_owned(), Value::Object(status));
    }
    answer
}
