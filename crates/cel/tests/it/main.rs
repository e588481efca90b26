//! Expressions with the answers of a kube-apiserver's environment, and properties that hold for any expression.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic, and the corpus is in files"
)]

mod allowance;
mod properties;
