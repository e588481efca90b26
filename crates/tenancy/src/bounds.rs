//! The bounds that a Tenant sets for objects in its namespaces. Only this module decides whether a name is allowed or denied.
//!
//! Names are compared letter by letter, or by an expression in Go's syntax, as in Capsule. Expressions are compiled once within a size
//! limit, and match in linear time. An allowing expression must match the whole name, while Capsule lets it match anywhere in the name. A
//! denying expression may match anywhere, as in Capsule. An unreadable allowing expression allows nothing, an unreadable denying one denies
//! everything, and the Tenant reports both ([`Bounds::list_problems`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use tenure_api::metadata::NODE_SELECTOR;
use tenure_api::tenant::{AllowedClasses, AllowedNames, CollisionScope, DeniedNames, IngressOptions, TenantBounds};
use tenure_api::{ObjectView, TenantSpec};

/// The greatest number of bytes of an expression, and of its compiled form.
pub const LONGEST_EXPRESSION: usize = 1 << 10;
const COMPILED: usize = 64 << 10;

/// The bounds that a Tenant sets for its namespaces and the objects in them: allowed and denied registries, classes,
/// hosts, labels. Cheap to clone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "BoundsSpec", into = "BoundsSpec")]
pub struct Bounds(Arc<CompiledBounds>);

/// The bounds of a Tenant, with the compiled form of their expressions.
#[derive(Debug, Default)]
struct CompiledBounds {
    spec: BoundsSpec,
    /// The compiled expressions. They are compiled at the first use, since the reader of a Tenant may hold a lock that others wait
    /// for.
    expressions: OnceLock<BTreeMap<Expression, Result<Regex, String>>>,
}

/// The bounds in the form of a Tenant's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundsSpec {
    /// The bounds of objects in its namespaces.
    #[serde(flatten)]
    pub objects: TenantBounds,
    /// The bounds of its namespaces.
    pub namespace_options: ForbiddenMetadata,
}

/// Labels and annotations that owners may not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForbiddenMetadata {
    /// Labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forbidden_labels: Option<DeniedNames>,
    /// Annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forbidden_annotations: Option<DeniedNames>,
}

/// A regular expression in a Tenant's spec, by the part of a name that it must match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expression {
    /// An expression for whole names.
    Whole(String),
    /// An expression for any part of a name.
    Anywhere(String),
}

/// A list of allowed names: the common part of lists of names and of classes.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Exact names.
    pub exact: &'a [String],
    /// An expression.
    pub expression: Option<&'a str>,
    /// The default name, which is always allowed.
    pub default: Option<&'a str>,
}

impl<'a> From<&'a AllowedNames> for Names<'a> {
    fn from(names: &'a AllowedNames) -> Self {
        Self {
            exact: &names.allowed,
            expression: names.allowed_regex.as_deref().filter(|text| !text.is_empty()),
            default: None,
        }
    }
}

impl<'a> From<&'a AllowedClasses> for Names<'a> {
    fn from(classes: &'a AllowedClasses) -> Self {
        Self {
            exact: &classes.allowed,
            expression: classes.allowed_regex.as_deref().filter(|text| !text.is_empty()),
            default: find_default(classes),
        }
    }
}

/// Returns the class of objects that name none, if one is set.
#[must_use]
pub fn find_default(classes: &AllowedClasses) -> Option<&str> {
    classes.default.as_deref().filter(|name| !name.is_empty())
}

/// Checks whether the Tenant's selector of allowed classes matches the labels of a class.
#[must_use]
pub fn is_selected(classes: &AllowedClasses, class: &serde_json::Value) -> bool {
    let labels = ObjectView::new(class);
    let selector = classes.selector();
    selector.is_some_and(|selector| selector.selects(|key| labels.find_label(key)))
}

impl Names<'_> {
    fn expression(&self) -> Option<Expression> {
        self.expression.map(|text| Expression::Whole(text.to_owned()))
    }
}

fn find_denied_expression(names: &DeniedNames) -> Option<Expression> {
    let text = names.denied_regex.as_deref().filter(|text| !text.is_empty());
    text.map(|text| Expression::Anywhere(text.to_owned()))
}

impl From<BoundsSpec> for Bounds {
    fn from(spec: BoundsSpec) -> Self {
        Self(Arc::new(CompiledBounds {
            spec,
            expressions: OnceLock::new(),
        }))
    }
}

impl From<Bounds> for BoundsSpec {
    fn from(bounds: Bounds) -> Self {
        bounds.0.spec.clone()
    }
}

impl From<&TenantSpec> for Bounds {
    fn from(spec: &TenantSpec) -> Self {
        let options = spec.namespace_options.as_ref();
        let namespace_options = options.map(|options| ForbiddenMetadata {
            forbidden_labels: options.forbidden_labels.clone(),
            forbidden_annotations: options.forbidden_annotations.clone(),
        });
        let mut namespace_options = namespace_options.unwrap_or_default();
        if !spec.node_selector.is_empty() {
            // Kubernetes reads from this annotation on which nodes Pods run. An owner that sets it could leave the
            // tenant's nodes.
            let denied = namespace_options.forbidden_annotations.get_or_insert_default();
            denied.denied.push(NODE_SELECTOR.to_owned());
        }
        Self::from(BoundsSpec {
            objects: spec.bounds.clone(),
            namespace_options,
        })
    }
}

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}

impl Eq for Bounds {}

impl Bounds {
    /// Checks whether these bounds limit nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.spec == BoundsSpec::default()
    }

    /// Returns the bounds of objects.
    #[must_use]
    pub fn objects(&self) -> &TenantBounds {
        &self.0.spec.objects
    }

    /// Returns the scope in which no two Ingresses share a host and path, if the Tenant sets one.
    #[must_use]
    pub fn collision_scope(&self) -> Option<CollisionScope> {
        let options = self.objects().ingress_options.as_ref();
        options.and_then(IngressOptions::collision_scope)
    }

    /// Returns the bounds of namespaces.
    #[must_use]
    pub fn namespaces(&self) -> &ForbiddenMetadata {
        &self.0.spec.namespace_options
    }

    /// Checks whether a name is allowed.
    #[must_use]
    pub fn allows(&self, names: Names<'_>, name: &str) -> bool {
        names.exact.iter().any(|exact| exact == name)
            || names.default == Some(name)
            || names
                .expression()
                .is_some_and(|expression| matches!(self.find(&expression), Some(Ok(found)) if found.is_match(name)))
    }

    /// Checks whether a name is denied.
    #[must_use]
    pub fn denies(&self, names: &DeniedNames, name: &str) -> bool {
        names.denied.iter().any(|exact| exact == name)
            || find_denied_expression(names)
                .is_some_and(|expression| !matches!(self.find(&expression), Some(Ok(found)) if !found.is_match(name)))
    }

    /// Returns the expression for whole names in the form of an evaluator of Go's expressions, if it
    /// is readable.
    #[must_use]
    pub fn anchor(&self, names: Names<'_>) -> Option<String> {
        let expression = names.expression()?;
        let text = names.expression?;
        matches!(self.find(&expression), Some(Ok(_))).then(|| format!("^(?:{text})$"))
    }

    /// Checks whether the denying expression is readable, or missing.
    #[must_use]
    pub fn can_read(&self, names: &DeniedNames) -> bool {
        find_denied_expression(names).is_none_or(|expression| matches!(self.find(&expression), Some(Ok(_))))
    }

    fn find(&self, expression: &Expression) -> Option<&Result<Regex, String>> {
        self.expressions().get(expression)
    }

    fn expressions(&self) -> &BTreeMap<Expression, Result<Regex, String>> {
        self.0.expressions.get_or_init(|| {
            let all = self.list_expressions().into_iter();
            all.map(|(_, expression)| {
                let compiled = expression.compile();
                (expression, compiled)
            })
            .collect()
        })
    }

    /// Lists all expressions, by their paths in the spec.
    fn list_expressions(&self) -> Vec<(&'static str, Expression)> {
        let (objects, namespaces) = (self.objects(), self.namespaces());
        let ingress = objects.ingress_options.as_ref();
        let services = objects.service_options.as_ref();
        let classes = [
            ("storageClasses", objects.storage_classes.as_ref()),
            ("priorityClasses", objects.priority_classes.as_ref()),
            ("runtimeClasses", objects.runtime_classes.as_ref()),
            (
                "ingressOptions.allowedClasses",
                ingress.and_then(|options| options.allowed_classes.as_ref()),
            ),
        ];
        let names = [
            (
                "ingressOptions.allowedHostnames",
                ingress.and_then(|options| options.allowed_hostnames.as_ref()),
            ),
            ("containerRegistries", objects.container_registries.as_ref()),
        ];
        let denied = [
            (
                "serviceOptions.forbiddenLabels",
                services.and_then(|options| options.forbidden_labels.as_ref()),
            ),
            (
                "serviceOptions.forbiddenAnnotations",
                services.and_then(|options| options.forbidden_annotations.as_ref()),
            ),
            ("namespaceOptions.forbiddenLabels", namespaces.forbidden_labels.as_ref()),
            (
                "namespaceOptions.forbiddenAnnotations",
                namespaces.forbidden_annotations.as_ref(),
            ),
        ];
        let classes = classes.into_iter().map(|(path, list)| (path, list.map(Names::from)));
        let names = names.into_iter().map(|(path, list)| (path, list.map(Names::from)));
        let allowed = classes
            .chain(names)
            .filter_map(|(path, names)| Some((path, names?.expression()?)));
        let denied = denied
            .into_iter()
            .filter_map(|(path, names)| Some((path, find_denied_expression(names?)?)));
        allowed.chain(denied).collect()
    }

    /// Describes each unreadable expression, and its effect.
    #[must_use]
    pub fn list_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (path, expression) in self.list_expressions() {
            let Some(Err(why)) = self.find(&expression) else {
                continue;
            };
            problems.push(match expression {
                Expression::Whole(_) => {
                    format!("spec.{path}.allowedRegex: {why}: nothing is allowed by it; correct it, or list names in allowed")
                }
                Expression::Anywhere(_) => {
                    format!("spec.{path}.deniedRegex: {why}: everything is denied by it; correct it, or list names in denied")
                }
            });
        }
        let services = self.objects().service_options.as_ref();
        let addresses = services.and_then(|options| options.external_ips.as_ref());
        for text in addresses.into_iter().flat_map(|addresses| &addresses.allowed) {
            if Network::parse(text).is_none() {
                problems.push(format!(
                    "spec.serviceOptions.externalIPs.allowed: {text:?} is neither an address nor a network: nothing is allowed by it; write it as \
                     192.0.2.0/24 or 2001:db8::/64"
                ));
            }
        }
        problems
    }
}

impl Expression {
    fn compile(&self) -> Result<Regex, String> {
        let (Self::Whole(text) | Self::Anywhere(text)) = self;
        if text.len() > LONGEST_EXPRESSION {
            return Err(format!(
                "an expression of {} bytes, of at most {LONGEST_EXPRESSION}",
                text.len()
            ));
        }
        // Policies would read it as two lines.
        if text.contains(['\n', '\r']) {
            return Err("an expression of several lines".to_owned());
        }
        // Translated by itself first: an unmatched closing parenthesis would end the surrounding group.
        let translated = go_words::pattern::translate(text).map_err(|error| error.to_string())?;
        let translated = match self {
            Self::Whole(_) => format!("^(?:{translated})$"),
            Self::Anywhere(_) => translated,
        };
        let built = RegexBuilder::new(&translated)
            .size_limit(COMPILED)
            .dfa_size_limit(COMPILED)
            .build();
        built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "an expression that becomes too large: repeat less".to_owned(),
            _ => "an expression that can't be compiled".to_owned(),
        })
    }
}

/// A network of addresses, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads a network or an address. An IPv4 address in IPv6 form (`::ffff:192.0.2.1`) counts as the IPv4 address, as
    /// Kubernetes routes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok()?;
        let most: u8 = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|letter| letter.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        if bits > most || (address != address.to_canonical() && bits < most) {
            return None;
        }
        let first = address.to_canonical();
        Some(Self {
            first: mask(first, bits.min(if first.is_ipv4() { 32 } else { 128 })),
            bits: bits.min(if first.is_ipv4() { 32 } else { 128 }),
        })
    }

    /// Checks whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && mask(address, self.bits) == self.first
    }

    /// Returns the network in the form that expressions of policies read.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}", self.first, self.bits)
    }
}

/// Returns an address with all bits behind the prefix cleared.
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32_u32.saturating_sub(bits.into()))
                .unwrap_or_default();
            IpAddr::from((u32::from(address) & mask).to_be_bytes())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128_u32.saturating_sub(bits.into()))
                .unwrap_or_default();
            IpAddr::from((u128::from(address) & mask).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests;
