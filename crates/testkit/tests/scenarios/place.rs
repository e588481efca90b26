//! A cluster with a namespace, and the requests of a scenario.

use http::{Method, Request};
use kube::core::Status;
use serde_json::{Value, json};
use tenure_testkit::{Admin, Cluster, SOON, eventually};

pub(crate) struct Place {
    pub(crate) admin: Admin,
    pub(crate) namespace: String,
    cluster: Cluster,
}

impl Place {
    pub(crate) async fn set(namespace: &str) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let place = Self {
            admin: cluster.admin.clone(),
            namespace: namespace.to_owned(),
            cluster,
        };
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        place.admin.apply(object).await.unwrap();
        place
    }

    /// Checks whether the API server can call a listener on this machine. If not, prints that.
    pub(crate) fn can_be_called_back(&self) -> bool {
        let can = self.cluster.is_on_this_machine();
        if !can {
            eprintln!("skipped: the API server is on another machine and can't call a webhook on this one");
        }
        can
    }

    /// Returns a path below the namespace: `api/v1`, `configmaps/a`.
    pub(crate) fn path(&self, version: &str, rest: &str) -> String {
        format!("/{version}/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Status> {
        self.send(Method::GET, path, None, &Value::Null).await
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Result<Value, Status> {
        self.send(Method::POST, path, Some("application/json"), body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<Value, Status> {
        self.send(Method::PATCH, path, Some("application/merge-patch+json"), body)
            .await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<Value, Status> {
        self.send(Method::DELETE, path, Some("application/json"), options).await
    }

    /// Sends a server-side apply; `force` overrides conflicts.
    pub(crate) async fn apply(&self, path: &str, manager: &str, force: bool, body: &Value) -> Result<Value, Status> {
        let path = format!("{path}?fieldManager={manager}&force={force}");
        self.send(Method::PATCH, &path, Some("application/apply-patch+yaml"), body)
            .await
    }

    /// Returns a client of the same cluster for another user.
    pub(crate) fn asked_by(&self, user: &str) -> Admin {
        self.admin.impersonating(user).unwrap()
    }

    async fn send(&self, method: Method, path: &str, content: Option<&str>, body: &Value) -> Result<Value, Status> {
        send(&self.admin, method, path, content, body).await
    }

    /// Repeats a read until the object satisfies a condition; `None` stands for a missing object.
    pub(crate) async fn wait_until(&self, path: &str, holds: impl Fn(Option<&Value>) -> bool) {
        let looked = eventually(SOON, || async {
            let found = match self.get(path).await {
                Ok(found) => Some(found),
                Err(status) if status.code == 404 => None,
                Err(status) => return Err(status.message),
            };
            if holds(found.as_ref()) {
                Ok(())
            } else {
                Err(format!("{found:#?}"))
            }
        });
        if let Err(last) = looked.await {
            panic!("{path} did not come to that; last seen: {last}");
        }
    }
}

pub(crate) async fn send(
    asking: &Admin,
    method: Method,
    path: &str,
    content: Option<&str>,
    body: &Value,
) -> Result<Value, Status> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(content) = content {
        request = request.header("content-type", content);
    }
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    match asking.client().request::<Value>(request.body(body).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{path}: {other}"),
    }
}

/// Returns the owners of a field, by the managers' names in the order of the object.
pub(crate) fn owners<'a>(object: &'a Value, field: &[&str]) -> Vec<&'a str> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owns = |entry: &&Value| {
        let mut at = &entry["fieldsV1"];
        for name in field {
            at = &at[*name];
        }
        !at.is_null()
    };
    let name = |entry: &'a Value| entry["manager"].as_str().unwrap();
    entries.iter().filter(owns).map(name).collect()
}
