//! The rules for a Service: its type, its external addresses, and its labels and annotations.
//!
//! Only new values are checked, in writes of the whole Service and of its status, with which its metadata can be written, too. A type, an address or a
//! label that it had before isn't checked again. Capsule checks all of them at every update. Metadata that the Tenant demands for Services is set
//! whenever a whole Service is written, except keys that the Tenant also denies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use tenure_api::tenant::AllowedServices;

use super::{Case, Change, Findings, Refusal, Rule, metadata, tenant_limits};
use tenure_tenancy::bounds::{Bounds, Network};

/// The types that a Tenant may deny, and the paths of these settings.
pub(super) const TYPES: [(&str, &str); 3] = [
    ("NodePort", "nodePort"),
    ("ExternalName", "externalName"),
    ("LoadBalancer", "loadBalancer"),
];

/// Checks whether a type is allowed.
pub(super) fn is_allowed(services: &AllowedServices, name: &str) -> bool {
    let allowed = match name {
        "NodePort" => services.node_port,
        "ExternalName" => services.external_name,
        "LoadBalancer" => services.load_balancer,
        _ => None,
    };
    allowed.unwrap_or(true)
}

fn read_type(service: &Value) -> &str {
    let text = service.pointer("/spec/type").and_then(Value::as_str);
    text.filter(|text| !text.is_empty()).unwrap_or("ClusterIP")
}

fn list_addresses(service: &Value) -> impl Iterator<Item = &str> {
    let all = service.pointer("/spec/externalIPs").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .map(|address| address.as_str().unwrap_or_default())
}

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    if !request.is_about("", "services", &["status"]) {
        return Ok(());
    }
    let Some((tenant, object)) = tenant_limits::find_tenant(case) else {
        return Ok(());
    };
    let Some(options) = &tenant.bounds.objects().service_options else {
        return Ok(());
    };
    let refuse = |why: String, remedy: String| {
        Err(Refusal {
            rule: Rule::ServiceOptions,
            why,
            remedy,
        })
    };
    let (kind, before) = (read_type(object), request.old_object.map(read_type));
    if let Some((name, key)) = TYPES.iter().find(|(name, _)| *name == kind)
        && before != Some(kind)
        && options
            .allowed_services
            .as_ref()
            .is_some_and(|services| !is_allowed(services, name))
    {
        return refuse(
            format!(
                "spec.type: Tenant {} doesn't allow Services of type {name}",
                tenant.name
            ),
            format!("take another type, or ask an administrator for spec.serviceOptions.allowedServices.{key}"),
        );
    }
    if let Some(addresses) = &options.external_ips {
        let before: BTreeSet<&str> = request.old_object.into_iter().flat_map(list_addresses).collect();
        let networks: Vec<Network> = addresses
            .allowed
            .iter()
            .filter_map(|text| Network::parse(text))
            .collect();
        let is_in_one = |text: &str| {
            let address = text.parse::<IpAddr>();
            address.is_ok_and(|address| networks.iter().any(|network| network.contains(address)))
        };
        let mut new = list_addresses(object).filter(|address| !before.contains(address));
        if let Some(address) = new.find(|address| !is_in_one(address)) {
            return refuse(
                format!(
                    "spec.externalIPs: Tenant {} doesn't allow address {}",
                    tenant.name,
                    tenant_limits::shorten(address)
                ),
                tenant_limits::advise_of("spec.serviceOptions.externalIPs", &addresses.allowed),
            );
        }
    }
    for (part, denied) in [
        (metadata::LABELS, &options.forbidden_labels),
        (metadata::ANNOTATIONS, &options.forbidden_annotations),
    ] {
        if let Some(key) = metadata::find_denied(case, &tenant.bounds, part, denied.as_ref(), &[]) {
            let (why, remedy) = metadata::write_metadata_message(part, "Services", &tenant.name, key);
            return refuse(why, remedy);
        }
    }
    // In a write of a subresource, the answer's changes might not be stored.
    if request.resource.subresource.is_empty() && request.writes() {
        set_metadata(&tenant.bounds, object, findings);
    }
    Ok(())
}

/// Sets labels and annotations that the Tenant demands and that the Service doesn't have.
fn set_metadata(bounds: &Bounds, object: &Value, findings: &mut Findings) {
    let Some(options) = &bounds.objects().service_options else {
        return;
    };
    let Some(wanted) = &options.additional_metadata else {
        return;
    };
    for (part, wanted, denied) in [
        (metadata::LABELS, &wanted.labels, &options.forbidden_labels),
        (
            metadata::ANNOTATIONS,
            &wanted.annotations,
            &options.forbidden_annotations,
        ),
    ] {
        let borne = object.get("metadata").and_then(|metadata| metadata.get(part));
        let is_borne = |key: &str, value: &str| {
            borne
                .and_then(|borne| borne.get(key))
                .is_some_and(|borne| borne == value)
        };
        let is_denied = |key: &str| denied.as_ref().is_some_and(|denied| bounds.denies(denied, key));
        let missing = wanted
            .iter()
            .filter(|(key, value)| !is_borne(key, value) && !is_denied(key));
        findings.changes.extend(missing.map(|(key, value)| Change::Metadata {
            part,
            key: key.clone(),
            value: value.clone(),
        }));
    }
}
