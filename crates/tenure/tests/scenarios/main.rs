//! The program with a cluster that it doesn't serve itself: the installed objects, the running controllers, and the remaining objects after an uninstallation. The
//! tests run on `tenure up --bare`, which has only what a kube-apiserver has; with `cargo xtask scenarios`, on a real one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::allow_attributes,
    dead_code,
    reason = "tests may panic, and share what starts processes with others"
)]

mod access;
mod admission;
mod adopt;
mod artifacts;
mod attest;
mod audit;
#[path = "../it/bootstrap/bed.rs"]
mod bed;
mod bootstrap;
mod capsule;
mod check;
mod helm_releases;
mod install;
mod install_killed;
#[cfg(target_os = "linux")]
mod lane_lines;
#[cfg(target_os = "linux")]
mod lane_pods;
#[cfg(target_os = "linux")]
mod lane_users;
#[cfg(target_os = "linux")]
mod lanes;
mod leaving;
mod metrics;
mod namespace_labels;
mod namespaces_from_git;
mod owner_commands;
mod owner_references;
mod package_values;
#[path = "../it/pages.rs"]
mod pages;
#[path = "../it/process.rs"]
mod process;
mod reading;
mod recover;
mod run;
#[cfg(target_os = "linux")]
mod sharding;
mod uninstall;
mod versions;
mod world;
