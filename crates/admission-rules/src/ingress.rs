//! The rules for hostnames of an Ingress: its Tenant must allow them, and a hostname that begins with `*` needs a separate permission. The
//! rule of classes covers its class.
//!
//! A rule without a host and a default backend take requests that no other rule matches. So if hostnames are bounded, neither is allowed.
//! Capsule checks only rules. Only new hostnames are checked, and existing ones are not checked again. A common host and path of two
//! Ingresses shows only by comparing all of them, so [`super::collision`] checks that separately.

use std::collections::BTreeSet;

use serde_json::Value;

use super::request::read_metadata;
use super::{Case, Findings, Refusal, Rule, ingress_annotation, tenant_limits};

/// Lists the hostnames of an Ingress. The empty one means all hosts.
fn list_hosts(ingress: &Value) -> impl Iterator<Item = &str> {
    let spec = ingress.get("spec");
    let rules = spec.and_then(|spec| spec.get("rules")).and_then(Value::as_array);
    let hosts = rules.into_iter().flatten();
    let hosts = hosts.map(|rule| rule.get("host").and_then(Value::as_str).unwrap_or_default());
    let backend = spec.and_then(|spec| spec.get("defaultBackend"));
    hosts.chain(backend.filter(|backend| !backend.is_null()).map(|_| ""))
}

/// Subresources of an Ingress with which its metadata can be written.
const PARTS: [&str; 1] = ["status"];

/// Denies annotations that add hosts, if the request adds or changes them.
fn check_annotations(case: Case<'_>, tenant: &str) -> Result<(), Refusal> {
    let read = |object: Option<&Value>| object.map(read_metadata).and_then(|metadata| metadata.annotations);
    let (old, new) = (
        read(case.request.old_object).unwrap_or_default(),
        read(case.request.object),
    );
    let refused = ingress_annotation::list_refused(case.facts.settings());
    let new = new.unwrap_or_default();
    let mut changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    let found = changed.find(|(key, _)| refused.iter().any(|pattern| ingress_annotation::is_match(pattern, key)));
    let Some((key, _)) = found else { return Ok(()) };
    let (why, remedy) = ingress_annotation::write_annotation_message(tenant, &tenant_limits::shorten(key));
    Err(Refusal {
        rule: Rule::IngressOptions,
        why,
        remedy,
    })
}

pub(super) fn check(case: Case<'_>, _findings: &mut Findings) -> Result<(), Refusal> {
    if !case.request.is_about("networking.k8s.io", "ingresses", &PARTS) {
        return Ok(());
    }
    let Some((tenant, object)) = tenant_limits::find_tenant(case) else {
        return Ok(());
    };
    let options = tenant.bounds.objects().ingress_options.as_ref();
    let has_wildcards = options.and_then(|options| options.allow_wildcard_hostnames);
    let names = options.and_then(|options| options.allowed_hostnames.as_ref());
    if names.is_some() {
        check_annotations(case, &tenant.name)?;
    }
    let before: BTreeSet<&str> = case.request.old_object.into_iter().flat_map(list_hosts).collect();
    for host in list_hosts(object).filter(|host| !before.contains(host)) {
        if host.starts_with('*') && !has_wildcards.unwrap_or_default() {
            return Err(Refusal {
                rule: Rule::IngressOptions,
                why: format!(
                    "spec.rules: Tenant {} doesn't allow hostname {}, which begins with *",
                    tenant.name,
                    tenant_limits::shorten(host)
                ),
                remedy: "name hosts one by one, or ask an administrator for spec.ingressOptions.allowWildcardHostnames"
                    .to_owned(),
            });
        }
        let Some(names) = names else { continue };
        if host.is_empty() {
            return Err(Refusal {
                rule: Rule::IngressOptions,
                why: format!(
                    "spec.rules: Tenant {} allows only some hostnames: a rule without a host and a default backend would take all of them",
                    tenant.name
                ),
                remedy: tenant_limits::advise("spec.ingressOptions.allowedHostnames", names.into()),
            });
        }
        if !tenant.bounds.allows(names.into(), host) {
            return Err(Refusal {
                rule: Rule::IngressOptions,
                why: format!(
                    "spec.rules: Tenant {} doesn't allow hostname {}",
                    tenant.name,
                    tenant_limits::shorten(host)
                ),
                remedy: tenant_limits::advise("spec.ingressOptions.allowedHostnames", names.into()),
            });
        }
    }
    Ok(())
}
