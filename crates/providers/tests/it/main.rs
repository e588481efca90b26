//! Hosts' APIs against the fakes that are written from the hosts' public documents, and, by URL, against real hosts.
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
