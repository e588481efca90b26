//! What Tenure relies on in an API server: who owns a field, what is admitted, how things end. The same sentences hold on the embedded
//! control plane (`cargo test`) and on a real Kubernetes (`cargo xtask scenarios`); a test here may not ask which one it is on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod admission;
mod deletion;
mod limits;
mod ownership;
mod place;
mod policies;
