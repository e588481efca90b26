//! Starts everything: the watches of the reconciled kinds as the controller, a task for every object, and their orderly end.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tenure_api::Tenant;
use tenure_api::metadata::TENANT_LABEL;
use tenure_cluster::{ClusterError, EventHistory, Seen, WatchEvent, watch};
use tenure_sources::StorageError;
use tenure_tenancy::{NamespaceFacts, TenantFacts};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::{self, Cache};
use crate::config::Config;
use crate::drive::drive;
use crate::git_repository::GitRepositoryReconciler;
use crate::key::{Key, OwnKind};
use crate::kustomization::KustomizationReconciler;
use crate::mailbox::Mailbox;
use crate::own;
use crate::supervise::{self, supervise};
use crate::surface::SurfaceReconciler;
use crate::tenant::TenantReconciler;
use crate::world::{World, git_source};

/// How long the tasks may take to end.
const FAREWELL: Duration = Duration::from_secs(20);
/// How often trees that nothing renders from are dropped.
const SWEEP: Duration = Duration::from_secs(15);
/// How soon a kind is looked for again that the API server does not serve yet.
const ABSENT: Duration = Duration::from_millis(500);

/// Why the controllers could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The folder for artifacts can't be used.
    #[error("the folder for artifacts can't be used: {0}")]
    Artifacts(#[from] StorageError),
}

/// Runs all controllers until `shutdown`; then lets what is under way end, for at most twenty seconds.
///
/// Kinds that the API server does not serve yet are waited for.
///
/// # Errors
/// [`RunError`] when they can't start.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), RunError> {
    let world = Arc::new(World::new(config)?);
    let end = shutdown.child_token();
    // If this future is dropped, so is what it started.
    let _end = end.clone().drop_guard();
    let manager = Manager {
        world: Arc::clone(&world),
        tasks: TaskTracker::new(),
        end,
    };
    manager.start().await;
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = sweep.tick() => world.artifacts.sweep(),
        }
    }
    manager.tasks.close();
    if tokio::time::timeout(FAREWELL, manager.tasks.wait()).await.is_err() {
        tracing::warn!("some reconciliations were still under way at the end");
    }
    Ok(())
}

#[derive(Clone)]
struct Manager {
    world: Arc<World>,
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Manager {
    /// Opens the watches, and starts the reconcilers once everything that is there has been seen: whose a namespace is can't be told
    /// from half of the Tenants.
    async fn start(&self) {
        let synced = [
            self.watch::<Namespace>(
                ("v1", "Namespace", None),
                |world| &world.namespaces,
                Manager::namespace_changed,
            ),
            self.watch(
                ("rbac.authorization.k8s.io/v1", "RoleBinding", Some(TENANT_LABEL)),
                |world| &world.role_bindings,
                Manager::tenant_object_changed,
            ),
            self.watch(
                ("v1", "ServiceAccount", Some(TENANT_LABEL)),
                |world| &world.service_accounts,
                Manager::tenant_object_changed,
            ),
            self.watch::<Tenant>(
                of(OwnKind::Tenant),
                |world| &world.tenants,
                |manager, change| {
                    let facts = |tenant: &Arc<Tenant>| TenantFacts::from(tenant.as_ref());
                    if change.old.as_ref().map(facts) != change.new.as_ref().map(facts) {
                        manager.world.realm_changed();
                    }
                    manager.own_changed(OwnKind::Tenant, &change);
                },
            ),
            self.watch(
                of(OwnKind::GitRepository),
                |world| &world.repositories,
                |manager, change| {
                    manager.own_changed(OwnKind::GitRepository, &change);
                },
            ),
            self.watch(
                of(OwnKind::Kustomization),
                |world| &world.kustomizations,
                |manager, change| {
                    manager.own_changed(OwnKind::Kustomization, &change);
                },
            ),
            self.watch(
                of(OwnKind::Surface),
                |world| &world.surfaces,
                |manager, change| {
                    manager.own_changed(OwnKind::Surface, &change);
                },
            ),
        ];
        for mut synced in synced {
            tokio::select! {
                _ = synced.wait_for(|synced| *synced) => {}
                () = self.end.cancelled() => return,
            }
        }
        self.take_stock().await;
        self.world.ready.cancel();
        self.world.realm_changed();
    }

    /// Removes the artifacts of sources that were deleted while nobody looked, those whose name another object has taken among
    /// them, and charges the others to their lanes.
    async fn take_stock(&self) {
        let world = &self.world;
        world.under_way.forget_gone(|kind, namespace, name| {
            (kind == OwnKind::GitRepository.kind() && world.repositories.get(namespace, name).is_some())
                || (kind == OwnKind::Kustomization.kind() && world.kustomizations.get(namespace, name).is_some())
        });
        let mut kept = Vec::new();
        for repository in self.world.repositories.all() {
            let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
            let lane = self.world.lanes.of(&self.world.place(namespace).await, namespace);
            if let Ok(source) = git_source(&repository.metadata) {
                kept.push((source, lane));
            }
        }
        let world = Arc::clone(&self.world);
        let looking = tokio::task::spawn_blocking(move || {
            let known = |namespace: &str, name: &str, uid: &str| {
                let repository = world.repositories.get(namespace, name);
                repository.is_some_and(|repository| repository.metadata.uid.as_deref() == Some(uid))
            };
            if let Err(error) = world.artifacts.retain(OwnKind::GitRepository.kind(), known) {
                tracing::warn!(%error, "the artifacts of sources that are gone could not be removed");
            }
            for (source, lane) in kept {
                if let Err(error) = world.artifacts.adopt(&source, &lane.name) {
                    let (namespace, name) = (source.namespace(), source.name());
                    tracing::warn!(%error, namespace, name, "a stored artifact can't be kept; it is fetched again");
                }
            }
        });
        if let Err(error) = looking.await {
            tracing::warn!(%error, "what is stored could not be looked through");
        }
    }

    /// Keeps a cache up to date from a watch as the controller, and says what changed.
    fn watch<K>(
        &self,
        (api_version, kind, labels): (&'static str, &'static str, Option<&'static str>),
        cache: fn(&World) -> &Cache<K>,
        changed: impl Fn(&Manager, Change<K>) + Send + Sync + 'static,
    ) -> signal::Receiver<bool>
    where
        K: Resource + DeserializeOwned + Send + Sync + 'static,
    {
        let (send, receive) = signal::channel(false);
        let manager = self.clone();
        let following = async move {
            let controller = &manager.world.controller;
            let health = manager.world.clients.health();
            let mut complaint = String::new();
            let resource = loop {
                match controller.resource(api_version, kind).await {
                    Ok(resource) => break resource,
                    Err(ClusterError::NoKindMatch { .. }) => tracing::debug!(kind, "not served yet"),
                    Err(error) => {
                        health.set_seen(kind, false);
                        let said = error.to_string();
                        if said != complaint {
                            tracing::warn!(kind, %error, "the API server can't be asked");
                            complaint = said;
                        }
                    }
                }
                tokio::time::sleep(ABSENT).await;
            };
            let sink = |event| match event {
                WatchEvent::Changed(object) => {
                    if let Some(change) = observe(cache(&manager.world), &object) {
                        changed(&manager, change);
                    }
                }
                WatchEvent::Deleted {
                    namespace,
                    name,
                    revision,
                } => {
                    let gone = cache::number(&revision);
                    let old = cache(&manager.world).remove(&namespace, &name, gone);
                    changed(
                        &manager,
                        Change {
                            namespace,
                            name,
                            old,
                            new: None,
                        },
                    );
                }
                WatchEvent::Synced { .. } => {
                    health.set_seen(kind, true);
                    send.send_replace(true);
                }
                WatchEvent::Failed(error) => {
                    health.set_seen(kind, false);
                    tracing::warn!(kind, %error, "the watch broke; it begins again");
                }
                WatchEvent::Resumed => health.set_seen(kind, true),
                WatchEvent::Progress { .. } => {}
            };
            watch(controller, &resource, None, labels, sink).await;
        };
        let end = self.end.clone();
        self.tasks
            .spawn(async move { end.run_until_cancelled(following).await });
        receive
    }

    fn namespace_changed(&self, change: Change<Namespace>) {
        let facts = |namespace: &Arc<Namespace>| NamespaceFacts::from(&namespace.metadata);
        if change.old.as_ref().map(facts) != change.new.as_ref().map(facts) {
            self.world.realm_changed();
        }
    }

    /// An object that bears the label of a Tenant changed: that Tenant is told, and the one whose label it bore before.
    fn tenant_object_changed(&self, change: Change<DynamicObject>) {
        let tenant = |object: &Option<Arc<DynamicObject>>| object.as_ref()?.labels().get(TENANT_LABEL).cloned();
        let (old, new) = (tenant(&change.old), tenant(&change.new));
        for tenant in new.iter().chain(old.iter().filter(|old| Some(*old) != new.as_ref())) {
            self.world.mailboxes.wake(&Key::new(OwnKind::Tenant, "", tenant));
        }
    }

    /// An object of a reconciled kind changed: its own reconciler is told, and those that look at it.
    fn own_changed<K>(&self, kind: OwnKind, change: &Change<K>) {
        let (namespace, name) = (change.namespace.as_str(), change.name.as_str());
        let world = &self.world;
        let key = Key::new(kind, namespace, name);
        let (mailbox, new) = world.mailboxes.get_or_add(&key);
        mailbox.wake();
        if new {
            self.spawn(key.clone());
        }
        match kind {
            OwnKind::Tenant | OwnKind::Surface => {}
            OwnKind::GitRepository => {
                for kustomization in world.kustomizations.in_namespace(namespace) {
                    if kustomization.spec.source_ref.name == name {
                        self.wake(OwnKind::Kustomization, &kustomization.metadata);
                    }
                }
                self.wake_surfaces(namespace);
            }
            OwnKind::Kustomization => {
                world.kustomization_changed(&key);
                for kustomization in world.kustomizations.in_namespace(namespace) {
                    if kustomization
                        .spec
                        .depends_on
                        .iter()
                        .any(|dependency| dependency.name == name)
                    {
                        self.wake(OwnKind::Kustomization, &kustomization.metadata);
                    }
                }
                self.wake_surfaces(namespace);
            }
        }
    }

    fn wake(&self, kind: OwnKind, metadata: &tenure_api::ObjectMeta) {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        self.world.mailboxes.wake(&Key::new(kind, namespace, name));
    }

    fn wake_surfaces(&self, namespace: &str) {
        for surface in self.world.surfaces.in_namespace(namespace) {
            self.wake(OwnKind::Surface, &surface.metadata);
        }
    }

    fn spawn(&self, key: Key) {
        let world = Arc::clone(&self.world);
        let (mailbox, _) = world.mailboxes.get_or_add(&key);
        let end = self.end.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = world.ready.cancelled() => {}
                () = end.cancelled() => return,
            }
            let said = tokio::sync::Mutex::new(EventHistory::default());
            let start = || reconcile(&world, &key, &mailbox, &end);
            let crashed = async |times, pause| {
                tracing::error!(object = %key, times, ?pause, "its reconciler panicked and is started again after a pause");
                let mut said = said.lock().await;
                if let Err(error) = own::tell_of_crash(&world, &key, &mut said, times).await {
                    tracing::warn!(object = %key, %error, "that its reconciler panicked could not be written into its status");
                }
            };
            supervise(supervise::PAUSES, &end, start, crashed).await;
        });
    }
}

/// Drives one object until it is gone, or the controllers end.
async fn reconcile(world: &Arc<World>, key: &Key, mailbox: &Mailbox, end: &CancellationToken) {
    let (shared, own) = (Arc::clone(world), key.clone());
    let boxes = world.mailboxes.as_ref();
    match key.kind {
        OwnKind::GitRepository => drive(GitRepositoryReconciler::new(shared, own), boxes, mailbox, end).await,
        OwnKind::Kustomization => drive(KustomizationReconciler::new(shared, own), boxes, mailbox, end).await,
        OwnKind::Surface => drive(SurfaceReconciler::new(shared, own), boxes, mailbox, end).await,
        OwnKind::Tenant => drive(TenantReconciler::new(shared, own), boxes, mailbox, end).await,
    }
}

/// The kind as it is watched: all of its objects.
fn of(kind: OwnKind) -> (&'static str, &'static str, Option<&'static str>) {
    (kind.api_version(), kind.kind(), None)
}

/// A change that a watch told of.
struct Change<K> {
    namespace: String,
    name: String,
    old: Option<Arc<K>>,
    new: Option<Arc<K>>,
}

/// Takes an object from a watch.
fn observe<K: Resource + DeserializeOwned>(objects: &Cache<K>, object: &Seen) -> Option<Change<K>> {
    let read = object.read().inspect_err(|error| {
        tracing::warn!(namespace = object.namespace, name = object.name, %error, "an object can't be read");
    });
    let object: K = cache::read(read.ok()?)?;
    let namespace = object.meta().namespace.clone().unwrap_or_default();
    let name = object.meta().name.clone().unwrap_or_default();
    let old = objects.observe(object);
    let new = objects.get(&namespace, &name);
    Some(Change {
        namespace,
        name,
        old,
        new,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tenure_cluster::{Connection, Token};

    use super::*;

    /// With one kind that nobody could list nothing was reconciled, and all was said to be well.
    #[tokio::test]
    async fn who_sees_nothing_is_not_well() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"broken","code":500}"#;
            let mut response = Response::new(Body::from(status.as_bytes().to_vec()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            Ok::<_, Infallible>(response)
        });
        let connection = Connection::in_process(service, Token::new("t", None));
        let health = connection.health();
        let folder = tempfile::TempDir::new().unwrap();
        let end = CancellationToken::new();
        let config = Config::new(connection, folder.path().join("artifacts"));
        let running = tokio::spawn(run(config, end.clone()));
        while health.is_good() {
            tokio::task::yield_now().await;
        }
        end.cancel();
        running.await.unwrap().unwrap();
    }
}
