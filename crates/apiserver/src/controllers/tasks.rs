//! Execution of tasks: a task reads the current state, asks the pure modules for a decision, and writes it through
//! the registry. Invariant: every write names the version on which the decision was made, so no write is based on an
//! older state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::Value;
use tenure_auth::authorization::aggregate_rules;
use tenure_auth::identity::{ObjectLookup as _, UserInfo};
use thiserror::Error;

use super::dispatch::Task;
use super::expiry::ExpiredEvent;
use super::found_objects::{content_of, read_metadata, resolve_owners};
use super::garbage::{Verdict, decide_fate, finish_foreground, finish_orphaning, without_owners};
use super::namespace::{Remaining, is_ending, with_conditions, without_finalizer};
use super::object_name::{ObjectName, get_text, is_deleting};
use super::policy_types;
use super::run::Settings;
use super::service_account::{TokenSecret, account_of, decide_token_secret, default_account, root_ca};
use super::workload::{self, Rollout};
use crate::admission::quota;
use crate::authentication::{TokenError, secret_token};
use crate::catalog::{Catalog, Resource};
use crate::http::ApiError;
use crate::keys;
use crate::long_requests::is_long_object;
use crate::long_work::{self, Deadline, StepLimiter, Stopped};
use crate::operation::{DeleteOptions, Operation};
use crate::registry::Registry;
use crate::view::View;

const MANAGER: &str = "kube-controller-manager";
const AGGREGATION_MANAGER: &str = "clusterrole-aggregation-controller";
/// Objects of a namespace that are deleted at the same time: enough to share the store's transactions.
const AT_ONCE: usize = 64;

/// Dependents of an object that are read on a thread where requests wait.
const FEW_DEPENDENTS: usize = 32;
/// Longest duration of a task that visits many objects.
const LONGEST: Duration = Duration::from_secs(600);

/// The reason why a task failed. The task is retried.
#[derive(Debug, Error)]
pub(super) enum TaskError {
    /// The registry refused a write.
    #[error("{what} was refused: {}", .source.message)]
    Refused {
        /// The operation that was tried.
        what: String,
        /// The refusal.
        source: ApiError,
    },
    /// Another client changed the object first. This is no fault.
    #[error("the object was changed meanwhile")]
    Raced,
    /// Stored objects of this resource are not served: its definition is deleted, or not served yet.
    #[error("{plural}.{group} are not served")]
    NotServed {
        /// The API group.
        group: String,
        /// The plural.
        plural: String,
    },
    /// A token could not be minted.
    #[error("a token could not be minted")]
    Token(#[from] TokenError),
    /// The task took too long, or reported too much.
    #[error("the task was stopped: {0:?}")]
    Stopped(Stopped),
}

/// The result of a task without an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TaskOutcome {
    /// The task is complete.
    Complete,
    /// An owner could not be resolved: the object is checked again when the kinds change.
    Unresolved,
}

/// Executes tasks: holds the registry, the settings and the permits that they need.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) registry: Registry,
    pub(super) settings: Arc<Settings>,
    /// The permits for steps of tasks that visit many objects.
    pub(super) turns: StepLimiter,
}

impl TaskError {
    /// Checks whether the owner of the object caused the error, for example by a quota or by a name that gets too
    /// long. The object's status reports such an error.
    pub(super) fn is_its_owners(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if (400..500).contains(&source.code))
    }
}

impl Worker {
    /// Runs a task. A task that may visit many objects, or a large one, runs away from the threads that answer requests.
    pub(super) async fn run_task(
        self,
        task: Task,
        dependents: Vec<ObjectName>,
    ) -> (Task, Result<TaskOutcome, TaskError>) {
        if !self.is_long(&task, &dependents) {
            let outcome = self.run(&task, &dependents).await;
            return (task, outcome);
        }
        let (turns, deadline) = (self.turns.clone(), Deadline::new(Instant::now() + LONGEST));
        let same = task.clone();
        let work = async move { self.run(&same, &dependents).await };
        let outcome = long_work::run(Some(turns), deadline, work, |_| false).await;
        (task, outcome.unwrap_or_else(|stopped| Err(TaskError::Stopped(stopped))))
    }

    /// Checks whether a task may compute for long. A client chooses how many objects a namespace has, how many
    /// dependents an owner has, and how many owners an object has.
    fn is_long(&self, task: &Task, dependents: &[ObjectName]) -> bool {
        let name = match task {
            Task::Namespace(_) | Task::Count(_) => return true,
            Task::Dependent(name) | Task::Foreground(name) | Task::Orphan(name) | Task::Workload(name) => name,
            _ => return false,
        };
        let key = keys::object_key(&name.group, &name.plural, name.namespace.as_deref(), &name.name);
        let snapshot = self.registry.store().snapshot();
        let stored = snapshot.get(&key).map_or(&[][..], |entry| &entry.bytes);
        dependents.len() > FEW_DEPENDENTS || is_long_object(stored)
    }

    /// Executes a task. `dependents` are the objects that name the task's object as an owner.
    async fn run(&self, task: &Task, dependents: &[ObjectName]) -> Result<TaskOutcome, TaskError> {
        match task {
            Task::Namespace(name) => self.empty_namespace(name).await?,
            Task::Furnish(name) => self.create_namespace_defaults(name).await?,
            Task::Token(namespace, name) => self.sync_token_secret(namespace, name).await?,
            Task::Dependent(name) => return self.collect_dependent(name, dependents).await,
            Task::Foreground(name) => self.finish_foreground_deletion(name, dependents).await?,
            Task::Orphan(name) => self.orphan_dependents(name, dependents).await?,
            Task::Aggregate => self.aggregate_cluster_roles().await?,
            Task::Workload(name) => self.report_workload(name, dependents).await?,
            Task::Stray(name) => self.delete_stray(name).await?,
            Task::Expire(due) => self.delete_expired_event(due).await?,
            Task::Count(namespace) => self.recount_quotas(namespace).await?,
            Task::CheckTypes(name) => self.check_types(name).await?,
        }
        Ok(TaskOutcome::Complete)
    }

    /// Deletes the objects in a terminating namespace, reports the rest as conditions, and removes the finalizer of an
    /// empty one.
    async fn empty_namespace(&self, namespace: &str) -> Result<(), TaskError> {
        let name = ObjectName::cluster("", "namespaces", namespace);
        let Some(object) = self
            .read(&self.registry.view(), &name)
            .filter(|object| is_ending(object))
        else {
            return Ok(());
        };
        let catalog = self.registry.catalog();
        let options = DeleteOptions {
            propagation_policy: Some("Background".to_owned()),
            ..DeleteOptions::default()
        };
        let content = content_of(&self.registry.view(), &catalog, namespace);
        let mut failures: Vec<String> =
            futures::stream::iter(content.into_iter().filter(|(_, object)| !is_deleting(object)))
                .map(|(name, _)| {
                    let options = &options;
                    async move { self.delete(&name, options).await.err() }
                })
                .buffer_unordered(AT_ONCE)
                .filter_map(|failure| async move { failure.map(|error| error.to_string()) })
                .collect()
                .await;
        failures.sort();
        let mut remaining = Remaining {
            failures,
            ..Remaining::default()
        };
        for (name, object) in content_of(&self.registry.view(), &catalog, namespace) {
            remaining.count(&name.group, &name.plural, &object);
        }
        if remaining.is_empty() {
            return self
                .update(&name, Some("finalize"), MANAGER, without_finalizer(&object))
                .await;
        }
        if let Some(object) = with_conditions(&object, &remaining, self.registry.now()) {
            self.update(&name, Some("status"), MANAGER, object).await?;
        }
        match remaining.failures.into_iter().next() {
            // The namespace's condition reports the failure. The task also fails, so that it is retried.
            Some(_) => Err(TaskError::Raced),
            None => Ok(()),
        }
    }

    async fn create_namespace_defaults(&self, namespace: &str) -> Result<(), TaskError> {
        let view = self.registry.view();
        let alive = self
            .read(&view, &ObjectName::cluster("", "namespaces", namespace))
            .is_some_and(|object| !is_deleting(&object));
        if !alive {
            return Ok(());
        }
        let account = ObjectName::in_namespace("", "serviceaccounts", namespace, "default");
        let make_account = async {
            if self.read(&view, &account).is_none() {
                self.create(&account, MANAGER, default_account(namespace)).await?;
            }
            Ok(())
        };
        let bundle = ObjectName::in_namespace("", "configmaps", namespace, super::service_account::ROOT_CA);
        let make_bundle = async {
            let live = self.read(&view, &bundle);
            match root_ca(namespace, live.as_deref(), &self.settings.ca_pem) {
                Some(object) if live.is_none() => self.create(&bundle, MANAGER, object).await,
                Some(object) => self.update(&bundle, None, MANAGER, object).await,
                None => Ok(()),
            }
        };
        let (account, bundle): (Result<(), TaskError>, Result<(), TaskError>) =
            futures::join!(make_account, make_bundle);
        account.and(bundle)
    }

    async fn sync_token_secret(&self, namespace: &str, name: &str) -> Result<(), TaskError> {
        let view = self.registry.view();
        let name = ObjectName::in_namespace("", "secrets", namespace, name);
        let Some(secret) = self.read(&view, &name) else {
            return Ok(());
        };
        let Some(account_name) = account_of(&secret) else {
            return Ok(());
        };
        let account = view.get("", "serviceaccounts", Some(namespace), account_name);
        let verdict = decide_token_secret(&secret, account.as_deref(), &self.settings.ca_pem, || match &account {
            Some(account) => secret_token(&self.settings.tokens, account, &name.name),
            None => Ok(String::new()),
        })?;
        match verdict {
            TokenSecret::Keep => Ok(()),
            TokenSecret::Delete => self.delete(&name, &delete_exactly(&secret)).await,
            TokenSecret::Fill(secret) => self.update(&name, None, MANAGER, secret).await,
        }
    }

    /// Deletes or releases an object, by the states of its owners.
    async fn collect_dependent(&self, name: &ObjectName, dependents: &[ObjectName]) -> Result<TaskOutcome, TaskError> {
        let view = self.registry.view();
        let Some(object) = self.read(&view, name) else {
            return Ok(TaskOutcome::Complete);
        };
        let catalog = self.registry.catalog();
        let states = resolve_owners(&object, name, (&view, &catalog));
        let dependents = read_metadata(&view, dependents);
        match decide_fate(&object, &states, &dependents) {
            Verdict::Keep => Ok(TaskOutcome::Complete),
            Verdict::Later => Ok(TaskOutcome::Unresolved),
            Verdict::Release(object) => self
                .update(name, None, MANAGER, object)
                .await
                .map(|()| TaskOutcome::Complete),
            Verdict::Delete { propagation, unblocked } => {
                let mut options = delete_exactly(&object);
                options.propagation_policy = Some(propagation.to_owned());
                if let Some(unblocked) = unblocked {
                    self.update(name, None, MANAGER, unblocked).await?;
                    options.resource_version = None;
                }
                self.delete(name, &options).await.map(|()| TaskOutcome::Complete)
            }
        }
    }

    async fn finish_foreground_deletion(&self, name: &ObjectName, dependents: &[ObjectName]) -> Result<(), TaskError> {
        let view = self.registry.view();
        let Some(owner) = self.read(&view, name) else {
            return Ok(());
        };
        match finish_foreground(&owner, &read_metadata(&view, dependents)) {
            Some(owner) => self.update(name, None, MANAGER, owner).await,
            None => Ok(()),
        }
    }

    async fn orphan_dependents(&self, name: &ObjectName, dependents: &[ObjectName]) -> Result<(), TaskError> {
        let view = self.registry.view();
        let Some(owner) = self.read(&view, name) else {
            return Ok(());
        };
        let Some(finished) = finish_orphaning(&owner) else {
            return Ok(());
        };
        let uid = [get_text(&owner, "/metadata/uid").to_owned()];
        for name in dependents {
            if let Some(dependent) = self.read(&view, name) {
                let released = without_owners(&dependent, &uid);
                if released != *dependent {
                    self.update(name, None, MANAGER, released).await?;
                }
            }
        }
        self.update(name, None, MANAGER, finished).await
    }

    async fn aggregate_cluster_roles(&self) -> Result<(), TaskError> {
        let group = "rbac.authorization.k8s.io";
        let roles = self.registry.view().list(group, "clusterroles", None);
        for role in &roles {
            let Some(rules) = aggregate_rules(role, &roles) else {
                continue;
            };
            let name = ObjectName::cluster(group, "clusterroles", get_text(role, "/metadata/name"));
            let mut role = role.clone();
            if let Some(fields) = role.as_object_mut() {
                fields.insert("rules".to_owned(), Value::Array(rules));
            }
            self.update(&name, None, AGGREGATION_MANAGER, role).await?;
        }
        Ok(())
    }

    async fn check_types(&self, policy: &str) -> Result<(), TaskError> {
        let name = ObjectName::cluster(policy_types::GROUP, policy_types::PLURAL, policy);
        let Some(object) = self.read(&self.registry.view(), &name) else {
            return Ok(());
        };
        if !policy_types::is_due(&object) {
            return Ok(());
        }
        let patch = policy_types::make_status_patch(&object, &self.registry);
        let operation = self.make_operation(&name, policy_types::MANAGER)?.subresource("status");
        match self.registry.patch(&operation, policy, &patch).await {
            Ok(_) => Ok(()),
            Err(error) if error.code == 404 => Ok(()),
            Err(error) if error.code == 409 => Err(TaskError::Raced),
            Err(error) => Err(make_task_error("reporting on", &name, error)),
        }
    }

    async fn report_workload(&self, name: &ObjectName, dependents: &[ObjectName]) -> Result<(), TaskError> {
        let view = self.registry.view();
        let Some(object) = self.read(&view, name) else {
            return Ok(());
        };
        let revised = if name.is("apps", "deployments") {
            self.roll_out(&view, name, &object, dependents).await?
        } else {
            None
        };
        // The revision is written together with the status, as in Kubernetes: a separate write would be another
        // generation.
        let reported = workload::rolled_out(name, revised.as_ref().unwrap_or(&object));
        match reported.or(revised) {
            Some(object) => self.update(name, Some("status"), workload::FIELD_MANAGER, object).await,
            None => Ok(()),
        }
    }

    /// Reconciles a Deployment's ReplicaSets. Returns the Deployment with its revision, if the revision changed.
    async fn roll_out(
        &self,
        view: &View,
        own_name: &ObjectName,
        asked: &Value,
        dependents: &[ObjectName],
    ) -> Result<Option<Value>, TaskError> {
        let namespace = own_name.namespace.as_deref().unwrap_or_default();
        let set = |set: &str| ObjectName::in_namespace("apps", "replicasets", namespace, set);
        let own: Vec<ObjectName> = dependents
            .iter()
            .filter(|dependent| dependent.is("apps", "replicasets"))
            .cloned()
            .collect();
        let Rollout {
            create,
            change,
            delete,
            deployment,
        } = workload::roll_out(asked, self.read_all(view, &own), |named| self.read(view, &set(named)));
        if let Some(object) = create {
            let name = set(get_text(&object, "/metadata/name"));
            if let Err(error) = self.create(&name, workload::FIELD_MANAGER, object).await {
                self.report_refusal(own_name, asked, &name, &error).await?;
                return Err(error);
            }
        }
        for object in change {
            let name = set(get_text(&object, "/metadata/name"));
            self.update(&name, None, workload::FIELD_MANAGER, object).await?;
        }
        for object in delete {
            self.delete(&set(get_text(&object, "/metadata/name")), &delete_exactly(&object))
                .await?;
        }
        Ok(deployment)
    }

    /// Reports in a Deployment's status that its ReplicaSet was refused, unless the status has that already.
    async fn report_refusal(
        &self,
        name: &ObjectName,
        deployment: &Value,
        set: &ObjectName,
        error: &TaskError,
    ) -> Result<(), TaskError> {
        let TaskError::Refused { source, .. } = error else {
            return Ok(());
        };
        match workload::with_refusal(deployment, &set.name, &source.message, self.registry.now()) {
            Some(status) => self.update(name, Some("status"), workload::FIELD_MANAGER, status).await,
            None => Ok(()),
        }
    }

    /// Deletes an object whose namespace does not exist.
    async fn delete_stray(&self, name: &ObjectName) -> Result<(), TaskError> {
        let view = self.registry.view();
        let namespace = name.namespace.as_deref().unwrap_or_default();
        if view.exists("", "namespaces", None, namespace) {
            return Ok(());
        }
        match self.read(&view, name) {
            Some(object) if !is_deleting(&object) => self.delete(name, &delete_exactly(&object)).await,
            _ => Ok(()),
        }
    }

    async fn delete_expired_event(&self, due: &ExpiredEvent) -> Result<(), TaskError> {
        let options = DeleteOptions {
            resource_version: Some(due.resource_version.clone()),
            ..DeleteOptions::default()
        };
        match self.delete(&due.event, &options).await {
            // The Event was written again, and the newer write has its own expiry.
            Err(TaskError::Raced) => Ok(()),
            other => other,
        }
    }

    /// Recounts the use of a namespace's quotas, while no request is charged there.
    async fn recount_quotas(&self, namespace: &str) -> Result<(), TaskError> {
        // Requests in the namespace wait for the lock that this task takes. With the place in line, the task's further
        // steps need no permit.
        let _place = long_work::enter_line().await;
        let _turn = self
            .registry
            .admission()
            .namespace_locks()
            .lock_namespace(namespace)
            .await;
        let view = self.registry.view();
        for quota in view.list("", "resourcequotas", Some(namespace)) {
            let counted = quota::recount_usage(&view, namespace, &quota);
            if let Some(changed) = quota::with_status(&quota, &counted) {
                let name =
                    ObjectName::in_namespace("", "resourcequotas", namespace, get_text(&quota, "/metadata/name"));
                self.update(&name, Some("status"), MANAGER, changed).await?;
            }
        }
        Ok(())
    }

    fn read(&self, view: &View, name: &ObjectName) -> Option<Arc<Value>> {
        view.get(&name.group, &name.plural, name.namespace.as_deref(), &name.name)
    }

    fn read_all(&self, view: &View, names: &[ObjectName]) -> Vec<Value> {
        names
            .iter()
            .filter_map(|name| self.read(view, name))
            .map(|object| (*object).clone())
            .collect()
    }

    fn make_operation(&self, name: &ObjectName, manager: &str) -> Result<Operation, TaskError> {
        let catalog = self.registry.catalog();
        let resource = stored_resource(&catalog, name).ok_or_else(|| TaskError::NotServed {
            group: name.group.clone(),
            plural: name.plural.clone(),
        })?;
        Ok(Operation::new(
            Arc::clone(resource),
            name.namespace.clone(),
            UserInfo::loopback(),
            manager,
        ))
    }

    /// Creates an object as a controller. An object that exists, or a missing or terminating namespace, is no error.
    async fn create(&self, name: &ObjectName, manager: &str, object: Value) -> Result<(), TaskError> {
        let operation = self.make_operation(name, manager)?;
        match self.registry.create(&operation, object).await {
            Ok(_) => Ok(()),
            // Another client created the object, or its namespace is deleted or terminating. Other refusals are
            // returned, for example a quota that is not counted yet.
            Err(error) if error.code == 409 || error.code == 404 || error.is_namespace_terminating() => Ok(()),
            Err(error) => Err(make_task_error("creating", name, error)),
        }
    }

    async fn update(
        &self,
        name: &ObjectName,
        subresource: Option<&str>,
        manager: &str,
        object: Value,
    ) -> Result<(), TaskError> {
        let mut operation = self.make_operation(name, manager)?;
        // An object may be stored in a version that is no longer the storage version.
        let object = self
            .registry
            .contents()
            .present_object(object, &operation.resource)
            .await
            .map_err(|error| make_task_error("changing", name, error))?;
        if let Some(subresource) = subresource {
            operation = operation.subresource(subresource);
        }
        match self.registry.update(&operation, &name.name, object).await {
            Ok(_) => Ok(()),
            Err(error) if error.code == 404 => Ok(()),
            Err(error) if error.code == 409 => Err(TaskError::Raced),
            Err(error) => Err(make_task_error("changing", name, error)),
        }
    }

    async fn delete(&self, name: &ObjectName, options: &DeleteOptions) -> Result<(), TaskError> {
        let operation = self.make_operation(name, MANAGER)?;
        match self.registry.delete(&operation, &name.name, options).await {
            Ok(_) => Ok(()),
            Err(error) if error.code == 404 => Ok(()),
            Err(error) if error.code == 409 => Err(TaskError::Raced),
            Err(error) => Err(make_task_error("deleting", name, error)),
        }
    }
}

fn make_task_error(verb: &str, name: &ObjectName, source: ApiError) -> TaskError {
    let place = name
        .namespace
        .as_ref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    TaskError::Refused {
        what: format!("{verb} {} {place}{}", name.plural, name.name),
        source,
    }
}

/// Returns options that delete only this object in this version.
fn delete_exactly(object: &Value) -> DeleteOptions {
    DeleteOptions {
        uid: Some(get_text(object, "/metadata/uid").to_owned()),
        resource_version: Some(get_text(object, "/metadata/resourceVersion").to_owned()),
        ..DeleteOptions::default()
    }
}

/// Returns the resource under which an object is stored, in its storage version.
fn stored_resource<'a>(catalog: &'a Catalog, name: &ObjectName) -> Option<&'a Arc<Resource>> {
    catalog.find_any_version(&name.group, &name.plural)
}
