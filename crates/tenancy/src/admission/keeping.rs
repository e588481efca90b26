//! The purpose of each rule, and what keeps it: webhooks, policies, or policies of every installation.
//!
//! A rule that separates tenants, or that an administrator set for a tenant, holds while no webhook answers. Only a convenience may fail open.
//! `docs/reference/admission.md` shows this table, and a test compares both.

use super::Rule;
use super::policy::LEFT;

/// What a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It separates tenants from each other and from the platform.
    Isolation,
    /// An administrator set it for a tenant.
    Bound,
    /// It saves its own users from surprises. It may fail open.
    Convenience,
}

impl Purpose {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolation => "isolation",
            Self::Bound => "bound",
            Self::Convenience => "convenience",
        }
    }
}

/// How far policies keep a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByPolicies {
    /// They refuse everything that the rule refuses.
    Whole,
    /// They leave something ([`LEFT`]).
    InPart,
    /// They can't express it.
    Never,
    /// Policies of every installation keep it, whatever else is switched on.
    Always,
}

impl ByPolicies {
    /// Its name.
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
    /// What the rule is for.
    #[must_use]
    pub fn purpose(self) -> Purpose {
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
            | Self::ManagedObjects => Purpose::Isolation,
            Self::NamespaceOptions
            | Self::FluxShard
            | Self::Cordoned
            | Self::ContainerRegistries
            | Self::ImagePullPolicies
            | Self::PriorityClasses
            | Self::RuntimeClasses
            | Self::StorageClasses
            | Self::ServiceOptions => Purpose::Bound,
            Self::GitManaged | Self::FieldOwnership => Purpose::Convenience,
        }
    }

    /// The webhooks (`NAME.admission.tenure.dev`) that refuse what the rule refuses while nobody answers.
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
            // Of minting: the process that answers needs tokens first. Policies keep it, and those of every installation its larger part.
            Self::Minting | Self::GitManaged | Self::FieldOwnership | Self::ControllerRights | Self::SecretWriter => {
                &[]
            }
        }
    }

    /// The webhooks that ask about the rule and let a write pass while nobody answers.
    #[must_use]
    pub fn open_webhooks(self) -> &'static [&'static str] {
        match self {
            Self::GitManaged => &["writes", "managed"],
            Self::FieldOwnership => &["packages"],
            Self::Minting => &["minting"],
            _ => &[],
        }
    }

    /// How far policies keep the rule.
    #[must_use]
    pub fn kept_by_policies(self) -> ByPolicies {
        match self {
            Self::ResourceQuotas => ByPolicies::Never,
            Self::ControllerRights | Self::SecretWriter => ByPolicies::Always,
            rule if LEFT.iter().any(|left| left.rule == rule) => ByPolicies::InPart,
            _ => ByPolicies::Whole,
        }
    }

    /// Whether webhooks ask about the rule.
    #[must_use]
    pub fn has_webhooks(self) -> bool {
        !self.closed_webhooks().is_empty() || !self.open_webhooks().is_empty()
    }
}
