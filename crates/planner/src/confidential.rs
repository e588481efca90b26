//! Messages about confidential objects: a Secret, or an object that was rendered from one.
//!
//! The API server, webhooks and policies quote values when they refuse them. So none of their words about such an object is repeated. The message is built again from
//! parts that can't hold a value: the code and reason, the types of the causes, the fields in question as far as the object itself has them, and the faults that its
//! own form shows. No text is searched for values: such a search fails on short values, and its omissions reveal something.

use std::fmt::Write as _;

use serde_json::Value;
use tenure_api::{ObjectId, ObjectView};
use tenure_tenancy::Identity;

use crate::answer::{Cause, CauseKind, Failure, Reason};
use crate::immutable;

/// The text that replaces the API server's words.
const NOT_REPEATED: &str = "the API server's message is not repeated, since it can quote the object's content";

/// The most causes in a rebuilt message.
const NAMED: usize = 10;

/// Checks whether an object of this id is a Secret.
#[must_use]
pub fn is_secret(id: &ObjectId) -> bool {
    id.kind == "Secret" && id.group.is_empty()
}

fn is_config_map(id: &ObjectId) -> bool {
    id.kind == "ConfigMap" && id.group.is_empty()
}

/// A refused request about a confidential object.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The id of the object.
    pub id: &'a ObjectId,
    /// The identity of the request.
    pub identity: &'a Identity,
    /// The sent content, if it was the object itself.
    pub object: Option<&'a Value>,
}

/// Rebuilds a failure without any part that could quote the object.
#[must_use]
pub fn rebuild_failure(failure: Failure, request: Request<'_>) -> Failure {
    if is_ours(&failure.reason) {
        return failure;
    }
    let causes: Vec<Cause> = failure
        .causes
        .iter()
        .map(|cause| rebuild_cause(cause, request))
        .collect();
    let message = write_message(&failure, &causes, request);
    Failure {
        // An unknown reason or cause type could be any text of a webhook, also a quoted value.
        reason: match failure.reason {
            Reason::Other(_) => Reason::Unknown,
            known => known,
        },
        causes,
        message,
        ..failure
    }
}

/// Checks whether Tenure itself wrote the failure's message, so that it quotes no object.
fn is_ours(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Unreachable
            | Reason::Unanswered
            | Reason::BadAnswer
            | Reason::NoRoom
            | Reason::BadObject
            | Reason::IdentityMissing
            | Reason::NoKindMatch
            | Reason::DiscoveryIncomplete
    )
}

fn rebuild_cause(cause: &Cause, request: Request<'_>) -> Cause {
    let message = if immutable::is_immutability(cause) {
        immutable::PLAIN
    } else {
        match cause.kind {
            CauseKind::NotFound => "names a missing object",
            CauseKind::Required => "has to be set",
            CauseKind::Duplicate => "appears twice",
            CauseKind::Invalid => "is not valid",
            CauseKind::NotSupported => "has an unsupported value",
            CauseKind::Forbidden => "is not allowed",
            CauseKind::TooLong => "is too long",
            CauseKind::TooMany => "has too many elements",
            CauseKind::TypeInvalid => "has another type than the field",
            CauseKind::FieldManagerConflict => "is owned by another field manager",
            _ => "is refused",
        }
    };
    Cause {
        kind: match &cause.kind {
            CauseKind::Other(_) => CauseKind::Unknown,
            known => known.clone(),
        },
        field: request
            .object
            .map_or_else(String::new, |object| find_known_path(object, &cause.field)),
        message: message.to_owned(),
    }
}

fn write_message(failure: &Failure, causes: &[Cause], request: Request<'_>) -> String {
    if failure.reason == Reason::Forbidden
        && let Some(message) = describe_missing_right(failure, request)
    {
        return message;
    }
    let mut problems: Vec<String> = causes
        .iter()
        .filter(|cause| !cause.field.is_empty())
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if problems.is_empty()
        && let Some(object) = request
            .object
            .filter(|_| is_secret(request.id) || is_config_map(request.id))
    {
        problems = list_faults(object, is_secret(request.id));
    }
    let mut text = String::new();
    for problem in problems.iter().take(NAMED) {
        let _written = write!(text, "{problem}; ");
    }
    if problems.len() > NAMED {
        let _written = write!(text, "and {} more; ", problems.len() - NAMED);
    }
    text.push_str(NOT_REPEATED);
    text
}

/// Rebuilds the authorizer's message about a missing right from the request. Returns it only for a Secret, and only if the answer's message begins with it. So the
/// result never contains a webhook's words.
fn describe_missing_right(failure: &Failure, request: Request<'_>) -> Option<String> {
    let id = request.id;
    let account = request.identity.service_account()?;
    if !is_secret(id) {
        return None;
    }
    ["patch", "create", "get", "delete", "update"].iter().find_map(|verb| {
        let expected = format!(
            "secrets \"{}\" is forbidden: User \"system:serviceaccount:{}:{}\" cannot {verb} resource \"secrets\" in API group \"\" in the namespace \"{}\"",
            id.name,
            account.namespace(),
            account.name(),
            id.namespace,
        );
        failure.message.starts_with(&expected).then_some(expected)
    })
}

/// Returns the part of a path that the object itself has, or that every Secret has: names of fields and keys, never their values.
fn find_known_path(object: &Value, field: &str) -> String {
    const FIELDS: [&str; 10] = [
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "data",
        "stringData",
        "type",
        "immutable",
    ];
    let mut path = String::new();
    let mut at = Some(object);
    let mut rest = field.trim_start_matches('.');
    while !rest.is_empty() {
        if let Some((inner, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            let next = match at {
                Some(Value::Array(items)) => inner.parse::<usize>().ok().and_then(|index| items.get(index)),
                Some(Value::Object(fields)) => fields.get(inner),
                _ => None,
            };
            if next.is_none() {
                break;
            }
            let _written = write!(path, "[{inner}]");
            (at, rest) = (next, after);
            continue;
        }
        rest = rest.trim_start_matches('.');
        let ends = |name: &str| {
            rest.strip_prefix(name)
                .is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
        };
        // Keys can have dots in them.
        let fields = at.and_then(Value::as_object);
        let names = fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str));
        let Some(name) = names
            .chain(FIELDS)
            .filter(|name| ends(name))
            .max_by_key(|name| name.len())
        else {
            break;
        };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        at = fields.and_then(|fields| fields.get(name));
        rest = rest.strip_prefix(name).unwrap_or_default();
    }
    path
}

/// Lists the mistakes in a Secret or a ConfigMap that its fields show, such as values that are not base64. Names only fields and keys.
fn list_faults(secret: &Value, is_secret: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |path: String, value: &Value, wanted: &str| {
        let found = type_of(value);
        if found != wanted && found != "null" {
            faults.push(format!(
                "{path} must be {} and is {}",
                add_article(wanted),
                add_article(found)
            ));
        }
    };
    for field in ["data", "stringData"] {
        let Some(value) = secret.get(field) else { continue };
        expect(field.to_owned(), value, "object");
        for (key, value) in value.as_object().into_iter().flatten() {
            expect(format!("{field}.{key}"), value, "string");
        }
    }
    for (pointer, wanted) in [("/type", "string"), ("/immutable", "boolean"), ("/metadata", "object")] {
        if let Some(value) = secret.pointer(pointer) {
            expect(pointer.trim_start_matches('/').to_owned(), value, wanted);
        }
    }
    for field in ["labels", "annotations"] {
        let Some(value) = secret.pointer(&format!("/metadata/{field}")) else {
            continue;
        };
        expect(format!("metadata.{field}"), value, "object");
        for (key, value) in value.as_object().into_iter().flatten() {
            expect(format!("metadata.{field}.{key}"), value, "string");
        }
    }
    let data = ObjectView::new(secret).find_map("/data").filter(|_| is_secret);
    for (key, value) in data.into_iter().flatten() {
        if value.as_str().is_some_and(|text| !is_base64(text)) {
            faults.push(format!("data.{key} must be base64; stringData takes plain text"));
        }
    }
    faults
}

fn is_base64(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let body = digits.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (body, padding) = digits.split_at(body);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    digits.len().is_multiple_of(4) && padding.len() <= 2 && body.iter().all(is_digit)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn add_article(type_: &str) -> String {
    let article = if type_ == "object" { "an" } else { "a" };
    format!("{article} {type_}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_tenancy::{Placement, identity};

    use super::*;

    /// A value that may appear in no text.
    const VALUE: &str = "hunter2";

    fn make_account() -> Identity {
        let unclaimed = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        identity::decide_for_kustomization(&unclaimed, "team", None)
            .unwrap()
            .into()
    }

    fn rebuild_for_secret(object: &Value, failure: Failure) -> Failure {
        let id: ObjectId = "team_s__Secret".parse().unwrap();
        let rebuilt = rebuild_failure(
            failure,
            Request {
                id: &id,
                identity: &make_account(),
                object: Some(object),
            },
        );
        assert!(!format!("{rebuilt:?}").contains(VALUE), "{rebuilt:?}");
        rebuilt
    }

    fn make_failure(code: u16, reason: &str, message: &str, causes: &[(&str, &str, &str)]) -> Failure {
        Failure {
            code,
            reason: reason.into(),
            message: message.to_owned(),
            causes: causes
                .iter()
                .map(|(kind, field, message)| Cause {
                    kind: (*kind).into(),
                    field: (*field).to_owned(),
                    message: (*message).to_owned(),
                })
                .collect(),
            retry_after: None,
        }
    }

    /// A ConfigMap has a value that came from a Secret and must be a string. The message names the field and hides the value.
    #[test]
    fn number_from_secret_is_reported_without_its_value() {
        let object = json!({ "data": { "a": 731_731, "b": "not base64" } });
        let id: ObjectId = "team_m__ConfigMap".parse().unwrap();
        let (identity, object) = (make_account(), Some(&object));
        let request = Request {
            id: &id,
            identity: &identity,
            object,
        };
        let message = rebuild_failure(make_failure(500, "InternalError", "got 731731", &[]), request).message;
        assert!(
            message.starts_with("data.a must be a string and is a number; the API server's message"),
            "{message}"
        );
        assert!(!message.contains("731731"), "{message}");
    }

    #[test]
    fn a_wrong_type_is_named_without_its_value() {
        let object = json!({ "data": { "tls.crt": 7, "ok": "aGk=", "plain": "hunter2!" }, "stringData": ["hunter2"] });
        let message = ".data.tls.crt: expected string, got &value.valueUnstructured{Value:hunter2}";
        let failure = rebuild_for_secret(&object, make_failure(500, "InternalError", message, &[]));
        assert!(
            failure
                .message
                .contains("data.tls.crt must be a string and is a number"),
            "{}",
            failure.message
        );
        assert!(
            failure.message.contains("stringData must be an object and is a list"),
            "{}",
            failure.message
        );
        assert!(
            failure.message.contains("data.plain must be base64"),
            "{}",
            failure.message
        );
        assert!(failure.is_transient());
    }

    #[test]
    fn redacted_causes_keep_type_and_known_field() {
        let object = json!({ "data": { "a.b": "x" }, "metadata": { "labels": { "l": "y" } } });
        let causes = [
            ("FieldValueInvalid", "data[a.b]", "Invalid value: \"hunter2\""),
            ("FieldValueInvalid", "metadata.labels", "Invalid value: \"hunter2\""),
            ("FieldValueInvalid", ".data.a.b", "Invalid value: \"hunter2\""),
            ("hunter2", "data[hunter2]", "hunter2"),
            ("FieldValueForbidden", "hunter2", "Forbidden: hunter2"),
        ];
        let failure = rebuild_for_secret(
            &object,
            make_failure(422, "Invalid", "Secret \"s\" is invalid: hunter2", &causes),
        );
        let fields: Vec<&str> = failure.causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["data[a.b]", "metadata.labels", "data.a.b", "data", ""]);
        assert!(
            failure
                .message
                .starts_with("data[a.b]: is not valid; metadata.labels: is not valid"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn redacted_failure_still_counts_as_immutability() {
        let object = json!({ "data": { "a": "x" }, "type": "hunter2" });
        let causes = [
            (
                "FieldValueForbidden",
                "data",
                "Forbidden: field is immutable when `immutable` is set",
            ),
            (
                "FieldValueInvalid",
                "type",
                "Invalid value: \"hunter2\": field is immutable",
            ),
        ];
        let failure = rebuild_for_secret(&object, make_failure(422, "Invalid", "hunter2", &causes));
        assert!(immutable::is_only_immutability(&failure), "{failure:?}");
    }

    #[test]
    fn missing_right_is_repeated_and_webhook_message_is_not() {
        let words = "secrets \"s\" is forbidden: User \"system:serviceaccount:team:default\" cannot patch resource \"secrets\" in API group \"\" in the namespace \"team\"";
        let failure = rebuild_for_secret(
            &json!({}),
            make_failure(403, "Forbidden", &format!("{words}: hunter2"), &[]),
        );
        assert_eq!(failure.message, words);
        let webhook = "admission webhook \"w\" denied the request: hunter2";
        let failure = rebuild_for_secret(&json!({}), make_failure(403, "Forbidden", webhook, &[]));
        assert_eq!(failure.message, NOT_REPEATED);
    }

    #[test]
    fn failures_of_objects_rendered_from_a_secret_are_redacted() {
        let id: ObjectId = "team_d_apps_Deployment".parse().unwrap();
        let object = json!({ "spec": { "containers": [{ "env": [{ "name": "A", "value": VALUE }] }] } });
        let causes = [(
            "FieldValueInvalid",
            "spec.containers[0].env[0].value",
            "Invalid value: \"hunter2\"",
        )];
        let request = Request {
            id: &id,
            identity: &make_account(),
            object: Some(&object),
        };
        let failure = rebuild_failure(make_failure(422, "Invalid", "hunter2", &causes), request);
        assert!(!format!("{failure:?}").contains(VALUE), "{failure:?}");
        assert!(
            failure
                .message
                .starts_with("spec.containers[0].env[0].value: is not valid; "),
            "{}",
            failure.message
        );
    }

    #[test]
    fn own_failure_message_is_kept() {
        let failure = rebuild_for_secret(
            &json!({}),
            make_failure(0, "Unreachable", "the API server can't be reached", &[]),
        );
        assert_eq!(failure.message, "the API server can't be reached");
    }
}
