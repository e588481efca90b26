//! Starts everything: the watches of the reconciled kinds as the controller, a task for every object, and their orderly end.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::Tenant;
use tenure_api::metadata::TENANT_LABEL;
use tenure_cluster::{ClusterError, WatchEvent, watch};
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
                |manager, _| manager.world.mailboxes.wake_kind(OwnKind::Tenant),
            ),
            self.watch(
                ("v1", "ServiceAccount", Some(TENANT_LABEL)),
                |world| &world.service_accounts,
                |manager, _| manager.world.mailboxes.wake_kind(OwnKind::Tenant),
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
        self.world.ready.cancel();
        self.world.realm_changed();
        self.remove_what_is_left();
    }

    /// Removes the artifacts of sources that were deleted while nobody looked.
    fn remove_what_is_left(&self) {
        let world = &self.world;
        for (namespace, name) in world.artifacts.recorded(OwnKind::GitRepository.kind()) {
            if world.repositories.get(&namespace, &name).is_some() {
                continue;
            }
            let removed = git_source(&namespace, &name).and_then(|source| world.artifacts.remove(&source));
            if let Err(error) = removed {
                tracing::warn!(%error, namespace, name, "the artifacts of a source that is gone could not be removed");
            }
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
            let resource = loop {
                match controller.resource(api_version, kind).await {
                    Ok(resource) => break resource,
                    Err(ClusterError::NoKindMatch { .. }) => tracing::debug!(kind, "not served yet"),
                    Err(error) => tracing::warn!(kind, %error, "the API server can't be asked"),
                }
                tokio::time::sleep(ABSENT).await;
            };
            let sink = |event| match event {
                WatchEvent::Changed(object) => {
                    if let Some(change) = observe(cache(&manager.world), object) {
                        changed(&manager, change);
                    }
                }
                WatchEvent::Deleted { namespace, name, .. } => {
                    let old = cache(&manager.world).remove(&namespace, &name);
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
                    send.send_replace(true);
                }
                WatchEvent::Failed(error) => tracing::warn!(kind, %error, "the watch broke; it begins again"),
                WatchEvent::Progress { .. } | WatchEvent::Resumed => {}
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

    /// An object of a reconciled kind changed: its own reconciler is told, and those that look at it.
    fn own_changed<K>(&self, kind: OwnKind, change: &Change<K>) {
        let (namespace, name) = (change.namespace.as_str(), change.name.as_str());
        let world = &self.world;
        let key = Key::new(kind, namespace, name);
        let (mailbox, new) = world.mailboxes.get_or_add(&key);
        mailbox.wake();
        if new {
            self.spawn(key);
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
            let shared = Arc::clone(&world);
            match key.kind {
                OwnKind::GitRepository => drive(GitRepositoryReconciler::new(shared, key), world, mailbox, end).await,
                OwnKind::Kustomization => drive(KustomizationReconciler::new(shared, key), world, mailbox, end).await,
                OwnKind::Surface => drive(SurfaceReconciler::new(shared, key), world, mailbox, end).await,
                OwnKind::Tenant => drive(TenantReconciler::new(shared, key), world, mailbox, end).await,
            }
        });
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
fn observe<K: Resource + DeserializeOwned>(objects: &Cache<K>, object: Value) -> Option<Change<K>> {
    let object: K = cache::read(object)?;
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
