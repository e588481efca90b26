//! Tests of the hosts' APIs against fakes that follow the hosts' public documents, and against real hosts by URL.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod bed;
mod contract;
mod device;
mod fetches;
mod github;
mod gitlab;
mod misbehaviour;
mod probes;
mod registry;
