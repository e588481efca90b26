//! Authorization: RBAC over Roles and bindings, `system:masters`, the exact words of refusals, the checks against
//! privilege escalation, the roles of every cluster, and the review APIs. This module is pure: the caller passes the
//! objects. A request that no rule allows is refused.

mod aggregation;
mod bootstrap;
mod escalation;
mod rbac;
mod refusal;
mod review;
mod rule_coverage;
mod rules;

pub use aggregation::{aggregate_rules, selects_labels};
pub use bootstrap::{BootstrapObject, Reconciled, bootstrap_objects, reconcile_object};
pub use escalation::{Write, check_escalation};
pub use go_words::quote::{quote, quote_list};
pub use rbac::{Rbac, RbacKind};
pub use refusal::{FieldError, Refusal};
pub use review::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};
pub use rules::PolicyRule;

use crate::identity::UserInfo;

/// A request as authorizers see it.
///
/// Either a request about a resource (`path` is `None`), or one for another path. Empty strings mean "not given", as
/// in Kubernetes.
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
    /// The namespace; for the resource `namespaces` the namespace itself, as in kube-apiserver.
    pub namespace: String,
    /// The object's name; empty for create, list and deletecollection.
    pub name: String,
    /// The path of a request that is not about a resource.
    pub path: Option<String>,
}

impl Attributes {
    /// Returns the attributes of a request about a resource; the other fields are empty.
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

    /// Returns the attributes of a request for a path that is not a resource.
    #[must_use]
    pub fn path(verb: &str, path: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            path: Some(path.to_owned()),
            ..Self::default()
        }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Sets the object's name.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns resource and subresource in the form of rules: `pods/log`.
    #[must_use]
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// The decision of an authorizer about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason: the binding, its role and its subject, or the error that prevented a decision. May be empty.
    pub reason: String,
}

/// Decides whether users may make requests.
pub trait Authorizer: Send + Sync {
    /// Decides whether `user` may make the request in `attributes`.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;
}
