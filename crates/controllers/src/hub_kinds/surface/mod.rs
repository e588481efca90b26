//! Reconciles Surfaces: observe → plan → execute → write. The objects that a Surface generates are written as the controller. The generated
//! Kustomizations apply as the surface's identity. The keys of its sources are written by the account that writes credentials.

mod package_rule_trial;
mod reconcile;
mod source_keys;

use std::sync::Arc;

use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::{GitRepository, Kustomization, Surface};

use crate::cluster_view::key::{Key, Kind};
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

/// The kinds that a Surface generates.
const GENERATED: [&Kind; 2] = [GitRepository::KIND, Kustomization::KIND];

impl Reconciled for Surface {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "tenure.dev/v1alpha1",
        name: "Surface",
        manager: TENURE_CONTROLLER,
        reporter: "tenure-controller",
    };

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::SurfaceReconciler::new(hub, key)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    /// Returns the Surfaces of a changed generated object, which are in its namespace.
    fn list_dependents(hub: &Hub, changed: &Key) -> Vec<Key> {
        if !GENERATED.contains(&changed.kind) {
            return Vec::new();
        }
        let beside = hub.caches.get::<Self>().in_namespace(&changed.namespace);
        let keys = beside
            .iter()
            .map(|surface| Key::from_metadata(Self::KIND, &surface.metadata));
        keys.collect()
    }
}
