//! A cluster for one test: embedded in a temporary folder, or an existing one. An existing cluster must be marked as
//! made for tests. Tests remove the remains of earlier tests, and can't distinguish these from objects that are in
//! use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_admission_rules::policy::{is_bound, list_bounds, list_lane_bounds};
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, LANE_BINDING, PLATFORM_NAMESPACE};
use tenure_api::workload::LanePods;
use tenure_apiserver::{ApiService, Config, Server};
use tenure_tenancy::Settings;

use crate::admin::{Admin, MARKED};
use crate::installation::install_objects;
use crate::kubelet::remove_lane_pods;
use crate::kubernetes::Kubernetes;
use crate::sentry::Sentry;
use crate::{SOON, eventually};

/// The variable with the kubeconfig of an existing cluster for tests.
pub const TEST_KUBECONFIG: &str = "TENURE_TEST_KUBECONFIG";

/// The image of lanes in a test cluster; it is never pulled.
pub const LANE_IMAGE: &str = "example.invalid/tenure:1";

/// The label of the namespace `default` that marks a cluster with the value `true`: the cluster is for tests, and may
/// be emptied.
pub const DISPOSABLE_LABEL: &str = "tenure.dev/disposable";

/// A test cluster with Tenure's kinds and no running controller of Tenure.
pub struct Cluster {
    /// The administrator.
    pub admin: Admin,
    /// A token of the controller's ServiceAccount.
    pub controller_token: String,
    kind: Kind,
    folder: TempDir,
}

/// The API server of a test cluster.
enum Kind {
    /// An embedded server in this process, and the flag that disables its guard.
    Embedded(Server, Arc<AtomicBool>),
    /// The API server of an existing cluster, with the configuration of its administrator.
    Existing(Box<kube::Config>),
}

impl Cluster {
    /// Starts an embedded control plane. With `TENURE_TEST_KUBECONFIG`, uses that existing cluster and removes the
    /// remains of tests. An existing cluster needs a controller manager, as any does.
    ///
    /// # Errors
    /// If the start fails, or an existing cluster lacks the [`DISPOSABLE_LABEL`].
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_judged_by(Settings::default()).await
    }

    /// Starts a cluster as [`Cluster::start`] does. Admission of an embedded control plane uses these settings.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_judged_by(settings: Settings) -> anyhow::Result<Self> {
        let existing = std::env::var_os(TEST_KUBECONFIG).map(PathBuf::from);
        Self::open(existing.as_deref(), settings).await
    }

    /// Uses a real control plane that a test has started for itself.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn connect_to(kubernetes: &Kubernetes) -> anyhow::Result<Self> {
        let labels = json!({ "metadata": { "labels": { DISPOSABLE_LABEL: "true" } } });
        let admin = Admin::new(kubernetes.client().await?);
        admin.patch(NAMESPACE, ("", "default"), labels).await?;
        Self::open(Some(kubernetes.kubeconfig()), Settings::default()).await
    }

    async fn open(existing: Option<&Path>, settings: Settings) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (kind, client) = match existing {
            Some(path) => {
                let config = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
                let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
                let client = kube::Client::try_from(config.clone())?;
                (Kind::Existing(Box::new(config)), client)
            }
            None => {
                let (sentry, send_away) = Sentry::new_enabled(settings);
                let config = Config {
                    workload_status: true,
                    guard: Some(Arc::new(sentry)),
                    ..Config::new(folder.path().join("data"))
                };
                let server = Server::open(config).await?;
                let client = kube::Client::new(server.admin_service(), "default");
                (Kind::Embedded(server, send_away), client)
            }
        };
        let mut admin = Admin::new(client.clone());
        if let Kind::Existing(_) = kind {
            check_marked(&admin).await?;
            eventually(2 * SOON, || check_not_ending(&admin)).await?;
        }
        let bounds = list_bounds(&tenure_tenancy::Settings::default());
        let packages = tenure_api::crds::package_crds()?;
        // An existing cluster gets the objects for lanes with Pods of their own. The embedded control plane has no
        // nodes, so it gets none.
        let lanes = match kind {
            Kind::Embedded(..) => Vec::new(),
            Kind::Existing(_) => list_lane_pods(),
        };
        let objects = tenure_api::installation::objects()?;
        let objects = objects.into_iter().chain(bounds).chain(packages).chain(lanes);
        match kind {
            Kind::Embedded(..) => {
                for object in objects {
                    admin.apply(object).await?;
                }
            }
            Kind::Existing(_) => install_objects(&admin, objects.collect()).await?,
        }
        eventually(SOON, || check_kinds_are_served(&admin)).await?;
        if let Kind::Existing(_) = kind {
            clear_cluster(&admin).await?;
            admin = Admin::marking(client, TEST_LABEL);
        }
        let controller_token = request_token(&admin).await?;
        Ok(Self {
            admin,
            controller_token,
            kind,
            folder,
        })
    }

    /// Installs the objects for lanes with Pods of their own, also in a cluster without nodes.
    ///
    /// # Errors
    /// If the objects can't be applied.
    pub async fn install_lane_pods(&self) -> anyhow::Result<()> {
        for object in list_lane_pods() {
            self.admin.apply(object).await?;
        }
        Ok(())
    }

    /// Checks whether all tests share one cluster, which each test clears first. Concurrent tests would clear each
    /// other's objects.
    #[must_use]
    pub fn is_shared() -> bool {
        std::env::var_os(TEST_KUBECONFIG).is_some()
    }

    /// Disables the guard, as in a cluster without admission by Tenure. An existing cluster has no guard.
    pub fn send_guard_away(&self) {
        if let Kind::Embedded(_, send_away) = &self.kind {
            send_away.store(true, Ordering::Release);
        }
    }

    /// Removes Tenure's policies.
    ///
    /// # Errors
    /// If they can't be removed.
    pub async fn remove_policies(&self) -> anyhow::Result<()> {
        remove_policies(&self.admin).await
    }

    /// Returns a folder that is removed with the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the service of the embedded control plane.
    #[must_use]
    pub fn service(&self) -> Option<ApiService> {
        match &self.kind {
            Kind::Embedded(server, _) => Some(server.service()),
            Kind::Existing(_) => None,
        }
    }

    /// Returns a client that uses a token, with the token's rights.
    ///
    /// # Errors
    /// If the token is not a valid header value.
    pub fn bearing(&self, token: &str) -> anyhow::Result<Admin> {
        let client = match (self.service(), self.configuration()) {
            (Some(service), _) => {
                let client = kube::Client::new(service, "default");
                let header = http::HeaderValue::from_str(&format!("Bearer {token}"))?;
                let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
                    let client = client.clone();
                    request
                        .headers_mut()
                        .insert(http::header::AUTHORIZATION, header.clone());
                    async move { client.send(request).await }
                });
                kube::Client::new(service, "default")
            }
            (None, Some(mut config)) => {
                config.auth_info.token = Some(token.to_owned().into());
                kube::Client::try_from(config)?
            }
            (None, None) => bail!("there is no cluster"),
        };
        Ok(Admin::new(client))
    }

    /// Checks whether the API server can call a listener on this machine's own address.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        match &self.kind {
            Kind::Embedded(..) => true,
            Kind::Existing(config) => matches!(config.cluster_url.host(), Some("127.0.0.1" | "localhost" | "[::1]")),
        }
    }

    /// Returns the configuration of a client of an existing cluster, without credentials.
    #[must_use]
    pub fn configuration(&self) -> Option<kube::Config> {
        match &self.kind {
            Kind::Embedded(..) => None,
            Kind::Existing(config) => {
                let mut config = config.as_ref().clone();
                config.auth_info = kube::config::AuthInfo::default();
                Some(config)
            }
        }
    }
}

const KINDS: [(&str, &str); 22] = [
    ("cozystack.io/v1alpha1", "Package"),
    ("cozystack.io/v1alpha1", "PackageSource"),
    ("cozystack.io/v1alpha1", "PackageValues"),
    ("notification.toolkit.fluxcd.io/v1beta3", "Alert"),
    ("notification.toolkit.fluxcd.io/v1beta3", "Provider"),
    ("notification.toolkit.fluxcd.io/v1", "Receiver"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository"),
    ("source.toolkit.fluxcd.io/v1", "OCIRepository"),
    ("source.toolkit.fluxcd.io/v1", "Bucket"),
    ("source.toolkit.fluxcd.io/v1", "HelmChart"),
    ("source.toolkit.fluxcd.io/v1", "HelmRepository"),
    ("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator"),
    ("source.toolkit.fluxcd.io/v1", "ExternalArtifact"),
    ("tenure.dev/v1alpha1", "AccessProvider"),
    ("tenure.dev/v1alpha1", "FluxAccess"),
    ("tenure.dev/v1alpha1", "FluxAccessGrant"),
    ("tenure.dev/v1alpha1", "FluxAccessRequest"),
    ("tenure.dev/v1alpha1", "FluxAccessStandingGrant"),
    ("tenure.dev/v1alpha1", "FluxAccessTarget"),
    ("tenure.dev/v1alpha1", "Surface"),
    ("capsule.clastix.io/v1beta2", "Tenant"),
];
const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");

/// The name of Tenure's webhook configurations.
const WEBHOOKS: &str = tenure_api::admission_webhooks::CONFIGURATION;

/// The label of objects that tests create on an existing cluster.
const TEST_LABEL: &str = "tenure.dev/test";

/// Checks that an existing cluster has the label that allows tests to empty it.
async fn check_marked(admin: &Admin) -> anyhow::Result<()> {
    let default = admin.get(NAMESPACE, ("", "default")).await?.unwrap_or_default();
    if is_labelled(&default, DISPOSABLE_LABEL) {
        return Ok(());
    }
    bail!(
        "the cluster that {TEST_KUBECONFIG} names is not marked as made for tests. They would remove every Tenant, Surface, Kustomization, \
         GitRepository, OCIRepository, Bucket, HelmChart, HelmRepository, ArtifactGenerator, ExternalArtifact, Receiver, Alert and Provider in it. If nobody needs them: kubectl label namespace default {DISPOSABLE_LABEL}=true"
    )
}

fn is_labelled(object: &Value, label: &str) -> bool {
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(label)).and_then(Value::as_str) == Some("true")
}

/// Checks that the platform namespace is not terminating: an earlier test may have removed everything, and nothing
/// can be created in a terminating namespace.
async fn check_not_ending(admin: &Admin) -> anyhow::Result<()> {
    let found = admin.get(NAMESPACE, ("", PLATFORM_NAMESPACE)).await?;
    match found.filter(|found| found.pointer("/metadata/deletionTimestamp").is_some()) {
        None => Ok(()),
        Some(found) => {
            let conditions = found.pointer("/status/conditions").cloned().unwrap_or_default();
            anyhow::bail!("namespace {PLATFORM_NAMESPACE} is still being deleted: {conditions}")
        }
    }
}

async fn check_kinds_are_served(admin: &Admin) -> anyhow::Result<()> {
    for kind in KINDS {
        admin.list(kind, "").await?;
    }
    Ok(())
}

async fn clear_cluster(admin: &Admin) -> anyhow::Result<()> {
    // Removes webhook configurations whose server is gone.
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        if admin.get(kind, ("", WEBHOOKS)).await?.is_some() {
            admin.delete(kind, ("", WEBHOOKS)).await?;
        }
    }
    remove_policies(admin).await?;
    remove_lane_pods(admin).await?;
    for kind in KINDS {
        for object in admin.list(kind, "").await? {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(|text| text.as_str())
                    .unwrap_or_default()
                    .to_owned()
            };
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            free_and_delete(admin, kind, (&namespace, &name)).await?;
        }
    }
    for binding in admin.list(ROLE_BINDING, "").await? {
        let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/metadata/name") == LANE_BINDING {
            // No lane runs that would release the object with its namespace.
            free_and_delete(admin, ROLE_BINDING, (text("/metadata/namespace"), LANE_BINDING)).await?;
        }
    }
    for kind in MARKED {
        for object in admin.list(kind, "").await? {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            if let (true, Some(name)) = (is_labelled(&object, TEST_LABEL) || is_tenants(kind, &object), name) {
                // The deletion is not awaited here. A test that needs a namespace of the same name waits itself.
                admin.delete(kind, ("", name)).await?;
            }
        }
    }
    Ok(())
}

/// Checks whether the object is a namespace that the controllers made for a Tenant. Such a namespace lacks the label of
/// the tests, and no owner's deletion removes it.
fn is_tenants((_, kind): (&str, &str), object: &Value) -> bool {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let is_protected = |name: &str| tenure_tenancy::Settings::default().is_protected(name);
    kind == "Namespace"
        && text("/metadata/labels/capsule.clastix.io~1tenant").is_some()
        && !text("/metadata/name").is_some_and(is_protected)
}

/// Returns the objects for lanes with Pods of their own. Each test chooses the hub's address.
fn list_lane_pods() -> Vec<Value> {
    let pods = LanePods {
        image: LANE_IMAGE.to_owned(),
        ..LanePods::default()
    };
    let mut objects = tenure_api::installation::lane_pods();
    objects.extend(list_lane_bounds(PLATFORM_NAMESPACE, &pods));
    objects
}

/// Removes Tenure's policies, which would check the removal of the other objects. Bindings go first: a policy without a
/// binding has no effect. The policy that binds the controllers stays, as it checks only the controllers.
async fn remove_policies(admin: &Admin) -> anyhow::Result<()> {
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        for object in admin.list(kind, "").await? {
            let label = object.pointer("/metadata/labels/app.kubernetes.io~1managed-by");
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            if let (Some(true), Some(name)) = (
                label.map(|label| label == "tenure"),
                name.filter(|name| !is_bound(name)),
            ) {
                admin.delete(kind, ("", name)).await?;
            }
        }
    }
    Ok(())
}

/// Deletes an object whose controller no longer runs to remove its finalizers. An object that was deleted with its
/// owner meanwhile is no error.
async fn free_and_delete(admin: &Admin, kind: (&str, &str), target: (&str, &str)) -> anyhow::Result<()> {
    match admin
        .patch(kind, target, json!({ "metadata": { "finalizers": null } }))
        .await
    {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(admin.delete(kind, target).await?),
    }
}

async fn request_token(admin: &Admin) -> anyhow::Result<String> {
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 } });
    let request = http::Request::post(format!(
        "/api/v1/namespaces/{PLATFORM_NAMESPACE}/serviceaccounts/{CONTROLLER_SERVICE_ACCOUNT}/token"
    ))
    .header("content-type", "application/json")
    .body(serde_json::to_vec(&request)?)?;
    let answer: serde_json::Value = admin.client().request(request).await?;
    let token = answer.pointer("/status/token").and_then(|token| token.as_str());
    token
        .map(str::to_owned)
        .ok_or_else(|| anyhow::anyhow!("a TokenRequest was answered without a token"))
}
