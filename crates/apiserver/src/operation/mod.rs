//! One request to the registry, without its object: the facts about the request that verbs, kinds and admission get.
//! The module contains the options and the calls to a kind, but no verb.

mod delete_options;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;
use tenure_auth::identity::UserInfo;
use tenure_kinds::kind::Request;

pub use delete_options::DeleteOptions;

use crate::audit::AuditRecord;
use crate::catalog::Resource;
use crate::conversion::NeededConversions;
use crate::http::{FieldError, warnings};
use crate::view::View;

/// The handling of unknown and repeated fields: the query parameter `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Unknown fields are dropped silently.
    Ignore,
    /// Unknown fields are dropped with a warning.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// The options that the client set explicitly. Admission shows only these to webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExplicitOptions {
    /// `fieldManager`.
    pub field_manager: bool,
    /// `fieldValidation`.
    pub field_validation: bool,
}

/// Texts for the answer's Warning headers, collected on the way.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

/// A request to the registry, without its object: resource, user, options, and the texts for warnings.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The namespace of the URL.
    pub namespace: Option<String>,
    /// The subresource of the URL.
    pub subresource: Option<String>,
    /// The requesting user, after impersonation.
    pub user: UserInfo,
    /// Whether nothing may be stored.
    pub dry_run: bool,
    /// The manager under which written fields are owned.
    pub field_manager: String,
    /// Handling of unknown fields.
    pub field_validation: FieldValidation,
    /// The options that the client set explicitly.
    pub sent: ExplicitOptions,
    /// Texts for the answer's Warning headers.
    pub warnings: Warnings,
    /// Conversions into other versions that the field owners need, as far as they are available.
    pub(crate) conversions: Arc<NeededConversions>,
    /// The audit record of the request.
    pub(crate) trail: AuditRecord,
}

impl Operation {
    /// Returns an operation with default options.
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
            sent: ExplicitOptions::default(),
            warnings: Arc::default(),
            conversions: Arc::default(),
            trail: AuditRecord::default(),
        }
    }

    /// Returns this operation on a subresource.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }

    /// Adds a text for the answer's Warning headers, once.
    pub fn warn(&self, text: impl Into<String>) {
        warnings::add_warning(&mut self.warnings.lock(), text.into());
    }

    /// Returns the store's key of the object with this name.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        self.resource.key(self.namespace.as_deref(), name)
    }

    /// Prepares an object that is about to be created, by the rules of its kind.
    pub(crate) fn prepare_create(&self, object: &mut Value, view: &View, now: Timestamp) {
        self.ask_kind(view, now, |request| request.prepare_create(object));
    }

    /// Prepares an object that is about to replace another, by the rules of its kind.
    pub(crate) fn prepare_update(&self, live: &Value, new: &mut Value, view: &View, now: Timestamp) {
        self.ask_kind(view, now, |request| request.prepare_update(live, new));
    }

    /// Prepares a replacement as [`Self::prepare_update`] does, and writes the empty lists that Kubernetes stores as
    /// null.
    pub(crate) fn prepare_for_storage(&self, live: &Value, new: &mut Value, view: &View, now: Timestamp) {
        self.prepare_update(live, new, view, now);
        self.resource.write_nulls(new, true);
    }

    /// Returns faults of a new object that show only in comparison with other objects.
    pub(crate) fn check_create(&self, object: &Value, view: &View, now: Timestamp) -> Vec<FieldError> {
        self.ask_kind(view, now, |request| request.check_create(object))
    }

    /// Returns faults of a changed object that show only in comparison with other objects.
    pub(crate) fn check_update(&self, live: &Value, new: &Value, view: &View, now: Timestamp) -> Vec<FieldError> {
        self.ask_kind(view, now, |request| request.check_update(live, new))
    }

    /// Calls the kind with the facts about the request that it needs.
    pub(crate) fn ask_kind<T>(&self, view: &View, now: Timestamp, ask: impl FnOnce(&Request<'_>) -> T) -> T {
        ask(&Request {
            resource: &self.resource,
            subresource: self.subresource.as_deref(),
            user: &self.user,
            dry_run: self.dry_run,
            now,
            random: fill_randomly,
            warn: &|text| self.warn(text),
            services: view.services(),
            objects: view,
        })
    }
}

/// Fills `bytes` with random data. If the random source fails, the bytes stay as they are, and the resulting names
/// collide visibly.
pub(crate) fn fill_randomly(bytes: &mut [u8]) {
    let _ = SystemRandom::new().fill(bytes);
}
