//! Reconciles Kustomizations: observe → plan → execute → write.

mod look;
mod observe;
mod put_away;
mod reconcile;

pub(crate) use reconcile::KustomizationReconciler;
