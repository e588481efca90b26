//! The facts about a Tenant's bounds for objects in its namespaces: a line for each allowed or denied value.
//!
//! This module writes the lines and the expressions that read them. Labels of a class are left to components that can read the class. An
//! unreadable expression and a too long list are not written. Without its line, an allow list allows nothing, and a deny list denies
//! everything.

use tenure_api::tenant::{AllowedClasses, DeniedNames};

use super::super::classes::USES;
use super::super::service::{TYPES, is_allowed};
use super::facts::{YES, read};
use super::{FACTS_PREFIX, quote, variable};
use tenure_tenancy::bounds::{Bounds, Names, Network};

/// Registries of images.
pub(super) const REGISTRIES: &str = "container-registries";
/// When images may be pulled, separated by commas.
pub(super) const PULL_POLICIES: &str = "image-pull-policies";
/// Hostnames of Ingresses.
pub(super) const HOSTNAMES: &str = "hostnames";
/// Whether no two Ingresses may share a host and path while no component compares them.
pub(super) const UNCOMPARED_HOSTS: &str = "uncompared-hosts";
/// Whether hostnames may begin with `*`.
pub(super) const WILDCARDS: &str = "wildcard-hostnames";
/// Denied types of Services, separated by commas.
pub(super) const REFUSED_TYPES: &str = "refused-services";
/// Networks of external addresses, separated by commas.
pub(super) const EXTERNAL_IPS: &str = "external-ips";
/// Labels of Services that are denied.
pub(super) const SERVICE_LABELS: &str = "denied-service-labels";
/// Annotations of Services that are denied.
pub(super) const SERVICE_ANNOTATIONS: &str = "denied-service-annotations";

/// Labels of the namespace that owners may not set.
pub(super) const NAMESPACE_LABELS: &str = "denied-labels";
/// Annotations of the namespace that owners may not set.
pub(super) const NAMESPACE_ANNOTATIONS: &str = "denied-annotations";

/// The greatest length of one of these facts: a namespace must have capacity for all of them.
const LONGEST: usize = 8 << 10;
/// The beginnings of lines: for a name, for an expression, for allowed labels, for a default of objects that name none, and for the denial of
/// everything.
const NAME: &str = "=";
const EXPRESSION: &str = "~";
pub(super) const BY_LABELS: &str = "?";
pub(super) const HAS_DEFAULT: &str = "!";
const ALL: &str = "*";

/// Writes the facts. Where only policies check writes, two cases are denied because no policy can decide them: the labels of a class, and whether
/// another Ingress has a host.
pub(super) fn describe(bounds: &Bounds, are_alone: bool, write: &mut impl FnMut(&str, String)) {
    let objects = bounds.objects();
    for class_use in &USES {
        if let Some(classes) = (class_use.find)(objects) {
            write(class_use.rule_fact(), list_classes(bounds, classes, are_alone));
        }
    }
    if are_alone && bounds.collision_scope().is_some() {
        write(UNCOMPARED_HOSTS, YES.to_owned());
    }
    if let Some(names) = &objects.container_registries {
        write(REGISTRIES, join(list_names(bounds, names.into()), "\n"));
    }
    if !objects.image_pull_policies.is_empty() {
        let named = objects.image_pull_policies.iter().filter(|name| !name.contains(','));
        write(PULL_POLICIES, join(named.cloned(), ","));
    }
    let namespaces = bounds.namespaces();
    list_all_denied(
        bounds,
        write,
        [
            (NAMESPACE_LABELS, &namespaces.forbidden_labels),
            (NAMESPACE_ANNOTATIONS, &namespaces.forbidden_annotations),
        ],
    );
    let ingress = objects.ingress_options.as_ref();
    if ingress.and_then(|options| options.allow_wildcard_hostnames) == Some(true) {
        write(WILDCARDS, YES.to_owned());
    }
    if let Some(names) = ingress.and_then(|options| options.allowed_hostnames.as_ref()) {
        write(HOSTNAMES, join(list_names(bounds, names.into()), "\n"));
    }
    let Some(options) = &objects.service_options else {
        return;
    };
    if let Some(services) = &options.allowed_services {
        let refused = TYPES.iter().filter(|(name, _)| !is_allowed(services, name));
        write(REFUSED_TYPES, join(refused.map(|(name, _)| (*name).to_owned()), ","));
    }
    if let Some(addresses) = &options.external_ips {
        let networks = addresses.allowed.iter().filter_map(|text| Network::parse(text));
        write(EXTERNAL_IPS, join(networks.map(|network| network.describe()), ","));
    }
    list_all_denied(
        bounds,
        write,
        [
            (SERVICE_LABELS, &options.forbidden_labels),
            (SERVICE_ANNOTATIONS, &options.forbidden_annotations),
        ],
    );
}

fn list_all_denied(bounds: &Bounds, write: &mut impl FnMut(&str, String), lists: [(&str, &Option<DeniedNames>); 2]) {
    for (key, denied) in lists {
        if let Some(denied) = denied {
            write(key, list_denied(bounds, denied));
        }
    }
}

/// Joins lines, or returns the replacement if they are too long.
fn join(lines: impl Iterator<Item = String>, between: &str) -> String {
    let joined = lines.collect::<Vec<_>>().join(between);
    if joined.len() <= LONGEST { joined } else { String::new() }
}

fn list_names(bounds: &Bounds, names: Names<'_>) -> impl Iterator<Item = String> {
    let exact = names.default.into_iter().chain(names.exact.iter().map(String::as_str));
    // No object has a name of several lines.
    let exact = exact.filter(|name| !name.contains('\n'));
    let expression = bounds.anchor(names);
    exact
        .map(|name| format!("{NAME}{name}"))
        .chain(expression.map(|text| format!("{EXPRESSION}{text}")))
}

fn list_classes(bounds: &Bounds, classes: &AllowedClasses, are_alone: bool) -> String {
    let names = Names::from(classes);
    let has_default = names.default.map(|_| HAS_DEFAULT.to_owned());
    let by_labels = classes.selector().filter(|_| !are_alone).map(|_| BY_LABELS.to_owned());
    let marks: Vec<String> = has_default.into_iter().chain(by_labels).collect();
    let all = join(marks.iter().cloned().chain(list_names(bounds, names)), "\n");
    if all.is_empty() { marks.join("\n") } else { all }
}

fn list_denied(bounds: &Bounds, denied: &DeniedNames) -> String {
    let exact = denied.denied.iter().filter(|name| !name.contains('\n'));
    let exact = exact.map(|name| format!("{NAME}{name}"));
    let expression = denied.denied_regex.iter().filter(|text| !text.is_empty());
    let lines = exact.chain(expression.map(|text| format!("{EXPRESSION}{text}")));
    let all = lines.collect::<Vec<_>>().join("\n");
    if bounds.can_read(denied) && all.len() <= LONGEST {
        all
    } else {
        ALL.to_owned()
    }
}

/// Returns the expression that a fact is written.
pub(super) fn is_fact_written(key: &str) -> String {
    format!("{} in variables.facts", quote(&format!("{FACTS_PREFIX}{key}")))
}

/// Returns the lines of a fact, as a variable.
pub(super) fn lines(name: &str, key: &str, between: &str) -> (String, String) {
    variable(name, format!("{}.split({between})", read(key)))
}

/// Returns the expression that such lines contain a name.
pub(super) fn is_listed(lines: &str, name: &str) -> String {
    format!(
        "(({own} + {name}) in {lines} || {lines}.exists(line, line.startsWith({expression}) && {name}.matches(line.substring(1))))",
        own = quote(NAME),
        expression = quote(EXPRESSION),
    )
}

/// Returns the expression that such lines deny a name.
pub(super) fn is_denied(lines: &str, name: &str) -> String {
    format!("({} in {lines} || {})", quote(ALL), is_listed(lines, name))
}
