//! Three tenants on one control plane: one is hostile, one makes timed commits, one only reads. The hostile one has the rights of any tenant's GitOps account, and those
//! that an administrator binds for a tenant with its own Kustomizations and sources.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};

use crate::load::{Connection, Target};
use crate::process::ControlPlane;

/// The longest time of a commit; slower commits count as this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The object that the third tenant reads.
pub(crate) const THIRD_OBJECT: &str = "/api/v1/namespaces/third/configmaps/greeting";

/// The namespaces, each of a tenant with its name.
pub(crate) const HOSTILE: &str = "hostile";
/// A ServiceAccount that a tenant creates in a namespace of its own.
const WORKER: &str = "worker";
const NEIGHBOUR: &str = "neighbour";
const THIRD: &str = "third";

const APPLY: &str = "application/apply-patch+yaml";

/// A running control plane and Git server, with the three tenants and the clients that send as them.
pub(crate) struct Stage {
    plane: ControlPlane,
    pub(crate) git: GitServer,
    repository: Repository,
    commits: AtomicUsize,
    /// The administrator.
    pub(crate) admin: Connection,
    /// The hostile tenant's GitOps account.
    pub(crate) hostile: Target,
    /// The third tenant's GitOps account.
    pub(crate) third: Target,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// Starts the control plane with these additional arguments, and creates the tenants.
    pub(crate) async fn set(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let git = GitServer::start(folder.path(), Options::default()).await?;
        let repository = git.create(NEIGHBOUR).await?;
        repository
            .commit([("app.yaml", make_greeting(0))], "the beginning")
            .await?;
        let address = format!("http://{}", git.http_address());
        let mut all = vec!["--allow-source".to_owned(), address];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let plane = ControlPlane::start(program, &all).await?;
        let target = Target::read(&plane.kubeconfig()).await?;
        let admin = target.connect().await?;
        for tenant in [HOSTILE, NEIGHBOUR, THIRD] {
            make_tenant(&admin, tenant).await?;
        }
        let_write_surfaces(&admin, HOSTILE).await?;
        let stage = Self {
            hostile: target.with_token(&request_token(&admin, (HOSTILE, "hostile-gitops")).await?)?,
            third: target.with_token(&request_token(&admin, (THIRD, "third-gitops")).await?)?,
            plane,
            repository,
            commits: AtomicUsize::new(0),
            admin,
            _folder: folder,
            git,
        };
        let greeting = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting", "namespace": THIRD}, "data": {"greeting": "hello"}});
        stage.apply(THIRD_OBJECT, &greeting).await?;
        stage.apply_source(NEIGHBOUR, NEIGHBOUR).await?;
        stage
            .apply_kustomization(
                NEIGHBOUR,
                "app",
                &json!({"path": "./", "sourceRef": {"kind": "GitRepository", "name": NEIGHBOUR}}),
            )
            .await?;
        let first = stage.commit_to_applied().await;
        if first >= PATIENCE {
            bail!("the neighbour's first commit was not applied in {PATIENCE:?}");
        }
        Ok(stage)
    }

    /// Creates a namespace of a tenant, with a ServiceAccount that may write everything there. Returns the target with this account.
    pub(crate) async fn add_account(&self, tenant: &str, namespace: &str) -> anyhow::Result<Target> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"capsule.clastix.io/tenant": tenant}}});
        self.apply(&format!("/api/v1/namespaces/{namespace}"), &object).await?;
        let metadata = json!({"name": WORKER, "namespace": namespace});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": WORKER, "namespace": namespace}]});
        self.apply(
            &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{WORKER}"),
            &account,
        )
        .await?;
        self.apply(
            &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{WORKER}"),
            &binding,
        )
        .await?;
        // Wait until the namespace belongs to the tenant: then its owners are bound there.
        let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        let started = Instant::now();
        while !String::from_utf8_lossy(&self.admin.get(&bindings).await?).contains(&format!("{tenant}-gitops")) {
            if started.elapsed() > PATIENCE {
                bail!("namespace {namespace} is not {tenant}'s after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.hostile
            .with_token(&request_token(&self.admin, (namespace, WORKER)).await?)
    }

    /// Returns the id of the control plane's process.
    pub(crate) fn process_id(&self) -> u32 {
        self.plane.process_id()
    }

    /// Returns the CPU time that the control plane has used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        self.plane.cpu()
    }

    /// Checks whether the control plane still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.plane.is_running()
    }

    /// Applies an object as the administrator.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        apply_object(&self.admin, path, object).await
    }

    /// Applies a GitRepository for the repository of that name.
    pub(crate) async fn apply_source(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": name, "namespace": namespace},
            "spec": {"interval": "1h", "timeout": "60s", "url": self.git.http_url(name), "ref": {"branch": "main"}}});
        self.apply(&source_path(namespace, name), &object).await
    }

    /// Applies a Kustomization that acts as its tenant's GitOps account; `spec` overrides the defaults.
    pub(crate) async fn apply_kustomization(&self, namespace: &str, name: &str, spec: &Value) -> anyhow::Result<()> {
        let mut usual = json!({"interval": "1h", "retryInterval": "1s", "timeout": "60s", "prune": true, "path": "./",
            "targetNamespace": namespace, "serviceAccountName": format!("{namespace}-gitops")});
        for (key, value) in spec.as_object().into_iter().flatten() {
            if let Some(usual) = usual.as_object_mut() {
                usual.insert(key.clone(), value.clone());
            }
        }
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": namespace}, "spec": usual});
        self.apply(&kustomization_path(namespace, name), &object).await
    }

    /// Waits until a Kustomization is Ready.
    pub(crate) async fn until_ready(&self, namespace: &str, name: &str, patience: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        let path = kustomization_path(namespace, name);
        loop {
            let object: Value = serde_json::from_slice(&self.admin.get(&path).await?)?;
            if is_ready(&object) {
                return Ok(());
            }
            if started.elapsed() > patience {
                let conditions = object.pointer("/status/conditions").map(Value::to_string);
                bail!(
                    "{namespace}/{name} is not ready after {patience:?}: {}",
                    conditions.unwrap_or_default()
                );
            }
            // A poll; its interval is the precision of the time.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Measures the time from `requestedAt`, set directly after a push, until the neighbour's Kustomization is Ready with that commit. A failure counts as [`PATIENCE`].
    pub(crate) async fn commit_to_applied(&self) -> Duration {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        match tokio::time::timeout(PATIENCE, self.follow_commit(number)).await {
            Ok(Ok(took)) => took,
            Ok(Err(_)) | Err(_) => PATIENCE,
        }
    }

    async fn follow_commit(&self, number: usize) -> anyhow::Result<Duration> {
        let path = kustomization_path(NEIGHBOUR, "app");
        let (collection, _) = path.rsplit_once('/').context("no collection")?;
        let watch = format!("{collection}?watch=true&fieldSelector=metadata.name%3Dapp");
        let mut body = self.admin.send("GET", &watch, "", Bytes::new()).await?;
        let commit = self
            .repository
            .commit([("app.yaml", make_greeting(number))], "a change")
            .await?;
        let started = Instant::now();
        request_reconcile(&self.admin, &source_path(NEIGHBOUR, NEIGHBOUR)).await?;
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            for part in data.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.ends_with(b"\n") {
                    if has_applied(&serde_json::from_slice(&line)?, &commit) {
                        return Ok(started.elapsed());
                    }
                    line.clear();
                }
            }
        }
        bail!("the watch ended")
    }
}

/// Returns the path of a Kustomization.
pub(crate) fn kustomization_path(namespace: &str, name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{namespace}/kustomizations/{name}")
}

/// Returns the path of a GitRepository.
pub(crate) fn source_path(namespace: &str, name: &str) -> String {
    format!("/apis/source.toolkit.fluxcd.io/v1/namespaces/{namespace}/gitrepositories/{name}")
}

/// Sets `reconcile.fluxcd.io/requestedAt` to a new value.
pub(crate) async fn request_reconcile(connection: &Connection, path: &str) -> anyhow::Result<()> {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": number.to_string()}}});
    merge_object(connection, path, &patch).await
}

/// Sends a merge patch.
pub(crate) async fn merge_object(connection: &Connection, path: &str, patch: &Value) -> anyhow::Result<()> {
    let body = Bytes::from(patch.to_string());
    connection
        .call("PATCH", path, "application/merge-patch+json", body)
        .await?;
    Ok(())
}

pub(crate) async fn apply_object(connection: &Connection, path: &str, object: &Value) -> anyhow::Result<()> {
    let url = format!("{path}?fieldManager=bench&force=true");
    let body = Bytes::from(object.to_string());
    connection.call("PATCH", &url, APPLY, body).await?;
    Ok(())
}

/// Creates a Tenant and its namespace, and waits until its GitOps account exists.
pub(crate) async fn make_tenant(admin: &Connection, name: &str) -> anyhow::Result<()> {
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": name},
        "spec": {"owners": [{"kind": "User", "name": format!("owner-of-{name}"), "clusterRoles": ["admin"]}]}});
    apply_object(
        admin,
        &format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}"),
        &tenant,
    )
    .await?;
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings");
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/{name}-gitops");
    let started = Instant::now();
    loop {
        let bound = admin.get(&bindings).await?;
        let bound = String::from_utf8_lossy(&bound).contains(&format!("{name}-gitops"));
        if bound && admin.get(&account).await.is_ok() {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            bail!("tenant {name} has no GitOps account after {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Allows a tenant's GitOps account to change the Kustomizations and sources of its namespace.
async fn let_write_surfaces(admin: &Connection, tenant: &str) -> anyhow::Result<()> {
    let rules = json!([{"apiGroups": ["kustomize.toolkit.fluxcd.io", "source.toolkit.fluxcd.io"],
        "resources": ["kustomizations", "gitrepositories"], "verbs": ["get", "patch"]}]);
    let metadata = json!({"name": "surfaces", "namespace": tenant});
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "surfaces"},
        "subjects": [{"kind": "ServiceAccount", "name": format!("{tenant}-gitops"), "namespace": tenant}]});
    let folder = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant}");
    apply_object(admin, &format!("{folder}/roles/surfaces"), &role).await?;
    apply_object(admin, &format!("{folder}/rolebindings/surfaces"), &binding).await
}

async fn request_token(admin: &Connection, (namespace, account): (&str, &str)) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
    let body = Bytes::from(request.to_string());
    let answer: Value = serde_json::from_slice(&admin.call("POST", &path, "application/json", body).await?)?;
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    Ok(token.context("no token in the answer")?.to_owned())
}

fn make_greeting(number: usize) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\ndata:\n  number: \"{number}\"\n")
}

fn has_applied(event: &Value, commit: &str) -> bool {
    let Some(object) = event.get("object") else {
        return false;
    };
    let revision = object.pointer("/status/lastAppliedRevision").and_then(Value::as_str);
    is_ready(object) && revision.is_some_and(|revision| revision.ends_with(commit))
}

fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let field = |name: &str| condition.get(name).and_then(Value::as_str);
        field("type") == Some("Ready") && field("status") == Some("True")
    })
}
