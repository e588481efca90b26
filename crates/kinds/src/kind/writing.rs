//! The steps of a write that depend on the kind: the behavior that all kinds share, and the calls of each kind's own functions.

use serde_json::Value;

use super::{OwnersFirst, Request, Resource};
use crate::object::{ObjectExt, set_status};
use crate::schema::FieldError;

impl Resource {
    /// Returns whether the versions of the kind have different fields, and this one is not the stored version.
    #[must_use]
    pub fn has_other_versions(&self) -> bool {
        !self.behavior.versions.is_empty() && !self.is_storage_version()
    }

    /// Returns an object in another version, if versions differ in more than their name.
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

    /// Converts alternative forms into the stored form, before owners are computed.
    pub fn normalize(&self, object: &mut Value) {
        self.write_nulls(object, false);
        (self.behavior.normalize)(self, object);
    }

    /// Writes lists as null that Kubernetes does not omit.
    ///
    /// The sender of an empty list owns the list, so it becomes null only when the object is `stored`.
    pub fn write_nulls(&self, object: &mut Value, stored: bool) {
        (self.behavior.write_nulls)(self, object, stored);
    }

    /// Returns whether owners are computed before the fields are restored that an endpoint does not write. Owners then depend on the sent
    /// object, not on the result. An owner in another version may lose a field because the request omits it.
    #[must_use]
    pub fn settles_owners_first(&self, subresource: Option<&str>) -> bool {
        match self.behavior.owners_first {
            OwnersFirst::Never => false,
            OwnersFirst::OnSubresources => subresource.is_some(),
            OwnersFirst::Always => true,
        }
    }

    /// Restores the live object's values of the fields that this endpoint does not write: the status on the main endpoint, everything else
    /// on the status endpoint.
    #[must_use]
    pub fn reset_fields(&self, subresource: Option<&str>, live: &Value, new: Value) -> Value {
        if self.has_other_versions() {
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

    /// Returns the live object with the sent status. Built-in kinds also take the sent metadata, except for the fields that they keep.
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

    /// Checks whether an object, a namespace, waits until it is empty.
    #[must_use]
    pub fn waits_for_content(&self, object: &Value) -> bool {
        let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
        self.behavior.holds_objects && finalizers.is_some_and(|list| !list.is_empty())
    }

    /// Returns whether a deleting object can be removed.
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

    /// Returns errors of a new object that depend on other objects.
    #[must_use]
    pub fn check_create(&self, object: &Value) -> Vec<FieldError> {
        (self.resource.behavior.check_create)(self, object)
    }

    /// Checks a change with the rules of the kind.
    #[must_use]
    pub fn check_update(&self, live: &Value, new: &Value) -> Vec<FieldError> {
        (self.resource.behavior.check_update)(self, new, live)
    }
}
