//! Warnings for the writer of a Service.

use serde_json::Value;

use crate::core_group::pod::warnings::warn_about_address;
use crate::schema::FieldPath;
use crate::schema::validation::{get_text, list_items};

static NOTHING: Value = Value::Null;

/// Returns warnings about a Service.
pub(super) fn list_warnings(service: &Value) -> Vec<String> {
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
    let kind = get_text(spec, "type");
    let external = kind == "ExternalName";
    for (one, at) in list_items(spec, "clusterIPs", &at) {
        warn_about_address(one.as_str().unwrap_or_default(), &at, &mut found);
    }
    let headless = kind == "ClusterIP" && get_text(spec, "clusterIP") == "None";
    let addresses = list_items(spec, "externalIPs", &at).next().is_some();
    for (applies, field) in [
        (!get_text(spec, "loadBalancerIP").is_empty(), "loadBalancerIP"),
        (addresses, "externalIPs"),
        (get_text(spec, "sessionAffinity") != "None", "SessionAffinity"),
    ] {
        if headless && applies {
            found.push(format!("spec.{field} is ignored for headless services"));
        }
    }
    for (one, at) in list_items(spec, "externalIPs", &at) {
        warn_about_address(one.as_str().unwrap_or_default(), &at, &mut found);
    }
    if addresses && !headless && !external {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    warn_about_address(
        get_text(spec, "loadBalancerIP"),
        &at.child("loadBalancerIP"),
        &mut found,
    );
    if addresses && external {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external && !get_text(spec, "externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if get_text(spec, "trafficDistribution") == "PreferClose" {
        found.push(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#.to_owned());
    }
    found
}
