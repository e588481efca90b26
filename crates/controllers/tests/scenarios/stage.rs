//! A cluster, a Git server and running controllers, and the sentences that tests are made of.

use std::future::Future;

use serde_json::{Value, json};
use tenure_cluster::{Connection, Token};
use tenure_controllers::{Config, run};
use tenure_git_server::{GitServer, HttpAuthentication, Options, Repository};
use tenure_sources::Policy;
use tenure_testkit::{Admin, Cluster, SOON, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
pub(crate) const GIT_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
pub(crate) const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
pub(crate) const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

pub(crate) struct Stage {
    pub(crate) admin: Admin,
    pub(crate) git: GitServer,
    /// Serves nobody but user `git` with the password `sesame`.
    pub(crate) private: GitServer,
    cluster: Cluster,
    policy: Policy,
    end: CancellationToken,
    running: JoinHandle<()>,
}

impl Stage {
    /// Everything running, and a namespace in which the ServiceAccount `default` may do what an editor may.
    pub(crate) async fn set(namespace: &str) -> Self {
        Self::set_allowing(namespace, &[]).await
    }

    /// As [`Stage::set`], with more addresses that an administrator allows sources to fetch from.
    pub(crate) async fn set_allowing(namespace: &str, more: &[String]) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let git = GitServer::start(cluster.folder().join("git"), Options::default())
            .await
            .unwrap();
        let private = GitServer::start(cluster.folder().join("private"), locked())
            .await
            .unwrap();
        let allow = [&git, &private].map(|server| format!("http://{}", server.http_address()).parse().unwrap());
        let more = more.iter().map(|endpoint| endpoint.parse().unwrap());
        let policy = Policy {
            allow: allow.into_iter().chain(more).collect(),
            cluster: Vec::new(),
        };
        let (end, running) = start(&cluster, &policy);
        let stage = Self {
            admin: cluster.admin.clone(),
            git,
            private,
            cluster,
            policy,
            end,
            running,
        };
        stage.namespace(namespace).await;
        stage
    }

    /// A namespace whose `default` ServiceAccount may edit it.
    pub(crate) async fn namespace(&self, namespace: &str) {
        for object in [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": namespace } }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": { "name": "applier", "namespace": namespace },
                "rules": [{ "apiGroups": ["", "apps", "batch", "example.com"], "resources": ["*"], "verbs": ["*"] }]
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": "applier", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier" },
                "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }]
            }),
        ] {
            self.admin.apply(object).await.unwrap();
        }
    }

    /// A repository with these files, and a GitRepository `source` for it.
    pub(crate) async fn repository(&self, namespace: &str, name: &str, files: &[(&str, &str)]) -> Repository {
        let repository = self.git.create(&format!("{namespace}-{name}")).await.unwrap();
        commit(&repository, files).await;
        self.admin
            .apply(json!({
                "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
                "metadata": { "name": name, "namespace": namespace },
                "spec": {
                    "url": self.git.http_url(&format!("{namespace}-{name}")),
                    "ref": { "branch": "main" }, "interval": "1s"
                }
            }))
            .await
            .unwrap();
        repository
    }

    /// A Kustomization of the source of the same name; `spec` is laid over the usual.
    pub(crate) async fn kustomization(&self, namespace: &str, name: &str, source: &str, spec: Value) {
        let mut usual = json!({
            "interval": "10m", "retryInterval": "1s", "timeout": "30s", "prune": true, "path": "./",
            "targetNamespace": namespace,
            "sourceRef": { "kind": "GitRepository", "name": source }
        });
        for (key, value) in spec.as_object().unwrap() {
            usual[key] = value.clone();
        }
        usual.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.admin
            .apply(json!({
                "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1,
                "metadata": { "name": name, "namespace": namespace }, "spec": usual
            }))
            .await
            .unwrap();
    }

    /// Waits until a look at an object satisfies; returns it.
    pub(crate) async fn until(
        &self,
        kind: (&str, &str),
        target: (&str, &str),
        holds: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let looked = eventually(SOON, || async {
            let object = self.admin.get(kind, target).await.map_err(|error| error.to_string())?;
            if holds(object.as_ref()) {
                Ok(object)
            } else {
                Err(format!("{object:#?}"))
            }
        });
        within(looked).await
    }

    /// Waits until the Ready condition is as said; returns its message.
    pub(crate) async fn ready(&self, kind: (&str, &str), target: (&str, &str), status: &str, reason: &str) -> String {
        let object = self
            .until(kind, target, |object| {
                let ready = object.and_then(|object| condition(object, "Ready"));
                ready.is_some_and(|ready| ready["status"] == status && ready["reason"] == reason)
            })
            .await
            .unwrap();
        condition(&object, "Ready").unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until a Kustomization has applied this commit and is ready.
    pub(crate) async fn applied(&self, target: (&str, &str), commit: &str) -> Value {
        self.until(KUSTOMIZATION, target, |object| {
            object.is_some_and(|object| {
                object["status"]["lastAppliedRevision"]
                    .as_str()
                    .is_some_and(|revision| revision.ends_with(commit))
                    && condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
            })
        })
        .await
        .unwrap()
    }

    pub(crate) async fn get(&self, kind: (&str, &str), target: (&str, &str)) -> Option<Value> {
        self.admin.get(kind, target).await.unwrap()
    }

    /// Whether the cluster is the embedded one, which reports workloads as rolled out.
    pub(crate) fn is_embedded(&self) -> bool {
        self.cluster.service().is_some()
    }

    /// The folder of the artifacts.
    pub(crate) fn artifacts(&self) -> std::path::PathBuf {
        self.cluster.folder().join("artifacts")
    }

    /// Ends the controllers, and starts them anew on the same folder.
    pub(crate) async fn restart(&mut self) {
        self.end.cancel();
        (&mut self.running).await.unwrap();
        (self.end, self.running) = start(&self.cluster, &self.policy);
    }

    /// Ends the controllers and waits for them.
    pub(crate) async fn end(self) {
        self.end.cancel();
        self.running.await.unwrap();
        drop(self.cluster);
    }
}

pub(crate) async fn commit(repository: &Repository, files: &[(&str, &str)]) -> String {
    repository.commit(files.iter().copied(), "a change").await.unwrap()
}

pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

async fn within<T>(looked: impl Future<Output = Result<T, String>>) -> T {
    match looked.await {
        Ok(found) => found,
        Err(last) => panic!("it did not come to that; last seen: {last}"),
    }
}

/// Starts the controllers as their own ServiceAccount.
fn start(cluster: &Cluster, policy: &Policy) -> (CancellationToken, JoinHandle<()>) {
    let connection = match (cluster.service(), cluster.configuration()) {
        (Some(service), _) => Connection::in_process(service, Token::new(&cluster.controller_token, None)),
        (None, Some(mut config)) => {
            config.auth_info.token = Some(cluster.controller_token.clone().into());
            Connection::over_network(config).unwrap()
        }
        (None, None) => unreachable!(),
    };
    let mut config = Config::new(connection, cluster.folder().join("artifacts"));
    config.platform_sources = policy.clone();
    config.tenant_sources = policy.clone();
    let end = CancellationToken::new();
    let running = tokio::spawn({
        let end = end.clone();
        async move { run(config, end).await.unwrap() }
    });
    (end, running)
}

fn locked() -> Options {
    Options {
        authentication: Some(HttpAuthentication::Basic {
            username: "git".to_owned(),
            password: "sesame".to_owned(),
        }),
        ..Options::default()
    }
}

/// A ConfigMap as a file.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}
