//! Creating an object.

use serde_json::{Value, json};
use tenure_auth::authorization::{Attributes as Right, Authorizer as _, Refusal};
use tenure_kinds::kind::Shared;
use tenure_kinds::object::generate_name;
use tenure_store::{Change, Expect, Write, WriteError};

use super::owner_references::{self, CheckTime};
use super::state::storage_error;
use super::{Answer, ObjectExt, Operation, Outcome, Registry, format_timestamp};
use crate::admission::Attributes;
use crate::http::{ApiError, FieldError};
use crate::kind_properties;
use crate::operation::fill_randomly;
use crate::stored::{decode_stored, encode_within};

/// How often a taken generated name is replaced by another.
const NAME_ATTEMPTS: usize = 8;

/// How often an allocation is retried if another request got the value meanwhile.
const ALLOCATION_ATTEMPTS: usize = 8;

/// The verb of a request that creates an object: it decides which rights the request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// The request asks for the creation, and is authorized for it.
    Create,
    /// The request changes a missing object, and may create it only with the right to create.
    Change,
}

impl Registry {
    /// Creates an object from one that a client sent.
    ///
    /// # Errors
    /// As Kubernetes: 400 for a malformed object, 403 by admission, 409 if it exists, 422 if it is invalid.
    pub async fn create(&self, op: &Operation, mut object: Value) -> Result<Outcome, ApiError> {
        // Only the server writes these fields. An object that an update creates keeps the sent values, as in
        // Kubernetes.
        for key in [
            "creationTimestamp",
            "uid",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            object.remove_meta(key);
        }
        check_namespace(op, &mut object)?;
        owner_references::deduplicate_owners(op, &mut object, CheckTime::Sent);
        op.resource.normalize(&mut object);
        kind_properties::set_defaults(&op.resource, &mut object);
        let object = self
            .contents()
            .with_conversions(op, || self.manage_fields(op, None, object.clone()))
            .await;
        self.insert(op, object, Verb::Create).await
    }

    /// Creates an object with settled managedFields.
    pub(super) async fn insert(&self, op: &Operation, object: Value, verb: Verb) -> Result<Outcome, ApiError> {
        let name = object.name().to_owned();
        let attributes = Attributes::create(op, &name);
        let mut object = self.admission().mutate(&attributes, object).await?;
        owner_references::deduplicate_owners(op, &mut object, CheckTime::Admitted);
        let generated = object.name().is_empty() && !object.meta_str("generateName").is_empty();
        let mut attempts = if generated { NAME_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let mut candidate = object.clone();
            if generated {
                let name = generate_name(object.meta_str("generateName"), fill_randomly);
                candidate.set_meta("name", Value::from(name));
            }
            match self.insert_named(op, candidate, verb).await {
                Err(error) if error.reason == "AlreadyExists" && attempts > 0 => {}
                Err(mut error) if error.reason == "AlreadyExists" && !object.meta_str("generateName").is_empty() => {
                    // The text is added even if the object has a name, because the object also has a generateName.
                    error
                        .message
                        .push_str(", the server was not able to generate a unique name for the object");
                    error.details.insert("retryAfterSeconds".to_owned(), json!(1));
                    return Err(error);
                }
                other => return other,
            }
        }
    }

    async fn insert_named(&self, op: &Operation, mut object: Value, verb: Verb) -> Result<Outcome, ApiError> {
        let resource = &op.resource;
        let now = self.now();
        object.set_meta("uid", Value::from(uuid::Uuid::new_v4().to_string()));
        object.set_meta("creationTimestamp", Value::from(format_timestamp(now)));
        if resource.namespaced {
            object.set_meta("namespace", Value::from(op.namespace.clone().unwrap_or_default()));
        } else {
            object.remove_meta("namespace");
        }
        if resource.has_generation() {
            object.set_meta("generation", json!(1));
        }
        for _ in 0..ALLOCATION_ATTEMPTS {
            if let Some(outcome) = self.insert_prepared(op, object.clone(), verb, now).await? {
                return Ok(outcome);
            }
        }
        Err(ApiError::unavailable(format!(
            "other requests took the values that {} {:?} needs during its admission, several times; try again",
            resource.qualified_name(),
            object.name()
        )))
    }

    /// Stores a new object; `None` if another request got its allocated values while admission waited.
    async fn insert_prepared(
        &self,
        op: &Operation,
        mut object: Value,
        verb: Verb,
        now: jiff::Timestamp,
    ) -> Result<Option<Outcome>, ApiError> {
        let resource = &op.resource;
        let mut turn = self.allocation_turn(resource).await;
        let view = self.view();
        op.prepare_create(&mut object, &view, now);
        resource.write_nulls(&mut object, true);
        let mut allocated = op.check_create(&object, &view, now);
        let mut errors = Vec::new();
        if allocated.is_empty() || resource.behavior.shares != Shared::Allocated {
            errors = kind_properties::validate(resource, &object);
        }
        errors.append(&mut allocated);
        if errors.is_empty() {
            let attributes = Attributes::create(op, object.name());
            let check = resource.behavior.check_rights;
            errors = attributes.ask_kind(self.contents(), &view, |admitted| check(admitted, &object));
        }
        refuse_invalid(op, object.name(), &object, errors)?;
        (resource.behavior.warnings)(&object, None)
            .into_iter()
            .for_each(|text| op.warn(text));
        let name = object.name().to_owned();
        if verb == Verb::Change {
            self.require_creation(op, &name)?;
        }
        let key = op.key(&name);
        let attributes = Attributes::create(op, &name);
        // Admission may wait for another program. Other requests wait for the lock of allocations, so it is released
        // before.
        let gives_way = turn.is_some() && self.admission().waits_for_others(&attributes);
        if gives_way {
            turn = None;
        }
        let charge = self.admit(&attributes, &object, turn.is_none()).await?;
        if gives_way {
            turn = self.allocation_turn(resource).await;
            let view = self.view();
            let mut again = object.clone();
            op.prepare_create(&mut again, &view, now);
            resource.write_nulls(&mut again, true);
            if again != object || !op.check_create(&again, &view, now).is_empty() {
                charge.refund(self).await;
                return Ok(None);
            }
        }
        (resource.behavior.complete_created)(&mut object);
        if op.dry_run {
            if view.exists_key(&key) {
                return Err(self.already_exists(op, &name));
            }
            let stored = self.contents().for_storage(object, resource).await?;
            let object = self.contents().present_object(stored, resource).await?;
            return Ok(Some(Outcome {
                answer: Answer::Object(object),
                created: true,
            }));
        }
        // The store refuses a set resourceVersion, after all other checks.
        let sent = object.resource_version().parse::<u64>();
        let encoded = if sent.is_ok_and(|version| version > 0) {
            let why = "resourceVersion should not be set on objects to be created";
            Err(ApiError::new(500, "", why))
        } else {
            self.contents()
                .for_storage(object, resource)
                .await
                .and_then(|stored| encode_within(&stored, 0))
        };
        let payload = match encoded {
            Ok(payload) => payload,
            Err(error) => {
                charge.refund(self).await;
                return Err(error);
            }
        };
        let write = Write {
            key: key.into(),
            expect: Expect::Absent,
            change: Change::Put(payload),
            frees: false,
        };
        let committed = self.commit(resource, write).await;
        drop(turn);
        if committed.is_err() {
            charge.refund(self).await;
        }
        match committed {
            Ok(entry) => Ok(Some(Outcome {
                answer: Answer::Stored(entry),
                created: true,
            })),
            Err(WriteError::Conflict { .. }) => Err(self.already_exists(op, &name)),
            Err(error) => Err(storage_error(&error)),
        }
    }

    /// Checks the right to create: a change of a missing object creates it.
    fn require_creation(&self, op: &Operation, name: &str) -> Result<(), ApiError> {
        let resource = &op.resource;
        let right = Right {
            subresource: op.subresource.clone().unwrap_or_default(),
            ..Right::resource("create", &resource.group, &resource.version, &resource.plural)
                .in_namespace(op.namespace.as_deref().unwrap_or_default())
                .with_name(name)
        };
        let decision = self.rights().authorize(&op.user, &right);
        if decision.allowed {
            return Ok(());
        }
        Err(Refusal::forbidden(&op.user, &right, &decision.reason).into())
    }

    /// Returns the error for a taken name. It mentions if the object is being deleted.
    fn already_exists(&self, op: &Operation, name: &str) -> ApiError {
        let mut error = ApiError::already_exists(&op.resource, name);
        let snapshot = self.store().snapshot();
        let live = snapshot.get(&op.key(name)).and_then(|entry| decode_stored(entry).ok());
        if live.is_some_and(|live| live.is_deleting()) {
            error.message.insert_str(0, "object is being deleted: ");
        }
        error
    }
}

/// Returns the error of an invalid object, if there are faults.
pub(crate) fn refuse_invalid(
    op: &Operation,
    name: &str,
    object: &Value,
    errors: Vec<FieldError>,
) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    // Events of both groups are one kind internally, and errors name that kind.
    let group = match op.resource.group.as_str() {
        "events.k8s.io" => "",
        group => group,
    };
    // A custom resource may claim another kind, and the error names that kind.
    let own_kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kind = if op.resource.is_custom() {
        own_kind
    } else {
        &op.resource.kind
    };
    Err(ApiError::invalid(group, kind, name, &errors))
}

/// Sets the URL's namespace in the object. Another namespace in the object is an error.
pub(crate) fn check_namespace(op: &Operation, object: &mut Value) -> Result<(), ApiError> {
    check_sent_namespace(op, object)?;
    if let Some(namespace) = op.namespace.as_deref().filter(|_| op.resource.namespaced)
        && object.namespace().is_empty()
    {
        object.set_meta("namespace", Value::from(namespace));
    }
    Ok(())
}

/// Refuses an object with another namespace than the URL.
fn check_sent_namespace(op: &Operation, object: &Value) -> Result<(), ApiError> {
    let wanted = op.namespace.as_deref().filter(|_| op.resource.namespaced);
    if wanted.is_none_or(|wanted| ["", wanted].contains(&object.namespace())) {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}
