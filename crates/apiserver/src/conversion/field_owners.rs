//! Conversions for field owners. The pure code that computes owners records its missing conversions. The caller
//! fetches them and runs the code again.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use structured_merge::{Convert, ConvertError, Typing};
use tenure_kinds::kind::{Types, version_of};

use super::ConversionFailure;

/// The conversions that the field owners of one request need: the finished ones, and the requested ones that are
/// missing.
#[derive(Debug, Default)]
pub(crate) struct NeededConversions {
    known: Mutex<Vec<Known>>,
    missing: Mutex<Vec<(Value, String)>>,
}

/// A finished conversion of an object to the version `wanted`.
#[derive(Debug)]
struct Known {
    object: Value,
    wanted: String,
    converted: Result<Value, ConversionFailure>,
}

impl NeededConversions {
    /// Returns the conversions that were requested and are missing.
    pub(crate) fn take_missing(&self) -> Vec<(Value, String)> {
        std::mem::take(&mut *self.missing.lock())
    }

    /// Drops the conversions of a former attempt, which were for another state of the object.
    pub(crate) fn forget(&self) {
        self.known.lock().clear();
        self.missing.lock().clear();
    }

    /// Records the result of a conversion.
    pub(crate) fn record_conversion(&self, object: Value, wanted: String, converted: Result<Value, ConversionFailure>) {
        self.known.lock().push(Known {
            object,
            wanted,
            converted,
        });
    }

    /// Returns a finished conversion. A missing one is recorded, and counts as failed until the next attempt.
    fn get(&self, object: &Value, wanted: &str) -> Result<Value, ConvertError> {
        let known = self.known.lock();
        let found = known
            .iter()
            .find(|known| known.wanted == wanted && known.object == *object);
        match found {
            Some(known) => known
                .converted
                .clone()
                .map_err(|ConversionFailure(why)| ConvertError::Failed(why)),
            None => {
                let mut missing = self.missing.lock();
                if !missing
                    .iter()
                    .any(|(other, version)| version == wanted && other == object)
                {
                    missing.push((object.clone(), wanted.to_owned()));
                }
                Err(ConvertError::Failed(
                    "the conversion webhook was not called yet for this object".to_owned(),
                ))
            }
        }
    }
}

/// Converts objects between the versions of a kind with a conversion webhook, for the field owners of one request.
pub(crate) struct WebhookVersions {
    types: Arc<Types>,
    /// The request's version. A conversion between two other versions goes through it.
    hub: String,
    needed: Arc<NeededConversions>,
}

impl WebhookVersions {
    /// Returns the versions of these types for a request in `hub`.
    pub(crate) fn new(types: Arc<Types>, hub: String, needed: Arc<NeededConversions>) -> Self {
        Self { types, hub, needed }
    }
}

impl Convert for WebhookVersions {
    fn typing(&self, api_version: &str) -> Option<&Typing> {
        self.types.get(api_version)
    }

    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<Cow<'a, Value>, ConvertError> {
        self.types.check(api_version)?;
        let from = version_of(object);
        if from == api_version {
            return Ok(Cow::Borrowed(object));
        }
        // The webhook gets the object without managedFields, which the converted object gets back below.
        let mut bare = object.clone();
        let metadata = bare.get_mut("metadata").and_then(Value::as_object_mut);
        let owners = metadata.and_then(|metadata| metadata.remove("managedFields"));
        let mut converted = if from == self.hub || api_version == self.hub {
            self.needed.get(&bare, api_version)?
        } else {
            let middle = self.needed.get(&bare, &self.hub)?;
            self.needed.get(&middle, api_version)?
        };
        if let (Some(owners), Some(metadata)) = (owners, converted.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert("managedFields".to_owned(), owners);
        }
        Ok(Cow::Owned(converted))
    }
}
