//! Reconciles Kustomizations: observe → plan → execute → write.

mod observe;
mod put_away;
mod reconcile;

pub(crate) use reconcile::KustomizationReconciler;
