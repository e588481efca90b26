//! A cluster for one test: embedded in a temporary folder, or an existing one.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tempfile::TempDir;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};
use tenure_apiserver::{ApiService, Config, Server};

use crate::admin::Admin;
use crate::{SOON, eventually};

/// A cluster with Tenure's kinds installed, and nothing that reconciles them.
pub struct Cluster {
    /// The administrator.
    pub admin: Admin,
    /// A token of the controller's ServiceAccount.
    pub controller_token: String,
    kind: Kind,
    folder: TempDir,
}

enum Kind {
    Embedded(Server),
    Existing(Box<kube::Config>),
}

impl Cluster {
    /// Starts an embedded control plane, or takes the cluster that `TENURE_TEST_KUBECONFIG` names and removes what tests left in it.
    ///
    /// # Errors
    /// Whatever keeps it from starting.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (kind, client) = match std::env::var("TENURE_TEST_KUBECONFIG") {
            Ok(path) => {
                let config = Kubeconfig::read_from(path)?;
                let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
                let client = kube::Client::try_from(config.clone())?;
                (Kind::Existing(Box::new(config)), client)
            }
            Err(_) => {
                let config = Config {
                    workload_status: true,
                    ..Config::new(folder.path().join("data"))
                };
                let server = Server::open(config).await?;
                let client = kube::Client::new(server.admin_service(), "default");
                (Kind::Embedded(server), client)
            }
        };
        let admin = Admin::new(client);
        for object in tenure_api::installation::objects()? {
            admin.apply(object).await?;
        }
        eventually(SOON, || served(&admin)).await?;
        if let Kind::Existing(_) = kind {
            clear(&admin).await?;
        }
        let controller_token = token(&admin).await?;
        Ok(Self {
            admin,
            controller_token,
            kind,
            folder,
        })
    }

    /// A folder that is removed with the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The service of the embedded control plane.
    #[must_use]
    pub fn service(&self) -> Option<ApiService> {
        match &self.kind {
            Kind::Embedded(server) => Some(server.service()),
            Kind::Existing(_) => None,
        }
    }

    /// How an existing cluster is reached, with no credentials.
    #[must_use]
    pub fn configuration(&self) -> Option<kube::Config> {
        match &self.kind {
            Kind::Embedded(_) => None,
            Kind::Existing(config) => {
                let mut config = config.as_ref().clone();
                config.auth_info = kube::config::AuthInfo::default();
                Some(config)
            }
        }
    }
}

const KINDS: [(&str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository"),
    ("tenure.dev/v1alpha1", "Surface"),
    ("capsule.clastix.io/v1beta2", "Tenant"),
];

async fn served(admin: &Admin) -> anyhow::Result<()> {
    for kind in KINDS {
        admin.list(kind, "").await?;
    }
    Ok(())
}

async fn clear(admin: &Admin) -> anyhow::Result<()> {
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
            let target = (namespace.as_str(), name.as_str());
            admin
                .patch(kind, target, json!({ "metadata": { "finalizers": null } }))
                .await?;
            admin.delete(kind, target).await?;
        }
    }
    Ok(())
}

async fn token(admin: &Admin) -> anyhow::Result<String> {
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
