//! Alerts: the status says whether an Alert is usable. `notification_queue` sends the events.

use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;
use tenure_api::{Alert, Provider};
use tenure_planner::alert::{Plan, Snapshot, estimate_plan, plan};
use tenure_tenancy::Placement;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::{Lane, Shard};
use crate::lane_kinds::checked_kind::{CheckedKind, CheckedKindReconciler};
use crate::notifications::release_events::refresh_watches;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for Alert {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "notification.toolkit.fluxcd.io/v1beta3",
        name: "Alert",
        manager: NOTIFICATION_CONTROLLER,
        reporter: NOTIFICATION_CONTROLLER,
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        CheckedKindReconciler::<Self>::new(shard, key)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    /// Returns the Alerts that a created, deleted or changed Provider concerns.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        if changed.kind != Provider::KIND {
            return Vec::new();
        }
        let alerts = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let of_it = alerts
            .iter()
            .filter(|alert| alert.spec.provider_ref.name == changed.name);
        of_it
            .map(|alert| Key::from_metadata(Self::KIND, &alert.metadata))
            .collect()
    }
}

impl CheckedKind for Alert {
    type Facts = ();

    async fn follow_events(lane: &Arc<Lane>, shard: &Shard, placement: &Placement) {
        refresh_watches(lane, shard, placement).await;
    }

    async fn observe(&self, _lane: &Lane, _shard: &Shard, _placement: &Placement) {}

    fn make_plan(&self, shard: &Shard, placement: Placement, (): (), now: Timestamp) -> Plan {
        let name = self.spec.provider_ref.name.as_str();
        let provider = shard.caches.get::<Provider>().get(&shard.namespace, name);
        let snapshot = Snapshot {
            alert: self.clone(),
            placement,
            provider: provider.map(|provider| provider.as_ref().clone()),
        };
        plan(&snapshot, now)
    }

    fn estimate_work(&self) -> usize {
        estimate_plan(self)
    }
}
