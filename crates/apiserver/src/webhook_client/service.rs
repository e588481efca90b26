//! The reachable address of a Service in this server. Nothing here routes to cluster IPs.

use serde_json::Value;
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::object::ObjectExt as _;

use crate::view::View;

/// Returns an address of a Service: the target of its name, or one of its ready endpoints.
pub(super) fn resolve_service(view: &View, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let service = view
        .get("", "services", Some(namespace), name)
        .ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = service.get("spec").cloned().unwrap_or_default();
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        let target = spec.get("externalName").and_then(Value::as_str).unwrap_or_default();
        return Ok(format!("{target}:{port}"));
    }
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let number = |value: &Value| value.get("port").and_then(Value::as_u64);
    let entry = list(&spec, "ports")
        .into_iter()
        .find(|entry| number(entry) == Some(u64::from(port)))
        .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let port_name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
    let target = |ports: Vec<Value>| {
        let named = ports
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str).unwrap_or_default() == port_name);
        named.and_then(number)
    };
    let address = |host: &str, port: u64| {
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    };
    for slice in view.list("discovery.k8s.io", "endpointslices", Some(namespace)) {
        let owner = slice.pointer("/metadata/labels/kubernetes.io~1service-name");
        if owner.and_then(Value::as_str) != Some(name) || slice.is_deleting() {
            continue;
        }
        let ready = list(&slice, "endpoints").into_iter().find(|endpoint| {
            endpoint
                .pointer("/conditions/ready")
                .and_then(Value::as_bool)
                .unwrap_or(true)
        });
        let host = ready.and_then(|endpoint| Some(list(&endpoint, "addresses").first()?.as_str()?.to_owned()));
        if let (Some(host), Some(port)) = (host, target(list(&slice, "ports"))) {
            return Ok(address(&host, port));
        }
    }
    let endpoints = view.get("", "endpoints", Some(namespace), name);
    for subset in endpoints.iter().flat_map(|endpoints| list(endpoints, "subsets")) {
        let host = list(&subset, "addresses")
            .first()
            .and_then(|address| address.get("ip")?.as_str().map(str::to_owned));
        if let (Some(host), Some(port)) = (host, target(list(&subset, "ports"))) {
            return Ok(address(&host, port));
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}
