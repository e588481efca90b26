//! The program from outside: its processes, its exit codes, its output.
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

mod access;
mod artifact_endpoint;
mod attest;
mod audit;
mod bad_input;
mod bind;
mod bootstrap;
mod broken;
mod build;
mod captures;
mod check;
mod commands;
mod demo;
mod diff;
mod doing;
mod durable;
mod flux;
mod helm_authors;
mod helm_controller;
mod hooks;
mod howto;
mod inspect;
mod install_image;
mod killed;
mod kube_apiserver;
mod logs;
mod pages;
mod process;
mod reach;
mod real_repositories;
mod reasons;
mod tenancy;
mod traces;
