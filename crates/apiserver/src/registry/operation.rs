//! What every verb needs to know of its request, apart from the object.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_access::identity::UserInfo;

use crate::audit::Trail;
use crate::catalog::Resource;
use crate::conversion::Needed;
use crate::http::warnings;

/// What happens to fields that the kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// Which options a client named, rather than left to their defaults: admission shows only those to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// `fieldManager`.
    pub field_manager: bool,
    /// `fieldValidation`.
    pub field_validation: bool,
}

/// Texts for the answer's Warning headers, collected on the way.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

/// One request to the registry.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The namespace of the URL.
    pub namespace: Option<String>,
    /// The subresource of the URL.
    pub subresource: Option<String>,
    /// Who asks, after impersonation.
    pub user: UserInfo,
    /// Whether nothing may be stored.
    pub dry_run: bool,
    /// The name under which written fields are owned.
    pub field_manager: String,
    /// What happens to unknown fields.
    pub field_validation: FieldValidation,
    /// Which of these the client named.
    pub sent: Sent,
    /// Texts for the answer's Warning headers.
    pub warnings: Warnings,
    /// What the owners of fields need in other versions, as far as it is there.
    pub(crate) conversions: Arc<Needed>,
    /// What is noted of the request.
    pub(crate) trail: Trail,
}

impl Operation {
    /// An operation with default options.
    #[must_use]
    pub fn new(resource: Arc<Resource>, namespace: Option<String>, user: UserInfo, field_manager: &str) -> Self {
        Self {
            resource,
            namespace,
            subresource: None,
            user,
            dry_run: false,
            field_manager: field_manager.to_owned(),
            field_validation: FieldValidation::default(),
            sent: Sent::default(),
            warnings: Arc::default(),
            conversions: Arc::default(),
            trail: Trail::default(),
        }
    }

    /// The same on a subresource.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }

    /// Adds a text for the answer's Warning headers, once.
    pub fn warn(&self, text: impl Into<String>) {
        warnings::add(&mut self.warnings.lock(), text.into());
    }

    /// The store's key of the object of this name.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        self.resource.key(self.namespace.as_deref(), name)
    }
}
