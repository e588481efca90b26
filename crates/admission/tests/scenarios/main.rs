//! The policies on any server: a real kube-apiserver evaluates the same expressions as the embedded control plane.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

#[path = "../it/accesses.rs"]
mod accesses;
#[path = "../it/answer.rs"]
#[allow(dead_code, reason = "the other doors' tests use the rest of it")]
mod answer;
#[path = "../it/laying.rs"]
mod laying;
#[path = "../it/managed.rs"]
mod managed;
#[path = "../it/packages.rs"]
mod packages;
#[path = "../it/paths.rs"]
mod paths;
mod policies;
#[path = "../it/roles.rs"]
mod roles;
#[path = "../it/stage.rs"]
#[allow(dead_code, reason = "the other doors' tests use the rest of it")]
mod stage;
#[path = "../it/stand_ins.rs"]
mod stand_ins;
#[path = "../it/sums.rs"]
mod sums;
#[path = "../../../admission-rules/tests/trials/table.rs"]
#[allow(dead_code, reason = "the pure rules' tests use all of it")]
mod table;
