//! Fetches from a real git server on the loopback address, and from servers that misbehave.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod authentication;
mod bed;
mod bounds;
mod bucket;
mod budgets;
mod content;
mod download;
mod github_app;
mod helm;
mod lfs;
mod oci;
mod parts;
mod policy;
mod proxies;
mod redirects;
mod references;
mod request;
mod signing;
mod ssh;
mod store;
mod submodules;
mod verification;
