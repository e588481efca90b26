//! Attacks by a tenant: by an owner that may also write Flux's kinds and their statuses in the home namespace, and by the content of the tenant's
//! repository. Every denial has a control, a similar action within the tenant's rights that succeeds: a denial of something that never works proves
//! nothing. The other tenant and the platform's namespace have a canary, a Secret whose value must appear in no log, object, event, status, metric or
//! artifact (`silence`).
//!
//! `EVIL` and `ALPHA` in the attempts stand for the names of the attacker's and the other tenant, which are also the names of their home namespaces.

mod accounts;
mod alerts;
mod artifacts;
mod bombs;
mod bounds;
mod buckets;
mod charts;
mod contents;
mod credentials;
mod expressions;
mod fetches;
mod fields;
mod forgery;
mod fresh_namespaces;
mod lane_bounds;
mod lane_pods;
mod lanes;
mod lingering;
mod minting;
mod packages;
mod places;
mod receivers;
mod records;
mod registries;
mod tenant_bounds;
mod variables;
mod volumes;

use serde_json::{Value, json};
use tenure_testkit::{Admin, SOON, eventually};

use crate::stage::{
    ALERT, ARTIFACT_GENERATOR, BUCKET, EXTERNAL_ARTIFACT, GIT_REPOSITORY, HELM_CHART, HELM_REPOSITORY, KUSTOMIZATION,
    OCI_REPOSITORY, PROVIDER, RECEIVER, Stage, condition,
};
use crate::tenants::{SURFACE, tenant};

/// Two tenants, and the owner of one of them.
struct Scene {
    stage: Stage,
    evil: String,
    alpha: String,
    /// The owner of `EVIL`.
    mallory: Admin,
}

/// One attempt to escape, and the allowed control.
struct Attack {
    /// Names the attempt; the control is `<name>-control`.
    name: &'static str,
    /// Merged over the spec of the attempt.
    attempt: Value,
    /// The message for mallory, from the API server or in the Ready condition.
    expected: String,
    /// Merged over the spec of the control.
    control: Value,
}

fn attack(name: &'static str, attempt: Value, expected: &str, control: Value) -> Attack {
    Attack {
        name,
        attempt,
        expected: expected.to_owned(),
        control,
    }
}

impl Scene {
    async fn set(prefix: &str) -> Self {
        Self::set_allowing(prefix, &[]).await
    }

    async fn set_allowing(prefix: &str, allow: &[String]) -> Self {
        Self::set_on(Stage::set_allowing(prefix, allow).await, prefix).await
    }

    async fn set_on(stage: Stage, prefix: &str) -> Self {
        // A server with admission checks (`tenure-admission`) would also refuse these writes. The boundary must hold without them.
        stage.send_guard_away();
        let (evil, alpha) = (format!("{prefix}-evil"), format!("{prefix}-alpha"));
        tenant(&stage, &evil).await;
        tenant(&stage, &alpha).await;
        let stage = stage.planting(&[&alpha]).await;
        let owner = format!("{evil}-owner");
        for object in [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": { "name": "flux", "namespace": evil },
                "rules": [{
                    "apiGroups": ["kustomize.toolkit.fluxcd.io", "notification.toolkit.fluxcd.io", "source.extensions.fluxcd.io", "source.toolkit.fluxcd.io", "tenure.dev"],
                    "resources": ["*"], "verbs": ["*"]
                }]
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": "flux", "namespace": evil },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "flux" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner }]
            }),
        ] {
            stage.admin.apply(object).await.unwrap();
        }
        // At home too, where owners have fewer rights by default: the boundary must hold without that as well.
        for tenant in [&evil, &alpha] {
            let owner =
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{tenant}-owner") });
            let bound = lanes::binding("RoleBinding", Some(tenant), "owner", "admin", &owner);
            stage.admin.apply(bound).await.unwrap();
        }
        let mallory = stage.admin.impersonating(&owner).unwrap();
        Self {
            stage,
            evil,
            alpha,
            mallory,
        }
    }

    /// Ends the controllers, and searches for the canary everywhere. The attacks gave the tenant no authority outside its namespaces.
    async fn shut_down(self) {
        if let Err(paths) = tenure_testkit::check_reach(&self.stage.admin, &self.evil).await {
            panic!("{paths}");
        }
        self.stage.shut_down().await;
    }

    fn fill(&self, text: &str) -> String {
        text.replace("EVIL", &self.evil).replace("ALPHA", &self.alpha)
    }

    fn value(&self, value: &Value) -> Value {
        serde_json::from_str(&self.fill(&value.to_string())).unwrap()
    }

    /// Creates a repository of mallory's on the Git server.
    async fn repository(&self, name: &str, files: &[(String, String)]) -> tenure_git_server::Repository {
        let repository = self.stage.git.create(&self.fill(name)).await.unwrap();
        let files = files.iter().map(|(path, text)| (path.clone(), self.fill(text)));
        repository.commit(files, "first").await.unwrap();
        repository
    }

    /// Returns the Kustomization of an attack's own folder.
    fn own_kustomization(&self, attack: &Attack, name: &str, spec: &Value) -> Value {
        let mut laid = json!({ "path": format!("./own/{}", attack.name) });
        for (key, value) in spec.as_object().unwrap() {
            laid[key] = value.clone();
        }
        self.kustomization(name, &laid)
    }

    /// Creates the repository `EVIL-files`, and mallory's GitRepository `files` for it.
    async fn serve(&self, files: &[(String, String)]) -> tenure_git_server::Repository {
        let repository = self.repository("EVIL-files", files).await;
        let source = self.source("files", "EVIL-files", &json!({}));
        self.mallory.apply(source).await.unwrap();
        repository
    }

    /// Returns a GitRepository of mallory's; `spec` is merged over the defaults.
    fn source(&self, name: &str, repository: &str, spec: &Value) -> Value {
        let usual = json!({
            "url": self.stage.git.http_url(&self.fill(repository)), "ref": { "branch": "main" }, "interval": "1s"
        });
        self.object(GIT_REPOSITORY, name, usual, spec)
    }

    /// Returns a Kustomization of mallory's of the source `files`; `spec` is merged over the defaults.
    fn kustomization(&self, name: &str, spec: &Value) -> Value {
        let usual = json!({
            "interval": "10m", "retryInterval": "1s", "timeout": "30s", "prune": true, "path": "./",
            "serviceAccountName": "EVIL-gitops", "targetNamespace": "EVIL",
            "sourceRef": { "kind": "GitRepository", "name": "files" }
        });
        self.object(KUSTOMIZATION, name, usual, spec)
    }

    fn object(&self, kind: (&str, &str), name: &str, usual: Value, spec: &Value) -> Value {
        let mut laid = usual;
        for (key, value) in spec.as_object().unwrap() {
            laid[key] = value.clone();
        }
        laid.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.value(&json!({
            "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": name, "namespace": "EVIL" }, "spec": laid
        }))
    }

    /// Runs all attacks, and waits until every attempt is refused as expected and every control is ready.
    async fn check(&self, attacks: &[Attack], make: impl Fn(&Attack, &str, &Value) -> Value) {
        let mut pending: Vec<(Value, Option<&str>)> = Vec::new();
        for attack in attacks {
            let attempt = make(attack, attack.name, &attack.attempt);
            match self.mallory.apply(attempt.clone()).await {
                Ok(_) => pending.push((attempt, Some(attack.expected.as_str()))),
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.contains(&attack.expected), "{}: {message}", attack.name);
                }
            }
            let control = make(attack, &format!("{}-control", attack.name), &attack.control);
            self.mallory.apply(control.clone()).await.unwrap();
            pending.push((control, None));
        }
        let looked = eventually(SOON, || async {
            let mut unmet = Vec::new();
            for (object, expected) in &pending {
                let (kind, name) = (
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap(),
                );
                let live = self.stage.get(kind_of(kind), (&self.evil, name)).await;
                let ready = live.as_ref().and_then(|live| condition(live, "Ready")).cloned();
                let met = ready.as_ref().is_some_and(|ready| match expected {
                    Some(expected) => {
                        ready["status"] == "False" && ready["message"].as_str().unwrap().contains(&self.fill(expected))
                    }
                    None => ready["status"] == "True",
                });
                if !met {
                    unmet.push(format!("{name}: wanted {expected:?}, is {ready:?}"));
                }
            }
            if unmet.is_empty() {
                Ok(())
            } else {
                Err(unmet.join("\n"))
            }
        });
        if let Err(unmet) = looked.await {
            panic!("{unmet}");
        }
    }

    /// Asserts as an administrator that none of these objects exists.
    async fn absent(&self, objects: &[((&str, &str), &str, &str)]) {
        for (kind, namespace, name) in objects {
            let found = self.stage.get(*kind, (&self.fill(namespace), &self.fill(name))).await;
            assert!(found.is_none(), "{found:#?}");
        }
    }
}

fn kind_of(kind: &str) -> (&'static str, &'static str) {
    let flux = [GIT_REPOSITORY, OCI_REPOSITORY, BUCKET, KUSTOMIZATION, RECEIVER];
    let more = [ALERT, PROVIDER, ARTIFACT_GENERATOR, EXTERNAL_ARTIFACT, SURFACE];
    let charts = [HELM_REPOSITORY, HELM_CHART];
    flux.into_iter()
        .chain(more)
        .chain(charts)
        .find(|known| known.1 == kind)
        .unwrap()
}

/// Returns a folder `own/<name>` with a ConfigMap of that name, for every attack.
fn own_folders(attacks: &[Attack]) -> Vec<(String, String)> {
    attacks
        .iter()
        .map(|attack| {
            (
                format!("own/{}/a.yaml", attack.name),
                crate::stage::config_map(attack.name, "1"),
            )
        })
        .collect()
}
