//! The options of a deletion: parsing from a body or a URL, and their effect on an object's finalizers.

use serde_json::Value;
use tenure_kinds::kind::Resource;
use tenure_kinds::object::ObjectExt as _;
use tenure_kinds::schema::json_type_name;

use crate::http::{ApiError, FieldError};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The UID that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub resource_version: Option<String>,
    /// The handling of dependents: `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// Seconds; used by kinds with a graceful deletion.
    pub grace_period_seconds: Option<i64>,
    /// Whether the deletion is a dry run.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads a DeleteOptions object.
    pub(crate) fn from_value(value: &Value) -> Result<Self, ApiError> {
        for (pointer, field, wanted) in Self::TYPES {
            let is_right = |value: &Value| match wanted {
                "int64" => value.is_i64(),
                "bool" => value.is_boolean(),
                "[]string" => value.is_array(),
                _ => value.is_string(),
            };
            if let Some(odd) = value
                .pointer(pointer)
                .filter(|value| !value.is_null() && !is_right(value))
            {
                return Err(ApiError::bad_request(format!(
                    "json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
                    json_type_name(odd)
                )));
            }
        }
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry_run: Vec<&str> = value
            .get("dryRun")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if dry_run.iter().any(|stage| *stage != "All") {
            return Err(invalid_options(&[FieldError::not_supported(
                "dryRun",
                dry_run,
                &["All"],
            )]));
        }
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        Ok(Self {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            propagation_policy: Self::merge_policies(text("/propagationPolicy"), orphan)?,
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// The fields, and their names and Go types in messages.
    const TYPES: [(&str, &str, &str); 6] = [
        ("/preconditions/uid", "Preconditions.preconditions.uid", "types.UID"),
        (
            "/preconditions/resourceVersion",
            "Preconditions.preconditions.resourceVersion",
            "string",
        ),
        (
            "/propagationPolicy",
            "DeleteOptions.propagationPolicy",
            "v1.DeletionPropagation",
        ),
        ("/gracePeriodSeconds", "DeleteOptions.gracePeriodSeconds", "int64"),
        ("/orphanDependents", "DeleteOptions.orphanDependents", "bool"),
        ("/dryRun", "DeleteOptions.dryRun", "[]string"),
    ];

    /// Returns the propagation policy from its two possible fields.
    pub(crate) fn merge_policies(policy: Option<String>, orphan: Option<bool>) -> Result<Option<String>, ApiError> {
        match (policy, orphan) {
            (Some(policy), Some(_)) => {
                let twice = FieldError::invalid(
                    "propagationPolicy",
                    policy.as_str(),
                    "orphanDependents and deletionPropagation cannot be both set",
                );
                let faults: Vec<FieldError> = std::iter::once(twice).chain(unknown_policy(Some(&policy))).collect();
                Err(invalid_options(&faults))
            }
            (None, Some(orphan)) => Ok(Some(if orphan { "Orphan" } else { "Background" }.to_owned())),
            (policy, None) => Ok(policy),
        }
    }

    /// Refuses invalid values.
    pub(crate) fn validate(&self) -> Result<(), ApiError> {
        let unknown = unknown_policy(self.propagation_policy.as_deref());
        unknown.map_or(Ok(()), |fault| Err(invalid_options(&[fault])))
    }

    /// Returns the finalizers after this deletion's choice for the dependents.
    pub(crate) fn finalizers(&self, resource: &Resource, live: &Value) -> Vec<String> {
        let mut finalizers: Vec<String> = live.finalizers().into_iter().map(str::to_owned).collect();
        let decided = finalizers
            .iter()
            .any(|finalizer| finalizer == ORPHAN || finalizer == FOREGROUND);
        let default = resource.behavior.default_propagation.filter(|_| !decided);
        let wanted = match self
            .propagation_policy
            .as_deref()
            .filter(|policy| !policy.is_empty())
            .or(default)
        {
            Some("Orphan") => Some(ORPHAN),
            Some("Foreground") => Some(FOREGROUND),
            Some("Background") => None,
            _ => return finalizers,
        };
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        finalizers.extend(wanted.map(str::to_owned));
        finalizers
    }
}

fn unknown_policy(policy: Option<&str>) -> Option<FieldError> {
    match policy {
        None | Some("" | "Orphan" | "Background" | "Foreground") => None,
        Some(other) => Some(FieldError::not_supported(
            "propagationPolicy",
            other,
            &["Foreground", "Background", "Orphan", "nil"],
        )),
    }
}

fn invalid_options(faults: &[FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", faults)
}
