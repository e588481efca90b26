//! What Tenure relies on in an API server: who owns a field, what is admitted, how versions become each other, how things end. The same sentences hold on the embedded
//! control plane (`cargo test`) and on a real Kubernetes (`cargo xtask scenarios`); a test here may not ask which one it is on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod admission;
mod canary;
mod conversion;
mod deletion;
mod limits;
mod ownership;
mod place;
mod policies;
