//! One served resource, and the webhook that converts its objects, if there is one.

use std::ops::Deref;
use std::sync::Arc;

use tenure_kinds::kind;

use crate::conversion::Webhook;
use crate::keys;

/// A served resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    served: kind::Resource,
    webhook: Option<Arc<Webhook>>,
}

impl Resource {
    /// Returns a resource, with the webhook that converts its objects between versions, if it has one.
    pub(crate) fn new(served: kind::Resource, webhook: Option<Arc<Webhook>>) -> Self {
        Self { served, webhook }
    }

    /// Returns the webhook that converts its objects, if it has one.
    pub(crate) fn webhook(&self) -> Option<&Webhook> {
        self.webhook.as_deref()
    }

    /// Returns the store's key prefix of all objects, or of those in one namespace.
    #[must_use]
    pub fn prefix(&self, namespace: Option<&str>) -> String {
        let (group, plural) = &self.stored_as;
        keys::resource_prefix(group, plural, namespace.filter(|_| self.namespaced))
    }

    /// Returns the store's key of one object.
    #[must_use]
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        let (group, plural) = &self.stored_as;
        keys::object_key(group, plural, namespace.filter(|_| self.namespaced), name)
    }
}

impl Deref for Resource {
    type Target = kind::Resource;

    fn deref(&self) -> &kind::Resource {
        &self.served
    }
}
