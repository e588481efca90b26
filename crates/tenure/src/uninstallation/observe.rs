//! Reads the objects on which an uninstallation is decided. It keeps only names, versions, owners and finalizers. The content of objects may be large or a Secret's.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tenure_admission_rules::policy::{FACTS_PREFIX, list_bounds};
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_api::metadata::{
    CAPSULE_LEASE, KUSTOMIZE_CONTROLLER_LEASE, LANE_BINDING, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE,
    SHARD_LABEL, SOURCE_CONTROLLER_LEASE, TENANT_LABEL, WEBHOOK_LABELS,
};
use tenure_api::workload::{LANE_LABEL, LanePods, Workload, is_lane_deployment};
use tenure_planner::policies::{is_managed_policy, list_obsolete};
use tenure_planner::uninstallation::{Action, ObservedObject, Snapshot, Step};
use tenure_tenancy::ShardName;

use super::Uninstallation;
use super::scan::Scan;
use crate::failure::{Failure, write_chain};
use crate::installation::{self, is_labelled_ours, list_packages, list_policing};
use crate::object_path::write_object_path;

/// The number of objects on a page.
const PAGE: usize = 200;
/// The fields of an object's metadata that are kept.
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
const BUCKETS: &str = "/apis/source.toolkit.fluxcd.io/v1/buckets";
const ARTIFACT_GENERATORS: &str = "/apis/source.extensions.fluxcd.io/v1beta1/artifactgenerators";
const EXTERNAL_ARTIFACTS: &str = "/apis/source.toolkit.fluxcd.io/v1/externalartifacts";
const HELM_CHARTS: &str = "/apis/source.toolkit.fluxcd.io/v1/helmcharts";
const HELM_REPOSITORIES: &str = "/apis/source.toolkit.fluxcd.io/v1/helmrepositories";
const OCI_REPOSITORIES: &str = "/apis/source.toolkit.fluxcd.io/v1/ocirepositories";
const RECEIVERS: &str = "/apis/notification.toolkit.fluxcd.io/v1/receivers";
const ALERTS: &str = "/apis/notification.toolkit.fluxcd.io/v1beta3/alerts";
const PROVIDERS: &str = "/apis/notification.toolkit.fluxcd.io/v1beta3/providers";
const KUSTOMIZATIONS: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations";
const TENANTS: &str = "/apis/capsule.clastix.io/v1beta2/tenants";
/// The kinds of access that have the controllers' finalizer.
const RELEASED: [&str; 2] = [
    "/apis/tenure.dev/v1alpha1/accessproviders",
    "/apis/tenure.dev/v1alpha1/fluxaccessrequests",
];
const PACKAGES: &str = "/apis/cozystack.io/v1alpha1/packages";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Uninstallation {
    pub(super) async fn observe(&self) -> Result<Snapshot, Failure> {
        let labelled = format!("{MANAGED_BY}={MANAGED_BY_TENURE}");
        let labelled = ("labelSelector", labelled.as_str());
        let (mut deployments, installed) = self.find_installed().await?;
        let mut reconciled = self.list_kind(GIT_REPOSITORIES, &installed).await?;
        reconciled.extend(self.list_kind(OCI_REPOSITORIES, &installed).await?);
        reconciled.extend(self.list_kind(BUCKETS, &installed).await?);
        reconciled.extend(self.list_kind(HELM_REPOSITORIES, &installed).await?);
        reconciled.extend(self.list_kind(HELM_CHARTS, &installed).await?);
        reconciled.extend(self.list_kind(ARTIFACT_GENERATORS, &installed).await?);
        reconciled.extend(self.list_kind(EXTERNAL_ARTIFACTS, &installed).await?);
        reconciled.extend(self.list_kind(KUSTOMIZATIONS, &installed).await?);
        reconciled.extend(self.list_kind(RECEIVERS, &installed).await?);
        reconciled.extend(self.list_kind(ALERTS, &installed).await?);
        reconciled.extend(self.list_kind(PROVIDERS, &installed).await?);
        let tenants = self.list_kind(TENANTS, &installed).await?;
        let mut access = Vec::new();
        for path in RELEASED {
            access.extend(self.list_kind(path, &installed).await?);
        }
        let packages = self.list_kind(PACKAGES, &installed).await?;
        let all_role_bindings = format!("{RIGHTS}/rolebindings");
        let mut role_bindings = self.list(&all_role_bindings, &[labelled]).await?;
        // The bindings of lanes are found by name, because a removed label must not block the deletion of a namespace.
        let named = format!("metadata.name={LANE_BINDING}");
        for seen in self.list(&all_role_bindings, &[("fieldSelector", &named)]).await? {
            if !role_bindings.iter().any(|known| known.path == seen.path) {
                role_bindings.push(seen);
            }
        }
        let mut stated = self.list("/api/v1/namespaces", &[]).await?;
        stated.retain(|seen| is_stated(&seen.object));
        let mut cluster_role_bindings = self.list(&format!("{RIGHTS}/clusterrolebindings"), &[]).await?;
        cluster_role_bindings.retain(|seen| seen.object.to_string().contains(PLATFORM_NAMESPACE));
        let policies = self.list_policies().await?;
        let of_tenants = format!("{MANAGED_BY}={MANAGED_BY_TENURE},{TENANT_LABEL}");
        let mut tenant_rights = Vec::new();
        for kind in ["clusterrolebindings", "clusterroles"] {
            let selector = ("labelSelector", of_tenants.as_str());
            tenant_rights.extend(self.list(&format!("{RIGHTS}/{kind}"), &[selector]).await?);
        }
        let [flux_namespace, capsule_namespace] = &self.namespaces_of_others;
        let mut flux = self.find_live_holder(flux_namespace, SOURCE_CONTROLLER_LEASE).await?;
        if flux.is_none() {
            flux = self
                .find_live_holder(flux_namespace, KUSTOMIZE_CONTROLLER_LEASE)
                .await?;
        }
        let Scan {
            custom,
            definitions,
            group_services,
            owned,
            bounds,
            inside,
        } = self.scan(&installed).await?;
        deployments.retain(|seen| !ObjectView::new(&seen.object).is_being_deleted());
        Ok(Snapshot {
            deployments,
            installed,
            reconciled,
            custom,
            definitions,
            group_services,
            tenants,
            access,
            packages,
            owned,
            bounds,
            role_bindings,
            policies,
            stated,
            tenant_rights,
            // The writer counts the attempts.
            attempts: BTreeMap::new(),
            inside,
            cluster_role_bindings,
            flux,
            capsule: self.find_live_holder(capsule_namespace, CAPSULE_LEASE).await?,
        })
    }

    /// Returns the policies that the controllers keep in force, of every version, after their bindings.
    async fn list_policies(&self) -> Result<Vec<ObservedObject>, Failure> {
        let labelled = format!("{MANAGED_BY}={MANAGED_BY_TENURE}");
        let labelled = ("labelSelector", labelled.as_str());
        let mut policies = Vec::new();
        for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
            policies.extend(self.list(&format!("{POLICIES}/{kind}"), &[labelled]).await?);
        }
        policies.retain(|seen| is_managed_policy(ObjectView::new(&seen.object).read_text("/metadata/name")));
        Ok(policies)
    }

    /// Returns the steps that delete policies which this version doesn't make.
    pub(super) async fn list_left_over(&self) -> Result<Vec<Step>, Failure> {
        let seen = self.list_policies().await?;
        let objects: Vec<Value> = seen.iter().map(|seen| seen.object.clone()).collect();
        let left_over = list_obsolete(&objects, &tenure_tenancy::Settings::default());
        let steps = seen.iter().filter(|seen| left_over.contains(&&seen.object));
        Ok(steps
            .map(|seen| Step {
                path: seen.path.clone(),
                says: format!(
                    "{}: deleted, this version doesn't make it",
                    installation::name_object(&seen.object)
                ),
                action: Action::Delete {
                    uid: ObjectView::new(&seen.object).read_text("/metadata/uid").to_owned(),
                },
            })
            .collect())
    }

    /// Returns the shards that have controllers of their own.
    async fn list_shards(&self) -> Result<Vec<String>, Failure> {
        let path = format!("/apis/apps/v1/namespaces/{PLATFORM_NAMESPACE}/deployments");
        let deployments = self.list(&path, &[("labelSelector", SHARD_LABEL)]).await?;
        let names = deployments
            .iter()
            .filter_map(|seen| ObjectView::new(&seen.object).find_label(SHARD_LABEL).map(str::to_owned));
        // A name that is no valid shard must not get into a path.
        Ok(names.filter(|name| name.parse::<ShardName>().is_ok()).collect())
    }

    /// Returns the Deployments, and the other objects of an installation that exist.
    async fn find_installed(&self) -> Result<(Vec<ObservedObject>, Vec<ObservedObject>), Failure> {
        let mut named = tenure_api::installation::objects().map_err(|error| Failure::internal(write_chain(&error)))?;
        // Only the names are used, and they are the same for all options.
        named.extend(tenure_api::workload::objects(&Workload {
            hooks: true,
            helm_controller: Some(String::new()),
            admission: true,
            lanes: true,
            shards: self.list_shards().await?,
            ..Workload::default()
        }));
        named.push(tenure_api::installation::metrics_reviews());
        named.extend(tenure_api::installation::admission());
        named.extend(installation::list_package_rights());
        named.extend(installation::list_lanes(&LanePods::default()));
        named.extend(configurations(&WebhookPlace::Service, "", Surroundings::default()));
        named.extend(list_policing());
        named.extend(list_bounds(&tenure_tenancy::Settings::default()));
        tenure_api::installation::put_bounds_before_rights(&mut named);
        let packages = list_packages()?;
        let (mut deployments, mut installed) = (Vec::new(), Vec::new());
        for object in named.iter().chain(&packages) {
            let path = write_object_path(object)?;
            let Some(found) = self.find(&path).await? else { continue };
            // If another product installed the definitions, their objects belong to that product, too.
            if packages.contains(object) && !is_labelled_ours(&found) {
                continue;
            }
            let mut kept = reduce_object(&found);
            if let (Some(kept), Some(kind)) = (kept.as_object_mut(), object.get("kind")) {
                kept.insert("kind".to_owned(), kind.clone());
                if kind == "CustomResourceDefinition" {
                    let text = |path: &str| ObjectView::new(&found).read_text(path);
                    let spec = json!({"group": text("/spec/group"), "names": {"kind": text("/spec/names/kind")}});
                    kept.insert("spec".to_owned(), spec);
                }
            }
            let seen = ObservedObject { path, object: kept };
            if object.get("kind").is_some_and(|kind| kind == "Deployment") {
                deployments.push(seen);
            } else {
                installed.push(seen);
            }
        }
        deployments.extend(self.list_lanes().await?);
        Ok((deployments, installed))
    }

    /// Returns the Deployments of lanes, which no hub commands any more.
    async fn list_lanes(&self) -> Result<Vec<ObservedObject>, Failure> {
        let path = format!("/apis/apps/v1/namespaces/{PLATFORM_NAMESPACE}/deployments");
        let mut lanes = self.list(&path, &[("labelSelector", LANE_LABEL)]).await?;
        lanes.retain(|seen| {
            let labels = seen.object.pointer("/metadata/labels");
            labels.is_some_and(is_lane_deployment)
        });
        Ok(lanes)
    }

    /// Returns all objects of a kind of the installation. An unserved version does not prove that no objects exist, if the kind is defined.
    async fn list_kind(&self, path: &str, installed: &[ObservedObject]) -> Result<Vec<ObservedObject>, Failure> {
        if let Some(seen) = self.list_served(path, &[]).await? {
            return Ok(seen);
        }
        match find_definition(path, installed) {
            Some(definition) => Err(Failure::environment(format!(
                "{definition} is defined, but {path} isn't served, so its objects are unknown, and nothing was deleted"
            ))
            .hint("a new definition is served in a moment; otherwise let it serve that version, and try again")),
            None => Ok(Vec::new()),
        }
    }

    /// Returns all objects of a collection that every API server serves. A collection that can't be listed has no objects.
    async fn list(&self, path: &str, selectors: &[(&str, &str)]) -> Result<Vec<ObservedObject>, Failure> {
        Ok(self.list_served(path, selectors).await?.unwrap_or_default())
    }

    async fn list_served(
        &self,
        path: &str,
        selectors: &[(&str, &str)],
    ) -> Result<Option<Vec<ObservedObject>>, Failure> {
        let mut seen = Vec::new();
        let all = self.visit_pages((path, selectors), "application/json", |page| {
            let Some(page) = page else {
                seen.clear();
                return;
            };
            let view = ObjectView::new(page);
            let (version, kind) = (view.read_text("/apiVersion"), view.read_text("/kind"));
            let kind = kind.strip_suffix("List").unwrap_or(kind);
            seen.extend(
                view.list("/items")
                    .iter()
                    .map(|item| see_item(path, item, (version, kind))),
            );
        });
        Ok(all.await?.then_some(seen))
    }

    /// Passes all objects of a collection to `take`, page by page. `None` tells `take` that the list starts again. Returns whether the server lists the collection.
    pub(super) async fn visit_pages(
        &self,
        (path, selectors): (&str, &[(&str, &str)]),
        accept: &str,
        mut take: impl FnMut(Option<&Value>),
    ) -> Result<bool, Failure> {
        let mut from = String::new();
        loop {
            let mut query = format!("{path}?limit={PAGE}");
            for (parameter, value) in selectors.iter().chain([&("continue", from.as_str())]) {
                if !value.is_empty() {
                    query.push_str(&format!(
                        "&{parameter}={}",
                        utf8_percent_encode(value, NON_ALPHANUMERIC)
                    ));
                }
            }
            let request = http::Request::get(query)
                .header(http::header::ACCEPT, accept)
                .body(Vec::new())
                .map_err(|error| Failure::internal(error.to_string()))?;
            let page: Value = match self.administrator.request(request).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => return Ok(false),
                // The list expired before its end, so it starts again.
                Err(kube::Error::Api(status)) if status.code == 410 && !from.is_empty() => {
                    take(None);
                    from.clear();
                    continue;
                }
                Err(error) => {
                    let mut failure = Failure::from(error);
                    failure.message = format!(
                        "the objects at {path} are unknown, and nothing was deleted: {}",
                        failure.message
                    );
                    return Err(failure);
                }
            };
            take(Some(&page));
            ObjectView::new(&page)
                .read_text("/metadata/continue")
                .clone_into(&mut from);
            if from.is_empty() {
                return Ok(true);
            }
        }
    }
}

/// Returns an item of a list with the version and the kind, which the list states only once.
pub(super) fn see_item(path: &str, item: &Value, (version, kind): (&str, &str)) -> ObservedObject {
    let mut object = reduce_object(item);
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), json!(version));
        object.insert("kind".to_owned(), json!(kind));
    }
    ObservedObject {
        path: write_item_path(path, &object),
        object,
    }
}

/// Returns the path of an object in a list, because a list of all namespaces names no namespace in its path.
fn write_item_path(list: &str, object: &Value) -> String {
    let object = ObjectView::new(object);
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

/// Keeps the needed fields of an object.
fn reduce_object(object: &Value) -> Value {
    let metadata: Map<String, Value> = METADATA
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object.pointer("/metadata")?.get(field)?.clone())))
        .collect();
    let mut kept = json!({ "metadata": metadata });
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let facts = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(FACTS_PREFIX));
    let facts: Map<String, Value> = facts.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(metadata) = kept
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .filter(|_| !facts.is_empty())
    {
        metadata.insert("annotations".to_owned(), Value::Object(facts));
    }
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

/// Returns the definition of the kind whose objects are at a path, unless the definition is gone.
fn find_definition(path: &str, installed: &[ObservedObject]) -> Option<String> {
    let mut parts = path.trim_start_matches("/apis/").split('/');
    let (group, plural) = (parts.next()?, parts.next_back()?);
    let name = format!("{plural}.{group}");
    let is_definition = |seen: &&ObservedObject| {
        let object = ObjectView::new(&seen.object);
        object.read_text("/kind") == "CustomResourceDefinition"
            && object.read_text("/metadata/name") == name
            && !object.is_being_deleted()
    };
    installed.iter().find(is_definition)?;
    Some(name)
}

/// Checks whether a namespace has annotations, which may be facts for policies, or a label by which webhooks select it.
fn is_stated(namespace: &Value) -> bool {
    let labels = namespace.pointer("/metadata/labels");
    let is_marked = |label: &&str| labels.is_some_and(|labels| labels.get(label).is_some());
    namespace.pointer("/metadata/annotations").is_some() || WEBHOOK_LABELS.iter().any(is_marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_path_names_its_namespace() {
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
    fn observed_object_keeps_no_contents() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "key", "annotations": {"a": "b"}, "managedFields": []},
            "data": {"password": "c2VjcmV0"}, "spec": {"suspend": true, "large": "text"}});
        assert_eq!(
            reduce_object(&secret),
            json!({"kind": "Secret", "metadata": {"name": "key"}, "spec": {"suspend": true}})
        );
    }

    /// An unserved version doesn't prove that no objects exist.
    #[test]
    fn a_kind_is_known_by_its_definition() {
        let definition = |name: &str, deleted: bool| {
            let mut object = json!({"kind": "CustomResourceDefinition", "metadata": {"name": name}});
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            ObservedObject {
                path: String::new(),
                object,
            }
        };
        let name = "kustomizations.kustomize.toolkit.fluxcd.io";
        for (there, expected) in [
            (vec![definition(name, false)], Some(name.to_owned())),
            (vec![definition(name, true)], None),
            (
                vec![definition("gitrepositories.source.toolkit.fluxcd.io", false)],
                None,
            ),
            (vec![], None),
        ] {
            assert_eq!(find_definition(KUSTOMIZATIONS, &there), expected);
        }
    }
}
