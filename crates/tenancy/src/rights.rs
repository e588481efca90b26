//! The questions for Kubernetes' authorizer. No list names the users that may repair a platform: they have these rights in RBAC,
//! which an administrator can read (`kubectl auth can-i own tenants/blue`).

/// The verb of users that decide about a tenant's new namespaces, on `tenants` of `capsule.clastix.io`.
pub const OWN: &str = "own";
/// The verb of owners, on `tenants`. They create namespaces for Tenants, and none without a tenant.
pub const PROVISION: &str = "provision";
/// The verb of owners whose Tenant may have another namespace, on `tenants`, by name. Policies ask for it, since they can't
/// count.
pub const EXTEND: &str = "extend";
/// The verb of every owner of a Tenant, also of a cordoned one, on `tenants`, by name. The policy on standing grants asks for it, since [`OWN`] ends with
/// the cordon.
pub const BE_OWNER: &str = "be-owner";
/// The verb of users that may assign an existing namespace to a tenant, or remove it from one.
pub const ADOPT: &str = "adopt";
/// The verb of accounts that may request tokens of a tenant's GitOps account, on `serviceaccounts`.
pub const MINT: &str = "mint";
/// The verb of Tenure's own accounts that may request tokens of a ServiceAccount that is an administrator of the cluster, on `serviceaccounts`, by
/// name. An administrator grants it. No role of Tenure has it.
pub const MINT_ADMINISTRATOR: &str = "mint-administrator";
/// The verb of the controller on `namespaces`, by name, where it may lower the Pod Security level because a Tenant says so.
pub const LOWER_POD_SECURITY: &str = "lower-pod-security";
/// The verb of the platform's chart, on `packages` of `cozystack.io`, and on the names of the objects that the charts come from.
pub const RENDER: &str = "render";
/// The verb of users that are warned, and not denied, when they write fields of the platform's chart or its
/// operator.
pub const OVERRIDE: &str = "override";
/// The verb for the status of Packages. The operator that reconciles them has it.
pub const REPORT: &str = "report";

/// The verb of approvers of requests for a project or group of a host, on `fluxaccesstargets` of `tenure.dev`, by their
/// names.
pub const APPROVE: &str = "approve";
/// The verb of users that may approve their own requests, on all of them.
pub const APPROVE_OWN: &str = "approve-own";
/// The verb of the account that answers for users of a host, on their targets.
pub const VOUCH: &str = "vouch";
/// The verb of the controllers, which write requests, targets and statuses.
pub const RECORD: &str = "record";

/// A question to the authorizer about the user that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Verb.
    pub verb: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource, and a subresource behind a slash.
    pub resource: &'a str,
    /// Namespace. Empty for objects without one.
    pub namespace: &'a str,
    /// Name; empty for all of them.
    pub name: &'a str,
}

impl<'a> Question<'a> {
    /// Returns the question about a Tenant, or about all of them.
    #[must_use]
    pub fn about_tenant(verb: &'a str, name: &'a str) -> Self {
        Self {
            verb,
            group: "capsule.clastix.io",
            resource: "tenants",
            namespace: "",
            name,
        }
    }

    /// Returns the question whether the user may update this namespace: by the user's rights in the cluster, or in the namespace itself.
    #[must_use]
    pub fn about_namespace_update(namespace: &'a str) -> Self {
        Self {
            verb: "update",
            group: "",
            resource: "namespaces",
            namespace,
            name: namespace,
        }
    }

    /// Returns the question about a Package, or about a source of the platform's charts. Both are asked of Packages, since users that write their own
    /// sources often have every verb on sources.
    #[must_use]
    pub fn about_package(verb: &'a str, name: &'a str) -> Self {
        Self {
            verb,
            group: "cozystack.io",
            resource: "packages",
            namespace: "",
            name,
        }
    }

    /// Returns the question about a project or group of a host, or about all of them.
    #[must_use]
    pub fn about_target(verb: &'a str, name: &'a str) -> Self {
        Self {
            verb,
            group: tenure_api::access::GROUP,
            resource: tenure_api::access::TARGETS,
            namespace: "",
            name,
        }
    }

    /// Returns the question whether the user may do everything with everything, as an administrator
    /// of the cluster.
    #[must_use]
    pub fn about_everything() -> Self {
        Self {
            verb: "*",
            group: "*",
            resource: "*",
            namespace: "",
            name: "",
        }
    }

    /// Returns the question about tokens of a ServiceAccount that is an administrator of the cluster.
    #[must_use]
    pub fn about_administrator(namespace: &'a str, name: &'a str) -> Self {
        Self {
            verb: MINT_ADMINISTRATOR,
            ..Self::about_account(namespace, name)
        }
    }

    /// Returns the question about tokens of a tenant's GitOps account.
    #[must_use]
    pub fn about_account(namespace: &'a str, name: &'a str) -> Self {
        Self {
            verb: MINT,
            group: "",
            resource: "serviceaccounts",
            namespace,
            name,
        }
    }
}
