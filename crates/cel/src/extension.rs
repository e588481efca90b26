//! The values of Kubernetes' libraries: quantities, addresses, URLs, versions, formats, and questions to the authorizer.

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
    /// Of `quantity()`.
    Quantity(Quantity),
    /// Of `ip()`.
    Ip(IpAddr),
    /// Of `cidr()`.
    Cidr(IpAddr, u8),
    /// Of `url()`.
    Url(Arc<Url>),
    /// Of `semver()`.
    Semver(Arc<Version>),
    /// Of `format.….()`.
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

/// What the `authorizer` variable is asked: whose permission, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    /// How far the question has come.
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

/// How far a question to the authorizer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Nothing but who is asked for.
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
    /// A question about the user of the request: the value of the variable `authorizer`.
    pub fn authorizer() -> Self {
        Self::default()
    }

    /// A question about a resource: what the variable `authorizer.requestResource` holds.
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

    /// As a value for a variable.
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
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while it was decided.
    pub error: Option<String>,
}
