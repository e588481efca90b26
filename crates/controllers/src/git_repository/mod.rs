//! Reconciles GitRepositories: observe → plan → fetch → write.

mod fetch;
mod reconcile;
mod stock;

use std::sync::Arc;

use tenure_api::GitRepository;
use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;

use crate::drive::Reconciler;
use crate::key::{Key, Kind};
use crate::lane::Shard;
use crate::means::Means;
use crate::reconciled::Reconciled;

impl Reconciled for GitRepository {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "GitRepository",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        reconcile::GitRepositoryReconciler::new(shard, key)
    }

    async fn take_stock(means: Arc<Means>, shards: Vec<Arc<Shard>>) {
        stock::take_stock(means, shards).await;
    }
}
