//! An administrator's requests in JSON, without Rust types: a test writes the objects themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

use crate::{SOON, eventually};

/// The reason why an administrator's request failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The API server refused the request.
    #[error("{0}")]
    Refused(#[from] kube::Error),
    /// The object has no `apiVersion`, `kind` or name.
    #[error("the object has no {0}")]
    Incomplete(&'static str),
    /// A namespace of this name stays in deletion.
    #[error("the namespace {0} is still being deleted")]
    StillGoing(String),
    /// The answer is unreadable.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl AdminError {
    /// Checks whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 404)
    }

    /// Checks whether the API server does not serve the kind.
    pub(crate) fn is_unserved(&self) -> bool {
        match self {
            Self::Refused(kube::Error::Discovery(_)) => true,
            _ => self.is_not_found(),
        }
    }
}

/// The kinds of objects that a test leaves in a cluster and that would affect another test: namespaces, and rights in
/// the whole cluster.
pub(crate) const MARKED: [(&str, &str); 3] = [
    ("v1", "Namespace"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
];

/// The resource of a kind, and whether its objects are in namespaces.
type Served = (ApiResource, Scope);

/// A client with an administrator's rights, which sends and returns objects as JSON.
#[derive(Clone)]
pub struct Admin {
    client: kube::Client,
    /// The resources of the kinds that the server serves, by `apiVersion` and kind. A lookup before each request would
    /// double the requests of a test.
    served: Arc<Mutex<BTreeMap<(String, String), Served>>>,
    /// The label on every applied object of [`MARKED`], with the value `true`.
    mark: Option<&'static str>,
}

impl Admin {
    /// Returns an administrator that sends its requests with this client.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            served: Arc::default(),
            mark: None,
        }
    }

    /// Returns an administrator as [`Admin::new`] does, who labels every applied object of [`MARKED`]. An apply waits
    /// for a namespace of the same name that is still being deleted.
    pub(crate) fn marking(client: kube::Client, label: &'static str) -> Self {
        Self {
            mark: Some(label),
            ..Self::new(client)
        }
    }

    /// Returns the client itself.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns a client that impersonates a user without groups: the same requests, with that user's rights.
    ///
    /// # Errors
    /// [`AdminError::Incomplete`] if the name is not a valid header value.
    pub fn impersonating(&self, user: &str) -> Result<Self, AdminError> {
        let user = http::HeaderValue::from_str(user).map_err(|_| AdminError::Incomplete("user name"))?;
        let client = self.client();
        let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            let client = client.clone();
            request.headers_mut().insert("impersonate-user", user.clone());
            async move { client.send(request).await }
        });
        Ok(Self::new(kube::Client::new(service, "default")))
    }

    /// Returns the client for the objects of a kind. An empty namespace means the cluster, or all namespaces.
    pub(crate) async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<Api<DynamicObject>, AdminError> {
        let (resource, scope) = self.find_resource(api_version, kind).await?;
        Ok(match scope {
            Scope::Namespaced if !namespace.is_empty() => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            _ => Api::all_with(self.client.clone(), &resource),
        })
    }

    /// Returns the resource and scope of a kind, from the cache or from discovery.
    async fn find_resource(&self, api_version: &str, kind: &str) -> Result<Served, AdminError> {
        let known = || self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(served) = known().get(&key) {
            return Ok(served.clone());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (resource, capabilities) = pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, kind)).await?;
        let served = (resource, capabilities.scope);
        known().insert(key, served.clone());
        Ok(served)
    }

    /// Applies an object as field manager `admin`.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn apply(&self, object: Value) -> Result<Value, AdminError> {
        self.apply_as("admin", object).await
    }

    /// Applies an object as a field manager, by force.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn apply_as(&self, manager: &str, mut object: Value) -> Result<Value, AdminError> {
        let kind = object.get("kind").and_then(Value::as_str);
        let is_marked = MARKED.iter().any(|(_, marked)| kind == Some(marked));
        if let Some(label) = self.mark.filter(|_| is_marked) {
            if kind == Some("Namespace") {
                self.wait_until_deleted(get_text(&object, "/metadata/name")?).await?;
            }
            let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
            let labels = metadata.map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})));
            if let Some(Value::Object(labels)) = labels {
                labels.insert(label.to_owned(), json!("true"));
            }
        }
        let (api_version, kind) = (get_text(&object, "/apiVersion")?, get_text(&object, "/kind")?);
        let namespace = get_text(&object, "/metadata/namespace").unwrap_or_default();
        let api = self.api(api_version, kind, namespace).await?;
        let parameters = PatchParams::apply(manager).force();
        let applied = api
            .patch(
                get_text(&object, "/metadata/name")?,
                &parameters,
                &Patch::Apply(&object),
            )
            .await?;
        Ok(serde_json::to_value(applied)?)
    }

    /// Waits until a namespace is no longer being deleted.
    async fn wait_until_deleted(&self, namespace: &str) -> Result<(), AdminError> {
        eventually(SOON, || async {
            let found = self
                .get(("v1", "Namespace"), ("", namespace))
                .await?
                .unwrap_or_default();
            match found.pointer("/metadata/deletionTimestamp") {
                None => Ok(()),
                Some(_) => Err(AdminError::StillGoing(namespace.to_owned())),
            }
        })
        .await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn create(&self, object: Value) -> Result<Value, AdminError> {
        let (api_version, kind) = (get_text(&object, "/apiVersion")?, get_text(&object, "/kind")?);
        let namespace = get_text(&object, "/metadata/namespace").unwrap_or_default();
        let api = self.api(api_version, kind, namespace).await?;
        let object: DynamicObject = serde_json::from_value(object)?;
        Ok(serde_json::to_value(
            api.create(&PostParams::default(), &object).await?,
        )?)
    }

    /// Patches an object with a JSON merge patch, as field manager `kubectl-edit`.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn patch(
        &self,
        (api_version, kind): (&str, &str),
        (namespace, name): (&str, &str),
        patch: Value,
    ) -> Result<Value, AdminError> {
        let api = self.api(api_version, kind, namespace).await?;
        let parameters = PatchParams {
            field_manager: Some("kubectl-edit".to_owned()),
            ..PatchParams::default()
        };
        Ok(serde_json::to_value(
            api.patch(name, &parameters, &Patch::Merge(&patch)).await?,
        )?)
    }

    /// Patches an object's status with a JSON merge patch.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn patch_status(
        &self,
        (api_version, kind): (&str, &str),
        (namespace, name): (&str, &str),
        patch: Value,
    ) -> Result<Value, AdminError> {
        let api = self.api(api_version, kind, namespace).await?;
        let patched = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Reads an object; `None` if it is missing.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn get(
        &self,
        (api_version, kind): (&str, &str),
        (namespace, name): (&str, &str),
    ) -> Result<Option<Value>, AdminError> {
        let api = self.api(api_version, kind, namespace).await?;
        Ok(api.get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    /// Reads all objects of a kind, in one namespace or, with an empty one, in all.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn list(&self, (api_version, kind): (&str, &str), namespace: &str) -> Result<Vec<Value>, AdminError> {
        let api = self.api(api_version, kind, namespace).await?;
        let listed = api.list(&ListParams::default()).await?;
        listed
            .items
            .into_iter()
            .map(|item| Ok(serde_json::to_value(item)?))
            .collect()
    }

    /// Watches a cluster-scoped collection from a version on. Passes each state of an object to `is_enough`, until that
    /// returns true.
    ///
    /// # Errors
    /// [`AdminError`], and if the API server ends the watch earlier.
    pub async fn follow(
        &self,
        collection: &str,
        version: &str,
        mut is_enough: impl FnMut(&Value) -> bool,
    ) -> Result<(), AdminError> {
        let request = http::Request::get(format!("{collection}?watch=true&resourceVersion={version}"))
            .body(kube::client::Body::empty())
            .map_err(kube::Error::HttpError)?;
        let mut answer = self.client.send(request).await?;
        let mut read = Vec::new();
        while let Some(frame) = answer.body_mut().frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            read.extend_from_slice(&bytes);
            while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                if is_enough(event.get("object").unwrap_or(&Value::Null)) {
                    return Ok(());
                }
            }
        }
        Err(AdminError::Incomplete("end of what was waited for"))
    }

    /// Waits until a ResourceQuota is counted, and until the server enforces it. A server that doesn't know a quota
    /// yet admits requests beyond it, and counts them minutes later; it learns of a quota a moment after the quota is
    /// stored. It learns of two quotas in their order. So once a later quota that admits nothing is enforced, the
    /// earlier one is known.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn wait_for_quota(&self, (namespace, name): (&str, &str)) -> Result<(), AdminError> {
        let kind = ("v1", "ResourceQuota");
        eventually(SOON, || async {
            let quota = self.get(kind, (namespace, name)).await?.unwrap_or_default();
            match quota.pointer("/status/hard").and(quota.pointer("/status/used")) {
                Some(_) => Ok(()),
                None => Err(AdminError::Incomplete("status of a ResourceQuota")),
            }
        })
        .await?;
        let probe = json!({
            "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "probe", "namespace": namespace },
            "spec": { "hard": { "count/configmaps": "0" } }
        });
        self.apply(probe).await?;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "probe", "namespace": namespace }
        });
        eventually(SOON, || async {
            match self.create(map.clone()).await {
                Err(error) if error.to_string().contains("exceeded quota: probe") => Ok(()),
                Err(error) => Err(error),
                Ok(_) => {
                    self.delete(("v1", "ConfigMap"), (namespace, "probe")).await?;
                    Err(AdminError::Incomplete("count of ConfigMaps"))
                }
            }
        })
        .await?;
        self.delete(kind, (namespace, "probe")).await
    }

    /// Deletes an object; a missing object is no error.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn delete(
        &self,
        (api_version, kind): (&str, &str),
        (namespace, name): (&str, &str),
    ) -> Result<(), AdminError> {
        let api = self.api(api_version, kind, namespace).await?;
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the text at a pointer, or the error that the object lacks it.
fn get_text<'a>(object: &'a Value, pointer: &'static str) -> Result<&'a str, AdminError> {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .ok_or(AdminError::Incomplete(pointer))
}
