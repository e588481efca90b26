//! Changing an object: one loop for PUT, every patch and apply. It computes outside of any lock and writes only
//! if the object is still what the computation started from.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_kinds::kind::Shared;
use tenure_store::{Change, Entry, Expect, Write, WriteError};

use super::create::{Verb, refuse};
use super::owners::{self, Moment};
use super::state::storage_error;
use super::{Answer, ObjectExt, Operation, Outcome, RACE_ATTEMPTS, Registry};
use crate::admission::Attributes;
use crate::contents::is_verbatim;
use crate::http::{ApiError, FieldError};
use crate::kinds;
use crate::stored::{encode, encode_within};
use crate::view::View;

impl Registry {
    /// Replaces an object by what a client sent.
    ///
    /// # Errors
    /// As Kubernetes: 404 if there is none, 409 if the sent resourceVersion is not the present one, 422 if it is invalid.
    pub async fn update(&self, op: &Operation, name: &str, mut object: Value) -> Result<Outcome, ApiError> {
        super::create::check_namespace(op, &mut object)?;
        check_name(&object, name)?;
        owners::keep_once(op, &mut object, Moment::Sent);
        op.resource.normalize(&mut object);
        kinds::set_defaults(&op.resource, &mut object);
        let sent = object.wanted_version().to_owned();
        self.change(op, name, |live| {
            let Some(live) = live else {
                if !op.resource.behavior.is_created_by_update
                    || op.subresource.as_deref().is_some_and(|name| name != "status")
                {
                    return Err(ApiError::not_found(&op.resource, name));
                }
                // It would be another one than the writer means.
                precondition(op, name, "UID", object.uid(), "")?;
                check_version(object.resource_version())?;
                return Ok(self.manage_fields(op, None, object.clone()));
            };
            check_uid(op, name, live, &object)?;
            if sent.is_empty() {
                needs_version(op, name)?;
            }
            check_version(object.resource_version())?;
            if !sent.is_empty() && sent != live.resource_version() {
                return Err(ApiError::modified(&op.resource, name));
            }
            Ok(self.settle(op, live, object.clone()))
        })
        .await
    }

    /// Settles the owners of fields, and puts the live object's back where this endpoint does not write.
    pub(super) fn settle(&self, op: &Operation, live: &Value, new: Value) -> Value {
        let (resource, subresource) = (&op.resource, op.subresource.as_deref());
        if resource.settles_owners_first(subresource) {
            return resource.reset_fields(subresource, live, self.manage_fields(op, Some(live), new));
        }
        self.manage_fields(op, Some(live), resource.reset_fields(subresource, live, new))
    }

    /// Computes a new object from the live one and stores it, again if the live one changed meanwhile.
    /// If there is no live object, what `compute` returns is created.
    pub(crate) async fn change<C: Into<Computed>>(
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
                    // What was to be replaced is gone, and so is its version.
                    new.remove_meta("resourceVersion");
                }
                match self.insert(op, new, Verb::Change).await {
                    // Somebody created it between the look and the write: then it is a change after all.
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
            owners::keep_once(op, &mut admitted, Moment::Admitted);
            if admitted != *new {
                // Who admits a request may change no more than the request may.
                admitted = op.resource.reset_fields(op.subresource.as_deref(), &live, admitted);
            } else if matches!(computed, Computed::Unchanged)
                && op.resource.behavior.shares == Shared::Nothing
                && !live.has_empty_metadata()
                && !goes_with_next_write
            {
                op.prepare_for_storage(&live, &mut admitted, &self.view(), self.now());
                if admitted == live {
                    // Nothing of what follows would find anything to do.
                    let _charged = self.admit(&attributes, &live, true).await?;
                    return Ok(unchanged(op, entry, live));
                }
                admitted = live.clone();
            }
            match self.replace(op, name, entry, &live, admitted).await {
                Err(Refusal::Raced) => {}
                Err(Refusal::Error(error)) => return Err(error),
                Ok(Replaced::Unchanged) => return Ok(unchanged(op, entry, live)),
                Ok(Replaced::By(answer)) => return Ok(Outcome { answer, created: false }),
            }
        }
        Err(ApiError::modified(&op.resource, name))
    }

    async fn replace(
        &self,
        op: &Operation,
        name: &str,
        entry: &Entry,
        live: &Value,
        new: Value,
    ) -> Result<Replaced, Refusal> {
        let resource = &op.resource;
        let mut turn = self.allocation_turn(resource).await;
        let view = self.view();
        let now = self.now();
        let Replacement { new, as_made, is_same } = self.prepare_replacement(op, live, new, (&view, now));
        if !is_same {
            refuse(op, name, &new, self.check_replacement(op, live, &new, (&view, now)))?;
        }
        // Also of what changes nothing; but a status is not what the user wants.
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
        // What waits for nothing any more goes with the next write, whatever that changes.
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
                return Err(Refusal::Raced);
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
            // Who removes the last finalizer gets the object as of before it went.
            Ok(_) if goes => Ok(Replaced::By(Answer::Object(as_made.unwrap_or(new)))),
            Ok(entry) => Ok(Replaced::By(Answer::Stored(entry))),
            Err(refusal) => {
                charge.refund(self).await;
                Err(refusal)
            }
        }
    }

    /// Brings what is to replace the live object into the form in which it is stored.
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
        let is_same = same_but_times(live, &new);
        if !is_same {
            resource.bump_generation(op.subresource.as_deref(), live, &mut new);
            if let (Some(made), Some(generation)) = (&mut as_made, new.pointer("/metadata/generation")) {
                made.set_meta("generation", generation.clone());
            }
        }
        Replacement { new, as_made, is_same }
    }

    /// What is wrong with what is to replace the live object.
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
            errors = kinds::validate_update(op, live, new);
        }
        errors.append(&mut allocated);
        if errors.is_empty() {
            let check = behavior.check_rights;
            errors = Attributes::update(op, live).ask(self.contents(), view, |admitted| check(admitted, new));
        }
        errors
    }

    /// Stores it in place of the entry that it was made from, or deletes that.
    async fn store_replacement(
        &self,
        op: &Operation,
        name: &str,
        entry: &Entry,
        live: &Value,
        (new, goes): (&Value, bool),
    ) -> Result<Arc<Entry>, Refusal> {
        let resource = &op.resource;
        // What goes is seen going as it was stored last.
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
            // A step towards its end.
            frees: new.is_deleting() && new.finalizers().len() < live.finalizers().len(),
        };
        self.commit(resource, write).await.map_err(|error| match error {
            WriteError::Conflict { .. } => Refusal::Raced,
            error => Refusal::Error(storage_error(&error)),
        })
    }
}

/// What is to replace a live object, as it will be stored.
struct Replacement {
    new: Value,
    /// What goes with this write is answered as it was made, and not as it would be read.
    as_made: Option<Value>,
    /// Whether it is the live object but for times.
    is_same: bool,
}

/// An object has the name that the URL says.
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

/// Some kinds are only written by who says what version is replaced.
pub(super) fn needs_version(op: &Operation, name: &str) -> Result<(), ApiError> {
    let resource = &op.resource;
    if !resource.behavior.needs_resource_version {
        return Ok(());
    }
    let fault = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
    // Named after the resource, unlike other faults of an object.
    Err(ApiError::invalid(&resource.group, &resource.plural, name, &[fault]))
}

/// A version is a number. That it is none is a fault of the server, to Kubernetes.
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

/// What a request makes of the live object.
pub(crate) enum Computed {
    /// Nothing, whatever the request wants.
    Unchanged,
    /// This, which may be the same.
    New(Value),
}

impl From<Value> for Computed {
    fn from(new: Value) -> Self {
        Self::New(new)
    }
}

enum Replaced {
    By(Answer),
    Unchanged,
}

/// The answer to who changed nothing.
fn unchanged(op: &Operation, entry: &Arc<Entry>, live: Value) -> Outcome {
    let answer = if is_verbatim(&op.resource) {
        Answer::Stored(entry.clone())
    } else {
        Answer::Object(live)
    };
    Outcome { answer, created: false }
}

enum Refusal {
    Raced,
    Error(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

pub(super) fn check_uid(op: &Operation, name: &str, live: &Value, new: &Value) -> Result<(), ApiError> {
    precondition(op, name, "UID", new.uid(), live.uid())
}

/// Refuses an object that is another one, or another version, than the writer says.
pub(super) fn precondition(op: &Operation, name: &str, what: &str, sent: &str, live: &str) -> Result<(), ApiError> {
    if sent.is_empty() || sent == live {
        return Ok(());
    }
    Err(overtaken(op, name, what, sent, live))
}

/// The refusal of a write whose precondition does not hold where it is stored.
pub(super) fn overtaken(op: &Operation, name: &str, what: &str, sent: &str, live: &str) -> ApiError {
    ApiError::conflict(
        &op.resource,
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {sent}, {what} in object meta: {live}",
            key_in_etcd(op, name),
        ),
    )
}

/// The key that an object has in etcd, which Kubernetes tells in some refusals. A dry run does not get that far.
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

/// What the server alone writes is the live object's, whatever was sent.
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
        // What nobody may change is left as sent, for validation to refuse.
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

/// Whether two objects differ in nothing but the times in managedFields: such a difference is no reason to write.
pub(crate) fn same_but_times(live: &Value, new: &Value) -> bool {
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
