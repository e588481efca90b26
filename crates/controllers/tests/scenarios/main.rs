//! The controllers against an API server and a Git server, as a user meets them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod applying;
mod attacks;
mod failing;
mod lifecycle;
mod stage;
mod tenants;
