//! The admission points: the cases of tenancy's table, sent to servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod accesses;
mod answer;
mod beside_policies;
mod client_certificate;
mod door;
mod embedded;
mod expressions;
mod hosts;
mod keeping;
mod laying;
mod managed;
mod packages;
mod paths;
mod places;
mod policies;
mod purposes;
mod quotas;
mod reviews;
mod roles;
#[allow(dead_code, reason = "the policies' scenarios use the rest of it")]
mod stage;
#[allow(dead_code, reason = "the policies' scenarios take them away again")]
mod stand_ins;
mod sums;
#[path = "../../../admission-rules/tests/trials/table.rs"]
#[allow(dead_code, reason = "the pure rules' tests use all of it")]
mod table;
mod templates;
mod together;
mod webhook;
