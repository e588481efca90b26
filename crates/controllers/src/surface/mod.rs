//! Reconciles Surfaces: observe → plan → execute → write. What a Surface generates is written as the controller, and applied by the
//! Kustomizations among it as the surface's identity.

mod reconcile;

pub(crate) use reconcile::SurfaceReconciler;
