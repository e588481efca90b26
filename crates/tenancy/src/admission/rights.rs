//! What is asked of Kubernetes' authorizer. Who may repair a platform is nobody's list: it is who holds these rights, by RBAC that an
//! administrator can read (`kubectl auth can-i own tenants/blue`).

/// The verb of who decides whose a tenant's namespaces are, on `tenants` of `capsule.clastix.io`: a new one may be the tenant's.
pub const OWN: &str = "own";
/// The verb of owners whose Tenant has room for another namespace, on `tenants`, by name: asked by policies, which can't count.
pub const EXTEND: &str = "extend";
/// The verb of every owner of a Tenant, also of a cordoned one, on `tenants`, by name: the policy on standing grants asks for it, since [`OWN`] ends with
/// the cordon.
pub const BE_OWNER: &str = "be-owner";
/// The verb of who may make an existing namespace a tenant's, or nobody's again.
pub const ADOPT: &str = "adopt";
/// The verb of who asks for tokens of the account that a tenant's surfaces act as, on `serviceaccounts`.
pub const MINT: &str = "mint";
/// The verb of which of Tenure's own accounts asks for tokens of a ServiceAccount that is an administrator of the cluster, on `serviceaccounts`, by
/// name. An administrator gives it; Tenure brings no role that has it.
pub const MINT_ADMINISTRATOR: &str = "mint-administrator";
/// The verb of the controller on `namespaces`, by name, where it may lower the Pod Security level because a Tenant says so.
pub const LOWER_POD_SECURITY: &str = "lower-pod-security";
/// The verb of who writes as the platform's chart, on `packages` of `cozystack.io`, and on the names of what the charts come from.
pub const RENDER: &str = "render";
/// The verb of who is warned, and not refused, when he writes what is the platform chart's or its operator's.
pub const OVERRIDE: &str = "override";
/// The verb of who writes the status of Packages: the operator that reconciles them.
pub const REPORT: &str = "report";

/// The verb of who answers requests for a project or group of a host, on `fluxaccesstargets` of `tenure.dev`, by their names.
pub const APPROVE: &str = "approve";
/// The verb of who may answer what he asks for himself, on all of them.
pub const APPROVE_OWN: &str = "approve-own";
/// The verb of the account that answers for people whom a host knows, on their targets.
pub const VOUCH: &str = "vouch";
/// The verb of who writes requests, targets and statuses: the controllers.
pub const RECORD: &str = "record";

/// A question to the authorizer about the one who sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Verb.
    pub verb: &'a str,
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource, and a subresource behind a slash.
    pub resource: &'a str,
    /// Namespace; empty for what has none.
    pub namespace: &'a str,
    /// Name; empty for all of them.
    pub name: &'a str,
}

impl<'a> Question<'a> {
    /// Whether somebody may do something with a Tenant, or with all of them.
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

    /// Whether somebody may do something with a Package, or with what the platform's charts come from: asked of Packages in both cases, since who may
    /// write sources of his own is often given every verb on them.
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

    /// Whether somebody may do something for a project or group of a host, or for all of them.
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

    /// Whether somebody may do everything with everything: he is an administrator of the cluster.
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

    /// Whether somebody may ask for tokens of a ServiceAccount that is an administrator of the cluster.
    #[must_use]
    pub fn about_administrator(namespace: &'a str, name: &'a str) -> Self {
        Self {
            verb: MINT_ADMINISTRATOR,
            ..Self::about_account(namespace, name)
        }
    }

    /// Whether somebody may ask for tokens of a ServiceAccount that a tenant's surfaces act as.
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
