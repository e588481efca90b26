//! Namespaces of a tenant from its repository. Admission judges them as it judges an owner's own requests. Their deletion waits for a permission.

use serde_json::{Value, json};
use tenure_git_server::{Content, GitServer, Options, Repository};
use tenure_test_ports::reserve_port;

use crate::world::{Cluster, Controllers, list_webhook_flags, name_object, wait_for_probe};

const TENANT: &str = "from-git-blue";
const DEV: &str = "from-git-blue-dev";
const OPS: &str = "from-git-blue-ops";

fn tenant(name: &str, quota: u32) -> Value {
    let owner = format!("system:serviceaccount:{OPS}:default");
    let owners = match name {
        TENANT => json!([{ "kind": "User", "name": "alice" }, { "kind": "ServiceAccount", "name": owner }]),
        _ => json!([{ "kind": "User", "name": "rita" }]),
    };
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name },
        "spec": {
            "owners": owners,
            "namespaceOptions": { "quota": quota, "forbiddenLabels": { "deniedRegex": "^secret-.*" } }
        }
    })
}

fn namespace(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{{labels}}}\n")
}

fn map(namespace: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: inside, namespace: {namespace}}}\n")
}

fn find_ready(found: &Value) -> Option<&Value> {
    let mut conditions = found["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == "Ready")
}

fn is_ready(found: &Value) -> bool {
    find_ready(found).is_some_and(|ready| ready["status"] == "True")
}

/// A cluster in which admission checks writes, with two tenants and a Git server.
struct Scene {
    cluster: Cluster,
    git: GitServer,
    repository: Repository,
    controllers: Controllers,
    _git_folder: tempfile::TempDir,
}

impl Scene {
    async fn set(installed: (&str, &str), flags: &[String]) -> Self {
        let cluster = Cluster::start_own_with(installed.0, installed.1).await;
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
        let repository = git.create("app").await.unwrap();
        let allowed = format!("http://{}", git.http_address());
        let mut all = vec!["--allow-source", &allowed];
        all.extend(flags.iter().map(String::as_str));
        let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &all);
        Self {
            cluster,
            git,
            repository,
            controllers,
            _git_folder: git_folder,
        }
    }

    async fn make_tenants(&self) {
        for tenant in [tenant(TENANT, 3), tenant("from-git-red", 3)] {
            self.cluster.admin.apply(tenant.clone()).await;
            self.cluster.admin.wait_for(tenant, is_ready).await;
        }
    }

    fn kustomization(&self) -> Value {
        name_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", TENANT, "shop-app")
    }

    fn namespace(name: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
    }

    async fn commit(&self, files: &[(&str, Option<String>)]) -> String {
        let files = files.iter().map(|(path, content)| match content {
            Some(content) => (*path, Content::from(content.clone())),
            None => (*path, Content::Removed),
        });
        self.repository.commit(files, "change").await.unwrap()
    }

    /// Waits until the revision is refused with these words, and nothing of it is there.
    async fn refuses(&self, name: &str, files: &[(&str, Option<String>)], words: &[&str]) {
        let commit = self.commit(files).await;
        let is_refused = |found: &Value| {
            let attempted = found["status"]["lastAttemptedRevision"].as_str();
            attempted.is_some_and(|revision| revision.ends_with(&commit))
                && find_ready(found).is_some_and(|ready| {
                    let message = ready["message"].as_str().unwrap_or_default();
                    ready["status"] == "False" && words.iter().any(|words| message.contains(words))
                })
        };
        self.cluster.admin.wait_for(self.kustomization(), is_refused).await;
        let stored = self.cluster.admin.find(&Self::namespace(name)).await;
        let is_ours = stored.is_some_and(|found| found["metadata"]["labels"]["capsule.clastix.io/tenant"] == TENANT);
        assert!(!is_ours, "{name} was created");
        let undo: Vec<(&str, Option<String>)> = files.iter().map(|(path, _)| (*path, None)).collect();
        self.commit(&undo).await;
    }

    async fn settle(&self, commit: &str) {
        let is_applied = |found: &Value| {
            let applied = found["status"]["lastAppliedRevision"].as_str();
            applied.is_some_and(|revision| revision.ends_with(commit)) && is_ready(found)
        };
        self.cluster.admin.wait_for(self.kustomization(), is_applied).await;
    }

    async fn check(&self) {
        let admin = &self.cluster.admin;
        let first = [
            ("dev.yaml", Some(namespace(DEV, "stage: dev"))),
            ("map.yaml", Some(map(DEV))),
        ];
        let commit = self.commit(&first).await;
        admin
            .apply(json!({
                "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "shop", "namespace": TENANT },
                "spec": { "sources": [{
                    "name": "app", "url": self.git.http_url("app"), "interval": "1s", "retryInterval": "1s", "prune": true
                }] }
            }))
            .await;
        self.settle(&commit).await;
        let found = admin.find(&Self::namespace(DEV)).await.expect("the namespace");
        let labels = &found["metadata"]["labels"];
        assert_eq!(labels["capsule.clastix.io/tenant"], TENANT);
        assert_eq!(labels["stage"], "dev");
        let inside = name_object("v1", "ConfigMap", DEV, "inside");
        assert!(admin.find(&inside).await.is_some());

        // Labels follow Git, within what the Tenant allows.
        let commit = self
            .commit(&[("dev.yaml", Some(namespace(DEV, "team: payments")))])
            .await;
        self.settle(&commit).await;
        let found = admin.find(&Self::namespace(DEV)).await.expect("the namespace");
        let labels = &found["metadata"]["labels"];
        assert_eq!((&labels["team"], &labels["stage"]), (&json!("payments"), &Value::Null));
        assert_eq!(labels["capsule.clastix.io/tenant"], TENANT);

        // The namespace in which the account lives is changed like the others.
        let commit = self
            .commit(&[("home.yaml", Some(namespace(TENANT, "tier: home")))])
            .await;
        self.settle(&commit).await;
        let found = admin.find(&Self::namespace(TENANT)).await.expect("the home namespace");
        assert_eq!(found["metadata"]["labels"]["tier"], "home");

        self.check_refusals().await;
        // While there is capacity under the quota.
        self.check_beforehand();
        self.check_owner_account().await;
        self.check_removal().await;
    }

    /// A repository may do no more than an owner.
    async fn check_refusals(&self) {
        let more = format!("{TENANT}-more");
        let create = |name: &str, labels: &str| [("new.yaml", Some(namespace(name, labels)))];
        // Of several policies that refuse, any may answer.
        let other_home: &[&str] = &[
            "is the home namespace of another Tenant",
            "the name belongs to Tenant from-git-red",
            "names of namespaces of Tenant from-git-blue begin with",
        ];
        let platform: &[&str] = &["belongs to Kubernetes or the platform"];
        for (name, labels, words) in [
            ("from-git-red", "", other_home),
            ("kube-system", "", platform),
            ("kube-mine", "", platform),
            (
                "cert-manager",
                "",
                &[
                    "reserved name",
                    "names of namespaces of Tenant from-git-blue begin with",
                ],
            ),
            (
                &more,
                "capsule.clastix.io/tenant: from-git-red",
                &[
                    "no Tenant of this name has it as an owner",
                    "the name belongs to Tenant",
                ],
            ),
        ] {
            self.refuses(name, &create(name, labels), words).await;
        }
        // A label that the Tenant forbids, on a namespace that is there.
        let forbidden = [("dev.yaml", Some(namespace(DEV, "secret-plan: x")))];
        self.commit(&forbidden).await;
        let is_refused = |found: &Value| {
            find_ready(found).is_some_and(|ready| {
                let message = ready["message"].as_str().unwrap_or_default();
                ready["status"] == "False" && message.contains("doesn't allow secret-plan")
            })
        };
        self.cluster.admin.wait_for(self.kustomization(), is_refused).await;
        let commit = self
            .commit(&[("dev.yaml", Some(namespace(DEV, "team: payments")))])
            .await;
        self.settle(&commit).await;
    }

    /// A Kustomization that acts as an owner's ServiceAccount creates namespaces, too, up to the quota.
    async fn check_owner_account(&self) {
        let admin = &self.cluster.admin;
        let commit = self.commit(&[("ops.yaml", Some(namespace(OPS, "")))]).await;
        self.settle(&commit).await;
        let repository = self.git.create("ops").await.unwrap();
        let over = format!("{TENANT}-over");
        repository
            .commit([("new.yaml", namespace(&over, ""))], "first")
            .await
            .unwrap();
        for object in [
            json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "ops", "namespace": OPS },
                "spec": { "interval": "1s", "url": self.git.http_url("ops"), "ref": { "branch": "main" } }
            }),
            json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "ops", "namespace": OPS },
                "spec": {
                    "interval": "1m", "retryInterval": "1s", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "ops" }
                }
            }),
        ] {
            admin.apply(object).await;
        }
        let kustomization = name_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", OPS, "ops");
        let is_refused = |found: &Value| {
            find_ready(found).is_some_and(|ready| {
                let message = ready["message"].as_str().unwrap_or_default();
                ready["status"] == "False" && message.contains("quota")
            })
        };
        admin.wait_for(kustomization.clone(), is_refused).await;
        assert!(admin.find(&Self::namespace(&over)).await.is_none());
        admin.apply(tenant(TENANT, 4)).await;
        admin.wait_for(kustomization, is_ready).await;
        let found = admin.find(&Self::namespace(&over)).await.expect("the namespace");
        assert_eq!(found["metadata"]["labels"]["capsule.clastix.io/tenant"], TENANT);
    }

    /// `tenure check` tries the creation of a namespace, and writes nothing.
    fn check_beforehand(&self) {
        let folder = self.cluster.data("check-files");
        std::fs::create_dir_all(&folder).unwrap();
        let tries = format!("{TENANT}-tried");
        for (name, labels, code, words) in [
            (tries.as_str(), "", 0, "0 errors"),
            (
                "from-git-red-tried",
                "capsule.clastix.io/tenant: from-git-red",
                1,
                "new.yaml:1: error: admission: Namespace/from-git-red-tried: ",
            ),
            (
                "kube-tried",
                "",
                1,
                "new.yaml:1: error: admission: Namespace/kube-tried: ",
            ),
        ] {
            std::fs::write(folder.join("new.yaml"), namespace(name, labels)).unwrap();
            let arguments = ["check", folder.to_str().unwrap(), "--tenant", TENANT];
            self.cluster.check(&arguments, code, &[words]);
        }
    }

    /// While no webhook answers, no identity of the tenant creates a namespace.
    async fn check_without_answers(mut self) {
        self.controllers.child.kill().unwrap();
        self.controllers.child.wait().unwrap();
        let account = format!("system:serviceaccount:{TENANT}:{TENANT}-gitops");
        let owner = format!("system:serviceaccount:{OPS}:default");
        for user in [account.as_str(), owner.as_str(), "alice"] {
            let identity = self.cluster.become_user(user, &[]).await;
            let refused = identity.create(&Self::namespace(&format!("{TENANT}-late"))).await;
            let refused = refused.expect_err(user);
            assert!(refused.contains("failed calling webhook"), "{user}: {refused}");
        }
    }

    /// A namespace that leaves Git stays with its content until its deletion is allowed.
    async fn check_removal(&self) {
        let admin = &self.cluster.admin;
        self.commit(&[("dev.yaml", None), ("map.yaml", None)]).await;
        let is_guarded = |found: &Value| find_ready(found).is_some_and(|ready| ready["reason"] == "DeletionGuarded");
        admin.wait_for(self.kustomization(), is_guarded).await;
        let found = admin.find(&self.kustomization()).await.expect("the Kustomization");
        let message = find_ready(&found).expect("Ready")["message"]
            .as_str()
            .unwrap_or_default();
        let digest = message.split_once("tenure.dev/allow-deletion=").expect(message).1;
        let digest: String = digest
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == ':')
            .collect();
        assert!(admin.find(&Self::namespace(DEV)).await.is_some());
        let mut allowing = self.kustomization();
        allowing["metadata"]["annotations"] = json!({ "tenure.dev/allow-deletion": digest });
        admin.apply(allowing).await;
        // Some servers under test have no controller that empties a namespace: there it is never gone.
        let is_going = |found: &Value| found["metadata"]["deletionTimestamp"].is_string();
        let started = std::time::Instant::now();
        while let Some(found) = admin.find(&Self::namespace(DEV)).await {
            if is_going(&found) {
                break;
            }
            assert!(started.elapsed().as_secs() < 60, "it stays: {found}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_makes_its_tenants_namespaces_with_policies() {
    let installed = ("--policies", "applied ClusterRole tenure-policies");
    let scene = Scene::set(installed, &["--policies".to_owned()]).await;
    scene.cluster.wait_until_in_force().await;
    scene.make_tenants().await;
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_makes_its_tenants_namespaces_with_webhooks() {
    let (port, health) = (reserve_port(), reserve_port());
    let installed = ("--admission", "applied ClusterRole tenure-admission");
    let scene = Scene::set(installed, &list_webhook_flags(port, health)).await;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configuration =
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "tenure" } });
        let is_whole = |found: &Value| found["webhooks"].as_array().is_some_and(|all| all.len() > 3);
        scene.cluster.admin.wait_for(configuration, is_whole).await;
    }
    wait_for_probe(health, "/readyz", 200).await;
    scene.make_tenants().await;
    scene.check().await;
    scene.check_without_answers().await;
}
