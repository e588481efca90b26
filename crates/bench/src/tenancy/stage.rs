//! A server in the bench's own process, with many stored Tenants, so that admission is measured without a network around it. No controllers run, because they would write
//! during the measurement.

use std::future::Future;
use std::sync::Arc;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tenure_apiserver::{Config, Guard, Server};

/// The namespaces of a Tenant, its home namespace included.
pub(super) const NAMESPACES: usize = 3;
/// Clients that send at the same time.
pub(super) const CLIENTS: usize = 16;
/// Bytes of a written object.
pub(super) const LARGE: usize = 4 << 10;
/// The group whose members may write the measured objects in all namespaces.
const WRITERS: &str = "bench-writers";
const LAST_APPLIED: &str = "bench";

/// A server in this process that stores many Tenants, with an administrator's client.
pub(super) struct Stage {
    pub(super) server: Server,
    client: kube::Client,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// Starts a server, with this guard if there is one, and stores this many Tenants.
    pub(super) async fn set(guard: Option<Arc<dyn Guard>>, tenants: usize) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = Config {
            controllers: false,
            guard,
            ..Config::new(folder.path().join("data"))
        };
        let server = Server::open(config).await?;
        let stage = Self {
            client: kube::Client::new(server.admin_service(), "default"),
            server,
            _folder: folder,
        };
        for object in tenure_api::installation::objects()?
            .into_iter()
            .chain(tenure_api::installation::admission())
            .chain(list_rights())
        {
            stage.apply(&object).await?;
        }
        stage.until_served().await?;
        for_each(tenants, |index| stage.store_tenant(index)).await?;
        Ok(stage)
    }

    /// Sends a request as an administrator and returns the answer.
    pub(super) async fn send(&self, method: &str, path: &str, form: &str, body: &Value) -> anyhow::Result<Value> {
        self.send_as(None, (method, path, form), body.to_string().into_bytes())
            .await
    }

    /// Sends a request as a tenant's user, or as the administrator, and returns the answer.
    pub(super) async fn send_as(
        &self,
        user: Option<&str>,
        (method, path, form): (&str, &str, &str),
        body: Vec<u8>,
    ) -> anyhow::Result<Value> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", form);
        if let Some(user) = user {
            request = request
                .header("impersonate-user", user)
                .header("impersonate-group", WRITERS)
                .header("impersonate-group", "system:authenticated");
        }
        let answer = self.client.request::<Value>(request.body(body)?).await;
        answer.with_context(|| format!("{method} {path}"))
    }

    /// Applies an object as an administrator.
    pub(super) async fn apply(&self, object: &Value) -> anyhow::Result<Value> {
        let path = format!("{}?fieldManager={LAST_APPLIED}&force=true", write_path(object)?);
        self.send("PATCH", &path, "application/apply-patch+yaml", object).await
    }

    async fn until_served(&self) -> anyhow::Result<()> {
        for _ in 0..500 {
            let listed = self
                .send("GET", "/apis/capsule.clastix.io/v1beta2/tenants", "", &Value::Null)
                .await;
            if listed.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        anyhow::bail!("Tenants aren't served")
    }

    async fn store_tenant(&self, index: usize) -> anyhow::Result<()> {
        let path = "/apis/capsule.clastix.io/v1beta2/tenants";
        let json = "application/json";
        let tenant = self.send("POST", path, json, &write_tenant(index)).await?;
        let uid = tenant.pointer("/metadata/uid").and_then(Value::as_str);
        let uid = uid.context("a Tenant without a uid")?;
        let mut spaces = Vec::new();
        for name in list_namespaces(index) {
            let namespace = write_namespace(&name, index, uid);
            let made = self.send("POST", "/api/v1/namespaces", json, &namespace).await?;
            spaces.push(json!({ "name": name, "uid": made.pointer("/metadata/uid") }));
        }
        let status = json!({ "status": { "spaces": spaces } });
        let path = format!("{path}/{}/status", name_tenant(index));
        self.send("PATCH", &path, "application/merge-patch+json", &status)
            .await
            .map(drop)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

/// Runs a function this many times, with as many at once as there are clients.
pub(super) async fn for_each<F: Future<Output = anyhow::Result<()>>>(
    count: usize,
    act: impl Fn(usize) -> F,
) -> anyhow::Result<()> {
    let acting = futures::stream::iter(0..count).map(act);
    acting.buffer_unordered(CLIENTS).try_collect().await
}

pub(super) fn name_tenant(index: usize) -> String {
    format!("tenant-{index}")
}

pub(super) fn name_owner(index: usize) -> String {
    format!("owner-{index}")
}

pub(super) fn list_namespaces(index: usize) -> Vec<String> {
    let more = (1..NAMESPACES).map(|number| format!("tenant-{index}-{number}"));
    std::iter::once(name_tenant(index)).chain(more).collect()
}

/// Makes a Tenant whose limits apply to the measured objects.
fn write_tenant(index: usize) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name_tenant(index) },
        "spec": {
            "owners": [{ "kind": "User", "name": name_owner(index) }],
            "namespaceOptions": { "quota": 100_000 },
            "containerRegistries": { "allowed": ["registry.example"] },
            "ingressOptions": { "allowedHostnames": { "allowedRegex": "[a-z0-9-]+\\.example\\.org" } }
        }
    })
}

pub(super) fn write_namespace(name: &str, index: usize, tenant_uid: &str) -> Value {
    let tenant = name_tenant(index);
    let owner =
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant, "uid": tenant_uid });
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "capsule.clastix.io/tenant": tenant }, "ownerReferences": [owner] }
    })
}

fn list_rights() -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    [
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": WRITERS },
            "rules": [
                { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] },
                { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["*"] }
            ]
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": WRITERS },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": WRITERS },
            "subjects": [{ "apiGroup": group, "kind": "Group", "name": WRITERS }]
        }),
    ]
}

/// Returns the path of an object of an installation, or of a policy.
fn write_path(object: &Value) -> anyhow::Result<String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let plural = match kind {
        "CustomResourceDefinition" => "customresourcedefinitions",
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        other => anyhow::bail!("where a {other} is stored isn't known here"),
    };
    let group = if version.contains('/') { "apis" } else { "api" };
    Ok(match text("/metadata/namespace") {
        "" => format!("/{group}/{version}/{plural}/{name}"),
        namespace => format!("/{group}/{version}/namespaces/{namespace}/{plural}/{name}"),
    })
}
