//! Reads what an uninstallation is decided from. Owns what is kept of an object: its names, versions, owners and finalizers; refuses to hold
//! its content, which may be large, or a Secret's.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{
    CAPSULE_LEASE, KUSTOMIZE_CONTROLLER_LEASE, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE,
    SOURCE_CONTROLLER_LEASE,
};
use tenure_planner::uninstallation::{SeenObject, Snapshot};

use super::Uninstallation;
use crate::failure::{Failure, chain};
use crate::object_path::write_object_path;
use crate::resources;

/// How many objects one answer holds.
const PAGE: usize = 200;
/// What of an object's metadata is looked at.
const METADATA: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
];

const GIT_REPOSITORIES: &str = "/apis/source.toolkit.fluxcd.io/v1/gitrepositories";
const KUSTOMIZATIONS: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations";
const SURFACES: &str = "/apis/tenure.dev/v1alpha1/surfaces";
const TENANTS: &str = "/apis/capsule.clastix.io/v1beta2/tenants";
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Uninstallation {
    pub(super) async fn observe(&self) -> Result<Snapshot, Failure> {
        let selector = format!("{MANAGED_BY}%3D{MANAGED_BY_TENURE}");
        let (mut deployment, installed) = self.find_installed().await?;
        let mut reconciled = self.list(GIT_REPOSITORIES, "").await?;
        reconciled.extend(self.list(KUSTOMIZATIONS, "").await?);
        let mut counts = BTreeMap::new();
        for (kind, path) in [("Surface", SURFACES), ("Tenant", TENANTS)] {
            counts.insert(kind.to_owned(), self.list(path, "").await?.len());
        }
        let role_bindings = self.list(&format!("{RIGHTS}/rolebindings"), &selector).await?;
        let mut owned_by_tenants = self.list("/api/v1/namespaces", "").await?;
        owned_by_tenants.extend(self.list("/api/v1/serviceaccounts", &selector).await?);
        owned_by_tenants.extend(role_bindings.iter().cloned());
        owned_by_tenants.retain(|seen| seen.object.pointer("/metadata/ownerReferences").is_some());
        let mut cluster_role_bindings = self.list(&format!("{RIGHTS}/clusterrolebindings"), "").await?;
        cluster_role_bindings.retain(|seen| seen.object.to_string().contains(PLATFORM_NAMESPACE));
        let [flux_namespace, capsule_namespace] = &self.namespaces_of_others;
        let mut flux = self.find_live_holder(flux_namespace, SOURCE_CONTROLLER_LEASE).await?;
        if flux.is_none() {
            flux = self
                .find_live_holder(flux_namespace, KUSTOMIZE_CONTROLLER_LEASE)
                .await?;
        }
        let inside = self.list_inside().await?;
        deployment = deployment.filter(|seen| !ObjectView::of(&seen.object).is_being_deleted());
        Ok(Snapshot {
            deployment,
            installed,
            reconciled,
            counts,
            owned_by_tenants,
            role_bindings,
            // Counted by who writes.
            attempts: BTreeMap::new(),
            inside,
            cluster_role_bindings,
            flux,
            capsule: self.find_live_holder(capsule_namespace, CAPSULE_LEASE).await?,
        })
    }

    /// The Deployment, and all else that an installation can consist of and that is there.
    async fn find_installed(&self) -> Result<(Option<SeenObject>, Vec<SeenObject>), Failure> {
        let mut named = tenure_api::installation::objects().map_err(|error| Failure::internal(chain(&error)))?;
        // Only what they are called is asked for, and that is the same whatever was chosen.
        named.extend(tenure_api::workload::objects(&Default::default()));
        let (mut deployment, mut installed) = (None, Vec::new());
        for object in &named {
            let path = write_object_path(object)?;
            let Some(found) = self.find(&path).await? else { continue };
            let mut kept = keep(&found);
            if let (Some(kept), Some(kind)) = (kept.as_object_mut(), object.get("kind")) {
                kept.insert("kind".to_owned(), kind.clone());
                if kind == "CustomResourceDefinition" {
                    let text = |path: &str| ObjectView::of(&found).read_text(path);
                    let spec = json!({"group": text("/spec/group"), "names": {"kind": text("/spec/names/kind")}});
                    kept.insert("spec".to_owned(), spec);
                }
            }
            let seen = SeenObject { path, object: kept };
            if object.get("kind").is_some_and(|kind| kind == "Deployment") {
                deployment = Some(seen);
            } else {
                installed.push(seen);
            }
        }
        Ok((deployment, installed))
    }

    /// All objects in the platform namespace, of every kind that is served.
    async fn list_inside(&self) -> Result<Vec<SeenObject>, Failure> {
        if self
            .find(&format!("/api/v1/namespaces/{PLATFORM_NAMESPACE}"))
            .await?
            .is_none()
        {
            return Ok(Vec::new());
        }
        let mut inside = Vec::new();
        for resource in resources::served(&self.administrator).await? {
            // Measurements are of objects that are listed by themselves.
            if !resource.namespaced || resource.group == "metrics.k8s.io" {
                continue;
            }
            inside.extend(self.list(&resource.path(Some(PLATFORM_NAMESPACE)), "").await?);
        }
        Ok(inside)
    }

    /// All objects of a collection, page by page. One that is not served, or can't be listed, has none.
    async fn list(&self, path: &str, selector: &str) -> Result<Vec<SeenObject>, Failure> {
        let mut seen = Vec::new();
        let mut from = String::new();
        loop {
            let mut query = format!("{path}?limit={PAGE}");
            for (parameter, value) in [("labelSelector", selector), ("continue", &from)] {
                if !value.is_empty() {
                    query.push_str(&format!("&{parameter}={value}"));
                }
            }
            let request = http::Request::get(query)
                .body(Vec::new())
                .map_err(|error| Failure::internal(error.to_string()))?;
            let page: Value = match self.administrator.request(request).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => return Ok(Vec::new()),
                // A list that took too long to read begins anew.
                Err(kube::Error::Api(status)) if status.code == 410 && !from.is_empty() => {
                    seen.clear();
                    from.clear();
                    continue;
                }
                Err(error) => {
                    let mut failure = Failure::from(error);
                    failure.message = format!(
                        "what is at {path} can't be told, and nothing is deleted for that: {}",
                        failure.message
                    );
                    return Err(failure);
                }
            };
            let view = ObjectView::of(&page);
            let (version, kind) = (view.read_text("/apiVersion"), view.read_text("/kind"));
            for item in view.list("/items") {
                let mut object = keep(item);
                if let Some(object) = object.as_object_mut() {
                    object.insert("apiVersion".to_owned(), json!(version));
                    object.insert("kind".to_owned(), json!(kind.strip_suffix("List").unwrap_or(kind)));
                }
                seen.push(SeenObject {
                    path: write_item_path(path, &object),
                    object,
                });
            }
            from = percent_encode(view.read_text("/metadata/continue"));
            if from.is_empty() {
                return Ok(seen);
            }
        }
    }
}

/// Where an object of a list is: a list of all namespaces names none in its path.
fn write_item_path(list: &str, object: &Value) -> String {
    let object = ObjectView::of(object);
    let (namespace, name) = (
        object.read_text("/metadata/namespace"),
        object.read_text("/metadata/name"),
    );
    match list.rsplit_once('/') {
        Some((base, plural)) if !namespace.is_empty() && !base.ends_with(&format!("/namespaces/{namespace}")) => {
            format!("{base}/namespaces/{namespace}/{plural}/{name}")
        }
        _ => format!("{list}/{name}"),
    }
}

/// What is looked at, and nothing more.
fn keep(object: &Value) -> Value {
    let metadata: Map<String, Value> = METADATA
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object.pointer("/metadata")?.get(field)?.clone())))
        .collect();
    let mut kept = json!({ "metadata": metadata });
    if let Some(fields) = kept.as_object_mut() {
        for field in ["apiVersion", "kind", "subjects"] {
            if let Some(value) = object.get(field) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        if let Some(suspend) = object.pointer("/spec/suspend").filter(|suspend| suspend.is_boolean()) {
            fields.insert("spec".to_owned(), json!({ "suspend": suspend }));
        }
    }
    kept
}

/// A token to go on with, as a part of a query.
fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_where_its_namespace_is() {
        let object = json!({"metadata": {"namespace": "shop", "name": "web"}});
        for (list, path) in [
            ("/apis/g/v1/things", "/apis/g/v1/namespaces/shop/things/web"),
            (
                "/apis/g/v1/namespaces/shop/things",
                "/apis/g/v1/namespaces/shop/things/web",
            ),
            ("/api/v1/serviceaccounts", "/api/v1/namespaces/shop/serviceaccounts/web"),
        ] {
            assert_eq!(write_item_path(list, &object), path);
        }
        let cluster_scoped = json!({"metadata": {"name": "shop"}});
        assert_eq!(
            write_item_path("/api/v1/namespaces", &cluster_scoped),
            "/api/v1/namespaces/shop"
        );
    }

    #[test]
    fn what_an_object_contains_is_not_kept() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "key", "annotations": {"a": "b"}, "managedFields": []},
            "data": {"password": "c2VjcmV0"}, "spec": {"suspend": true, "large": "text"}});
        assert_eq!(
            keep(&secret),
            json!({"kind": "Secret", "metadata": {"name": "key"}, "spec": {"suspend": true}})
        );
    }

    #[test]
    fn a_token_cannot_leave_its_parameter() {
        assert_eq!(percent_encode("a+b/c=&limit=1"), "a%2Bb%2Fc%3D%26limit%3D1");
    }
}
