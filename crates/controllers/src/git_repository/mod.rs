//! Reconciles GitRepositories: observe → plan → fetch → write.

mod fetch;
mod reconcile;
mod stock;

use std::sync::Arc;

use tenure_api::GitRepository;
use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;

use crate::drive::Reconciler;
use crate::key::{Key, Kind};
use crate::reconciled::Reconciled;
use crate::world::World;

impl Reconciled for GitRepository {
    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "GitRepository",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(world: Arc<World>, key: Key) -> impl Reconciler {
        reconcile::GitRepositoryReconciler::new(world, key)
    }

    async fn take_stock(world: Arc<World>) {
        stock::take(world).await;
    }
}
