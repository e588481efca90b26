//! The points at which tenancy's rules meet a write.
//!
//! An admission point translates a request for [`tenure_admission_rules::decide`] and sends the answer back. It makes no
//! decision.
//!
//! ```text
//! a write to the embedded control plane ──[embedded]──┐
//!                                                     ├──▶ tenure_admission_rules::decide
//! AdmissionReview of another cluster ─────[webhook]───┘
//! ```

mod embedded;
mod quota_usage;
pub mod webhook;

pub use embedded::EmbeddedGuard;
