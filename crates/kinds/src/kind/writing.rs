//! The way of an object into the store, as far as kinds have a say: what all do alike, and where each is asked.

use serde_json::Value;

use super::{OwnersFirst, Request, Resource};
use crate::object::{ObjectExt, set_status};
use crate::schema::FieldError;

impl Resource {
    /// Whether its versions say things in different ways, and this one is not the stored one.
    #[must_use]
    pub fn says_otherwise(&self) -> bool {
        !self.behavior.versions.is_empty() && !self.is_storage_version()
    }

    /// An object in another version, where versions differ in more than their name.
    #[must_use]
    pub fn convert(&self, object: Value, api_version: &str) -> Option<Value> {
        Some(self.behavior.convert?(object, api_version))
    }

    fn convert_or_keep(&self, object: Value, api_version: &str) -> Value {
        match self.behavior.convert {
            Some(convert) => convert(object, api_version),
            None => object,
        }
    }

    /// Brings what may be written in two ways into the one way that is stored, before owners are settled.
    pub fn normalize(&self, object: &mut Value) {
        self.write_nulls(object, false);
        (self.behavior.normalize)(self, object);
    }

    /// Lists that Kubernetes writes as null rather than not at all.
    ///
    /// An empty list is owned by who sends it, and is one with none only once it is `stored`.
    pub fn write_nulls(&self, object: &mut Value, stored: bool) {
        (self.behavior.write_nulls)(self, object, stored);
    }

    /// Whether owners are settled before what an endpoint does not write is put back, and so by what was sent, not by what
    /// comes of it: who owns something in another version may lose it for not being sent.
    #[must_use]
    pub fn settles_owners_first(&self, subresource: Option<&str>) -> bool {
        match self.behavior.owners_first {
            OwnersFirst::Never => false,
            OwnersFirst::OnSubresources => subresource.is_some(),
            OwnersFirst::Always => true,
        }
    }

    /// Puts the live object's fields in the place of those that this endpoint does not write: status on the main
    /// endpoint, everything else on the status endpoint.
    #[must_use]
    pub fn reset_fields(&self, subresource: Option<&str>, live: &Value, new: Value) -> Value {
        if self.says_otherwise() {
            // Spec and status may share the annotations of this version.
            let stored = |object: Value| self.convert_or_keep(object, &self.storage_api_version);
            let reset = self.reset_parts(subresource, &stored(live.clone()), stored(new));
            return self.convert_or_keep(reset, &self.api_version());
        }
        self.reset_parts(subresource, live, new)
    }

    fn reset_parts(&self, subresource: Option<&str>, live: &Value, mut new: Value) -> Value {
        if let Some(reset) = (self.behavior.reset)(subresource, live, &new) {
            return reset;
        }
        match subresource {
            Some("status") => self.reset_to_status(live, new),
            Some("finalize") => reset_to_finalizers(live, &new),
            _ => {
                if self.has_status()
                    && let Some(map) = new.as_object_mut()
                {
                    match live.get("status") {
                        Some(status) => map.insert("status".to_owned(), status.clone()),
                        None => map.remove("status"),
                    };
                }
                new
            }
        }
    }

    /// The live object with the status that was sent, and with the metadata of built-in kinds, but for what they keep.
    fn reset_to_status(&self, live: &Value, new: Value) -> Value {
        let mut result = live.clone();
        let managed = new
            .metadata()
            .and_then(|metadata| metadata.get("managedFields"))
            .cloned();
        let Value::Object(mut sent) = new else { return result };
        if self.behavior.status_writes_metadata
            && let Some(metadata) = sent.remove("metadata")
            && let Some(map) = result.as_object_mut()
        {
            map.insert("metadata".to_owned(), metadata);
            for key in self.behavior.kept_from_status {
                match live.metadata().and_then(|metadata| metadata.get(*key)) {
                    Some(value) => result.set_meta(key, value.clone()),
                    None => {
                        result.remove_meta(key);
                    }
                }
            }
        }
        match managed {
            Some(managed) => result.set_meta("managedFields", managed),
            None => {
                result.remove_meta("managedFields");
            }
        }
        if let Some(map) = result.as_object_mut() {
            match sent.remove("status") {
                Some(status) => map.insert("status".to_owned(), status),
                None => map.remove("status"),
            };
        }
        (self.behavior.keep_from_status)(live, &mut result);
        result
    }

    /// Whether an object, a namespace, is held by what may still be in it.
    #[must_use]
    pub fn waits_for_content(&self, object: &Value) -> bool {
        let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
        self.behavior.holds_objects && finalizers.is_some_and(|list| !list.is_empty())
    }

    /// Whether nothing holds a deleting object any more.
    #[must_use]
    pub fn is_finalized(&self, object: &Value) -> bool {
        object.finalizers().is_empty() && !self.waits_for_content(object)
    }
}

fn reset_to_finalizers(live: &Value, new: &Value) -> Value {
    let mut result = live.clone();
    if let (Some(map), Some(finalizers)) = (
        result.pointer_mut("/spec").and_then(Value::as_object_mut),
        new.pointer("/spec/finalizers"),
    ) {
        map.insert("finalizers".to_owned(), finalizers.clone());
    } else if let Some(map) = result.pointer_mut("/spec").and_then(Value::as_object_mut) {
        map.remove("finalizers");
    }
    if let Some(managed) = new.metadata().and_then(|metadata| metadata.get("managedFields")) {
        result.set_meta("managedFields", managed.clone());
    }
    result
}

impl Request<'_> {
    /// Prepares an object that is about to be created.
    pub fn prepare_create(&self, object: &mut Value) {
        let kind = self.resource.behavior;
        if self.resource.has_status()
            && !kind.takes_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        (kind.drop_disabled)(object, None);
        if let Some(status) = kind.initial_status {
            set_status(object, status());
        }
        (kind.prepare_create)(self, object);
    }

    /// Prepares an object that is about to replace another.
    pub fn prepare_update(&self, live: &Value, new: &mut Value) {
        let kind = self.resource.behavior;
        (kind.drop_disabled)(new, Some(live));
        (kind.prepare_update)(self, live, new);
    }

    /// Faults that only show beside other objects, on creation.
    #[must_use]
    pub fn check_create(&self, object: &Value) -> Vec<FieldError> {
        (self.resource.behavior.check_create)(self, object)
    }

    /// The same on a change.
    #[must_use]
    pub fn check_update(&self, live: &Value, new: &Value) -> Vec<FieldError> {
        (self.resource.behavior.check_update)(self, new, live)
    }
}
