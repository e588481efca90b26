//! Reconciles Tenants: observe → plan → execute → write, all as the controller: what a Tenant is made of comes out of no repository.

mod reconcile;
mod witness;

use std::sync::Arc;

use tenure_api::Tenant;
use tenure_api::metadata::TENURE_CONTROLLER;

use crate::drive::Reconciler;
use crate::hub::Hub;
use crate::key::{Key, Kind};
use crate::reconciled::Reconciled;

impl Reconciled for Tenant {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "capsule.clastix.io/v1beta2",
        name: "Tenant",
        manager: TENURE_CONTROLLER,
        reporter: "tenure-controller",
    };

    // An administrator records namespaces, too (`tenure adopt`).
    const SHARED_RECORD: Option<&'static str> = Some("spaces");

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::TenantReconciler::new(hub, key)
    }

    /// Whose a namespace is follows from it, from its status too: what was recorded counts as soon as it is written.
    fn refresh(hub: &Hub, key: &Key) {
        hub.take_tenant(&key.name);
    }
}
