//! Reconciles Tenants: observe → plan → execute → write, all as the controller: what a Tenant is made of comes out of no repository.

mod reconcile;

pub(crate) use reconcile::TenantReconciler;
