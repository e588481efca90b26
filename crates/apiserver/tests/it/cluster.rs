//! A server for tests of controllers: objects are written and read without a network, and tests wait for effects.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_apiserver::{Config, DeleteOptions, Operation, Server};
use tenure_auth::identity::{ObjectLookup as _, UserInfo};
use tokio::time::Instant;

/// A longer time than any step here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A server of its own, without a network.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    _directory: Option<tempfile::TempDir>,
}

impl Cluster {
    pub(crate) async fn open(workload_status: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Self::open_in(&directory, workload_status).await;
        cluster._directory = Some(directory);
        cluster
    }

    /// Opens a server on this directory, as soon as the previous server has released it.
    pub(crate) async fn open_in(directory: &tempfile::TempDir, workload_status: bool) -> Self {
        let mut config = Config::new(directory.path());
        config.workload_status = workload_status;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Server::open(config.clone()).await {
                Ok(server) => {
                    return Self {
                        server,
                        _directory: None,
                    };
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Opens a server with a namespace, and a range for the addresses of Services.
    pub(crate) async fn with_addresses(range: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path());
        config.services = range.parse().unwrap();
        let cluster = Self {
            server: Server::open(config).await.unwrap(),
            _directory: Some(directory),
        };
        cluster
            .create("", "namespaces", None, json!({ "metadata": { "name": "shop" } }))
            .await;
        cluster
    }

    pub(crate) async fn with_namespace(workload_status: bool) -> Self {
        let cluster = Self::open(workload_status).await;
        cluster
            .create("", "namespaces", None, json!({ "metadata": { "name": "shop" } }))
            .await;
        cluster
    }

    pub(crate) fn operation(&self, group: &str, plural: &str, namespace: Option<&str>) -> Operation {
        let catalog = self.server.registry().catalog();
        let resource = catalog.find_any_version(group, plural).unwrap().clone();
        Operation::new(resource, namespace.map(str::to_owned), UserInfo::loopback(), "test")
    }

    /// Returns the error of a creation that must be refused.
    pub(crate) async fn refuse(&self, group: &str, plural: &str, namespace: Option<&str>, mut object: Value) -> String {
        let operation = self.operation(group, plural, namespace);
        object["apiVersion"] = json!(operation.resource.api_version());
        object["kind"] = json!(operation.resource.kind);
        match self.server.registry().create(&operation, object).await {
            Ok(_) => panic!("it was created"),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) async fn create(&self, group: &str, plural: &str, namespace: Option<&str>, mut object: Value) -> Value {
        let operation = self.operation(group, plural, namespace);
        object["apiVersion"] = json!(operation.resource.api_version());
        object["kind"] = json!(operation.resource.kind);
        let registry = self.server.registry();
        let outcome = registry.create(&operation, object).await.unwrap();
        registry.present_answer(&operation, outcome.answer).await.unwrap()
    }

    pub(crate) async fn update(&self, group: &str, plural: &str, namespace: Option<&str>, object: Value) {
        let operation = self.operation(group, plural, namespace);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.server.registry().update(&operation, &name, object).await.unwrap();
    }

    pub(crate) async fn delete(
        &self,
        group: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
        propagation: &str,
    ) {
        let options = DeleteOptions {
            propagation_policy: Some(propagation.to_owned()),
            ..DeleteOptions::default()
        };
        let operation = self.operation(group, plural, namespace);
        self.server.registry().delete(&operation, name, &options).await.unwrap();
    }

    pub(crate) fn get(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.server.registry().view().get(group, plural, namespace, name)
    }

    pub(crate) fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        self.server.registry().view().list(group, plural, namespace)
    }

    pub(crate) fn config_map(&self, name: &str) -> Option<Arc<Value>> {
        self.get("", "configmaps", Some("shop"), name)
    }

    /// Waits until `found` returns a value.
    pub(crate) async fn wait_for<T>(&self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn until_gone(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) {
        self.wait_for(&format!("{plural} {name} is gone"), |cluster| {
            cluster.get(group, plural, namespace, name).is_none().then_some(())
        })
        .await;
    }

    /// Waits until the controllers have handled all earlier writes: until they have acted twice on later writes.
    pub(crate) async fn wait_until_settled(&self) {
        for round in 0..2 {
            let name = format!("marker-{round}");
            self.create(
                "",
                "configmaps",
                Some("shop"),
                make_owned(&name, &[("ConfigMap", "nobody", "no-uid", false)]),
            )
            .await;
            self.until_gone("", "configmaps", Some("shop"), &name).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// Returns a ConfigMap with owners: kind, name, UID, whether the reference blocks.
pub(crate) fn make_owned(name: &str, owners: &[(&str, &str, &str, bool)]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|(kind, name, uid, blocks)| {
            json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": blocks })
        })
        .collect();
    json!({ "metadata": { "name": name, "ownerReferences": references } })
}

pub(crate) fn make_named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

/// Returns a CustomResourceDefinition of `acme.io/v1` with a minimal schema.
pub(crate) fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": { "name": format!("{plural}.acme.io") },
        "spec": {
            "group": "acme.io",
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}
