//! The check whether a change is refused only because fields are immutable: then, and only then, a re-created object would be accepted.
//!
//! Kubernetes has no type of cause for this, so this module knows the words of its validators. They stand at the end of a cause's message, after the quoted value, or
//! at its beginning if a comparison follows. No other text is searched: a typo, a quota, a conflict or a webhook that mentions immutability is no reason to delete
//! anything.

use crate::answer::{Cause, CauseKind, Failure, Reason};

/// The ends of causes about immutable fields. Authors of CustomResourceDefinitions also write `is immutable`.
const ENDS: [&str; 12] = [
    "is immutable",
    "field is immutable when `immutable` is set",
    "field is immutable, except for updating from beta label to GA",
    "may not change once set",
    "can not be unset",
    "cannot change roleRef",
    "may not be changed in an update",
    "field cannot be set once created",
    "field cannot be cleared once set",
    "field cannot be modified once set",
    "is immutable after creation",
    // The message of a transition rule that has none of its own.
    "failed rule: self == oldSelf",
];

/// The beginnings of causes about immutable fields that continue with the difference.
const BEGINNINGS: [&str; 3] = [
    "Forbidden: updates to statefulset spec for fields other than ",
    "Forbidden: pod updates may not change fields other than ",
    "Forbidden: spec is immutable after creation except ",
];

/// The text for a cause about an immutable field that quotes no value.
pub(crate) const PLAIN: &str = "field is immutable";

/// Checks whether a refusal has causes, and every one is about an immutable field.
pub(crate) fn is_only_immutability(failure: &Failure) -> bool {
    failure.code == 422
        && failure.reason == Reason::Invalid
        && !failure.causes.is_empty()
        && failure.causes.iter().all(is_immutability)
}

/// Checks whether a cause is about an immutable field.
pub(crate) fn is_immutability(cause: &Cause) -> bool {
    if !matches!(cause.kind, CauseKind::Invalid | CauseKind::Forbidden) {
        return false;
    }
    let message = cause.message.trim_end().trim_end_matches('.');
    let update = message
        .strip_prefix("Forbidden: updates to ")
        .and_then(|rest| rest.strip_suffix(" are forbidden"))
        .is_some_and(|field| field.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    update
        || BEGINNINGS.iter().any(|beginning| message.starts_with(beginning))
        // A quoted value ends with its quote or bracket, so the text of a value is never taken for the validator's words.
        || ENDS.iter().any(|end| message.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_refusal(causes: &[(&str, &str)]) -> Failure {
        Failure {
            code: 422,
            reason: Reason::Invalid,
            causes: causes
                .iter()
                .map(|(kind, message)| Cause {
                    kind: CauseKind::from(*kind),
                    field: "spec.a".to_owned(),
                    message: (*message).to_owned(),
                })
                .collect(),
            ..Failure::default()
        }
    }

    /// Answers of kube-apiserver 1.36.
    #[test]
    fn validator_messages_about_immutable_fields_are_recognized() {
        for (kind, message) in [
            // Deployment selector, Job selector, RoleRef, Service.
            (
                "FieldValueInvalid",
                r#"Invalid value: {"matchLabels":{"app":"b"}}: field is immutable"#,
            ),
            (
                "FieldValueInvalid",
                r#"Invalid value: {"metadata":{},"spec":{}}: field is immutable"#,
            ),
            (
                "FieldValueInvalid",
                r#"Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: cannot change roleRef"#,
            ),
            (
                "FieldValueInvalid",
                r#"Invalid value: ["10.96.0.9"]: may not change once set"#,
            ),
            (
                "FieldValueInvalid",
                "Invalid value: null: primary clusterIP can not be unset",
            ),
            // Secret and ConfigMap, StorageClass, PriorityClass.
            (
                "FieldValueForbidden",
                "Forbidden: field is immutable when `immutable` is set",
            ),
            ("FieldValueForbidden", "Forbidden: updates to parameters are forbidden."),
            ("FieldValueForbidden", "Forbidden: may not be changed in an update."),
            // StatefulSet, Pod, PersistentVolumeClaim, PersistentVolume.
            (
                "FieldValueForbidden",
                "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: pod updates may not change fields other than `spec.containers[*].image`\n  any(\n",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n@@ -1 +1 @@",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: spec.persistentvolumesource is immutable after creation",
            ),
            // Declared with markers or with CEL.
            (
                "FieldValueInvalid",
                "Invalid value: null: field cannot be modified once set",
            ),
            ("FieldValueInvalid", r#"Invalid value: "object": Value is immutable"#),
            (
                "FieldValueInvalid",
                r#"Invalid value: "string": failed rule: self == oldSelf"#,
            ),
        ] {
            assert!(is_only_immutability(&make_refusal(&[(kind, message)])), "{message}");
        }
    }

    #[test]
    fn other_failures_cause_no_recreation() {
        for (kind, message) in [
            // Typos and invalid values, also those that contain the words.
            (
                "FieldValueInvalid",
                "Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            ("FieldValueInvalid", r#"Invalid value: "field is immutable""#),
            (
                "FieldValueInvalid",
                r#"Invalid value: "field is immutable": must be a valid label"#,
            ),
            ("FieldValueNotSupported", r#"Unsupported value: "is immutable""#),
            ("FieldValueRequired", "Required value: field is immutable"),
            (
                "FieldValueForbidden",
                "Forbidden: updates to a and b are forbidden for this user",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: field can not be less than status.capacity",
            ),
            ("FieldValueTypeInvalid", "Invalid value: field is immutable"),
            // A webhook or a policy: it names no type.
            ("", "field is immutable"),
        ] {
            assert!(!is_only_immutability(&make_refusal(&[(kind, message)])), "{message}");
        }
        let immutable = ("FieldValueInvalid", "Invalid value: 1: field is immutable");
        let typo = ("FieldValueInvalid", "Invalid value: 1: must be less than 1");
        assert!(
            !is_only_immutability(&make_refusal(&[immutable, typo])),
            "one cause of two"
        );
        assert!(!is_only_immutability(&make_refusal(&[])), "no causes");
        let conflict = Failure {
            code: 409,
            reason: Reason::Conflict,
            ..make_refusal(&[immutable])
        };
        assert!(!is_only_immutability(&conflict));
        let webhook = Failure {
            code: 400,
            reason: Reason::BadRequest,
            ..make_refusal(&[immutable])
        };
        assert!(!is_only_immutability(&webhook));
    }
}
