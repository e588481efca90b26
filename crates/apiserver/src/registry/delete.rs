//! Deletion: preconditions, finalizers and propagation, and the object that remains until its last finalizer is
//! removed.

use serde_json::{Value, json};
use tenure_store::{Change, Expect, Write, WriteError};

use super::format_timestamp;
use super::state::storage_error;
use super::{DeleteOptions, ObjectExt, Operation, RACE_ATTEMPTS, Registry};
use crate::admission::Attributes;
use crate::http::ApiError;
use crate::kind_properties;
use crate::stored::{decode_stored, encode};

/// The result of a deletion request: the object is gone, or waits for its finalizers.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object was deleted; this is its last state.
    Gone(Value),
    /// The object waits for its finalizers.
    Waiting(Value),
}

impl Registry {
    /// Deletes an object, or marks it as deleted if it has finalizers.
    ///
    /// # Errors
    /// 404 if it is missing, 409 if a precondition does not hold, 403 if admission refuses.
    pub async fn delete(&self, op: &Operation, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        warn_of_remaining_pods(op, options);
        self.delete_asked(op, name, name, options).await
    }

    /// Deletes an object for a request that names it as `asked`, or not at all.
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
            self.admission().admit_delete(&attributes).await?;
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
                new.set_meta("deletionTimestamp", Value::from(format_timestamp(self.now())));
                new.set_meta("deletionGracePeriodSeconds", json!(0));
                if let Some(generation) = live.metadata().and_then(|metadata| metadata.get("generation")) {
                    new.set_meta("generation", json!(generation.as_i64().unwrap_or_default() + 1));
                }
                (resource.behavior.prepare_delete)(&mut new, self.now());
            } else if !new.finalizers().is_empty() && !has_grace_period(&live) {
                // The object was created with this value.
                new.set_meta("deletionGracePeriodSeconds", json!(0));
            }
            let gone = resource.is_finalized(&new);
            // Kubernetes first removes the finalizers, and then works with an empty object. A dry run answers with
            // that object, and a precondition compares with its version.
            let loses_finalizers = gone && !live.finalizers().is_empty();
            if loses_finalizers && (op.dry_run || options.dry_run) {
                return Ok(Deleted::Waiting(kind_properties::make_empty_object(op)?));
            }
            if loses_finalizers && options.resource_version.is_some() {
                let version = live.resource_version();
                return Err(super::update::make_precondition_error(
                    op,
                    name,
                    "ResourceVersion",
                    "",
                    version,
                ));
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
                // Watchers never saw this object as deleting, so its stored form is used. With a webhook, the stored
                // form needs no conversion.
                Change::Delete(encode(&match resource.webhook() {
                    Some(_) => decode_stored(entry)?,
                    None => self.contents().for_storage(live.clone(), resource).await?,
                })?)
            } else {
                Change::Put(encode(&self.contents().for_storage(new, resource).await?)?)
            };
            let write = Write {
                key: key.clone().into(),
                expect: Expect::Revision(entry.revision),
                change,
                frees: true,
            };
            let committed = self.commit(resource, write).await;
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

/// Warns a client that deletes a Job without a propagation policy: the old default leaves the Job's Pods.
pub(super) fn warn_of_remaining_pods(op: &Operation, options: &DeleteOptions) {
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
        // The error of a failed precondition names the kind, not the resource.
        error.details.insert("kind".to_owned(), Value::from(kind.as_str()));
        error.message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        error
    };
    if op.resource.behavior.holds_objects {
        // These preconditions have their own messages.
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
