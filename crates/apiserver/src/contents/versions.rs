//! Objects between the version that they are stored in and the versions that clients ask for.
//!
//! Whatever a webhook has to convert is waited for here, outside of all locks and before anything is written.

use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::kind::{rename, version_of};
use tenure_store::Entry;

use super::Contents;
use crate::catalog::{Origin, Resource};
use crate::conversion::{BATCH, Duty, Failed};
use crate::http::ApiError;
use crate::kinds;
use crate::operation::Operation;
use crate::stored::{decode_stored, prefix_of};

/// How often something is computed anew with the objects that it missed: each owner's version needs a few.
const CONVERSION_ROUNDS: usize = 256;

/// Stored bytes that can be sent as they are, if they are in the version that the client asked for.
pub(crate) fn is_verbatim(resource: &Resource) -> bool {
    !resource.is_custom() && resource.is_storage_version()
}

/// What the stored objects of a custom kind begin with, whichever of its versions they are in; nothing for kinds whose objects
/// are of a known version in any case, or are looked at before anything is sent of them.
pub(crate) fn stored_prefixes(resource: &Resource) -> Vec<Vec<u8>> {
    match &resource.origin {
        Origin::Custom(custom) if resource.webhook().is_none() => {
            let versions = custom.schemas.keys();
            versions.map(|version| prefix_of(&resource.kind, version)).collect()
        }
        _ => Vec::new(),
    }
}

impl Contents {
    /// The object, in whatever version it is, in the version of `resource`.
    pub(crate) async fn convert(&self, object: Value, resource: &Resource) -> Result<Value, Failed> {
        self.convert_to(object, resource, &resource.api_version()).await
    }

    async fn convert_to(&self, object: Value, resource: &Resource, wanted: &str) -> Result<Value, Failed> {
        let converted = self.convert_all(vec![object], resource, wanted).await?;
        // As many come back as were sent.
        Ok(converted.into_iter().next().unwrap_or_default())
    }

    async fn convert_all(&self, objects: Vec<Value>, resource: &Resource, wanted: &str) -> Result<Vec<Value>, Failed> {
        let Origin::Custom(custom) = &resource.origin else {
            return Ok(objects
                .into_iter()
                .map(|object| convert_builtin(object, resource, wanted))
                .collect());
        };
        let (mut ready, mut foreign) = (Vec::with_capacity(objects.len()), Vec::new());
        for object in objects {
            let from = version_of(&object);
            if from == wanted {
                ready.push(Some(object));
                continue;
            }
            if !custom.schemas.contains_key(from) {
                return Err(Failed(format!(
                    "request to convert CR from an invalid group/version: {from}"
                )));
            }
            ready.push(None);
            foreign.push(object);
        }
        let converted = match resource.webhook() {
            Some(webhook) => webhook.convert(self.view(), foreign, wanted).await?,
            None => {
                foreign.iter_mut().for_each(|object| rename(object, wanted));
                foreign
            }
        };
        let mut converted = converted.into_iter();
        Ok(ready
            .into_iter()
            .filter_map(|object| object.or_else(|| converted.next()))
            .collect())
    }

    /// The object as the store wants it.
    pub(crate) async fn for_storage(&self, object: Value, resource: &Resource) -> Result<Value, ApiError> {
        let mut object = self.convert_to(object, resource, &resource.storage_api_version).await?;
        if resource.says_otherwise() {
            // As it will be read: what the other version can't say is filled in then.
            kinds::set_stored_defaults(resource, &mut object);
        }
        kinds::trim_for_storage(resource, &mut object);
        Ok(object)
    }

    /// A stored object in the version that the client asked for.
    pub(crate) async fn present_object(&self, object: Value, resource: &Resource) -> Result<Value, ApiError> {
        let presented = self.present_objects(vec![object], resource).await?;
        Ok(presented.into_iter().next().unwrap_or_default())
    }

    /// The same of many objects, with as few questions as possible.
    async fn present_objects(&self, mut objects: Vec<Value>, resource: &Resource) -> Result<Vec<Value>, ApiError> {
        let wanted = resource.api_version();
        let mut foreign = Vec::with_capacity(objects.len());
        for object in &mut objects {
            kinds::default_stored(resource, object);
            foreign.push(version_of(object) != wanted);
        }
        let mut converted = self.convert_all(objects, resource, &wanted).await?;
        for (object, _) in converted.iter_mut().zip(foreign).filter(|(_, foreign)| *foreign) {
            kinds::prune(resource, object);
        }
        Ok(converted)
    }

    /// A stored entry as an object in the requested version.
    pub(crate) async fn present(&self, resource: &Resource, entry: &Entry) -> Result<Value, ApiError> {
        self.present_object(decode_stored(entry)?, resource).await
    }

    /// Stored entries as objects in the requested version, for readers of many: what a webhook converts is converted
    /// once for all who ask at the same time, and kept for a while.
    pub(crate) async fn present_all(
        &self,
        resource: &Arc<Resource>,
        entries: &[Arc<Entry>],
    ) -> Result<Vec<Value>, ApiError> {
        let Some(webhook) = resource.webhook() else {
            let objects = entries.iter().map(|entry| decode_stored(entry));
            return self.present_objects(objects.collect::<Result<_, _>>()?, resource).await;
        };
        let wanted: Arc<str> = resource.api_version().into();
        let (mut waits, mut duties) = (Vec::with_capacity(entries.len()), Vec::new());
        for entry in entries {
            let object = decode_stored(entry)?;
            if version_of(&object) == &*wanted {
                waits.push(Err(object));
                continue;
            }
            let (wait, duty) = webhook.shared.get(entry.revision, &wanted, entry.bytes.len());
            waits.push(Ok(wait));
            duties.extend(duty.map(|duty| (duty, object, entry.bytes.len())));
        }
        if !duties.is_empty() {
            // On its own: others may wait for it when who asked first is gone.
            let (contents, resource) = (self.clone(), resource.clone());
            tokio::spawn(async move { contents.present_shared(&resource, duties).await });
        }
        let mut presented = Vec::with_capacity(waits.len());
        for wait in waits {
            presented.push(match wait {
                Err(object) => self.present_object(object, resource).await?,
                Ok(wait) => {
                    let object = wait
                        .await
                        .map_err(|_| ApiError::internal("a conversion was given up"))??;
                    Value::clone(&object)
                }
            });
        }
        Ok(presented)
    }

    /// Converts objects that several requests wait for, one batch after the other.
    async fn present_shared(&self, resource: &Resource, duties: Vec<(Duty, Value, usize)>) {
        let Some(webhook) = resource.webhook() else { return };
        let mut left = duties.into_iter().peekable();
        while left.peek().is_some() {
            let (mut batch, mut objects, mut bytes) = (Vec::new(), Vec::new(), 0);
            while let Some((duty, object, size)) =
                left.next_if(|(_, _, size)| objects.is_empty() || (objects.len() < BATCH.0 && bytes + size <= BATCH.1))
            {
                bytes += size;
                batch.push(duty);
                objects.push(object);
            }
            match self.present_objects(objects, resource).await {
                Ok(presented) => {
                    for (duty, object) in batch.into_iter().zip(presented) {
                        webhook.shared.fulfil(duty, Ok(Arc::new(object)));
                    }
                }
                Err(error) => {
                    for duty in batch {
                        webhook.shared.fulfil(duty, Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Computes something that may need objects in other versions for the owners of their fields: again and again,
    /// until all are there. It must compute the same of the same, so each time it comes further.
    pub(crate) async fn with_conversions<T>(&self, op: &Operation, compute: impl Fn() -> T) -> T {
        for _ in 0..CONVERSION_ROUNDS {
            let computed = compute();
            let missing = op.conversions.take_missing();
            if missing.is_empty() {
                return computed;
            }
            drop(computed);
            for (object, wanted) in missing {
                let converted = self.convert_to(object.clone(), &op.resource, &wanted).await;
                op.conversions.learn(object, wanted, converted);
            }
        }
        // What is still missing fails as a conversion that failed.
        compute()
    }
}

/// An object of a built-in kind in another version: most differ in nothing else.
fn convert_builtin(mut object: Value, resource: &Resource, wanted: &str) -> Value {
    if version_of(&object) == wanted {
        return object;
    }
    if let Some(convert) = resource.behavior.convert {
        return convert(object, wanted);
    }
    rename(&mut object, wanted);
    object
}
