//! Replays and records answers of a real kube-apiserver, and checks properties on random input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic, and the corpus is in files"
)]

mod corpus;
mod created;
#[allow(dead_code, reason = "the replay uses the rest")]
mod managers;
mod many;
mod properties;
mod queries;
mod record;
mod speed;
mod versions;
