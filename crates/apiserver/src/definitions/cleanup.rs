//! A definition that is being deleted waits until its objects are gone; this empties it and lets it go.

use std::time::Duration;

use serde_json::Value;
use tenure_store::EventKind;
use tokio_util::sync::CancellationToken;

use super::{GROUP, PLURAL};
use crate::authentication::UserInfo;
use crate::customresources::CLEANUP_FINALIZER;
use crate::http::ApiError;
use crate::registry::{DeleteOptions, ListOptions, ObjectExt, Operation, Registry, decode_stored};

/// How long to wait before a failed attempt is repeated.
const AGAIN: Duration = Duration::from_secs(1);
const MANAGER: &str = "kube-apiserver";

/// Follows the definitions until `shutdown`.
pub(crate) fn start(registry: Registry, shutdown: CancellationToken) {
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = follow(registry) => {}
        }
    });
}

async fn follow(registry: Registry) {
    loop {
        let snapshot = registry.store().snapshot();
        let prefix = format!("/{GROUP}/{PLURAL}/");
        let Ok(mut watcher) = registry.store().watch(prefix.as_str(), snapshot.revision()) else {
            continue;
        };
        for (_, entry) in snapshot.range(&prefix, None) {
            if let Ok(definition) = decode_stored(entry) {
                look_at(&registry, definition);
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
                        look_at(&registry, definition);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) => break,
                None => return,
            }
        }
    }
}

fn look_at(registry: &Registry, definition: Value) {
    if definition.is_deleting() && definition.finalizers().contains(&CLEANUP_FINALIZER) {
        let registry = registry.clone();
        tokio::spawn(async move {
            while let Err(error) = empty(&registry, &definition).await {
                tracing::warn!(name = definition.name(), %error, "a definition's objects could not be deleted yet");
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

/// Deletes all objects, waits until the last one is gone, and takes the finalizer away.
async fn empty(registry: &Registry, definition: &Value) -> Result<(), ApiError> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let prefix = format!("/{group}/{plural}/");
    // A definition whose names were never accepted has no objects of its own.
    let served = registry
        .catalog()
        .find_any_version(group, plural)
        .filter(|found| found.is_custom())
        .cloned();
    if let Some(resource) = served {
        let op = Operation::new(resource, None, UserInfo::loopback(), MANAGER);
        loop {
            let seen = registry.store().revision();
            registry
                .delete_collection(&op, &ListOptions::default(), &DeleteOptions::default())
                .await?;
            if registry.store().snapshot().range(&prefix, None).next().is_none() {
                break;
            }
            // Finalizers hold what is left: look again at the next change.
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
    let resource = registry
        .catalog()
        .find(GROUP, "v1", PLURAL)
        .cloned()
        .ok_or_else(|| ApiError::internal("definitions are not in the table of resources"))?;
    let op = Operation::new(resource, None, UserInfo::loopback(), MANAGER);
    let released = registry
        .change(&op, definition.name(), |live| {
            let Some(live) = live.filter(|live| live.uid() == definition.uid()) else {
                return Err(ApiError::not_found(&op.resource, definition.name()));
            };
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
