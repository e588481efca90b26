//! Deletion of CustomResourceDefinitions: a deleted definition waits until this controller has deleted its objects.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure_auth::identity::UserInfo;
use tenure_kinds::customresources::{self, GROUP, PLURAL};
use tenure_kinds::schema::validation::CLEANUP_FINALIZER;
use tenure_store::EventKind;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::http::ApiError;
use crate::keys;
use crate::operation::{DeleteOptions, Operation};
use crate::registry::{ListOptions, OWN_MANAGER, ObjectExt, Registry, format_timestamp};
use crate::stored::decode_stored;

/// Pause before a failed attempt is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// Follows the definitions until `shutdown`. The returned task ends after all its subtasks.
pub(crate) fn start(registry: Registry, shutdown: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut emptying = JoinSet::new();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = follow_definitions(registry, &mut emptying) => {}
        }
        emptying.shutdown().await;
    })
}

async fn follow_definitions(registry: Registry, emptying: &mut JoinSet<()>) {
    loop {
        let snapshot = registry.store().snapshot();
        let prefix = keys::resource_prefix(GROUP, PLURAL, None);
        let Ok(mut watcher) = registry.store().watch(prefix.as_str(), snapshot.revision()) else {
            continue;
        };
        for (_, entry) in snapshot.range(&prefix, None) {
            if let Ok(definition) = decode_stored(entry) {
                finalize_definition(&registry, definition, emptying);
            }
        }
        loop {
            match watcher.next().await {
                Some(Ok(event)) if event.kind == EventKind::Put => {
                    // Only the first event that shows the deletion starts the work.
                    let began = event
                        .previous
                        .as_ref()
                        .is_none_or(|old| decode_stored(old).is_ok_and(|old| !old.is_deleting()));
                    if began && let Ok(definition) = decode_stored(&event.entry) {
                        finalize_definition(&registry, definition, emptying);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) => break,
                None => return,
            }
        }
    }
}

fn finalize_definition(registry: &Registry, definition: Value, emptying: &mut JoinSet<()>) {
    while emptying.try_join_next().is_some() {}
    if definition.is_deleting() && definition.finalizers().contains(&CLEANUP_FINALIZER) {
        let registry = registry.clone();
        emptying.spawn(async move {
            while let Err(error) = delete_all_objects(&registry, &definition).await {
                tracing::warn!(name = definition.name(), %error, "a definition's objects could not be deleted yet");
                write_termination_reason(&registry, &definition, &error).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

/// Returns an operation on the resource whose objects are deleted. A definition whose names were never accepted has
/// no objects of its own.
fn find_operation(registry: &Registry, definition: &Value) -> Option<Operation> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let served = registry
        .catalog()
        .find_any_version(text("/spec/group"), text("/spec/names/plural"))
        .filter(|found| found.is_custom())
        .cloned()?;
    Some(Operation::new(served, None, UserInfo::loopback(), OWN_MANAGER))
}

/// Returns an operation on definitions themselves.
fn make_definition_operation(registry: &Registry) -> Result<Operation, ApiError> {
    let resource = registry
        .catalog()
        .find(GROUP, "v1", PLURAL)
        .cloned()
        .ok_or_else(|| ApiError::internal("definitions are not in the table of resources"))?;
    Ok(Operation::new(resource, None, UserInfo::loopback(), OWN_MANAGER))
}

/// Writes the reason why the definition still exists into its condition `Terminating`.
async fn write_termination_reason(registry: &Registry, definition: &Value, error: &ApiError) {
    let listed = match find_operation(registry, definition) {
        Some(op) => registry.check_list(&op).await,
        None => Ok(()),
    };
    let message = match listed {
        Err(error) => format!("could not list instances: {}", error.message),
        Ok(()) => format!("could not issue all deletes: {}", error.message),
    };
    let Ok(op) = make_definition_operation(registry) else {
        return;
    };
    let op = op.subresource("status");
    let now = format_timestamp(registry.now());
    let noted = registry
        .change_object(&op, definition.name(), |live| {
            let mut new = require_same_uid(live, definition, &op)?.clone();
            customresources::set_condition(
                &mut new,
                "Terminating",
                "True",
                "InstanceDeletionFailed",
                &message,
                &now,
            );
            Ok(new)
        })
        .await;
    if let Err(error) = noted {
        tracing::debug!(name = definition.name(), %error, "the reason why a definition still exists could not be written to its status");
    }
}

/// Returns the live definition, or 404 if it is missing or has another UID than the deleted one.
fn require_same_uid<'a>(live: Option<&'a Value>, definition: &Value, op: &Operation) -> Result<&'a Value, ApiError> {
    live.filter(|live| live.uid() == definition.uid())
        .ok_or_else(|| ApiError::not_found(&op.resource, definition.name()))
}

/// Deletes all objects, waits until the last one is removed, and removes the finalizer.
async fn delete_all_objects(registry: &Registry, definition: &Value) -> Result<(), ApiError> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let prefix = keys::resource_prefix(group, plural, None);
    if let Some(op) = find_operation(registry, definition).map(Arc::new) {
        loop {
            let seen = registry.store().revision();
            registry
                .delete_collection(&op, &ListOptions::default(), &DeleteOptions::default())
                .await?;
            if registry.store().snapshot().range(&prefix, None).next().is_none() {
                break;
            }
            // Finalizers hold the remaining objects: check again at the next change.
            match registry.store().watch(prefix.as_str(), seen) {
                Ok(mut watcher) => {
                    if watcher.next().await.is_none() {
                        return Ok(());
                    }
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
    let op = make_definition_operation(registry)?;
    let released = registry
        .change_object(&op, definition.name(), |live| {
            let live = require_same_uid(live, definition, &op)?;
            let mut new = live.clone();
            let kept: Vec<&str> = live
                .finalizers()
                .into_iter()
                .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
                .collect();
            new.set_meta("finalizers", Value::from(kept));
            Ok(new)
        })
        .await;
    match released {
        Err(error) if error.code != 404 => Err(error),
        _ => Ok(()),
    }
}
