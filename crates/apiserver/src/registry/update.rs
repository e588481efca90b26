//! Changes of an object: one loop for PUT, every patch and apply. The loop computes outside of any lock. It writes
//! only if the stored object has not changed since the computation began.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_kinds::kind::Shared;
use tenure_store::{Change, Entry, Expect, Write, WriteError};

use super::create::{Verb, refuse_invalid};
use super::owner_references::{self, CheckTime};
use super::state::storage_error;
use super::{Answer, ObjectExt, Operation, Outcome, RACE_ATTEMPTS, Registry};
use crate::admission::Attributes;
use crate::contents::is_verbatim;
use crate::http::{ApiError, FieldError};
use crate::kind_properties;
use crate::stored::{encode, encode_within};
use crate::view::View;

impl Registry {
    /// Replaces an object by the object that a client sent.
    ///
    /// # Errors
    /// As Kubernetes: 404 if the object is missing, 409 if the sent resourceVersion is not the current one, 422 if
    /// the object is invalid.
    pub async fn update(&self, op: &Operation, name: &str, mut object: Value) -> Result<Outcome, ApiError> {
        super::create::check_namespace(op, &mut object)?;
        check_name(&object, name)?;
        owner_references::deduplicate_owners(op, &mut object, CheckTime::Sent);
        op.resource.normalize(&mut object);
        kind_properties::set_defaults(&op.resource, &mut object);
        let sent = object.wanted_version().to_owned();
        self.change_object(op, name, |live| {
            let Some(live) = live else {
                if !op.resource.behavior.is_created_by_update
                    || op.subresource.as_deref().is_some_and(|name| name != "status")
                {
                    return Err(ApiError::not_found(&op.resource, name));
                }
                // The sent UID names a deleted object; a new object would be another one than the writer means.
                check_precondition(op, name, "UID", object.uid(), "")?;
                check_version(object.resource_version())?;
                return Ok(self.manage_fields(op, None, object.clone()));
            };
            check_uid(op, name, live, &object)?;
            if sent.is_empty() {
                require_version(op, name)?;
            }
            check_version(object.resource_version())?;
            if !sent.is_empty() && sent != live.resource_version() {
                return Err(ApiError::modified(&op.resource, name));
            }
            Ok(self.update_managed_fields(op, live, object.clone()))
        })
        .await
    }

    /// Updates managedFields, and restores them from the live object if this endpoint does not write them.
    pub(super) fn update_managed_fields(&self, op: &Operation, live: &Value, new: Value) -> Value {
        let (resource, subresource) = (&op.resource, op.subresource.as_deref());
        if resource.settles_owners_first(subresource) {
            return resource.reset_fields(subresource, live, self.manage_fields(op, Some(live), new));
        }
        self.manage_fields(op, Some(live), resource.reset_fields(subresource, live, new))
    }

    /// Computes a new object from the live one and stores it. Retries if the live object changed meanwhile. If there
    /// is no live object, creates the result of `compute`.
    pub(crate) async fn change_object<C: Into<Computed>>(
        &self,
        op: &Operation,
        name: &str,
        compute: impl Fn(Option<&Value>) -> Result<C, ApiError>,
    ) -> Result<Outcome, ApiError> {
        let key = op.key(name);
        for _ in 0..RACE_ATTEMPTS {
            op.conversions.forget();
            let snapshot = self.store().snapshot();
            let Some(entry) = snapshot.get(&key) else {
                let mut new = match self.contents().with_conversions(op, || compute(None)).await?.into() {
                    Computed::New(new) => new,
                    Computed::Unchanged => return Err(ApiError::not_found(&op.resource, name)),
                };
                if !op.dry_run {
                    // The object that the request read was deleted, so the sent version no longer applies.
                    new.remove_meta("resourceVersion");
                }
                match self.insert(op, new, Verb::Change).await {
                    // Another client created the object after the read: handle this request as a change.
                    Err(error) if error.reason == "AlreadyExists" => continue,
                    other => return other,
                }
            };
            let live = self.present(op, entry).await?;
            let computed = self
                .contents()
                .with_conversions(op, || compute(Some(&live)))
                .await?
                .into();
            let goes_with_next_write = live.is_deleting() && op.resource.is_finalized(&live);
            let new = match &computed {
                Computed::New(new) => new,
                Computed::Unchanged => &live,
            };
            let attributes = Attributes::update(op, &live);
            let mut admitted = self.admission().mutate(&attributes, new.clone()).await?;
            owner_references::deduplicate_owners(op, &mut admitted, CheckTime::Admitted);
            if admitted != *new {
                // Admission may change only fields that the request may change.
                admitted = op.resource.reset_fields(op.subresource.as_deref(), &live, admitted);
            } else if matches!(computed, Computed::Unchanged)
                && op.resource.behavior.shares == Shared::Nothing
                && !live.has_empty_metadata()
                && !goes_with_next_write
            {
                op.prepare_for_storage(&live, &mut admitted, &self.view(), self.now());
                if admitted == live {
                    // The object stays unchanged, so it is neither validated nor stored.
                    let _charged = self.admit(&attributes, &live, true).await?;
                    return Ok(answer_unchanged(op, entry, live));
                }
                admitted = live.clone();
            }
            match self.replace_stored(op, name, entry, &live, admitted).await {
                Err(ReplaceError::Raced) => {}
                Err(ReplaceError::Error(error)) => return Err(error),
                Ok(Replaced::Unchanged) => return Ok(answer_unchanged(op, entry, live)),
                Ok(Replaced::By(answer)) => return Ok(Outcome { answer, created: false }),
            }
        }
        Err(ApiError::modified(&op.resource, name))
    }

    /// Admits, validates and stores the replacement of a live object.
    async fn replace_stored(
        &self,
        op: &Operation,
        name: &str,
        entry: &Entry,
        live: &Value,
        new: Value,
    ) -> Result<Replaced, ReplaceError> {
        let resource = &op.resource;
        let mut turn = self.allocation_turn(resource).await;
        let view = self.view();
        let now = self.now();
        let Replacement { new, as_made, is_same } = self.prepare_replacement(op, live, new, (&view, now));
        if !is_same {
            refuse_invalid(op, name, &new, self.check_replacement(op, live, &new, (&view, now)))?;
        }
        // A write without a change also gets warnings. Warnings are about the spec, so a status write gets none.
        if op.subresource.as_deref() != Some("status") {
            (resource.behavior.warnings)(&new, Some(live))
                .into_iter()
                .for_each(|text| op.warn(text));
        }
        let attributes = Attributes::update(op, live);
        let gives_way = turn.is_some() && self.admission().waits_for_others(&attributes);
        if gives_way {
            turn = None;
        }
        let charge = self.admit(&attributes, &new, turn.is_none()).await?;
        // A terminating object without finalizers is deleted by the next write, even by one without a change.
        let goes = new.is_deleting() && resource.is_finalized(&new);
        if is_same && !goes {
            return Ok(Replaced::Unchanged);
        }
        if gives_way {
            turn = self.allocation_turn(resource).await;
            let view = self.view();
            let mut again = new.clone();
            op.prepare_for_storage(live, &mut again, &view, now);
            if again != new || !op.check_update(live, &again, &view, now).is_empty() {
                charge.refund(self).await;
                return Err(ReplaceError::Raced);
            }
        }
        if op.dry_run {
            let stored = self.contents().for_storage(new, resource).await?;
            let object = self.contents().present_object(stored, resource).await?;
            return Ok(Replaced::By(Answer::Object(object)));
        }
        let stored = self.store_replacement(op, name, entry, live, (&new, goes)).await;
        drop(turn);
        match stored {
            // The answer to a write that removes the last finalizer is the object in its computed form, because the
            // object is no longer stored.
            Ok(_) if goes => Ok(Replaced::By(Answer::Object(as_made.unwrap_or(new)))),
            Ok(entry) => Ok(Replaced::By(Answer::Stored(entry))),
            Err(refusal) => {
                charge.refund(self).await;
                Err(refusal)
            }
        }
    }

    /// Brings the replacement of the live object into the form in which it is stored.
    fn prepare_replacement(
        &self,
        op: &Operation,
        live: &Value,
        mut new: Value,
        (view, now): (&View, Timestamp),
    ) -> Replacement {
        let resource = &op.resource;
        keep_system_fields(live, &mut new);
        if !resource.namespaced {
            new.remove_meta("namespace");
        }
        op.prepare_update(live, &mut new, view, now);
        let mut as_made = (new.is_deleting() && resource.is_finalized(&new)).then(|| new.clone());
        resource.write_nulls(&mut new, true);
        let is_same = differs_only_in_times(live, &new);
        if !is_same {
            resource.bump_generation(op.subresource.as_deref(), live, &mut new);
            if let (Some(made), Some(generation)) = (&mut as_made, new.pointer("/metadata/generation")) {
                made.set_meta("generation", generation.clone());
            }
        }
        Replacement { new, as_made, is_same }
    }

    /// Returns the faults of a replacement of the live object.
    fn check_replacement(
        &self,
        op: &Operation,
        live: &Value,
        new: &Value,
        (view, now): (&View, Timestamp),
    ) -> Vec<FieldError> {
        let behavior = &op.resource.behavior;
        let mut allocated = op.check_update(live, new, view, now);
        let mut errors = Vec::new();
        if allocated.is_empty() || behavior.shares != Shared::Allocated {
            errors = kind_properties::validate_update(op, live, new);
        }
        errors.append(&mut allocated);
        if errors.is_empty() {
            let check = behavior.check_rights;
            errors = Attributes::update(op, live).ask_kind(self.contents(), view, |admitted| check(admitted, new));
        }
        errors
    }

    /// Stores the replacement in place of the entry from which it was computed, or deletes that entry.
    async fn store_replacement(
        &self,
        op: &Operation,
        name: &str,
        entry: &Entry,
        live: &Value,
        (new, goes): (&Value, bool),
    ) -> Result<Arc<Entry>, ReplaceError> {
        let resource = &op.resource;
        // Watchers see a deleted object in its last stored form.
        let last = if goes { live } else { new };
        let stored = self.contents().for_storage(last.clone(), resource).await?;
        let change = if goes {
            Change::Delete(encode(&stored)?)
        } else {
            Change::Put(encode_within(&stored, entry.bytes.len())?)
        };
        let write = Write {
            key: op.key(name).into(),
            expect: Expect::Revision(entry.revision),
            change,
            // The removal of a finalizer from a deleted object frees capacity.
            frees: new.is_deleting() && new.finalizers().len() < live.finalizers().len(),
        };
        self.commit(resource, write).await.map_err(|error| match error {
            WriteError::Conflict { .. } => ReplaceError::Raced,
            error => ReplaceError::Error(storage_error(&error)),
        })
    }
}

/// The replacement of a live object, in the form that will be stored.
struct Replacement {
    new: Value,
    /// The object as it was computed. The answer to a write that deletes the object has this form, and not the form
    /// of a read.
    as_made: Option<Value>,
    /// Whether the replacement differs from the live object only in times.
    is_same: bool,
}

/// Checks that an object has the name in the URL.
pub(super) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    match object.name() {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        same if same == name => Ok(()),
        other => Err(ApiError::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Refuses a write without a resourceVersion for kinds that need one.
pub(super) fn require_version(op: &Operation, name: &str) -> Result<(), ApiError> {
    let resource = &op.resource;
    if !resource.behavior.needs_resource_version {
        return Ok(());
    }
    let fault = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
    // The error names the resource, unlike other faults of an object.
    Err(ApiError::invalid(&resource.group, &resource.plural, name, &[fault]))
}

/// Checks that a version is a number. Kubernetes reports any other text as a server error.
pub(super) fn check_version(version: &str) -> Result<(), ApiError> {
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(ApiError::new(
        500,
        "",
        format!("strconv.ParseUint: parsing {version:?}: invalid syntax"),
    ))
}

/// The object that a request computes from the live one.
pub(crate) enum Computed {
    /// The request changes nothing.
    Unchanged,
    /// The new object, which may equal the live one.
    New(Value),
}

impl From<Value> for Computed {
    fn from(new: Value) -> Self {
        Self::New(new)
    }
}

/// The result of a successful replacement.
enum Replaced {
    /// The object was replaced or deleted; in a dry run, nothing was stored.
    By(Answer),
    /// The replacement equals the live object, so nothing was written.
    Unchanged,
}

/// Returns the answer to a request that changed nothing.
fn answer_unchanged(op: &Operation, entry: &Arc<Entry>, live: Value) -> Outcome {
    let answer = if is_verbatim(&op.resource) {
        Answer::Stored(entry.clone())
    } else {
        Answer::Object(live)
    };
    Outcome { answer, created: false }
}

/// The reason why a replacement was not stored.
enum ReplaceError {
    /// The request lost against another write, and is computed again.
    Raced,
    /// The request ends with this error.
    Error(ApiError),
}

impl From<ApiError> for ReplaceError {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

pub(super) fn check_uid(op: &Operation, name: &str, live: &Value, new: &Value) -> Result<(), ApiError> {
    check_precondition(op, name, "UID", new.uid(), live.uid())
}

/// Refuses a write whose UID or version differs from the live object's.
pub(super) fn check_precondition(
    op: &Operation,
    name: &str,
    what: &str,
    sent: &str,
    live: &str,
) -> Result<(), ApiError> {
    if sent.is_empty() || sent == live {
        return Ok(());
    }
    Err(make_precondition_error(op, name, what, sent, live))
}

/// Returns the error of a write whose precondition failed in the store.
pub(super) fn make_precondition_error(op: &Operation, name: &str, what: &str, sent: &str, live: &str) -> ApiError {
    ApiError::conflict(
        &op.resource,
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {sent}, {what} in object meta: {live}",
            key_in_etcd(op, name),
        ),
    )
}

/// Returns the key that the object would have in etcd, which Kubernetes names in some errors. A dry run does not
/// reach etcd, so its key has no root.
fn key_in_etcd(op: &Operation, name: &str) -> String {
    let resource = &op.resource;
    let root = if op.dry_run { "" } else { "/registry" };
    let kept_as = match resource.behavior.etcd_folder {
        Some(folder) => folder.to_owned(),
        None if resource.is_custom() => format!("{}/{}", resource.group, resource.plural),
        None => resource.plural.clone(),
    };
    match &op.namespace {
        Some(namespace) => format!("{root}/{kept_as}/{namespace}/{name}"),
        None => format!("{root}/{kept_as}/{name}"),
    }
}

/// Copies the fields that only the server writes from the live object.
fn keep_system_fields(live: &Value, new: &mut Value) {
    let sent = |new: &Value, key: &str| {
        let value = new.metadata().and_then(|metadata| metadata.get(key));
        value.is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
    };
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
        "selfLink",
    ] {
        let kept = live.metadata().and_then(|metadata| metadata.get(key));
        // Fields that no request may change stay as sent, so that validation refuses them.
        let refused = match key {
            "uid" | "deletionGracePeriodSeconds" => sent(new, key),
            "deletionTimestamp" => kept.is_none() && sent(new, key),
            _ => false,
        };
        match kept {
            _ if refused => {}
            Some(value) => new.set_meta(key, value.clone()),
            None => {
                new.remove_meta(key);
            }
        }
    }
    new.drop_empty_metadata();
}

/// Checks whether two objects differ only in the times in managedFields. Such a difference is no reason to write.
pub(crate) fn differs_only_in_times(live: &Value, new: &Value) -> bool {
    if live == new {
        return true;
    }
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(Value::Array(entries)) = object
            .metadata_mut()
            .and_then(|metadata| metadata.get_mut("managedFields"))
        {
            for entry in entries {
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("time");
                }
            }
        }
        object
    };
    timeless(live) == timeless(new)
}
