//! Where tenancy's rules meet what is written.
//!
//! Owns the doors: how a request comes to [`tenure_tenancy::admission::decide`], and how its answer goes back. Refuses to decide.

mod embedded;

pub use embedded::EmbeddedGuard;
