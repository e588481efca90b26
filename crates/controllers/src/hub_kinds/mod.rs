//! The kinds that the hub reconciles, with one folder for each.
//!
//! - `plan_steps`: executes the steps of a plan, for both kinds.
//! - `surface`: Surfaces.
//! - `tenant`: Tenants.

pub(crate) mod plan_steps;
pub(crate) mod surface;
pub(crate) mod tenant;
