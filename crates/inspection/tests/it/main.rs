//! Reports about clusters as data.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod access_audit;
mod kubectl_output;
