//! Integration tests: recorded answers of the real kustomize.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic"
)]

mod damaged;
mod library;
mod properties;
mod secrets;
mod substitution;
