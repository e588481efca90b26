//! The rules about a write that need other objects, the caller or other programs, in Kubernetes' order.
//!
//! A request goes through two phases. [`mutate`] may change the object, before it is made complete and checked;
//! [`validate`] sees the object as it will be stored, and may only refuse. Both run outside of the store's locks, and
//! again whenever a write was overtaken by another. What a mutation changed is owned by nobody, as in Kubernetes:
//! owners are settled before it.

mod attributes;
mod escalation;
mod matching;
mod namespace_lifecycle;
mod subject;
mod unenforced;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

pub(crate) use attributes::{Action, Attributes};

use crate::catalog::Origin;
use crate::http::ApiError;
use crate::registry::Registry;

/// What admission keeps between requests.
#[derive(Debug, Default)]
pub(crate) struct State {
    hooks: webhooks::Hooks,
    /// Whether the server has started. What it writes until then is its own, and asks nobody: it would not start
    /// without those that it is to serve.
    open: AtomicBool,
}

impl State {
    /// From now on every write is everybody's business.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    fn hooks(&self, registry: &Registry, phase: webhooks::Phase) -> Vec<Arc<webhooks::Hook>> {
        if self.open.load(Ordering::Acquire) {
            self.hooks.of(registry, phase)
        } else {
            Vec::new()
        }
    }
}

/// What a request holds while it is written: it is taken from nobody else until this is dropped.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Charge {}

/// The object as it goes on, changed by who may change it.
pub(crate) async fn mutate(registry: &Registry, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
    let mut object = Some(object);
    mutate_any(registry, attributes, &mut object).await?;
    let object = object.unwrap_or_default();
    escalation::check(registry.rights(), attributes, &object)?;
    Ok(object)
}

/// The mutating phase; of a deletion, without an object. If a webhook changed the object, there is a second round.
async fn mutate_any(
    registry: &Registry,
    attributes: &Attributes<'_>,
    object: &mut Option<Value>,
) -> Result<(), ApiError> {
    let mut rounds = webhooks::Rounds::default();
    for reinvoke in [false, true] {
        own_rules(registry, attributes, object)?;
        if !webhooks::mutate(registry, attributes, object, &mut rounds, reinvoke).await? {
            break;
        }
    }
    Ok(())
}

/// The mutating rules that are part of this server.
fn own_rules(registry: &Registry, attributes: &Attributes<'_>, object: &mut Option<Value>) -> Result<(), ApiError> {
    if let Some(object) = object {
        unenforced::check(attributes.op, attributes.name, object)?;
    }
    match attributes.action {
        Action::Create => {
            namespace_lifecycle::on_create(attributes, &registry.view())?;
            if let Origin::Custom(custom) = &attributes.resource().origin
                && custom.terminating
            {
                let why = "create not allowed while custom resource definition is terminating";
                return Err(ApiError::new(405, "MethodNotAllowed", why));
            }
            Ok(())
        }
        Action::Update => Ok(()),
        Action::Delete => namespace_lifecycle::on_delete(attributes),
    }
}

/// Whether [`validate`] asks other programs about this request, which takes long and may come back to this server.
pub(crate) fn asks_others(registry: &Registry, attributes: &Attributes<'_>) -> bool {
    webhooks::asked_to_validate(registry, attributes)
}

/// Refuses an object as it would be stored, or none if one is deleted.
pub(crate) async fn validate(
    registry: &Registry,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<Charge, ApiError> {
    webhooks::validate(registry, attributes, object).await?;
    Ok(Charge::default())
}

/// Both phases of a deletion.
pub(crate) async fn admit_delete(registry: &Registry, attributes: &Attributes<'_>) -> Result<Charge, ApiError> {
    mutate_any(registry, attributes, &mut None).await?;
    validate(registry, attributes, None).await
}

/// Both phases of a request whose object is answered and not stored; it may come back changed.
pub(crate) async fn admit_unstored(
    registry: &Registry,
    attributes: &Attributes<'_>,
    object: Value,
) -> Result<Value, ApiError> {
    let object = mutate(registry, attributes, object).await?;
    let _charge = validate(registry, attributes, Some(&object)).await?;
    Ok(object)
}
