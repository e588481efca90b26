//! Reconciles GitRepositories: observe → plan → fetch → write.

mod fetch;
mod reconcile;

pub(crate) use reconcile::GitRepositoryReconciler;
