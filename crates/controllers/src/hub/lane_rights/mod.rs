//! Maintains the rights of lanes, with a task for each namespace in which something is reconciled: observe → plan → execute, all as the controller.
//! The plan decides whether a lane may begin.

mod reconcile;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::cluster_view::mailbox::Mailbox;
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::run_object_loop;
use crate::reconcile_loop::supervisor::{self, supervise_task};

/// Maintains a lane's rights in a namespace until nothing is reconciled there, or the controllers end.
pub(crate) async fn run(hub: Arc<Hub>, namespace: String, mailbox: Arc<Mailbox>, end: CancellationToken) {
    tokio::select! {
        () = hub.context.ready.cancelled() => {}
        () = end.cancelled() => return,
    }
    let start = || {
        let reconciler = reconcile::RightsReconciler::new(Arc::clone(&hub), &namespace);
        run_object_loop(reconciler, &hub.context.mailboxes, (&mailbox, None), &end)
    };
    let crashed = |times, pause| {
        tracing::error!(
            namespace,
            times,
            ?pause,
            "the reconciler of a lane's rights panicked and is started again after a pause"
        );
        std::future::ready(())
    };
    supervise_task(supervisor::PAUSES, &end, start, crashed).await;
}
