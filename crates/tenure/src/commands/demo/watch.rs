//! Observes the demo's effects: watches one object until it is as wanted, or until the timeout. The demo never polls.

use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tenure_api::ObjectView;

/// The timeout, long enough for a slow machine. A slower step counts as not observed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds that the demo reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
    Service,
    Deployment,
    ClusterRole,
    RoleBinding,
    GitRepository,
    Kustomization,
    Surface,
    Tenant,
    Namespace,
    AccessProvider,
    FluxAccessRequest,
    PackageSource,
    Package,
    HelmRelease,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::ClusterRole => ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            Self::GitRepository => ("source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories"),
            Self::Kustomization => ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
            Self::Surface => ("tenure.dev", "v1alpha1", "Surface", "surfaces"),
            Self::Tenant => ("capsule.clastix.io", "v1beta2", "Tenant", "tenants"),
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
            Self::AccessProvider => ("tenure.dev", "v1alpha1", "AccessProvider", "accessproviders"),
            Self::FluxAccessRequest => ("tenure.dev", "v1alpha1", "FluxAccessRequest", "fluxaccessrequests"),
            Self::PackageSource => ("cozystack.io", "v1alpha1", "PackageSource", "packagesources"),
            Self::Package => ("cozystack.io", "v1alpha1", "Package", "packages"),
            Self::HelmRelease => ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
        };
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version,
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// Returns the API of this kind, in one namespace or cluster-wide.
    pub(super) fn api(self, client: &kube::Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// Returns apiVersion and kind for a manifest.
    pub(super) fn types(self) -> (String, String) {
        let resource = self.resource();
        (resource.api_version, resource.kind)
    }
}

/// Watches one object until `wanted` returns a value; else returns the last state.
pub(super) async fn wait_until<T>(
    api: Api<DynamicObject>,
    name: &str,
    patience: Duration,
    mut wanted: impl FnMut(Option<&Value>) -> Option<T>,
) -> Result<T, String> {
    let mut last = None;
    let watching = async {
        let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(api, name));
        while let Some(change) = changes.next().await {
            // After an error the watcher restarts by itself, with back-off.
            let Ok(object) = change else { continue };
            let object = object.and_then(|object| serde_json::to_value(object).ok());
            if let Some(answer) = wanted(object.as_ref()) {
                return Some(answer);
            }
            last = object;
        }
        None
    };
    match tokio::time::timeout(patience, watching).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => Err(last.as_ref().map_or_else(
            || format!("{name} does not exist"),
            |object| format!("{name}: {}", read_message(object)),
        )),
    }
}

/// Watches all objects of a kind until `wanted` returns a value for one of them; else returns the last state.
pub(super) async fn until_any<T>(
    api: Api<DynamicObject>,
    patience: Duration,
    mut wanted: impl FnMut(&Value) -> Option<T>,
) -> Result<T, String> {
    let mut seen = 0;
    let watching = async {
        let mut changes = std::pin::pin!(kube::runtime::watcher(api, kube::runtime::watcher::Config::default()));
        while let Some(change) = changes.next().await {
            let Ok(Event::Apply(object) | Event::InitApply(object)) = change else {
                continue;
            };
            seen += 1;
            let object = serde_json::to_value(object).unwrap_or_default();
            if let Some(answer) = wanted(&object) {
                return Some(answer);
            }
        }
        None
    };
    match tokio::time::timeout(patience, watching).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => Err(format!("none of {seen} that were seen")),
    }
}

/// Returns a condition's status, reason and message.
pub(super) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let condition = ObjectView::new(object).find_condition(kind)?;
    Some((condition.status, condition.reason, condition.message))
}

/// Returns the Ready condition, if it is about the current generation. The condition's own observedGeneration counts: that of the status changes only after the
/// generation was applied, as in Flux.
fn find_ready(object: &Value) -> Option<(&str, &str, &str)> {
    let view = ObjectView::new(object);
    let generation = view.find_number("/metadata/generation");
    let observed = view.find_condition("Ready")?.observed_generation;
    (observed.is_none() || observed == generation)
        .then(|| find_condition(object, "Ready"))
        .flatten()
}

/// Returns a text if the object is Ready.
pub(super) fn is_ready(object: Option<&Value>) -> Option<String> {
    let (status, _, message) = find_ready(object?)?;
    (status == "True").then(|| message.to_owned())
}

/// Returns the reason and message of an object that is not ready.
pub(super) fn is_refused(object: Option<&Value>) -> Option<String> {
    let (status, reason, message) = find_ready(object?)?;
    (status == "False" && reason != "Progressing" && reason != "DependencyNotReady")
        .then(|| format!("{reason}: {message}"))
}

/// Returns the best description of an object.
fn read_message(object: &Value) -> String {
    match find_condition(object, "Ready") {
        Some((status, reason, message)) => format!("Ready={status} {reason}: {message}"),
        None => "it has no Ready condition".to_owned(),
    }
}

/// Returns the field manager of `.spec.replicas`, by managedFields.
pub(super) fn find_manager_of_replicas(object: &Value) -> Option<&str> {
    ObjectView::new(object)
        .list_views("/metadata/managedFields")
        .find(|entry| entry.has("/fieldsV1/f:spec/f:replicas"))?
        .find_text("/manager")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn readiness_is_about_the_present_generation() {
        let object = |generation: i64, observed: i64, status: &str| {
            json!({"metadata": {"generation": generation}, "status": {
                   "conditions": [{"type": "Ready", "observedGeneration": observed, "status": status, "reason": "BuildFailed", "message": "m"}]}})
        };
        assert!(is_ready(Some(&object(2, 2, "True"))).is_some());
        assert!(is_ready(Some(&object(2, 1, "True"))).is_none());
        assert_eq!(
            is_refused(Some(&object(1, 1, "False"))).as_deref(),
            Some("BuildFailed: m")
        );
        assert!(is_refused(Some(&object(1, 1, "Unknown"))).is_none());
        assert!(is_ready(None).is_none());
    }
}
