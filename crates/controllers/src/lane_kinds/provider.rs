//! Providers: the status says whether a Provider is usable. `notification_queue` sends to it.

use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::Provider;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;
use tenure_planner::provider::{Destination, ObservedReceiver, Plan, RequiredObjects, Snapshot, plan};
use tenure_sources::find_denial;
use tenure_tenancy::Placement;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::{Lane, Shard};
use crate::lane_kinds::checked_kind::{CheckedKind, CheckedKindReconciler};
use crate::notifications::read_secrets;
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
    type Facts = ObservedReceiver;

    async fn observe(&self, lane: &Lane, shard: &Shard, placement: &Placement) -> ObservedReceiver {
        let Some(required) = RequiredObjects::of_check(self, placement) else {
            return ObservedReceiver::NoProblem;
        };
        let secrets = match read_secrets(lane, shard, &required).await {
            Ok(secrets) => secrets,
            // Without the Secrets the address is unknown.
            Err(failure) => return ObservedReceiver::UnreadableSecret(failure),
        };
        // The event about a failed notification names the part of a Secret that can't be used.
        let Ok(destination) = Destination::find(self, secrets) else {
            return ObservedReceiver::NoProblem;
        };
        let reach = shard.context.reach(matches!(placement, Placement::Platform { .. }));
        match find_denial(&destination.connection, &destination.address, reach).await {
            Some(denial) => {
                ObservedReceiver::DeniedAddress(destination.describe_denial(&denial.message, &denial.discreet))
            }
            None => ObservedReceiver::NoProblem,
        }
    }

    fn make_plan(&self, _shard: &Shard, placement: Placement, receiver: ObservedReceiver, now: Timestamp) -> Plan {
        let snapshot = Snapshot {
            provider: self.clone(),
            placement,
            receiver,
        };
        plan(&snapshot, now)
    }
}
