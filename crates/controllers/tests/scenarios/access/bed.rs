//! A Git host that gives out credentials, with a real git server behind it, and a stage whose platform has an AccessProvider for it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_forge_server::{ForgeServer, Kind, LiveCredential, Owner};
use tenure_git_access::rotation_order::RotationOrder;
use tenure_testkit::{Admin, SOON, eventually};

use crate::deploy_keys::{ROLE, ROLE_BINDING, SECRET, let_write};
use crate::stage::{GIT_REPOSITORY, Stage, condition, config_map};
use crate::tenants::{SURFACE, tenant};

pub(super) const VERSION: &str = "tenure.dev/v1alpha1";
pub(super) const PROVIDER_KIND: (&str, &str) = (VERSION, "AccessProvider");
pub(super) const REQUEST: (&str, &str) = (VERSION, "FluxAccessRequest");
pub(super) const GRANT: (&str, &str) = (VERSION, "FluxAccessGrant");
pub(super) const PLATFORM: &str = "tenure-system";
const GROUP: &str = "group-1";
pub(super) const PROJECT: &str = "group-1/app";
const CONFIGURATION: &str = ".gitlab/agents/prod/config.yaml";
pub(super) const STAGING: &str = "tenure-access-work-staging";

/// A host with a project.
pub(super) struct Host {
    pub(super) forge: ForgeServer,
    pub(super) project: u64,
    /// The project, or its group if the group is requested instead.
    asked: u64,
    pub(super) authoriser: String,
    _folder: tempfile::TempDir,
}

/// Such a host, and a stage whose platform has an AccessProvider for it.
pub(super) struct Bed {
    pub(super) stage: Stage,
    pub(super) host: Arc<Host>,
}

impl std::ops::Deref for Bed {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// The kind of host, and the request.
pub(super) struct Setup<'a> {
    pub(super) kind: Kind,
    /// Existing namespaces in which Secrets may be written.
    pub(super) namespaces: &'a [&'a str],
    pub(super) role: &'a str,
    /// Whether the project's group is requested instead of the project.
    pub(super) is_group: bool,
    /// The entries in the agent's configuration.
    pub(super) entries: &'a str,
    /// Further fields of the AccessProvider.
    pub(super) provider: fn(&ForgeServer) -> Value,
    /// Whether the controllers' requests to the cluster go through faults, on every server.
    pub(super) is_failing: bool,
    /// The authoriser's credential, if it is not a token of the group's owner.
    pub(super) authoriser: Option<fn(&ForgeServer) -> Value>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            kind: Kind::Gitlab,
            namespaces: &[],
            role: "read_repository",
            is_group: false,
            entries: "",
            provider: |_| json!({}),
            authoriser: None,
            is_failing: false,
        }
    }
}

impl Bed {
    /// Creates a bed at GitLab, with the defaults of [`Setup`].
    pub(super) async fn new(namespaces: &[&str], entries: &str) -> Self {
        let setup = Setup {
            namespaces,
            entries,
            ..Setup::default()
        };
        Self::set(setup).await
    }

    pub(super) async fn set(setup: Setup<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let forge = ForgeServer::start(folder.path(), setup.kind).await.unwrap();
        let group = forge.add_group(GROUP);
        let project = forge.add_project(PROJECT).await.unwrap();
        let repository = forge.git().repository(PROJECT).unwrap();
        repository.commit([("a.yaml", "a: b")], "first").await.unwrap();
        let owner = forge.add_person("owner");
        forge.set_level(owner, Owner::Group(group), 50);
        let host = Host {
            authoriser: forge.authorise(owner, &["api"], None),
            asked: if setup.is_group { group } else { project },
            project,
            forge,
            _folder: folder,
        };
        Self::set_at(Arc::new(host), setup).await
    }

    /// Creates a bed at an existing host, at which another cluster may also have credentials.
    pub(super) async fn set_at(host: Arc<Host>, setup: Setup<'_>) -> Self {
        let git = format!("http://{}", host.forge.git().http_address());
        let ssh = format!("ssh://{}", host.forge.git().ssh_address().unwrap());
        let first = setup.namespaces.first().unwrap();
        let allowed = [host.forge.url().to_owned(), git, ssh];
        let stage = match setup.is_failing {
            true => Stage::set_policed_failing(first, &allowed).await,
            false => Stage::set_policed_allowing(first, &allowed).await,
        };
        for namespace in setup.namespaces {
            stage.namespace(namespace).await;
            let_write(&stage.admin, namespace).await;
        }
        let what = if setup.is_group { GROUP } else { PROJECT };
        let configuration = configure(setup.role, what, setup.entries);
        stage
            .repository(PLATFORM, "agents", &[(CONFIGURATION, &configuration)])
            .await;
        let bed = Self { stage, host };
        bed.provide(&setup).await;
        bed
    }

    pub(super) fn admin(&self) -> &Admin {
        &self.stage.admin
    }

    /// Does the one-time setup of an administrator.
    async fn provide(&self, setup: &Setup<'_>) {
        let kind = match setup.kind {
            Kind::Gitlab => "gitlab",
            Kind::Github => "github",
            Kind::Gitea => "gitea",
        };
        let shown = setup.authoriser.map(|make| make(&self.forge));
        let shown = shown.unwrap_or_else(|| json!({ "token": self.authoriser }));
        // As `data`, so that leftovers of another test are removed, which a server does not do for `stringData`.
        let shown: serde_json::Map<String, Value> = shown
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, text)| (key.clone(), json!(STANDARD.encode(text.as_str().unwrap()))))
            .collect();
        let mut provider = json!({
            "apiVersion": VERSION, "kind": "AccessProvider", "metadata": { "name": "work", "namespace": PLATFORM },
            "spec": {
                "kind": kind, "address": self.forge.url(), "topLevelGroup": "group-1", "namespaces": setup.namespaces,
                "authoriser": { "serviceAccountName": "gitlab-authoriser", "secretRef": { "name": "gitlab-authoriser" } },
                "agent": { "name": "prod", "sourceRef": { "kind": "GitRepository", "name": "agents" } },
            }
        });
        for (field, value) in (setup.provider)(&self.forge).as_object().unwrap() {
            match value {
                Value::Null => provider["spec"].as_object_mut().unwrap().remove(field),
                value => provider["spec"]
                    .as_object_mut()
                    .unwrap()
                    .insert(field.clone(), value.clone()),
            };
        }
        let rules = json!([
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["gitlab-authoriser"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": [STAGING], "verbs": ["get", "patch"] },
        ]);
        for object in [
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "gitlab-authoriser", "namespace": PLATFORM } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "gitlab-authoriser", "namespace": PLATFORM },
                "data": shown }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": STAGING, "namespace": PLATFORM } }),
            json!({ "apiVersion": ROLE.0, "kind": ROLE.1, "metadata": { "name": "gitlab-authoriser", "namespace": PLATFORM }, "rules": rules }),
            json!({
                "apiVersion": ROLE_BINDING.0, "kind": ROLE_BINDING.1, "metadata": { "name": "gitlab-authoriser", "namespace": PLATFORM },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gitlab-authoriser" },
                "subjects": [{ "kind": "ServiceAccount", "name": "gitlab-authoriser", "namespace": PLATFORM }]
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "owners-of-app" },
                "rules": [
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": [self.target()], "verbs": ["approve"] },
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants"], "verbs": ["create", "delete", "get"] },
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests"], "verbs": ["patch"] },
                ]
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "owners-of-app" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owners-of-app" },
                "subjects": [{ "kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io" }]
            }),
            provider,
        ] {
            self.admin().apply(object).await.unwrap();
        }
    }

    /// Changes the agent's configuration for the project.
    pub(super) async fn ask(&self, role: &str, entries: &str) {
        let agents = self.stage.git.repository(&format!("{PLATFORM}-agents")).unwrap();
        let configuration = configure(role, PROJECT, entries);
        let files = [(CONFIGURATION, configuration.as_str())];
        agents.commit(files, "something else is asked for").await.unwrap();
    }

    pub(super) fn target(&self) -> String {
        format!("work-{}", self.asked)
    }

    /// Returns all requests.
    pub(super) async fn list_requests(&self) -> Result<Vec<Value>, String> {
        let all = self.admin().list(REQUEST, PLATFORM).await;
        all.map_err(|error| error.to_string())
    }

    /// Returns all requests, after they fulfil the condition.
    pub(super) async fn requests(&self, what: &str, hold: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        // Includes the time in which a source is asked to fetch, and fetches.
        let looked = eventually(3 * SOON, || async {
            let all = self.list_requests().await?;
            if hold(&all) { Ok(all) } else { Err(format!("{all:#?}")) }
        });
        match looked.await {
            Ok(found) => found,
            Err(last) => {
                let provider = self.stage.get(PROVIDER_KIND, (PLATFORM, "work")).await;
                panic!("no request that {what}: {last}; {provider:#?}")
            }
        }
    }

    /// Returns the only request, after it fulfils the condition.
    pub(super) async fn request(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let is_it = |all: &[Value]| matches!(all, [one] if holds(one));
        self.requests(what, is_it).await.remove(0)
    }

    /// Changes the recorded ledgers of a request. A record that was written meanwhile is never overwritten.
    pub(super) async fn edit_ledgers(&self, find: impl AsyncFn() -> Value, change: impl Fn(&mut Vec<Value>)) -> Value {
        let edited = eventually(SOON, || async {
            let request = find().await;
            let mut credentials = request["status"]["credentials"].as_array().cloned().unwrap_or_default();
            change(&mut credentials);
            let name = request["metadata"]["name"].as_str().unwrap();
            let version = &request["metadata"]["resourceVersion"];
            let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "credentials": credentials } });
            self.admin().patch_status(REQUEST, (PLATFORM, name), patch).await
        });
        edited.await.unwrap()
    }

    pub(super) async fn pending(&self) -> Value {
        self.request("waits", |request| request["status"]["state"] == "Pending")
            .await
    }

    pub(super) async fn wait_for_delivery(&self) -> Value {
        self.request("is delivered and in use", |request| {
            let is_true =
                |type_: &str| condition(request, type_).is_some_and(|condition| condition["status"] == "True");
            request["status"]["state"] == "Approved" && is_true("Ready") && is_true("Verified")
        })
        .await
    }

    /// Answers a request as alice, who is an approver.
    pub(super) async fn answer(&self, request: &Value, decision: &str) {
        let alice = self.admin().impersonating("alice").unwrap();
        let grant = grant(request, &self.target(), "alice", decision);
        eventually(SOON, || alice.create(grant.clone())).await.unwrap();
    }

    pub(super) fn live(&self) -> Vec<LiveCredential> {
        self.forge.live()
    }

    pub(super) async fn until_none_lives(&self) {
        let looked = eventually(SOON, || async {
            match self.live() {
                live if live.is_empty() => Ok(()),
                live => Err(format!("{live:#?}")),
            }
        });
        if let Err(last) = looked.await {
            let requests = self.admin().list(REQUEST, PLATFORM).await.unwrap();
            panic!("these live on: {last}; {requests:#?}");
        }
    }

    /// Deletes alice's grant, and waits until no credential lives at the host and the Secret is gone.
    pub(super) async fn revoke(&self, namespace: &str, name: &str) {
        self.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
        self.until_none_lives().await;
        let is_gone = |secret: Option<&Value>| secret.is_none();
        self.stage.wait_for(SECRET, (namespace, name), is_gone).await;
    }

    pub(super) async fn secret(&self, namespace: &str) -> Option<Value> {
        self.stage.get(SECRET, (namespace, "gitlab-flux-token")).await
    }

    /// Makes the controllers check everything again, as after an hour.
    pub(super) async fn look_again(&self, request: &Value) {
        let name = request["metadata"]["name"].as_str().unwrap();
        let at = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": at } } });
        self.admin().patch(REQUEST, (PLATFORM, name), patch).await.unwrap();
    }

    /// Creates a source of the project that uses the Secret.
    pub(super) async fn source(&self, namespace: &str) {
        self.source_at(namespace, &self.forge.git().http_url(PROJECT)).await;
    }

    pub(super) async fn source_at(&self, namespace: &str, url: &str) {
        let source = json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "app", "namespace": namespace },
            "spec": {
                "url": url, "ref": { "branch": "main" }, "interval": "1m",
                "secretRef": { "name": "gitlab-flux-token" }
            }
        });
        self.admin().apply(source).await.unwrap();
    }

    /// Returns a user that may create FluxAccesses in a namespace.
    pub(super) async fn asker(&self, namespace: &str, name: &str) -> Admin {
        for object in [
            json!({
                "apiVersion": ROLE.0, "kind": ROLE.1, "metadata": { "name": "asks", "namespace": namespace },
                "rules": [{ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesses"], "verbs": ["create", "get", "delete"] }]
            }),
            json!({
                "apiVersion": ROLE_BINDING.0, "kind": ROLE_BINDING.1, "metadata": { "name": "asks", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks" },
                "subjects": [{ "kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io" }]
            }),
        ] {
            self.admin().apply(object).await.unwrap();
        }
        self.admin().impersonating(name).unwrap()
    }

    /// Creates a tenant whose Surface deploys the project from this address and names no Secret.
    pub(super) async fn deploy(&self, name: &str, url: &str) {
        tenant(&self.stage, name).await;
        let_write(self.admin(), name).await;
        let more = json!({ "spec": { "namespaces": [name] } });
        self.admin()
            .patch(PROVIDER_KIND, (PLATFORM, "work"), more)
            .await
            .unwrap();
        let manifest = config_map("a", "1");
        let repository = self.forge.git().repository(PROJECT).unwrap();
        repository
            .commit([("a.yaml", manifest.as_str())], "second")
            .await
            .unwrap();
        let surface = json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "shop", "namespace": name },
            "spec": { "sources": [{
                "name": "app", "url": url, "interval": "1m", "retryInterval": "1s", "targetNamespace": name
            }] }
        });
        self.admin().apply(surface).await.unwrap();
    }

    /// Makes the record of the credential in use older than every waiting period.
    pub(super) async fn age(&self) {
        let age = |ledgers: &mut Vec<Value>| {
            for ledger in ledgers {
                for part in ["/current/begunAt", "/next/begunAt"] {
                    if let Some(time) = ledger.pointer_mut(part) {
                        *time = json!(earlier(time.as_str().unwrap()));
                    }
                }
                for time in ["retryAt", "unplannedAt"] {
                    ledger.as_object_mut().unwrap().remove(time);
                }
            }
        };
        self.edit_ledgers(async || self.request("is there", |_| true).await, age)
            .await;
    }

    /// Orders new credentials as alice, an approver, and waits until that is done. The controllers are restarted before: their list of the host from
    /// before the credential was made would count the aged credential as revoked.
    pub(super) async fn replace(&mut self, is_leak: bool) -> Value {
        self.stage.restart().await;
        self.age().await;
        let order = self.order(is_leak).await;
        let is_done = |request: &Value| !order.is_open(&serde_json::from_value(request.clone()).unwrap());
        self.request("was replaced", is_done).await
    }

    /// Orders new credentials as alice, an approver.
    pub(super) async fn order(&self, is_leak: bool) -> RotationOrder {
        let request = self.request("is there", |_| true).await;
        let name = request["metadata"]["name"].as_str().unwrap();
        let order = RotationOrder {
            namespace: None,
            by: "alice".to_owned(),
            at: jiff::Timestamp::now(),
            is_leak,
            cause: "a laptop was stolen".to_owned(),
        };
        let (key, value) = order.write();
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let alice = self.admin().impersonating("alice").unwrap();
        eventually(SOON, || alice.patch(REQUEST, (PLATFORM, name), patch.clone()))
            .await
            .unwrap();
        order
    }
}

/// Returns an agent's configuration for the project or its group.
fn configure(role: &str, what: &str, entries: &str) -> String {
    let kind = if what == GROUP { "groups" } else { "projects" };
    format!("flux_access:\n  role: {role}\n  {kind}:\n  - {{ id: {what}, {entries} }}\n")
}

/// Returns a time one hour earlier.
fn earlier(time: &str) -> String {
    let time: jiff::Timestamp = time.parse().unwrap();
    let earlier = time.checked_sub(jiff::SignedDuration::from_hours(1)).unwrap();
    earlier.to_string()
}

pub(super) fn grant(request: &Value, target: &str, by: &str, decision: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "FluxAccessGrant",
        "metadata": { "name": format!("{by}-{}", decision.to_lowercase()), "namespace": PLATFORM },
        "spec": {
            "requestRef": { "name": request["metadata"]["name"], "uid": request["metadata"]["uid"] },
            "target": target, "specHash": request["spec"]["specHash"], "requestedBy": request["spec"]["requestedBy"],
            "decision": decision, "approvedBy": by,
        }
    })
}

pub(super) fn ledger(request: &Value) -> &Value {
    &request["status"]["credentials"][0]
}

pub(super) fn decode(secret: &Value, key: &str) -> String {
    let text = secret["data"][key].as_str().unwrap();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}
