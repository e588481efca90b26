//! The kinds that the hub reconciles, with one folder for each.
//!
//! - `package`: Packages.
//! - `package_source`: PackageSources.
//! - `package_values`: PackageValues.
//! - `plan_steps`: executes the steps of a plan, for Surfaces and Tenants.
//! - `recorded_objects`: objects that a status records, for Packages and PackageSources.
//! - `surface`: Surfaces.
//! - `tenant`: Tenants.

pub(crate) mod package;
pub(crate) mod package_source;
pub(crate) mod package_values;
pub(crate) mod plan_steps;
pub(crate) mod recorded_objects;
pub(crate) mod surface;
pub(crate) mod tenant;
