//! The keys that are made for Surfaces: from an administrator's permission to an applied commit, on a server that admits only keys, and after a
//! manual change of a key.

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, SshOptions};
use tenure_testkit::Admin;

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, Stage, config_map};
use crate::tenants::{SURFACE, surface_ready, tenant};

pub(crate) const SECRET: (&str, &str) = ("v1", "Secret");
pub(crate) const ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "Role");
pub(crate) const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
const UNAVAILABLE: &str = "DeployKeyUnavailable";

/// A Git server over ssh that admits no key yet.
pub(crate) struct Host {
    pub(crate) git: GitServer,
    _folder: tempfile::TempDir,
}

impl Host {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            ssh: Some(SshOptions::loopback(Vec::new())),
            ..Options::default()
        };
        let git = GitServer::start(folder.path(), options).await.unwrap();
        let repository = git.create("app").await.unwrap();
        let manifest = config_map("a", "1");
        repository
            .commit([("a.yaml", manifest.as_str())], "first")
            .await
            .unwrap();
        Self { git, _folder: folder }
    }

    /// Returns the address that an administrator allows to sources.
    pub(crate) fn endpoint(&self) -> String {
        format!("ssh://{}", self.git.ssh_address().unwrap())
    }

    /// Returns a Surface `shop` with a source `app` of this server and a key that is made for it.
    pub(crate) fn surface(&self, namespace: &str, account: Option<&str>) -> Value {
        let mut spec = json!({ "sources": [{
            "name": "app", "url": self.git.ssh_url("app").unwrap(), "interval": "1s", "retryInterval": "1s",
            "targetNamespace": namespace, "deployKey": { "knownHosts": self.git.known_hosts().unwrap() },
        }] });
        if let Some(account) = account {
            spec["serviceAccountName"] = json!(account);
        }
        json!({ "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "shop", "namespace": namespace }, "spec": spec })
    }
}

/// Allows the account that writes credentials to work in a namespace, as an administrator does.
pub(crate) async fn let_write(admin: &Admin, namespace: &str) {
    let name = "tenure-secret-writer";
    admin
        .apply(json!({
            "apiVersion": ROLE_BINDING.0, "kind": ROLE_BINDING.1, "metadata": { "name": name, "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "tenure-system" }]
        }))
        .await
        .unwrap();
}

/// Waits until the status shows a key other than these, and returns it.
pub(crate) async fn key(stage: &Stage, namespace: &str, but: &[&str]) -> (String, String) {
    let find = |surface: &Value| {
        let key = surface.pointer("/status/deployKeys/0")?;
        Some((
            key["publicKey"].as_str()?.to_owned(),
            key["fingerprint"].as_str()?.to_owned(),
        ))
    };
    let is_replaced = |surface: Option<&Value>| {
        let key = surface.and_then(find);
        key.is_some_and(|(_, fingerprint)| !but.contains(&fingerprint.as_str()))
    };
    let surface = stage.wait_for(SURFACE, (namespace, "shop"), is_replaced).await;
    find(&surface.unwrap()).unwrap()
}

/// Waits until Ready is False and its message has these words.
pub(crate) async fn says(stage: &Stage, namespace: &str, words: &str) -> Value {
    let is_reported = |surface: Option<&Value>| {
        let ready = surface.and_then(|surface| crate::stage::condition(surface, "Ready"));
        ready.is_some_and(|ready| ready["status"] == "False" && ready["message"].as_str().unwrap().contains(words))
    };
    let surface = stage.wait_for(SURFACE, (namespace, "shop"), is_reported).await.unwrap();
    crate::stage::condition(&surface, "Ready").unwrap().clone()
}

async fn secret(stage: &Stage, namespace: &str) -> Option<Value> {
    stage.get(SECRET, (namespace, "shop-app-deploy-key")).await
}

async fn has_event(stage: &Stage, namespace: &str, reason: &str) -> bool {
    let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
    events.iter().any(|event| event["reason"] == reason)
}

/// The key is made once the right exists, shown, added to the server, and used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploy_key_of_tenant_is_made_and_deploys() {
    let host = Host::start().await;
    let mut stage = Stage::set_allowing("keys-a", &[host.endpoint()]).await;
    let admin = stage.admin.clone();
    tenant(&stage, "mint").await;
    admin.apply(host.surface("mint", None)).await.unwrap();

    // The account has no right to write here. The condition names the missing right and the command to grant it.
    let message = stage.ready(SURFACE, ("mint", "shop"), "False", UNAVAILABLE).await;
    assert!(
        message.contains("kubectl create rolebinding tenure-secret-writer -n mint --clusterrole tenure-secret-writer"),
        "{message}"
    );
    assert!(secret(&stage, "mint").await.is_none());
    let_write(&admin, "mint").await;

    // The key is made, and shown to the user who has to add it.
    let (public, fingerprint) = key(&stage, "mint", &[]).await;
    let ready = says(&stage, "mint", "add this deploy key, for reading only, to ssh://").await;
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains(&public) && message.contains(&fingerprint), "{message}");
    assert!(stage.get(CONFIG_MAP, ("mint", "a")).await.is_none());
    assert!(has_event(&stage, "mint", "DeployKeyMade").await);
    host.git.authorize(&public).unwrap();
    let surface = surface_ready(&stage, ("mint", "shop")).await;
    assert_eq!(surface["status"]["deployKeys"][0]["secretName"], "shop-app-deploy-key");
    assert!(
        !surface["status"].to_string().contains("add this deploy key"),
        "{surface:#}"
    );
    assert_eq!(
        stage.get(CONFIG_MAP, ("mint", "a")).await.unwrap()["data"]["value"],
        "1"
    );

    // One account may read one Secret, and both are deleted with the Surface.
    let role = stage.get(ROLE, ("mint", "shop-app-deploy-key")).await.unwrap();
    assert_eq!(
        role["rules"],
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["shop-app-deploy-key"], "verbs": ["get"] }])
    );
    let binding = stage.get(ROLE_BINDING, ("mint", "shop-app-deploy-key")).await.unwrap();
    assert_eq!(
        binding["subjects"],
        json!([{ "kind": "ServiceAccount", "name": "mint-gitops", "namespace": "mint" }])
    );

    // New controllers find the same key.
    let before = secret(&stage, "mint").await.unwrap();
    stage.restart().await;
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "again" } } });
    admin.patch(SURFACE, ("mint", "shop"), asked).await.unwrap();
    stage
        .wait_for(SURFACE, ("mint", "shop"), |surface| {
            surface.is_some_and(|surface| surface["status"]["lastHandledReconcileAt"] == "again")
        })
        .await;
    surface_ready(&stage, ("mint", "shop")).await;
    assert_eq!(secret(&stage, "mint").await.unwrap()["data"], before["data"]);

    // Changed host keys are written into the same Secret, and only named servers are trusted.
    let mut other = host.surface("mint", None);
    other["spec"]["sources"][0]["deployKey"]["knownHosts"] = json!("elsewhere.example ssh-ed25519 AAAA\n");
    admin.apply(other).await.unwrap();
    says(&stage, "mint", "add this deploy key").await;
    assert_eq!(key(&stage, "mint", &[]).await.1, fingerprint);
    admin.apply(host.surface("mint", None)).await.unwrap();
    surface_ready(&stage, ("mint", "shop")).await;

    admin.delete(SURFACE, ("mint", "shop")).await.unwrap();
    for kind in [SECRET, ROLE, ROLE_BINDING] {
        let target = ("mint", "shop-app-deploy-key");
        stage.wait_for(kind, target, |object| object.is_none()).await;
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_key_is_replaced_and_must_be_added_again() {
    let host = Host::start().await;
    let stage = Stage::set_allowing("keys-b", &[host.endpoint()]).await;
    let admin = &stage.admin;
    tenant(&stage, "sage").await;
    let_write(admin, "sage").await;
    admin.apply(host.surface("sage", None)).await.unwrap();
    let (public, first) = key(&stage, "sage", &[]).await;
    host.git.authorize(&public).unwrap();
    surface_ready(&stage, ("sage", "shop")).await;

    host.git.revoke_all();
    admin.delete(SECRET, ("sage", "shop-app-deploy-key")).await.unwrap();
    let (public, second) = key(&stage, "sage", &[&first]).await;
    says(&stage, "sage", &second).await;
    assert!(has_event(&stage, "sage", "DeployKeyGone").await);
    host.git.authorize(&public).unwrap();
    surface_ready(&stage, ("sage", "shop")).await;

    // A replaced key is reported, and nothing is fetched with it.
    let bad = stage.get(SECRET, ("sage", "shop-app-deploy-key")).await.unwrap();
    let other = json!({ "data": { "identity.pub": "c3NoLWVkMjU1MTkgQUFBQUMzTnphQzFsWkRJMU5URTVBQUFBSU5vbmU=" } });
    admin
        .patch(SECRET, ("sage", "shop-app-deploy-key"), other)
        .await
        .unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    admin.patch(SURFACE, ("sage", "shop"), asked).await.unwrap();
    let ready = says(&stage, "sage", "no longer holds the key that was made").await;
    assert_eq!(ready["reason"], UNAVAILABLE);
    stage
        .wait_for(GIT_REPOSITORY, ("sage", "shop-app"), |repository| {
            repository.is_some_and(|repository| repository["spec"]["suspend"] == true)
        })
        .await;
    // After the original value is restored, the original key is used again.
    let good = json!({ "data": { "identity.pub": bad["data"]["identity.pub"] } });
    admin
        .patch(SECRET, ("sage", "shop-app-deploy-key"), good)
        .await
        .unwrap();
    surface_ready(&stage, ("sage", "shop")).await;
    assert_eq!(key(&stage, "sage", &[]).await.1, second);

    // Removed or changed labels do not stop the maintenance of the key and its readers: the labels are restored.
    for kind in [SECRET, ROLE, ROLE_BINDING] {
        let labels = json!({ "tenure.dev/credential": null, "tenure.dev/surface": "other" });
        let stripped = json!({ "metadata": { "labels": labels } });
        admin
            .patch(kind, ("sage", "shop-app-deploy-key"), stripped)
            .await
            .unwrap();
    }
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "later" } } });
    admin.patch(SURFACE, ("sage", "shop"), asked).await.unwrap();
    for kind in [SECRET, ROLE, ROLE_BINDING] {
        stage
            .wait_for(kind, ("sage", "shop-app-deploy-key"), |object| {
                let labels = object.map(|object| &object["metadata"]["labels"]);
                labels.is_some_and(|labels| {
                    labels["tenure.dev/credential"] == "deploy-key" && labels["tenure.dev/surface"] == "shop"
                })
            })
            .await;
    }
    surface_ready(&stage, ("sage", "shop")).await;
    assert_eq!(key(&stage, "sage", &[]).await.1, second);

    // After a source loses its key setting, its key is removed.
    let mut without = host.surface("sage", None);
    let source = without["spec"]["sources"][0].as_object_mut().unwrap();
    source.remove("deployKey");
    source.insert("url".to_owned(), json!("https://git.example/app.git"));
    admin.apply(without).await.unwrap();
    for kind in [SECRET, ROLE, ROLE_BINDING] {
        let target = ("sage", "shop-app-deploy-key");
        stage.wait_for(kind, target, |object| object.is_none()).await;
    }
    stage
        .wait_for(SURFACE, ("sage", "shop"), |surface| {
            surface.is_some_and(|surface| surface["status"].get("deployKeys").is_none())
        })
        .await;
    stage.shut_down().await;
}

/// The account that reads the key has no other right to Secrets: the Role alone is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_platforms_key_is_read_by_name_alone() {
    let host = Host::start().await;
    let stage = Stage::set_allowing("keys-c", &[host.endpoint()]).await;
    let admin = &stage.admin;
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "tenure-system" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "keys", "namespace": "tenure-system" } }),
        json!({
            "apiVersion": ROLE.0, "kind": ROLE.1, "metadata": { "name": "keys", "namespace": "keys-c" },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }]
        }),
        json!({
            "apiVersion": ROLE_BINDING.0, "kind": ROLE_BINDING.1, "metadata": { "name": "keys", "namespace": "keys-c" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keys" },
            "subjects": [{ "kind": "ServiceAccount", "name": "keys", "namespace": "tenure-system" }]
        }),
    ] {
        admin.apply(object).await.unwrap();
    }
    let_write(admin, "tenure-system").await;
    let mut surface = host.surface("tenure-system", Some("keys"));
    surface["spec"]["sources"][0]["targetNamespace"] = json!("keys-c");
    admin.apply(surface).await.unwrap();
    let (public, _) = key(&stage, "tenure-system", &[]).await;
    host.git.authorize(&public).unwrap();
    surface_ready(&stage, ("tenure-system", "shop")).await;
    let reader = stage.bearing("tenure-system", "default").await;
    let read = reader.get(SECRET, ("tenure-system", "shop-app-deploy-key")).await;
    assert!(read.unwrap().is_some());
    for refused in [
        reader.get(SECRET, ("tenure-system", "another")).await.map(|_| ()),
        reader.list(SECRET, "tenure-system").await.map(|_| ()),
        reader
            .delete(SECRET, ("tenure-system", "shop-app-deploy-key"))
            .await
            .map(|_| ()),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("forbidden"), "{message}");
    }
    admin.delete(SURFACE, ("tenure-system", "shop")).await.unwrap();
    stage
        .wait_for(SECRET, ("tenure-system", "shop-app-deploy-key"), |object| {
            object.is_none()
        })
        .await;
    admin
        .delete(ROLE_BINDING, ("tenure-system", "tenure-secret-writer"))
        .await
        .unwrap();
    stage.shut_down().await;
}
