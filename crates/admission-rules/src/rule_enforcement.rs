//! The purpose of each rule, and the components that enforce it: webhooks, policies, or policies of every installation.
//!
//! A rule that separates tenants, or that an administrator set for a tenant, stays in force while no webhook answers. Only a convenience may
//! fail open. `docs/reference/admission.md` shows this table, and a test compares both.

use super::Rule;
use super::policy::LEFT;

/// The purpose of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePurpose {
    /// Separates tenants from each other and from the platform.
    Isolation,
    /// Enforces a setting of an administrator for a tenant.
    Bound,
    /// Prevents surprises for the rule's own users. Such a rule may fail open.
    Convenience,
}

impl RulePurpose {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolation => "isolation",
            Self::Bound => "bound",
            Self::Convenience => "convenience",
        }
    }
}

/// How much of a rule ValidatingAdmissionPolicies enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyCoverage {
    /// Policies deny everything that the rule denies.
    Whole,
    /// Policies leave some cases ([`LEFT`]).
    InPart,
    /// Policies can't express the rule.
    Never,
    /// Policies of every installation enforce the rule, whatever else is switched on.
    Always,
}

impl PolicyCoverage {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::InPart => "in part",
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

impl Rule {
    /// Returns the purpose of the rule.
    #[must_use]
    pub fn purpose(self) -> RulePurpose {
        match self {
            Self::NamespaceMembership
            | Self::GitopsAccount
            | Self::Minting
            | Self::FluxAccount
            | Self::FluxReferences
            | Self::PersistentVolumes
            | Self::IngressOptions
            | Self::ResourceQuotas
            | Self::Tenant
            | Self::Access
            | Self::ControllerRights
            | Self::SecretWriter
            | Self::ManagedObjects
            | Self::ValueReferences => RulePurpose::Isolation,
            Self::NamespaceOptions
            | Self::FluxShard
            | Self::Cordoned
            | Self::ContainerRegistries
            | Self::ImagePullPolicies
            | Self::PriorityClasses
            | Self::RuntimeClasses
            | Self::StorageClasses
            | Self::ServiceOptions => RulePurpose::Bound,
            Self::GitManaged | Self::FieldOwnership => RulePurpose::Convenience,
        }
    }

    /// Lists the webhooks (`NAME.admission.tenure.dev`) for the rule that fail closed: they deny such
    /// writes while Tenure doesn't answer.
    #[must_use]
    pub fn closed_webhooks(self) -> &'static [&'static str] {
        match self {
            Self::NamespaceMembership | Self::NamespaceOptions => &["namespaces"],
            Self::GitopsAccount => &["accounts", "spoken-for-exclusive"],
            Self::FluxAccount | Self::FluxReferences | Self::FluxShard => &["flux"],
            Self::Cordoned => &["cordoned"],
            Self::ContainerRegistries
            | Self::ImagePullPolicies
            | Self::PriorityClasses
            | Self::RuntimeClasses
            | Self::StorageClasses
            | Self::ServiceOptions => &["objects"],
            Self::PersistentVolumes => &["isolation", "volumes"],
            Self::IngressOptions => &["objects", "isolation"],
            Self::ResourceQuotas => &["quotas"],
            Self::Tenant => &["tenants"],
            Self::Access => &["access", "access-asked"],
            Self::ManagedObjects => &["managed-objects"],
            // Minting has no such webhook, since the process that answers needs tokens first. Policies enforce it, and those of every
            // installation its larger part.
            Self::Minting
            | Self::GitManaged
            | Self::FieldOwnership
            | Self::ControllerRights
            | Self::SecretWriter
            | Self::ValueReferences => &[],
        }
    }

    /// Lists the webhooks for the rule that fail open: they allow a write while Tenure doesn't
    /// answer.
    #[must_use]
    pub fn open_webhooks(self) -> &'static [&'static str] {
        match self {
            Self::GitManaged => &["writes", "managed"],
            Self::FieldOwnership => &["packages"],
            Self::Minting => &["minting"],
            _ => &[],
        }
    }

    /// Returns the part of the rule that policies enforce.
    #[must_use]
    pub fn kept_by_policies(self) -> PolicyCoverage {
        match self {
            Self::ResourceQuotas => PolicyCoverage::Never,
            Self::ControllerRights | Self::SecretWriter | Self::ValueReferences => PolicyCoverage::Always,
            rule if LEFT.iter().any(|left| left.rule == rule) => PolicyCoverage::InPart,
            _ => PolicyCoverage::Whole,
        }
    }

    /// Checks whether webhooks enforce the rule.
    #[must_use]
    pub fn has_webhooks(self) -> bool {
        !self.closed_webhooks().is_empty() || !self.open_webhooks().is_empty()
    }
}
