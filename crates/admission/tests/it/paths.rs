//! The paths of a server for the objects of the table's cases.

use crate::table::{FLUX, PACKAGES, PACKAGES_VERSION};

/// Returns the API version, the kind, and the path above the resource's collection.
pub(crate) fn locate(resource: &str, namespace: Option<&str>) -> (&'static str, &'static str, String) {
    let in_namespace = |root: &str| match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}"),
        None => root.to_owned(),
    };
    if let Some((kind, version, _)) = FLUX.iter().find(|(_, _, plural)| *plural == resource) {
        return (version, kind, in_namespace(&format!("/apis/{version}")));
    }
    if let Some((kind, _)) = PACKAGES.iter().find(|(_, plural)| *plural == resource) {
        return (PACKAGES_VERSION, kind, format!("/apis/{PACKAGES_VERSION}"));
    }
    let (version, kind) = match resource {
        "namespaces" => return ("v1", "Namespace", "/api/v1".to_owned()),
        "tenants" => ("capsule.clastix.io/v1beta2", "Tenant"),
        "clusterroles" => ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        "networkpolicies" => ("networking.k8s.io/v1", "NetworkPolicy"),
        "ingresses" => ("networking.k8s.io/v1", "Ingress"),
        "deployments" => ("apps/v1", "Deployment"),
        "pods" => ("v1", "Pod"),
        "secrets" => ("v1", "Secret"),
        "configmaps" => ("v1", "ConfigMap"),
        "persistentvolumeclaims" => ("v1", "PersistentVolumeClaim"),
        "persistentvolumes" => ("v1", "PersistentVolume"),
        "services" => ("v1", "Service"),
        _ => ("v1", "ServiceAccount"),
    };
    let root = if version == "v1" {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{version}")
    };
    (version, kind, in_namespace(&root))
}
