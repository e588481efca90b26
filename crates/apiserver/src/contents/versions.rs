//! Conversion of objects between their stored version and the versions that clients ask for.
//!
//! Conversion webhooks are called only here, outside of all locks and before anything is written.

use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::kind::{set_api_version, version_of};
use tenure_store::Entry;

use super::Contents;
use crate::catalog::{Origin, Resource};
use crate::conversion::{BATCH, ConversionDuty, ConversionFailure};
use crate::http::ApiError;
use crate::kind_properties;
use crate::operation::Operation;
use crate::stored::{decode_stored, prefix_of};

/// How often a computation is repeated after its missing conversions were made. The version of each field owner may
/// need a few rounds.
const CONVERSION_ROUNDS: usize = 256;

/// Checks whether stored bytes can be sent unchanged, if they have the version that the client asked for.
pub(crate) fn is_verbatim(resource: &Resource) -> bool {
    !resource.is_custom() && resource.is_storage_version()
}

/// Returns the possible first bytes of stored objects of a custom kind, one text for each version. Empty for kinds
/// whose stored version is known, or whose objects are decoded before they are sent.
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
    /// Converts an object of any version to the version of `resource`.
    pub(crate) async fn convert(&self, object: Value, resource: &Resource) -> Result<Value, ConversionFailure> {
        self.convert_to(object, resource, &resource.api_version()).await
    }

    async fn convert_to(&self, object: Value, resource: &Resource, wanted: &str) -> Result<Value, ConversionFailure> {
        let converted = self.convert_all(vec![object], resource, wanted).await?;
        // The webhook returns as many objects as it got.
        Ok(converted.into_iter().next().unwrap_or_default())
    }

    async fn convert_all(
        &self,
        objects: Vec<Value>,
        resource: &Resource,
        wanted: &str,
    ) -> Result<Vec<Value>, ConversionFailure> {
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
                return Err(ConversionFailure(format!(
                    "request to convert CR from an invalid group/version: {from}"
                )));
            }
            ready.push(None);
            foreign.push(object);
        }
        let converted = match resource.webhook() {
            Some(webhook) => webhook.convert(self.view(), foreign, wanted).await?,
            None => {
                foreign.iter_mut().for_each(|object| set_api_version(object, wanted));
                foreign
            }
        };
        let mut converted = converted.into_iter();
        Ok(ready
            .into_iter()
            .filter_map(|object| object.or_else(|| converted.next()))
            .collect())
    }

    /// Returns the object in the form in which it is stored.
    pub(crate) async fn for_storage(&self, object: Value, resource: &Resource) -> Result<Value, ApiError> {
        let mut object = self.convert_to(object, resource, &resource.storage_api_version).await?;
        if resource.has_other_versions() {
            // Fills in the defaults that a read would fill in for fields that the other version lacks.
            kind_properties::set_stored_defaults(resource, &mut object);
        }
        kind_properties::trim_for_storage(resource, &mut object);
        Ok(object)
    }

    /// Converts a stored object to the version that the client asked for.
    pub(crate) async fn present_object(&self, object: Value, resource: &Resource) -> Result<Value, ApiError> {
        let presented = self.present_objects(vec![object], resource).await?;
        Ok(presented.into_iter().next().unwrap_or_default())
    }

    /// Converts many stored objects with as few webhook calls as possible.
    async fn present_objects(&self, mut objects: Vec<Value>, resource: &Resource) -> Result<Vec<Value>, ApiError> {
        let wanted = resource.api_version();
        let mut foreign = Vec::with_capacity(objects.len());
        for object in &mut objects {
            kind_properties::default_stored(resource, object);
            foreign.push(version_of(object) != wanted);
        }
        let mut converted = self.convert_all(objects, resource, &wanted).await?;
        for (object, _) in converted.iter_mut().zip(foreign).filter(|(_, foreign)| *foreign) {
            kind_properties::prune_custom_resource(resource, object);
        }
        Ok(converted)
    }

    /// Decodes a stored entry and converts it to the requested version.
    pub(crate) async fn present(&self, resource: &Resource, entry: &Entry) -> Result<Value, ApiError> {
        self.present_object(decode_stored(entry)?, resource).await
    }

    /// Converts stored entries to the requested version, for readers of many objects. A webhook's conversion serves
    /// all requests that ask at the same time, and is cached for a while.
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
            // The conversion runs in its own task, because other requests may still wait for it when this request has
            // ended.
            let (contents, resource) = (self.clone(), resource.clone());
            tokio::spawn(async move { contents.present_shared(&resource, duties).await });
        }
        let mut presented = Vec::with_capacity(waits.len());
        for wait in waits {
            presented.push(match wait {
                Err(object) => self.present_object(object, resource).await?,
                Ok(wait) => {
                    let object = wait.await.map_err(|_| {
                        ApiError::internal(
                            "the task that converts this object for several requests ended without a result",
                        )
                    })??;
                    Value::clone(&object)
                }
            });
        }
        Ok(presented)
    }

    /// Converts objects for which several requests wait, one batch after the other.
    async fn present_shared(&self, resource: &Resource, duties: Vec<(ConversionDuty, Value, usize)>) {
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
                        webhook.shared.send_result(duty, Ok(Arc::new(object)));
                    }
                }
                Err(error) => {
                    for duty in batch {
                        webhook.shared.send_result(duty, Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Runs a computation that may need objects in other versions for the owners of their fields, and repeats it
    /// until all conversions are available. The computation must be deterministic, so that each round gets further.
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
                op.conversions.record_conversion(object, wanted, converted);
            }
        }
        // Conversions that are still missing count as failed.
        compute()
    }
}

/// Converts an object of a built-in kind to another version. Most versions differ only in their name.
fn convert_builtin(mut object: Value, resource: &Resource, wanted: &str) -> Value {
    if version_of(&object) == wanted {
        return object;
    }
    if let Some(convert) = resource.behavior.convert {
        return convert(object, wanted);
    }
    set_api_version(&mut object, wanted);
    object
}
