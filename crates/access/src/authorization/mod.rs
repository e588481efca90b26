//! Owns the answer to "may they?": RBAC over Roles and bindings, `system:masters`, the refusal's exact words, the
//! checks against privilege escalation, the roles that every cluster starts with, and the review APIs. Pure: it is
//! fed with objects and reads nothing. Refuses whatever no rule allows.

mod aggregation;
mod bootstrap;
mod covers;
mod escalation;
mod rbac;
mod refusal;
mod review;
mod rules;

pub use aggregation::{aggregate, selects};
pub use bootstrap::{BootstrapObject, Reconciled, bootstrap_objects, reconcile};
pub use escalation::{Write, check_escalation};
pub use go_words::quote::{quote, quote_list};
pub use rbac::{Rbac, RbacKind};
pub use refusal::{FieldError, Refusal};
pub use review::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};
pub use rules::PolicyRule;

use crate::identity::UserInfo;

/// What a request wants to do, as authorizers see it.
///
/// Either a resource request (`path` is `None`) or one for a path outside of the resources. Empty strings mean "not
/// given", as in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or a special verb; the
    /// lower-case HTTP method for paths.
    pub verb: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The plural resource.
    pub resource: String,
    /// `status`, `scale`, `token`, …
    pub subresource: String,
    /// The namespace; for the resource `namespaces` the namespace itself, as the real server sees it.
    pub namespace: String,
    /// The object's name; empty for create, list and deletecollection.
    pub name: String,
    /// The path of a request that is not for a resource.
    pub path: Option<String>,
}

impl Attributes {
    /// A request for a resource; the other fields are empty.
    #[must_use]
    pub fn resource(verb: &str, group: &str, version: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            ..Self::default()
        }
    }

    /// A request for a path that is no resource.
    #[must_use]
    pub fn path(verb: &str, path: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            path: Some(path.to_owned()),
            ..Self::default()
        }
    }

    /// The same in `namespace`.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The same for the object `name`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Resource and subresource as rules name them: `pods/log`.
    #[must_use]
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// An authorizer's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why: which binding of which role to whom; or what kept it from being found out. May be empty.
    pub reason: String,
}

/// Decides what a user may do.
pub trait Authorizer: Send + Sync {
    /// Whether `user` may do what `attributes` describe.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;
}
