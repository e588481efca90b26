//! One request as admission sees it.

use serde_json::{Map, Value, json};
use tenure_kinds::kind::Admitted;
use tenure_kinds::object::ObjectExt;

use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::operation::{DeleteOptions, FieldValidation, Operation};
use crate::view::View;

/// The effect of a request on the object. It may differ from the HTTP verb: an apply creates or updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Update,
    Delete,
}

impl Action {
    /// Returns the action's name in rules and reviews.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request in admission, without its new object, which changes during admission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) op: &'a Operation,
    pub(crate) action: Action,
    /// The object's name. Empty while the name is still to be generated, and for each deletion of a collection.
    pub(crate) name: &'a str,
    /// The stored object; `None` for a creation.
    pub(crate) old: Option<&'a Value>,
    /// The options of a deletion.
    pub(crate) deletion: Option<&'a DeleteOptions>,
}

impl<'a> Attributes<'a> {
    /// Returns the attributes of a creation.
    pub(crate) fn create(op: &'a Operation, name: &'a str) -> Self {
        Self {
            op,
            action: Action::Create,
            name,
            old: None,
            deletion: None,
        }
    }

    /// Returns the attributes of a change.
    pub(crate) fn update(op: &'a Operation, old: &'a Value) -> Self {
        Self {
            op,
            action: Action::Update,
            name: old.name(),
            old: Some(old),
            deletion: None,
        }
    }

    /// Returns the attributes of a deletion.
    pub(crate) fn delete(op: &'a Operation, name: &'a str, old: &'a Value, options: &'a DeleteOptions) -> Self {
        Self {
            op,
            action: Action::Delete,
            name,
            old: Some(old),
            deletion: Some(options),
        }
    }

    pub(crate) fn resource(&self) -> &'a Resource {
        &self.op.resource
    }

    pub(crate) fn subresource(&self) -> &'a str {
        self.op.subresource.as_deref().unwrap_or_default()
    }

    /// Checks whether the request is about a namespace itself, and not about its subresource.
    pub(crate) fn is_of_namespace(&self) -> bool {
        self.op.subresource.is_none() && self.is_part_of_namespace()
    }

    /// Checks whether the request is about a namespace or its subresource.
    pub(crate) fn is_part_of_namespace(&self) -> bool {
        self.op.resource.behavior.holds_objects
    }

    /// Calls a rule of the kind with the facts about the request that the rule needs.
    pub(crate) fn ask_kind<T>(&self, contents: &Contents, view: &View, ask: impl FnOnce(&Admitted<'_>) -> T) -> T {
        let plural_of = |group: &str, version: &str, kind: &str| {
            let catalog = contents.catalog();
            let found = catalog.find_kind(group, version, kind);
            found.map(|found| found.plural.clone())
        };
        self.op.ask_kind(view, contents.now(), |request| {
            ask(&Admitted {
                request,
                namespace: self.namespace(),
                old: self.old,
                rights: &**contents.rights(),
                plural_of: &plural_of,
            })
        })
    }

    /// Returns the namespace of the request; for a Namespace its own name. Empty for other cluster-scoped resources.
    pub(crate) fn namespace(&self) -> &'a str {
        if self.is_part_of_namespace() {
            return self.name;
        }
        self.op.namespace.as_deref().unwrap_or_default()
    }

    /// Returns a refusal of the request, which names the object by its name or generateName.
    pub(crate) fn denied_error(&self, object: Option<&Value>, why: &str) -> ApiError {
        let name = object.map_or(self.name, |object| match object.name() {
            "" => object.meta_str("generateName"),
            name => name,
        });
        ApiError::denied(self.resource(), name, why)
    }

    /// Checks whether the request must store nothing.
    pub(crate) fn dry_run(&self) -> bool {
        self.op.dry_run || self.deletion.is_some_and(|options| options.dry_run)
    }

    /// Returns the options of the request as an object.
    pub(crate) fn options(&self) -> Value {
        let mut options = Map::new();
        options.insert(
            "kind".to_owned(),
            Value::from(match self.action {
                Action::Create => "CreateOptions",
                Action::Update => "UpdateOptions",
                Action::Delete => "DeleteOptions",
            }),
        );
        options.insert("apiVersion".to_owned(), Value::from("meta.k8s.io/v1"));
        if let Some(deletion) = self.deletion {
            if let Some(seconds) = deletion.grace_period_seconds {
                options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
            }
            let mut preconditions = Map::new();
            // A namespace is deleted in several steps, each with the UID that was read first.
            let found = self.old.filter(|_| self.is_of_namespace()).map(ObjectExt::uid);
            for (key, value) in [
                ("uid", deletion.uid.as_deref().or(found)),
                ("resourceVersion", deletion.resource_version.as_deref()),
            ] {
                if let Some(value) = value {
                    preconditions.insert(key.to_owned(), json!(value));
                }
            }
            if !preconditions.is_empty() {
                options.insert("preconditions".to_owned(), Value::Object(preconditions));
            }
            if let Some(policy) = &deletion.propagation_policy {
                options.insert("propagationPolicy".to_owned(), json!(policy));
            }
        } else {
            if self.op.sent.field_manager {
                options.insert("fieldManager".to_owned(), json!(self.op.field_manager));
            }
            if self.op.sent.field_validation {
                let level = match self.op.field_validation {
                    FieldValidation::Ignore => "Ignore",
                    FieldValidation::Warn => "Warn",
                    FieldValidation::Strict => "Strict",
                };
                options.insert("fieldValidation".to_owned(), json!(level));
            }
        }
        if self.dry_run() {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        Value::Object(options)
    }
}
