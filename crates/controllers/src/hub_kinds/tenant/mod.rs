//! Reconciles Tenants: observe → plan → execute → write, all as the controller: no part of a Tenant comes from a repository.

mod other_accounts;
mod reconcile;

use std::sync::Arc;

use tenure_api::Tenant;
use tenure_api::metadata::TENURE_CONTROLLER;

use crate::cluster_view::key::{Key, Kind};
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for Tenant {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "capsule.clastix.io/v1beta2",
        name: "Tenant",
        manager: TENURE_CONTROLLER,
        reporter: "tenure-controller",
    };

    // An administrator also records namespaces (`tenure adopt`).
    const SHARED_RECORD: Option<&'static str> = Some("spaces");

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::TenantReconciler::new(hub, key)
    }

    /// Updates the placements of namespaces after a change of a Tenant, also of its status: the status records the Tenant's namespaces.
    fn refresh(hub: &Hub, key: &Key) {
        hub.take_tenant(&key.name);
    }
}
