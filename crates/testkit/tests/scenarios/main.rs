//! Tenure's requirements for an API server: field ownership, admission, conversion, deletion. The same scenarios hold
//! on the embedded control plane (`cargo test`) and on a real Kubernetes (`cargo xtask scenarios`). A test here must
//! not depend on which of the two it runs.
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
