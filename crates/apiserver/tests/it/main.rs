//! The control plane's tests: one binary, with a module for each subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod access;
mod access_recorded;
mod answers;
mod audit;
mod certificates;
mod cluster;
mod concurrent;
mod controllers;
mod conversion;
mod coverage;
mod decoders;
mod discovery;
mod exchanges;
mod garbage;
mod intake;
mod kubectl;
mod large;
mod openapi;
mod policies;
mod quotas;
mod serving;
mod tokens;
mod watches;
mod webhooks;
