//! Reconciles Kustomizations: observe → plan → execute → write.

mod observe;
mod reconcile;

pub(crate) use reconcile::KustomizationReconciler;
