//! What the objects of a kind meet in admission beside the rules for all kinds: what other objects give them, and what these forbid.
//!
//! Owns the shape of such a rule and what it is told. Refuses to know the rules for all kinds, and which programs are asked.

use serde_json::Value;
use tenure_access::authorization::Authorizer;

use super::Request;
use crate::object::ObjectExt as _;

/// A part of Kubernetes' admission, as its flags name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// What containers get that say nothing, and what Pods and claims may ask for.
    LimitRanger,
    /// The account of a Pod, and its token.
    ServiceAccount,
    /// The priority of a Pod, and that one class is the default.
    Priority,
    /// How long a Pod stays on a node that is away.
    DefaultTolerationSeconds,
    /// The class of a claim that names none.
    DefaultStorageClass,
    /// Which claims may grow.
    PersistentVolumeClaimResize,
    /// The class of an Ingress that names none.
    DefaultIngressClass,
    /// What the class of a Pod's runtime adds.
    RuntimeClass,
    /// Who decides on requests for certificates.
    CertificateApproval,
    /// Who signs them.
    CertificateSigning,
    /// Which groups nobody gets a certificate for.
    CertificateSubjectRestriction,
}

impl Plugin {
    /// The name.
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
    /// Who may do what.
    pub rights: &'a dyn Authorizer,
    /// The plural of a kind that is served: its group, its version, its name.
    pub plural_of: &'a dyn Fn(&str, &str, &str) -> Option<String>,
}

impl Admitted<'_> {
    /// Whether an object is created, and nothing is asked of one that is there.
    #[must_use]
    pub fn is_creation(&self) -> bool {
        self.old.is_none() && self.is_whole()
    }

    /// Whether it is about the object itself, and no endpoint of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.request.subresource.is_none()
    }

    /// The class of this resource that is marked as the default by one of these annotations: of several, the newest; of those, the
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

/// An object that may be on its way: by group, plural and name, in the request's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The plural in URLs.
    pub plural: &'static str,
    /// Its name.
    pub name: String,
}

/// One rule. What it refuses is told in the words for the requester.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The plugin that has it, by which it can be left out.
    pub plugin: Plugin,
    /// An object that the rule looks for and that every new namespace gets in a moment: it is worth waiting for.
    pub awaits: fn(&Admitted<'_>, &Value) -> Option<Awaited>,
    /// Changes an object, before it is made complete and checked.
    pub mutate: fn(&Admitted<'_>, &mut Value) -> Result<(), String>,
    /// Refuses an object as it would be stored.
    pub validate: fn(&Admitted<'_>, &Value) -> Result<(), String>,
}

impl Rule {
    /// A rule that does nothing yet.
    #[must_use]
    pub const fn of(plugin: Plugin) -> Self {
        Self {
            plugin,
            awaits: |_, _| None,
            mutate: |_, _| Ok(()),
            validate: |_, _| Ok(()),
        }
    }
}
