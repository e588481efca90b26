//! One logical cluster. The registry has the objects, the served resources, rights, admission and allocations. The
//! gate authenticates and authorizes. The cluster's own controllers, and the controller that empties definitions,
//! follow the registry. This module starts these in order. Sockets, certificates and limits of requests are outside,
//! because all clusters of a server share them.

use std::sync::Arc;

use tenure_kinds::kind::ServiceRange;
use tenure_store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission::guard::Guard;
use crate::authentication::Authenticator;
use crate::catalog::Catalog;
use crate::gate::Gate;
use crate::http::ApiError;
use crate::registry::Registry;
use crate::{bootstrap, controllers};

/// The settings of one cluster: the other settings of a server are the same for all its clusters.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The range from which Services get their addresses.
    pub(crate) services: ServiceRange,
    /// Disabled admission rules.
    pub(crate) left_out_plugins: Vec<String>,
    /// The guard, which checks writes beside webhooks.
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// Limit for the bytes of outdated objects that lists may keep.
    pub(crate) old_bytes: usize,
}

/// An open cluster: its objects, and the gate that checks each request. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) registry: Registry,
    pub(crate) gate: Arc<Gate>,
}

impl Cluster {
    /// Opens the cluster whose objects are in the store, and creates the objects of every cluster.
    ///
    /// # Errors
    /// Of the first object that could not be created.
    pub(crate) async fn open(store: Store, authenticator: Authenticator, settings: Settings) -> Result<Self, ApiError> {
        let registry = Registry::new(store, Catalog::builtin(), settings.services);
        let gate = Arc::new(Gate::new(authenticator, registry.rights().clone()));
        registry.contents().refresh_definitions();
        bootstrap::run(&registry).await?;
        registry.admission().disable_plugins(settings.left_out_plugins);
        if let Some(guard) = settings.guard {
            registry.admission().set_guard(guard);
        }
        registry.admission().open();
        registry.open_sources().limit_displaced_bytes(settings.old_bytes);
        Ok(Self { registry, gate })
    }

    /// Starts the background tasks, which run until `shutdown`. Must be called within a tokio runtime.
    pub(crate) fn start(&self, settings: controllers::Settings, shutdown: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            controllers::start_emptying_definitions(self.registry.clone(), shutdown.clone()),
            controllers::start(self.registry.clone(), settings, shutdown.clone()),
        ]
    }
}
