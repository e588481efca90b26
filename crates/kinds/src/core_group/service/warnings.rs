//! Warnings for the writer of a Service.

use serde_json::Value;

use crate::core_group::pod::warnings::address;
use crate::schema::FieldPath;
use crate::schema::validation::{items, text};

static NOTHING: Value = Value::Null;

/// Returns warnings about a Service.
pub(super) fn warnings(service: &Value) -> Vec<String> {
    let spec = service.get("spec").unwrap_or(&NOTHING);
    let at = FieldPath::new("spec");
    let mut found = Vec::new();
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let annotations = service.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    if annotations.get(HINTS).is_some() {
        found.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = text(spec, "type");
    let external = kind == "ExternalName";
    for (one, at) in items(spec, "clusterIPs", &at) {
        address(one.as_str().unwrap_or_default(), &at, &mut found);
    }
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
    let addresses = items(spec, "externalIPs", &at).next().is_some();
    for (applies, field) in [
        (!text(spec, "loadBalancerIP").is_empty(), "loadBalancerIP"),
        (addresses, "externalIPs"),
        (text(spec, "sessionAffinity") != "None", "SessionAffinity"),
    ] {
        if headless && applies {
            found.push(format!("spec.{field} is ignored for headless services"));
        }
    }
    for (one, at) in items(spec, "externalIPs", &at) {
        address(one.as_str().unwrap_or_default(), &at, &mut found);
    }
    if addresses && !headless && !external {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    address(text(spec, "loadBalancerIP"), &at.child("loadBalancerIP"), &mut found);
    if addresses && external {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external && !text(spec, "externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        found.push(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#.to_owned());
    }
    found
}
