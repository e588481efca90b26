//! Deleting: preconditions, finalizers, propagation; what is left until the last finalizer goes.

use serde_json::{Value, json};
use tenure_kinds::schema::found;
use tenure_store::{Change, Expect, Write, WriteError};

use super::kinds;
use super::state::storage_error;
use super::timestamp;
use super::{ObjectExt, Operation, RACE_ATTEMPTS, Registry};
use crate::admission;
use crate::admission::Attributes;
use crate::catalog::Resource;
use crate::http::{ApiError, FieldError};
use crate::stored::{decode_stored, encode};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// What a deletion asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub resource_version: Option<String>,
    /// What happens to dependents: `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// Seconds; kept for kinds that end gracefully.
    pub grace_period_seconds: Option<i64>,
    /// Whether nothing may be deleted.
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
                    found(odd)
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
            return Err(invalid(&[FieldError::not_supported("dryRun", dry_run, &["All"])]));
        }
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        Ok(Self {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            propagation_policy: Self::one_policy(text("/propagationPolicy"), orphan)?,
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// The fields, how messages name them, and their types in Go, which messages name too.
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

    /// What happens to dependents, of the two ways to say it.
    pub(crate) fn one_policy(policy: Option<String>, orphan: Option<bool>) -> Result<Option<String>, ApiError> {
        match (policy, orphan) {
            (Some(policy), Some(_)) => {
                let twice = FieldError::invalid(
                    "propagationPolicy",
                    policy.as_str(),
                    "orphanDependents and deletionPropagation cannot be both set",
                );
                let faults: Vec<FieldError> = std::iter::once(twice).chain(unknown_policy(Some(&policy))).collect();
                Err(invalid(&faults))
            }
            (None, Some(orphan)) => Ok(Some(if orphan { "Orphan" } else { "Background" }.to_owned())),
            (policy, None) => Ok(policy),
        }
    }

    /// Refuses values that mean nothing.
    pub(crate) fn validate(&self) -> Result<(), ApiError> {
        let unknown = unknown_policy(self.propagation_policy.as_deref());
        unknown.map_or(Ok(()), |fault| Err(invalid(&[fault])))
    }

    /// The finalizers after this deletion's wish for the dependents.
    fn finalizers(&self, resource: &Resource, live: &Value) -> Vec<String> {
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

fn invalid(faults: &[FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", faults)
}

/// What became of the object.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// It is gone; this was it.
    Gone(Value),
    /// It waits for its finalizers.
    Waiting(Value),
}

impl Registry {
    /// Deletes an object, or marks it if finalizers hold it.
    ///
    /// # Errors
    /// 404 if there is none, 409 if a precondition does not hold, 403 if admission refuses.
    pub async fn delete(&self, op: &Operation, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        warn_of_children(op, options);
        self.delete_asked(op, name, name, options).await
    }

    /// The same for a request that names the object as `asked`, or not at all.
    pub(super) async fn delete_asked(
        &self,
        op: &Operation,
        name: &str,
        asked: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        options.validate()?;
        let resource = &op.resource;
        let key = op.key(name);
        for _ in 0..RACE_ATTEMPTS {
            let snapshot = self.store().snapshot();
            let entry = snapshot.get(&key).ok_or_else(|| ApiError::not_found(resource, name))?;
            let live = self.present(op, entry).await?;
            check_preconditions(op, name, options, &live)?;
            let attributes = Attributes::delete(op, asked, &live, options);
            let charge = admission::admit_delete(self, &attributes).await?;
            if live.is_deleting() && resource.waits_for_content(&live) {
                return Ok(Deleted::Waiting(live));
            }
            let finalizers = options.finalizers(resource, &live);
            let mut new = live.clone();
            if finalizers.is_empty() {
                new.remove_meta("finalizers");
            } else {
                new.set_meta("finalizers", Value::from(finalizers));
            }
            if !live.is_deleting() {
                new.set_meta("deletionTimestamp", Value::from(timestamp(self.now())));
                new.set_meta("deletionGracePeriodSeconds", json!(0));
                if let Some(generation) = live.metadata().and_then(|metadata| metadata.get("generation")) {
                    new.set_meta("generation", json!(generation.as_i64().unwrap_or_default() + 1));
                }
                (resource.behavior.prepare_delete)(&mut new, self.now());
            } else if !new.finalizers().is_empty() && !has_grace_period(&live) {
                // It was created so.
                new.set_meta("deletionGracePeriodSeconds", json!(0));
            }
            let gone = resource.is_finalized(&new);
            // Kubernetes takes the finalizers away first, and what it then holds in its hands is an empty object. That is
            // what a dry run answers, and what the version of a precondition is compared with.
            let loses_finalizers = gone && !live.finalizers().is_empty();
            if loses_finalizers && (op.dry_run || options.dry_run) {
                return Ok(Deleted::Waiting(kinds::empty(op)?));
            }
            if loses_finalizers && options.resource_version.is_some() {
                let version = live.resource_version();
                return Err(super::update::overtaken(op, name, "ResourceVersion", "", version));
            }
            if new == live && !gone {
                return Ok(Deleted::Waiting(live));
            }
            if op.dry_run || options.dry_run {
                return Ok(if gone {
                    Deleted::Gone(live)
                } else {
                    Deleted::Waiting(new)
                });
            }
            let change = if gone {
                // What goes at once was never seen as deleting; and nobody need be asked for what is stored already.
                Change::Delete(encode(&match resource.webhook() {
                    Some(_) => decode_stored(entry)?,
                    None => self.for_storage(live.clone(), resource).await?,
                })?)
            } else {
                Change::Put(encode(&self.for_storage(new, resource).await?)?)
            };
            let write = Write {
                key: key.clone().into(),
                expect: Expect::Revision(entry.revision),
                change,
                frees: true,
            };
            let committed = self.commit(resource, write).await;
            drop(charge);
            match committed {
                Ok(entry) if gone && resource.behavior.is_answered_when_deleted => {
                    let mut deleted = live;
                    deleted.set_meta("resourceVersion", Value::from(entry.revision.to_string()));
                    return Ok(Deleted::Gone(deleted));
                }
                Ok(_) if gone => return Ok(Deleted::Gone(live)),
                Ok(entry) => {
                    return Ok(Deleted::Waiting(self.present(op, &entry).await?));
                }
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(storage_error(&error)),
            }
        }
        Err(ApiError::modified(resource, name))
    }
}

fn has_grace_period(object: &Value) -> bool {
    let metadata = object.metadata();
    metadata.is_some_and(|metadata| metadata.contains_key("deletionGracePeriodSeconds"))
}

/// A Job is older than the question what becomes of its Pods, and who does not answer it is told.
pub(super) fn warn_of_children(op: &Operation, options: &DeleteOptions) {
    if let Some(warning) = op.resource.behavior.deletion_warning
        && options.propagation_policy.is_none()
    {
        op.warn(warning);
    }
}

pub(super) fn check_preconditions(
    op: &Operation,
    name: &str,
    options: &DeleteOptions,
    live: &Value,
) -> Result<(), ApiError> {
    let kind = &op.resource.kind;
    let qualified = match op.resource.group.as_str() {
        "" => kind.clone(),
        group => format!("{kind}.{group}"),
    };
    let failed = |why: String| {
        let mut error = ApiError::conflict(&op.resource, name, "");
        // A broken precondition names the kind, not the resource.
        error.details.insert("kind".to_owned(), Value::from(kind.as_str()));
        error.message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        error
    };
    if op.resource.behavior.holds_objects {
        // They have words of their own.
        let wanted = [
            ("UID", options.uid.as_deref(), live.uid()),
            (
                "ResourceVersion",
                options.resource_version.as_deref(),
                live.resource_version(),
            ),
        ];
        for (what, sent, found) in wanted {
            if let Some(sent) = sent.filter(|sent| *sent != found) {
                let why =
                    format!("Precondition failed: {what} in precondition: {sent}, {what} in object meta: {found}");
                return Err(ApiError::conflict(&op.resource, name, &why));
            }
        }
        return Ok(());
    }
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != live.uid()) {
        return Err(failed(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            live.uid()
        )));
    }
    if let Some(version) = options
        .resource_version
        .as_deref()
        .filter(|version| *version != live.resource_version())
    {
        return Err(failed(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            live.resource_version()
        )));
    }
    Ok(())
}
