//! One logical cluster: all that belongs to its objects and to nobody else's. The registry has the objects, and what is served,
//! known of rights, admitted and given out for them; the gate says who comes in; its own controllers and the one that empties
//! definitions follow it. Owns the order in which these come to life; refuses what all clusters of a server share: sockets,
//! certificates, and the bounds on requests.

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

/// How a cluster differs from another.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where Services get their addresses from.
    pub(crate) services: ServiceRange,
    /// Rules of admission that are left out.
    pub(crate) left_out_plugins: Vec<String>,
    /// Who guards what is written, beside webhooks.
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// How many bytes of objects that are no longer the newest its lists may keep.
    pub(crate) old_bytes: usize,
}

/// A cluster. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) registry: Registry,
    pub(crate) gate: Arc<Gate>,
}

impl Cluster {
    /// The cluster whose objects are in the store, with everything that each starts with.
    ///
    /// # Errors
    /// Of the first object that could not be made.
    pub(crate) async fn open(store: Store, authenticator: Authenticator, settings: Settings) -> Result<Self, ApiError> {
        let registry = Registry::new(store, Catalog::builtin(), settings.services);
        let gate = Arc::new(Gate::new(authenticator, registry.rights().clone()));
        registry.contents().refresh_definitions();
        bootstrap::run(&registry).await?;
        registry.admission().leave_out(settings.left_out_plugins);
        if let Some(guard) = settings.guard {
            registry.admission().set_guard(guard);
        }
        registry.admission().open();
        registry.held().bound(settings.old_bytes);
        Ok(Self { registry, gate })
    }

    /// Starts what goes on beside requests, until `shutdown`. Must be called within a tokio runtime.
    pub(crate) fn start(&self, settings: controllers::Settings, shutdown: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            controllers::start_emptying_definitions(self.registry.clone(), shutdown.clone()),
            controllers::start(self.registry.clone(), settings, shutdown.clone()),
        ]
    }
}
