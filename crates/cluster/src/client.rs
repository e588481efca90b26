//! The requests of one identity to the API server. The module defines the form of each verb's request; callers choose the object and the verb.

use std::sync::Arc;
use std::time::Instant;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::inventory::split_api_version;

use crate::discovery::{self, Discovery, KindLookup, Resource};
use crate::error::ClusterError;
use crate::identities::{Sender, Shared};
use crate::path::{write_path, write_query};
use crate::remote_cluster::{RemoteClusterLimits, reserve_memory};
use crate::transport::{Answer, Call, JSON};
use crate::work_limit::LaneWorkLimit;
use tenure_planner::plan::Propagation;
use tenure_tenancy::Identity;

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// A client of the API server, as one identity. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    sender: Sender,
    turns: LaneWorkLimit,
}

/// Options of an apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Whether to take fields over from other managers.
    pub force: bool,
    /// Whether to return the result without a write.
    pub dry_run: bool,
    /// The subresource to apply to.
    pub subresource: Option<&'a str>,
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object as stored, or as a dry run would store it, with `managedFields`.
    pub object: Value,
    /// The warnings of the API server, for example about unknown fields.
    pub warnings: Vec<String>,
}

/// The uid and the resourceVersion that the object must have: otherwise the API server refuses the deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object's uid.
    pub uid: Option<String>,
    /// The object's resourceVersion.
    pub resource_version: Option<String>,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The preconditions; a deletion without preconditions may hit a re-created object.
    pub preconditions: Preconditions,
    /// The treatment of dependent objects; the kind's default if absent.
    pub propagation: Option<Propagation>,
    /// Whether the request only checks admission and rights, and deletes nothing.
    pub dry_run: bool,
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, sender: Sender, turns: LaneWorkLimit) -> Self {
        Self { shared, sender, turns }
    }

    /// Returns the client with another lane's work limit for large answers.
    #[must_use]
    pub fn in_turns(&self, turns: &LaneWorkLimit) -> Self {
        Self {
            turns: turns.clone(),
            ..self.clone()
        }
    }

    /// Returns the work limit within which the client parses large answers.
    pub(crate) fn turns(&self) -> &LaneWorkLimit {
        &self.turns
    }

    /// Returns the bounds for another cluster's API server; `None` for this cluster.
    pub(crate) fn terms(&self) -> Option<&RemoteClusterLimits> {
        self.shared.terms()
    }

    /// Returns the identity of the client's requests.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.sender.identity
    }

    /// Returns the API server's time, by its last answer; this machine's time if no answer had a time.
    #[must_use]
    pub fn server_time(&self) -> Timestamp {
        self.shared.server_time()
    }

    /// Returns the resource of a kind in exactly this `apiVersion`. For an unknown kind, discovery is read again.
    ///
    /// # Errors
    /// [`ClusterError::NoKindMatch`], or the errors of discovery.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<Resource, ClusterError> {
        let (group, version) = split_api_version(api_version);
        self.look_up(group, Some(version), kind).await
    }

    /// Returns the resource of a kind in this `apiVersion` if it is served, else in the version that the server prefers. An object has the same name in all versions.
    ///
    /// # Errors
    /// [`ClusterError::NoKindMatch`] when no version is served, or the errors of discovery.
    pub async fn resource_in_any_version(&self, api_version: &str, kind: &str) -> Result<Resource, ClusterError> {
        let (group, version) = split_api_version(api_version);
        match self.look_up(group, Some(version), kind).await {
            Err(ClusterError::NoKindMatch { .. } | ClusterError::DiscoveryIncomplete { .. }) => {
                self.look_up(group, None, kind).await
            }
            other => other,
        }
    }

    /// Returns the resource of an object.
    ///
    /// # Errors
    /// [`ClusterError::Request`] when the object has no `apiVersion` or `kind`, else as [`Client::resource`].
    pub async fn resource_of(&self, object: &Value) -> Result<Resource, ClusterError> {
        self.resource(require_text(object, "/apiVersion")?, require_text(object, "/kind")?)
            .await
    }

    /// Finds a kind in discovery. An unknown group is read from the API server first.
    async fn look_up(&self, group: &str, version: Option<&str>, kind: &str) -> Result<Resource, ClusterError> {
        let mapping = &self.shared.mapping;
        let asked = Instant::now();
        if let KindLookup::Served(resource) = mapping.find(group, version, kind) {
            return Ok(resource);
        }
        self.read_groups(asked).await?;
        self.read_versions(group, asked).await?;
        match mapping.find(group, version, kind) {
            KindLookup::Served(resource) => Ok(resource),
            KindLookup::Unknown => Err(ClusterError::DiscoveryIncomplete {
                group: group.to_owned(),
                kind: kind.to_owned(),
            }),
            KindLookup::Unserved => Err(ClusterError::NoKindMatch {
                api_version: match version {
                    Some(version) if group.is_empty() => version.to_owned(),
                    Some(version) => format!("{group}/{version}"),
                    None => group.to_owned(),
                },
                kind: kind.to_owned(),
            }),
        }
    }

    /// Reads the list of groups, unless it was read since `asked`.
    async fn read_groups(&self, asked: Instant) -> Result<(), ClusterError> {
        let mapping = &self.shared.mapping;
        let _guard = mapping.refreshing().await;
        if mapping.fresh(asked) {
            return Ok(());
        }
        let read = Instant::now();
        let (mut documents, mut bytes, mut has_core) = (Vec::new(), 0_usize, true);
        for path in [discovery::CORE_PATH, discovery::GROUPS_PATH] {
            match self.ask_for_groups(path).await {
                Ok((document, length)) => {
                    bytes = bytes.saturating_add(length);
                    documents.push(document);
                }
                // A server without the core group. A proxy on the way may have answered, so the group is unknown, too.
                Err(error) if path == discovery::CORE_PATH && error.code() == 404 => has_core = false,
                Err(error) => return Err(error),
            }
        }
        let others = mapping.count_bytes_besides(None);
        reserve_memory(&self.shared.kinds_room, self.terms(), bytes.saturating_add(others))?;
        let take = || {
            let mut discovery = Discovery::read(&documents)?;
            if !has_core {
                discovery.mark_unknown("");
            }
            mapping.replace(discovery, bytes, read);
            Ok(())
        };
        self.turns.run(bytes, take).await
    }

    /// Reads one document of all groups, and returns it with its length. Requests the older form if the server refuses the aggregated form.
    async fn ask_for_groups(&self, path: &str) -> Result<(Value, usize), ClusterError> {
        let call = Call {
            accept: discovery::ACCEPT,
            ..Call::get(path.to_owned())
        };
        match self.ask_for_document(&call).await {
            Err(ClusterError::Decode { .. }) => {}
            Err(error) if discovery::is_form_refused(error.code()) => {}
            answered => return answered,
        }
        self.ask_for_document(&Call::get(path.to_owned())).await
    }

    /// Reads the versions of a group where each has a document of its own, unless they were read since `asked`. A version without an answer is unknown. Kinds that only
    /// this version may serve are unknown, too.
    async fn read_versions(&self, group: &str, asked: Instant) -> Result<(), ClusterError> {
        let mapping = &self.shared.mapping;
        if mapping.list_due(group, asked).is_empty() {
            return Ok(());
        }
        let lock = mapping.lock_of(group);
        let _guard = lock.lock().await;
        let read = Instant::now();
        let (mut documents, mut bytes) = (Vec::new(), 0_usize);
        for version in mapping.list_due(group, asked) {
            let answered = self.ask_for_document(&Call::get(version.path())).await;
            let document = match answered {
                Ok((document, length)) => {
                    bytes = bytes.saturating_add(length);
                    Some(document)
                }
                Err(error) => {
                    tracing::debug!(path = version.path(), %error, "a version of a group can't be read");
                    None
                }
            };
            documents.push((version, document));
        }
        if documents.is_empty() {
            return Ok(());
        }
        let others = mapping.count_bytes_besides(Some(group));
        reserve_memory(&self.shared.kinds_room, self.terms(), bytes.saturating_add(others))?;
        let take = || mapping.take_versions(group, &documents, (bytes, read));
        self.turns.run(bytes, take).await;
        Ok(())
    }

    /// Requests one discovery document, and returns the document with its length in bytes.
    async fn ask_for_document(&self, call: &Call) -> Result<(Value, usize), ClusterError> {
        let discoverer = self.shared.discoverer(&self.sender);
        let answer = self.shared.ask(&discoverer, call).await?;
        let length = answer.text.len();
        let document = self.turns.run(length, || answer.read(call)).await?;
        Ok((document, length))
    }

    /// Reads one object.
    ///
    /// # Errors
    /// [`ClusterError::NotFound`] and other refusals.
    pub async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, ClusterError> {
        let path = write_path(resource, resource.scope(namespace), Some(name), None)?;
        Ok(self.send(resource, &Call::get(path)).await?.object)
    }

    /// Reads one object; `None` if the object is missing.
    ///
    /// # Errors
    /// Any other refusal.
    pub async fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError> {
        match self.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object with server-side apply.
    ///
    /// # Errors
    /// [`ClusterError::ApplyConflict`] without force, [`ClusterError::Invalid`] and other refusals.
    pub async fn apply(&self, object: &Value, options: &ApplyOptions<'_>) -> Result<Applied, ClusterError> {
        let resource = self.resource_of(object).await?;
        let mut parameters = vec![("fieldManager", options.manager)];
        if options.force {
            parameters.push(("force", "true"));
        }
        let name = require_name(object)?;
        let path = write_path(
            &resource,
            resource.scope(read_namespace(object)),
            Some(name),
            options.subresource,
        )?;
        self.write(
            &resource,
            Method::PATCH,
            &path,
            parameters,
            options.dry_run,
            APPLY_PATCH,
            object,
        )
        .await
    }

    /// Creates an object, which must not exist.
    ///
    /// # Errors
    /// [`ClusterError::AlreadyExists`], [`ClusterError::Invalid`] and other refusals.
    pub async fn create(&self, object: &Value, manager: &str) -> Result<Applied, ClusterError> {
        self.post(object, manager, false).await
    }

    /// Returns the result that a creation would have, in a dry run.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub async fn try_creation(&self, object: &Value, manager: &str) -> Result<Applied, ClusterError> {
        self.post(object, manager, true).await
    }

    async fn post(&self, object: &Value, manager: &str, dry_run: bool) -> Result<Applied, ClusterError> {
        let resource = self.resource_of(object).await?;
        let path = write_path(&resource, resource.scope(read_namespace(object)), None, None)?;
        let parameters = vec![("fieldManager", manager)];
        self.write(&resource, Method::POST, &path, parameters, dry_run, JSON, object)
            .await
    }

    /// Replaces an object (PUT). The new object has the `uid` and the `resourceVersion` of the object that was read. So no other object of this name
    /// is replaced, and no later version.
    ///
    /// # Errors
    /// [`ClusterError::Request`] when the new object lacks one of these fields, [`ClusterError::Conflict`] when the stored object is another one, and
    /// other refusals.
    pub async fn replace(&self, object: &Value, manager: &str) -> Result<Applied, ClusterError> {
        for field in ["/metadata/uid", "/metadata/resourceVersion"] {
            require_text(object, field)?;
        }
        let resource = self.resource_of(object).await?;
        let name = require_name(object)?;
        let path = write_path(&resource, resource.scope(read_namespace(object)), Some(name), None)?;
        let parameters = vec![("fieldManager", manager)];
        self.write(&resource, Method::PUT, &path, parameters, false, JSON, object)
            .await
    }

    /// Sends a JSON merge patch (RFC 7386) of an object or its subresource.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when the patch holds an outdated `resourceVersion`, and other refusals.
    pub async fn merge_patch(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        subresource: Option<&str>,
        manager: &str,
        patch: &Value,
    ) -> Result<Applied, ClusterError> {
        let path = write_path(resource, resource.scope(namespace), Some(name), subresource)?;
        let parameters = vec![("fieldManager", manager)];
        self.write(resource, Method::PATCH, &path, parameters, false, MERGE_PATCH, patch)
            .await
    }

    /// Sends a JSON patch (RFC 6902) of an object.
    ///
    /// # Errors
    /// [`ClusterError::Invalid`] when a `test` in the patch fails, and other refusals.
    pub async fn json_patch(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        manager: &str,
        dry_run: bool,
        patch: &Value,
    ) -> Result<Applied, ClusterError> {
        let path = write_path(resource, resource.scope(namespace), Some(name), None)?;
        let parameters = vec![("fieldManager", manager)];
        self.write(resource, Method::PATCH, &path, parameters, dry_run, JSON_PATCH, patch)
            .await
    }

    /// Deletes an object. A missing object is no error.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when a precondition does not hold, and other refusals.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ClusterError> {
        let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        if let Some(propagation) = options.propagation {
            set(&mut body, "propagationPolicy", json!(propagation.as_str()));
        }
        if options.dry_run {
            set(&mut body, "dryRun", json!(["All"]));
        }
        let mut preconditions = serde_json::Map::new();
        if let Some(uid) = &options.preconditions.uid {
            preconditions.insert("uid".to_owned(), json!(uid));
        }
        if let Some(version) = &options.preconditions.resource_version {
            preconditions.insert("resourceVersion".to_owned(), json!(version));
        }
        if !preconditions.is_empty() {
            set(&mut body, "preconditions", Value::Object(preconditions));
        }
        let path = write_path(resource, resource.scope(namespace), Some(name), None)?;
        match self
            .send(resource, &Call::with_body(Method::DELETE, path, JSON, &body))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.absent() => Ok(()),
            Err(error) => Err(error),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one request's parts; its callers are the verbs above"
    )]
    async fn write(
        &self,
        resource: &Resource,
        method: Method,
        path: &str,
        mut parameters: Vec<(&str, &str)>,
        dry_run: bool,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Applied, ClusterError> {
        if dry_run {
            parameters.push(("dryRun", "All"));
        }
        let call = Call::with_body(
            method,
            format!("{path}{}", write_query(&parameters)),
            content_type,
            body,
        );
        self.send(resource, &call).await
    }

    /// Sends a request and parses its answer. A long answer first waits for a permit of the work limit.
    async fn send(&self, resource: &Resource, call: &Call) -> Result<Applied, ClusterError> {
        let answer = self.ask(resource, call).await?;
        let object = self.turns.run(answer.text.len(), || answer.read(call)).await?;
        Ok(Applied {
            object,
            warnings: answer.warnings,
        })
    }

    /// Sends a request and returns its unparsed answer. If the path of the resource is gone, the cached resource is removed.
    pub(crate) async fn ask(&self, resource: &Resource, call: &Call) -> Result<Answer, ClusterError> {
        let answer = self.shared.ask(&self.sender, call).await;
        self.notice_gone(resource, answer)
    }

    /// Removes the resource from the cached discovery after a 404 that names no object. Such a 404 is about the path, so discovery of the kind
    /// has changed.
    fn notice_gone<T>(&self, resource: &Resource, answer: Result<T, ClusterError>) -> Result<T, ClusterError> {
        match answer {
            Err(ClusterError::Refused { code: 404, .. }) => {
                self.shared.mapping.forget(resource);
                Err(ClusterError::PathGone {
                    api_version: resource.api_version(),
                    kind: resource.kind.clone(),
                })
            }
            other => other,
        }
    }

    pub(crate) async fn open_watch(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        parameters: &[(&str, &str)],
    ) -> Result<http::Response<kube::client::Body>, ClusterError> {
        let base = write_path(resource, namespace, None, None)?;
        let call = Call::get(format!("{base}{}", write_query(parameters)));
        let opened = self.shared.open(&self.sender, &call).await;
        self.notice_gone(resource, opened)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("identity", &self.sender.identity)
            .finish_non_exhaustive()
    }
}

fn set(body: &mut Value, key: &str, value: Value) {
    if let Some(body) = body.as_object_mut() {
        body.insert(key.to_owned(), value);
    }
}

/// Returns the text of a field that every object must have.
fn require_text<'a>(object: &'a Value, path: &str) -> Result<&'a str, ClusterError> {
    let field = || path.trim_start_matches('/').replace('/', ".");
    ObjectView::new(object)
        .find_text(path)
        .ok_or_else(|| ClusterError::Request {
            what: "an object".to_owned(),
            problem: format!("it has no {}", field()),
        })
}

pub(crate) fn require_name(object: &Value) -> Result<&str, ClusterError> {
    require_text(object, "/metadata/name")
}

pub(crate) fn read_namespace(object: &Value) -> &str {
    ObjectView::new(object).read_text("/metadata/namespace")
}
