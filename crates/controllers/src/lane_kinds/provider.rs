//! Providers: the status says whether a Provider is usable. `notification_queue` sends to it.

use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::Provider;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;
use tenure_planner::provider::{Plan, Snapshot, plan};
use tenure_tenancy::Placement;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::Shard;
use crate::lane_kinds::checked_kind::{CheckedKind, CheckedKindReconciler};
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for Provider {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "notification.toolkit.fluxcd.io/v1beta3",
        name: "Provider",
        manager: NOTIFICATION_CONTROLLER,
        reporter: NOTIFICATION_CONTROLLER,
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        CheckedKindReconciler::<Self>::new(shard, key)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }
}

impl CheckedKind for Provider {
    fn make_plan(&self, _shard: &Shard, placement: Placement, now: Timestamp) -> Plan {
        let snapshot = Snapshot {
            provider: self.clone(),
            placement,
        };
        plan(&snapshot, now)
    }
}
