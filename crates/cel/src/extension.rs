//! The values of Kubernetes' libraries: quantities, addresses, URLs, versions, formats, and authorizer checks.

use std::net::IpAddr;
use std::sync::Arc;

use go_words::quantity::Quantity;
use go_words::version::Version;

use crate::functions::named_formats::NamedFormat;
use crate::types::Type;
use crate::url::Url;

/// A value of one of Kubernetes' libraries.
#[derive(Debug, Clone)]
pub enum Extension {
    /// The result of `quantity()`.
    Quantity(Quantity),
    /// The result of `ip()`.
    Ip(IpAddr),
    /// The result of `cidr()`.
    Cidr(IpAddr, u8),
    /// The result of `url()`.
    Url(Arc<Url>),
    /// The result of `semver()`.
    Semver(Arc<Version>),
    /// The result of `format.….()`.
    Format(&'static NamedFormat),
    /// A question to the authorizer, as far as it has been asked.
    Check(Arc<Check>),
    /// The authorizer's answer.
    Decision(Arc<Decision>),
}

impl Extension {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Self::Quantity(_) => Type::object("kubernetes.Quantity"),
            Self::Ip(_) => Type::Opaque("net.IP".into()),
            Self::Cidr(..) => Type::Opaque("net.CIDR".into()),
            Self::Url(_) => Type::object("kubernetes.URL"),
            Self::Semver(_) => Type::object("kubernetes.Semver"),
            Self::Format(_) => Type::object("kubernetes.NamedFormat"),
            Self::Check(check) => Type::object(check.type_name()),
            Self::Decision(_) => Type::object("kubernetes.authorization.Decision"),
        }
    }

    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Ip(address) => Some(if address.is_ipv4() { 4 } else { 16 }),
            Self::Cidr(address, _) => Some(if address.is_ipv4() { 4 } else { 16 }),
            _ => None,
        }
    }
}

impl PartialEq for Extension {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(left), Self::Quantity(right)) => left == right,
            (Self::Ip(left), Self::Ip(right)) => left == right,
            (Self::Cidr(left, bits), Self::Cidr(right, other_bits)) => left == right && bits == other_bits,
            (Self::Url(left), Self::Url(right)) => left == right,
            (Self::Semver(left), Self::Semver(right)) => left.cmp_precedence(right).is_eq(),
            (Self::Format(left), Self::Format(right)) => left.name == right.name,
            (Self::Check(left), Self::Check(right)) => left == right,
            (Self::Decision(left), Self::Decision(right)) => left == right,
            _ => false,
        }
    }
}

/// A check of the `authorizer` variable: the subject, and the permission to check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    /// The completed part of the check.
    pub stage: Stage,
    /// Namespace and name of the ServiceAccount to ask for, instead of the request's user.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource's.
    pub path: String,
    /// The API group.
    pub group: String,
    /// The resource, in plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// The field selector, as it was written.
    pub field_selector: Option<String>,
    /// The label selector, as it was written.
    pub label_selector: Option<String>,
    /// The verb.
    pub verb: String,
}

/// The completed part of a check for the authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Only the subject is known.
    #[default]
    Authorizer,
    /// A path.
    Path,
    /// An API group.
    Group,
    /// A resource.
    Resource,
}

impl Check {
    /// Creates a check of the user of the request: the value of the variable `authorizer`.
    pub fn authorizer() -> Self {
        Self::default()
    }

    /// Creates a check of a resource, as in the variable `authorizer.requestResource`.
    pub fn of_resource(group: &str, resource: &str, subresource: &str, namespace: &str, name: &str) -> Self {
        Self {
            stage: Stage::Resource,
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Converts the check into a value for a variable.
    pub fn into_value<'a>(self) -> crate::value::Value<'a> {
        crate::value::Value::Extension(Extension::Check(Arc::new(self)))
    }

    pub(crate) fn with_verb(&self, verb: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            ..self.clone()
        }
    }

    fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }
}

/// The authorizer's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Whether the check is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// The error of the authorizer.
    pub error: Option<String>,
}
