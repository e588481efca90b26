//! Admission rules of a kind, beside the rules for all kinds: defaults and limits from other objects.
//!
//! This module defines the form of such a rule and its input. The rules for all kinds, and the called webhooks, are elsewhere.

use serde_json::Value;
use tenure_auth::authorization::Authorizer;

use super::Request;
use crate::object::ObjectExt as _;

/// A part of Kubernetes' admission, as its flags name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Defaults for containers, and limits for Pods and claims.
    LimitRanger,
    /// The account of a Pod, and its token.
    ServiceAccount,
    /// The priority of a Pod, and that one class is the default.
    Priority,
    /// The time that a Pod stays on a node that is not reachable.
    DefaultTolerationSeconds,
    /// The default class of a claim.
    DefaultStorageClass,
    /// The claims that may grow.
    PersistentVolumeClaimResize,
    /// The default class of an Ingress.
    DefaultIngressClass,
    /// The fields that a RuntimeClass adds to a Pod.
    RuntimeClass,
    /// The right to approve certificate requests.
    CertificateApproval,
    /// The right to sign certificate requests.
    CertificateSigning,
    /// The groups for which no user gets a certificate.
    CertificateSubjectRestriction,
}

impl Plugin {
    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LimitRanger => "LimitRanger",
            Self::ServiceAccount => "ServiceAccount",
            Self::Priority => "Priority",
            Self::DefaultTolerationSeconds => "DefaultTolerationSeconds",
            Self::DefaultStorageClass => "DefaultStorageClass",
            Self::PersistentVolumeClaimResize => "PersistentVolumeClaimResize",
            Self::DefaultIngressClass => "DefaultIngressClass",
            Self::RuntimeClass => "RuntimeClass",
            Self::CertificateApproval => "CertificateApproval",
            Self::CertificateSigning => "CertificateSigning",
            Self::CertificateSubjectRestriction => "CertificateSubjectRestriction",
        }
    }
}

/// A request that creates or changes an object, as a rule sees it.
pub struct Admitted<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The namespace that it is in; empty without one.
    pub namespace: &'a str,
    /// The stored object, unless it is created.
    pub old: Option<&'a Value>,
    /// The authorizer.
    pub rights: &'a dyn Authorizer,
    /// The plural of a kind that is served: its group, its version, its name.
    pub plural_of: &'a dyn Fn(&str, &str, &str) -> Option<String>,
}

impl Admitted<'_> {
    /// Returns whether the request creates an object, rather than calling an endpoint of an existing one.
    #[must_use]
    pub fn is_creation(&self) -> bool {
        self.old.is_none() && self.is_whole()
    }

    /// Returns whether the request writes the object itself, not a subresource.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.request.subresource.is_none()
    }

    /// Returns the class of this resource that is marked as the default by one of these annotations: of several, the newest; of those, the
    /// first by name.
    #[must_use]
    pub fn find_default_class(&self, group: &str, plural: &str, marks: &[&str]) -> Option<String> {
        let is_marked = |class: &Value| {
            let annotations = class.metadata().and_then(|metadata| metadata.get("annotations"));
            let mark = |key: &&str| annotations?.get(key)?.as_str();
            marks.iter().any(|key| mark(key) == Some("true"))
        };
        let mut classes = self.request.objects.list(group, plural, None);
        classes.retain(is_marked);
        classes.sort_by(|one, other| {
            let created = |class: &Value| class.meta_str("creationTimestamp").to_owned();
            created(other)
                .cmp(&created(one))
                .then_with(|| one.name().cmp(other.name()))
        });
        classes.first().map(|class| class.name().to_owned())
    }
}

/// An object in the request's namespace that may be created in a moment, by group, plural and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The plural in URLs.
    pub plural: &'static str,
    /// The name of the object.
    pub name: String,
}

/// An admission rule of a kind. Its error text is the message for the requester.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The plugin that has it, by which it can be left out.
    pub plugin: Plugin,
    /// An object that the rule looks for and that every new namespace gets in a moment: it is worth waiting for.
    pub awaits: fn(&Admitted<'_>, &Value) -> Option<Awaited>,
    /// Changes an object, before it is made complete and checked.
    pub mutate: fn(&Admitted<'_>, &mut Value) -> Result<(), String>,
    /// Validates an object in its final form.
    pub validate: fn(&Admitted<'_>, &Value) -> Result<(), String>,
}

impl Rule {
    /// Creates a rule without an effect.
    #[must_use]
    pub const fn new(plugin: Plugin) -> Self {
        Self {
            plugin,
            awaits: |_, _| None,
            mutate: |_, _| Ok(()),
            validate: |_, _| Ok(()),
        }
    }
}
