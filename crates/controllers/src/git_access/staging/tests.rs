//! Staging Secrets on an API server, with the rights that an administrator gives the authoriser's account.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use tenure_cluster::{ClientPool, Connection, Token};
use tenure_testkit::{Cluster, SOON, eventually};

use super::*;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const PLACE: &str = "default";
const FIRST: &str = "tenure-access-work-staging";
const SECOND: &str = "tenure-access-work-staging-1";
const ACCOUNT: &str = "authoriser";
const KEY: &str = "uid.apps";

struct Scene {
    cluster: Cluster,
    client: Client,
}

impl Scene {
    /// An account with a Role that names these Secrets.
    async fn set(names: &[&str]) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let metadata = json!({ "name": ACCOUNT, "namespace": PLACE });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
        let binding = json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": PLACE }]
        });
        cluster.admin.apply(account).await.unwrap();
        cluster.admin.apply(binding).await.unwrap();
        let path = format!("/api/v1/namespaces/{PLACE}/serviceaccounts/{ACCOUNT}/token");
        let request = http::Request::post(path).header("content-type", "application/json");
        let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let request = request.body(asked.to_string().into_bytes()).unwrap();
        let answer: Value = cluster.admin.client().request(request).await.unwrap();
        let token = Token::new(answer["status"]["token"].as_str().unwrap(), None);
        let connection = Connection::in_process(cluster.service().unwrap(), token);
        let scene = Self {
            cluster,
            client: ClientPool::new(connection).controller(),
        };
        scene.allow(names).await;
        scene
    }

    /// Lets the account get and patch these Secrets, and no other.
    async fn allow(&self, names: &[&str]) {
        let role = json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": { "name": ACCOUNT, "namespace": PLACE },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "patch"] }]
        });
        self.cluster.admin.apply(role).await.unwrap();
    }

    async fn put(&self, name: &str, data: Value) {
        let secret = json!({ "apiVersion": "v1", "kind": SECRET, "metadata": { "name": name, "namespace": PLACE }, "data": data });
        self.cluster.admin.apply(secret).await.unwrap();
    }

    async fn stage(&self, value: &str) -> Result<(), String> {
        let staged = StagedValue {
            facts: StagedFacts {
                nonce: "nonce".to_owned(),
                is_minted: true,
                id: Some(1),
                fingerprint: "fingerprint".to_owned(),
                expires_at: None,
            },
            username: None,
            value: SecretBytes::new(value),
            public: None,
        };
        stage_value(&self.client, PLACE, "work", KEY, &staged).await
    }

    async fn read_staging(&self) -> StagingState {
        look_at_staging(&self.client, PLACE, "work", KEY).await
    }

    /// Reads until the condition holds, because a server applies changed Roles with a delay.
    async fn see(&self, holds: impl Fn(&StagingState) -> bool) {
        let look = || async {
            let seen = self.read_staging().await;
            if holds(&seen) { Ok(()) } else { Err(seen) }
        };
        eventually(SOON, look).await.unwrap();
    }
}

fn filling() -> Value {
    json!({ "of-others": STANDARD.encode(vec![b'x'; MOST_BYTES]) })
}

#[tokio::test]
async fn unreadable_staged_value_is_unknown_not_absent() {
    if Cluster::is_shared() {
        return;
    }
    let scene = Scene::set(&[FIRST]).await;
    scene.put(FIRST, filling()).await;
    scene.put(SECOND, json!({})).await;
    scene.see(|seen| *seen == StagingState::Absent).await;
    let refused = scene.stage("value").await.unwrap_err();
    assert!(
        refused.contains(&format!("make an empty Secret {PLACE}/{SECOND}")),
        "{refused}"
    );

    scene.allow(&[FIRST, SECOND]).await;
    eventually(SOON, || scene.stage("value")).await.unwrap();
    scene.see(|seen| matches!(seen, StagingState::Present(_))).await;
    // The Role loses the second Secret for a while.
    scene.allow(&[FIRST]).await;
    scene
        .see(|seen| matches!(seen, StagingState::Unknown(why) if why.contains(SECOND)))
        .await;
    scene.allow(&[FIRST, SECOND]).await;
    scene.see(|seen| matches!(seen, StagingState::Present(_))).await;
    // Free space in the first Secret changes nothing for a value in the second.
    let cleared = json!({ "data": { "of-others": null } });
    scene
        .cluster
        .admin
        .patch(("v1", SECRET), (PLACE, FIRST), cleared)
        .await
        .unwrap();
    assert!(matches!(scene.read_staging().await, StagingState::Present(_)));
}

#[tokio::test]
async fn deleted_first_staging_secret_hides_no_other_secret() {
    if Cluster::is_shared() {
        return;
    }
    let scene = Scene::set(&[FIRST, SECOND]).await;
    scene.put(FIRST, filling()).await;
    scene.put(SECOND, json!({})).await;
    eventually(SOON, || scene.stage("value")).await.unwrap();
    scene
        .cluster
        .admin
        .delete(("v1", SECRET), (PLACE, FIRST))
        .await
        .unwrap();
    scene.see(|seen| matches!(seen, StagingState::Present(_))).await;
    // An administrator re-creates it without the record. The next value writes the record again.
    scene.put(FIRST, json!({})).await;
    scene.see(|seen| matches!(seen, StagingState::Present(_))).await;
    scene
        .cluster
        .admin
        .delete(("v1", SECRET), (PLACE, FIRST))
        .await
        .unwrap();
    let create = json!({
        "apiVersion": RBAC, "kind": "Role", "metadata": { "name": ACCOUNT, "namespace": PLACE },
        "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": [FIRST, SECOND], "verbs": ["get", "patch"] },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
        ]
    });
    scene.cluster.admin.apply(create).await.unwrap();
    eventually(SOON, || scene.stage("other")).await.unwrap();
    scene.see(|seen| matches!(seen, StagingState::Present(_))).await;
    let first = scene
        .cluster
        .admin
        .get(("v1", SECRET), (PLACE, FIRST))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first["metadata"]["annotations"][STAGING_SECRETS_ANNOTATION], "2");
    clear_value(&scene.client, PLACE, "work", KEY).await.unwrap();
    assert_eq!(scene.read_staging().await, StagingState::Absent);
}
