//! Where tenancy's rules meet what is written.
//!
//! Owns the doors: how a request comes to [`tenure_tenancy::admission::decide`], and how its answer goes back. Refuses to decide.
//!
//! ```text
//! a write to the embedded control plane ──[embedded]──┐
//!                                                     ├──▶ tenure_tenancy::admission::decide
//! AdmissionReview of another cluster ─────[webhook]───┘
//! ```

mod counting;
mod embedded;
pub mod webhook;

pub use embedded::EmbeddedGuard;
