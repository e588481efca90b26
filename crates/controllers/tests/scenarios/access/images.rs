//! A registry's credential among the `imagePullSecrets` of the accounts that an entry names, so that Pods pull images with it too.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use super::bed::{Bed, PLATFORM, Setup, ledger};
use crate::deploy_keys::{ROLE, ROLE_BINDING, SECRET};
use crate::stage::condition;

const SERVICE_ACCOUNT: (&str, &str) = ("v1", "ServiceAccount");
const NAME: &str = "gitlab-flux-token";

fn account(namespace: &str, name: &str, images: &[&str]) -> Value {
    let images: Vec<Value> = images.iter().map(|name| json!({ "name": name })).collect();
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace },
        "imagePullSecrets": images })
}

impl Bed {
    async fn for_images(namespace: &str) -> Self {
        let namespaces = [namespace];
        let entries = format!("namespaces: [{namespace}], service_accounts: [runner, later], image_pull_secrets: true");
        let setup = Setup {
            namespaces: &namespaces,
            role: "read_registry",
            entries: &entries,
            provider: |_| json!({ "registry": "registry.example.org" }),
            ..Setup::default()
        };
        Self::set(setup).await
    }

    /// Applies the commands from the condition's message.
    async fn let_name(&self, namespace: &str) {
        for object in [
            json!({
                "apiVersion": ROLE.0, "kind": ROLE.1, "metadata": { "name": "tenure-pull-secrets", "namespace": namespace },
                "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["runner", "later"], "verbs": ["get", "patch"] }]
            }),
            json!({
                "apiVersion": ROLE_BINDING.0, "kind": ROLE_BINDING.1, "metadata": { "name": "tenure-pull-secrets", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenure-pull-secrets" },
                "subjects": [{ "kind": "ServiceAccount", "name": "tenure-secret-writer", "namespace": PLATFORM }]
            }),
        ] {
            self.admin().apply(object).await.unwrap();
        }
        // A server follows roles with a watch.
        let writer = self.stage.bearing(PLATFORM, "tenure-secret-writer").await;
        let read = eventually(SOON, || async {
            match writer.get(SERVICE_ACCOUNT, (namespace, "runner")).await {
                Err(error) if error.to_string().contains("forbidden") => Err(error.to_string()),
                _ => Ok(()),
            }
        });
        read.await.unwrap();
    }

    /// Waits until an account names these Secrets, and returns it.
    async fn names(&self, namespace: &str, name: &str, wanted: &[&str]) -> Value {
        let is_as_wanted = |account: Option<&Value>| account.is_some_and(|account| names(account) == wanted);
        let found = self
            .stage
            .wait_for(SERVICE_ACCOUNT, (namespace, name), is_as_wanted)
            .await;
        found.unwrap()
    }
}

fn names(account: &Value) -> Vec<&str> {
    let images = account["imagePullSecrets"].as_array().into_iter().flatten();
    images.map(|image| image["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_accounts_of_entry_get_pull_secret() {
    let bed = Bed::for_images("acc-p").await;
    bed.stage.namespace("acc-q").await;
    for namespace in ["acc-p", "acc-q"] {
        bed.admin().create(account(namespace, "runner", &[])).await.unwrap();
    }
    let others = account("acc-p", "bystander", &["of-somebody"]);
    bed.admin().create(others).await.unwrap();
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;

    // The Secret exists. The condition names the missing right to change accounts, with the remedy.
    let request = bed
        .request("names the missing right", |request| {
            condition(request, "Ready").is_some_and(|ready| ready["reason"] == "AccountsUnreadable")
        })
        .await;
    let message = condition(&request, "Ready").unwrap()["message"].as_str().unwrap();
    assert!(
        message.contains("kubectl create role tenure-pull-secrets -n acc-p --verb get,patch --resource serviceaccounts --resource-name"),
        "{message}"
    );
    bed.stage
        .wait_for(SECRET, ("acc-p", NAME), |secret| secret.is_some())
        .await;
    bed.let_name("acc-p").await;
    bed.look_again(&request).await;
    let runner = bed.names("acc-p", "runner", &[NAME]).await;
    assert_eq!(
        runner["metadata"]["annotations"][format!(
            "pull-secrets.access.tenure.dev/{}",
            request["metadata"]["name"].as_str().unwrap()
        )],
        NAME
    );
    // Pods that run as the account get the Secret from it.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "app", "namespace": "acc-p" },
        "spec": { "serviceAccountName": "runner", "containers": [{ "name": "app", "image": "registry.example.org/group-1/app:1" }] }
    });
    let pod = eventually(SOON, || bed.admin().create(pod.clone())).await.unwrap();
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{ "name": NAME }]));

    // A missing account is reported. After its creation, it gets the Secret besides its other Secrets.
    let request = bed
        .request("misses an account", |request| {
            condition(request, "Ready").is_some_and(|ready| ready["reason"] == "AccountMissing")
        })
        .await;
    bed.admin()
        .create(account("acc-p", "later", &["of-somebody"]))
        .await
        .unwrap();
    bed.look_again(&request).await;
    bed.names("acc-p", "later", &["of-somebody", NAME]).await;
    let request = bed.wait_for_delivery().await;
    assert_eq!(ledger(&request)["imagePullSecrets"], true);
    // After a manual removal, and after a re-creation of the account, the Secret is added again.
    let taken = json!({ "imagePullSecrets": null });
    bed.admin()
        .patch(SERVICE_ACCOUNT, ("acc-p", "runner"), taken)
        .await
        .unwrap();
    bed.admin().delete(SERVICE_ACCOUNT, ("acc-p", "later")).await.unwrap();
    bed.admin()
        .create(account("acc-p", "later", &["of-somebody"]))
        .await
        .unwrap();
    bed.look_again(&request).await;
    bed.names("acc-p", "runner", &[NAME]).await;
    bed.names("acc-p", "later", &["of-somebody", NAME]).await;
    // Accounts of this name in other namespaces, and other accounts here, are not changed.
    for (target, wanted) in [
        (("acc-q", "runner"), vec![]),
        (("acc-p", "bystander"), vec!["of-somebody"]),
    ] {
        assert_eq!(names(&bed.stage.get(SERVICE_ACCOUNT, target).await.unwrap()), wanted);
    }

    // A revoked Secret is removed, and Secrets of others stay.
    bed.revoke("acc-p", NAME).await;
    let runner = bed.names("acc-p", "runner", &[]).await;
    assert!(
        !runner.to_string().contains("pull-secrets.access.tenure.dev"),
        "{runner:#?}"
    );
    bed.names("acc-p", "later", &["of-somebody"]).await;
    bed.request("is revoked", |request| {
        request["status"]["state"] == "Revoked" && request["status"]["credentials"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_secrets_applied_by_another_stay_unchanged() {
    let bed = Bed::for_images("acc-r").await;
    bed.let_name("acc-r").await;
    for name in ["runner", "later"] {
        bed.admin()
            .apply(account("acc-r", name, &["of-somebody"]))
            .await
            .unwrap();
    }
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let request = bed
        .request("names who applies it", |request| {
            condition(request, "Ready").is_some_and(|ready| ready["reason"] == "AppliedByAnother")
        })
        .await;
    let message = condition(&request, "Ready").unwrap()["message"].as_str().unwrap();
    assert!(
        message.contains("ServiceAccount acc-r/runner are applied by"),
        "{message}"
    );
    // The condition is good again after the author of the accounts names the Secret.
    for name in ["runner", "later"] {
        bed.admin()
            .apply(account("acc-r", name, &["of-somebody", NAME]))
            .await
            .unwrap();
    }
    bed.look_again(&request).await;
    bed.wait_for_delivery().await;
    bed.revoke("acc-r", NAME).await;
    for name in ["runner", "later"] {
        bed.names("acc-r", name, &["of-somebody", NAME]).await;
    }
    bed.stage.shut_down().await;
}
