//! Reconciles Receivers: observe → plan → read the Secret → write. Also handles requests to them. The planner decides who sent a request, and which
//! objects are asked to reconcile.

mod delivery;
mod reconcile;

use std::sync::Arc;

use tenure_api::Receiver;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::Shard;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

pub(crate) use delivery::{announce_url, handle_delivery};

impl Reconciled for Receiver {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "notification.toolkit.fluxcd.io/v1",
        name: "Receiver",
        manager: NOTIFICATION_CONTROLLER,
        reporter: NOTIFICATION_CONTROLLER,
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        reconcile::ReceiverReconciler::new(shard, key)
    }
}
